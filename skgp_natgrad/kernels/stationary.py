"""JAX kernels of the distance between two rows: squared distances, radial functions of them, and the kernels.

Distances and radial functions have their own derivative rules. Derivatives of a distance need only products with
a cotangent, which also sum its rows and columns; the rows of a minibatch are constant
and get none. Derivatives of a radial function are taken in the squared distance, where
they are smooth (except for Matern 1/2): the chain rule through the square root is 0/0
where two points coincide.
"""

from __future__ import annotations

import functools
from typing import ClassVar

import jax
import jax.numpy as jnp

from .._backend.types import Array
from .base import Kernel

# The factors of the distance in Matern 3/2 and 5/2.
_SQRT3 = 3.0**0.5
_SQRT5 = 5.0**0.5


# If X has more columns than this, terms of a sum kernel with one lengthscale each share their distances. With
# fewer columns the product for the distances is faster than dividing shared distances by a lengthscale,
# forward and backward.
_FEW_COLUMNS = 32


def squared_distance(X: Array, Z: Array) -> Array:
    """Squared Euclidean distances between rows; differentiable in reverse mode.

    Parameters
    ----------
    X : array of shape (N, D)
    Z : array of shape (M, D)

    Returns
    -------
    square : array of shape (N, M)

    Examples
    --------
    >>> import numpy as np
    >>> from skgp_natgrad import kernels
    >>> np.asarray(kernels.squared_distance(np.zeros((1, 2)), np.array([[3.0, 4.0]]))).tolist()
    [[25.0]]
    """
    return _distance(X, Z, jnp.ones(X.shape[1], jnp.result_type(X)))


def scaled_squared_distance(X: Array, Z: Array, length_scale: Array | float) -> Array:
    """Squared distances in units of the lengthscales; differentiable in reverse mode.

    Parameters
    ----------
    X : array of shape (N, D)
    Z : array of shape (M, D)
    length_scale : scalar or array of shape (D,)

    Returns
    -------
    square : array of shape (N, M)

    Examples
    --------
    >>> import numpy as np
    >>> from skgp_natgrad import kernels
    >>> X, Z = np.zeros((1, 2)), np.array([[3.0, 4.0]])
    >>> np.asarray(kernels.scaled_squared_distance(X, Z, np.array([3.0, 2.0]))).tolist()
    [[5.0]]
    """
    rate = 1.0 / length_scale
    if jnp.size(rate) == 1 and X.shape[1] > _FEW_COLUMNS:
        return scaled(jnp.reshape(rate, ()) ** 2, squared_distance(X, Z))
    return _distance(X, Z, jnp.broadcast_to(rate, X.shape[1:]))


@jax.custom_vjp
def scaled(factor, A):
    """The scalar ``factor`` times the matrix ``A``.

    Its derivative in the factor sums a matrix by a product with ones: on a CPU a plain
    sum of this many numbers waits for each addition.
    """
    return factor * A


def _scaled_backward(saved, cotangent):
    factor, A = saved
    total = ((cotangent * A) @ jnp.ones(A.shape[1], A.dtype)).sum()
    return jnp.broadcast_to(total, jnp.shape(factor)), factor * cotangent


scaled.defvjp(lambda factor, A: (factor * A, (factor, A)), _scaled_backward)


@jax.custom_vjp
def _distance(X, Z, rate):
    """Squared distances of ``X`` and ``Z``, both multiplied by ``rate`` (D,)."""
    x, z = _centred(X, Z, rate)
    # One matrix product. Clipping removes negative values from cancellation, and infinity, which the radial
    # functions would multiply by zero.
    left = jnp.column_stack([-2.0 * x, (x * x).sum(1), jnp.ones_like(x[:, 0])])
    right = jnp.column_stack([z, jnp.ones_like(z[:, 0]), (z * z).sum(1)])
    return jnp.clip(left @ right.T, 0.0, jnp.finfo(x.dtype).max / 16.0)


def _centred(X, Z, rate):
    """Both scaled, relative to one point of ``X``: far from the origin, squares would lose all digits."""
    # A sum, for an X without rows. Not the mean: a set of points may be padded with zeros.
    centre = X[:1].sum(0)
    return (X - centre) * rate, (Z - centre) * rate


def _distance_forward(X, Z, rate):
    values = X.value, Z.value, rate.value
    # Which derivatives are needed, as a tree's structure, since it is not a number.
    moves = tuple(() if argument.perturbed else None for argument in (X, Z, rate))
    return _distance(*values), (values, moves)


