"""Processes of rows and their neighbours, beside the exact process and closed forms."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, ExpSineSquared, Matern, RationalQuadratic

from skgp_natgrad import kernels
from skgp_natgrad._backend.device import computation
from skgp_natgrad.neighbours import Nearest, conditional, moments, nearest, rates

KERNEL = 1.5 * Matern([0.7, 1.3], nu=2.5) + 0.2 * RBF(2.0)
N, T = 60, 2


@pytest.fixture(autouse=True)
def double_precision():
    with computation("cpu"):
        yield


@pytest.fixture
def problem(rng):
    X = rng.normal(size=(N, 2))
    return X, rng.normal(size=(T, N)), rng.uniform(0.05, 0.3, size=N), rng.normal(size=(7, 2))


def jax_kernel(kernel, n_columns=2):
    return kernels.from_sklearn(kernel, n_columns).value


def exact(X, y, noise, x):
    """Means (T, B) and variances (B,) of the exact process."""
    solved = np.linalg.solve(KERNEL(X) + np.diag(noise), np.column_stack([KERNEL(X, x), y.T]))
    return y @ solved[:, : len(x)], KERNEL.diag(x) - np.einsum("nb,nb->b", KERNEL(X, x), solved[:, : len(x)])


# -- rates ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kernel",
    [RBF([0.5, 2.0]), 2.0 * RBF(1.0) * Matern([1.0, 3.0], nu=np.inf), ExpSineSquared(1.3, 2.0), 3.0 * RBF() ** 2],
)
def test_rates_are_the_curvature_of_smooth_kernels(kernel):
    step = 1e-3 * np.eye(2)
    fall = 1.0 - kernel(np.zeros((1, 2)), step)[0] / kernel.diag(np.zeros((1, 2)))
    assert np.allclose(rates(jax_kernel(kernel), 2) ** 2, 2e6 * fall, rtol=1e-4)


def test_rates_of_sums_and_of_columns():
    kernel = 3.0 * RBF([1.0, 2.0]) + kernels.Columns(Matern(0.5), [1]) + DotProduct()
    assert np.allclose(rates(jax_kernel(kernel), 2) ** 2, [3 / 4, (3 / 4 + 4) / 4])
    assert np.array_equal(rates(jax_kernel(ConstantKernel(2.0) + ConstantKernel(1.0)), 2), [0.0, 0.0])
    assert np.allclose(rates(jax_kernel(RationalQuadratic(0.5)), 2), 2.0)


# -- nearest rows ---------------------------------------------------------------------------


@pytest.mark.parametrize("n_columns", [1, 3, 15])
@pytest.mark.parametrize("far", [0.0, 1e4])
def test_nearest_rows_are_those_of_all_distances(rng, monkeypatch, n_columns, far):
    monkeypatch.setattr(nearest, "_SAMPLE", 64)
    X = far + rng.normal(size=(700, n_columns))
    # Copies of rows, rows in one place but for rounding to single precision, and a column that tells nothing.
    X[300:320], X[320:420], X[:, -1] = X[10], X[11] + 1e-5 * rng.normal(size=(100, n_columns)), X[:, -1].round()
    x, rate = np.concatenate([X[:300:50], X[11:12]]), rng.uniform(0.5, 2.0, size=n_columns)
    found = Nearest(X, rate).query(x, 40)
    distances = cdist(x * rate, X * rate)
    chosen = np.take_along_axis(distances, found, axis=1)
    assert np.allclose(chosen, np.sort(distances, axis=1)[:, :40], rtol=1e-9, atol=1e-10 * (1.0 + far))
    assert all(len(set(each)) == 40 for each in found.tolist())


def test_a_tree_finds_the_rows_of_many_columns_of_which_few_tell_rows_apart(rng):
    X, rate = rng.normal(size=(500, 20)), np.r_[1.0, 2.0, np.full(18, 1e-3)]
    found = Nearest(X, rate), Nearest(X, np.ones(20))
    assert [each._tree is None for each in found] == [False, True]
    near = np.argsort(cdist(X[:9] * rate, X * rate), axis=1)[:, :40]
    assert np.array_equal(found[0].query(X[:9], 40), near)


@pytest.mark.parametrize("n_columns", [6, 10])
def test_in_trees_of_very_many_rows_the_nearest_are_so_but_for_a_share(rng, monkeypatch, n_columns):
    X, x, factor = rng.normal(size=(3000, n_columns)), rng.normal(size=(50, n_columns)), 1.0 + nearest._FARTHER
    exact = Nearest(X, np.ones(n_columns)).query(x, 40)
    monkeypatch.setattr(nearest, "_MANY_ROWS", 2999)
    found = Nearest(X, np.ones(n_columns)).query(x, 40)
    far = [np.take_along_axis(cdist(x, X), each, axis=1) for each in (exact, found)]
    assert np.all(far[0] <= far[1])
    assert np.all(far[1] <= factor * far[0])
    assert all(len(set(each)) == 40 for each in found.tolist())
    # Some differ, but few.
    same = np.mean([len(np.intersect1d(*pair)) / 40 for pair in zip(exact, found, strict=True)])
    assert 0.95 < same < 1.0
    # With all rows of the table nothing is left out.
    every = Nearest(X, np.ones(n_columns)).query(x[:2], 3000)
    assert np.array_equal(np.sort(every), np.tile(np.arange(3000), (2, 1)))


@pytest.mark.parametrize("n_columns", [2, 20])
def test_rows_that_do_not_count_are_left_out_however_many_are_nearest(rng, n_columns):
    X = rng.normal(size=(300, n_columns))
    X[:200] = X[0]
    group = np.repeat([0, 1], [200, 100])
    of_x = np.array([0, 1])
    found = Nearest(X, np.ones(n_columns)).query(X[[0, 250]], 150, lambda at, near: group[near] != of_x[at][:, None])
    assert set(found[0]) == {-1, *range(200, 300)}
    assert np.all(found[0, :100] >= 200)
    # Ties: all rows of the group are as far.
    assert np.all((found[1] >= 0) & (found[1] < 200))
    assert len(set(found[1])) == 150


def test_without_columns_any_rows_are_nearest(rng):
    found = Nearest(np.ones((5, 2)), np.ones(2)).query(rng.normal(size=(3, 2)), 7)
    assert np.array_equal(np.sort(found), np.tile([-1, -1, 0, 1, 2, 3, 4], (3, 1)))


# -- moments given neighbours ---------------------------------------------------------------


def test_with_all_rows_for_neighbours_moments_are_exact(problem):
    X, y, noise, x = problem
    near = Nearest(X, rates(jax_kernel(KERNEL), 2)).query(x, N + 3)
    mean, variance = moments(jax_kernel(KERNEL), x, X, near, y, noise[None])
    expected = exact(X, y, noise, x)
    assert np.allclose(mean, expected[0], rtol=0.0, atol=1e-8)
    assert np.allclose(variance[0], expected[1], rtol=0.0, atol=1e-8)


def test_targets_may_have_noise_of_their_own_and_neighbours_may_be_absent(problem):
    X, y, noise, x = problem
    noises = np.stack([noise, 3.0 * noise])
    near = np.tile(np.arange(20), (len(x), 1))
    near[3, 12:] = -1
    mean, variance = moments(jax_kernel(KERNEL), x, X, near, y, noises)
    for k in range(T):
        for rows, n in ((slice(0, 3), 20), (slice(3, 4), 12)):
            expected = exact(X[:n], y[k : k + 1, :n], noises[k, :n], x[rows])
            assert np.allclose(mean[k, rows], expected[0][0], rtol=0.0, atol=1e-8)
            assert np.allclose(variance[k, rows], expected[1], rtol=0.0, atol=1e-8)


def test_blocks_change_nothing(problem, monkeypatch):
    X, y, noise, x = problem
    given = jax_kernel(KERNEL), x, X, np.tile(np.arange(10), (len(x), 1)), y, noise[None]
    whole = moments(*given)
    monkeypatch.setattr(conditional, "_COVARIANCES", 250)
    for one, other in zip(whole, moments(*given), strict=True):
        assert np.allclose(one, other, rtol=0.0, atol=1e-12)


def test_copies_without_noise_need_jitter(problem):
    X, y, _, x = problem
    X, y = np.tile(X[:5], (3, 1)), np.tile(y[:, :5], 3)
    near = np.tile(np.arange(15), (len(x), 1))
    mean, _ = moments(jax_kernel(KERNEL), x, X, near, y, np.zeros((1, 15)))
    assert np.allclose(mean, exact(X[:5], y[:, :5], np.zeros(5), x)[0], rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("large", [1e25, 1e39])
def test_values_too_large_for_single_precision(rng, large):
    X, x = rng.normal(size=(60, 12)), rng.normal(size=(3, 12))
    X[0, 0], x[1] = large, large
    found = Nearest(X, np.ones(12)).query(x, 5)
    # Beside such a value the others in its column are as one.
    expected = np.argsort(((x[:, None, 1:] - X[1:, 1:]) ** 2).sum(2), axis=1, kind="stable")[:, :5] + 1
    np.testing.assert_array_equal(found[[0, 2]], expected[[0, 2]])
    assert np.all(found[1] >= 0)


@pytest.mark.parametrize("share", [1e-6, 1e-10, 1e-12])
def test_moments_at_small_noise_are_those_of_extended_precision(rng, share):
    """N k / s^2 is up to 1e14; the prior variance is 1.7."""
    X, x = rng.normal(size=(N, 2)), rng.normal(size=(7, 2))
    near, noise = np.tile(np.arange(N), (7, 1)), np.full((1, N), share)
    mean, variance = moments(jax_kernel(KERNEL), x, X, near, KERNEL(X)[:1], noise)
    K = KERNEL(X).astype(np.longdouble) + share * np.eye(N)
    L = np.zeros_like(K)
    for j in range(N):
        L[j, j] = np.sqrt(K[j, j] - (L[j, :j] ** 2).sum())
        L[j + 1 :, j] = (K[j + 1 :, j] - L[j + 1 :, :j] @ L[j, :j]) / L[j, j]
    sides = np.column_stack([KERNEL(X, x), KERNEL(X)[0]]).astype(np.longdouble)
    for j in range(N):
        sides[j] = (sides[j] - L[j, :j] @ sides[:j]) / L[j, j]
    assert np.allclose(mean[0], sides[:, :7].T @ sides[:, 7], rtol=0.0, atol=1e-9)
    assert np.allclose(variance[0], KERNEL.diag(x) - (sides[:, :7] ** 2).sum(0), rtol=0.0, atol=1e-9)
