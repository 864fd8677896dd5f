"""The mean of a regression on all rows: products by tiles, conjugate gradients, and the exact process' predictions."""

import pickle
import warnings

import jax
import numpy as np
import pytest
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, svgp
from skgp_natgrad._backend import in_place, placement, processes
from skgp_natgrad._backend.device import computation
from skgp_natgrad._backend.in_place import Tiles
from skgp_natgrad.kernels import from_sklearn
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.prediction import posterior
from skgp_natgrad.solve import row_means
from skgp_natgrad.solve.row_means import Preconditioner, conjugate_gradients
from skgp_natgrad.start import inducing_points, sizes
from skgp_natgrad.start.plan import check_plan
from skgp_natgrad.variational.model import exponential

KERNEL, NOISE = ConstantKernel(1.7, "fixed") * Matern(0.4, "fixed", nu=1.5), 0.05
STEP = svgp.Settings(algorithm=svgp.Algorithm(solver="evidence"))


def positive(rng, n):
    half = rng.normal(size=(n, n + 3))
    return half @ half.T / n


@pytest.mark.parametrize("n", [1, 7, 8, 30])
def test_products_by_tiles_are_those_of_the_matrix(rng, monkeypatch, n):
    monkeypatch.setattr(in_place, "_TILE_ROWS", 8)
    A, V = positive(rng, n), rng.normal(size=(n, 3))
    asked = []
    found = Tiles(lambda i, j: asked.append((len(i), len(j))) or A[np.ix_(i, j)], n)
    assert set(asked) == {(8, 8)}
    np.testing.assert_allclose(found @ V, A @ V, rtol=1e-5, atol=1e-5)
    assert Tiles.n_bytes(n) == sum(tile.nbytes for *_, tile in found._tiles)


def systems(rng, n=40, n_points=6):
    """A, its rest, noise, weights, and right-hand sides of four systems, some of which differ in few rows alone."""
    A = rng.normal(size=(n_points, n))
    weight = np.tile(rng.uniform(0.5, 2.0, size=(n, 1)), (1, 4))
    weight[:5, 1], weight[7, 2], weight[::2, 3] = 0.0, 3.0, 0.0
    return A, 0.3, np.array([0.1, 0.1, 0.2, 0.1]), weight, rng.normal(size=(n, 4))


def test_the_preconditioner_is_the_inverse_of_what_points_explain(rng):
    A, rest, noise, weight, R = systems(rng)
    found = Preconditioner.of(A, rest, noise, weight) @ R
    for c in range(4):
        seen = weight[:, c] > 0.0
        matrix = A[:, seen].T @ A[:, seen] + np.diag(rest + noise[c] / weight[seen, c])
        np.testing.assert_allclose(found[seen, c], np.linalg.solve(matrix, R[seen, c]), rtol=1e-8)
        assert np.all(found[~seen, c] == 0.0)


def test_conjugate_gradients_solve_each_system(rng):
    A, rest, noise, weight, Y = systems(rng)
    K = A.T @ A + rest * positive(rng, len(Y))
    preconditioner = Preconditioner.of(A, rest, noise, weight)
    found = conjugate_gradients(K, noise, weight, Y, preconditioner, 1e-12, 200)
    for c in range(4):
        seen = weight[:, c] > 0.0
        matrix = K[np.ix_(seen, seen)] + np.diag(noise[c] / weight[seen, c])
        np.testing.assert_allclose(found[seen, c], np.linalg.solve(matrix, Y[seen, c]), rtol=1e-8, atol=1e-10)
        assert np.all(found[~seen, c] == 0.0)
    # No more steps than asked for, and the first ones lower the error in the norm of the matrix.
    errors = []
    for n_steps in (1, 3, 9):
        error = conjugate_gradients(K, noise, weight, Y, preconditioner, 0.0, n_steps)[:, 0] - found[:, 0]
        errors.append(error @ K @ error + noise[0] * error @ (error / weight[:, 0]))
    assert errors[0] > errors[1] > errors[2]


