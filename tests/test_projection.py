"""Derivatives written by hand against JAX's own, and rows in single precision against double."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.linalg import solve_triangular
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process import kernels as sk
from sklearn.metrics import r2_score

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad._backend.linalg import weighted_gram
from skgp_natgrad.kernels import stationary
from skgp_natgrad.likelihoods import Gaussian, StudentT
from skgp_natgrad.variational import bases
from skgp_natgrad.variational import bound as bounds
from skgp_natgrad.variational.projection import project

from .conftest import make_problem

JITTER = 1e-6


def plain_distance(X, Z, length_scale):
    return (((X[:, None] - Z[None]) / length_scale) ** 2).sum(-1)


def gradients(function, *arguments):
    return jax.jit(jax.grad(function, argnums=tuple(range(len(arguments)))))(*arguments)


def assert_trees_close(got, want, **tolerance):
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert_allclose(one, other, **tolerance)


# -- distances and radial functions --------------------------------------------------------


@pytest.mark.parametrize("n_columns", [3, stationary._FEW_COLUMNS + 1])
@pytest.mark.parametrize("anisotropic", [True, False])
@pytest.mark.usefixtures("x64")
def test_scaled_squared_distance(n_columns, anisotropic, rng):
    X, Z, C = rng.normal(size=(6, n_columns)), rng.normal(size=(5, n_columns)), rng.normal(size=(6, 5))
    length_scale = rng.uniform(0.5, 2.0, size=n_columns) if anisotropic else np.asarray(0.7)
    got, want = jax.jit(stationary.scaled_squared_distance)(X, Z, length_scale), plain_distance(X, Z, length_scale)
    assert_allclose(got, want, rtol=1e-12)
    ours = gradients(lambda *a: (C * stationary.scaled_squared_distance(*a)).sum(), X, Z, length_scale)
    theirs = gradients(lambda *a: (C * plain_distance(*a)).sum(), X, Z, length_scale)
    assert_trees_close(ours, theirs, rtol=1e-10, atol=1e-11)
    for i in range(3):  # one argument moves, and the others do not
        one = jax.jit(jax.grad(lambda *a: (C * stationary.scaled_squared_distance(*a)).sum(), argnums=i))
        alone = one(X, Z, length_scale)
        assert_allclose(alone, theirs[i], rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(
    ("ours", "plain"),
    [
        (stationary.matern12, lambda s: jnp.exp(-jnp.sqrt(s))),
        (stationary.matern32, lambda s: (1 + jnp.sqrt(3 * s)) * jnp.exp(-jnp.sqrt(3 * s))),
        (stationary.matern52, lambda s: (1 + jnp.sqrt(5 * s) + 5 * s / 3) * jnp.exp(-jnp.sqrt(5 * s))),
        (stationary.gaussian, lambda s: jnp.exp(-s / 2)),
    ],
)
@pytest.mark.usefixtures("x64")
def test_radial_functions(ours, plain, rng):
    square, C = rng.uniform(0.01, 9.0, size=(4, 5)), rng.normal(size=(4, 5))
    assert_allclose(jax.jit(ours)(square), jax.jit(plain)(square), rtol=1e-13)
    gradient = jax.jit(jax.grad(lambda s: (C * ours(s)).sum()))
    assert_allclose(gradient(square), jax.jit(jax.grad(lambda s: (C * plain(s)).sum()))(square), rtol=1e-11)
    assert_array_equal(gradient(np.full((4, 5), np.finfo(float).max / 16.0)), 0.0)
    at_zero = gradient(np.zeros((4, 5)))
    if ours is stationary.matern12:  # which has a corner
        assert np.all(np.isfinite(at_zero))
    else:
        assert_allclose(at_zero, jax.grad(lambda s: (C * plain(s)).sum())(np.full((4, 5), 1e-14)), rtol=1e-6)


@pytest.mark.usefixtures("x64")
def test_distances_far_from_the_origin_and_far_apart(rng):
    X = (2000.0 + rng.uniform(0, 20, size=(50, 2))).astype("float32")
    exact = plain_distance(X.astype(float), X.astype(float), 1.0)
    assert_allclose(stationary.squared_distance(X, X), exact, rtol=1e-5, atol=1e-3)
    for radial in (stationary.matern12, stationary.matern32, stationary.matern52, stationary.gaussian):
        total = jax.jit(jax.value_and_grad(lambda X, f=radial: f(stationary.squared_distance(X, X[:1])).sum()))
        far = total(np.float32([[0.0], [1e18]]))
        assert_array_equal(far[0], 1.0)
        assert_array_equal(far[1], 0.0)


@pytest.mark.usefixtures("x64")
def test_scaled(rng):
    A, C = rng.normal(size=(4, 5)), rng.normal(size=(4, 5))
    got = gradients(lambda c, A: (C * stationary.scaled(c, A)).sum(), 1.7, A)
    assert_trees_close(got, ((C * A).sum(), 1.7 * C), rtol=1e-13)


# -- the projection ------------------------------------------------------------------------


def plain_project(Kzz, Kzx, kxx, m, S, at_Z, removed, jitter):
    """The same moments, differentiated by JAX through the Cholesky factorisation."""
    L = jnp.linalg.cholesky(0.5 * (Kzz + Kzz.T) + jitter * jnp.eye(len(Kzz)))
    A, w = solve_triangular(L, Kzx, lower=True), solve_triangular(L, at_Z.T, lower=True).T
    var = kxx - (A * A).sum(0) + jnp.einsum("ib,kij,jb->kb", A, S, A)
    return (m - removed * w) @ A, var, w, solve_triangular(L, w.T, lower=True, trans=1).T


def random_projection(rng, n_latent=2, size=6, n_rows=9):
    """Arguments of `project`, and cotangents of what it returns."""
    Z, X = rng.normal(size=(size, 2)), rng.normal(size=(n_rows, 2))
    root = rng.normal(size=(n_latent, size, size))
    kernel = sk.RBF(1.1)
    arguments = (
        kernel(Z),
        kernel(Z, X),
        np.ones(n_rows),
        rng.normal(size=(n_latent, size)),
        root @ np.swapaxes(root, -1, -2) / size,
        rng.normal(size=(n_latent, size)),
    )
    shapes = [(n_latent, n_rows), (n_latent, n_rows), (n_latent, size), (n_latent, size)]
    return arguments, [rng.normal(size=shape) for shape in shapes]


@pytest.mark.parametrize("removed", [1.0, 0.0])
@pytest.mark.usefixtures("x64")
def test_projection_and_its_gradients_equal_autodiff(removed, rng):
    arguments, cotangents = random_projection(rng)

    whiten = np.linalg.inv(np.linalg.cholesky(arguments[0] + JITTER * np.eye(len(arguments[0]))))

    def weighted(function, constant):
        def total(*arguments):
            parts = function(*arguments, removed, constant)[: len(cotangents)]
            return sum((c * part).sum() for c, part in zip(cotangents, parts, strict=True))

        return total

    ours, plain = (
        jax.jit(each)(*arguments, removed, last) for each, last in ((project, whiten), (plain_project, JITTER))
    )
    assert_trees_close(ours[:4], plain, rtol=1e-9)
    got = gradients(weighted(project, whiten), *arguments)
    want = gradients(weighted(plain_project, JITTER), *arguments)
    # The antisymmetric parts of gradients in Kzz and S say nothing.
    for i in (0, 4):
        symmetric = [0.5 * (tree[i] + np.swapaxes(tree[i], -1, -2)) for tree in (got, want)]
        assert_allclose(*symmetric, rtol=1e-9, atol=1e-8 if i == 0 else 1e-9)
    assert_trees_close(got[1:4] + got[5:], want[1:4] + want[5:], rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("size", [3, 201])
@pytest.mark.usefixtures("x64")
def test_a_weighted_gram_matrix_is_symmetric_to_the_bit(size, rng):
    """In one piece and in quarters, which have different sizes; from it, precisions are made without another copy."""
    A, weight = rng.normal(size=(1, size, 40)), rng.normal(size=(2, 40))
    found = np.asarray(weighted_gram(A, weight))
    assert_allclose(found, np.einsum("mb,kb,nb->kmn", A[0], weight, A[0]), atol=1e-12 * size)
    np.testing.assert_array_equal(found, np.swapaxes(found, -1, -2))


@pytest.mark.usefixtures("x64")
def test_a_variance_that_rounds_below_zero_keeps_its_derivative(rng):
    """Prior variances a little too small, as by rounding, and a posterior that is all but certain."""
    (Kzz, Kzx, _, m, S, at_Z), (_, v, _, _) = random_projection(rng)
    L = np.linalg.cholesky(Kzz + JITTER * np.eye(len(Kzz)))
    A, whiten, S = np.linalg.solve(L, Kzx), np.linalg.inv(L), 1e-30 * S
    kxx = (A * A).sum(0) - 1e-15 * np.arange(A.shape[1])

    def total(kxx, S):
        return (v * project(Kzz, Kzx, kxx, m, S, at_Z, 1.0, whiten)[1]).sum()

    assert np.all(np.asarray(jax.jit(project)(Kzz, Kzx, kxx, m, S, at_Z, 1.0, whiten)[1]) > 0.0)
    of_kxx, of_S = gradients(total, kxx, S)
    assert_allclose(of_S, np.einsum("mb,kb,nb->kmn", A, v, A), rtol=1e-10, atol=1e-12)
    assert_allclose(of_kxx, v.sum(0), rtol=1e-14)


# -- single precision ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("basis", sorted(bases.BASES))
@pytest.mark.parametrize("likelihood", [Gaussian(), StudentT()], ids=repr)
@pytest.mark.usefixtures("x64")
def test_rows_in_single_precision(basis, likelihood, rng):
    """The bound and its gradients agree to single precision, and are double themselves."""
    parameters, q, batch, constants = make_problem(likelihood, rng, n_mean_inducing=5, basis=basis)
    constants = constants._replace(jitter=1e-6)

    def both(X):
        rows = batch._replace(X=X)
        return jax.jit(
            jax.value_and_grad(lambda p, m, S: bounds.bound_given_q(basis, p, m, S, rows, constants), (0, 1, 2))
        )(parameters, q.mean, q.cov)

    single, double = both(batch.X.astype("float32")), both(batch.X)
    assert all(leaf.dtype == "float64" for leaf in jax.tree.leaves(single))
    for one, other in zip(jax.tree.leaves(single), jax.tree.leaves(double), strict=True):
        assert_allclose(one, other, atol=2e-4 * max(1.0, np.abs(other).max(initial=0.0)))
    assert abs(single[0] - double[0]) > 1e-12  # and it is single precision


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("options", [{"n_mean_inducing": 20, "batch_size": 100}, {"solver": "lbfgs"}], ids=repr)
def test_fits_in_single_precision(options, rng):
    X = rng.uniform(-3, 3, size=(300, 2))
    y = np.sin(X).sum(1) + 0.1 * rng.normal(size=300)
    options = {"n_inducing": 30, "max_iter": 100, "random_state": 0, **options}
    X = X + 2000.0
    single, double = (NGDSVGPRegressor(dtype=dtype, **options).fit(X, y) for dtype in (np.float32, "float64"))
    relative = [model.jitter_ / model.kernel_.diag(X).mean() for model in (single, double)]
    assert relative[0] > 0.9e-6 > 1e-7 > relative[1]
    (mean, std), (mean_64, std_64) = (model.predict(X, return_std=True) for model in (single, double))
    assert mean.dtype == std.dtype == "float64"
    assert r2_score(mean_64, mean) > 0.999
    assert_allclose(std, std_64, rtol=0.1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_classes_in_single_precision(rng):
    X = rng.normal(size=(200, 2))
    options = {"n_inducing": 20, "max_iter": 60, "random_state": 0}
    single, double = (NGDSVGPClassifier(dtype=dtype, **options).fit(X, X[:, 0] > 0) for dtype in ("float32", "float64"))
    assert_allclose(single.predict_proba(X), double.predict_proba(X), atol=0.02)


def test_rows_beyond_single_precision_are_refused():
    X = np.array([[0.0], [1e19]])
    with pytest.raises(ValueError, match=r"X holds values up to 1e\+19.*dtype='float32'"):
        NGDSVGPRegressor(dtype="float32", normalize_X=False).fit(X, [0.0, 1.0])
