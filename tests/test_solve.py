"""SOLVE-GP against the paper's equations in plain NumPy, and against the coupled basis on both sets of points."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skgp_natgrad import Constant, NGDSVGPClassifier, NGDSVGPRegressor, kernels
from skgp_natgrad.estimators.arguments.task import can_stream
from skgp_natgrad.likelihoods import Gaussian, StudentT
from skgp_natgrad.step import step
from skgp_natgrad.step.algorithm import Algorithm
from skgp_natgrad.training import lbfgs
from skgp_natgrad.variational import bases, gaussian, natural_gradient
from skgp_natgrad.variational import bound as bounds
from skgp_natgrad.variational.model import Batch, Constants, Parameters, kernels_of, likelihood_of
from skgp_natgrad.variational.parameterizations import PARAMETERIZATIONS, within_blocks
from skgp_natgrad.variational.points import Masks, Points, factor_of_q

JITTER = 1e-8
M, N_O, N_ROWS = 6, 5, 40
KERNEL = ConstantKernel(1.3) * Matern(length_scale=[1.1, 0.7], nu=2.5) + RBF(0.9)
SOLVE, COUPLED = Algorithm(basis="solve"), Algorithm(basis="orthogonal")
QUIET = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def problem(rng, likelihood=Gaussian(0.2)):  # noqa: B008
    """Random parameters, q, batch and constants with two latent functions."""
    spec = (kernels.from_sklearn(KERNEL, 2).value,), likelihood.value_and_bounds(2)[0]
    points = Points(rng.normal(size=(M, 2)), np.empty((0, 2)), rng.normal(size=(N_O, 2)))
    weights = bases.Weights(np.zeros((2, 0)), np.zeros((2, 0, 0)))
    parameters = Parameters(*jax.tree.map(np.log, spec), points, weights)
    X = rng.normal(size=(N_ROWS, 2))
    y = np.sin(2.0 * X.T) + 0.3 * rng.normal(size=(2, N_ROWS))
    batch = Batch(X, y, rng.uniform(0.5, 2.0, size=N_ROWS), np.arange(0))
    masks = Masks(np.ones(M), np.ones(0), np.ones(N_O))
    bounds_of = tuple(jax.tree.map(lambda x, v=v: np.full(np.shape(x), v), parameters[:2]) for v in (-np.inf, np.inf))
    constants = Constants(bounds_of, masks, np.zeros((2, 1)), 1.0, 1.0, JITTER, 1.0)
    return parameters, random_q(rng), batch, constants


def random_q(rng):
    """A q without covariance between its two parts."""
    precision = np.zeros((2, M + N_O, M + N_O))
    for part in (slice(0, M), slice(M, M + N_O)):
        root = rng.normal(size=(2, part.stop - part.start, 8)) / 3.0
        precision[:, part, part] = np.eye(root.shape[1]) + root @ root.transpose(0, 2, 1)
    return jax.jit(gaussian.from_natural)(rng.normal(size=(2, M + N_O)), precision)


def coupled(parameters, constants):
    """The coupled basis on both sets of points."""
    sets = [Points(np.asarray(s.of_q), s.Z_mean) for s in (parameters.points, constants.masks)]
    return parameters._replace(points=sets[0]), constants._replace(masks=Masks(*sets[1][:2]))


def on_diagonal(A):
    """A with zeros between the two parts."""
    block = np.arange(M + N_O) < M
    return np.where(block[:, None] == block, A, 0.0)


@jax.jit
def gradients_solve(parameters, m, S, batch, constants):
    return jax.grad(bounds.bound_given_q, argnums=(2, 3))("solve", parameters, m, S, batch, constants)


@jax.jit
def gradients_coupled(parameters, m, S, batch, constants):
    return jax.grad(bounds.bound_given_q, argnums=(2, 3))("orthogonal", parameters, m, S, batch, constants)


def bound(parameters, q, batch, constants, algorithm=SOLVE):
    return float(step.bound_of_batch(q, parameters, constants, batch, algorithm))


# Compiled as a whole.
latent_moments = jax.jit(bounds.latent_moments, static_argnums=0)
optimal_q = jax.jit(lbfgs.optimal_q, static_argnames="algorithm")


@jax.jit
def natural_step(q, parameters, batch, constants, gamma):
    dm, dS = gradients_solve(parameters, q.mean, q.cov, batch, constants)
    return natural_gradient.candidate(q, dm, dS, gamma, within_blocks("natural", (M, N_O)))


# -- the paper's equations -----------------------------------------------------------------


def kl(mean, cov, prior):
    """KL(N(mean, cov) || N(0, prior)) from its definition."""
    inverse = np.linalg.inv(prior)
    log_dets = np.linalg.slogdet(prior)[1] - np.linalg.slogdet(cov)[1]
    return 0.5 * (np.trace(inverse @ cov) + mean @ inverse @ mean - len(mean) + log_dets)


def dense(points, m, S, X):
    """Moments and divergence of one latent function, by plain inverses and scikit-learn's kernel.

    Section 3 of the paper: f = u's part + the orthogonal process, each with inducing variables.
    """
    Z, _, Z_o = points
    Kzz = KERNEL(Z) + JITTER * KERNEL.diag(Z).mean() * np.eye(len(Z))
    inverse = np.linalg.inv(Kzz)

    def c(A, B):
        return KERNEL(A, B) - KERNEL(A, Z) @ inverse @ KERNEL(Z, B)

    C = c(Z_o, Z_o) + JITTER * KERNEL.diag(Z_o).mean() * np.eye(len(Z_o))
    mean, var, divergence = 0.0, KERNEL.diag(X), 0.0
    for prior, k, part in ((Kzz, KERNEL(X, Z), slice(0, M)), (C, c(X, Z_o), slice(M, None))):
        L = np.linalg.cholesky(prior)
        mu, Sigma = L @ m[part], L @ S[part, part] @ L.T
        weights = k @ np.linalg.inv(prior)
        mean = mean + weights @ mu
        var = var + np.einsum("bi,ij,bj->b", weights, Sigma - prior, weights)
        divergence += kl(mu, Sigma, prior)
    return mean, var, divergence


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_moments_divergence_and_bound_are_the_papers(rng):
    parameters, q, batch, constants = problem(rng)
    latent = jax.jit(bounds.latent_moments, static_argnums=0)("solve", parameters, q.mean, q.cov, batch.X, constants)
    each = [dense(parameters.points, np.asarray(q.mean)[k], np.asarray(q.cov)[k], batch.X) for k in range(2)]
    mean, var, divergence = (np.array(values) for values in zip(*each, strict=True))
    assert_allclose(latent.mean, mean, rtol=1e-10, atol=1e-10)
    assert_allclose(latent.var, var, rtol=1e-10, atol=1e-10)
    assert_allclose(gaussian.kl_to_standard(q), divergence.sum(), rtol=1e-10)
    assert latent.kl == 0.0
    expected = (batch.weight * likelihood_of(parameters).expected_log_prob(mean, var, batch.y)).sum()
    assert_allclose(bound(parameters, q, batch, constants), expected - divergence.sum(), rtol=1e-10)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_it_is_the_coupled_basis_on_both_sets_with_a_block_diagonal_covariance(rng):
    """Also with masked points in both sets; the full curvature is that of the coupled basis."""
    parameters, q, batch, constants = problem(rng, StudentT())
    masks = constants.masks._replace(Z=np.r_[np.ones(M - 2), 0.0, 0.0], Z_second=np.r_[np.ones(N_O - 1), 0.0])
    for some in (constants.masks, masks):
        constants = constants._replace(masks=some)
        union = coupled(parameters, constants)
        value, latent = jax.jit(bounds.bound_and_moments, static_argnums=0)(
            "solve", parameters, q.mean, q.cov, batch, constants
        )
        want, whole = jax.jit(bounds.bound_and_moments, static_argnums=0)(
            "orthogonal", union[0], q.mean, q.cov, batch, union[1]
        )
        assert_allclose(latent.rows.mean, whole.rows.mean, rtol=1e-9, atol=1e-9)
        assert_allclose(latent.rows.var, whole.rows.var, rtol=1e-9, atol=1e-9)
        assert_allclose(value, want, rtol=1e-10)
        dm, dS = gradients_solve(parameters, q.mean, q.cov, batch, constants)
        dm_whole, dS_whole = gradients_coupled(union[0], q.mean, q.cov, batch, union[1])
        assert_allclose(dm, dm_whole, rtol=1e-8, atol=1e-8)
        assert_allclose(dS, on_diagonal(dS_whole), rtol=1e-8, atol=1e-8)
        curvature = jax.jit(bounds.whole_curvature)(parameters, latent, batch, constants)
        assert_allclose(curvature, -2.0 * dS_whole, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_masked_points_are_not_there(rng):
    parameters, q, batch, constants = problem(rng)
    points, masks, keep = parameters.points, constants.masks, np.r_[0 : M - 1, M : M + N_O - 2]
    fewer = Points(points.Z[:-1], points.Z_mean, points.Z_second[:-2])
    masked = masks._replace(Z=np.r_[np.ones(M - 1), 0.0], Z_second=np.r_[np.ones(N_O - 2), 0.0, 0.0])
    got = latent_moments("solve", parameters, q.mean, q.cov, batch.X, constants._replace(masks=masked))
    alone = constants._replace(masks=Masks(np.ones(M - 1), masks.Z_mean, np.ones(N_O - 2)))
    own = q.mean[:, keep], q.cov[:, keep][:, :, keep]
    want = latent_moments("solve", parameters._replace(points=fewer), *own, batch.X, alone)
    assert_allclose(got.mean, want.mean, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_gradients_are_those_of_differences(rng):
    parameters, q, batch, constants = problem(rng, StudentT())
    value = jax.jit(lambda p: bounds.bound_given_q("solve", p, q.mean, q.cov, batch, constants))
    gradient = jax.jit(jax.grad(value))(parameters)
    for name in ("log_kernels", "raw_likelihood", "points"):
        got, there = getattr(gradient, name), getattr(parameters, name)
        toward = jax.tree.map(lambda x: rng.normal(size=np.shape(x)), there)
        along = sum((g * d).sum() for g, d in zip(jax.tree.leaves(got), jax.tree.leaves(toward), strict=True))
        ends = [
            value(parameters._replace(**{name: jax.tree.map(lambda x, d, h=h: x + h * d, there, toward)}))
            for h in (1e-5, -1e-5)
        ]
        assert_allclose(along, (ends[0] - ends[1]) / 2e-5, rtol=1e-6, atol=1e-6)
    assert np.abs(gradient.points.Z).max() > 1e-3 < np.abs(gradient.points.Z_second).max()


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_the_mean_moves_along_with_both_sets(rng):
    """A mean held as points move is, at their new places, the function that it was."""
    parameters, q, _, constants = problem(rng)
    (kernel,), points = kernels_of(parameters), parameters.points
    factor = factor_of_q(kernel, points, constants.masks, JITTER)
    Z_new = points.of_q + 0.3 * rng.normal(size=points.of_q.shape)
    change = bases.BASES["solve"].change_of_mean(
        kernel, factor, points, constants.masks, parameters.weights.a, q.mean, Z_new
    )
    there = latent_moments("solve", parameters, q.mean, q.cov, Z_new, constants).mean
    assert_allclose(q.mean @ factor.L.T + change, there, atol=1e-6)


# -- natural gradients ---------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_the_direction_is_the_natural_gradient_of_the_family(rng):
    """Fisher matrix times direction is the gradient in natural parameters, of block diagonal precisions."""
    parameters, q, batch, constants = problem(rng, StudentT())

    def moments_of(shift, precision):
        q = gaussian.from_natural(shift, on_diagonal_jax(precision))
        return q.mean, q.cov

    def elbo(shift, precision):
        q = gaussian.from_natural(shift, on_diagonal_jax(precision))
        given_q = bounds.bound_given_q("solve", parameters, q.mean, q.cov, batch, constants)
        return given_q - gaussian.kl_to_standard(q)

    def expectations(shift, precision):
        m, S = moments_of(shift, precision)
        return m, on_diagonal_jax(S + m[:, :, None] * m[:, None, :])

    at = q.nat1, q.precision
    gradient = jax.jit(jax.grad(elbo, argnums=(0, 1)))(*at)
    direction = natural_gradient.direction(q, *gradients_solve(parameters, q.mean, q.cov, batch, constants))
    assert_array_equal(direction[1], on_diagonal(direction[1]))
    first, second = jax.jit(lambda at, d: jax.jvp(expectations, at, d)[1])(at, direction)
    # The second natural parameter is -1/2 times the precision.
    assert_allclose(gradient[0], first, rtol=1e-8, atol=1e-8)
    symmetric = 0.5 * (gradient[1] + np.swapaxes(gradient[1], 1, 2))
    assert_allclose(symmetric, -0.5 * second, rtol=1e-8, atol=1e-8)


def on_diagonal_jax(A):
    block = np.arange(M + N_O) < M
    return jnp.where(block[:, None] == block, A, 0.0)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_steps_reach_the_optimum_of_the_family(rng):
    """Its precision in one step, its mean, that of the coupled basis on both sets, step by step: never downwards."""
    parameters, q, batch, constants = problem(rng)
    union = coupled(parameters, constants)
    prior = jax.tree.map(jnp.asarray, gaussian.standard(2, M + N_O))
    dm, dS = gradients_coupled(union[0], prior.mean, prior.cov, batch, union[1])
    best = jax.jit(natural_gradient.candidate)(prior, dm, dS, 1.0)
    moved, values = q, [bound(parameters, q, batch, constants)]
    for n_steps in range(400):
        moved = natural_step(moved, parameters, batch, constants, 1.0)
        if n_steps == 0:
            assert_allclose(moved.precision, on_diagonal(best.precision), rtol=1e-8, atol=1e-8)
        values.append(bound(parameters, moved, batch, constants))
    assert np.diff(values).min() > -1e-9 * abs(values[-1])
    assert_allclose(moved.mean, best.mean, atol=1e-8)
    collapsed = optimal_q(q, parameters, constants, batch, SOLVE._replace(solver="lbfgs"))
    assert_allclose(collapsed.mean, best.mean, atol=1e-8)
    assert_allclose(collapsed.precision, on_diagonal(best.precision), rtol=1e-8, atol=1e-8)
    assert_allclose(bound(parameters, collapsed, batch, constants), values[-1], rtol=1e-10)
    # Between the coupled basis on the inducing points and that on both sets.
    alone = parameters._replace(points=Points(parameters.points.Z, np.empty((0, 2))))
    of_Z = constants._replace(masks=Masks(np.ones(M), np.ones(0)))
    lower = bound(
        alone,
        optimal_q(random_q(rng)._replace(mean=q.mean[:, :M]), alone, of_Z, batch, COUPLED),
        batch,
        of_Z,
        COUPLED,
    )
    assert lower < values[-1] < bound(union[0], best, batch, union[1], COUPLED)


@pytest.mark.parametrize("gamma", [0.3, 1.0])
@pytest.mark.usefixtures("x64")
def test_no_step_lowers_the_bound_of_a_gaussian_likelihood(gamma, rng):
    parameters, _, batch, constants = problem(rng)
    for _ in range(10):
        q = random_q(rng)
        moved = natural_step(q, parameters, batch, constants, gamma)
        assert bound(parameters, moved, batch, constants) >= bound(parameters, q, batch, constants)


@pytest.mark.parametrize("name", sorted(PARAMETERIZATIONS))
@pytest.mark.usefixtures("x64")
def test_every_parameterization_keeps_the_parts_apart(name, rng):
    """A step in the blocks' own coordinates is that in the coordinates of the whole."""
    parameters, q, batch, constants = problem(rng)
    dm, dS = gradients_solve(parameters, q.mean, q.cov, batch, constants)
    q = jax.jit(gaussian.from_natural)(q.nat1, q.precision)
    stepped = jax.jit(natural_gradient.candidate, static_argnums=4)
    blocks, whole = (stepped(q, dm, dS, 1e-3, each) for each in (within_blocks(name, (M, N_O)), name))
    assert np.all(np.isfinite(blocks.cov))
    for got, want in zip(blocks, whole, strict=True):
        assert_allclose(got, want, rtol=1e-8, atol=1e-9)
    for matrices in (blocks.precision, blocks.cov):
        assert_array_equal(matrices, on_diagonal(matrices))


