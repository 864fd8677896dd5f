"""Standardisation of a table's columns, normal scores, and the columns that are constant up to rounding."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from .._backend.rows import filled_up

# Numbers that differ by at most so many units of rounding count as one number, computed in different ways.
_FEW_UNITS = 4
# So many columns often measure the same quantity, like the pixels of images; a common unit then keeps how much each
# one varies.
MANY_COLUMNS = 48
# Up to this value double precision represents every integer.
_LARGEST_EXACT = 2.0**53
# Most knots of the normal scores of a column; between them the map is linear.
_KNOTS = 500
# Rank of a row whose weight vanishes beside the others: its score is -8.1 before all are standardised.
_SMALLEST_RANK = np.finfo(float).eps


class Scale(NamedTuple):
    """An affine map of columns: standardised = (original - offset) / scale.

    ``spans`` are from `spans_of_rounding`, or None; values inside a span count as one number.
    """

    offset: np.ndarray
    scale: np.ndarray
    spans: np.ndarray | None = None

    @property
    def in_common_unit(self):
        """Whether several columns are divided by the same number, other than one."""
        return len(self.scale) > 1 and bool(np.all(self.scale == self.scale[0])) and self.scale[0] != 1.0

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

    This is decided here, once, from the rounding unit of each column's own type. After `snapped` these columns
    are constant to the bit, in training and in prediction.

    Parameters
    ----------
    table : ndarray of shape (N, columns)
        In double precision.
    types : list of numpy.dtype
        Types of the columns before their conversion to double precision.

    Returns
    -------
    spans : ndarray of shape (2, columns) or None
        The smallest and the largest value; NaN for all other columns.
    """

    def is_whole(i):
        return bool(np.all(table[:, i] == np.rint(table[:, i])))

    return spans_between(table.min(0), table.max(0), types, is_whole)


def spans_between(lowest, highest, types, is_whole):
    """As `spans_of_rounding`, for columns with these ranges; ``is_whole(i)`` says whether column i holds integers."""
    largest = np.maximum(np.abs(lowest), np.abs(highest))
    unit = np.array([_unit_of_rounding(*pair) for pair in zip(largest, types, strict=True)])
    # Halves are subtracted, since the difference of large numbers of opposite sign may overflow.
    constant = (lowest < highest) & (0.5 * highest - 0.5 * lowest <= 0.5 * _FEW_UNITS * unit)
    for i in np.flatnonzero(constant):
        constant[i] = not (largest[i] <= _largest_exact(types[i]) and is_whole(i))
    return np.where(constant, [lowest, highest], np.nan) if constant.any() else None


def snapped(table, spans):
    """Return ``table`` with values inside the spans set to the lower ends of the spans."""
    if spans is None:
        return table
    lower, upper = spans
    return np.where((table >= lower) & (table <= upper), lower, table)


def _largest_exact(dtype):
    """The largest integer up to which a type represents all integers exactly; half precision represents years so."""
    return _LARGEST_EXACT if dtype.kind != "f" else 2.0 ** (np.finfo(dtype).nmant + 1)


def _unit_of_rounding(value, dtype):
    """Distance from ``value`` to the next number of its type, or of double precision if that is larger."""
    if dtype.kind in "biu" and value <= _LARGEST_EXACT:
        return 0.0
    coarser = dtype.kind == "f" and dtype.itemsize < np.dtype(float).itemsize
    return float(np.spacing(dtype.type(value) if coarser else value))


def fit_scale(name, table, weight, active, spans=None):
    """Return the weighted `Scale` of ``table``, which is snapped to ``spans``; a constant column keeps its unit.

    A constant y is divided by its absolute value, or by one if it is zero, so that predicted deviations are in
    proportion to y. With ``active=False`` the scale is the identity. ``name`` is the argument to name in the error if a
    mean or a standard deviation overflows.
    """
    n_columns = table.shape[1]
    if not active:
        return Scale(np.zeros(n_columns), np.ones(n_columns), spans)
    return scale_from(name, *_moments(table, weight), np.abs(table).max(), weight.max(), spans)


def fit_common_scale(scale):
    """The `Scale` with one divisor for all columns: the root mean square of the divisors of ``scale``."""
    largest = scale.scale.max()
    common = largest * np.sqrt(np.mean(np.square(scale.scale / largest)))
    return scale._replace(scale=np.full_like(scale.scale, common))


def is_wide(n_rows, n_columns, blocks=()):
    """Whether a table has more columns than rows; those of a block count as one."""
    return n_columns - sum(len(block) - 1 for block in blocks) > n_rows


def deviations(table, weight):
    """A function that returns the weighted standard deviations of some columns of ``table``."""
    return lambda columns: _moments(table[:, columns], weight)[1]


