"""What prediction needs, made once after training, and prediction.

`Posterior` holds NumPy arrays only. Few rows are predicted by NumPy. More are
predicted in chunks of one size, the last one padded, so that one compiled program
serves every table, memory is bounded and a row's prediction does not depend on
its neighbours.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._backend.device import quick_jit
from ..variational import bases, objectives

# Up to so many rows NumPy is faster than the call of a compiled program on a padded chunk.
FEW_ROWS = 8
CHUNK_ROWS = 512


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


def _covariances(kernels, X1, X2, xp=jnp):
    """Prior covariance (1 or K, B1, B2)."""
    return xp.stack([kernel(X1, X2) for kernel in kernels])


def _product(weights, covariances):
    """Weights (K, M) times covariances (1 or K, M, B): (K, B)."""
    if len(covariances) == 1:
        return weights @ covariances[0]
    return (weights[:, None] @ covariances)[:, 0]


def _projections(posterior, Kzx):
    """whiten k_zx (1 or K, M, B), and spread^T of it (K, M, B)."""
    A = posterior.whiten @ Kzx
    return A, posterior.spread.swapaxes(-1, -2) @ A


def latent_moments(kernels, posterior, X, with_variance=True, xp=jnp):
    """Latent mean and variance (K, B); None for the variance where it is not asked for.

    The algebra is that of JAX, with twins for ``kernels``, or of NumPy (``xp``), with
    scikit-learn's own.
    """
    Kzx = _covariances(kernels, posterior.Z, X, xp)
    mean = posterior.offset + _product(posterior.alpha, Kzx)
    # A kernel of a user need not accept a table without rows.
    if len(posterior.Z_mean):
        mean = mean + _product(posterior.a, _covariances(kernels, posterior.Z_mean, X, xp))
    if not with_variance:
        return mean, None
    A, B = _projections(posterior, Kzx)
    prior = xp.stack([kernel.diag(X) for kernel in kernels])
    var = xp.maximum(prior - (A * A).sum(1), 0.0) + (B * B).sum(1)
    return mean, xp.maximum(var, xp.finfo(var.dtype).tiny ** 0.5)


# -- what is predicted: functions of the likelihood and the latent moments (K, B) ---------


def latent_mean(likelihood, mean, var):
    """Latent mean (K, B)."""
    return mean


def target_mean(likelihood, mean, var):
    """E[y] (T, B)."""
    return likelihood.predictive_mean(mean, var)


def target_moments(likelihood, mean, var):
    """Mean and variance of y (T, B)."""
    return likelihood.predictive_moments(mean, var)


def class_probabilities(likelihood, mean, var):
    """p(y = c) (C, B)."""
    return likelihood.class_probabilities(mean, var)


def log_class_probabilities(likelihood, mean, var):
    """log p(y = c) (C, B)."""
    return likelihood.log_class_probabilities(mean, var)


def log_density(likelihood, mean, var, y):
    """log p(y) (B,), of targets y (T, B)."""
    return likelihood.log_predictive_density(mean, var, y)


def _needs_variance(function, likelihood):
    return function is not latent_mean and (function is not target_mean or likelihood.mean_needs_variance)


def _of_moments(function, likelihood, moments, *targets):
    return function(likelihood, *moments, *targets)


def _of_rows(function, kernels, likelihood, posterior, X, *targets):
    moments = latent_moments(kernels, posterior, X, _needs_variance(function, likelihood))
    return _of_moments(function, likelihood, moments, *targets)


# -- few rows, and many -------------------------------------------------------------------

_compiled_of_moments = quick_jit(_of_moments, static_argnames="function")
# Compiled in a tenth of a second more than `quick_jit` takes, and up to three times as fast.
_compiled_of_rows = jax.jit(_of_rows, static_argnames="function")


def _filled_up(table, size, axis=-1):
    """The table with its last row repeated, so that there are ``size`` of them."""
    missing = size - table.shape[axis]
    if not missing:
        return table
    widths = [(0, 0)] * table.ndim
    widths[axis] = (0, missing)
    return np.pad(table, widths, mode="edge")


def _chunks(X, *targets):
    """Slices of at most `CHUNK_ROWS` rows, with what stands there, filled up."""
    for start in range(0, len(X), CHUNK_ROWS):
        rows = slice(start, min(start + CHUNK_ROWS, len(X)))
        yield rows, [_filled_up(X[rows], CHUNK_ROWS, axis=0), *(_filled_up(y[:, rows], CHUNK_ROWS) for y in targets)]


def _one_behind(items):
    """The items of an iterator, each when the next one has been drawn.

    A program that was called computes while the host prepares the call after it,
    and the values of no more than two chunks wait to be fetched.
    """
    previous = next(items)
    for item in items:
        yield previous
        previous = item
    yield previous


def at_few_rows(function, kernels, likelihood, posterior, X, *targets):
    """Evaluate one of the functions above at every row of a small ``X`` (N, D).

    NumPy takes microseconds where a compiled program takes milliseconds to be fed
    with the model. What the likelihood adds is compiled, for one row and for
    `FEW_ROWS`.

    Parameters
    ----------
    function : callable
    kernels : tuple of sklearn.gaussian_process.kernels.Kernel
    likelihood : Likelihood
    posterior : Posterior
    X : ndarray of shape (N, D)
        At most `FEW_ROWS` rows.
    *targets : ndarray of shape (T, N)
        For `log_density`.

    Returns
    -------
    values : ndarray, or tuple of ndarrays, of shape (..., N)
    """
    # As in a compiled program, what overflows shows in the values alone.
    with np.errstate(all="ignore"):
        mean, var = latent_moments(kernels, posterior, X, _needs_variance(function, likelihood), np)
    if var is None:
        return np.asarray(function(likelihood, mean, var))
    size = 1 if len(X) == 1 else FEW_ROWS
    mean, var, *targets = (_filled_up(each, size) for each in (mean, var, *targets))
    values = _compiled_of_moments(function, likelihood, (mean, var), *targets)
    return jax.tree.map(lambda value: np.asarray(value)[..., : len(X)], values)


def in_chunks(function, kernels, likelihood, posterior, X, *targets):
    """Evaluate one of the functions above at every row of ``X`` (N, D).

    Parameters
    ----------
    function : callable
    kernels : tuple of Kernel
    likelihood : Likelihood
    posterior : Posterior
    X : ndarray of shape (N, D)
    *targets : ndarray of shape (T, N)
        For `log_density`.

    Returns
    -------
    values : ndarray, or tuple of ndarrays, of shape (..., N)
    """
    model = jax.device_put((kernels, likelihood, posterior))
    pieces = ((rows, _compiled_of_rows(function, *model, *chunk)) for rows, chunk in _chunks(X, *targets))
    values = None
    for rows, piece in _one_behind(pieces):
        if values is None:
            values = jax.tree.map(lambda part: np.empty((*part.shape[:-1], len(X))), piece)
        for whole, part in zip(jax.tree.leaves(values), jax.tree.leaves(piece), strict=True):
            whole[..., rows] = np.asarray(part)[..., : rows.stop - rows.start]
    return values


@quick_jit
def _covariance_block(kernels, posterior, X1, X2):
    A1, B1 = _projections(posterior, _covariances(kernels, posterior.Z, X1))
    A2, B2 = _projections(posterior, _covariances(kernels, posterior.Z, X2))
    return _covariances(kernels, X1, X2) - A1.swapaxes(-1, -2) @ A2 + B1.swapaxes(-1, -2) @ B2


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
