"""The Gaussian likelihood of censored values."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from scipy.special import ndtri

from .._backend.types import Array, ArrayLike, Bounds
from ._base import RegressionLikelihood
from ._distribution import normal_cdf
from ._quadrature import expectation, log_ndtr

_LOG_2PI = float(np.log(2.0 * np.pi))
# Beyond so many deviations from the mean a normal density underflows.
_REACH = 40.0


class Censored(RegressionLikelihood):
    """y = f + noise with Gaussian noise, observed only between two limits (Tobin 1958).

    A y at or below ``lower`` only tells that the value is at most ``lower`` (a concentration below the limit of
    detection). A y at or above ``upper`` only tells that the value is at least ``upper`` (sales of an item that was
    sold out). Predictions are for the observed value, f + noise clipped to the limits, which has a probability at each
    limit; `predict_latent` is for f itself. With the limits ``-inf`` and ``inf`` it is `Gaussian`.

    Parameters
    ----------
    lower : float or array of shape (n_outputs,), default=0.0
        Lower limit in the units of y; -inf for none.
    upper : float or array of shape (n_outputs,), default=inf
        Upper limit in the units of y; inf for none.
    variance : float or array of shape (n_outputs,), default=0.1
        Initial noise variance, in the squared units of the (normalised) target.
    variance_bounds : pair of floats or "fixed", default=(1e-6, 1e3)
        Bounds of the variance while training. If y is only centred, both defaults are multiplied by its variance.

    References
    ----------
    J. Tobin (1958). "Estimation of Relationships for Limited Dependent Variables." Econometrica 26.

    Examples
    --------
    >>> from skgp_natgrad.likelihoods import Censored
    >>> Censored(lower=0.5, upper=20.0)
    Censored(lower=0.5, upper=20.0)
    """

    name = "censored"
    powers = {"variance": 2}
    parameters = ("variance",)
    standardises = True
    known = ("lower", "upper")
    mixed = True

    def __init__(
        self,
        lower: ArrayLike = 0.0,
        upper: ArrayLike = np.inf,
        variance: ArrayLike = 0.1,
        variance_bounds: Bounds = (1e-6, 1e3),
    ) -> None:
        self.lower = lower
        self.upper = upper
        self.variance = variance
        self.variance_bounds = variance_bounds

    # -- the limits --------------------------------------------------------------------------

    def value_and_bounds(self, n_targets):
        self.known_everywhere(n_targets)
        return super().value_and_bounds(n_targets)

    def known_everywhere(self, n_targets):
        label = f"likelihood Censored(lower={self.lower!r}, upper={self.upper!r})"
        try:
            lower, upper = (np.broadcast_to(np.asarray(x, float), n_targets) for x in (self.lower, self.upper))
        except (TypeError, ValueError):
            raise ValueError(f"{label}: give a number each, or one for each of the {n_targets} columns of y.") from None
        if not np.all(lower < upper):
            raise ValueError(f"{label}: lower must be below upper; use -inf or inf where there is no limit.")
        return np.concatenate([lower, upper])[:, None]

    def known_in_units(self, known, offset, scale):
        return (known - np.tile(offset, 2)[:, None]) / np.tile(scale, 2)[:, None]

    def _limits(self):
        """The limits in the units of the model; without rows there are none."""
        return (-np.inf, np.inf) if self.rows is None else self.rows

    def observed(self, y, rounding=0.0):
        for limits in (self.lower, self.upper):
            limit = np.reshape(np.asarray(limits, float), (-1,) + (1,) * (np.ndim(y) - 1))
            # Where there is no limit the difference is infinite. A limit may have no single precision number.
            is_limit = (np.abs(y - limit) <= rounding) | (y == limit.astype(np.float32))
            y = np.where(is_limit, limit, y)
        return y

    def has_mass(self, y):
        lower, upper = self._limits()
        return (y <= lower) | (y >= upper)

    def without_offset(self, y, weight, offset):
        return y - offset[: len(y)], weight

    def noise_variance(self) -> Array:
        """Variance of the noise before it is censored, (T, 1)."""
        return self.variance

    # -- training ------------------------------------------------------------------------------

    def _by_side(self, y, inside, beyond):
        """``inside`` between the limits, and ``beyond(side, limit)`` of values that are not above, or not below it."""
        found = inside
        for side, limit in zip((1.0, -1.0), self._limits(), strict=True):
            is_beyond = side * y <= side * limit
            # What is not taken has a finite derivative, too.
            found = jnp.where(is_beyond, beyond(side, jnp.where(is_beyond, limit, y)), found)
        return found

    def _log_density(self, mean, var, y):
        """The log density, or the log probability of a censored y, of a normal value."""
        deviation = jnp.sqrt(var)
        inside = -0.5 * (_LOG_2PI + jnp.log(var) + ((y - mean) / deviation) ** 2)
        return self._by_side(y, inside, lambda side, limit: log_ndtr(side * (limit - mean) / deviation))

    def log_prob(self, f, y):
        return self._log_density(f, self.variance, y)

    def log_density_each(self, mean, var, y):
        return self._log_density(mean, var + self.variance, y)

    def expectation_each(self, mean, var, y):
        noise = jnp.sqrt(self.variance)
        inside = -0.5 * (_LOG_2PI + jnp.log(self.variance) + ((y - mean) ** 2 + var) / self.variance)
        deviation = jnp.sqrt(var) / noise

        def beyond(side, limit):
            return expectation(log_ndtr, side * (limit - mean) / noise, deviation)

        return self._by_side(y, inside, beyond)

    # -- predictions: of a normal value clipped to the limits ---------------------------------------

    def conditional_moments(self, f):
        return self.predictive_moments(f, jnp.zeros_like(f))

    def predictive_moments(self, mean, var):
        deviation = jnp.sqrt(var + self.variance)
        lower, upper = (
            # An infinite number has no derivative.
            jnp.where(jnp.isfinite(limit), (jnp.where(jnp.isfinite(limit), limit, 0.0) - mean) / deviation, side)
            for limit, side in zip(self._limits(), (-np.inf, np.inf), strict=True)
        )
        # The nearest value that can be seen, and the distances to both sides of it, all in deviations from the mean.
        nearest = jnp.clip(0.0, lower, upper)
        lower, upper = jnp.maximum(lower, -_REACH), jnp.minimum(upper, _REACH + nearest)
        lower = jnp.minimum(lower, nearest)
        (above, above_squared), (below, below_squared) = _capped(nearest, upper), _capped(-nearest, -lower)
        y_var = deviation**2 * (above_squared + below_squared - (above - below) ** 2)
        # Far beyond a limit it underflows; a density would be divided by it.
        return mean + deviation * (nearest + above - below), jnp.maximum(y_var, jnp.finfo(y_var.dtype).tiny)

    def predictive_mean(self, mean, var):
        return self.predictive_moments(mean, var)[0]

    def conditional_cdf(self, f, y):
        return self.predictive_cdf(f, 0.0, y)

    def predictive_cdf(self, mean, var, y):
        lower, upper = self._limits()
        inside = normal_cdf(mean, var + self.variance, y)
        return np.where(y < lower, 0.0, np.where(y >= upper, 1.0, inside))

    def predictive_quantile(self, mean, var, level):
        return np.clip(mean + ndtri(level) * np.sqrt(var + self.variance), *self._limits())

    def sample(self, f, rng):
        value = f + np.sqrt(self.variance) * rng.standard_normal(np.shape(f))
        return np.clip(value, *self._limits())


def _capped(start, end):
    """Mean and mean square of min((u - start)+, end - start) of a standard normal u, for start <= end."""
    (first, first_squared), (last, last_squared) = _excess(start), _excess(end)
    return first - last, first_squared - last_squared - 2.0 * (end - start) * last


def _excess(z):
    """Mean and mean square of (u - z)+ of a standard normal u."""
    density, beyond = norm.pdf(z), norm.cdf(-z)
    return density - z * beyond, (1.0 + z * z) * beyond - z * density
