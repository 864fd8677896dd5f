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
from ._runtime import quick_jit

CHUNK_ROWS = 256


class Posterior(NamedTuple):
    """q(f) in the form that is cheapest to evaluate.

    Attributes
    ----------
    Z : ndarray of shape (M, D)
    Z_mean : ndarray of shape (G, D)
    alpha : ndarray of shape (K, M)
        mean(x) = offset + k_xz alpha + k_xg a.
    a : ndarray of shape (K, G)
    whiten : ndarray of shape (1 or K, M, M)
        Of a basis with a whitened q(v), L^-1 of the jittered Kzz.
    spread : ndarray of shape (K, M, M)
        A square root of S: var(x) = k_xx - |whiten k_zx|^2 + |spread^T whiten k_zx|^2.
    offset : ndarray of shape (K, 1)
        The prior mean of the latent functions.

    Columns of masked points are zero.
    """

    Z: np.ndarray
    Z_mean: np.ndarray
    alpha: np.ndarray
    a: np.ndarray
    whiten: np.ndarray
    spread: np.ndarray
    offset: np.ndarray


@functools.partial(quick_jit, static_argnames="basis")
def condition(basis, parameters, q, problem):
    """Return the `Posterior` of trained parameters, and the absolute jitter it needed."""
    kernels = objectives.exponential(parameters.log_kernels)
    points, masks, weights = parameters.points, problem.masks, parameters.weights
    alpha, whiten, spread, used = bases.prediction_factors(basis, kernels, points, masks, weights, q, problem.jitter)
    return Posterior(*points, alpha, weights.a * masks.Z_mean, whiten, spread, problem.offset), used


def _covariances(kernels, X1, X2):
    """Prior covariance (1 or K, B1, B2)."""
    return jnp.stack([kernel(X1, X2) for kernel in kernels])


def _product(weights, covariances):
    """Weights (K, M) times covariances (1 or K, M, B): (K, B)."""
    if len(covariances) == 1:
        return weights @ covariances[0]
    return jnp.einsum("km,kmb->kb", weights, covariances)


def _mean(posterior, Kzx, Kgx):
    return posterior.offset + _product(posterior.alpha, Kzx) + _product(posterior.a, Kgx)


def _projections(posterior, Kzx):
    """whiten k_zx (1 or K, M, B), and spread^T of it (K, M, B)."""
    A = posterior.whiten @ Kzx
    return A, jnp.swapaxes(posterior.spread, -1, -2) @ A


def latent_mean(kernels, likelihood, posterior, X):
    """Latent mean (K, B)."""
    return _mean(posterior, _covariances(kernels, posterior.Z, X), _covariances(kernels, posterior.Z_mean, X))


def latent_moments(kernels, likelihood, posterior, X):
    """Latent mean and variance (K, B)."""
    Kzx, Kgx = (_covariances(kernels, points, X) for points in (posterior.Z, posterior.Z_mean))
    A, B = _projections(posterior, Kzx)
    prior = jnp.stack([kernel.diag(X) for kernel in kernels])
    var = prior - (A * A).sum(1) + (B * B).sum(1)
    return _mean(posterior, Kzx, Kgx), jnp.maximum(var, jnp.finfo(var.dtype).tiny ** 0.5)


def target_mean(kernels, likelihood, posterior, X):
    """E[y] (T, B); the latent variance is left out where the likelihood does not need it."""
    if likelihood.mean_needs_variance:
        return likelihood.predictive_mean(*latent_moments(kernels, likelihood, posterior, X))
    return likelihood.predictive_mean(latent_mean(kernels, likelihood, posterior, X), None)


def target_moments(kernels, likelihood, posterior, X):
    """Mean and variance of y (T, B)."""
    return likelihood.predictive_moments(*latent_moments(kernels, likelihood, posterior, X))


def class_probabilities(kernels, likelihood, posterior, X):
    """p(y = c) (C, B)."""
    return likelihood.class_probabilities(*latent_moments(kernels, likelihood, posterior, X))


def log_class_probabilities(kernels, likelihood, posterior, X):
    """log p(y = c) (C, B)."""
    return likelihood.log_class_probabilities(*latent_moments(kernels, likelihood, posterior, X))


def log_density(kernels, likelihood, posterior, X, y):
    """log p(y) (B,), of targets y (T, B)."""
    return likelihood.log_predictive_density(*latent_moments(kernels, likelihood, posterior, X), y)


@functools.partial(quick_jit, static_argnames="function")
def _evaluate(function, *arguments):
    return function(*arguments)


def in_chunks(function, kernels, likelihood, posterior, X, y=None):
    """Evaluate one of the functions above at every row of ``X`` (N, D).

    Parameters
    ----------
    function : callable
    kernels : tuple of Kernel
    likelihood : Likelihood
    posterior : Posterior
    X : ndarray of shape (N, D)
    y : ndarray of shape (T, N), optional
        Targets, for `log_density`.

    Returns
    -------
    values : ndarray, or tuple of ndarrays, of shape (..., N)
    """
    model = jax.device_put((kernels, likelihood, posterior))
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


@quick_jit
def _covariance_block(kernels, posterior, X1, X2):
    A1, B1 = _projections(posterior, _covariances(kernels, posterior.Z, X1))
    A2, B2 = _projections(posterior, _covariances(kernels, posterior.Z, X2))
    return _covariances(kernels, X1, X2) - jnp.swapaxes(A1, -1, -2) @ A2 + jnp.swapaxes(B1, -1, -2) @ B2


def covariance(kernels, posterior, X):
    """Latent posterior covariance at the rows of ``X`` (N, D): (K, N, N), block by block."""
    kernels, posterior = jax.device_put((kernels, posterior))
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
