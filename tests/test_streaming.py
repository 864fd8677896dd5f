"""Earlier data as a site: the formula against dense linear algebra, and partial_fit."""

import pickle
import re
import warnings

import jax
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, kernels
from skgp_natgrad._backend import memory
from skgp_natgrad.estimators.fitting import continuing
from skgp_natgrad.likelihoods import Gaussian, Ordinal, Poisson
from skgp_natgrad.training import batches
from skgp_natgrad.variational import bound as bounds
from skgp_natgrad.variational import gaussian, natural_gradient, points, streaming
from skgp_natgrad.variational import model as model_parts

from .conftest import JITTER, make_problem, random_gaussian

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


# -- the site -----------------------------------------------------------------------------

OLD = (1.4 * RBF(0.8), 0.7 * RBF(1.2))
NEW = (1.1 * Matern(0.9, nu=2.5), 0.6 * Matern(1.5, nu=2.5))

carried, best_q, expectation = (jax.jit(f) for f in (streaming.project, streaming.best_q, streaming.expectation))


def twins(of):
    return tuple(kernels.from_sklearn(kernel, 3).value for kernel in of)


def jittered(K):
    return K + JITTER * np.diag(K).mean() * np.eye(len(K))


def factor_of(K):
    L = np.linalg.cholesky(jittered(K))
    return points.Factor(L, np.linalg.inv(L), JITTER)


def random_site(rng, old=OLD[:1], n_latent=2, size=5, Z_new=None):
    """A site at points and under kernels of its own, and the points and q that left it; None for the same points."""
    Z, q = rng.normal(size=(size, 3)), jax.tree.map(np.asarray, random_gaussian(rng, n_latent, size))
    return streaming.of_posterior(Z, [factor_of(kernel(Z)) for kernel in old], q, Z if Z_new is None else Z_new), Z, q


def expected_log_density(mean, cov, at, spread):
    """E[log N(u; at, spread)] under N(mean, cov)."""
    second = cov + np.outer(mean - at, mean - at)
    return -0.5 * (np.linalg.slogdet(2.0 * np.pi * spread)[1] + np.trace(np.linalg.solve(spread, second)))


def dense_expectation(new, Z_new, m, S, old, Z_old, m_old, S_old):
    """E[log q_old(u) / p_old(u)] of one latent function, unwhitened, from the densities themselves."""
    A = np.linalg.solve(np.linalg.cholesky(jittered(new(Z_new))), new(Z_new, Z_old))
    mean, cov = A.T @ m, jittered(new(Z_old)) - A.T @ A + A.T @ S @ A
    prior = jittered(old(Z_old))
    L = np.linalg.cholesky(prior)
    said = expected_log_density(mean, cov, L @ m_old, L @ S_old @ L.T)
    return said - expected_log_density(mean, cov, 0.0 * mean, prior)


@pytest.mark.slow
@pytest.mark.parametrize("n_kernels", [1, 2])
@pytest.mark.usefixtures("x64")
def test_site_is_the_expected_log_ratio_of_the_old_densities(n_kernels, rng):
    """At other points and under another kernel than the old ones; a kernel for both functions, or one each."""
    Z, q = rng.normal(size=(7, 3)), jax.tree.map(np.asarray, random_gaussian(rng, 2, 7))
    site, Z_old, q_old = random_site(rng, OLD[:n_kernels], Z_new=Z)
    want = sum(
        dense_expectation(NEW[k % n_kernels], Z, q.mean[k], q.cov[k], OLD[k % n_kernels], Z_old, *own)
        for k, own in enumerate(zip(q_old.mean, q_old.cov, strict=True))
    )
    here = carried(site, twins(NEW[:n_kernels]), Z, np.ones(7), JITTER)
    assert_allclose(expectation(here, q.mean, q.cov), want, rtol=1e-9)
    mask = np.r_[np.ones(5), 0.0, 0.0]
    padded = carried(site, twins(NEW[:n_kernels]), Z, mask, JITTER)
    fewer = site._replace(goes_on=site.goes_on[:5])
    without = carried(fewer, twins(NEW[:n_kernels]), Z[:5], np.ones(5), JITTER)
    assert_allclose(padded.constant, without.constant, rtol=1e-9)
    assert_allclose(padded.nat1, np.pad(without.nat1, ((0, 0), (0, 2))), atol=1e-9)
    assert_allclose(padded.precision, np.pad(without.precision, ((0, 0), (0, 2), (0, 2))), atol=1e-9)


