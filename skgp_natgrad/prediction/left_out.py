"""Leave-one-out predictions: training rows, each predicted from all others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._backend.types import Floats
from .calibration import Average
from .model import predict


class LeftOut(NamedTuple):
    """Rows, each predicted from all others.

    Attributes
    ----------
    X : ndarray of shape (B, D)
    error : ndarray of shape (K, B)
        y minus its prediction; NaN for rows that say nothing about new rows.
    latent, noise : ndarray of shape (K, B)
        Variances of the latent function and of the noise, whose sum is that of the error.
    weight, n_each : ndarray of shape (K, B)
        The weights of the rows, and numbers of observations in them.
    width : ndarray of shape (K,)
        The width to which y is rounded; zero if it is not.
    y : ndarray of shape (K, B) or None
        The targets, up to a constant.
    part : ndarray of shape (K, B) or None
        The precision of the observation that is left out, times the noise variance of the model; infinite for all that
        is seen at this X.
    """

    X: Floats
    error: Floats
    latent: Floats
    noise: Floats
    weight: Floats
    n_each: Floats
    width: Floats
    y: Floats | None = None
    part: Floats | None = None

    @property
    def variance(self) -> Floats:
        """Variance of the error, (K, B)."""
        return self.latent + self.noise

    @property
    def error_of_mean(self) -> Floats | None:
        """The root mean square error of each target, in its deviations among these rows; NaN if these are zero.

        And by how many standard errors its square is above the mean square error of a constant: (2, K).
        """
        return None if self.y is None else np.transpose([self._error_of_mean(k) for k in range(len(self.error))])

    def _error_of_mean(self, k):
        rows = np.flatnonzero(np.isfinite(self.error[k]) & (self.weight[k] > 0.0))
        if len(rows) < 2:
            return np.nan, np.nan
        y, error, weight = self.y[k, rows], self.error[k, rows], self.weight[k, rows]
        # The constant, too, is the mean of the other rows.
        constant = (y - np.average(y, weights=weight)) * len(rows) / (len(rows) - 1.0)
        variance, more = np.average(constant**2, weights=weight), error**2 - constant**2
        if not variance > 0.0:
            return np.nan, np.nan
        mean = np.average(more, weights=weight)
        chance = np.sqrt(np.sum((weight * (more - mean)) ** 2)) / weight.sum()
        return np.sqrt(1.0 + mean / variance), mean / chance if chance > 0.0 else 0.0


# The accuracy of a classifier on training labels, and of always predicting the most frequent class.

# Training rows that are predicted, at most.
_ROWS = 2000


class Accuracy(NamedTuple):
    """Shares of the rows' weight.

    Attributes
    ----------
    model : float
        Where the most probable class is the label.
    constant : float
        Of the most frequent class.
    error : float
        Standard error of the difference.
    """

    model: float
    constant: float
    error: float


def accuracy(model, table, device="auto"):
    """Compare the labels that a model predicts with the most frequent one, on some of the rows of training.

    Parameters
    ----------
    model : Model
        With a likelihood of classes.
    table : Table
        The rows that it was trained on.
    device : str

    Returns
    -------
    accuracy : Accuracy
    """
    # Its own random numbers: the draws of a fit must not depend on whether this function is called.
    table = table.sample
    rows = np.sort(np.random.default_rng(0).permutation(np.flatnonzero(table.weight > 0.0))[:_ROWS])
    y, weight = table.y[0, rows].astype(int), table.weight[rows] / table.weight[rows].sum()
    known = None if table.mean_function is None else table.mean_function[:, rows]
    probable = np.argmax(predict(model, table.X[rows], "class_probabilities", device=device, known=known), axis=0)
    right = probable == y
    frequent = y == np.argmax(np.bincount(y, weights=weight))
    gain = Average.of(1.0 * right - frequent, weight)
    return Accuracy(float(weight @ right), float(weight @ frequent), gain.error)
