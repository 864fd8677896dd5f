"""The evidence lower bound: expected log-likelihood minus KL divergence."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from . import bases
from .likelihoods import Likelihood


class Parameters(NamedTuple):
    """Everything that is trained, besides q(v).

    Attributes
    ----------
    log_kernels : tuple of Kernel
        One kernel for all latent functions or one for each, their
        hyperparameters in logarithms.
    log_likelihood : Likelihood
        The likelihood, its parameters in logarithms.
    points : bases.Points
    weights : bases.Weights
    """

    log_kernels: tuple
    log_likelihood: Likelihood
    points: bases.Points
    weights: bases.Weights


class Batch(NamedTuple):
    """What one step sees.

    Attributes
    ----------
    X, y : arrays of shape (B, D) and (T, B)
    weight : array of shape (B,)
        Of padding, zero.
    columns : array of int of shape (C,)
        Columns of Kgg that stand for all; of all G, none is left to chance.
    """

    X: jax.Array
    y: jax.Array
    weight: jax.Array
    columns: jax.Array


class Problem(NamedTuple):
    """What stays fixed during a fit.

    Attributes
    ----------
    log_bounds : pair of (tuple of Kernel, Likelihood)
        Lower and upper bounds of the logarithms.
    masks : bases.Masks
    offset : array of shape (K, 1)
        The prior mean of the latent functions.
    scale : scalar
        N / B, which makes the batch's sum an unbiased estimate of the table's.
    weight : scalar
        Sum of all sample weights: gradients are taken per unit of weight.
    jitter : scalar
        Relative to the kernel's scale.
    point_rate : scalar
        One, or zero where the points stay in place.
    """

    log_bounds: tuple
    masks: bases.Masks
    offset: jax.Array
    scale: jax.Array
    weight: jax.Array
    jitter: jax.Array
    point_rate: jax.Array


def exponential(tree):
    """Return the parameters whose logarithms are the leaves of ``tree``."""
    return jax.tree.map(jnp.exp, tree)


def latent_moments(basis, parameters, m, S, X, problem, columns=None):
    """Latent moments at the rows of ``X``, the prior mean included."""
    kernels = exponential(parameters.log_kernels)
    moments = bases.moments(
        basis, kernels, parameters.points, problem.masks, parameters.weights, m, S, X, problem.jitter, columns
    )
    return _positive(moments._replace(mean=moments.mean + problem.offset))


def _positive(moments):
    # Rounding can leave a variance of exactly zero, whose square root has no derivative.
    return moments._replace(var=jnp.maximum(moments.var, jnp.finfo(moments.var.dtype).tiny ** 0.5))


def after(latent, dm, dS):
    """The latent moments after the moments of q(v) have changed by ``dm`` and ``dS``."""
    return _positive(bases.shifted(latent, dm, dS))


def expected_log_likelihood(parameters, mean, var, batch):
    """The weighted sum of E[log p(y | f)] over a batch, for latent moments (K, B)."""
    likelihood = exponential(parameters.log_likelihood)
    each = likelihood.expected_log_prob(mean, var, batch.y)
    return jnp.where(batch.weight > 0.0, batch.weight * each, 0.0).sum()


def bound_and_moments(basis, parameters, m, S, batch, problem):
    """The evidence lower bound, less the KL divergence of q(v) from its prior.

    That divergence depends on q alone, so that this is all that gradients in the
    parameters, and in the expected log-likelihood's moments, need.

    Parameters
    ----------
    basis : str
        Name in ``bases.BASES``.
    parameters : Parameters
    m, S : arrays of shape (K, M) and (K, M, M)
        Moments of the whitened q(v).
    batch : Batch
    problem : Problem

    Returns
    -------
    bound : scalar
    latent : bases.Moments
        At the rows of the batch.
    """
    columns = None if batch.columns.shape[-1] == problem.masks.Z_mean.shape[0] else batch.columns
    latent = latent_moments(basis, parameters, m, S, batch.X, problem, columns)
    return bound_of_moments(parameters, latent, batch, problem), latent


def bound_of_moments(parameters, latent, batch, problem):
    """The same for given latent moments."""
    return problem.scale * expected_log_likelihood(parameters, latent.mean, latent.var, batch) - latent.kl


def bound_given_q(*arguments):
    """The first of what `bound_and_moments` returns."""
    return bound_and_moments(*arguments)[0]


def concave_gradient(parameters, latent, batch, problem):
    """The gradient of the bound in S (K, M, M), of rows whose log-likelihood has negative curvature alone.

    The precision after a natural gradient step along it is positive definite
    whatever the step: the curvature of the other rows is clipped to zero.
    """
    v = jax.grad(expected_log_likelihood, argnums=2)(parameters, latent.mean, latent.var, batch)
    return problem.scale * bases.pulled_back(latent, jnp.minimum(v, 0.0))
