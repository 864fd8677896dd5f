"""The exact solve of the mean: appendix D, Newton's method, leave-one-out predictions."""

import warnings

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import make_friedman1
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import kernels as sk

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.likelihoods import Bernoulli, Gaussian, Poisson, RobustMax, StudentT
from skgp_natgrad.solve import exact_mean
from skgp_natgrad.solve.exact_mean import predictions, unexplained
from skgp_natgrad.solve.mean_system import Iterate, latent, pass_over, rescaled, target
from skgp_natgrad.solve.system import prior_of
from skgp_natgrad.training.batches import Table
from skgp_natgrad.variational import bound as bounds
from skgp_natgrad.variational import gaussian

from .conftest import JITTER, make_problem
from .reference import dense_elbo

at_rows = jax.jit(latent)
diagonal = jax.jit(lambda kernel, X: kernel.diag(X))
_matrix = jax.jit(lambda kernel, *rows: kernel(*rows))


def matrix(*arguments):
    """A matrix of the kernel, as a NumPy array."""
    return np.asarray(_matrix(*arguments))


@jax.jit
def latent_moments(parameters, m, S, X, constants):
    return bounds.latent_moments("orthogonal", parameters, m, S, X, constants)


N_POINTS = 11  # six inducing points and five for the mean alone


def fixed(likelihood, rng, **kwargs):
    """A problem whose likelihood stays as it is, its rows, and the solution."""
    parameters, q, batch, constants = make_problem(likelihood, rng, n_mean_inducing=5, n_targets=1, **kwargs)
    same = parameters[:2]
    constants = constants._replace(log_bounds=(same, same), weight=batch.weight.sum())
    rows = Table(batch.X, batch.y, batch.weight)
    solution = exact_mean.solve(q, parameters, constants, rows, 1e-14, np.random.RandomState(0))
    return parameters, batch, constants, rows, solution


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_gaussian_solution_is_appendix_d(rng):
    noise = 0.1
    parameters, batch, constants, _, solution = fixed(Gaussian(noise), rng)
    (kernel,) = jax.tree.map(np.exp, parameters.log_kernels)
    Z, Z_mean = parameters.points[:2]
    alpha = np.concatenate([Z, Z_mean])
    K, Kax, Lam = matrix(kernel, alpha, alpha), matrix(kernel, alpha, batch.X), batch.weight / noise
    K = K + JITTER * np.diag(K).mean() * np.eye(N_POINTS)
    c = np.linalg.solve((Kax * Lam) @ Kax.T + K, (Kax * Lam) @ batch.y[0])
    q = solution.q
    latent = latent_moments(solution.parameters, q.mean, q.cov, batch.X, constants)
    assert_allclose(latent.mean[0], Kax.T @ c, atol=1e-8)
    A = np.linalg.solve(np.linalg.cholesky(K[:6, :6]), Kax[:6])
    assert_allclose(q.precision[0], np.eye(6) + (A * Lam) @ A.T, rtol=1e-6)
    dense = jax.jit(lambda parameters, q: dense_elbo("orthogonal", parameters, q.mean, q.cov, batch, JITTER))
    assert_allclose(solution.elbo, dense(solution.parameters, q), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [Bernoulli(), Bernoulli("logit"), Poisson(), StudentT()], ids=repr)
