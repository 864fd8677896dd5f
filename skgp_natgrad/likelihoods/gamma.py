"""The Gamma likelihood."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from scipy.special import gammainc

from .._backend.types import ArrayLike, Bounds
from . import _distribution
from ._base import bounded_exp
from ._families import PositiveLikelihood, above_zero


class Gamma(PositiveLikelihood):
    """Positive numbers of mean mu = exp(f) and of variance mu^2 / shape.

    The noise is relative: its standard deviation is the same share of mu everywhere. E[log p] is elementary, as
    E[exp(-f)] = exp(-m + v / 2).

    Parameters
    ----------
    shape : float or array of shape (n_outputs,), default=2.0
        Initial shape; 1 is `Exponential`.
    shape_bounds : pair of floats or "fixed", default=(1e-2, 1e4)
        Bounds of the shape while training.

    Examples
    --------
    >>> from skgp_natgrad.likelihoods import Gamma
    >>> Gamma(shape=5.0)
    Gamma(shape=5.0)
    """

    name = "gamma"
    parameters = ("shape",)

    def __init__(self, shape: ArrayLike = 2.0, shape_bounds: Bounds = (1e-2, 1e4)) -> None:
        self.shape = shape
        self.shape_bounds = shape_bounds

    def _log_density(self, f, y, log_ratio):
        """The log density, where y exp(-f) or its expectation is exp(log_ratio)."""
        k = self.shape
        normaliser = k * jnp.log(k) - gammaln(k) + (k - 1.0) * jnp.log(y)
        return normaliser - k * (f + bounded_exp(log_ratio))

    def log_prob(self, f, y):
        return self._log_density(f, y, jnp.log(y) - f)

    def expectation_each(self, mean, var, y):
        return self._log_density(mean, y, jnp.log(y) - mean + 0.5 * var)

    def variance_coefficients(self):
        return 0.0, 1.0 / self.shape

    def conditional_cdf(self, f, y):
        return gammainc(self.shape, self.shape * np.maximum(y, 0.0) * _distribution.bounded_exp(-f))

    def sample(self, f, rng):
        shape = np.broadcast_to(self.shape, np.shape(f))
        return above_zero(bounded_exp(f) * rng.gamma(shape) / shape)
