"""Transfer of batches to the devices."""

from __future__ import annotations

import jax
import numpy as np

from .._backend import placement
from ..variational.model import Batch

# The axis of the rows in each array of a batch, counted from the last.
_ROWS = Batch(X=-2, y=-1, weight=-1, columns=None, correlation=None, offset=-1, known=-1)


def placed(batch, now=False):
    """The batch, or several with leading axes, on the devices, filled up with rows of weight zero to equal shares."""
    where = placement.current()
    n_rows = batch.weight.shape[-1]
    missing = where.rounded_up(n_rows) - n_rows
    return where.rows(_filled_up(batch, missing) if missing else batch, _ROWS, now)


def _filled_up(batch, missing):
    """The batch with its last row repeated ``missing`` times, with weight zero."""

    def longer(axis, table):
        if axis is None or table is None:
            return table
        widths = [(0, 0)] * table.ndim
        widths[axis] = (0, missing)
        return np.pad(table, widths, mode="edge")

    longest = jax.tree.map(longer, _ROWS, batch, is_leaf=lambda x: x is None)
    weight = np.array(longest.weight)
    weight[..., -missing:] = 0.0
    return longest._replace(weight=weight)
