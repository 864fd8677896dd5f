"""What is known of single rows: missing targets, variances of the noise, and offsets of the latent functions."""

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import r2_score
from sklearn.model_selection import cross_val_score, cross_validate

from skgp_natgrad import NGDSVGPRegressor, likelihoods, svgp
from skgp_natgrad.choose import evidence, targets
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.metrics import DistributionScorer, nlpd_scorer

from .conftest import all_likelihoods, targets_for
from .test_evidence import hyperparameters_of

RNG = np.random.default_rng(3)
X = np.sort(RNG.uniform(-3.0, 3.0, size=(50, 1)), axis=0)
NEW = np.linspace(-3.0, 3.0, 11)[:, None]
ALPHA = RNG.uniform(0.01, 2.0, size=50)
Y = 10.0 + 3.0 * np.sin(2.0 * X[:, 0]) + np.sqrt(ALPHA) * RNG.normal(size=50)
KERNEL = ConstantKernel(1.3, "fixed") * RBF(0.5, "fixed")
NOISE = 0.02
PLAIN = {"normalize_X": False, "random_state": 0}
# One step of size one ends at the best q.
STEPS = {"solver": "ngd", "n_inducing": None, "gamma_schedule": 1.0, "optimizer": None, "max_iter": 3, "tol": 1.0}
ENDS = [{"solver": "evidence"}, STEPS]

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def regressor(likelihood=None, **options):
    likelihood = Gaussian(NOISE, "fixed") if likelihood is None else likelihood
    return NGDSVGPRegressor(KERNEL, likelihood=likelihood, **PLAIN | options)


def exact(y, alpha, rows=slice(None)):
    """scikit-learn's process, with noise in the units of the standardised y."""
    return GaussianProcessRegressor(KERNEL, alpha=alpha, optimizer=None, normalize_y=True).fit(X[rows], y[rows])


# -- known noise -------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ENDS, ids=["evidence", "ngd"])
def test_known_noise_is_that_of_scikit_learn(options):
    found = regressor(**options).fit(X, Y, alpha=ALPHA)
    expected = exact(Y, ALPHA / Y.var() + NOISE)
    mean, deviation = expected.predict(NEW, return_std=True)
    latent, std = found.predict_latent(NEW, return_std=True)
    assert_allclose(latent, mean, rtol=1e-5)
    assert_allclose(std, deviation, rtol=1e-4)
    # The bound with a point at every row is the evidence, of the standardised y.
    assert found.elbo_ == pytest.approx(expected.log_marginal_likelihood_value_, abs=1e-3)


@pytest.mark.parametrize("ratio", [1e-6, 1e-2, 1e2])
@pytest.mark.parametrize("noise", [1e-4, 1e-8])
def test_known_noise_that_all_rows_share_is_noise(noise, ratio):
    """To its digits where N k / s^2 is 7e5 and 7e9, however much of the noise is known; y is in the kernel's reach."""
    y = 10.0 + 3.0 * np.sin(2.0 * X)
    one = regressor(Gaussian(noise * (1.0 + ratio), "fixed")).fit(X, y)
    two = regressor(Gaussian(noise, "fixed")).fit(X, y, alpha=noise * ratio * y.var())
    # The exact process has no jitter. With known noise there is one of 1e-10, a hundredth of the least noise.
    loose = max(1.0, 3e-5 / (noise * (1.0 + ratio)))
    assert two.elbo_ == pytest.approx(one.elbo_, rel=1e-6 * loose)
    for found, expected in zip(two.predict_latent(NEW, True), one.predict_latent(NEW, True), strict=True):
        assert_allclose(found, expected, rtol=1e-5 * loose, atol=1e-7 * loose * np.abs(expected).max())


