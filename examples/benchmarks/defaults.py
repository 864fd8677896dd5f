"""``fit(X, y)`` with nothing set, beside other libraries with nothing set: one JSON line for each data set and split.

    python examples/benchmarks/defaults.py --datasets naval bike kin40k --splits 1 --rst

Tables are shuffled by numpy's default_rng(split); the first tenth is held out (of more than 20,000 rows there is one
split), and the target of a regression is standardised by the rest. Contenders:

- ours: ``NGDSVGPRegressor()`` or ``NGDSVGPClassifier()``;
- trees: scikit-learn's HistGradientBoosting; in regression with Gaussian noise, whose variance is the mean squared
  error on a tenth of the training rows that is held out from it;
- exact (regression): the exact process on min(n, 6000) rows, Matern 5/2 with the hyperparameters of largest evidence
  of 1000 rows;
- with trees: ours with that HistGradientBoosting as ``mean_function``, for class labels by ``mean_function="auto"``;
- catboost and ngboost, where they are installed;
- an ablation, ours without one of its parts: "one kernel" (Matern 5/2 on standardised inputs, at the largest
  evidence, in place of the best of several kernels and scalings), "500 points" (in place of the plan's),
  "uncalibrated" (``calibrate=False``), and "by steps" (that kernel and 500 points, from lengthscales of sqrt(D),
  trained by natural gradients and Adam, in place of the start from the evidence and the solution in one step);
- another given kernel, "matern12", "matern32", "rbf", "laplacian" or "matern12 + rbf", in place of the Matern 5/2 of
  "one kernel";
- 300 points trained in 1500 steps of 1024 rows each: "300 points by steps" from the kernel that is searched for,
  "one kernel by steps" from that one.

Log density is in nats per held-out row; coverage is that of the 95 % interval; the calibration error is the expected
one in fifteen bins of the largest probability, and beside it, in brackets, what labels that are drawn from these
probabilities show by chance. Seconds are those of the fit, imports not counted.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import importlib.util
import json
import operator
import os
import shutil
import subprocess
import time
import warnings
from pathlib import Path

import numpy as np
from _common import show
from accuracy import DEFAULT_DATA, load
from contenders import scores
from scipy.stats import norm
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel
from sklearn.preprocessing import StandardScaler

import skgp_natgrad
from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.kernels import Laplacian

_LARGE, _EXACT_ROWS, _EVIDENCE_ROWS = 20_000, 6000, 1000


def parse_arguments(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data-dir", type=Path, default=Path(os.environ.get("SKGP_DATA", DEFAULT_DATA)))
    p.add_argument("--datasets", nargs="+", required=True, help="names of files in regression/ or classification/")
    p.add_argument("--splits", type=int, default=3, help="for tables of up to 20,000 rows")
    p.add_argument("--rows", type=int, help="training rows at most; of all of them by default")
    p.add_argument("--contenders", nargs="+", default=["ours", "trees", "exact", "catboost", "ngboost"])
    p.add_argument("--output", type=Path, default=Path("defaults.jsonl"), help="file of JSON lines, which is added to")
    p.add_argument("--again", action="store_true", help="run what the file has, too; the last record counts")
    p.add_argument("--only-print", action="store_true", help="run nothing")
    p.add_argument("--rst", action="store_true", help="print an rst table of the whole file")
    p.add_argument("--densities", action="store_true", help="print its log densities, a column for each contender")
    return p.parse_args(argv)


# -- the ablation ------------------------------------------------------------------------------------


# Kernels that a user might give, alone or in a sum.
_GIVEN = {f"matern{k}2": functools.partial(Matern, nu=k / 2.0) for k in (1, 3, 5)}
_GIVEN |= {"rbf": RBF, "laplacian": Laplacian}


def _one_kernel(n_columns, names="matern52"):
    length_scale = np.full(n_columns, n_columns**0.5)
    terms = [ConstantKernel(1.0, (1e-5, 1e5)) * _GIVEN[name](length_scale) for name in names.split(" + ")]
    return {"kernel": functools.reduce(operator.add, terms), "normalize_X": True}


# The arguments of ours without a part, for a number of columns.
ABLATION = {
    "one kernel": lambda n_columns: _one_kernel(n_columns) | {"solver": "evidence"},
    "500 points": lambda n_columns: {"n_inducing": 500, "solver": "evidence"},
    "uncalibrated": lambda n_columns: {"calibrate": False},
    "by steps": lambda n_columns: _one_kernel(n_columns) | {"n_inducing": 500, "solver": "ngd"},
}
# The same with other kernels that a user might give.
ABLATION |= {
    names: lambda n_columns, names=names: _one_kernel(n_columns, names) | {"solver": "evidence"}
    for names in (*_GIVEN, "matern12 + rbf")
}
_STEPS = {"n_inducing": 300, "batch_size": 1024, "max_iter": 1500, "solver": "ngd"}
ABLATION |= {
    "300 points by steps": lambda n_columns: _STEPS,
    "one kernel by steps": lambda n_columns: _one_kernel(n_columns) | _STEPS,
}


# -- regression: fit, and return what predicts the held-out rows ------------------------------------
# That is mean and deviation of a normal distribution; of another one also its log density of given targets, and the
# 95 % interval.


def _ours(X, y, X_test, arguments=lambda n_columns: {}):
    model = NGDSVGPRegressor(random_state=0, **arguments(X.shape[1])).fit(X, y)

    def predict():
        log_density = functools.partial(model.predict_log_density, X_test)
        return *model.predict(X_test, return_std=True), log_density, model.predict_interval(X_test, 0.95)

    return predict


def _trees(X, y, X_test):
    part = np.random.default_rng(0).permutation(len(X)) < len(X) // 10
    inner = HistGradientBoostingRegressor(random_state=0).fit(X[~part], y[~part])
    deviation = np.sqrt(np.mean((inner.predict(X[part]) - y[part]) ** 2))
    model = HistGradientBoostingRegressor(random_state=0).fit(X, y)
    return lambda: (model.predict(X_test), np.full(len(X_test), deviation))


def _exact(X, y, X_test):
    scale = StandardScaler().fit(X)
    order = np.random.default_rng(0).permutation(len(X))
    first, most = order[:_EVIDENCE_ROWS], order[:_EXACT_ROWS]
    n_features = X.shape[1]
    kernel = ConstantKernel(1.0) * Matern(np.full(n_features, n_features**0.5), (1e-3, 1e5), nu=2.5)
    kernel += WhiteKernel(0.1, (1e-8, 10.0))
    small = GaussianProcessRegressor(kernel, alpha=0.0, random_state=0).fit(scale.transform(X[first]), y[first])
    model = GaussianProcessRegressor(small.kernel_, alpha=0.0, optimizer=None)
    model.fit(scale.transform(X[most]), y[most])
    return lambda: model.predict(scale.transform(X_test), return_std=True)


def _catboost(X, y, X_test):
    from catboost import CatBoostRegressor

    model = CatBoostRegressor(loss_function="RMSEWithUncertainty", verbose=False, random_seed=0).fit(X, y)

    def predict():
        mean, variance = model.predict(X_test).T
        return mean, np.sqrt(variance)

    return predict


def _ngboost(X, y, X_test):
    from ngboost import NGBRegressor

    model = NGBRegressor(verbose=False, random_state=0).fit(X, y)

    def predict():
        found = model.pred_dist(X_test)
        return found.loc, found.scale

    return predict


REGRESSORS = {"ours": _ours, "trees": _trees, "exact": _exact, "catboost": _catboost, "ngboost": _ngboost}
REGRESSORS |= {name: functools.partial(_ours, arguments=arguments) for name, arguments in ABLATION.items()}
REGRESSORS["with trees"] = functools.partial(
    _ours, arguments=lambda n_columns: {"mean_function": HistGradientBoostingRegressor(random_state=0)}
)


def _classifier(make, arguments=lambda n_columns: {}):
    def fit(X, y, X_test):
        model = make(**arguments(X.shape[1])).fit(X, y)
        return lambda: model.predict_proba(X_test)

    return fit


def _catboost_classes():
    from catboost import CatBoostClassifier

    return CatBoostClassifier(verbose=False, random_seed=0)


def _ngboost_classes(X, y, X_test):
    from ngboost import NGBClassifier
    from ngboost.distns import k_categorical

    model = NGBClassifier(Dist=k_categorical(int(y.max()) + 1), verbose=False, random_state=0).fit(X, y.astype(int))
    return lambda: model.predict_proba(X_test)


CLASSIFIERS = {
    "ours": _classifier(functools.partial(NGDSVGPClassifier, random_state=0)),
    "trees": _classifier(functools.partial(HistGradientBoostingClassifier, random_state=0)),
    "catboost": _classifier(_catboost_classes),
    "ngboost": _ngboost_classes,
}
CLASSIFIERS |= {
    name: _classifier(functools.partial(NGDSVGPClassifier, random_state=0), arguments)
    for name, arguments in ABLATION.items()
}
CLASSIFIERS["with trees"] = _classifier(functools.partial(NGDSVGPClassifier, mean_function="auto", random_state=0))


# -- scores ------------------------------------------------------------------------------------------


def regression_scores(y, mean, deviation, log_density=None, interval=None):
    """Log density, RMSE, coverage of the 95 % interval, and the rms of errors in their deviations.

    Those of a normal distribution where nothing else is given.
    """
    log_density = log_density or functools.partial(norm.logpdf, loc=mean, scale=deviation)
    lower, upper = norm.interval(0.95, mean, deviation) if interval is None else interval
    inside, error = np.mean((lower <= y) & (y <= upper)), np.sqrt(np.mean((y - mean) ** 2))
    z = np.sqrt(np.mean(((y - mean) / deviation) ** 2))
    return {"density": np.mean(log_density(y)), "error": error, "calibration": inside, "z": z}


def halves(X, y, task, seed, n_rows=None):
    """Training rows of one split, all or so many, and held-out ones; of labels those that the training rows have."""
    order = np.random.default_rng(seed).permutation(len(X))
    test, train = np.split(order, [len(X) // 10])
    train = train[:n_rows]
    if task == "regression":
        y = (y - y[train].mean()) / y[train].std()
    else:
        classes = np.unique(y[train])
        test, y = test[np.isin(y[test], classes)], np.searchsorted(classes, y)
    return X[train], y[train], X[test], y[test]


def run(name, task, contender, split, parts):
    """The record of one fit."""
    X, y, X_test, y_test = parts
    fit = (REGRESSORS if task == "regression" else CLASSIFIERS)[contender]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        start = time.perf_counter()
        predict = fit(X, y, X_test)
        seconds = time.perf_counter() - start
    start = time.perf_counter()
    predicted = predict()
    prediction = time.perf_counter() - start
    found = regression_scores(y_test, *predicted) if task == "regression" else scores.of_classes(y_test, predicted)
    record = {"dataset": name, "task": task, "contender": contender, "split": split, "rows": len(X)}
    record |= {"columns": X.shape[1], **{key: float(value) for key, value in found.items()}}
    kinds = sorted({w.category.__name__ for w in told})
    return record | {"seconds": seconds, "prediction": prediction, "warnings": kinds}


def main(argv=None):
    args = parse_arguments(argv)
    done = set() if args.again else {key_of(record) for record in records_of(args.output)}
    for name in [] if args.only_print else args.datasets:
        X, y, task = load(args.data_dir, name)
        known = REGRESSORS if task == "regression" else CLASSIFIERS
        for split in range(args.splits if len(X) <= _LARGE else 1):
            parts = halves(X, y, task, split, args.rows)
            for contender in args.contenders:
                if (name, contender, split) in done or contender not in known or not is_installed(contender):
                    continue
                record = run(name, task, contender, split, parts) | provenance()
                keep(record, args.output)
    if args.rst:
        show_means(records_of(args.output))
    if args.densities:
        show_densities(records_of(args.output))


def is_installed(contender):
    """Whether the library of a contender, if it is another one, can be imported."""
    return contender not in ("catboost", "ngboost") or importlib.util.find_spec(contender) is not None


def provenance():
    """The commit of the package that was imported, where git knows it, the date, and the number of cores."""
    commit = None
    if shutil.which("git"):
        described = ["git", "-C", str(Path(skgp_natgrad.__file__).parent), "describe", "--always", "--dirty"]
        commit = subprocess.run(described, capture_output=True, text=True, check=False).stdout.strip()
    return {"commit": commit, "date": datetime.date.today().isoformat(), "cores": os.cpu_count()}


def keep(record, path):
    """Print a record, and add it to a file of results."""
    print(json.dumps(record), flush=True)
    with path.open("a") as lines:
        lines.write(json.dumps(record) + "\n")


def records_of(path):
    """The records of a file of results, none if there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def key_of(record):
    """What a record is the result of."""
    return record["dataset"], record["contender"], record["split"]


