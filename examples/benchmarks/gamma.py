"""gamma_schedule="auto" against hand-chosen LogLinear schedules, at equal iterations.

    python examples/benchmarks/gamma.py --max-iter 300 --seeds 0 1 2 --output gamma.jsonl --rst

Every data set is fitted with the same points, minibatches and learning rate, and
with each schedule: "auto", and from 1e-3 to the final values of ``--finals`` in
20 steps. The table holds held-out log densities a row (of the standardised
target, or of the class), averaged over splits, one for each seed; the best
hand-chosen schedule is that which is best on these same held-out rows, which favours it.
The results go to a file of JSON lines, and
what is there with the same settings is not run again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from _common import show
from accuracy import DEFAULT_DATA, load, split
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss

from skgp_natgrad import LogLinear, NGDSVGPClassifier, NGDSVGPRegressor

DATASETS = {
    "energy": "gaussian",
    "boston": "student_t",
    "kin8nm": "gaussian",
    "power": "student_t",
    "kin40k": "gaussian",
    "protein": "gaussian",
    "pima": "bernoulli",
    "magic": "bernoulli",
    "waveform": "softmax",
    "page-blocks": "robust_max",
}
# Nats a row that count as a match.
TIE = 0.005


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=Path(os.environ.get("SKGP_DATA", DEFAULT_DATA)))
    parser.add_argument("--datasets", nargs="+", choices=list(DATASETS), default=list(DATASETS))
    parser.add_argument("--finals", nargs="+", type=float, default=[0.01, 0.03, 0.1, 0.3, 1.0])
    parser.add_argument("--max-iter", type=int, default=300)
    parser.add_argument("--n-inducing", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--max-rows", type=int, default=20000)
    parser.add_argument("--output", type=Path, default=Path("gamma.jsonl"))
    parser.add_argument("--rst", action="store_true", help="print an rst table")
    return parser.parse_args(argv)


def fit(name, gamma, args):
    """One fit, of the seed in ``args``; returns what is written to the file."""
    X, y, task = load(args.data_dir, name)
    X, X_test, y, y_test = split(X, y, task, args)
    options = {
        "likelihood": DATASETS[name],
        "n_inducing": args.n_inducing,
        "batch_size": args.batch_size,
        "max_iter": args.max_iter,
        "tol": 0.0,
        "gamma_schedule": "auto" if gamma == "auto" else LogLinear(1e-3, gamma, n_steps=20),
        "random_state": args.seed,
    }
    start = time.perf_counter()
    model = (NGDSVGPRegressor if task == "regression" else NGDSVGPClassifier)(**options).fit(X, y)
    seconds = time.perf_counter() - start
    if task == "regression":
        density = float(model.predict_log_density(X_test, y_test).mean())
    else:
        known = np.isin(y_test, model.classes_)
        density = -log_loss(y_test[known], model.predict_proba(X_test[known]), labels=model.classes_)
    return {
        **key(name, gamma, args),
        "log_density": density,
        "elbo_per_row": model.elbo_ / len(X),
        "rejected_steps": model.n_rejected_steps_,
        "clipped_steps": model.n_clipped_steps_,
        "seconds": round(seconds, 2),
    }


def key(name, gamma, args):
    """What decides the outcome of a fit."""
    names = ("max_iter", "n_inducing", "batch_size", "seed", "max_rows")
    return {"dataset": name, "gamma": gamma, **{setting: getattr(args, setting) for setting in names}}


def results(args):
    """Run what is missing; returns the records of all seeds by data set and step size."""
    known = [json.loads(line) for line in args.output.read_text().splitlines()] if args.output.exists() else []
    records = {}
    for name, gamma, seed in itertools.product(args.datasets, (*args.finals, "auto"), args.seeds):
        args.seed = seed
        wanted = key(name, gamma, args)
        record = next((one for one in known if wanted.items() <= one.items()), None)
        if record is None:
            record = fit(name, gamma, args)
            with args.output.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print(json.dumps(record), file=sys.stderr, flush=True)
        records.setdefault((name, gamma), []).append(record)
    return records


def compare(records, args):
    """A row a data set; the last column says who is ahead."""
    header = ["data set", "likelihood", *(f"{final:g}" for final in args.finals), "auto", "auto - best"]
    body, matches, wins = [], 0, 0
    for name in args.datasets:
        *theirs, ours = (
            np.mean([record["log_density"] for record in records[name, gamma]]) for gamma in (*args.finals, "auto")
        )
        matches, wins = matches + (ours >= max(theirs) - TIE), wins + (ours >= max(theirs))
        body.append([name, DATASETS[name], *(f"{value:.3f}" for value in (*theirs, ours, ours - max(theirs)))])
    summary = (
        f"auto beats the best hand-chosen value on {wins} of {len(body)} sets, and is no more than {TIE} nats a row "
        f"below it on {matches}."
    )
    show(header, body, args.rst, [summary])


def main(argv=None):
    args = parse_arguments(argv)
    warnings.simplefilter("ignore", ConvergenceWarning)
    compare(results(args), args)


if __name__ == "__main__":
    main()
