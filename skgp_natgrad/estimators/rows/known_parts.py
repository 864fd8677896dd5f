"""Arguments such as ``alpha`` and ``trials``: known values of each row that the likelihood uses."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..._backend.rows import Held, Mapped, Rows
from . import inputs, long_tables


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
    # Each likelihood takes one of the arguments.
    ((name, value),) = given.items()
    return _checked(name, value, n_rows, n_targets)


def of_fit(likelihood, arguments, columns):
    """The same for the rows of a fit with targets ``columns`` (N, T); without arguments what is known of all rows."""
    found = of_rows(likelihood, arguments, *columns.shape)
    everywhere = likelihood.known_everywhere(columns.shape[1])
    if found is None and everywhere is not None:
        found = np.broadcast_to(everywhere.T, (len(columns), len(everywhere)))
    if isinstance(found, np.ndarray) and isinstance(columns, np.ndarray):
        likelihood.given(found.T).check_rows(columns.T)
    is_held = isinstance(columns, Rows) and isinstance(found, np.ndarray)
    return Held("known", found) if is_held else found


def _checked(name, value, n_rows, n_targets):
    _, _, minimum, whole = _ARGUMENTS[name]
    if not isinstance(value, Rows):
        values = inputs.known(name, value, n_rows, n_targets, minimum)
        return None if values is None else _whole(f"{name}[{{}}]", values, whole)
    rows = long_tables.known(name, value, n_rows, n_targets, minimum)
    return Mapped(lambda part: _whole(f"A value of {name}", part, whole), rows, shape=rows.shape)


def _whole(where, values, whole):
    bad = np.argwhere(values != np.floor(values)) if whole else ()
    if len(bad):
        row = bad[0][0] + inputs.first_row()
        raise ValueError(f"{where.format(row)}={values[tuple(bad[0])]:g} must be an integer.")
    return values
