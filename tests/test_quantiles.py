"""Distribution functions and quantiles of predictions, against SciPy's and against draws."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from skgp_natgrad.likelihoods import Gaussian, LocationLikelihood, Poisson, StudentT
from skgp_natgrad.prediction.quantiles import cumulative, quantiles

from .test_likelihoods import CASES

LEVELS = np.array([0.005, 0.3, 0.5, 0.95])
REGRESSION = [case for case in CASES if "regression" in case.likelihood.tasks]
every_case = pytest.mark.parametrize("case", REGRESSION, ids=lambda case: repr(case.likelihood))


def leaves_of(case, n_targets=1):
    likelihood = case.likelihood
    if likelihood.name == "ordinal":
        likelihood = likelihood.prepare(np.zeros((n_targets, 1)), 0)
    return likelihood.value_and_bounds(n_targets)[0].given(likelihood.known_everywhere(n_targets))


def moments(likelihood, deviation, rng, n_rows=3):
    n_latent = likelihood.n_latent(1, 0)
    return 0.3 * rng.normal(size=(n_latent, n_rows)), np.full((n_latent, n_rows), deviation**2)


def reference(case, mean, var, y):
    """P(Y <= y) of one row by the trapezoidal rule on all latent functions, which shares no code with the package."""
    one = 801 if case.likelihood.name == "tweedie" else 40001
    z = [np.linspace(-9, 9, n) for n in ((one,) if len(mean) == 1 else (1201, 601))]
    weights = [stats.norm.pdf(each) * (each[1] - each[0]) for each in z]
    f = np.meshgrid(*(m + np.sqrt(v) * each for m, v, each in zip(mean, var, z, strict=True)), indexing="ij")
    found = case.given(*f).cdf(y)
    for weight in reversed(weights):
        found = found @ weight
    return found


@pytest.mark.slow
@every_case
@pytest.mark.parametrize("deviation", [0.05, 1.0])
def test_quantiles_invert_the_distribution_function(case, deviation, rng):
    likelihood = leaves_of(case)
    mean, var = moments(likelihood, deviation, rng)
    found = quantiles(likelihood, mean, var, LEVELS)
    assert found.shape == (1, 3, len(LEVELS))
    for row in range(3):
        m, v = mean[:, row], var[:, row]
        reached = np.array([reference(case, m, v, y) for y in found[0, row]])
        own = cumulative(likelihood, np.tile(m[:, None], 4), np.tile(v[:, None], 4), found[:, row])[0]
        assert_allclose(own, reached, atol=1e-8)
        if likelihood.discrete:
            before = np.array([reference(case, m, v, y - 1.0) if y > 0 else 0.0 for y in found[0, row]])
            assert np.all(before < LEVELS)
            assert np.all(reached >= LEVELS - 1e-12)
            assert_array_equal(found, np.round(found))
        else:
            # At a value with a probability of its own the distribution function jumps over levels.
            jumps = np.isin(found[0, row], getattr(case.given(*m), "atoms", ()))
            below = np.array([reference(case, m, v, y - 1e-12) for y in found[0, row][jumps]])
            assert np.all(reached >= LEVELS - 1e-8)
            assert np.all(below <= LEVELS[jumps] + 1e-8)
            assert_allclose(reached[~jumps], LEVELS[~jumps], atol=1e-8)


@every_case
def test_quantiles_are_those_of_draws(case, rng):
    likelihood, n_draws = leaves_of(case), 200_000
    mean, var = moments(likelihood, 0.5, rng, n_rows=1)
    f = mean + np.sqrt(var) * rng.normal(size=(len(mean), n_draws))
    draws = np.asarray(likelihood.sample(f, np.random.RandomState(0)))[0]
    for level, y in zip(LEVELS, quantiles(likelihood, mean, var, LEVELS)[0, 0], strict=True):
        error = 4.5 * np.sqrt(level * (1.0 - level) / n_draws)
        assert np.mean(draws < y) < level + error
        assert np.mean(draws <= y) > level - error


def test_noise_much_narrower_than_the_latent_function():
    """The distribution function is a sharp step in f, with heavy tails: y is f, nearly."""
    likelihood = StudentT(df=1.0, scale=1e-3).value_and_bounds(1)[0]
    mean, var = np.array([[0.7]]), np.array([[4.0]])
    normal = stats.norm(0.7, 2.0)
    for level in (0.01, 0.5, 0.9):
        assert_allclose(quantiles(likelihood, mean, var, np.array([level]))[0, 0, 0], normal.ppf(level), atol=0.02)
    z = np.linspace(-9, 9, 2_000_001)
    y = normal.ppf(0.9)
    expected = np.trapezoid(stats.cauchy.cdf((y - 0.7 - 2.0 * z) / 1e-3) * stats.norm.pdf(z), z)
    assert_allclose(cumulative(likelihood, mean, var, np.array([[y]]))[0, 0], expected, rtol=0.0, atol=3e-7)


def test_each_target_has_its_own_parameters(rng):
    likelihood = StudentT(df=[3.0, 9.0], scale=[0.3, 2.0]).value_and_bounds(2)[0]
    mean, var = rng.normal(size=(2, 5)), rng.uniform(0.1, 1.0, size=(2, 5))
    both = quantiles(likelihood, mean, var, LEVELS)
    for t, (df, scale) in enumerate([(3.0, 0.3), (9.0, 2.0)]):
        alone = StudentT(df, scale).value_and_bounds(1)[0]
        assert_allclose(both[t], quantiles(alone, mean[[t]], var[[t]], LEVELS)[0], rtol=1e-12)


def test_large_counts_and_no_rows():
    likelihood = Poisson()
    found = quantiles(likelihood, np.array([[np.log(1e15)]]), np.array([[0.0]]), np.array([0.5]))
    assert_allclose(found, 1e15, rtol=1e-9)
    assert quantiles(likelihood, np.empty((1, 0)), np.empty((1, 0)), LEVELS).shape == (1, 0, 4)
    assert quantiles(StudentT().value_and_bounds(1)[0], np.empty((1, 0)), np.empty((1, 0)), LEVELS).shape == (1, 0, 4)
    assert_array_equal(cumulative(likelihood, np.zeros((1, 2)), np.ones((1, 2)), np.array([[-1.0, -0.5]])), 0.0)


def test_a_normal_prediction_has_closed_forms(rng):
    likelihood = Gaussian(variance=0.3).value_and_bounds(1)[0]
    mean, var = rng.normal(size=(1, 6)), rng.uniform(0.1, 1.0, size=(1, 6))
    normal = stats.norm(mean[0, :, None], np.sqrt(var[0, :, None] + 0.3))
    assert_allclose(quantiles(likelihood, mean, var, LEVELS)[0], normal.ppf(LEVELS), rtol=1e-12)


def test_a_likelihood_without_a_distribution_function_says_so():
    class Nameless(LocationLikelihood):
        pass

    with pytest.raises(NotImplementedError, match=r"Nameless.*define conditional_cdf"):
        quantiles(Nameless(), np.zeros((1, 2)), np.ones((1, 2)), LEVELS)
