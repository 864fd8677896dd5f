"""Steps that would fail are replaced."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.likelihoods import RobustMax, StudentT
from skgp_natgrad.step import step
from skgp_natgrad.step.algorithm import Algorithm
from skgp_natgrad.step.chunk import STEPS_PER_CALL, run_chunk
from skgp_natgrad.step.state import initial_state
from skgp_natgrad.step.whitening import settled
from skgp_natgrad.training.monitor import Monitor, StoppingRule
from skgp_natgrad.variational import bases
from skgp_natgrad.variational import bound as bounds

from .conftest import make_problem, random_gaussian
from .reference import expected_log_likelihood

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# -- one step -----------------------------------------------------------------------------


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("basis", ["orthogonal", "hybrid"])
def test_moments_are_affine_in_those_of_q(basis, rng):
    parameters, q, batch, constants = make_problem(StudentT(), rng, n_mean_inducing=4, basis=basis)
    other = random_gaussian(rng, *q.mean.shape)

    @jax.jit
    def both():
        def at(q):
            return bounds.latent_moments(basis, parameters, q.mean, q.cov, batch.X, constants)

        return bases.moved(at(q), other.mean - q.mean, other.cov), at(other)

    got, want = both()
    for name in ("mean", "var", "kl"):
        assert_allclose(getattr(got, name), getattr(want, name), rtol=1e-11, atol=1e-11)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_a_slope_that_is_not_finite_moves_nothing(rng):
    """One input that is no number: kernel, likelihood and points stay where they are."""
    parameters, q, batch, constants = make_problem(StudentT(), rng)
    X = np.array(batch.X)
    X[0, 0] = np.nan
    start = initial_state(q, parameters, constants, Algorithm())
    compiled = jax.jit(step.step, static_argnames="algorithm")
    _, moved, report = compiled(start, constants, batch._replace(X=X), 0.1, 0.1, algorithm=Algorithm())
    assert bool(report.rejected)
    for before, after in zip(jax.tree.leaves(parameters), jax.tree.leaves(moved.parameters), strict=True):
        assert_allclose(after, before)


@pytest.mark.usefixtures("x64")
def test_the_clipped_gradient_is_that_of_the_concave_rows(rng):
    parameters, q, batch, constants = make_problem(StudentT(), rng, n_mean_inducing=4)
    # Targets far away, where a Student-t density is convex.
    batch = batch._replace(y=batch.y + 20.0 * (np.arange(batch.y.shape[1]) % 2))

    @jax.jit
    def everything():
        _, latent = bounds.bound_and_moments("orthogonal", parameters, q.mean, q.cov, batch, constants)
        v = jax.grad(expected_log_likelihood, argnums=2)(parameters, latent.rows.mean, latent.rows.var, batch)
        dS = jax.grad(bounds.bound_given_q, argnums=3)("orthogonal", parameters, q.mean, q.cov, batch, constants)
        return v, dS, latent.rows.dependence[0], bounds.concave_gradient(parameters, latent, batch, constants)

    v, dS, dependence, clipped = jax.tree.map(np.asarray, everything())
    A = dependence.rows.A
    assert (v > 0).any()
    assert (v < 0).any()
    assert_allclose(dS, np.einsum("mb,kb,nb->kmn", A, v, A), rtol=1e-9, atol=1e-10)
    assert_allclose(clipped, np.einsum("mb,kb,nb->kmn", A, np.minimum(v, 0.0), A), rtol=1e-9, atol=1e-10)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("parameterization", ["natural", "mean_var_sqrt"])
@pytest.mark.parametrize("likelihood", [RobustMax(), StudentT(scale=0.05)], ids=repr)
def test_a_step_never_lowers_the_bound_of_its_own_batch(likelihood, parameterization, rng):
    parameters, q, batch, constants = make_problem(likelihood, rng, n_rows=40)
    constants = constants._replace(scale=50.0)
    method = Algorithm(parameterization=parameterization, optimizer=None)

    @jax.jit
    def one_step(state):
        bound = step.bound(state.q, state.parameters, constants, batch, method)
        return bound, *step.step(state, constants, batch, 1.0, 0.0, method)[1:]

    state, bounds, reports = initial_state(q, parameters, constants, method), [], []
    for _ in range(6):
        bound, state, report = one_step(state)
        bounds.append(bound)
        reports.append(report)
    q = state.q
    assert np.all(np.diff(bounds) >= -1e-9 * np.abs(bounds[0]))
    assert any(bool(report.rejected) for report in reports)
    assert np.linalg.eigvalsh(q.cov).min() > 0
    # Each step takes its size from the asked one by halving.
    halvings = -np.log2([float(report.gamma) for report in reports if report.gamma > 0])
    assert_allclose(halvings, np.round(halvings))


# -- fits that end other libraries ----------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [0.1, 0.5, 1.0])
def test_robust_max_from_the_first_step(gamma):
    """GPflow's issue 820 and GPyTorch's 1267: a covariance that is no longer positive definite."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 2))
    y = np.digitize(np.sin(2.0 * X[:, 0]) + X[:, 1], [-0.5, 0.5])
    model = NGDSVGPClassifier(
        likelihood="robust_max", n_inducing=100, gamma_schedule=gamma, batch_size=256, max_iter=60, random_state=0
    ).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1.0)
    assert model.n_rejected_steps_ >= model.n_clipped_steps_ > 0
    assert model.elbo_ > model.elbo_curve_[0]
    assert model.score(X, y) > 0.8


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_minibatches_go_back_to_the_last_sound_state(rng):
    """A chunk in which the bound is not finite leaves no trace but smaller steps and a count."""
    parameters, q, batch, constants = make_problem(StudentT(), rng)
    method = Algorithm()
    good = jax.tree.map(lambda x: np.repeat(np.asarray(x)[None], STEPS_PER_CALL, axis=0), batch)
    X = good.X.copy()
    X[3, 0, 0] = np.nan
    sizes = np.full(STEPS_PER_CALL, 0.05)

    def chunk(state, batches):
        return run_chunk(state, constants, batches, sizes, sizes, STEPS_PER_CALL, method)

    state, first = chunk(initial_state(q, parameters, constants, method), good)
    before = jax.tree.map(np.asarray, (settled(state, constants, method).q, state.parameters))
    assert not np.any(first.rejected)
    state, report = chunk(state, good._replace(X=X))
    for got, want in zip(jax.tree.leaves(state.parameters), jax.tree.leaves(before[1]), strict=True):
        assert_array_equal(got, want)
    # Two programs whiten it.
    for got, want in zip(state.q, before[0], strict=True):
        assert_allclose(got, want, rtol=1e-9, atol=1e-12)
    assert float(state.shrink) == 0.5
    assert np.all(np.isfinite(report.elbo))
    assert np.all(report.rejected)
    assert not np.any(report.gamma)
    state, third = chunk(state, good)
    assert np.all(np.asarray(third.gamma) == 0.025)
    assert float(state.shrink) == 1.0