def _distance_backward(saved, cotangent):
    (X, Z, rate), (X_moves, Z_moves, rate_moves) = saved
    x, z = _centred(X, Z, rate)
    X_bar, Z_bar, rate_bar = jax.tree.map(jnp.zeros_like, (X, Z, rate))
    if X_moves is not None or rate_moves is not None:
        total, of_z, of_square = _products(cotangent, z, squares=rate_moves is not None)
        X_bar = 2.0 * rate * (total * x - of_z)
        if rate_moves is not None:
            rate_bar = 2.0 / rate * ((total * x - 2.0 * of_z) * x + of_square).sum(0)
    if Z_moves is not None:
        total, of_x, _ = _products(cotangent.T, x)
        Z_bar = 2.0 * rate * (total * z - of_x)
    return X_bar, Z_bar, rate_bar


def _products(cotangent, z, squares=False):
    """The cotangent times ones, ``z``, and with ``squares`` the squares of ``z``: in one pass over it."""
    columns = [jnp.ones_like(z[:, :1]), z, *([z * z] if squares else [])]
    products = cotangent @ jnp.concatenate(columns, axis=1)
    return jnp.split(products, [1, 1 + z.shape[1]], axis=1)


_distance.defvjp(_distance_forward, _distance_backward, symbolic_zeros=True)


def _radial(value_and_slope):
    """A function of squared distances, given with its derivative."""

    @jax.custom_vjp
    def function(square):
        return value_and_slope(square)[0]

    def backward(square, cotangent):
        return (cotangent * value_and_slope(square)[1],)

    function.defvjp(lambda square: (function(square), square), backward)
    return functools.wraps(value_and_slope)(function)


@_radial
def matern12(square):
    """exp(-r), r the root of ``square``."""
    r = jnp.sqrt(square)
    value = jnp.exp(-r)
    return value, jnp.where(r > 0.0, -0.5 * value / jnp.where(r > 0.0, r, 1.0), 0.0)


@_radial
def matern32(square):
    """(1 + sqrt(3) r) exp(-sqrt(3) r)."""
    r = _SQRT3 * jnp.sqrt(square)
    decay = jnp.exp(-r)
    return (1.0 + r) * decay, -1.5 * decay


@_radial
def matern52(square):
    """(1 + sqrt(5) r + 5/3 r^2) exp(-sqrt(5) r)."""
    r = _SQRT5 * jnp.sqrt(square)
    decay = jnp.exp(-r)
    return (1.0 + r + r * r / 3.0) * decay, -(5.0 / 6.0) * (1.0 + r) * decay


@_radial
def gaussian(square):
    """exp(-r^2 / 2)."""
    value = jnp.exp(-0.5 * square)
    return value, -0.5 * value


def safe_sqrt(square):
    """The root, whose derivative at zero is zero."""
    positive = square > 0.0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)


_MATERN = {0.5: matern12, 1.5: matern32, 2.5: matern52, float("inf"): gaussian}


class UnitVariance(Kernel):
    """Kernels with k(x, x) = 1."""

    def diag(self, X):
        return jnp.ones(X.shape[0], X.dtype)


class RBF(UnitVariance):
    """k(x, z) = exp(-r^2 / 2), r the distance in lengthscales."""

    length_scale: jax.Array

    def __call__(self, X, Z):
        return gaussian(scaled_squared_distance(X, Z, self.length_scale))


class Matern(UnitVariance):
    """Matern kernel of smoothness ``nu`` in {1/2, 3/2, 5/2, inf}."""

    length_scale: jax.Array
    nu: float
    static: ClassVar[tuple] = ("nu",)

    def __post_init__(self):
        if self.nu not in _MATERN:
            raise ValueError(f"kernel contains Matern with nu={self.nu!r}; nu must be one of 0.5, 1.5, 2.5 and inf.")

    def __call__(self, X, Z):
        return _MATERN[self.nu](scaled_squared_distance(X, Z, self.length_scale))


class RationalQuadratic(UnitVariance):
    """k(x, z) = (1 + r^2 / (2 alpha))^-alpha, r the distance in lengthscales."""

    length_scale: jax.Array
    alpha: jax.Array
    per_column: ClassVar[tuple] = ()

    def __call__(self, X, Z):
        square = scaled_squared_distance(X, Z, self.length_scale)
        return jnp.exp(-self.alpha * jnp.log1p(square / (2.0 * self.alpha)))


class ExpSineSquared(UnitVariance):
    """k(x, z) = exp(-2 sin^2(pi d / periodicity) / length_scale^2), d the distance."""

    length_scale: jax.Array
    periodicity: jax.Array
    per_column: ClassVar[tuple] = ()

    def __call__(self, X, Z):
        distance = safe_sqrt(squared_distance(X, Z))
        sine = jnp.sin(jnp.pi * distance / self.periodicity)
        return jnp.exp(-2.0 * (sine / self.length_scale) ** 2)
