"""Solvers: L-BFGS and the collapsed bound, line searches, ordinary gradients, refusals, the whole GP, callbacks."""

import pickle
import warnings

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from skgp_natgrad import LineSearch, NGDSVGPClassifier, NGDSVGPRegressor, likelihoods
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.step.algorithm import Algorithm
from skgp_natgrad.step.chunk import try_step
from skgp_natgrad.step.state import initial_state
from skgp_natgrad.training import lbfgs
from skgp_natgrad.variational import bound as bounds
from skgp_natgrad.variational import gaussian
from skgp_natgrad.variational.parameterizations import PARAMETERIZATIONS

from .conftest import JITTER, make_problem
from .reference import titsias

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture
def table(rng):
    X = rng.uniform(-3, 3, size=(80, 2))
    return X, np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=80)


# -- L-BFGS -------------------------------------------------------------------------------


@pytest.mark.usefixtures("x64")
def test_collapsed_bound_is_titsias(rng):
    parameters, q, batch, constants = make_problem(Gaussian(0.2), rng, n_targets=1)
    batch = batch._replace(weight=np.ones(25))
    method = Algorithm(solver="lbfgs")
    value, (_, gradient) = jax.device_get(lbfgs.value_and_gradient((None, parameters), q, constants, batch, method))
    kernel = sk.ConstantKernel(1.3) * sk.Matern([1.1, 0.7, 1.6], nu=2.5) + sk.RBF(0.9)
    want = titsias(kernel, parameters.points.Z, batch.X, batch.y[0], 0.2, JITTER, batch.X)[0]
    assert_allclose(value, want, rtol=1e-9)
    # The envelope theorem: the gradient with q held is that of the collapsed bound.
    step = jax.tree.map(lambda x: rng.normal(size=np.shape(x)), parameters)

    def at(t):
        moved = jax.tree.map(lambda p, s: p + t * s, parameters, step)
        return float(lbfgs.value_and_gradient((None, moved), q, constants, batch, method)[0])

    slope = sum(jax.tree.leaves(jax.tree.map(lambda g, s: (g * s).sum(), gradient, step)))
    assert_allclose(slope, (at(1e-6) - at(-1e-6)) / 2e-6, rtol=1e-5)


@pytest.mark.slow
def test_whole_gp_by_lbfgs_is_scikit_learns(table):
    """Inducing points at the data, Gaussian noise: the bound is the evidence, and so is its maximum."""
    X, y = table
    kernel = sk.ConstantKernel(4.0) * sk.RBF(2.0)
    options = {"solver": "lbfgs", "max_iter": 200, "tol": 0.0, "normalize_X": False}
    exact = GaussianProcessRegressor(kernel + sk.WhiteKernel(0.1), normalize_y=True).fit(X, y)
    reg = NGDSVGPRegressor(kernel, n_inducing=None, **options).fit(X, y)
    assert reg.inducing_points_.shape == X.shape
    assert_allclose(reg.elbo_, exact.log_marginal_likelihood_value_, atol=0.02)
    assert_allclose(reg.predict(X), exact.predict(X), atol=0.01)
    assert_allclose(reg.likelihood_.variance, exact.kernel_.k2.noise_level, rtol=0.02)
    none, every = (
        NGDSVGPRegressor(kernel, n_inducing=n, **{**options, "max_iter": 3}).fit(X, y) for n in (None, "all")
    )
    assert_array_equal(every.inducing_points_, none.inducing_points_)
    assert every.elbo_ == none.elbo_
    with pytest.raises(ValueError, match="n_mean_inducing=5"):
        NGDSVGPRegressor(n_inducing=None, n_mean_inducing=5).fit(X, y)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["student_t", "gamma"])
def test_lbfgs_moves_q_where_it_must(likelihood, table):
    X, y = table
    y = y if likelihood == "student_t" else np.exp(0.5 * y)
    options = {"kernel": sk.RBF(1.0), "likelihood": likelihood, "n_inducing": 15, "tol": 0.0, "random_state": 0}
    options["max_iter"] = 1000
    # A larger rate leads to another maximum over the inducing points.
    ngd = NGDSVGPRegressor(learning_rate=0.02, **options).fit(X, y)
    model = NGDSVGPRegressor(solver="lbfgs", parameterization="mean_var_sqrt", **options).fit(X, y)
    assert model.elbo_ > ngd.elbo_ - 1.0
    assert np.all(np.diff(model.elbo_curve_) > -1e-6 * np.abs(model.elbo_))


@pytest.mark.slow
def test_lbfgs_honours_bounds(table):
    kernel = sk.ConstantKernel(1.0, "fixed") * sk.RBF(1.0, (0.9, 1.1))
    model = NGDSVGPRegressor(kernel, likelihood=Gaussian(0.3, "fixed"), n_inducing=10, solver="lbfgs").fit(*table)
    assert model.kernel_.k1.constant_value == pytest.approx(1.0)
    assert 0.9 <= model.kernel_.k2.length_scale <= 1.1
    assert model.likelihood_.variance == pytest.approx(0.3)


