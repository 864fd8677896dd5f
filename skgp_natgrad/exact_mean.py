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
likelihood's parameters are estimated anew from leave-one-out predictions, which
come with the solution. For a Gaussian likelihood the noise of largest
leave-one-out density is searched for, at one factorisation each; for another one
the parameters and the solution are found in turn.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import cho_solve, solve_triangular
from scipy import optimize

from . import bases, gaussians, objectives
from ._linalg import cholesky, jittered_cholesky, one_by_one
from .batches import Rows, bucket, padded
from .objectives import Batch

BLOCK_ROWS = 2048
_MAX_PASSES = 30
_MAX_HALVINGS = 10
# Rows whose leave-one-out predictions are formed, and rounds of estimation from these.
_HELD_OUT_ROWS = 4000
_ROUNDS = 6
_SETTLED = 0.05
# Where the noise is searched for, about what the inducing points needed, in logarithms.
_NOISE_RANGE = np.array([-10.0, 1.0])
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
    mean = problem.offset + jnp.einsum(
        "kp,kpb->kb", position.c, jnp.broadcast_to(Kax, (len(position.c), *Kax.shape[1:]))
    )
    return mean, jnp.maximum(var, jnp.finfo(var.dtype).tiny ** 0.5), Kax, A


def _slopes(parameters, mean, var, batch):
    """The expected log-likelihood, g = dE/dmean and lam = -2 dE/dvar (K, B), weights included."""
    value, (g, v) = jax.value_and_grad(objectives.expected_log_likelihood, argnums=(1, 2))(parameters, mean, var, batch)
    return value, g, -2.0 * v


@functools.partial(jax.jit, donate_argnames="statistics")
def _add_block(statistics, parameters, prior, position, problem, batch):
    """Add a block of rows to the statistics."""
    mean, var, Kax, A = _latent(parameters, prior, position, problem, batch.X)
    value, g, lam = _slopes(parameters, mean, var, batch)
    # Where the curvature is negative there is no parabola to go to the top of; the covariance needs none.
    convex = jnp.maximum(lam, 0.0)
    z = convex * (mean - problem.offset) + g
    weighted = Kax * convex[:, None, :]
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
    zeros = [
        np.zeros(shape) for shape in ((n_latent, n_points, n_points), (n_latent, n_points), (n_latent, size, size))
    ]
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
    system = statistics.gram + prior.K
    # Where the noise is small, rounding alone can make the system indefinite.
    rounding = jnp.finfo(system.dtype).eps * jnp.trace(system, axis1=-2, axis2=-1)
    factor, _ = jittered_cholesky(system, rounding)
    c = one_by_one(lambda L, b: cho_solve((L, True), b))(factor, statistics.shift)
    precision = jnp.eye(statistics.curvature.shape[-1]) + statistics.curvature
    return Position(c, gaussians.from_natural(jnp.zeros(precision.shape[:2]), precision)), factor


@jax.jit
def _between(start, end, t):
    """The position at ``t`` on the way, in the mean's weights and the precision."""
    precision = (1.0 - t) * start.q.precision + t * end.q.precision
    return Position(start.c + t * (end.c - start.c), gaussians.from_natural(end.q.shift, precision))


# -- Newton's method ----------------------------------------------------------------------


def optimum(parameters, prior, position, problem, rows, tol):
    """The best mean and covariance for fixed hyperparameters.

    Newton's method: a step is halved until the bound does not fall. One step is
    enough, and cannot be too long, where the likelihood is conjugate.

    Returns
    -------
    position : Position
    statistics : Statistics
        At ``position``, or, of a conjugate likelihood, anywhere.
    """
    statistics = _pass(parameters, prior, position, problem, rows)
    if parameters.log_likelihood.conjugate:
        return _target(prior, statistics)[0], statistics
    bound = float(statistics.expectation - divergence(prior, position))
    for _ in range(_MAX_PASSES):
        end = _target(prior, statistics)[0]
        gain = -np.inf
        for halving in range(_MAX_HALVINGS):
            moved = _between(position, end, 0.5**halving)
            ahead = _pass(parameters, prior, moved, problem, rows)
            gain = float(ahead.expectation - divergence(prior, moved)) - bound
            if gain >= 0.0:
                position, statistics, bound = moved, ahead, bound + gain
                break
        if not gain > tol * float(problem.weight):
            break
    return position, statistics


def rescaled(statistics, before, after):
    """The statistics of a conjugate likelihood under other parameters: its curvature is one number a latent."""
    ratio = _curvature(after, len(statistics.shift)) / _curvature(before, len(statistics.shift))
    return statistics._replace(
        gram=statistics.gram * ratio[:, None, None],
        shift=statistics.shift * ratio[:, None],
        curvature=statistics.curvature * ratio[:, None, None],
    )


