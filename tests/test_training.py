"""The training loop: batches, stopping, safety and errors."""

import re
import warnings

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import solve_triangular
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, DotProduct
from sklearn.metrics import log_loss

from skgp_natgrad import Constant, NGDSVGPClassifier, NGDSVGPRegressor, Schedule
from skgp_natgrad._backend import linalg
from skgp_natgrad._backend.linalg import jittered_cholesky, normal_nodes
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.prediction import posterior
from skgp_natgrad.start import inducing_points
from skgp_natgrad.step import chunk
from skgp_natgrad.step.chunk import STEPS_PER_CALL
from skgp_natgrad.training import batches, monitor
from skgp_natgrad.variational import gaussian, natural_gradient

from .conftest import random_gaussian


@pytest.fixture
def table(rng):
    X = rng.normal(size=(150, 2))
    return X, np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=150)


def rows_of(n):
    return batches.Table(np.arange(n, dtype=float)[:, None], np.arange(n, dtype=float)[None], np.ones(n))


def test_minibatches_see_every_row_equally_often():
    stream = batches.BatchStream(rows_of(70), 16, 0, 0, np.random.RandomState(0))
    drawn = np.concatenate([next(stream).X.ravel() for _ in range(7)]).astype(int)
    counts = np.bincount(drawn, minlength=70)
    assert len(drawn) == 7 * STEPS_PER_CALL * 16
    assert counts.max() - counts.min() <= 1


def test_a_stream_that_draws_ahead_is_the_same_stream():
    """And its position is that of a stream which does not: a fit goes on from there."""
    plain, ahead = (batches.BatchStream(rows_of(70), 16, 9, 4, np.random.RandomState(0)) for _ in range(2))
    for _ in range(4):
        assert_array_equal(plain.position.upcoming, ahead.position.upcoming)
        jax.tree.map(assert_array_equal, plain.position.random_state, ahead.position.random_state)
        jax.tree.map(assert_array_equal, next(plain), next(ahead))
        ahead.prepare()
    again = batches.BatchStream(rows_of(70), 16, 9, 4, np.random.RandomState(1))
    again.prepare()
    again.go_to(ahead.position)
    jax.tree.map(assert_array_equal, next(again), next(plain))


def test_a_small_table_is_one_padded_batch():
    batch = next(batches.BatchStream(rows_of(70), 1024, 0, 0, np.random.RandomState(0)))
    assert batch.X.shape == (1, 304, 1)
    assert batch.weight.sum() == 70


def test_buckets():
    assert [batches.bucket(n) for n in (1, 60, 61, 304, 640, 1000, 1025, 2048, 3000)] == [
        60,
        60,
        304,
        304,
        640,
        1024,
        2048,
        2048,
        4096,
    ]
    assert batches.batch_size_for(5000, 100) == 100
    assert batches.batch_size_for(50, 10**6) == 60


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_an_indefinite_step_is_shortened(rng):
    q = random_gaussian(rng, 2, 4)
    dS = np.broadcast_to(2.0 * np.eye(4), (2, 4, 4))  # the target precision I - 2 dS is negative definite
    moved = natural_gradient.step(q, natural_gradient.direction(q, np.zeros((2, 4)), dS), 1.0)
    assert int(moved.n_halvings) > 0
    assert 0 < float(moved.gamma) < 1
    assert_allclose(moved.q.precision, natural_gradient.candidate(q, np.zeros((2, 4)), dS, moved.gamma).precision)
    assert np.linalg.eigvalsh(moved.q.cov).min() > 0
    lost = natural_gradient.step(q, natural_gradient.direction(q, np.full((2, 4), np.nan), dS), 1.0)
    assert float(lost.gamma) == 0.0
    assert_array_equal(lost.q.precision, q.precision)


@pytest.mark.usefixtures("x64")
def test_gaussian_conversions(rng):
    q = random_gaussian(rng, 3, 5)
    assert_allclose(q.cov, np.linalg.inv(q.precision), atol=1e-12)
    assert_allclose(q.mean, np.linalg.solve(q.precision, np.asarray(q.nat1)[..., None])[..., 0], atol=1e-12)
    assert_allclose(q.log_det_cov, np.linalg.slogdet(q.cov)[1], atol=1e-12)
    kl = sum(
        0.5 * (np.trace(S) + m @ m - 5 - np.linalg.slogdet(S)[1])
        for m, S in zip(np.asarray(q.mean), np.asarray(q.cov), strict=True)
    )
    assert_allclose(gaussian.kl_to_standard(q), kl)
    prior = gaussian.standard(2, 4)
    assert float(gaussian.kl_to_standard(prior)) == 0.0


