"""The exponential likelihood."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from . import _distribution
from ._base import bounded_exp
from ._families import PositiveLikelihood, above_zero


class Exponential(PositiveLikelihood):
    """Positive numbers, such as waiting times, with an exponential density of mean exp(f).

    E[log p] = -m - y exp(-m + v / 2).

    Examples
    --------
    >>> from skgp_natgrad.likelihoods import Exponential
    >>> Exponential()
    Exponential()
    """

    name = "exponential"

    def log_prob(self, f, y):
        return -f - bounded_exp(jnp.log(y) - f)

    def expectation_each(self, mean, var, y):
        return -mean - bounded_exp(jnp.log(y) - mean + 0.5 * var)

    def variance_coefficients(self):
        return 0.0, 1.0

    def conditional_cdf(self, f, y):
        return -np.expm1(-np.maximum(y, 0.0) * _distribution.bounded_exp(-f))

    def sample(self, f, rng):
        return above_zero(rng.exponential(np.asarray(bounded_exp(f))))
