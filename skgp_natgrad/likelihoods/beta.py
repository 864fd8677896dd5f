"""The Beta likelihood of one latent function."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import betainc, expit

from .._backend.types import ArrayLike, Bounds
from ._base import RegressionLikelihood, bounded_exp
from ._transforms import unit_interval

# Smallest value of a and of b: below it, all of the mass is at one end, up to rounding.
_SMALLEST = 1e-8


def check_open_interval(likelihood, y):
    """Refuse targets outside the open interval (0, 1)."""
    likelihood._refuse(
        y,
        (y > 0) & (y < 1),
        "numbers in the open interval (0, 1)",
        "rescale y, and move zeros and ones inside, as by (y (n - 1) + 0.5) / n for n rows",
    )


# Coefficients of z^-1, z^-3, ... in Stirling's series.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_LOG_SQRT_2PI = float(0.5 * np.log(2.0 * np.pi))


def log_gamma_1p(x):
    """log Gamma(1 + x) of x >= 0, to rounding.

    Stirling's series at x + 8, and the recurrence back. With its derivative it costs
    a third of JAX's ``gammaln``, which a step evaluates hundreds of times per row.
    """
    z, product = x + 8.0, x + 1.0
    for i in range(2, 8):
        product = product * (x + i)
    inverse = 1.0 / z
    series = inverse * jnp.polyval(jnp.asarray(_STIRLING[::-1]), inverse * inverse)
    return (z - 0.5) * jnp.log(z) - z + _LOG_SQRT_2PI + series - jnp.log(product)


def log_beta_density(log_a, log_b, total, y):
    """Log density of Beta(a, b), from log(a), log(b) and a + b."""
    # By way of Gamma(x + 1), which has no pole where x is tiny.
    a, b = bounded_exp(log_a), bounded_exp(log_b)
    normaliser = log_gamma_1p(total) - jnp.log(total) - log_gamma_1p(a) + log_a - log_gamma_1p(b) + log_b
    return normaliser + (a - 1.0) * jnp.log(y) + (b - 1.0) * jnp.log1p(-y)


def beta_variance(mean, rest, total):
    """The variance of Beta(a, b) from its mean, 1 less its mean, and a + b; positive also where it underflows."""
    return jnp.maximum(mean * rest / (1.0 + total), jnp.finfo(mean.dtype).tiny ** 0.5)


def draw_beta(a, b, rng):
    """Draw Beta numbers strictly inside (0, 1)."""
    a, b = (np.maximum(np.asarray(x), _SMALLEST) for x in (a, b))
    return np.clip(rng.beta(a, b), np.finfo(float).tiny, 1.0 - np.finfo(float).epsneg)


def beta_cdf(a, b, y):
    """P(Y <= y) of Beta numbers."""
    return betainc(np.maximum(a, _SMALLEST), np.maximum(b, _SMALLEST), np.clip(y, 0.0, 1.0))


class Beta(RegressionLikelihood):
    """Fractions with a Beta density of mean m = sigmoid(f).

    The density is Beta(s m, s (1 - m)), s the concentration (Salimbeni, Eleftheriadis and
    Hensman 2018, footnote 3); Var[y | f] = m (1 - m) / (s + 1). If the spread depends on X too, see `ChainedBeta`.

    Parameters
    ----------
    concentration : float or array of shape (n_outputs,), default=10.0
        Initial concentration s.
    concentration_bounds : pair of floats or "fixed", default=(1e-2, 1e5)
        Bounds of the concentration while training.

    Examples
    --------
    >>> from skgp_natgrad.likelihoods import Beta
    >>> Beta(concentration=50.0)
    Beta(concentration=50.0)
    """

    name = "beta"
    support = unit_interval
    parameters = ("concentration",)

    def __init__(self, concentration: ArrayLike = 10.0, concentration_bounds: Bounds = (1e-2, 1e5)) -> None:
        self.concentration = concentration
        self.concentration_bounds = concentration_bounds

    def check_targets(self, y):
        check_open_interval(self, y)

    def initial_latent(self, y, weight, n_classes):
        mean = np.average(y, axis=1, weights=weight)
        return np.log(mean) - np.log1p(-mean)

    def log_prob(self, f, y):
        s = self.concentration
        return log_beta_density(jnp.log(s) + jax.nn.log_sigmoid(f), jnp.log(s) + jax.nn.log_sigmoid(-f), s, y)

    def conditional_moments(self, f):
        mean, rest = jax.nn.sigmoid(f), jax.nn.sigmoid(-f)
        return mean, beta_variance(mean, rest, self.concentration)

    def conditional_cdf(self, f, y):
        return beta_cdf(self.concentration * expit(f), self.concentration * expit(-f), y)

    def sample(self, f, rng):
        return draw_beta(self.concentration * jax.nn.sigmoid(f), self.concentration * jax.nn.sigmoid(-f), rng)
