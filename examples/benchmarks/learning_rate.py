"""Fits by steps with several learning rates: log density and error of held-out rows, a row for each case.

    python examples/benchmarks/learning_rate.py

Tables are shuffled by numpy's default_rng(1): the first rows train (a number, or nine tenths), the next 2000 at most
are held out; the target of a regression is standardised by the training rows. Kernels are the default ones.
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from _common import show
from accuracy import DEFAULT_DATA, load

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor

_HELD_OUT = 2000


class Case(NamedTuple):
    """A data set, its training rows, inducing points, iterations, another likelihood, and points of the mean alone."""

    dataset: str
    rows: int | None
    points: int
    iterations: int
    likelihood: str | None = None
    mean_points: int = 0


CASES = (
    Case("energy", None, 100, 200),
    Case("energy", None, 100, 1500),
    Case("kin8nm", 3000, 100, 300),
    Case("kin8nm", 3000, 100, 1500),
    Case("power", 5000, 100, 1500),
    Case("elevators", 5000, 100, 600),
    Case("protein", 5000, 200, 1500),
    Case("magic", 5000, 100, 300),
    Case("magic", 5000, 100, 1500),
    Case("statlog-landsat", 3000, 100, 600),
    Case("pima", None, 50, 300),
    Case("energy", None, 100, 600, "student_t"),
    Case("power", 3000, 100, 600, "student_t"),
    Case("boston", None, 100, 600, "heteroscedastic_gaussian"),
    Case("kin8nm", 3000, 100, 600, "heteroscedastic_gaussian"),
    Case("energy", None, 100, 300, mean_points=300),
    Case("kin8nm", 3000, 100, 300, mean_points=300),
    Case("kin8nm", 3000, 100, 1500, mean_points=300),
    Case("magic", 3000, 100, 300, mean_points=300),
)


def parse_arguments(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data-dir", type=Path, default=Path(os.environ.get("SKGP_DATA", DEFAULT_DATA)))
    p.add_argument("--rates", nargs="+", type=float, default=[0.02, 0.05, 0.1])
    p.add_argument("--mean-points", action="store_true", help="only the cases with points of the mean alone")
    return p.parse_args(argv)


def parts_of(case, data_dir):
    """Training rows, held-out rows, their targets, and the task."""
    X, y, task = load(data_dir, case.dataset)
    order, nine_tenths = np.random.default_rng(1).permutation(len(y)), int(0.9 * len(y))
    n = min(case.rows or nine_tenths, nine_tenths)
    train, test = order[:n], order[n : n + _HELD_OUT]
    if task == "regression":
        y = (y - y[train].mean()) / y[train].std()
    return X[train], y[train], X[test], y[test], task


def scores_of(case, rate, data_dir):
    """The mean log density of held-out rows, and their error or share of wrong labels."""
    X, y, X_test, y_test, task = parts_of(case, data_dir)
    kind = NGDSVGPRegressor if task == "regression" else NGDSVGPClassifier
    options = {"solver": "ngd", "n_inducing": case.points, "max_iter": case.iterations, "random_state": 0}
    options |= {"likelihood": case.likelihood} if case.likelihood else {}
    options |= {"n_mean_inducing": case.mean_points} if case.mean_points else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = kind(learning_rate=rate, **options).fit(X, y)
        if task == "regression":
            error = np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2))
            return float(model.predict_log_density(X_test, y_test).mean()), float(error)
        found, label = model.predict_proba(X_test), np.searchsorted(model.classes_, y_test)
    return float(np.log(found[np.arange(len(label)), label]).mean()), float(np.mean(found.argmax(1) != label))


def main(argv=None):
    args = parse_arguments(argv)
    rows = []
    for case in CASES:
        if args.mean_points and not case.mean_points:
            continue
        scores = [scores_of(case, rate, args.data_dir) for rate in args.rates]
        beside = case.likelihood or (f"{case.mean_points} for the mean" if case.mean_points else "")
        name = f"{case.dataset}, {beside}" if beside else case.dataset
        shown = [f"{density:.3f} / {error:.4f}" for density, error in scores]
        rows.append([name, case.points, case.iterations, *shown])
    show(["data", "points", "iterations", *(f"rate {rate}" for rate in args.rates)], rows, rst=True)


if __name__ == "__main__":
    main()
