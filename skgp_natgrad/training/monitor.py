"""What the host knows of a training that is under way."""

from __future__ import annotations

import jax
import numpy as np

from ..step.chunk import STEPS_PER_CALL
from ..step.state import Report
from .batches import StreamPosition

# Iterations that are undone one after the other before training gives up.
_UNSOUND = 10 * STEPS_PER_CALL


class Monitor:
    """Collects the reports of all iterations, tells the callbacks, and says when to stop.

    Attributes
    ----------
    report : Report
        Of all iterations so far.
    converged : bool
    failure : str or None
        Why going on is of no use, if it is of none.
    """

    def __init__(self, rule, counted, max_iter, batches, callbacks):
        self.rule, self.counted, self.max_iter = rule, counted, max_iter
        self.batches, self.callbacks = batches, callbacks
        self.report = Report(*(np.empty(0, dtype) for dtype in (float, float, bool, bool)))
        self.converged, self.failure = False, None

    @property
    def n_iter(self):
        """Number of iterations so far."""
        return len(self.report.elbo)

    @property
    def running(self):
        """Whether another iteration is to follow."""
        return self.n_iter < self.max_iter and not self.converged and self.failure is None

    def __call__(self, state, chunk, converged=False, failure=None):
        """Take in the report of a chunk, and what the solver knows itself; return whether to stop."""
        self.report = Report(*map(np.concatenate, zip(self.report, chunk, strict=True)))
        self.converged = converged or bool(self.rule.has_stopped(self._curve()))
        self.failure = "unsound" if self._is_unsound() else failure
        for callback in self.callbacks:
            # What one answers is part of what the next one sees: of what a checkpoint keeps.
            self.converged = bool(callback(self, state)) or self.converged
        return self.converged or self.failure is not None

    def _is_unsound(self):
        """Whether minibatches whose bound is not finite have undone all that was tried of late."""
        rejected, gamma = (values[-_UNSOUND:] for values in (self.report.rejected, self.report.gamma))
        return not self.batches.full and len(rejected) == _UNSOUND and bool(np.all(rejected & (gamma == 0.0)))

    def progress(self, state):
        """What decides all that follows: a tree of arrays, and values."""
        upcoming, random_state = self.batches.position
        values = {"converged": self.converged, "failure": self.failure, "random_state": random_state}
        return (state, self.report, upcoming), values

    def resumed(self, state):
        """The state to start from: where a callback goes on from an earlier process, and all else as it was then."""
        for callback in self.callbacks:
            found = callback.resume(self, state) if hasattr(callback, "resume") else None
            if found is not None:
                (state, self.report, upcoming), values = found
                self.converged, self.failure = values["converged"], values["failure"]
                self.batches.go_to(StreamPosition(upcoming, values["random_state"]))
                return jax.device_put(state)
        return state

    def _curve(self):
        return self.report.elbo[self.counted[: self.n_iter]]

    def status(self):
        """Why the fit has not converged, or None."""
        if self.failure is not None:
            return self.failure
        return None if self.converged else self.rule.status(self._curve())
