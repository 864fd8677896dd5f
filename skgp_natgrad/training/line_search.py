"""Full-batch steps, each of the size that raises the bound most."""

from __future__ import annotations

import numpy as np

from ..step import chunk, mean_weights
from ..step.algorithm import SOLVERS
from ..step.state import best_of
from .batches import first
from .settings import step_sizes


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