def _curvature(parameters, n_latent):
    """-2 dE/dvar of a conjugate likelihood: (K,)."""
    zeros = jnp.zeros((n_latent, 1))
    batch = Batch(zeros.T, zeros, jnp.ones(1), jnp.arange(0))
    return _slopes(parameters, zeros, zeros + 1.0, batch)[2][:, 0]


# -- leave-one-out ------------------------------------------------------------------------


@jax.jit
def _leave_one_out(parameters, prior, factor, position, problem, batch):
    """Latent means of each row's prediction from all the others, and two variances: (K, B) each.

    The row's own term is taken out of the parabola at the optimum: with
    s = k_xa (K_aX Lam K_Xa + K_a)^-1 k_ax the mean is mean - g s / (1 - lam s).

    Returns
    -------
    mean : array of shape (K, B)
    var : array of shape (K, B)
        As it is predicted, from all rows: one row hardly moves what the
        inducing points leave open.
    own : array of shape (K, B)
        s / (1 - lam s), the variance of the mean's weights.
    """
    mean, var, Kax, _ = _latent(parameters, prior, position, problem, batch.X)
    _, g, lam = _slopes(parameters, mean, var, batch)
    s = _quadratic_forms(factor, Kax, len(mean))
    own = s / jnp.maximum(1.0 - jnp.maximum(lam, 0.0) * s, _MIN_REST)
    return mean - g * own, var, own


@jax.jit
def _unexplained(parameters, prior, batch):
    """k_xx - k_xa K_a^-1 k_ax: (1 or K, B)."""
    factor = cholesky(prior.K)
    kxx = jnp.stack([kernel.diag(batch.X) for kernel in objectives.exponential(parameters.log_kernels)])
    return jnp.maximum(kxx - _quadratic_forms(factor, _covariances(parameters, prior, batch.X), len(factor)), 0.0)


def _quadratic_forms(factor, Kax, n):
    """k_xa (L L^T)^-1 k_ax for ``n`` Cholesky factors: (n, B)."""
    half = one_by_one(lambda L, k: solve_triangular(L, k, lower=True))(
        factor, jnp.broadcast_to(Kax, (n, *Kax.shape[1:]))
    )
    return (half * half).sum(1)


@jax.jit
def _held_out_density(log_likelihood, mean, var, batch):
    likelihood = objectives.exponential(log_likelihood)
    each = likelihood.log_predictive_density(mean, var, batch.y)
    return jnp.where(batch.weight > 0.0, batch.weight * each, 0.0).sum() / batch.weight.sum()


def estimate_likelihood(parameters, mean, var, problem, batch):
    """The likelihood's parameters of largest leave-one-out density, within their bounds."""
    start, rebuilt = ravel_pytree(parameters.log_likelihood)

    def loss(x):
        return -float(_held_out_density(rebuilt(x), mean, var, batch))

    # By differences: a predictive density need not have a reverse mode.
    found = optimize.minimize(loss, np.asarray(start), method="L-BFGS-B", bounds=optimize.Bounds(*_limits(problem)))
    return parameters._replace(log_likelihood=rebuilt(found.x)) if np.isfinite(found.fun) else parameters


def _limits(problem):
    """Lower and upper bounds of the likelihood's parameters, flat."""
    return [np.asarray(ravel_pytree(likelihood)[0]) for _, likelihood in problem.log_bounds]


# -- the whole ----------------------------------------------------------------------------


class Solution(NamedTuple):
    """The trained state with the solved mean, and its bound."""

    q: gaussians.Gaussian
    parameters: objectives.Parameters
    elbo: float


def solve(q, parameters, problem, rows, tol, random_state, trains_likelihood=True):
    """Solve for the mean on inducing and mean-only points together.

    Parameters
    ----------
    q : Gaussian
    parameters : Parameters
        With the mean-only points in place; their weights are where it starts.
    problem : Problem
    rows : Rows
    tol : float
        Gain in nats for each unit of weight at which Newton's method stops.
    random_state : numpy.random.RandomState
        Chooses the rows that are held out.
    trains_likelihood : bool
        Whether the likelihood's parameters are estimated anew.

    Returns
    -------
    solution : Solution
    """
    prior = prior_of(parameters, problem.masks, problem.jitter)
    position, statistics = optimum(parameters, prior, _first_position(q, parameters, prior), problem, rows, tol)
    if trains_likelihood and np.any(np.less(*_limits(problem))):
        held_out = _some_rows(rows, random_state)
        if parameters.log_likelihood.conjugate:
            parameters, position = _search_noise(parameters, prior, statistics, problem, held_out)
        else:
            parameters, position = _alternate(parameters, prior, position, statistics, problem, rows, tol, held_out)
    expectation = jnp.zeros(())
    for batch in _blocks(rows):
        expectation = _add_expectation(expectation, parameters, prior, position, problem, batch)
    return Solution(*_as_basis(position, parameters, prior), float(expectation - divergence(prior, position)))


