"""Likelihoods with two latent functions per target."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from .._backend.linalg import normal_nodes
from .._backend.types import Array, Floats
from ._base import RegressionLikelihood, over_observed, with_axes
from ._distribution import expected
from ._quadrature import log_expectation

# Nodes along each of the two axes.
TRAINING_NODES = 20
PREDICTION_NODES = 64
DENSITY_NODES = 40
_CDF_NODES = 40
# Of f given g in training: exact to 1e-9, where the nodes of g leave 1e-3 at a latent variance of one, 1e-9 at 0.1.
_TRAINING_DENSITY_NODES = 24


@functools.cache
def hermite_nodes(n_nodes):
    """Gauss-Hermite nodes and weights for the standard normal density.

    A training step can afford only few nodes along each of two axes. With so few they are more accurate than the evenly
    spaced ones of `normal_nodes`: for a Beta density of two latent functions, twenty have a relative error of 1e-10 at
    a latent variance of one, and of 1e-7 at four.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    return nodes, weights / weights.sum()


class TwoLatentLikelihood(RegressionLikelihood):
    """Two latent functions for each target column: f, and g (Saul et al. 2016, "chained" GPs).

    ``log_prob(f, g, y)`` and ``conditional_moments(f, g)`` are elementwise; everything
    else follows by product rules. The latent functions are ordered
    f_1, ..., f_T, g_1, ..., g_T.
    """

    def n_latent(self, n_targets, n_classes):
        return 2 * n_targets

    def log_prob(self, f: Array, g: Array, y: Array) -> Array:
        """Log density of ``y`` given its two latent values."""
        raise NotImplementedError

    def conditional_moments(self, f: Array, g: Array) -> tuple[Array, Array]:
        """Mean and variance of y given its two latent values, elementwise."""
        raise NotImplementedError

    def expectation_each(self, mean, var, y):
        f, g, weights = product_rule(mean, var, *hermite_nodes(TRAINING_NODES))
        return (with_axes(self, 2).log_prob(f, g, y[..., None, None]) * weights).sum((-2, -1))

    def log_density_each(self, mean, var, y):
        (f_mean, g_mean), (f_var, g_var) = halves(mean), halves(var)
        likelihood, y = with_axes(self, 2), y[..., None, None]

        def given_g(g):
            f_moments = (jnp.broadcast_to(x[..., None], g.shape) for x in (f_mean, f_var))
            return log_expectation(lambda f: likelihood.log_prob(f, g[..., None], y), *f_moments, DENSITY_NODES)

        return log_expectation(given_g, g_mean, g_var, DENSITY_NODES)

    def training_log_density(self, mean, var, y):
        return over_observed(self._training_density_each, mean, var, y)

    def _training_density_each(self, mean, var, y):
        # As the density, with fixed nodes for g: given g, only f has a narrow peak.
        (f_mean, g_mean), (f_var, g_var) = halves(mean), halves(var)
        nodes, weights = hermite_nodes(TRAINING_NODES)
        likelihood, g = with_axes(self, 2), g_mean[..., None] + jnp.sqrt(g_var)[..., None] * nodes
        f_moments = (jnp.broadcast_to(x[..., None], g.shape) for x in (f_mean, f_var))
        given_g = log_expectation(
            lambda f: likelihood.log_prob(f, g[..., None], y[..., None, None]), *f_moments, _TRAINING_DENSITY_NODES
        )
        return jax.scipy.special.logsumexp(given_g, b=weights, axis=-1)

    def predictive_moments(self, mean, var):
        f, g, weights = product_rule(mean, var, *normal_nodes(PREDICTION_NODES))
        each_mean, each_var = with_axes(self, 2).conditional_moments(f, g)
        y_mean = (each_mean * weights).sum((-2, -1))
        each_var = each_var + (each_mean - y_mean[..., None, None]) ** 2
        return y_mean, (each_var * weights).sum((-2, -1))

    def conditional_cdf(self, f: Floats, g: Floats, y: Floats) -> Floats:
        """P(Y <= y | f, g), elementwise, of NumPy arrays; it must be monotone in f."""
        return super().conditional_cdf(f, y)

    def predictive_cdf(self, mean, var, y):
        (f_mean, g_mean), (f_var, g_var) = np.split(mean, 2), np.split(var, 2)
        nodes, weights = hermite_nodes(_CDF_NODES)
        likelihood, y = with_axes(self, 2, np), y[..., None, None]
        g = g_mean[..., None] + np.sqrt(g_var)[..., None] * nodes
        f_moments = (np.broadcast_to(x[..., None], g.shape) for x in (f_mean, np.sqrt(f_var)))
        return expected(lambda f: likelihood.conditional_cdf(f, g[..., None], y), *f_moments) @ weights

    def latent_units(self, offset, scale):
        """The units of f; g is not a location, and keeps its own units."""
        f_offset, f_scale = (np.broadcast_to(x, np.shape(scale)) for x in super().latent_units(offset, scale))
        return np.concatenate([f_offset, 0.0 * f_offset]), np.concatenate([f_scale, np.ones_like(f_scale)])


def halves(x):
    """Split the rows of ``x`` (2 T, ...) into those of f and those of g."""
    return jnp.split(jnp.asarray(x), 2)


def product_rule(mean, var, nodes, weights):
    """Values of f (T, B, n, 1) and g (T, B, 1, n), and weights (n, n)."""
    f, g = halves(mean[..., None] + jnp.sqrt(var)[..., None] * nodes)
    return f[..., :, None], g[..., None, :], weights[:, None] * weights
