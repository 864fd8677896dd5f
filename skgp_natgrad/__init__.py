"""Sparse variational Gaussian processes trained by natural gradients, for scikit-learn."""

from . import inspection, kernels, likelihoods, metrics, model_selection, objectives, priors, svgp
from . import paper as _paper  # noqa: F401 - It adds its parts to the tables of the house.
from ._backend import __version__
from .estimators.classifier import NGDSVGPClassifier
from .estimators.regressor import NGDSVGPRegressor
from .metrics.distribution import PredictiveDistribution
from .metrics.predictions import predictive_distribution
from .tools.cache import enable_compilation_cache
from .tools.trusted import trusted_types
from .training.schedules import Auto, Constant, Cosine, Linear, LineSearch, LogLinear, Schedule

__all__ = [
    "Auto",
    "Constant",
    "Cosine",
    "LineSearch",
    "Linear",
    "LogLinear",
    "NGDSVGPClassifier",
    "NGDSVGPRegressor",
    "PredictiveDistribution",
    "Schedule",
    "__version__",
    "enable_compilation_cache",
    "inspection",
    "kernels",
    "likelihoods",
    "metrics",
    "model_selection",
    "objectives",
    "predictive_distribution",
    "priors",
    "svgp",
    "trusted_types",
]

# Saved models name the place from which users import a class, wherever its file lies.
for _class in (NGDSVGPClassifier, NGDSVGPRegressor, PredictiveDistribution):
    _class.__module__ = __name__
for _class in (Schedule, Auto, Constant, Cosine, Linear, LineSearch, LogLinear):
    _class.__module__ = __name__
