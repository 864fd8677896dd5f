"""BLAS and LAPACK by their addresses, beside NumPy's."""

import ctypes
import threading
import time

import numpy as np
import pytest
from scipy import linalg

from skgp_natgrad._backend import in_place


def definite(rng, size):
    """A positive definite matrix of so many rows."""
    A = rng.normal(size=(size, 2 * size))
    return A @ A.T


@pytest.mark.parametrize("size", [1, 3, 40, 300])
def test_factors_and_inverses_are_those_of_numpy(rng, size):
    A = definite(rng, size)
    found = A.copy()
    assert in_place.factorise(found)
    np.testing.assert_allclose(np.triu(found).T, np.linalg.cholesky(A), rtol=1e-10, atol=1e-10)
    in_place.invert(found)
    np.testing.assert_allclose(np.triu(found), np.triu(np.linalg.inv(A)), rtol=1e-7, atol=1e-9)
    assert not in_place.factorise(-A)


@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (1, 4), (4, 0), (0, 3), (30, 70), (200, 20)])
def test_solutions_and_squares_are_those_of_scipy(rng, shape):
    L, B = np.linalg.cholesky(definite(rng, shape[0])), rng.normal(size=shape)
    for transposed in (False, True):
        found = B.copy()
        (in_place.upper_solve if transposed else in_place.lower_solve)(L, found)
        expected = linalg.solve_triangular(L, B, lower=True, trans=int(transposed))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)
    for lower, triangle in ((True, np.tril), (False, np.triu)):
        total = definite(rng, shape[0])
        expected = np.where(triangle(np.ones_like(total)) > 0.0, B @ B.T - 2.0 * total, total)
        in_place.add_squares(total, B, -2.0, lower)
        np.testing.assert_allclose(total, expected, rtol=1e-10, atol=1e-10)


def test_parts_of_a_larger_array_are_taken_where_they_are(rng):
    whole = definite(rng, 12)
    part, before = whole[2:9, 3:10], whole.copy()
    part[:] = definite(rng, 7)
    expected = np.linalg.cholesky(part)
    assert in_place.factorise(part)
    np.testing.assert_allclose(np.triu(part).T, expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(whole[:2], before[:2])
    np.testing.assert_array_equal(whole[:, 10:], before[:, 10:])


@pytest.mark.parametrize("change", [lambda A: A.astype(np.float32), lambda A: A.T, lambda A: A[::-1]])
def test_other_layouts_are_refused(rng, change):
    with pytest.raises(ValueError, match="doubles with contiguous rows"):
        in_place.factorise(change(definite(rng, 4)))


def test_other_threads_go_on_meanwhile(rng):
    """With Python's lock held, one gap between their turns would be nearly all of the time."""
    A, turns = definite(rng, 3000), [time.perf_counter()]
    thread = threading.Thread(target=in_place.factorise, args=(A,))
    thread.start()
    while thread.is_alive():
        turns.append(time.perf_counter())
    assert np.diff(turns).max() < 0.6 * (turns[-1] - turns[0])


def test_integers_are_those_of_the_signature():
    assert in_place.integer_of(b"void (char *, int *, double *, int *, int *)") is ctypes.c_int
    assert in_place.integer_of(b"void (char *, int64_t *, double *, int64_t *)") is ctypes.c_int64
    with pytest.raises(ImportError, match="integers of an unknown type"):
        in_place.integer_of(b"void (char *, long *)")


def test_matrices_that_do_not_belong_together_are_refused(rng):
    L, B = definite(rng, 4), rng.normal(size=(3, 2))
    for call in (lambda: in_place.lower_solve(L, B), lambda: in_place.add_squares(L, B), lambda: in_place.factorise(B)):
        with pytest.raises(ValueError, match="do not belong together"):
            call()
