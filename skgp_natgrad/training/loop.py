"""Training: the host's loop over compiled steps, line searches, or L-BFGS."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from ..step import step
from ..step.algorithm import SOLVERS, Method
from . import lbfgs
from .batches import STEPS_PER_CALL, BatchStream, Position
from .schedules import LineSearch
from .stopping import StoppingRule

# Steps of the optimizer below this part of the largest say nothing about convergence: where the
# learning rate has decayed the bound is flat whatever is left to gain.
_ACTIVE_RATE = 0.1
# Iterations that are undone one after the other before training gives up.
_UNSOUND = 10 * STEPS_PER_CALL


class Settings(NamedTuple):
    """The numbers and names that drive a fit."""

    method: Method
    gamma_schedule: object
    rate_schedule: object
    batch_size: int
    n_columns: int
    max_iter: int
    tol: float
    n_iter_no_change: int
    dtype: str

    @property
    def searched(self):
        """The schedule that is a line search, or None."""
        used = SOLVERS[self.method.solver].step_sizes[:1]
        schedules = {"gamma_schedule": self.gamma_schedule, "learning_rate": self.rate_schedule}
        return next((schedules[name] for name in used if isinstance(schedules[name], LineSearch)), None)


class Result(NamedTuple):
    """What training found.

    Attributes
    ----------
    state : State
        Of a full batch the best, else the last sound one.
    report : Report
        Of all steps.
    elbo : float
    verdict : str or None
        Why it has not converged.
    lost : float
        What rows in single precision take off the bound, or add to it, in nats for
        each unit of weight; zero in double precision.
    """

    state: step.State
    report: step.Report
    elbo: float
    verdict: str | None
    lost: float


def run(state, problem, rows, settings, random_state, on_chunk=None, checkpoint=None):
    """Train until the bound stops improving, or for ``max_iter`` iterations.

    Parameters
    ----------
    state : State
    problem : Problem
    rows : Rows
    settings : Settings
    random_state : numpy.random.RandomState
    on_chunk : callable, optional
        Called as ``on_chunk(report, state)`` after each chunk of iterations,
        with the report of all; a true answer ends training.
    checkpoint : Checkpoint, optional
        Keeps what has been reached, and gives it back to a later call that starts alike.

    Returns
    -------
    result : Result
    """
    rows = rows._replace(X=rows.X.astype(settings.dtype))
    batches = BatchStream(rows, settings.batch_size, len(problem.masks.Z_mean), settings.n_columns, random_state)
    weight = float(rows.weight.sum())
    rule = StoppingRule(settings.n_iter_no_change, settings.tol, weight, noisy=not batches.full)
    monitor = Monitor(rule, _judged(settings), settings.max_iter, batches, on_chunk, checkpoint)
    state = _driver(settings)(monitor.resumed(state), problem, batches, settings, monitor)
    report = monitor.report
    state = state._replace(q=state.best.q, parameters=state.best.parameters)
    elbo = state.best.bound if batches.full else report.elbo[-settings.n_iter_no_change :].mean()
    return Result(state, report, float(elbo), monitor.verdict(), _lost(state, problem, batches, settings))


def _lost(state, problem, batches, settings):
    if settings.dtype == "float64":
        return 0.0
    batch = jax.tree.map(lambda x: x[0], next(batches))
    single, double = (
        float(step.bound_of_batch(state.q, state.parameters, problem, rows, settings.method))
        for rows in (batch, batch._replace(X=batch.X.astype("float64")))
    )
    return abs(single - double) / (float(problem.scale) * float(batch.weight.sum()))


def _driver(settings):
    if settings.method.solver == "lbfgs":
        return lbfgs.minimise
    return compiled_steps if settings.searched is None else searched_steps


class Monitor:
    """Collects the reports of all iterations, says when to stop, and has it all kept.

    Attributes
    ----------
    report : Report
        Of all iterations so far.
    converged : bool
    stuck : str or None
        Why going on is of no use, if it is of none.
    """

    def __init__(self, rule, judged, max_iter, batches, on_chunk, checkpoint):
        self.rule, self.judged, self.max_iter = rule, judged, max_iter
        self.batches, self.on_chunk, self.checkpoint = batches, on_chunk, checkpoint
        self.report = step.Report(*(np.empty(0, dtype) for dtype in (float, float, bool, bool)))
        self.converged, self.stuck = False, None

    @property
    def n_iter(self):
        """Number of iterations so far."""
        return len(self.report.elbo)

    @property
    def running(self):
        """Whether another iteration is to follow."""
        return self.n_iter < self.max_iter and not self.converged and self.stuck is None

    def __call__(self, state, chunk, converged=False, stuck=None):
        """Take in the report of a chunk, and what the solver knows itself; return whether to stop."""
        self.report = step.Report(*map(np.concatenate, zip(self.report, chunk, strict=True)))
        ended = self.on_chunk is not None and bool(self.on_chunk(self.report, state))
        self.converged = converged or ended or bool(self.rule.has_stopped(self._curve()))
        self.stuck = "unsound" if self._is_unsound() else stuck
        if self.checkpoint is not None:
            # After the callback: its answer is part of what has been reached.
            self.checkpoint.keep(*self._progress(state), last=not self.running)
        return self.converged or self.stuck is not None

    def _is_unsound(self):
        """Whether minibatches whose bound is not finite have undone all that was tried of late."""
        rejected, gamma = (values[-_UNSOUND:] for values in (self.report.rejected, self.report.gamma))
        return not self.batches.full and len(rejected) == _UNSOUND and bool(np.all(rejected & (gamma == 0.0)))

    def _progress(self, state):
        """What decides all that follows: a tree of arrays, and values."""
        upcoming, random_state = self.batches.position
        values = {"converged": self.converged, "stuck": self.stuck, "random_state": random_state}
        return (state, self.report, upcoming), values

    def resumed(self, state):
        """The state to start from: that of the checkpoint, if it has one, and all else as it was then."""
        found = None if self.checkpoint is None else self.checkpoint.saved(self._progress(state)[0])
        if found is None:
            return state
        (state, self.report, upcoming), values = found
        self.converged, self.stuck = values["converged"], values["stuck"]
        self.batches.go_to(Position(upcoming, values["random_state"]))
        return jax.device_put(state)

    def _curve(self):
        return self.report.elbo[self.judged[: self.n_iter]]

    def verdict(self):
        """Why the fit has not converged, or None."""
        if self.stuck is not None:
            return self.stuck
        return None if self.converged else self.rule.verdict(self._curve())


def compiled_steps(state, problem, batches, settings, monitor):
    """Steps of scheduled sizes, some tens in one compiled call."""
    gammas, rates = _step_sizes(settings)
    while monitor.running:
        n_steps = min(STEPS_PER_CALL, settings.max_iter - monitor.n_iter)
        sizes = slice(monitor.n_iter, monitor.n_iter + STEPS_PER_CALL)
        chunk = next(batches), gammas[sizes], rates[sizes], n_steps
        state, report = step.run_chunk(state, problem, *chunk, settings.method, batches.prepare)
        monitor(state, [np.asarray(values)[:n_steps] for values in report])
    # One more step, of size zero, lets the last state be the best one.
    still = np.zeros(STEPS_PER_CALL)
    return step.run_chunk(state, problem, next(batches), still, still, 1, settings.method)[0]


def searched_steps(state, problem, batches, settings, monitor):
    """Full-batch steps, each of the size that raises the bound most (Brent's method)."""
    batch = jax.tree.map(lambda x: x[0], next(batches))
    gammas, rates = _step_sizes(settings)
    natural, alone = SOLVERS[settings.method.solver].natural, settings.method.optimizer is None
    while monitor.running:
        i = monitor.n_iter
        state = step.refreshed(state, problem, settings.method)

        def attempt(size, state=state, i=i):
            gamma, rate = (size, rates[i]) if natural else (gammas[i], size)
            return step.try_step(state, problem, batch, gamma, rate, settings.method)

        size = settings.searched.best(lambda size: float(attempt(size)[2]))
        moved, report, bound = attempt(size)
        improved = bool(bound > report.elbo)
        if improved:
            state = moved._replace(best=step.best_of(moved, bound))
        elif i == 0:
            state = state._replace(best=step.best_of(state, report.elbo))
        chunk = report if improved else report._replace(gamma=0.0, rejected=True)
        # Along the gradient alone no step helps: that is the optimum. A step of the optimizer may be too long.
        stuck = None if improved or alone else "stuck"
        monitor(state, [np.atleast_1d(np.asarray(value)) for value in chunk], not improved and alone, stuck)
    return state


def _step_sizes(settings):
    """The step sizes of all iterations, padded to whole calls with the last."""
    size = -(-settings.max_iter // STEPS_PER_CALL) * STEPS_PER_CALL
    iteration = np.minimum(np.arange(size), settings.max_iter - 1)
    schedules = (settings.gamma_schedule, settings.rate_schedule)
    return tuple(np.asarray(schedule(iteration), dtype=float) for schedule in schedules)


def _judged(settings):
    """Which iterations say something about convergence."""
    rates = _step_sizes(settings)[1]
    always = settings.method.optimizer is None or settings.method.solver == "lbfgs" or settings.searched is not None
    return np.ones(len(rates), bool) if always else rates >= _ACTIVE_RATE * rates.max()