def show_densities(records):
    """Print the log densities of the contenders side by side, means over the splits of the last record of each."""
    found = {}
    for record in {key_of(record): record for record in records}.values():
        of_set = found.setdefault((record["task"] != "regression", record["dataset"]), {})
        of_set.setdefault(record["contender"], []).append(record["density"])
    known = {contender for of_set in found.values() for contender in of_set}
    contenders = [name for name in REGRESSORS if name in known]
    rows = []
    for (_, dataset), of_set in sorted(found.items()):
        means = [f"{np.mean(of_set[name]):.3f}" if name in of_set else "" for name in contenders]
        rows.append((dataset, *means))
    show(("data set", *contenders), rows, rst=True)


def show_means(records):
    """Print means over splits of the last record of each, as an rst table."""
    last = {key_of(record): record for record in records}
    found = {}
    for (dataset, contender, _), record in last.items():
        found.setdefault((record["task"], dataset, contender), []).append(record)
    header, rows = ("data set", "contender", "rows, cols", "log density", "error", "coverage / ECE", "seconds"), []
    for (_, dataset, contender), each in found.items():
        keys = {"density", "error", "calibration", "by_chance", "seconds"} & set.intersection(*map(set, each))
        mean = {key: np.mean([r[key] for r in each]) for key in keys}
        by_chance = f" ({mean['by_chance']:.3f})" if "by_chance" in mean else ""
        size = f"{each[0]['rows']}, {each[0]['columns']}"
        numbers = (
            f"{mean['density']:.3f}",
            f"{mean['error']:.4f}",
            f"{mean['calibration']:.3f}{by_chance}",
            f"{mean['seconds']:.1f}",
        )
        rows.append((dataset, contender, size, *numbers))
    commits = sorted({str(record.get("commit")) for record in last.values() if record["contender"] == "ours"})
    show(header, rows, rst=True, notes=[f"Commits of ours: {', '.join(commits)}"])


if __name__ == "__main__":
    main()
