"""Numbers with exact zeros: the law of a Poisson number of Gamma distributed jumps."""

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special, stats
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.metrics import mean_tweedie_deviance

from skgp_natgrad import NGDSVGPRegressor, svgp
from skgp_natgrad.likelihoods import Gamma, Tweedie
from skgp_natgrad.likelihoods.tweedie import _log_poisson

OPTIONS = {"normalize_X": False, "random_state": 0, "n_inducing": 12, "max_iter": 120, "tol": 0.1}

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@jax.jit
def _log_prob(model, f, y):
    return model.log_prob(f, y)


def log_prob(power, dispersion, f, y):
    f, y = np.broadcast_arrays(np.atleast_2d(f), np.atleast_2d(y))
    return np.asarray(_log_prob(Tweedie(power, dispersion).value_and_bounds(1)[0], f, y))[0]


def by_jumps(power, dispersion, f, y):
    """The sum over the numbers of jumps, term by term."""
    mean = np.exp(f)
    rate, shape = mean ** (2.0 - power) / (dispersion * (2.0 - power)), (2.0 - power) / (power - 1.0)
    if y == 0.0:
        return -rate
    largest = y ** (2.0 - power) / (dispersion * (2.0 - power))
    j = np.arange(max(1, int(largest - 60.0 * np.sqrt(largest) - 50.0)), int(largest + 60.0 * np.sqrt(largest) + 400.0))
    scale = dispersion * (power - 1.0) * mean ** (power - 1.0)
    return special.logsumexp(stats.poisson.logpmf(j, rate) + stats.gamma.logpdf(y, j * shape, scale=scale))


@pytest.mark.parametrize("power", [1.05, 1.2, 1.5, 1.8, 1.95])
@pytest.mark.parametrize("dispersion", [1e-4, 0.3, 20.0])
@pytest.mark.usefixtures("x64")
def test_density_is_the_sum_over_jumps(power, dispersion):
    """From tens of terms to a hundred thousand."""
    y = np.array([0.0, 1e-3, 0.3, 1.0, 7.0, 500.0])
    for f in (-1.0, 1.5):
        expected = [by_jumps(power, dispersion, f, value) for value in y]
        assert_allclose(log_prob(power, dispersion, np.full(6, f), y), expected, rtol=1e-11, atol=1e-9)


@pytest.mark.usefixtures("x64")
def test_densities_differ_by_the_deviance_of_scikit_learn():
    y, power, dispersion = np.array([0.0, 0.2, 3.0]), 1.3, 0.7
    one, two = (log_prob(power, dispersion, np.full(3, f), y) for f in (0.4, -0.8))
    deviances = [[mean_tweedie_deviance([value], [np.exp(f)], power=power) for value in y] for f in (0.4, -0.8)]
    assert_allclose(one - two, -np.subtract(*deviances) / (2.0 * dispersion), rtol=1e-10)


@pytest.mark.usefixtures("x64")
def test_near_power_two_it_is_gamma():
    y, f = np.array([0.3, 1.0, 4.0]), np.array([0.1, 0.5, 1.0])
    gamma = np.asarray(_log_prob(Gamma(1.0 / 0.2).value_and_bounds(1)[0], f[None], y[None]))[0]
    near = [log_prob(power, 0.2, f, y) for power in (1.9, 1.94)]
    assert np.all(np.abs(near[1] - gamma) < np.abs(near[0] - gamma))
    assert_allclose(near[1], gamma, atol=0.1)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_derivatives_in_power_and_dispersion_are_those_of_differences():
    y, f = np.array([[0.0, 0.01, 2.0, 300.0]]), np.array([[0.2, -0.5, 1.0, 5.0]])

    @jax.jit
    def total(raw):
        return raw.from_raw().log_prob(f, y).sum()

    for dispersion in (0.5, 1e-3):
        raw = Tweedie(1.4, dispersion).value_and_bounds(1)[0].to_raw()
        gradient = jax.tree.leaves(jax.jit(jax.grad(total))(raw))
        leaves, tree = jax.tree.flatten(raw)
        for i, h in ((0, 1e-5), (1, 1e-5)):
            ends = [
                total(jax.tree.unflatten(tree, [x + side * h * (k == i) for k, x in enumerate(leaves)]))
                for side in (1, -1)
            ]
            assert_allclose(gradient[i].ravel()[0], (ends[0] - ends[1]) / (2.0 * h), rtol=1e-5)


@pytest.mark.usefixtures("x64")
def test_distribution_function_and_draws_are_those_of_the_law(rng):
    """Averaged over f, against draws of f, of the number of jumps and of the jumps."""
    model = Tweedie(1.6, 0.8).value_and_bounds(1)[0]
    mean, var, n = 0.4, 0.3, 200_000
    f = mean + np.sqrt(var) * rng.normal(size=n)
    jumps = rng.poisson(np.exp(0.4 * f) / (0.8 * 0.4))
    y = rng.gamma(jumps * 0.4 / 0.6) * 0.8 * 0.6 * np.exp(0.6 * f)
    at = np.array([[-1.0, 0.0, 0.1, 1.0, 5.0, 40.0]])
    found = model.predictive_cdf(np.full((1, 6), mean), np.full((1, 6), var), at)[0]
    assert_allclose(found, [np.mean(y <= value) for value in at[0]], atol=5e-3)
    assert found[0] == 0.0
    draws = model.sample(f[None], np.random.RandomState(0))[0]
    assert stats.ks_2samp(draws, y).pvalue > 0.01
    assert np.mean(draws == 0.0) == pytest.approx(np.mean(y == 0.0), abs=5e-3)


