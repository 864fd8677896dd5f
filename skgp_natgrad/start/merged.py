"""One row for each X, as the evidence takes them.

A row of weight w is there one observation with the noise s^2 / w. Two rows of equal X whose targets differ would be
two such observations, which only an absurd noise explains: their mean is one. A weight of more than one that no other
target at the same X speaks for, of copies or because the row matters more, is no measurement of little noise either: it
would be fitted, by lengthscales of nothing. Such a row counts as one; but labels agree without being copies. Where
weights are below one, they are as large as those of so many equal rows as tell as much (Kish 1965): that all are small,
as if they summed to one, says nothing.
"""

from __future__ import annotations

import numpy as np

from .._backend.repeated import grouped, in_rows, shuffled


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
