"""The evidence lower bound: expected log-likelihood minus KL divergence."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from . import bases, gaussians
from .kernels import Kernel
from .likelihoods import Likelihood


class Parameters(NamedTuple):
    """Everything that gradient steps train.

    Attributes
    ----------
    log_kernel : Kernel
        The kernel, its hyperparameters in logarithms.
    log_likelihood : Likelihood
        The likelihood, its parameters in logarithms.
    points : Points
    a : array of shape (K, G)
        Weights of the mean-only points.
    """

    log_kernel: Kernel
    log_likelihood: Likelihood
    points: bases.Points
    a: jax.Array


class Batch(NamedTuple):
    """Rows X (B, D), y (T, B) and their weights (B,); padding has weight zero."""

    X: jax.Array
    y: jax.Array
    weight: jax.Array


def exponential(tree):
    """Return the parameters whose logarithms are the leaves of ``tree``."""
    return jax.tree.map(jnp.exp, tree)


def expected_log_likelihood(parameters, m, S, batch, masks, jitter):
    """Weighted sum of E[log p(y | f)] over the batch, and the mean-only KL.

    Returns
    -------
    expectation, kl_mean : scalars
    """
    latent = bases.moments(
        exponential(parameters.log_kernel), parameters.points, masks, parameters.a, m, S, batch.X, jitter
    )
    likelihood = exponential(parameters.log_likelihood)
    # Rounding can leave a variance of exactly zero, whose square root has no derivative.
    var = jnp.maximum(latent.var, jnp.finfo(latent.var.dtype).tiny ** 0.5)
    each = likelihood.expected_log_prob(latent.mean, var, batch.y)
    return jnp.where(batch.weight > 0.0, batch.weight * each, 0.0).sum(), latent.kl_mean


def elbo(parameters, q, batch, masks, jitter, scale):
    """The bound, its batch part multiplied by ``scale`` = N / B: unbiased."""
    expectation, kl_mean = expected_log_likelihood(parameters, q.mean, q.cov, batch, masks, jitter)
    return scale * expectation - kl_mean - gaussians.kl_to_standard(q)