@pytest.mark.parametrize("rate", [0.5, 20.0, 40.0, 1e4])
def test_distribution_function_given_f_is_the_sum_over_jumps(rate):
    power, dispersion = 1.5, 0.5
    f = np.log(rate * 0.5 * 0.5) / 0.5
    j = np.arange(1, int(rate + 60.0 * np.sqrt(rate) + 60.0))
    scale = dispersion * 0.5 * np.exp(0.5 * f)
    y = np.exp(f) * np.array([0.5, 0.97, 1.0, 1.2])
    expected = stats.poisson.pmf(0, rate) + stats.poisson.pmf(j, rate) @ stats.gamma.cdf(y, j[:, None], scale=scale)
    model = Tweedie(power, dispersion).value_and_bounds(1)[0]
    assert_allclose(model.conditional_cdf(np.full((1, 4), f), y[None])[0], expected, atol=1e-8)


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(3)
    rows = np.sort(rng.uniform(-3.0, 3.0, size=(200, 1)), axis=0)
    f = 0.3 + np.sin(rows[:, 0])
    y = Tweedie(1.5, 0.8).value_and_bounds(1)[0].sample(f[None], np.random.RandomState(0))[0]
    kernel = ConstantKernel(1.0) * RBF(1.0)
    return NGDSVGPRegressor(kernel, likelihood="tweedie", **OPTIONS).fit(rows, y), rows, y, np.exp(f)


@pytest.mark.slow
def test_quantiles_have_the_mass_at_zero(fitted):
    reg, rows, y, truth = fitted
    assert np.any(y == 0.0)
    few = rows[::25]
    at_zero = reg.predict_cdf(few, np.zeros(8))
    levels = np.array([0.05, 0.5, 0.95])
    quantiles = reg.predict_quantiles(few, levels)
    for level, column in zip(levels, quantiles.T, strict=True):
        assert np.array_equal(column == 0.0, at_zero >= level)
        above = column > 0.0
        assert_allclose(reg.predict_cdf(few, column)[above], level, atol=1e-8)
    lower, upper = reg.predict_interval(few, 0.9)
    draws = reg.sample_y(few, 4000, joint=False)
    assert_allclose(np.mean(draws <= upper[:, None], axis=1), 0.95, atol=0.02)
    assert_allclose(np.mean(draws == 0.0, axis=1), at_zero, atol=0.03)
    mean, std = reg.predict(few, return_std=True)
    assert_allclose(draws.mean(1), mean, atol=6.0 * std.max() / np.sqrt(4000))
    assert np.all(lower >= 0.0)
    assert np.abs(reg.predict(rows) / truth - 1.0).mean() < 0.2


@pytest.mark.slow
def test_power_is_trained_or_fixed(fitted):
    reg, rows, y, _ = fitted
    assert 1.3 < reg.likelihood_.power < 1.7
    assert 0.5 < reg.likelihood_.dispersion < 1.2
    fixed = NGDSVGPRegressor(reg.kernel, likelihood=Tweedie(1.3, power_bounds="fixed"), **OPTIONS).fit(rows, y)
    assert fixed.likelihood_.power == 1.3
    with pytest.raises(ValueError, match="power must be strictly between 1 and 2"):
        NGDSVGPRegressor(likelihood=Tweedie(2.0)).fit(rows, y)
    with pytest.raises(ValueError, match="Tweedie: y must hold numbers of at least zero"):
        fixed.fit(rows, -y)


@pytest.mark.parametrize("rate", [0.3, 5.0, 40.0, 900.0, 1200.0, 1e5])
def test_probabilities_of_numbers_of_jumps_are_those_of_scipy(rate):
    number = np.unique(np.maximum(np.floor(rate + np.sqrt(rate) * np.linspace(-8.0, 8.0, 50)), 1.0))
    assert_allclose(_log_poisson(rate, number - rate), stats.poisson.logpmf(number, rate), rtol=1e-10, atol=2e-9)


@pytest.mark.parametrize("log_mean", [25.0, 30.0, 35.0, 40.0])
def test_the_distribution_of_many_jumps_is_normal(log_mean):
    """Of 1e11 to 1e17 jumps."""
    likelihood = Tweedie(1.1, 0.05).value_and_bounds(1)[0]
    mean, level = np.exp(log_mean), np.array([-2.0, 0.0, 2.0])
    y = mean + level * np.sqrt(0.05) * mean**0.55
    found = likelihood.conditional_cdf(np.full((1, 3), log_mean), y[None])
    assert_allclose(found[0], stats.norm.cdf(level), atol=2e-6)


@pytest.mark.parametrize(
    ("power", "dispersion", "mean", "var"),
    [(1.1, 0.05, 10.2, 12.0), (1.1, 0.05, 5.0, 25.0), (1.05, 1e-3, 10.0, 9.0), (1.5, 1e-5, 10.0, 25.0)],
)
def test_predictions_far_from_the_data_have_quantiles(power, dispersion, mean, var, rng):
    """Where nine deviations of the latent function are more jumps than have digits, and the mean decides."""
    likelihood = Tweedie(power, dispersion).value_and_bounds(1)[0]
    levels = np.array([0.05, 0.5, 0.95])
    y = np.exp(mean + np.sqrt(var) * stats.norm.ppf(levels))[None]
    found = likelihood.predictive_cdf(np.full((1, 3), mean), np.full((1, 3), var), y)[0]
    draws = likelihood.sample(mean + np.sqrt(var) * rng.normal(size=(1, 200_000)), np.random.RandomState(0))
    assert_allclose(found, (draws <= y.T).mean(1), atol=5e-3)
    quantiles = [svgp.quantiles(likelihood, np.full((1, 1), mean), np.full((1, 1), var), [level]) for level in levels]
    assert_allclose(np.log(np.ravel(quantiles)), np.log(np.quantile(draws, levels)), atol=0.1)
