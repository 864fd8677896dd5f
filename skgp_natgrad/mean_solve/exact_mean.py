"""The mean on all points solved for, not stepped towards.

Given hyperparameters, the best mean on the points a (inducing points and mean-only
points together) is one symmetric system (appendix D of the orthogonal paper). Rows
are whitened by these points, A = L_a^-1 K_aX with K_aa = L_a L_a^T: the mean is
A^T w, its divergence from the prior |w|^2 / 2, and the system

    (I + A Lam A^T) w = A Lam z

with Lam = 1 / noise and z = y for a Gaussian likelihood; for another one Newton's
method repeats it with Lam = -2 dE/dvar and z = mean + Lam^-1 dE/dmean. (In the
kernel's own coordinates, K_aX Lam K_Xa + K_aa, the condition number is that of K_aa
squared.) Inducing points come first in L_a, so that w holds the mean m of q(v) and
the weights L_gg^T a of the mean-only points, L_gg L_gg^T = Kgg - Kgz Kzz^-1 Kzg.

The covariance takes the natural gradient step of size one that belongs to it,
S^-1 = I + A_z Lam A_z^T. The data is read in blocks of rows: one pass an iteration,
2 N P^2 operations for P points, P^2 memory for each latent function.

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

from .._backend.linalg import (
    definite_cholesky,
    jittered_cholesky,
    lower_product,
    one_by_one,
    symmetrize,
    triangular_inverse,
    weighted_gram,
)
from ..training.batches import Rows, bucket, padded
from ..variational import bases, gaussian, objectives
from ..variational.objectives import Batch
from ..variational.projection import SMALLEST_VARIANCE

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
# What the bound may fall by through rounding, as a part of its terms.
_ROUNDING = 1e-9


class Position(NamedTuple):
    """The mean's whitened weights on all points (K, P), and q(v), whose mean is not used."""

    w: jax.Array
    q: gaussian.Gaussian


class Statistics(NamedTuple):
    """Sums over the rows.

    Attributes
    ----------
    gram : array of shape (K, P, P)
        A Lam A^T.
    shift : array of shape (K, P)
        A Lam z.
    curvature : array of shape (K, M, M)
        A_z Lam A_z^T, where Lam may be negative.
    expectation : scalar
        The expected log-likelihood.
    """

    gram: jax.Array
    shift: jax.Array
    curvature: jax.Array
    expectation: jax.Array


class Prior(NamedTuple):
    """What does not change while the mean is solved for; arrays of each of the J kernels.

    Attributes
    ----------
    points : array of shape (P, D)
        Inducing points first.
    mask : array of shape (P,)
    root : array of shape (J, P, P)
        L_a.
    whiten : array of shape (J, P, P)
        Its inverse.
    """

    points: jax.Array
    mask: jax.Array
    root: jax.Array
    whiten: jax.Array


@jax.jit
def prior_of(parameters, masks, jitter):
    """The `Prior` of the present hyperparameters and points."""
    roots = [_root(kernel, *parameters.points, masks, jitter) for kernel in _kernels(parameters)]
    root, whiten = map(jnp.stack, zip(*roots, strict=True))
    return Prior(jnp.concatenate(parameters.points), jnp.concatenate(masks), root, whiten)


def _root(kernel, Z, Z_mean, masks, jitter):
    """L_a and its inverse; the inducing points' own part is the factor that training used."""
    L, whiten, _ = bases.factorise(kernel, Z, masks.Z, jitter)
    across = whiten @ (kernel(Z, Z_mean) * (masks.Z[:, None] * masks.Z_mean))
    Kgg = bases.inducing_covariance(kernel, Z_mean, masks.Z_mean)
    Lg, _ = jittered_cholesky(symmetrize(Kgg - across.T @ across), bases.absolute_jitter(Kgg, masks.Z_mean, jitter))
    root = jnp.block([[L, jnp.zeros_like(across)], [across.T, Lg]])
    between = solve_triangular(Lg, across.T @ whiten, lower=True)
    return root, jnp.block([[whiten, jnp.zeros_like(across)], [-between, triangular_inverse(Lg)]])


def _kernels(parameters):
    return objectives.exponential(parameters.log_kernels)


def _whitened(parameters, prior, X, n_inducing):
    """A (J, P, B), and the prior variance that the inducing points leave open (J, B)."""
    A = jnp.stack(
        [
            lower_product(whiten, kernel(prior.points, X) * prior.mask[:, None])
            for kernel, whiten in zip(_kernels(parameters), prior.whiten, strict=True)
        ]
    )
    kxx = jnp.stack([kernel.diag(X) for kernel in _kernels(parameters)])
    return A, jnp.maximum(kxx - (A[:, :n_inducing] ** 2).sum(1), 0.0)


