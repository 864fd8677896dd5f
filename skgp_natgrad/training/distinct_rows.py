"""The distinct rows of a table in an order that does not depend on how it is given."""

from __future__ import annotations

import numpy as np

from .._backend.repeated import grouped
from .batches import Table


def distinct(table, of_labels):
    """Return the distinct rows of a table in a fixed order, with their weights summed; and where each row has gone.

    A repeated row and a row of twice the weight then give the same table, to the bit, and so does every order of the
    rows; every order and sign of the columns, and with ``of_labels`` other names of the labels, give the same order.
    """
    known = [each.T for each in (table.y, table.offset, table.known) if each is not None]
    kinds = np.repeat(np.arange(1 + len(known)), [table.n_columns, *(each.shape[1] for each in known)])
    columns = np.column_stack([table.X, *known])
    # By weight first, for a fixed order of sums. A missing value equals another.
    order = np.argsort(table.weight, kind="stable")
    groups, start = grouped(np.where(np.isnan(columns), np.inf, columns)[order])
    order = order[groups]
    weight = np.add.reduceat(table.weight[order], start)
    place = order_of(columns[order[start]], weight, kinds, [table.n_columns] if of_labels else [])
    found = [None if each is None else np.ascontiguousarray(each) for each in table.rows(order[start][place])]
    position = np.empty(len(order), int)
    position[order] = np.repeat(np.argsort(place), np.diff([*start, len(order)]))
    return Table(*found)._replace(weight=weight[place]), position


# A canonical order of the rows, which does not depend on how the table is given. Rows that are drawn by their places
# must not depend on the order of rows and columns, on the sign of a column, or on the names of labels. So rows are
# sorted by a hash that is refined like the colours of a graph (Weisfeiler and Leman 1968): the hash of a column depends
# on the rows of its values, that of a label on its rows, and that of a row on its values and their columns. Values
# enter by their ranks around the middle one, whose sign is that of the column. All sums are of integers modulo 2^64,
# which are the same in every order.

# One round tells rows apart by the sizes of their ranks, the next ones by signs and columns; then weights count, too.
_ROUNDS, _WITHOUT_WEIGHTS = 8, 4
_HALF = 1 << 63


def order_of(columns, weight, kinds, labels=()):
    """The canonical order of distinct rows, which weights decide only among those that are alike without them.

    Parameters
    ----------
    columns : ndarray of shape (N, C)
        Numbers; NaN where one is missing.
    weight : ndarray of shape (N,)
    kinds : sequence of int
        The kind of each column, as of X and of y: only columns of one kind may be exchanged.
    labels : sequence of int
        Positions of columns whose values are names.

    Returns
    -------
    order : ndarray of shape (N,)
    """
    columns = columns + 0.0
    ranks = [(j, _ranks(column, j in labels)) for j, column in enumerate(columns.T)]
    # A constant, such as the offset of all rows, tells none apart.
    ranks = [(j, rank) for j, rank in ranks if rank.any()]
    seeds = _mixed(np.asarray(kinds, np.uint64))
    row = np.zeros(len(columns), np.uint64)
    for i in range(_ROUNDS):
        if i == _WITHOUT_WEIGHTS:
            row = _mixed(row) + _mixed(_ranks(weight, True).astype(np.uint64))
        found = _mixed(row)
        for j, rank in ranks:
            found += _mixed(seeds[j] ^ (_of_names if j in labels else _of_numbers)(rank, row))
        row = found
        order = np.argsort(row, kind="stable")
        if not np.any(row[order[1:]] == row[order[:-1]]):
            return order
    # Rows are one another's mirror images: any order does that does not depend on the one given.
    return np.lexsort(np.vstack([columns.T[::-1], row]))


def _ranks(column, are_names):
    """The rank of each value, of numbers twice its distance to the middle rank; a missing one is there."""
    values, rank = np.unique(column, return_inverse=True)
    rank = np.ravel(rank).astype(np.int64)
    if are_names:
        return rank
    return np.where(np.isnan(column), 0, 2 * rank - (np.count_nonzero(~np.isnan(values)) - 1))


def _of_numbers(rank, row):
    """A hash of each number and its column (N,), the same if all ranks have the other sign."""
    size, sign = _mixed(np.abs(rank).astype(np.uint64)), np.sign(rank)
    weight = _mixed(row)
    total = int((weight * size * sign.astype(np.uint64)).sum())
    side = 0 if not total else 1 if total < _HALF else -1
    of_column = _mixed(np.array([int((weight * size).sum()), min(total, 2 * _HALF - total)], np.uint64))
    return of_column[0] ^ (of_column[1] + _mixed(size + (sign * side + 1).astype(np.uint64)))


def _of_names(rank, row):
    """A hash of each label (N,), which is that of its rows."""
    total = np.zeros(rank.max(initial=0) + 1, np.uint64)
    np.add.at(total, rank, _mixed(row))
    return _mixed(total)[rank]


def _mixed(number):
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): 64 bits of which each depends on all."""
    number = number + np.uint64(0x9E3779B97F4A7C15)
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))