def test_evidence_with_known_noise_and_missing_targets_is_that_of_scikit_learn(x64):
    y = np.stack([Y - 10.0, np.where(np.arange(50) % 3 == 0, np.nan, np.cos(X[:, 0]))])
    rows = svgp.Table(np.column_stack([X, X**2, X**3]), y, np.ones(50), known=np.stack([ALPHA, 0.5 * ALPHA]))
    kernel, expected, slopes = ConstantKernel(1.3) * RBF([0.5, 2.0, 3.0]), 0.0, 0.0
    for k in range(2):
        seen = ~np.isnan(y[k])
        process = GaussianProcessRegressor(kernel + WhiteKernel(0.07), alpha=rows.known[k, seen], optimizer=None)
        process.fit(rows.X[seen], y[k, seen])
        value, slope = process.log_marginal_likelihood(process.kernel_.theta, eval_gradient=True)
        expected, slopes = expected + value, slopes + slope
    value, gradient = evidence.value_and_gradient(hyperparameters_of(kernel)[0], rows)
    assert value == pytest.approx(expected, rel=1e-10)
    assert gradient.noise == pytest.approx(slopes[-1], rel=1e-8)
    assert gradient.kernel.k1.constant_value == pytest.approx(slopes[0], rel=1e-8)
    # Each row given all others, by refits.
    each = []
    for i in range(50):
        rest = np.delete(np.arange(50), i)
        process = GaussianProcessRegressor(kernel, alpha=ALPHA[rest] + 0.07, optimizer=None)
        mean, std = process.fit(rows.X[rest], y[0, rest]).predict(rows.X[[i]], return_std=True)
        each.append(_log_density(y[0, i], mean[0], std[0] ** 2 + ALPHA[i] + 0.07))
    first = rows._replace(y=y[:1], known=rows.known[:1])
    density = evidence.leave_one_out_density(hyperparameters_of(kernel)[0], first)
    assert density == pytest.approx(np.mean(each), rel=1e-6)


def _log_density(y, mean, variance):
    return -0.5 * (np.log(2.0 * np.pi * variance) + (y - mean) ** 2 / variance)


def test_the_rest_of_the_noise_is_found():
    """Beside known variances of half of the rows."""
    alpha = np.where(np.arange(50) % 2, 4.0, 0.0)
    y = 3.0 * np.sin(X[:, 0]) + np.sqrt(alpha + 0.09) * np.random.default_rng(0).normal(size=50)
    kernel = ConstantKernel(1.0) * RBF(1.0)
    found = NGDSVGPRegressor(kernel, **PLAIN).fit(X, y, alpha=alpha)
    noise = np.sqrt(found.likelihood_.variance * y.var())
    assert 0.15 < noise < 0.6
    without = NGDSVGPRegressor(kernel, **PLAIN).fit(X, y)
    assert np.sqrt(without.likelihood_.variance * y.var()) > 1.0
    errors = [np.abs(each.predict(NEW) - 3.0 * np.sin(NEW[:, 0])).mean() for each in (found, without)]
    assert errors[0] < errors[1]


def test_known_noise_is_refused_where_there_is_none_to_add_it_to():
    counts = np.arange(50)
    with pytest.raises(ValueError, match="alpha holds known variances of Gaussian noise, but likelihood Poisson"):
        regressor("poisson").fit(X, counts, alpha=1.0)
    with pytest.raises(ValueError, match=r"alpha\[3\]=-1 must be at least 0"):
        regressor().fit(X, Y, alpha=np.where(np.arange(50) == 3, -1.0, 1.0))
    with pytest.raises(ValueError, match=r"alpha has the shape \(49,\); give a number, or one value"):
        regressor().fit(X, Y, alpha=ALPHA[1:])


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "share"), [(0.02, 1.0), (1e-6, 1e-4), (1e-6, 1e-6)])
def test_the_exact_mean_with_known_noise_is_that_of_scikit_learn(noise, share):
    """Also where there is next to none; points at all rows."""
    alpha = share * ALPHA
    y = 10.0 + 3.0 * np.sin(2.0 * X[:, 0]) + np.sqrt(alpha) * np.random.default_rng(0).normal(size=50)
    kernel = ConstantKernel(1.3, "fixed") * Matern(0.5, "fixed", nu=1.5)
    options = STEPS | {"n_inducing": 10, "n_mean_inducing": 50, "mean_solver": "exact", "jitter": 1e-12}
    found = NGDSVGPRegressor(kernel, likelihood=Gaussian(noise, "fixed"), **PLAIN | options).fit(X, y, alpha=alpha)
    exactly = GaussianProcessRegressor(kernel, alpha=alpha / y.var() + noise, optimizer=None, normalize_y=True)
    assert_allclose(found.predict(NEW), exactly.fit(X, y).predict(NEW), rtol=1e-8)


