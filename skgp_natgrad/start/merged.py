"""One row for each X, as the evidence takes them.

A row of weight w is there one observation with the noise s^2 / w, so that copies do not deceive the evidence. Two rows
of equal X whose targets differ would be two such observations, which only an absurd noise explains.
"""

from __future__ import annotations

import numpy as np

from .._backend.repeated import grouped


def merged(table):
    """The table with the mean of the targets and the sum of the weights of each X, in the order of its first row.

    Parameters
    ----------
    table : Table
        Without offsets. Where variances are known or targets missing, the first row stands for all.

    Returns
    -------
    table : Table
    """
    order, start = grouped(table.X)
    if len(start) == len(order):
        return table
    rows = table.rows(order[start])
    if not table.per_target:
        weight, y = table.weight[order], table.y[:, order]
        total = np.add.reduceat(weight, start)
        # Equal targets have their mean without rounding.
        from_first = weight * (y - np.repeat(rows.y, np.diff(start, append=len(order)), axis=1))
        rows = rows._replace(y=rows.y + np.add.reduceat(from_first, start, axis=1) / total, weight=total)
    return rows.rows(np.argsort(order[start]))
