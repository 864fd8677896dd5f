"""The base classes of the likelihoods with E[y | f] = exp(f)."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from scipy.special import gammaincc

from .._backend.types import Array
from . import _distribution
from ._base import RegressionLikelihood, bounded_exp
from ._transforms import positive

# NumPy draws no Poisson numbers of a larger mean.
_LARGEST_RATE = 1e18


class LogLinkLikelihood(RegressionLikelihood):
    """E[y | f] = mu = exp(f), and Var[y | f] = a mu + b mu^2.

    The moments of a log-normal mu give those of y in closed form.
    """

    def variance_coefficients(self) -> tuple[Array | float, Array | float]:
        """a and b of the conditional variance a mu + b mu^2."""
        raise NotImplementedError

    def initial_latent(self, y, weight, n_classes):
        mean = np.average(y, axis=1, weights=weight)
        # A column of zeros counts as half an event.
        return np.log(np.where(mean > 0.0, mean, 0.5 / weight.sum(-1)))

    def without_offset(self, y, weight, offset):
        # Rates: their average, weighted by the exposure, is the total number of events over the total exposure.
        exposure = _distribution.bounded_exp(offset)
        return y / exposure, weight * exposure

    def conditional_moments(self, f):
        linear, quadratic = self.variance_coefficients()
        mean = bounded_exp(f)
        return mean, linear * mean + quadratic * mean**2

    def predictive_mean(self, mean, var):
        return bounded_exp(mean + 0.5 * var)

    def predictive_moments(self, mean, var):
        linear, quadratic = self.variance_coefficients()
        y_mean = self.predictive_mean(mean, var)
        var = jnp.minimum(var, _distribution.LARGEST_VARIANCE)
        return y_mean, linear * y_mean + y_mean**2 * (jnp.expm1(var) + quadratic * jnp.exp(var))


class CountLikelihood(LogLinkLikelihood):
    """A likelihood of counts with E[y | f] = exp(f)."""

    discrete = True

    def check_targets(self, y):
        self._refuse(
            y,
            (y >= 0) & (y == np.floor(y)),
            "counts, the integers 0, 1, 2, ...",
            'round them, or take "gamma" for positive and "gaussian" for any numbers',
        )


class PositiveLikelihood(LogLinkLikelihood):
    """A likelihood of positive numbers with E[y | f] = exp(f)."""

    support = positive

    def check_targets(self, y):
        self._refuse(
            y,
            y > 0,
            "positive numbers",
            'leave these rows out, or take "poisson" for counts and "gaussian" for any numbers',
        )


def poisson_cdf(f, y):
    """P(Y <= y) of Poisson numbers of mean exp(f)."""
    return np.where(y < 0, 0.0, gammaincc(np.floor(np.maximum(y, 0.0)) + 1.0, _distribution.bounded_exp(f)))


def draw_counts(rate, rng):
    """Draw Poisson numbers of mean ``rate``."""
    return rng.poisson(np.minimum(rate, _LARGEST_RATE)).astype(float)


def above_zero(draws):
    """Raise draws that have underflowed to the smallest positive number."""
    return np.maximum(draws, np.finfo(float).tiny)
