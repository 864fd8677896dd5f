"""Rows at which a kernel overflows are named; and frames whose columns have no number or no name of their own."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.gaussian_process.kernels import RBF, DotProduct

from skgp_natgrad import NGDSVGPRegressor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def test_the_row_at_which_a_kernel_overflows_is_named(rng):
    X = rng.normal(size=(60, 2))
    model = NGDSVGPRegressor(DotProduct() + RBF(), n_inducing=10, max_iter=10).fit(X, X[:, 0])
    far = X[:5].copy()
    far[3] = 1e160
    with pytest.raises(
        FloatingPointError, match=r"NaN at 1 of 5 rows of X \(row 3\): they hold values up to 1\..*e\+160"
    ):
        model.predict(far, return_std=True)
    assert np.all(np.isfinite(model.predict(np.delete(far, 3, 0), return_std=True)))


@pytest.mark.parametrize("value", [-5.0, 1e6, 1e-9])
def test_the_deviation_of_a_constant_is_in_its_own_units(value, rng):
    X = rng.normal(size=(30, 1))
    each = [
        NGDSVGPRegressor(random_state=0).fit(X, np.full(30, c)).predict(X, return_std=True)[1] for c in (1.0, value)
    ]
    np.testing.assert_allclose(each[1], abs(value) * each[0], rtol=1e-6)
    assert np.all(NGDSVGPRegressor(random_state=0).fit(X, np.zeros(30)).predict(X, return_std=True)[1] > 0.0)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize(("kind", "named"), [("timedelta64[ms]", "a duration has"), ("datetime64[ms]", "a date has")])
def test_durations_are_not_called_dates(frame, kind, named):
    X = frame({"when": np.arange(10).astype(kind)})
    with pytest.raises(ValueError, match=named):
        NGDSVGPRegressor().fit(X, np.arange(10.0))


def test_repeated_names_of_columns_are_named(rng):
    X = pd.DataFrame(rng.normal(size=(20, 3)), columns=["size", "age", "size"])
    with pytest.raises(ValueError, match=r"X has several columns named 'size'"):
        NGDSVGPRegressor().fit(X, X["age"])


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
def test_the_largest_numbers_have_a_distribution_function(likelihood, rng):
    X = rng.normal(size=(30, 1))
    model = NGDSVGPRegressor(RBF(), likelihood=likelihood, n_inducing=5, max_iter=5, random_state=0).fit(
        X, 0.1 * X[:, 0]
    )
    with np.errstate(all="raise"):
        np.testing.assert_allclose(model.predict_cdf(X[:2], np.array([-1.7e308, 1.7e308])), [0.0, 1.0], atol=1e-12)
        if likelihood == "gaussian":
            assert np.all(model.predict_log_density(X[:2], np.full(2, 1.7e308)) < -100.0)
