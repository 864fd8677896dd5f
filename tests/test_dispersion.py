"""Deviations that vary with X: the density, moments, draws and derivatives, and what they are learned from."""

import pickle

import numpy as np
import pytest
import skops.io
from scipy import stats
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, ExpSineSquared, Matern

from skgp_natgrad import NGDSVGPRegressor, metrics, svgp, trusted_types
from skgp_natgrad._backend.device import computation
from skgp_natgrad.estimators.fitted.attributes import _of_dispersion
from skgp_natgrad.kernels import Columns
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.prediction.dispersion import Dispersion
from skgp_natgrad.prediction.errors import MixtureErrors, StudentErrors
from skgp_natgrad.prediction.left_out import LeftOut
from skgp_natgrad.solve import closed_form
from skgp_natgrad.solve.left_out import left_out_of_model
from skgp_natgrad.start import dispersion

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

KERNEL = ConstantKernel(1.3) * Matern([1.0, 0.7], nu=1.5)
STEP = svgp.Settings(algorithm=svgp.Algorithm(solver="evidence"))
DF, LARGEST = np.array([[5.0]]), np.array([[0.3]])


def plan_of(n_inducing=None):
    return svgp.Plan((KERNEL,), Gaussian(0.2, "fixed"), n_inducing=n_inducing, jitter=1e-12, settings=STEP)


def table_of(rng, n=60, deviation=lambda X: 0.4, n_targets=1):
    X = rng.normal(size=(n, 2))
    y = np.sin(2.0 * X.sum(1)) + deviation(X) * rng.normal(size=(n_targets, n))
    return svgp.Table(X, y, rng.uniform(0.5, 2.0, size=n))


def model_of(rng, n_inducing=15):
    """A model with a dispersion whose logarithm is a known sum of kernel functions."""
    plan, table = plan_of(n_inducing), table_of(rng)
    result = svgp.train(*svgp.init(plan, table, random_state=0), table, plan, random_state=0)
    model, _ = svgp.condition(result.state, result.constants, plan)
    Z, alpha, kernel = rng.normal(size=(4, 2)), rng.normal(size=(1, 4)), ConstantKernel(0.7) * RBF([0.8, 1.5])
    posterior = svgp.Posterior(Z, Z[:0], alpha, np.zeros((1, 0)), None, None, np.array([[-0.3]]))
    return model._replace(dispersion=Dispersion(kernel, posterior, StudentErrors(DF), LARGEST))


def factor_of(model, X):
    kernel, posterior = model.dispersion[:2]
    return np.exp(kernel(X, posterior.Z) @ posterior.alpha[0] + posterior.prior_mean[0, 0])


def latent_of(model, X):
    """Means, and squared scales: of a variance up to the largest seen times the factor, of the rest as it is."""
    mean, var = (each[0] for each in svgp.predict(model._replace(dispersion=None), X))
    assert np.any(var > LARGEST) or len(X) < 15
    seen = np.minimum(var, LARGEST[0])
    return mean, factor_of(model, X) * seen + np.where(var > LARGEST[0, 0], var - LARGEST[0, 0], 0.0)


def distribution_of(model, X):
    """The predicted Student-t distribution by SciPy."""
    mean, scale = latent_of(model, X)
    noise = float(np.ravel(model.likelihood.variance)[0])
    return stats.t(DF[0, 0], mean, np.sqrt(scale + noise * factor_of(model, X)))


# -- predictions, against SciPy ----------------------------------------------------------------


