"""Errors that are a mixture of normals: their predictions, and whole fits whose errors ask for them."""

import pickle

import numpy as np
import pytest
import skops.io
from scipy import integrate, special, stats
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skgp_natgrad import NGDSVGPRegressor, svgp, trusted_types
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.metrics import crps_samples
from skgp_natgrad.prediction.dispersion import Dispersion
from skgp_natgrad.prediction.errors import MixtureErrors

STEP = svgp.Settings(algorithm=svgp.Algorithm(solver="evidence"))
WEIGHTS, CENTRES = np.array([0.55, 0.3, 0.1, 0.05]), np.array([-0.6, 0.4, 2.1, 0.0])
SCALES, NOISE = np.array([0.3, 0.3, 0.5, 3.0]), 0.2


@pytest.fixture(params=[False, True], ids=["all vary", "wide ones do not"])
def undispersed(request):
    return np.array([0.0, 0.0, 0.0, 1.0]) if request.param else None


def model_of(rng, undispersed=None, n_targets=1, n_inducing=15):
    """A model whose first target has skew errors with heavy tails; those of a second one are normal."""
    X = rng.normal(size=(60, 2))
    y = np.sin(2.0 * X.sum(1)) + 0.4 * rng.normal(size=(n_targets, 60))
    kernel = ConstantKernel(1.3) * RBF([1.0, 0.7])
    plan = svgp.Plan((kernel,), Gaussian(NOISE, "fixed"), n_inducing=n_inducing, settings=STEP)
    table = svgp.Table(X, y, np.ones(60))
    result = svgp.train(*svgp.init(plan, table, random_state=0), table, plan, random_state=0)
    model, _ = svgp.condition(result.state, result.constants, plan)
    Z, alpha, kernel = rng.normal(size=(4, 2)), rng.normal(size=(n_targets, 4)), ConstantKernel(0.7) * RBF([0.8, 1.5])
    of_mean, largest = np.full((n_targets, 1), -0.3), np.array([[np.inf], [0.3]])[:n_targets]
    posterior = svgp.Posterior(Z, Z[:0], alpha, np.zeros((n_targets, 0)), None, None, of_mean)
    parts = np.array([[WEIGHTS, CENTRES, SCALES], [[1.0, 0.0, 0.0, 0.0], np.zeros(4), np.ones(4)]])[:n_targets]
    undispersed = None if undispersed is None else np.array([undispersed, 0.0 * undispersed])[:n_targets]
    errors = MixtureErrors(*parts.swapaxes(0, 1), undispersed)
    return model._replace(dispersion=Dispersion(kernel, posterior, errors, largest))


def parts_of(model, X, known=0.0):
    """Weights (K,), centres and variances (K, N) of the normals of the first target, by the equations."""
    mean, var = (each[0] for each in svgp.predict(model._replace(dispersion=None), X))
    kernel, posterior = model.dispersion[:2]
    factor = np.exp(kernel(X, posterior.Z) @ posterior.alpha[0] + posterior.prior_mean[0, 0])
    # A known variance is added to the variance.
    known = known / (WEIGHTS @ (SCALES**2 + CENTRES**2))
    of = model.dispersion.errors.undispersed
    factor = factor if of is None else np.where(of[0][:, None], 1.0, factor)
    total = np.broadcast_to(factor * (var + NOISE) + known, (4, len(X)))
    return WEIGHTS, mean + CENTRES[:, None] * np.sqrt(total), SCALES[:, None] ** 2 * total


def density_of(parts, y):
    weights, centres, variances = parts
    return weights @ stats.norm.pdf(y, centres, np.sqrt(variances))


# -- predictions, against SciPy ------------------------------------------------------------------


def test_the_errors_of_these_tests_have_a_mean_of_zero():
    assert pytest.approx(0.0, abs=1e-12) == WEIGHTS @ CENTRES


