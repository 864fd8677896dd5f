"""Splits a table into rows whose evidence is maximised, and held-out rows by which kernels are judged.

A small table is cross-validated: with few rows a kernel with many hyperparameters overfits, and even leave-one-out
predictions of the rows that it was fitted to do not show how badly it predicts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._backend.repeated import grouped, groups, in_rows, shuffled

# With fewer held-out rows a table counts as small; and the most held-out rows of other tables.
FEWEST_OUTSIDE, _OUTSIDE = 100, 1500
# Folds of a small table, and of one with up to so many different rows.
_FOLDS_OF_SMALL, _FOLDS_OF_FEW, _FEW_TO_SPLIT = 3, 5, 150


class Split(NamedTuple):
    """Rows whose evidence is maximised, one for each X, and the held-out rows that judge the result.

    Attributes
    ----------
    rows, others : Table
    index : ndarray of int
        Positions of ``others`` in the table.
    """

    rows: object
    others: object
    index: np.ndarray

    @property
    def weight(self):
        """The weight of the held-out values, without those of targets that are missing in all rows of the fit."""
        known = np.isfinite(self.others.y) & np.isfinite(self.rows.y).any(axis=1, keepdims=True)
        return float((self.others.weight * known.mean(0)).sum())


class Shuffled(NamedTuple):
    """A random order of the rows of a table, and where each group of equal X ends in it: see `in_random_order`."""

    order: np.ndarray
    ends: np.ndarray

    @property
    def n_groups(self):
        """Number of different X."""
        return len(self.ends)

    def first(self, n_groups):
        """The first rows, which have so many different X."""
        return self.order[: self.ends[:n_groups][-1]]

    def part(self, most):
        """Positions of at most so many rows, sorted, and the same order of them.

        No group of equal X is divided. Of a longer table those with a tenth of these rows or more are left out.
        """
        n_each = np.diff(self.ends, prepend=0)
        kept = n_each < (np.inf if len(self.order) <= most else most / 10)
        kept &= np.cumsum(np.where(kept, n_each, 0)) <= most
        some = self.order[np.repeat(kept, n_each)]
        positions = np.sort(some)
        return positions, type(self)(np.searchsorted(positions, some), np.cumsum(n_each[kept]))

    def is_small(self, n_groups):
        """Whether too few rows are held out beside the first ones."""
        return len(self.order) - len(self.first(n_groups)) < FEWEST_OUTSIDE

    def merged(self, table, n_groups):
        """The first rows of a table, one for each X."""
        return merged(table.rows(np.sort(self.first(n_groups))))

    def outside(self, n_groups):
        """Positions of held-out rows, after the first ones, at most `_OUTSIDE`."""
        return _some(self.order[len(self.first(n_groups)) :])

    def evenly(self, table, n_groups, without=()):
        """Positions of rows with so many different X, more of rare targets and fewer of frequent ones.

        The share of a target is in proportion to the root of its share in the table, as far as it has rows. Rows at the
        X of those ``without`` come last.
        """
        starts = np.concatenate([[0], self.ends[:-1]])
        first = self.order[starts]
        _, kind, counts = np.unique(table.y[:, first], axis=1, return_inverse=True, return_counts=True)
        # The order is random: its positions serve as the uniform numbers of Efraimidis and Spirakis (2006).
        exponential = -np.log1p(-(np.arange(len(first)) + 0.5) / len(first))
        keys = exponential * np.sqrt(counts)[np.ravel(kind)]
        keys[np.logical_or.reduceat(np.isin(self.order, without), starts)] = np.inf
        chosen = np.zeros(len(first), dtype=bool)
        chosen[np.argsort(keys, kind="stable")[:n_groups]] = True
        return np.sort(self.order[np.repeat(chosen, np.diff(self.ends, prepend=0))])

    def evenly_merged(self, table, n_groups, without=()):
        """As many rows as in `merged`, drawn by `evenly`."""
        return merged(table.rows(self.evenly(table, n_groups, without)))

    def folds(self, X):
        """A mask over the random order for each fold of a small table; rows of equal X are in one fold."""
        # Groups are numbered in the random order.
        _, first, group = np.unique(groups(X)[self.order], return_index=True, return_inverse=True)
        group = np.argsort(np.argsort(first))[group]
        n_folds = min(_FOLDS_OF_FEW if len(first) <= _FEW_TO_SPLIT else _FOLDS_OF_SMALL, len(first))
        return [group % n_folds == fold for fold in range(n_folds)]


def _some(positions):
    """Some of many positions, sorted and evenly spaced, as a single X may have many rows."""
    return np.sort(positions[np.linspace(0, len(positions) - 1, min(len(positions), _OUTSIDE)).round().astype(int)])


def splits(table, shuffled, n_groups):
    """One split into the first rows and held-out rows; for a small table one split per fold.

    Parameters
    ----------
    table : Table
    shuffled : Shuffled
    n_groups : int
        Number of different X among the first rows.

    Returns
    -------
    splits : list of Split
    """
    if not shuffled.is_small(n_groups):
        outside = shuffled.outside(n_groups)
        return [Split(shuffled.merged(table, n_groups), table.rows(outside), outside)]
    parts = [[np.sort(shuffled.order[each]) for each in (~part, part)] for part in shuffled.folds(table.X)]
    found = [Split(merged(table.rows(rest)), table.rows(part), part) for rest, part in parts if len(rest)]
    found = [split for split in found if split.weight > 0.0]
    # With a single X there is nothing to hold out.
    return found or [Split(shuffled.merged(table, n_groups), table, np.arange(table.n_rows))]


def in_order(values, parts):
    """Values of the held-out rows of each split, in the order of the table."""
    return np.concatenate(values)[np.argsort(np.concatenate([part.index for part in parts]))]


# Rows of equal X are merged into one for the evidence.
#
# There a row of weight w is one observation with noise s^2 / w. Two rows of equal X and large weights whose targets
# differ would need an absurd noise, so their mean is one row. A weight above one without different targets at the same
# X comes from copies, or from a row that matters more. It does not mean little noise: the row would be interpolated,
# with lengthscales near zero. Such a row has weight one; but labels agree without being copies. Weights below one are
# divided by that of the effective number of equal rows (Kish 1965), since a factor common to all rows says nothing.


def in_random_order(table, random_state, merges=True):
    """A random order of the rows, and where each group of rows that `merged` makes one ends in it.

    Parameters
    ----------
    table : Table
    random_state : numpy.random.RandomState
    merges : bool, default=True
        If False, each row is a group.

    Returns
    -------
    order, ends : ndarray of shape (N,) and (at most N,)
    """
    if merges and not table.per_target:
        return shuffled(table.X, random_state)
    return random_state.permutation(table.n_rows), np.arange(table.n_rows) + 1


def merged(table):
    """The table with one row for each X, with the mean of its targets, in the order of its first row.

    Weights are summed where targets differ, and at most one where they agree, unless each target has only two values.

    Parameters
    ----------
    table : Table
        Without offsets. With known variances or missing targets its rows stay as they are.

    Returns
    -------
    table : Table
    """
    table = table._replace(weight=in_rows(table.weight))
    order, start = grouped(table.X)
    most = np.inf if all(map(_is_binary, table.y)) else 1.0
    if table.per_target or len(start) == len(order):
        return table._replace(weight=np.minimum(table.weight, most))
    rows, weight, y = table.rows(order[start]), table.weight[order], table.y[:, order]
    total = np.add.reduceat(weight, start)
    # Summed as differences from the first row, so that the mean of equal targets has no rounding.
    from_first = weight * (y - np.repeat(rows.y, np.diff(start, append=len(order)), axis=1))
    sums = np.add.reduceat(from_first, start, axis=1)
    mean = rows.y + np.divide(sums, total, out=np.zeros_like(sums), where=total > 0.0)
    differ = np.logical_or.reduceat(np.any(from_first != 0.0, axis=0), start)
    weight = np.where(differ, total, np.minimum(total, most))
    return rows._replace(y=mean, weight=weight).rows(np.argsort(order[start]))


def _is_binary(y):
    """Whether a target (N,) takes two values at most, as an indicator of a class does."""
    return not len(y) or bool(np.all((y == y.min()) | (y == y.max())))
