"""Sparse variational Gaussian processes trained by natural gradients, for scikit-learn."""

from . import inspection, kernels, likelihoods, metrics, model_selection, objectives, priors, svgp
from ._backend import __version__
from ._backend.programs import enable_compilation_cache
from .estimators.classifier import NGDSVGPClassifier
from .estimators.fitted.persistence import trusted_types
from .estimators.regressor import NGDSVGPRegressor
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
    "Schedule",
    "__version__",
    "enable_compilation_cache",
    "inspection",
    "kernels",
    "likelihoods",
    "metrics",
    "model_selection",
    "objectives",
    "priors",
    "svgp",
    "trusted_types",
]

# Saved models name the place from which users import a class, wherever its file lies.
for _class in (NGDSVGPClassifier, NGDSVGPRegressor, Schedule, Auto, Constant, Cosine, Linear, LineSearch, LogLinear):
    _class.__module__ = __name__
