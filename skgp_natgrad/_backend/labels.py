"""Ordered labels: the order that the type of a column gives, and the positions of labels in it."""

from __future__ import annotations

import numpy as np


def ordered_by_type(y):
    """The levels of an ordered categorical column from the lowest to the highest, as a list; None of any other.

    They are those of the type: pandas' ordered Categorical and Polars' Enum, also of a frame with one column. A level
    that occurs in no row is among them.
    """
    kinds = list(y.dtypes) if hasattr(y, "columns") and hasattr(y, "dtypes") else [getattr(y, "dtype", None)]
    levels = getattr(kinds[0], "categories", None) if len(kinds) == 1 else None
    # Polars' Enum is ordered by definition, and neither package is imported here.
    is_ordered = getattr(kinds[0], "ordered", False) or type(kinds[0]).__name__ == "Enum"
    return list(levels) if is_ordered and levels is not None else None


def positions(classes, labels):
    """The positions of labels among distinct ``classes``, in any order; of a label that is none of them, any."""
    order = np.argsort(classes)
    found = np.searchsorted(classes, labels, sorter=order)
    return order[np.minimum(found, len(order) - 1)]
