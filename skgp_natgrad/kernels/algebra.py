"""The JAX kernels of a constant and of an inner product; sums, products, powers and multiples of kernels."""

from __future__ import annotations

import numbers
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from .base import Kernel
from .stationary import scaled


class Constant(Kernel):
    """k(x, z) = constant_value."""

    constant_value: jax.Array
    per_column: ClassVar[tuple] = ()

    def __call__(self, X, Z):
        return jnp.broadcast_to(self.constant_value, (X.shape[0], Z.shape[0]))

    def diag(self, X):
        return jnp.broadcast_to(self.constant_value, (X.shape[0],))


class DotProduct(Kernel):
    """k(x, z) = sigma_0^2 + x . z."""

    sigma_0: jax.Array
    per_column: ClassVar[tuple] = ()

    def __call__(self, X, Z):
        return self.sigma_0**2 + X @ Z.T

    def diag(self, X):
        return self.sigma_0**2 + (X * X).sum(1)


class Sum(Kernel):
    """k1 + k2."""

    k1: Kernel
    k2: Kernel

    def __call__(self, X, Z):
        return self.k1(X, Z) + self.k2(X, Z)

    def diag(self, X):
        return self.k1.diag(X) + self.k2.diag(X)


class Product(Kernel):
    """k1 * k2."""

    k1: Kernel
    k2: Kernel

    def __call__(self, X, Z):
        for factor, kernel in ((self.k1, self.k2), (self.k2, self.k1)):
            if isinstance(factor, Constant):
                return scaled(factor.constant_value, kernel(X, Z))
        return self.k1(X, Z) * self.k2(X, Z)

    def diag(self, X):
        return self.k1.diag(X) * self.k2.diag(X)


class Exponentiation(Kernel):
    """kernel ** exponent."""

    kernel: Kernel
    exponent: float
    static: ClassVar[tuple] = ("exponent",)

    def __post_init__(self):
        if not (isinstance(self.exponent, numbers.Real) and self.exponent > 0):
            raise ValueError(
                f"kernel contains Exponentiation with exponent={self.exponent!r}; exponent must be a positive number."
            )

    def __call__(self, X, Z):
        return self._power(self.kernel(X, Z))

    def diag(self, X):
        return self._power(self.kernel.diag(X))

    def _power(self, values):
        if self.exponent >= 1.0:
            return values**self.exponent
        # A root has no derivative at zero, which a kernel that underflows may reach.
        is_zero = values == 0.0
        return jnp.where(is_zero, 0.0, jnp.where(is_zero, 1.0, values) ** self.exponent)


def amplitudes(kernel: Kernel) -> Kernel:
    """A kernel of the same form with ones at the constants that multiply the whole kernel, and zeros elsewhere.

    A kernel without such constants has only zeros.

    Parameters
    ----------
    kernel : Kernel

    Returns
    -------
    kernel : Kernel

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import kernels
    >>> found = kernels.amplitudes(kernels.from_sklearn(4.0 * RBF(), n_features=1).value)
    >>> float(found.k1.constant_value), float(found.k2.length_scale)
    (1.0, 0.0)
    """
    found = _amplitudes(kernel)
    return jax.tree.map(np.zeros_like, kernel) if found is None else found


def _amplitudes(kernel):
    """As `amplitudes`; None if the kernel has no such constants."""
    if isinstance(kernel, Constant):
        return jax.tree.map(np.ones_like, kernel)
    if isinstance(kernel, Sum):
        parts = _amplitudes(kernel.k1), _amplitudes(kernel.k2)
        return None if None in parts else Sum(*parts)
    if isinstance(kernel, Product):
        for first, second in (("k1", "k2"), ("k2", "k1")):
            part = _amplitudes(getattr(kernel, first))
            if part is not None:
                other = jax.tree.map(np.zeros_like, getattr(kernel, second))
                return Product(**{first: part, second: other})
    return None


def multiplied(log_kernel, log_scale):
    """The kernel times a number, as logarithms."""
    return jax.tree.map(lambda value, part: value + part * log_scale, log_kernel, amplitudes(log_kernel))


def room(kernel, lower, upper):
    """The range of logarithms by which a kernel may be multiplied; zero to zero if it has no factor of its own."""
    low, high = -np.inf, np.inf
    for value, least, most, part in zip(*map(jax.tree.leaves, (kernel, lower, upper, amplitudes(kernel))), strict=True):
        if np.any(part):
            low, high = max(low, np.max(least - value)), min(high, np.min(most - value))
    has_factor = any(np.any(part) for part in jax.tree.leaves(amplitudes(kernel)))
    return (min(low, 0.0), max(high, 0.0)) if has_factor else (0.0, 0.0)
