"""What random points leave unexplained of a process: whether there are enough of them."""

from __future__ import annotations

import numpy as np
from scipy import linalg

# Rows by which the share is judged, and the jitter relative to the prior variance.
_ROWS, _JITTER = 500, 1e-8


def share(kernel, X, n_points):
    """The share of the prior variance at some rows that other rows, as points, leave unexplained.

    The same for the same rows in the same order: they are drawn from a sequence of their own.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
    X : ndarray of shape (N, D)
    n_points : int
        Less than N.

    Returns
    -------
    share : float
        From zero to one; NaN if the points' covariance has no factor.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> X = np.linspace(0.0, 1.0, 200)[:, None]
    >>> share(RBF(1.0), X, 50) < 1e-6 < share(RBF(1e-4), X, 50)
    True
    """
    order = np.random.RandomState(0).permutation(len(X))
    Z, rows = X[order[:n_points]], X[order[n_points : n_points + _ROWS]]
    covariance = kernel(Z)
    covariance[np.diag_indices(len(Z))] += _JITTER * covariance.diagonal().mean()
    try:
        factor = linalg.cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
    except linalg.LinAlgError:
        return np.nan
    whitened = linalg.solve_triangular(factor, kernel(Z, rows), lower=True, overwrite_b=True, check_finite=False)
    prior = kernel.diag(rows)
    return float(np.maximum(prior - (whitened * whitened).sum(0), 0.0).mean() / prior.mean())
