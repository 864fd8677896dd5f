"""Optimizers of optax, and functions of the iteration as schedules."""

import jax
import numpy as np
import optax
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF

from skgp_natgrad import Constant, NGDSVGPRegressor
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.step.algorithm import Algorithm
from skgp_natgrad.step.optimizer import fresh_optimizer, optimizer_step, restarted_optimizer
from skgp_natgrad.step.state import initial_state

from .conftest import make_problem

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

X = np.random.default_rng(0).normal(size=(60, 2))
Y = np.sin(X[:, 0]) + X[:, 1]
OPTIONS = {"n_inducing": 5, "max_iter": 20, "random_state": 0}


def fit(**options):
    return NGDSVGPRegressor(**OPTIONS, **options).fit(X, Y)


@pytest.mark.slow
def test_adam_of_optax_is_adam_by_name():
    # Under the noise of 1e-8 that the search finds here, rounding would grow by a factor of a million.
    given = {"kernel": 1.0 * RBF(1.0), "likelihood": Gaussian(0.1)}
    by_name = fit(learning_rate=Constant(0.01), **given)
    of_optax = fit(optimizer=optax.adam(0.01), **given)
    assert_allclose(of_optax.elbo_curve_, by_name.elbo_curve_, rtol=1e-10)
    assert_allclose(of_optax.predict(X), by_name.predict(X), rtol=1e-9)


@pytest.mark.usefixtures("x64")
def test_a_transformation_sees_where_it_is_and_adds_what_it_returns(rng):
    """Decay alone takes the same part of everything, the mean-only weights in the coordinates of their gradient."""
    parameters, q, _, constants = make_problem(Gaussian(), rng)
    free = tuple(parameters[:2])
    bounds = tuple(jax.tree.map(lambda x, end=end: np.full(np.shape(x), end), free) for end in (-1e9, 1e9))
    constants, rate = constants._replace(log_bounds=bounds), 0.1
    decay = optax.chain(optax.set_to_zero(), optax.add_decayed_weights(1.0), optax.scale(-rate))
    algorithm = Algorithm(optimizer=decay)
    state = initial_state(q, parameters, constants, algorithm)
    gradient = (None, jax.tree.map(np.ones_like, state.parameters))
    step = jax.jit(optimizer_step, static_argnames="algorithm")
    (_, moved), _, skipped = step(state, constants, gradient, 1.0, algorithm=algorithm, point_rate=1.0)
    assert not skipped
    for after, before in zip(jax.tree.leaves(moved), jax.tree.leaves(state.parameters), strict=True):
        assert_allclose(after, (1.0 - rate) * np.asarray(before), rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_a_transformation_survives_clone_and_moves_q_too():
    model = NGDSVGPRegressor(**OPTIONS, optimizer=optax.adamw(0.01), solver="adam", parameterization="mean_var_sqrt")
    assert_array_equal(clone(model).fit(X, Y).predict(X), model.fit(X, Y).predict(X))
    assert model.elbo_curve_[-1] > model.elbo_curve_[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 0.1}, r"learning_rate=0\.1 has no effect .*=optax\.adam"),
        ({"solver": "gd"}, "no effect with solver='gd'"),
        ({"checkpoint": "file"}, "checkpoint='file' cannot be used with an optimizer of optax"),
    ],
)
def test_what_a_transformation_does_not_go_with(options, message):
    with pytest.raises(ValueError, match=message):
        fit(optimizer=optax.adam(0.01), **options)


@pytest.mark.slow
def test_a_function_of_the_iteration_is_a_schedule():
    steps = fit(gamma_schedule=lambda i: 0.5 / (1 + i), learning_rate=optax.linear_schedule(0.02, 0.0, 20))
    assert_allclose(steps.step_sizes_, 0.5 / (1.0 + np.arange(20)))
    with pytest.raises(ValueError, match=r"gamma_schedule=.* must stay within"):
        fit(gamma_schedule=lambda i: 2.0)
    with pytest.raises(ValueError, match="a function of the iteration"):
        fit(gamma_schedule=Constant)


@pytest.mark.slow
def test_decay_leaves_points_at_the_rows_where_they_are():
    model = NGDSVGPRegressor(n_inducing=None, max_iter=20, optimizer=optax.adamw(0.05, weight_decay=1.0)).fit(X, Y)
    assert_allclose(np.sort(model.inducing_points_, axis=0), np.sort(X, axis=0), rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_a_schedule_of_optax_goes_on_after_a_step_that_was_taken_back(rng):
    parameters, q, _, _ = make_problem(Gaussian(), rng)
    algorithm = Algorithm(optimizer=optax.adam(optax.cosine_decay_schedule(0.05, 100)))
    before = jax.tree.map(lambda x: x + 7, fresh_optimizer(q, parameters, algorithm))
    after = jax.jit(restarted_optimizer, static_argnames="algorithm")(q, parameters, algorithm, before)
    assert [int(leaf) for leaf in jax.tree.leaves(after) if np.ndim(leaf) == 0] == [7, 7]
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(after) if np.ndim(leaf))


def test_a_transformation_that_needs_more_than_gradients_is_refused():
    with pytest.raises(ValueError, match=r"^optimizer: .*optax\.adam"):
        fit(optimizer=optax.lbfgs())