def _alternate(parameters, prior, position, statistics, problem, rows, tol, held_out):
    """The likelihood's parameters and the position in turn.

    The parameters see the variance of a process whose covariance rests on all
    the points too. What the inducing points alone leave open the mean has
    explained; taken off the noise, it would let the noise fall without end.
    """
    unexplained = _unexplained(parameters, prior, held_out)
    for _ in range(_ROUNDS):
        before, factor = parameters, _target(prior, statistics)[1]
        mean, _, own = _leave_one_out(parameters, prior, factor, position, problem, held_out)
        parameters = estimate_likelihood(parameters, mean, unexplained + own, problem, held_out)
        position, statistics = optimum(parameters, prior, position, problem, rows, tol)
        first, last = (ravel_pytree(each.log_likelihood)[0] for each in (before, parameters))
        if np.max(np.abs(first - last)) < _SETTLED:
            break
    return parameters, position


def _search_noise(parameters, prior, statistics, problem, held_out):
    """The noise whose own predictions have the largest leave-one-out density, the system solved anew for each.

    It makes up for a predicted variance that is too large, and can be less than
    the noise of the data.
    """
    start, rebuilt = ravel_pytree(parameters.log_likelihood)
    (lower, upper), best = _limits(problem), np.array(start)

    def solved(x):
        tried = parameters._replace(log_likelihood=rebuilt(x))
        return tried, *_target(prior, rescaled(statistics, parameters, tried))

    def loss(value, i):
        x = best.copy()
        x[i] = value
        tried, position, factor = solved(x)
        mean, var, _ = _leave_one_out(tried, prior, factor, position, problem, held_out)
        return -float(_held_out_density(tried.log_likelihood, mean, var, held_out))

    for i in np.flatnonzero(lower < upper):
        bounds = np.clip(best[i] + _NOISE_RANGE, lower[i], upper[i])
        options = {"xatol": _SETTLED}
        best[i] = optimize.minimize_scalar(loss, args=(i,), bounds=bounds, method="bounded", options=options).x
    return solved(best)[:2]


def _some_rows(rows, random_state):
    """A random part of the rows, as one batch."""
    n_rows = min(len(rows.weight), _HELD_OUT_ROWS)
    part = np.sort(random_state.choice(len(rows.weight), n_rows, replace=False))
    return padded(Rows(rows.X[part], rows.y[:, part], rows.weight[part]), bucket(n_rows))


@jax.jit
def _first_position(q, parameters, prior):
    """The mean of the orthogonal basis as weights on all points."""
    m, a = q.mean, parameters.weights.a
    alpha = jnp.einsum(
        "km,kmn->kn", m - _shared_part(a, parameters, prior), jnp.broadcast_to(prior.whiten, q.cov.shape)
    )
    return Position(jnp.concatenate([alpha, a], axis=1), q)


@jax.jit
def _as_basis(position, parameters, prior):
    """Weights on all points as q(v) and mean-only weights of the orthogonal basis."""
    size = prior.whiten.shape[-1]
    c, a = position.c[:, :size], position.c[:, size:]
    whiten = jnp.broadcast_to(prior.whiten, (len(c), size, size))
    m = one_by_one(lambda L_inv, c: solve_triangular(L_inv, c, lower=True, trans=1))(whiten, c)
    m = m + _shared_part(a, parameters, prior)
    q = gaussians.from_natural(jnp.einsum("kij,kj->ki", position.q.precision, m), position.q.precision)
    return q, parameters._replace(weights=parameters.weights._replace(a=a))


def _shared_part(a, parameters, prior):
    """L^-1 Kzg a: (K, M)."""
    size = prior.whiten.shape[-1]
    Z, Z_mean = prior.points[:size], prior.points[size:]
    at_Z = []
    for kernel, latents in bases.by_kernel(objectives.exponential(parameters.log_kernels), len(a)):
        at_Z.append((a[latents] * prior.mask[size:]) @ kernel(Z_mean, Z) * prior.mask[:size])
    at_Z = jnp.concatenate(at_Z)
    return jnp.einsum("kij,kj->ki", jnp.broadcast_to(prior.whiten, (len(a), size, size)), at_Z)
