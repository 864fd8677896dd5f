"""Metrics of predicted distributions, and scorers for model selection.

The functions take arrays from any model. The scorers are objects for ``scoring=`` of scikit-learn's
``cross_val_score``, ``GridSearchCV``, ``learning_curve`` and ``permutation_importance``; they ask the estimator
for its density, intervals or draws.
"""

from .calibration import (
    expected_calibration_error,
    interval_coverage,
    interval_score,
    interval_width,
    pit_calibration_error,
)
from .proper_scores import crps_gaussian, crps_samples, mean_standardized_log_loss, negative_log_predictive_density
from .scorers import (
    DistributionScorer,
    calibration_scorer,
    coverage_scorer,
    crps_scorer,
    interval_scorer,
    msll_scorer,
    nlpd_scorer,
    width_scorer,
)

__all__ = [
    "DistributionScorer",
    "calibration_scorer",
    "coverage_scorer",
    "crps_gaussian",
    "crps_samples",
    "crps_scorer",
    "expected_calibration_error",
    "interval_coverage",
    "interval_score",
    "interval_scorer",
    "interval_width",
    "mean_standardized_log_loss",
    "msll_scorer",
    "negative_log_predictive_density",
    "nlpd_scorer",
    "pit_calibration_error",
    "width_scorer",
]

# Saved objects name the place from which users import a class, wherever its file lies.
DistributionScorer.__module__ = __name__
