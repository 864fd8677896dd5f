"""Likelihoods: the distribution of the observations given the latent functions.

Each is an object whose parameters are initial values on the scale of the
(normalised) target; an estimator takes the object or the name of its class.
"""

from __future__ import annotations

from typing import Literal

from ._base import REGISTRY, Likelihood, LocationLikelihood, RegressionLikelihood, ScalarLikelihood
from ._families import ClassLikelihood, TwoLatentLikelihood
from ._given import in_units as in_units
from ._given import in_units_of as in_units_of
from ._given import undefined_method
from ._transforms import Transform, positive, unconstrained, unit_interval
from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .censored import Censored
from .chained_beta import ChainedBeta
from .exponential import Exponential
from .gamma import Gamma
from .gaussian import Gaussian
from .heteroscedastic_gaussian import HeteroscedasticGaussian
from .log_normal import LogNormal
from .negative_binomial import NegativeBinomial
from .ordinal import Ordinal
from .poisson import Poisson
from .robust_max import RobustMax
from .softmax import Softmax
from .student_t import StudentT
from .tweedie import Tweedie
from .zero_inflated_poisson import ZeroInflatedPoisson

__all__ = [
    "Bernoulli",
    "Beta",
    "Binomial",
    "Censored",
    "ChainedBeta",
    "ClassLikelihood",
    "Exponential",
    "Gamma",
    "Gaussian",
    "HeteroscedasticGaussian",
    "Likelihood",
    "LocationLikelihood",
    "LogNormal",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "RegressionLikelihood",
    "RobustMax",
    "ScalarLikelihood",
    "Softmax",
    "StudentT",
    "Transform",
    "Tweedie",
    "TwoLatentLikelihood",
    "ZeroInflatedPoisson",
    "by_name",
    "names",
    "positive",
    "unconstrained",
    "undefined_method",
    "unit_interval",
]


# Saved models name the place from which users import a class, wherever its file lies.
for _class in [value for value in list(globals().values()) if isinstance(value, type)]:
    _class.__module__ = __name__


def names(task: Literal["regression", "classification"]) -> list[str]:
    """Return the names of the likelihoods of a task.

    Parameters
    ----------
    task : {"regression", "classification"}

    Returns
    -------
    names : list of str
        Sorted.

    Examples
    --------
    >>> from skgp_natgrad import likelihoods
    >>> "softmax" in likelihoods.names("classification"), "softmax" in likelihoods.names("regression")
    (True, False)
    """
    return sorted(name for name, cls in REGISTRY.items() if task in cls.tasks)


def by_name(name: str) -> Likelihood:
    """Return the likelihood of a name, with its default parameters.

    Parameters
    ----------
    name : str
        One of `names`.

    Returns
    -------
    likelihood : Likelihood

    Examples
    --------
    >>> from skgp_natgrad import likelihoods
    >>> likelihoods.by_name("student_t")
    StudentT()
    """
    return REGISTRY[name]()