def test_a_matrix_that_is_not_positive_has_no_solution(rng):
    A, rest, noise, weight, Y = systems(rng)
    preconditioner = Preconditioner.of(A, rest, noise, weight)
    assert conjugate_gradients(-positive(rng, len(Y)), noise, weight, Y, preconditioner, 1e-6, 50) is None
    assert conjugate_gradients(np.full((40, 40), np.nan), noise, weight, Y, preconditioner, 1e-6, 50) is None


@pytest.mark.parametrize("n", [200, 700])
def test_products_by_xla_are_those_of_tiles(n, rng):
    """Of whole and of padded blocks of rows."""
    X, V = rng.normal(size=(n, 2)), rng.normal(size=(n, 3))
    log_kernel = jax.tree.map(np.log, from_sklearn(KERNEL, 2).value)
    with computation():
        tiles = Tiles(lambda i, j: row_means._tile(log_kernel, X[i], X[j]), n)
        np.testing.assert_allclose(row_means._Products(log_kernel, X) @ V, tiles @ V, rtol=0.0, atol=1e-4)


class InDouble:
    """In the place of `Tiles`: the matrix as it is."""

    n_bytes = staticmethod(Tiles.n_bytes)

    def __init__(self, block, n_rows):
        at = np.arange(n_rows)
        self.matrix = np.asarray(block(at, at))

    def __matmul__(self, V):
        return self.matrix @ V


def table_of(rng, n_targets=1, n=240, noise=NOISE):
    X = rng.uniform(-1.0, 1.0, size=(n, 2))
    y = np.stack([np.sin(5.0 * X[:, 0] + k) + X[:, 1] ** 2 for k in range(n_targets)])
    y += np.sqrt(noise) * rng.normal(size=y.shape)
    return svgp.Table(X, y, rng.uniform(0.5, 2.0, size=n))


def plan_of(n_targets=1, n_rows=0, kernel=KERNEL, noise=NOISE):
    likelihood = Gaussian(np.full(n_targets, noise), "fixed")
    return svgp.Plan((kernel,), likelihood, n_inducing=20, n_mean_inducing=n_rows, jitter=1e-12, settings=STEP)


def trained(plan, table):
    return svgp.train(*svgp.init(plan, table, random_state=0), table, plan, random_state=0)


def exact(table, k, X, without=(), kernel=KERNEL, noise=NOISE):
    """The exact process' mean of the k-th target, by scikit-learn."""
    rows = np.setdiff1d(np.flatnonzero(~np.isnan(table.y[k])), without)
    process = GaussianProcessRegressor(kernel, alpha=noise / table.weight[rows], optimizer=None)
    return process.fit(table.X[rows], table.y[k, rows]).predict(X)


@pytest.fixture
def in_parts(monkeypatch):
    """Several tiles and blocks, fewer points that precondition than there are, and conjugate gradients to the end."""
    parts = {"_BLOCK_ROWS": 50, "_TOLERANCE": 1e-10, "_STEPS": 500, "_POINTS": 15}
    for name, value in parts.items():
        monkeypatch.setattr(row_means, name, value)
    monkeypatch.setattr(in_place, "_TILE_ROWS", 64)
    monkeypatch.setattr(sizes, "n_left_out", lambda n_points: 24)


def in_double(monkeypatch):
    monkeypatch.delenv(placement.SWITCH, raising=False)
    monkeypatch.setattr(row_means, "Tiles", InDouble)
    monkeypatch.setattr(row_means, "_tile", row_means.wide_jit(lambda log_kernel, *X: exponential(log_kernel)(*X)))


