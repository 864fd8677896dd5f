"""dtype="float32" against "float64": the same fits, side by side.

    python examples/benchmarks/precision.py --max-iter 300 --rst

Every data set is fitted twice with the same points, minibatches and step sizes.
The table holds held-out log densities a row (of the standardised target, or of
the class), the largest difference of two predictions (of means in units of the
predictive standard deviation, of probabilities), and the ratio of the seconds a
fit took, compilation left out.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
from _common import show
from accuracy import DEFAULT_DATA, load, split
from gamma import DATASETS
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor

# naval has little noise, which asks more of single precision.
DATASETS = {**DATASETS, "naval": "gaussian"}
DTYPES = ("float64", "float32")
HEADER = ("data set", "likelihood", *DTYPES, "largest difference", "seconds, ratio")


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=Path(os.environ.get("SKGP_DATA", DEFAULT_DATA)))
    parser.add_argument("--datasets", nargs="+", choices=list(DATASETS), default=list(DATASETS))
    parser.add_argument("--max-iter", type=int, default=300)
    parser.add_argument("--n-inducing", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-rows", type=int, default=20000)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rst", action="store_true", help="print an rst table")
    return parser.parse_args(argv)


def fitted(name, dtype, task, X, y, args):
    """The estimator, and the seconds of its fit; a fit of few iterations before it compiles."""
    model = (NGDSVGPRegressor if task == "regression" else NGDSVGPClassifier)(
        likelihood=DATASETS[name],
        n_inducing=args.n_inducing,
        batch_size=args.batch_size,
        tol=0.0,
        random_state=args.seed,
        device=args.device,
        dtype=dtype,
    )
    model.set_params(max_iter=20).fit(X, y)
    start = time.perf_counter()
    model.set_params(max_iter=args.max_iter).fit(X, y)
    return model, time.perf_counter() - start


def compare(name, args):
    """A row of the table."""
    X, y, task = load(args.data_dir, name)
    X, X_test, y, y_test = split(X, y, task, args)
    models, seconds = zip(*(fitted(name, dtype, task, X, y, args) for dtype in DTYPES), strict=True)
    if task == "regression":
        densities = [model.predict_log_density(X_test, y_test).mean() for model in models]
        means, spreads = zip(*(model.predict(X_test, return_std=True) for model in models), strict=True)
        difference = np.abs(means[0] - means[1]) / spreads[0]
    else:
        known = np.isin(y_test, models[0].classes_)
        probabilities = [model.predict_proba(X_test[known]) for model in models]
        densities = [-log_loss(y_test[known], each, labels=models[0].classes_) for each in probabilities]
        difference = np.abs(probabilities[0] - probabilities[1])
    figures = (*(f"{density:.3f}" for density in densities), f"{difference.max():.3f}")
    return [name, DATASETS[name], *figures, f"{seconds[1] / seconds[0]:.2f}"]


def main(argv=None):
    args = parse_arguments(argv)
    warnings.simplefilter("ignore", ConvergenceWarning)
    show(HEADER, [compare(name, args) for name in args.datasets], args.rst)


if __name__ == "__main__":
    main()
