"""Conjugate gradients for many right-hand sides at once, each with a noise and weights of its own.

The systems are (K + S) x = y with S = diag(noise / weight), on the rows whose weight is positive: one product with K
serves all of them. They are preconditioned by what some points explain of K, A^T A, plus one number for the rest
(Woodbury's identity; Gardner, Pleiss, Bindel, Weinberger and Wilson 2018).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._backend import in_place
from .._backend.blas import scipy_single_threaded


class Preconditioner(NamedTuple):
    """The inverse of A^T A + rest I + S for each system.

    Attributes
    ----------
    A : ndarray of shape (P, N)
    inverse : ndarray of shape (N, C)
        1 / (rest + S), zero where a weight is zero.
    factors : list of ndarray of shape (P, P)
        Cholesky factors of I + A diag(inverse) A^T.
    """

    A: np.ndarray
    inverse: np.ndarray
    factors: list

    @classmethod
    def of(cls, A, rest, noise, weight):
        """See `solve`; ``rest`` is the variance that A^T A leaves of K's diagonal, on average."""
        inverse, grams = weight / (noise + rest * weight), []
        for c, column in enumerate(inverse.T):
            # Systems that differ in some rows alone share the sum over the others.
            n_changed = np.count_nonzero(inverse[:, :c] != column[:, None], axis=0)
            like = int(np.argmin(n_changed)) if c else 0
            if c and 2 * n_changed[like] < len(column):
                rows = np.flatnonzero(inverse[:, like] != column)
                grams.append(_changed(grams[like], A[:, rows], column[rows] - inverse[rows, like]))
            else:
                grams.append(in_place.add_gram(np.zeros((len(A), len(A))), A, column))
        return cls(A, inverse, [in_place.cholesky_of_sum(gram, 1.0) for gram in grams])

    def __matmul__(self, R):
        scaled = self.inverse * R
        explained = (self.A @ scaled).T
        solved = [in_place.cholesky_solve(*each) for each in zip(self.factors, explained, strict=True)]
        return scaled - self.inverse * (self.A.T @ np.stack(solved, axis=1))


def _changed(gram, A, change):
    """The lower triangle of gram + A diag(change) A^T."""
    for sign in (1.0, -1.0):
        some = sign * change > 0.0
        if some.any():
            added = np.ascontiguousarray(A[:, some]), sign * change[some]
            gram = gram + sign * in_place.add_gram(np.zeros_like(gram), *added)
    return gram


# Its small solves between products by NumPy.
@scipy_single_threaded()
def solve(K, noise, weight, Y, preconditioner, tol, n_steps):
    """The solutions of (K + S) x = y on the rows with weight.

    Parameters
    ----------
    K : object with a product
        ``K @ V`` (N, C) of a symmetric matrix.
    noise : ndarray of shape (C,)
    weight : ndarray of shape (N, C)
    Y : ndarray of shape (N, C)
    preconditioner : Preconditioner
        Or another symmetric positive matrix for each column.
    tol : float
        The solution ends where the residual's norm, in the preconditioner's metric, is this share of its first.
    n_steps : int
        At most.

    Returns
    -------
    X : ndarray of shape (N, C) or None
        Zero in rows without weight. None if a matrix was not positive in the precision of its products.
    """
    is_seen = weight > 0.0
    diagonal = np.divide(noise, weight, out=np.zeros_like(weight), where=is_seen)
    X, R = np.zeros_like(Y), np.where(is_seen, Y, 0.0)
    Z = preconditioner @ R
    P, square = Z, (R * Z).sum(0)
    end = tol**2 * square
    for _ in range(n_steps):
        moves = square > end
        if not moves.any():
            break
        Q = np.where(is_seen, K @ P + diagonal * P, 0.0)
        curvature = (P * Q).sum(0)
        if not np.all(curvature[moves] > 0.0):
            return None
        length = np.where(moves, square / np.where(moves, curvature, 1.0), 0.0)
        X, R = X + length * P, R - length * Q
        Z = preconditioner @ R
        before, square = square, np.where(moves, (R * Z).sum(0), square)
        P = Z + np.where(moves, square / np.where(moves, before, 1.0), 0.0) * P
    return X if np.all(np.isfinite(X)) else None