def with_site(likelihood, rng):
    parameters, q, batch, constants = make_problem(likelihood, rng)
    return parameters, q, batch, constants._replace(past=random_site(rng, Z_new=parameters.points.Z)[0])


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_gradients_are_those_of_finite_differences(rng):
    parameters, q, batch, constants = with_site(Poisson(), rng)
    direction = jax.tree.map(lambda x: rng.normal(size=np.shape(x)), (parameters, q.mean, q.cov))

    @jax.jit
    def along(step):
        at = jax.tree.map(lambda x, d: x + step * d, (parameters, q.mean, q.cov), direction)
        return bounds.bound_given_q("orthogonal", *at, batch, constants)

    h = 1e-5
    want = (8.0 * (along(h) - along(-h)) - (along(2 * h) - along(-2 * h))) / (12.0 * h)
    assert_allclose(jax.jit(jax.grad(along))(0.0), want, rtol=1e-8)


@pytest.mark.usefixtures("x64")
def test_the_bound_after_a_step_is_the_bound_there(rng):
    parameters, q, batch, constants = with_site(Poisson(), rng)
    there = random_gaussian(rng, 2, 6)

    @jax.jit
    def both(q, there):
        latent = bounds.bound_and_moments("orthogonal", parameters, q.mean, q.cov, batch, constants)[1]
        moved = bounds.bound_after(parameters, latent, q, there, batch, constants)
        return moved, bounds.bound_given_q("orthogonal", parameters, there.mean, there.cov, batch, constants)

    assert_allclose(*both(q, there), rtol=1e-10)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_best_q_is_the_optimum_without_rows(rng):
    parameters, _, batch, constants = with_site(Poisson(), rng)
    Z, kernel = parameters.points.Z, model_parts.exponential(parameters.log_kernels)
    q = best_q(constants.past, kernel, Z, constants.masks.Z, JITTER)
    nothing = batch._replace(weight=np.zeros_like(batch.weight))
    gradient = jax.jit(jax.grad(bounds.bound_given_q, argnums=(2, 3)), static_argnums=0)
    direction = natural_gradient.direction(q, *gradient("orthogonal", parameters, q.mean, q.cov, nothing, constants))
    for part in direction:
        assert_allclose(part, 0.0, atol=1e-9)


@pytest.mark.usefixtures("x64")
def test_at_the_old_points_and_kernel_the_old_q_is_best_and_loses_nothing(rng):
    site, Z, q = random_site(rng)
    here = twins(OLD[:1]), Z, np.ones(len(Z)), JITTER
    best = best_q(site, *here)
    assert_allclose(best.mean, q.mean, atol=1e-6)
    assert_allclose(best.cov, q.cov, atol=1e-6)
    value = expectation(carried(site, *here), best.mean, best.cov)
    assert_allclose(value, gaussian.kl_to_standard(best), atol=1e-6)


def test_negative_curvature_is_left_out_of_a_site():
    precision = np.diag([3.0, 0.5])[None]
    mean = np.array([[1.0, 2.0]])
    q = random_gaussian(np.random.default_rng(0), 1, 2)._replace(mean=mean, precision=precision)
    site = streaming.of_posterior(np.zeros((2, 1)), [points.Factor(np.eye(2), np.eye(2), 0.0)], q, np.ones((2, 1)))
    assert_allclose(site.precision[0], np.diag([2.0, 0.0]), atol=1e-15)
    assert_allclose(np.linalg.solve(np.eye(2) + site.precision[0], site.nat1[0]), mean[0])


# -- streams ------------------------------------------------------------------------------

KNOWN = {
    "kernel": 2.0 * RBF(0.8),
    "n_inducing": 10,
    "inducing_init": np.linspace(0.0, 6.0, 10)[:, None],
    "optimizer": None,
    "max_iter": 40,
    "jitter": 1e-13,
    "normalize_X": False,
    "normalize_y": False,
}


def regressor(**own):
    options = {"kernel": 1.0 * RBF(0.7), "n_inducing": 20, "max_iter": 60, "normalize_X": False, "random_state": 0}
    return NGDSVGPRegressor(**{**options, **own})


@pytest.fixture(scope="module")
def table():
    """A hundred and twenty rows; the first sixty lie left of the others."""
    rng = np.random.default_rng(1)
    X = np.sort(rng.uniform(0.0, 6.0, size=120))[:, None]
    return X, np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=120)


