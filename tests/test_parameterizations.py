"""The six parameterizations: conversions, natural gradients, the Fisher matrix."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import linalg, special
from sklearn.gaussian_process.kernels import RBF

from skgp_natgrad import NGDSVGPClassifier
from skgp_natgrad.paper.coordinates import symmetric_exp, symmetric_log
from skgp_natgrad.variational import gaussian, natural_gradient
from skgp_natgrad.variational.parameterizations import PARAMETERIZATIONS

from .conftest import random_gaussian

pytestmark = pytest.mark.usefixtures("x64")
NAMES = sorted(PARAMETERIZATIONS)


# Each compiled as a whole, and once for each shape.
@functools.partial(jax.jit, static_argnames="name")
def from_gaussian(name, q):
    return PARAMETERIZATIONS[name].from_gaussian(q)


@functools.partial(jax.jit, static_argnames="name")
def to_gaussian(name, xi):
    return PARAMETERIZATIONS[name].to_gaussian(xi)


velocity_of = jax.jit(natural_gradient.velocity, static_argnums=3)


def random_symmetric(rng, size):
    A = rng.normal(size=(size, size))
    return A + A.T


def test_there_are_six():
    assert NAMES == ["mean_var", "mean_var_log", "mean_var_sqrt", "natural", "natural_log", "natural_sqrt"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("at_identity", [False, True])
def test_round_trips(name, at_identity, rng):
    q = gaussian.standard(3, 5) if at_identity else random_gaussian(rng, 3, 5)
    again = to_gaussian(name, from_gaussian(name, q))
    for got, want in zip(again, q, strict=True):
        assert_allclose(got, want, rtol=1e-10, atol=1e-10)


def test_coordinates_are_those_of_the_paper(rng):
    q = random_gaussian(rng, 1, 4)
    S, P = np.asarray(q.cov[0]), np.asarray(q.precision[0])
    second = {name: np.asarray(from_gaussian(name, q)[1][0]) for name in NAMES}
    assert_allclose(second["mean_var"], S)
    assert_allclose(second["mean_var_sqrt"], np.linalg.cholesky(S))
    assert_allclose(second["mean_var_log"], linalg.logm(S), atol=1e-10)
    assert_allclose(second["natural"], P)
    assert_allclose(second["natural_sqrt"], np.linalg.cholesky(P))
    assert_allclose(second["natural_log"], linalg.logm(P), atol=1e-10)
    for name in NAMES:
        assert_allclose(from_gaussian(name, q)[0], q.mean if "mean" in name else q.nat1)


def test_symmetric_functions_equal_scipys(rng):
    A = random_symmetric(rng, 5)
    assert_allclose(jax.jit(symmetric_exp)(A), linalg.expm(A), rtol=1e-10, atol=1e-10)
    assert_allclose(jax.jit(symmetric_log)(linalg.expm(A)), A, atol=1e-10)


@functools.partial(jax.jit, static_argnums=0)
def tangent_and_gradient(function, A, dA, C):
    return jax.jvp(function, (A,), (dA,))[1], jax.grad(lambda A: (C * function(A)).sum())(A)


@pytest.mark.parametrize("function", [symmetric_exp, symmetric_log])
@pytest.mark.parametrize("spectrum", [[1.0, 1.0, 1.0], [0.5, 0.5, 3.0], [0.2, 1.0, 7.0], [1.0, 1.0 + 1e-9, 40.0]])
def test_derivatives_of_symmetric_functions(function, spectrum, rng):
    """Against complex-step-free central differences; at repeated eigenvalues too."""
    rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    A, dA = rotation * spectrum @ rotation.T, random_symmetric(rng, 3)
    C = random_symmetric(rng, 3)
    tangent, gradient = jax.device_get(tangent_and_gradient(function, A, dA, C))
    h = 1e-5
    plain = linalg.expm if function is symmetric_exp else linalg.logm
    assert_allclose(tangent, (plain(A + h * dA) - plain(A - h * dA)) / (2 * h), rtol=1e-6, atol=1e-7)
    assert_allclose((gradient * dA).sum(), (C * tangent).sum(), rtol=1e-10)


# -- natural gradients --------------------------------------------------------------------


def random_gradients(rng, n_latent, size):
    """Gradients of some expected log-likelihood in the moments."""
    dS = -np.stack([random_symmetric(rng, size) @ random_symmetric(rng, size).T for _ in range(n_latent)])
    return rng.normal(size=(n_latent, size)), 0.5 * (dS + dS.transpose(0, 2, 1))


@functools.partial(jax.jit, static_argnames="name")
def path_of(name, q, dm, dS):
    """The change of (m, S) for an infinitesimal natural gradient step."""
    coordinates = PARAMETERIZATIONS[name]
    velocity = natural_gradient.velocity(q, dm, dS, name)

    def moments(xi):
        moved = coordinates.to_gaussian(xi)
        return moved.mean, moved.cov

    return jax.jvp(moments, (coordinates.from_gaussian(q),), (velocity,))[1]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("at_identity", [False, True])
def test_all_follow_the_same_path(name, at_identity, rng):
    q = jax.tree.map(jnp.asarray, gaussian.standard(2, 4)) if at_identity else random_gaussian(rng, 2, 4)
    dm, dS = random_gradients(rng, 2, 4)
    for got, want in zip(path_of(name, q, dm, dS), path_of("natural", q, dm, dS), strict=True):
        assert_allclose(got, want, rtol=1e-8, atol=1e-8)
    # And a small step of finite size goes along it.
    gamma = 1e-6
    moved, q = jax.device_get((jax.jit(natural_gradient.candidate, static_argnums=4)(q, dm, dS, gamma, name), q))
    assert_allclose((moved.mean - q.mean) / gamma, path_of("natural", q, dm, dS)[0], rtol=1e-3, atol=1e-3)
    assert_allclose((moved.cov - q.cov) / gamma, path_of("natural", q, dm, dS)[1], rtol=1e-3, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_velocity_is_the_inverse_fisher_matrix_times_the_gradient(name, rng):
    """F formed explicitly for M = 3, as the Hessian of KL(q || q') in minimal coordinates."""
    q, (dm, dS) = random_gaussian(rng, 1, 3), random_gradients(rng, 1, 3)
    coordinates, (rows, columns) = PARAMETERIZATIONS[name], np.tril_indices(3)
    first, second = jax.device_get(from_gaussian(name, q))
    start = np.concatenate([first[0], second[0][rows, columns]])

    def gaussian_at(x):
        lower = jnp.zeros((3, 3)).at[rows, columns].set(x[3:])
        full = lower if name.endswith("sqrt") else lower + jnp.tril(lower, -1).T
        return coordinates.to_gaussian((x[None, :3], full[None]))

    def kl(x):
        p = gaussian_at(x)
        difference = p.mean[0] - q.mean[0]
        trace = jnp.trace(p.precision[0] @ q.cov[0])
        return 0.5 * (trace + difference @ p.precision[0] @ difference + p.log_det_cov[0] - q.log_det_cov[0])

    def bound(x):
        p = gaussian_at(x)
        return (dm * p.mean).sum() + (dS * p.cov).sum() - gaussian.kl_to_standard(p)

    want = np.linalg.solve(*jax.jit(lambda x: (jax.jacfwd(jax.jacrev(kl))(x), jax.grad(bound)(x)))(start))
    got = jax.device_get(velocity_of(q, dm, dS, name))
    assert_allclose(got[0][0], want[:3], rtol=1e-7, atol=1e-8)
    assert_allclose(got[1][0][rows, columns], want[3:], rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_ordinary_gradient_is_that_of_the_bound(name, rng):
    q, (dm, dS) = random_gaussian(rng, 2, 3), random_gradients(rng, 2, 3)
    xi = jax.device_get(from_gaussian(name, q))
    first, second = jax.device_get(jax.jit(natural_gradient.ordinary_gradient, static_argnums=3)(q, dm, dS, name))
    step = rng.normal(size=(2, 3)), np.stack([random_symmetric(rng, 3) for _ in range(2)])
    if name.endswith("sqrt"):
        step = step[0], np.tril(step[1])

    def bound(t):
        p = jax.device_get(to_gaussian(name, (xi[0] + t * step[0], xi[1] + t * step[1])))
        kl = sum(0.5 * (np.trace(S) + m @ m - 3 - np.linalg.slogdet(S)[1]) for m, S in zip(p.mean, p.cov, strict=True))
        return float((dm * p.mean).sum() + (dS * p.cov).sum() - kl)

    slope = (bound(1e-5) - bound(-1e-5)) / 2e-5
    assert_allclose((first * step[0]).sum() + (second * step[1]).sum(), slope, rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_step_too_far_is_shortened(name, rng):
    """Precision I - 2 dS of the target is indefinite: in no coordinates is a non-Gaussian committed."""
    q = random_gaussian(rng, 2, 4)
    dS = np.broadcast_to(3.0 * np.eye(4), (2, 4, 4))
    velocity = velocity_of(q, np.ones((2, 4)), dS, name)
    moved = jax.jit(natural_gradient.step, static_argnums=3)(q, velocity, 1.0, name)
    candidate = functools.partial(jax.jit(natural_gradient.candidate, static_argnums=4), q, np.ones((2, 4)), dS)
    assert -np.log2(moved.gamma) == int(moved.n_halvings)
    for got, want in zip(moved.q, candidate(float(moved.gamma), name), strict=True):
        assert_allclose(got, want, rtol=1e-9, atol=1e-12)
    assert np.linalg.eigvalsh(moved.q.cov).min() > 0
    # Half of the size was needed: the whole leaves no Gaussian.
    if moved.n_halvings:
        too_far = candidate(2.0 * float(moved.gamma), name)
        assert not np.all(np.linalg.eigvalsh(np.nan_to_num(too_far.precision)) > 0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fits_by_all_end_at_the_same_probabilities(rng):
    X = rng.normal(size=(200, 2))
    y = rng.uniform(size=200) < special.expit(3.0 * np.sin(2.0 * X[:, 0]) + X[:, 1])
    found = []
    for name in NAMES:
        options = {"solver": "ngd", "max_iter": 3000, "tol": 0.0, "batch_size": 200, "calibrate": False}
        model = NGDSVGPClassifier(1.0 * RBF([1.0, 1.0]), parameterization=name, n_inducing=20, **options)
        found.append(model.set_params(random_state=0).fit(X, y).predict_proba(X)[:, 1])
    assert np.ptp(found, axis=0).max() < 5e-3