@pytest.mark.slow
def test_the_noise_beside_known_variances_is_estimated_with_the_exact_mean():
    """It is searched for with sums under each noise, and found where half of the rows have four units more."""
    rng = np.random.default_rng(1)
    rows = np.sort(rng.uniform(-3.0, 3.0, size=(200, 1)), axis=0)
    alpha = np.where(np.arange(200) % 2, 4.0, 0.0)
    y = 3.0 * np.sin(rows[:, 0]) + np.sqrt(alpha + 0.09) * rng.normal(size=200)
    options = {"n_inducing": 8, "n_mean_inducing": 40, "mean_solver": "exact", "max_iter": 60, "tol": 1.0}
    found = NGDSVGPRegressor(ConstantKernel(1.0) * RBF(1.0), **PLAIN | options).fit(rows, y, alpha=alpha)
    assert 0.15 < np.sqrt(found.likelihood_.variance * y.var()) < 0.6


@pytest.fixture(scope="module")
def fitted():
    return regressor(solver="evidence").fit(X, Y, alpha=ALPHA)


def test_known_noise_of_new_rows_is_added_in_predictions(fitted):
    alpha = np.linspace(0.0, 3.0, 11)
    mean, std = fitted.predict(NEW, return_std=True)
    wide_mean, wide = fitted.predict(NEW, return_std=True, alpha=alpha)
    assert_allclose(wide_mean, mean, rtol=1e-12)
    assert_allclose(wide, np.sqrt(std**2 + alpha), rtol=1e-9)
    _, covariance = fitted.predict(NEW, return_cov=True)
    assert_allclose(fitted.predict(NEW, return_cov=True, alpha=alpha)[1], covariance + np.diag(alpha), atol=1e-12)
    law, y = norm(mean, wide), mean + 1.0
    assert_allclose(fitted.predict_log_density(NEW, y, alpha=alpha), law.logpdf(y), rtol=1e-9)
    assert_allclose(fitted.predict_cdf(NEW, y, alpha=alpha), law.cdf(y), rtol=1e-9)
    assert_allclose(fitted.predict_quantiles(NEW, [0.1, 0.8], alpha=alpha), law.ppf([[0.1], [0.8]]).T, rtol=1e-9)
    assert_allclose(fitted.predict_interval(NEW, 0.9, alpha=alpha), law.interval(0.9), rtol=1e-9)
    draws = fitted.sample_y(NEW, 4000, alpha=100.0 + alpha, joint=False)
    assert_allclose(draws.std(1), np.sqrt(std**2 + 100.0 + alpha), rtol=0.06)
    assert fitted.score(X, Y, alpha=ALPHA) == fitted.score(X, Y)
    assert_allclose(fitted.predict(NEW, return_std=True, alpha=2.0)[1], np.sqrt(std**2 + 2.0), rtol=1e-9)
    # A new row that was observed under known noise is predicted as scikit-learn's process with this noise.
    scorer = DistributionScorer("nlpd")
    assert scorer(fitted, NEW, y, alpha=alpha) == pytest.approx(law.logpdf(y).mean())


def test_known_noise_of_new_rows_is_checked(fitted):
    with pytest.raises(ValueError, match=r"alpha\[1\]=-2 must be at least 0"):
        fitted.predict(NEW[:2], return_std=True, alpha=[1.0, -2.0])
    with pytest.raises(ValueError, match=r"alpha has the shape \(3,\); give a number, or one value"):
        fitted.predict_quantiles(NEW, 0.5, alpha=np.ones(3))
    with pytest.raises(ValueError, match="trials holds the numbers of trials"):
        fitted.predict(NEW, trials=3)


