"""Training: compiled chunks of steps, driven by a host loop.

One step evaluates the kernel once on one minibatch, and one reverse pass gives
both what the natural gradient step on q needs (the gradients in its moments)
and what Adam needs (those in everything else).

Nothing that a user tunes by number is compiled in: neither the number of rows
nor the schedules, which the host evaluates. Only shapes, the kernel's structure
and the likelihood's class are.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from . import bases, gaussians, natural_gradient, objectives

STEPS_PER_CALL = 20

# Sizes to which the rows of a full batch, and the points of a small table, are padded. The
# first three lie off the round numbers: the folds of a table and the table itself then
# usually share one, and with it the compiled program.
_BUCKETS = (60, 304, 640, 1024)

OPTIMIZERS = {
    "adam": optax.scale_by_adam,
    "amsgrad": optax.scale_by_amsgrad,
    "nadam": functools.partial(optax.scale_by_adam, nesterov=True),
    "adabelief": optax.scale_by_belief,
    "yogi": optax.scale_by_yogi,
    "rmsprop": optax.scale_by_rms,
}


def bucket(n):
    """Return the padded size for ``n`` rows or points."""
    for size in _BUCKETS:
        if n <= size:
            return size
    return 1 << int(n - 1).bit_length()


# On the full batch the bound is exact: a state this far below the best one, in nats for each unit
# of weight, came from a step that was too large.
_MAX_FALL = 0.1
_RECOVERY = 1.05


class Best(NamedTuple):
    """The best state seen on a full batch, and its bound."""

    bound: jax.Array
    q: gaussians.Gaussian
    parameters: objectives.Parameters


class State(NamedTuple):
    """What a step carries.

    Attributes
    ----------
    q : Gaussian
    parameters : Parameters
        Everything else that is trained.
    optimizer : object
        The optimizer's moments.
    best : Best
    shrink : scalar
        Factor of both step sizes: halved when a step had to be taken back.
    """

    q: gaussians.Gaussian
    parameters: objectives.Parameters
    optimizer: object
    best: Best
    shrink: jax.Array


class Problem(NamedTuple):
    """What stays fixed during a fit.

    Attributes
    ----------
    log_bounds : pair of (Kernel, Likelihood)
        Lower and upper bounds of the logarithms.
    masks : bases.Masks
    scale : scalar
        N / B, which makes the batch's sum an unbiased estimate of the table's.
    weight : scalar
        Sum of all sample weights: gradients are taken per unit of weight.
    jitter : scalar
        Relative to the kernel's scale.
    """

    log_bounds: tuple
    masks: bases.Masks
    scale: jax.Array
    weight: jax.Array
    jitter: jax.Array


class Report(NamedTuple):
    """Of each step: the bound before it, the natural gradient's step size, and whether it failed."""

    elbo: jax.Array
    gamma: jax.Array
    rejected: jax.Array


@functools.partial(jax.jit, static_argnames="optimizer")
def initial_state(q, parameters, optimizer):
    """Return the state at the start of training."""
    # A strong type, as the steps return it: a weak one would be compiled for on its own.
    best = Best(jnp.full((), -jnp.inf, dtype=float), q, parameters)
    return State(q, parameters, _transformation(optimizer).init(parameters), best, jnp.ones(()))


def _transformation(optimizer):
    return OPTIMIZERS[optimizer or "adam"]()


@functools.partial(jax.jit, static_argnames="optimizer", donate_argnames="state")
def run_chunk(state, problem, batches, gammas, rates, n_steps, optimizer):
    """Take ``n_steps`` steps, on the batches in turn.

    Parameters
    ----------
    state : State
    problem : Problem
    batches : objectives.Batch
        With a leading axis of batches: one for the full batch, else one a step.
    gammas, rates : arrays of shape (STEPS_PER_CALL,)
        Step sizes of the natural gradient, and of the optimizer.
    n_steps : int
        At most STEPS_PER_CALL; traced.
    optimizer : str or None
        Name in OPTIMIZERS; None trains q and the mean-only weights alone.

    Returns
    -------
    state : State
    report : Report
        Arrays of shape (STEPS_PER_CALL,), of which the first ``n_steps`` are filled.
    """
    # The metric of the mean-only weights is refreshed here, not rebuilt at each step.
    metric = bases.residual_variance(
        objectives.exponential(state.parameters.log_kernel), state.parameters.points, problem.masks, problem.jitter
    )
    zeros = jnp.zeros(STEPS_PER_CALL)
    report = Report(zeros, zeros, jnp.zeros(STEPS_PER_CALL, bool))
    n_batches = batches.weight.shape[0]

    def body(i, carry):
        state, report = carry
        batch = jax.tree.map(lambda x: x[i % n_batches], batches)
        moved, one = step(state, problem, batch, gammas[i], rates[i], metric, optimizer)
        if n_batches == 1:
            moved, one = keep_or_take_back(state, moved, one, problem, optimizer)
        return moved, jax.tree.map(lambda all_, value: all_.at[i].set(value), report, one)

    return jax.lax.fori_loop(0, n_steps, body, (state, report))


