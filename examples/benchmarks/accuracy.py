"""Accuracy on held-out rows of one data set: one JSON line a run.

    python examples/benchmarks/accuracy.py --dataset kin40k --ard --n-inducing 300 --n-mean-inducing 700
    python examples/benchmarks/accuracy.py --dataset kin40k --kernel default --mean-solver exact \
        --n-mean-inducing 3000 --max-iter 500 --learning-rate 0.05

The table is shuffled with the given seed, as in the orthogonal paper's own
benchmark code, split 90/10 and standardised by its training part; log densities
are those of the standardised target. The default kernel is the sum of a Matern
5/2 and an RBF kernel of the orthogonal paper's appendix E; ``--kernel default``
is the estimators' own.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern
from sklearn.metrics import accuracy_score, log_loss
from sklearn.preprocessing import StandardScaler

from skgp_natgrad import LogLinear, NGDSVGPClassifier, NGDSVGPRegressor

DEFAULT_DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=Path(os.environ.get("SKGP_DATA", DEFAULT_DATA)))
    parser.add_argument("--dataset", required=True, help="name of a file in regression/ or classification/")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-rows", type=int, help="use a random part of the table")
    parser.add_argument(
        "--one-split",
        action="store_true",
        help="hold out the first tenth in the order of default_rng(0): --seed then sets random_state alone",
    )
    parser.add_argument("--kernel", choices=["paper", "default"], default="paper")
    parser.add_argument("--ard", action="store_true", help="one lengthscale a column")
    parser.add_argument("--likelihood", default="auto")
    parser.add_argument("--n-inducing", type=int, default=300)
    parser.add_argument("--n-mean-inducing", type=int, default=0)
    parser.add_argument("--mean-solver", default="adam")
    parser.add_argument("--basis", default="orthogonal")
    parser.add_argument("--solver", default="ngd")
    parser.add_argument("--inducing-init", default="auto")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--max-iter", type=int, default=2000)
    parser.add_argument("--tol", type=float, default=0.0)
    parser.add_argument("--gamma-initial", type=float, default=1e-3)
    parser.add_argument("--gamma", type=float, default=0.1, help='the final step size; 0 stands for "auto"')
    parser.add_argument("--gamma-steps", type=int, default=20)
    parser.add_argument("--learning-rate", type=float, default=0.02)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--verbose", type=int, default=0)
    return parser.parse_args(argv)


def load(data_dir, name):
    """Return X, y and the task of a data set."""
    for task in ("regression", "classification"):
        path = data_dir / task / f"{name}.npz"
        if path.exists():
            with np.load(path) as archive:
                return archive["X"].astype(float), archive["y"], task
    known = sorted(path.stem for path in data_dir.glob("*/*.npz"))
    raise SystemExit(f"{name} is not in {data_dir} (--data-dir or SKGP_DATA); there are: {', '.join(known)}")


def paper_kernel(n_features, ard, amplitude):
    """The kernel of the orthogonal paper's appendix E."""
    shape = np.ones(n_features) if ard else 1.0
    root = np.sqrt(n_features)
    return ConstantKernel(amplitude) * Matern(0.1 * root * shape, nu=2.5) + ConstantKernel(amplitude) * RBF(
        root * shape
    )


def split(X, y, task, args):
    """Shuffle, split and standardise."""
    if getattr(args, "one_split", False):
        order = np.random.default_rng(0).permutation(len(X))
        test, train = np.split(order, [len(order) // 10])
    else:
        order = np.random.RandomState(args.seed).permutation(len(X))[: args.max_rows]
        train, test = np.split(order, [int(0.9 * len(order))])
    scaler = StandardScaler().fit(X[train])
    if task == "regression":
        y = (y - y[train].mean(dtype=float)) / y[train].std(dtype=float)
    return scaler.transform(X[train]), scaler.transform(X[test]), y[train], y[test]


def main(argv=None):
    args = parse_arguments(argv)
    X, y, task = load(args.data_dir, args.dataset)
    X, X_test, y, y_test = split(X, y, task, args)
    estimator = NGDSVGPRegressor if task == "regression" else NGDSVGPClassifier
    amplitude = 1.0 if task == "regression" else 5.0
    model = estimator(
        kernel=paper_kernel(X.shape[1], args.ard, amplitude) if args.kernel == "paper" else None,
        likelihood="gaussian" if (task, args.likelihood) == ("regression", "auto") else args.likelihood,
        n_inducing=args.n_inducing,
        n_mean_inducing=args.n_mean_inducing,
        mean_solver=args.mean_solver,
        basis=args.basis,
        solver=args.solver,
        inducing_init=args.inducing_init,
        gamma_schedule=LogLinear(args.gamma_initial, args.gamma, args.gamma_steps) if args.gamma else "auto",
        learning_rate=args.learning_rate,
        batch_size=args.batch_size,
        max_iter=args.max_iter,
        tol=args.tol,
        random_state=args.seed,
        device=args.device,
        dtype=args.dtype,
        verbose=args.verbose,
    )
    start = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - start
    record = {key: str(value) if isinstance(value, Path) else value for key, value in vars(args).items()}
    del record["data_dir"], record["verbose"]
    record.update(n=len(X), n_test=len(X_test), d=X.shape[1], seconds=round(seconds, 1), iterations=model.n_iter_)
    record.update(elbo_per_row=round(model.elbo_ / len(X), 4), rejected=model.n_rejected_steps_)
    if task == "regression":
        error = model.predict(X_test) - y_test
        log_density = model.predict_log_density(X_test, y_test).mean()
        record.update(
            rmse=round(float(np.sqrt(np.mean(error**2))), 4),
            mae=round(float(np.mean(np.abs(error))), 4),
            log_density=round(float(log_density), 4),
            nlpd=round(float(-log_density), 4),
        )
    else:
        proba = model.predict_proba(X_test)
        record.update(
            accuracy=round(float(accuracy_score(y_test, model.classes_[proba.argmax(1)])), 4),
            nlpd=round(float(log_loss(y_test, proba, labels=model.classes_)), 4),
        )
    print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