@pytest.mark.usefixtures("x64")
def test_solution_is_newtons(likelihood, rng):
    """Every gradient of the bound vanishes, and dense Newton steps of the mean end at the same place."""
    parameters, batch, constants, _, solution = fixed(likelihood, rng)
    q = solution.q

    def bound(a, m, S):
        weights = parameters.weights._replace(a=a)
        return dense_elbo("orthogonal", parameters._replace(weights=weights), m, S, batch, JITTER)

    gradients = jax.jit(jax.grad(bound, argnums=(0, 1, 2)))(solution.parameters.weights.a, q.mean, q.cov)
    for gradient in gradients:
        assert_allclose(gradient, 0.0, atol=1e-5)

    @jax.jit
    def loss(x):
        return -bound(x[None, 6:], x[None, :6], q.cov)

    slopes, x = jax.jit(jax.vmap(jax.grad(loss))), np.zeros(N_POINTS)
    for _ in range(60):
        step = np.linalg.solve(*_hessian_and_slope(slopes, x))
        size = 1.0
        while loss(x - size * step) > loss(x) and size > 1e-8:
            size /= 2
        x = x - size * step
    weights = parameters.weights._replace(a=x[None, 6:])
    dense = latent_moments(parameters._replace(weights=weights), x[None, :6], q.cov, batch.X, constants)
    ours = latent_moments(solution.parameters, q.mean, q.cov, batch.X, constants)
    assert_allclose(ours.mean, dense.mean, atol=1e-6)


def _hessian_and_slope(slopes, x):
    """The Hessian, by differences of exact gradients, its eigenvalues made positive; and the gradient."""
    n, h = len(x), 1e-5 * np.eye(len(x))
    found = np.asarray(slopes(np.concatenate([x + h, x - h, x[None]])))
    hessian = (found[:n] - found[n : 2 * n]) / 2e-5
    values, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
    return vectors * np.maximum(np.abs(values), 1e-6) @ vectors.T, found[-1]


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_leave_one_out_predictions_are_those_of_refits(rng):
    parameters, batch, constants, rows, _ = fixed(Gaussian(0.2), rng)
    prior = prior_of(parameters, constants.masks, JITTER)
    start = Iterate(np.zeros((1, N_POINTS)), gaussian.standard(1, 6))
    position, statistics, _ = exact_mean.optimum(parameters, prior, start, constants, rows, 0.0)
    factor = target(statistics)[1]
    open_variance = unexplained(parameters, prior, batch)
    mean, _, own = jax.device_get(predictions(parameters, prior, factor, position, constants, batch))
    var = np.asarray(open_variance) + own
    for i in (0, 7, 24):
        rest = np.arange(len(batch.weight)) != i
        others = Table(batch.X[rest], batch.y[:, rest], batch.weight[rest])
        refit, _, _ = exact_mean.optimum(parameters, prior, start, constants, others, 0.0)
        (left_out, _, _), _ = at_rows(parameters, prior, refit, constants, batch._replace(X=batch.X[i : i + 1]))
        assert_allclose(mean[0, i], left_out[0, 0], atol=1e-9)
        # The variance of the process whose covariance rests on all the points: subset of regressors plus the rest.
        (kernel,) = jax.tree.map(np.exp, parameters.log_kernels)
        Kax, row = matrix(kernel, prior.points, others.X), batch.X[i : i + 1]
        kax = matrix(kernel, prior.points, row)
        K = np.asarray(prior.root[0]) @ np.asarray(prior.root[0]).T
        system = (Kax * others.weight / 0.2) @ Kax.T + K
        want = (
            np.asarray(diagonal(kernel, row)) - kax.T @ np.linalg.solve(K, kax) + kax.T @ np.linalg.solve(system, kax)
        )
        assert_allclose(var[0, i], want[0, 0], rtol=1e-7)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_rescaled_statistics_are_those_of_the_other_noise(rng):
    parameters, _, constants, rows, _ = fixed(Gaussian(0.2), rng)
    other = parameters._replace(raw_likelihood=jax.tree.map(lambda x: x - 1.3, parameters.raw_likelihood))
    prior = prior_of(parameters, constants.masks, JITTER)
    start = Iterate(np.zeros((1, N_POINTS)), gaussian.standard(1, 6))
    statistics = pass_over(parameters, prior, start, constants, rows)
    want = pass_over(other, prior, start, constants, rows)
    for got, theirs in zip(rescaled(statistics, parameters, other, constants)[:3], want[:3], strict=True):
        assert_allclose(got, theirs, rtol=1e-10, atol=1e-12)


