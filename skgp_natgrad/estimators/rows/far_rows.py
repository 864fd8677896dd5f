"""Rows of predictions that lie far outside of those of the fit: a warning names them."""

from __future__ import annotations

import numpy as np
from sklearn.base import is_classifier

from ..._backend.notices import Notice
from ...choose.scale import is_wide
from ...svgp import LongTable
from . import encoding

# A number is far outside if its distance from the range of the fit's rows is so many times the width of this range.
_RANGES = 1.0
# Columns that one warning lists.
_LISTED = 3


def range_of(table, before=None):
    """The least and the largest number of each column of a table (2, D), joined with those ``before``.

    In a wide table every number is inside: a single column hardly matters, and rare words are in few rows.
    """
    X = table.extremes.X if isinstance(table, LongTable) else table.X
    if is_wide(table.n_rows, table.n_columns):
        return np.array([[-np.inf], [np.inf]]) * np.ones(table.n_columns)
    ends = np.stack([X.min(axis=0), X.max(axis=0)])
    return ends if before is None else np.stack([np.minimum(ends[0], before[0]), np.maximum(ends[1], before[1])])


def tell(estimator, X):
    """Warn of numbers (N, E) that lie far outside of the range that the fit has seen.

    A column that was constant has no range, and what encodes a category is no number.
    """
    ends = getattr(estimator, "_range_of_X", None)
    if ends is None:
        # The prior has seen no rows.
        return
    low, high = ends
    with np.errstate(over="ignore", invalid="ignore"):
        beyond = np.maximum(low - X, X - high)
        far = (beyond > _RANGES * (high - low)) & (low < high)
    columns = np.flatnonzero(far.any(axis=0))
    columns = np.setdiff1d(columns, encoding.columns_of_levels(estimator)) if len(columns) else columns
    if not len(columns):
        return
    names = encoding.of(estimator).names if hasattr(estimator, "feature_names_in_") else range(X.shape[1])
    texts = []
    for k in columns[:_LISTED]:
        value = X[np.nanargmax(beyond[:, k]), k]
        texts.append(f"column {names[k]!r} holds {value:.4g}, in the fit it was {low[k]:.4g} to {high[k]:.4g}")
    if len(columns) > _LISTED:
        texts.append(f"and so do {len(columns) - _LISTED} other columns")
    what = "probabilities may be far too certain" if is_classifier(estimator) else "intervals may be far too narrow"
    details = (
        f"There, {'; '.join(texts)}. The data say nothing of what y is there: predictions follow from the kernel "
        f"alone, and their {what}. Fit rows of this kind as well, or numbers that stay in "
        "their range, such as differences or ratios."
    )
    Notice("X lies far outside of the rows of the fit.", details).give()
