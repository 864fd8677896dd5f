"""Little noise, many rows, large amplitudes: every engine against the collapsed bound, to its digits.

The rows lie close to a surface of three dimensions in sixteen columns, so that covariances are nearly singular, and
the signal-to-noise ratio N k / s^2 goes from 5e5 to 5e15.
"""

import warnings
from typing import NamedTuple

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import cho_solve, cholesky, solve_triangular
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern
from threadpoolctl import threadpool_limits

from skgp_natgrad import Constant, NGDSVGPClassifier, NGDSVGPRegressor, kernels, svgp
from skgp_natgrad.likelihoods import Gaussian, Poisson, StudentT
from skgp_natgrad.solve import closed_form
from skgp_natgrad.step import step
from skgp_natgrad.step.algorithm import Algorithm
from skgp_natgrad.step.chunk import STEPS_PER_CALL
from skgp_natgrad.step.state import initial_state
from skgp_natgrad.step.whitening import settled
from skgp_natgrad.variational import bound as bounds
from skgp_natgrad.variational.bases import Weights
from skgp_natgrad.variational.model import Batch, Constants, Parameters
from skgp_natgrad.variational.parameterizations import PARAMETERIZATIONS
from skgp_natgrad.variational.points import Masks, Points

from .conftest import make_problem

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

N, D, N_NEW = 5000, 16, 200
JITTER = 1e-8
RATIOS = [(1.0, 1e-2), (1.0, 1e-8), (1096.0, 1e-4), (1e4, 1e-2), (1e4, 1e-8)]


def make_table(n_rows):
    rng = np.random.default_rng(0)
    T = rng.uniform(-1, 1, size=(n_rows, 3))
    X = np.sin(T @ rng.normal(size=(3, D)) + rng.uniform(0, 6, D)) + 0.01 * rng.normal(size=(n_rows, D))
    y = np.sin(2 * T).sum(1)
    return X, (y - y.mean()) / y.std(), rng


@pytest.fixture(scope="module")
def table():
    X, y, rng = make_table(N)
    return X, y, X[:N_NEW] + 0.1 * rng.normal(size=(N_NEW, D))


def points(X, n):
    return X[np.random.default_rng(1).choice(len(X), n, replace=False)]


def kernel_of(amplitude, family):
    return ConstantKernel(amplitude, "fixed") * family


SMOOTH, ROUGH = RBF(6.0, "fixed"), Matern(6.0, "fixed", nu=2.5)


def regressor(kernel, noise, Z, **options):
    """Hyperparameters and points fixed; one step of size one on all rows, if nothing else is said."""
    options = {"gamma_schedule": Constant(1.0), "max_iter": 1, "batch_size": N, "random_state": 0, **options}
    options = {"likelihood": Gaussian(noise, "fixed"), "optimizer": None, "tol": 0.0, **options}
    return NGDSVGPRegressor(kernel, inducing_init=Z, normalize_X=False, normalize_y=False, jitter=JITTER, **options)


# -- the collapsed bound, and its predictions ------------------------------------------------


class Double:
    """LAPACK's factorisation and solves."""

    dtype = float

    @staticmethod
    def factor(K):
        return cholesky(K, lower=True)

    @staticmethod
    def solve(L, b, transposed=False):
        return solve_triangular(L, b, lower=True, trans=int(transposed))


class Extended:
    """The same in extended precision, a column at a time."""

    dtype = np.longdouble

    @staticmethod
    def factor(K):
        L = K.copy()
        for j in range(len(L)):
            L[j, j] = np.sqrt(L[j, j])
            L[j + 1 :, j] /= L[j, j]
            L[j + 1 :, j + 1 :] -= np.outer(L[j + 1 :, j], L[j + 1 :, j])
        return np.tril(L)

    @staticmethod
    def solve(L, b, transposed=False):
        b = b.copy()
        for j in range(len(L))[:: -1 if transposed else 1]:
            b[j] /= L[j, j]
            rest, column = (slice(None, j), L[j, :j]) if transposed else (slice(j + 1, None), L[j + 1 :, j])
            b[rest] -= np.multiply.outer(column, b[j])
        return b


def whitened(kernel, Z, tables, algebra, jitter=JITTER):
    Kzz = kernel(Z).astype(algebra.dtype)
    L = algebra.factor(Kzz + jitter * np.diag(Kzz).mean() * np.eye(len(Z), dtype=algebra.dtype))
    return [algebra.solve(L, kernel(Z, X).astype(algebra.dtype)) for X in tables]


def collapsed(kernel, noise, Z, X, y, X_new, algebra=Double, jitter=JITTER):
    """Titsias' bound, and its optimal mean and variance of f at ``X_new``."""
    A, A_new = whitened(kernel, Z, (X, X_new), algebra, jitter)
    noise = algebra.dtype(noise)
    C = algebra.factor(np.eye(len(Z), dtype=algebra.dtype) + A @ A.T / noise)
    b = algebra.solve(C, A @ y / noise)
    bound = -0.5 * (len(X) * np.log(2 * np.pi * noise) + (y @ y) / noise - b @ b) - np.log(np.diag(C)).sum()
    bound -= 0.5 / noise * (kernel.diag(X).astype(algebra.dtype).sum() - (A * A).sum())
    B = algebra.solve(C, A_new)
    return bound, B.T @ b, kernel.diag(X_new) - (A_new**2).sum(0) + (B**2).sum(0)


