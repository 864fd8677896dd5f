"""The allowed values of a parameter, and the unconstrained raw value that training updates.

A raw value may be any real number, so every training step stays within the allowed values. All transforms are
increasing: the bounds of a parameter become those of its raw value.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from .._backend.types import Array, Floats


class Transform(NamedTuple):
    """The map from a parameter to its raw value, and back.

    Attributes
    ----------
    name : str
    to_raw : callable
        Maps a NumPy array of values to raw values.
    from_raw : callable
        Maps raw values back, ``from_raw(raw, xp)``, by the functions of ``xp``: NumPy or jax.numpy.
    allows : callable
        Whether each element of an array is an allowed bound; an allowed value is finite besides.
    values : str
        What a value must be, for error messages.
    bounds : str
        What both bounds must be.

    Examples
    --------
    >>> import numpy as np
    >>> from skgp_natgrad.likelihoods import unit_interval
    >>> raw = unit_interval.to_raw(np.array(0.5))
    >>> float(raw), float(unit_interval.from_raw(raw, np))
    (0.0, 0.5)
    """

    name: str
    to_raw: Callable[[Floats], Floats]
    from_raw: Callable[[Array, ModuleType], Array]
    allows: Callable[[Floats], Any]
    values: str
    bounds: str


def _logit(value):
    return np.log(value) - np.log1p(-value)


def _sigmoid(raw, xp):
    # In this form small values keep all their digits, and nothing overflows.
    return xp.exp(-xp.logaddexp(0.0, -raw))


positive = Transform(
    name="positive",
    to_raw=np.log,
    from_raw=lambda raw, xp: xp.exp(raw),
    allows=lambda value: value > 0.0,
    values="positive and finite",
    bounds="positive numbers",
)
unit_interval = Transform(
    name="unit_interval",
    to_raw=_logit,
    from_raw=_sigmoid,
    allows=lambda value: (value > 0.0) & (value < 1.0),
    values="strictly between 0 and 1",
    bounds="numbers strictly between 0 and 1",
)
unconstrained = Transform(
    name="unconstrained",
    to_raw=np.asarray,
    from_raw=lambda raw, xp: xp.asarray(raw),
    allows=lambda value: ~np.isnan(value),
    values="finite",
    bounds="numbers",
)
