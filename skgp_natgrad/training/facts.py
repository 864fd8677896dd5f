"""Facts of a long table, collected in one pass over its rows."""

from __future__ import annotations

import numpy as np

from .._backend import rows as _rows


class Facts:
    """Facts of all used rows, from one pass over blocks of them.

    Parameters
    ----------
    read, n_given
        As of `LongTable`.

    Attributes
    ----------
    counts : ndarray of shape (n_blocks,)
        Number of used rows in each block.
    total_weight, heaviest : float
        Sum of the weights, and the largest one.
    lowest, highest : tuple of ndarray
        Least and largest values of the columns of X (D,) and of the targets (T,).
    is_whole : tuple of ndarray of bool
        Whether all values of these columns are integers.
    missing : ndarray of shape (T,), bool
        Whether a target is missing in some row.
    has_offset, has_known : bool
    """

    def __init__(self, read, n_given):
        self.total_weight = self.heaviest = 0.0
        self.has_offset = self.has_known = False
        self.lowest = self.highest = self.is_whole = self.missing = None
        self.counts = np.array([self._add(part) for part in _rows.ahead(lambda at: read(*at), _rows.slices(n_given))])

    def _add(self, part):
        """Count a block; return the number of its rows."""
        missing = np.isnan(part.y).any(1)
        if self.missing is None:
            shape = part.n_columns, part.n_targets
            self.has_offset, self.has_known = part.has_offset, part.has_known
            self.lowest, self.highest = (tuple(np.full(n, end) for n in shape) for end in (np.inf, -np.inf))
            self.is_whole, self.missing = tuple(np.ones(n, bool) for n in shape), missing
        if part.n_rows:
            self.total_weight += float(part.weight.sum())
            self.heaviest = max(self.heaviest, float(part.weight.max()))
            tables = part.X, part.y.T
            self.lowest = tuple(
                np.fmin(end, np.fmin.reduce(each)) for end, each in zip(self.lowest, tables, strict=True)
            )
            self.highest = tuple(
                np.fmax(end, np.fmax.reduce(each)) for end, each in zip(self.highest, tables, strict=True)
            )
            whole = (np.all((each == np.rint(each)) | np.isnan(each), axis=0) for each in tables)
            self.is_whole = tuple(map(np.logical_and, self.is_whole, whole))
            self.missing = self.missing | missing
        return part.n_rows
