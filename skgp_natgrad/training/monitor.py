"""The host's record of training while it runs."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..step.chunk import STEPS_PER_CALL
from ..step.state import Report

# Number of consecutive undone iterations after which training gives up.
_UNSOUND = 10 * STEPS_PER_CALL


class Monitor:
    """Collects the reports of all iterations, calls the callbacks, and decides when to stop.

    Attributes
    ----------
    report : Report
        Reports of all iterations so far.
    converged : bool
    failure : str or None
        Why training cannot usefully continue; None if it can.
    """

    def __init__(self, rule, counted, max_iter, batches, callbacks):
        self.rule, self.counted, self.max_iter = rule, counted, max_iter
        self.batches, self.callbacks = batches, callbacks
        self.report = Report(*(np.empty(0, dtype) for dtype in (float, float, bool, bool)))
        self.converged, self.failure = False, None
        self._counts = np.empty(0, bool)

    @property
    def n_iter(self):
        """Number of iterations so far."""
        return len(self.report.elbo)

    @property
    def running(self):
        """Whether training continues with another iteration."""
        return self.n_iter < self.max_iter and not self.converged and self.failure is None

    def __call__(self, state, chunk, converged=False, failure=None):
        """Record the report of a chunk and the solver's own status; return whether to stop."""
        self.report = Report(*map(np.concatenate, zip(self.report, chunk, strict=True)))
        self.converged = converged or bool(self.rule.has_stopped(self._curve()))
        self.failure = "unsound" if self._is_unsound() else failure
        for callback in self.callbacks:
            # One callback's answer is visible to the next: a checkpoint saves it.
            self.converged = bool(callback(self, state)) or self.converged
        return self.converged or self.failure is not None

    def _is_unsound(self):
        """Whether bounds that are not finite have undone all recent iterations on minibatches."""
        rejected, gamma = (values[-_UNSOUND:] for values in (self.report.rejected, self.report.gamma))
        return not self.batches.full and len(rejected) == _UNSOUND and bool(np.all(rejected & (gamma == 0.0)))

    def progress(self, state):
        """The state that determines the rest of the training: a tree of arrays, and values."""
        position = self.batches.position
        values = {"converged": self.converged, "failure": self.failure, "random_state": position.random_state}
        return (state, self.report, position._replace(random_state=None)), values

    def resumed(self, state):
        """The state at which to start; if a callback resumes an earlier process, everything else is restored too."""
        for callback in self.callbacks:
            found = callback.resume(self, state) if hasattr(callback, "resume") else None
            if found is not None:
                (state, self.report, position), values = found
                self.converged, self.failure = values["converged"], values["failure"]
                self.batches.go_to(position._replace(random_state=values["random_state"]))
                return state
        return state

    def _curve(self):
        n_known = len(self._counts)
        self._counts = np.concatenate([self._counts, self.counted(n_known, self.n_iter - n_known)])
        return self.report.elbo[self._counts]

    def trend(self):
        """The `stopping.Trend` of the bound."""
        return self.rule.trend(self._curve())

    def status(self):
        """Why the fit has not converged, or None."""
        if self.failure is not None:
            return self.failure
        return None if self.converged else self.rule.status(self._curve())


# The test of convergence.


class Trend(NamedTuple):
    """The bound at the end of a training.

    Attributes
    ----------
    n_counted : int
        Number of iterations that count for the test of convergence.
    rise, before : float or None
        Differences between averages of the bound over a window of iterations, per unit of weight: the last one, and
        the one before.
    """

    n_counted: int
    rise: float | None = None
    before: float | None = None

    def n_more(self, window, tol):
        """How many more iterations would do if the rise goes on to shrink as it did; None if that is not known."""
        if self.before is None or not 0.0 < self.rise < self.before:
            return None
        return window * math.ceil(math.log(tol / self.rise) / math.log(self.rise / self.before)) if tol > 0.0 else None


class StoppingRule:
    """Decides whether the smoothed bound has stopped changing, and whether it certainly has not.

    The bound is averaged over the last ``window`` iterations and over the
    ``window`` before them. On minibatches the difference has a standard error,
    estimated from the scatter; on the full batch it has none.
    """

    def __init__(self, window, tol, weight, noisy):
        self.window, self.tol, self.weight, self.noisy = window, tol, weight, noisy

    def _rise(self, curve):
        if len(curve) < 2 * self.window:
            return np.inf, 0.0
        late, early = curve[-self.window :], curve[-2 * self.window : -self.window]
        error = np.sqrt((late.var() + early.var()) / self.window) if self.noisy else 0.0
        return (late.mean() - early.mean()) / self.weight, 2.0 * error / self.weight

    def trend(self, curve):
        """The `Trend` of a curve."""
        rises = [self._rise(curve[: len(curve) - back])[0] for back in (0, self.window)]
        return Trend(len(curve), *(None if np.isinf(rise) else float(rise) for rise in rises))

    def has_stopped(self, curve):
        """Whether the change per unit of weight is below ``tol``, with allowance for noise."""
        rise, error = self._rise(curve)
        return abs(rise) + error < self.tol

    def status(self, curve):
        """Return why the fit has not converged ("too few", "rising" or "falling"), or None."""
        rise, error = self._rise(curve)
        if np.isinf(rise):
            return "too few"
        if abs(rise) - error <= self.tol:
            return None
        return "rising" if rise > 0 else "falling"
