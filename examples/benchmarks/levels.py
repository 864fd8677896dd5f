"""Levels that the fit has not seen: coverage of new groups, and the error on known ones, with nothing set.

    python examples/benchmarks/levels.py --draws 10
    python examples/benchmarks/levels.py --draws 10 --cases "20 groups" "labels"

y is a wave in x, an effect of the row's group, and noise .3. Contenders are ours and, on known groups, ridge regression
on one-hot columns with the wave among them. A line shows the means over the draws: the share of rows of new groups
inside their 90 % interval, the mean standard deviation there, and the two errors on known groups. Of labels, which
depend on the effect alone, it shows the log loss of new groups, and that of the constant.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
import pandas as pd
from _common import parser
from defaults import keep, key_of, provenance, records_of
from sklearn.linear_model import RidgeCV
from sklearn.metrics import log_loss
from sklearn.preprocessing import OneHotEncoder

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor

# Groups, rows of each, and the standard deviation of their effects.
CASES = [(8, 10, 1.0)]
CASES += [(groups, rows, sd) for groups, rows in ((20, 10), (80, 8), (200, 8)) for sd in (0.5, 1.0, 2.0)]
# The same of labels.
LABELS = [(20, 10, 0.5), (20, 10, 1.0), (20, 10, 2.0), (80, 8, 2.0)]
_NEW, _NOISE = 20, 0.3
_SHOWN = "covered", "std", "error", "ridge", "loss", "constant", "seconds"


def draw(seed, n_groups, n_rows, sd):
    """Pairs of a frame and its target: rows of the fit, others of the same groups, and rows of new groups."""
    rng = np.random.default_rng(seed)
    effects = sd * rng.normal(size=n_groups + _NEW)

    def rows(group):
        x = rng.uniform(-2.0, 2.0, len(group))
        y = np.sin(2.0 * x) + effects[group] + _NOISE * rng.normal(size=len(group))
        return pd.DataFrame({"x": x, "group": [f"g{each}" for each in group]}), y

    known = np.arange(n_groups)
    return rows(np.repeat(known, n_rows)), rows(np.repeat(known, 5)), rows(n_groups + np.repeat(np.arange(_NEW), 5))


def draw_of_labels(seed, n_groups, n_rows, sd):
    """Pairs of a frame and labels: rows of the fit, and rows of new groups."""
    rng = np.random.default_rng(seed)
    effects = sd * rng.normal(size=n_groups + _NEW)

    def rows(group):
        X = pd.DataFrame({"x": rng.uniform(-2.0, 2.0, len(group)), "group": [f"g{each}" for each in group]})
        return X, rng.random(len(group)) < 1.0 / (1.0 + np.exp(-effects[group]))

    return rows(np.repeat(np.arange(n_groups), n_rows)), rows(n_groups + np.repeat(np.arange(_NEW), 5))


def _by_ridge(X, y, X_new):
    encoder = OneHotEncoder(sparse_output=False).fit(X[["group"]])

    def columns(X):
        return np.column_stack([encoder.transform(X[["group"]]), np.sin(2.0 * X.x), X.x, X.x**2, X.x**3])

    return RidgeCV(np.logspace(-4, 2, 13)).fit(columns(X), y).predict(columns(X_new))


def run(seed, n_groups, n_rows, sd):
    """The record of one draw."""
    fit, (X, y), (X_new, y_new) = draw(seed, n_groups, n_rows, sd)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        model = NGDSVGPRegressor(random_state=0).fit(*fit)
        seconds = time.process_time() - start
        lower, upper = model.predict_interval(X_new, 0.9)
        deviation = model.predict(X_new, return_std=True)[1].mean()
        errors = model.predict(X) - y, _by_ridge(*fit, X) - y
    found = {"covered": np.mean((lower <= y_new) & (y_new <= upper)), "std": deviation}
    found |= {name: np.sqrt(np.mean(each**2)) for name, each in zip(("error", "ridge"), errors, strict=True)}
    return {name: float(value) for name, value in found.items()} | {"seconds": seconds}


def run_of_labels(seed, n_groups, n_rows, sd):
    """The record of one draw of labels."""
    (X, y), (X_new, y_new) = draw_of_labels(seed, n_groups, n_rows, sd)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        model = NGDSVGPClassifier(random_state=0).fit(X, y)
        seconds = time.process_time() - start
        found = model.predict_proba(X_new)
    constant = np.tile([1.0 - y.mean(), y.mean()], (len(y_new), 1))
    return {"loss": log_loss(y_new, found), "constant": log_loss(y_new, constant), "seconds": seconds}


def _name(n_groups, n_rows, sd):
    return f"{n_groups} groups of {n_rows}, sd {sd:g}"


def main(argv=None):
    p = parser(__doc__, "levels.jsonl")
    p.add_argument("--draws", type=int, default=10)
    p.add_argument("--cases", nargs="+", metavar="START", default=[""], help="how their names start; default: all")
    args = p.parse_args(argv)
    cases = {_name(*case): (run, *case) for case in CASES}
    cases |= {f"labels of {_name(*case)}": (run_of_labels, *case) for case in LABELS}
    cases = {name: case for name, case in cases.items() if any(name.startswith(part) for part in args.cases)}
    done = {key_of(record) for record in records_of(args.output)}
    for name, (run_one, *case) in [] if args.only_print else cases.items():
        for seed in range(args.draws):
            if (name, "ours", seed) not in done:
                record = {"dataset": name, "contender": "ours", "split": seed, **run_one(seed, *case)}
                keep(record | provenance(), args.output)
    for name in cases:
        records = [record for record in records_of(args.output) if record["dataset"] == name]
        shown = [key for key in _SHOWN if records and key in records[0]]
        means = [f"{key} {np.mean([record[key] for record in records]):.3f}" for key in shown]
        print(f"{name} ({len(records)} draws): {', '.join(means)}")


if __name__ == "__main__":
    main()
