"""Training: the host's loop over compiled steps, line searches, or L-BFGS."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from .._backend import placement, processes
from ..step.algorithm import SOLVERS
from ..step.state import Report, State
from ..step.step import bound_of_batch
from . import lbfgs, line_search, scheduled
from .batches import BatchStream, first
from .monitor import Monitor
from .settings import counted_iterations
from .shares import filled_up, total
from .stopping import StoppingRule, Trend

# Called after each chunk of iterations; a true answer ends training.
Callbacks: TypeAlias = Sequence[Callable[[Monitor, State], Any]]


class Result(NamedTuple):
    """The result of training.

    Attributes
    ----------
    state : State
        The best state on the full batch; the last sound state on minibatches.
    report : Report
        Reports of all steps.
    elbo : float
    status : str or None
        Why training has not converged; None if it has.
    lost : float
        The change of the bound by rows in single precision, in nats per unit of
        weight; zero in double precision.
    trend : Trend, optional
        How the bound changed at the end.
    """

    state: State
    report: Report
    elbo: float
    status: str | None
    lost: float
    trend: Trend | None = None


def run(state, constants, table, settings, random_state, callbacks=()):
    """Train until the bound stops improving, or for ``max_iter`` iterations.

    Parameters
    ----------
    state : State
    constants : Constants
    table : Table
    settings : Settings
    random_state : numpy.random.RandomState
    callbacks : sequence of callable
        Called in turn as ``callback(monitor, state)`` after each chunk of iterations; a true answer
        ends training. A callback with a method ``resume(monitor, state)`` returns the progress from
        which to continue.

    Returns
    -------
    result : Result
    """
    n_processes = placement.current().n_processes
    # Each process draws its part of every batch from its own rows.
    batch_size = -(-settings.batch_size // n_processes)
    settings = settings._replace(algorithm=settings.algorithm.of_steps, batch_size=batch_size)
    weight, table = total(table.total_weight, n_processes), filled_up(table, n_processes)
    random_state = random_state if n_processes == 1 else processes.agree(random_state)
    table = table.mapped(lambda rows: rows._replace(X=rows.X.astype(settings.dtype)))
    n_mean = len(constants.masks.Z_mean)
    n_columns = n_mean if settings.n_columns is None else settings.n_columns
    with contextlib.closing(BatchStream(table, batch_size, n_mean, n_columns, random_state)) as batches:
        return _run(state, constants, batches, settings, weight, callbacks)


def _run(state, constants, batches, settings, weight, callbacks):
    """Train on these batches, of rows with this weight in all processes."""
    where = placement.current()
    n_processes = where.n_processes
    rule = StoppingRule(settings.n_iter_no_change, settings.tol, weight, noisy=not batches.full)
    monitor = Monitor(rule, counted_iterations(settings), settings.max_iter, batches, callbacks)
    state, constants = where.replicated(monitor.resumed(state), now=True), where.replicated(constants)
    with processes.explained(n_processes):
        state = _driver(settings)(state, constants, batches, settings, monitor)
    report = monitor.report
    state = state._replace(q=state.best.q, parameters=state.best.parameters)
    elbo = state.best.bound if batches.full else report.elbo[-settings.n_iter_no_change :].mean()
    lost = _lost(state, constants, batches, settings)
    state = placement.fetched(state) if n_processes == 1 else processes.tree_of_first(state)
    return Result(state, report, float(elbo), monitor.status(), lost, monitor.trend())


def _lost(state, constants, batches, settings):
    if settings.dtype == "float64":
        return 0.0
    batch = first(next(batches))
    single, double = (
        float(bound_of_batch(state.q, state.parameters, constants, rows, settings.algorithm))
        for rows in (batch, batch._replace(X=batch.X.astype("float64")))
    )
    return abs(single - double) / (float(constants.scale) * float(batch.weight.sum()))


def _driver(settings):
    if SOLVERS[settings.algorithm.solver].minimises:
        return lbfgs.minimise
    return scheduled.compiled_steps if settings.searched is None else line_search.searched_steps