# -- line searches ------------------------------------------------------------------------


@pytest.mark.slow
def test_a_line_search_finds_gamma_one_for_a_gaussian(table):
    """Figure 2: with a conjugate likelihood one step of size one is the optimum."""
    X, y = table
    kernel = sk.RBF(1.0)
    model = NGDSVGPRegressor(
        kernel,
        likelihood=Gaussian(0.1),
        inducing_init=X[:15],
        optimizer=None,
        gamma_schedule=LineSearch(),
        max_iter=5,
        normalize_X=False,
        normalize_y=False,
    ).fit(X, y)
    assert_allclose(model.elbo_, titsias(kernel, X[:15], X, y, 0.1, 1e-8, X)[0], rtol=1e-8)
    assert model.step_sizes_[0] == 1.0
    assert_allclose(model.elbo_curve_[1], model.elbo_, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("parameterization", ["natural", "natural_log", "mean_var_sqrt"])
def test_searched_steps_never_lose(parameterization, table):
    X, y = table
    options = {"optimizer": None, "n_inducing": 10, "max_iter": 6, "tol": 0.0, "parameterization": parameterization}
    options |= {"kernel": sk.ConstantKernel(4.0) * sk.RBF(1.0), "random_state": 0}
    natural = NGDSVGPClassifier(gamma_schedule="line_search", **options).fit(X, y > 0)
    ordinary = NGDSVGPClassifier(solver="gd", learning_rate=LineSearch(1e3), **options).fit(X, y > 0)
    for model in (natural, ordinary):
        assert np.all(np.diff(model.elbo_curve_) >= 0)
    assert natural.elbo_ > ordinary.elbo_


# -- ordinary gradients -------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("parameterization", sorted(PARAMETERIZATIONS))
def test_ordinary_gradients_approach_the_optimum(parameterization, table):
    X, y = table
    options = {"kernel": sk.RBF(1.0), "n_inducing": 10, "optimizer": None, "tol": 0.0}
    best = NGDSVGPRegressor(gamma_schedule=1.0, max_iter=1, **options).fit(X, y)
    model = NGDSVGPRegressor(
        solver="adam", parameterization=parameterization, learning_rate=0.05, max_iter=600, **options
    ).fit(X, y)
    start = model.elbo_curve_[0]
    assert best.elbo_ - model.elbo_ < 0.2 * (best.elbo_ - start)
    assert np.corrcoef(model.predict(X), best.predict(X))[0, 1] > 0.9


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_a_gradient_descent_step_is_the_gradient(rng):
    """solver="gd" moves every parameter by the learning rate times the gradient for each unit of weight."""
    parameters, q, batch, constants = make_problem(likelihoods.StudentT(), rng)
    constants = constants._replace(weight=7.0)
    method = Algorithm(solver="gd", parameterization="mean_var_sqrt")
    coordinates = PARAMETERIZATIONS["mean_var_sqrt"]
    state = initial_state(q, parameters, constants, method)
    moved, _, _ = try_step(state, constants, batch, 0.0, 1e-3, method)

    def bound(xi, parameters):
        own = coordinates.to_gaussian(xi)
        given_q = bounds.bound_given_q("orthogonal", parameters, own.mean, own.cov, batch, constants)
        return given_q - gaussian.kl_to_standard(own)

    xi = jax.jit(coordinates.from_gaussian)(q)
    gradient = jax.device_get(jax.jit(jax.grad(bound, argnums=(0, 1)))(xi, parameters))
    want = jax.tree.map(lambda x, g: x + 1e-3 / 7.0 * g, (xi, parameters), gradient)
    got = jax.jit(coordinates.from_gaussian)(moved.q), moved.parameters
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


# -- what makes no sense together ---------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"basis": "decoupled", "n_mean_inducing": 5}, "basis='decoupled' has no natural parameters.*solver='adam'"),
        ({"solver": "lbfgs", "batch_size": 40}, "solver='lbfgs' needs the whole table.*batch_size"),
        ({"gamma_schedule": "line_search", "batch_size": 40}, "line search needs the whole table"),
        ({"solver": "lbfgs", "likelihood": "student_t"}, "parameterization='natural'.*'mean_var_sqrt'"),
        ({"solver": "adam", "mean_solver": "natural"}, "mean_solver='natural'.*solver='ngd'"),
        ({"basis": "hybrid", "mean_solver": "exact"}, "mean_solver='exact'.*basis='orthogonal'"),
        ({"learning_rate": "line_search"}, "learning_rate='line_search'.*gamma_schedule"),
        ({"n_inducing": "every"}, "n_inducing='every'"),
        ({"mean_columns": "some"}, "mean_columns='some'"),
        ({"kernel": [sk.RBF(), sk.RBF()]}, "list of 2, but the number of latent functions is 1"),
    ],
)
def test_combinations_are_refused_by_name(arguments, message, table):
    with pytest.raises(ValueError, match=message):
        NGDSVGPRegressor(**arguments).fit(*table)


