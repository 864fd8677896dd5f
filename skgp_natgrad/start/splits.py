"""Rows by which kernels are judged: rows outside those whose evidence was maximised.

Of a small table each part is outside once. A kernel of many hyperparameters fits every row of few so well that these
rows, even each of them predicted from all others, do not tell how badly it predicts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._backend.repeated import grouped, groups, in_rows, shuffled

# With fewer rows outside, a table is small; of others, most rows outside.
FEWEST_OUTSIDE, _OUTSIDE = 100, 1500
# Parts of a small table, and of one of up to so many rows.
_FOLDS, _FOLDS_OF_FEW, _FEW = 3, 5, 150


class Split(NamedTuple):
    """Rows whose evidence is maximised, one for each X, and rows by which the outcome is judged."""

    rows: object
    others: object

    @property
    def weight(self):
        """The weight of the judging values, of targets that are not missing on either side."""
        known = np.isfinite(self.others.y) & np.isfinite(self.rows.y).any(axis=1, keepdims=True)
        return float((self.others.weight * known.mean(0)).sum())


class Shuffled(NamedTuple):
    """A random order of the rows of a table, and where in it each group of equal X ends: see `in_random_order`."""

    order: np.ndarray
    ends: np.ndarray

    @property
    def n_groups(self):
        """Number of different X."""
        return len(self.ends)

    def first(self, n_groups):
        """The first rows, those of so many different X."""
        return self.order[: self.ends[:n_groups][-1]]

    def is_small(self, n_groups):
        """Whether next to no rows are outside the first ones."""
        return len(self.order) - len(self.first(n_groups)) < FEWEST_OUTSIDE

    def merged(self, table, n_groups):
        """The first rows of a table, one for each X."""
        return merged(table.rows(np.sort(self.first(n_groups))))

    def outside(self, n_groups):
        """Positions of rows outside the first ones, so many at most."""
        return _some(self.order[len(self.first(n_groups)) :])

    def evenly_merged(self, table, n_groups):
        """As many rows as of `merged`, of rare targets more and of frequent ones fewer than there are.

        A target has a share in proportion to the root of its own, as far as its rows go.
        """
        return merged(table.rows(np.sort(self.order[self._evenly(table, n_groups)])))

    def outside_evenly(self, table, n_groups):
        """Positions of rows outside those of `evenly_merged`, so many at most."""
        return _some(self.order[~self._evenly(table, n_groups)])

    def _evenly(self, table, n_groups):
        """Whether each row in the random order is one of so many different X."""
        first, kind, counts = self._kinds(table)
        # The order is random: its places are the uniform numbers of Efraimidis and Spirakis (2006).
        exponential = -np.log1p(-(np.arange(len(first)) + 0.5) / len(first))
        keys = exponential * np.sqrt(counts)[kind]
        chosen = np.zeros(len(first), dtype=bool)
        chosen[np.argsort(keys)[:n_groups]] = True
        return np.repeat(chosen, np.diff(self.ends, prepend=0))

    def gain_of_rarest(self, table):
        """By how much a few rows of `evenly_merged` have a larger part of the rarest target than the table."""
        counts = self._kinds(table)[2]
        root = np.sqrt(counts)
        return root[np.argmin(counts)] / root.sum() * counts.sum() / counts.min()

    def _kinds(self, table):
        """The first row of each X, the target there as a number, and how many there are of each."""
        first = self.order[np.concatenate([[0], self.ends[:-1]])]
        _, kind, counts = np.unique(table.y[:, first], axis=1, return_inverse=True, return_counts=True)
        return first, np.ravel(kind), counts

    def folds(self, X):
        """For each part of a small table, whether each row in the random order is in it; copies are in one part."""
        # Numbered as they come in the random order.
        _, first, group = np.unique(groups(X)[self.order], return_index=True, return_inverse=True)
        group = np.argsort(np.argsort(first))[group]
        n_folds = min(_FOLDS_OF_FEW if len(first) <= _FEW else _FOLDS, len(first))
        return [group % n_folds == fold for fold in range(n_folds)]


def _some(positions):
    """Some of many positions, sorted: from all over them, as a single X may have many rows."""
    return np.sort(positions[np.linspace(0, len(positions) - 1, min(len(positions), _OUTSIDE)).round().astype(int)])


def splits(table, shuffled, n_groups):
    """The first rows and rows outside; or, of a small table, for each part the others and the part.

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
        return [Split(shuffled.merged(table, n_groups), table.rows(shuffled.outside(n_groups)))]
    parts = [[np.sort(shuffled.order[each]) for each in (~part, part)] for part in shuffled.folds(table.X)]
    found = [Split(merged(table.rows(rest)), table.rows(part)) for rest, part in parts if len(rest)]
    found = [split for split in found if split.weight > 0.0]
    # A single X has no other.
    return found or [Split(shuffled.merged(table, n_groups), table)]


# One row for each X, as the evidence takes them.
#
# A row of weight w is there one observation with the noise s^2 / w. Two rows of equal X whose targets differ would be
# two such observations, which only an absurd noise explains: their mean is one. A weight of more than one that no other
# target at the same X speaks for, of copies or because the row matters more, is no measurement of little noise either:
# it would be fitted, by lengthscales of nothing. Such a row counts as one; but labels agree without being copies. Where
# weights are below one, they are as large as those of so many equal rows as tell as much (Kish 1965): that all are
# small, as if they summed to one, says nothing.


def in_random_order(table, random_state, merges=True):
    """A random order of the rows, and where in it each group ends that is one row where they are `merged`.

    Parameters
    ----------
    table : Table
    random_state : numpy.random.RandomState
    merges : bool, default=True
        Otherwise each row is a group.

    Returns
    -------
    order, ends : ndarray of shape (N,) and (at most N,)
    """
    if merges and not table.per_target:
        return shuffled(table.X, random_state)
    return random_state.permutation(table.n_rows), np.arange(table.n_rows) + 1


def merged(table):
    """The table with the mean of the targets of each X, in the order of its first row.

    Weights are summed where targets differ, and are one at most where they agree, unless there are two values alone.

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
    # Equal targets have their mean without rounding.
    from_first = weight * (y - np.repeat(rows.y, np.diff(start, append=len(order)), axis=1))
    sums = np.add.reduceat(from_first, start, axis=1)
    mean = rows.y + np.divide(sums, total, out=np.zeros_like(sums), where=total > 0.0)
    differ = np.logical_or.reduceat(np.any(from_first != 0.0, axis=0), start)
    weight = np.where(differ, total, np.minimum(total, most))
    return rows._replace(y=mean, weight=weight).rows(np.argsort(order[start]))


def _is_binary(y):
    """Whether a target (N,) takes two values at most, as an indicator of a class does."""
    return not len(y) or bool(np.all((y == y.min()) | (y == y.max())))
