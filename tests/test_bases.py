"""Orthogonal, hybrid and decoupled basis against dense linear algebra."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process import kernels as sk

from skgp_natgrad import NGDSVGPRegressor, kernels
from skgp_natgrad.likelihoods import Gaussian, StudentT
from skgp_natgrad.prediction import posterior
from skgp_natgrad.prediction.joint import covariance_of_latents
from skgp_natgrad.step import step
from skgp_natgrad.step.algorithm import Algorithm
from skgp_natgrad.variational import bases, gaussian, natural_gradient
from skgp_natgrad.variational import bound as bounds
from skgp_natgrad.variational import model as model_parts
from skgp_natgrad.variational.bases import _mean_points
from skgp_natgrad.variational.points import factorise

from .conftest import JITTER, make_problem
from .reference import dense_elbo, dense_process, expected_log_likelihood

BASES = sorted(bases.BASES)


@functools.partial(jax.jit, static_argnames="basis")
def bound(basis, parameters, q, batch, constants):
    if basis == "decoupled":  # q(v) has no part in it, and stays the prior
        q = gaussian.standard(*q.mean.shape)
    return step.bound(q, parameters, constants, batch, Algorithm(basis=basis))


latent_moments = jax.jit(bounds.latent_moments, static_argnums=0)


@functools.partial(jax.jit, static_argnames="basis")
def dense(basis, parameters, q, batch):
    """Latent moments, and the bound, by dense linear algebra."""
    mean, var, kl = dense_process(basis, parameters, q.mean, q.cov, batch.X, JITTER)
    return mean, var, expected_log_likelihood(parameters, mean, var, batch) - kl


# Of the likelihoods, which both sides have in common, one: of two latent functions, and not conjugate.
@pytest.mark.parametrize("basis", BASES)
@pytest.mark.usefixtures("x64")
def test_moments_and_kl_are_proposition_a1(basis, rng):
    parameters, q, batch, constants = make_problem(StudentT(), rng, n_mean_inducing=5, basis=basis)
    latent = latent_moments(basis, parameters, q.mean, q.cov, batch.X, constants)
    mean, var, expected = dense(basis, parameters, q, batch)
    assert_allclose(latent.mean, mean, rtol=1e-9, atol=1e-9)
    assert_allclose(latent.var, var, rtol=1e-9, atol=1e-9)
    assert_allclose(bound(basis, parameters, q, batch, constants), expected, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("basis", BASES)
@pytest.mark.usefixtures("x64")
def test_gradients_equal_plain_autodiff(basis, rng):
    parameters, q, batch, constants = make_problem(StudentT(), rng, n_mean_inducing=5, basis=basis)

    def ours(parameters, m, S):
        return bounds.bound_given_q(basis, parameters, m, S, batch, constants)

    def plain(parameters, m, S):
        own = (
            0.0
            if basis == "decoupled"
            else 0.5 * sum(jnp.trace(s) + a @ a - len(a) - jnp.linalg.slogdet(s)[1] for a, s in zip(m, S, strict=True))
        )
        return dense_elbo(basis, parameters, m, S, batch, JITTER) + own

    got = jax.jit(jax.grad(ours, argnums=(0, 1, 2)))(parameters, q.mean, q.cov)
    want = jax.jit(jax.grad(plain, argnums=(0, 1, 2)))(parameters, q.mean, q.cov)
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [sk.Matern(0.9), 0.7 * sk.RBF([0.5, 2.0, 1.1]) + 1.3 * kernels.Laplacian(1.5)])
@pytest.mark.usefixtures("x64")
def test_values_of_mean_only_points_some_at_a_time(kernel, rng, monkeypatch):
    """They and their derivatives are those of the whole matrix, and no program holds that."""
    # GPUs make all at once.
    with jax.default_device(jax.devices("cpu")[0]):
        check_by_blocks(kernels.from_sklearn(kernel, 3).value, rng, monkeypatch)


def check_by_blocks(kernel, rng, monkeypatch):
    Z, X, a, g = (rng.normal(size=shape) for shape in ((53, 3), (40, 3), (2, 53), (2, 40)))

    def pulled_back(function):
        return jax.jit(lambda *arguments: (function(*arguments), jax.vjp(function, *arguments)[1](g)))

    want = pulled_back(lambda kernel, Z, a, X: a @ kernel(Z, X))(kernel, Z, a, X)
    monkeypatch.setattr(_mean_points, "_BLOCK", 10 * len(X))
    by_blocks = pulled_back(_mean_points.values)
    for ours, theirs in zip(*map(jax.tree.leaves, (by_blocks(kernel, Z, a, X), want)), strict=True):
        assert_allclose(ours, theirs, rtol=1e-11, atol=1e-12)
    assert "f64[53,40]" not in by_blocks.lower(kernel, Z, a, X).compile().as_text()
    assert "f64[9,40]" in by_blocks.lower(kernel, Z, a, X).compile().as_text()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("basis", BASES)
@pytest.mark.usefixtures("x64")
def test_a_basis_with_its_mean_only_points_some_at_a_time(basis, dtype, rng, monkeypatch):
    parameters, q, batch, constants = make_problem(Gaussian(), rng, n_mean_inducing=33, basis=basis)
    batch = batch._replace(X=batch.X.astype(dtype), columns=np.arange(20))

    def value_and_gradient():
        of_parameters = functools.partial(bounds.bound_given_q, basis)
        return jax.jit(jax.value_and_grad(of_parameters))(parameters, q.mean, q.cov, batch, constants)

    at_once = value_and_gradient()
    monkeypatch.setattr(_mean_points, "_BLOCK", 10 * len(batch.X))
    for ours, theirs in zip(*map(jax.tree.leaves, (value_and_gradient(), at_once)), strict=True):
        scale = np.abs(theirs).max(initial=1e-300)
        assert_allclose(ours / scale, theirs / scale, atol=1e-11 if dtype == "float64" else 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("basis", ["orthogonal", "hybrid"])
@pytest.mark.usefixtures("x64")
def test_without_mean_only_points_a_basis_is_the_coupled_one(basis, rng):
    parameters, q, batch, constants = make_problem(Gaussian(), rng, basis=basis)
    want = dense("orthogonal", parameters, q, batch)[2]
    assert_allclose(bound(basis, parameters, q, batch, constants), want, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_natural_gradients_of_hybrid_are_those_of_orthogonal(rng):
    """Appendix C.2 and C.3: the same process takes the same natural gradient step in both bases."""
    parameters, q, batch, constants = make_problem(StudentT(), rng, n_mean_inducing=4)

    @jax.jit
    def moved_by_both(parameters, q):
        (kernel,) = model_parts.exponential(parameters.log_kernels)
        L_inv = factorise(kernel, parameters.points.Z, constants.masks.Z, JITTER).inverse
        w = parameters.weights.a @ kernel(parameters.points.Z_mean, parameters.points.Z) @ L_inv.T
        moved = {}
        for basis, mean in (("orthogonal", q.mean), ("hybrid", q.mean - w)):
            nat1 = jnp.einsum("kij,kj->ki", q.precision, mean)
            own = q._replace(mean=mean, nat1=nat1)
            dm, dS = jax.grad(bounds.bound_given_q, argnums=(2, 3))(basis, parameters, mean, q.cov, batch, constants)
            moved[basis] = natural_gradient.candidate(own, dm, dS, 0.4)
        return w, moved

    w, moved = jax.device_get(moved_by_both(parameters, q))
    assert_allclose(moved["hybrid"].mean + w, moved["orthogonal"].mean, rtol=1e-9, atol=1e-9)
    assert_allclose(moved["hybrid"].cov, moved["orthogonal"].cov, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("basis", BASES)
@pytest.mark.usefixtures("x64")
def test_sampled_columns_are_unbiased(basis, rng):
    """The mean over all pairs of columns is the bound, and its gradient that of the bound."""
    parameters, q, batch, constants = make_problem(Gaussian(), rng, n_mean_inducing=5, basis=basis)

    def sampled(parameters):
        def of_pair(pair):
            return bound(basis, parameters, q, batch._replace(columns=pair), constants)

        return jax.vmap(of_pair)(np.array(list(itertools.combinations(range(5), 2)))).mean()

    value, gradient = jax.jit(jax.value_and_grad(sampled))(parameters)
    want, want_gradient = jax.jit(jax.value_and_grad(lambda p: bound(basis, p, q, batch, constants)))(parameters)
    assert_allclose(value, want, rtol=1e-11)
    for got, theirs in zip(jax.tree.leaves(gradient), jax.tree.leaves(want_gradient), strict=True):
        assert_allclose(got, theirs, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.usefixtures("x64")
def test_posterior_predicts_the_same_moments(basis, rng):
    parameters, q, batch, constants = make_problem(StudentT(), rng, n_mean_inducing=5, basis=basis)
    constants = constants._replace(prior_mean=rng.normal(size=(2, 1)))
    fitted, _ = posterior.condition(basis, parameters, q, constants)
    twins = jax.tree.map(np.exp, parameters.log_kernels)
    mean, var = jax.jit(posterior.latent_moments)(twins, fitted, batch.X)
    latent = latent_moments(basis, parameters, q.mean, q.cov, batch.X, constants)
    assert_allclose(mean, latent.mean, rtol=1e-8, atol=1e-8)
    assert_allclose(var, latent.var, rtol=1e-8, atol=1e-8)
    block = covariance_of_latents(twins, fitted, batch.X)
    assert_allclose(np.diagonal(block, axis1=1, axis2=2), var, rtol=1e-8, atol=1e-8)
    assert np.linalg.eigvalsh(block).min() > -1e-8


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_latent_functions_with_kernels_of_their_own(rng):
    """Two kernels: the bound is that of the two latent functions apart."""
    parameters, q, batch, constants = make_problem(Gaussian([0.1, 0.3]), rng, n_mean_inducing=4)
    other = jax.tree.map(np.log, kernels.from_sklearn(sk.Matern(0.5, nu=1.5), 3).value)
    both = parameters._replace(log_kernels=(*parameters.log_kernels, other))
    apart = 0.0
    for k, log_kernel in enumerate(both.log_kernels):
        own = parameters._replace(
            log_kernels=(log_kernel,),
            raw_likelihood=jax.tree.map(lambda x, k=k: x[k : k + 1], parameters.raw_likelihood),
            weights=jax.tree.map(lambda x, k=k: x[k : k + 1], parameters.weights),
        )
        one = jax.tree.map(lambda x, k=k: x[k : k + 1], q)
        alone = constants._replace(prior_mean=np.zeros((1, 1)))
        apart += bound("orthogonal", own, one, batch._replace(y=batch.y[k : k + 1]), alone)
    assert_allclose(bound("orthogonal", both, q, batch, constants), apart, rtol=1e-11)
    fitted, _ = posterior.condition("orthogonal", both, q, constants)
    mean, var = jax.jit(posterior.latent_moments)(jax.tree.map(np.exp, both.log_kernels), fitted, batch.X)
    latent = latent_moments("orthogonal", both, q.mean, q.cov, batch.X, constants)
    assert_allclose(mean, latent.mean, rtol=1e-8, atol=1e-8)
    assert_allclose(var, latent.var, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_natural_gradients_reach_the_optimum_and_the_decoupled_basis_does_not(rng):
    """Figure 2(a) of the orthogonal paper in small: fixed hyperparameters, full batch."""
    X = rng.uniform(-3, 3, size=(300, 2))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.2 * rng.normal(size=300)
    kernel, noise = sk.RBF(0.7), 0.1
    alpha = X[:60]
    Kax, Kaa = kernel(alpha, X), kernel(alpha)
    options = {
        "likelihood": Gaussian(noise),
        "n_inducing": 30,
        "n_mean_inducing": 30,
        "inducing_init": alpha,
        "optimizer": None,
        "max_iter": 500,
        "tol": 0.0,
        "normalize_X": False,
        "normalize_y": False,
    }
    best = Kax.T @ np.linalg.solve(Kax @ Kax.T / noise + Kaa, Kax @ y / noise)

    def distance(**own):
        return np.sqrt(np.mean((NGDSVGPRegressor(kernel, **options, **own).fit(X, y).predict(X) - best) ** 2))

    natural = distance(mean_solver="natural", gamma_schedule=0.5)
    decoupled = distance(basis="decoupled", solver="adam", learning_rate=0.01)
    assert natural < 1e-3
    assert decoupled > 20 * natural


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "own", [{"mean_solver": "diagonal"}, {"basis": "hybrid"}, {"batch_size": 60, "mean_columns": 10}]
)
def test_other_ways_to_the_mean_improve_on_the_coupled_basis(own, rng):
    X = rng.uniform(-3, 3, size=(300, 2))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.2 * rng.normal(size=300)
    # With the default rate of .05 the last of these ways ends at .2.
    options = {"kernel": sk.RBF(0.7), "n_inducing": 20, "max_iter": 300, "tol": 0.0, "random_state": 0}
    options |= {"learning_rate": 0.02}
    coupled = NGDSVGPRegressor(**options).fit(X, y)
    assert NGDSVGPRegressor(n_mean_inducing=60, **options, **own).fit(X, y).score(X, y) > coupled.score(X, y)