def halves(X, y):
    return (X[:60], y[:60]), (X[60:], y[60:])


@pytest.mark.slow
def test_two_batches_are_one_fit_where_the_posterior_is_exact(table):
    """Gaussian noise, known hyperparameters and points: moments and evidence are those of all rows."""
    model = NGDSVGPRegressor(likelihood=Gaussian(0.05), gamma_schedule=1.0, **KNOWN)
    whole = NGDSVGPRegressor(likelihood=Gaussian(0.05), gamma_schedule=1.0, **KNOWN).fit(*table)
    evidence = 0.0
    for batch in halves(*table):
        evidence += model.partial_fit(*batch).elbo_
    grid = np.linspace(-1.0, 7.0, 50)[:, None]
    for got, want in zip(model.predict(grid, return_cov=True), whole.predict(grid, return_cov=True), strict=True):
        assert_allclose(got, want, rtol=1e-8, atol=1e-8)
    assert evidence == pytest.approx(whole.elbo_, rel=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson"])
def test_two_batches_come_close_to_one_fit_where_it_is_not(likelihood):
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 6.0, size=(120, 1))
    f = 2.0 * np.sin(1.5 * X[:, 0])
    if likelihood == "bernoulli":
        model, y = NGDSVGPClassifier(calibrate=False, **KNOWN), (f + rng.logistic(size=120) > 0.0).astype(int)
    else:
        model, y = NGDSVGPRegressor(**KNOWN), rng.poisson(np.exp(0.7 * f))
    model.set_params(likelihood=likelihood, gamma_schedule=0.5)
    first, second = halves(X, y)

    def predicted():
        return model.predict_proba(X)[:, 1] if likelihood == "bernoulli" else np.log(model.predict(X))

    model.fit(X, y)
    whole = predicted()
    model.fit(*second)
    alone = predicted()
    model.fit(*first).partial_fit(*second)
    assert np.abs(predicted() - whole).max() < 0.05
    assert np.abs(alone - whole).max() > 0.2


@pytest.mark.slow
def test_a_stream_whose_inputs_move_is_followed_and_remembered():
    rng = np.random.default_rng(42)
    X = np.sort(rng.uniform(0.0, 10.0, size=600))[:, None]
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=600)
    model = regressor(n_inducing=30, max_iter=80)
    for batch in np.split(np.arange(600), 10):
        model.partial_fit(X[batch], y[batch])
    grid = np.linspace(0.1, 9.9, 200)
    error = np.abs(model.predict(grid[:, None]) - np.sin(2.0 * grid)).reshape(10, 20)
    assert error.max() < 0.15
    assert np.histogram(model.inducing_points_, bins=5, range=(0.0, 10.0))[0].min() >= 3
    last = regressor(n_inducing=30, max_iter=80).fit(X[batch], y[batch])
    assert np.abs(last.predict(grid[:100, None]) - np.sin(2.0 * grid[:100])).max() > 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    "own",
    [
        {"solver": "adam", "parameterization": "mean_var_sqrt", "learning_rate": 0.05, "max_iter": 300},
        {"solver": "lbfgs", "n_inducing": None},
        {"kernel": [1.0 * RBF(0.7), 1.0 * RBF(0.5)], "batch_size": 20, "parameterization": "natural_sqrt"},
    ],
    ids=["adam", "lbfgs, a point at every row", "minibatches, two outputs, a kernel for each"],
)
def test_every_way_to_train_remembers(own, table):
    X, y = table
    y = np.column_stack([y, -2.0 * y]) if isinstance(own.get("kernel"), list) else y
    model = regressor(**own)
    for batch in halves(X, y):
        model.partial_fit(*batch)
    for batch in halves(X, y):
        assert model.score(*batch) > 0.95


# -- scikit-learn's conventions -----------------------------------------------------------


@pytest.mark.slow
def test_the_first_call_is_fit_and_fit_forgets(table):
    first, second = halves(*table)
    X = table[0]
    model, fresh = regressor().partial_fit(*first), regressor().fit(*first)
    assert_array_equal(model.predict(X), fresh.predict(X))
    assert_array_equal(model.elbo_curve_, fresh.elbo_curve_)
    # From a fit, from a first call, and from a copy that went through a file: the same stream.
    copy = pickle.loads(pickle.dumps(model)).partial_fit(*second)
    assert_array_equal(model.partial_fit(*second).predict(X), copy.predict(X))
    assert_array_equal(fresh.partial_fit(*second).predict(X), copy.predict(X))
    assert_array_equal(model.fit(*second).predict(X), regressor().fit(*second).predict(X))


