"""Weights of rows that differ much, or that all are small: as of rows that are forgotten, or that sum to one."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor

N = 400


@pytest.fixture
def table(rng):
    X = rng.normal(size=(N + 500, 2))
    return X, np.sin(3.0 * X[:, 0]), 0.3 * rng.normal(size=N + 500)


def forgotten(half_life):
    """Weights that halve with so many rows, of the last row one."""
    return 0.5 ** (np.arange(N)[::-1] / half_life)


@pytest.mark.parametrize(("half_life", "factor"), [(15.0, 1.0), (30.0, 1.0), (30.0, 10.0), (np.inf, 1.0 / N)])
def test_a_function_is_learned_from_weighted_rows(table, half_life, factor):
    X, f, noise = table
    model = NGDSVGPRegressor(1.0 * RBF([1.0, 1.0]), random_state=0)
    model.fit(X[:N], (f + noise)[:N], sample_weight=factor * forgotten(half_life))
    assert model.plan_.startswith("Gaussian likelihood")
    assert "evidence" in model.plan_
    mean, deviation = model.predict(X[N:], return_std=True)
    assert np.mean((mean - f[N:]) ** 2) < 0.15 * np.var(f[N:])
    # A row of next to no weight does not make the noise small.
    inside = np.abs((f + noise)[N:] - mean) < 1.96 * deviation
    assert 0.88 < inside.mean() < 0.995


@pytest.mark.parametrize("half_life", [8.0, 1e-8])
def test_the_noise_may_end_at_its_bound(table, half_life):
    """Next to no rows count, so that deviations that vary with X are found from next to nothing."""
    X, f, noise = table
    weight = forgotten(half_life) if half_life > 1.0 else np.full(N, half_life)
    model = NGDSVGPRegressor(1.0 * RBF([1.0, 1.0]), random_state=0).fit(X[:N], (f + noise)[:N], sample_weight=weight)
    assert np.all(np.isfinite(model.predict(X[N:], return_std=True)))


def test_labels_are_learned_from_weighted_rows(table):
    X, f, noise = table
    labels = f + noise > 0.0
    model = NGDSVGPClassifier(1.0 * RBF([1.0, 1.0]), random_state=0)
    model.fit(X[:N], labels[:N], sample_weight=10.0 * forgotten(60.0))
    assert model.score(X[N:], f[N:] > 0.0) > 0.85