def test_a_level_in_place_of_known_noise_is_refused(fitted):
    """Where the fit had known noise, and of an array or a large number, alpha is what it says."""
    plain = regressor(solver="evidence").fit(X, Y)
    message = r"alpha=0\.05 is the known variance .* fitted without alpha\. .* give coverage=0\.95;"
    for alpha in (0.05, np.float32(0.05)):
        with pytest.raises(ValueError, match=message if isinstance(alpha, float) else "coverage=0.95"):
            plain.predict_interval(NEW, alpha=alpha)
    for model, alpha in ((fitted, 0.05), (plain, np.full(11, 0.05)), (plain, 4.0), (plain, 1e-6)):
        lower, upper = model.predict_interval(NEW, alpha=alpha)
        mean, std = model.predict(NEW, return_std=True, alpha=alpha)
        assert_allclose([lower, upper], norm(mean, std).interval(0.9), rtol=1e-9)


def test_counts_have_no_known_noise_instead_of_a_level():
    counts = NGDSVGPRegressor(RBF(), likelihood="poisson", n_inducing=5, max_iter=1).fit(X, np.arange(len(X)) % 4)
    with pytest.raises(ValueError, match=r"give coverage=0\.95\.$"):
        counts.predict_interval(NEW, alpha=0.05)


def test_a_stream_keeps_that_it_has_known_noise():
    streamed = regressor(n_inducing=8, max_iter=3, tol=1.0).partial_fit(X[:25], Y[:25], alpha=ALPHA[:25])
    lower, upper = streamed.partial_fit(X[25:], Y[25:]).predict_interval(NEW, alpha=0.05)
    assert np.all(lower < upper)


# -- missing targets ---------------------------------------------------------------------------


@pytest.mark.parametrize("options", ENDS, ids=["evidence", "ngd"])
def test_a_missing_target_has_no_weight(options):
    y = np.column_stack([Y, 5.0 - np.cos(X[:, 0]), np.zeros(50)])
    y[::3, 0], y[25:, 1], y[7] = np.nan, np.nan, np.nan
    likelihood = Gaussian([NOISE, 0.05, 0.1], "fixed")
    found = regressor(likelihood, missing_targets="ignore", **options).fit(X, y)
    mean, std = found.predict_latent(NEW, return_std=True)
    for k, noise in enumerate([NOISE, 0.05]):
        seen = ~np.isnan(y[:, k])
        alone = exact(y[:, k], noise, seen)
        expected = alone.predict(NEW, return_std=True)
        assert_allclose(mean[:, k], expected[0], rtol=1e-5)
        assert_allclose(std[:, k], expected[1], rtol=1e-4)


def test_a_missing_target_alone_is_a_row_left_out():
    y = np.where(np.arange(50) % 4 == 0, np.nan, Y)
    found = regressor(missing_targets="ignore").fit(X, y)
    seen = ~np.isnan(y)
    assert_array_equal(found.predict(NEW), regressor().fit(X[seen], y[seen]).predict(NEW))
    with pytest.raises(ValueError, match=r"y\[0\]=nan"):
        regressor().fit(X, y)
    with pytest.raises(ValueError, match="column 1 of y is missing in every row of positive weight"):
        regressor(missing_targets="ignore").fit(X, np.column_stack([Y, np.full(50, np.nan)]))
    with pytest.raises(ValueError, match=r"missing_targets='drop' must be a str among {'error', 'ignore'}"):
        regressor(missing_targets="drop").fit(X, Y)


OF_NUMBERS = [each for each in all_likelihoods() if "regression" in each.tasks]


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", OF_NUMBERS, ids=repr)
def test_every_likelihood_skips_a_missing_target(likelihood, rng, x64):
    y = targets_for(likelihood, rng, 2, 3, 6)
    likelihood = likelihood.prepare(y, 0)
    n_latent = likelihood.n_latent(2, 0)
    mean, var = rng.normal(size=(n_latent, 6)), rng.uniform(0.1, 0.5, size=(n_latent, 6))
    both, one = (likelihood.value_and_bounds(n)[0] for n in (2, 1))
    missing, first = y.copy(), slice(None, None, 2)
    missing[1] = np.nan
    if likelihood.name == "ordinal":
        one = both.with_leaves([leaf[:1] for leaf in (getattr(both, name) for name in both.parameters)])
    for function in ("expected_log_prob", "log_predictive_density"):
        found = getattr(both, function)(mean, var, missing)
        assert_allclose(found, getattr(one, function)(mean[first], var[first], y[:1]), rtol=1e-12)