def test_minibatches_that_are_never_sound_end_training():
    monitor = Monitor(
        StoppingRule(50, 0.0, 1.0, noisy=True), lambda first, n: np.ones(n, bool), 1000, SimpleNamespace(full=False), ()
    )
    undone = [np.full(20, -1.0), np.zeros(20), np.ones(20, bool), np.zeros(20, bool)]
    ended = [monitor(None, undone) for _ in range(10)]
    assert ended == [False] * 9 + [True]
    assert monitor.status() == "unsound"
    assert not monitor.running


@pytest.mark.slow
@pytest.mark.parametrize("mean_solver", ["natural", "diagonal"])
def test_natural_steps_of_the_mean_stay_finite_on_minibatches(mean_solver, rng):
    """With sampled columns of the KL's quadratic form the bound of a minibatch would have no maximum."""
    X = rng.uniform(-3, 3, size=(400, 1))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=400)
    model = NGDSVGPRegressor(
        n_inducing=8, n_mean_inducing=60, mean_solver=mean_solver, batch_size=40, max_iter=100, random_state=0
    ).fit(X, y)
    assert model.score(X, y) > 0.5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_precision_that_overflows_is_no_gaussian():
    """Its covariance may be finite, where it is the exponential of a logarithm."""
    model = NGDSVGPRegressor(
        1.0 * RBF(), likelihood="chained_beta", parameterization="natural_log", gamma_schedule=0.5, max_iter=20
    ).fit([[0.3]], [0.95])
    mean, std = model.predict([[0.3], [5.0]], return_std=True)
    assert mean[0] == pytest.approx(0.95, abs=0.01)
    # Farther away the deviation is larger, and at most that of zeros and ones.
    assert 0.5 < mean[1] < 0.95
    assert 0.0 < 5.0 * std[0] < std[1] < 0.5
