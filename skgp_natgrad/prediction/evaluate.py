"""Predictions at few rows and at many.

NumPy predicts few rows. More rows are predicted in chunks of one size, the last one
padded: one compiled program serves every table, memory is bounded, and a row's
prediction does not depend on its neighbours.
"""

from __future__ import annotations

import collections

import jax
import numpy as np

from .._backend import device, in_place, placement, threads
from .._backend.device import quick_jit, wide_jit
from .._backend.rows import filled_up
from ..variational.projection import SMALLEST_VARIANCE
from . import posterior as _posterior

# Up to this many rows NumPy is faster than a call of a compiled program on a padded chunk.
FEW_ROWS = 8
# Rows of a chunk, and covariances of its rows and the points, at most: with more they leave the cache, and a sum of
# three kernels at 3000 points takes three times as long.
CHUNK_ROWS, _COVARIANCES = 512, 2**20
# From this many points on BLAS takes less time than XLA's product, at 3000 half of it.
_BY_BLAS = 1000
# On a GPU a call takes as long for many rows as for few, if the model has at most this many points. Each program that
# was called, and whose values wait to be fetched, keeps its memory there.
_WIDE_CHUNK_ROWS, _FEW_POINTS, _FEW_IN_FLIGHT = 4096, 5000, 2
# Up to this many chunks, each call sends the model: `jax.device_put` takes longer than a call with NumPy arrays.
_FEW_CHUNKS = 2
# Chunks whose values wait to be fetched, at most.
_MOST_IN_FLIGHT = 8


# -- predicted quantities: functions of the likelihood and the latent moments (K, B) ------


def latent_mean(likelihood, mean, var):
    """Latent mean (K, B)."""
    return mean


def latent_moments(likelihood, mean, var):
    """Latent mean and variance (K, B)."""
    return mean, var


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


def needs_variance(function, likelihood):
    """Whether a quantity needs more than the latent mean, which NumPy alone computes at few rows."""
    return function is not latent_mean and (function is not target_mean or likelihood.mean_needs_variance)


def _is_closed(function, likelihood):
    """Whether a quantity is a sum of arrays, which takes NumPy less time than the call of a program."""
    of_latents = function in (latent_mean, latent_moments)
    return of_latents or (function in (target_mean, target_moments) and likelihood.conjugate)


def _of_moments(function, likelihood, moments, *targets):
    return function(likelihood, *moments, *targets)


def _at_rows(function, likelihood, moments, targets, known=None):
    return function(likelihood.given(known), *moments, *targets)


def _parts_of_moments(kernels, posterior, X):
    return *_posterior.mean_and_covariances(kernels, posterior, X), _posterior.prior_variances(kernels, X)


def _of_rows(function, kernels, likelihood, posterior, X, *targets):
    moments = _posterior.latent_moments(kernels, posterior, X, needs_variance(function, likelihood))
    return _of_moments(function, likelihood, moments, *targets)


# -- few rows, and many -------------------------------------------------------------------


_compiled_of_moments = quick_jit(_of_moments, static_argnames="function")
_compiled_at_rows = quick_jit(_at_rows, static_argnames="function")
# Compilation takes a tenth of a second more than with `quick_jit`; the program is up to three times as fast.
_compiled_of_rows = wide_jit(_of_rows, static_argnames="function")
_compiled_parts = wide_jit(_parts_of_moments)


