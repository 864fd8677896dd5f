"""The width to which targets are rounded: of whole numbers, of labels that are zero or one, of readings of a scale.

An error of such a target is known up to a part of the width, d^2 / 12 as its square. It says no more than that: where
the prediction passes through a whole number most errors are next to nothing, which is not their deviation.
"""

from __future__ import annotations

import numpy as np

# Share of the rows whose value occurs elsewhere, and share of those on the grid of the least distance, at least.
# A value that is rarer than a part of what is usual may be rounded otherwise.
_REPEATED, _ON_GRID, _USUAL = 0.3, 0.95, 0.2
# Distances up to this share of the range are rounding of double or single precision; and how far from the grid, as a
# share of its distance, a value may be.
_PRECISION, _TOLERANCE = 1e-6, 1e-2


def width(y):
    """The distance between neighbouring values of a target (N,) that is rounded; zero of any other.

    Parameters
    ----------
    y : ndarray of shape (N,)
        NaN where it is missing.

    Returns
    -------
    width : float
    """
    y = y[np.isfinite(y)]
    if not len(y):
        return 0.0
    values, counts = np.unique(y, return_counts=True)
    # Equal numbers that were computed in different ways are one.
    first = np.concatenate([[True], np.diff(values) > _PRECISION * (values[-1] - values[0])])
    counts, values = np.add.reduceat(counts, np.flatnonzero(first)), values[first]
    repeated = counts > 1
    if np.count_nonzero(repeated) < 2 or counts[repeated].sum() < _REPEATED * len(y):
        return 0.0
    usual = values[repeated & (counts > _USUAL * (counts**2).sum() / counts.sum())]
    # Where one value has nearly all rows, the others are what there is.
    usual = usual if len(usual) > 1 else values[repeated]
    found = float(np.diff(usual).min())
    steps = (values - usual[0]) / found
    on_grid = np.abs(steps - np.rint(steps)) < _TOLERANCE
    return found if counts[on_grid].sum() >= _ON_GRID * len(y) else 0.0