@pytest.mark.parametrize("n_targets", [1, 2])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("double", [False, True])
def test_the_mean_is_that_of_the_exact_process(rng, monkeypatch, in_parts, n_targets, missing, double):
    tolerance = 1e-8 if double else 1e-4
    if double:
        in_double(monkeypatch)
    table = table_of(rng, n_targets)
    if missing:
        table.y[0, :40] = np.nan
    plan = plan_of(n_targets, table.n_rows)
    result = trained(plan, table)
    # What has no target says nothing.
    n_seen = np.any(~np.isnan(table.y), axis=0).sum()
    assert n_seen - 20 <= len(result.state.parameters.points.Z_mean) < n_seen
    model, _ = svgp.condition(result.state, result.constants, plan)
    X = rng.uniform(-1.0, 1.0, size=(50, 2))
    mean, var = svgp.predict(model, X)
    for k in range(n_targets):
        np.testing.assert_allclose(mean[k], exact(table, k, X), rtol=tolerance, atol=tolerance)
    # Variances are those of the inducing points.
    plan = plan._replace(n_mean_inducing=0)
    few = trained(plan, table)
    np.testing.assert_allclose(var, svgp.predict(svgp.condition(few.state, few.constants, plan)[0], X)[1], rtol=1e-7)
    assert result.held_out.mean > few.held_out.mean


@pytest.mark.slow
def test_small_noise_leaves_the_digits_that_predictions_need(rng, in_parts):
    """A rough and a smooth part, 1e-5 of their variance as noise: as kin40k asks for."""
    kernel = ConstantKernel(0.08, "fixed") * Matern(3.0, "fixed", nu=0.5) + ConstantKernel(0.8, "fixed") * RBF(1.0)
    table = table_of(rng, n=600, noise=1e-5)
    plan = plan_of(1, table.n_rows, kernel, 1e-5)
    result = trained(plan, table)
    X = rng.uniform(-1.0, 1.0, size=(50, 2))
    mean, _ = svgp.predict(svgp.condition(result.state, result.constants, plan)[0], X)
    process = GaussianProcessRegressor(kernel, alpha=1e-5 / table.weight, optimizer=None).fit(table.X, table.y[0])
    expected, deviation = process.predict(X, return_std=True)
    assert np.max(np.abs(mean[0] - expected) / np.sqrt(deviation**2 + 1e-5)) < 0.02


@pytest.mark.parametrize("noise", [1e-4, 1e-6, 5e-10])
@pytest.mark.parametrize("kernel", [Matern(1.0, "fixed", nu=0.5), Matern(1.0, "fixed", nu=1.5), RBF(0.5, "fixed")])
def test_up_to_the_smallest_noise_the_mean_is_no_worse(rng, monkeypatch, kernel, noise):
    """N k / s^2 up to 1e12, in single precision and with the usual end of conjugate gradients.

    Under a smooth kernel the exact mean has digits that single precision lacks; rows left out tell what is left.
    """
    is_rough, kernel = getattr(kernel, "nu", None) == 0.5, ConstantKernel(1.0, "fixed") * kernel
    monkeypatch.setattr(sizes, "n_left_out", lambda n_points: 100)
    table, X = table_of(rng, n=600, noise=noise), rng.uniform(-1.0, 1.0, size=(100, 2))
    table, means = table._replace(weight=np.ones(600)), []
    for n_rows in (600, 0):
        plan = plan_of(1, n_rows, kernel, noise)
        result = trained(plan, table)
        means.append(svgp.predict(svgp.condition(result.state, result.constants, plan)[0], X)[0][0])
    y = np.sin(5.0 * X[:, 0]) + X[:, 1] ** 2
    errors = [np.sqrt(np.mean((mean - y) ** 2)) for mean in means]
    assert errors[0] <= errors[1] * (1.0 + 1e-9)
    if is_rough:
        process = GaussianProcessRegressor(kernel, alpha=noise, optimizer=None).fit(table.X, table.y[0])
        expected, deviation = process.predict(X, return_std=True)
        assert np.max(np.abs(means[0] - expected) / np.sqrt(deviation**2 + noise)) < 0.1