@pytest.mark.slow
def test_two_targets_are_predicted_as_each_alone(rng):
    """Each with a factor, degrees of freedom and a largest variance of its own."""
    plan, table = plan_of(15), table_of(rng, n_targets=2)
    table = table._replace(y=table.y * np.array([[1.0], [3.0]]))
    result = svgp.train(*svgp.init(plan, table, random_state=0), table, plan, random_state=0)
    model, _ = svgp.condition(result.state, result.constants, plan)
    Z, alpha, kernel = rng.normal(size=(4, 2)), rng.normal(size=(2, 4)), RBF([0.8, 1.5])
    posterior = svgp.Posterior(Z, Z[:0], alpha, np.zeros((2, 0)), None, None, np.array([[-0.3], [0.5]]))
    df, largest = np.array([[4.0], [9.0]]), np.array([[0.2], [0.5]])
    both = model._replace(dispersion=Dispersion(kernel, posterior, StudentErrors(df), largest))
    X, y = rng.normal(size=(12, 2)), rng.normal(size=(2, 12))
    density, levels = 0.0, np.array([0.1, 0.8])
    quantiles = svgp.quantiles(*svgp.distribution(both, X)[:3], levels)
    drawn = svgp.sample_targets(both, X, 20_000, 0)
    for k in (0, 1):
        mean, var = (each[k] for each in svgp.predict(model, X))
        factor = np.exp(kernel(X, Z) @ alpha[k] + posterior.prior_mean[k])
        seen = np.minimum(var, largest[k])
        one = stats.t(df[k], mean, np.sqrt(factor * (seen + 0.2) + var - seen))
        density += one.logpdf(y[k])
        np.testing.assert_allclose(svgp.predict(both, X, "target_moments")[1][k], one.var(), rtol=1e-9)
        np.testing.assert_allclose(quantiles[k], one.ppf(levels[:, None]).T, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(drawn[k].std(1), one.std(), rtol=0.1)
    np.testing.assert_allclose(svgp.predict(both, X, "log_density", y), density, rtol=1e-9)


@pytest.mark.parametrize("n", [3, 40])
def test_predictions_are_those_of_the_distribution(rng, n):
    model, X = model_of(rng), rng.normal(size=(n, 2))
    expected, y = distribution_of(model, X), rng.normal(size=n)
    mean, var = svgp.predict(model, X, "target_moments")
    np.testing.assert_allclose(mean[0], expected.mean(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(svgp.predict(model, X, "target_mean")[0], expected.mean(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(var[0], expected.var(), rtol=1e-10)
    np.testing.assert_allclose(svgp.predict(model, X, "log_density", y[None]), expected.logpdf(y), rtol=1e-10)
    found = svgp.distribution(model, X)
    np.testing.assert_allclose(svgp.cumulative(*found[:3], y[None], found[3])[0], expected.cdf(y), rtol=1e-10)
    levels = np.array([0.025, 0.3, 0.975])
    np.testing.assert_allclose(
        svgp.quantiles(*found[:3], levels, found[3])[0], expected.ppf(levels[:, None]).T, rtol=1e-9, atol=1e-12
    )


def test_latent_moments_and_covariance_lack_the_noise_alone(rng):
    model, X = model_of(rng), rng.normal(size=(12, 2))
    plain = model._replace(dispersion=None)
    inflation, scale = DF[0, 0] / (DF[0, 0] - 2.0), latent_of(model, X)[1]
    mean, var = svgp.predict(model, X)
    np.testing.assert_array_equal(mean, svgp.predict(plain, X)[0])
    np.testing.assert_allclose(var[0], inflation * scale, rtol=1e-10)
    root = np.sqrt(inflation * scale / svgp.predict(plain, X)[1][0])
    joint = svgp.covariance(model, X)
    np.testing.assert_allclose(joint[0], np.outer(root, root) * svgp.covariance(plain, X)[0], rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(np.diag(joint[0]), var[0], rtol=1e-6)
    # Of two targets each is mixed by itself: E[sqrt(a) sqrt(b)] = E[sqrt(a)]^2 of an inverse Gamma variable.
    mixing = stats.invgamma(0.5 * DF[0, 0], scale=0.5 * DF[0, 0])
    ratio = svgp.covariance(model, X, of_targets=True) / joint
    np.testing.assert_allclose(ratio, mixing.expect(np.sqrt) ** 2 / inflation, rtol=1e-6)


def test_offsets_shift_and_known_variances_are_added(rng):
    model, X = model_of(rng), rng.normal(size=(20, 2))
    known, offset = rng.uniform(0.1, 0.5, size=(1, 20)), rng.normal(size=(1, 20))
    before = distribution_of(model, X)
    # A known variance is added to the variance.
    mean, scale = before.mean() + offset[0], np.sqrt((before.var() + known[0]) * 0.6)
    expected, y = stats.t(DF[0, 0], mean, scale), rng.normal(size=20)
    given = {"known": known, "offset": offset}
    np.testing.assert_allclose(svgp.predict(model, X, "log_density", y[None], **given), expected.logpdf(y), rtol=1e-9)
    np.testing.assert_allclose(svgp.predict(model, X, "target_moments", **given)[1][0], expected.var(), rtol=1e-9)
    drawn = svgp.sample_targets(model, X, 40_000, 0, joint=False, **given)[0]
    np.testing.assert_allclose(drawn.mean(1), mean, atol=0.05)
    np.testing.assert_allclose(drawn.std(1), expected.std(), rtol=0.06)


@pytest.mark.parametrize("joint", [True, False])
def test_draws_have_the_distribution(rng, joint):
    model, X = model_of(rng), rng.normal(size=(5, 2))
    drawn = svgp.sample_targets(model, X, 20_000, 0, joint=joint)[0]
    for one, values in zip(np.array(distribution_of(model, X).interval(0.9)).T, drawn, strict=True):
        assert np.mean((one[0] <= values) & (values <= one[1])) == pytest.approx(0.9, abs=0.012)
    assert stats.kstest(drawn[0], distribution_of(model, X[:1]).cdf).pvalue > 1e-3
    covariance = svgp.covariance(model, X, of_targets=True)[0] if joint else np.zeros((5, 5))
    np.fill_diagonal(covariance, svgp.predict(model, X, "target_moments")[1][0])
    np.testing.assert_allclose(np.cov(drawn), covariance, atol=0.06 * covariance.max())
    latent = svgp.sample_latent(model, X, 20_000, 1, joint=joint)[0]
    expected = svgp.covariance(model, X)[0] if joint else np.diag(svgp.predict(model, X)[1][0])
    np.testing.assert_allclose(np.cov(latent), expected, atol=0.06 * expected.max())


def test_gradients_are_finite_differences(rng):
    model, X = model_of(rng), rng.normal(size=(6, 2))
    found, h = svgp.gradients(model, X), 1e-5
    for d in range(2):
        step = h * np.eye(2)[d]
        ends = [distribution_of(model, X + sign * step) for sign in (1.0, -1.0)]
        slopes = [(getattr(ends[0], name)() - getattr(ends[1], name)()) / (2.0 * h) for name in ("mean", "std")]
        np.testing.assert_allclose(found[:, 0, d], slopes, rtol=1e-6, atol=1e-8)


def test_the_distribution_has_no_name():
    from skgp_natgrad.likelihoods import REGISTRY

    assert not {StudentErrors, MixtureErrors} & set(REGISTRY.values())


# -- what is learned ---------------------------------------------------------------------------


@pytest.mark.parametrize("n_inducing", [None, 20])
def test_rows_that_are_left_out_are_predicted_from_all_others(rng, n_inducing):
    """Against fits without the row: the exact process, or formulas of the sparse one by inverses."""
    plan, table = plan_of(n_inducing), table_of(rng)
    state, constants = svgp.init(plan, table, random_state=0)
    with computation("auto"):
        left_out = closed_form.solve(state.parameters, constants, table, np.random.RandomState(0), 60).left_out
    n, kernel = len(table.weight), KERNEL
    np.testing.assert_array_equal(left_out.X[:n], table.X)
    np.testing.assert_allclose(left_out.noise, 0.2)
    Z = np.asarray(state.parameters.points.Z)[np.asarray(constants.masks.Z) > 0]
    Kzz = kernel(Z) + 1e-12 * np.mean(kernel.diag(Z)) * np.eye(len(Z))
    prior_mean = float(np.ravel(constants.prior_mean)[0])
    assert np.all(np.isfinite(left_out.error[0, :n]))
    for i in range(10):
        rest = np.arange(n) != i
        noise = 0.2 / table.weight[rest]
        Kzx, kzi = kernel(Z, table.X[rest]), kernel(Z, table.X[[i]])[:, 0]
        Sigma = np.linalg.inv(Kzz + Kzx / noise @ Kzx.T)
        mean = kzi @ Sigma @ Kzx @ ((table.y[0, rest] - prior_mean) / noise) + prior_mean
        var = kernel.diag(table.X[[i]])[0] - kzi @ np.linalg.solve(Kzz, kzi) + kzi @ Sigma @ kzi + 0.2
        assert left_out.error[0, i] == pytest.approx(table.y[0, i] - mean, rel=1e-5, abs=1e-7)
        assert left_out.variance[0, i] == pytest.approx(var, rel=1e-5)
    if n_inducing is None:
        exact = GaussianProcessRegressor(kernel, alpha=0.2 / table.weight[1:], optimizer=None)
        exact.fit(table.X[1:], table.y[0, 1:] - prior_mean)
        mean, deviation = exact.predict(table.X[:1], return_std=True)
        assert left_out.error[0, 0] == pytest.approx(table.y[0, 0] - prior_mean - mean[0], rel=1e-5)
        assert left_out.variance[0, 0] == pytest.approx(deviation[0] ** 2 + 0.2, rel=1e-5)


@pytest.mark.parametrize("has_offset", [False, True])
def test_a_model_of_the_best_q_leaves_rows_out_in_the_same_way(rng, has_offset):
    plan, table = plan_of(None), table_of(rng)
    if has_offset:
        offset = rng.normal(size=(1, 60))
        table = table._replace(y=table.y + offset, offset=offset)
    state, constants = svgp.init(plan, table, random_state=0)
    with computation("auto"):
        expected = closed_form.solve(state.parameters, constants, table, np.random.RandomState(0), 60).left_out
    result = svgp.train(state, constants, table, plan, random_state=0)
    model, _ = svgp.condition(result.state, result.constants, plan, exact=result.posterior)
    arguments = result.state.parameters, result.constants, table, np.random.RandomState(0), 60
    with computation("auto"):
        found = left_out_of_model(lambda X: svgp.predict(model, X), *arguments)
    np.testing.assert_allclose(found.error[:, :60], expected.error[:, :60], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.variance[:, :60], expected.variance[:, :60], rtol=1e-6)


def left_out_of(rng, log_deviation, n=1500, df=np.inf, n_targets=1, variance=1.0):
    """Errors of a known distribution."""
    X = rng.normal(size=(n, 2))
    errors = stats.t(df).rvs((n_targets, n), random_state=rng) if np.isfinite(df) else rng.normal(size=(n_targets, n))
    error = np.sqrt(variance) * np.exp(log_deviation(X)) * errors
    ones = np.ones_like(error)
    return LeftOut(X, error, 0.3 * variance * ones, 0.7 * variance * ones, ones, ones, np.zeros(n_targets))


def dispersion_of(left_out, kernel=None):
    with computation("auto"):
        return dispersion.fit(left_out, (kernel or RBF(),), np.random.RandomState(0))


def log_factors(found, X):
    kernel, posterior = found[:2]
    return posterior.alpha @ kernel(posterior.Z, X) + posterior.prior_mean


def test_errors_that_grow_go_on_growing_beyond_the_rows_beside_a_season(rng):
    """Where a function without one returns to its mean, so does the logarithm of its errors."""
    errors = left_out_of(rng, lambda X: 0.7 * X[:, 0])
    last, beyond = np.array([[1.5, 0.0]]), np.array([[6.0, 0.0]])
    for kernel, grows in ((RBF(), False), (RBF() + Columns(ExpSineSquared(), 0), True)):
        found = dispersion_of(errors, kernel)
        rise = log_factors(found, beyond) - log_factors(found, last)
        assert rise == pytest.approx(2.0 * 0.7 * 4.5, rel=0.2) if grows else rise < 2.0


@pytest.mark.parametrize("noise", [0.7, 1e-6])
def test_rounding_is_the_least_deviation_where_copies_say_that_there_is_no_noise(rng, noise):
    """Rows whose copies agree are predicted with the variance of the noise alone, which left-out rows do not test."""
    plain = left_out_of(rng, lambda X: np.zeros(len(X)), n=120)
    rounded = plain._replace(width=np.ones(1), latent=0.0 * plain.latent + 1.0 - noise, noise=0.0 * plain.noise + noise)
    found = dispersion_of(rounded)
    if noise > 0.1:
        assert found is None
        return
    assert found.least == pytest.approx(0.25 / 12.0)
    assert not np.any(found.posterior.alpha)
    assert np.allclose(log_factors(found, rounded.X), 0.0)
    assert "the deviation is at least half of that of rounding" in _of_dispersion(found)


@pytest.mark.slow
def test_it_finds_the_deviation(rng):
    """Scale and shape of errors whose deviation is a smooth function, in units far from one."""
    found = dispersion_of(left_out_of(rng, lambda X: np.sin(1.5 * X[:, 0]) - 1.0, variance=1e-8))
    X = rng.uniform(-1.5, 1.5, size=(300, 2))
    difference = log_factors(found, X)[0] - 2.0 * (np.sin(1.5 * X[:, 0]) - 1.0)
    assert abs(difference.mean()) < 0.15
    assert difference.std() < 0.45
    assert found.errors.inflation[0, 0] == pytest.approx(1.0, abs=0.2)


@pytest.mark.slow
def test_heavy_tails_are_found_where_the_deviation_is_constant(rng):
    found = dispersion_of(left_out_of(rng, lambda X: np.zeros(len(X)), df=4.0))
    assert np.isnan(found.error_df)
    kurtosis = found.errors.weights @ found.errors.scales.T**4 / found.errors.inflation**2
    assert kurtosis[0, 0] > 1.5
    assert np.std(log_factors(found, rng.normal(size=(200, 2)))) < 0.2


@pytest.mark.slow
def test_errors_as_predicted_need_no_dispersion(rng):
    assert dispersion_of(left_out_of(rng, lambda X: np.zeros(len(X)))) is None


@pytest.mark.slow
def test_few_rows_say_nothing(rng):
    assert dispersion_of(left_out_of(rng, lambda X: 2.0 * X[:, 0], n=99)) is None
    assert dispersion_of(left_out_of(rng, lambda X: 2.0 * X[:, 0], n=100)) is not None


@pytest.mark.slow
def test_each_target_has_its_own(rng):
    left_out = left_out_of(rng, lambda X: X[:, 0], n_targets=2)
    left_out.error[1] = np.random.default_rng(1).normal(size=1500) * np.exp(-left_out.X[:, 0])
    # Of a row whose target is missing nothing is known.
    left_out.error[0, :200] = np.nan
    factors = log_factors(dispersion_of(left_out), np.array([[-1.0, 0.0], [1.0, 0.0]]))
    np.testing.assert_allclose(factors, [[-2.0, 2.0], [2.0, -2.0]], atol=0.7)


@pytest.mark.slow
def test_each_target_is_decided_alone(rng):
    """One varies, one does not, and of one too few rows are known; correlated targets are no further evidence."""
    left_out = left_out_of(rng, lambda X: X[:, 0], n_targets=3)
    left_out.error[1] = np.random.default_rng(1).normal(size=1500)
    left_out.error[2, 50:] = np.nan
    found = dispersion_of(left_out)
    X = rng.normal(size=(10, 2))
    assert np.ptp(log_factors(found, X)[0]) > 1.0
    np.testing.assert_array_equal(log_factors(found, X)[1:], 0.0)
    np.testing.assert_array_equal(found.error_df, [np.nan, np.inf, np.inf])
    error = np.random.default_rng(3).normal(size=(1, 1500))
    ones = np.ones((20, 1500))
    assert (
        dispersion_of(LeftOut(left_out.X, np.repeat(error, 20, axis=0), ones, 0.0 * ones, ones, ones, np.zeros(20)))
        is None
    )


@pytest.mark.slow
def test_errors_that_x_tells_exactly_are_no_error(rng, monkeypatch):
    """The process of their logarithms may have the least noise there is, which rounds to less than its bound."""
    left_out = left_out_of(rng, lambda X: X[:, 0])
    left_out.error[:] = np.exp(left_out.X[:, 0])
    least, fitted_kernel = float(np.exp(np.log(1e-8))), dispersion.fitted_kernel
    assert least < 1e-8
    monkeypatch.setattr(dispersion, "fitted_kernel", lambda *args: fitted_kernel(*args)._replace(noise=least))
    found = dispersion_of(left_out)
    assert np.corrcoef(log_factors(found, left_out.X)[0], left_out.X[:, 0])[0, 1] > 0.99


@pytest.mark.slow
def test_a_target_without_errors_keeps_its_deviation(rng):
    """Of two targets one may be seen so rarely that none of its rows is left out."""
    left_out = left_out_of(rng, lambda X: X[:, 0], n_targets=2)
    left_out.error[1] = np.nan
    found = dispersion_of(left_out)
    noise, var = np.ones((2, 1)), np.full((2, 1500), 0.5)
    total = found.total(log_factors(found, left_out.X), noise, var)
    np.testing.assert_array_equal(total[1], 1.5)
    assert np.ptp(total[0]) > 1.0


def test_the_factor_holds_up_to_the_largest_variance_seen(rng):
    left_out = left_out_of(rng, lambda X: X[:, 0])
    latent = rng.uniform(0.1, 0.4, size=(1, 1500))
    found = dispersion_of(left_out._replace(latent=latent, noise=1.0 - latent))
    assert found.largest[0, 0] == latent.max()


@pytest.mark.slow
def test_errors_of_zero_are_finite(rng):
    left_out = left_out_of(rng, lambda X: X[:, 0])
    left_out.error[0, ::5] = 0.0
    found = dispersion_of(left_out)
    assert np.corrcoef(log_factors(found, left_out.X)[0], left_out.X[:, 0])[0, 1] > 0.9
    left_out.error[:] = 0.0
    assert dispersion_of(left_out) is None


# -- the estimator -----------------------------------------------------------------------------


def noisy_on_one_side(rng, n=500):
    X = rng.uniform(-2.0, 2.0, size=(n, 2))
    return X, np.sin(2.0 * X[:, 0]) + np.exp(1.5 * X[:, 1] - 2.0) * rng.normal(size=n)


@pytest.fixture(scope="module")
def fitted():
    X, y = noisy_on_one_side(np.random.default_rng(0))
    options = {"kernel": ConstantKernel() * RBF([1.0, 1.0]), "random_state": 0}
    return [NGDSVGPRegressor(calibrate=calibrate, **options).fit(X, y) for calibrate in (True, False)]


@pytest.mark.slow
def test_held_out_rows_are_predicted_better(fitted, rng):
    X, y = noisy_on_one_side(rng, 1000)
    calibrated, plain = fitted
    gain = calibrated.predict_log_density(X, y).mean() - plain.predict_log_density(X, y).mean()
    best = stats.norm(np.sin(2.0 * X[:, 0]), np.exp(1.5 * X[:, 1] - 2.0)).logpdf(y).mean()
    assert gain > 0.6 * (best - plain.predict_log_density(X, y).mean()) > 0.1
    np.testing.assert_array_equal(calibrated.predict(X), plain.predict(X))
    assert "the deviation varies with X" in calibrated.plan_
    assert "varies" not in plain.plan_


def test_the_methods_agree(fitted, rng):
    model, (X, y) = fitted[0], noisy_on_one_side(rng, 30)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(np.sqrt(np.diag(model.predict(X, return_cov=True)[1])), std, rtol=1e-10)
    assert np.all(model.predict_latent(X, return_std=True)[1] < std)
    np.testing.assert_allclose(model.predict_quantiles(X, 0.5), mean, rtol=1e-9, atol=1e-9)
    lower, upper = model.predict_interval(X, 0.8)
    np.testing.assert_allclose(model.predict_cdf(X, lower), 0.1, rtol=1e-6)
    np.testing.assert_allclose(model.predict_cdf(X, upper), 0.9, rtol=1e-6)
    step = 1e-5
    slope = (model.predict_cdf(X, y + step) - model.predict_cdf(X, y - step)) / (2.0 * step)
    np.testing.assert_allclose(np.log(slope), model.predict_log_density(X, y), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(model.predict(X[:1], return_std=True)[1], std[:1], rtol=1e-10)


def test_it_is_scored_as_what_it_is(fitted, rng):
    """The score of a mixture by draws, not that of a normal one with its moments."""
    X, y = noisy_on_one_side(rng, 300)
    calibrated, plain = fitted
    assert plain.error_df_ == np.inf
    assert np.isnan(calibrated.error_df_)
    draws = calibrated.sample_y(X, 2000, random_state=0)
    assert -metrics.crps_scorer(calibrated, X, y) == pytest.approx(metrics.crps_samples(y, draws), rel=0.02)
    assert metrics.nlpd_scorer(calibrated, X, y) == pytest.approx(calibrated.predict_log_density(X, y).mean())


@pytest.mark.parametrize("form", ["pickle", "skops"])
def test_a_saved_model_predicts_the_same(fitted, rng, form):
    X = rng.normal(size=(20, 2))
    if form == "pickle":
        restored = pickle.loads(pickle.dumps(fitted[0]))
    else:
        restored = skops.io.loads(skops.io.dumps(fitted[0]), trusted=trusted_types())
    for before, after in zip(fitted[0].predict(X, return_std=True), restored.predict(X, return_std=True), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.slow
@pytest.mark.parametrize(
    "further", [{}, {"n_mean_inducing": 30}, {"basis": "decoupled", "solver": "adam", "n_mean_inducing": 30}]
)
def test_models_of_many_steps_are_calibrated_on_request(rng, further):
    X, y = noisy_on_one_side(rng)
    options = {"n_inducing": 30, "max_iter": 200, "tol": 1.0, "random_state": 0} | further
    plain = NGDSVGPRegressor(1.0 * RBF([1.0, 1.0]), **options).fit(X, y)
    model = NGDSVGPRegressor(1.0 * RBF([1.0, 1.0]), calibrate=True, **options).fit(X, y)
    assert plain._dispersion is None
    X, y = noisy_on_one_side(rng, 1000)
    assert np.mean(model.predict_log_density(X, y)) > np.mean(plain.predict_log_density(X, y)) + 0.3
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))


@pytest.mark.slow
@pytest.mark.parametrize("max_iter", [5, 50])
def test_q_that_is_far_from_the_best_does_no_harm(rng, max_iter):
    """Leverages of such a q would exceed one, and errors grow a million times."""
    X, y = noisy_on_one_side(rng)
    options = {"n_inducing": 30, "solver": "adam", "max_iter": max_iter, "tol": 1.0, "random_state": 0}
    plain = NGDSVGPRegressor(1.0 * RBF([1.0, 1.0]), **options).fit(X, y)
    model = NGDSVGPRegressor(1.0 * RBF([1.0, 1.0]), calibrate=True, **options).fit(X, y)
    X, y = noisy_on_one_side(rng, 1000)
    assert np.mean(model.predict_log_density(X, y)) > np.mean(plain.predict_log_density(X, y)) - 0.02


@pytest.mark.slow
def test_mean_only_points_have_a_part_in_the_leverage(rng):
    """Errors of rows that many points explain look small; that is no reason for narrow intervals."""
    X = rng.uniform(-3.0, 3.0, size=(400, 2))
    y = np.sin(X[:, 0]) + 0.5 * rng.normal(size=400)
    options = {"n_inducing": 20, "n_mean_inducing": 250, "mean_solver": "exact", "max_iter": 100, "tol": 1.0}
    model = NGDSVGPRegressor(1.0 * RBF([0.5, 0.5]), calibrate=True, random_state=0, **options).fit(X, y)
    X = rng.uniform(-3.0, 3.0, size=(1000, 2))
    y = np.sin(X[:, 0]) + 0.5 * rng.normal(size=1000)
    lower, upper = model.predict_interval(X, 0.9)
    assert np.mean((lower <= y) & (y <= upper)) > 0.87


def test_beyond_the_rows_nothing_is_known_of_the_deviation(fitted):
    """Far away it is that of the process, however exact the rows at the margin are."""
    far = np.array([[0.0, -30.0], [0.0, 30.0]])
    calibrated, plain = (model.predict(far, return_std=True)[1] for model in fitted)
    np.testing.assert_array_less(0.8 * plain, calibrated)


@pytest.mark.slow
def test_later_rows_of_a_stream_keep_the_factor(fitted, rng):
    model = clone(fitted[0]).set_params(kernel=1.0 * RBF([1.0, 1.0]), solver="evidence")
    model = model.fit(*noisy_on_one_side(rng))
    before = model._dispersion
    assert before is not None
    model.set_params(solver="ngd", n_inducing=50, max_iter=20, tol=10.0, calibrate=True)
    model.partial_fit(*noisy_on_one_side(rng, 60))
    assert model._dispersion is before
    X = np.array([[0.0, -1.8], [0.0, 1.8]])
    assert np.divide(*model.predict(X, return_std=True)[1]) < 0.2


def test_a_constant_has_no_deviation_that_varies(rng):
    model = NGDSVGPRegressor(1.0 * RBF(), solver="evidence", random_state=0).fit(
        rng.normal(size=(150, 1)), np.ones(150)
    )
    assert model._dispersion is None


@pytest.mark.slow
def test_without_a_gaussian_likelihood_it_has_no_effect(rng):
    X, y = noisy_on_one_side(rng, 60)
    options = {"kernel": 1.0 * RBF(), "calibrate": True, "n_inducing": 5, "max_iter": 3, "tol": 1e9}
    with pytest.warns(UserWarning, match='calibrate=True .*only likelihood="gaussian" has'):
        NGDSVGPRegressor(likelihood="student_t", **options).fit(X, y)
    with pytest.warns(UserWarning, match="calibrate=True .*trains the predicted density itself"):
        NGDSVGPRegressor(objective="predictive", **options).fit(X, y)
    with pytest.raises(ValueError, match=r"calibrate='yes' must be a bool among {.*} or a str among {'auto'}"):
        NGDSVGPRegressor(calibrate="yes").fit(X, y)


@pytest.mark.slow
def test_known_noise_says_how_the_deviation_varies(rng):
    X, y = noisy_on_one_side(rng, 200)
    variances = np.exp(3.0 * X[:, 1] - 4.0)
    options = {"kernel": ConstantKernel() * RBF([1.0, 1.0]), "random_state": 0}
    assert NGDSVGPRegressor(**options).fit(X, y, alpha=variances)._dispersion is None
    # And so is one that is fixed, unless calibration is asked for.
    for calibrate, is_used in (("auto", False), (True, True)):
        likelihood = Gaussian(0.1, "fixed")
        model = NGDSVGPRegressor(likelihood=likelihood, solver="evidence", calibrate=calibrate, **options).fit(X, y)
        assert (model._dispersion is not None) == is_used


def test_far_beyond_the_rows_deviations_of_growing_noise_are_positive_and_finite(rng):
    t = np.arange(200.0)
    y = np.sin(2.0 * np.pi * t / 12.0) + 0.05 * np.exp(0.012 * t) * rng.normal(size=200)
    kernel = ConstantKernel() * ExpSineSquared(1.0, 12.0) + ConstantKernel() * RBF(10.0)
    model = NGDSVGPRegressor(kernel, random_state=0).fit(t[:, None], y)
    assert "varies with X" in model.plan_
    X = np.array([[-1e5], [-5e4], [1e5], [1e6]])
    _, std = model.predict(X, return_std=True)
    assert np.all((std > 0.0) & (std < 1e6))
    assert np.all(np.isfinite(model.predict_log_density(X, np.zeros(4))))
    assert np.all(np.isfinite(model.sample_y(X, 3, random_state=0)))
