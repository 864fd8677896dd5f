"""The mean on all points solved for, not stepped towards.

Given hyperparameters, the best mean k_xa c on the points a (inducing points and
mean-only points together) is one symmetric system (appendix D of the orthogonal
paper),

    (K_aX Lam K_Xa + K_a) c = K_aX Lam z

with Lam = 1 / noise and z = y for a Gaussian likelihood; for another one Newton's
method repeats it with Lam = -2 dE/dvar and z = mean + Lam^-1 dE/dmean. The
covariance takes the natural gradient step of size one that belongs to it,
S^-1 = I + A Lam A^T. The data is read in blocks of rows: one pass an iteration,
N P^2 operations for P points, P^2 memory for each latent function.

The noise that a few inducing points needed is too large for so many: the
likelihood's parameters are then estimated anew from leave-one-out predictions,
which come with the solution, and the system is solved again.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from scipy import optimize

from . import bases, gaussians, objectives
from ._linalg import jittered_cholesky, triangular_inverse
from .batches import Rows, padded
from .objectives import Batch

BLOCK_ROWS = 2048
_MAX_PASSES = 30
_MAX_HALVINGS = 10
# Rows whose leave-one-out predictions are formed, and rounds of estimation from these.
_HELD_OUT_ROWS = 4000
_ROUNDS = 6
_SETTLED = 0.02
_MIN_REST = 1e-3


class Position(NamedTuple):
    """The mean's weights on all points (K, P), and q(v), whose mean is not used."""

    c: jax.Array
    q: gaussians.Gaussian


class Statistics(NamedTuple):
    """Sums over the rows.

    Attributes
    ----------
    gram : array of shape (K, P, P)
        K_aX Lam K_Xa.
    shift : array of shape (K, P)
        K_aX Lam z.
    curvature : array of shape (K, M, M)
        A Lam A^T.
    expectation : scalar
        The expected log-likelihood.
    """

    gram: jax.Array
    shift: jax.Array
    curvature: jax.Array
    expectation: jax.Array


class Prior(NamedTuple):
    """What does not change while the mean is solved for.

    Attributes
    ----------
    points : array of shape (P, D)
        Inducing points first.
    mask : array of shape (P,)
    whiten : array of shape (J, M, M)
        L^-1 for each of the J kernels.
    K : array of shape (J, P, P)
        Covariance of all points, with jitter.
    """

    points: jax.Array
    mask: jax.Array
    whiten: jax.Array
    K: jax.Array


@jax.jit
def prior_of(parameters, masks, jitter):
    """The `Prior` of the present hyperparameters and points."""
    points, mask = jnp.concatenate(parameters.points), jnp.concatenate(masks)
    whiten, K = [], []
    for kernel in objectives.exponential(parameters.log_kernels):
        whiten.append(bases.factorise(kernel, parameters.points.Z, masks.Z, jitter)[0])
        Kaa = bases.inducing_covariance(kernel, points, mask)
        _, used = jittered_cholesky(Kaa, bases.absolute_jitter(Kaa, mask, jitter))
        K.append(Kaa + used * jnp.eye(len(points)))
    return Prior(points, mask, jnp.stack(whiten), jnp.stack(K))


def _covariances(parameters, prior, X):
    """K_aX (J, P, B) for each kernel."""
    kernels = objectives.exponential(parameters.log_kernels)
    return jnp.stack([kernel(prior.points, X) * prior.mask[:, None] for kernel in kernels])


def _latent(parameters, prior, position, problem, X):
    """Latent moments (K, B), K_aX (J, P, B) and A (J, M, B)."""
    Kax = _covariances(parameters, prior, X)
    A = prior.whiten @ Kax[:, : prior.whiten.shape[-1]]
    kxx = jnp.stack([kernel.diag(X) for kernel in objectives.exponential(parameters.log_kernels)])
    residual = position.q.cov - jnp.eye(A.shape[1])
    var = kxx + (A * (residual @ A)).sum(1)
    mean = problem.offset + jnp.einsum("kp,kpb->kb", position.c, jnp.broadcast_to(Kax, (len(position.c), *Kax.shape[1:])))
    return mean, jnp.maximum(var, jnp.finfo(var.dtype).tiny ** 0.5), Kax, A


def _slopes(parameters, mean, var, batch):
    """The expected log-likelihood, g = dE/dmean and lam = -2 dE/dvar (K, B), weights included."""
    value, (g, v) = jax.value_and_grad(objectives.expected_log_likelihood, argnums=(1, 2))(parameters, mean, var, batch)
    # Where the curvature is negative there is no parabola to go to the top of.
    return value, g, jnp.maximum(-2.0 * v, 0.0)


@functools.partial(jax.jit, donate_argnames="statistics")
def _add_block(statistics, parameters, prior, position, problem, batch):
    """Add a block of rows to the statistics."""
    mean, var, Kax, A = _latent(parameters, prior, position, problem, batch.X)
    value, g, lam = _slopes(parameters, mean, var, batch)
    z = lam * (mean - problem.offset) + g
    weighted = Kax * lam[:, None, :]
    return Statistics(
        statistics.gram + weighted @ jnp.swapaxes(Kax, -1, -2),
        statistics.shift + jnp.einsum("kb,kpb->kp", z, jnp.broadcast_to(Kax, weighted.shape)),
        statistics.curvature + (A * lam[:, None, :]) @ jnp.swapaxes(A, -1, -2),
        statistics.expectation + value,
    )


@jax.jit
def _add_expectation(total, parameters, prior, position, problem, batch):
    mean, var, _, _ = _latent(parameters, prior, position, problem, batch.X)
    return total + objectives.expected_log_likelihood(parameters, mean, var, batch)


def _blocks(rows):
    for start in range(0, len(rows.weight), BLOCK_ROWS):
        part = slice(start, start + BLOCK_ROWS)
        yield padded(Rows(rows.X[part], rows.y[:, part], rows.weight[part]), BLOCK_ROWS)


def _pass(parameters, prior, position, problem, rows):
    """The `Statistics` of all rows."""
    n_latent, n_points = position.c.shape
    size = prior.whiten.shape[-1]
    zeros = [np.zeros(shape) for shape in ((n_latent, n_points, n_points), (n_latent, n_points), (n_latent, size, size))]
    statistics = jax.device_put(Statistics(*zeros, np.zeros(())))
    for batch in _blocks(rows):
        statistics = _add_block(statistics, parameters, prior, position, problem, batch)
    return statistics


@jax.jit
def divergence(prior, position):
    """KL(q || p): of the covariance, and of the mean in the norm of the kernel."""
    q, c = position.q._replace(mean=jnp.zeros_like(position.q.mean)), position.c
    K = jnp.broadcast_to(prior.K, (len(c), *prior.K.shape[1:]))
    return gaussians.kl_to_standard(q) + 0.5 * jnp.einsum("kp,kpr,kr->", c, K, c)


@jax.jit
def _target(prior, statistics):
    """The position at the top of the parabola, and the Cholesky factor of its system."""
    factor = jnp.linalg.cholesky(statistics.gram + prior.K)
    c = jax.vmap(lambda L, b: cho_solve((L, True), b))(factor, statistics.shift)
    precision = jnp.eye(statistics.curvature.shape[-1]) + statistics.curvature
    return Position(c, gaussians.from_natural(jnp.zeros(precision.shape[:2]), precision)), factor


@jax.jit
def _between(start, end, t):
    """The position at ``t`` on the way, in the mean's weights and the precision."""
    precision = (1.0 - t) * start.q.precision + t * end.q.precision
    return Position(start.c + t * (end.c - start.c), gaussians.from_natural(end.q.shift, precision))
