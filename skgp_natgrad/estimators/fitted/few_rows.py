"""The rows of a stream's last calls, where these are few, and the model before them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# The fitted attributes from which a stream goes on.
CONTINUED = ("kernel_", "likelihood_", "_x_scale", "_y_scale", "_posterior", "_calibration", "_dispersion")
CONTINUED += ("_neighbours", "_rows", "_warm_state", "_trained_with")


class Few(NamedTuple):
    """Rows of the last calls, fewer than show anything.

    Attributes
    ----------
    before : dict
        The fitted attributes from which a stream goes on, before these rows.
    X : ndarray of shape (N, E)
        As numbers, in the units of the user.
    columns, weight : ndarray of shapes (N, T) and (N,)
    offset, known : ndarray or None
        As in `Targets`.
    elbo : float
        Sum of the bounds of the calls before the last one.
    """

    before: dict
    X: np.ndarray
    columns: np.ndarray
    weight: np.ndarray
    offset: np.ndarray | None
    known: np.ndarray | None
    elbo: float


def continued(estimator):
    """The attributes from which a stream goes on."""
    return {name: getattr(estimator, name) for name in CONTINUED if hasattr(estimator, name)}