@pytest.fixture
def optima(rng, monkeypatch, in_parts):
    """The table, and the optima without and with the mean on all rows."""
    in_double(monkeypatch)
    table = table_of(rng, 2)
    plan = plan_of(2, table.n_rows)
    found = []
    improved = row_means.improved
    monkeypatch.setattr(row_means, "improved", lambda *a: found.extend([(a[0], a[1]), improved(*a)]) or found[-1])
    trained(plan, table)
    (before, problem), after = found
    return table, before, after, problem


def test_rows_left_out_are_predicted_from_the_others(optima):
    table, before, after, problem = optima
    # A tenth of the rows: one fold.
    assert len(problem.index) == 24
    for k in range(2):
        expected = table.y[k, problem.index] - exact(table, k, table.X[problem.index], problem.index)
        told = np.isfinite(before.left_out.error[k, :24])
        assert told.any()
        np.testing.assert_allclose(after.left_out.error[k, :24][told], expected[told], rtol=1e-7, atol=1e-8)
        assert np.isnan(after.left_out.error[k, 24:]).all()
    np.testing.assert_array_equal(after.left_out.latent, before.left_out.latent)

    def density(left_out):
        """Of both targets together."""
        total = 0.0
        for k in range(2):
            told = np.isfinite(after.left_out.error[k])
            each = stats.norm.logpdf(left_out.error[k, told], scale=np.sqrt(left_out.variance[k, told]))
            total += np.average(each, weights=left_out.weight[k, told])
        return total

    gain = density(after.left_out) - density(before.left_out)
    assert after.held_out.mean - before.held_out.mean == pytest.approx(gain, rel=1e-8)


def test_the_bound_is_that_of_the_better_mean(optima):
    """The collapsed bound (Titsias 2009), whose quadratic form is now that of the exact process."""
    table, before, after, problem = optima
    Z, expected = np.asarray(problem.prior.points)[np.asarray(problem.prior.mask) > 0.0], 0.0
    K, noise = KERNEL(table.X), np.diag(NOISE / table.weight)
    Kzz = KERNEL(Z) + 1e-12 * np.mean(KERNEL.diag(Z)) * np.eye(len(Z))
    Q = KERNEL(table.X, Z) @ np.linalg.solve(Kzz, KERNEL(Z, table.X))
    for y in table.y:
        expected += 0.5 * (y @ np.linalg.solve(Q + noise, y) - y @ np.linalg.solve(K + noise, y))
    assert float(after.elbo[-1] - before.elbo[-1]) == pytest.approx(expected, rel=1e-7)


def test_a_mean_that_predicts_no_better_is_not_used(optima, monkeypatch):
    _, before, after, problem = optima
    quadratic, share, random_state = np.zeros(2), np.ones(2), np.random.RandomState(0)
    error = np.where(np.isnan(before.left_out.error[:, :24]), 0.0, 1.01 * before.left_out.error[:, :24])
    found = row_means.RowMeans(after.means, error, quadratic)
    for worse in (found, found._replace(error=np.full_like(error, np.nan)), None):
        monkeypatch.setattr(row_means, "solve", lambda *_, worse=worse: worse)
        assert row_means.improved(before, problem, quadratic, share, random_state) is before
    monkeypatch.setattr(row_means, "solve", lambda *_: found._replace(error=0.99 / 1.01 * error))
    assert row_means.improved(before, problem, quadratic, share, random_state).means is found.means


def test_what_is_left_out_is_divided_into_folds_of_a_tenth(rng):
    for n_left_out, n_rows, expected in ((24, 240, 1), (25, 240, 2), (1, 10, 1), (4000, 7000, 5)):
        fold, n_folds = row_means._folds(n_left_out, n_rows, np.random.RandomState(0))
        assert n_folds == expected
        counts = np.bincount(fold, minlength=n_folds)
        assert counts.sum() == n_left_out
        assert np.ptp(counts) <= 1


