"""The calibration of class probabilities among a classifier's attributes: there, or found when it is asked for."""

from __future__ import annotations

import functools


class Later:
    """A calibration that is found when it is first asked for: of models that callbacks are shown, few are."""

    def __init__(self, find):
        self.found = functools.cache(find)


def calibration_of(state):
    """The `svgp.Calibration` in an estimator's ``__dict__``; None where there is none."""
    found = state.get("_calibration")
    return found.found() if isinstance(found, Later) else found