def assert_is_optimum(model, expected, X_new, noise, digits=1e-6):
    bound, mean, var = (np.asarray(each, dtype=float) for each in expected)
    got, std = model.predict(X_new, return_std=True)
    assert_allclose(got, mean, atol=digits * np.abs(mean).max())
    assert_allclose(std**2, var + noise, rtol=digits)
    assert_allclose(model.elbo_, bound, rtol=digits)
    assert model.n_rejected_steps_ == 0


# -- natural gradients -----------------------------------------------------------------------


# Five hundred points of the smooth kernel, whose covariances are the nearest to singular ones.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "n_points"),
    [(SMOOTH, 20), (ROUGH, 20), (SMOOTH, 100), (ROUGH, 100), (SMOOTH, 500)],
    ids=["smooth-20", "rough-20", "smooth-100", "rough-100", "smooth-500"],
)
def test_one_full_step_is_the_optimum(n_points, family, table):
    X, y, X_new = table
    Z = points(X, n_points)
    for amplitude, noise in RATIOS if n_points <= 100 else (RATIOS[0], RATIOS[1], RATIOS[-1]):
        kernel = kernel_of(amplitude, family)
        model = regressor(kernel, noise, Z).fit(X, y)
        assert_is_optimum(
            model, collapsed(kernel, noise, Z, X, y, X_new), X_new, noise, digits=1e-8 if n_points <= 100 else 1e-6
        )


@pytest.mark.slow
def test_values_without_noise_are_fitted_to_the_digits_of_extended_precision():
    """With nothing set: in one step, with the kernel, the noise and the jitter that are chosen for them."""
    rng = np.random.default_rng(3)
    X, X_new = (rng.uniform(-3.0, 3.0, size=(n, 2)) for n in (150, 40))
    y = X[:, 0] ** 2 + np.sin(X[:, 1])
    model = NGDSVGPRegressor(random_state=0).fit(X, y)
    noise, kernel = np.ravel(model.likelihood_.variance)[0], model.kernel_
    unit, unit_new = ((each - X.mean(0)) / X.std(0) for each in (X, X_new))
    assert len(X) * kernel.diag(unit).mean() / noise > 1e9
    jitter = model.jitter_ / kernel.diag(unit).mean()
    scaled = (y - y.mean()) / y.std()
    _, mean, _ = collapsed(kernel, noise, unit, unit, scaled, unit_new, Extended, jitter)
    got = (model.predict(X_new) - y.mean()) / y.std()
    assert_allclose(got, mean.astype(float), atol=1e-6 * float(np.abs(mean).max()))


@pytest.mark.slow
@pytest.mark.parametrize(("amplitude", "noise"), [(1.0, 1e-8), (1e4, 1e-8)])
def test_one_full_step_has_the_digits_of_extended_precision(amplitude, noise, table):
    X, y, X_new = table
    Z, kernel = points(X, 60), kernel_of(amplitude, SMOOTH)
    expected = collapsed(kernel, noise, Z, X, y, X_new, Extended)
    assert_is_optimum(regressor(kernel, noise, Z).fit(X, y), expected, X_new, noise, digits=1e-9)


@pytest.mark.parametrize("jitter", [JITTER, 1e-10])
@pytest.mark.parametrize(("amplitude", "noise"), RATIOS)
def test_the_closed_form_has_the_digits_of_extended_precision(amplitude, noise, jitter, table):
    """One step on all rows, in one pass over blocks of them."""
    X, y, X_new = table
    Z, kernel = points(X, 60), kernel_of(amplitude, SMOOTH)
    options = {"likelihood": Gaussian(noise, "fixed"), "solver": "evidence", "n_inducing": 60, "inducing_init": Z}
    model = NGDSVGPRegressor(kernel, **options, normalize_X=False, normalize_y=False, jitter=jitter).fit(X, y)
    expected = collapsed(kernel, noise, Z, X, y, X_new, Extended, jitter)
    assert_is_optimum(model, expected, X_new, noise, digits=1e-8)


@pytest.mark.parametrize("n_points", [20, 60])
@pytest.mark.parametrize("noise", [1e-2, 1e-6, 1e-8])
def test_leave_one_out_has_the_digits_of_extended_precision(noise, n_points, table, x64, monkeypatch):
    """At worst each row is an inducing point, and the leverage of all is nearly one."""
    # The exact process, which has no jitter, is compared in its own tests.
    monkeypatch.setattr(closed_form.exact, "places", lambda *_: None)
    X, y, kernel = table[0][:60], table[1][:60], kernel_of(1.0, SMOOTH)
    Z = points(X, n_points)
    plan = svgp.Plan(
        (kernel,),
        Gaussian(noise, "fixed"),
        n_inducing=n_points,
        inducing_init=Z,
        jitter=JITTER,
        settings=svgp.Settings(algorithm=Algorithm(solver="evidence")),
    )
    rows = svgp.Table(X, y[None], np.ones(60))
    state, constants = svgp.init(plan, rows, random_state=0)
    found = closed_form.solve(state.parameters, constants, rows, np.random.RandomState(0)).held_out.mean
    each = []
    for i in range(60):
        rest = np.delete(np.arange(60), i)
        _, mean, var = collapsed(kernel, noise, Z, X[rest], y[rest], X[i : i + 1], Extended)
        each.append(-0.5 * (np.log(2 * np.pi * (var + noise)) + (y[i] - mean) ** 2 / (var + noise)))
    assert_allclose(found, float(np.mean(each)), rtol=1e-5)