def test_the_posterior_in_place_is_that_of_the_other_program(optima, x64):
    table, _, after, _ = optima
    plan = plan_of(2, table.n_rows)
    state, constants = svgp.init(plan, table, random_state=0)
    parameters, constants = inducing_points.with_means(after.means, state.parameters, constants)
    found, _ = posterior._condition_in_place(parameters, after.q, constants, None)
    expected, _ = posterior._condition("orthogonal", parameters, after.q, constants)
    for name in ("Z", "Z_mean", "a", "alpha", "whiten"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-6, atol=1e-7, err_msg=name)


def test_steps_on_all_rows_have_all_rows_or_none(rng):
    table = table_of(rng)
    with pytest.raises(ValueError, match=r"n_mean_inducing=30.*240.*solver='ngd'"):
        svgp.init(plan_of(1, 30), table, random_state=0)


def test_a_mean_on_all_rows_is_for_one_kernel_and_one_process(rng, monkeypatch):
    plan = plan_of(2, 240)._replace(kernels=(KERNEL, ConstantKernel(1.0) * RBF(0.5)))
    with pytest.raises(ValueError, match=r"n_mean_inducing=240.*kernel is a list of 2: give n_mean_inducing=0"):
        svgp.init(plan, table_of(rng, 2), random_state=0)
    monkeypatch.setattr(processes, "count", lambda: 2)
    with pytest.raises(ValueError, match=r"n_mean_inducing=240.*n_devices='all' shares them: give n_mean_inducing=0"):
        check_plan(plan_of(1, 240)._replace(n_devices="all"), table_of(rng))


def test_the_bound_is_that_of_a_mean_before_conjugate_gradients_have_converged(rng, monkeypatch, in_parts):
    """Of the rows' part and the prior's at the mean that is returned, which then is not y^T alpha."""
    in_double(monkeypatch)
    monkeypatch.setattr(row_means, "_STEPS", 16)
    table, found, solve = table_of(rng), [], row_means.solve
    monkeypatch.setattr(row_means, "solve", lambda *a: found.append(solve(*a)) or found[-1])
    plan = plan_of(1, table.n_rows)
    result = trained(plan, table)
    mean = svgp.predict(svgp.condition(result.state, result.constants, plan)[0], table.X)[0][0]
    alpha = np.linalg.solve(KERNEL(table.X), mean)
    expected = (table.weight * (table.y[0] - mean) ** 2).sum() / NOISE + alpha @ mean
    assert found[0].quadratic[0] == pytest.approx(expected, rel=1e-6)
    assert abs(table.y[0] @ alpha / expected - 1.0) > 1e-3


