"""Likelihoods as users give them: whether a new one has the methods it needs, and parameters in the units of y."""

from __future__ import annotations

import traceback
from inspect import signature
from typing import Literal

import jax
import numpy as np

from .._backend import device
from .._backend.types import Floats
from ._base import Likelihood

_NEEDED = {
    "regression": ("expected_log_prob", "predictive_moments"),
    "classification": ("expected_log_prob", "log_class_probabilities"),
}
# The sizes of the arrays with which a likelihood of the user is tried.
_ROWS, _CLASSES = 2, 3


def undefined_method(likelihood: Likelihood, task: Literal["regression", "classification"]) -> str | None:
    """Return the name of a method that a likelihood lacks for its task, or None.

    Its methods are traced, as training will do; nothing is computed or compiled.

    Parameters
    ----------
    likelihood : Likelihood
    task : {"regression", "classification"}

    Returns
    -------
    name : str or None

    Examples
    --------
    >>> from skgp_natgrad.likelihoods import Gaussian, LocationLikelihood, undefined_method
    >>> class Unfinished(LocationLikelihood):
    ...     "A likelihood without a density."
    >>> undefined_method(Gaussian(), "regression"), undefined_method(Unfinished(), "regression")
    (None, 'log_prob')
    """
    n_classes = 0 if task == "regression" else _CLASSES
    try:
        likelihood = likelihood.value_and_bounds(1)[0]
        moments = jax.ShapeDtypeStruct((likelihood.n_latent(1, n_classes), _ROWS), float)
        y = jax.ShapeDtypeStruct((1, _ROWS), float)
    except NotImplementedError as error:
        return _where(error)
    except Exception:
        # It needs the data first: a missing method shows in training.
        return None
    for name in _NEEDED[task]:
        arguments = (moments, moments, y)[: 3 if name == "expected_log_prob" else 2]
        try:
            # In double precision, as in training: JAX remembers the types of constants.
            with device.computation(in_fork=True):
                jax.eval_shape(getattr(likelihood, name, None) or _absent(name), *arguments)
        except NotImplementedError as error:
            return _where(error)
        except Exception:
            return None
    return None


def _where(error):
    """The name of the method that has raised the error."""
    return error.args[0] if error.args else traceback.extract_tb(error.__traceback__)[-1].name


def _absent(name):
    def method(*arguments):
        raise NotImplementedError(name)

    return method


def in_units(likelihood: Likelihood, deviation: Floats, with_values: bool = True) -> Likelihood:
    """The likelihood for targets that are not scaled: default bounds and default initial values are put in units of y.

    Values and bounds that differ from the defaults, and fixed values, are given in the units of y and do not change.

    Parameters
    ----------
    likelihood : Likelihood
    deviation : ndarray of shape (T,)
        Standard deviations of the targets.
    with_values : bool, default=True
        Whether initial values are changed too.
    """
    found, defaults = {}, signature(type(likelihood)).parameters
    for name, power in likelihood.powers.items():
        value, bounds = getattr(likelihood, name), getattr(likelihood, f"{name}_bounds")
        unit = np.power(deviation, float(power))
        if isinstance(bounds, str):
            continue
        if with_values and np.array_equal(value, defaults[name].default):
            found[name] = value = value * unit
        if np.array_equal(bounds, defaults[f"{name}_bounds"].default):
            ends = bounds[0] * unit.min(), bounds[1] * unit.max()
            found[f"{name}_bounds"] = float(min(ends[0], np.min(value))), float(max(ends[1], np.max(value)))
    return type(likelihood)(**{**likelihood.get_params(deep=False), **found}) if found else likelihood


def in_units_of(likelihood: Likelihood, before: Likelihood) -> Likelihood:
    """The likelihood with default bounds in the units of the previous fit, since the new rows would give other units.

    Parameters
    ----------
    likelihood : Likelihood
    before : Likelihood
        Of the same type, from `in_units`.
    """
    found, defaults = {}, signature(type(likelihood)).parameters
    for name in [f"{name}_bounds" for name in likelihood.powers]:
        if not isinstance(getattr(before, name), str) and np.array_equal(
            getattr(likelihood, name), defaults[name].default
        ):
            found[name] = getattr(before, name)
    return type(likelihood)(**{**likelihood.get_params(deep=False), **found}) if found else likelihood
