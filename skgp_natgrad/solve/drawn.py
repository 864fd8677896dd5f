"""Rows that stand for all, drawn in proportion to their weight."""

from __future__ import annotations

import numpy as np


def drawn(weight, n_rows, random_state):
    """Some rows, in order, and how often each was drawn: all with their weights, if there are few.

    Parameters
    ----------
    weight : ndarray of shape (N,)
    n_rows : int
        Number of draws: systematic ones, so that rows of equal weight are drawn at most once.
    random_state : numpy.random.RandomState

    Returns
    -------
    index, counts : ndarray of shape (at most n_rows,)
    """
    if len(weight) <= n_rows:
        return np.arange(len(weight)), weight
    order = random_state.permutation(len(weight))
    ends = np.cumsum(weight[order])
    at = (random_state.uniform() + np.arange(n_rows)) * (ends[-1] / n_rows)
    position = np.minimum(np.searchsorted(ends, at, side="right"), len(order) - 1)
    return np.unique(order[position], return_counts=True)