def in_blocks(scale, deviations, blocks):
    """The `Scale` with one divisor for the columns of each block, whose variances then sum to one.

    The levels of a category keep equal distances, however rare some are.
    """
    if not blocks:
        return scale
    divisors = scale.scale.copy()
    for block in map(list, blocks):
        divisors[block] = np.linalg.norm(deviations(block)) or 1.0
    return scale._replace(scale=divisors)


def scale_from(name, mean, deviation, largest, heaviest, spans=None):
    """The `Scale` with this mean and deviation; ``largest`` value and ``heaviest`` weight are for the error."""
    with np.errstate(over="ignore"):
        variance = deviation**2
    if not (np.all(np.isfinite(mean)) and np.all(np.isfinite(variance))):
        raise ValueError(
            f"{name} holds values up to {largest:g} (weights up to {heaviest:g}), whose variance "
            f"overflows; rescale {name} or the weights."
        )
    least = np.finfo(float).tiny
    if name == "y" and np.any((variance < least) & (deviation > 0.0)):
        raise ValueError(f"y holds values up to {largest:g}, whose variance underflows; rescale y.")
    # A constant y has its absolute value as a unit, unless it is zero, or too small to be squared.
    size = np.abs(mean)
    unit = np.where(size >= np.sqrt(least), size, 1.0) if name == "y" else 1.0
    return Scale(mean, np.where(deviation >= least, deviation, unit), spans)


def fit_targets(y, weight, active):
    """The `Scale` of the targets ``y`` (N, T), each from the rows where it is not missing (NaN).

    With ``active="center"`` targets are centred and keep their units.
    """
    seen = [np.isfinite(column) for column in y.T]
    each = [fit_scale("y", y[rows, k : k + 1], weight[rows], bool(active)) for k, rows in enumerate(seen)]
    offset, scale = (np.concatenate([getattr(scale, name) for scale in each]) for name in ("offset", "scale"))
    return Scale(offset, np.ones_like(scale) if isinstance(active, str) else scale)


class Moments:
    """Weighted means and standard deviations of columns with known ranges, whose rows come in parts.

    Means and sums of squares of two parts are joined as by Chan, Golub and LeVeque (1983), "Algorithms for
    computing the sample variance", around the middle of the range, so that an offset costs no digits.

    Parameters
    ----------
    lowest, highest : ndarray of shape (columns,)
    """

    def __init__(self, lowest, highest):
        self._middle, self._half = _middle_and_half(lowest, highest)
        self._weight, self._mean, self._squares = np.zeros((3, len(lowest)))

    def add(self, table, weight):
        """Add rows (N, columns) with weights (N,); NaN is a missing value."""
        inside = (table - self._middle) / np.where(self._half > 0, self._half, 1.0)
        missing = np.isnan(inside)
        weight = np.where(missing, 0.0, weight[:, None])
        inside = np.where(missing, 0.0, inside)
        with np.errstate(over="ignore", invalid="ignore"):
            added = weight.sum(0)
            own = np.divide((weight * inside).sum(0), added, out=np.zeros_like(added), where=added > 0)
            total = self._weight + added
            share = np.divide(added, total, out=np.zeros_like(added), where=total > 0)
            away = own - self._mean
            self._squares = self._squares + (weight * (inside - own) ** 2).sum(0) + away**2 * self._weight * share
            self._mean, self._weight = self._mean + share * away, total

    @property
    def result(self):
        """Mean and standard deviation of each column (columns,)."""
        with np.errstate(over="ignore", invalid="ignore"):
            deviation = np.sqrt(self._squares / self._weight)
        return self._middle + self._half * self._mean, self._half * deviation


def _middle_and_half(lowest, highest):
    lower, upper = 0.5 * lowest, 0.5 * highest
    return lower + upper, upper - lower


