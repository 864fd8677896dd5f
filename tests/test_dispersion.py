"""Deviations that vary with X: the density, moments, draws and derivatives, and what they are learned from."""

import pickle

import numpy as np
import pytest
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skgp_natgrad import NGDSVGPRegressor, svgp
from skgp_natgrad._backend.device import computation
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.mean_solve import closed_form
from skgp_natgrad.prediction.dispersion import Dispersion, StudentTotal
from skgp_natgrad.prediction.left_out import of_model as left_out_of_model
from skgp_natgrad.start import dispersion

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

KERNEL = ConstantKernel(1.3) * Matern([1.0, 0.7], nu=1.5)
STEP = svgp.Settings(algorithm=svgp.Algorithm(solver="evidence"))
DF = np.array([[5.0]])


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
    return model._replace(dispersion=Dispersion(kernel, posterior, DF))


def factor_of(model, X):
    kernel, posterior, _ = model.dispersion
    return np.exp(kernel(X, posterior.Z) @ posterior.alpha[0] + posterior.prior_mean[0, 0])


def distribution_of(model, X):
    """The predicted Student-t distribution by SciPy."""
    mean, var = (each[0] for each in svgp.predict(model._replace(dispersion=None), X))
    return stats.t(DF[0, 0], mean, np.sqrt(factor_of(model, X) * (var + float(np.ravel(model.likelihood.variance)[0]))))


