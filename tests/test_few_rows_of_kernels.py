"""Covariances with few rows by NumPy, beside scikit-learn's."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, ExpSineSquared, Matern, RationalQuadratic

from skgp_natgrad import kernels
from skgp_natgrad.kernels import few_rows

MATRIX = [[1.0, 0.0], [-0.5, 2.0], [0.3, 1.0]]


@pytest.mark.parametrize("n_rows", [1, few_rows.MOST_ROWS, few_rows.MOST_ROWS + 1])
@pytest.mark.parametrize(
    "kernel",
    [
        RBF([1.0, 2.0, 3.0]),
        *(Matern([0.7, 1.0, 2.0], nu=nu) for nu in (0.5, 1.2, 1.5, 2.5, np.inf)),
        RationalQuadratic(0.8, 1.7),
        2.0 * RBF(1.2) + ConstantKernel(0.3) * Matern(nu=1.5) ** 2 + 0.5 * DotProduct(),
        kernels.Columns(RBF([1.0, 2.0]), [-1, 0]) * ExpSineSquared(1.3),
        3.0 * kernels.LinearTransform(RBF([1.0, 2.0]), MATRIX) + kernels.LinearTransform(DotProduct(), MATRIX),
        ConstantKernel(2.0) * ConstantKernel(3.0),
    ],
    ids=str,
)
def test_values_are_those_of_the_kernel(rng, kernel, n_rows):
    Z, X = rng.normal(size=(30, 3)), rng.normal(size=(n_rows, 3))
    X[:1] = Z[:1]
    assert_allclose(few_rows.covariances(kernel, Z, X), kernel(Z, X), rtol=1e-12, atol=1e-14)


class Half(RBF):
    """A kernel of a user's own that is derived from one of scikit-learn's."""

    def __call__(self, X, Y=None, eval_gradient=False):
        return 0.5 * super().__call__(X, Y, eval_gradient)


def test_a_kernel_that_is_derived_computes_for_itself(rng):
    Z, X = rng.normal(size=(30, 3)), rng.normal(size=(2, 3))
    for kernel in (Half(), 2.0 * Half() + RBF()):
        assert_allclose(few_rows.covariances(kernel, Z, X), kernel(Z, X), rtol=1e-12)