# -- through the estimators ----------------------------------------------------------------


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(3)
    X = rng.uniform(-3, 3, size=(150, 2))
    return X, np.sin(2.0 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=150)


def moments_of(estimator, X):
    """Latent moments from what was trained, by the functions of training."""
    before = estimator._warm_state
    q, parameters = before.q, before.parameters
    constants = Constants(None, before.masks, before.prior_mean, 1.0, 1.0, before.jitter, 1.0)
    with jax.enable_x64(True):
        X = estimator._x_scale.forward(X)
        latent = latent_moments("solve", parameters, q.mean, q.cov, X, constants)
        return np.asarray(latent.mean), np.asarray(latent.var)


def q_is_block_diagonal(estimator):
    n = len(estimator._warm_state.parameters.points.Z)
    q = estimator._warm_state.q
    return not (np.any(q.cov[:, :n, n:]) or np.any(q.precision[:, :n, n:]))


@pytest.mark.slow
@QUIET
@pytest.mark.parametrize(
    "own", [{"gamma_schedule": "auto", "batch_size": 64}, {"solver": "lbfgs"}, {"solver": "adam"}], ids=str
)
def test_a_regressor_predicts_with_both_parts(own, table):
    X, y = table
    reg = NGDSVGPRegressor(
        basis="solve", n_inducing=20, n_mean_inducing=40, max_iter=60, learning_rate=0.03, random_state=0
    ).set_params(**own)
    reg = clone(reg).fit(X, y)
    assert reg.inducing_points_.shape == (20, 2)
    assert reg.mean_inducing_points_.shape == (40, 2)
    assert q_is_block_diagonal(reg)
    assert reg.elbo_curve_[-10:].mean() > reg.elbo_curve_[:10].mean() + 10.0
    mean, std = reg.predict(X, return_std=True)
    latent_mean, latent_var = moments_of(reg, X)
    scale, shift = reg._y_scale.scale[0], reg._y_scale.backward(np.zeros((1, 1)))[0, 0]
    assert_allclose(mean, shift + scale * latent_mean[0], rtol=1e-7, atol=1e-7)
    assert_allclose(std, scale * np.sqrt(latent_var[0] + reg.likelihood_.variance), rtol=1e-7)
    few = reg.predict(X[:3], return_std=True)
    assert_allclose(few, (mean[:3], std[:3]), rtol=1e-9, atol=1e-9)
    again = pickle.loads(pickle.dumps(reg))
    assert_array_equal(again.predict(X, return_std=True)[1], std)
    if own.get("solver") != "adam":
        assert reg.score(X, y) > 0.9


