"""The table that is trained on: its distinct rows, and its scale."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.preprocessing import StandardScaler

from .batches import Rows


class Scale(NamedTuple):
    """An affine map of columns: standardised = (original - offset) / scale."""

    offset: np.ndarray
    scale: np.ndarray

    def forward(self, table):
        """Standardise ``table`` (N, columns)."""
        return (table - self.offset) / self.scale

    def backward(self, table):
        """Undo `forward`."""
        return table * self.scale + self.offset


def fit_scale(name, table, weight, active):
    """Return the weighted `Scale` of ``table``; a constant column keeps its unit.

    With ``active=False`` it is the identity. ``name`` is the argument to blame
    where a mean or a standard deviation overflows.
    """
    n_columns = table.shape[1]
    if not active:
        return Scale(np.zeros(n_columns), np.ones(n_columns))
    with np.errstate(over="ignore", invalid="ignore"):
        scaler = StandardScaler().fit(table, sample_weight=weight)
    if not (np.all(np.isfinite(scaler.mean_)) and np.all(np.isfinite(scaler.scale_))):
        raise ValueError(
            f"{name} holds values up to {np.abs(table).max():g} (weights up to {weight.max():g}), whose variance "
            f"overflows; rescale {name} or the weights."
        )
    return Scale(scaler.mean_, scaler.scale_)


def distinct(rows):
    """Return the distinct rows of a table in a fixed order, their weights summed.

    Repeating a row and doubling its weight are then the same table, to the bit,
    and so are all orders of the rows.
    """
    table = np.column_stack([rows.X, rows.y.T])
    # The last key sorts first: columns from the left, then weights for a fixed order of sums.
    order = np.lexsort(np.vstack([rows.weight, table.T[::-1]]))
    table = table[order]
    first = np.concatenate([[True], np.any(table[1:] != table[:-1], axis=1)])
    weight = np.add.reduceat(rows.weight[order], np.flatnonzero(first))
    X, y = np.split(table[first], [rows.X.shape[1]], axis=1)
    return Rows(np.ascontiguousarray(X), np.ascontiguousarray(y.T), weight)