@pytest.mark.parametrize(("amplitude", "noise"), [(1.0, 1e-2), (1.0, 1e-8), (1e4, 1e-8)])
def test_one_left_out_of_repeated_rows_has_the_digits_of_extended_precision(rng, amplitude, noise, table, x64):
    """Two targets at each X, three times each: as with 120 rows, of which one is left out."""
    kernel = kernel_of(amplitude, SMOOTH)
    X, y = np.repeat(table[0][:20], 2, axis=0), np.repeat(table[1][:20], 2)
    y = y + np.sqrt(noise) * rng.normal(size=40)
    Z = points(X, 20)
    settings = svgp.Settings(algorithm=Algorithm(solver="evidence"))
    plan = svgp.Plan((kernel,), Gaussian(noise, "fixed"), jitter=JITTER, settings=settings)
    plan = plan._replace(n_inducing=20, inducing_init=Z)
    rows = svgp.Table(X, y[None], np.full(40, 3.0))
    state, constants = svgp.init(plan, rows, random_state=0)
    found = closed_form.solve(state.parameters, constants, rows, np.random.RandomState(0)).held_out.mean
    each = []
    for i in range(40):
        rest = np.delete(np.repeat(np.arange(40), 3), 3 * i)
        _, mean, var = collapsed(kernel, noise, Z, X[rest], y[rest], X[i : i + 1], Extended)
        each.append(-0.5 * (np.log(2 * np.pi * (var + noise)) + (y[i] - mean) ** 2 / (var + noise)))
    assert_allclose(found, float(np.mean(each)), rtol=1e-5)


@pytest.mark.parametrize(("amplitude", "noise"), RATIOS)
def test_minibatch_steps_are_the_recursion(amplitude, noise, table):
    """Sixty steps on the fit's own batches, in NumPy: precision and shift each a weighted mean over these."""
    n_rows, (X, y, X_new) = 4000, table
    X, y = X[:n_rows], y[:n_rows]
    n_points, size, gamma, n_steps = 60, 512, 0.1, 3 * STEPS_PER_CALL
    Z, kernel = points(X, n_points), kernel_of(amplitude, SMOOTH)
    options = {"batch_size": size, "gamma_schedule": gamma, "max_iter": n_steps}
    model = regressor(kernel, noise, Z, **options).fit(X, y)
    assert model.n_rejected_steps_ == 0
    curve, expected, var = recursion(kernel, noise, Z, X, y, X_new, size, gamma, n_steps)
    assert_allclose(model.elbo_curve_, curve, rtol=1e-6)
    mean, std = model.predict(X_new, return_std=True)
    assert_allclose(mean, expected, atol=1e-6 * np.abs(expected).max())
    assert_allclose(std**2, var + noise, rtol=1e-6)


# Two threads of BLAS wait for each other longer than such small products take, where other processes are at work.
@threadpool_limits.wrap(limits=1, user_api="blas")
def recursion(kernel, noise, Z, X, y, X_new, size, gamma, n_steps, jitter=JITTER):
    """The bound of each minibatch before its step, and the mean and variance of f at ``X_new`` in the end."""
    (A, A_new), n_points = whitened(kernel, Z, (X, X_new), Double, jitter), len(Z)
    precision, shift, residual = np.eye(n_points), np.zeros(n_points), kernel.diag(X) - (A**2).sum(0)
    scale, bounds = len(X) / size / noise, []
    for batch in drawn(len(X), size, n_steps):
        A_b, C = A[:, batch], np.linalg.cholesky(precision)
        m, C_inv = cho_solve((C, True), shift), solve_triangular(C, np.eye(n_points), lower=True)
        fit = (y[batch] - A_b.T @ m) ** 2 + residual[batch] + ((C_inv @ A_b) ** 2).sum(0)
        kl = 0.5 * ((C_inv**2).sum() + m @ m - n_points) + np.log(np.diag(C)).sum()
        bounds.append(-0.5 * (len(X) * np.log(2 * np.pi * noise) + scale * fit.sum()) - kl)
        precision = (1 - gamma) * precision + gamma * (np.eye(n_points) + scale * A_b @ A_b.T)
        shift = (1 - gamma) * shift + gamma * scale * A_b @ y[batch]
    C = np.linalg.cholesky(precision)
    mean, B = A_new.T @ cho_solve((C, True), shift), solve_triangular(C, A_new, lower=True)
    return np.array(bounds), mean, kernel.diag(X_new) - (A_new**2).sum(0) + (B**2).sum(0)