def _moments(position, problem, A, residual):
    """Latent moments (K, B) of a position."""
    A_z = A[:, : position.q.cov.shape[-1]]
    own = (A_z * (position.q.cov @ A_z)).sum(1)
    mean = problem.offset + jnp.einsum("kp,kpb->kb", position.w, jnp.broadcast_to(A, (len(own), *A.shape[1:])))
    return mean, residual + jnp.maximum(own, SMALLEST_VARIANCE)


def _latent(parameters, prior, position, problem, X):
    """Latent moments (K, B), and A (J, P, B)."""
    A, residual = _whitened(parameters, prior, X, position.q.cov.shape[-1])
    return *_moments(position, problem, A, residual), A


def _slopes(parameters, mean, var, batch):
    """The expected log-likelihood, g = dE/dmean and lam = -2 dE/dvar (K, B), weights included."""
    value, (g, v) = jax.value_and_grad(objectives.expected_log_likelihood, argnums=(1, 2))(parameters, mean, var, batch)
    return value, g, -2.0 * v


@functools.partial(jax.jit, donate_argnames="statistics")
def _add_block(statistics, parameters, prior, position, problem, batch):
    """Add a block of rows to the statistics."""
    mean, var, A = _latent(parameters, prior, position, problem, batch.X)
    value, g, lam = _slopes(parameters, mean, var, batch)
    # Where the curvature is negative there is no parabola to go to the top of; the covariance needs none.
    convex = jnp.maximum(lam, 0.0)
    z = convex * (mean - problem.offset) + g
    A_z = A[:, : statistics.curvature.shape[-1]]
    return Statistics(
        statistics.gram + weighted_gram(A, convex),
        statistics.shift + jnp.einsum("kb,kpb->kp", z, jnp.broadcast_to(A, (len(z), *A.shape[1:]))),
        statistics.curvature + weighted_gram(A_z, lam),
        statistics.expectation + value,
    )


@jax.jit
def _add_expectations(totals, candidates, parameters, prior, problem, batch):
    """Add a block's expected log-likelihood for each pair of a likelihood and a position."""
    A, residual = _whitened(parameters, prior, batch.X, candidates[0][1].q.cov.shape[-1])
    added = []
    for total, (log_likelihood, position) in zip(totals, candidates, strict=True):
        under = parameters._replace(log_likelihood=log_likelihood)
        moments = _moments(position, problem, A, residual)
        added.append(total + objectives.expected_log_likelihood(under, *moments, batch))
    return added


def _bounds(candidates, parameters, prior, problem, rows):
    """The bound of each pair of a likelihood and a position, in one pass over the rows."""
    totals = [jnp.zeros(()) for _ in candidates]
    for batch in _blocks(rows):
        totals = _add_expectations(totals, candidates, parameters, prior, problem, batch)
    return [float(total - divergence(position)) for total, (_, position) in zip(totals, candidates, strict=True)]


def _blocks(rows):
    for start in range(0, len(rows.weight), BLOCK_ROWS):
        part = slice(start, start + BLOCK_ROWS)
        yield padded(Rows(rows.X[part], rows.y[:, part], rows.weight[part]), BLOCK_ROWS)


def _pass(parameters, prior, position, problem, rows):
    """The `Statistics` of all rows."""
    n_latent, n_points = position.w.shape
    size = position.q.cov.shape[-1]
    zeros = [
        np.zeros(shape) for shape in ((n_latent, n_points, n_points), (n_latent, n_points), (n_latent, size, size))
    ]
    statistics = jax.device_put(Statistics(*zeros, np.zeros(())))
    for batch in _blocks(rows):
        statistics = _add_block(statistics, parameters, prior, position, problem, batch)
    return statistics


@jax.jit
def divergence(position):
    """KL(q || p): of the covariance, and of the mean."""
    q = position.q._replace(mean=jnp.zeros_like(position.q.mean))
    return gaussian.kl_to_standard(q) + 0.5 * (position.w**2).sum()


@jax.jit
def _target(statistics):
    """The position at the top of the parabola, and the Cholesky factor of its system."""
    system = jnp.eye(statistics.gram.shape[-1]) + statistics.gram
    # At least the identity: only where its digits end can rounding make it indefinite.
    factor = definite_cholesky(system)
    w = one_by_one(lambda L, b: cho_solve((L, True), b))(factor, statistics.shift)
    precision = jnp.eye(statistics.curvature.shape[-1]) + statistics.curvature
    return Position(w, gaussian.from_natural(jnp.zeros(precision.shape[:2]), precision)), factor


