"""A saved estimator: its attributes as they are, with the number of their format.

Pickle, joblib, copy and skops save the same state. The format number counts changes of the fitted attributes and of
their classes, not releases: a file of another format is refused with a clear error, instead of failing at some later
call.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from ..._backend import __version__, in_place
from .attributes import calibration_of

# Raise it with every change of the attributes that a fitted estimator holds, and of their classes.
FORMAT = 23
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