# -- kernels for each latent function, callbacks ------------------------------------------


@pytest.mark.slow
def test_a_kernel_for_each_output(table):
    X, y = table
    two = np.column_stack([y, X[:, 0]])
    model = NGDSVGPRegressor([sk.RBF(1.0), sk.DotProduct()], n_inducing=10, max_iter=100).fit(X, two)
    assert [type(kernel).__name__ for kernel in model.kernel_] == ["RBF", "DotProduct"]
    assert model.predict(X).shape == (80, 2)
    assert model.predict(X, return_cov=True)[1].shape == (80, 80, 2)
    assert model.score(X, two) > 0.8


@pytest.mark.slow
def test_a_callback_sees_a_fitted_model_and_can_stop(table):
    X, y = table
    seen = []

    def callback(n_iter, model):
        seen.append((n_iter, model.elbo_, model.score(X, y)))
        return n_iter >= 60  # Anything else that is true does not stop.

    never = NGDSVGPRegressor(n_inducing=10, max_iter=80, tol=0.0, callback=lambda n_iter, model: model.elbo_).fit(X, y)
    assert never.n_iter_ == 80
    model = NGDSVGPRegressor(n_inducing=10, max_iter=1000, tol=0.0, callback=callback).fit(X, y)
    assert [n for n, _, _ in seen] == [20, 40, 60]
    assert model.n_iter_ == 60
    assert seen[-1][2] == pytest.approx(model.score(X, y), abs=0.05)


# -- going on -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "own",
    [
        {"solver": "adam", "basis": "decoupled", "n_mean_inducing": 6},
        {"basis": "hybrid", "n_mean_inducing": 6},
        {"solver": "lbfgs"},
        {"kernel": [sk.RBF()]},
        {"n_inducing": None},
        {"n_inducing": None, "basis": "decoupled", "solver": "adam"},
        {"mean_solver": "natural"},
        {"mean_solver": "exact", "n_mean_inducing": 20},
    ],
    ids=repr,
)
def test_warm_starts_and_copies(own, table):
    X, y = table
    model = NGDSVGPRegressor(**{"n_inducing": 10, "max_iter": 40, "warm_start": True, "random_state": 0, **own})
    first = clone(model).fit(X, y)
    assert_allclose(pickle.loads(pickle.dumps(first)).predict(X), first.predict(X))
    before = first.elbo_curve_[-1]
    again = first.fit(X, y)
    assert again.elbo_curve_[0] > before - 5.0
    assert again.mean_inducing_points_.shape == (len(again.mean_inducing_points_), 2)
    other = "orthogonal" if own.get("basis") else "hybrid"
    with pytest.raises(ValueError, match=f"warm_start=True, but basis='{other}'"):
        again.set_params(basis=other, solver="ngd", mean_solver="adam").fit(X, y)


@pytest.mark.slow
def test_a_search_that_ends_at_the_optimum_does_not_warn(table):
    X, y = table
    options = {"n_inducing": 10, "optimizer": None, "gamma_schedule": "line_search", "max_iter": 1000}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = NGDSVGPRegressor(sk.RBF(1.0), **options).fit(X, y)
    assert model.n_iter_ < 10


@pytest.mark.slow
def test_lbfgs_with_parameters_at_zero(table):
    kernel = sk.DotProduct(0.0, "fixed") * sk.RBF() + sk.RBF()
    model = NGDSVGPRegressor(kernel, n_inducing=8, solver="lbfgs", max_iter=30).fit(*table)
    assert model.kernel_.k1.k1.sigma_0 == 0.0
    assert model.score(*table) > 0.5


def test_points_given_twice_are_refused(table):
    X, y = table
    with pytest.raises(ValueError, match=r"n_inducing=None.*inducing_init"):
        NGDSVGPRegressor(n_inducing=None, inducing_init=X[:5]).fit(X, y)
    with pytest.raises(ValueError, match="mean_solver='exact' places"):
        NGDSVGPRegressor(n_inducing=5, n_mean_inducing=5, mean_solver="exact", inducing_init=X[:10]).fit(X, y)


@pytest.mark.slow
def test_a_parameterization_of_the_users_own_is_one_of_those_that_there_are(table, monkeypatch):
    monkeypatch.setitem(PARAMETERIZATIONS, "own", PARAMETERIZATIONS["mean_var"])
    options = {"solver": "ngd", "n_inducing": 5, "max_iter": 3, "random_state": 0}
    own, ours = (NGDSVGPRegressor(sk.RBF(), parameterization=name, **options) for name in ("own", "mean_var"))
    assert_array_equal(own.fit(*table).predict(table[0]), ours.fit(*table).predict(table[0]))
