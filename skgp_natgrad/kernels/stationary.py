"""JAX kernels of the distance between two rows."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from .base import Kernel
from .distances import gaussian, matern12, matern32, matern52, safe_sqrt, scaled_squared_distance, squared_distance

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
