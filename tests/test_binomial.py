"""Successes out of known numbers of trials: a row of n trials is n rows of one."""

import jax
import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special, stats
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import cross_validate

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.likelihoods import Bernoulli, Binomial
from skgp_natgrad.metrics import DistributionScorer

RNG = np.random.default_rng(5)
X = np.sort(RNG.uniform(-3.0, 3.0, size=(40, 1)), axis=0)
TRIALS = np.tile(RNG.integers(1, 12, size=20), 2)
SUCCESSES = RNG.binomial(TRIALS, special.ndtr(np.sin(X[:, 0])))
# As many successes as failures: the prior mean of both estimators is then zero.
SUCCESSES[20:] = TRIALS[:20] - SUCCESSES[:20]
NEW = np.linspace(-3.0, 3.0, 7)[:, None]
OPTIONS = {
    "kernel": ConstantKernel(1.5) * RBF(0.7),
    "normalize_X": False,
    "random_state": 0,
    "n_inducing": 10,
    "inducing_init": np.linspace(-3.0, 3.0, 10)[:, None],
    "solver": "ngd",
    "optimizer": None,
    "gamma_schedule": 1.0,
    "max_iter": 20,
    "tol": 1e-12,
}

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def fitted():
    return NGDSVGPRegressor(likelihood="binomial", **OPTIONS).fit(X, SUCCESSES, trials=TRIALS)


@pytest.mark.slow
@pytest.mark.parametrize("link", ["probit", pytest.param("logit", marks=pytest.mark.slow)])
def test_trials_are_rows_of_two_classes(link):
    found = NGDSVGPRegressor(likelihood=Binomial(link), **OPTIONS).fit(X, SUCCESSES, trials=TRIALS)
    rows = np.repeat(np.arange(40), TRIALS)
    labels = np.concatenate([np.arange(n) < y for n, y in zip(TRIALS, SUCCESSES, strict=True)]).astype(int)
    each = NGDSVGPClassifier(likelihood=Bernoulli(link), **OPTIONS).fit(X[rows], labels)
    ways = np.log(special.comb(TRIALS, SUCCESSES)).sum()
    assert found.elbo_ == pytest.approx(each.elbo_ + ways, rel=1e-10)
    for ours, theirs in zip(found.predict_latent(NEW, True), each.predict_latent(NEW, True), strict=True):
        assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8)
    # One trial is one row.
    assert_allclose(found.predict(NEW), special.expit(_logit_of(each)), rtol=1e-7)


def _logit_of(classifier):
    latent = classifier.predict_latent(NEW, return_std=True)
    z = np.linspace(-9.0, 9.0, 2001)
    link = special.ndtr if classifier.likelihood.link == "probit" else special.expit
    return special.logit(link(latent[0][:, None] + latent[1][:, None] * z) @ stats.norm.pdf(z) * (z[1] - z[0]))


@pytest.mark.slow
@pytest.mark.parametrize("link", ["probit", "logit"])
@pytest.mark.usefixtures("x64")
def test_expectations_and_predictions_given_trials_are_those_of_scipy(link, rng):
    """By a dense rule over f, for trials up to a thousand."""
    trials = np.array([1.0, 2.0, 7.0, 30.0, 1000.0])
    y = np.floor(rng.uniform(0.0, 1.0, size=5) * (trials + 1.0))
    mean, var = rng.normal(size=(1, 5)), rng.uniform(0.01, 1.0, size=(1, 5))
    model = Binomial(link).value_and_bounds(1)[0].given(trials[None])
    z = np.linspace(-10.0, 10.0, 4001)
    weight = stats.norm.pdf(z) / stats.norm.pdf(z).sum()
    f = mean[0][:, None] + np.sqrt(var[0])[:, None] * z
    link_of, log_link = {
        "probit": (special.ndtr, special.log_ndtr),
        "logit": (special.expit, special.log_expit),
    }[link]
    n, k = trials[:, None], y[:, None]
    law, ways = stats.binom(n.astype(int), link_of(f)), np.log(special.comb(n, k))
    # SciPy's own logarithm is infinite where the probability rounds to one.
    log_p = ways + k * log_link(f) + (n - k) * log_link(-f)
    found = [jax.jit(getattr(model, name))(mean, var, y[None]) for name in ("expectation_each", "log_density_each")]
    assert_allclose(found[0][0], log_p @ weight, rtol=1e-7)
    assert_allclose(found[1][0], np.log(np.exp(log_p) @ weight), rtol=1e-8)
    y_mean, y_var = jax.jit(model.predictive_moments)(mean, var)
    assert_allclose(y_mean[0], law.mean() @ weight, rtol=1e-9)
    assert_allclose(y_var[0], (law.var() + law.mean() ** 2) @ weight - (law.mean() @ weight) ** 2, rtol=1e-8)
    assert_allclose(model.predictive_cdf(mean, var, y[None])[0], law.cdf(k) @ weight, atol=1e-8)


