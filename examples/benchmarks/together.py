"""Many fits of one structure as one compiled program: what that costs, and what it changes.

    NPROC=1 python examples/benchmarks/together.py --rst
    python examples/benchmarks/together.py --n-rows 300 --n-inducing 20 --n-members 8

The members are the candidates of a grid search on one table, which is made up: twenty RBF kernels of other
amplitudes and lengthscales. Their first 20 steps are computed in three ways: by a call of the package's
program for each member; by one program that takes the members in turn (``jax.lax.map``); and by one that takes
them together (``jax.vmap``), where factorisations stay in turn, as everywhere in the package.

The ways take turns, and the fewest CPU seconds of all threads count, which other processes disturb little; with
NPROC=1 XLA has one thread, and they hold no waiting. The difference is that of any member's bounds from those of
the first way, relative to the bound, at its largest.
"""

from __future__ import annotations

import itertools
import time
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from _common import machine, number, parser, show, where
from jax.custom_batching import sequential_vmap
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skgp_natgrad import likelihoods, svgp
from skgp_natgrad._backend import device, linalg, threads
from skgp_natgrad.step import chunk
from skgp_natgrad.training.batches import BatchStream

KERNELS = list(itertools.product([0.25, 1.0, 4.0, 16.0], [0.5, 1.0, 2.0, 4.0, 8.0]))


def parse_arguments(argv=None):
    p = parser(__doc__, "together.jsonl")
    p.add_argument("--n-rows", nargs="+", type=int, default=[240, 600, 1600], help="of the whole batch; with")
    p.add_argument("--n-inducing", nargs="+", type=int, default=[20, 50, 100], help="as many points, in turn")
    p.add_argument("--n-columns", type=int, default=8)
    p.add_argument("--n-members", type=int, default=len(KERNELS))
    p.add_argument("--repeats", type=int, default=7)
    return p.parse_args(argv)


def members(n_rows, n_inducing, likelihood, args):
    """The arguments of the first chunk of each member, in NumPy, and the algorithm."""
    random = np.random.RandomState(args.seed)
    X = random.normal(size=(n_rows, args.n_columns))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.3 * random.normal(size=n_rows)
    if "classification" in likelihood.tasks:
        y = (y > 0.0).astype(float)
    table, found = svgp.Table(X, y[None], np.ones(n_rows)), []
    for amplitude, scale in KERNELS[: args.n_members]:
        kernel = ConstantKernel(amplitude) * RBF(scale)
        plan = svgp.Plan((kernel,), likelihood, 2 * (likelihood.name == "bernoulli"), n_inducing=n_inducing)
        state, constants = svgp.init(plan, table, args.seed)
        batches = BatchStream(table, plan.settings.batch_size * 2, 0, 0, random)
        with device.computation():
            arrays = jax.tree.map(np.array, (state, constants, next(batches)))
        found.append((*arrays, np.full(svgp.STEPS_PER_CALL, 0.1), np.full(svgp.STEPS_PER_CALL, 0.01)))
    return found, plan.settings.algorithm.of_steps


def in_turn():
    """Context manager: factorisations and solves of stacks are taken in turn by ``jax.vmap``, too."""
    cholesky, solve = jnp.linalg.cholesky, linalg.solve_triangular

    def one_cholesky(A, symmetrize_input):
        return sequential_vmap(lambda A: cholesky(A, symmetrize_input=symmetrize_input))(A)

    def one_solve(L, B, lower):
        return sequential_vmap(lambda L, B: solve(L, B, lower=lower))(L, B)

    return mock.patch.multiple(linalg, solve_triangular=one_solve), mock.patch.object(
        jnp.linalg, "cholesky", one_cholesky
    )


def ways(found, algorithm):
    """Functions that compute the chunks of all members, by name; each returns their reports."""

    def run(state, constants, batches, gammas, rates):
        # The number of steps is a number of Python's here: under `jax.vmap` a traced one would cost selections.
        return chunk._chunk(state, constants, batches, gammas, rates, svgp.STEPS_PER_CALL, algorithm)[1]

    stacked = jax.tree.map(lambda *arrays: np.stack(arrays), *found)
    options = {"compiler_options": device._quick_options()}
    alone = jax.jit(run, **options)
    mapped = jax.jit(lambda *all_: jax.lax.map(lambda one: run(*one), all_), **options)
    together = jax.jit(jax.vmap(run), **options)

    def each():
        reports = [jax.block_until_ready(alone(*one)) for one in found]
        return jax.tree.map(lambda *arrays: np.stack(arrays), *reports)

    return {
        "a call for each": each,
        "one program, in turn": lambda: jax.block_until_ready(mapped(*stacked)),
        "one program, together": lambda: jax.block_until_ready(together(*stacked)),
    }


def compared(n_rows, n_inducing, likelihood, args):
    """A row of the table for each way."""
    found, algorithm = members(n_rows, n_inducing, likelihood, args)
    first, second = in_turn()
    with device.computation(), threads.single_threaded(n_inducing), first, second:
        functions = ways(found, algorithm)
        bounds, seconds = {}, dict.fromkeys(functions, np.inf)
        for name, function in functions.items():
            bounds[name] = np.asarray(function().elbo)
        for _, (name, function) in itertools.product(range(args.repeats), functions.items()):
            start = time.process_time()
            function()
            seconds[name] = min(seconds[name], time.process_time() - start)
    reference = bounds["a call for each"]
    for name in functions:
        milliseconds = 1e3 * seconds[name] / (len(found) * svgp.STEPS_PER_CALL)
        difference = np.max(np.abs(bounds[name] / reference - 1.0))
        yield [likelihood.name, n_rows, n_inducing, name, number(milliseconds, ".3f"), number(difference, ".1e")]


def main(argv=None):
    args = parse_arguments(argv)
    header = ["likelihood", "rows", "points", "way", "CPU ms a step of a member", "largest difference"]
    rows = []
    for name in ("gaussian", "bernoulli"):
        for sizes in zip(args.n_rows, args.n_inducing, strict=True):
            rows += compared(*sizes, likelihoods.by_name(name), args)
    show(header, rows, args.rst, [where([machine()])])


if __name__ == "__main__":
    main()
