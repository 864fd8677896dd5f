"""The evidence lower bound: expected log-likelihood minus KL divergence.

Where earlier data enter through a posterior, their site's expectation is added.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ..likelihoods import Likelihood
from . import bases, streaming


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
    correlation : scalar
        Of the noise of the batch before with this one's (`batches.noise_correlation`).
    """

    X: jax.Array
    y: jax.Array
    weight: jax.Array
    columns: jax.Array
    correlation: jax.Array | float = 0.0


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
    site : streaming.Site, optional
        What earlier data said; None where there are none.
    """

    log_bounds: tuple
    masks: bases.Masks
    offset: jax.Array
    scale: jax.Array
    weight: jax.Array
    jitter: jax.Array
    point_rate: jax.Array
    site: streaming.Site | None = None


class Latent(NamedTuple):
    """What the bound knows of q: the latent moments at a batch's rows, and the site of earlier data."""

    rows: bases.Moments
    site: streaming.Carried | None


def exponential(tree):
    """Return the parameters whose logarithms are the leaves of ``tree``."""
    return jax.tree.map(jnp.exp, tree)


def factors(basis, parameters, problem):
    """The factor of Kzz for each kernel; None where the basis has no use for it."""
    if not bases.BASES[basis].natural:
        return None
    kernels = exponential(parameters.log_kernels)
    return bases.factors(kernels, parameters.points, problem.masks, problem.jitter)


def latent_moments(basis, parameters, m, S, X, problem, columns=None, known_factors=None):
    """Latent moments at the rows of ``X``, the prior mean included."""
    kernels, (points, weights) = exponential(parameters.log_kernels), parameters[2:]
    moments = bases.moments(
        basis, kernels, points, problem.masks, weights, m, S, X, problem.jitter, columns, known_factors
    )
    return moments._replace(mean=moments.mean + problem.offset)


def expected_log_likelihood(parameters, mean, var, batch):
    """The weighted sum of E[log p(y | f)] over a batch, for latent moments (K, B)."""
    likelihood = exponential(parameters.log_likelihood)
    each = likelihood.expected_log_prob(mean, var, batch.y)
    return jnp.where(batch.weight > 0.0, batch.weight * each, 0.0).sum()


def bound_and_moments(basis, parameters, m, S, batch, problem, known_factors=None, widening=0.0):
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
    known_factors : tuple of bases.Factor, optional
        What `factors` returns, where it is known already.
    widening : scalar
        Added to all latent variances; zero, for the sake of the derivative.

    Returns
    -------
    bound : scalar
    latent : Latent
    """
    columns = None if batch.columns.shape[-1] == problem.masks.Z_mean.shape[0] else batch.columns
    rows = latent_moments(basis, parameters, m, S, batch.X, problem, columns, known_factors)
    rows = rows._replace(var=rows.var + widening)
    latent = Latent(rows, _carried_site(parameters, problem))
    return _bound(parameters, latent, m, S, batch, problem), latent


def _carried_site(parameters, problem):
    if problem.site is None:
        return None
    kernels = exponential(parameters.log_kernels)
    return streaming.carried(problem.site, kernels, parameters.points.Z, problem.masks.Z, problem.jitter)


def _bound(parameters, latent, m, S, batch, problem):
    rows = latent.rows
    bound = problem.scale * expected_log_likelihood(parameters, rows.mean, rows.var, batch) - rows.kl
    return bound if latent.site is None else bound + streaming.expectation(latent.site, m, S)


def bound_after(parameters, latent, q, q_new, batch, problem):
    """The bound of ``q_new``, less its divergence, from the ``latent`` of ``q``."""
    rows = bases.moved(latent.rows, q_new.mean - q.mean, q_new.cov)
    return _bound(parameters, latent._replace(rows=rows), q_new.mean, q_new.cov, batch, problem)


def bound_given_q(*arguments):
    """The first of what `bound_and_moments` returns."""
    return bound_and_moments(*arguments)[0]


def concave_gradient(parameters, latent, batch, problem):
    """The gradient of the bound in S (K, M, M), of rows whose log-likelihood has negative curvature alone.

    The precision after a natural gradient step along it is positive definite
    whatever the step: the curvature of the other rows is clipped to zero, and a
    site has none of these.
    """
    rows = latent.rows
    v = jax.grad(expected_log_likelihood, argnums=2)(parameters, rows.mean, rows.var, batch)
    concave = problem.scale * bases.pulled_back(rows, jnp.minimum(v, 0.0))
    return concave if latent.site is None else concave - 0.5 * latent.site.precision