def drawn(n_rows, size, n_steps):
    """The rows of the first minibatches of a fit with ``random_state=0``."""
    random_state, rows = np.random.RandomState(0), np.empty(0, dtype=int)
    batches = []
    for _ in range(n_steps // STEPS_PER_CALL):
        while len(rows) < STEPS_PER_CALL * size:
            rows = np.concatenate([rows, random_state.permutation(n_rows)])
        batches += list(rows[: STEPS_PER_CALL * size].reshape(-1, size))
        rows = rows[STEPS_PER_CALL * size :]
        random_state.random_sample((STEPS_PER_CALL, 0))
    return batches


@pytest.mark.slow
@pytest.mark.parametrize("parameterization", sorted(PARAMETERIZATIONS))
def test_every_parameterization_climbs_to_the_optimum(parameterization, table):
    """From the optimum of half the rows: the bound of all rises towards the collapsed one, and nothing is rejected."""
    X, y, X_new = table
    Z, noise, kernel = points(X, 40), 1e-4, kernel_of(1096.0, SMOOTH)
    model = regressor(kernel, noise, Z, warm_start=True).fit(X[::2], y[::2])
    model.set_params(parameterization=parameterization, gamma_schedule=0.02, max_iter=100).fit(X, y)
    best = collapsed(kernel, noise, Z, X, y, X_new)[0]
    first, last = model.elbo_curve_[0], model.elbo_
    assert count_falls(model) == 0
    assert model.n_rejected_steps_ == 0
    # In natural parameters .98^100 of the way is left, which is .13; the bound is a parabola at its top.
    assert best * (1.0 + np.sign(best) * 1e-9) >= last > first + 0.9 * (best - first)


@pytest.mark.slow
@pytest.mark.parametrize(("amplitude", "noise"), RATIOS)
def test_auto_reaches_the_optimum(amplitude, noise, table):
    X, y, X_new = table
    Z, kernel = points(X, 60), kernel_of(amplitude, SMOOTH)
    model = regressor(kernel, noise, Z, gamma_schedule="auto", max_iter=60).fit(X, y)
    assert_is_optimum(model, collapsed(kernel, noise, Z, X, y, X_new), X_new, noise)


@pytest.mark.slow
@pytest.mark.parametrize(("amplitude", "noise"), RATIOS)
def test_auto_on_minibatches_is_as_good_as_the_optimum(amplitude, noise, table):
    X, y, X_new = table
    Z, kernel = points(X, 60), kernel_of(amplitude, SMOOTH)
    model = regressor(kernel, noise, Z, gamma_schedule="auto", batch_size=512, max_iter=200).fit(X, y)
    _, mean, _ = collapsed(kernel, noise, Z, X, y, X_new)
    target = collapsed(kernel, noise, points(X, 500), X, y, X_new)[1]
    error, least = (np.sqrt(np.mean((each - target) ** 2)) for each in (model.predict(X_new), mean))
    assert error < 1.3 * least
    assert model.n_rejected_steps_ == 0


@pytest.mark.slow
@pytest.mark.parametrize(("amplitude", "noise"), RATIOS)
def test_a_stream_in_three_parts_is_the_whole(amplitude, noise, table):
    X, y, X_new = table
    Z, kernel = points(X, 60), kernel_of(amplitude, SMOOTH)
    model, bounds = regressor(kernel, noise, Z), []
    for part in np.array_split(np.arange(N), 3):
        model.partial_fit(X[part], y[part])
        bounds.append(model.elbo_)
        assert model.n_rejected_steps_ == 0
    bound, mean, var = collapsed(kernel, noise, Z, X, y, X_new)
    got, std = model.predict(X_new, return_std=True)
    assert_allclose(got, mean, atol=1e-6 * np.abs(mean).max())
    assert_allclose(std**2, var + noise, rtol=1e-6)
    # The density of the later rows given the earlier ones: together the density of all.
    assert_allclose(sum(bounds), bound, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("amplitude", "noise"), RATIOS[:3])
def test_points_that_stand_twice_in_a_stream(amplitude, noise, table):
    """Each copy goes on from one of the old ones, and the bounds remain bounds."""
    X, y, X_new = table
    Z, kernel = np.repeat(points(X, 20), [2] * 5 + [1] * 15, axis=0), kernel_of(amplitude, SMOOTH)
    model, bounds = regressor(kernel, noise, Z), []
    for part in np.array_split(np.arange(N), 3):
        bounds.append(model.partial_fit(X[part], y[part]).elbo_)
    bound, mean, _ = collapsed(kernel, noise, Z, X, y, X_new)
    assert_allclose(model.predict(X_new), mean, atol=1e-4 * np.abs(mean).max())
    assert_allclose(sum(bounds), bound, rtol=1e-5)


@pytest.mark.slow
def test_lbfgs_starts_from_the_collapsed_bound(table):
    X, y, X_new = table
    Z, noise, kernel = points(X, 60), 1e-6, kernel_of(1096.0, SMOOTH)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = regressor(kernel, noise, Z, solver="lbfgs", optimizer="adam", n_inducing=60).fit(X, y)
    # The points are free: it can but have gained.
    assert model.elbo_ >= collapsed(kernel, noise, Z, X, y, X_new)[0]


# -- bases with more points for the mean -----------------------------------------------------


def best_mean(kernel, noise, Z, Z_mean, X, y, X_new):
    """Appendix D, whitened by all points in extended precision."""
    both = np.concatenate([Z, Z_mean])
    A, A_new = whitened(kernel, both, (X, X_new), Extended)
    C = Extended.factor(np.eye(len(both), dtype=np.longdouble) + A @ A.T / np.longdouble(noise))
    return np.asarray(A_new.T @ Extended.solve(C, Extended.solve(C, A @ y / noise), True), dtype=float)


@pytest.mark.slow
@pytest.mark.parametrize(("amplitude", "noise"), RATIOS)
def test_the_exact_mean_is_that_of_all_points(amplitude, noise, table):
    X, y, X_new = table
    Z, kernel = points(X, 40), kernel_of(amplitude, SMOOTH)
    options = {"n_inducing": 40, "n_mean_inducing": 60}
    model = regressor(kernel, noise, Z, mean_solver="exact", **options).fit(X, y)
    mean = best_mean(kernel, noise, Z, model.mean_inducing_points_, X, y, X_new)
    assert_allclose(model.predict(X_new), mean, atol=1e-6 * np.abs(mean).max())
    assert model.elbo_ > collapsed(kernel, noise, Z, X, y, X_new)[0]


@pytest.mark.slow
@pytest.mark.parametrize("mean_solver", ["adam", "natural", "diagonal"])
@pytest.mark.parametrize("basis", ["orthogonal", "hybrid"])
def test_mean_only_points_never_harm(basis, mean_solver, table):
    """From the optimum of the inducing points alone, steps of the further weights raise the bound."""
    if basis == "hybrid" and mean_solver != "adam":
        pytest.skip("the hybrid basis has no natural gradient of the mean-only weights")
    X, y, X_new = table[0][::4], table[1][::4], table[2]
    Z, noise, kernel = points(X, 60), 1e-4, kernel_of(1096.0, SMOOTH)
    options = {"n_mean_inducing": 60, "n_inducing": 60, "basis": basis, "mean_solver": mean_solver}
    model = regressor(kernel, noise, Z, gamma_schedule=0.5, learning_rate=1e-5, max_iter=40, **options).fit(X, y)
    assert model.elbo_ >= collapsed(kernel, noise, Z, X, y, X_new)[0] - 1e-6 * len(X)
    assert model.n_rejected_steps_ == 0


# -- the decoupled basis ---------------------------------------------------------------------


class Decoupled(NamedTuple):
    """All that the bound of the decoupled basis depends on, positive numbers in logarithms."""

    amplitude: np.ndarray
    length_scale: np.ndarray
    noise: np.ndarray
    Z: np.ndarray
    Z_mean: np.ndarray
    a: np.ndarray
    root: np.ndarray


def covariance(log_amplitude, log_length_scale, A, B):
    squared = ((A[:, None] - B) ** 2).sum(-1)
    return np.exp(log_amplitude - 0.5 * squared * np.exp(-2 * log_length_scale))


def extended(tree):
    return jax.tree.map(lambda x: np.asarray(x, dtype=np.longdouble), tree)


def decoupled(v, X, y):
    """Eq. 8 in extended precision: the bound, and the moments at the rows."""
    X, y, v = extended((X, y, v))
    kernel, identity = v[:2], np.eye(len(v.Z), dtype=np.longdouble)
    C = Extended.factor(identity + v.root.T @ covariance(*kernel, v.Z, v.Z) @ v.root)
    T, C_inv = (Extended.solve(C, each) for each in (v.root.T @ covariance(*kernel, v.Z, X), identity))
    mean, var = v.a @ covariance(*kernel, v.Z_mean, X), np.exp(v.amplitude) - (T * T).sum(0)
    kl = v.a @ covariance(*kernel, v.Z_mean, v.Z_mean) @ v.a + (C_inv**2).sum() - len(C)
    kl = 0.5 * kl + np.log(np.diag(C)).sum()
    fit = ((y - mean) ** 2 + var).sum() * np.exp(-v.noise)
    return -0.5 * (len(y) * (np.log(2 * np.longdouble(np.pi)) + v.noise) + fit) - kl, mean, var


def slope(v, field, direction, X, y):
    """The derivative of `decoupled`'s bound, from differences of fourth order."""
    value = extended(getattr(v, field))
    step = np.longdouble(1e-6) * (np.abs(value).max() if field in ("a", "root") else 1)
    ahead, behind, far_ahead, far_behind = (
        decoupled(v._replace(**{field: value + i * step * direction}), X, y)[0] for i in (1, -1, 2, -2)
    )
    return (8 * (ahead - behind) - (far_ahead - far_behind)) / (12 * step)


def decoupled_optimum(v, X, y):
    """The weights and the root of the collapsed bound's optimum, with the points of the covariance for the mean."""
    L = Extended.factor(covariance(*extended(v[:2]), *extended((v.Z, v.Z))))
    A = Extended.solve(L, covariance(*extended(v[:2]), *extended((v.Z, X))))
    precision = A @ A.T * np.exp(-extended(v.noise))
    C = Extended.factor(np.eye(len(L), dtype=np.longdouble) + precision)
    w = Extended.solve(C, Extended.solve(C, A @ y * np.exp(-extended(v.noise))), True)
    a, root = (Extended.solve(L, each, True).astype(float) for each in (w, Extended.factor(precision)))
    return v._replace(Z_mean=v.Z, a=a, root=root)


@jax.jit
def decoupled_in_jax(v, X, y):
    """The bound, the latent moments, and the gradient."""
    n_points = len(v.Z)
    twin = kernels.from_sklearn(kernel_of(1.0, SMOOTH), D).value
    constants = Constants(None, Masks(np.ones(n_points), np.ones(n_points)), np.zeros((1, 1)), 1.0, 1.0, JITTER, 1.0)
    batch = Batch(X, y[None], np.ones(len(y)), np.arange(n_points))
    likelihood = Gaussian().value_and_bounds(1)[0]

    def bound(v):
        parameters = Parameters(
            (jax.tree.structure(twin).unflatten(v[:2]),),
            jax.tree.map(lambda x: v.noise.reshape(np.shape(x)), likelihood),
            Points(v.Z, v.Z_mean),
            Weights(v.a[None], v.root[None]),
        )
        # q(v) has no part in it.
        no_q = np.zeros((1, n_points)), np.eye(n_points)[None]
        return bounds.bound_and_moments("decoupled", parameters, *no_q, batch, constants)

    (value, latent), gradient = jax.value_and_grad(bound, has_aux=True)(v)
    return value, latent.rows.mean[0], latent.rows.var[0], gradient


@pytest.mark.parametrize(("amplitude", "noise"), RATIOS)
@pytest.mark.usefixtures("x64")
def test_the_decoupled_bound_has_the_digits_of_extended_precision(amplitude, noise, table, rng):
    """At random weights, and at the optimum: there it is the collapsed bound, and has no slope in q."""
    (X, y, X_new), n_points = table, 20
    X, y = X[:500], y[:500]
    a, root = rng.normal(size=n_points) / (10 * amplitude), rng.normal(size=(n_points, n_points))
    Z, Z_mean = np.split(points(X, 2 * n_points), 2)
    hyperparameters = np.log([amplitude, SMOOTH.length_scale, noise])
    start = Decoupled(*hyperparameters, Z, Z_mean, a, root / np.sqrt(n_points * amplitude))
    optimum, gradients = decoupled_optimum(start, X, y), []
    for v in (start, optimum):
        bound, mean, var = decoupled(v, X, y)
        got = jax.tree.map(np.asarray, decoupled_in_jax(v, X, y))
        assert_allclose(got[0], float(bound), rtol=1e-10)
        assert_allclose(got[1], mean.astype(float), atol=1e-11 * float(np.abs(mean).max()))
        # What is left of the prior's variance has the prior's rounding.
        assert_allclose(got[2], var.astype(float), rtol=1e-12, atol=1e-14 * amplitude)
        gradients.append(got[3])
        for field in Decoupled._fields if v is start else Decoupled._fields[:5]:
            direction = rng.normal(size=np.shape(getattr(v, field)))
            expected = float(slope(v, field, direction, X, y))
            terms = np.abs(getattr(got[3], field) * direction)
            assert_allclose((getattr(got[3], field) * direction).sum(), expected, rtol=1e-8, atol=1e-8 * terms.max())
    best = collapsed(kernel_of(amplitude, SMOOTH), noise, Z, X, y, X_new, Extended, jitter=0.0)[0]
    assert_allclose(float(bound), float(best), rtol=1e-8)
    for field in ("a", "root"):
        first, last = (np.abs(getattr(gradient, field)).max() for gradient in gradients)
        assert last < 1e-9 * first


@pytest.mark.slow
@pytest.mark.parametrize(("amplitude", "noise"), RATIOS)
def test_adam_climbs_in_the_decoupled_basis(amplitude, noise, table):
    """Every step on the full batch raises the bound, and the posterior is finite."""
    X, y, X_new = table
    Z, kernel = points(X, 20), kernel_of(amplitude, SMOOTH)
    options = {"basis": "decoupled", "solver": "adam", "optimizer": "adam", "learning_rate": 1e-3, "max_iter": 60}
    model = regressor(kernel, noise, Z, n_inducing=20, **options).fit(X, y)
    best, best_mean, _ = collapsed(kernel, noise, Z, X, y, X_new)
    assert np.all(np.diff(model.elbo_curve_) > 0)
    assert model.elbo_curve_[0] + 0.3 * (best - model.elbo_curve_[0]) < model.elbo_ < best
    assert model.n_rejected_steps_ == 0
    mean, std = model.predict(X_new, return_std=True)
    # It has begun at zero.
    assert np.mean((mean - best_mean) ** 2) < np.mean(best_mean**2)
    assert np.all((std**2 >= noise) & (std**2 <= 1.001 * (amplitude + noise)))


# -- likelihoods that are not conjugate ------------------------------------------------------


def count_falls(model):
    curve = model.elbo_curve_
    return int((np.diff(curve) < -1e-7 * np.abs(curve[:-1])).sum())


@pytest.mark.slow
@pytest.mark.parametrize("amplitude", [1.0, 1e4])
@pytest.mark.parametrize("name", ["bernoulli", "poisson", "student_t"])
def test_the_bound_rises(name, amplitude):
    """Separable classes, counts without noise, outlier models of a smooth function: full batch, steps of up to 0.1."""
    X, f, _ = make_table(1000)
    options = {"inducing_init": points(X, 60), "optimizer": None, "gamma_schedule": "log_linear", "max_iter": 60}
    options |= {"tol": 0.0, "normalize_X": False, "kernel": kernel_of(amplitude, SMOOTH), "n_inducing": 60}
    if name == "bernoulli":
        model = NGDSVGPClassifier(**options).fit(X, f > 0)
    elif name == "poisson":
        model = NGDSVGPRegressor(likelihood=Poisson(), **options).fit(X, np.round(np.exp(3 * f)))
    else:
        model = NGDSVGPRegressor(likelihood=StudentT(4.0, 1e-3), normalize_y=False, **options).fit(X, f)
    assert count_falls(model) == 0
    assert model.elbo_curve_[-1] > model.elbo_curve_[0]
    if name != "student_t":  # the other ones are log-concave
        assert model.n_rejected_steps_ == 0
    assert model.n_rejected_steps_ == model.n_clipped_steps_


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [StudentT(4.0, 1e-2), StudentT(4.0, 1e-3)], ids=repr)
def test_student_t_is_as_good_as_the_optimum(likelihood, table):
    """Minibatches, amplitude 1096: the error of the Gaussian optimum of the same points, or less."""
    X, y, X_new = table
    Z, kernel = points(X, 60), kernel_of(1096.0, SMOOTH)
    options = {"likelihood": likelihood, "gamma_schedule": 0.1, "batch_size": 1024, "max_iter": 100}
    model = regressor(kernel, 1e-4, Z, **options).fit(X, y)
    target = collapsed(kernel, 1e-4, points(X, 500), X, y, X_new)[1]
    least = collapsed(kernel, 1e-4, Z, X, y, X_new)[1]
    error, least = (np.sqrt(np.mean((each - target) ** 2)) for each in (model.predict(X_new), least))
    assert error < 1.3 * least
    assert model.n_rejected_steps_ < 40


