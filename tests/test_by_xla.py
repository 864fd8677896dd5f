"""The way of a GPU, which computes by XLA alone: on a CPU it is forced by a switch, and finds the same model."""

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, kernels, likelihoods
from skgp_natgrad._backend import device, in_place, placement
from skgp_natgrad.neighbours import Neighbours, conditional

from .conftest import count_compilations, few_points_and_neighbours, rough

KERNEL = ConstantKernel() * Matern([1.0, 1.0], nu=1.5)


@pytest.fixture
def forced(monkeypatch):
    """Forces XLA's way from the call on."""
    return lambda: monkeypatch.setenv(placement.SWITCH, "1")


def test_the_switch_is_read_at_each_computation_and_leaves_the_host_alone(forced, monkeypatch):
    with device.computation():
        assert placement.on_one_cpu()
        forced()
        assert not placement.on_one_cpu()
        assert not in_place.pays(5000, 5000)
        with device.computation(device.HOST):
            assert placement.on_one_cpu()
        monkeypatch.setenv(placement.SWITCH, "0")
        assert placement.on_one_cpu()


@pytest.mark.parametrize("of_targets", ["in common", "own noise", "own kernels"])
def test_moments_from_neighbours(of_targets, rng, forced):
    X, y = rough(rng, 150)
    noise = np.full((1 if of_targets == "in common" else 2, 150), 0.01)
    noise[-1] *= 3.0
    # Of a missing target.
    noise[-1, :20] = conditional.ABSENT
    given = [KERNEL] if of_targets != "own kernels" else [KERNEL, 2.0 * RBF([0.3, 1.0])]
    given = tuple(kernels.from_sklearn(each, 2).value for each in given)
    rows, x = Neighbours(X, np.stack([y, -y]), noise, 12), rough(rng, 70)[0]
    without = X[:33], np.stack([y, -y])[:, :33], np.full((2, 33), np.inf)

    def found():
        with device.computation():
            return rows.moments(given, x), rows.moments_without(given, *without)

    expected = found()
    forced()
    for one, other in zip(found(), expected, strict=True):
        assert_allclose(one, other, rtol=0.0, atol=1e-9)


def test_rows_whose_covariance_has_no_factor_get_jitter(rng, forced):
    """Forty of a smooth function within a thousandth of its lengthscale, without noise."""
    X = rng.uniform(0.0, 1e-3, size=(40, 1))
    rows = Neighbours(X, np.sin(X.T), np.full((1, 40), 1e-18), 40)
    forced()
    with device.computation():
        mean, variance = rows.moments((kernels.from_sklearn(RBF(1.0), 1).value,), X[:10])
    assert np.abs(mean - np.sin(X[:10].T)).max() < 1e-4
    assert np.all(np.isfinite(variance))


def strategy(name, rng, monkeypatch):
    """An estimator that takes a way to q, with rows to fit and to predict."""
    X, y = rough(rng, 240, 0.2 if name == "mean on all rows" else 0.01)
    options = {"random_state": 0}
    if name in ("points", "neighbours", "mean on all rows"):
        few_points_and_neighbours(20 if name == "neighbours" else 60, monkeypatch.setattr)
    if name == "mean on all rows":
        options |= {"kernel": KERNEL, "solver": "evidence", "n_mean_inducing": 200, "calibrate": False}
    if name == "counts":
        y = rng.poisson(np.exp(np.sin(X[:, 0])))
        options |= {"kernel": KERNEL, "likelihood": likelihoods.Poisson(), "solver": "evidence"}
    if name in ("labels", "labels, further points"):
        y = np.digitize(X[:, 0] + 0.4 * rng.normal(size=240), [-0.6, 0.7])
        options |= {"n_inducing": 40, "n_mean_inducing": 60} if name == "labels, further points" else {}
        return NGDSVGPClassifier(KERNEL, **options), X, y
    return NGDSVGPRegressor(**options), X, y


def fitted(model, X, y):
    """What the plan says, the log density of 40 rows, and what is predicted there."""
    model.fit(X[:-40], y[:-40])
    if hasattr(model, "classes_"):
        found = model.predict_log_proba(X[-40:])
        return model.plan_, found[np.arange(40), y[-40:]].mean(), np.exp(found)
    mean, deviation = model.predict(X[-40:], return_std=True)
    return model.plan_, stats.norm.logpdf(y[-40:], mean, deviation).mean(), np.stack([mean, deviation])


# A fit and predictions compile no more than this.
MOST_PROGRAMS = 12


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exact", "points", "neighbours"])
def test_a_fit_compiles_few_programs_and_another_table_of_its_size_none(name, rng, monkeypatch, forced):
    forced()
    model, X, y = strategy(name, rng, monkeypatch)
    # Nothing else is left to the rows, which may choose other numbers.
    model.set_params(kernel=KERNEL, calibrate=False, n_neighbors=10 if name == "neighbours" else 0)
    jax.clear_caches()
    with count_compilations() as counts:
        plan, *_ = fitted(model, X, y)
    assert 0 < sum(counts.values()) <= MOST_PROGRAMS, counts
    assert ("neighbors" in plan) == (name == "neighbours")
    with count_compilations() as counts:
        model.fit(X[3:200], y[3:200]).predict(X[200:], return_std=True)
    assert not counts


@pytest.mark.slow
def test_with_nothing_set_a_fit_compiles_few_programs_and_another_table_of_its_size_none(rng, forced):
    forced()
    X, model = rng.normal(size=(1100, 8)), NGDSVGPRegressor(random_state=0)
    y = np.sin(X @ np.full(8, 0.5)) + X[:, 0] + 0.01 * rng.normal(size=1100)
    jax.clear_caches()
    with count_compilations() as counts:
        plan, *_ = fitted(model, X[60:], y[60:])
    assert 0 < sum(counts.values()) <= MOST_PROGRAMS, counts
    with count_compilations() as counts:
        model.fit(X[:997], y[:997]).predict(X[1000:], return_std=True)
    assert not counts
    # Of another kernel the programs would be others.
    assert model.plan_ == plan.replace("1000 inducing", "997 inducing")


STRATEGIES = "exact", "points", "neighbours", "mean on all rows", "counts", "labels", "labels, further points"


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_each_strategy_finds_the_same_model(name, rng, monkeypatch, forced):
    model, *rows = strategy(name, rng, monkeypatch)
    plan, density, predicted = fitted(model, *rows)
    assert name != "neighbours" or "neighbors" in plan
    before = model.predict_proba(rows[0]) if hasattr(model, "classes_") else model.predict(rows[0], return_std=True)
    forced()
    # The same model predicts the same.
    after = model.predict_proba(rows[0]) if hasattr(model, "classes_") else model.predict(rows[0], return_std=True)
    assert_allclose(after, before, rtol=0.0, atol=1e-6)
    found = fitted(model, *rows)
    assert found[0] == plan
    assert abs(found[1] - density) < 1e-3
    # Conjugate gradients end within their own tolerance.
    assert_allclose(found[2], predicted, rtol=0.0, atol=3e-3 if name == "mean on all rows" else 1e-3)
