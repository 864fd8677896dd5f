"""The training table made of X, y and sample_weight: weighted, scaled, and without duplicate rows if it is small."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..start.normal_scores import NormalScores, fit_normal_scores
from ..start.scale import Scale, fit_scale, snapped, spans_of_rounding
from ..svgp import Table
from . import _inputs

# Largest value of a row in each type: beyond it squares overflow, and distances do not exist.
_LARGEST = {"float64": np.finfo(float).max, "float32": 1e18}


class Scales(NamedTuple):
    """The scales of X and y."""

    x: Scale | NormalScores
    y: Scale


def weighted(X, types, targets, batch_size):
    """The rows with weight (merged where equal, on the full batch), and X's spans of rounding."""
    weight = _inputs.weights(targets.weight, X)
    used = weight > 0
    tables = X[used], targets.columns[used]
    spans = [spans_of_rounding(*pair) for pair in zip(tables, (types, targets.types), strict=True)]
    X, y = map(snapped, tables, spans)
    table = Table(X, y.T, weight[used])
    return distinct(table) if len(table.weight) <= batch_size else table, spans[0]


def scales_of(table, spans, normalize_X, normalize_y, choice):
    """The `Scales` of a table's columns that ``normalize_X`` allows; several only if there is a ``choice``."""
    y = fit_scale("y", table.y.T, table.weight, normalize_y)
    found = []
    if normalize_X != "quantile":
        found.append(fit_scale("X", table.X, table.weight, bool(normalize_X), spans))
    if normalize_X == "quantile" or (normalize_X == "auto" and choice):
        found.append(fit_normal_scores(table.X, table.weight, spans))
    return [Scales(x, y) for x in found]


def scaled(table, scales, dtype):
    """The table in the units of the model.

    Raises
    ------
    ValueError
        If some values are too large to be squared in this type.
    """
    with np.errstate(over="ignore"):
        X = scales.x.forward(table.X)
    largest = np.abs(X).max()
    if not largest <= _LARGEST[dtype]:
        raise ValueError(
            f"X holds values up to {largest:g} in the units of the model, which dtype={dtype!r} cannot "
            "square; rescale X (normalize_X=True does), or use dtype='float64'."
        )
    return table._replace(X=X, y=scales.y.forward(table.y.T).T)


def distinct(table):
    """Return the distinct rows of a table in a fixed order, with their weights summed.

    A repeated row and a row of twice the weight then give the same table, to the bit,
    and so does every order of the rows.
    """
    columns = np.column_stack([table.X, table.y.T])
    # lexsort's last key is the primary one: columns from the left, then weights for a fixed order of sums.
    order = np.lexsort(np.vstack([table.weight, columns.T[::-1]]))
    columns = columns[order]
    first = np.concatenate([[True], np.any(columns[1:] != columns[:-1], axis=1)])
    weight = np.add.reduceat(table.weight[order], np.flatnonzero(first))
    X, y = np.split(columns[first], [table.X.shape[1]], axis=1)
    return Table(np.ascontiguousarray(X), np.ascontiguousarray(y.T), weight)