@pytest.mark.slow
def test_robust_max_of_two_classes(table):
    X, y, _ = table
    options = {"inducing_init": points(X, 60), "optimizer": None, "normalize_X": False, "n_inducing": 60, "tol": 0.0}
    options |= {
        "kernel": kernel_of(1096.0, SMOOTH),
        "gamma_schedule": "log_linear",
        "batch_size": 1024,
        "max_iter": 100,
    }
    model = NGDSVGPClassifier(likelihood="robust_max", random_state=0, **options).fit(X, y > 0)
    assert model.elbo_curve_[-20:].mean() > model.elbo_curve_[:5].mean()
    assert model.score(X, y > 0) > 0.98


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [256, N])
def test_training_into_little_noise(batch_size, table):
    """A smooth function without noise, all hyperparameters free: the noise falls, and nothing breaks on the way."""
    X, y, _ = table
    options = {"n_inducing": 60, "batch_size": batch_size, "max_iter": 300, "learning_rate": 0.05, "random_state": 0}
    model = NGDSVGPRegressor(1.0 * RBF(4.0), tol=0.0, **options).fit(X[:2000], y[:2000])
    assert model.likelihood_.variance < 0.01
    assert model.score(X[2000:], y[2000:]) > 0.99
    assert model.elbo_ > model.elbo_curve_[0]
    assert model.n_rejected_steps_ <= 0.05 * model.n_iter_


