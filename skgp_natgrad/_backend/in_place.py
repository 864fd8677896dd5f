"""Matrix products and factorisations by BLAS and LAPACK, in place, for arrays in the memory of one CPU.

XLA has no symmetric product, copies a matrix before its factorisation, and writes a new matrix for every sum: with
thousands of rows it takes about twice as long. All arrays are NumPy's, stored by rows; BLAS, which reads by columns,
takes them as their transposes, so nothing is copied. For small problems this avoids compiling a program.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import blas as _blas
from scipy.linalg import lapack as _lapack

from . import placement, unlocked
from .linalg import JITTER_ATTEMPTS, JITTER_GROWTH
from .rows import filled_up
from .threads import LARGEST_OF_ONE_THREAD

# Columns of a matrix that is mirrored, at once: a square of them stays in the cache.
_TILE = 256
# Columns that a large matrix is factorised by at once.
_PANEL = 1024
# Numbers that are scaled or copied at once, and fewest columns of them: memory of so few is used again, and fresh pages
# take time.
NUMBERS_AT_ONCE, _FEWEST_COLUMNS = 2**21, 256
# Operations of sums over rows that take less time than to compile a program for them.
_FEW_OPERATIONS = 5e9


def pays(n_points, n_rows, in_threads=False):
    """Whether sums over ``n_rows`` rows of matrices of ``n_points`` rows are better made here.

    Where the arrays of this computation are on one CPU: if parts of the sums may be formed ``in_threads``, if the
    matrices are large, or if they are so small that to compile a program would take longer.
    """
    worth_it = in_threads or n_points > LARGEST_OF_ONE_THREAD or n_rows * n_points**2 <= _FEW_OPERATIONS
    return worth_it and placement.on_one_cpu()


def lower_solve(L, B):
    """Return L^-1 B, for a lower triangular ``L`` (M, M).

    ``B`` (M, N), of doubles in rows, holds the result, even where it is marked as not writeable.
    """
    unlocked.solve(np.ascontiguousarray(L), B)
    return B


def upper_solve(L, B):
    """Return L^-T B, for a lower triangular ``L`` (M, M); ``B`` (M, N) as in `lower_solve`."""
    unlocked.solve(np.ascontiguousarray(L), B, transposed=True)
    return B


def lower_product(L, B):
    """Return L B, for a lower triangular ``L`` (M, M); ``B`` (M, N) as in `lower_solve`."""
    unlocked.multiply(np.ascontiguousarray(L), B)
    return B


def squared_lengths(L, B):
    """The sums of squares (N,) of the columns of L B, for a lower triangular ``L`` (M, M) and ``B`` (M, N)."""
    found = np.empty(B.shape[1])
    for columns in _column_blocks(B):
        product = lower_product(L, B[:, columns].copy())
        found[columns] = np.einsum("mb,mb->b", product, product)
    return found


def add_gram(total, A, weight):
    """Add A diag(weight) A^T to the lower triangle of ``total`` (M, M); ``weight`` (N,) is not negative."""
    if np.all(weight == 1.0):
        return _add_squares(total, A)
    for columns in _column_blocks(A):
        total = _add_squares(total, A[:, columns] * np.sqrt(weight[columns]))
    return total


def _add_squares(total, A):
    unlocked.add_squares(total, np.ascontiguousarray(A, float))
    return total


def _column_blocks(A):
    size = max(NUMBERS_AT_ONCE // len(A), _FEWEST_COLUMNS)
    return [slice(start, start + size) for start in range(0, A.shape[1], size)]


def mirrored(A):
    """Return ``A`` (M, M) with its lower triangle in the place of the upper one."""
    for start in range(0, len(A), _TILE):
        stop = min(start + _TILE, len(A))
        square = np.tril(A[start:stop, start:stop])
        A[start:stop, start:stop] = square + np.tril(square, -1).T
        A[start:stop, stop:] = A[stop:, start:stop].T
    return A


def growing(jitter, first=None):
    """The jitters that a factorisation tries, one after the other: those of `linalg.jittered_cholesky`."""
    before = [] if first is None else [first]
    return before + [jitter * JITTER_GROWTH**attempt for attempt in range(JITTER_ATTEMPTS + 1 - len(before))]


def jittered_cholesky(A, jitter, first=None, factor=1.0, diagonal=0.0):
    """The lower Cholesky factor of factor * A + (diagonal + jitter) * I, and the jitter that it needed.

    As of `linalg.jittered_cholesky`. Only the lower triangle of ``A`` (M, M) is read. A ``factor`` (M,) multiplies its
    rows and columns by the roots.
    """
    system, (rows, columns) = np.empty_like(A), (factor, None) if np.ndim(factor) == 0 else 2 * (np.sqrt(factor),)
    for used in growing(jitter, first):
        np.multiply(A, rows, out=system)
        if columns is not None:
            system *= columns[:, None]
        system[np.diag_indices(len(A))] += diagonal + used
        L, failed = _lapack.dpotrf(system.T, lower=0, overwrite_a=1, clean=1)
        if not failed:
            return L.T, used
    return np.full_like(A, np.nan), used


def definite_cholesky(A, factor=1.0, diagonal=0.0):
    """The lower Cholesky factor of factor * A + diagonal * I (M, M), as `linalg.definite_cholesky` finds it."""
    rounding = np.finfo(float).eps * (diagonal * len(A) + np.sum(factor * np.diag(A)))
    return jittered_cholesky(A, rounding, 0.0, factor, diagonal)[0]


def cholesky_of_sum(A, factor):
    """The lower Cholesky factor of I + factor * A (M, M), of which only the lower triangle is read."""
    return definite_cholesky(A, factor, 1.0)


def cholesky_over(A):
    """The lower Cholesky factor of ``A`` (M, M), in its place; None if there is none. Only the lower triangle is read.

    Panel by panel: LAPACK's own takes twice as long, and that of OpenBLAS 0.3 ends the process where several threads
    factorise more than some 20,000 rows.
    """
    for start in range(0, len(A), _PANEL):
        stop = min(start + _PANEL, len(A))
        panel = A[start:, start:stop] - A[start:, :start] @ A[start:stop, :start].T
        L, failed = _lapack.dpotrf(panel[: stop - start].T, lower=0, clean=1)
        if failed:
            return None
        rest = panel[stop - start :]
        A[start:stop, start:stop] = L.T
        A[stop:, start:stop] = _blas.dtrsm(1.0, L, rest.T, side=0, lower=0, trans_a=1, overwrite_b=1).T
        A[start:stop, stop:] = 0.0
    return A


def triangular_inverse(L, over=False):
    """Return L^-1 for a lower triangular ``L`` (M, M), which may be in its place."""
    return _lapack.dtrtri(L.T, lower=0, overwrite_c=over)[0].T


def cholesky_solve(L, b):
    """Return (L L^T)^-1 b for a vector ``b`` (M,)."""
    return _lapack.dpotrs(L.T, b, lower=0)[0]


def cholesky_inverse(L):
    """Return (L L^T)^-1."""
    return mirrored(_lapack.dpotri(L.T, lower=0)[0].T)


# A tile of this many rows stays in a processor's cache, where it is multiplied by both sides.
_TILE_ROWS = 1024


class Tiles:
    """Square tiles of the lower triangle of a symmetric matrix (N, N).

    Parameters
    ----------
    block : callable
        Of two arrays of positions (B,): the matrix of these rows and columns, (B, B).
    n_rows : int
    """

    def __init__(self, block, n_rows):
        self.n_rows = n_rows
        # All of one size, so that one program makes them: those at the end repeat the last row.
        at = [np.minimum(np.arange(start, start + _TILE_ROWS), n_rows - 1) for start in range(0, n_rows, _TILE_ROWS)]
        lower = [(i, j) for i in range(len(at)) for j in range(i + 1)]
        self._tiles = [(i, j, np.asarray(block(at[i], at[j]), np.float32)) for i, j in lower]

    @staticmethod
    def n_bytes(n_rows):
        """The memory that they take."""
        n_tiles = -(-n_rows // _TILE_ROWS)
        return 4 * _TILE_ROWS**2 * n_tiles * (n_tiles + 1) // 2

    def __matmul__(self, V):
        """The product (N, C) with ``V`` (N, C): in double precision but for the sums within a tile."""
        n_tiles = -(-len(V) // _TILE_ROWS)
        longer = filled_up(V, n_tiles * _TILE_ROWS, value=0.0)
        parts = longer.astype(np.float32).reshape(n_tiles, _TILE_ROWS, V.shape[1])
        product = np.zeros(parts.shape)
        for i, j, tile in self._tiles:
            product[i] += tile @ parts[j]
            if i != j:
                product[j] += tile.T @ parts[i]
        return product.reshape(-1, V.shape[1])[: self.n_rows]
