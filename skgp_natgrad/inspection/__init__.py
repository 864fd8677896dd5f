"""Displays of fitted estimators, in scikit-learn's conventions: ``from_estimator`` and ``plot``.

matplotlib is imported by ``plot`` alone: ``pip install matplotlib``.
"""

from .calibration import IntervalCalibrationDisplay, ResidualDisplay
from .predictive import PredictiveDisplay
from .relevance import RelevanceDisplay
from .training import TrainingDisplay

__all__ = [
    "IntervalCalibrationDisplay",
    "PredictiveDisplay",
    "RelevanceDisplay",
    "ResidualDisplay",
    "TrainingDisplay",
]

# Saved objects name the place from which users import a class, wherever its file lies.
for _class in (IntervalCalibrationDisplay, PredictiveDisplay, RelevanceDisplay, ResidualDisplay, TrainingDisplay):
    _class.__module__ = __name__