@pytest.fixture
def wiggly(rng):
    X = rng.uniform(-3, 3, size=(900, 2))
    f = np.sin(2 * X[:, 0]) * np.cos(2 * X[:, 1])
    return X[:600], f[:600], X[600:], f[600:]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("likelihood", ["gaussian", "student_t", "poisson"])
def test_noise_is_estimated_anew(likelihood, wiggly, rng):
    """Too few inducing points take the function for noise; the solve does not."""
    X, f, X_test, f_test = wiggly
    draw = {
        "gaussian": lambda f: f + 0.1 * rng.normal(size=f.shape),
        "student_t": lambda f: f + 0.1 * rng.standard_t(3.0, size=f.shape),
        "poisson": lambda f: rng.poisson(np.exp(f)).astype(float),
    }[likelihood]
    y, y_test = draw(f), draw(f_test)
    options = {"n_inducing": 15, "likelihood": likelihood, "max_iter": 100, "random_state": 0, "tol": 0.0}
    coupled = NGDSVGPRegressor(**options).fit(X, y)
    exact = NGDSVGPRegressor(mean_solver="exact", n_mean_inducing=100, **options).fit(X, y)
    assert exact.mean_inducing_points_.shape == (100, 2)
    gain = (exact.predict_log_density(X_test, y_test) - coupled.predict_log_density(X_test, y_test)).mean()
    assert gain > (0.0 if likelihood == "poisson" else 0.3)
    if likelihood == "gaussian":
        assert exact.likelihood_.variance * y.var() < 0.02 < coupled.likelihood_.variance * y.var()


