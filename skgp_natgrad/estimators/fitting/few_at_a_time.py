"""Parts of a stream that are too few to show that y has changed: twenty such rows are one part.

Each part is learned at once. As soon as there are enough rows, the stream goes back to the model before them and learns
them together. So what single rows show adds up, and a stream of single rows ends at the model of one in larger parts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..._backend import processes
from .continuing import FEWEST

# The fitted attributes from which a stream goes on.
_CONTINUED = ("kernel_", "likelihood_", "_x_scale", "_y_scale", "_posterior", "_calibration", "_dispersion")
_CONTINUED += ("_neighbours", "_rows", "_warm_state", "_trained_with")


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


def joined(learner, X, types, targets, streams):
    """The rows with those of the last calls, if these are enough now; and the bound that the calls have reported.

    Parameters
    ----------
    learner : NGDSVGPRegressor or NGDSVGPClassifier
        Takes over the attributes before the rows of the last calls if these are learned again, and keeps the rows
        otherwise.
    X, types, targets
        Of this call.
    streams : bool

    Returns
    -------
    rows : tuple
        ``X``, ``types`` and ``targets``.
    elbo : float
    """
    few, rows = vars(learner).pop("_few", None), (X, types, targets)
    goes_on = streams and learner._previous(streams) is not None and not targets.n_classes
    if not (goes_on and isinstance(X, np.ndarray) and processes.sharing(learner.n_devices) == 1 and len(X) < FEWEST):
        return rows, 0.0
    new = X, targets.columns, targets.weight, targets.offset, targets.known
    if few is None or [each is None for each in few[1:-1]] != [each is None for each in new]:
        few = Few({name: getattr(learner, name) for name in _CONTINUED if hasattr(learner, name)}, *new, 0.0)
    else:
        both = (each if each is None else np.concatenate([each, own]) for each, own in zip(few[1:-1], new, strict=True))
        few = Few(few.before, *both, few.elbo + learner.elbo_)
    if len(few.X) < FEWEST:
        learner._few = few
        return rows, 0.0
    vars(learner).update({name: few.before.get(name) for name in _CONTINUED})
    together = {name: getattr(few, name) for name in ("columns", "weight", "offset", "known")}
    return (few.X, types, targets._replace(**together)), few.elbo
