"""Searches over hyperparameters, whose fits run at the same time in one process and may end early.

They are scikit-learn's, with two differences: fits run in threads, which share compiled programs and
data, one for each core; and ``early_stopping`` ends those of candidates that are behind. Any estimator
may be searched over; those of this package, also within a pipeline, are the ones that can be stopped.
"""

from ._search import NGDGridSearchCV, NGDRandomizedSearchCV

__all__ = ["NGDGridSearchCV", "NGDRandomizedSearchCV"]

for _class in (NGDGridSearchCV, NGDRandomizedSearchCV):
    _class.__module__ = __name__
