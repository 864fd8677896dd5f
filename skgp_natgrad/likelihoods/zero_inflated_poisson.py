"""The zero-inflated Poisson likelihood."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from .._backend.linalg import normal_nodes
from .._backend.types import ArrayLike, Bounds
from ._base import TRAINING_NODES, bounded_exp, with_axes
from ._families import CountLikelihood, draw_counts, poisson_cdf
from ._transforms import unit_interval

# Largest latent value: the probability that a Poisson count of mean exp(80) is zero underflows.
_NEVER_ZERO = 80.0


class ZeroInflatedPoisson(CountLikelihood):
    """Counts with more zeros than a Poisson distribution has (Lambert 1992).

    With probability pi the count is zero, for every value of f; otherwise it is a Poisson count of mean exp(f)::

        p(0 | f) = pi + (1 - pi) exp(-exp(f))
        p(y | f) = (1 - pi) exp(f y - exp(f)) / y!    for y = 1, 2, ...

    With mu = exp(f), E[y | f] = (1 - pi) mu and Var[y | f] = (1 - pi) (mu + pi mu^2): `predict` returns
    the mean of all counts, the excess zeros included. The expectation of log p(y | f) has a closed
    form where y is positive. Where y is zero it is computed by quadrature: with pi of at least 0.1 to 1e-8 if the
    latent standard deviation is at most two, with pi of 1e-4 to 1e-6 if it is at most one.

    Parameters
    ----------
    zero_probability : float or array of shape (n_outputs,), default=0.1
        Initial probability pi of an excess zero, in (0, 1).
    zero_probability_bounds : pair of floats or "fixed", default=(1e-4, 0.9999)
        Bounds of the probability while training.

    Examples
    --------
    >>> from skgp_natgrad.likelihoods import ZeroInflatedPoisson
    >>> ZeroInflatedPoisson(zero_probability=0.3)
    ZeroInflatedPoisson(zero_probability=0.3)
    """

    name = "zero_inflated_poisson"
    parameters = ("zero_probability",)
    transforms = {"zero_probability": unit_interval}

    def __init__(self, zero_probability: ArrayLike = 0.1, zero_probability_bounds: Bounds = (1e-4, 0.9999)) -> None:
        self.zero_probability = zero_probability
        self.zero_probability_bounds = zero_probability_bounds

    def initial_latent(self, y, weight, n_classes):
        # The mean of the rows without the excess zeros.
        start = self.value_and_bounds(len(y))[0].zero_probability[:, 0]
        return super().initial_latent(y, weight, n_classes) - np.log1p(-start)

    def _log_counted(self):
        """log(1 - pi)."""
        return jnp.log1p(-self.zero_probability)

    def _log_prob_of_zero(self, f):
        rate = bounded_exp(jnp.minimum(f, _NEVER_ZERO))
        return jnp.logaddexp(jnp.log(self.zero_probability), self._log_counted() - rate)

    def _log_prob_of_count(self, f, log_rate, y):
        """The log probability of a positive count, where exp(f) or its expectation is exp(log_rate)."""
        # Not taken where y is zero, but its derivative must be finite there too.
        log_rate = jnp.where(y > 0.0, log_rate, jnp.minimum(log_rate, _NEVER_ZERO))
        return self._log_counted() + y * f - bounded_exp(log_rate) - gammaln(y + 1.0)

    def log_prob(self, f, y):
        return jnp.where(y > 0.0, self._log_prob_of_count(f, f, y), self._log_prob_of_zero(f))

    def expectation_each(self, mean, var, y):
        nodes, weights = normal_nodes(TRAINING_NODES)
        f = mean[..., None] + jnp.sqrt(var)[..., None] * nodes
        of_zero = with_axes(self, 1)._log_prob_of_zero(f) @ weights
        return jnp.where(y > 0.0, self._log_prob_of_count(mean, mean + 0.5 * var, y), of_zero)

    # (1 - pi) exp(f) is the exponential of f + log(1 - pi): in terms of the mean m, the variance is
    # m + pi / (1 - pi) m^2, so that the moments of a log link hold.

    def variance_coefficients(self):
        return 1.0, self.zero_probability / (1.0 - self.zero_probability)

    def conditional_moments(self, f):
        return super().conditional_moments(f + self._log_counted())

    def predictive_mean(self, mean, var):
        return super().predictive_mean(mean + self._log_counted(), var)

    def conditional_cdf(self, f, y):
        return np.where(y < 0, 0.0, self.zero_probability + (1.0 - self.zero_probability) * poisson_cdf(f, y))

    def sample(self, f, rng):
        counts = draw_counts(bounded_exp(f), rng)
        return np.where(rng.uniform(size=counts.shape) < self.zero_probability, 0.0, counts)
