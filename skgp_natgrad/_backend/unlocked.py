"""BLAS and LAPACK without Python's lock, so that threads compute at the same time.

SciPy's own functions keep the lock while they compute. Those that it offers to other compiled code, called by `ctypes`,
do not. All matrices are NumPy's, of doubles, stored by rows; BLAS, which reads by columns, takes them as their
transposes, so that its upper triangle is the lower one here.
"""

from __future__ import annotations

import ctypes
import functools

import numpy as np
from scipy.linalg import cython_blas, cython_lapack

# Of each function's arguments: texts, integers, numbers, arrays.
_KINDS = {"dpotrf": "tiaii", "dpotri": "tiaii", "dtrsm": "ttttiinaiai", "dtrmm": "ttttiinaiai", "dsyrk": "ttiinainai"}


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
def integer():
    """The type of integers."""
    return integer_of(_capsule("dpotrf")[1])


@functools.cache
def function(name):
    """BLAS's or LAPACK's function of this name, which takes addresses."""
    capsule, signature = _capsule(name)
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    kinds = {"t": ctypes.c_char_p, "n": ctypes.POINTER(ctypes.c_double), "a": ctypes.c_void_p}
    kinds["i"] = ctypes.POINTER(integer_of(signature))
    types = [kinds[kind] for kind in _KINDS[name]]
    return ctypes.CFUNCTYPE(None, *types)(pointer_of(capsule, signature))


def width(A):
    """The distance of the rows of a matrix, or of those of each matrix of a stack, in numbers."""
    # The stride of an axis of length one may be any number, and that of an empty matrix is zero.
    n_rows, n_columns = A.shape[-2:]
    found = A.strides[-2] // A.itemsize if n_rows > 1 and A.size else max(n_columns, 1)
    is_contiguous = n_columns <= 1 or not A.size or A.strides[-1] == A.itemsize
    if A.dtype != np.float64 or not is_contiguous or found < n_columns:
        raise ValueError(f"A needs doubles with contiguous rows; got {A.dtype} with strides {A.strides}.")
    return integer()(found)


def _check(first, second, n_rows):
    """Refuse matrices of which one has not so many rows and columns, or the other not so many rows."""
    if first.shape != (n_rows, n_rows) or len(second) != n_rows:
        raise ValueError(f"Matrices of shapes {first.shape} and {second.shape} do not belong together.")


def factorise(A):
    """Write the transpose of the lower Cholesky factor of ``A`` (M, M) in its upper triangle; whether there is one."""
    _check(A, A, len(A))
    info = integer()()
    function("dpotrf")(b"L", integer()(len(A)), A.ctypes.data, width(A), info)
    return info.value == 0


def invert(A):
    """Replace the upper triangle of ``A`` (M, M), from `factorise`, by that of the inverse."""
    _check(A, A, len(A))
    function("dpotri")(b"L", integer()(len(A)), A.ctypes.data, width(A), integer()())


def add_squares(total, A, factor=1.0, of_total=1.0, lower=True):
    """Add ``factor`` A A^T, for ``A`` (M, N), to a triangle of ``of_total`` times ``total`` (M, M)."""
    _check(total, A, len(total))
    sizes = integer()(len(total)), integer()(A.shape[1])
    of_A = ctypes.c_double(factor), A.ctypes.data, width(A)
    triangle = b"U" if lower else b"L"
    function("dsyrk")(triangle, b"T", *sizes, *of_A, ctypes.c_double(of_total), total.ctypes.data, width(total))


def solve(L, B, transposed=False):
    """Replace ``B`` (M, N) by L^-1 B, or by L^-T B if ``transposed``, for a lower triangular ``L`` (M, M)."""
    _check(L, B, len(B))
    sizes = integer()(B.shape[1]), integer()(B.shape[0])
    arrays = L.ctypes.data, width(L), B.ctypes.data, width(B)
    function("dtrsm")(b"R", b"U", b"T" if transposed else b"N", b"N", *sizes, ctypes.c_double(1.0), *arrays)


def multiply(L, B):
    """Replace ``B`` (M, N) by L B, for a lower triangular ``L`` (M, M)."""
    _check(L, B, len(B))
    sizes = integer()(B.shape[1]), integer()(B.shape[0])
    arrays = L.ctypes.data, width(L), B.ctypes.data, width(B)
    function("dtrmm")(b"R", b"U", b"N", b"N", *sizes, ctypes.c_double(1.0), *arrays)


# Many small matrices. With 200 rows a factor takes less than half of the time of `numpy.linalg.cholesky`, which copies
# each matrix twice, column by column.


def cholesky_over(A):
    """Lower Cholesky factors L of matrices (B, M, M), transposed and in their upper triangles.

    Only the upper triangles, with the diagonals, are read and written.

    Parameters
    ----------
    A : ndarray of shape (B, M, M)
        Doubles, contiguous but for the distances of matrices and of rows.

    Returns
    -------
    failed : ndarray of shape (B,)
        Whether a matrix has no factor in double precision.
    """
    potrf, kind, distance = function("dpotrf"), integer(), width(A)
    failed, size, info = np.zeros(len(A), bool), kind(A.shape[1]), kind()
    for i, address in enumerate(_addresses(A)):
        # LAPACK reads by columns: to it the upper triangle is the lower one.
        potrf(b"L", size, address, distance, info)
        failed[i] = info.value != 0
    return failed


def lower_solve_over(L, b):
    """Solutions of L x = b, in the place of ``b``.

    Parameters
    ----------
    L : ndarray of shape (B, M, M)
        From `cholesky_over`.
    b : ndarray of shape (B, T, M)
        T right-hand sides each; doubles, contiguous.
    """
    trsm, kind, one = function("dtrsm"), integer(), ctypes.c_double(1.0)
    size, n_sides, of_rows, distance = kind(L.shape[1]), kind(b.shape[1]), width(L), width(b)
    for of_L, of_b in zip(_addresses(L), _addresses(b), strict=True):
        trsm(b"L", b"L", b"N", b"N", size, n_sides, one, of_L, of_rows, of_b, distance)


def _addresses(A):
    """Where each matrix of a stack (B, ., .) begins."""
    if not A.flags.writeable:
        raise ValueError("A needs writeable doubles.")
    return [A.ctypes.data + i * A.strides[0] for i in range(len(A))]