@pytest.mark.slow
def test_counts_with_missing_cells_start_and_train():
    y = np.column_stack([np.exp(1.0 + np.sin(X[:, 0])), np.exp(2.0 + np.cos(X[:, 0]))]).round()
    gappy = np.where(np.random.default_rng(0).uniform(size=y.shape) < 0.3, np.nan, y)
    options = {"n_inducing": 12, "max_iter": 60, "tol": 1.0}
    found = NGDSVGPRegressor(likelihood="poisson", missing_targets="ignore", **PLAIN | options).fit(X, gappy)
    assert np.abs(found.predict(X) / y - 1.0)[np.isnan(gappy)].mean() < 0.2


# -- offsets -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("options", ENDS, ids=["evidence", "ngd"])
def test_an_offset_of_a_gaussian_mean_is_one_of_y(options):
    line = 4.0 * X[:, 0] - 7.0
    found, plain = regressor(**options).fit(X, Y + line, offset=line), regressor(**options).fit(X, Y)
    new = 4.0 * NEW[:, 0] - 7.0
    mean, std = found.predict(NEW, return_std=True, offset=new)
    expected = plain.predict(NEW, return_std=True)
    assert_allclose(mean, expected[0] + new, rtol=1e-8)
    assert_allclose(std, expected[1], rtol=1e-8)
    assert_allclose(found.predict(NEW), plain.predict(NEW), rtol=1e-8)
    assert_allclose(found.predict_quantiles(NEW, 0.9, offset=new), plain.predict_quantiles(NEW, 0.9) + new, rtol=1e-8)
    y = plain.predict(NEW) + 1.0
    assert_allclose(found.predict_cdf(NEW, y + new, offset=new), plain.predict_cdf(NEW, y), rtol=1e-7)
    assert_allclose(found.predict_log_density(NEW, y + new, offset=new), plain.predict_log_density(NEW, y), rtol=1e-6)
    draws, others = found.sample_y(NEW, 3, offset=new), plain.sample_y(NEW, 3)
    assert_allclose(draws, others + new[:, None], rtol=1e-6)
    assert found.score(X, Y + line, offset=line) == pytest.approx(1 - (1 - plain.score(X, Y)) * _share(Y, Y + line))


def _share(y, other):
    return y.var() / other.var()


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["poisson", "negative_binomial", "gamma"])
def test_a_constant_exposure_changes_the_rate_alone(likelihood):
    y = np.random.default_rng(0).poisson(np.exp(1.0 + np.sin(X[:, 0]))) + 1.0
    options = {"n_inducing": 12, "max_iter": 40, "tol": 1.0}
    plain = NGDSVGPRegressor(KERNEL, likelihood=likelihood, **PLAIN | options).fit(X, y)
    found = NGDSVGPRegressor(KERNEL, likelihood=likelihood, **PLAIN | options).fit(X, y, offset=np.log(5.0))
    assert_allclose(found.predict(NEW, offset=np.log(5.0)), plain.predict(NEW), rtol=1e-6)
    assert_allclose(found.predict(NEW), plain.predict(NEW) / 5.0, rtol=1e-6)
    assert_allclose(found.predict_latent(NEW), plain.predict_latent(NEW) - np.log(5.0), rtol=1e-5, atol=1e-6)
    assert found.elbo_ == pytest.approx(plain.elbo_, rel=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["poisson", "negative_binomial"])
def test_exposures_of_simulated_counts(likelihood):
    """Rates at exposures from one to a hundred; a linear Poisson regression of rates is the baseline."""
    rng = np.random.default_rng(1)
    rows = rng.uniform(-3.0, 3.0, size=(300, 1))
    exposure, rate = np.exp(rng.uniform(0.0, np.log(100.0), size=300)), np.exp(np.sin(rows[:, 0]))
    y = rng.poisson(exposure * rate)
    reg = NGDSVGPRegressor(1.0 * RBF(1.0), likelihood=likelihood, n_inducing=12, max_iter=150, tol=0.05, **PLAIN)
    reg = reg.fit(rows, y, offset=np.log(exposure))
    truth = np.exp(np.sin(NEW[:, 0]))
    error = np.abs(reg.predict(NEW) / truth - 1.0).mean()
    linear = PoissonRegressor(alpha=0.0).fit(rows, y / exposure, sample_weight=exposure)
    assert error < 0.06 < np.abs(linear.predict(NEW) / truth - 1.0).mean()
    # Counts of an exposure of ten.
    lower, upper = reg.predict_interval(NEW, 0.9, offset=np.log(10.0))
    drawn = rng.poisson(10.0 * truth, size=(500, len(NEW)))
    assert np.mean((lower <= drawn) & (drawn <= upper)) > 0.85


