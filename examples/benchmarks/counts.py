"""Poisson counts in one step (nothing set) and by steps (``solver="ngd"``): log density, coverage and seconds.

    python examples/benchmarks/counts.py --datasets nmes1988 coal_mining --splits 5 --draws 20 --rst

Real tables are shuffled by numpy's default_rng(split), and the first fifth is held out. The figure is the mean log
probability of the held-out counts, in nats a row; the constant is a Poisson distribution with the mean of the training
counts.

Rare events are drawn: 1800 rows, x uniform in (0, 10), an exposure e uniform in (0.5, 1.5), and a count of mean
e exp(f(x)) with f(x) = log(0.1) + 0.6 sin(0.8 x), some 200 events in all. The coverage is the share of 200 places in
(0.2, 9.8) at which f lies within 1.645 predicted deviations of the predicted latent mean; the error is that mean's
RMSE. Both ways have the same draws.

Seconds are those of the processor during the fit. The first fit of each way compiles its programs.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
from _common import show
from accuracy import DEFAULT_DATA
from scipy.stats import poisson

from skgp_natgrad import NGDSVGPRegressor

WAYS = {"one step": {}, "by steps": {"solver": "ngd"}}
_ROWS, _DEVIATIONS = 1800, 1.645


def parse_arguments(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data-dir", type=Path, default=Path(os.environ.get("SKGP_DATA", DEFAULT_DATA)))
    p.add_argument("--datasets", nargs="*", default=["nmes1988", "coal_mining"], help="names of files in count/")
    p.add_argument("--splits", type=int, default=5)
    p.add_argument("--draws", type=int, default=20, help="of the table of rare events")
    p.add_argument("--rst", action="store_true", help="print rst tables")
    return p.parse_args(argv)


def fitted(way, X, y, **known):
    """A fitted model, and the processor's seconds."""
    start = time.process_time()
    model = NGDSVGPRegressor(likelihood="poisson", random_state=0, **WAYS[way]).fit(X, y, **known)
    return model, time.process_time() - start


def on_split(X, y, split):
    """Log densities of the held-out rows by both ways and by a constant, and seconds of both ways."""
    held_out, train = np.split(np.random.default_rng(split).permutation(len(y)), [len(y) // 5])
    densities, seconds = [], []
    for way in WAYS:
        model, took = fitted(way, X[train], y[train])
        densities.append(model.predict_log_density(X[held_out], y[held_out]).mean())
        seconds.append(took)
    return [*densities, poisson.logpmf(y[held_out], y[train].mean()).mean(), *seconds]


def log_rate(x):
    """The latent function of the rare events."""
    return np.log(0.1) + 0.6 * np.sin(0.8 * x)


def on_draw(seed):
    """Coverage, error and seconds of both ways on rare events, and the number of events."""
    rng = np.random.default_rng(seed)
    X, exposure = rng.uniform(0.0, 10.0, (_ROWS, 1)), rng.uniform(0.5, 1.5, _ROWS)
    y = rng.poisson(exposure * np.exp(log_rate(X[:, 0])))
    places, found = np.linspace(0.2, 9.8, 200)[:, None], []
    for way in WAYS:
        model, took = fitted(way, X, y, offset=np.log(exposure))
        mean, deviation = model.predict_latent(places, return_std=True)
        error = mean - log_rate(places[:, 0])
        found.append([np.mean(np.abs(error) < _DEVIATIONS * deviation), np.sqrt(np.mean(error**2)), took])
    return [*np.transpose(found).ravel(), y.sum()]


def main(argv=None):
    args = parse_arguments(argv)
    warnings.simplefilter("ignore")
    rows = []
    for name in args.datasets:
        with np.load(args.data_dir / "count" / f"{name}.npz") as archive:
            X, y = archive["X"].astype(float), archive["y"]
        for split in range(args.splits):
            rows.append((name, f"{len(y) - len(y) // 5}, {X.shape[1]}", on_split(X, y, split)))
            print(name, split, *(f"{each:.3f}" for each in rows[-1][-1]), flush=True)
    means = []
    for name, shape in dict.fromkeys(row[:2] for row in rows):
        mean = np.mean([scores for each, _, scores in rows if each == name], axis=0)
        means.append([name, shape, *(f"{each:.3f}" for each in mean[:3]), *(f"{each:.1f}" for each in mean[3:])])
    seconds = [f"seconds, {way}" for way in WAYS]
    if means:
        show(["data set", "rows, cols", *WAYS, "constant", *seconds], means, args.rst)
    draws = []
    for seed in range(args.draws):
        draws.append(on_draw(seed))
        print("draw", seed, *(f"{each:.3f}" for each in draws[-1]), flush=True)
    if draws:
        mean = np.mean(draws, axis=0)
        cells = [[way, *(f"{each:.3f}" for each in mean[k:4:2]), f"{mean[4 + k]:.1f}"] for k, way in enumerate(WAYS)]
        notes = [f"{len(draws)} draws of {mean[-1]:.0f} events on average"]
        show(["rare events", "coverage", "error", "seconds"], cells, args.rst, notes)


if __name__ == "__main__":
    main()
