"""The Gaussian likelihood."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from .._backend.types import Array, ArrayLike, Bounds
from ._base import LocationLikelihood
from ._distribution import normal_cdf

_LOG_2PI = float(np.log(2.0 * np.pi))


class Gaussian(LocationLikelihood):
    """y = f + noise with Gaussian noise.

    Parameters
    ----------
    variance : float or array of shape (n_outputs,), default=0.1
        Initial noise variance, in the squared units of the (normalised) target: with the default ``normalize_y=True``
        that of the noise divided by ``y.var()``, otherwise in the squared units of y, as ``alpha`` of ``fit`` always
        is. With the default kernel, 0.1 means that the initial value is estimated from the data; any other value, or a
        fixed one, is used as it is.
    variance_bounds : pair of floats or "fixed", default=(1e-8, 1e3)
        Bounds of the variance while training. With less noise, rounding errors would be fitted as signal. If y is only
        centred, both defaults are multiplied by its variance.
    inflation : float or array of shape (n_outputs,), default=1.0
        What ``likelihood_`` of a fit to few rows holds beside the variance: the factor of all predicted variances that
        allows for hyperparameters which so few rows do not determine. Read only where hyperparameters are kept
        (``optimizer=None``) and rows are few again.
    df : float, default=inf
        The degrees of freedom of the Student-t errors that belong to it.

    Examples
    --------
    >>> from skgp_natgrad.likelihoods import Gaussian
    >>> Gaussian(variance=0.5)
    Gaussian(variance=0.5)
    """

    name = "gaussian"
    powers = {"variance": 2}
    conjugate = True
    parameters = ("variance",)
    known = ("alpha",)

    def __init__(
        self,
        variance: ArrayLike = 0.1,
        variance_bounds: Bounds = (1e-8, 1e3),
        inflation: ArrayLike = 1.0,
        df: float = np.inf,
    ) -> None:
        self.variance = variance
        self.variance_bounds = variance_bounds
        self.inflation = inflation
        self.df = df

    def best_constant(self, y, weight, lower, upper):
        spread = np.average((y - np.average(y, axis=1, weights=weight)[:, None]) ** 2, axis=1, weights=weight)
        variance = np.clip(spread, np.ravel(lower.variance), np.ravel(upper.variance))
        return float(-0.5 * (_LOG_2PI + np.log(variance) + spread / variance).sum())

    def log_prob(self, f, y):
        return -0.5 * (_LOG_2PI + jnp.log(self.variance) + (y - f) ** 2 / self.variance)

    def expectation_each(self, mean, var, y):
        return self.log_prob(mean, y) - 0.5 * var / self.variance

    def log_density_each(self, mean, var, y):
        total = var + self.variance
        return -0.5 * (_LOG_2PI + jnp.log(total) + (y - mean) ** 2 / total)

    def given(self, known: Array | None) -> Gaussian:
        """Return the likelihood with known variances (T, B) added to that of the noise."""
        if known is None:
            return self
        # As users see it, that of several outputs has one axis.
        variance = self.variance[:, None] if np.ndim(self.variance) == 1 else self.variance
        return self.with_leaves([variance + known])

    def known_in_units(self, known, offset, scale):
        return known / scale[:, None] ** 2

    def noise_variance(self):
        return self.variance

    def conditional_cdf(self, f, y):
        return normal_cdf(f, self.variance, y)

    def predictive_cdf(self, mean, var, y):
        return normal_cdf(mean, var + self.variance, y)

    def predictive_quantile(self, mean, var, level):
        return mean + ndtri(level) * np.sqrt(var + self.variance)

    def sample(self, f, rng):
        return f + np.sqrt(self.variance) * rng.standard_normal(np.shape(f))
