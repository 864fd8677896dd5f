"""Training: the host's loop over compiled steps, line searches, or L-BFGS."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from . import lbfgs, steps
from .batches import STEPS_PER_CALL, is_full, iterate_batches
from .methods import SOLVERS, Method
from .schedules import LineSearch
from .stopping import StoppingRule

# Steps of the optimizer below this part of the largest say nothing about convergence: where the
# learning rate has decayed the bound is flat whatever is left to gain.
_ACTIVE_RATE = 0.1


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

    @property
    def searched(self):
        """The schedule that is a line search, or None."""
        used = SOLVERS[self.method.solver].step_sizes[:1]
        schedules = {"gamma_schedule": self.gamma_schedule, "learning_rate": self.rate_schedule}
        return next((schedules[name] for name in used if isinstance(schedules[name], LineSearch)), None)


class Result(NamedTuple):
    """The state that is kept (of a full batch the best, else the last sound one), and the reports of all steps."""

    state: steps.State
    report: steps.Report
    elbo: float
    verdict: str | None


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
        Called as ``on_chunk(report, state)`` after each chunk of iterations,
        with the report of all; a true answer ends training.

    Returns
    -------
    result : Result
    """
    full = is_full(len(rows.weight), settings.batch_size)
    weight = float(rows.weight.sum())
    rule = StoppingRule(settings.n_iter_no_change, settings.tol, weight, noisy=not full)
    batches = iterate_batches(rows, settings.batch_size, len(problem.masks.Z_mean), settings.n_columns, random_state)
    monitor = Monitor(rule, _judged(settings), on_chunk)
    state = _driver(settings)(state, problem, batches, settings, monitor)
    report = monitor.report
    state = state._replace(q=state.best.q, parameters=state.best.parameters)
    elbo = state.best.bound if full else report.elbo[-settings.n_iter_no_change :].mean()
    return Result(state, report, float(elbo), monitor.verdict())


def _driver(settings):
    if settings.method.solver == "lbfgs":
        return lbfgs.minimise
    return compiled_steps if settings.searched is None else searched_steps


class Monitor:
    """Collects the reports of all iterations and says when to stop.

    Attributes
    ----------
    report : Report
        Of all iterations so far.
    converged, stuck : bool
        Set by a solver that knows.
    """

    def __init__(self, rule, judged, on_chunk):
        self.rule, self.judged, self.on_chunk = rule, judged, on_chunk
        self.report = steps.Report(*(np.empty(0, dtype) for dtype in (float, float, bool, bool)))
        self.converged = self.stuck = False

    def __call__(self, state, chunk):
        """Take in the report of a chunk; return whether to stop."""
        self.report = steps.Report(*map(np.concatenate, zip(self.report, chunk, strict=True)))
        ended = self.on_chunk is not None and bool(self.on_chunk(self.report, state))
        self.converged = ended or self.rule.has_stopped(self._curve())
        return self.converged

    def _curve(self):
        return self.report.elbo[self.judged[: len(self.report.elbo)]]

    def verdict(self):
        """Why the fit has not converged, or None."""
        if self.stuck:
            return "stuck"
        return None if self.converged else self.rule.verdict(self._curve())


def compiled_steps(state, problem, batches, settings, monitor):
    """Steps of scheduled sizes, some tens in one compiled call."""
    gammas, rates = _step_sizes(settings)
    n_iter, stopped = 0, False
    while n_iter < settings.max_iter and not stopped:
        n_steps = min(STEPS_PER_CALL, settings.max_iter - n_iter)
        sizes = slice(n_iter, n_iter + STEPS_PER_CALL)
        batch = next(batches)
        state, chunk = steps.run_chunk(state, problem, batch, gammas[sizes], rates[sizes], n_steps, settings.method)
        n_iter += n_steps
        stopped = monitor(state, [np.asarray(values)[:n_steps] for values in chunk])
    # One more step, of size zero, lets the last state be the best one.
    still = np.zeros(STEPS_PER_CALL)
    return steps.run_chunk(state, problem, batch, still, still, 1, settings.method)[0]


def searched_steps(state, problem, batches, settings, monitor):
    """Full-batch steps, each of the size that raises the bound most (Brent's method)."""
    batch = jax.tree.map(lambda x: x[0], next(batches))
    gammas, rates = _step_sizes(settings)
    natural = SOLVERS[settings.method.solver].natural
    for i in range(settings.max_iter):
        state = steps.refreshed(state, problem, settings.method)

        def attempt(size, state=state, i=i):
            gamma, rate = (size, rates[i]) if natural else (gammas[i], size)
            return steps.try_step(state, problem, batch, gamma, rate, settings.method)

        size = settings.searched.best(lambda size: float(attempt(size)[2]))
        moved, report, bound = attempt(size)
        improved = bool(bound > report.elbo)
        if improved:
            state = moved._replace(best=steps.Best(bound, moved.q, moved.parameters, moved.metric))
        elif i == 0:
            state = state._replace(best=steps.Best(report.elbo, state.q, state.parameters, state.metric))
        chunk = report if improved else report._replace(gamma=0.0, rejected=True)
        stopped = monitor(state, [np.atleast_1d(np.asarray(value)) for value in chunk])
        if not improved:
            # Along the gradient alone no step helps: that is the optimum. A step of the optimizer may be too long.
            monitor.converged, monitor.stuck = settings.method.optimizer is None, settings.method.optimizer is not None
        if stopped or not improved:
            break
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
