"""The nearest rows of a table: by a tree if columns are few, else by products in single precision.

Products in single precision give a lower bound of each distance, with a margin for rounding. Rows whose bound does not
exceed the largest distance needed are compared in double precision. So both ways are exact, but for trees of very many
rows: there the search leaves out boxes of rows that are hardly nearer than those it has (Arya et al. 1998).
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from .._backend import threads

# Most columns of a tree of usual size, where they spread alike: see `_spread`. Among 50,000 rows with 8 columns, 200
# neighbours took .7 ms by a tree and .8 by products; with 10 columns 1.0 and .6. Where few of many columns tell rows
# apart a tree needs these alone: of bike's 17 columns .025 and .096 ms, of protein's 9 .084 and .136 (AMD EPYC).
_FEW_COLUMNS, _LEAF = 8, 32
# In trees of more than the first number of rows, the k-th row found is farther than the k-th nearest by this share at
# most. Of 1,000,000 rows with 8 columns, 200 neighbours then take .3 ms instead of .8 and are 99 % the same, and the
# log density of predictions (of a robot arm of 8 joints) falls by .002; with .6 94 % are, and it falls by .0025. Trees
# then pay up to more columns: with 15 it is 5 ms, and 14 ms by products.
_MANY_ROWS, _FARTHER, _FEW_COLUMNS_OF_MANY = 250_000, 0.3, 15
# Rows of a block for which neighbours are searched; products have blocks of so many numbers, to stay in the cache.
_BLOCK_ROWS, _NUMBERS = 256, 4_000_000
# `smallest` samples so many values to find a threshold, and expects so many times the wanted number below it.
_SAMPLE, _MORE = 4096, 2.0
_EPS = float(np.finfo(np.float32).eps)
# The largest distance along a column: squares of it, and their sums, are finite.
_FARTHEST = 1e100


class Nearest:
    """Finds the rows of a table that are nearest to others.

    Parameters
    ----------
    X : ndarray of shape (N, D)
    rates : ndarray of shape (D,)
        Factors of the columns: inverse lengthscales, from `rates`.

    Examples
    --------
    >>> rows = np.array([[0.0, 0.0], [3.0, 0.0], [1.0, 5.0]])
    >>> Nearest(rows, np.array([1.0, 0.1])).query(np.zeros((1, 2)), 4)
    array([[ 0,  2,  1, -1]])
    """

    def __init__(self, X, rates):
        # Other columns do not contribute to distances.
        self._columns = np.flatnonzero((rates > 0.0) & (np.ptp(X, axis=0) > 0.0))
        self._rates, self.n_rows = rates[self._columns], len(X)
        self._centre = X[:, self._columns].mean(0)
        X, self._tree, self._is_long = self._scaled(X), None, len(X) > _MANY_ROWS
        if 0.0 < _spread(X) <= (_FEW_COLUMNS_OF_MANY if self._is_long else _FEW_COLUMNS):
            # In the order of a tree's leaves, the rows of a leaf lie side by side: of 1,000,000 rows in 8 columns, 200
            # neighbours then take .8 ms instead of 1.4.
            self._order = np.array(_tree(X).indices)
            self._tree = _tree(X[self._order])
        else:
            self._X = X
            # Rows that overflow are compared in double precision.
            with np.errstate(over="ignore"):
                self._single = self._X.astype(np.float32)
                square = np.einsum("nd,nd->n", self._single, self._single)
            # Rounding may increase a squared distance by the sum of both rows' squares times this.
            self._rounding = 2.0 * (len(self._columns) + 4.0) * _EPS
            self._least = (1.0 - self._rounding) * square

    def _scaled(self, X):
        """Rows in units of the rates; those that overflow are as far as others without any correlation."""
        with np.errstate(over="ignore"):
            scaled = (X[:, self._columns] - self._centre) * self._rates
        return np.clip(scaled, -_FARTHEST, _FARTHEST, order="C")

    def query(self, x, n, allowed=None):
        """The ``n`` rows nearest to each of ``x`` (B, D), nearest first; -1 if there are fewer.

        Parameters
        ----------
        x : ndarray of shape (B, D)
        n : int
        allowed : callable, optional
            Takes positions in ``x`` (B',) and rows (B', k); returns which of these count: (B', k).

        Returns
        -------
        near : ndarray of shape (B, n)
        """
        near = np.full((len(x), n), -1)

        def of_block(start):
            rows = slice(start, start + _BLOCK_ROWS)
            counts = None if allowed is None else lambda at, found: allowed(start + at, found)
            self._query(near[rows], self._scaled(x[rows]), counts)

        threads.for_each(of_block, range(0, len(x), _BLOCK_ROWS))
        return near

    def _query(self, near, x, allowed):
        """Fill ``near`` (B, n) for rows ``x`` in units of the rates."""
        n = near.shape[1]
        left, n_found = np.arange(len(x)), n if allowed is None else n + 1
        while len(left):
            n_found = min(n_found, self.n_rows)
            found = self._of(x[left], n_found)
            counts = np.ones(found.shape, bool) if allowed is None else allowed(left, found)
            order = np.argsort(~counts, axis=1, kind="stable")[:, :n]
            found, counted = (np.take_along_axis(each, order, axis=1) for each in (found, counts))
            done = (counts.sum(1) >= n) | (n_found == self.n_rows)
            near[left[done], : order.shape[1]] = np.where(counted, found, -1)[done]
            left, n_found = left[~done], 2 * n_found

    def _of(self, x, n):
        """The rows nearest to ``x`` (B, D) in units of the rates, at most N of them."""
        if self._tree is not None:
            return self._order[self._tree.query(x, np.arange(1, n + 1), eps=_FARTHER if self._is_long else 0.0)[1]]
        found, size = np.empty((len(x), n), int), max(_NUMBERS // self.n_rows, 1)
        for start in range(0, len(x), size):
            some = x[start : start + size]
            with np.errstate(over="ignore", invalid="ignore"):
                least = some.astype(np.float32) @ self._single.T
                least *= np.float32(-2.0)
                least += self._least
            of_x = (1.0 - self._rounding) * np.einsum("bd,bd->b", some, some)
            for i, row in enumerate(some):
                if not np.all(np.isfinite(least[i])):
                    least[i], of_x[i] = 0.0, 0.0
                found[start + i] = self._of_bounds(row, least[i], of_x[i], n)
        return found

    def _of_bounds(self, x, least, of_x, n):
        """The ``n`` rows nearest to one row; squared distances are at least ``of_x + least`` (N,)."""
        some = smallest(least, n)
        limit = self._squares(x, some).max() - of_x
        # With a margin, since the bounds are rounded to single precision.
        some = np.flatnonzero(least <= limit + _EPS * abs(limit))
        squares = self._squares(x, some)
        return some[np.lexsort((some, squares))[:n]]

    def _squares(self, x, rows):
        difference = self._X[rows] - x
        return np.einsum("nd,nd->n", difference, difference)


def _spread(X):
    """The number of columns that would spread rows as these do, if they all had one variance."""
    square = np.square(X.std(0) / max(np.abs(X).max(initial=0.0), 1.0))
    return 0.0 if not square.any() else square.sum() ** 2 / np.square(square).sum()


def _tree(X):
    # Splits at the middle of boxes: quicker to build than at medians, and as quick to search.
    return cKDTree(X, leafsize=_LEAF, balanced_tree=False, compact_nodes=False)


def smallest(values, n):
    """The positions of the ``n`` smallest values."""
    step = len(values) // _SAMPLE
    if step > 1:
        # A sample of the values gives a threshold below which enough of them lie.
        part = values[::step]
        rank = min(int(_MORE * n / step) + 8, len(part) - 1)
        some = np.flatnonzero(values <= np.partition(part, rank)[rank])
        if len(some) >= n:
            return some[np.argpartition(values[some], n - 1)[:n]]
    return np.argpartition(values, n - 1)[:n]
