"""The Beta likelihood of two latent functions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ._base import bounded_exp
from ._families import TwoLatentLikelihood, halves
from ._transforms import unit_interval
from .beta import beta_cdf, beta_variance, check_open_interval, draw_beta, log_beta_density

# Above it, the Gamma functions of a and b differ by less than their rounding.
_LARGEST_LOG = 30.0


class ChainedBeta(TwoLatentLikelihood):
    """Fractions with the density Beta(exp(f), exp(g)): location and spread both depend on X.

    Two latent functions per target (Saul et al. 2016, "Chained Gaussian Processes"). The
    odds of the mean are exp(f - g).

    Examples
    --------
    >>> from skgp_natgrad.likelihoods import ChainedBeta
    >>> ChainedBeta()
    ChainedBeta()
    """

    name = "chained_beta"
    support = unit_interval

    def check_targets(self, y):
        check_open_interval(self, y)

    def initial_latent(self, y, weight, n_classes):
        # By the method of moments: Var[y] = m (1 - m) / (a + b + 1).
        mean = np.average(y, axis=1, weights=weight)
        var = np.average((y - mean[:, None]) ** 2, axis=1, weights=weight)
        total = np.clip(mean * (1.0 - mean) / np.maximum(var, 1e-12) - 1.0, 0.1, 1e4)
        return np.log(np.concatenate([total * mean, total * (1.0 - mean)]))

    def log_prob(self, f, g, y):
        f, g = (jnp.minimum(x, _LARGEST_LOG) for x in (f, g))
        return log_beta_density(f, g, bounded_exp(f) + bounded_exp(g), y)

    def conditional_moments(self, f, g):
        mean, rest = jax.nn.sigmoid(f - g), jax.nn.sigmoid(g - f)
        return mean, beta_variance(mean, rest, bounded_exp(jnp.logaddexp(f, g)))

    def conditional_cdf(self, f, g, y):
        return beta_cdf(np.exp(np.minimum(f, _LARGEST_LOG)), np.exp(np.minimum(g, _LARGEST_LOG)), y)

    def sample(self, f, rng):
        return draw_beta(*halves(bounded_exp(f)), rng)
