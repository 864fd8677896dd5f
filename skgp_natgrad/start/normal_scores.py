"""A monotone map of each column of X to a normal distribution: normal scores."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from .._backend.rows import filled_up
from .scale import snapped

# Most knots of a column; between them the map is linear.
_KNOTS = 500
# Rank of a row whose weight vanishes beside the others: its score is -8.1 before all are standardised.
_SMALLEST_RANK = np.finfo(float).eps


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
        See `scale.Scale`.
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
        return np.column_stack([_slope(*each) for each in zip(table.T, self.knots.T, self.scores.T, strict=True)])

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


def _slope(x, knots, scores):
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
