"""The reduction of a row's prior variance by inducing points and data, as one product with a triangular matrix.

With A = L^-1 k_zx and S the covariance of the whitened q(v),

    var(x) = k_xx - A^T (I - S) A = k_xx - |V k_zx|^2,    V = T^T L^-1,    I - S = T T^T

where q is nowhere wider than the prior. Any root of I - S would do, and its eigenvectors give one easily. But
eigenvectors mix all rows of L^-1, and some of these rows are as large as one over the root of the jitter. The large
rows give small elements of A, with small rounding errors as long as the rows are not mixed. An upper triangular T does
not mix them: V is lower triangular like L^-1. With little noise its variances have ten times the digits of those from
eigenvectors, and as many as those from two products, |A|^2 and |root_S^T A|^2; and it takes half of the work of one
such product.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from .._backend import in_place

_EPS = np.finfo(float).eps
# No direction in which q is wider than the prior by more than this share of the prior's variance is taken for rounding.
# With little noise S is not known to that, but variances are small as well, and what is dropped must be smaller.
_LARGEST_ROUNDING = 1e-12


def reduced(posterior):
    """The `Posterior` with V in the place of ``root_S``; as it is where some q is wider than the prior somewhere."""
    given = posterior.whiten, posterior.root_S
    # Values that are not finite are for the caller to judge.
    found = reduction_of(*given) if all(np.all(np.isfinite(each)) for each in given) else None
    return posterior if found is None else posterior._replace(root_S=None, reduction=found)


def reduction_of(whiten, root_S):
    """Return V with |V k|^2 = |whiten k|^2 - |root_S^T whiten k|^2 for every k.

    Parameters
    ----------
    whiten : ndarray of shape (1 or K, M, M)
        Columns of masked points are zero.
    root_S : ndarray of shape (1 or K, M, M)

    Returns
    -------
    reduction : ndarray of shape (1 or K, M, M), or None
        Lower triangular; None if there is none, as S exceeds the identity in some direction.
    """
    n = max(len(whiten), len(root_S))
    found = np.zeros((n, *whiten.shape[1:]))
    for k, one in enumerate(found):
        own, root = whiten[k % len(whiten)], root_S[k % len(root_S)]
        # Without masked points, of which the data say nothing.
        rows, columns = (np.flatnonzero(own.any(axis)) for axis in (1, 0))
        half = _root_of_complement(root[rows])
        if half is None:
            return None
        one[np.ix_(columns, columns)] = _lower_triangular(_product(half, own[np.ix_(rows, columns)]))
    return found


def _product(lower, own):
    """The product of a lower triangular matrix and a matrix, which may be in its place."""
    if own.shape[0] != own.shape[1]:
        return lower @ own
    # BLAS reads by columns: of the transposes.
    return linalg.blas.dtrmm(1.0, lower.T, own.T, side=1, lower=0, overwrite_b=1).T


def _root_of_complement(root):
    """T^T, lower triangular, of I - S = T T^T for S = root root^T (M, any); None if that is not semidefinite."""
    size = len(root)
    # The lower triangle alone, as the factorisation below reads the upper one of the reversed order.
    complement = np.zeros((size, size))
    complement[np.diag_indices(size)] = 1.0
    linalg.blas.dsyrk(-1.0, root.T, beta=1.0, c=complement.T, trans=1, lower=0, overwrite_c=1)
    # The factor of the matrix with its order reversed: T is upper triangular, where Cholesky's is lower.
    reverse = np.ascontiguousarray(complement[::-1, ::-1])
    lower, failed = linalg.lapack.dpotrf(reverse.T, lower=1, overwrite_a=1)
    upper = lower.T
    if failed:
        upper = _semidefinite_root(in_place.mirrored(complement)[::-1, ::-1], _rounding(root))
        if upper is None:
            return None
    return _reversed(upper)


def _reversed(upper):
    """An upper trapezoidal matrix (rank, M) with the order of both axes reversed, below rows of zeros: (M, M)."""
    found = np.zeros((upper.shape[1], upper.shape[1]))
    found[len(found) - len(upper) :] = upper[::-1, ::-1]
    return found


def _rounding(root):
    """By how much the eigenvalues of S near one may exceed it, as q's precision is known to rounding of its size."""
    # The smallest variance of a direction is that of a column or less.
    largest_precision = 1.0 / max(np.square(root).sum(0).min(), _EPS)
    return min(len(root) * _EPS * largest_precision, _LARGEST_ROUNDING)


def _semidefinite_root(A, tolerance):
    """R (rank, M), upper trapezoidal, with R^T R = A; None if A is not semidefinite to this tolerance.

    Directions in which A is zero up to rounding are dropped: those of which the data say nothing.
    """
    factor, order, rank, _ = linalg.lapack.dpstrf(A, lower=1)
    pivoted = np.zeros((len(A), rank))
    pivoted[order - 1] = np.tril(factor)[:, :rank]
    if not np.abs(A - pivoted @ pivoted.T).max() <= max(tolerance, len(A) * _EPS):
        return None
    return linalg.qr(pivoted.T, mode="r")[0][:rank]


def _lower_triangular(V):
    """A lower triangular matrix with the same |V k| for all k: V itself, except for the decoupled basis."""
    if V.shape[0] == V.shape[1] and not np.triu(V, 1).any():
        return V
    return _reversed(linalg.qr(V[:, ::-1], mode="r")[0][: V.shape[1]])