def _moments(table, weight):
    """Weighted mean and standard deviation of each column; for a constant column its value and zero."""
    # Columns are centred and divided by half their range: an offset costs no digits, and no square underflows.
    middle, half = _middle_and_half(table.min(0), table.max(0))
    inside = (table - middle) / np.where(half > 0, half, 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.average(inside, axis=0, weights=weight)
        deviation = np.sqrt(np.average((inside - mean) ** 2, axis=0, weights=weight))
    return middle + half * mean, half * deviation


class NormalScores(NamedTuple):
    """A monotone, piecewise linear map of columns, extrapolated with the mean slope of the outermost unit of score.

    The last two values alone would not do: they may be almost equal, and their slope arbitrary.

    Attributes
    ----------
    knots : ndarray of shape (R, D)
        Values of each column, in increasing order; a column with fewer repeats its last one.
    scores : ndarray of shape (R, D)
        The values of the map at the knots, with mean zero and unit variance on the training data.
    spans : ndarray of shape (2, D) or None
        See `Scale`.
    """

    knots: np.ndarray
    scores: np.ndarray
    spans: np.ndarray | None = None

    @property
    def n_columns(self):
        """Number of columns."""
        return self.knots.shape[1]

    @property
    def outer_slopes(self):
        """The slopes below the first knots and above the last (2, D)."""
        columns = zip(self.knots.T, self.scores.T, self.scores.T, strict=True)
        return np.transpose([_outer_slopes(*each) for each in columns])

    def forward(self, table):
        """Map ``table`` (N, D) to scores."""
        return self._mapped(snapped(table, self.spans), self.knots, self.scores)

    def backward(self, table):
        """Undo `forward`."""
        return self._mapped(table, self.scores, self.knots)

    def slope(self, table):
        """Derivatives of `forward` at ``table`` (N, D); at a knot, that to its right."""
        return np.column_stack([_slope_of(*each) for each in zip(table.T, self.knots.T, self.scores.T, strict=True)])

    def _mapped(self, table, knots, values):
        columns = zip(table.T, knots.T, values.T, self.scores.T, strict=True)
        return np.column_stack([_extended(*each) for each in columns])


def _extended(x, knots, values, scores):
    """Linear interpolation, continued with the slopes near its ends; with a slope of one from a single knot."""
    first_slope, last_slope = _outer_slopes(knots, values, scores)
    outside = first_slope * np.minimum(x - knots[0], 0.0) + last_slope * np.maximum(x - knots[-1], 0.0)
    return np.interp(x, knots, values) + outside


def _outer_slopes(knots, values, scores):
    """The mean slopes of the outermost units of score."""
    last = int(np.searchsorted(scores, scores[-1]))
    if not last:
        return 1.0, 1.0
    right = min(int(np.searchsorted(scores, scores[0] + 1.0)), last)
    left = max(int(np.searchsorted(scores, scores[last] - 1.0, side="right")) - 1, 0)
    return tuple((values[b] - values[a]) / (knots[b] - knots[a]) for a, b in ((0, right), (left, last)))


def _slope_of(x, knots, scores):
    """The derivative of `_extended` from knots to scores."""
    last = int(np.searchsorted(knots, knots[-1]))
    if not last:
        return np.ones_like(x)
    at = np.searchsorted(knots[: last + 1], x, side="right") - 1
    left = np.clip(at, 0, last - 1)
    inside = (scores[left + 1] - scores[left]) / (knots[left + 1] - knots[left])
    first_slope, last_slope = _outer_slopes(knots, scores, scores)
    return np.where(at < 0, first_slope, np.where(at >= last, last_slope, inside))


def fit_normal_scores(table, weight, spans=None):
    """Return the `NormalScores` of the columns of ``table`` (N, D) with weights (N,)."""
    columns = [_of_column(column, weight) for column in table.T]
    most = max(len(knots) for knots, _ in columns)
    knots, scores = (np.column_stack([filled_up(each, most) for each in part]) for part in zip(*columns, strict=True))
    return NormalScores(knots, scores, spans)


def affine_in_blocks(scores, scale, blocks):
    """The `NormalScores` that map the columns of blocks, which hold zeros and ones, as a `Scale` does."""
    columns = [column for block in blocks for column in block]
    if not columns:
        return scores
    knots, values = (filled_up(each, max(2, len(each))) for each in scores[:2])
    knots[:, columns] = np.minimum(np.arange(len(knots)), 1.0)[:, None]
    values[:, columns] = (knots[:, columns] - scale.offset[columns]) / scale.scale[columns]
    return scores._replace(knots=knots, scores=values)


def _of_column(column, weight):
    values, position = np.unique(column, return_inverse=True)
    mass = np.bincount(position, weights=weight)
    # Equal values get the middle of their ranks. The weight of the end values may vanish beside the others: clip.
    ranks = (np.cumsum(mass) - 0.5 * mass) / mass.sum()
    scores = norm.ppf(np.clip(ranks, _SMALLEST_RANK, 1.0 - _SMALLEST_RANK))
    scores -= np.average(scores, weights=mass)
    deviation = np.sqrt(np.average(scores**2, weights=mass))
    if deviation > 0.0:
        scores /= deviation
    # Ranks that hardly differ have the same score, of which only the first value is kept.
    values, scores = (each[np.append(True, np.diff(scores) > 0.0)] for each in (values, scores))
    if len(values) > _KNOTS:
        chosen = np.linspace(0, len(values) - 1, _KNOTS).round().astype(int)
        values, scores = values[chosen], scores[chosen]
    return values, scores