@pytest.mark.slow
def test_the_default_kernel_is_chosen_from_rates():
    rng = np.random.default_rng(2)
    rows = rng.uniform(-3.0, 3.0, size=(120, 1))
    exposure = np.exp(rng.uniform(0.0, 5.0, size=120))
    y = rng.poisson(exposure * np.exp(np.sin(rows[:, 0])))
    reg = NGDSVGPRegressor(likelihood="poisson", n_inducing=12, max_iter=60, tol=1.0, random_state=0)
    reg = reg.fit(rows, y, offset=np.log(exposure))
    assert np.abs(np.log(reg.predict(NEW)) - np.sin(NEW[:, 0])).mean() < 0.2


@pytest.mark.slow
def test_offsets_on_minibatches_and_in_the_exact_mean():
    rng = np.random.default_rng(2)
    rows = rng.uniform(-3.0, 3.0, size=(200, 1))
    offset = rng.uniform(0.0, 3.0, size=200)
    y = rng.poisson(np.exp(offset + np.sin(rows[:, 0])))
    options = {"likelihood": "poisson", "n_inducing": 12, "max_iter": 80, "tol": 1.0, "batch_size": 64}
    for more in ({}, {"mean_solver": "exact", "n_mean_inducing": 20}):
        reg = NGDSVGPRegressor(1.0 * RBF(1.0), **PLAIN | options | more).fit(rows, y, offset=offset)
        assert np.abs(np.log(reg.predict(NEW)) - np.sin(NEW[:, 0])).mean() < 0.2


def test_known_parts_are_routed_as_metadata():
    with sklearn.config_context(enable_metadata_routing=True):
        reg = regressor().set_fit_request(alpha=True, offset=True).set_score_request(alpha=True, offset=True)
        line = 40.0 * X[:, 0]
        found = cross_validate(
            reg, X, Y + line, cv=2, params={"alpha": ALPHA, "offset": line}, error_score="raise", return_estimator=True
        )
    half = regressor().fit(X[25:], (Y + line)[25:], alpha=ALPHA[25:], offset=line[25:])
    assert found["test_score"][0] == half.score(X[:25], (Y + line)[:25], offset=line[:25])


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["nlpd", "crps", "interval_score", "coverage_error", "calibration_error", "msll"])
def test_scorers_take_offsets(metric):
    y = np.random.default_rng(0).poisson(np.exp(1.0 + np.sin(X[:, 0])))
    options = {"n_inducing": 12, "max_iter": 40, "tol": 1.0}
    plain = NGDSVGPRegressor(KERNEL, likelihood="poisson", **PLAIN | options).fit(X, y)
    found = NGDSVGPRegressor(KERNEL, likelihood="poisson", **PLAIN | options).fit(X, y, offset=np.log(5.0))
    scorer = DistributionScorer(metric, n_draws=50)
    offset = np.full(50, np.log(5.0))
    assert scorer(found, X, y, offset=offset) == pytest.approx(scorer(plain, X, y), rel=1e-5, abs=1e-9)


def test_equal_rows_are_merged_if_they_are_known_alike():
    twice = np.repeat(np.arange(50), 2)
    alpha = np.repeat(ALPHA, 2)
    found = regressor().fit(X[twice], Y[twice], alpha=alpha)
    weighted = regressor().fit(X, Y, sample_weight=np.full(50, 2.0), alpha=ALPHA)
    assert_array_equal(found.predict(NEW), weighted.predict(NEW))
    alpha[1::2] *= 2.0
    apart = regressor().fit(X[twice], Y[twice], alpha=alpha)
    one = exact(Y, ALPHA / Y.var() + NOISE)
    assert one.predict(NEW).shape == apart.predict(NEW).shape
    assert not np.array_equal(found.predict(NEW), apart.predict(NEW))


