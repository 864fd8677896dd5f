"""Moments of rows given their neighbours: many small processes, each in closed form.

With K the covariance of a row's neighbours, S their noise, and k their covariances with the row,

    mean = k^T (K + S)^-1 y,    variance = k_xx - k^T (K + S)^-1 k

For the factor L of K + S both are products of L^-1 k and L^-1 y.

With 200 neighbours in 8 columns a row took .9 ms on one core beside another program, of which its covariances by XLA
were half, and 1.7 ms with factors by NumPy. XLA's own batched factorisations wait for one another. Factors in single
precision, `numpy.linalg.solve` and covariances by NumPy are slower, too. On other devices, and on several, XLA does all
of it.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from .._backend import in_place, placement, threads
from .._backend.device import n_cores, wide_jit
from .._backend.linalg import factor_solve
from .._backend.rows import filled_up
from ..variational.projection import SMALLEST_VARIANCE

# Most covariances, and most rows, in a block.
_COVARIANCES, _MOST_ROWS = 1_000_000, 256
# The same of a block by XLA, whose rows are a power of two: 512 MiB of covariances, and fewest rows.
_COVARIANCES_BY_XLA, _FEWEST_ROWS = 1 << 26, 64
# Most successive blocks of a thread, whose covariances take the same memory: fresh pages take time.
_BLOCKS = 4
# The noise variance of an absent neighbour.
ABSENT = 1e100


def moments(kernel, x, X, near, y, noise):
    """Means and variances of a latent function at rows, given targets at their neighbours.

    Parameters
    ----------
    kernel : Kernel
        A JAX kernel.
    x : ndarray of shape (B, D)
    X : ndarray of shape (N, D)
    near : ndarray of shape (B, m)
        Positions of the neighbours in X; -1 where there is none.
    y : ndarray of shape (T, N)
    noise : ndarray of shape (T, N) or (1, N)
        Variances.

    Returns
    -------
    mean : ndarray of shape (T, B)
    variance : ndarray of shape (T, B) or (1, B)
        Without the noise.
    """
    X, y, noise = sent(X, y, noise)
    if placement.on_one_cpu():
        return _by_lapack(kernel, x, X, near, y, noise)
    mean, variance = _by_xla(kernel, x, X, near, y, noise)
    # Covariances that need jitter are few.
    failed = np.flatnonzero(~np.isfinite(variance).all(0))
    if len(failed):
        others = map(np.asarray, (y, noise))
        mean[:, failed], variance[:, failed] = _by_lapack(kernel, x[failed], np.asarray(X), near[failed], *others)
    return mean, variance


def sent(X, y, noise):
    """The last three of these on the devices, where XLA computes; they stay there for several calls of `moments`."""
    if placement.on_one_cpu() or isinstance(X, jax.Array):
        return X, y, noise
    # Filled up by rows that stand for absent neighbours, so that similar tables share programs.
    size = 1 << len(X).bit_length()
    filled = filled_up(X, size), filled_up(y, size, -1, 0.0), filled_up(noise, size, -1, ABSENT)
    return placement.current().replicated(filled, now=True)


def _by_xla(kernel, x, X, near, y, noise):
    """The `moments` on all devices of the computation; a variance is not a number where there is no factor."""
    where, n_rows = placement.current(), len(x)
    most = max(_COVARIANCES_BY_XLA // (near.shape[1] + 1) ** 2, 1)
    size = where.rounded_up(min(1 << int(most).bit_length() - 1, max(1 << (n_rows - 1).bit_length(), _FEWEST_ROWS)))
    mean, variance = np.empty((len(y), n_rows)), np.empty((len(noise), n_rows))
    for start in range(0, n_rows, size):
        rows = slice(start, min(start + size, n_rows))
        block = where.rows((filled_up(x[rows], size), filled_up(near[rows].astype(np.int32), size)), (-2, -2))
        found = _of_block_by_xla(where.mesh, kernel, X, y, noise, *block)
        mean[:, rows], variance[:, rows] = (np.asarray(each)[:, : rows.stop - start] for each in found)
    return mean, variance


@functools.partial(wide_jit, static_argnums=0)
def _of_block_by_xla(mesh, *arguments):
    axes = (None, None, None, None, 0, 0), (1, 1)
    return placement.on_each(mesh, _moments_of_block, *axes)(*arguments)


def _moments_of_block(kernel, X, y, noise, x, near):
    among, diagonal = _of_rows(kernel, jnp.concatenate([x[:, None], X[near]], axis=1))
    places = jnp.arange(near.shape[1])
    covariance, prior, of_near = among[:, 1:, 1:].at[:, places, places].set(diagonal[:, 1:]), diagonal[:, 0], y[:, near]

    def given(noise, y):
        system = covariance.at[:, places, places].add(noise[near])
        half = factor_solve(system, jnp.concatenate([among[:, :1, 1:], jnp.moveaxis(y, 0, 1)], axis=1).swapaxes(1, 2))
        explained = jnp.einsum("bmt,bm->tb", half, half[..., 0])
        return explained[1:], jnp.maximum(prior - explained[0], SMALLEST_VARIANCE)

    # Targets with the same noise share a factor.
    parts = [of_near] if len(noise) == 1 else of_near[:, None]
    means, variances = zip(*map(given, noise, parts), strict=True)
    return jnp.concatenate(means), jnp.stack(variances)


def _by_lapack(kernel, x, X, near, y, noise):
    """The `moments` in threads of a CPU."""
    mean, variance = np.empty((len(y), len(x))), np.empty((len(noise), len(x)))

    def of_blocks(some):
        space = np.empty((_block_rows(near.shape[1]), 1 + near.shape[1], 1 + near.shape[1]))
        for rows in some:
            of_block(rows, covariances(kernel, x[rows], X, near[rows], space))

    def of_block(rows, covariance):
        of_near, of_noise = of_neighbours(y, near[rows], 0.0), of_neighbours(noise, near[rows], ABSENT)
        for j, each in enumerate(of_noise):
            # Targets with the same noise share a factor.
            targets = slice(None) if len(noise) == 1 else slice(j, j + 1)
            own = covariance if j == len(noise) - 1 else covariance.copy()
            mean[targets, rows], variance[j, rows] = _of_block(own, of_near[targets], each)

    threads.for_each(of_blocks, _blocks(*near.shape))
    return mean, variance


def _blocks(n_rows, n_neighbours):
    """Lists of slices of rows, each so short that covariances stay in the cache."""
    size = _block_rows(n_neighbours)
    slices = [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]
    n_each = max(min(_BLOCKS, -(-len(slices) // n_cores())), 1) if len(slices) > 1 else 1
    return [slices[start : start + n_each] for start in range(0, len(slices), n_each)]


def _block_rows(n_neighbours):
    """Rows in a block: a power of two."""
    most = np.clip(_COVARIANCES // (n_neighbours + 1) ** 2, 1, _MOST_ROWS)
    return 1 << int(most).bit_length() - 1


def of_neighbours(values, near, absent):
    """Values (T, N) of neighbours (B, m): (T, B, m)."""
    return np.where(near >= 0, values[:, near], absent)


def covariances(kernel, x, X, near, space):
    """Prior covariances of rows ``x`` (B, D), each with its neighbours after it: (B, 1 + m, 1 + m).

    They are in the memory of ``space``, for a block of rows.
    """
    # The row comes first: kernels measure distances from the first row, so that small ones round least.
    together = np.concatenate([x[:, None], X[near]], axis=1)
    # A row, an eighth of a block or all of it, so that there are few compiled programs.
    size = _block_rows(near.shape[1])
    n_rows = next((each for each in (1, size // 8, size) if each >= len(x)), len(x))
    padded = filled_up(together, n_rows)
    among, diagonal = (np.asarray(each)[: len(x)] for each in _covariances(kernel, padded))
    found, places = space[: len(x)], np.arange(among.shape[1])
    found[:] = among
    # The diagonal is set, since rounding spoils distances of zero.
    found[:, places, places] = diagonal
    return found


def _of_rows(kernel, X):
    return jax.vmap(lambda each: (kernel(each, each), kernel.diag(each)))(X)


_covariances = wide_jit(_of_rows)


def _of_block(covariance, y, noise):
    """Means (T, B) and variances (B,), from covariances (B, 1 + m, 1 + m), targets (T, B, m) and noise (B, m).

    The covariances are overwritten.
    """
    system, places = covariance[:, 1:, 1:], np.arange(noise.shape[1])
    system[:, places, places] += noise
    _factorise(system)
    sides = np.empty((len(noise), 1 + len(y), len(places)))
    sides[:, 0], sides[:, 1:] = covariance[:, 0, 1:], np.moveaxis(y, 0, 1)
    in_place.lower_solve_over(system, sides)
    of_row, of_targets = sides[:, 0], sides[:, 1:]
    means = np.einsum("bm,btm->tb", of_row, of_targets)
    return means, np.maximum(covariance[:, 0, 0] - np.einsum("bm,bm->b", of_row, of_row), SMALLEST_VARIANCE)


def _factorise(system):
    """Replace matrices (B, m, m) by their factors, as `in_place.factorise` does, if needed with jitter."""
    diagonals = np.einsum("bmm->bm", system).copy()
    for i in np.flatnonzero(~in_place.factorise(system)):
        _factorise_with_jitter(system[i : i + 1], diagonals[i])


def _factorise_with_jitter(system, diagonal):
    """The same for one matrix (1, m, m), from its lower triangle and a diagonal (m,); not a number if all fails."""
    rounding = np.finfo(float).eps * diagonal[diagonal < ABSENT].sum()
    for jitter in in_place.growing(rounding):
        lower = np.tril(system[0], -1)
        system[0] = lower + lower.T
        np.fill_diagonal(system[0], diagonal + jitter)
        if in_place.factorise(system)[0]:
            return
    system[:] = np.nan
