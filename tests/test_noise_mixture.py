"""Noise that is a mixture of normals: its predictions, and where left-out errors ask for it."""

import pickle

import jax
import numpy as np
import pytest
import skops.io
from scipy import integrate, special, stats
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skgp_natgrad import NGDSVGPRegressor, svgp, trusted_types
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.metrics import crps_samples
from skgp_natgrad.prediction.dispersion import NORMAL_DF, Dispersion
from skgp_natgrad.start import errors as errors_of
from skgp_natgrad.start import noise_mixture

STEP = svgp.Settings(algorithm=svgp.Algorithm(solver="evidence"))
WEIGHTS, CENTRES, BANDWIDTH = np.array([0.6, 0.3, 0.1]), np.array([-0.6, 0.4, 2.4]), 0.3
SHARE, SPREAD, NOISE = 0.05, 9.0, 0.2


def model_of(rng, n_targets=1):
    """A model whose first target has a mixture as noise; a second one has Student-t errors."""
    X = rng.normal(size=(60, 2))
    y = np.sin(2.0 * X.sum(1)) + 0.4 * rng.normal(size=(n_targets, 60))
    plan = svgp.Plan((ConstantKernel(1.3) * RBF([1.0, 0.7]),), Gaussian(NOISE, "fixed"), n_inducing=15, settings=STEP)
    table = svgp.Table(X, y, np.ones(60))
    result = svgp.train(*svgp.init(plan, table, random_state=0), table, plan, random_state=0)
    model, _ = svgp.condition(result.state, result.constants, plan)
    Z, alpha, kernel = rng.normal(size=(4, 2)), rng.normal(size=(n_targets, 4)), ConstantKernel(0.7) * RBF([0.8, 1.5])
    of_mean = np.full((n_targets, 1), -0.3)
    posterior = svgp.Posterior(Z, Z[:0], alpha, np.zeros((n_targets, 0)), None, None, of_mean)
    columns = np.array([[NORMAL_DF, np.inf, SHARE, SPREAD, BANDWIDTH], [5.0, 0.3, 0.0, 1.0, 1.0]])[:n_targets, :, None]
    df, largest, share, spread, bandwidth = columns.swapaxes(0, 1)
    weights, centres = (np.array([WEIGHTS, [1.0, 0.0, 0.0]]), np.array([CENTRES, [0.0, 0.0, 0.0]]))
    of_noise = {"weights": weights[:n_targets], "centres": centres[:n_targets], "bandwidth": bandwidth}
    return model._replace(dispersion=Dispersion(kernel, posterior, df, largest, share, spread, **of_noise))


def parts_of(model, X, known=0.0):
    """Weights (K,), centres and variances (K, N) of the normals of the first target, by the equations."""
    mean, var = (each[0] for each in svgp.predict(model._replace(dispersion=None), X))
    kernel, posterior = model.dispersion[:2]
    factor = np.exp(kernel(X, posterior.Z) @ posterior.alpha[0] + posterior.prior_mean[0, 0])
    noise, latent = factor * NOISE, factor * var + known
    weights = np.append((1.0 - SHARE) * WEIGHTS, SHARE)
    centres = mean + np.sqrt(noise) * np.append(CENTRES, 0.0)[:, None]
    variances = np.append(np.tile(latent + BANDWIDTH**2 * noise, (3, 1)), [SPREAD * (var + NOISE) + known], axis=0)
    return weights, centres, variances


def density_of(parts, y):
    weights, centres, variances = parts
    return weights @ stats.norm.pdf(y, centres, np.sqrt(variances))


