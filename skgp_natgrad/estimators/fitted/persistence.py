"""A saved estimator: its attributes as they are, with the number of their format; and the trusted types.

Pickle, joblib, copy and skops save the same state. The format number counts changes of the fitted attributes and of
their classes, not releases: a file of another format is refused with a clear error, instead of failing at some later
call.
"""

from __future__ import annotations

import inspect
from typing import NamedTuple

import jax
import numpy as np
from sklearn.gaussian_process import kernels as sklearn_kernels

from ... import kernels, likelihoods, objectives, priors, svgp
from ..._backend import __version__, in_place
from ...kernels.base import registered
from ...likelihoods import Likelihood
from ...objectives import Objective
from ...priors import Prior
from ...start.scale import NormalScores, Scale
from ...training import schedules
from ...training.schedules import Schedule
from ..rows.encoding import Encoding
from .attributes import calibration_of
from .few_rows import Few

# Raise it with every change of the attributes that a fitted estimator holds, and of their classes.
FORMAT = 17
_KEY = "_saved_by"
# Attributes with large matrices.
_PACKED = ("_posterior", "_dispersion", "_warm_state")


class Triangle(NamedTuple):
    """Square matrices of which one triangle tells the other, in half of the space."""

    symmetric: bool
    size: int
    rows: np.ndarray


def stamped(state):
    """Return an estimator's state with its format, and without what follows from the rest."""
    state = {**state, _KEY: {"format": FORMAT, "skgp_natgrad": __version__}}
    if "_posterior" in state:
        # A function belongs to the program that defines it, and a saved model must load in any other.
        state |= {"callback": None, "_calibration": calibration_of(state)}
        state.pop("_skl_callbacks", None)
        state["_warm_state"] = state["_warm_state"]._replace(whitened_by=None, factors=None)
        state |= {name: jax.tree.map(_packed, state[name]) for name in _PACKED if name in state}
        if "_few" in state:
            state["_few"] = state["_few"]._replace(before=stamped(state["_few"].before))
    return state


def restored(cls, state):
    """Undo `stamped`: return the state of the estimator.

    Parameters
    ----------
    cls : type
        The estimator's class.
    state : dict
        A state without a stamp is returned unchanged: a subclass may have its own ``__getstate__``.

    Raises
    ------
    ValueError
        If it was saved in another format.
    """
    stamp = state.get(_KEY)
    state = {key: value for key, value in state.items() if key != _KEY}
    if stamp is None:
        return state
    if stamp["format"] != FORMAT:
        raise ValueError(
            f"This {cls.__name__} was saved by skgp_natgrad {stamp['skgp_natgrad']} in format {stamp['format']}, and "
            f"version {__version__} reads only format {FORMAT}; to load it, install "
            f"skgp_natgrad=={stamp['skgp_natgrad']}, or fit it again."
        )
    if "_posterior" in state:
        state |= {name: jax.tree.map(_unpacked, state[name], is_leaf=_is_packed) for name in _PACKED if name in state}
        state["_warm_state"] = state["_warm_state"]._replace(whitened_by=state["_warm_state"].parameters)
        if "_few" in state:
            state["_few"] = state["_few"]._replace(before=restored(cls, state["_few"].before))
    return state


def _packed(A):
    if np.ndim(A) != 3 or A.shape[1] != A.shape[2]:
        return A
    lower = np.tril(A)
    for symmetric, whole in enumerate((lower, lower + np.tril(A, -1).swapaxes(1, 2))):
        if np.array_equal(A, whole):
            return Triangle(bool(symmetric), A.shape[1], A[:, np.tri(A.shape[1], dtype=bool)])
    return A


def _is_packed(value):
    return isinstance(value, Triangle)


def _unpacked(value):
    if not _is_packed(value):
        return value
    A = np.zeros((len(value.rows), value.size, value.size), value.rows.dtype)
    A[:, np.tri(value.size, dtype=bool)] = value.rows
    return np.stack(list(map(in_place.mirrored, A))) if value.symmetric else A


# By the names under which users import them.
_ESTIMATORS = ("skgp_natgrad.NGDSVGPClassifier", "skgp_natgrad.NGDSVGPRegressor")
# Of which fitted attributes consist.
_RECORDS = (Encoding, Few, NormalScores, Scale, Triangle, svgp.Calibration, svgp.Dispersion, svgp.Gaussian, svgp.Masks)
_RECORDS += (svgp.Neighbours, svgp.Parameters, svgp.Points, svgp.Posterior, svgp.Previous, svgp.Table, svgp.Weights)


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
