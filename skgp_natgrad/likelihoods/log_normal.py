"""The log-normal likelihood."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from .._backend.types import ArrayLike, Bounds
from . import _distribution
from ._base import bounded_exp
from ._families import PositiveLikelihood, above_zero

_LOG_2PI = float(np.log(2.0 * np.pi))


class LogNormal(PositiveLikelihood):
    """Positive numbers whose logarithm is f plus Gaussian noise.

    The noise is relative, as in `Gamma`, with a longer tail of large values. The median of y given f is exp(f), and its
    mean exp(f + variance / 2). All predictions are of y itself, not of its logarithm.

    Parameters
    ----------
    variance : float or array of shape (n_outputs,), default=0.1
        Initial variance of the logarithm's noise.
    variance_bounds : pair of floats or "fixed", default=(1e-6, 1e3)
        Bounds of the variance while training.

    Examples
    --------
    >>> from skgp_natgrad.likelihoods import LogNormal
    >>> LogNormal(variance=0.5)
    LogNormal(variance=0.5)
    """

    name = "lognormal"
    parameters = ("variance",)

    def __init__(self, variance: ArrayLike = 0.1, variance_bounds: Bounds = (1e-6, 1e3)) -> None:
        self.variance = variance
        self.variance_bounds = variance_bounds

    def initial_latent(self, y, weight, n_classes):
        return np.average(np.log(y), axis=1, weights=weight)

    def without_offset(self, y, weight, offset):
        return y / _distribution.bounded_exp(offset), weight

    def _log_density(self, mean, var, y):
        log_y = jnp.log(y)
        return -0.5 * (_LOG_2PI + jnp.log(var) + (log_y - mean) ** 2 / var) - log_y

    def log_prob(self, f, y):
        return self._log_density(f, self.variance, y)

    def expectation_each(self, mean, var, y):
        return self.log_prob(mean, y) - 0.5 * var / self.variance

    def log_density_each(self, mean, var, y):
        return self._log_density(mean, var + self.variance, y)

    def conditional_moments(self, f):
        return self.predictive_moments(f, jnp.zeros_like(f))

    def predictive_mean(self, mean, var):
        return bounded_exp(mean + 0.5 * (var + self.variance))

    def predictive_moments(self, mean, var):
        y_mean = self.predictive_mean(mean, var)
        return y_mean, y_mean**2 * jnp.expm1(jnp.minimum(var + self.variance, _distribution.LARGEST_VARIANCE))

    def conditional_cdf(self, f, y):
        return self.predictive_cdf(f, 0.0, y)

    def predictive_cdf(self, mean, var, y):
        log_y = np.log(np.maximum(y, np.finfo(float).tiny))
        return np.where(y > 0.0, _distribution.normal_cdf(mean, var + self.variance, log_y), 0.0)

    def predictive_quantile(self, mean, var, level):
        return above_zero(_distribution.bounded_exp(mean + ndtri(level) * np.sqrt(var + self.variance)))

    def sample(self, f, rng):
        noise = np.sqrt(self.variance) * rng.standard_normal(np.shape(f))
        return above_zero(_distribution.bounded_exp(np.asarray(f) + noise))
