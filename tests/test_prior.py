"""Predictions and draws before the fit, of a given kernel: those of scikit-learn's process."""

import functools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.ensemble import StackingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.kernels import Columns
from skgp_natgrad.likelihoods import Gaussian, Poisson
from skgp_natgrad.metrics import calibration_scorer, crps_scorer, msll_scorer, nlpd_scorer, width_scorer

SCORERS = nlpd_scorer, msll_scorer, crps_scorer, width_scorer, calibration_scorer
KERNEL = 2.0 * RBF([0.5, 3.0]) + ConstantKernel(0.3) + WhiteKernel(0.7)
X = np.random.default_rng(0).normal(size=(12, 2)) * [1.0, 20.0]


def test_moments_are_those_of_scikit_learn():
    model, exact = NGDSVGPRegressor(KERNEL), GaussianProcessRegressor(KERNEL)
    for request in ({"return_std": True}, {"return_cov": True}):
        for found, expected in zip(model.predict(X, **request), exact.predict(X, **request), strict=True):
            assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert_allclose(model.predict(X), np.zeros(12))


def test_draws_have_these_moments():
    draws = NGDSVGPRegressor(KERNEL).sample_y(X, 40_000, random_state=1)
    assert draws.shape == (12, 40_000)
    assert_allclose(np.cov(draws), KERNEL(X), atol=0.1)
    assert_allclose(draws.mean(1), 0.0, atol=0.05)


def test_a_prediction_leaves_the_estimator_unfitted():
    model = NGDSVGPRegressor(KERNEL)
    before = vars(model).copy()
    model.predict(X)
    assert vars(model) == before
    # Its prediction is no sign of a fit.
    for method in (model.predict_latent, model.predict_quantiles):
        with pytest.raises(NotFittedError):
            method(X, *([0.5] if method == model.predict_quantiles else []))


def test_what_is_known_of_the_rows_counts():
    model = NGDSVGPRegressor(RBF(), likelihood=Gaussian(0.2))
    mean, std = model.predict(X, return_std=True, offset=np.arange(12.0), alpha=np.full(12, 0.5))
    assert_allclose(mean, np.arange(12.0))
    assert_allclose(std**2, 1.7)
    known = model.set_params(mean_function=lambda rows: rows[:, 0])
    assert_allclose(known.predict(X), X[:, 0])


def test_counts_have_the_moments_of_a_log_normal_rate():
    mean, std = NGDSVGPRegressor(0.5 * RBF(), likelihood=Poisson()).predict(X, return_std=True)
    assert_allclose(mean, np.exp(0.25))
    assert_allclose(std**2, np.exp(0.25) + np.expm1(0.5) * np.exp(0.5))


def test_columns_may_have_names():
    frame = pytest.importorskip("pandas").DataFrame(X, columns=["a", "b"])
    _, found = NGDSVGPRegressor(Columns(RBF(), ["b"]), likelihood=Gaussian(1e-6)).predict(frame, return_cov=True)
    assert_allclose(found, RBF()(X[:, 1:]), atol=1e-5)


@pytest.mark.parametrize(
    "model",
    [
        NGDSVGPRegressor(),
        NGDSVGPRegressor([RBF(), RBF()]),
        NGDSVGPRegressor(RBF(), mean_function="linear"),
        NGDSVGPClassifier(RBF()),
    ],
)
def test_what_only_the_data_tell_needs_a_fit(model):
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.raises(NotFittedError):
        check_is_fitted(model)


def test_wrong_values_are_refused():
    with pytest.raises(ValueError, match="3 values for X with 2 columns"):
        NGDSVGPRegressor(RBF([1.0, 2.0, 3.0])).predict(X)
    with pytest.raises(ValueError, match=r"X\[0, 0\]=nan is not finite"):
        NGDSVGPRegressor(RBF()).predict(np.full((2, 2), np.nan))
    with pytest.raises(RuntimeError, match="At most one"):
        NGDSVGPRegressor(RBF()).predict(X, True, True)


@pytest.mark.parametrize("kernel", [None, KERNEL])
def test_an_estimator_without_a_fit_is_not_fitted(kernel):
    model, y = NGDSVGPRegressor(kernel), X[:, 0]
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    assert get_tags(model).requires_fit
    for refused in (model.score, *(functools.partial(each, model) for each in SCORERS)):
        with pytest.raises(NotFittedError):
            refused(X, y)
    with pytest.raises(NotFittedError):
        StackingRegressor([("prior", model)], cv="prefit").fit(X, y)
    assert "Not fitted" in model._repr_html_()
    # A pipeline and the like pass the question on.
    with pytest.raises(NotFittedError):
        nlpd_scorer(make_pipeline(StandardScaler(), model), X, y)
