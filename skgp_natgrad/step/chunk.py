"""Compiled chunks of training steps.

No number that a user tunes is compiled in: neither the number of rows nor the
schedules, which the host evaluates. Only shapes, the kernel's structure, the
likelihood's class and the `Algorithm` are compiled in.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from .._backend import threads
from .._backend.device import quick_jit, wide_jit
from ..variational import bound as bounds
from .mean_weights import refresh
from .safeguards import keep_or_redo, keep_or_take_back
from .state import Report
from .step import bound, step
from .whitening import whitened_anew

# Number of steps in one compiled call.
STEPS_PER_CALL = 20
# Up to this many entries of a step's kernel matrices, the slower program is preferred, since it compiles faster.
_LARGEST_QUICK = 100_000


def run_chunk(state, constants, batches, gammas, rates, n_steps, algorithm, meanwhile=None):
    """Take ``n_steps`` steps, on the batches in turn.

    Parameters
    ----------
    state : State
    constants : Constants
    batches : Batch
        With a leading axis of batches: one for the full batch, else one per step.
    gammas, rates : arrays of shape (STEPS_PER_CALL,)
        Step sizes of the natural gradient, and of the optimizer.
    n_steps : int
        At most STEPS_PER_CALL; traced.
    algorithm : Algorithm
    meanwhile : callable, optional
        Called while the device is busy.

    Returns
    -------
    state : State
    report : Report
        Arrays of shape (STEPS_PER_CALL,), of which the first ``n_steps`` are filled.
    """
    n_points = state.q.mean.shape[-1] + len(state.parameters.points.Z_mean)
    size = len(state.q.mean) * n_points * batches.weight.shape[-1]
    compiled = _run_chunk_quick if size <= _LARGEST_QUICK else _run_chunk
    with threads.single_threaded(state.q.mean.shape[-1]):
        result = compiled(state, constants, batches, gammas, rates, n_steps, algorithm)
        try:
            if meanwhile is not None:
                meanwhile()
        finally:
            jax.block_until_ready(result)
    return result


def _chunk(state, constants, batches, gammas, rates, n_steps, algorithm):
    # The metric of the mean-only weights is refreshed here, once per chunk, not at each step.
    start = state = refresh(state, constants, algorithm)
    zeros, no = jnp.zeros(STEPS_PER_CALL), jnp.zeros(STEPS_PER_CALL, bool)
    n_batches = batches.weight.shape[0]

    def body(i, carry):
        state, report = carry
        batch = jax.tree.map(lambda x: x[i % n_batches], batches)
        state, moved, one = step(state, constants, batch, gammas[i], rates[i], algorithm)
        if n_batches == 1:
            moved, one = keep_or_take_back(state, moved, one, constants, algorithm)
        return moved, jax.tree.map(lambda all_, value: all_.at[i].set(value), report, one)

    state, report = jax.lax.fori_loop(0, n_steps, body, (state, Report(zeros, zeros, no, no)))
    return (state, report) if n_batches == 1 else keep_or_redo(start, state, report, algorithm)


_run_chunk = wide_jit(_chunk, static_argnames="algorithm", donate_argnames="state")
_run_chunk_quick = quick_jit(_chunk, static_argnames="algorithm", donate_argnames="state")


def try_step(state, constants, batch, gamma, rate, algorithm):
    """One step with the present metric, and the bound after it: for a line search.

    Returns
    -------
    state : State
    report : Report
        For the state before the step.
    bound : scalar
    """
    with threads.single_threaded(state.q.mean.shape[-1]):
        return jax.block_until_ready(_try_step(state, constants, batch, gamma, rate, algorithm))


@functools.partial(quick_jit, static_argnames="algorithm")
def _try_step(state, constants, batch, gamma, rate, algorithm):
    _, moved, report = step(state, constants, batch, gamma, rate, algorithm)
    factors = bounds.factors(algorithm.basis, moved.parameters, constants)
    moved = whitened_anew(moved, factors, algorithm)
    return moved, report, bound(moved.q, moved.parameters, constants, batch, algorithm, factors)


@functools.partial(jax.jit, static_argnames="algorithm")
def one_step(state, constants, batch, gamma, rate, algorithm):
    """One step for a user's own loop: the state after it, whitened by its own kernel, and the report."""
    state = refresh(state, constants, algorithm)
    _, moved, report = step(state, constants, batch, gamma, rate, algorithm)
    factors = bounds.factors(algorithm.basis, moved.parameters, constants)
    return whitened_anew(moved, factors, algorithm), report
