"""Sparse variational Gaussian processes trained by natural gradients, for scikit-learn."""

from . import kernels, likelihoods
from ._cache import enable_compilation_cache
from ._version import __version__
from .classifier import NGDSVGPClassifier
from .regressor import NGDSVGPRegressor
from .schedules import Auto, Constant, Cosine, Linear, LineSearch, LogLinear, Schedule

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
    "kernels",
    "likelihoods",
]