# -- single precision ------------------------------------------------------------------------


@pytest.mark.parametrize(("amplitude", "noise"), RATIOS)
def test_single_precision_has_its_digits_or_says_so(amplitude, noise, table):
    X, y, X_new = table
    Z, kernel = points(X, 60), kernel_of(amplitude, SMOOTH)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        single = regressor(kernel, noise, Z, dtype="float32").fit(X, y)
    double = regressor(kernel, noise, Z).set_params(jitter=1e-6).fit(X, y)
    told = any("dtype='float32' is too coarse" in str(each.message) for each in caught)
    difference = np.abs(single.predict(X_new) - double.predict(X_new)).max()
    assert told or difference < 0.05 * np.sqrt(noise)
    if (amplitude, noise) == (1.0, 1e-2):
        assert not told
    if amplitude / noise >= 1e7:
        assert told


# A decade or more from where the warning begins.
FINE, COARSE = [(1.0, 1e-2), (1.0, 1e-3), (100.0, 1e-2)], [(1.0, 1e-6), (100.0, 1e-4), (1e4, 1e-2), (1e4, 1e-8)]


def assert_single_precision(model, n_rows, bound, mean, var, caught, X_new):
    """The mean has single precision's digits; a warning says that the bound has not, if it has not."""
    told = any("dtype='float32' is too coarse" in str(each.message) for each in caught)
    assert told == (abs(model.elbo_ - bound) / n_rows > 5e-3)
    assert model.n_rejected_steps_ == 0
    got, std = model.predict(X_new, return_std=True)
    assert_allclose(got, mean, atol=1e-4 * np.abs(mean).max())
    assert_allclose(std**2, var + model.likelihood_.variance, rtol=1e-5)
    return told


