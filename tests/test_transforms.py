"""Parameters of likelihoods and the raw values that are trained in their place."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special
from sklearn.gaussian_process.kernels import RBF

from skgp_natgrad import NGDSVGPRegressor, likelihoods
from skgp_natgrad.likelihoods import Gaussian, RegressionLikelihood, positive, unconstrained, unit_interval

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

VALUES = {
    positive: np.array([1e-300, 1e-8, 0.3, 1.0, 1e5]),
    unit_interval: np.array([1e-300, 1e-8, 0.3, 0.5, 0.9999, 1.0 - 1e-12]),
    unconstrained: np.array([-1e9, -0.3, 0.0, 1e-12, 7.0]),
}
REFUSED = {
    positive: [0.0, -1.0, np.inf, np.nan],
    unit_interval: [0.0, 1.0, -0.2, 1.3, np.inf, np.nan],
    unconstrained: [np.inf, -np.inf, np.nan],
}
each_transform = pytest.mark.parametrize("transform", VALUES, ids=lambda transform: transform.name)


class Contaminated(RegressionLikelihood):
    """y = offset + f + noise; a share of the noise is five times as wide."""

    parameters = ("scale", "share", "offset")
    transforms = {"share": unit_interval, "offset": unconstrained}

    def __init__(
        self,
        scale=0.3,
        share=0.2,
        offset=0.0,
        scale_bounds=(1e-3, 1e2),
        share_bounds=(1e-3, 0.999),
        offset_bounds=(-np.inf, np.inf),
    ):
        self.scale = scale
        self.share = share
        self.offset = offset
        self.scale_bounds = scale_bounds
        self.share_bounds = share_bounds
        self.offset_bounds = offset_bounds

    def log_prob(self, f, y):
        narrow, wide = (_log_normal(y - f - self.offset, self.scale * factor) for factor in (1.0, 5.0))
        return jnp.logaddexp(jnp.log1p(-self.share) + narrow, jnp.log(self.share) + wide)

    def conditional_moments(self, f):
        return f + self.offset, jnp.broadcast_to(self.scale**2 * (1.0 + 24.0 * self.share), f.shape)

    def sample(self, f, rng):
        wide = rng.uniform(size=f.shape) < self.share
        return f + self.offset + self.scale * np.where(wide, 5.0, 1.0) * rng.standard_normal(f.shape)


class Shifted(RegressionLikelihood):
    """y = offset + f + Gaussian noise."""

    conjugate = True
    parameters = ("variance", "offset")
    transforms = {"offset": unconstrained}

    def __init__(self, variance=0.1, offset=0.0, variance_bounds=(1e-6, 1e3), offset_bounds=(-20.0, 20.0)):
        self.variance = variance
        self.offset = offset
        self.variance_bounds = variance_bounds
        self.offset_bounds = offset_bounds

    def log_prob(self, f, y):
        return _log_normal(y - f - self.offset, jnp.sqrt(self.variance))

    def conditional_moments(self, f):
        return f + self.offset, jnp.broadcast_to(self.variance, f.shape)


def _log_normal(x, scale):
    return -0.5 * (x / scale) ** 2 - jnp.log(scale) - 0.5 * np.log(2.0 * np.pi)


# -- the records --------------------------------------------------------------------------


@each_transform
@pytest.mark.usefixtures("x64")
def test_there_and_back_under_both_libraries(transform):
    values = VALUES[transform]
    raw = transform.to_raw(values)
    assert np.all(np.diff(raw) > 0.0)
    assert_allclose(transform.from_raw(raw, np), values, rtol=1e-12)
    assert_allclose(transform.from_raw(raw, jnp), values, rtol=1e-12)


@each_transform
@pytest.mark.usefixtures("x64")
def test_derivatives_are_finite_however_far_out(transform):
    derivative = jax.vmap(jax.grad(lambda raw: transform.from_raw(raw, jnp)))
    slope = derivative(np.array([-700.0, -30.0, 0.0, 30.0, 700.0]))
    assert np.all(np.isfinite(slope)) & np.all(slope >= 0.0)
    near = np.array([-3.0, 0.0, 3.0])
    ends = (transform.from_raw(near + step, np) for step in (1e-5, -1e-5))
    assert_allclose(derivative(near), np.subtract(*ends) / 2e-5, rtol=1e-6)


@pytest.mark.usefixtures("x64")
def test_the_unit_interval_is_by_log_odds():
    values = VALUES[unit_interval]
    assert_allclose(unit_interval.to_raw(values), special.logit(values), rtol=1e-12)
    raw = np.linspace(-40.0, 40.0, 81)
    assert_allclose(unit_interval.from_raw(raw, np), special.expit(raw), rtol=1e-14)


def test_positive_ones_keep_the_bits_of_logarithm_and_exponential(rng):
    values = rng.lognormal(sigma=5.0, size=1000)
    np.testing.assert_array_equal(positive.to_raw(values), np.log(values))
    np.testing.assert_array_equal(positive.from_raw(values, jnp), jnp.exp(values))


# -- what a likelihood says ---------------------------------------------------------------


def of_transform(transform, value, bounds="fixed"):
    name = {positive: "scale", unit_interval: "share", unconstrained: "offset"}[transform]
    return Contaminated(**{name: value, f"{name}_bounds": bounds}), name


@each_transform
def test_a_value_that_is_not_allowed_is_named(transform):
    for value in REFUSED[transform]:
        likelihood, name = of_transform(transform, value)
        with pytest.raises(ValueError, match=rf"Contaminated\({name}={value}\): {name} must be {transform.values}\."):
            likelihood.value_and_bounds(1)


@each_transform
@pytest.mark.parametrize("bounds", [(0.7, 0.2), (np.nan, 0.9), "loose", (0.1,), 3.0])
def test_bad_bounds_are_named(transform, bounds):
    likelihood, name = of_transform(transform, 0.5, bounds)
    with pytest.raises(ValueError, match=rf"{name}_bounds=.*a pair of {transform.bounds}, the lower first, or"):
        likelihood.value_and_bounds(1)


def test_bounds_that_a_transform_does_not_allow_are_named():
    for bounds in ((0.0, 0.9), (0.1, 1.0), (-0.5, 0.9)):
        with pytest.raises(ValueError, match=r"share_bounds=.*numbers strictly between 0 and 1"):
            Contaminated(share_bounds=bounds).value_and_bounds(1)
    with pytest.raises(ValueError, match=r"share=0\.2\): outside of share_bounds"):
        Contaminated(share_bounds=(0.3, 0.4)).value_and_bounds(1)
    Contaminated(scale_bounds=(1e-3, np.inf), offset_bounds=(-np.inf, 0.0)).value_and_bounds(2)


def test_raw_bounds_keep_their_order():
    value, lower, upper = (
        each.to_raw() for each in Contaminated(offset=[-3.0, 2.0], offset_bounds=(-3.0, 4.0)).value_and_bounds(2)
    )
    for name in Contaminated.parameters:
        assert np.all(getattr(lower, name) <= getattr(value, name))
        assert np.all(getattr(value, name) <= getattr(upper, name))
    assert_allclose(value.share, special.logit(np.full((2, 1), 0.2)))
    assert_allclose(value.offset, [[-3.0], [2.0]])
    assert_allclose(value.from_raw(np).scale, np.full((2, 1), 0.3))


def test_a_transform_of_no_parameter_is_named():
    with pytest.raises(ValueError, match=r"transforms names 'rate', which is not among its parameters"):
        type("Mistaken", (Gaussian,), {"transforms": {"rate": unit_interval}})


def test_transforms_of_the_package():
    """Which values the parameters of the package may have; robust_max bounds its own besides."""
    found = {
        f"{name}__{parameter}": likelihoods.by_name(name).transform(parameter).name
        for name in likelihoods.names("regression") + likelihoods.names("classification")
        for parameter in likelihoods.by_name(name).parameters
    }
    assert {name for name, transform in found.items() if transform != "positive"} == {
        "zero_inflated_poisson__zero_probability",
        "tweedie__power",
    }


# -- training -----------------------------------------------------------------------------

RNG = np.random.default_rng(8)
X = np.sort(RNG.uniform(-3.0, 3.0, size=(300, 1)), axis=0)
F = np.sin(2.0 * X[:, 0])
OPTIONS = {"kernel": RBF(0.8, "fixed"), "n_inducing": 15, "max_iter": 300, "learning_rate": 0.05, "random_state": 0}


def drawn(scale=0.1, share=0.15, offset=-2.0):
    model = Contaminated(scale, share, offset).value_and_bounds(1)[0]
    return np.asarray(model.sample(F[None], np.random.RandomState(1)))[0]


@pytest.mark.slow
def test_all_three_kinds_are_trained():
    y = drawn()
    model = NGDSVGPRegressor(likelihood=Contaminated(), **OPTIONS).fit(X, y)
    fitted = model.likelihood_
    assert fitted.scale == pytest.approx(0.1, rel=0.3)
    # Twice the standard error, of 300 rows, and what the two parts of the noise have in common.
    assert fitted.share == pytest.approx(0.15, abs=0.06)
    # A constant can be the latent function's or the offset's: their sum is known.
    assert fitted.offset < -0.5
    assert np.sqrt(np.mean((model.predict(X) - F + 2.0) ** 2)) < 0.1
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_log_density(X, y), model.predict_log_density(X, y))
    again.set_params(warm_start=True, max_iter=20, tol=1e9).fit(X, y)
    assert again.likelihood_.share == pytest.approx(fitted.share, abs=0.02)
    assert again.likelihood_.offset == pytest.approx(fitted.offset, abs=0.2)


BOUNDS = {"scale_bounds": (0.25, 0.4), "share_bounds": (0.195, 0.205), "offset_bounds": (-0.3, 0.1)}


def check_within_bounds(likelihood):
    for name in likelihood.parameters:
        lower, upper = BOUNDS[f"{name}_bounds"]
        assert lower <= getattr(likelihood, name) <= upper


@pytest.mark.slow
def test_all_three_kinds_keep_within_their_bounds():
    with pytest.warns(match="Training ended with") as told:
        model = NGDSVGPRegressor(likelihood=Contaminated(**BOUNDS), **OPTIONS).fit(X, drawn())
    check_within_bounds(model.likelihood_)
    message = next(str(each.message) for each in told if "Training ended" in str(each.message))
    assert "likelihood__scale at its lower bound 0.25; " in message
    assert "likelihood__share at its lower bound 0.195; " in message
    assert "likelihood__offset at its lower bound -0.3. " in message


@pytest.mark.slow
def test_lbfgs_keeps_all_three_kinds_within_their_bounds():
    options = {**OPTIONS, "solver": "lbfgs", "parameterization": "mean_var_sqrt", "max_iter": 60}
    check_within_bounds(NGDSVGPRegressor(likelihood=Contaminated(**BOUNDS), **options).fit(X, drawn()).likelihood_)


@pytest.mark.slow
def test_the_exact_mean_moves_the_noise_and_no_offset():
    y = F - 2.0 + 0.1 * RNG.normal(size=len(F))
    options = {**OPTIONS, "likelihood": Shifted(), "n_inducing": 6}
    inducing = NGDSVGPRegressor(**options).fit(X, y)
    exact = NGDSVGPRegressor(**options, mean_solver="exact", n_mean_inducing=40).fit(X, y)
    assert exact.likelihood_.offset == pytest.approx(inducing.likelihood_.offset, rel=1e-12)
    assert exact.likelihood_.variance == pytest.approx(0.01, rel=0.5)
    assert np.sqrt(np.mean((exact.predict(X) - F + 2.0) ** 2)) < 0.05
