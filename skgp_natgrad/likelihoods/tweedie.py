"""The Tweedie likelihood."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from scipy.special import gammainc
from scipy.special import gammaln as log_gamma

from .._backend.types import ArrayLike, Bounds
from . import _distribution
from ._base import bounded_exp
from ._families import LogLinkLikelihood, draw_counts
from ._transforms import Transform, positive, unit_interval

_POWER = Transform(
    name="one_to_two",
    to_raw=lambda value: unit_interval.to_raw(value - 1.0),
    from_raw=lambda raw, xp: 1.0 + unit_interval.from_raw(raw, xp),
    allows=lambda value: (value > 1.0) & (value < 2.0),
    values="strictly between 1 and 2",
    bounds="numbers strictly between 1 and 2",
)
# Terms of a sum over the number of jumps. All are neighbours, until the largest terms are more than a hundred: then the
# sum is an integral, whose trapezoidal rule converges geometrically. Beyond so many deviations terms are negligible.
_TERMS = 100
_REACH = 8.5
# Of so many jumps the sum is around their rate; Stirling's series has one term beyond a number, and so has the deviance
# of a relative distance a few below another.
_MANY, _FEW, _SMALL = 1e6, 1e3, 1e-4
_HALF_LOG_2PI = 0.5 * float(np.log(2.0 * np.pi))


def _numbers(centre, deviation, xp):
    """Numbers of jumps (..., n) around ``centre``, from one on, and their spacing (...)."""
    spacing = xp.maximum(1.0, 2.0 * _REACH * deviation / (_TERMS - 1))
    first = xp.maximum(1.0, xp.floor(centre - 0.5 * spacing * (_TERMS - 1)))
    return first[..., None] + spacing[..., None] * np.arange(_TERMS), spacing


def _log_poisson(rate, distance):
    """Logarithms of Poisson probabilities at the numbers rate + distance, which are one or more.

    By the saddle point (Loader 2000): no large terms are subtracted from each other.
    """
    number, x = rate + distance, distance / rate
    small = np.clip(x, -_SMALL, _SMALL)
    series = small**2 * (1.0 / 2.0 - small / 6.0 + small**2 / 12.0)
    deviance = np.where(x == small, series, (1.0 + x) * np.log1p(x) - x)
    few = np.minimum(number, _FEW)
    of_few = log_gamma(few + 1.0) - (few + 0.5) * np.log(few) + few - _HALF_LOG_2PI
    stirling = np.where(number > _FEW, 1.0 / (12.0 * number), of_few)
    return -rate * deviance - _HALF_LOG_2PI - 0.5 * np.log(number) - stirling


class Tweedie(LogLinkLikelihood):
    """Numbers of at least zero, of mean mu = exp(f) and of variance dispersion mu^power, for 1 < power < 2.

    A sum of a Poisson number of Gamma distributed jumps, such as the claims of a year or the rain of a day: zero with
    probability exp(-rate), rate = mu^(2 - power) / (dispersion (2 - power)), and otherwise positive. Near power one y
    is dispersion times a Poisson count, near power two `Gamma`. The density is the series of Dunn and Smyth (2005),
    whose terms do not depend on f, so that E[log p] is elementary.

    Parameters
    ----------
    power : float or array of shape (n_outputs,), default=1.5
        Initial power of the mean in the variance.
    dispersion : float or array of shape (n_outputs,), default=1.0
        Initial dispersion.
    power_bounds : pair of floats or "fixed", default=(1.05, 1.95)
        Bounds of the power while training.
    dispersion_bounds : pair of floats or "fixed", default=(1e-5, 1e5)
        Bounds of the dispersion while training.

    References
    ----------
    P. K. Dunn, G. K. Smyth (2005). "Series evaluation of Tweedie exponential dispersion model densities." Statistics
    and Computing 15.

    Examples
    --------
    >>> from skgp_natgrad.likelihoods import Tweedie
    >>> Tweedie(power=1.6, power_bounds="fixed")
    Tweedie(power=1.6, power_bounds='fixed')
    """

    name = "tweedie"
    parameters = ("power", "dispersion")
    transforms = {"power": _POWER}
    support = positive
    atom = 0.0
    mixed = True

    def __init__(
        self,
        power: ArrayLike = 1.5,
        dispersion: ArrayLike = 1.0,
        power_bounds: Bounds = (1.05, 1.95),
        dispersion_bounds: Bounds = (1e-5, 1e5),
    ) -> None:
        self.power = power
        self.dispersion = dispersion
        self.power_bounds = power_bounds
        self.dispersion_bounds = dispersion_bounds

    def check_targets(self, y):
        self._refuse(
            y,
            y >= 0,
            "numbers of at least zero",
            'leave these rows out, or take "gaussian" for any numbers',
        )

    # -- the law: `rate` jumps of Gamma distribution ------------------------------------------

    def _shape(self):
        """The shape of a jump's Gamma distribution."""
        return (2.0 - self.power) / (self.power - 1.0)

    def _log_rate(self, f, xp=jnp):
        """Logarithm of the mean number of jumps."""
        return (2.0 - self.power) * f - xp.log(self.dispersion * (2.0 - self.power))

    def _log_inverse_scale(self, f, xp=jnp):
        """Logarithm of the inverse of the jumps' scale."""
        return -(self.power - 1.0) * f - xp.log(self.dispersion * (self.power - 1.0))

    def _log_series(self, y):
        """log sum_j of (r y^a)^j / (j! Gamma(j a)) / y, with r = rate / scale^a, which no f is in: (...)."""
        a = self._shape()
        log_base = a * (jnp.log(y) + self._log_inverse_scale(0.0)) + self._log_rate(0.0)
        # The largest term, and the curvature of the terms' logarithms there (equations 15 and 18).
        centre = jnp.exp((2.0 - self.power) * jnp.log(y)) / (self.dispersion * (2.0 - self.power))
        centre = jax.lax.stop_gradient(jnp.broadcast_to(centre, jnp.broadcast_shapes(jnp.shape(y), jnp.shape(a))))
        j, spacing = _numbers(centre, jnp.sqrt(centre / jax.lax.stop_gradient(1.0 + a)), jnp)
        terms = j * log_base[..., None] - gammaln(j + 1.0) - gammaln(j * a[..., None])
        return jax.scipy.special.logsumexp(terms, axis=-1) + jnp.log(spacing) - jnp.log(y)

    def _log_prob(self, log_rate, log_jumps, y, is_zero):
        """The log density, where the rate and y over the jumps' scale, or their expectations, are exponentials."""
        jumps = jnp.where(is_zero, 0.0, self._log_series(y) - bounded_exp(log_jumps))
        return jumps - bounded_exp(log_rate)

    def log_prob(self, f, y):
        return self._expected(f, 0.0, y)

    def expectation_each(self, mean, var, y):
        return self._expected(mean, var, y)

    def _expected(self, mean, var, y):
        is_zero = y == 0.0
        y = jnp.where(is_zero, 1.0, y)
        log_rate = self._log_rate(mean) + 0.5 * (2.0 - self.power) ** 2 * var
        log_jumps = self._log_inverse_scale(mean) + 0.5 * (self.power - 1.0) ** 2 * var + jnp.log(y)
        # Not taken where y is zero, but its derivative must be finite there too.
        log_jumps = jnp.where(is_zero, 0.0, log_jumps)
        return self._log_prob(log_rate, log_jumps, y, is_zero)

    # -- predictions -------------------------------------------------------------------------

    def conditional_moments(self, f):
        return bounded_exp(f), self.dispersion * bounded_exp(self.power * f)

    def predictive_moments(self, mean, var):
        y_mean = self.predictive_mean(mean, var)
        within = self.dispersion * bounded_exp(self.power * mean + 0.5 * self.power**2 * var)
        return y_mean, within + y_mean**2 * jnp.expm1(jnp.minimum(var, _distribution.LARGEST_VARIANCE))

    def conditional_cdf(self, f, y):
        rate = _distribution.bounded_exp(self._log_rate(f, np))
        y = np.maximum(y, -1.0)
        jumps = np.maximum(y, 0.0) * _distribution.bounded_exp(self._log_inverse_scale(f, np))
        j, spacing = _numbers(rate, np.sqrt(rate), np)
        rates, spacing = rate[..., None], spacing[..., None]
        # Of many jumps the numbers around the rate have fewer digits than their distances from it.
        around = spacing * (np.arange(_TERMS) - 0.5 * (_TERMS - 1))
        weight = np.exp(_log_poisson(rates, np.where(rates > _MANY, around, j - rates))) * spacing
        shape = np.broadcast_to(self._shape(), rate.shape)[..., None]
        positive_part = (weight * gammainc(j * shape, jumps[..., None])).sum(-1)
        return np.where(y < 0.0, 0.0, np.minimum(np.exp(-rate) + positive_part, 1.0))

    def sample(self, f, rng):
        f = np.asarray(f)
        n_jumps = draw_counts(_distribution.bounded_exp(self._log_rate(f, np)), rng)
        total = rng.gamma(n_jumps * np.broadcast_to(self._shape(), f.shape))
        return total * _distribution.bounded_exp(-self._log_inverse_scale(f, np))
