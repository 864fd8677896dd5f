"""Values that are known up to limits: Tobit regression."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, special, stats
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.likelihoods import Censored, Gaussian
from skgp_natgrad.metrics import calibration_scorer, coverage_scorer, crps_scorer, interval_scorer

RNG = np.random.default_rng(2)
X = np.sort(RNG.uniform(-3.0, 3.0, size=(120, 1)), axis=0)
TRUTH = 1.5 * np.sin(X[:, 0])
Y = np.clip(TRUTH + 0.3 * RNG.normal(size=120), -0.5, 1.2)
KERNEL = ConstantKernel(1.0) * RBF(1.0)
OPTIONS = {"normalize_X": False, "random_state": 0, "n_inducing": 12, "max_iter": 80, "tol": 0.1}

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def model_of(lower, upper, variance):
    likelihood = Censored(lower, upper, variance)
    return likelihood.value_and_bounds(1)[0].given(likelihood.known_everywhere(1))


@pytest.fixture(scope="module")
def fitted():
    return NGDSVGPRegressor(KERNEL, likelihood=Censored(-0.5, 1.2), **OPTIONS).fit(X, Y)


@pytest.mark.slow
def test_scores_of_limits_in_single_precision_are_those_in_double(fitted):
    """A limit may have no single precision number: beside an interval without width its rounded value is outside."""
    single = np.where(np.float32(-0.5) < Y, np.minimum(Y, 1.2), -0.5).astype(np.float32)
    assert np.float64(single.max()) != 1.2
    double = np.where(single == np.float32(1.2), 1.2, single.astype(float))
    for scorer in (coverage_scorer, interval_scorer, crps_scorer):
        assert scorer(fitted, X, single) == pytest.approx(scorer(fitted, X, double), rel=1e-12)


@pytest.mark.parametrize(("lower", "upper"), [(-0.5, 0.4), (0.0, np.inf), (-np.inf, 1.0), (-np.inf, np.inf)])
@pytest.mark.usefixtures("x64")
def test_moments_are_those_of_scipys_integral(lower, upper):
    model, deviation = model_of(lower, upper, 0.3), np.sqrt(0.3 + 0.2)
    mean = np.array([[-3.0, -0.4, 0.1, 1.4, 4.0]])
    found = jax.jit(model.predictive_moments)(mean, np.full((1, 5), 0.2))
    for m, y_mean, y_var in zip(mean[0], found[0][0], found[1][0], strict=True):
        law, ends = stats.norm(m, deviation), np.clip([lower, upper], m - 14.0 * deviation, m + 14.0 * deviation)

        def moment(power, law=law, ends=ends):
            inside, _ = integrate.quad(lambda y: y**power * law.pdf(y), *ends, epsabs=1e-14, epsrel=1e-13)
            below = lower**power * law.cdf(lower) if np.isfinite(lower) else 0.0
            return inside + below + (upper**power * law.sf(upper) if np.isfinite(upper) else 0.0)

        assert_allclose(y_mean, moment(1), rtol=1e-10, atol=1e-13)
        assert_allclose(y_var, moment(2) - moment(1) ** 2, rtol=1e-8, atol=1e-13)


@pytest.mark.usefixtures("x64")
def test_nearly_all_censored_has_a_small_variance_to_its_digits():
    """Ten deviations beyond the limit, where a difference of squares would have none."""
    deviation = np.sqrt(0.25)
    _, var = jax.jit(model_of(0.0, np.inf, 0.25).predictive_moments)(np.full((1, 1), -5.0), np.zeros((1, 1)))
    square, _ = integrate.quad(lambda y: y**2 * stats.norm.pdf(y, -5.0, deviation), 0.0, 5.0, epsabs=0.0)
    first, _ = integrate.quad(lambda y: y * stats.norm.pdf(y, -5.0, deviation), 0.0, 5.0, epsabs=0.0)
    assert_allclose(var[0, 0], square - first**2, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_beyond_a_limit_values_and_gradients_are_finite(dtype):
    """Forty deviations and more, on both sides of both limits."""
    mean = np.array([[-400.0, -40.0, -4.0, 0.5, 4.0, 40.0, 400.0]], dtype=dtype)
    var = np.full((1, 7), 0.3, dtype)
    with jax.enable_x64(dtype == np.float64):
        model = jax.tree.map(lambda x: jnp.asarray(x, dtype), model_of(0.0, 1.0, 1.0))

        @jax.jit
        def parts(model, mean, var, y):
            def total(model, mean, var, name):
                return getattr(model, name)(mean, var, y).sum()

            values = jax.value_and_grad(total, argnums=(0, 1, 2))
            return [values(model, mean, var, name) for name in ("expectation_each", "log_density_each")]

        for y in (0.0, 0.5, 1.0, -7.0):
            leaves = list(map(np.asarray, jax.tree.leaves(parts(model, mean, var, np.full((1, 7), y, dtype)))))
            assert all(leaf.dtype == dtype for leaf in leaves)
            assert all(np.all(np.isfinite(leaf)) for leaf in leaves)
        assert np.all(np.isfinite(jax.jit(model.predictive_moments)(mean, var)))


@pytest.mark.usefixtures("x64")
def test_probabilities_far_beyond_a_limit_have_their_digits():
    log_mass = jax.jit(model_of(0.0, 1.0, 1.0).log_prob)(np.array([[40.0, -41.0]]), np.array([[0.0, 1.0]]))
    assert_allclose(log_mass[0], special.log_ndtr([-40.0, -42.0]), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_without_limits_it_is_gaussian(rng):
    mean, var, y = rng.normal(size=(1, 9)), rng.uniform(size=(1, 9)), rng.normal(size=(1, 9))
    one, two = model_of(-np.inf, np.inf, 0.3), Gaussian(0.3).value_and_bounds(1)[0]
    for name in ("expectation_each", "log_density_each"):
        assert_allclose(jax.jit(getattr(one, name))(mean, var, y), getattr(two, name)(mean, var, y), rtol=1e-12)
    for got, want in zip(jax.jit(one.predictive_moments)(mean, var), two.predictive_moments(mean, var), strict=True):
        assert_allclose(got, want, rtol=1e-12)


@pytest.mark.slow
def test_limits_are_in_the_units_of_y(fitted):
    """An affine map of y and of its limits maps the predictions."""
    other = NGDSVGPRegressor(KERNEL, likelihood=Censored(1e4 - 500.0, 1e4 + 1200.0), **OPTIONS).fit(X, 1e4 + 1e3 * Y)
    few = X[::20]
    for got, want in zip(other.predict(few, return_std=True), fitted.predict(few, return_std=True), strict=True):
        assert_allclose(got - 1e4 * (got > 5e3), 1e3 * want, rtol=1e-5, atol=1e-3)
    assert other.likelihood_.get_params()["lower"] == 1e4 - 500.0
    assert_allclose(
        other.predict_log_density(few, 1e4 + 1e3 * Y[::20]) + np.log(1e3) * _inside(Y[::20]),
        fitted.predict_log_density(few, Y[::20]),
        rtol=1e-5,
        atol=1e-4,
    )


def _inside(y):
    return (y > -0.5) & (y < 1.2)


@pytest.mark.slow
def test_the_value_behind_the_limits_is_found(fitted):
    plain = NGDSVGPRegressor(KERNEL, **OPTIONS).fit(X, Y)
    latent = fitted.predict_latent(X)
    assert np.sqrt(np.mean((latent - TRUTH) ** 2)) < 0.2 < np.sqrt(np.mean((plain.predict(X) - TRUTH) ** 2))
    mean, std = fitted.predict(X, return_std=True)
    assert np.all((mean >= -0.5) & (mean <= 1.2) & (std > 0.0))
    assert np.sqrt(np.mean((mean - Y) ** 2)) < 0.3


def test_quantiles_and_distribution_function_have_the_mass_at_the_limits(fitted):
    few = X[::15]
    at_lower = fitted.predict_cdf(few, np.full(8, -0.5))
    below_upper = fitted.predict_cdf(few, np.full(8, 1.2 - 1e-9))
    assert_array_equal(fitted.predict_cdf(few, np.full(8, 1.2)), 1.0)
    assert_array_equal(fitted.predict_cdf(few, np.full(8, -0.6)), 0.0)
    for level in (0.05, 0.5, 0.95):
        quantile = fitted.predict_quantiles(few, level)
        assert_allclose(quantile[at_lower >= level], -0.5)
        assert_allclose(quantile[below_upper < level], 1.2)
    log_mass = fitted.predict_log_density(few, np.full(8, -0.5)), fitted.predict_log_density(few, np.full(8, 1.2))
    assert_allclose(np.exp(log_mass[0]), at_lower, atol=1e-8)
    assert_allclose(np.exp(log_mass[1]), 1.0 - below_upper, atol=1e-6)
    draws = fitted.sample_y(few, 4000, joint=False)
    assert_allclose(np.mean(draws == draws.min(), axis=1), at_lower, atol=0.04)
    assert draws.min() == pytest.approx(-0.5)
    assert draws.max() == pytest.approx(1.2)


@pytest.mark.slow
def test_limits_of_each_output_and_minibatches():
    both = np.column_stack([Y, 10.0 * np.clip(TRUTH, 0.0, None)])
    likelihood = Censored([-0.5, 0.0], [1.2, np.inf])
    reg = NGDSVGPRegressor(KERNEL, likelihood=likelihood, batch_size=50, **OPTIONS).fit(X, both)
    mean = reg.predict(X)
    assert np.all(mean[:, 0] <= 1.2 + 1e-12)
    assert np.all(mean[:, 1] >= -1e-12)
    assert mean[:, 1].max() > 10.0


@pytest.mark.parametrize(
    ("likelihood", "message"),
    [
        (Censored(1.0, 0.0), r"lower=1\.0, upper=0\.0\): lower must be below upper"),
        (Censored(np.nan), "lower must be below upper"),
        (Censored([0.0, 1.0]), "or one for each of the 1 columns"),
        (Censored("a"), "give a number each"),
    ],
)
def test_bad_limits_are_named(likelihood, message):
    with pytest.raises(ValueError, match=message):
        NGDSVGPRegressor(likelihood=likelihood).fit(X, Y)


@pytest.fixture(scope="module")
def rounded():
    """A limit that single precision cannot hold, and targets given in it."""
    y = np.maximum(TRUTH + 0.3 * RNG.normal(size=120), 0.1).astype(np.float32)
    return y, NGDSVGPRegressor(KERNEL, likelihood=Censored(0.1), **OPTIONS).fit(X, y)


@pytest.mark.slow
def test_targets_in_single_precision_are_censored(rounded):
    y, model = rounded
    same = NGDSVGPRegressor(KERNEL, likelihood=Censored(0.1), **OPTIONS).fit(X, np.where(y <= 0.11, 0.1, y))
    assert_array_equal(model.elbo_curve_, same.elbo_curve_)
    at_limit = y == y.min()
    assert np.mean(at_limit) > 0.3
    # Probabilities, not densities.
    assert np.all(model.predict_log_density(X[at_limit], y[at_limit]) <= 0.0)


def test_predictions_are_at_the_limit_and_not_beside_it(rounded):
    y, model = rounded
    lower, upper = model.predict_interval(X, 0.9)
    assert np.any(lower == 0.1)
    assert np.all(lower >= 0.1)
    inside = (lower <= np.where(y <= 0.11, 0.1, y)) & (y <= upper + 1e-6)
    assert 0.86 <= inside.mean() <= 1.0
    assert np.mean(model.sample_y(X, 20) == 0.1) == pytest.approx(np.mean(y <= 0.11), abs=0.1)
    # The levels of the targets are uniform, those of one value spread over its probability.
    assert -calibration_scorer(model, X, y) < 0.05


@pytest.mark.parametrize("limits", [(0.1, np.inf), (-0.5, 1.2)])
def test_gradients_are_those_of_differences(rounded, fitted, limits):
    model = fitted if np.isfinite(limits[1]) else rounded[1]
    rows, step = X[::20], 1e-5
    found = model.predict_gradient(rows, return_std=True)
    after, before = (np.stack(model.predict(rows + sign * step, return_std=True)) for sign in (1.0, -1.0))
    assert_allclose(np.stack(found)[..., 0], (after - before) / (2.0 * step), rtol=1e-4, atol=1e-6)


def test_noise_before_the_limits_is_summed_up(fitted):
    variance = fitted.likelihood_.variance
    assert fitted.summary().noise == pytest.approx(np.sqrt(np.ravel(variance)[0]) * np.std(Y), rel=1e-6)
