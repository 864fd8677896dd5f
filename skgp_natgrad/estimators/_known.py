"""What is known of single rows besides X and y, for the likelihood: arguments such as ``alpha`` and ``trials``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._backend.rows import Mapped, Rows
from . import _inputs, _long


class _Argument(NamedTuple):
    """An argument: what it holds, the likelihood that takes it, and the values allowed."""

    holds: str
    likelihood: str
    minimum: float = -np.inf
    whole: bool = False


_ARGUMENTS = {
    "alpha": _Argument("known variances of Gaussian noise", "gaussian", 0.0),
    "trials": _Argument("the numbers of trials of binomial counts", "binomial", 1.0, True),
}


def of_rows(likelihood, arguments, n_rows, n_targets):
    """What is known of each row, (n_rows, P n_targets), for the P quantities of ``likelihood.known``; or None.

    Parameters
    ----------
    likelihood : Likelihood
    arguments : dict
        By name; a value that is None is not given.
    n_rows, n_targets : int

    Returns
    -------
    known : ndarray, or Rows if a value is; None if nothing is given
        In the units of y.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    for name in given:
        if name not in likelihood.known:
            holds, takes = _ARGUMENTS[name][:2]
            raise ValueError(
                f"{name} holds {holds}, but likelihood {type(likelihood).__name__} has none; use "
                f"likelihood={takes!r}, or leave {name} out."
            )
    if not given:
        return None
    each = [_checked(name, given[name], n_rows, n_targets) for name in likelihood.known]
    return each[0] if len(each) == 1 else np.concatenate(each, axis=1)


def of_all_rows(likelihood, n_rows, n_targets):
    """The same where nothing is given: what is known of every row."""
    everywhere = likelihood.known_everywhere(n_targets)
    return None if everywhere is None else np.broadcast_to(everywhere.T, (n_rows, len(everywhere)))


def _checked(name, value, n_rows, n_targets):
    _, _, minimum, whole = _ARGUMENTS[name]
    if not isinstance(value, Rows):
        return _whole(name, _inputs.known(name, value, n_rows, n_targets, minimum), whole)
    rows = _long.known(name, value, n_rows, n_targets, minimum)
    return Mapped(lambda part: _whole(name, part, whole), rows, shape=rows.shape)


def _whole(name, values, whole):
    bad = np.argwhere(values != np.floor(values)) if whole else ()
    if len(bad):
        raise ValueError(f"{name}[{bad[0][0]}]={values[tuple(bad[0])]:g} must be an integer.")
    return values
