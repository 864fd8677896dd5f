"""Calibration: the coverage and score of intervals, and the errors of predicted distributions and probabilities."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_array, column_or_1d

from .._backend.types import ArrayLike, Average, Floats
from ._arrays import columns, output_average, probability, weights

# Levels at which predicted and observed probabilities are compared.
# Of probabilities in single precision, printed ones included.
_ROUNDING_OF_SUMS = 1e-3
_LEVELS = np.arange(1, 100) / 100.0


def share_below(pit, pit_below, levels):
    """Probability (..., levels) that each row's integral transform is at most a level.

    Without ``pit_below`` it is 0 or 1. Between ``pit_below`` and ``pit`` it rises linearly: the average over random
    positions in the step of a discrete distribution (Czado, Gneiting and Held 2009, equation 2).
    """
    pit = pit[..., None]
    if pit_below is None:
        return (pit <= levels).astype(float)
    step = pit - pit_below[..., None]
    inside = (levels - pit_below[..., None]) / np.where(step > 0.0, step, 1.0)
    return np.where(step > 0.0, np.clip(inside, 0.0, 1.0), pit <= levels)


def pit_calibration_error(
    pit: ArrayLike,
    pit_below: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    multioutput: Average = "uniform_average",
) -> float | Floats:
    """Mean absolute difference between predicted and observed probabilities of targets of regression.

    If the predicted distributions are right, a share p of the targets lies below their quantiles at p, for all p
    (Gneiting, Balabdaoui and Raftery 2007). The differences are averaged over p = 0.01, 0.02, ..., 0.99; zero is best,
    and 0.5 is the largest value. Unlike the NLPD it does not judge how narrow the distributions are.

    Parameters
    ----------
    pit : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Predicted probability that Y is at most the target, as from ``predict_cdf(X, y)``.
    pit_below : array-like of the same shape, default=None
        For counts, the probability that Y is less than the target: ``predict_cdf(X, y - 1)``.
    sample_weight : array-like of shape (n_samples,), default=None
    multioutput : {"uniform_average", "raw_values"}, default="uniform_average"
        The average over the outputs, or one value for each.

    Returns
    -------
    error : float or ndarray of shape (n_outputs,)

    Examples
    --------
    >>> import numpy as np
    >>> from skgp_natgrad.metrics import pit_calibration_error
    >>> round(pit_calibration_error(np.linspace(0.0005, 0.9995, 1000)), 4)
    0.0
    >>> round(pit_calibration_error(np.full(10, 0.5)), 2)
    0.25
    """
    given = {"pit": pit} if pit_below is None else {"pit": pit, "pit_below": pit_below}
    found = columns(**given)
    for name, array in zip(given, found, strict=True):
        if array.min() < 0.0 or array.max() > 1.0:
            raise ValueError(f"{name} must hold probabilities, but runs from {array.min():g} to {array.max():g}.")
    pit, below = found if pit_below is not None else (found[0], None)
    share = np.average(share_below(pit, below, _LEVELS), axis=0, weights=weights(sample_weight, len(pit)))
    return output_average(np.abs(share - _LEVELS).mean(-1)[None], None, multioutput)


def expected_calibration_error(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    labels: ArrayLike | None = None,
    n_bins: int = 15,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Expected calibration error (ECE) of class probabilities; zero is best.

    Rows are sorted into bins by the probability of their most probable class. The error is the difference between
    this probability and the share of rows where that class is right, weighted by the rows of the bins (Guo et al.
    2017, equation 3). It depends on the bins; the log loss does not.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Labels.
    y_proba : array-like of shape (n_samples, n_classes) or (n_samples,)
        Predicted probabilities in the order of ``labels``; for two classes the probability of the second is enough.
    labels : array-like of shape (n_classes,), default=None
        The classes; None takes the sorted labels of ``y_true``.
    n_bins : int, default=15
        Number of bins of equal width.
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    error : float

    Examples
    --------
    >>> from skgp_natgrad.metrics import expected_calibration_error
    >>> round(expected_calibration_error([0, 1, 1, 1], [0.75, 0.75, 0.75, 0.75]), 2)
    0.0
    >>> round(expected_calibration_error([0, 1, 1, 1], [0.95, 0.95, 0.95, 0.95]), 2)
    0.2
    """
    y_true = column_or_1d(y_true)
    proba = check_array(y_proba, dtype=np.float64, ensure_2d=False, input_name="y_proba")
    proba = np.column_stack([1.0 - proba, proba]) if proba.ndim == 1 else proba
    labels = np.unique(y_true) if labels is None else np.asarray(labels)
    if proba.shape != (len(y_true), len(labels)) or proba.min() < 0.0 or proba.max() > 1.0:
        raise ValueError(
            f"y_proba has the shape {proba.shape}, from {proba.min():g} to {proba.max():g}, for {len(y_true)} rows and "
            f"{len(labels)} labels; give a probability for each, and labels= if y_true lacks some."
        )
    if np.abs(proba.sum(1) - 1.0).max() > _ROUNDING_OF_SUMS:
        worst = np.abs(proba.sum(1) - 1.0).argmax()
        raise ValueError(f"y_proba[{worst}] sums to {proba[worst].sum():g}; a row's probabilities must sum to one.")
    unknown = ~np.isin(y_true, labels)
    if unknown.any():
        raise ValueError(
            f"y_true holds {y_true[unknown][:1].tolist()[0]!r}, which is none of the labels {labels.tolist()}."
        )
    if not (isinstance(n_bins, (int, np.integer)) and n_bins >= 1):
        raise ValueError(f"n_bins={n_bins!r} must be an integer of at least 1.")
    weight = weights(sample_weight, len(y_true))
    weight = np.ones(len(y_true)) if weight is None else weight
    confidence, right = proba.max(1), labels[proba.argmax(1)] == y_true
    # Bins are closed above, so that one belongs to the last.
    position = np.clip(np.ceil(confidence * n_bins).astype(int) - 1, 0, n_bins - 1)
    gaps = np.bincount(position, weights=weight * (right - confidence), minlength=n_bins)
    return float(np.abs(gaps).sum() / weight.sum())


