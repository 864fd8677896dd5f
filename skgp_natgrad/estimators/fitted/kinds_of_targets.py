"""Targets that look like counts, labels or amounts with many zeros, for which other likelihoods are better."""

from __future__ import annotations

import numpy as np

# The largest median of small counts, whose variance is at least about their mean; and the share of zeros among amounts.
_SMALL_COUNT, _VARIES, _ZEROS = 10.0, 0.85, 0.5
# Numbers this much smaller than the largest are zeros that were scaled and scaled back.
_NO_DIGIT = 1e-12


def told(estimator, fit):
    """Warnings, by their kinds, of targets under the default likelihood that look like something else.

    Parameters
    ----------
    estimator : NGDSVGPRegressor or NGDSVGPClassifier
    fit : preparation.Fit
    """
    if not (isinstance(estimator.likelihood, str) and fit.plan.likelihood.conjugate and fit.previous is None):
        return {}
    y = fit.scales.y.backward(fit.some.sample.y.T)
    y = np.where(np.abs(y) < _NO_DIGIT * np.nanmax(np.abs(y), axis=0), 0.0, y)
    found = [(k, better_likelihood(each)) for k, each in enumerate(y.T)]
    which = " (output {})" if len(found) > 1 else ""
    return {
        (k, looks): f"y{which.format(k)} {looks}; Gaussian noise also gives density to values that y cannot take."
        for k, looks in found
        if looks is not None
    }


def better_likelihood(y):
    """What a target (N,) looks like and the remedy, for a warning; None where Gaussian noise may suit it.

    Parameters
    ----------
    y : ndarray of shape (N,)
        In its own units; NaN where it is missing.
    """
    y = y[np.isfinite(y)]
    if not len(y) or np.any(y < 0.0) or np.all(y == y[0]):
        return None
    y = np.where(np.abs(y - np.rint(y)) <= 1e3 * _NO_DIGIT * y.max(), np.rint(y), y)
    if np.all((y == 0.0) | (y == 1.0)):
        return (
            "holds only zeros and ones. Use NGDSVGPClassifier, which predicts probabilities, or likelihood='binomial'"
        )
    if np.all(y == np.rint(y)):
        is_small = y.min() == 0.0 and np.median(y) <= _SMALL_COUNT and np.var(y) > _VARIES * np.mean(y)
        return "looks like small counts. Use likelihood='poisson' or 'negative_binomial'" if is_small else None
    if np.mean(y == 0.0) >= _ZEROS:
        return "is zero in most rows and positive in the others. Use likelihood='tweedie'"
    return None