@pytest.mark.slow
def test_predictions_are_of_one_trial_or_of_as_many_as_given(fitted):
    p = fitted.predict(NEW)
    assert np.all((p > 0.0) & (p < 1.0))
    assert_allclose(fitted.predict(NEW, trials=10), 10.0 * p)
    mean, std = fitted.predict(NEW, return_std=True)
    assert_allclose(std, np.sqrt(p * (1.0 - p)), rtol=1e-7)
    trials = np.arange(3, 10)
    mean, std = fitted.predict(NEW, return_std=True, trials=trials)
    assert_allclose(mean, trials * p)
    # Wider than a binomial law of the mean probability: f is uncertain.
    assert np.all(std > np.sqrt(trials * p * (1.0 - p)))
    lower, upper = fitted.predict_interval(NEW, 0.9, trials=trials)
    assert_array_equal(lower, np.floor(lower))
    assert np.all((lower >= 0.0) & (upper <= trials) & (lower <= upper))
    inside = fitted.predict_cdf(NEW, upper, trials=trials) - fitted.predict_cdf(NEW, lower - 1.0, trials=trials)
    assert np.all(inside >= 0.9 - 1e-9)
    masses = [np.exp(fitted.predict_log_density(NEW, np.full(7, y), trials=5)) for y in range(6)]
    assert_allclose(np.sum(masses, axis=0), 1.0, rtol=1e-8)
    draws = fitted.sample_y(NEW, 4000, trials=trials, joint=False)
    assert_allclose(draws.mean(1), mean, atol=5.0 * std.max() / np.sqrt(4000))
    assert np.all(draws.max(1) <= trials)


@pytest.mark.slow
def test_what_is_no_count_of_successes_is_named(fitted):
    reg = NGDSVGPRegressor(likelihood="binomial", **OPTIONS)
    first = np.flatnonzero(SUCCESSES > 1)[0]
    with pytest.raises(
        ValueError, match=rf"y\[{first}\]={SUCCESSES[first]} is more than its number of trials, 1; give"
    ):
        reg.fit(X, SUCCESSES)
    with pytest.raises(ValueError, match=r"trials\[0\]=0 must be at least 1"):
        reg.fit(X, SUCCESSES, trials=0)
    with pytest.raises(ValueError, match=r"trials\[2\]=1\.5 must be an integer"):
        reg.fit(X, SUCCESSES, trials=np.where(np.arange(40) == 2, 1.5, 20.0))
    with pytest.raises(ValueError, match="multiply proportions by the numbers of trials"):
        reg.fit(X, SUCCESSES / TRIALS, trials=TRIALS)
    with pytest.raises(
        ValueError, match=r"trials holds the numbers of trials .* likelihood Gaussian has none; use likeli"
    ):
        NGDSVGPRegressor(**OPTIONS).fit(X, SUCCESSES, trials=TRIALS)
    with pytest.raises(ValueError, match=r"y\[1\]=3 is more than its number of trials, 2"):
        fitted.predict_log_density(NEW[:2], [1.0, 3.0], trials=[1, 2])
    # Counts beside probabilities of success would have an R2 all the same.
    with pytest.raises(ValueError, match=rf"y\[{first}\]={SUCCESSES[first]} is more than its number of trials, 1"):
        fitted.score(X, SUCCESSES)
    assert fitted.score(X, SUCCESSES, trials=TRIALS) > 0.5
    with pytest.raises(ValueError, match=r"link='cauchit'"):
        NGDSVGPRegressor(likelihood=Binomial("cauchit")).fit(X, SUCCESSES, trials=TRIALS)