@pytest.mark.slow
def test_a_warm_start_goes_on_from_a_stream(table):
    first, second = halves(*table)
    model = regressor(warm_start=True).partial_fit(*first).partial_fit(*second)
    points = model.inducing_points_
    cold = regressor().fit(*table)
    assert model.fit(*table).elbo_curve_[0] > cold.elbo_curve_[0] + 50.0
    assert model.inducing_points_.shape == points.shape
    assert model.elbo_ > model.elbo_curve_[0] - 1e-6


@pytest.mark.slow
def test_weights_are_repeated_rows(table):
    first, (X, y) = halves(*table)
    weight = np.arange(60) % 3
    weighted = regressor().partial_fit(*first).partial_fit(X, y, sample_weight=weight)
    rows = np.repeat(np.arange(60), weight)
    repeated = regressor().partial_fit(*first).partial_fit(X[rows], y[rows])
    assert_array_equal(weighted.predict(X), repeated.predict(X))
    plain = regressor().partial_fit(*first).partial_fit(X, y)
    assert np.any(plain.predict(X) != weighted.predict(X))


@pytest.mark.slow
def test_points_grow_to_their_number(table):
    X, y = table
    model = regressor().partial_fit(X[:6], y[:6])
    assert len(model.inducing_points_) == 6
    assert len(model.partial_fit(X[6:], y[6:]).inducing_points_) == 20
    assert model.score(X, y) > 0.9


def test_a_failure_leaves_the_last_good_model(table):
    first, (X, y) = halves(*table)
    model = regressor()
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(np.full_like(X, np.nan), y)
    assert not model.__sklearn_is_fitted__()
    kept = model.partial_fit(*first).predict(X)
    for bad, message in (
        ((np.c_[X, X], y), "2 features"),
        ((np.full_like(X, np.nan), y), "NaN"),
        ((X, np.c_[y, y]), "partial_fit continues the previous fit.*2 columns, and had 1.*call fit"),
        ((X, y, np.zeros(60)), "ample.weight"),
    ):
        with pytest.raises(ValueError, match=message):
            model.partial_fit(*bad)
    for name, value in (("kernel", RBF()), ("likelihood", "student_t"), ("basis", "hybrid")):
        changed = regressor(**{name: value})
        vars(changed).update({key: fitted for key, fitted in vars(model).items() if key not in model.get_params()})
        with pytest.raises(ValueError, match=rf"{name}=.*and the previous fit had {name}=.*call fit"):
            changed.partial_fit(X, y)
    assert_array_equal(model.predict(X), kept)


@pytest.mark.parametrize(
    "own", [{"n_mean_inducing": 5}, {"basis": "decoupled", "solver": "adam"}, {"mean_solver": "exact"}], ids=str
)
def test_a_mean_on_other_points_has_no_stream(own, table):
    name, value = next(iter(own.items()))
    for estimator in (NGDSVGPRegressor(**own), NGDSVGPClassifier(**own)):
        assert not hasattr(estimator, "partial_fit")
        with pytest.raises(AttributeError) as caught:
            estimator.partial_fit(*table)
        assert f"{type(estimator).__name__} has no partial_fit with {name}={value!r}" in str(caught.value.__cause__)
        assert "n_mean_inducing=0" in str(caught.value.__cause__)


@pytest.mark.slow
def test_mean_only_points_of_the_last_fit_are_named(table):
    model = regressor(n_mean_inducing=3, max_iter=20).fit(*table)
    with pytest.raises(ValueError, match="3 mean-only points"):
        model.set_params(n_mean_inducing=0).partial_fit(*table)


@pytest.mark.slow
def test_levels_are_those_of_the_first_call(table):
    X, y = table
    level = np.digitize(y, [-0.6, 0.0, 0.6])
    model = regressor(likelihood=Ordinal(), max_iter=20).partial_fit(X, level)
    low = level < 2
    assert model.partial_fit(X[low], level[low]).likelihood_.n_levels == 4
    with pytest.raises(ValueError, match=r"levels.* 3, but has the value 4"):
        model.partial_fit(X, level + 1)


