"""Metrics of predictive intervals."""

from __future__ import annotations

import numpy as np

from .._backend.types import ArrayLike, Average, Floats
from ._arrays import columns, output_average, probability


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
