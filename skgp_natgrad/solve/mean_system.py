"""The linear system whose solution is the mean on all points.

Given hyperparameters, the best mean on the points a (inducing points and mean-only
points together) solves one symmetric system (appendix D of the orthogonal paper).
Rows are whitened by these points, A = L_a^-1 K_aX with K_aa = L_a L_a^T: the mean is
A^T w, its divergence from the prior is |w|^2 / 2, and the system is

    (I + A Lam A^T) w = A Lam z

with Lam = 1 / noise and z = y for a Gaussian likelihood. For other likelihoods
Newton's method repeats it with Lam = -2 dE/dvar and z = mean + Lam^-1 dE/dmean. (In
the kernel's own coordinates the matrix is K_aX Lam K_Xa + K_aa, whose condition number
is that of K_aa squared.) Inducing points come first in L_a, so that w holds the mean m
of q(v) and the weights L_gg^T a of the mean-only points, where
L_gg L_gg^T = Kgg - Kgz Kzz^-1 Kzg.

The covariance takes the corresponding natural gradient step of size one,
S^-1 = I + A_z Lam A_z^T. The data is read in blocks of rows: one pass per iteration,
2 N P^2 operations for P points, P^2 memory for each latent function.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve

from .._backend import placement
from .._backend.device import quick_jit
from .._backend.linalg import definite_cholesky, one_by_one, weighted_gram
from ..training.batches import bucket, padded, placed
from ..variational import gaussian
from ..variational.bound import data_term
from ..variational.model import Batch
from ..variational.points import by_kernel
from .system import BLOCK_ROWS, rows_of


class Iterate(NamedTuple):
    """The mean's whitened weights on all points (K, P), and q(v), whose mean is not used."""

    w: jax.Array
    q: gaussian.Gaussian


class Statistics(NamedTuple):
    """Sums over the rows.

    Attributes
    ----------
    gram : array of shape (K, P, P)
        A Lam A^T.
    nat1 : array of shape (K, P)
        A Lam z.
    curvature : array of shape (K, M, M)
        A_z Lam A_z^T, where Lam may be negative.
    expectation : scalar
        The expected log-likelihood.
    """

    gram: jax.Array
    nat1: jax.Array
    curvature: jax.Array
    expectation: jax.Array


def _moments(position, prior_mean, rows):
    """Latent mean and variance, and the prior variance that the inducing points do not explain: (K, B) each."""
    mean, var, residual = [], [], []
    for of_kernel, latents in by_kernel(rows, len(position.w)):
        S = position.q.cov[latents]
        own = of_kernel.first(S.shape[-1])
        mean.append(of_kernel.mean(position.w[latents]))
        var.append(own.var(own.spread(S)))
        residual.append(jnp.broadcast_to(of_kernel.residual, var[-1].shape))
    mean, var, residual = map(jnp.concatenate, (mean, var, residual))
    return prior_mean + mean, var, residual


def latent(parameters, prior, position, constants, batch):
    """The result of `_moments` at the rows of a batch, and A (J, P, B)."""
    rows = rows_of(parameters, prior, batch.X, position.q.cov.shape[-1])
    return _moments(position, batch.prior_mean(constants), rows), jnp.stack([of_kernel.A for of_kernel in rows])


def slopes(parameters, constants, moments, batch):
    """The data term, g = dE/dmean and lam = -2 dE/dvar (K, B), including the rows' weights."""
    mean, var, residual = moments

    def term(mean, var):
        return data_term(parameters, constants, mean, var, batch, residual)

    value, (g, v) = jax.value_and_grad(term, argnums=(0, 1))(mean, var)
    return value, g, -2.0 * v


@functools.partial(jax.jit, donate_argnames="statistics")
def _add_block(statistics, parameters, prior, position, constants, batch):
    """Add a block of rows to the statistics."""
    moments, A = latent(parameters, prior, position, constants, batch)
    value, g, lam = slopes(parameters, constants, moments, batch)
    # With a negative curvature the parabola of the mean has no maximum; the covariance does not need one.
    convex = jnp.maximum(lam, 0.0)
    z = convex * (moments[0] - batch.prior_mean(constants)) + g
    A_z = A[:, : statistics.curvature.shape[-1]]
    return Statistics(
        statistics.gram + weighted_gram(A, convex),
        statistics.nat1 + jnp.einsum("kb,kpb->kp", z, jnp.broadcast_to(A, (len(z), *A.shape[1:]))),
        statistics.curvature + weighted_gram(A_z, lam),
        statistics.expectation + value,
    )


