"""The test of convergence."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np


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