@pytest.mark.slow
def test_classes_are_those_of_the_first_call(table):
    X, y = table
    label = np.array(["low", "mid", "top"])[np.digitize(y, [-0.5, 0.5])]
    # At a rate of .05 the first two classes alone lead the lengthscale far off.
    model = NGDSVGPClassifier(1.0 * RBF(0.7), n_inducing=20, max_iter=60, learning_rate=0.02, random_state=0)
    top = label == "top"
    with pytest.raises(ValueError, match=r"has one, \['top'\].*classes=\.\.\."):
        model.partial_fit(X[top], label[top])
    with pytest.raises(ValueError, match=r"labels \['mid'\], which are not among classes=\['low', 'top'\]"):
        model.partial_fit(X, label, classes=["top", "low"])
    # The first batch holds two of the three classes.
    order = np.random.default_rng(0).permutation(120)
    first, second = order[:50][label[order[:50]] != "mid"], order[50:]
    model.partial_fit(X[first], label[first], classes=["top", "mid", "low"])
    assert model.predict_proba(X).shape == (120, 3)
    kept = model.partial_fit(X[second], label[second]).predict(X)
    assert np.mean(kept == label) > 0.7
    with pytest.raises(ValueError, match=r"labels \['peak'\]"):
        model.partial_fit(X, np.where(top, "peak", label))
    with pytest.raises(ValueError, match="differs from the first call's"):
        model.partial_fit(X, label, classes=["low", "mid"])
    with pytest.raises(ValueError, match="class_weight='balanced'"):
        model.set_params(class_weight="balanced").partial_fit(X, label)
    assert_array_equal(model.predict(X), kept)


@pytest.mark.slow
def test_kernels_of_their_own_go_on_and_are_not_made_anew():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(200, 1))
    y = np.column_stack([np.sin(2.0 * X[:, 0]), np.cos(X[:, 0])])
    model = NGDSVGPRegressor([RBF(0.5), RBF(2.0)], n_inducing=12, max_iter=60, random_state=0).fit(X, y)
    assert len(model.partial_fit(X, y).kernel_) == 2
    with pytest.raises(ValueError, match=r"kernel=None, and the previous fit had kernel=\[RBF"):
        model.set_params(kernel=None).partial_fit(X, y)
    assert model.score(X, y) > 0.9


def test_a_stream_keeps_the_form_of_its_first_targets(table):
    X, y = table
    model, other = (regressor(max_iter=10).partial_fit(X[:40], y[:40]) for _ in range(2))
    found = model.partial_fit(X[40:80], y[40:80, None]).predict(X)
    assert_array_equal(found, other.partial_fit(X[40:80], y[40:80]).predict(X))


@pytest.mark.slow
def test_points_of_a_stream_that_do_not_fit_are_refused(table, monkeypatch):
    """With a point at every row they grow with each part; the previous fit stays."""
    first, second = halves(*table)
    model = regressor(n_inducing=None).partial_fit(*first)
    before = model.predict(table[0])
    monkeypatch.setattr(memory, "available", lambda: 8 * 4 * 100**2)
    with pytest.raises(MemoryError, match=r"n_inducing=None, 120 points here: a training step .* lower"):
        model.partial_fit(*second)
    assert_array_equal(model.predict(table[0]), before)


# -- targets that are missing in a whole part ---------------------------------------------------


def gappy_parts(table):
    """Rows in three parts: both targets in the first, one of them in each of the others."""
    X, y = table
    both = np.column_stack([y, 3.0 - 2.0 * y + np.cos(X[:, 0])])
    thirds = np.arange(len(X)) % 3
    both[thirds == 1, 1] = both[thirds == 2, 0] = np.nan
    return [(X[thirds == k], both[thirds == k]) for k in range(3)]


