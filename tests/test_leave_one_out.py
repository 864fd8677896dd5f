"""Rows predicted from all others, in closed form: against fits that do not see them."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.likelihoods import Gaussian

GIVEN = {"normalize_X": False, "normalize_y": False, "random_state": 0}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(6)
    X = rng.uniform(-3.0, 3.0, size=(30, 1))
    return X, 5.0 * np.sin(X[:, 0]) + rng.normal(size=30)


def exact(kernel, X, y, alpha=1e-300):
    """Residuals, deviations and densities by a refit of scikit-learn's process for each row."""
    found = []
    for i in range(len(X)):
        others = np.arange(len(X)) != i
        known = np.broadcast_to(alpha, len(X))
        process = GaussianProcessRegressor(kernel, alpha=known[others], optimizer=None).fit(X[others], y[others])
        mean, std = process.predict(X[[i]], return_std=True)
        std = np.sqrt(std**2 + known[i])
        found.append((y[i] - mean[0], std[0], norm.logpdf(y[i], mean[0], std[0])))
    return np.transpose(found)


@pytest.mark.parametrize("noise", [1.0, 1e-6])
def test_every_row_is_predicted_as_by_a_refit(noise, table):
    kernel = 9.0 * RBF(1.3) + WhiteKernel(noise, "fixed")
    model = NGDSVGPRegressor(kernel, **GIVEN).fit(*table)
    for found, expected in zip(model.leave_one_out_, exact(model.kernel_, *table), strict=True):
        assert_allclose(found, expected, rtol=1e-5)


def test_units_repeated_rows_and_known_noise(table):
    """Copies of a row are rows of their own, in the order of ``fit``."""
    rng = np.random.default_rng(1)
    rows = rng.permutation(np.r_[np.arange(30), 3, 3, 7])
    X, y, alpha = table[0][rows], table[1][rows], rng.uniform(0.1, 1.0, size=30)[rows]
    model = NGDSVGPRegressor(9.0 * RBF(1.3), likelihood=Gaussian(0.5, "fixed"), **GIVEN).fit(
        X, 100.0 + y, alpha=alpha, offset=100.0
    )
    for found, expected in zip(model.leave_one_out_, exact(model.kernel_, X, y, 0.5 + alpha), strict=True):
        assert_allclose(found, expected, rtol=1e-8)
    scaled = NGDSVGPRegressor(9.0 * RBF(1.3), normalize_X=False, random_state=0).fit(X, 100.0 + 7.0 * y)
    # The mean and the deviation of the distinct rows.
    offset, variance = table[1].mean(), table[1].var()
    expected = exact(variance * scaled.kernel_, X, y - offset, variance * scaled.likelihood_.variance)
    assert_allclose(scaled.leave_one_out_.residual, 7.0 * expected[0], rtol=1e-6)
    assert_allclose(scaled.leave_one_out_.std, 7.0 * expected[1], rtol=1e-6)
    assert_allclose(scaled.leave_one_out_.log_density, expected[2] - np.log(7.0), rtol=1e-6)


@pytest.mark.slow
def test_few_points_and_weights_as_by_a_refit_with_the_same_points(table):
    X, y = table
    rows = np.r_[np.arange(30), 4, 4]
    weight = np.random.default_rng(2).uniform(0.3, 2.0, size=32)
    given = {**GIVEN, "likelihood": Gaussian(0.7, "fixed"), "inducing_init": np.linspace(-3.0, 3.0, 5)[:, None]}
    given |= {"solver": "ngd", "gamma_schedule": 1.0, "n_inducing": 5, "optimizer": None, "max_iter": 3}
    given |= {"normalize_y": False, "jitter": 1e-12}
    kernel = 9.0 * RBF(1.3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = NGDSVGPRegressor(kernel, **given).fit(X[rows], y[rows], weight)
        left_out = model.leave_one_out_
        for i in (0, 4, 11, 30, 31):
            others = np.arange(32) != i
            refit = NGDSVGPRegressor(kernel, **given).fit(X[rows][others], y[rows][others], weight[others])
            mean, std = refit.predict(X[rows][[i]], return_std=True)
            assert_allclose(left_out.residual[i], y[rows][i] - mean[0], rtol=1e-6)
            assert_allclose(left_out.std[i], std[0], rtol=1e-6)


def test_several_outputs_some_missing_and_rows_without_weight(table):
    X, y = table
    Y = np.c_[y, np.where(np.arange(30) % 5 == 0, np.nan, -y)]
    weight = np.where(np.arange(30) == 9, 0.0, 1.0)
    kernel = 9.0 * RBF(1.3) + WhiteKernel(0.8, "fixed")
    model = NGDSVGPRegressor(kernel, missing_targets="ignore", **GIVEN).fit(X, Y, weight)
    found = model.leave_one_out_.residual
    assert found.shape == (30, 2)
    assert np.all(np.isnan(found[9]))
    assert_array_equal(np.isnan(found[:, 1]), np.isnan(Y[:, 1]) | (weight == 0.0))
    for k in range(2):
        seen = ~np.isnan(found[:, k])
        assert_allclose(found[seen, k], exact(model.kernel_, X[seen], Y[seen, k])[0], rtol=1e-6)


@pytest.mark.slow
def test_saved_and_refused(table):
    X, y = table
    model = NGDSVGPRegressor(9.0 * RBF(1.3), **GIVEN)
    with pytest.raises(NotFittedError):
        model.leave_one_out_  # noqa: B018
    saved = pickle.loads(pickle.dumps(model.fit(X, y)))
    assert_array_equal(saved.leave_one_out_.residual, model.leave_one_out_.residual)
    # Of so many rows, equal ones among them, the places are not kept.
    many = NGDSVGPRegressor(9.0 * RBF(1.3), **GIVEN).fit(np.tile(X, (170, 1)), np.tile(y, 170))
    with pytest.raises(AttributeError, match="at most 5000 rows"):
        many.leave_one_out_  # noqa: B018
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        heavy = NGDSVGPRegressor(RBF(), likelihood="student_t", n_inducing=5, max_iter=1).fit(X, y)
        stream = NGDSVGPRegressor(RBF(), n_inducing=5, max_iter=1).partial_fit(X, y).partial_fit(X, y)
    with pytest.raises(AttributeError, match="needs Gaussian noise, not StudentT"):
        heavy.leave_one_out_  # noqa: B018
    with pytest.raises(AttributeError, match="holds no rows"):
        stream.leave_one_out_  # noqa: B018