@pytest.mark.usefixtures("x64")
def test_jitter_is_raised_as_far_as_needed():
    K = np.ones((5, 5))
    K[0, 0] -= 1e-5
    L, used = jax.jit(jittered_cholesky)(K, 1e-8)
    assert 1e-6 < float(used) < 1e-3
    assert_allclose(np.asarray(L) @ np.asarray(L).T, K + float(used) * np.eye(5), atol=1e-12)


@pytest.mark.parametrize(("dtype", "jitter"), [("float64", 1e-12), ("float32", 1e-5)])
@pytest.mark.parametrize("size", [1, 64, 65, 128, 129, 301])
@pytest.mark.parametrize("triangular_inverse", [linalg.triangular_inverse, linalg.inverse_by_products])
@pytest.mark.usefixtures("x64")
def test_triangular_inverse_has_the_residual_of_a_solve(triangular_inverse, size, dtype, jitter, rng):
    """Columns solve their equations to the last digits, however ill-conditioned the matrix is."""
    x = np.sort(rng.normal(size=(2, size)))
    K = np.exp(-0.5 * (x[:, :, None] - x[:, None]) ** 2) + jitter * np.eye(size)
    L = np.linalg.cholesky(K).astype(dtype)
    inverse = np.asarray(jax.jit(triangular_inverse)(L))
    assert inverse.dtype == dtype
    assert_array_equal(inverse, np.tril(inverse))
    L, inverse = L.astype(float), inverse.astype(float)
    assert np.all(np.abs(L @ inverse - np.eye(size)) <= 20.0 * np.finfo(dtype).eps * np.abs(L) @ np.abs(inverse))


@pytest.mark.usefixtures("x64")
def test_inverses_of_a_stack_are_those_of_its_matrices(rng):
    L = np.tril(rng.normal(size=(3, 150, 150)), -1) / 10.0 + 2.0 * np.eye(150)
    expected = [solve_triangular(each, np.eye(150), lower=True) for each in L]
    for invert in (linalg.triangular_inverse, linalg.inverse_by_products):
        assert_allclose(jax.jit(invert)(L), expected, rtol=0, atol=1e-14)


def test_normal_nodes_are_exact_for_polynomials():
    nodes, weights = normal_nodes(50)
    for power, moment in ((0, 1), (2, 1), (4, 3), (6, 15), (8, 105)):
        assert_allclose(weights @ nodes**power, moment, rtol=1e-10)
    assert_allclose(weights @ nodes**3, 0.0, atol=1e-12)


# -- stopping -----------------------------------------------------------------------------


@pytest.mark.slow
def test_stops_when_the_bound_stops_rising(table):
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = NGDSVGPRegressor(n_inducing=20, solver="ngd", random_state=0).fit(*table)
    assert 100 <= model.n_iter_ < 1000
    assert len(model.elbo_curve_) == model.n_iter_
    n = model.n_iter_no_change
    gain = model.elbo_curve_[-n:].mean() - model.elbo_curve_[-2 * n : -n].mean()
    assert gain / len(table[1]) < model.tol


@pytest.mark.slow
def test_warns_once_and_names_what_to_change(table):
    with pytest.warns(ConvergenceWarning, match=r"max_iter=120.*tol=.*learning_rate \(0.05 now\)") as caught:
        model = NGDSVGPRegressor(n_inducing=20, max_iter=120, n_iter_no_change=20).fit(*table)
    assert len(caught) == 1
    assert model.n_iter_ == 120
    with pytest.warns(ConvergenceWarning, match="max_iter=30 is too few"):
        NGDSVGPRegressor(n_inducing=20, max_iter=30, tol=1e9).fit(*table)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kernel", [None, 50.0 * RBF(1.0)])
def test_a_step_that_loses_the_bound_is_taken_back(kernel):
    """Steps of size one on a likelihood that is not conjugate: the bound would fall by orders of magnitude."""
    X, y = load_iris(return_X_y=True)
    options = {"kernel": kernel, "n_inducing": 30, "optimizer": None, "max_iter": 120}
    model = NGDSVGPClassifier(gamma_schedule=1.0, **options).fit(X, y)
    careful = NGDSVGPClassifier(gamma_schedule=0.05, **options).fit(X, y)
    assert model.elbo_ >= model.elbo_curve_.max()
    assert model.elbo_ > careful.elbo_ - 5.0
    assert model.score(X, y) > 0.95
    assert kernel is None or model.n_rejected_steps_ > 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_best_state_of_a_full_batch_is_kept(table):
    """Steps of the optimizer that are far too large."""
    model = NGDSVGPRegressor(n_inducing=20, learning_rate=Constant(2.0), max_iter=150, random_state=0).fit(*table)
    assert model.n_rejected_steps_ > 0
    assert model.elbo_ >= model.elbo_curve_.max()
    again = NGDSVGPRegressor(
        model.kernel_, likelihood=model.likelihood_, optimizer=None, gamma_schedule=1.0, max_iter=5
    )
    assert again.set_params(inducing_init=model.inducing_points_).fit(*table).elbo_ >= model.elbo_ - 1e-6


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_schedule_is_never_asked_past_the_end(table):
    values = np.linspace(0.1, 0.5, 30)

    class Table(Schedule):
        def __call__(self, iteration):
            return values[iteration]

    model = NGDSVGPRegressor(n_inducing=5, max_iter=30, gamma_schedule=Table()).fit(*table)
    assert model.n_iter_ == 30