@jax.jit
def _add_expectations(totals, candidates, parameters, prior, constants, batch):
    """Add a block's data term for each pair of a likelihood and a position."""
    rows = rows_of(parameters, prior, batch.X, candidates[0][1].q.cov.shape[-1])
    added = []
    for total, (raw_likelihood, position) in zip(totals, candidates, strict=True):
        under = parameters._replace(raw_likelihood=raw_likelihood)
        mean, var, residual = _moments(position, batch.prior_mean(constants), rows)
        added.append(total + data_term(under, constants, mean, var, batch, residual))
    return added


def bounds(candidates, parameters, prior, constants, rows):
    """The bound for each pair of a likelihood and a position, in one pass over the rows."""
    totals = [np.zeros(()) for _ in candidates]
    shared = placement.current().replicated((totals, candidates, parameters, prior, constants))
    totals, shared = shared[0], shared[1:]
    for batch in _blocks(rows):
        # Wait for the device, since queued calls would keep their rows in memory.
        totals = _add_expectations(jax.block_until_ready(totals), *shared, batch)
    return [float(total) - float(divergence(position)) for total, (_, position) in zip(totals, candidates, strict=True)]


def _blocks(rows):
    # A small table is filled up to a size that similar tables share, not to a whole block.
    size = min(placement.current().block_size(rows.n_rows, BLOCK_ROWS), bucket(rows.n_rows))
    for part in rows.blocks(size):
        yield placed(padded(part, size))


def pass_over(parameters, prior, position, constants, rows):
    """The `Statistics` of all rows."""
    n_latent, n_points = position.w.shape
    size = position.q.cov.shape[-1]
    zeros = [
        np.zeros(shape) for shape in ((n_latent, n_points, n_points), (n_latent, n_points), (n_latent, size, size))
    ]
    where = placement.current()
    statistics = where.replicated(Statistics(*zeros, np.zeros(())), now=True)
    shared = where.replicated((parameters, prior, position, constants))
    for batch in _blocks(rows):
        statistics = _add_block(jax.block_until_ready(statistics), *shared, batch)
    return placement.fetched(statistics)


@jax.jit
def divergence(position):
    """KL(q || p): the sum of the covariance's part and the mean's part."""
    q = position.q._replace(mean=jnp.zeros_like(position.q.mean))
    return gaussian.kl_to_standard(q) + 0.5 * (position.w**2).sum()


@jax.jit
def target(statistics):
    """The position at the maximum of the parabola, and the Cholesky factor of its system."""
    system = jnp.eye(statistics.gram.shape[-1]) + statistics.gram
    # The matrix is at least the identity: only rounding can make it indefinite.
    factor = definite_cholesky(system)
    w = one_by_one(lambda L, b: cho_solve((L, True), b))(factor, statistics.nat1)
    precision = jnp.eye(statistics.curvature.shape[-1]) + statistics.curvature
    return Iterate(w, gaussian.from_natural(jnp.zeros(precision.shape[:2]), precision)), factor


@jax.jit
def between(start, end, t):
    """The position at the fraction ``t`` of the way from start to end, in the mean's weights and the precision."""
    precision = (1.0 - t) * start.q.precision + t * end.q.precision
    return Iterate(start.w + t * (end.w - start.w), gaussian.from_natural(end.q.nat1, precision))


@quick_jit
def rescaled(statistics, before, after, constants):
    """The statistics of a conjugate likelihood (one curvature per latent function) under other parameters."""
    now, then = (_curvature(parameters, constants, len(statistics.nat1)) for parameters in (after, before))
    ratio = now / then
    return statistics._replace(
        gram=statistics.gram * ratio[:, None, None],
        nat1=statistics.nat1 * ratio[:, None],
        curvature=statistics.curvature * ratio[:, None, None],
    )


def _curvature(parameters, constants, n_latent):
    """-2 dE/dvar of a conjugate likelihood: (K,)."""
    zeros = jnp.zeros((n_latent, 1))
    batch = Batch(zeros.T, zeros, jnp.ones(1), jnp.arange(0))
    return slopes(parameters, constants, (zeros, zeros + 1.0, zeros), batch)[2][:, 0]
