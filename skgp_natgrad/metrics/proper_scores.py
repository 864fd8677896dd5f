"""Proper scores of predicted distributions: the log density, and the continuous ranked probability score (CRPS)."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr
from sklearn.utils import check_array

from .._backend.types import ArrayLike, Average, Floats
from ._arrays import columns, output_average, positive, row_average, weights

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


def crps_gaussian(
    y_true: ArrayLike,
    y_mean: ArrayLike,
    y_std: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    multioutput: Average = "uniform_average",
) -> float | Floats:
    """Continuous ranked probability score of normal predictions, in the units of y.

    The integral of (F(x) - [y <= x])^2 for the predicted distribution function F (Gneiting and Raftery 2007,
    equation 5); lower is better. For a prediction without uncertainty it is the absolute error.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Targets.
    y_mean, y_std : array-like of the same shape
        Predicted mean and standard deviation of y, noise included.
    sample_weight : array-like of shape (n_samples,), default=None
    multioutput : {"uniform_average", "raw_values"}, default="uniform_average"
        The average over the outputs, or one value for each.

    Returns
    -------
    crps : float or ndarray of shape (n_outputs,)

    Examples
    --------
    >>> from skgp_natgrad.metrics import crps_gaussian
    >>> round(crps_gaussian([0.0], [0.0], [1.0]), 4)
    0.2337
    >>> crps_gaussian([3.0], [1.0], [0.0])
    2.0
    """
    y_true, y_mean, y_std = columns(y_true=y_true, y_mean=y_mean, y_std=y_std)
    if np.any(y_std < 0.0):
        raise ValueError(f"y_std must not be negative, but has the value {y_std.min():g}.")
    return output_average(crps_of_normal(y_true, y_mean, y_std), sample_weight, multioutput)


def crps_of_normal(y, mean, std):
    """`crps_gaussian`, elementwise."""
    error = y - mean
    z = error / np.where(std > 0.0, std, 1.0)
    density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    score = std * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * density - 1.0 / np.sqrt(np.pi))
    return np.where(std > 0.0, score, np.abs(error))


def crps_samples(
    y_true: ArrayLike,
    y_samples: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    multioutput: Average = "uniform_average",
) -> float | Floats:
    """Continuous ranked probability score from draws of the prediction, in the units of y.

    The unbiased ("fair") estimate of E|Y - y| - E|Y - Y'| / 2 for independent Y and Y' from the prediction
    (Gneiting and Raftery 2007, equation 21; Ferro 2014), for distributions of any form.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Targets.
    y_samples : array-like of shape (n_samples, n_draws) or (n_samples, n_outputs, n_draws)
        At least two draws for each row, as from ``sample_y``.
    sample_weight : array-like of shape (n_samples,), default=None
    multioutput : {"uniform_average", "raw_values"}, default="uniform_average"
        The average over the outputs, or one value for each.

    Returns
    -------
    crps : float or ndarray of shape (n_outputs,)

    Examples
    --------
    >>> import numpy as np
    >>> from skgp_natgrad.metrics import crps_samples
    >>> draws = np.random.default_rng(0).normal(size=(1, 100_000))
    >>> round(crps_samples([0.0], draws), 2)
    0.23
    """
    (y_true,) = columns(y_true=y_true)
    draws = check_array(y_samples, dtype=np.float64, allow_nd=True, input_name="y_samples")
    draws = draws.reshape(len(draws), -1, draws.shape[-1])
    n_draws = draws.shape[-1]
    if draws.shape[:2] != y_true.shape or n_draws < 2:
        raise ValueError(
            f"y_samples has the shape {np.shape(y_samples)}, but y_true has {y_true.shape[0]} rows and "
            f"{y_true.shape[1]} columns; give at least two draws for each value, along the last axis."
        )
    return output_average(crps_of_draws(y_true, draws), sample_weight, multioutput)


def crps_of_draws(y, draws):
    """`crps_samples`, elementwise."""
    n_draws = draws.shape[-1]
    # The sum of |Y_i - Y_j| over all pairs, from the sorted draws.
    rank = 2.0 * np.arange(n_draws) - n_draws + 1.0
    spread = np.sort(draws, axis=-1) @ rank / (n_draws * (n_draws - 1.0))
    return np.abs(draws - y[..., None]).mean(-1) - spread