@pytest.mark.slow
def test_a_target_may_be_missing_in_a_whole_part(table):
    """Each target is as in a stream of its own, of the parts that have it."""
    parts = gappy_parts(table)
    noise, grid = [0.05, 0.2], np.linspace(-1.0, 7.0, 50)[:, None]
    together = NGDSVGPRegressor(
        likelihood=Gaussian(noise, "fixed"), gamma_schedule=1.0, missing_targets="ignore", **KNOWN
    )
    for X, y in parts:
        together.partial_fit(X, y)
    found = together.predict(grid, return_std=True)
    for k, others in ((0, (0, 1)), (1, (0, 2))):
        alone = NGDSVGPRegressor(likelihood=Gaussian(noise[k], "fixed"), gamma_schedule=1.0, **KNOWN)
        for number in others:
            alone.partial_fit(parts[number][0], parts[number][1][:, k])
        for got, want in zip(found, alone.predict(grid, return_std=True), strict=True):
            assert_allclose(got[:, k], want, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
def test_a_part_says_nothing_about_the_noise_of_a_target_that_it_lacks(table):
    model, noise = regressor(missing_targets="ignore"), []
    for X, y in gappy_parts(table):
        noise.append(model.partial_fit(X, y).likelihood_.variance)
    assert noise[1][1] == noise[0][1]
    assert noise[2][0] == noise[1][0] != noise[0][0]


@pytest.mark.slow
def test_a_part_without_one_of_the_targets_holds_no_impossible_value(table):
    """Zero would be none of a gamma distribution."""
    X = table[0][:60]
    y = np.column_stack([1.0 + np.arange(60) % 3, 2.0 + np.arange(60) % 5])
    model = NGDSVGPRegressor(RBF(), likelihood="gamma", missing_targets="ignore", n_inducing=5, max_iter=40)
    model.partial_fit(X[:30], y[:30]).partial_fit(X[30:], np.column_stack([y[30:, 0], np.full(30, np.nan)]))
    # The rows tell nothing of y, whose means are 2 and 4.
    assert_allclose(model.predict(X[:30]).mean(0), [2.0, 4.0], atol=0.5)


def test_a_target_without_values_is_filled_by_the_others():
    y = np.array([[1.0, np.nan, 3.0], [np.nan] * 3])
    assert_array_equal(batches.Table(np.zeros((3, 1)), y, np.ones(3)).filled_y, [[1.0, 3.0, 3.0], [1.0, 3.0, 1.0]])


@pytest.mark.slow
def test_a_target_that_was_never_seen_has_no_scale(table):
    X, y = table
    missing = np.full(len(y), np.nan)
    model = regressor(missing_targets="ignore")
    with pytest.raises(
        ValueError, match=r"column 1 of y is missing .* in later calls of partial_fit a column may be missing"
    ):
        model.partial_fit(X, np.column_stack([y, missing]))
    assert not hasattr(model, "n_iter_")
    model.partial_fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match=r"^y is missing in every row of positive weight"):
        model.partial_fit(X, np.column_stack([missing, missing]))
    with pytest.raises(ValueError, match="column 0 of y is missing in every row of positive weight"):
        model.fit(X, np.column_stack([missing, y]))


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e5, 1e-6])
def test_bounds_of_the_noise_keep_the_units_of_the_first_part(scale, rng):
    """A later part may be a single row, which has no deviation of its own."""
    X = np.sort(rng.uniform(0.0, 10.0, size=(60, 1)), axis=0)
    y = scale * (np.sin(X[:, 0]) + 0.2 * rng.normal(size=60))
    kernel = ConstantKernel(scale**2, (1e-20, 1e20)) * RBF(1.0)
    options = {"normalize_y": "center", "n_inducing": 10, "max_iter": 60, "tol": 0.5, "random_state": 0}
    model = NGDSVGPRegressor(kernel, **options).partial_fit(X, y)
    bounds, (_, before) = model.likelihood_.variance_bounds, model.predict([[5.0]], return_std=True)
    model.partial_fit([[5.0]], [scale * (np.sin(5.0) + 0.3)])
    assert model.likelihood_.variance_bounds == bounds
    np.testing.assert_allclose(model.predict([[5.0]], return_std=True)[1], before, rtol=0.3)


# -- y that grows or shrinks ----------------------------------------------------------------------


def test_the_past_in_other_units_is_the_same_past(rng, x64):
    """Under a kernel and of functions in the same units nothing changes; and so do there and back."""
    Z, q = rng.normal(size=(6, 3)), jax.tree.map(np.asarray, random_gaussian(rng, 2, 6))
    ratio, kernel = np.array([1e-2, 1e-2]), 1.4 * RBF(0.8)
    new = rng.normal(size=(7, 3))
    past = streaming.of_posterior(Z, [factor_of(kernel(Z))], q, new)
    moved = streaming.of_posterior(Z, [factor_of(kernel(Z))], streaming.in_units(q, ratio), new)
    of_old, of_new = (
        best_q(site, (kernels.from_sklearn(k, 3).value,), new, np.ones(7), JITTER)
        for site, k in ((past, kernel), (moved, 1e-4 * kernel))
    )
    # Whitened values have no units.
    assert_allclose(of_new.mean, of_old.mean, rtol=1e-10, atol=1e-12)
    assert_allclose(of_new.cov, of_old.cov, rtol=1e-10, atol=1e-12)
    for one, other in zip(streaming.in_units(streaming.in_units(q, ratio), 1.0 / ratio), q, strict=True):
        assert_allclose(one, other, rtol=1e-9, atol=1e-10)