# -- predictions, against SciPy ----------------------------------------------------------------


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
    inflation, factor = DF[0, 0] / (DF[0, 0] - 2.0), factor_of(model, X)
    mean, var = svgp.predict(model, X)
    np.testing.assert_array_equal(mean, svgp.predict(plain, X)[0])
    np.testing.assert_allclose(var[0], inflation * factor * svgp.predict(plain, X)[1][0], rtol=1e-12)
    root = np.sqrt(inflation * factor)
    joint = svgp.covariance(model, X)
    np.testing.assert_allclose(joint[0], np.outer(root, root) * svgp.covariance(plain, X)[0], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(np.diag(joint[0]), var[0], rtol=1e-6)


def test_offsets_shift_and_known_variances_are_added(rng):
    model, X = model_of(rng), rng.normal(size=(20, 2))
    known, offset = rng.uniform(0.1, 0.5, size=(1, 20)), rng.normal(size=(1, 20))
    before = distribution_of(model, X)
    mean, scale = before.mean() + offset[0], np.sqrt(before.var() * 0.6 + known[0])
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

    assert StudentTotal not in REGISTRY.values()


# -- what is learned ---------------------------------------------------------------------------


@pytest.mark.parametrize("of_model", [False, True])
@pytest.mark.parametrize("n_inducing", [None, 20])
def test_rows_that_are_left_out_are_predicted_from_all_others(rng, n_inducing, of_model):
    """Against fits without the row: the exact process, or formulas of the sparse one by inverses."""
    plan, table = plan_of(n_inducing), table_of(rng)
    state, constants = svgp.init(plan, table, random_state=0)
    with computation("auto"):
        left_out = closed_form.solve(state.parameters, constants, table, np.random.RandomState(0), 60).left_out
    if of_model:
        result = svgp.train(state, constants, table, plan, random_state=0)
        model, _ = svgp.condition(result.state, result.constants, plan)
        found = left_out_of_model(model, table, np.random.RandomState(0), 60)
        # One kernel evaluation is by another program.
        np.testing.assert_allclose(found.error, left_out.error[:, :60], rtol=1e-6, atol=1e-9)
        left_out = found
    n, kernel = len(table.weight), KERNEL
    np.testing.assert_array_equal(left_out.X[:n], table.X)
    Z = np.asarray(state.parameters.points.Z)[np.asarray(constants.masks.Z) > 0]
    Kzz = kernel(Z) + 1e-12 * np.mean(kernel.diag(Z)) * np.eye(len(Z))
    prior_mean = float(np.ravel(constants.prior_mean)[0])
    seen = np.flatnonzero(np.isfinite(left_out.error[0, :n]))
    assert len(seen) == n
    for i in seen[:10]:
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


def left_out_of(rng, log_deviation, n=1500, df=np.inf, n_targets=1, variance=1.0):
    """Errors of a known distribution."""
    X = rng.normal(size=(n, 2))
    errors = stats.t(df).rvs((n_targets, n), random_state=rng) if np.isfinite(df) else rng.normal(size=(n_targets, n))
    error = np.sqrt(variance) * np.exp(log_deviation(X)) * errors
    ones = np.ones_like(error)
    return closed_form.LeftOut(X, error, variance * ones, ones, ones)


def dispersion_of(left_out):
    with computation("auto"):
        return dispersion.fit(left_out, np.random.RandomState(0))


def log_factors(found, X):
    kernel, posterior, _ = found
    return posterior.alpha @ kernel(posterior.Z, X) + posterior.prior_mean


def test_it_finds_the_deviation(rng):
    """Scale and shape of errors whose deviation is a smooth function, in units far from one."""
    found = dispersion_of(left_out_of(rng, lambda X: np.sin(1.5 * X[:, 0]) - 1.0, variance=1e-8))
    X = rng.uniform(-1.5, 1.5, size=(300, 2))
    difference = log_factors(found, X)[0] - 2.0 * (np.sin(1.5 * X[:, 0]) - 1.0)
    assert abs(difference.mean()) < 0.15
    assert difference.std() < 0.45
    assert found.df[0, 0] > 10.0


def test_heavy_tails_are_found_where_the_deviation_is_constant(rng):
    found = dispersion_of(left_out_of(rng, lambda X: np.zeros(len(X)), df=4.0))
    assert 3.0 < found.df[0, 0] < 5.5
    assert np.std(log_factors(found, rng.normal(size=(200, 2)))) < 0.2


def test_errors_as_predicted_need_no_dispersion(rng):
    assert dispersion_of(left_out_of(rng, lambda X: np.zeros(len(X)))) is None


def test_few_rows_say_nothing(rng):
    assert dispersion_of(left_out_of(rng, lambda X: 2.0 * X[:, 0], n=99)) is None


def test_each_target_has_its_own(rng):
    left_out = left_out_of(rng, lambda X: X[:, 0], n_targets=2)
    left_out.error[1] = np.random.default_rng(1).normal(size=1500) * np.exp(-left_out.X[:, 0])
    # Of a row whose target is missing nothing is known.
    left_out.error[0, :200] = np.nan
    factors = log_factors(dispersion_of(left_out), np.array([[-1.0, 0.0], [1.0, 0.0]]))
    np.testing.assert_allclose(factors, [[-2.0, 2.0], [2.0, -2.0]], atol=0.7)


def test_errors_of_zero_are_finite(rng):
    left_out = left_out_of(rng, lambda X: X[:, 0])
    left_out.error[0, ::5] = 0.0
    found = dispersion_of(left_out)
    assert np.all(np.isfinite(log_factors(found, left_out.X)))


# -- the estimator -----------------------------------------------------------------------------


def noisy_on_one_side(rng, n=500):
    X = rng.uniform(-2.0, 2.0, size=(n, 2))
    return X, np.sin(2.0 * X[:, 0]) + np.exp(1.5 * X[:, 1] - 2.0) * rng.normal(size=n)


@pytest.fixture(scope="module")
def fitted():
    X, y = noisy_on_one_side(np.random.default_rng(0))
    options = {"kernel": ConstantKernel() * RBF([1.0, 1.0]), "random_state": 0}
    return [NGDSVGPRegressor(calibrate=calibrate, **options).fit(X, y) for calibrate in (True, False)]


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


def test_a_saved_model_predicts_the_same(fitted, rng):
    X = rng.normal(size=(20, 2))
    restored = pickle.loads(pickle.dumps(fitted[0]))
    for before, after in zip(fitted[0].predict(X, return_std=True), restored.predict(X, return_std=True), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("n_mean_inducing", [0, 30])
def test_models_of_many_steps_are_calibrated_on_request(rng, n_mean_inducing):
    X, y = noisy_on_one_side(rng)
    options = {"n_inducing": 30, "n_mean_inducing": n_mean_inducing, "max_iter": 200, "tol": 1.0, "random_state": 0}
    plain = NGDSVGPRegressor(1.0 * RBF([1.0, 1.0]), **options).fit(X, y)
    model = NGDSVGPRegressor(1.0 * RBF([1.0, 1.0]), calibrate=True, **options).fit(X, y)
    assert plain._dispersion is None
    X, y = noisy_on_one_side(rng, 1000)
    assert np.mean(model.predict_log_density(X, y)) > np.mean(plain.predict_log_density(X, y)) + 0.3
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))


def test_without_a_gaussian_likelihood_it_has_no_effect(rng):
    X, y = noisy_on_one_side(rng, 60)
    model = NGDSVGPRegressor(1.0 * RBF(), likelihood="student_t", calibrate=True, n_inducing=5, max_iter=3, tol=1e9)
    with pytest.warns(UserWarning, match='calibrate=True .*only of likelihood="gaussian"'):
        model.fit(X, y)
    with pytest.raises(ValueError, match="calibrate='yes' is not available; use one of True, False, 'auto'"):
        NGDSVGPRegressor(calibrate="yes").fit(X, y)


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
