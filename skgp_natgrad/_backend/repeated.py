"""Rows that repeat the X of others.

Copies of a row with equal targets do not tell about the noise: often they only give the row more weight. If the targets
of equal X differ, each row is an observation of its own, and so are its copies.
"""

from __future__ import annotations

import numpy as np

_HALF = np.uint64(32)
# Of X: as many as fit into a cache.
_NUMBERS_AT_ONCE = 2**16


def grouped(X):
    """An order of the rows of X (N, D) in which equal ones follow each other, as before, and the starts of groups."""
    number = _numbers(X)
    order = np.argsort(number, kind="stable")
    alike = np.flatnonzero(number[order[1:]] == number[order[:-1]])
    if np.any(X[order[alike]] != X[order[alike + 1]]):
        order = np.lexsort(X.T)
        alike = np.flatnonzero((X[order[1:]] == X[order[:-1]]).all(1))
    return order, np.delete(np.arange(len(X)), alike + 1)


def _numbers(X):
    """A number of 64 bits for each row of X (N, D): that of equal rows is equal, that of others hardly ever."""
    factors = np.random.default_rng(0).integers(2**64, size=X.shape[1], dtype=np.uint64) | np.uint64(1)
    found = np.empty(len(X), np.uint64)
    n_rows = max(1, _NUMBERS_AT_ONCE // max(1, X.shape[1]))
    for start in range(0, len(X), n_rows):
        # A negative zero equals a positive one.
        bits = (X[start : start + n_rows].astype(float, order="C") + 0.0).view(np.uint64)
        # Short numbers end in zeros: shifted twice, all bits have a part in all others.
        bits = (bits ^ (bits >> _HALF)) * factors
        found[start : start + n_rows] = (bits ^ (bits >> _HALF)).sum(1)
    return found


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


def common_weight(weight):
    """The weight that (sum w)^2 / sum w^2 equal rows have which tell as much as rows of these weights (Kish 1965).

    Parameters
    ----------
    weight : ndarray of shape (N,)

    Returns
    -------
    common_weight : float
        One of rows without weight.
    """
    largest = np.max(weight, initial=0.0)
    if largest <= 0.0:
        return 1.0
    relative = np.asarray(weight) / largest
    return max(float(largest * (relative**2).sum() / relative.sum()), float(np.finfo(float).tiny))


def in_rows(weight):
    """Weights in units in which rows that all weigh less than one have a weight of one."""
    return weight / min(common_weight(weight), 1.0)


def at_most_one(weight):
    """Weights of single observations: those `in_rows`, and one at most.

    A row that matters more is no better judge of what is common to all: scale, noise, lengthscales.

    Parameters
    ----------
    weight : ndarray of shape (N,)

    Returns
    -------
    weight : ndarray of shape (N,)
    """
    return np.minimum(in_rows(weight), 1.0)


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