# -- predictions, against SciPy ------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 30])
@pytest.mark.parametrize("known", [0.0, 0.4])
def test_predictions_are_those_of_the_mixture(rng, n, known):
    model, X, y = model_of(rng), rng.normal(size=(n, 2)), rng.normal(size=n)
    given = {"known": np.full((1, n), known)} if known else {}
    weights, centres, variances = parts = parts_of(model, X, known)
    # A known variance is multiplied by (df - 2) / df, with the df that stands for infinity.
    rtol = 1e-6 if known else 1e-10
    mean, var = svgp.predict(model, X, "target_moments", **given)
    np.testing.assert_allclose(mean[0], centres[-1], rtol=1e-12)
    second = weights @ (variances + (centres - mean[0]) ** 2)
    np.testing.assert_allclose(var[0], second, rtol=1e-6)
    np.testing.assert_allclose(weights @ centres, mean[0], atol=1e-12)
    found = svgp.predict(model, X, "log_density", y[None], **given)
    np.testing.assert_allclose(found, np.log(density_of(parts, y)), rtol=rtol)
    likelihood, *moments, rows = svgp.distribution(model, X, **given)
    below = weights @ stats.norm.cdf(y, centres, np.sqrt(variances))
    np.testing.assert_allclose(svgp.cumulative(likelihood, *moments, y[None], rows)[0], below, rtol=rtol)
    levels = np.array([0.025, 0.3, 0.975])
    quantiles = svgp.quantiles(likelihood, *moments, levels, rows)[0]
    for level, quantile in zip(levels, quantiles.T, strict=True):
        np.testing.assert_allclose(
            weights @ stats.norm.cdf(quantile, centres, np.sqrt(variances)), level, rtol=max(rtol, 1e-8)
        )


def test_the_density_integrates_to_the_distribution_function(rng):
    model, X = model_of(rng), rng.normal(size=(1, 2))
    likelihood, *moments, rows = svgp.distribution(model, X)

    def density(y):
        return float(np.exp(svgp.predict(model, X, "log_density", np.array([[y]])))[0])

    below = integrate.quad(density, -30.0, 0.7, limit=200)[0]
    assert below == pytest.approx(svgp.cumulative(likelihood, *moments, np.array([[0.7]]), rows)[0, 0], abs=1e-7)


@pytest.mark.parametrize("joint", [True, False])
def test_draws_have_the_distribution(rng, joint):
    model, X = model_of(rng), rng.normal(size=(4, 2))
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


@pytest.mark.slow
def test_a_target_beside_it_keeps_its_student_t_errors(rng):
    model, X, y = model_of(rng, n_targets=2), rng.normal(size=(20, 2)), rng.normal(size=(2, 20))
    fields = {"weights": None, "centres": None, "bandwidth": None}
    plain = model._replace(dispersion=model.dispersion._replace(**fields))
    for quantity in ("target_moments", "latent_moments"):
        for found, expected in zip(svgp.predict(model, X, quantity), svgp.predict(plain, X, quantity), strict=True):
            np.testing.assert_array_equal(found[1], expected[1])
    found, expected = (svgp.distribution(each, X) for each in (model, plain))
    below, of_plain = (svgp.cumulative(each[0], *each[1:3], y, each[3]) for each in (found, expected))
    np.testing.assert_array_equal(below[1], of_plain[1])
    one = np.log(density_of(parts_of(model, X), y[0]))
    squared = svgp.distribution(plain, X)[2][1]
    other = stats.t.logpdf(y[1], 5.0, svgp.predict(plain, X, "target_mean")[1], np.sqrt(squared))
    np.testing.assert_allclose(svgp.predict(model, X, "log_density", y), one + other, rtol=1e-9)
    drawn = svgp.sample_targets(model, X[:3], 20_000, 0)
    np.testing.assert_allclose(drawn.std(-1), np.sqrt(svgp.predict(model, X[:3], "target_moments")[1]), rtol=0.1)


def test_gradients_are_finite_differences(rng):
    model, X, h = model_of(rng), rng.normal(size=(5, 2)), 1e-5
    found = svgp.gradients(model, X)
    for d in range(2):
        ends = [svgp.predict(model, X + sign * h * np.eye(2)[d], "target_moments") for sign in (1.0, -1.0)]
        slope = (np.sqrt(ends[0][1]) - np.sqrt(ends[1][1])) / (2.0 * h)
        np.testing.assert_allclose(found[1][:, d], slope, rtol=1e-5, atol=1e-7)


