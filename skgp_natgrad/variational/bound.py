"""The bound that training raises: the objective's sum over the rows, minus the KL divergence.

If earlier data enter through a posterior, its expectation is added.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from . import bases, points, streaming
from .model import kernels_of, likelihood_of


class Latent(NamedTuple):
    """The part of q that the bound needs: the latent moments at a batch's rows, and the projected past posterior."""

    rows: bases.Moments
    past: streaming.ProjectedPast | None


def factors(basis, parameters, constants):
    """The factor of Kzz for each kernel; None if the basis does not need it."""
    if not bases.BASES[basis].natural:
        return None
    return points.factors(kernels_of(parameters), parameters.points, constants.masks, constants.jitter)


def latent_moments(basis, parameters, m, S, X, constants, columns=None, known_factors=None):
    """Latent moments at the rows of ``X``, including the prior mean."""
    moments = bases.moments(
        basis,
        kernels_of(parameters),
        parameters.points,
        constants.masks,
        parameters.weights,
        m,
        S,
        X,
        constants.jitter,
        columns,
        known_factors,
        constants.objective.needs_residual,
    )
    return moments._replace(mean=moments.mean + constants.prior_mean)


def data_term(parameters, constants, mean, var, batch, residual=None):
    """The weighted sum of the objective over a batch, for latent moments (K, B)."""
    likelihood = likelihood_of(parameters).given(batch.known)
    each = constants.objective.data_term(likelihood, mean, var, residual, batch.y)
    return jnp.where(batch.weight > 0.0, batch.weight * each, 0.0).sum()


def bound_and_moments(basis, parameters, m, S, batch, constants, known_factors=None, widening=0.0):
    """The evidence lower bound, less the KL divergence of q(v) from its prior.

    That divergence depends only on q, so that this is enough for gradients in the
    parameters, and in the moments on which the expected log-likelihood depends.

    Parameters
    ----------
    basis : str
        Name in ``bases.BASES``.
    parameters : Parameters
    m, S : arrays of shape (K, M) and (K, M, M)
        Moments of the whitened q(v).
    batch : Batch
    constants : Constants
    known_factors : tuple of bases.Factor, optional
        The result of `factors`, if it is already known.
    widening : scalar
        Added to all latent variances; it is zero, and present for its derivative.

    Returns
    -------
    bound : scalar
    latent : Latent
    """
    columns = batch.columns
    if columns is not None and columns.shape[-1] == constants.masks.Z_mean.shape[0]:
        columns = None
    here = constants._replace(prior_mean=batch.prior_mean(constants))
    rows = latent_moments(basis, parameters, m, S, batch.X, here, columns, known_factors)
    rows = rows._replace(var=rows.var + widening)
    latent = Latent(rows, _projected_past(parameters, constants))
    return _bound(parameters, latent, m, S, batch, constants), latent


def _projected_past(parameters, constants):
    if constants.past is None:
        return None
    return streaming.project(
        constants.past, kernels_of(parameters), parameters.points.Z, constants.masks.Z, constants.jitter
    )


def _bound(parameters, latent, m, S, batch, constants):
    rows = latent.rows
    bound = constants.scale * data_term(parameters, constants, rows.mean, rows.var, batch, rows.residual) - rows.kl
    return bound if latent.past is None else bound + streaming.expectation(latent.past, m, S)


def bound_after(parameters, latent, q, q_new, batch, constants):
    """The bound of ``q_new``, without its divergence, computed from the ``latent`` of ``q``."""
    rows = bases.moved(latent.rows, q_new.mean - q.mean, q_new.cov)
    return _bound(parameters, latent._replace(rows=rows), q_new.mean, q_new.cov, batch, constants)


def bound_given_q(*arguments):
    """The first result of `bound_and_moments`."""
    return bound_and_moments(*arguments)[0]


def concave_gradient(parameters, latent, batch, constants):
    """The gradient of the bound in S (K, M, M), from only those rows whose log-likelihood has negative curvature.

    The precision after a natural gradient step along it is positive definite for
    every step size: the curvature of the other rows is clipped to zero, and a
    past posterior has no such curvature.
    """
    rows = latent.rows
    v = _gradient_in_variance(parameters, latent, batch, constants)
    concave = constants.scale * bases.pulled_back(rows, jnp.minimum(v, 0.0))
    return concave if latent.past is None else concave - 0.5 * latent.past.precision


def whole_curvature(parameters, latent, batch, constants):
    """-2 dE/dS between all variables of q (K, M, M), also between its blocks; without the past posterior."""
    v = _gradient_in_variance(parameters, latent, batch, constants)
    return -2.0 * constants.scale * bases.whole_gram(latent.rows, v)


def _gradient_in_variance(parameters, latent, batch, constants):
    rows = latent.rows
    return jax.grad(data_term, argnums=3)(parameters, constants, rows.mean, rows.var, batch, rows.residual)