@pytest.mark.parametrize("n", [3, 30])
@pytest.mark.parametrize("known", [0.0, 0.4])
def test_predictions_are_those_of_the_mixture(rng, n, known, undispersed):
    model, X, y = model_of(rng, undispersed), rng.normal(size=(n, 2)), rng.normal(size=n)
    given = {"known": np.full((1, n), known)} if known else {}
    weights, centres, variances = parts = parts_of(model, X, known)
    mean, var = svgp.predict(model, X, "target_moments", **given)
    np.testing.assert_allclose(mean[0], centres[-1], rtol=1e-12)
    np.testing.assert_allclose(var[0], weights @ (variances + (centres - mean[0]) ** 2), rtol=1e-9)
    found = svgp.predict(model, X, "log_density", y[None], **given)
    np.testing.assert_allclose(found, np.log(density_of(parts, y)), rtol=1e-9)
    likelihood, *moments, rows = svgp.distribution(model, X, **given)
    below = weights @ stats.norm.cdf(y, centres, np.sqrt(variances))
    np.testing.assert_allclose(svgp.cumulative(likelihood, *moments, y[None], rows)[0], below, rtol=1e-10)
    levels = np.array([1e-6, 0.025, 0.3, 0.975])
    for level, quantile in zip(levels, svgp.quantiles(likelihood, *moments, levels, rows)[0].T, strict=True):
        np.testing.assert_allclose(weights @ stats.norm.cdf(quantile, centres, np.sqrt(variances)), level, rtol=1e-8)


def test_the_density_integrates_to_the_distribution_function(rng, undispersed):
    model, X = model_of(rng, undispersed), rng.normal(size=(1, 2))
    likelihood, *moments, rows = svgp.distribution(model, X)

    def density(y):
        return float(np.exp(svgp.predict(model, X, "log_density", np.array([[y]])))[0])

    below = integrate.quad(density, -30.0, 0.7, limit=200)[0]
    assert below == pytest.approx(svgp.cumulative(likelihood, *moments, np.array([[0.7]]), rows)[0, 0], abs=1e-7)


@pytest.mark.parametrize("joint", [True, False])
def test_draws_have_the_distribution(rng, joint, undispersed):
    model, X = model_of(rng, undispersed), rng.normal(size=(4, 2))
    drawn, parts = svgp.sample_targets(model, X, 20_000, 0, joint=joint)[0], parts_of(model, X)
    for k, values in enumerate(drawn):
        weights, centres, variances = parts[0], parts[1][:, k, None], parts[2][:, k, None]
        below = weights @ stats.norm.cdf(np.sort(values), centres, np.sqrt(variances))
        assert stats.kstest(below, "uniform").pvalue > 1e-3

    def absolute(mean, var):
        """E|z| of a normal z."""
        return 2.0 * np.sqrt(var) * stats.norm.pdf(mean / np.sqrt(var)) + mean * special.erf(mean / np.sqrt(2.0 * var))

    # The score of draws is E|y - Y| - E|Y - Y'| / 2.
    weights, centres, variances = parts[0], parts[1][:, 0], parts[2][:, 0]
    pairs = absolute(centres[:, None] - centres, variances[:, None] + variances)
    expected = weights @ absolute(0.3 - centres, variances) - 0.5 * weights @ pairs @ weights
    assert crps_samples(np.array([0.3]), drawn[:1]) == pytest.approx(expected, rel=0.03)


def test_joint_draws_have_the_covariance(rng, undispersed):
    """Of latent functions and of targets, whose latent parts stay where narrow normals are those of the noise."""
    model, X = model_of(rng, undispersed), 0.5 * rng.normal(size=(5, 2))
    latent = svgp.sample_latent(model, X, 40_000, 0)[0]
    expected = svgp.covariance(model, X)[0]
    np.testing.assert_allclose(np.cov(latent), expected, atol=0.06 * expected.max())
    np.testing.assert_allclose(np.diag(expected), svgp.predict(model, X)[1][0], rtol=1e-6)
    targets = svgp.covariance(model, X, of_targets=True)[0]
    np.fill_diagonal(targets, svgp.predict(model, X, "target_moments")[1][0])
    drawn = svgp.sample_targets(model, X, 40_000, 1)[0]
    np.testing.assert_allclose(np.cov(drawn), targets, atol=0.04 * targets.max())
    plain = svgp.covariance(model._replace(dispersion=None), X)[0]
    ratio = (targets / plain)[~np.eye(5, dtype=bool)]
    assert np.all(ratio > 0.2)