# -- what is chosen ------------------------------------------------------------------------------

NOISES = {
    "uniform": stats.uniform(-np.sqrt(3.0), 2.0 * np.sqrt(3.0)),
    "exponential": stats.expon(-1.0),
    "normal": stats.norm(),
    "student": stats.t(5.0, scale=np.sqrt(0.6)),
}


def seen_of(rng, name, n, latent=0.01):
    error = NOISES[name].rvs(n, random_state=rng) + np.sqrt(latent) * rng.normal(size=n)
    ones = np.ones(n)
    return errors_of.Seen(error, (1.0 + latent) * ones, 0.0 * ones, ones, ones, 0.0), ones


def density_under(found, errors, y, latent=0.01):
    """The density of errors y by the equations."""
    factor = np.exp(errors.scale)
    centres = np.sqrt(factor) * found.centres
    deviation = np.sqrt(factor * (latent + found.bandwidth**2))
    most = stats.norm.pdf(y[:, None], centres, deviation) @ found.weights
    return (1.0 - errors.share) * most + errors.share * stats.norm.pdf(y, 0.0, np.sqrt(errors.spread * (1.0 + latent)))


@pytest.mark.parametrize(("name", "n", "allowed"), [("uniform", 300, 0.04), ("uniform", 1500, 0.015)])
def test_flat_noise_is_found(rng, name, n, allowed):
    """Against the density of flat noise and a normal latent error; normal errors are 0.13 nats below it."""
    found, errors = noise_mixture.better(*seen_of(rng, name, n), errors_of.Errors())
    assert found is not noise_mixture.NONE
    assert found.weights.sum() == pytest.approx(1.0)
    assert found.weights @ found.centres == pytest.approx(0.0, abs=1e-12)
    ys = np.linspace(-5.0, 5.0, 4001)
    edge = np.sqrt(3.0)
    true = (stats.norm.cdf((ys + edge) / 0.1) - stats.norm.cdf((ys - edge) / 0.1)) / (2.0 * edge)
    density = density_under(found, errors, ys)
    assert np.trapezoid(density, ys) == pytest.approx(1.0, abs=1e-2)
    divergence = np.trapezoid(true * np.log(np.maximum(true, 1e-300) / density), ys)
    assert 0.0 < divergence < allowed


def test_skew_noise_is_found(rng):
    seen, noise = seen_of(rng, "exponential", 800)
    found, errors = noise_mixture.better(seen, noise, errors_of.Errors())
    fresh = seen_of(rng, "exponential", 4000)[0].error
    of_normal = stats.norm.logpdf(fresh, 0.0, np.sqrt(1.01)).mean()
    assert np.log(density_under(found, errors, fresh)).mean() > of_normal + 0.2


@pytest.mark.parametrize("name", ["normal", "student"])
@pytest.mark.parametrize("n", [250, 1000])
def test_other_errors_stay_as_they_are(rng, name, n):
    seen, noise = seen_of(rng, name, n)
    errors = errors_of.Errors() if name == "normal" else errors_of.Errors(scale=np.log(0.6), df=5.0)
    assert noise_mixture.better(seen, noise, errors) == (noise_mixture.NONE, errors)


def test_few_rows_say_nothing(rng):
    seen, noise = seen_of(rng, "uniform", 99)
    assert noise_mixture.better(seen, noise, errors_of.Errors())[0] is noise_mixture.NONE


def test_each_em_step_raises_the_likelihood(rng):
    seen, share = seen_of(rng, "exponential", 300)
    grid = noise_mixture._Grid(seen, share / 1.01, errors_of.Errors(), 0.2)
    each = grid.weights(grid.starts[0], slice(None), range(1, 40))
    # With the one observation that the wide part is given.
    likelihood = [np.log(grid.densities @ weights).sum() + np.log(weights[-1]) for weights in each]
    assert np.all(np.diff(likelihood) > 0.0)