def sized_parts(scales, n_rows=200, shifts=None):
    """Parts of rows whose targets have these scales and means, and held-out rows of the last of them."""
    rng = np.random.default_rng(3)
    parts = []
    for scale, shift in zip([*scales, scales[-1]], shifts or [0.0] * (len(scales) + 1), strict=True):
        X = rng.normal(size=(n_rows, 2))
        f = np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1]
        parts.append((X, shift + scale * (f + 0.1 * rng.normal(size=n_rows))))
    return parts[:-1], parts[-1]


def rms_z(model, X, y):
    mean, std = model.predict(X, return_std=True)
    return np.sqrt(np.mean(((y - mean) / std) ** 2, axis=0))


@pytest.mark.slow
@pytest.mark.parametrize("factor", [10.0, *(pytest.param(each, marks=pytest.mark.slow) for each in (1e3, 0.1, 1e-3))])
def test_targets_that_grow_or_shrink_are_followed(factor):
    parts, held_out = sized_parts([1.0, factor, factor, factor])
    model = regressor(normalize_X=True, n_inducing=40, max_iter=200).partial_fit(*parts[0])
    with pytest.warns(UserWarning, match="scale of y has changed") as caught:
        model.partial_fit(*parts[1])
    told = next(str(each.message) for each in caught if "scale of y" in str(each.message))
    assert float(re.search(r"shift of their mean are (\S+) and", told)[1]) == pytest.approx(factor, rel=0.2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        for part in parts[2:]:
            model.partial_fit(*part)
    assert 0.8 < rms_z(model, *held_out) < 1.3
    assert model.score(*held_out) > 0.95


@pytest.mark.slow
def test_a_mean_that_moves_is_followed():
    parts, held_out = sized_parts([1.0, 1.0, 1.0], shifts=[0.0, 50.0, 50.0, 50.0])
    model = regressor(normalize_X=True, n_inducing=40, max_iter=200).partial_fit(*parts[0])
    with pytest.warns(UserWarning, match=r"shift of their mean are \S+ and (4|5|6)\d\S*\. "):
        model.partial_fit(*parts[1])
    assert rms_z(model.partial_fit(*parts[2]), *held_out) < 1.3
    assert model.score(*held_out) > 0.95


@pytest.mark.slow
def test_an_output_that_keeps_its_size_keeps_its_rows():
    """The other one is forgotten, and each has its own units."""
    parts, (X, y) = sized_parts([1.0, 100.0])
    (first, one), (second, other) = parts
    model = regressor(normalize_X=True, n_inducing=40, max_iter=200).partial_fit(first, np.column_stack([one, one]))
    scale = model._y_scale.scale
    with pytest.warns(UserWarning, match=r"output 1: (9\d|1[01]\d)(\.\d+)? and"):
        model.partial_fit(second, np.column_stack([other / 100.0, other]))
    assert model._y_scale.scale[0] == scale[0]
    assert model._y_scale.scale[1] == pytest.approx(other.std())
    assert np.all(rms_z(model, X, np.column_stack([y / 100.0, y])) < 1.3)
    assert model._warm_state.weight == 400.0


def growing_parts(n_rows=100):
    """Parts whose rows lie side by side, and whose targets grow with X; with no row is a contradiction."""
    rng = np.random.default_rng(0)
    for start in range(4):
        X = rng.uniform(start, start + 1.0, size=(n_rows, 1))
        yield X, np.exp(X[:, 0]) * (1.0 + 0.02 * rng.normal(size=n_rows))


@pytest.mark.slow
def test_rows_beside_the_earlier_ones_contradict_nothing():
    """The scale follows what grows, and what was learned is kept; so it is of a stream whose parts vary little."""
    model = regressor(max_iter=150)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        for part in growing_parts():
            model.partial_fit(*part)
    assert model._y_scale.scale[0] > 10.0
    for X, y in growing_parts():
        assert np.sqrt(np.mean((model.predict(X) / y - 1.0) ** 2)) < 0.15


def test_a_stream_that_does_not_change_is_left_alone(table, monkeypatch):
    def learned():
        model = regressor(max_iter=20)
        for batch in halves(*table):
            model.partial_fit(*batch)
        return model.predict(table[0], return_std=True)

    found = learned()
    monkeypatch.setattr(continuing, "_with_units", lambda plan, rows, scales, previous, *_: (scales, previous, []))
    assert_array_equal(found, learned())


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["student_t", "heteroscedastic_gaussian"])
@pytest.mark.parametrize("factor", [100.0, 1e-3])
def test_other_likelihoods_are_followed(likelihood, factor):
    parts, held_out = sized_parts([1.0, factor, factor, factor])
    model = regressor(normalize_X=True, n_inducing=40, likelihood=likelihood, max_iter=150)
    for part in parts:
        model.partial_fit(*part)
    assert rms_z(model, *held_out) < 1.6
    assert model.score(*held_out) > 0.9


