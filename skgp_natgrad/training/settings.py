"""The settings of a training, and the step sizes that follow from them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..step.algorithm import SOLVERS, Algorithm
from .schedules import Constant, LineSearch, Schedule, blocks

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
