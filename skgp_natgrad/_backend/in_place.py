"""Matrix products and factorisations by BLAS and LAPACK, in place, for arrays in the memory of one CPU.

XLA has no symmetric product, copies a matrix before its factorisation, and writes a new matrix for every sum: with
thousands of rows it takes about twice as long. All arrays are NumPy's, stored by rows; BLAS, which reads by columns,
takes them as their transposes, so that its upper triangle is the lower one here and nothing is copied. For small
problems this avoids compiling a program.

SciPy's own functions keep Python's lock while they compute. Those that it offers to other compiled code, called by
`ctypes`, do not: threads compute at the same time.
"""

from __future__ import annotations

import ctypes
import functools

import numpy as np
from scipy.linalg import blas as _blas
from scipy.linalg import cython_blas, cython_lapack
from scipy.linalg import lapack as _lapack

from . import placement
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
# Of each function that is called by its address: texts, integers, numbers, arrays.
_KINDS = {"dpotrf": "tiaii", "dpotri": "tiaii", "dtrsm": "ttttiinaiai", "dtrmm": "ttttiinaiai", "dsyrk": "ttiinainai"}


def pays(n_points, n_rows, in_threads=False):
    """Whether sums over ``n_rows`` rows of matrices of ``n_points`` rows are better made here.

    Where the arrays of this computation are on one CPU: if parts of the sums may be formed ``in_threads``, if the
    matrices are large, or if they are so small that to compile a program would take longer.
    """
    worth_it = in_threads or n_points > LARGEST_OF_ONE_THREAD or n_rows * n_points**2 <= _FEW_OPERATIONS
    return worth_it and placement.on_one_cpu()


def _capsule(name):
    """What SciPy offers of a function, and its signature in C."""
    capsule = {**cython_blas.__pyx_capi__, **cython_lapack.__pyx_capi__}[name]
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    return capsule, name_of(capsule)


def integer_of(signature):
    """The type of integers in a function of this signature: SciPy may be built for those of 64 bits."""
    if b"int64_t *" in signature:
        return ctypes.c_int64
    if b" int *" in signature:
        return ctypes.c_int
    raise ImportError(f"SciPy's LAPACK has integers of an unknown type: {signature.decode()}; use SciPy's wheels.")


@functools.cache
def _integer():
    return integer_of(_capsule("dpotrf")[1])


@functools.cache
def _function(name):
    """BLAS's or LAPACK's function of this name, which takes addresses."""
    capsule, signature = _capsule(name)
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    kinds = {"t": ctypes.c_char_p, "n": ctypes.POINTER(ctypes.c_double), "a": ctypes.c_void_p}
    kinds["i"] = ctypes.POINTER(_integer())
    return ctypes.CFUNCTYPE(None, *(kinds[kind] for kind in _KINDS[name]))(pointer_of(capsule, signature))


def _call(name, *arguments):
    """Call a function; a matrix of doubles stands for its address and the distance of its rows."""
    found = []
    for each in arguments:
        if isinstance(each, np.ndarray):
            found += [each.ctypes.data, _width(each)]
        else:
            kind = {int: _integer(), float: ctypes.c_double}.get(type(each))
            found.append(kind(each) if kind else each)
    _function(name)(*found)


def _width(A):
    """The distance of the rows of a matrix, or of those of each matrix of a stack, in numbers."""
    # The stride of an axis of length one may be any number, and that of an empty matrix is zero.
    n_rows, n_columns = A.shape[-2:]
    found = A.strides[-2] // A.itemsize if n_rows > 1 and A.size else max(n_columns, 1)
    is_contiguous = n_columns <= 1 or not A.size or A.strides[-1] == A.itemsize
    if A.dtype != np.float64 or not is_contiguous or found < n_columns:
        raise ValueError(f"A needs doubles with contiguous rows; got {A.dtype} with strides {A.strides}.")
    return _integer()(found)