@pytest.mark.slow
def test_outputs_have_their_own_trials_and_may_be_missing(fitted):
    both = np.column_stack([SUCCESSES, SUCCESSES[::-1]]).astype(float)
    trials = np.column_stack([TRIALS, TRIALS[::-1]])
    both[3, 1] = np.nan
    reg = NGDSVGPRegressor(likelihood="binomial", missing_targets="ignore", **OPTIONS).fit(X, both, trials=trials)
    assert_allclose(reg.predict(NEW)[:, 0], fitted.predict(NEW), rtol=1e-6)
    seen = np.arange(40) != 3
    other = NGDSVGPRegressor(likelihood="binomial", **OPTIONS)
    other = other.fit(X[seen], SUCCESSES[::-1][seen], trials=TRIALS[::-1][seen])
    given = np.column_stack([np.full(7, 4), np.full(7, 9)])
    assert_allclose(reg.predict(NEW, trials=given)[:, 1], 9.0 * other.predict(NEW), rtol=1e-6)
    assert reg.predict_quantiles(NEW, [0.1, 0.9], trials=given).shape == (7, 2, 2)


@pytest.mark.slow
def test_trials_on_minibatches_with_the_default_kernel_and_as_metadata():
    rng = np.random.default_rng(0)
    rows, trials = rng.uniform(-3.0, 3.0, size=(300, 1)), rng.integers(1, 40, size=300)
    truth = special.ndtr(np.sin(rows[:, 0]))
    y = rng.binomial(trials, truth)
    reg = NGDSVGPRegressor(likelihood="binomial", n_inducing=12, batch_size=100, max_iter=150, tol=1.0, random_state=0)
    assert np.abs(reg.fit(rows, y, trials=trials).predict(rows) - truth).mean() < 0.03
    with sklearn.config_context(enable_metadata_routing=True):
        reg = NGDSVGPRegressor(likelihood="binomial", **OPTIONS)
        reg = reg.set_fit_request(trials=True).set_score_request(trials=True)
        scores = cross_validate(reg, rows, y, cv=2, params={"trials": trials}, error_score="raise")["test_score"]
    assert np.all(scores > 0.8)


def test_scorers_take_trials(fitted):
    scorer = DistributionScorer("nlpd")
    expected = fitted.predict_log_density(X, SUCCESSES, trials=TRIALS).mean()
    assert scorer(fitted, X, SUCCESSES, trials=TRIALS) == pytest.approx(expected)


def test_a_start_without_a_success_is_finite():
    for y, side in ((0.0, -1.0), (1.0, 1.0)):
        for link in ("probit", "logit"):
            start = Binomial(link).initial_latent(np.full((1, 5), y), np.full((1, 5), 4.0), 0)
            # Half a success more, and half a failure, than in the twenty trials.
            quantile = stats.norm.ppf if link == "probit" else special.logit
            assert_allclose(start, side * quantile(20.5 / 21.0))


@pytest.mark.usefixtures("x64")
def test_a_probability_that_underflows_leaves_a_deviation():
    model = Binomial().value_and_bounds(1)[0].given(np.full((1, 3), 10.0))
    mean, var = model.conditional_moments(np.array([[-60.0, 0.0, 60.0]]))
    assert_allclose(mean, [[0.0, 5.0, 10.0]], atol=1e-12)
    assert_allclose(var, [[0.0, 2.5, 0.0]], atol=1e-12)
    assert np.all(np.asarray(var) > 0.0)