def test_a_likelihood_of_ones_own_may_have_offsets():
    """The base class knows nothing better than to leave the targets as they are."""
    y, weight = np.ones((1, 3)), np.ones((1, 3))
    found = likelihoods.Beta().without_offset(y, weight, np.ones((1, 3)))
    assert found[0] is y
    assert found[1] is weight


# -- what one target alone lacks ------------------------------------------------------------------


def test_a_mask_is_a_missing_target():
    y = np.where(np.arange(50) % 7, Y, -999.0)
    masked = regressor(missing_targets="ignore").fit(X, np.ma.masked_equal(y, -999.0))
    missing = regressor(missing_targets="ignore").fit(X, np.where(y == -999.0, np.nan, y))
    assert_array_equal(masked.predict(NEW), missing.predict(NEW))


def test_a_target_that_is_missing_in_all_of_some_rows_says_nothing(x64):
    """As where a search takes a part of a table in which one target is rarely observed."""
    both = svgp.Table(X, np.stack([Y - 10.0, np.full(50, np.nan)]), np.ones(50))
    one = both._replace(y=both.y[:1])
    at = hyperparameters_of(KERNEL, NOISE)[0]
    assert_allclose(evidence.value_and_gradient(at, both)[0], evidence.value_and_gradient(at, one)[0])
    assert_allclose(evidence.leave_one_out_density(at, both), evidence.leave_one_out_density(at, one))
    halves = [(each.rows(slice(0, 50, 2)), each.rows(slice(1, 50, 2))) for each in (both, one)]
    assert_allclose(*(evidence.held_out_density(at, *pair) for pair in halves))
    assert_allclose(targets.scale_of(both), [targets.scale_of(one)[0], 1.0])


def test_a_rare_target_beside_a_frequent_one():
    y = np.column_stack([Y, np.where(np.arange(50) % 25 == 3, Y, np.nan)])
    # Calibrated, a single target of few rows would be an average over hyperparameters.
    plain = PLAIN | {"calibrate": False}
    model = NGDSVGPRegressor(KERNEL, missing_targets="ignore", **plain).fit(X, y)
    mean, std = model.predict(NEW, return_std=True)
    # The frequent one is as alone, the rare one as its two values.
    alone = NGDSVGPRegressor(KERNEL, **plain).fit(X, Y).predict(NEW, return_std=True)
    assert_allclose(mean[:, 0], alone[0], atol=0.01)
    assert_allclose(std[:, 0], alone[1], rtol=0.01)
    seen = y[~np.isnan(y[:, 1]), 1]
    assert len(seen) == 2
    assert np.all((seen.min() <= mean[:, 1]) & (mean[:, 1] <= seen.max()))


@pytest.mark.parametrize("likelihood", all_likelihoods(), ids=repr)
def test_the_first_prior_mean_takes_weights_of_single_targets(likelihood, rng):
    y, weight = targets_for(likelihood, rng, 1, 3, 30), rng.uniform(0.5, 2.0, size=30)
    n_classes = 0 if "regression" in likelihood.tasks else 2 if likelihood.name == "bernoulli" else 3
    likelihood = likelihood.prepare(y, n_classes)
    assert_allclose(
        likelihood.initial_latent(y, weight[None], n_classes), likelihood.initial_latent(y, weight, n_classes)
    )


def test_a_missing_count_has_no_exposure_in_the_prior_mean():
    table = svgp.Table(X[:3], np.array([[2.0, 2.0, np.nan]]), np.ones(3), offset=np.log([[1.0, 1.0, 100.0]]))
    plan = svgp.Plan((KERNEL,), likelihoods.by_name("poisson"), n_inducing=2)
    assert_allclose(svgp.init(plan, table, 0)[1].prior_mean, np.log([[2.0]]))


def test_a_constant_target_with_gaps_is_constant():
    table = svgp.Table(X, np.array([np.where(np.arange(50) % 2, 1.0, np.nan)]), np.ones(50))
    assert svgp.bound_of_constants(None, table, None) is None


