"""Searches over hyperparameters, whose fits run at the same time in one process and may end early.

They are scikit-learn's, with two differences: fits run in threads, one for each core, which share compiled programs and
data; and ``early_stopping`` ends the fits of candidates with low scores. They take any estimator, but stop only the
estimators of this package, also inside a pipeline. `PredictedQuantile` is for programs that calibrate the predictions
of any regressor. `CalibratedRegressorCV` makes intervals right for rows of new groups, or of later times.
"""

from ._calibrated import CalibratedRegressorCV
from ._quantile import PredictedQuantile
from ._search import NGDGridSearchCV, NGDRandomizedSearchCV

__all__ = ["CalibratedRegressorCV", "NGDGridSearchCV", "NGDRandomizedSearchCV", "PredictedQuantile"]

for _class in (CalibratedRegressorCV, NGDGridSearchCV, NGDRandomizedSearchCV, PredictedQuantile):
    _class.__module__ = __name__
