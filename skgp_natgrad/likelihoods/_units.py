"""Parameters in units of y, for likelihoods that do not standardise y."""

from __future__ import annotations

from inspect import signature

import numpy as np

from .._backend.types import Floats
from ._base import Likelihood


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