@pytest.mark.slow
@QUIET
def test_a_classifier_on_minibatches(table):
    X, y = table
    clf = NGDSVGPClassifier(
        basis="solve", n_inducing=20, n_mean_inducing=40, batch_size=50, max_iter=100, random_state=0
    ).fit(X, y > 0.0)
    assert q_is_block_diagonal(clf)
    assert clf.elbo_curve_[-20:].mean() > clf.elbo_curve_[:20].mean() + 10.0
    assert clf.score(X, y > 0.0) > 0.9
    assert_allclose(clf.predict_proba(X[:3]), clf.predict_proba(X)[:3], rtol=1e-9)


@pytest.mark.slow
@QUIET
def test_without_further_points_it_is_the_coupled_basis(table):
    X, y = table
    fits = [NGDSVGPRegressor(basis=b, n_inducing=20, max_iter=20, random_state=0) for b in ("solve", "orthogonal")]
    solve, orthogonal = (reg.fit(X, y).predict(X, return_std=True) for reg in fits)
    # Two programs, which may round in another order.
    assert_allclose(solve, orthogonal, rtol=1e-11, atol=1e-13)


@pytest.mark.slow
@QUIET
@pytest.mark.parametrize("noise", [1e-6, 1e-3])
def test_little_noise(noise, table):
    X, _ = table
    y = np.sin(X[:, 0]) + np.cos(X[:, 1])
    reg = NGDSVGPRegressor(
        RBF([1.0, 1.0]),
        likelihood=Gaussian(noise, "fixed"),
        basis="solve",
        n_inducing=30,
        n_mean_inducing=40,
        max_iter=60,
        gamma_schedule=Constant(1.0),
        random_state=0,
    ).fit(X, y)
    mean, std = reg.predict(X, return_std=True)
    assert np.all(std**2 >= 0.9 * noise * reg._y_scale.scale**2)
    assert np.sqrt(np.mean((mean - y) ** 2)) < 0.05
    assert reg.elbo_ > reg.elbo_curve_[0]


