"""The calibration of a classifier's probabilities: stored with its attributes, or computed at the first use."""

from __future__ import annotations

import threading


class Later:
    """A calibration that is computed at its first use: few of the models that callbacks see are used for predictions.

    Parameters
    ----------
    find : callable
        What it holds on to is let go once the calibration is found.
    """

    def __init__(self, find):
        self._find, self._found, self._lock = find, None, threading.Lock()

    def found(self):
        """The `svgp.Calibration`, the same for all who ask."""
        with self._lock:
            if self._find is not None:
                self._found = self._find()
                self._find = None
            return self._found

    def __deepcopy__(self, memo):
        return self


def calibration_of(state):
    """The `svgp.Calibration` in an estimator's ``__dict__``; None where there is none."""
    found = state.get("_calibration")
    return found.found() if isinstance(found, Later) else found
