"""Scores of predictions for held-out rows, the same for all contenders. NumPy and SciPy are needed."""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

_BINS, _DRAWS = 15, 100
# Probabilities below this count as this.
_SMALLEST = 1e-15


def of_normal(y, mean, deviation):
    """Mean log density and CRPS of normal distributions, and their 95 % intervals."""
    z = (y - mean) / deviation
    crps = deviation * (z * (2.0 * norm.cdf(z) - 1.0) + 2.0 * norm.pdf(z) - 1.0 / np.sqrt(np.pi))
    density = norm.logpdf(y, mean, deviation)
    return density.mean(), crps.mean(), norm.interval(0.95, mean, deviation)


def of_classes(y, proba):
    """Log density, error rate, expected calibration error, and that of perfect probabilities: by chance.

    The columns of ``proba`` (B, C) are those of the labels 0 to C - 1.
    """
    if y.max() >= proba.shape[1]:
        raise ValueError(f"label {y.max()}, but probabilities of {proba.shape[1]} classes; see placed().")
    confidence, right = proba.max(1), proba.argmax(1) == y
    drawn = np.random.default_rng(0).random((_DRAWS, len(y))) < confidence
    by_chance = np.mean([calibration_error(confidence, each) for each in drawn])
    proba = np.clip(proba, _SMALLEST, 1.0)
    density = np.mean(np.log(proba[np.arange(len(y)), y] / proba.sum(1)))
    scores = {"density": density, "error": 1.0 - right.mean(), "calibration": calibration_error(confidence, right)}
    return scores | {"by_chance": by_chance}


def placed(proba, classes, n_classes):
    """Probabilities of the labels 0 to C - 1, zero for those that a model has not seen, from those of its classes."""
    found = np.zeros((len(proba), n_classes))
    found[:, classes] = proba
    return found


def calibration_error(confidence, right):
    """The expected calibration error of the largest probabilities, given which labels are right."""
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    return np.abs(np.bincount(bins, confidence - right, _BINS)).sum() / len(right)
