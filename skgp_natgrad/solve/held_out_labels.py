"""Held-out observations of class labels, each predicted from others, and the densities of their labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import log_softmax
from scipy.stats import rankdata

from .._backend.repeated import n_observations
from ..prediction.calibration import Average

# Most held-out observations in a part; and the number of folds up to so many observations. More have a single part.
_HELD_OUT_ROWS, _FOLDS = 2000, ((300, 5), (1000, 3))
# The held-out share of many observations.
SHARE = 0.2
# Most observations in a row.
_MOST_OBSERVATIONS = 100
# Largest weight of a judge, as a multiple of the median weight of its label (which includes a class weight): a row that
# matters more does not judge better.
_MOST_TOLD = 3.0


class HeldOut(NamedTuple):
    """The rows, or parts of them, that are left out of a fit.

    Attributes
    ----------
    index : ndarray of shape (B,)
        Rows.
    residual : ndarray of shape (B,)
        The prior variance that the points do not explain.
    y : ndarray of shape (T, B)
        Labels.
    weight : ndarray of shape (B,)
        The part of each row's weight that is left out.
    told : ndarray of shape (B,)
        The weight with which a row's prediction counts.
    counts : ndarray of shape (B,)
        The number of observations that are left out of a row.
    """

    index: np.ndarray
    residual: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    told: np.ndarray
    counts: np.ndarray

    @property
    def doubt(self):
        """The probability of another label than the one seen, as Platt (1999), who adds one of each.

        Without it labels that are all predicted well would make the model certain, and one of a thousand times as many
        rows would decide about its log loss.
        """
        return 1.0 / (self.counts.sum() + 2.0)


def share_of(n_observations, share):
    """The share of so many observations that are held out: all, one fold after the other, or ``share``."""
    return 1.0 if n_observations <= _FOLDS[-1][0] else share


def folds_of(rows, random_state, is_point=False, is_contradicted=False, share=SHARE, n_of_many=1):
    """Parts of the observations (`HeldOut`), each predicted from all others: all if there are few, else some parts.

    Rows at inducing points come last, since their predictions say little about new rows. A row whose X has other labels
    as well counts as so many observations as its weight. New rows will repeat such X, so that they may be among the
    first, if enough other rows fill a part. Of many observations ``share`` are held out. Labels so rare that this would
    be less than one observation come last of all: a single row that nothing predicts would decide about all others.
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
    """The rows with their held-out weights subtracted."""
    weight = np.array(rows.weight)
    weight[held.index] = np.maximum(weight[held.index] - held.weight, 0.0)
    return rows._replace(weight=weight)


def moments_of(fit, held):
    """Latent moments (K, B) of held-out rows."""
    mean, own = fit.mean[:, held.index], np.asarray(fit.covariance.own)[held.index]
    return mean, np.broadcast_to(np.exp(fit.log_scale) * held.residual + own, mean.shape)


class Densities(NamedTuple):
    """Log densities of held-out labels, in nats, and their rows' weights and numbers of observations: (B,) each."""

    each: np.ndarray
    weight: np.ndarray
    counts: np.ndarray

    @property
    def mean(self):
        """The mean in nats a row; minus infinity if it is not finite, or of no rows."""
        if not self.weight.sum() > 0.0:
            return -np.inf
        mean = float(np.average(self.each, weights=self.weight))
        return mean if np.isfinite(mean) else -np.inf

    def are_larger_than(self, others, n_errors=1.0):
        """Whether they exceed other densities of the same labels by ``n_errors`` standard errors (Breiman et al. 1984).

        Few rows cannot tell a wide prior from a narrow one.
        """
        if not np.isfinite([self.mean, others.mean]).all():
            return self.mean > others.mean
        found = Average.of(self.each - others.each, self.weight, self.counts)
        return found.mean > n_errors * found.error


class Gain(NamedTuple):
    """How much better held-out labels are predicted than by the frequencies of the labels.

    Attributes
    ----------
    mean, error : float
        The gain in log density, in nats a row, and its standard error.
    ranking : float
        How often the latent means rank two rows with different labels correctly: the area under the ROC curve of each
        class against the others (with one latent function, of the classes up to each against those above), averaged.
    chance : float
        The standard deviation of `ranking` if X had no influence (Mann and Whitney 1947).
    """

    mean: float
    error: float
    ranking: float
    chance: float

    @classmethod
    def of(cls, densities, latent, y, frequencies):
        """From `Densities` of labels ``y`` (B,), the latent means (K, B), and the frequencies (C,) of all labels."""
        gain = Average.of(densities.each - np.log(frequencies[y]), densities.weight, densities.counts)
        if len(latent) == 1:
            pairs = [(latent[0], y > c) for c in range(len(frequencies) - 1)]
        else:
            pairs = [(value, y == c) for c, value in enumerate(log_softmax(latent, axis=0))]
        found = [_area(*pair) for pair in pairs if 0 < np.count_nonzero(pair[1]) < len(y)]
        ranking, chance = np.mean(found, axis=0) if found else (0.5, 0.5)
        return cls(*gain, float(ranking), float(chance))


def _area(value, is_positive):
    """The area under the ROC curve of values (B,) for the positive rows, and its standard deviation by chance."""
    n, m = np.count_nonzero(is_positive), np.count_nonzero(~is_positive)
    area = (rankdata(value)[is_positive].sum() - 0.5 * n * (n + 1)) / (n * m)
    return area, np.sqrt((n + m + 1) / (12.0 * n * m))
