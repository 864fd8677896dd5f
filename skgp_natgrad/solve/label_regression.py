"""Means that regress the labels, as if their noise were Gaussian (Rasmussen and Williams 2006, section 6.5).

Under the likelihood a label that is almost certain says next to nothing more. Where classes hardly overlap it is rows
at their margins alone that speak, and the means of a regression, to which all rows have something to say, are better.
The scale of these has no meaning before class probabilities are calibrated.
"""

from __future__ import annotations

import numpy as np

from .common_covariance import Fit
from .system import covariance_of

# By how much the latent value of a row's label exceeds the others'; and the noise variance as a share of the prior one.
_MARGIN, _NOISE = 10.0, 0.01


def fit(rows, prior_mean):
    """The `Fit` in closed form: natural parameters A diag(h) A^T and A diag(h) z for targets z of one precision h.

    Parameters
    ----------
    rows : Rows
    prior_mean : ndarray of shape (K, 1)
    """
    weight = np.asarray(rows.weight)
    target = targets(np.asarray(rows.y[0]), weight, prior_mean)
    h = weight / (_NOISE * float(np.average(rows.explained + rows.residual, weights=weight)))
    covariance = covariance_of(rows.A, h)
    A, inverse_root = np.asarray(rows.A), np.asarray(covariance.inverse_root)
    w = (A @ (target * h).T).T @ inverse_root.T @ inverse_root
    return Fit(0.0, w, covariance, prior_mean + w @ A, h, [])


def targets(y, weight, prior_mean):
    """By how much latent values (K, N) that are right of the labels ``y`` (N,) exceed the prior mean."""
    if len(prior_mean) == 1:
        # The difference of two latent functions.
        return _MARGIN * (y - 0.5) - prior_mean
    found = _MARGIN * np.equal(y, np.arange(len(prior_mean))[:, None]) - prior_mean
    # What all of them have in common has no part in class probabilities.
    return found - np.average(found.mean(0), weights=weight)
