"""The joint posterior of the latent functions at several rows: its covariance, and draws from it."""

from __future__ import annotations

import numpy as np

from .._backend.device import quick_jit
from .._backend.placement import ONE_DEVICE
from .evaluate import CHUNK_ROWS
from .posterior import covariances


@quick_jit
def _covariance_block(kernels, posterior, X1, X2):
    V1, B1 = _projections(posterior, covariances(kernels, posterior.Z, X1))
    V2, B2 = _projections(posterior, covariances(kernels, posterior.Z, X2))
    found = covariances(kernels, X1, X2) - V1.swapaxes(-1, -2) @ V2
    return found if B1 is None else found + B1.swapaxes(-1, -2) @ B2


def covariance(kernels, posterior, X):
    """Latent posterior covariance at the rows of ``X`` (N, D): (K, N, N), computed block by block."""
    kernels, posterior = ONE_DEVICE.replicated((kernels, posterior.read_by(with_variance=True)), now=True)
    n_blocks = -(-len(X) // CHUNK_ROWS)
    padded = np.pad(X, ((0, n_blocks * CHUNK_ROWS - len(X)), (0, 0)), mode="edge").reshape(n_blocks, CHUNK_ROWS, -1)
    # Written in place: no second array of this size is made.
    out = np.empty((posterior.alpha.shape[0], len(X), len(X)))
    for i in range(n_blocks):
        for j in range(i + 1):
            block = np.asarray(_covariance_block(kernels, posterior, padded[i], padded[j]))
            if i == j:
                block = 0.5 * (block + np.swapaxes(block, -1, -2))
            rows, columns = (slice(k * CHUNK_ROWS, min((k + 1) * CHUNK_ROWS, len(X))) for k in (i, j))
            block = block[:, : rows.stop - rows.start, : columns.stop - columns.start]
            out[:, rows, columns] = block
            out[:, columns, rows] = np.swapaxes(block, -1, -2)
    return out


def _projections(posterior, Kzx):
    """What the prior covariance is reduced by (1 or K, M, B), and root_S^T of it (K, M, B) if it is whiten k_zx."""
    if posterior.reduction is not None:
        return posterior.reduction @ Kzx, None
    A = posterior.whiten @ Kzx
    return A, posterior.root_S.swapaxes(-1, -2) @ A


def draws(mean, covariance, n_samples, random_state):
    """Draws from Gaussians of mean (K, N) and covariance (K, N, N): (K, N, n_samples)."""
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    noise = random_state.standard_normal((*mean.shape, n_samples))
    return mean[:, :, None] + root @ noise


def draws_by_rows(mean, var, n_samples, random_state):
    """Independent draws from Gaussians of mean and variance (K, N): (K, N, n_samples)."""
    return mean[:, :, None] + np.sqrt(var)[:, :, None] * random_state.standard_normal((*mean.shape, n_samples))


def memory_of_draws(n_rows, n_latent, n_samples, joint=True):
    """Bytes needed by `draws` and by the covariance before it, or by `draws_by_rows`."""
    if not joint:
        return 8 * n_rows * 4 * n_latent * n_samples
    # Covariances, eigenvectors and LAPACK's workspace; the noise, its products and the targets.
    return 8 * n_rows * ((2 * n_latent + 3) * n_rows + 4 * n_latent * n_samples)