def test_minibatch_noise_neither_stops_nor_warns():
    rng = np.random.default_rng(0)
    rising = np.linspace(0, 100, 200) + rng.normal(scale=300.0, size=200)
    rule = monitor.StoppingRule(window=50, tol=1e-3, weight=1000.0, noisy=True)
    assert not rule.has_stopped(rising)
    assert rule.status(rising) is None
    flat = np.full(200, 5.0) + rng.normal(scale=0.1, size=200)
    assert rule.has_stopped(flat)
    assert rule.status(flat) is None
    steep = np.linspace(0, 1e5, 200) + rng.normal(scale=300.0, size=200)
    assert rule.status(steep) == "rising"
    assert rule.status(-steep) == "falling"
    assert not rule.has_stopped(-steep)
    assert rule.status(flat[:60]) == "too few"


@pytest.mark.slow
def test_minibatches_stop_too(rng):
    X = rng.normal(size=(400, 1))
    y = X[:, 0] + 0.1 * rng.normal(size=400)
    model = NGDSVGPRegressor(RBF(2.0), n_inducing=10, batch_size=100, tol=0.05, max_iter=3000, random_state=0).fit(X, y)
    assert model.n_iter_ < 3000
    assert model.score(X, y) > 0.98


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_minibatches_reach_what_the_full_batch_does(table):
    options = {"n_inducing": 20, "max_iter": 600, "tol": 0.0, "random_state": 0}
    full = NGDSVGPRegressor(**options).fit(*table)
    mini = NGDSVGPRegressor(batch_size=50, **options).fit(*table)
    assert mini.elbo_ == pytest.approx(full.elbo_, abs=0.05 * len(table[1]))
    assert_allclose(mini.predict(table[0]), full.predict(table[0]), atol=0.25)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("gamma", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("likelihood", ["robust_max", "softmax"])
def test_large_steps_from_the_first_stay_definite(gamma, likelihood):
    X, y = load_iris(return_X_y=True)
    model = NGDSVGPClassifier(
        likelihood=likelihood, n_inducing=15, gamma_schedule=Constant(gamma), max_iter=60, random_state=0
    ).fit(X, y)
    assert model.elbo_ > model.elbo_curve_[0] + 100.0
    assert log_loss(y, model.predict_proba(X)) < 0.15


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_mean_only_points_raise_the_bound(rng):
    X = rng.uniform(-4, 4, size=(300, 2))
    y = np.sin(2 * X[:, 0]) * np.cos(2 * X[:, 1]) + 0.1 * rng.normal(size=300)
    options = {"kernel": RBF(0.6), "n_inducing": 20, "random_state": 0, "max_iter": 600}
    coupled = NGDSVGPRegressor(**options).fit(X, y)
    decoupled = NGDSVGPRegressor(n_mean_inducing=60, **options).fit(X, y)
    assert decoupled.elbo_ > coupled.elbo_ + 20
    assert decoupled.score(X, y) > coupled.score(X, y)


# -- errors -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("n_inducing", 0),
        ("n_inducing", 2.5),
        ("n_mean_inducing", -1),
        ("basis", "hybridd"),
        ("solver", "lbfg"),
        ("parameterization", "meanvar"),
        ("mean_solver", "newton"),
        ("mean_columns", 0),
        ("n_inducing", "every"),
        ("callback", 3),
        ("optimizer", "sgdd"),
        ("learning_rate", 0.0),
        ("learning_rate", "fast"),
        ("batch_size", 0),
        ("max_iter", 0),
        ("tol", -1.0),
        ("n_iter_no_change", 0),
        ("normalize_X", "yes"),
        ("jitter", 0.0),
        ("device", "tpu"),
        ("n_devices", 0),
        ("n_devices", "every"),
        ("n_devices", 1000),
        ("dtype", "float16"),
        ("verbose", "yes"),
    ],
)
def test_bad_arguments_are_named_with_their_value(argument, value, table):
    with pytest.raises(ValueError, match=f"{argument}={value!r}"):
        NGDSVGPRegressor(**{argument: value}).fit(*table)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_failed_fit_leaves_the_last_one(table):
    X, y = table
    model = NGDSVGPRegressor(n_inducing=20, max_iter=10, tol=1e9).fit(X, y)
    kept = model.predict(X)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.where(X > 1, np.nan, X), y)
    with pytest.raises(ValueError, match="solver"):
        model.set_params(solver="newton").fit(X, y)
    assert_array_equal(model.predict(X), kept)


