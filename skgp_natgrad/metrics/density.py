"""Metrics of the predicted density of normal predictions."""

from __future__ import annotations

import numpy as np

from .._backend.types import ArrayLike
from ._arrays import columns, positive, row_average, weights

_LOG_2PI = float(np.log(2.0 * np.pi))


def normal_log_density(y, mean, std):
    """log N(y; mean, std^2), elementwise."""
    return -0.5 * (_LOG_2PI + ((y - mean) / std) ** 2) - np.log(std)


def negative_log_predictive_density(
    y_true: ArrayLike, y_mean: ArrayLike, y_std: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    """Negative log predictive density (NLPD) of normal predictions, in nats for each row.

    The best value is the entropy of the targets, which may be negative; lower is better.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Targets.
    y_mean, y_std : array-like of the same shape
        Predicted mean and standard deviation of y, noise included, as from ``predict(X, return_std=True)``.
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    nlpd : float
        Summed over the outputs of a row, averaged over the rows.

    See Also
    --------
    nlpd_scorer : The same for every likelihood.

    Examples
    --------
    >>> from skgp_natgrad.metrics import negative_log_predictive_density
    >>> round(negative_log_predictive_density([0.0, 1.0], [0.0, 0.0], [1.0, 1.0]), 4)
    1.1689
    """
    y_true, y_mean, y_std = columns(y_true=y_true, y_mean=y_mean, y_std=y_std)
    return -row_average(normal_log_density(y_true, y_mean, positive("y_std", y_std)).sum(1), sample_weight)


def baseline_log_density(y_true, y_train=None, sample_weight=None):
    """Log density (N,) of targets (N, T) under a normal distribution with the moments of ``y_train`` (M, T).

    Without ``y_train`` it has the weighted moments of ``y_true``.
    """
    train, weight = (y_true, weights(sample_weight, len(y_true))) if y_train is None else (y_train, None)
    mean = np.average(train, axis=0, weights=weight)
    std = np.sqrt(np.average((train - mean) ** 2, axis=0, weights=weight))
    # Equal numbers may have a mean that differs from them by rounding, and with it a deviation.
    counted = train if weight is None else train[weight > 0.0]
    if not (np.all(np.ptp(counted, axis=0) > 0.0) and np.all(std > 0.0)):
        name = "y_true" if y_train is None else "y_train"
        raise ValueError(f"{name} is constant: its normal distribution has no density, and MSLL is not defined.")
    return normal_log_density(y_true, mean, std).sum(1)


def mean_standardized_log_loss(
    y_true: ArrayLike,
    y_mean: ArrayLike,
    y_std: ArrayLike,
    *,
    y_train: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Mean standardized log loss (MSLL) of normal predictions, in nats for each row.

    The NLPD minus the NLPD of a model that predicts the mean and variance of the training targets: zero is no better
    than this model, negative is better (Rasmussen and Williams 2006, section 2.5).

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Targets.
    y_mean, y_std : array-like of the same shape
        Predicted mean and standard deviation of y, noise included.
    y_train : array-like of shape (n_train,) or (n_train, n_outputs), default=None
        Targets of training. None takes the moments of ``y_true``, as `sklearn.metrics.r2_score` does.
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    msll : float

    Examples
    --------
    >>> from skgp_natgrad.metrics import mean_standardized_log_loss
    >>> mean_standardized_log_loss([-1.0, 1.0], [0.0, 0.0], [1.0, 1.0], y_train=[-1.0, 1.0])
    0.0
    """
    nlpd = negative_log_predictive_density(y_true, y_mean, y_std, sample_weight=sample_weight)
    (y_true,) = columns(y_true=y_true)
    if y_train is not None:
        (y_train,) = columns(y_train=y_train)
        if y_train.shape[1] != y_true.shape[1]:
            raise ValueError(f"y_train has {y_train.shape[1]} columns, but y_true has {y_true.shape[1]}.")
    return nlpd + row_average(baseline_log_density(y_true, y_train, sample_weight), sample_weight)
