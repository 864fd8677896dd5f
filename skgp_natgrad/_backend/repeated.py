"""Rows that repeat the X of others.

Copies of a row, whose targets agree, say nothing of the noise: often they are there to give it weight. Where targets
of equal X differ, each is an observation of its own, and so are the copies of each.
"""

from __future__ import annotations

import numpy as np


def grouped(X):
    """An order of the rows of X (N, D) in which equal ones follow each other, as before, and the starts of groups."""
    order = np.lexsort(X.T)
    X = X[order]
    first = np.concatenate([[True], (X[1:] != X[:-1]).any(1)])
    return order, np.flatnonzero(first)


def groups(X):
    """A number for each row of X (N, D), the same for equal rows."""
    order, start = grouped(X)
    found = np.empty(len(order), dtype=int)
    found[order] = np.repeat(np.arange(len(start)), np.diff(start, append=len(order)))
    return found


def contradicted(X, y):
    """Whether another target is seen at the X of each row.

    Parameters
    ----------
    X : ndarray of shape (N, D)
    y : ndarray of shape (T, N)
        Of missing targets, NaN, nothing is seen.

    Returns
    -------
    contradicted : ndarray of shape (T, N)
    """
    order, start = grouped(X)
    sizes = np.diff(start, append=len(order))
    found = np.empty(np.shape(y), bool)
    for k, each in enumerate(y):
        differ = np.fmin.reduceat(each[order], start) < np.fmax.reduceat(each[order], start)
        found[k, order] = np.repeat(differ, sizes)
    return found


def among(X, Z):
    """Whether each row of X (N, D) is a row of Z (M, D), to the bit."""
    # A negative zero equals a positive one.
    X, Z = (np.asarray(each) + 0.0 for each in (X, Z))
    known = {each.tobytes() for each in Z.astype(X.dtype)}
    return np.array([each.tobytes() in known for each in X], dtype=bool)


def n_observations(weight, is_contradicted, most=np.inf):
    """The number of observations in each row: as many as its weight where it is contradicted, else one.

    Parameters
    ----------
    weight : ndarray of shape (N,)
    is_contradicted : ndarray of shape (..., N)
    most : int, optional
        In a row.

    Returns
    -------
    n_observations : ndarray of shape (..., N)
    """
    return np.where(is_contradicted, np.clip(np.floor(weight), 1, most), 1.0)


def shuffled(X, random_state):
    """A random order of the rows of X (N, D) in which equal ones follow each other, and where in it each group ends."""
    order, start = grouped(X)
    sizes = np.diff(start, append=len(order))
    first = order[start]
    # Groups are numbered by their first rows: of distinct rows this is a permutation.
    number = np.empty_like(first)
    number[np.argsort(first)] = np.arange(len(first))
    drawn, place, of_rows = random_state.permutation(len(first)), np.empty_like(first), np.empty_like(order)
    place[drawn] = np.arange(len(first))
    of_rows[order] = np.repeat(place[number], sizes)
    return np.argsort(of_rows, kind="stable"), np.cumsum(sizes[np.argsort(place[number])])
