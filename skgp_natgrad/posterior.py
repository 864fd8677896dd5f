"""What prediction needs, made once after training, and prediction in fixed chunks.

`Posterior` holds NumPy arrays only. Rows are predicted in chunks of one size,
the last one padded, so that one compiled program serves every table and a row's
prediction does not depend on its neighbours.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import bases, objectives
from ._linalg import triangular_inverse

CHUNK_ROWS = 256


class Posterior(NamedTuple):
    """q(f) in the form that is cheapest to evaluate.

    Attributes
    ----------
    Z : ndarray of shape (M, D)
    Z_mean : ndarray of shape (G, D)
    weights : ndarray of shape (K, M)
        mean(x) = k_xz weights + k_xg a.
    a : ndarray of shape (K, G)
    whiten : ndarray of shape (M, M)
        L^-1 of the jittered Kzz.
    spread : ndarray of shape (K, M, M)
        A square root of S: var(x) = k_xx - |L^-1 k_zx|^2 + |spread^T L^-1 k_zx|^2.

    Columns of masked points are zero.
    """

    Z: np.ndarray
    Z_mean: np.ndarray
    weights: np.ndarray
    a: np.ndarray
    whiten: np.ndarray
    spread: np.ndarray


@jax.jit
def condition(parameters, q, masks, jitter):
    """Return the `Posterior` of trained parameters, and the absolute jitter it needed."""
    kernel = objectives.exponential(parameters.log_kernel)
    Z, Z_mean = parameters.points
    whiten, used = bases.factorise(kernel, Z, masks.Z, jitter)
    a = parameters.a * masks.Z_mean
    at_Z = (a @ kernel(Z_mean, Z)) * masks.Z
    weights = (q.mean - at_Z @ whiten.T) @ whiten * masks.Z
    # From the precision, which every step has kept positive definite.
    spread = jnp.swapaxes(triangular_inverse(jnp.linalg.cholesky(q.precision)), -1, -2)
    return Posterior(Z, Z_mean, weights, a, whiten * masks.Z, spread), used


def _mean(kernel, posterior, X):
    return posterior.weights @ kernel(posterior.Z, X) + posterior.a @ kernel(posterior.Z_mean, X)


def _projections(kernel, posterior, X):
    """L^-1 k_zx (M, B), and spread^T of it (K, M, B)."""
    A = posterior.whiten @ kernel(posterior.Z, X)
    return A, jnp.swapaxes(posterior.spread, -1, -2) @ A


def latent_mean(kernel, likelihood, posterior, X):
    """Latent mean (K, B)."""
    return _mean(kernel, posterior, X)


def latent_moments(kernel, likelihood, posterior, X):
    """Latent mean and variance (K, B)."""
    A, B = _projections(kernel, posterior, X)
    var = kernel.diag(X) - (A * A).sum(0) + (B * B).sum(1)
    return _mean(kernel, posterior, X), jnp.maximum(var, jnp.finfo(var.dtype).tiny ** 0.5)


def target_mean(kernel, likelihood, posterior, X):
    """E[y] (T, B); the latent variance is left out where the likelihood does not need it."""
    if likelihood.mean_needs_variance:
        return likelihood.predictive_mean(*latent_moments(kernel, likelihood, posterior, X))
    return likelihood.predictive_mean(_mean(kernel, posterior, X), None)


def target_moments(kernel, likelihood, posterior, X):
    """Mean and variance of y (T, B)."""
    return likelihood.predictive_moments(*latent_moments(kernel, likelihood, posterior, X))


def class_probabilities(kernel, likelihood, posterior, X):
    """p(y = c) (C, B)."""
    return likelihood.class_probabilities(*latent_moments(kernel, likelihood, posterior, X))


def log_class_probabilities(kernel, likelihood, posterior, X):
    """log p(y = c) (C, B)."""
    return likelihood.log_class_probabilities(*latent_moments(kernel, likelihood, posterior, X))


def log_density(kernel, likelihood, posterior, X, y):
    """log p(y) (B,), of targets y (T, B)."""
    return likelihood.log_predictive_density(*latent_moments(kernel, likelihood, posterior, X), y)


@functools.partial(jax.jit, static_argnames="function")
def _evaluate(function, *arguments):
    return function(*arguments)


def in_chunks(function, kernel, likelihood, posterior, X, y=None):
    """Evaluate one of the functions above at every row of ``X`` (N, D).

    Parameters
    ----------
    function : callable
    kernel, likelihood : pytrees
    posterior : Posterior
    X : ndarray of shape (N, D)
    y : ndarray of shape (T, N), optional
        Targets, for `log_density`.

    Returns
    -------
    values : ndarray, or tuple of ndarrays, of shape (..., N)
    """
    model = jax.device_put((kernel, likelihood, posterior))
    pieces = []
    for start in range(0, len(X), CHUNK_ROWS):
        rows = X[start : start + CHUNK_ROWS]
        padding = CHUNK_ROWS - len(rows)
        arguments = [np.pad(rows, ((0, padding), (0, 0)), mode="edge")]
        if y is not None:
            arguments.append(np.pad(y[:, start : start + CHUNK_ROWS], ((0, 0), (0, padding)), mode="edge"))
        pieces.append(_evaluate(function, *model, *arguments))
    pieces = [jax.tree.map(np.asarray, piece) for piece in pieces]
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis=-1)[..., : len(X)], *pieces)


@jax.jit
def _covariance_block(kernel, posterior, X1, X2):
    A1, B1 = _projections(kernel, posterior, X1)
    A2, B2 = _projections(kernel, posterior, X2)
    return kernel(X1, X2) - A1.T @ A2 + jnp.einsum("kmi,kmj->kij", B1, B2)


def covariance(kernel, posterior, X):
    """Latent posterior covariance at the rows of ``X`` (N, D): (K, N, N), block by block."""
    kernel, posterior = jax.device_put((kernel, posterior))
    n_blocks = -(-len(X) // CHUNK_ROWS)
    padded = np.pad(X, ((0, n_blocks * CHUNK_ROWS - len(X)), (0, 0)), mode="edge").reshape(n_blocks, CHUNK_ROWS, -1)
    out = np.empty((posterior.weights.shape[0], n_blocks, CHUNK_ROWS, n_blocks, CHUNK_ROWS))
    for i in range(n_blocks):
        for j in range(i + 1):
            block = np.asarray(_covariance_block(kernel, posterior, padded[i], padded[j]))
            out[:, i, :, j] = block
            out[:, j, :, i] = np.swapaxes(block, -1, -2)
    size = n_blocks * CHUNK_ROWS
    out = out.reshape(-1, size, size)[:, : len(X), : len(X)]
    return 0.5 * (out + np.swapaxes(out, -1, -2))
