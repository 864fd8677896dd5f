"""The classes that a reader of saved models may trust."""

from __future__ import annotations

import inspect

from sklearn.gaussian_process import kernels as sklearn_kernels

from .. import kernels, likelihoods, objectives, priors, svgp
from ..choose.scale import NormalScores, Scale
from ..estimators.fitted.persistence import Triangle
from ..estimators.fitting.few_at_a_time import Few
from ..estimators.rows.donors import Lacking
from ..estimators.rows.encoding import Encoding
from ..kernels.base import registered
from ..likelihoods import Likelihood
from ..objectives import Objective
from ..prediction.errors import MixtureErrors, StudentErrors
from ..priors import Prior
from ..training import schedules
from ..training.schedules import Schedule

# By the names under which users import them.
_ESTIMATORS = ("skgp_natgrad.NGDSVGPClassifier", "skgp_natgrad.NGDSVGPRegressor")
# Of which fitted attributes consist.
_RECORDS = (Encoding, Few, NormalScores, Scale, Triangle, svgp.Calibration, svgp.Dispersion, svgp.Gaussian, svgp.Masks)
_RECORDS += (svgp.Neighbours, svgp.Parameters, svgp.Points, svgp.Posterior, svgp.Previous, svgp.Table, svgp.Weights)
_RECORDS += (Lacking, MixtureErrors, StudentErrors)


def trusted_types() -> list[str]:
    """Return the names of the classes that fitted models of this package consist of.

    For programs such as skops that load only trusted classes: a file can then create objects of these classes, and of
    the classes that skops trusts by default, but no others. They are the two estimators and the records of their
    attributes, the package's likelihoods, objectives, priors, schedules and kernels, the kernels of scikit-learn, and
    NumPy's types of numbers.

    Returns
    -------
    names : list of str
        Qualified names, sorted. Classes and functions of your own, such as a likelihood or a schedule, are not
        among them: add their names if you trust them.

    Examples
    --------
    >>> from skgp_natgrad import trusted_types
    >>> names = trusted_types()
    >>> "skgp_natgrad.NGDSVGPRegressor" in names, "sklearn.gaussian_process.kernels.RBF" in names
    (True, True)

    With skops, ``trusted`` takes the list as it is:

    >>> import skops.io  # doctest: +SKIP
    >>> model = skops.io.load("model.skops", trusted=trusted_types())  # doctest: +SKIP
    """
    found = list(_RECORDS)
    families = (schedules, Schedule), (likelihoods, Likelihood), (objectives, Objective), (priors, Prior)
    for module, base in families:
        found += _complete((getattr(module, name) for name in module.__all__), base)
    for values in (vars(kernels).values(), vars(sklearn_kernels).values()):
        of_kernels = _complete(values, sklearn_kernels.Kernel)
        found += [*of_kernels, *filter(None, map(registered, of_kernels))]
    # Encoders know the type of what they were fitted to.
    return sorted({*_ESTIMATORS, "numpy.dtype", *(f"{each.__module__}.{each.__qualname__}" for each in found)})


def _complete(values, base):
    """The classes among some values that are made from ``base`` and can be used as they are."""
    classes = [value for value in values if isinstance(value, type) and issubclass(value, base)]
    # Base classes of likelihoods and objectives have no name.
    return [
        each for each in classes if not inspect.isabstract(each) and each is not Prior and getattr(each, "name", True)
    ]
