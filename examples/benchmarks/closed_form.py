"""Seconds of q in closed form, with matrices in place and by XLA's programs alone, and how much their results differ.

    python examples/benchmarks/closed_form.py --rows 20000 --points 2000 4000 --rst

Rows are uniform in eight columns, the target is smooth with noise, the kernel a Matern 5/2. Both ways alternate in one
process; the first pass of each, which compiles, is not counted. "floor" are the operations that cannot be left out (a
triangular solve and half a product of all rows; of each noise variance that is tried one factorisation and a solve for
the held-out rows) at the speed of a product of matrices measured in the same run. The difference is that of the mean at
new rows, relative to their prior deviation.
"""

from __future__ import annotations

import argparse
import statistics
import time

import jax
import numpy as np
from _common import show
from sklearn.gaussian_process.kernels import Matern

from skgp_natgrad import svgp
from skgp_natgrad._backend import in_place
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.solve import left_out, noise_search

_COLUMNS, _NEW = 8, 1000


def parse_arguments(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rows", type=int, default=20_000)
    p.add_argument("--points", type=int, nargs="+", default=[2000, 4000])
    p.add_argument("--noise", type=float, nargs="+", default=[1e-2, 1e-8], help="variances; that of the signal is one")
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--rst", action="store_true", help="print an rst table")
    return p.parse_args(argv)


def table_of(n_rows, noise):
    """Rows of a smooth function of unit variance with noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.7, 1.7, size=(n_rows, _COLUMNS))
    y = np.sin(X @ rng.normal(size=(_COLUMNS, 4)) / 2.0).sum(1)
    return svgp.Table(X, (y / y.std() + noise**0.5 * rng.normal(size=n_rows))[None], np.ones(n_rows))


class Ways:
    """One table and one number of points, solved in both ways."""

    def __init__(self, n_rows, n_points, noise):
        self.table = table_of(n_rows, noise)
        settings = svgp.Settings(algorithm=svgp.Algorithm(solver="evidence"))
        kernels, bounds = (1.0 * Matern([2.0] * _COLUMNS, nu=2.5),), (0.1 * noise, 1e3 * noise)
        self.plan = svgp.Plan(
            kernels, Gaussian(noise, bounds), n_inducing=n_points, inducing_init="random", settings=settings
        )
        self.seconds, self.means, self.tried = {True: [], False: []}, {}, 0

    def run(self, placed):
        """Solve once, in place or not."""
        usual, counted = in_place.pays, noise_search.left_out_of
        in_place.pays = lambda *sizes: placed
        noise_search.left_out_of = self.count(counted)
        self.tried = 0
        try:
            state, constants = svgp.init(self.plan, self.table, random_state=0)
            start = time.perf_counter()
            result = svgp.train(state, constants, self.table, self.plan, random_state=0)
            jax.block_until_ready(result.state.q)
            self.seconds[placed].append(time.perf_counter() - start)
            model, _ = svgp.condition(result.state, result.constants, self.plan)
        finally:
            in_place.pays, noise_search.left_out_of = usual, counted
        self.means[placed] = svgp.predict(model, table_of(_NEW, 0.0).X[::-1] * 0.9, "latent_mean")

    def count(self, function):
        def counted(*arguments):
            self.tried += 1
            return function(*arguments)

        return counted

    def floor(self, speed):
        """Seconds of the operations that cannot be left out."""
        n, m = self.table.n_rows, self.plan.n_inducing
        held = left_out.HELD_OUT_ROWS
        return (2.0 * n * m**2 + (self.tried + 1) * (m**3 / 3.0 + m**2 * held)) / speed


def speed_of_products(size=3000):
    """Operations a second of a product of two matrices."""
    A = np.random.default_rng(0).normal(size=(size, size))
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        A @ A
        seconds.append(time.perf_counter() - start)
    return 2.0 * size**3 / min(seconds)


def main(argv=None):
    args = parse_arguments(argv)
    speed, records = speed_of_products(), []
    for n_points in args.points:
        for noise in args.noise:
            ways = Ways(args.rows, n_points, noise)
            for i in range(args.repeats + 1):
                for placed in (True, False):
                    ways.run(placed)
                    if i == 0:
                        ways.seconds[placed].clear()
            ours, xla = (statistics.median(ways.seconds[placed]) for placed in (True, False))
            difference = np.abs(ways.means[True] - ways.means[False]).max()
            cells = [n_points, f"{noise:g}", f"{ours:.1f}", f"{xla:.1f}", f"{ours / xla:.2f}"]
            records.append([*cells, f"{ways.floor(speed) / ours:.2f}", ways.tried, f"{difference:.0e}"])
            print(f"{records[-1]}", flush=True)
    print(f"{args.rows} rows, products at {speed / 1e9:.0f} GFLOP/s")
    show(
        ["points", "noise", "in place, s", "XLA, s", "ratio", "floor/in place", "noises", "difference"],
        records,
        args.rst,
    )


if __name__ == "__main__":
    main()
