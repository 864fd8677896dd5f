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

_INT, _DOUBLE, _TEXT, _ARRAY = (
    ctypes.POINTER(ctypes.c_int),
    ctypes.POINTER(ctypes.c_double),
    ctypes.c_char_p,
    ctypes.c_void_p,
)
_TYPES = {
    "dpotrf": (_TEXT, _INT, _ARRAY, _INT, _INT),
    "dpotri": (_TEXT, _INT, _ARRAY, _INT, _INT),
    "dtrsm": (_TEXT, _TEXT, _TEXT, _TEXT, _INT, _INT, _DOUBLE, _ARRAY, _INT, _ARRAY, _INT),
    "dsyrk": (_TEXT, _TEXT, _INT, _INT, _DOUBLE, _ARRAY, _INT, _DOUBLE, _ARRAY, _INT),
}


@functools.cache
def function(name):
    """BLAS's or LAPACK's function of this name, which takes addresses."""
    capsule = {**cython_blas.__pyx_capi__, **cython_lapack.__pyx_capi__}[name]
    name_of, pointer_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.CFUNCTYPE(None, *_TYPES[name])(pointer_of(capsule, name_of(capsule)))


def width(A):
    """The distance of the rows of a matrix, or of those of each matrix of a stack, in numbers."""
    # The stride of an axis of length one may be any number.
    n_rows, n_columns = A.shape[-2:]
    found = A.strides[-2] // A.itemsize if n_rows > 1 else max(n_columns, 1)
    if A.dtype != np.float64 or (n_columns > 1 and A.strides[-1] != A.itemsize) or found < n_columns:
        raise ValueError(f"A needs doubles with contiguous rows; got {A.dtype} with strides {A.strides}.")
    return ctypes.c_int(found)


def factorise(A):
    """Write the transpose of the lower Cholesky factor of ``A`` (M, M) in its upper triangle; whether there is one."""
    info = ctypes.c_int()
    function("dpotrf")(b"L", ctypes.c_int(len(A)), A.ctypes.data, width(A), info)
    return info.value == 0


def invert(A):
    """Replace the upper triangle of ``A`` (M, M), from `factorise`, by that of the inverse."""
    info = ctypes.c_int()
    function("dpotri")(b"L", ctypes.c_int(len(A)), A.ctypes.data, width(A), info)


def add_squares(total, A, factor=1.0, of_total=1.0, lower=True):
    """Add ``factor`` A A^T, for ``A`` (M, N), to a triangle of ``of_total`` times ``total`` (M, M)."""
    sizes = ctypes.c_int(len(total)), ctypes.c_int(A.shape[1])
    of_A = ctypes.c_double(factor), A.ctypes.data, width(A)
    triangle = b"U" if lower else b"L"
    function("dsyrk")(triangle, b"T", *sizes, *of_A, ctypes.c_double(of_total), total.ctypes.data, width(total))


def solve(L, B, transposed=False):
    """Replace ``B`` (M, N) by L^-1 B, or by L^-T B if ``transposed``, for a lower triangular ``L`` (M, M)."""
    sizes = ctypes.c_int(B.shape[1]), ctypes.c_int(B.shape[0])
    arrays = L.ctypes.data, width(L), B.ctypes.data, width(B)
    function("dtrsm")(b"R", b"U", b"T" if transposed else b"N", b"N", *sizes, ctypes.c_double(1.0), *arrays)