def test_a_target_beside_it_keeps_its_normal_errors(rng, undispersed):
    model, X, y = model_of(rng, undispersed, n_targets=2), rng.normal(size=(20, 2)), rng.normal(size=(2, 20))
    np.testing.assert_array_equal(model.dispersion.error_df, [np.nan, np.inf])
    kernel, posterior = model.dispersion[:2]
    mean, var = (each[1] for each in svgp.predict(model._replace(dispersion=None), X))
    factor = np.exp(kernel(X, posterior.Z) @ posterior.alpha[1] + posterior.prior_mean[1, 0])
    seen = np.minimum(var, 0.3)
    other = stats.norm(mean, np.sqrt(factor * (seen + NOISE) + var - seen))
    np.testing.assert_allclose(svgp.predict(model, X, "target_moments")[1][1], other.var(), rtol=1e-9)
    one = np.log(density_of(parts_of(model, X), y[0]))
    np.testing.assert_allclose(svgp.predict(model, X, "log_density", y), one + other.logpdf(y[1]), rtol=1e-9)
    found = svgp.distribution(model, X)
    np.testing.assert_allclose(svgp.cumulative(*found[:3], y, found[3])[1], other.cdf(y[1]), rtol=1e-9)
    quantiles = svgp.quantiles(*found[:3], np.array([0.3]), found[3])
    np.testing.assert_allclose(quantiles[1, :, 0], other.ppf(0.3), rtol=1e-9)
    drawn = svgp.sample_targets(model, X[:3], 20_000, 0)
    np.testing.assert_allclose(drawn.std(-1), np.sqrt(svgp.predict(model, X[:3], "target_moments")[1]), rtol=0.1)


def test_gradients_are_finite_differences(rng, undispersed):
    model, X, h = model_of(rng, undispersed), rng.normal(size=(5, 2)), 1e-5
    found = svgp.gradients(model, X)
    for d in range(2):
        ends = [svgp.predict(model, X + sign * h * np.eye(2)[d], "target_moments") for sign in (1.0, -1.0)]
        slope = (np.sqrt(ends[0][1]) - np.sqrt(ends[1][1])) / (2.0 * h)
        np.testing.assert_allclose(found[1][:, d], slope, rtol=1e-5, atol=1e-7)


# -- whole fits ----------------------------------------------------------------------------------

NOISES = {"uniform": stats.uniform(-np.sqrt(3.0), 2.0 * np.sqrt(3.0)), "normal": stats.norm()}


def noisy(rng, name, n):
    X = rng.uniform(-3.0, 3.0, size=(n, 1))
    return X, 2.0 * np.sin(X[:, 0]) + NOISES[name].rvs(n, random_state=rng)


@pytest.mark.slow
def test_uniform_noise_with_nothing_set(rng):
    """-1.24 is possible where the function is known; normal errors reach -1.42."""
    reg = NGDSVGPRegressor(random_state=0).fit(*noisy(rng, "uniform", 2000))
    assert "errors are a mixture of normals" in reg.plan_
    X, y = noisy(rng, "uniform", 3000)
    assert reg.predict_log_density(X, y).mean() >= -1.30
    for coverage in (0.5, 0.9, 0.95):
        lower, upper = reg.predict_interval(X, coverage)
        assert np.mean((lower <= y) & (y <= upper)) == pytest.approx(coverage, abs=0.025)
    assert reg.predict(X, return_std=True)[1].mean() == pytest.approx(1.0, abs=0.05)
    assert np.isnan(reg.error_df_)
    for restored in (
        pickle.loads(pickle.dumps(reg)),
        skops.io.loads(skops.io.dumps(reg), trusted=trusted_types()),
    ):
        np.testing.assert_array_equal(restored.predict_quantiles(X[:50], 0.9), reg.predict_quantiles(X[:50], 0.9))


@pytest.mark.slow
def test_normal_noise_with_nothing_set(rng):
    """Errors that are as the Gaussian process predicts leave it as it is."""
    found = NGDSVGPRegressor(random_state=0).fit(*noisy(rng, "normal", 600))
    assert found._dispersion is None
    assert found.error_df_ == np.inf