def step(state, problem, batch, gamma, rate, metric, optimizer):
    """One natural gradient step on q and one optimizer step on the rest, from one reverse pass."""
    q, parameters = state.q, state.parameters

    def bound(parameters, m, S):
        if optimizer is None:
            fixed = jax.lax.stop_gradient(parameters)
            parameters = fixed._replace(a=parameters.a)
        return objectives.bound_given_q(parameters, m, S, batch, problem.masks, problem.jitter, problem.scale)

    value, (gradient, dm, dS) = jax.value_and_grad(bound, argnums=(0, 1, 2))(parameters, q.mean, q.cov)
    moved = natural_gradient.step(q, dm, dS, state.shrink * gamma)
    parameters, optimizer_state, skipped = _optimizer_step(
        state, problem, gradient, state.shrink * rate, metric, optimizer
    )
    report = Report(value - gaussians.kl_to_standard(q), moved.gamma, (moved.n_halvings > 0) | skipped)
    return state._replace(q=moved.q, parameters=parameters, optimizer=optimizer_state), report


def keep_or_take_back(state, moved, report, problem, optimizer):
    """Remember the best state; from one far below it, go back with smaller steps.

    For the full batch, whose bound is exact. ``report`` holds the bound of
    ``state``, from which ``moved`` was reached.
    """
    bound, best = report.elbo, state.best

    def choose(condition, yes, no):
        return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)

    best = choose(bound > best.bound, Best(bound, state.q, state.parameters), best)
    fell = ~(bound >= best.bound - _MAX_FALL * problem.weight)
    back = State(best.q, best.parameters, _transformation(optimizer).init(best.parameters), best, 0.5 * state.shrink)
    on = moved._replace(best=best, shrink=jnp.minimum(1.0, _RECOVERY * state.shrink))
    return choose(fell, back, on), report._replace(rejected=report.rejected | fell)


def _optimizer_step(state, problem, gradient, rate, metric, optimizer):
    """Ascend in the preconditioned coordinates a (D + eps); skip what is not finite."""
    loss = jax.tree.map(lambda g: -g / problem.weight, gradient)
    loss = loss._replace(a=loss.a / metric)
    finite = functools.reduce(jnp.logical_and, [jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(loss)])
    loss = jax.tree.map(lambda g: jnp.where(finite, g, 0.0), loss)
    direction, optimizer_state = _transformation(optimizer).update(loss, state.optimizer, state.parameters)
    direction = direction._replace(a=direction.a / metric)
    moved = jax.tree.map(lambda p, d: p - rate * d, state.parameters, direction)
    if optimizer is None:
        moved = state.parameters._replace(a=moved.a)
    lower, upper = problem.log_bounds
    kernel, likelihood = jax.tree.map(jnp.clip, (moved.log_kernel, moved.log_likelihood), lower, upper)
    moved = moved._replace(log_kernel=kernel, log_likelihood=likelihood)
    keep = functools.partial(jax.tree.map, lambda new, old: jnp.where(finite, new, old))
    return keep(moved, state.parameters), keep(optimizer_state, state.optimizer), ~finite


# -- rows and batches ---------------------------------------------------------------------


class Rows(NamedTuple):
    """A weighted table: X (N, D), y (T, N), weight (N,)."""

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray


def batch_size_for(n_rows, batch_size):
    """Return the number of rows of every batch, padding included."""
    return min(batch_size, bucket(n_rows))


def iterate_batches(rows, batch_size, random_state):
    """Yield `Batch` objects with a leading axis: for one call of `run_chunk` each.

    The full batch is one batch, padded with rows of weight zero. Otherwise rows
    are drawn without replacement, and reshuffled when all were seen.
    """
    n_rows = len(rows.weight)
    size = batch_size_for(n_rows, batch_size)
    if n_rows <= size:
        padding = size - n_rows
        full = objectives.Batch(
            np.pad(rows.X, ((0, padding), (0, 0)))[None],
            np.pad(rows.y, ((0, 0), (0, padding)))[None],
            np.pad(rows.weight, (0, padding))[None],
        )
        full = jax.device_put(full)
        while True:
            yield full
    stream = np.empty(0, dtype=int)
    needed = STEPS_PER_CALL * size
    while True:
        while len(stream) < needed:
            stream = np.concatenate([stream, random_state.permutation(n_rows)])
        index, stream = stream[:needed].reshape(STEPS_PER_CALL, size), stream[needed:]
        yield objectives.Batch(rows.X[index], np.moveaxis(rows.y[:, index], 0, 1), rows.weight[index])


