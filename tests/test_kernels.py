"""Conversion of kernels; their values and gradients are in test_equivalence."""

import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, kernels
from skgp_natgrad.kernels import base

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture
def table(rng):
    X = rng.normal(size=(60, 2))
    return X, np.sin(X[:, 0]) + X[:, 1]


def fit(kernel, table, **options):
    return NGDSVGPRegressor(kernel, **{"n_inducing": 10, "max_iter": 40, "random_state": 0, **options}).fit(*table)


@pytest.mark.parametrize(
    "kernel",
    [
        1.0 * sk.Matern(nu=2.5) + sk.RBF([1.0, 2.0]),
        sk.ConstantKernel(0.5) * sk.RationalQuadratic(alpha=2.0) + sk.DotProduct(),
        (sk.RBF() + sk.ExpSineSquared(1.0, 3.0)) ** 2,
    ],
)
def test_fitted_kernel_is_accepted_by_scikit_learn(kernel, table):
    model = fit(kernel, table)
    assert type(model.kernel_) is type(kernel)
    assert not np.allclose(model.kernel_.theta, kernel.theta)
    exact = GaussianProcessRegressor(model.kernel_, alpha=model.likelihood_.variance, optimizer=None).fit(*table)
    assert_allclose(exact.kernel_.theta, model.kernel_.theta)
    jax_kernel = kernels.from_sklearn(model.kernel_, 2).value
    # Single precision outside the package.
    assert_allclose(jax_kernel(*table[:1] * 2), model.kernel_(table[0]), atol=1e-5)


def test_fixed_bounds_are_honoured(table):
    kernel = sk.ConstantKernel(2.3, "fixed") * sk.RBF(0.7) + sk.DotProduct(0.0, "fixed") * sk.Matern(
        [0.3, 4.0], "fixed", 1.5
    )
    fitted = fit(kernel, table).kernel_
    assert fitted.k1.k1.constant_value == 2.3
    assert fitted.k2.k1.sigma_0 == 0.0
    assert fitted.k2.k2.length_scale == [0.3, 4.0]
    assert fitted.k1.k2.length_scale != 0.7


def test_bounds_are_kept(table):
    fitted = fit(sk.ConstantKernel(1.0, (0.9, 1.1)) * sk.RBF(0.1, (0.05, 0.15)), table, learning_rate=0.1).kernel_
    assert fitted.k2.length_scale == pytest.approx(0.15)
    assert 0.9 * (1 - 1e-12) <= fitted.k1.constant_value <= 1.1 * (1 + 1e-12)


def test_optimizer_none_keeps_hyperparameters_and_points(table):
    kernel = sk.ConstantKernel(1.0) * sk.RBF(0.9)
    model = fit(kernel, table, optimizer=None, n_mean_inducing=5)
    assert_allclose(model.kernel_.theta, kernel.theta, atol=1e-15)
    assert model.likelihood_.variance == pytest.approx(0.1)
    rows = {tuple(row) for row in table[0].round(9)}
    assert {tuple(row) for row in model.inducing_points_.round(9)} <= rows
    assert model.elbo_ > model.elbo_curve_[0]


def test_default_kernel_starts_from_the_data(rng):
    X = rng.normal(size=(80, 3)) * [1.0, 1e-3, 50.0]
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=80)
    scaled = NGDSVGPRegressor(n_inducing=10, optimizer=None, max_iter=5).fit(X, y)
    assert_allclose(scaled.kernel_.k2.length_scale, np.sqrt(3), rtol=1e-10)
    raw = NGDSVGPRegressor(n_inducing=10, optimizer=None, max_iter=5, normalize_X=False).fit(X, y)
    assert_allclose(raw.kernel_.k2.length_scale, np.sqrt(3) * X.std(0), rtol=1e-10)
    assert_allclose(raw.predict(X), scaled.predict(X), rtol=1e-6)
    extreme = NGDSVGPRegressor(n_inducing=10, optimizer=None, max_iter=5, normalize_X=False).fit(1e7 * X, y)
    assert_allclose(extreme.predict(1e7 * X), scaled.predict(X), rtol=1e-6)


