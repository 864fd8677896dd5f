"""Covariances of few rows in NumPy, against the kernels of JAX and of scikit-learn."""

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, ExpSineSquared, Matern, RationalQuadratic

from skgp_natgrad import kernels
from skgp_natgrad._backend.flat import flat, rebuilt
from skgp_natgrad.choose import without_xla
from skgp_natgrad.choose.covariances import Compiled, covariance_of, programs_of
from skgp_natgrad.kernels import Columns, Laplacian
from skgp_natgrad.kernels.tied import Tied

LENGTHS = [0.7, 1.9, 3.0]
OWNER = (0, 1, 0)
KERNELS = {
    "rough": 1.3 * Matern(LENGTHS, nu=0.5),
    "sum": 0.4 * Matern(LENGTHS, nu=1.5) + 2.0 * RBF(LENGTHS) + 0.1 * DotProduct(0.6) + 1.1 * Matern(LENGTHS, nu=2.5),
    "isotropic": 0.4 * Matern(1.7, nu=2.5) + 2.0 * RBF(0.9),
    "season": 0.4 * Matern(1.7, nu=0.5) + 0.7 * DotProduct(0.6) ** 2 + 2.0 * ExpSineSquared(0.9, 1.3),
    "absolute differences": 1.3 * Laplacian(LENGTHS) + 0.6 * Laplacian(1.7),
    "effects": 1.3 * Matern(LENGTHS, nu=0.5) + 0.3 * Columns(RBF(0.7), [2, 0]) + 0.8 * Columns(Laplacian(0.9), 1),
    "growing season": 0.8 * (ExpSineSquared(0.9, 1.3) * DotProduct(0.8) ** 2),
}


def logs_of(kernel):
    return jax.tree.map(np.log, kernels.from_sklearn(kernel, 3).value)


def tied_logs_of(kernel):
    """Two of the three columns share their lengthscales."""
    return Tied.of(jax.tree.map(lambda each: each[np.array(OWNER)] if np.ndim(each) else each, logs_of(kernel)), OWNER)


def cotangents(rng, n):
    return rng.normal(size=n), np.triu(rng.normal(size=(n, n)), 1)


@pytest.mark.parametrize("logs_of", [logs_of, tied_logs_of])
@pytest.mark.parametrize("name", KERNELS)
def test_value_and_gradient_are_those_of_the_compiled_programs(rng, x64, name, logs_of):
    X, log_kernel = 5.0 + rng.normal(size=(64, 3)), logs_of(KERNELS[name])
    found = without_xla.Covariance(without_xla.terms_of(log_kernel), X)
    expected, given = Compiled(programs_of(log_kernel), X), cotangents(rng, 64)
    for _ in range(2):
        # The same arrays are used for other hyperparameters.
        x = flat(log_kernel) + 0.3 * rng.normal(size=flat(log_kernel).size)
        assert_allclose(found.of_rows(x), expected.of_rows(x), rtol=1e-12, atol=1e-14)
        assert_allclose(found.pulled_back(*given), expected.pulled_back(*given), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", KERNELS)
def test_the_value_is_scikit_learns_and_the_gradient_that_of_differences(rng, name):
    X, log_kernel = rng.normal(size=(20, 3)), logs_of(KERNELS[name])
    found, x = without_xla.Covariance(without_xla.terms_of(log_kernel), X), flat(log_kernel)
    assert_allclose(found.of_rows(x), KERNELS[name](X), rtol=1e-10, atol=1e-12)
    diagonal, rest = cotangents(rng, 20)
    gradient = found.pulled_back(diagonal, rest)

    def value(x):
        K = kernels.to_sklearn(KERNELS[name], jax.tree.map(np.exp, rebuilt(x, log_kernel)))(X)
        return (rest * K).sum() + diagonal @ np.diag(K)

    for i in range(len(x)):
        step = 1e-6 * (np.arange(len(x)) == i)
        assert_allclose(gradient[i], (value(x + step) - value(x - step)) / 2e-6, rtol=1e-5, atol=1e-7)


def test_other_kernels_and_more_rows_are_compiled(rng):
    X = rng.normal(size=(8, 3))
    for other in (ConstantKernel(2.0) * RationalQuadratic(), RBF(1.0), 1.0 * (RBF(1.0) * RationalQuadratic())):
        assert isinstance(covariance_of(logs_of(other), X), Compiled)
    few = covariance_of(logs_of(KERNELS["sum"]), X)
    assert isinstance(few, without_xla.Covariance)
    more = rng.normal(size=(without_xla.MOST_ROWS + 1, 3))
    assert isinstance(covariance_of(logs_of(KERNELS["sum"]), more), Compiled)


def test_what_is_not_finite_is_left_to_the_caller(rng):
    found = without_xla.Covariance(without_xla.terms_of(logs_of(KERNELS["rough"])), rng.normal(size=(5, 3)))
    assert not np.all(np.isfinite(found.of_rows(np.full(4, 1e4))))
    # Equal rows have no slope.
    twice = without_xla.Covariance(without_xla.terms_of(logs_of(KERNELS["rough"])), np.ones((4, 3)))
    twice.of_rows(np.zeros(4))
    assert np.all(np.isfinite(twice.pulled_back(np.ones(4), np.triu(np.ones((4, 4)), 1))))


def test_nearly_equal_rows_do_not_spoil_the_gradient(rng):
    """Their squared distance rounds to nothing, or to little more."""
    X = np.repeat(3.0 + rng.normal(size=(10, 3)), 2, axis=0)
    X[1::2, 2] += 1e-11
    log_kernel = logs_of(1.0 * Matern([1.0, 1.0, 30.0], nu=0.5))
    found, x = without_xla.Covariance(without_xla.terms_of(log_kernel), X), flat(log_kernel)
    diagonal, rest = cotangents(rng, 20)
    found.of_rows(x)
    gradient = found.pulled_back(diagonal, rest)
    for i in range(len(x)):
        step = 1e-5 * (np.arange(len(x)) == i)
        two = [
            (rest * found.of_rows(x + sign * step)).sum() + diagonal.sum() * np.exp(x[0] + sign * step[0])
            for sign in (1, -1)
        ]
        assert_allclose(gradient[i], (two[0] - two[1]) / 2e-5, rtol=1e-2, atol=2e-2)


def test_a_periodic_kernel_keeps_the_digits_of_small_distances():
    """Where the length scale is as small as the distance in periods, beside extended precision."""
    distance, length_scale = 1e-5 * np.arange(1, 6), 1e-4
    X = np.r_[0.0, distance][:, None]
    log_kernel = jax.tree.map(np.log, kernels.from_sklearn(1.0 * ExpSineSquared(length_scale, 1.3), 1).value)
    found = without_xla.Covariance(without_xla.terms_of(log_kernel), X).of_rows(flat(log_kernel))
    angle = np.longdouble("3.14159265358979323846") * distance.astype(np.longdouble) / np.longdouble(1.3)
    expected = np.exp(-2.0 * (np.sin(angle) / np.longdouble(length_scale)) ** 2)
    assert_allclose(found[0, 1:], expected.astype(float), rtol=1e-14)
