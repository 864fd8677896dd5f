"""Rows at which a kernel overflows are named; and frames whose columns have no number or no name of their own."""

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, ExpSineSquared

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.likelihoods import Gaussian, StudentT
from skgp_natgrad.neighbours import nearest

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.slow
def test_the_row_at_which_a_kernel_overflows_is_named(rng):
    X = rng.normal(size=(60, 2))
    model = NGDSVGPRegressor(DotProduct() + RBF(), n_inducing=10, max_iter=10).fit(X, X[:, 0])
    far = X[:5].copy()
    far[3] = 1e160
    with pytest.raises(
        FloatingPointError,
        match=r"NaN at 1 of 5 rows of X, .* X\[3\]: they hold values up to 1\..*e\+160",
    ):
        model.predict(far, return_std=True)
    rest = [0, 1, 2, 4]
    np.testing.assert_allclose(model.predict(far[rest], return_std=True), model.predict(X[rest], return_std=True))


@pytest.mark.slow
@pytest.mark.parametrize("value", [-5.0, 1e6, 1e-9])
def test_the_deviation_of_a_constant_is_in_its_own_units(value, rng):
    X = rng.normal(size=(30, 1))
    each = [
        NGDSVGPRegressor(random_state=0).fit(X, np.full(30, c)).predict(X, return_std=True)[1] for c in (1.0, value)
    ]
    np.testing.assert_allclose(each[1], abs(value) * each[0], rtol=1e-6)
    assert np.all(NGDSVGPRegressor(random_state=0).fit(X, np.zeros(30)).predict(X, return_std=True)[1] > 0.0)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("kind", ["timedelta64[ms]", "datetime64[ms]"])
def test_dates_and_durations_name_their_column(frame, kind):
    X = frame({"when": np.arange(10).astype(kind)})
    with pytest.raises(ValueError, match="in column 'when', whose numbers have no unit of their own"):
        NGDSVGPRegressor().fit(X, np.arange(10.0))


def test_repeated_names_of_columns_are_named(rng):
    X = pd.DataFrame(rng.normal(size=(20, 3)), columns=["size", "age", "size"])
    with pytest.raises(ValueError, match=r"X has several columns named 'size'"):
        NGDSVGPRegressor().fit(X, X["age"])


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
def test_the_largest_numbers_have_a_distribution_function(likelihood, rng):
    X = rng.normal(size=(30, 1))
    model = NGDSVGPRegressor(RBF(), likelihood=likelihood, n_inducing=5, max_iter=5, random_state=0).fit(
        X, 0.1 * X[:, 0]
    )
    with np.errstate(all="raise"):
        np.testing.assert_allclose(model.predict_cdf(X[:2], np.array([-1.7e308, 1.7e308])), [0.0, 1.0], atol=1e-12)
        found = [model.predict_log_density(X[:2], np.full(2, each)) for each in (1e60, 1e160, 1.7e308)]
    assert np.all(np.array(found) < -100.0)
    if likelihood == "student_t":
        scale, df = float(model.likelihood_.scale * model._y_scale.scale[0]), model.likelihood_.df
        np.testing.assert_allclose(found[0], stats.t.logpdf(1e60, df, 0.0, scale), rtol=1e-12)
        np.testing.assert_allclose(found[0] - found[1], (df + 1.0) * np.log(1e100), rtol=1e-12)
        assert np.all(np.diff(found, axis=0) < 0.0)


@pytest.mark.usefixtures("x64")
def test_a_student_t_is_the_same_near_and_far():
    y = np.geomspace(1e3, 1e12, 19)
    log_density = StudentT(3.0, 0.5).value_and_bounds(1)[0].log_predictive_density
    found = jax.jit(log_density)(np.zeros((1, 19)), np.full((1, 19), 0.5), y[None])
    np.testing.assert_allclose(found, stats.t.logpdf(y, 3.0, 0.0, 0.5), rtol=1e-6)


@pytest.mark.parametrize("value", [1.7e308, -1.7e308, 1e160])
@pytest.mark.parametrize(("n_rows", "n_columns"), [(60, 2), (60, 12)])
def test_a_row_farther_than_numbers_reach_has_neighbours_all_the_same(n_rows, n_columns, value):
    """By a tree and by products, where rows that overflow have no distance."""
    rng = np.random.default_rng(0)
    rows, new = rng.normal(size=(n_rows, n_columns)), rng.normal(size=(5, n_columns))
    search, others = nearest.Nearest(rows, np.full(n_columns, 3.0)), [0, 1, 3, 4]
    expected = search.query(new, 7)
    new[2, 1] = value
    found = search.query(new, 7)
    assert_array_equal(found[others], expected[others])
    assert len(set(found[2])) == 7
    assert np.all((found[2] >= 0) & (found[2] < n_rows))


@pytest.mark.parametrize("value", [1.7e308, 1e160])
def test_a_wild_row_among_those_predicted_by_neighbours_is_named(value, rng):
    rows, new = rng.normal(size=(60, 2)), rng.normal(size=(5, 2))
    kernel, noise = ConstantKernel(1.0, "fixed") * RBF(1.0, "fixed"), Gaussian(0.01, "fixed")
    options = {"solver": "evidence", "calibrate": False, "n_neighbors": 10, "random_state": 0, "normalize_X": False}
    model = NGDSVGPRegressor(kernel, likelihood=noise, **options).fit(rows, np.sin(rows[:, 0]) + 3.0)
    expected = np.array(model.predict(new, return_std=True))
    new[2, 1] = value
    with pytest.raises(FloatingPointError, match=r"NaN at 1 of 5 rows of X, .* X\[2\]: they hold values up to 1"):
        model.predict(new, return_std=True)
    rest = [0, 1, 3, 4]
    assert_allclose(model.predict(new[rest], return_std=True), expected[:, rest], rtol=1e-10)


def test_a_kernel_that_is_no_covariance_is_named_and_not_the_rows():
    """Periodic in the distance over two columns, it has negative eigenvalues at rows that lie far apart."""
    rng = np.random.default_rng(0)
    rows = 1e6 * rng.standard_cauchy(size=(60, 2))
    kernel, options = 1.0 * ExpSineSquared(1.0, 3.0), {"random_state": 0}
    with pytest.raises(FloatingPointError, match=r"is no covariance: its matrix .* Columns\(ExpSineSquared\(\), 0\)"):
        NGDSVGPRegressor(kernel, **options).fit(rows, rng.normal(size=60))


def test_the_row_that_overflows_when_it_is_standardised_is_named(rng):
    rows = 1e-3 * rng.normal(size=(30, 2))
    model = NGDSVGPRegressor(RBF(1.0, "fixed"), likelihood=Gaussian(0.1, "fixed")).fit(rows, rows[:, 0])
    with pytest.raises(ValueError, match=r"X\[3\] \(1 rows in all\) is so far from the training data that it"):
        model.predict(np.where(np.arange(6)[:, None] == 3, 1e308, rows[:6]))