@pytest.mark.parametrize("noise", [1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize("nu", [0.5, 1.5])
def test_single_precision_leaves_the_bound_its_digits(rng, monkeypatch, noise, nu):
    """At the mean that is returned, of 600 rows; N k / s^2 up to 6e10, where conjugate gradients end far from y."""
    kernel = ConstantKernel(1.0, "fixed") * Matern(1.0, "fixed", nu=nu)
    monkeypatch.setattr(sizes, "n_left_out", lambda n_points: 60)
    table, found, solve = table_of(rng, n=600, noise=noise), [], row_means.solve
    monkeypatch.setattr(row_means, "solve", lambda *a: found.append(solve(*a)) or found[-1])
    plan = plan_of(1, table.n_rows, kernel, noise)
    result = trained(plan, table)
    assert len(result.state.parameters.points.Z_mean) > 0
    mean = svgp.predict(svgp.condition(result.state, result.constants, plan)[0], table.X)[0][0]
    fit = (table.weight * (table.y[0] - mean) ** 2).sum() / noise
    expected = fit + mean @ np.linalg.solve(kernel(table.X), mean)
    assert found[0].quadratic[0] == pytest.approx(expected, rel=1e-3)


@pytest.fixture
def small_sizes(monkeypatch):
    for most in ("_AT_EVERY_ROW", "_MOST"):
        monkeypatch.setattr(sizes, most, 60)
    monkeypatch.setattr(sizes, "FEWEST", 10)
    monkeypatch.setattr(sizes, "OF_VARIANCE", 30)


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_the_estimator_rests_its_mean_on_all_rows(rng, monkeypatch, small_sizes):
    table = table_of(rng, n=700, noise=0.001)
    X, y = table.X, table.y[0]
    X_test = rng.uniform(-1.0, 1.0, size=(300, 2))
    y_test = np.sin(5.0 * X_test[:, 0]) + X_test[:, 1] ** 2
    kernel = ConstantKernel(1.0) * Matern(0.3, nu=0.5)
    # As many as there are rows are the inducing points and the other rows.
    model = NGDSVGPRegressor(kernel, n_mean_inducing=700, solver="evidence", random_state=0).fit(X, y)
    assert len(model.inducing_points_) == 30
    assert len(model.mean_inducing_points_) == 670
    assert "670 further points" in str(model.plan_)
    # With nothing set there are none.
    other = NGDSVGPRegressor(kernel, n_neighbors=0, random_state=0).fit(X, y)
    assert other.n_iter_ == 1
    assert len(other.inducing_points_) == 60
    assert len(other.mean_inducing_points_) == 0
    errors = [np.mean((each.predict(X_test) - y_test) ** 2) for each in (model, other)]
    assert errors[0] < 0.7 * errors[1]
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X_test), model.predict(X_test))
    # One row is predicted without XLA.
    np.testing.assert_allclose(model.predict(X_test[:1]), model.predict(X_test)[:1], rtol=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_where_all_rows_do_not_help_the_mean_is_that_of_the_points(rng, monkeypatch, small_sizes):
    table = table_of(rng, n=700, noise=0.001)
    monkeypatch.setattr(row_means, "solve", lambda *_: None)
    kernel = ConstantKernel(1.0) * Matern(0.3, nu=0.5)
    options = {"n_mean_inducing": 700, "solver": "evidence", "random_state": 0}
    model = NGDSVGPRegressor(kernel, **options).fit(table.X, table.y[0])
    assert len(model.inducing_points_) == 30
    assert len(model.mean_inducing_points_) == 0
    # Points that were asked for stay.
    plan = plan_of(1, 700, kernel)
    result = trained(plan, table)
    assert result.constants.masks.Z.sum() == 20


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [NGDSVGPRegressor, NGDSVGPClassifier])
def test_one_step_after_another(rng, estimator):
    table = table_of(rng, n=60)
    y = table.y[0] if estimator is NGDSVGPRegressor else table.y[0] > 0.5
    model = estimator(RBF(0.5), solver="evidence", warm_start=True, random_state=0).fit(table.X, y)
    score = model.score(table.X, y)
    assert model.fit(table.X, y).score(table.X, y) > score - 0.02


@pytest.mark.slow
def test_further_points_where_every_row_is_an_inducing_point_change_nothing(rng):
    X = rng.normal(size=(130, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=130)
    models = [NGDSVGPRegressor(solver="evidence", n_mean_inducing=n_mean, random_state=0) for n_mean in (0, 130)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [model.fit(X, y).predict(X, return_std=True) for model in models]
    np.testing.assert_array_equal(*found)


@pytest.mark.slow
def test_a_number_of_points_that_was_asked_for_stays(small_sizes, monkeypatch, rng):
    """Also where it is that of a plan whose mean rests on all rows, and the mean turns out no better."""
    monkeypatch.setattr(row_means, "solve", lambda *_: None)
    table = table_of(rng, n=700, noise=0.001)
    given = {"n_inducing": 30, "n_mean_inducing": 700, "solver": "evidence"}
    model = NGDSVGPRegressor(ConstantKernel(1.0) * Matern(0.3, nu=0.5), random_state=0, **given)
    assert len(model.fit(table.X, table.y[0]).inducing_points_) == 30
