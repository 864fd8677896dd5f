"""Predictions of a distribution by the estimators: shapes, units, and agreement with each other."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from sklearn.gaussian_process.kernels import RBF, Matern

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.choose.scale import fit_normal_scores
from skgp_natgrad.kernels import Columns
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.prediction import evaluate
from skgp_natgrad.prediction.gradients import gradients, target_moments

from .test_prediction import EVERY_KERNEL, conditioned

RNG = np.random.default_rng(5)
X = RNG.normal(size=(80, 2)) * [1.0, 50.0] + [3.0, 700.0]
F = np.sin(X[:, 0]) + 0.01 * X[:, 1]
Y = np.column_stack([100.0 * F, 5.0 - F]) + [10.0, 0.1] * RNG.normal(size=(80, 2))
OPTIONS = {"n_inducing": 12, "max_iter": 60, "tol": 1.0, "random_state": 0}
NEW = X[:9] + 0.1
LEVELS = [0.05, 0.5, 0.9]

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def fitted(y, likelihood="gaussian", **options):
    return NGDSVGPRegressor(1.0 * RBF([1.0, 1.0]), likelihood=likelihood, **OPTIONS | options).fit(X, y)


@pytest.fixture(scope="module")
def one():
    return fitted(Y[:, 0])


@pytest.fixture(scope="module")
def two():
    return fitted(Y, normalize_X="quantile")


@pytest.fixture(scope="module")
def noisy():
    return fitted(Y[:, 0], "heteroscedastic_gaussian", max_iter=150)


@pytest.fixture(scope="module")
def counts():
    return fitted(np.round(np.exp(1.0 + F - F.mean())), "poisson")


@pytest.mark.slow
def test_shapes(one, two, noisy, counts):
    n, q = len(NEW), len(LEVELS)
    for model, outputs, latent in ((one, (), ()), (two, (2,), (2,)), (noisy, (), (2,)), (counts, (), ())):
        assert model.predict_quantiles(NEW, LEVELS).shape == (n, *outputs, q)
        assert model.predict_quantiles(NEW, 0.5).shape == (n, *outputs)
        lower, upper = model.predict_interval(NEW)
        assert lower.shape == upper.shape == (n, *outputs)
        assert model.predict_cdf(NEW, lower).shape == (n, *outputs)
        for gradient in model.predict_gradient(NEW, return_std=True):
            assert gradient.shape == (n, *outputs, 2)
        for joint in (True, False):
            assert model.sample_y(NEW, 3, joint=joint).shape == (n, *outputs, 3)
        mean, std = model.predict_latent(NEW, return_std=True)
        assert mean.shape == std.shape == (n, *latent)
        assert model.predict_latent(NEW, return_cov=True)[1].shape == (n, n, *latent)


@pytest.mark.slow
def test_quantiles_intervals_and_the_distribution_function_agree(one, two, noisy, counts):
    for model in (one, two, noisy):
        found = model.predict_quantiles(NEW, LEVELS)
        for i, level in enumerate(LEVELS):
            assert_allclose(model.predict_cdf(NEW, found[..., i]), level, atol=1e-9)
        assert_array_equal(model.predict_interval(NEW, 0.9)[0], model.predict_quantiles(NEW, 0.05))
    found = counts.predict_quantiles(NEW, 0.9)
    assert_array_equal(found, np.round(found))
    assert np.all(counts.predict_cdf(NEW, found) >= 0.9)
    assert np.all(counts.predict_cdf(NEW, found - 1.0) < 0.9)


def test_a_normal_prediction_has_the_quantiles_of_its_moments(two):
    mean, std = two.predict(NEW, return_std=True)
    assert_allclose(two.predict_quantiles(NEW, 0.975), mean + 1.959963984540054 * std, rtol=1e-12)


def test_latent_functions_in_the_units_of_y(two, noisy, counts):
    mean, std = two.predict_latent(NEW, return_std=True)
    y_mean, y_std = two.predict(NEW, return_std=True)
    assert_allclose(mean, y_mean, rtol=1e-12)
    noise = two.likelihood_.variance * Y.var(0)
    assert_allclose(std**2 + noise, y_std**2, rtol=1e-10)
    covariance = two.predict_latent(NEW, return_cov=True)[1]
    assert_allclose(covariance[np.arange(9), np.arange(9)], std**2, rtol=1e-9)
    # y = f + exp(g / 2) noise: the variance is that of f plus E[exp(g)].
    mean, std = noisy.predict_latent(NEW, return_std=True)
    y_mean, y_std = noisy.predict(NEW, return_std=True)
    assert_allclose(mean[:, 0], y_mean, rtol=1e-12)
    assert_allclose(std[:, 0] ** 2 + np.exp(mean[:, 1] + 0.5 * std[:, 1] ** 2), y_std**2, rtol=1e-9)
    # The logarithm of a mean.
    mean, std = counts.predict_latent(NEW, return_std=True)
    assert_allclose(np.exp(mean + 0.5 * std**2), counts.predict(NEW), rtol=1e-12)
    assert_array_equal(counts.predict_latent(NEW), mean)


@pytest.mark.parametrize("name", ["one", "two", "counts", "noisy"])
def test_gradients_against_finite_differences(name, request):
    model = request.getfixturevalue(name)
    of_mean, of_std = model.predict_gradient(NEW, return_std=True)
    for column, step in enumerate([1e-5, 1e-3]):
        shift = step * np.eye(2)[column]
        after, before = (model.predict(NEW + sign * shift, return_std=True) for sign in (1.0, -1.0))
        for gradient, high, low in zip((of_mean, of_std), after, before, strict=True):
            expected = (high - low) / (2.0 * step)
            assert_allclose(gradient[..., column], expected, rtol=2e-5, atol=2e-6 * np.abs(expected).max())


def test_gradients_with_offsets_and_known_noise_against_finite_differences(counts, two):
    """Of counts an offset multiplies mean and slope; known noise makes a deviation change more slowly."""
    offset, alpha = np.linspace(-1.0, 2.0, 9), np.linspace(0.0, 9.0, 18).reshape(9, 2)
    step = 1e-5 * np.eye(2)[0]
    found = counts.predict_gradient(NEW, return_std=True, offset=offset)
    ends = [counts.predict(NEW + sign * step, return_std=True, offset=offset) for sign in (1.0, -1.0)]
    for gradient, high, low in zip(found, *ends, strict=True):
        assert_allclose(gradient[:, 0], (high - low) / 2e-5, rtol=2e-5)
    assert_allclose(found[0], np.exp(offset)[:, None] * counts.predict_gradient(NEW), rtol=1e-9)
    mean, std = two.predict_gradient(NEW, return_std=True, alpha=alpha)
    variances = [two.predict(NEW + sign * step, return_std=True)[1] ** 2 for sign in (1.0, -1.0)]
    expected = np.subtract(*(np.sqrt(each + alpha) for each in variances)) / 2e-5
    assert_allclose(std[..., 0], expected, rtol=2e-5, atol=2e-6 * np.abs(expected).max())
    assert_array_equal(mean, two.predict_gradient(NEW))
    with pytest.raises(ValueError, match="alpha holds known variances of Gaussian noise, but likelihood Poisson"):
        counts.predict_gradient(NEW, alpha=1.0)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_gradients_of_every_kernel_and_of_columns(rng):
    kernel = EVERY_KERNEL + Columns(Matern(0.9, nu=1.5), [2])
    _, twins, likelihood, fitted, _ = conditioned(Gaussian(), rng, sklearn_kernels=(kernel,))
    rows, step = rng.normal(size=(7, 3)), 1e-5
    found = gradients(target_moments, twins, likelihood, fitted, None, rows)
    assert found.shape == (2, 2, 3, 7)
    for column in range(3):
        shift = step * np.eye(3)[column]
        after, before = (
            evaluate.in_chunks(evaluate.target_moments, twins, likelihood, fitted, rows + sign * shift)
            for sign in (1.0, -1.0)
        )
        assert_allclose(found[0, :, column], (after[0] - before[0]) / (2 * step), rtol=1e-6, atol=1e-6)
        assert_allclose(found[1, :, column], (after[1] ** 0.5 - before[1] ** 0.5) / (2 * step), rtol=1e-6, atol=1e-6)


def test_slopes_of_normal_scores():
    table = RNG.normal(size=(50, 1)) ** 3
    scores = fit_normal_scores(table, np.ones(50))
    at = np.r_[-40.0, RNG.uniform(-1, 1, size=20), 40.0][:, None]
    expected = (scores.forward(at + 1e-7) - scores.forward(at - 1e-7)) / 2e-7
    assert_allclose(scores.slope(at), expected, rtol=1e-5)
    constant = fit_normal_scores(np.ones((4, 1)), np.ones(4))
    assert_array_equal(constant.slope(at), 1.0)


def test_draws_by_rows_have_the_moments_of_the_prediction(two):
    draws = two.sample_y(NEW, 20_000, random_state=1, joint=False)
    mean, std = two.predict(NEW, return_std=True)
    assert_allclose(draws.mean(-1), mean, atol=5.0 * std.max(0).max() / np.sqrt(20_000))
    assert_allclose(draws.std(-1), std, rtol=0.03)
    # Two equal rows are drawn by themselves.
    twice = two.sample_y(NEW[[0, 0]], 5000, random_state=1, joint=False)
    centred = twice - twice.mean(-1, keepdims=True)
    assert np.all(np.abs((centred[0] * centred[1]).mean(-1)) < 0.07 * centred.var(-1)[0])


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 3])
def test_decision_function(n_classes):
    labels = np.array(["a", "b", "c"])[np.digitize(F, np.quantile(F, [0.3, 0.7][: n_classes - 1]))]
    model = NGDSVGPClassifier(1.0 * RBF([1.0, 1.0]), **OPTIONS).fit(X, labels)
    decision, proba = model.decision_function(NEW), model.predict_proba(NEW)
    if n_classes == 2:
        assert_allclose(expit(decision), proba[:, 1], rtol=1e-10)
        assert_array_equal(model.classes_[(decision > 0).astype(int)], model.predict(NEW))
        assert model.predict_latent(NEW).shape == (9,)
    else:
        assert_allclose(np.exp(decision), proba, rtol=1e-9)
        assert_array_equal(model.classes_[decision.argmax(1)], model.predict(NEW))
        assert model.predict_latent(NEW).shape == (9, 3)
    draws = model.sample_y(NEW, 4000, joint=False)
    share = np.stack([np.mean(draws == label, axis=1) for label in model.classes_], axis=1)
    assert_allclose(share, proba, atol=0.04)


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        ("predict_quantiles", {"q": 1.0}, r"q=1.0 must be a number or a list of numbers strictly between 0 and 1"),
        ("predict_quantiles", {"q": [[0.5]]}, r"q=\[\[0.5\]\] must be"),
        ("predict_quantiles", {"q": "half"}, r"q='half' must be"),
        ("predict_quantiles", {"q": []}, r"q=\[\] must be"),
        ("predict_interval", {"coverage": 95}, r"coverage=95 must be a number strictly between 0 and 1"),
        ("predict_interval", {"coverage": [0.5]}, r"coverage=\[0.5\] must be a number"),
        ("sample_y", {"joint": "yes"}, r"joint='yes' must be a bool among"),
        ("predict_cdf", {"y": np.zeros((9, 2))}, r"y has 2 columns, but the regressor was fitted with 1"),
    ],
)
def test_bad_arguments(method, arguments, message, one):
    with pytest.raises(ValueError, match=message):
        getattr(one, method)(NEW, **arguments)
    with pytest.raises(RuntimeError, match="At most one"):
        one.predict_latent(NEW, return_std=True, return_cov=True)
