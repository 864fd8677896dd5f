"""Weights of rows that differ much, or that all are small: as of rows that are forgotten, or that sum to one."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics import log_loss

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor

N = 400


@pytest.fixture
def table(rng):
    X = rng.normal(size=(N + 500, 2))
    return X, np.sin(3.0 * X[:, 0]), 0.3 * rng.normal(size=N + 500)


def forgotten(half_life):
    """Weights that halve with so many rows, of the last row one."""
    return 0.5 ** (np.arange(N)[::-1] / half_life)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("half_life", "factor"),
    [
        (15.0, 1.0),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((30.0, 1.0), (30.0, 10.0), (np.inf, 1.0 / N))),
    ],
)
def test_a_function_is_learned_from_weighted_rows(table, half_life, factor):
    X, f, noise = table
    model = NGDSVGPRegressor(1.0 * RBF([1.0, 1.0]), random_state=0)
    model.fit(X[:N], (f + noise)[:N], sample_weight=factor * forgotten(half_life))
    assert model.plan_.startswith("Gaussian likelihood")
    assert "then one natural gradient step on all rows" in model.plan_
    mean, deviation = model.predict(X[N:], return_std=True)
    assert np.mean((mean - f[N:]) ** 2) < 0.15 * np.var(f[N:])
    # A row of next to no weight does not make the noise small.
    inside = np.abs((f + noise)[N:] - mean) < 1.96 * deviation
    assert 0.88 < inside.mean() < 0.995


@pytest.mark.slow
@pytest.mark.parametrize("half_life", [8.0, 1e-8])
def test_the_noise_may_end_at_its_bound(table, half_life):
    """Next to no rows count, so that deviations that vary with X are found from next to nothing."""
    X, f, noise = table
    weight = forgotten(half_life) if half_life > 1.0 else np.full(N, half_life)
    model = NGDSVGPRegressor(1.0 * RBF([1.0, 1.0]), random_state=0).fit(X[:N], (f + noise)[:N], sample_weight=weight)
    mean, deviation = model.predict(X[N:], return_std=True)
    error = (f + noise)[N:] - mean
    assert np.sqrt(np.mean(error**2)) < 0.7 * (f + noise)[N:].std()
    assert 0.9 < np.sqrt(np.mean((error / deviation) ** 2)) < 1.4


@pytest.mark.slow
def test_labels_are_learned_from_weighted_rows(table):
    X, f, noise = table
    labels = f + noise > 0.0
    model = NGDSVGPClassifier(1.0 * RBF([1.0, 1.0]), random_state=0)
    model.fit(X[:N], labels[:N], sample_weight=10.0 * forgotten(60.0))
    assert model.score(X[N:], f[N:] > 0.0) > 0.85


@pytest.mark.parametrize("heavy", [1e2, 1e6, "copies"])
@pytest.mark.parametrize("row", [10, pytest.param(40, marks=pytest.mark.slow)])
def test_a_single_heavy_row_does_not_decide_about_all_others(rng, heavy, row):
    """Scale, noise and kernel are those of equal weights; the row itself is fitted."""
    X = rng.normal(size=(580, 2))
    f = np.sin(2.0 * X[:, 0]) + X[:, 1]
    y = f + 0.2 * rng.normal(size=580)
    plain = NGDSVGPRegressor(1.0 * RBF([1.0, 1.0]), random_state=0).fit(X[:80], y[:80])
    rows, weight = np.arange(80), np.ones(80)
    if heavy == "copies":
        rows = np.append(rows, np.full(500, row))
    else:
        weight[row] = heavy
    model = clone(plain).fit(X[rows], y[rows], sample_weight=weight if len(rows) == 80 else None)
    assert model.likelihood_.variance == pytest.approx(plain.likelihood_.variance, rel=0.35)
    inside = np.abs(y[80:] - model.predict(X[80:])) < 1.645 * model.predict(X[80:], return_std=True)[1]
    assert 0.84 < inside.mean() < 0.96
    errors = [np.sqrt(np.mean((each.predict(X[80:]) - f[80:]) ** 2)) for each in (model, plain)]
    assert errors[0] < 1.3 * errors[1]
    assert abs(model.predict(X[row : row + 1]) - y[row]) < abs(plain.predict(X[row : row + 1]) - y[row])


@pytest.mark.slow
@pytest.mark.parametrize("row", [10, pytest.param(3, marks=pytest.mark.slow), pytest.param(40, marks=pytest.mark.slow)])
def test_a_single_heavy_label_does_not_decide_about_all_others(rng, row):
    X = rng.normal(size=(1100, 2))
    labels = rng.uniform(size=1100) < 1.0 / (1.0 + np.exp(-3.0 * X[:, 0]))
    plain = NGDSVGPClassifier(1.0 * RBF([1.0, 1.0]), random_state=0).fit(X[:100], labels[:100])
    weight = np.where(np.arange(100) == row, 100.0, 1.0)
    model = clone(plain).fit(X[:100], labels[:100], sample_weight=weight)
    loss, best = (log_loss(labels[100:], each.predict_proba(X[100:])) for each in (model, plain))
    assert loss < best + 0.12


def test_a_constant_target_leaves_the_others_their_scale(rng):
    X = rng.normal(size=(90, 2))
    y = 2.0 * np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=90)
    alone = NGDSVGPRegressor(1.0 * RBF([1.0, 1.0]), random_state=0).fit(X, y)
    both = clone(alone).fit(X, np.column_stack([y, np.full(90, 3.0)]))
    far = np.array([[1e3, 1e4]])
    expected, found = alone.predict(far, return_std=True)[1], both.predict(far, return_std=True)[1]
    assert found[0, 0] == pytest.approx(expected[0], rel=0.05)
