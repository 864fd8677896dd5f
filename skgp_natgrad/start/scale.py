"""The scale of a table's columns, and the columns that are constant up to rounding."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# Numbers that differ by at most this many units of rounding count as one number, computed in different ways.
_FEW_UNITS = 4
# Up to this value double precision represents every integer.
_LARGEST_EXACT = 2.0**53


class Scale(NamedTuple):
    """An affine map of columns: standardised = (original - offset) / scale.

    ``spans`` are from `spans_of_rounding`; values inside a span count as one number. None without spans.
    """

    offset: np.ndarray
    scale: np.ndarray
    spans: np.ndarray | None = None

    def forward(self, table):
        """Standardise ``table`` (N, columns)."""
        return (snapped(table, self.spans) - self.offset) / self.scale

    def backward(self, table):
        """Undo `forward`."""
        return table * self.scale + self.offset

    def slope(self, table):
        """Derivatives of `forward` at ``table`` (N, columns)."""
        return np.broadcast_to(1.0 / self.scale, table.shape)


def spans_of_rounding(table, types):
    """Return the ranges of the columns that are constant up to rounding.

    This is decided here, once, from the units of rounding of the columns as given. After `snapped` these columns
    are constant to the bit, in training and in prediction.

    Parameters
    ----------
    table : ndarray of shape (N, columns)
        In double precision.
    types : list of numpy.dtype
        Types of the columns before they were converted to double precision.

    Returns
    -------
    spans : ndarray of shape (2, columns) or None
        The smallest and the largest value; NaN for all other columns.
    """
    lowest, highest = table.min(0), table.max(0)
    unit = np.array([_unit_of_rounding(*pair) for pair in zip(np.abs(table).max(0), types, strict=True)])
    # Differences of halves, since the difference of numbers of opposite sign may overflow.
    constant = (lowest < highest) & (0.5 * highest - 0.5 * lowest <= 0.5 * _FEW_UNITS * unit)
    for i in np.flatnonzero(constant):
        constant[i] = not _are_exact_integers(table[:, i], types[i])
    return np.where(constant, [lowest, highest], np.nan) if constant.any() else None


def snapped(table, spans):
    """Return ``table`` with values inside the spans set to the lower ends of the spans."""
    if spans is None:
        return table
    lower, upper = spans
    return np.where((table >= lower) & (table <= upper), lower, table)


def _are_exact_integers(column, dtype):
    """Whether these are integers that the type represents without rounding, as half precision does years."""
    largest = _LARGEST_EXACT if dtype.kind != "f" else 2.0 ** (np.finfo(dtype).nmant + 1)
    return bool(np.abs(column).max() <= largest and np.all(column == np.rint(column)))


def _unit_of_rounding(value, dtype):
    """Distance from ``value`` to the next number of its type, or of double precision if that is coarser."""
    if dtype.kind in "biu" and value <= _LARGEST_EXACT:
        return 0.0
    coarser = dtype.kind == "f" and dtype.itemsize < np.dtype(float).itemsize
    return float(np.spacing(dtype.type(value) if coarser else value))


def fit_scale(name, table, weight, active, spans=None):
    """Return the weighted `Scale` of ``table``, which is snapped to ``spans``; a constant column keeps its unit.

    With ``active=False`` it is the identity. ``name`` is the argument to name in
    the error if a mean or a standard deviation overflows.
    """
    n_columns = table.shape[1]
    if not active:
        return Scale(np.zeros(n_columns), np.ones(n_columns), spans)
    mean, deviation = _moments(table, weight)
    with np.errstate(over="ignore"):
        variance = deviation**2
    if not (np.all(np.isfinite(mean)) and np.all(np.isfinite(variance))):
        raise ValueError(
            f"{name} holds values up to {np.abs(table).max():g} (weights up to {weight.max():g}), whose variance "
            f"overflows; rescale {name} or the weights."
        )
    return Scale(mean, np.where(variance >= np.finfo(float).tiny, deviation, 1.0), spans)


def fit_targets(y, weight, active):
    """The `Scale` of the targets ``y`` (N, T), each from the rows in which it is not missing (NaN).

    With ``active="center"`` they are centred and keep their units.
    """
    seen = [np.isfinite(column) for column in y.T]
    each = [fit_scale("y", y[rows, k : k + 1], weight[rows], bool(active)) for k, rows in enumerate(seen)]
    offset, scale = (np.concatenate([getattr(scale, name) for scale in each]) for name in ("offset", "scale"))
    return Scale(offset, np.ones_like(scale) if isinstance(active, str) else scale)


def _moments(table, weight):
    """Weighted mean and standard deviation of each column; for a constant column its value and zero."""
    # Centred at the middle and divided by half the range: no digit is lost to an offset, no square underflows.
    lower, upper = 0.5 * table.min(0), 0.5 * table.max(0)
    middle, half = lower + upper, upper - lower
    inside = (table - middle) / np.where(half > 0, half, 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.average(inside, axis=0, weights=weight)
        deviation = np.sqrt(np.average((inside - mean) ** 2, axis=0, weights=weight))
    return middle + half * mean, half * deviation
