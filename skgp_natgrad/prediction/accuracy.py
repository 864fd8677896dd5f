"""The accuracy of a classifier on training labels, and of always predicting the most frequent class."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .calibration import Average
from .model import predict

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
    probable = np.argmax(predict(model, table.X[rows], "class_probabilities", device=device), axis=0)
    right = probable == y
    frequent = y == np.argmax(np.bincount(y, weights=weight))
    gain = Average.of(1.0 * right - frequent, weight)
    return Accuracy(float(weight @ right), float(weight @ frequent), gain.error)