@pytest.mark.slow
def test_one_outlier_or_a_constant_part_changes_no_units():
    parts, _ = sized_parts([1.0])
    (X, y), wild = parts[0], parts[0][1].copy()
    wild[7] = 1e4
    for targets in (wild, np.full(len(y), 0.3), y[:1]):
        model = regressor(normalize_X=True, max_iter=5).partial_fit(X, y)
        scale = model._y_scale
        model.partial_fit(X[: len(targets)], targets)
        assert_array_equal(model._y_scale.scale, scale.scale)


def test_a_calibrated_deviation_and_a_file_go_on_in_other_units():
    """What multiplies the variance has no units."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(3, 400, 1))
    y = np.sin(2.0 * X[..., 0]) + 0.3 * np.exp(X[..., 0] - 1.0) * rng.normal(size=X.shape[:2])
    model = NGDSVGPRegressor(1.0 * RBF(), n_inducing=30, normalize_X=False, random_state=0).fit(X[0], y[0])
    assert model._dispersion is not None
    model.set_params(max_iter=60)
    with pytest.warns(UserWarning, match="scale of y has changed"):
        model.partial_fit(X[1], 100.0 * y[1])
    copy = pickle.loads(pickle.dumps(model))
    for each in (model, copy):
        each.partial_fit(X[1], 100.0 * y[1])
    assert_array_equal(model.predict(X[2]), copy.predict(X[2]))
    assert 0.8 < rms_z(model, X[2], 100.0 * y[2]) < 1.3


@pytest.mark.slow
def test_a_checkpoint_goes_on_after_the_units_have_changed(tmp_path):
    parts, _ = sized_parts([1.0, 100.0])
    whole = regressor(normalize_X=True, max_iter=40).partial_fit(*parts[0]).partial_fit(*parts[1])
    model = regressor(normalize_X=True, max_iter=40).partial_fit(*parts[0])

    def stop(*_):
        raise KeyboardInterrupt

    model.set_params(checkpoint=tmp_path / "stream", checkpoint_every=0.0, callback=stop)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(*parts[1])
    model.set_params(callback=None).partial_fit(*parts[1])
    assert_array_equal(model.predict(parts[1][0]), whole.predict(parts[1][0]))


@pytest.mark.slow
@pytest.mark.parametrize(("normalize_X", "size"), [(True, 1.0), ("quantile", 1.0), (False, 1.0), (False, 1e-6)])
def test_a_column_that_leaves_what_was_seen_is_named_once(normalize_X, size):
    X, y = sized_parts([1.0])[0][0]
    # Where a column lies has no part in it.
    frame = pd.DataFrame(size * np.add(X, [0.0, 100.0]), columns=["size", "age"])
    further = frame.assign(age=100.0 * frame["age"] - 9900.0 * size)
    model = regressor(
        kernel=1.0 * RBF(size, (0.01 * size, 100.0 * size)), normalize_X=normalize_X, max_iter=5
    ).partial_fit(frame, y)
    with pytest.warns(UserWarning, match=r"Columns of X reach far .*\n.*'age' \((9\d(\.\d)?|1[0-2]\d) times as far\)"):
        model.partial_fit(further, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.partial_fit(further, y).partial_fit(frame, y)
        # Some rows do not say how far X reaches.
        few = regressor(normalize_X=normalize_X, n_inducing=5, max_iter=5)
        few.partial_fit(frame[:10], y[:10]).partial_fit(further, y)
    with pytest.warns(UserWarning, match="Columns of X reach far"):
        model.partial_fit(frame.assign(age=100.0 * further["age"]), y)
