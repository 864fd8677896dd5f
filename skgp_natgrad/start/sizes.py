"""Chooses the sizes that the user leaves open, within a budget of operations and memory."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from ..solve import row_means

# Rows whose evidence sets the hyperparameters of a given kernel.
EVIDENCE_ROWS = 1000
# Inducing points of a fit by steps.
OF_STEPS = 100
# The solution on all rows costs about 3 N M^2 operations for each latent function; the budget is half a minute on two
# cores. Then the most and the fewest inducing points: memory must hold some matrices of the largest size.
_OPERATIONS, _MOST, FEWEST = 2.7e12, 5000, 100
# For class labels, whose latent functions share a covariance, there are several such solutions. With more rows than the
# second number the time grows in proportion to the rows.
_OPERATIONS_OF_LABELS, _ROWS_OF_LABELS = 7e10, 10_000
# If these points do not explain more than this share of the prior variance, the budget is larger, whatever the number
# of rows.
_MUCH, _MORE_OPERATIONS_OF_LABELS = 0.15, 6e11
# If they do not explain more than this share, there are further points for the means, within this budget.
WORTH_FURTHER_POINTS, _OPERATIONS_OF_MEANS = 0.03, 8e12
# The mean of a regression uses all rows, at most the second number, if so many inducing points as the first do not
# explain more than these shares of the prior variance and of the noise. They are then enough for the variance.
OF_VARIANCE, _MOST_ROWS, _LEAST_UNEXPLAINED, _OF_NOISE = 2000, 45_000, 3e-3, 0.1
# Most rows that are left out, the budget of operations for them, and the fewest such rows.
_MOST_LEFT_OUT, _OPERATIONS_OF_LEFT_OUT, _FEWEST_LEFT_OUT = 8192, 2e11, 500
# M x M matrices that the solution holds at once for each latent function, and the part of the memory for them.
MATRICES, _PART = 12, 0.5
# M x N arrays that the solutions for class labels and for counts hold at once.
ARRAYS_OF_LABELS, ARRAYS_OF_COUNTS = 5, 2


def n_inducing(n_rows, n_latent, n_bytes):
    """The number of inducing points for the closed form.

    Parameters
    ----------
    n_rows : int
    n_latent : int
    n_bytes : float
        Available memory.
    """
    affordable = np.sqrt(_OPERATIONS / (3.0 * n_rows * n_latent))
    return int(np.clip(min(affordable, np.sqrt(_PART * n_bytes / (8.0 * MATRICES * n_latent))), FEWEST, _MOST))


def n_inducing_of_labels(n_rows, n_bytes, unexplained=lambda n_points: 0.0):
    """The number of inducing points for the solution for class labels.

    Parameters
    ----------
    n_rows : int
    n_bytes : float
        Available memory.
    unexplained : callable, optional
        Takes a number of points; returns the share of the prior variance that they do not explain.
    """
    few = np.sqrt(_OPERATIONS_OF_LABELS / (3.0 * min(n_rows, _ROWS_OF_LABELS)))
    more = max(few, np.sqrt(_MORE_OPERATIONS_OF_LABELS / (3.0 * n_rows)))
    matrices = np.sqrt(_PART * n_bytes / (8.0 * MATRICES))
    most = min(_MOST, matrices, _PART * n_bytes / (8.0 * ARRAYS_OF_LABELS * n_rows))
    few, more = (int(np.clip(each, FEWEST, max(most, FEWEST))) for each in (few, more))
    return more if few < min(more, n_rows) and unexplained(few) > _MUCH else few


def worth_all_rows(n_rows, n_targets, n_bytes, unexplained, variance, noise):
    """Whether the mean of a regression is to use all rows, beside `OF_VARIANCE` inducing points.

    Parameters
    ----------
    n_rows, n_targets : int
    n_bytes : float
        Available memory.
    unexplained : callable
        Takes a number of points; returns the share of the prior variance that they do not explain.
    variance, noise : float
        The prior variance and the noise variance.
    """
    if are_too_many(n_rows, n_targets, n_bytes):
        return False
    return unexplained(OF_VARIANCE) > max(_LEAST_UNEXPLAINED, _OF_NOISE * noise / variance)


def are_too_many(n_rows, n_targets, n_bytes):
    """Whether there are too many rows for a mean on all of them."""
    return n_rows > _MOST_ROWS or row_means.n_bytes(n_rows, n_targets) > _PART * n_bytes


def n_further_of_labels(n_rows, n_inducing, n_bytes):
    """The largest number of further points for the means of class labels, beside the inducing points.

    Parameters
    ----------
    n_rows : int
    n_inducing : int
    n_bytes : float
        Available memory.
    """

    def operations(n):
        # Those that factorise the points' covariance, and those that whiten the other rows.
        return n**2 * (n / 3.0 + np.maximum(n_rows - n, 0.0))

    found = np.arange(max(n_rows - n_inducing, 0), 0, -100.0)
    fits = operations(found) <= _OPERATIONS_OF_MEANS
    fits &= n_bytes_of_further(n_rows, n_inducing, found) <= _PART * n_bytes
    return int(found[fits].max(initial=0))


def n_bytes_of_further(n_rows, n_inducing, n_further):
    """The memory for further points of class labels: the root of their covariance, and whitened rows."""
    return 8 * n_further**2 + 4 * (n_inducing + n_further) * n_rows


def n_bytes_of_neighbours(n_rows, n_columns, n_targets):
    """The memory for predictions from neighbours: the table, its distinct rows, these scaled in two orders, a tree."""
    return 8 * n_rows * (4 * n_columns + 6 * n_targets + 4)


def fit_as_neighbours(n_rows, n_columns, n_targets, n_bytes):
    """Whether predictions from neighbours fit into their part of the memory."""
    return n_bytes_of_neighbours(n_rows, n_columns, n_targets) <= _PART * n_bytes


def n_left_out(n_points):
    """The number of rows to leave out, for a model with so many points: each row is whitened twice."""
    return int(min(_MOST_LEFT_OUT, max(_OPERATIONS_OF_LEFT_OUT / (2.0 * n_points**2), _FEWEST_LEFT_OUT)))


# The share of the prior variance that random points do not explain: whether there are enough of them.

# Rows from which the share is estimated, and the jitter relative to the prior variance.
_ROWS, _JITTER = 500, 1e-8


def share(kernel, X, n_points):
    """The share of the prior variance at some rows that other rows, as inducing points, do not explain.

    The same rows in the same order give the same share: they are drawn with a fixed seed.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
    X : ndarray of shape (N, D)
    n_points : int
        Less than N.

    Returns
    -------
    share : float
        From zero to one; NaN if the points' covariance has no Cholesky factor.

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
