"""The default kernel, its lengthscales started from the data.

Training moves lengthscales by gradients, and from one that is far too long a
wiggly function is noise: no gradient leads out. So a few starting values are
compared by the evidence of an exact Gaussian process on a small part of the
table.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from .._backend import blas

_ROWS = 300
_FACTORS = (1.0, 0.3, 0.1, 0.03)
_NOISE = (0.01, 0.1, 0.5)


def default_kernel(X, Y, deviation_of_X):
    """Return ConstantKernel * Matern 5/2 with one lengthscale a column.

    Parameters
    ----------
    X : ndarray of shape (N, D)
    Y : ndarray of shape (N, T)
        Targets, of any scale; of a class, its indicators.
    deviation_of_X : ndarray of shape (D,)
        Standard deviation of each column of X as the kernel sees it. The longest
        lengthscales are sqrt(D) times it, the root mean squared distance of two
        rows over sqrt(2): rows are then neither perfectly correlated nor independent,
        whatever D is. Shorter ones are taken where the evidence is larger.
    """
    longest = deviation_of_X * np.sqrt(len(deviation_of_X))
    if len(X) > _ROWS:
        part = np.linspace(0, len(X) - 1, _ROWS).round().astype(int)
        X, Y = X[part], Y[part]
    # A constant column may have a deviation of rounding, and a tiny one may have none: its square is zero.
    deviation = Y.std(0)
    Y = (Y - Y.mean(0)) / np.where((np.ptp(Y, axis=0) > 0) & (deviation > 0), deviation, 1.0)
    with blas.single_threaded(len(X)):
        evidence = [_evidence(Matern(factor * longest, nu=2.5)(X), Y) for factor in _FACTORS]
    length_scale = _FACTORS[int(np.argmax(evidence))] * longest
    bounds = (1e-5 * longest.min(), 1e5 * longest.max())
    return ConstantKernel(1.0) * Matern(length_scale, bounds, nu=2.5)


def _evidence(K, Y):
    """Largest log marginal likelihood of unit-variance targets over a few noise variances."""
    return max(_log_marginal_likelihood((1.0 - noise) * K + noise * np.eye(len(K)), Y) for noise in _NOISE)


def _log_marginal_likelihood(covariance, Y):
    L = np.linalg.cholesky(covariance)
    half = solve_triangular(L, Y, lower=True, check_finite=False)
    return -0.5 * float((half**2).sum()) - Y.shape[1] * float(np.log(np.diag(L)).sum())
