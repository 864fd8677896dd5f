"""A monotone map of each column of X to a normal distribution: normal scores."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from .scale import snapped

# Most knots of a column; between them the map is linear.
_KNOTS = 500
# Of a row whose weight vanishes beside the others: its score is -8.1, before all are divided by their deviation.
_SMALLEST_RANK = np.finfo(float).eps


class NormalScores(NamedTuple):
    """A monotone, piecewise linear map of columns; beyond the training data it keeps the slope of its ends.

    Attributes
    ----------
    knots : ndarray of shape (R, D)
        Values of each column, in increasing order; the last one is repeated where there are fewer.
    scores : ndarray of shape (R, D)
        The values of the map there, with mean zero and unit variance on the training data.
    spans : ndarray of shape (2, D) or None
        As in `scale.Scale`.
    """

    knots: np.ndarray
    scores: np.ndarray
    spans: np.ndarray | None = None

    @property
    def n_columns(self):
        """Number of columns."""
        return self.knots.shape[1]

    def forward(self, table):
        """Map ``table`` (N, D) to scores."""
        return _interpolated(snapped(table, self.spans), self.knots, self.scores)

    def backward(self, table):
        """Undo `forward`."""
        return _interpolated(table, self.scores, self.knots)

    def slope(self, table):
        """Derivatives of `forward` at ``table`` (N, D); at a knot, that to its right."""
        return np.column_stack([_slope(*each) for each in zip(table.T, self.knots.T, self.scores.T, strict=True)])


def _interpolated(table, knots, values):
    columns = [_extended(*each) for each in zip(table.T, knots.T, values.T, strict=True)]
    return np.column_stack(columns)


def _extended(x, knots, values):
    """Linear interpolation, continued with the slopes of its ends; with a slope of one from a single knot."""
    last = int(np.searchsorted(knots, knots[-1]))
    first_slope, last_slope = (
        (values[b] - values[a]) / (knots[b] - knots[a]) if last else 1.0 for a, b in ((0, 1), (last - 1, last))
    )
    outside = first_slope * np.minimum(x - knots[0], 0.0) + last_slope * np.maximum(x - knots[-1], 0.0)
    return np.interp(x, knots, values) + outside


def _slope(x, knots, values):
    """The derivative of `_extended`."""
    last = int(np.searchsorted(knots, knots[-1]))
    if not last:
        return np.ones_like(x)
    left = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, last - 1)
    return (values[left + 1] - values[left]) / (knots[left + 1] - knots[left])


def fit_normal_scores(table, weight, spans=None):
    """Return the `NormalScores` of the columns of ``table`` (N, D) with weights (N,)."""
    columns = [_of_column(column, weight) for column in table.T]
    most = max(len(knots) for knots, _ in columns)
    knots, scores = (
        np.column_stack([np.pad(each, (0, most - len(each)), mode="edge") for each in part])
        for part in zip(*columns, strict=True)
    )
    return NormalScores(knots, scores, spans)


def _of_column(column, weight):
    values, position = np.unique(column, return_inverse=True)
    mass = np.bincount(position, weights=weight)
    # Equal values get the middle of their ranks; next to the weight of the others, that of the ends may vanish.
    ranks = (np.cumsum(mass) - 0.5 * mass) / mass.sum()
    scores = norm.ppf(np.clip(ranks, _SMALLEST_RANK, 1.0 - _SMALLEST_RANK))
    scores -= np.average(scores, weights=mass)
    deviation = np.sqrt(np.average(scores**2, weights=mass))
    if deviation > 0.0:
        scores /= deviation
    # Ranks that differ by next to nothing have one score, which stands for one value.
    values, scores = (each[np.append(True, np.diff(scores) > 0.0)] for each in (values, scores))
    if len(values) > _KNOTS:
        chosen = np.linspace(0, len(values) - 1, _KNOTS).round().astype(int)
        values, scores = values[chosen], scores[chosen]
    return values, scores
