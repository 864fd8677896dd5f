"""Steps of scheduled sizes, tens of them in one compiled call."""

from __future__ import annotations

import numpy as np

from ..step import chunk
from ..step.chunk import STEPS_PER_CALL
from .settings import step_sizes


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
