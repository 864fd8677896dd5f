"""When training has converged."""

from __future__ import annotations

import numpy as np


class StoppingRule:
    """Says when the smoothed bound has stopped changing, and when it surely has not.

    The bound is averaged over the last ``window`` iterations and over the
    ``window`` before them. On minibatches the difference has a standard error,
    estimated from the scatter; a full batch has none.
    """

    def __init__(self, window, tol, weight, noisy):
        self.window, self.tol, self.weight, self.noisy = window, tol, weight, noisy

    def _rise(self, curve):
        if len(curve) < 2 * self.window:
            return np.inf, 0.0
        late, early = curve[-self.window :], curve[-2 * self.window : -self.window]
        error = np.sqrt((late.var() + early.var()) / self.window) if self.noisy else 0.0
        return (late.mean() - early.mean()) / self.weight, 2.0 * error / self.weight

    def has_stopped(self, curve):
        """Whether the change is below ``tol`` for each unit of weight, noise allowed for."""
        rise, error = self._rise(curve)
        return abs(rise) + error < self.tol

    def status(self, curve):
        """Say why the fit has not converged: "too few", "rising" or "falling"; or None."""
        rise, error = self._rise(curve)
        if np.isinf(rise):
            return "too few"
        if abs(rise) - error <= self.tol:
            return None
        return "rising" if rise > 0 else "falling"
