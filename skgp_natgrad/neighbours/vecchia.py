"""Inducing points for the part that rows share, and neighbours for the rest: the full-scale Vecchia approximation.

With V_i = L^-1 k(Z, x_i) for M inducing points, the rest of the process has the kernel r(x, x') = k(x, x') - V^T V'.
Given them, each row i depends only on its neighbours N(i) among earlier rows (Gyger, Furrer and Sigrist 2025):

    B_i = r_iN (r_NN + S)^-1,    D_i = r_ii + s_i^2 - B_i r_Ni,
    U_i = V_i - sum_j B_ij V_j,    w_i = y_i - sum_j B_ij y_j

Then w_i is U_i^T v plus independent noise of variance D_i, and the sums of the collapsed bound are the exact evidence
of the approximation:

    G = I + sum_i U_i U_i^T / D_i,    h = sum_i U_i w_i / D_i,
    log p(y) = -1/2 sum_i (log 2 pi D_i + w_i^2 / D_i) - 1/2 log |G| + 1/2 h^T G^-1 h

Without inducing points it is the Vecchia approximation (Vecchia 1988), without neighbours FITC (Snelson and Ghahramani
2006), and with all earlier rows as neighbours the exact process.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import linalg

from .._backend import in_place, threads
from .._backend.device import wide_jit
from ..kernels.base import Kernel
from .conditional import ABSENT, blocks, covariances, of_neighbours


class FullScale(NamedTuple):
    """The posterior of the process, and its evidence.

    Attributes
    ----------
    kernel : Kernel
    Z : ndarray of shape (M, D)
    root : ndarray of shape (M, M)
        L, the lower Cholesky factor of k(Z, Z).
    X : ndarray of shape (N, D)
    V : ndarray of shape (N, M)
        Rows whitened by the inducing points.
    y : ndarray of shape (T, N)
    noise : ndarray of shape (N,)
    mean : ndarray of shape (T, M)
        The posterior mean of v, the whitened values at the inducing points.
    precision_root : ndarray of shape (M, M)
        The lower Cholesky factor of G.
    evidence : float
        Summed over the targets.
    """

    kernel: Kernel
    Z: np.ndarray
    root: np.ndarray
    X: np.ndarray
    V: np.ndarray
    y: np.ndarray
    noise: np.ndarray
    mean: np.ndarray
    precision_root: np.ndarray
    evidence: float

    def moments(self, x, near):
        """Latent means (T, B) and variances (B,) at rows ``x`` (B, D), whose neighbours in X are ``near`` (B, m)."""
        means, variances = np.empty((len(self.y), len(x))), np.empty(len(x))
        V = _whitened(self.kernel, self.root, self.Z, x)

        def of_block(rows):
            found = _residual(self.kernel, x[rows], V[rows], self.X, self.V, near[rows], self.y, self.noise)
            means[:, rows] = self.mean @ found.U.T + found.explained
            of_v = linalg.solve_triangular(self.precision_root, found.U.T, lower=True)
            variances[rows] = found.variance + (of_v * of_v).sum(0)

        threads.for_each(of_block, blocks(*near.shape))
        return means, variances


class _Residual(NamedTuple):
    """U (B, M) of rows, the part of their targets that neighbours explain (T, B), and r_ii - B_i r_Ni (B,)."""

    U: np.ndarray
    explained: np.ndarray
    variance: np.ndarray


def full_scale(kernel, Z, X, near, y, noise, jitter=0.0):
    """The `FullScale` of a table.

    Parameters
    ----------
    kernel : Kernel
        A JAX kernel.
    Z : ndarray of shape (M, D)
        They need not be rows; M may be zero.
    X : ndarray of shape (N, D)
    near : ndarray of shape (N, m)
        For each row some earlier ones, from `earlier`; -1 if there are fewer.
    y : ndarray of shape (T, N)
    noise : ndarray of shape (N,)
        Variances.
    jitter : float, default=0.0
        Added to the diagonal of k(Z, Z).

    Returns
    -------
    process : FullScale
    """
    root = in_place.jittered_cholesky(_covariance(kernel, Z, Z), jitter)[0] if len(Z) else np.zeros((0, 0))
    V = _whitened(kernel, root, Z, X)

    def of_block(rows):
        U, explained, variance = _residual(kernel, X[rows], V[rows], X, V, near[rows], y, noise)
        D, w = variance + noise[rows], y[:, rows] - explained
        alone = len(y) * np.log(2.0 * np.pi * D).sum() + (w * w / D).sum()
        return U.T @ (U / D[:, None]), (w / D) @ U, alone

    gram, cross, alone = map(sum, zip(*threads.for_each(of_block, blocks(*near.shape)), strict=True))
    precision_root = linalg.cholesky(np.eye(len(Z)) + gram, lower=True)
    mean = linalg.cho_solve((precision_root, True), cross.T).T
    log_determinant = 2.0 * np.log(precision_root.diagonal()).sum()
    evidence = -0.5 * (alone + len(y) * log_determinant - (mean * cross).sum())
    return FullScale(kernel, Z, root, X, V, y, noise, mean, precision_root, float(evidence))


def _residual(kernel, x, v, X, V, near, y, noise):
    """The `_Residual` of rows ``x`` (B, D), whitened ``v`` (B, M), given their neighbours."""
    together = np.concatenate([v[:, None], V[near]], axis=1)
    r = covariances(kernel, x, X, near) - together @ together.swapaxes(1, 2)
    among, across, places = r[:, 1:, 1:], r[:, 0, 1:], np.arange(near.shape[1])
    among[:, places, places] += of_neighbours(noise[None], near, ABSENT)[0]
    weights = np.linalg.solve(among, across[..., None])[..., 0]
    # An absent neighbour has almost no weight; set it to zero.
    weights = np.where(near >= 0, weights, 0.0)
    explained = np.einsum("bm,tbm->tb", weights, of_neighbours(y, near, 0.0))
    U = v - np.einsum("bm,bmk->bk", weights, V[near])
    # Rounding may make the variance negative.
    return _Residual(U, explained, np.maximum(r[:, 0, 0] - (weights * across).sum(1), 0.0))


def _whitened(kernel, root, Z, X):
    """L^-1 k(Z, x) of all rows: (N, M)."""
    if not len(Z):
        return np.zeros((len(X), 0))
    return in_place.lower_solve(root, np.ascontiguousarray(_covariance(kernel, Z, X))).T.copy()


def _covariance(kernel, X1, X2):
    return np.array(_compiled(kernel, X1, X2), float)


@wide_jit
def _compiled(kernel, X1, X2):
    return kernel(X1, X2)