def test_densities_of_components_are_those_of_scipy(rng):
    seen, share = seen_of(rng, "exponential", 250, latent=0.3)
    grid = noise_mixture._Grid(seen, share / 1.3, errors_of.Errors(scale=0.2), 0.4)
    factor, k = np.exp(0.2), 3
    one = stats.norm(np.sqrt(factor) * grid.centres[k], np.sqrt(factor * (0.3 + 0.16)))
    np.testing.assert_allclose(grid.densities[:, k], one.pdf(seen.error), rtol=1e-9, atol=1e-290)
    wide = stats.norm(0.0, np.sqrt(9.0 * 1.3))
    np.testing.assert_allclose(grid.densities[:, -1], wide.pdf(seen.error), rtol=1e-9)


def test_rounding_counts_as_flat_noise(rng):
    """The errors that predict what was rounded are far too narrow for the numbers that it was rounded to."""
    f = 4.0 * rng.normal(size=500)
    error, ones = np.round(f) - f, np.ones(500)
    seen = errors_of.Seen(error, ones / 12.0, 0.0 * ones, ones, ones, 1.0)
    narrow = errors_of.Errors(scale=-3.0)
    assert seen._replace(width=0.0).density(narrow) < -0.2
    found, errors = noise_mixture.better(seen, 0.98 * ones / 12.0, narrow)
    ys = np.linspace(-0.45, 0.45, 10)
    factor = np.exp(errors.scale) / 12.0
    each = stats.norm.pdf(
        ys[:, None],
        np.sqrt(0.98 * factor) * found.centres,
        np.sqrt(factor * (0.02 + 0.98 * found.bandwidth**2)),
    )
    np.testing.assert_allclose(each @ found.weights, 1.0, atol=0.25)


@pytest.mark.parametrize(
    ("deviation", "bandwidth", "follows"),
    [(12.0**-0.5, 0.05, False), (0.7, 0.4, True), (3.0, 0.1, True), (3.0, 0.2, False)],
)
def test_a_mixture_does_not_follow_single_values(rng, deviation, bandwidth, follows):
    """Errors of whole numbers around one mean are on a grid; normals at each of its points would have large densities.

    The numbers below are standard deviations in widths of rounding.
    """
    error, ones = np.round(deviation * rng.normal(size=400)), np.ones(400)
    seen = errors_of.Seen(error, deviation**2 * ones, 0.0 * ones, ones, ones, 1.0)
    grid = noise_mixture._Grid(seen, ones, errors_of.Errors(), bandwidth)
    assert grid.follows_values(1.0) == follows
    assert not grid.follows_values(0.0)


# -- whole fits ----------------------------------------------------------------------------------


def noisy(rng, name, n):
    X = rng.uniform(-3.0, 3.0, size=(n, 1))
    return X, 2.0 * np.sin(X[:, 0]) + NOISES[name].rvs(n, random_state=rng)


@pytest.mark.slow
def test_uniform_noise_with_nothing_set(rng):
    """-1.24 is possible where the function is known; normal errors reach -1.42."""
    reg = NGDSVGPRegressor(random_state=0).fit(*noisy(rng, "uniform", 2000))
    assert "the noise is a mixture of normals" in reg.plan_
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
def test_normal_noise_with_nothing_set(rng, monkeypatch):
    """The same to the bit as without the choice."""
    table = noisy(rng, "normal", 600)
    found = NGDSVGPRegressor(random_state=0).fit(*table)
    monkeypatch.setattr(noise_mixture, "better", lambda seen, noise, errors: (noise_mixture.NONE, errors))
    expected = NGDSVGPRegressor(random_state=0).fit(*table)
    assert found.plan_ == expected.plan_
    jax.tree.map(np.testing.assert_array_equal, found._posterior, expected._posterior)
    assert (found._dispersion is None) == (expected._dispersion is None)
    X, y = noisy(rng, "normal", 100)
    np.testing.assert_array_equal(found.predict_log_density(X, y), expected.predict_log_density(X, y))