@pytest.mark.parametrize(
    ("kernel", "error", "message"),
    [
        (sk.RBF() + sk.WhiteKernel(), ValueError, "the likelihood owns the noise"),
        (sk.PairwiseKernel(), ValueError, "no JAX kernel"),
        ("rbf", TypeError, "must be a kernel"),
        (sk.RBF, TypeError, "must be a kernel"),
        (sk.RBF([1.0, 2.0, 3.0]), ValueError, "3 values for X with 2 columns"),
        (sk.RationalQuadratic([1.0, 2.0]), ValueError, "one number for all columns"),
        (sk.ConstantKernel([1.0, 2.0]), ValueError, "one number for all columns"),
        (sk.Matern(nu=1.0), ValueError, "0.5, 1.5, 2.5 and inf"),
        (sk.ConstantKernel(-1.0), ValueError, "positive"),
        (sk.DotProduct(0.0), ValueError, "fixed"),
        (sk.RBF() ** -1.0, ValueError, "exponent=-1.0; exponent must be a positive number"),
        (sk.RBF() ** "two", ValueError, "exponent='two'; exponent must be a positive number"),
        (sk.Matern(nu="abc"), ValueError, "Matern with nu='abc'; nu must be one of 0.5, 1.5, 2.5 and inf"),
        (sk.Matern(nu=1j), ValueError, r"Matern with nu=1j.* must be a number, a string, or a tuple"),
        (sk.RBF("a"), ValueError, "not a number"),
        (sk.RBF(1.0, (2.0, 3.0)), ValueError, "within positive bounds"),
        (sk.RBF(1.0, (10.0, 0.1)), ValueError, "within positive bounds"),
    ],
)
def test_what_is_not_supported_is_refused(kernel, error, message, table):
    with pytest.raises(error, match=message):
        fit(kernel, table)


class Cosine(sk.StationaryKernelMixin, sk.NormalizedKernelMixin, sk.Kernel):
    """A user's own kernel: the product of cosines of the coordinates' distances."""

    def __init__(self, period=1.0, period_bounds=(1e-3, 1e3)):
        self.period = period
        self.period_bounds = period_bounds

    @property
    def hyperparameter_period(self):
        return sk.Hyperparameter("period", "numeric", self.period_bounds)

    def __call__(self, X, Y=None, eval_gradient=False):
        Y = X if Y is None else Y
        return np.cos((X[:, None] - Y[None]) / self.period).prod(-1)


class JaxCosine(kernels.Kernel):
    period: object

    def __call__(self, X, Z):
        import jax.numpy as jnp

        return jnp.cos((X[:, None] - Z[None]) / self.period).prod(-1)

    def diag(self, X):
        import jax.numpy as jnp

        return jnp.ones(len(X))


def test_a_users_own_kernel(table):
    with pytest.raises(ValueError, match=r"register\(Cosine, YourJaxKernel\)"):
        fit(Cosine() * sk.RBF(), table)
    kernels.register(Cosine, JaxCosine)
    try:
        model = fit(Cosine(2.0) * sk.RBF(), table)
    finally:
        del base._JAX_KERNELS[Cosine]
    assert model.kernel_.k1.period != 2.0
    assert kernels.from_sklearn(Cosine(), 2).value.period == 1.0  # found by the class itself
    del Cosine._skgp_jax_kernel
    with pytest.raises(TypeError, match="jax_class"):
        kernels.register(Cosine, dict)


def test_a_users_own_kernel_reaches_other_processes():
    """Defined in a script, not in a module that the worker could import."""
    code = """
import numpy as np
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import cross_val_score
from skgp_natgrad import NGDSVGPRegressor, kernels

class Mine(RBF):
    pass

class JaxMine(kernels.Kernel):
    length_scale: object
    def __call__(self, X, Z):
        import jax.numpy as jnp
        return jnp.exp(-0.5 * kernels.scaled_squared_distance(X, Z, self.length_scale))
    def diag(self, X):
        return X[:, 0] * 0.0 + 1.0

kernels.register(Mine, JaxMine)
X = np.linspace(0, 5, 40)[:, None]
model = NGDSVGPRegressor(1.0 * Mine(), n_inducing=8, max_iter=20)
scores = cross_val_score(model, X, np.sin(X[:, 0]), cv=2, n_jobs=2, error_score="raise")
assert np.all(np.isfinite(scores))
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_a_wiggly_function_gets_a_short_lengthscale(rng):
    """From lengthscales that are far too long the fit would call this noise."""
    X = rng.uniform(0, 10, size=(400, 1))
    y = np.sin(12 * X[:, 0]) + 0.1 * rng.normal(size=400)
    model = NGDSVGPRegressor(max_iter=300, random_state=0).fit(X[:300], y[:300])
    assert model.score(X[300:], y[300:]) > 0.9
    labels = y > 0
    clf = NGDSVGPClassifier(max_iter=300, random_state=0).fit(X[:300], labels[:300])
    assert clf.score(X[300:], labels[300:]) > 0.85
