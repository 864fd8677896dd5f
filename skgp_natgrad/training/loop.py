"""Training: its settings, and the host's loop over compiled steps, line searches, or L-BFGS."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from .._backend import placement, processes
from ..step import chunk, mean_weights
from ..step.algorithm import SOLVERS, Algorithm
from ..step.chunk import STEPS_PER_CALL
from ..step.state import Report, State, best_of
from ..step.step import bound_of_batch
from . import lbfgs
from .batches import BatchStream, first
from .monitor import Monitor, StoppingRule, Trend
from .schedules import Constant, LineSearch, Schedule, blocks
from .shares import evened_out, total

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
    weight, table = total(table.total_weight, n_processes), evened_out(table, n_processes)
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
    return compiled_steps if settings.searched is None else searched_steps


# Steps of scheduled sizes, tens of them in one compiled call.


def compiled_steps(state, constants, batches, settings, monitor):
    """Steps of scheduled sizes, some tens in one compiled call."""
    while monitor.running:
        n_steps = min(STEPS_PER_CALL, settings.max_iter - monitor.n_iter)
        gammas, rates = step_sizes(settings, monitor.n_iter, STEPS_PER_CALL)
        state, report = chunk.run_chunk(
            state,
            constants,
            next(batches),
            gammas,
            rates,
            n_steps,
            settings.algorithm,
            batches.prepare,
        )
        monitor(state, [np.asarray(values)[:n_steps] for values in report])
    # One more step, of size zero, lets the last state be the best one.
    still = np.zeros(STEPS_PER_CALL)
    return chunk.run_chunk(state, constants, next(batches), still, still, 1, settings.algorithm)[0]


# Full-batch steps, each of the size that raises the bound most.


def searched_steps(state, constants, batches, settings, monitor):
    """Full-batch steps, each of the size that raises the bound most (Brent's method)."""
    batch = first(next(batches))
    natural, alone = SOLVERS[settings.algorithm.solver].natural, settings.algorithm.optimizer is None
    while monitor.running:
        i = monitor.n_iter
        (gamma,), (rate,) = step_sizes(settings, i, 1)
        state = mean_weights.refreshed(state, constants, settings.algorithm)

        def attempt(size, state=state, gamma=gamma, rate=rate):
            sizes = (size, rate) if natural else (gamma, size)
            return chunk.try_step(state, constants, batch, *sizes, settings.algorithm)

        size = settings.searched.best(lambda size: float(attempt(size)[2]))
        moved, report, bound = attempt(size)
        improved = float(bound) > float(report.elbo)
        if improved:
            state = moved._replace(best=best_of(moved, bound))
        elif i == 0:
            state = state._replace(best=best_of(state, report.elbo))
        taken = report if improved else report._replace(gamma=0.0, rejected=True)
        # If no step along the gradient alone helps, this is the optimum; a step of the optimizer may be too long.
        failure = None if improved or alone else "no step"
        monitor(state, [np.atleast_1d(np.asarray(value)) for value in taken], not improved and alone, failure)
    return state


# Optimizer steps below this fraction of the largest do not count for convergence: once the learning rate has decayed,
# the bound is flat even if it could still rise.
_ACTIVE_RATE = 0.1


class Settings(NamedTuple):
    """How to train.

    Attributes
    ----------
    algorithm : Algorithm
    gamma_schedule, rate_schedule : Schedule
        Step sizes of the natural gradient and of the optimizer.
    batch_size : int
    n_columns : int or None
        Columns of the mean-only points' covariance in a minibatch step; None for all.
    max_iter : int
    tol : float
        Training has converged when the bound changes by less than this, per unit of weight.
    n_iter_no_change : int
        Number of iterations over which the bound is averaged for this comparison.
    dtype : str
        Type of the arrays that grow with the batch.

    Examples
    --------
    >>> from skgp_natgrad import LogLinear, svgp
    >>> svgp.Settings(gamma_schedule=LogLinear(1e-4, 0.1), max_iter=200).algorithm.solver
    'ngd'
    """

    algorithm: Algorithm = Algorithm()
    gamma_schedule: Schedule = Constant(0.1)
    rate_schedule: Schedule = Constant(0.01)
    batch_size: int = 1024
    n_columns: int | None = None
    max_iter: int = 1000
    tol: float = 1e-3
    n_iter_no_change: int = 50
    dtype: str = "float64"

    @property
    def searched(self) -> LineSearch | None:
        """The schedule that is a line search, if there is one; else None."""
        used = SOLVERS[self.algorithm.solver].step_sizes[:1]
        schedules = {"gamma_schedule": self.gamma_schedule, "learning_rate": self.rate_schedule}
        return next((schedules[name] for name in used if isinstance(schedules[name], LineSearch)), None)


def step_sizes(settings, start, n_steps):
    """The step sizes of some iterations, as two arrays; beyond ``max_iter`` the last value goes on."""
    iteration = np.minimum(np.arange(start, start + n_steps), settings.max_iter - 1)
    schedules = (settings.gamma_schedule, settings.rate_schedule)
    return tuple(np.asarray(schedule(iteration), dtype=float) for schedule in schedules)


def counted_iterations(settings):
    """A function that tells which of ``n_steps`` iterations from ``start`` count for the test of convergence."""
    algorithm = settings.algorithm
    if algorithm.optimizer is None or SOLVERS[algorithm.solver].minimises or settings.searched is not None:
        return lambda start, n_steps: np.ones(n_steps, bool)
    largest = max(np.max(settings.rate_schedule(some)) for some in blocks(settings.max_iter))
    return lambda start, n_steps: step_sizes(settings, start, n_steps)[1] >= _ACTIVE_RATE * largest