@pytest.mark.slow
@QUIET
def test_a_warm_start_goes_on(table):
    X, y = table
    reg = NGDSVGPRegressor(
        basis="solve",
        n_inducing=20,
        n_mean_inducing=40,
        max_iter=40,
        warm_start=True,
        optimizer=None,
        gamma_schedule=Constant(1.0),
        tol=1e9,
        random_state=0,
    ).fit(X, y)
    before = reg.elbo_
    assert reg.fit(X, y).elbo_ >= before


@pytest.mark.parametrize("mean_solver", ["natural", "diagonal", "exact"])
def test_solvers_of_mean_only_points_are_refused(mean_solver, table):
    reg = NGDSVGPRegressor(basis="solve", n_mean_inducing=10, mean_solver=mean_solver)
    with pytest.raises(ValueError, match=f"mean_solver='{mean_solver}'.*basis='solve'.*mean_solver='adam'"):
        reg.fit(*table)


def test_streams_are_refused():
    assert not hasattr(NGDSVGPRegressor(basis="solve", n_mean_inducing=10), "partial_fit")
    assert hasattr(NGDSVGPRegressor(basis="solve"), "partial_fit")
    with pytest.raises(AttributeError, match=r"n_mean_inducing=10.*Use n_mean_inducing=0"):
        can_stream(NGDSVGPRegressor(basis="solve", n_mean_inducing=10))