@jax.jit
def _between(start, end, t):
    """The position at ``t`` on the way, in the mean's weights and the precision."""
    precision = (1.0 - t) * start.q.precision + t * end.q.precision
    return Position(start.w + t * (end.w - start.w), gaussian.from_natural(end.q.shift, precision))


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
        return _target(statistics)[0], statistics
    bound = float(statistics.expectation - divergence(position))
    for _ in range(_MAX_PASSES):
        end = _target(statistics)[0]
        gain = -np.inf
        for halving in range(_MAX_HALVINGS):
            moved = _between(position, end, 0.5**halving)
            ahead = _pass(parameters, prior, moved, problem, rows)
            gain = float(ahead.expectation - divergence(moved)) - bound
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
    s = a^T (I + A Lam A^T)^-1 a, of its column a of A, the mean is mean - g s / (1 - lam s).

    Returns
    -------
    mean : array of shape (K, B)
    var : array of shape (K, B)
        As it is predicted, from all rows: one row hardly moves what the
        inducing points leave open.
    own : array of shape (K, B)
        s / (1 - lam s), the variance of the mean's weights.
    """
    mean, var, A = _latent(parameters, prior, position, problem, batch.X)
    _, g, lam = _slopes(parameters, mean, var, batch)
    s = _quadratic_forms(factor, A)
    own = s / jnp.maximum(1.0 - jnp.maximum(lam, 0.0) * s, _MIN_REST)
    return mean - g * own, var, own


@jax.jit
def _unexplained(parameters, prior, batch):
    """k_xx - k_xa K_aa^-1 k_ax: (J, B)."""
    return _whitened(parameters, prior, batch.X, len(prior.points))[1]


def _quadratic_forms(factor, A):
    """a^T (L L^T)^-1 a for the columns a of ``A`` (J, P, B) and each Cholesky factor (K, P, P): (K, B)."""
    half = one_by_one(lambda L, a: solve_triangular(L, a, lower=True))(
        factor, jnp.broadcast_to(A, (len(factor), *A.shape[1:]))
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
    """The trained state with the solved mean, and its bound.

    ``lost`` says what was not taken, since it had no digits: "solution", "likelihood" or None.
    """

    q: gaussian.Gaussian
    parameters: objectives.Parameters
    elbo: float
    lost: str | None


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
    trained, start = parameters, _first_position(q, parameters, prior)
    solved, statistics = optimum(parameters, prior, start, problem, rows, tol)
    position = solved
    if trains_likelihood and np.any(np.less(*_limits(problem))):
        held_out = _some_rows(rows, random_state)
        if parameters.log_likelihood.conjugate:
            parameters, position = _search_noise(parameters, prior, statistics, problem, held_out)
        else:
            parameters, position = _alternate(parameters, prior, position, statistics, problem, rows, tol, held_out)
    candidates = [(trained.log_likelihood, at) for at in (start, solved)] + [(parameters.log_likelihood, position)]
    before, after, elbo = _bounds(candidates, parameters, prior, problem, rows)
    lost = None
    if not after >= before - _ROUNDING * (abs(before) + float(problem.weight)):
        # The system needed more digits than numbers have: what training found is better.
        parameters, position, elbo, lost = trained, start, before, "solution"
    elif not np.isfinite(elbo):
        parameters, position, elbo, lost = trained, solved, after, "likelihood"
    return Solution(*_as_basis(position, parameters, prior), elbo, lost)


def _alternate(parameters, prior, position, statistics, problem, rows, tol, held_out):
    """The likelihood's parameters and the position in turn.

    The parameters see the variance of a process whose covariance rests on all
    the points too. What the inducing points alone leave open the mean has
    explained; taken off the noise, it would let the noise fall without end.
    """
    unexplained = _unexplained(parameters, prior, held_out)
    for _ in range(_ROUNDS):
        before, factor = parameters, _target(statistics)[1]
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
        return tried, *_target(rescaled(statistics, parameters, tried))

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
        # The search ends short of a bound.
        near = [end for end in (lower[i], upper[i]) if abs(best[i] - end) < 2.0 * _SETTLED]
        best[i] = near[0] if near else best[i]
    return solved(best)[:2]


def _some_rows(rows, random_state):
    """A random part of the rows, as one batch."""
    n_rows = min(len(rows.weight), _HELD_OUT_ROWS)
    part = np.sort(random_state.choice(len(rows.weight), n_rows, replace=False))
    return padded(Rows(rows.X[part], rows.y[:, part], rows.weight[part]), bucket(n_rows))


@jax.jit
def _first_position(q, parameters, prior):
    """The mean of the orthogonal basis as whitened weights on all points."""
    a, size = parameters.weights.a, q.mean.shape[-1]
    root = jnp.broadcast_to(prior.root, (len(a), *prior.root.shape[1:]))
    return Position(jnp.concatenate([q.mean, jnp.einsum("kh,khg->kg", a, root[:, size:, size:])], axis=1), q)


@jax.jit
def _as_basis(position, parameters, prior):
    """Whitened weights on all points as q(v) and mean-only weights of the orthogonal basis."""
    size = position.q.cov.shape[-1]
    m, own = position.w[:, :size], position.w[:, size:]
    whiten = jnp.broadcast_to(prior.whiten, (len(own), *prior.whiten.shape[1:]))
    a = jnp.einsum("kg,kgh->kh", own, whiten[:, size:, size:]) * prior.mask[size:]
    q = gaussian.with_mean(position.q, m)
    return q, parameters._replace(weights=parameters.weights._replace(a=a))
