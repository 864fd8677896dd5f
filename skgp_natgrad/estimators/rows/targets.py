"""The targets of a call of ``fit`` or ``partial_fit``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Targets(NamedTuple):
    """The targets of one call of ``fit`` or ``partial_fit``.

    Attributes
    ----------
    columns : ndarray of shape (N, T)
        For a long table this, ``weight``, ``offset`` and ``known`` are `Rows`.
    weight : array-like of shape (N,) or None
        The user's weights, multiplied by those of the classes.
    types : list of numpy.dtype
        Types of the columns as given.
    default_likelihood : str
    n_classes : int
        Zero for numbers.
    scale : bool
        Whether the columns may be standardised.
    attributes : dict
        Fitted attributes that prediction needs.
    offset : ndarray of shape (N, T) or None
        Known parts of the latent functions.
    known : ndarray of shape (N, P T) or None
        What else is known of the rows: see `known_parts.of_rows`.
    may_lack : bool
        Whether a column may be missing in all rows, as in later calls of a stream.
    """

    columns: np.ndarray
    weight: np.ndarray | None
    types: list
    default_likelihood: str
    n_classes: int
    scale: bool
    attributes: dict
    offset: np.ndarray | None = None
    known: np.ndarray | None = None
    may_lack: bool = False
