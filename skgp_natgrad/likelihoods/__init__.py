"""Likelihoods: what is observed, given the latent function.

Each is an object whose parameters are initial values on the scale of the
(normalised) target; an estimator takes the object or the name of its class.
"""

from __future__ import annotations

from ._base import REGISTRY, ClassLikelihood, Likelihood, LocationLikelihood, RegressionLikelihood, ScalarLikelihood
from .bernoulli import Bernoulli
from .gaussian import Gaussian
from .robust_max import RobustMax
from .softmax import Softmax
from .student_t import StudentT

__all__ = [
    "Bernoulli",
    "ClassLikelihood",
    "Gaussian",
    "Likelihood",
    "LocationLikelihood",
    "RegressionLikelihood",
    "RobustMax",
    "ScalarLikelihood",
    "Softmax",
    "StudentT",
    "by_name",
    "names",
]


def names(task):
    """Return the names of the likelihoods of a task: "regression" or "classification"."""
    return sorted(name for name, cls in REGISTRY.items() if cls.task == task)


def by_name(name):
    """Return the likelihood of that name, with its default parameters."""
    return REGISTRY[name]()