def test_class_labels_take_no_offset_in_one_step():
    plan = svgp.Plan((KERNEL,), likelihoods.Bernoulli(), 2, settings=svgp.Settings(svgp.Algorithm(solver="evidence")))
    table = svgp.Table(X, (Y > 10.0)[None].astype(float), np.ones(50), offset=np.zeros((1, 50)))
    with pytest.raises(ValueError, match="no offset"):
        svgp.check_plan(plan, table)


@pytest.mark.slow
def test_a_target_that_the_rows_of_the_evidence_lack_keeps_its_kernel(rng):
    """Of several kernels each is fitted to its own target; here three rows of 3000 have the second."""
    X = rng.uniform(-2.0, 2.0, size=(3000, 1))
    y = np.column_stack([np.sin(X[:, 0]), np.cos(X[:, 0])]) + 0.1 * rng.normal(size=(3000, 2))
    y[3:, 1] = np.nan
    kernels = [ConstantKernel(1.0) * RBF(1.0), ConstantKernel(1.0) * RBF(1.7)]
    options = {"missing_targets": "ignore", "n_inducing": 20, "solver": "evidence"}
    for seed in range(4):
        model = NGDSVGPRegressor(kernels, random_state=seed, **options).fit(X, y)
        mean, std = model.predict(X, return_std=True)
        assert_allclose(mean[:, 0], np.sin(X[:, 0]), atol=0.1)
        assert_allclose(std[:, 0], 0.1, rtol=0.1)
        assert_allclose(mean[:3, 1], y[:3, 1], atol=0.4)
        if model.kernel_[1].k2.length_scale == 1.7:
            return
    pytest.fail("the rows of the evidence had the target with each seed")


@pytest.mark.slow
def test_models_of_missing_targets_are_scored_by_those_that_are_there(rng):
    X = rng.uniform(-3.0, 3.0, size=(120, 1))
    y = np.column_stack([np.sin(X[:, 0]), 5.0 * np.cos(X[:, 0])]) + 0.1 * rng.normal(size=(120, 2))
    gappy, weight = y.copy(), rng.uniform(0.5, 2.0, size=120)
    gappy[rng.uniform(size=y.shape) < 0.3] = np.nan
    gappy[:4] = np.nan
    model = NGDSVGPRegressor(1.0 * RBF(), missing_targets="ignore", random_state=0).fit(X, gappy)
    mean, seen, alone = model.predict(X), ~np.isnan(gappy), []
    for k in range(2):
        rows, other = seen[:, k], np.full((120, 2), np.nan)
        other[:, k] = y[:, k]
        alone.append(np.where(rows, model.predict_log_density(X, other), 0.0))
    found = model.predict_log_density(X, gappy)
    assert_allclose(found, np.sum(alone, axis=0), rtol=1e-10, atol=1e-12)
    assert_allclose(model.predict_log_density(X, y)[seen.all(1)], found[seen.all(1)], rtol=1e-10)
    some = seen.any(1)
    assert_allclose(nlpd_scorer(model, X, gappy, weight), np.average(found[some], weights=weight[some]), rtol=1e-10)
    expected = [r2_score(y[rows, k], mean[rows, k], sample_weight=weight[rows]) for k, rows in enumerate(seen.T)]
    assert model.score(X, gappy, weight) == pytest.approx(np.mean(expected), rel=1e-10)
    assert model.score(X, y) == pytest.approx(r2_score(y, mean), rel=1e-10)
    # An output that no row of the table has, or none with weight, says nothing.
    one, unweighted = gappy.copy(), np.where(seen[:, 0], 0.0, weight)
    one[:, 0] = np.nan
    assert model.score(X, one, weight) == pytest.approx(expected[1], rel=1e-10)
    rows = seen[:, 1] & ~seen[:, 0]
    of_second = r2_score(y[rows, 1], mean[rows, 1], sample_weight=weight[rows])
    assert model.score(X, gappy, unweighted) == pytest.approx(of_second, rel=1e-10)
    with pytest.warns(UndefinedMetricWarning, match="y is missing in every row"):
        assert np.isnan(model.score(X, np.full_like(y, np.nan)))
    found = cross_val_score(clone(model), X, gappy, cv=2, scoring=nlpd_scorer, error_score="raise")
    assert_allclose(found, nlpd_scorer(model, X, gappy), atol=0.7)
