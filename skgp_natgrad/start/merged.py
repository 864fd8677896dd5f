"""One row for each X, as the evidence takes them.

A row of weight w is there one observation with the noise s^2 / w, so that copies do not deceive the evidence. Two rows
of equal X whose targets differ would be two such observations, which only an absurd noise explains.
"""

from __future__ import annotations

import numpy as np

from .._backend.repeated import grouped, shuffled


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
    """The table with the mean of the targets and the sum of the weights of each X, in the order of its first row.

    Parameters
    ----------
    table : Table
        Without offsets. With known variances or missing targets it stays as it is.

    Returns
    -------
    table : Table
    """
    order, start = grouped(table.X)
    if table.per_target or len(start) == len(order):
        return table
    rows, weight, y = table.rows(order[start]), table.weight[order], table.y[:, order]
    total = np.add.reduceat(weight, start)
    # Equal targets have their mean without rounding.
    from_first = weight * (y - np.repeat(rows.y, np.diff(start, append=len(order)), axis=1))
    sums = np.add.reduceat(from_first, start, axis=1)
    mean = rows.y + np.divide(sums, total, out=np.zeros_like(sums), where=total > 0.0)
    return rows._replace(y=mean, weight=total).rows(np.argsort(order[start]))
