"""The covariance of rows under a kernel, and its derivative, as compiled functions of one vector of logarithms.

A kernel is a tree, which JAX takes apart in Python at each call. For some ten rows this takes longer than their
covariance, and a search has thousands of calls.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._backend.device import once_jit, sized_jit
from .._backend.flat import flat, rebuilt
from .._backend.rows import filled_up
from ..training.batches import bucket
from . import without_xla

# Tables are padded to these sizes to share programs. They are closer than those of training: cost grows as the square.
_SIZES = 64, 128, 192, 256, 320, 400, 480, 640, 768, 896, 1024, 1536, 2048, 2560
# With more rows than the first number, so many as the second are pulled back at a time, so that their matrices stay in
# the cache; the larger sizes above are multiples of it.
_ONE_BLOCK, _BLOCK_ROWS = 480, 128
# Of covariances between two tables: one program serves tables of all sizes.
_ROWS_OF_BOTH = 256
# Structures of kernels whose programs are kept.
_STRUCTURES = 256


class Programs(NamedTuple):
    """Compiled functions of kernels of one structure.

    Attributes
    ----------
    of_rows : callable
        Takes the vector of a kernel's logarithms and X; returns the covariance of X with itself.
    pulled_back : callable
        Takes also the gradients in its diagonal and in the rest; returns the gradient in the vector.
    """

    of_rows: object
    pulled_back: object


def programs_of(log_kernel):
    """The `Programs` of a kernel of logarithms."""
    leaves, structure = jax.tree.flatten(log_kernel)
    return _programs(structure, tuple(map(np.shape, leaves)))


@functools.lru_cache(_STRUCTURES)
def _programs(structure, shapes):
    like = jax.tree.unflatten(structure, list(map(np.zeros, shapes)))

    def kernel_of(x):
        return jax.tree.map(jnp.exp, rebuilt(x, like))

    def of_rows(x, X):
        kernel = kernel_of(x)
        # The diagonal is set, since rounding spoils distances of zero.
        return jnp.fill_diagonal(kernel(X, X), kernel.diag(X), inplace=False)

    def pulled_back(x, X, diagonal, rest):
        def add(total, block):
            rows, cotangent = block
            (found,) = jax.vjp(lambda x: kernel_of(x)(rows, X), x)[1](cotangent)
            return total + found, None

        (total,) = jax.vjp(lambda x: kernel_of(x).diag(X), x)[1](diagonal)
        if len(X) <= _ONE_BLOCK:
            return add(total, (X, rest))[0]
        return jax.lax.scan(add, total, [each.reshape(-1, _BLOCK_ROWS, each.shape[1]) for each in (X, rest)])[0]

    return Programs(sized_jit(of_rows), sized_jit(pulled_back))


class Compiled:
    """As `without_xla.Covariance`, by the `Programs` of a kernel."""

    def __init__(self, programs, X):
        self._programs, self._X = programs, jax.device_put(X)

    def of_rows(self, x):
        """The matrix (N, N)."""
        self._x = x
        return self._programs.of_rows(x, self._X)

    def pulled_back(self, diagonal, rest):
        """The gradient in the last logarithms."""
        return self._programs.pulled_back(self._x, self._X, diagonal, rest)


def covariance_of(log_kernel, X):
    """The covariance of rows with themselves for kernels of this structure: in NumPy if they are few."""
    terms = without_xla.terms_of(log_kernel) if len(X) <= without_xla.MOST_ROWS else None
    return without_xla.Covariance(terms, X) if terms else Compiled(programs_of(log_kernel), X)


class Space:
    """Memory for the gradient in a covariance, used again: fresh pages would take time at each evaluation."""

    def __init__(self):
        self._of_size = {}

    def of(self, size, n):
        """A square of this size, zero but above the diagonal of its first ``n`` rows and columns."""
        found = self._of_size.get(size)
        if found is None:
            found = self._of_size[size] = np.zeros((size, size))
        # Where another table of this size may have had rows.
        found[n:], found[:n, n:] = 0.0, 0.0
        return found


@functools.lru_cache(4)
def above_diagonal(n):
    """Where a matrix (n, n) is above its diagonal."""
    return np.tri(n, k=-1, dtype=bool).T


def padded(X):
    """X, filled up with rows of zeros to a size that similar tables share."""
    size = next((size for size in _SIZES if len(X) <= size), bucket(len(X)))
    return filled_up(X, size, value=0.0)


def covariance_of_rows(log_kernel, X):
    """The covariance of rows with themselves under a kernel of logarithms: (n, n)."""
    # NumPy cuts off the padding: JAX would compile a program for each number of rows.
    return np.asarray(programs_of(log_kernel).of_rows(flat(log_kernel), padded(X)))[: len(X), : len(X)].copy()


def between(log_kernel, X, Z):
    """The covariances (n, m) of the rows of two tables under a kernel of logarithms, and the variances (m,) at Z."""
    parts = [[_between(log_kernel, x, z) for x in _blocks(X)] for z in _blocks(Z)]
    covariances = np.hstack([np.vstack([K for K, _ in column]) for column in parts])
    return covariances[: len(X), : len(Z)], np.concatenate([column[0][1] for column in parts])[: len(Z)]


@once_jit
def _between(log_kernel, x, z):
    """`between` of two blocks."""
    kernel = jax.tree.map(jnp.exp, log_kernel)
    return kernel(x, z), kernel.diag(z)


def _blocks(X):
    for start in range(0, len(X), _ROWS_OF_BOTH):
        yield filled_up(X[start : start + _ROWS_OF_BOTH], _ROWS_OF_BOTH)
