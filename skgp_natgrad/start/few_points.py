"""How well a kernel suits a model on few inducing points: its collapsed bound.

The exact process on some hundred rows resolves more than as many inducing points. Under a rough kernel these do not
explain most of the variance, and training, which maximises the bound, takes it for noise. So kernels for few points are
compared by the collapsed bound (Titsias 2009), each with its best noise; labels are regressed.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from . import evidence

# Rows from which the bound of the whole table is estimated.
_ROWS = 4000
# Noise variances to try, as shares of the targets' variance; and the jitter relative to the prior variance.
_NOISES = 10.0 ** np.arange(-5.0, 0.6, 0.1)
_JITTER = 1e-8


def bound(kernel, table, n_points):
    """The largest collapsed bound with random rows as inducing points, in nats per row and target.

    The rows are the same for every kernel: they are drawn with a fixed seed.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
    table : Table
        With targets of mean zero and unit variance, none of them missing.
    n_points : int
        Less than the number of rows.

    Returns
    -------
    bound : float
        Minus infinity if the points' covariance has no Cholesky factor.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import svgp
    >>> X = np.linspace(-3.0, 3.0, 200)[:, None]
    >>> table = svgp.Table(X, np.sin(X.T), np.ones(200))
    >>> bound(RBF(0.01), table, 10) < bound(RBF(1.0), table, 10)
    True
    """
    order = np.random.RandomState(0).permutation(len(table.X))
    Z, rows = table.X[order[:n_points]], table.rows(np.sort(order[:_ROWS]))
    covariance = kernel(Z)
    covariance[np.diag_indices(len(Z))] += _JITTER * covariance.diagonal().mean()
    try:
        factor = linalg.cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
    except linalg.LinAlgError:
        return -np.inf
    A = linalg.solve_triangular(factor, kernel(Z, rows.X), lower=True, overwrite_b=True, check_finite=False)
    # The rows represent the whole table.
    n_rows = table.weight.sum()
    weight = rows.weight * n_rows / rows.weight.sum()
    # In the eigenvectors of A W A^T the posterior is diagonal, whatever the noise.
    values, vectors = linalg.eigh((A * weight) @ A.T, overwrite_a=True, check_finite=False)
    values = np.maximum(values, 0.0)[:, None]
    explained = ((vectors.T @ (A @ (weight * rows.y).T)) ** 2).mean(1)[:, None]
    unexplained = weight @ np.maximum(kernel.diag(rows.X) - (A * A).sum(0), 0.0)
    squares = (weight * rows.y**2).sum(1).mean()
    misfit = (squares - (explained / (values + _NOISES)).sum(0) + unexplained) / _NOISES
    log_determinant = n_rows * np.log(_NOISES) + np.log1p(values / _NOISES).sum(0)
    return float(np.max(-0.5 * (n_rows * evidence.LOG_2PI + log_determinant + misfit)) / n_rows)