def _ordered(**arrays):
    *rest, lower, upper = columns(**arrays)
    if np.any(lower > upper):
        raise ValueError(f"lower must not exceed upper, but does at {np.sum(lower > upper)} places.")
    return [*rest, lower, upper]


def interval_coverage(
    y_true: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    multioutput: Average = "uniform_average",
) -> float | Floats:
    """Share of the targets that lie in their intervals, ends included.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Targets.
    lower, upper : array-like of the same shape
        Ends of the intervals, as from ``predict_interval``.
    sample_weight : array-like of shape (n_samples,), default=None
    multioutput : {"uniform_average", "raw_values"}, default="uniform_average"
        The average over the outputs, or one value for each.

    Returns
    -------
    coverage : float or ndarray of shape (n_outputs,)

    Examples
    --------
    >>> from skgp_natgrad.metrics import interval_coverage
    >>> interval_coverage([0.0, 2.0], [-1.0, -1.0], [1.0, 1.0])
    0.5
    """
    y_true, lower, upper = _ordered(y_true=y_true, lower=lower, upper=upper)
    return output_average((lower <= y_true) & (y_true <= upper), sample_weight, multioutput)


def interval_width(
    lower: ArrayLike,
    upper: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    multioutput: Average = "uniform_average",
) -> float | Floats:
    """Mean width of intervals, in the units of y.

    Parameters
    ----------
    lower, upper : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Ends of the intervals, as from ``predict_interval``.
    sample_weight : array-like of shape (n_samples,), default=None
    multioutput : {"uniform_average", "raw_values"}, default="uniform_average"
        The average over the outputs, or one value for each.

    Returns
    -------
    width : float or ndarray of shape (n_outputs,)

    Examples
    --------
    >>> from skgp_natgrad.metrics import interval_width
    >>> interval_width([0.0, 0.0], [1.0, 3.0])
    2.0
    """
    lower, upper = _ordered(lower=lower, upper=upper)
    return output_average(upper - lower, sample_weight, multioutput)


def interval_score(
    y_true: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    coverage: float = 0.9,
    *,
    sample_weight: ArrayLike | None = None,
    multioutput: Average = "uniform_average",
) -> float | Floats:
    """Interval score, in the units of y; lower is better.

    The width, plus 2 / (1 - coverage) times the distance of targets outside. It is proper: the quantiles at
    (1 - coverage) / 2 and (1 + coverage) / 2 minimise its expectation (Gneiting and Raftery 2007, equation 43). So it
    judges coverage and width together.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Targets.
    lower, upper : array-like of the same shape
        Ends of the intervals.
    coverage : float, default=0.9
        The probability for which the intervals were made.
    sample_weight : array-like of shape (n_samples,), default=None
    multioutput : {"uniform_average", "raw_values"}, default="uniform_average"
        The average over the outputs, or one value for each.

    Returns
    -------
    score : float or ndarray of shape (n_outputs,)

    Examples
    --------
    >>> from skgp_natgrad.metrics import interval_score
    >>> interval_score([0.0, 2.0], [-1.0, -1.0], [1.0, 1.0], coverage=0.5)
    4.0
    """
    y_true, lower, upper = _ordered(y_true=y_true, lower=lower, upper=upper)
    outside = np.maximum(lower - y_true, 0.0) + np.maximum(y_true - upper, 0.0)
    penalty = 2.0 / (1.0 - probability("coverage", coverage))
    return output_average(upper - lower + penalty * outside, sample_weight, multioutput)
