"""Sparse variational Gaussian processes trained by natural gradients, for scikit-learn."""

from . import kernels, likelihoods
from .classifier import NGDSVGPClassifier
from .regressor import NGDSVGPRegressor
from .schedules import Auto, Constant, Cosine, Linear, LineSearch, LogLinear, Schedule

__version__ = "0.1.0"

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
    "kernels",
    "likelihoods",
]