def _check(first, second, n_rows):
    """Refuse matrices of which one has not so many rows and columns, or the other not so many rows."""
    if first.shape[-2:] != (n_rows, n_rows) or second.shape[-2] != n_rows:
        raise ValueError(f"Matrices of shapes {first.shape} and {second.shape} do not belong together.")


def _triangular(name, L, B, transposed=b"N"):
    _check(L, B, len(B))
    _call(name, b"R", b"U", transposed, b"N", *B.shape[::-1], 1.0, np.ascontiguousarray(L), B)
    return B


def lower_solve(L, B):
    """Return L^-1 B, for a lower triangular ``L`` (M, M).

    ``B`` (M, N), of doubles in rows, holds the result, even where it is marked as not writeable.
    """
    return _triangular("dtrsm", L, B)


def upper_solve(L, B):
    """Return L^-T B, for a lower triangular ``L`` (M, M); ``B`` (M, N) as in `lower_solve`."""
    return _triangular("dtrsm", L, B, b"T")


def lower_product(L, B):
    """Return L B, for a lower triangular ``L`` (M, M); ``B`` (M, N) as in `lower_solve`."""
    return _triangular("dtrmm", L, B)


def add_squares(total, A, of_total=1.0, lower=True):
    """Add A A^T, for ``A`` (M, N), to a triangle of ``of_total`` times ``total`` (M, M)."""
    _check(total, A, len(total))
    _call("dsyrk", b"U" if lower else b"L", b"T", *A.shape, 1.0, np.ascontiguousarray(A, float), float(of_total), total)
    return total


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
        return add_squares(total, A)
    for columns in _column_blocks(A):
        add_squares(total, A[:, columns] * np.sqrt(weight[columns]))
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


# Many small matrices. With 200 rows a factor takes less than half of the time of `numpy.linalg.cholesky`, which copies
# each matrix twice, column by column.


def factorise(A):
    """Write the transposes of the lower Cholesky factors of ``A`` ([B,] M, M) in the upper triangles.

    Only the upper triangles, with the diagonals, are read and written.

    Parameters
    ----------
    A : ndarray of shape (M, M) or (B, M, M)
        Doubles, contiguous but for the distances of matrices and of rows.

    Returns
    -------
    exists : bool or ndarray of shape (B,)
        Whether a matrix has a factor in double precision.
    """
    if A.ndim == 2:
        return bool(factorise(A[None])[0])
    _check(A, A, A.shape[1])
    potrf, kind, distance = _function("dpotrf"), _integer(), _width(A)
    exists, size, info = np.zeros(len(A), bool), kind(A.shape[1]), kind()
    for i, address in enumerate(_addresses(A)):
        # LAPACK reads by columns: to it the upper triangle is the lower one.
        potrf(b"L", size, address, distance, info)
        exists[i] = info.value == 0
    return exists


def invert(A):
    """Replace the upper triangle of ``A`` (M, M), from `factorise`, by that of the inverse."""
    _check(A, A, len(A))
    _call("dpotri", b"L", len(A), A, _integer()())


def lower_solve_over(L, b):
    """Solutions of L x = b, in the place of ``b``.

    Parameters
    ----------
    L : ndarray of shape (B, M, M)
        From `factorise`.
    b : ndarray of shape (B, T, M)
        T right-hand sides each; doubles, contiguous.
    """
    trsm, kind, one = _function("dtrsm"), _integer(), ctypes.c_double(1.0)
    size, n_sides, of_rows, distance = kind(L.shape[1]), kind(b.shape[1]), _width(L), _width(b)
    for of_L, of_b in zip(_addresses(L), _addresses(b), strict=True):
        trsm(b"L", b"L", b"N", b"N", size, n_sides, one, of_L, of_rows, of_b, distance)


def _addresses(A):
    """Where each matrix of a stack (B, ., .) begins."""
    if not A.flags.writeable:
        raise ValueError("A needs writeable doubles.")
    return [A.ctypes.data + i * A.strides[0] for i in range(len(A))]


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
