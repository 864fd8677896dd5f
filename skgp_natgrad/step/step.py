"""Compiled chunks of training steps.

One step evaluates the kernel once on one minibatch, and one reverse pass gives
both what the step on q needs (the gradients in its moments) and what the
optimizer needs (those in everything else).

Nothing that a user tunes by number is compiled in: neither the number of rows
nor the schedules, which the host evaluates. Only shapes, the kernel's structure,
the likelihood's class and the `Method` are.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from .._backend import blas
from .._backend.device import quick_jit
from .._backend.linalg import jittered_cholesky, triangular_inverse
from ..variational import bases, gaussian, natural_gradient, objectives
from ..variational.parameterizations import PARAMETERIZATIONS
from . import adaptive_gamma
from .algorithm import NATURAL_MEAN_SOLVERS, SOLVERS

OPTIMIZERS = {
    "adam": optax.scale_by_adam,
    "amsgrad": optax.scale_by_amsgrad,
    "nadam": functools.partial(optax.scale_by_adam, nesterov=True),
    "adabelief": optax.scale_by_belief,
    "yogi": optax.scale_by_yogi,
    "rmsprop": optax.scale_by_rms,
}

# Steps of one compiled call.
STEPS_PER_CALL = 20
# On the full batch the bound is exact: a state this far below the best one, in nats for each unit
# of weight, came from a step that was too large.
_MAX_FALL = 0.1
_RECOVERY = 1.05
_MAX_HALVINGS = 30
# A fall of the bound by so many units of rounding is none.
_ROUNDING = 100.0
# What the bound may fall by in a step of q, as a part of its terms.
_SLACK = 1e-9
# The noise's part of the variance from which on the inducing points move at the rate of all else, and the smallest part
# of this rate.
_USUAL_NOISE, _SLOWEST_POINTS = 0.02, 0.05
# Entries of the kernel matrices of a step up to which the slower program, which compiles sooner, is the better one.
_LARGEST_QUICK = 100_000


class Best(NamedTuple):
    """The state to go back to, with its metric and its bound: of a full batch the best, else the last sound one."""

    bound: jax.Array
    q: gaussian.Gaussian
    u: jax.Array
    parameters: objectives.Parameters
    metric: jax.Array


class State(NamedTuple):
    """What a step carries.

    Attributes
    ----------
    q : Gaussian
    u : array of shape (K, M)
        The mean of f(Z), which q keeps when the optimizer moves the kernel: see
        `whitened_anew`. (K, 0) where the optimizer moves q itself, or no kernel.
    held : scalar
        How much of that: from zero, where the noise is large, to one.
    parameters : Parameters
        Everything else that is trained.
    metric : array of shape (1 or K, G) or (1 or K, G, G)
        Of the mean-only weights, as of the last refresh.
    optimizer : object
        The optimizer's moments.
    best : Best
    shrink : scalar
        Factor of both step sizes: halved when a step had to be taken back.
    gain : adaptive_gamma.Gain, optional
        The natural gradient's step size where it is found while training.
    """

    q: gaussian.Gaussian
    u: jax.Array
    held: jax.Array
    parameters: objectives.Parameters
    metric: jax.Array
    optimizer: object
    best: Best
    shrink: jax.Array
    gain: adaptive_gamma.Gain | None


class Report(NamedTuple):
    """Of each step: the bound before it, the natural gradient's step size, and whether it failed.

    A step that was ``rejected`` went another way than asked; one that was
    ``clipped`` among them along the gradient without negative curvature.
    """

    elbo: jax.Array
    gamma: jax.Array
    rejected: jax.Array
    clipped: jax.Array


def _transformation(method):
    return optax.identity() if method.solver == "gd" else OPTIMIZERS[method.optimizer or "adam"]()


def _coordinates(q, method):
    """What of q the optimizer moves: nothing, where natural gradients do."""
    return None if SOLVERS[method.solver].natural else PARAMETERIZATIONS[method.parameterization].from_gaussian(q)


def _fresh_optimizer(q, parameters, method):
    # Of one vector that holds everything: a program of few operations compiles in less time.
    return _transformation(method).init(ravel_pytree((_coordinates(q, method), parameters))[0])


@functools.partial(quick_jit, static_argnames="method")
def initial_state(q, parameters, problem, method):
    """Return the state at the start of training; compiled, so that no two of its arrays share memory to donate."""
    factors = objectives.factors(method.basis, parameters, problem)
    metric, u = mean_metric(parameters, problem, method, factors), _unwhitened(q.mean, factors, method)
    # A strong type, as the steps return it: a weak one would be compiled for on its own.
    best = Best(jnp.full((), -jnp.inf, dtype=float), q, u, parameters, metric)
    shrink = jnp.ones((), dtype=float)
    optimizer = _fresh_optimizer(q, parameters, method)
    return State(q, u, shrink, parameters, metric, optimizer, best, shrink, _first_gain(q, method))


def best_of(state, bound):
    """The state as the one to go back to."""
    return Best(bound, state.q, state.u, state.parameters, state.metric)


# -- q under a kernel that moves ----------------------------------------------------------


def _holds_u(method):
    """Whether q is held in u = f(Z) while the optimizer moves the kernel."""
    return SOLVERS[method.solver].natural and method.optimizer is not None


def _unwhitened(m, factors, method):
    """The mean of u = L v (K, M)."""
    if not _holds_u(method):
        return jnp.zeros((len(m), 0))
    return jnp.concatenate([m[latents] @ factor.L.T for factor, latents in bases.by_kernel(factors, len(m))])


@functools.partial(quick_jit, static_argnames="basis")
def rewhitened(q, before, now, basis):
    """``q`` under other hyperparameters, or jitter, the mean of u = f(Z) held.

    ``before`` and ``now`` are pairs of `Parameters` and `Problem`.
    """
    old, new = (objectives.factors(basis, *pair) for pair in (before, now))
    if old is None:
        return q
    m = [
        q.mean[latents] @ first.L.T @ last.inverse.T
        for (first, latents), last in zip(bases.by_kernel(old, len(q.mean)), new, strict=True)
    ]
    return gaussian.with_mean(q, jnp.concatenate(m))


def _mean_at(Z_new, state, m, factors, problem, method):
    """The mean of f at the new places of the inducing points (K, M), under the kernel of ``state``.

    The mean that ``m`` stands for is a function, which the points only represent: they
    move along it.
    """
    u = _unwhitened(m, factors, method)
    if not _holds_u(method):
        return u
    kernels = objectives.exponential(state.parameters.log_kernels)
    points, a, changes = state.parameters.points, state.parameters.weights.a, []
    for (kernel, latents), factor in zip(bases.by_kernel(kernels, len(m)), factors, strict=True):
        of_these = a[latents], m[latents], Z_new
        changes.append(bases.change_of_mean(method.basis, kernel, factor, points, problem.masks, *of_these))
    return u + jnp.concatenate(changes)


def whitened_anew(state, factors, method):
    """The state with q whitened by its present kernel, the mean of u = f(Z) held.

    Held in v = L^-1 u instead, the mean of u would move with L, at little noise by many
    of its deviations. Where the noise is large it may, and training is the faster for
    it: v is held as far as u is not. The covariance stays that of v.
    """
    if not _holds_u(method):
        return state
    m = [state.u[latents] @ factor.inverse.T for factor, latents in bases.by_kernel(factors, len(state.u))]
    m = state.held * jnp.concatenate(m) + (1.0 - state.held) * state.q.mean
    return state._replace(q=gaussian.with_mean(state.q, m), u=_unwhitened(m, factors, method))


def _first_gain(q, method):
    return adaptive_gamma.initial(q) if method.adaptive else None


def run_chunk(state, problem, batches, gammas, rates, n_steps, method, meanwhile=None):
    """Take ``n_steps`` steps, on the batches in turn.

    Parameters
    ----------
    state : State
    problem : objectives.Problem
    batches : objectives.Batch
        With a leading axis of batches: one for the full batch, else one a step.
    gammas, rates : arrays of shape (STEPS_PER_CALL,)
        Step sizes of the natural gradient, and of the optimizer.
    n_steps : int
        At most STEPS_PER_CALL; traced.
    method : Method
    meanwhile : callable, optional
        Called while the device is at work.

    Returns
    -------
    state : State
    report : Report
        Arrays of shape (STEPS_PER_CALL,), of which the first ``n_steps`` are filled.
    """
    n_points = len(state.parameters.points.Z) + len(state.parameters.points.Z_mean)
    size = len(state.q.mean) * n_points * batches.weight.shape[-1]
    compiled = _run_chunk_quick if size <= _LARGEST_QUICK else _run_chunk
    with blas.single_threaded(len(state.parameters.points.Z)):
        result = compiled(state, problem, batches, gammas, rates, n_steps, method)
        try:
            if meanwhile is not None:
                meanwhile()
        finally:
            jax.block_until_ready(result)
    return result


def _chunk(state, problem, batches, gammas, rates, n_steps, method):
    # The metric of the mean-only weights is refreshed here, not rebuilt at each step.
    start = state = refresh(state, problem, method)
    zeros, no = jnp.zeros(STEPS_PER_CALL), jnp.zeros(STEPS_PER_CALL, bool)
    n_batches = batches.weight.shape[0]

    def body(i, carry):
        state, report = carry
        batch = jax.tree.map(lambda x: x[i % n_batches], batches)
        state, moved, one = step(state, problem, batch, gammas[i], rates[i], method)
        if n_batches == 1:
            moved, one = keep_or_take_back(state, moved, one, problem, method)
        return moved, jax.tree.map(lambda all_, value: all_.at[i].set(value), report, one)

    state, report = jax.lax.fori_loop(0, n_steps, body, (state, Report(zeros, zeros, no, no)))
    return (state, report) if n_batches == 1 else keep_or_redo(start, state, report, method)


_run_chunk = jax.jit(_chunk, static_argnames="method", donate_argnames="state")
_run_chunk_quick = quick_jit(_chunk, static_argnames="method", donate_argnames="state")


def try_step(state, problem, batch, gamma, rate, method):
    """One step with the present metric, and the bound where it ends: for a line search.

    Returns
    -------
    state : State
    report : Report
        Of the state before the step.
    bound : scalar
    """
    with blas.single_threaded(len(state.parameters.points.Z)):
        return jax.block_until_ready(_try_step(state, problem, batch, gamma, rate, method))


@functools.partial(quick_jit, static_argnames="method")
def _try_step(state, problem, batch, gamma, rate, method):
    _, moved, report = step(state, problem, batch, gamma, rate, method)
    factors = objectives.factors(method.basis, moved.parameters, problem)
    moved = whitened_anew(moved, factors, method)
    return moved, report, bound(moved.q, moved.parameters, problem, batch, method, factors)


def bound(q, parameters, problem, batch, method, known_factors=None):
    """The evidence lower bound of a batch."""
    given_q = objectives.bound_given_q(method.basis, parameters, q.mean, q.cov, batch, problem, known_factors)
    return given_q - gaussian.kl_to_standard(q)


bound_of_batch = quick_jit(bound, static_argnames="method")


def step(state, problem, batch, gamma, rate, method):
    """One step of q and one of everything else, from one reverse pass.

    Returns
    -------
    state : State
        The one that the step started from, q whitened by its kernel.
    moved : State
    report : Report
        Of ``state``.
    """
    factors = objectives.factors(method.basis, state.parameters, problem)
    state = whitened_anew(state, factors, method)
    q, parameters = state.q, state.parameters
    gamma, rate = state.shrink * gamma, state.shrink * rate

    def bound_of(parameters, m, S, widening=0.0):
        if method.optimizer is None:
            parameters = jax.lax.stop_gradient(parameters)._replace(weights=parameters.weights)
        return objectives.bound_and_moments(method.basis, parameters, m, S, batch, problem, factors, widening)

    (value, latent), (gradient, dm, dS, dv) = jax.value_and_grad(bound_of, argnums=(0, 1, 2, 3), has_aux=True)(
        parameters, q.mean, q.cov, 0.0
    )
    point_rate = _point_rate(dv, latent.rows.mean, batch, problem)
    natural, gain = SOLVERS[method.solver].natural, state.gain
    if method.adaptive:
        gain = adaptive_gamma.updated(gain, q, natural_gradient.direction(q, dm, dS), batch.correlation)
        gamma = jnp.minimum(gamma, gain.gamma)
    if method.mean_solver in NATURAL_MEAN_SOLVERS:
        a = _natural_mean_step(
            lambda a: bound_of(_with_a(parameters, a), q.mean, q.cov)[0], value, gradient, state, gamma, batch.X.dtype
        )
        gradient = _with_a(gradient, jnp.zeros_like(a))
    xi_gradient = None if natural else natural_gradient.ordinary_gradient(q, dm, dS, method.parameterization)
    (xi_direction, parameters), optimizer, skipped = _optimizer_step(
        state, problem, (xi_gradient, gradient), rate, method, point_rate
    )
    if method.mean_solver in NATURAL_MEAN_SOLVERS:
        parameters = _with_a(parameters, a)
    if natural:
        moved = _natural_step(state, problem, batch, latent, value, (dm, dS), gamma, method)
        if method.adaptive:
            gain = gain._replace(gamma=moved.gamma)
    else:
        moved = natural_gradient.step(q, xi_direction, rate, method.parameterization)
    rejected = (moved.n_halvings > 0) | skipped
    report = Report(value - gaussian.kl_to_standard(q), moved.gamma, rejected, moved.fell_back)
    u = _mean_at(parameters.points.Z, state, moved.q.mean, factors, problem, method)
    # All of u where points move at half the rate of the rest or less.
    held = jnp.minimum(1.0, 2.0 * (1.0 - point_rate))
    state_after = state._replace(q=moved.q, u=u, held=held, parameters=parameters, optimizer=optimizer, gain=gain)
    return state, state_after, report


def _natural_step(state, problem, batch, latent, value, gradient, gamma, method):
    """The natural gradient step of q, shortened until it ends at a Gaussian that does not lower the bound.

    For a conjugate likelihood every step of size up to one raises the batch's
    bound: it shortens the way to the batch's optimum in natural parameters,
    along which the divergence from that optimum falls. A site of earlier data is
    as conjugate: its expectation is linear in E[v] and E[v v^T].
    """
    q, parameters, (dm, dS) = state.q, state.parameters, gradient
    velocity = natural_gradient.velocity(q, dm, dS, method.parameterization)
    if parameters.log_likelihood.conjugate and method.parameterization == "natural":
        return natural_gradient.step(q, velocity, gamma)
    before = value - gaussian.kl_to_standard(q)
    # The bound is a difference of larger numbers, which themselves are sums.
    slack = max(_SLACK, _ROUNDING * jnp.finfo(batch.X.dtype).eps)
    rounding = slack * (jnp.abs(value) + gaussian.kl_to_standard(q) + problem.weight)

    def acceptable(q_new):
        given_q = objectives.bound_after(parameters, latent, q, q_new, batch, problem)
        bound = given_q - gaussian.kl_to_standard(q_new)
        return gaussian.is_finite(q_new) & (bound >= before - rounding)

    def fallback():
        concave = objectives.concave_gradient(parameters, latent, batch, problem)
        clipped = natural_gradient.velocity(q, dm, concave, method.parameterization)
        return clipped, jnp.any(jnp.abs(concave - dS) > _ROUNDING * jnp.finfo(dS.dtype).eps * jnp.abs(dS).max())

    return natural_gradient.step(q, velocity, gamma, method.parameterization, acceptable, fallback)


def _with_a(parameters, a):
    return parameters._replace(weights=parameters.weights._replace(a=a))


# -- the mean-only weights ----------------------------------------------------------------


def mean_metric(parameters, problem, method, factors):
    """The metric of the mean-only weights.

    For ``mean_solver="natural"`` the inverse of their prior covariance
    (eq. 15a), (1 or K, G, G); else its diagonal D (eq. 16), (1 or K, G).
    """
    masks, points = problem.masks, parameters.points
    metrics = []
    for i, kernel in enumerate(objectives.exponential(parameters.log_kernels)):
        if method.mean_solver == "natural":
            K = bases.residual_covariance(kernel, factors[i], points, masks)
            metrics.append(_inverse(K, bases.absolute_jitter(K, masks.Z_mean, problem.jitter)))
        elif bases.BASES[method.basis].orthogonal:
            metrics.append(bases.residual_variance(kernel, factors[i], points, masks))
        else:
            diag = kernel.diag(points.Z_mean)
            metrics.append(jnp.where(diag > 0.0, diag, 1.0))
    return jnp.stack(metrics)


def refresh(state, problem, method):
    """The state with q whitened by its present kernel, and with the metric of that kernel.

    What the optimizer moves are the coordinates a D, which keep their values.
    """
    parameters = state.parameters
    factors = objectives.factors(method.basis, parameters, problem)
    state = whitened_anew(state, factors, method)
    metric = mean_metric(parameters, problem, method, factors)
    if method.mean_solver not in NATURAL_MEAN_SOLVERS:
        parameters = _with_a(parameters, parameters.weights.a * state.metric / metric)
    return state._replace(parameters=parameters, metric=metric)


refreshed = quick_jit(refresh, static_argnames="method")


@functools.partial(quick_jit, static_argnames="method")
def settled(state, problem, method):
    """The state with q whitened by its present kernel: for those who look at it between two chunks."""
    return whitened_anew(state, objectives.factors(method.basis, state.parameters, problem), method)


def _inverse(K, jitter):
    L_inv = triangular_inverse(jittered_cholesky(K, jitter)[0])
    return L_inv.T @ L_inv


def _natural_mean_step(bound_of_a, value, gradient, state, gamma, dtype):
    """A step along the natural gradient of the mean-only weights.

    The posterior's covariance has no part in this metric, so that a step of size
    one can go far too far. The step is the largest of ``gamma / 2^i`` that
    raises the batch's bound by half of what its slope promises; for a parabola
    that is at most the step to its top. ``dtype`` is that of the rows.
    """
    a, slope, metric = state.parameters.weights.a, gradient.weights.a, state.metric
    direction = slope / metric if metric.ndim == 2 else jnp.einsum("...gh,...h->...g", metric, slope)
    promised = (slope * direction).sum()
    rounding = _ROUNDING * jnp.finfo(dtype).eps * jnp.abs(value)

    def falls_short(carry):
        size, n_halvings = carry
        enough = bound_of_a(a + size * direction) >= value + 0.5 * size * promised - rounding
        return ~enough & (n_halvings < _MAX_HALVINGS)

    size, n_halvings = jax.lax.while_loop(falls_short, lambda carry: (0.5 * carry[0], carry[1] + 1), (gamma, 0))
    return jnp.where(n_halvings < _MAX_HALVINGS, a + size * direction, a)


# -- the optimizer ------------------------------------------------------------------------


def keep_or_take_back(state, moved, report, problem, method):
    """Remember the best state; from one far below it, go back with smaller steps.

    For the full batch, whose bound is exact. ``report`` holds the bound of
    ``state``, from which ``moved`` was reached.
    """
    bound, best = report.elbo, state.best

    best = _choose(bound > best.bound, best_of(state, bound), best)
    fell = ~(bound >= best.bound - _MAX_FALL * problem.weight)
    back = _back_to(best, 0.5 * state.shrink, method)
    on = moved._replace(best=best, shrink=jnp.minimum(1.0, _RECOVERY * state.shrink))
    elbo = jnp.where(jnp.isfinite(bound), bound, best.bound)
    return _choose(fell, back, on), report._replace(elbo=elbo, rejected=report.rejected | fell)


def keep_or_redo(start, state, report, method):
    """Remember the last sound state; go back to it, with smaller steps, from where the bound is not finite.

    For minibatches, whose bounds are too noisy to say more. A chunk's first
    bound says whether ``start`` was sound, the others whether the chunk was.
    """
    sound = jnp.isfinite(report.elbo)
    best = _choose(sound[0], best_of(start, report.elbo[0]), start.best)
    failed = ~jnp.all(sound)
    on = state._replace(best=best, shrink=jnp.minimum(1.0, _RECOVERY**STEPS_PER_CALL * state.shrink))
    state = _choose(failed, _back_to(best, 0.5 * start.shrink, method), on)
    elbo = jnp.where(sound, report.elbo, best.bound)
    gamma = jnp.where(failed, 0.0, report.gamma)
    return state, report._replace(elbo=elbo, gamma=gamma, rejected=report.rejected | failed)


def _back_to(best, shrink, method):
    fresh = _fresh_optimizer(best.q, best.parameters, method)
    gain = _first_gain(best.q, method)
    # All of u, which is that of q.
    return State(best.q, best.u, jnp.ones_like(shrink), best.parameters, best.metric, fresh, best, shrink, gain)


def _choose(condition, yes, no):
    # Not a select an array: each would be compiled for on its own.
    return jax.lax.cond(condition, lambda: yes, lambda: no)


def _point_rate(dv, mean, batch, problem):
    """The inducing points' part of the optimizer's step size: smaller where there is little noise.

    What the rows say of f(Z) then is so precise that a step of the usual size takes the
    points away from all of it. The noise is one over the mean curvature of the rows'
    log-likelihoods, for a Gaussian likelihood its variance, and is seen beside the
    variance of the latent means (K, B), so that units do not matter; ``dv`` is the
    bound's derivative in all latent variances together. The two numbers are from
    measurements: see the developer's notes of the documentation.
    """
    share = batch.weight / batch.weight.sum()
    curvature = -2.0 * dv / (len(mean) * problem.scale * batch.weight.sum())
    noise = 1.0 / jnp.maximum(curvature, jnp.finfo(curvature.dtype).tiny)
    signal = (share * (mean - (share * mean).sum(1, keepdims=True)) ** 2).sum() / len(mean)
    rate = jnp.clip(noise / (noise + signal) / _USUAL_NOISE, _SLOWEST_POINTS, 1.0)
    # Where the bound has no slope the optimizer's step is skipped.
    return jnp.where(jnp.isfinite(rate), rate, _SLOWEST_POINTS)


def _optimizer_step(state, problem, gradient, rate, method, point_rate):
    """Ascend in everything but what natural gradients move; skip what is not finite.

    The mean-only weights move in the preconditioned coordinates a (D + eps), the points
    at ``point_rate`` times the rate of the rest where natural gradients move q.

    Returns
    -------
    direction : pair
        Of the coordinates of q (None if natural gradients move it), and the
        moved parameters.
    optimizer_state : object
    skipped : bool
    """
    xi_loss, loss = jax.tree.map(lambda g: -g / problem.weight, gradient)
    loss = loss._replace(points=jax.tree.map(lambda g: problem.point_rate * g, loss.points))
    scale = state.metric if state.metric.ndim == 2 else 1.0
    flat, unravel = ravel_pytree((xi_loss, _with_a(loss, loss.weights.a / scale)))
    finite = jnp.all(jnp.isfinite(flat))
    update, optimizer = _transformation(method).update(jnp.where(finite, flat, 0.0), state.optimizer)
    xi, direction = unravel(jnp.where(finite, -update, 0.0))
    direction = _with_a(direction, direction.weights.a / scale)
    if SOLVERS[method.solver].natural:
        direction = direction._replace(points=jax.tree.map(lambda d: point_rate * d, direction.points))
    if method.optimizer is None:
        direction = jax.tree.map(jnp.zeros_like, direction)._replace(weights=direction.weights)
    moved = within_bounds(jax.tree.map(lambda p, d: p + rate * d, state.parameters, direction), problem)
    return (xi, moved), _choose(finite, optimizer, state.optimizer), ~finite


def within_bounds(parameters, problem):
    """Clip the kernels' and the likelihood's parameters to their bounds."""
    free = parameters.log_kernels, parameters.log_likelihood
    kernels, likelihood = jax.tree.map(jnp.clip, free, *problem.log_bounds)
    return parameters._replace(log_kernels=kernels, log_likelihood=likelihood)
