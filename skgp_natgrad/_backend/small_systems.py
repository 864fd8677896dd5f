"""Cholesky factors of many small matrices and the solutions with them, in place, by SciPy's LAPACK.

With 200 rows a factor takes a third of the time of `numpy.linalg.cholesky`, which copies each matrix twice, column by
column. SciPy's own functions keep Python's lock while they compute; those that it offers to other compiled code, called
by `ctypes`, do not, so that threads compute at the same time.
"""

from __future__ import annotations

import ctypes
import functools

import numpy as np
from scipy.linalg import cython_blas, cython_lapack

_INT, _DOUBLE, _TEXT = ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_double), ctypes.c_char_p


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
    potrf, size, width = _potrf(), ctypes.c_int(A.shape[1]), _width(A)
    failed, info = np.zeros(len(A), bool), ctypes.c_int()
    for i, address in enumerate(_addresses(A)):
        # LAPACK reads by columns: to it the upper triangle is the lower one.
        potrf(b"L", size, address, width, info)
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
    trsm, size, width, one = _trsm(), ctypes.c_int(L.shape[1]), _width(L), ctypes.c_double(1.0)
    n_sides, distance = ctypes.c_int(b.shape[1]), _width(b)
    for of_L, of_b in zip(_addresses(L), _addresses(b), strict=True):
        trsm(b"L", b"L", b"N", b"N", size, n_sides, one, of_L, width, of_b, distance)


def _addresses(A):
    """Where each matrix of a stack (B, ., .) begins."""
    if A.dtype != np.float64 or A.strides[-1] != A.itemsize or not A.flags.writeable:
        raise ValueError(f"A needs writeable doubles with contiguous rows; got {A.dtype} with strides {A.strides}.")
    return [A.ctypes.data + i * A.strides[0] for i in range(len(A))]


def _width(A):
    """The distance of the rows of a matrix, in numbers."""
    return ctypes.c_int(A.strides[1] // A.itemsize)


@functools.cache
def _potrf():
    return _function(cython_lapack, "dpotrf", _TEXT, _INT, ctypes.c_void_p, _INT, _INT)


@functools.cache
def _trsm():
    sizes = _TEXT, _TEXT, _TEXT, _TEXT, _INT, _INT, _DOUBLE
    return _function(cython_blas, "dtrsm", *sizes, ctypes.c_void_p, _INT, ctypes.c_void_p, _INT)


def _function(module, name, *types):
    """One of the functions that SciPy offers to compiled code."""
    capsule = module.__pyx_capi__[name]
    name_of, pointer_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.CFUNCTYPE(None, *types)(pointer_of(capsule, name_of(capsule)))