def chunk_rows(n_points):
    """Rows of a chunk on this computation's device, for a model of so many points, whatever the length of the table."""
    if placement.on_cpu():
        most = np.clip(_COVARIANCES // max(n_points, 1), 1, CHUNK_ROWS)
        return 1 << int(most).bit_length() - 1
    return CHUNK_ROWS if n_points > _FEW_POINTS else _WIDE_CHUNK_ROWS


def _chunks(n_rows, X, *targets):
    """Slices of at most ``n_rows`` rows a device, and the tables' rows there, filled up, on the devices."""
    where = placement.current()
    size = where.block_size(len(X), n_rows)
    for start in range(0, len(X), size):
        rows = slice(start, min(start + size, len(X)))
        chunk = [filled_up(X[rows], size), *(filled_up(y[:, rows], size, -1) for y in targets)]
        yield rows, where.rows(chunk, [-2] + [-1] * len(targets))


def _in_flight(items, n_items):
    """Yield each item of an iterator after the next ``n_items`` have been drawn, or all that there are.

    Called programs compute, several at a time, while the host fetches the values of an earlier one.
    """
    waiting = collections.deque()
    for item in items:
        waiting.append(item)
        if len(waiting) > n_items:
            yield waiting.popleft()
    yield from waiting


def at_few_rows(function, kernels, likelihood, posterior, X, *targets):
    """Evaluate one of the functions above at every row of a small ``X`` (N, D).

    NumPy takes microseconds, where a compiled program takes milliseconds to receive the
    model. The likelihood's part is compiled, for one row and for `FEW_ROWS`.

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
    # As in a compiled program, an overflow shows only in the values.
    with np.errstate(all="ignore"):
        mean, var = _posterior.latent_moments(kernels, posterior, X, needs_variance(function, likelihood), np)
    if var is None:
        return np.asarray(function(likelihood, mean, var))
    if _is_closed(function, likelihood):
        return function(likelihood, mean, np.array(var))
    size = 1 if len(X) == 1 else FEW_ROWS
    mean, var, *targets = (filled_up(each, size, -1) for each in (mean, var, *targets))
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
    read = posterior.read_by(needs_variance(function, likelihood))
    if read.reduction is not None and len(read.Z) >= _BY_BLAS and placement.on_one_cpu():
        return at_moments(function, likelihood, *_moments_by_blas(kernels, read, X), *targets)
    # The calls of few chunks send what they read.
    n_rows = chunk_rows(len(read.Z) + len(read.Z_mean))
    model = placement.current().replicated((kernels, likelihood, read), now=len(X) > _FEW_CHUNKS * n_rows)
    return over_chunks(lambda *chunk: _compiled_of_rows(function, *model, *chunk), X, *targets, n_rows=n_rows)


def _moments_by_blas(kernels, posterior, X):
    """Latent moments (K, N), of which BLAS makes the reduction of the variance: a thread for each core."""
    n_rows = chunk_rows(len(posterior.Z) + len(posterior.Z_mean))
    model = jax.device_put((kernels, posterior._replace(reduction=None)))
    mean, var = np.empty((len(posterior.alpha), len(X))), np.empty((len(posterior.reduction), len(X)))

    def of_chunk(start):
        rows = slice(start, min(start + n_rows, len(X)))
        of_chunk, Kzx, prior = map(np.asarray, _compiled_parts(*model, filled_up(X[rows], n_rows)))
        mean[:, rows] = of_chunk[:, : rows.stop - start]
        for k, reduction in enumerate(posterior.reduction):
            # In the place of the covariances, where nothing else reads them.
            product = Kzx[k] if len(Kzx) == len(var) else Kzx[0].copy()
            in_place.lower_product(reduction, product)
            left = prior[k % len(prior)] - np.einsum("mb,mb->b", product, product)
            var[k, rows] = np.maximum(left, SMALLEST_VARIANCE)[: rows.stop - start]

    threads.for_each(of_chunk, range(0, len(X), n_rows))
    return mean, np.broadcast_to(var, mean.shape)


def at_moments(function, likelihood, mean, var, *targets, known=None):
    """Evaluate one of the functions above at latent moments (K, N).

    Parameters
    ----------
    function : callable
    likelihood : Likelihood
    mean, var : ndarray of shape (K, N)
    *targets : ndarray of shape (T, N)
        For `log_density`.
    known : ndarray of shape (P T, N), optional
        What is known of the rows: see `likelihoods.Likelihood.given`.

    Returns
    -------
    values : ndarray, or tuple of ndarrays, of shape (..., N)
    """
    if known is None and _is_closed(function, likelihood):
        return function(likelihood, mean, var)
    likelihood, of_rows = placement.current().replicated(likelihood), () if known is None else (known,)

    def program(rows, mean, var, *rest):
        n_targets = len(rest) - len(of_rows)
        return _compiled_at_rows(function, likelihood, (mean, var), rest[:n_targets], *rest[n_targets:])

    return over_chunks(program, mean.T, mean, var, *targets, *of_rows)


def over_chunks(program, X, *targets, n_rows=CHUNK_ROWS):
    """Call a compiled program at chunks of ``n_rows`` rows of ``X`` (N, D) and of ``targets`` (T, N).

    Its values, of shape (..., chunk), are put together to shape (..., N).
    """
    pieces = ((rows, program(*chunk)) for rows, chunk in _chunks(n_rows, X, *targets))
    n_waiting = min(device.n_cores(), _MOST_IN_FLIGHT) if placement.on_cpu() else _FEW_IN_FLIGHT
    values = None
    for rows, piece in _in_flight(pieces, n_waiting):
        if values is None:
            values = jax.tree.map(lambda part: np.empty((*part.shape[:-1], len(X))), piece)
        for whole, part in zip(jax.tree.leaves(values), jax.tree.leaves(piece), strict=True):
            whole[..., rows] = np.asarray(part)[..., : rows.stop - rows.start]
    return values
