"""The evidence lower bound: expected log-likelihood minus KL divergence."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from . import bases
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


def bound_given_q(parameters, m, S, batch, masks, jitter, scale):
    """The evidence lower bound, less the KL divergence of q(v) from its prior.

    That divergence depends on q alone, so that this is all that gradients in the
    parameters, and in the expected log-likelihood's moments, need.

    Parameters
    ----------
    parameters : Parameters
    m, S : arrays of shape (K, M) and (K, M, M)
        Moments of the whitened q(v).
    batch : Batch
    masks : bases.Masks
    jitter, scale : scalars
        ``scale`` = N / B multiplies the batch's sum, which makes it unbiased.
    """
    latent = bases.moments(
        exponential(parameters.log_kernel), parameters.points, masks, parameters.a, m, S, batch.X, jitter
    )
    likelihood = exponential(parameters.log_likelihood)
    # Rounding can leave a variance of exactly zero, whose square root has no derivative.
    var = jnp.maximum(latent.var, jnp.finfo(latent.var.dtype).tiny ** 0.5)
    each = likelihood.expected_log_prob(latent.mean, var, batch.y)
    total = jnp.where(batch.weight > 0.0, batch.weight * each, 0.0).sum()
    return scale * total - latent.kl_mean
