"""Observations of class labels that are held out, each predicted from others, and the densities of their labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import log_softmax
from scipy.stats import rankdata

from .._backend.repeated import n_observations
from ..prediction.calibration import Average

# Parts of which one is predicted from the others: of few rows each of five in turn, of more each of three, of many one.
_HELD_OUT_ROWS, _FOLDS = 2000, ((300, 5), (1000, 3))
# Of many observations.
SHARE = 0.2
# Observations in a row, at most.
_MOST_OBSERVATIONS = 100
# Of the median weight of a label, which a class weight is part of: a row that matters more is no better judge.
_MOST_TOLD = 3.0


class HeldOut(NamedTuple):
    """What is left out of a fit.

    Attributes
    ----------
    index : ndarray of shape (B,)
        Rows.
    residual : ndarray of shape (B,)
        What the points leave unexplained.
    y : ndarray of shape (T, B)
        Labels.
    weight : ndarray of shape (B,)
        How much of each row's weight.
    told : ndarray of shape (B,)
        The weight with which its prediction counts.
    counts : ndarray of shape (B,)
        The number of observations in it.
    """

    index: np.ndarray
    residual: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    told: np.ndarray
    counts: np.ndarray

    @property
    def doubt(self):
        """The probability of another label than those seen, Platt's (1999), who takes one more of each.

        Without it few labels that are all predicted well ask for certainty.
        """
        n = self.counts.sum()
        return 1.0 / (n + 2.0) if n <= _FOLDS[-1][0] else 0.0


def folds_of(rows, random_state, is_point=False, is_contradicted=False, share=SHARE, n_of_many=1):
    """Parts of the observations (`HeldOut`), each to be predicted from all others: all of few, and parts of many.

    Rows that are inducing points come last: how they are predicted says little about new rows. Rows whose X has other
    labels, too, are as many observations as their weight; as new rows will repeat them, they have their share among the
    first where there are others to fill a part. Of many observations ``share`` are held out; those of a class of which
    that would be less than one come last of all: a single row that nothing predicts would decide about all others.
    """
    residual, y, weight = map(np.asarray, (rows.residual, rows.y, rows.weight))
    n_each = n_observations(weight, is_contradicted, _MOST_OBSERVATIONS)
    positive = np.flatnonzero(weight > 0.0)
    order = random_state.permutation(np.repeat(positive, n_each[positive].astype(int)))
    n_folds = next((n for most, n in _FOLDS if len(order) <= most), 1)
    size = min(int(np.ceil(len(order) * (1.0 / n_folds if n_folds > 1 else share))), _HELD_OUT_ROWS)
    apart = np.broadcast_to(~np.asarray(is_point), weight.shape)
    first = (apart | (is_contradicted if np.count_nonzero(apart[order]) >= size else False))[order]
    _, label, n_of_label = np.unique(y[0, order], return_inverse=True, return_counts=True)
    is_rare = (n_of_label[label] * share < 1.0) if n_folds == 1 else np.zeros(len(order), bool)
    order = np.concatenate([order[first & ~is_rare], order[~first & ~is_rare], order[is_rare]])
    each = weight / n_each
    told = np.minimum(each, _MOST_TOLD * _usual_of_label(each, y[0]))
    n_parts = n_folds if n_folds > 1 else n_of_many
    parts = (np.unique(order[i * size : (i + 1) * size], return_counts=True) for i in range(n_parts))
    return [
        HeldOut(part, residual[part], y[:, part], each[part] * counts, told[part] * counts, counts)
        for part, counts in parts
        if len(part)
    ]


def _usual_of_label(weight, label):
    """The median weight of the rows of each label, for each row."""
    found = np.zeros(len(weight))
    for one in np.unique(label):
        rows = label == one
        found[rows] = np.median(weight[rows & (weight > 0.0)]) if np.any(weight[rows] > 0.0) else 0.0
    return found


def without(rows, held):
    """The rows without what is held out."""
    weight = np.array(rows.weight)
    weight[held.index] = np.maximum(weight[held.index] - held.weight, 0.0)
    return rows._replace(weight=weight)


def moments_of(fit, held):
    """Latent moments (K, B) of held-out rows."""
    mean, own = fit.mean[:, held.index], np.asarray(fit.covariance.own)[held.index]
    return mean, np.broadcast_to(np.exp(fit.log_scale) * held.residual + own, mean.shape)


class Densities(NamedTuple):
    """Log densities of held-out labels, in nats, weights, and numbers of observations of their rows: (B,) each."""

    each: np.ndarray
    weight: np.ndarray
    counts: np.ndarray

    @property
    def mean(self):
        """In nats a row; minus infinity if one is not a number."""
        mean = float(np.average(self.each, weights=self.weight))
        return mean if np.isfinite(mean) else -np.inf

    def are_larger_than(self, others, n_errors=1.0):
        """Whether they exceed those of the same labels by more than a standard error (Breiman et al. 1984).

        Few rows do not tell a wide prior from a narrow one.
        """
        found = Average.of(self.each - others.each, self.weight, self.counts)
        return found.mean > n_errors * found.error


class Gain(NamedTuple):
    """By how much held-out labels are predicted better than by the labels' frequencies.

    Attributes
    ----------
    mean, error : float
        The gain in log density, in nats a row, and its standard error.
    ranking : float
        How often the latent means tell which of two rows has which label, of two that differ: the area under the curve
        of each class against the others (of one latent function, of each class and those below against those above),
        their mean.
    chance : float
        The standard deviation of `ranking` if X told nothing (Mann and Whitney 1947).
    """

    mean: float
    error: float
    ranking: float
    chance: float

    @classmethod
    def of(cls, densities, latent, y, frequencies):
        """Of the `Densities` of labels ``y`` (B,), the latent means (K, B), and the frequencies (C,) of all labels."""
        gain = Average.of(densities.each - np.log(frequencies[y]), densities.weight, densities.counts)
        if len(latent) == 1:
            pairs = [(latent[0], y > c) for c in range(len(frequencies) - 1)]
        else:
            pairs = [(value, y == c) for c, value in enumerate(log_softmax(latent, axis=0))]
        found = [_area(*pair) for pair in pairs if 0 < np.count_nonzero(pair[1]) < len(y)]
        ranking, chance = np.mean(found, axis=0) if found else (0.5, 0.5)
        return cls(*gain, float(ranking), float(chance))


def _area(value, is_positive):
    """The area under the curve by which values (B,) tell the positive rows, and its deviation by chance."""
    n, m = np.count_nonzero(is_positive), np.count_nonzero(~is_positive)
    area = (rankdata(value)[is_positive].sum() - 0.5 * n * (n + 1)) / (n * m)
    return area, np.sqrt((n + m + 1) / (12.0 * n * m))