@pytest.mark.slow
def test_a_mean_that_has_not_converged_is_told(rng, monkeypatch):
    monkeypatch.setattr(exact_mean, "_MAX_PASSES", 1)
    X = rng.normal(size=(60, 1))
    options = {"kernel": sk.RBF(0.7, "fixed"), "n_inducing": 5, "max_iter": 2, "likelihood": "poisson"}
    model = NGDSVGPRegressor(mean_solver="exact", n_mean_inducing=10, **options)
    with pytest.warns(ConvergenceWarning, match="ended its passes over the rows before the mean converged"):
        model.fit(X, rng.poisson(np.exp(2.0 * np.sin(2.0 * X[:, 0]))).astype(float))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_classes_and_outputs(wiggly, rng):
    X, f, X_test, f_test = wiggly
    options = {"kernel": sk.RBF(0.7, "fixed"), "n_inducing": 15, "max_iter": 100, "random_state": 0, "tol": 0.0}
    for cuts in ([0.0], [-0.3, 0.3]):
        y, y_test = np.digitize(f, cuts), np.digitize(f_test, cuts)
        coupled = NGDSVGPClassifier(**options).fit(X, y)
        exact = NGDSVGPClassifier(mean_solver="exact", n_mean_inducing=100, **options).fit(X, y)
        assert exact.score(X_test, y_test) > coupled.score(X_test, y_test)
    two = np.column_stack([f, -f]) + 0.1 * rng.normal(size=(600, 2))
    model = NGDSVGPRegressor(mean_solver="exact", n_mean_inducing=100, **options).fit(X, two)
    assert model.score(X_test, np.column_stack([f_test, -f_test])) > 0.9


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_an_error_rate_is_estimated_from_held_out_rows(rng):
    X = rng.normal(size=(400, 1))
    y = np.where(rng.uniform(size=400) < 0.1, rng.integers(0, 3, size=400), np.digitize(X[:, 0], [-0.5, 0.5]))
    likelihood = RobustMax(epsilon=1e-3, epsilon_bounds=(1e-6, 0.5))
    options = {"likelihood": likelihood, "n_inducing": 10, "n_mean_inducing": 30, "max_iter": 60}
    model = NGDSVGPClassifier(mean_solver="exact", **options).fit(X, y)
    assert 0.03 < model.likelihood_.epsilon < 0.12


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_data_without_noise_is_interpolated():
    """The noise falls to its bound, where the system is all but singular."""
    X = np.linspace(-3, 3, 500)[:, None]
    y = np.sin(3 * X[:, 0])
    options = {"n_inducing": 10, "n_mean_inducing": 400, "mean_solver": "exact", "max_iter": 200}
    model = NGDSVGPRegressor(random_state=0, **options).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert np.abs(mean - y).max() < 1e-2
    # That of ten points, which is no less than the noise and no more than that of the prior.
    noise, unit = model.likelihood_.variance, model._y_scale.scale
    prior = np.sqrt(model.kernel_.diag(X).max() + noise) * unit
    assert np.all((std >= 0.99 * np.sqrt(noise) * unit) & (std <= prior))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_small_basis_does_not_interpolate_noise():
    """Twenty points leave much of the variance open; the mean is not bent to every row for it."""
    X, y = make_friedman1(600, noise=0.5, random_state=0)
    X_test, f_test = make_friedman1(300, random_state=1)
    options = {"n_inducing": 20, "max_iter": 300, "random_state": 0}
    model = NGDSVGPRegressor(n_mean_inducing=300, mean_solver="exact", **options).fit(X, y)
    assert 0.01 < model.likelihood_.variance * y.var() < 0.5  # 0.25 was added
    assert np.sqrt(np.mean((model.predict(X_test) - f_test) ** 2)) < 0.45
    # With a kernel of its own a fit starts from the likelihood's noise.
    options |= {"optimizer": None, "n_mean_inducing": 30, "mean_solver": "exact"}
    fixed = NGDSVGPRegressor(1.0 * sk.RBF(3.0), **options).fit(X, y)
    assert fixed.likelihood_.variance == pytest.approx(0.1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_two_ordered_classes(rng):
    X = rng.normal(size=(100, 1))
    model = NGDSVGPClassifier(likelihood="ordinal", n_inducing=8, n_mean_inducing=20, mean_solver="exact", max_iter=60)
    assert model.fit(X, X[:, 0] > 0).score(X, X[:, 0] > 0) > 0.9


# -- means that steps have not found ------------------------------------------------------------


def stepped(noise, max_iter, **options):
    """A regressor with fixed hyperparameters, fitted by natural steps, and its warnings about the mean."""
    X = np.random.RandomState(0).uniform(0.0, 10.0, (200, 1))
    options = {"mean_solver": "natural", "n_inducing": 6, "n_mean_inducing": 20, "max_iter": max_iter} | options
    model = NGDSVGPRegressor(
        sk.ConstantKernel(4.0, "fixed") * sk.RBF(1.0, "fixed"),
        likelihood=Gaussian(noise, "fixed"),
        solver="ngd",
        optimizer=None,
        gamma_schedule=0.5,
        n_iter_no_change=2,
        random_state=0,
        **options,
    )
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.fit(X, 3.0 * np.sin(X[:, 0]))
    return model, [str(each.message) for each in found if "mean has not converged" in str(each.message)]


def test_the_rise_of_the_best_mean_is_that_of_many_more_steps(monkeypatch):
    rises, rise = [], exact_mean.rise
    monkeypatch.setattr(exact_mean, "rise", lambda *given: rises.append(rise(*given)) or rises[-1])
    few, many = (stepped(0.5, n, tol=0.0)[0] for n in (15, 600))
    assert_allclose(many.elbo_ - few.elbo_, 200 * (rises[0] - rises[1]), rtol=1e-5)
    assert rises[0] > 5e-4
    assert abs(rises[1]) < 0.01 * rises[0]


def test_natural_steps_at_little_noise_say_that_the_mean_has_not_converged():
    few, (text,) = stepped(1e-4, 30)
    assert "mean_solver='exact'" in text
    assert "nats per row" in text
    # The advice helps, and then nothing is said.
    solved, nothing = stepped(1e-4, 30, mean_solver="exact")
    assert not nothing
    assert solved.elbo_ > few.elbo_ + 1.0
    assert not stepped(1e-4, 30, n_mean_inducing=0)[1]
    assert not stepped(0.5, 600, tol=1e-2)[1]
