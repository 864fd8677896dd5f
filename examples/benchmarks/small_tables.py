"""``fit(X, y)`` with nothing set on few rows of real tables, beside a line: a JSON line for each table, size and split.

    python examples/benchmarks/small_tables.py --datasets boston protein pima magic --sizes 50 100 200 --rst

Tables are shuffled by numpy's default_rng(split). The first rows are the training rows, and the next 2000 at most are
held out, of classification those of classes that are among the training rows. Targets of a regression are standardised
by the training rows. Contenders:

- ours: ``NGDSVGPRegressor()`` or ``NGDSVGPClassifier()``;
- line: scikit-learn's BayesianRidge or LogisticRegression, after StandardScaler;
- constant: the mean and deviation of the training targets, or the frequencies of the classes.

The figure is the log density in nats per held-out row; --rst prints means over splits.
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path

import numpy as np
from _common import show
from accuracy import DEFAULT_DATA, load
from contenders import scores
from defaults import keep, provenance, records_of, regression_scores
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor

_HELD_OUT = 2000
CONTENDERS = "ours", "line", "constant"


def parse_arguments(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data-dir", type=Path, default=Path(os.environ.get("SKGP_DATA", DEFAULT_DATA)))
    p.add_argument("--datasets", nargs="+", default=[], help="names of files in regression/ or classification/")
    p.add_argument("--sizes", nargs="+", type=int, default=[50, 100, 200], help="numbers of training rows")
    p.add_argument("--splits", type=int, default=3)
    p.add_argument("--output", type=Path, default=Path("small_tables.jsonl"), help="file of lines, which is added to")
    p.add_argument("--rst", action="store_true", help="print an rst table of the whole file")
    return p.parse_args(argv)


def regression(X, y, X_test, y_test):
    """Log densities of the contenders, by name."""
    mean, deviation = y.mean(), y.std()
    y, y_test = (y - mean) / deviation, (y_test - mean) / deviation
    models = NGDSVGPRegressor(random_state=0), make_pipeline(StandardScaler(), BayesianRidge())
    found = [model.fit(X, y).predict(X_test, return_std=True) for model in models]
    found.append((np.zeros(len(y_test)), np.ones(len(y_test))))
    return {name: regression_scores(y_test, *each)["density"] for name, each in zip(CONTENDERS, found, strict=True)}


def classification(X, y, X_test, y_test):
    """Log densities of the contenders, by name."""
    classes, y = np.unique(y, return_inverse=True)
    known = np.isin(y_test, classes)
    X_test, y_test = X_test[known], np.searchsorted(classes, y_test[known])
    models = NGDSVGPClassifier(random_state=0), make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    found = [model.fit(X, y).predict_proba(X_test) for model in models]
    found.append(np.tile(np.bincount(y) / len(y), (len(y_test), 1)))
    return {name: scores.of_classes(y_test, each)["density"] for name, each in zip(CONTENDERS, found, strict=True)}


def run(X, y, task, n_rows, split):
    """Log densities on one split."""
    order = np.random.default_rng(split).permutation(len(X))
    train, test = order[:n_rows], order[n_rows : n_rows + _HELD_OUT]
    score = regression if task == "regression" else classification
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = score(X[train], y[train], X[test], y[test])
    return {name: float(value) for name, value in found.items()}


def main(argv=None):
    args = parse_arguments(argv)
    done = {(r["dataset"], r["rows"], r["split"]) for r in records_of(args.output)}
    for name in args.datasets:
        X, y, task = load(args.data_dir, name)
        for key in [(name, n_rows, split) for n_rows in args.sizes for split in range(args.splits)]:
            if key in done or key[1] > len(X) // 2:
                continue
            record = dict(zip(("dataset", "rows", "split"), key, strict=True)) | {"task": task}
            record |= run(X, y, task, *key[1:]) | provenance()
            keep(record, args.output)
    if args.rst:
        show_means(records_of(args.output))


def show_means(records):
    """Print means over splits, as an rst table with a column for each size and contender."""
    sizes = sorted({record["rows"] for record in records})
    rows = []
    for name in dict.fromkeys(record["dataset"] for record in records):
        cells = [name]
        for size in sizes:
            each = [record for record in records if (record["dataset"], record["rows"]) == (name, size)]
            means = [np.mean([record[key] for record in each]) if each else np.nan for key in CONTENDERS]
            cells.append(" / ".join(f"{mean:.2f}" for mean in means) if each else "")
        rows.append(cells)
    head = ["data set", *(f"{size} rows" for size in sizes)]
    commits = sorted({str(record.get("commit")) for record in records})
    show(head, rows, rst=True, notes=[f"Commits: {', '.join(commits)}"])


if __name__ == "__main__":
    main()