INTERRUPTED = {
    "the start": (inducing_points, "place"),
    "a chunk": (chunk, "run_chunk"),
    "the posterior": (posterior, "condition"),
    "the attributes": (Gaussian, "fitted"),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("place", [*INTERRUPTED, "the callback", "bad y"])
@pytest.mark.parametrize("warm_start", [False, True])
def test_an_interrupted_fit_changes_nothing(warm_start, place, table, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    X, y = table
    model = NGDSVGPRegressor(RBF(1.0), n_inducing=20, max_iter=20, warm_start=warm_start).fit(X, y)
    mean, before = model.predict(X), dict(vars(model))
    if place == "the start" and warm_start:
        place = "a chunk"  # a warm start places no points
    if place in INTERRUPTED:
        monkeypatch.setattr(*INTERRUPTED[place], interrupt)
    elif place == "the callback":
        model.set_params(callback=interrupt)
    with pytest.raises((KeyboardInterrupt, ValueError)):
        model.fit(X, np.full(150, np.inf) if place == "bad y" else y[::-1])
    monkeypatch.undo()
    before["callback"] = model.callback
    assert vars(model).keys() == before.keys()
    assert all(value is before[name] for name, value in vars(model).items())
    assert_array_equal(model.predict(X), mean)


@pytest.mark.parametrize(("x", "y", "message"), [(1.0, 1e200, "y holds"), (1e200, 1.0, "X holds")])
def test_values_that_overflow_are_named(x, y, message, table):
    with pytest.raises(ValueError, match=message):
        NGDSVGPRegressor(max_iter=20).fit(x * table[0], y * table[1])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_nan_is_never_returned(rng):
    X = rng.uniform(1, 2, size=(30, 1))
    model = NGDSVGPRegressor(DotProduct() ** 1.5, n_inducing=5, max_iter=20, normalize_X=False).fit(X, X[:, 0])
    with pytest.raises(FloatingPointError, match="not defined"):
        model.predict(-10 * X)
    with pytest.raises(ValueError, match="overflow"):
        NGDSVGPRegressor(n_inducing=5, max_iter=20).fit(1e-3 * X, X[:, 0]).predict(np.full((1, 1), 1e308))


@pytest.mark.parametrize(("weight", "message"), [(0.0, "zero"), (-1.0, "[Nn]egative")])
def test_bad_weights_are_named(weight, message, table):
    with pytest.raises(ValueError, match=message):
        NGDSVGPRegressor().fit(*table, sample_weight=np.full(150, weight))


def test_one_class_is_refused():
    X = np.arange(8.0)[:, None]
    with pytest.raises(ValueError, match="at least two classes"):
        NGDSVGPClassifier().fit(X, np.ones(8))
    with pytest.raises(ValueError, match="at least two classes"):
        NGDSVGPClassifier().fit(X, np.arange(8) % 2, sample_weight=np.arange(8) % 2)


def test_a_missing_gpu_is_named(table):
    if any(device.platform == "gpu" for device in jax.devices()):
        pytest.skip("there is a GPU")
    with pytest.raises(RuntimeError, match="device='gpu'"):
        NGDSVGPRegressor(device="gpu").fit(*table)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n", [1, 2, 3])
def test_tiny_tables(n):
    X, y = np.arange(n, dtype=float)[:, None], np.arange(n, dtype=float)
    mean, std = NGDSVGPRegressor(max_iter=20).fit(X, y).predict(X, return_std=True)
    assert mean.mean() == pytest.approx(y.mean(), abs=0.1)
    assert np.all((std > 0.02) & (std < 3.0))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_verbose_prints(table, capsys):
    NGDSVGPRegressor(n_inducing=20, max_iter=40, verbose=2).fit(*table)
    assert "iteration 20: ELBO per row" in capsys.readouterr().out
    NGDSVGPRegressor(RBF(1.0), verbose=1).fit(*table)
    took = r"It took \S+ s for the choice of kernel and sizes, \S+ s for the solution, \S+ s for the rest\.\n$"
    assert re.search(took, capsys.readouterr().out)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("installed", [True, False])
def test_verbose_shows_a_bar_where_rich_is_installed(table, capsys, monkeypatch, installed):
    if installed:
        pytest.importorskip("rich")
    else:
        monkeypatch.setitem(__import__("sys").modules, "rich", None)
    NGDSVGPRegressor(n_inducing=20, max_iter=100, verbose=1).fit(*table)
    shown = capsys.readouterr().out
    assert ("100/100" in shown) == installed
    assert ("iteration 100: ELBO per row" in shown) != installed
