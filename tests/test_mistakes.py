"""The commonest mistakes, and what the package says: the table of the user guide, line by line."""

import csv
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.likelihoods import Gaussian

with open(Path(__file__).parents[1] / "doc" / "mistakes.csv", newline="") as table:
    MISTAKES = list(csv.DictReader(table, delimiter=";"))


def test_the_table_has_two_columns():
    """A semicolon without quotes would make a third one."""
    assert all(len(row) == 2 and None not in row for row in MISTAKES)


@pytest.fixture(scope="module")
def names():
    """What the mistakes are made with."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
    counts = rng.poisson(np.exp(y))
    with_nan, text = X.copy(), X.astype(object)
    with_nan[3, 1], text[:, 1] = np.nan, "red"
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(
        when=pd.date_range("2026-01-01", periods=60).strftime("%Y-%m-%d")
    )
    few = {"n_inducing": 5, "max_iter": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = NGDSVGPRegressor(RBF(), **few).fit(X, y)
        counted = NGDSVGPRegressor(RBF(), likelihood="poisson", **few).fit(X, counts)
    return {
        "np": np,
        "scipy": scipy,
        "RBF": RBF,
        "WhiteKernel": WhiteKernel,
        "Gaussian": Gaussian,
        "TransformedTargetRegressor": TransformedTargetRegressor,
        "NGDSVGPRegressor": NGDSVGPRegressor,
        "X": X,
        "x": X[:, 0],
        "y": y,
        "share": 1.0 / (1.0 + np.exp(-y)),
        "counts": counts,
        "labels": np.where(y > y[0], "yes", "no"),
        "frame_with_dates": frame,
        "X_with_nan": with_nan,
        "X_with_text": text,
        "y_with_nan": np.where(np.arange(60) == 3, np.nan, y),
        "reg": NGDSVGPRegressor(),
        "clf": NGDSVGPClassifier(),
        "fitted": fitted,
        "counted": counted,
    }


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake["What was written"].strip("`"))
def test_it_says_what_is_wrong_and_what_to_do(mistake, names):
    code = re.match("``(.*)``", mistake["What was written"]).group(1)
    here = {key: clone(value) if key in ("reg", "clf") else value for key, value in names.items()}
    said = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            eval(code, here)
        except Exception as error:
            said.append(str(error))
    said += [str(each.message) for each in caught]
    expected = ".*".join(re.escape(part.strip()) for part in mistake["What the package says"].split("..."))
    assert any(re.search(expected, text, flags=re.DOTALL) for text in said), said


def test_there_are_thirty():
    assert len(MISTAKES) >= 30
