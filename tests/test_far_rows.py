"""Predictions far outside of the rows of the fit are named."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process.kernels import RBF

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor

KERNEL = 1.0 * RBF(1.0, "fixed")
FAST = {"kernel": KERNEL, "solver": "ngd", "optimizer": None, "n_inducing": 5, "max_iter": 2, "random_state": 0}


def rows(n_rows=60, n_columns=2):
    X = np.random.RandomState(0).uniform(0.0, 10.0, (n_rows, n_columns))
    X[:2] = [[0.0], [10.0]]
    return X, np.sin(X[:, 0])


def quiet(fit, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(*arguments)


def told_by(call, *arguments, **options):
    """The warnings of a call."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call(*arguments, **options)
    return [str(each.message) for each in found]


@pytest.mark.parametrize("method", ["predict", "predict_latent"])
def test_values_far_outside_are_named_with_column_value_and_range(method):
    X, y = rows()
    model = quiet(NGDSVGPRegressor(**FAST).fit, X, y)
    far = np.array([[5.0, 5.0], [5.0, 140.0], [5.0, 90.0]])
    (text,) = told_by(getattr(model, method), far)
    assert "column 1 holds 140, in the fit it was 0 to 10" in text
    (text,) = told_by(model.predict, np.array([[-15.0, 140.0]]))
    assert "column 0 holds -15" in text
    assert "column 1 holds 140" in text
    assert len(told_by(pickle.loads(pickle.dumps(model)).predict, far)) == 1


@pytest.mark.parametrize("value", [0.0, 10.0, 19.9, -9.9])
def test_values_a_little_outside_are_not_named(value):
    X, y = rows()
    model = quiet(NGDSVGPRegressor(**FAST).fit, X, y)
    assert not told_by(model.predict, np.array([[value, value]]))


def test_probabilities_far_outside_are_named_by_the_name_of_the_column():
    X, y = rows()
    frame = pd.DataFrame(X, columns=["price", "volume"])
    model = quiet(NGDSVGPClassifier(**FAST).fit, frame, y > 0.0)
    (text,) = told_by(model.predict_proba, frame * 14.0)
    assert "their probabilities may be far too certain" in text
    assert "'price'" in text
    assert "'volume'" in text


def test_one_warning_lists_few_of_many_columns():
    X, y = rows(n_columns=8)
    model = quiet(NGDSVGPRegressor(**FAST).fit, X, y)
    (text,) = told_by(model.predict, 50.0 + X)
    assert text.count(" holds ") == 3
    assert "5 other columns" in text


def test_constant_columns_categories_and_wide_tables_have_no_range():
    X, y = rows()
    constant = np.column_stack([X, np.ones(len(X))])
    model = quiet(NGDSVGPRegressor(**FAST).fit, constant, y)
    assert not told_by(model.predict, constant * [1.0, 1.0, 100.0])
    wide = quiet(NGDSVGPRegressor(**FAST).fit, X[:6].repeat(4, axis=1) + np.arange(8.0), y[:6])
    assert not told_by(wide.predict, np.full((1, 8), 1e3))
    frame = pd.DataFrame({"x": X[:, 0], "level": ["a", "b"] * 30})
    model = quiet(NGDSVGPRegressor(**FAST).fit, frame, y)
    (text,) = told_by(model.predict, frame.assign(level="another"))
    assert "far outside" not in text


def test_the_range_of_a_stream_is_that_of_all_its_rows():
    X, y = rows()
    model = quiet(NGDSVGPRegressor(**FAST).partial_fit, X, y)
    quiet(model.partial_fit, X + 40.0, y)
    assert not told_by(model.predict, np.array([[80.0, -30.0]]))
    (text,) = told_by(model.predict, np.array([[111.0, 5.0]]))
    assert "column 0 holds 111, in the fit it was 0 to 50" in text