# -- the host loop ------------------------------------------------------------------------


class Settings(NamedTuple):
    """The numbers and names that drive a fit."""

    gamma_schedule: object
    rate_schedule: object
    optimizer: str | None
    batch_size: int
    max_iter: int
    tol: float
    n_iter_no_change: int


class Result(NamedTuple):
    """The state that is kept (of a full batch the best one), and the reports of all steps."""

    state: State
    report: Report
    elbo: float
    verdict: str | None


# Steps of the optimizer below this part of the largest say nothing about convergence: where the
# learning rate has decayed the bound is flat whatever is left to gain.
_ACTIVE_RATE = 0.1


class StoppingRule:
    """Says when the smoothed bound has stopped changing, and when it surely has not.

    The bound is averaged over the last ``window`` iterations and over the
    ``window`` before them. On minibatches the difference has a standard error,
    estimated from the scatter; a full batch has none.
    """

    def __init__(self, window, tol, weight, noisy):
        self.window, self.tol, self.weight, self.noisy = window, tol, weight, noisy

    def _gain(self, curve):
        if len(curve) < 2 * self.window:
            return np.inf, 0.0
        late, early = curve[-self.window :], curve[-2 * self.window : -self.window]
        error = np.sqrt((late.var() + early.var()) / self.window) if self.noisy else 0.0
        return (late.mean() - early.mean()) / self.weight, 2.0 * error / self.weight

    def has_stopped(self, curve):
        """Whether the change is below ``tol`` for each unit of weight, noise allowed for."""
        gain, error = self._gain(curve)
        return abs(gain) + error < self.tol

    def verdict(self, curve):
        """Say why the fit has not converged: "too few", "rising" or "falling"; or None."""
        gain, error = self._gain(curve)
        if np.isinf(gain):
            return "too few"
        if abs(gain) - error <= self.tol:
            return None
        return "rising" if gain > 0 else "falling"


def run(state, problem, rows, settings, random_state, on_chunk=None):
    """Train until the bound stops improving, or for ``max_iter`` iterations.

    Parameters
    ----------
    state : State
    problem : Problem
    rows : Rows
    settings : Settings
    random_state : numpy.random.RandomState
    on_chunk : callable, optional
        Called as ``on_chunk(n_iter, report)`` after each compiled chunk.

    Returns
    -------
    result : Result
    """
    full_batch = len(rows.weight) <= batch_size_for(len(rows.weight), settings.batch_size)
    rule = StoppingRule(settings.n_iter_no_change, settings.tol, float(rows.weight.sum()), not full_batch)
    gammas, rates = _step_sizes(settings)
    batches = iterate_batches(rows, settings.batch_size, random_state)
    report = Report(*(np.empty(0, dtype) for dtype in (float, float, bool)))
    n_iter, stopped = 0, False
    while n_iter < settings.max_iter and not stopped:
        n_steps = min(STEPS_PER_CALL, settings.max_iter - n_iter)
        sizes = slice(n_iter, n_iter + STEPS_PER_CALL)
        state, chunk = run_chunk(
            state,
            problem,
            next(batches),
            gammas[sizes],
            rates[sizes],
            n_steps,
            settings.optimizer,
        )
        report = Report(
            *(np.concatenate([old, np.asarray(new)[:n_steps]]) for old, new in zip(report, chunk, strict=True))
        )
        n_iter += n_steps
        judged = report.elbo[_judged(rates[:n_iter], settings.optimizer)]
        stopped = rule.has_stopped(judged)
        if on_chunk is not None:
            on_chunk(n_iter, report)
    if full_batch:
        # One more step, of size zero, lets the last state be the best one.
        still = np.zeros(STEPS_PER_CALL)
        state, _ = run_chunk(state, problem, next(batches), still, still, 1, settings.optimizer)
        state = state._replace(q=state.best.q, parameters=state.best.parameters)
        final = float(state.best.bound)
    else:
        final = float(report.elbo[-settings.n_iter_no_change :].mean())
    return Result(state, report, final, rule.verdict(judged))


def _step_sizes(settings):
    """The step sizes of all iterations, padded to whole calls with the last."""
    size = -(-settings.max_iter // STEPS_PER_CALL) * STEPS_PER_CALL
    iteration = np.minimum(np.arange(size), settings.max_iter - 1)
    schedules = (settings.gamma_schedule, settings.rate_schedule)
    return tuple(np.asarray(schedule(iteration), dtype=float) for schedule in schedules)


def _judged(rates, optimizer):
    """Which iterations say something about convergence."""
    return slice(None) if optimizer is None else rates >= _ACTIVE_RATE * rates.max()
