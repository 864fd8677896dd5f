"""Factors of many small matrices in place, beside NumPy's and SciPy's."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import linalg

from skgp_natgrad._backend.in_place import factorise, lower_solve_over


def definite(rng, n_matrices, size):
    A = rng.normal(size=(n_matrices, size, size))
    return A @ A.transpose(0, 2, 1) + size * np.eye(size)


@pytest.mark.parametrize("size", [1, 2, 7, 65, 200])
def test_factors_and_solutions_are_those_of_lapack_by_others(rng, size):
    # A part of a larger stack, as the covariances of neighbours are.
    stack = definite(rng, 5, size + 1)
    before, b = stack.copy(), rng.normal(size=(5, 3, size))
    found, x = stack[:, 1:, 1:], b.copy()
    assert factorise(found).all()
    lower_solve_over(found, x)
    expected = np.linalg.cholesky(before[:, 1:, 1:])
    np.testing.assert_allclose(np.triu(found), expected.transpose(0, 2, 1), rtol=1e-12, atol=1e-12)
    for L, sides, solved in zip(expected, b, x, strict=True):
        np.testing.assert_allclose(solved.T, linalg.solve_triangular(L, sides.T, lower=True), rtol=1e-10, atol=1e-12)
    # Nothing else is written.
    np.testing.assert_array_equal(np.tril(found, -1), np.tril(before[:, 1:, 1:], -1))
    np.testing.assert_array_equal(stack[:, 0], before[:, 0])
    np.testing.assert_array_equal(stack[:, :, 0], before[:, :, 0])


def test_matrices_without_a_factor_are_told(rng):
    stack = definite(rng, 4, 6)
    stack[1] -= 100.0 * np.eye(6)
    expected = np.linalg.cholesky(stack[[0, 2, 3]])
    assert factorise(stack).tolist() == [True, False, True, True]
    np.testing.assert_allclose(np.triu(stack[[0, 2, 3]]), expected.transpose(0, 2, 1), rtol=1e-12)


def test_threads_find_the_same_bits(rng):
    stacks = [definite(rng, 30, 50) for _ in range(8)]
    alone = [each.copy() for each in stacks]
    for each in alone:
        factorise(each)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(factorise, stacks))
    np.testing.assert_array_equal(stacks, alone)


@pytest.mark.parametrize(
    "change", [lambda A: A.astype(np.float32), lambda A: A[:, :, ::-1], lambda A: A.transpose(0, 2, 1)]
)
def test_other_layouts_are_refused(rng, change):
    with pytest.raises(ValueError, match="doubles with contiguous rows"):
        factorise(change(definite(rng, 2, 4)))
    fixed = definite(rng, 2, 4)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="writeable doubles"):
        factorise(fixed)