@pytest.mark.slow
@pytest.mark.parametrize(("amplitude", "noise"), FINE + COARSE)
def test_single_precision_on_minibatches_says_where_the_bound_is_worse(amplitude, noise, table):
    n_rows, (X, y, X_new) = 4000, table
    X, y = X[:n_rows], y[:n_rows]
    Z, kernel, size, gamma, n_steps = points(X, 20), kernel_of(amplitude, SMOOTH), 512, 0.1, 3 * STEPS_PER_CALL
    options = {"batch_size": size, "gamma_schedule": gamma, "max_iter": n_steps, "dtype": "float32"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = regressor(kernel, noise, Z, **options).fit(X, y)
    curve, *moments = recursion(kernel, noise, Z, X, y, X_new, size, gamma, n_steps, jitter=1e-6)
    bound = curve[-model.n_iter_no_change :].mean()
    told = assert_single_precision(model, n_rows, bound, *moments, caught, X_new)
    assert told == ((amplitude, noise) in COARSE)


@pytest.mark.slow
@pytest.mark.parametrize(("amplitude", "noise"), FINE + COARSE)
def test_single_precision_in_a_stream_says_where_the_bound_is_worse(amplitude, noise, table):
    """At each of three parts, whose bounds are differences of the collapsed bounds of all rows so far."""
    X, y, X_new = table
    Z, kernel = points(X, 20), kernel_of(amplitude, SMOOTH)
    model, before = regressor(kernel, noise, Z, dtype="float32"), 0.0
    for part in np.array_split(np.arange(N), 3):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.partial_fit(X[part], y[part])
        seen = slice(part[-1] + 1)
        bound, *moments = collapsed(kernel, noise, Z, X[seen], y[seen], X_new, jitter=1e-6)
        told = assert_single_precision(model, len(part), bound - before, *moments, caught, X_new)
        assert told == ((amplitude, noise) in COARSE)
        before = bound


# -- hyperparameters and points that move ------------------------------------------------------


one_step = jax.jit(step.step, static_argnames="algorithm")
latent_moments = jax.jit(bounds.latent_moments, static_argnums=0)


@pytest.mark.slow
@pytest.mark.parametrize("n_mean", [0, 4])
@pytest.mark.parametrize("moves", [False, True], ids=["points stay", "points move"])
@pytest.mark.usefixtures("x64")
def test_the_posterior_mean_is_held_while_the_kernel_moves(moves, n_mean, rng):
    """A large step of the optimizer leaves the mean at the inducing points, wherever they now are, as it was."""
    parameters, q, batch, constants = make_problem(Gaussian(1e-4), rng, n_targets=1, n_mean_inducing=n_mean)
    method, constants = Algorithm(), constants._replace(train_points=float(moves))
    start = initial_state(q, parameters, constants, method)
    _, moved, _ = one_step(start, constants, batch, 0.0, 0.1, algorithm=method)
    moved = settled(moved, constants, method)
    assert np.abs(moved.parameters.log_kernels[0].k1.k1.constant_value - parameters.log_kernels[0].k1.k1.constant_value)
    assert moves == bool(np.any(moved.parameters.points.Z != parameters.points.Z))
    before, after = (
        latent_moments("orthogonal", state.parameters, state.q.mean, state.q.cov, where, constants).mean
        for where in [moved.parameters.points.Z]
        for state in (start, moved)
    )
    assert_allclose(after, before, rtol=1e-5, atol=1e-6)
    # The covariance is held in whitened coordinates, and the natural parameters belong to it.
    assert_allclose(moved.q.cov, q.cov, rtol=1e-12)
    assert_allclose(moved.q.nat1, np.einsum("kij,kj->ki", q.precision, moved.q.mean), rtol=1e-10)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_whitened_coordinates_are_held_where_the_noise_is_large(rng):
    """Where nothing but the kernel moves; and the state is the same however often it is looked at."""
    parameters, q, batch, constants = make_problem(Gaussian(10.0), rng, n_targets=1)
    method = Algorithm()
    start = initial_state(q, parameters, constants, method)
    _, moved, _ = one_step(start, constants, batch, 0.0, 0.1, algorithm=method)
    once = settled(moved, constants, method)
    twice = settled(once, constants, method)
    assert_allclose(once.q.mean, q.mean, rtol=1e-9)
    assert_allclose(twice.q.mean, once.q.mean, rtol=1e-9)


@pytest.mark.slow
def test_free_hyperparameters_do_not_throw_the_optimum_away(table):
    """From the optimum of fixed hyperparameters, on minibatches: training goes on, and does not begin anew."""
    X, y, _ = table
    noise, n_points = 3e-3, 300
    kernel = ConstantKernel(100.0) * RBF(6.0)
    options = {"likelihood": Gaussian(noise, (1e-8, 1.0)), "warm_start": True, "n_inducing": n_points}
    model = regressor(kernel, noise, points(X, n_points), **options).fit(X, y)
    reached = model.elbo_
    free = {"optimizer": "adam", "learning_rate": 0.01, "gamma_schedule": 0.1, "batch_size": 256}
    model.set_params(max_iter=100, **free).fit(X, y)
    # Bounds of single minibatches, which scatter by a tenth of a nat a row.
    assert model.elbo_curve_.min() > reached - 0.2 * N
    assert model.n_rejected_steps_ == 0
