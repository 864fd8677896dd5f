"""Normal scores: monotone, invertible, weighted, and close to scikit-learn's quantile transformer."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.preprocessing import QuantileTransformer

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.choose.scale import fit_normal_scores


def test_equal_those_of_ranks_up_to_scale(rng):
    X = rng.exponential(size=(200, 2))
    scores = fit_normal_scores(X, np.ones(200)).forward(X)
    expected = norm.ppf((X.argsort(0).argsort(0) + 0.5) / 200)
    np.testing.assert_allclose(scores, (expected - expected.mean(0)) / expected.std(0), rtol=1e-10, atol=1e-10)


def test_close_to_the_quantile_transformer(rng):
    X = rng.exponential(size=(5000, 1))
    scores = fit_normal_scores(X, np.ones(5000)).forward(X)
    reference = QuantileTransformer(n_quantiles=500, output_distribution="normal", subsample=None).fit_transform(X)
    inner = np.abs(reference) < 2.0
    assert np.abs(scores - reference)[inner].max() < 0.05


def test_repeated_rows_are_weights(rng):
    X, weight = rng.integers(0, 9, size=(60, 3)).astype(float), rng.integers(1, 4, size=60)
    repeated = fit_normal_scores(np.repeat(X, weight, axis=0), np.ones(weight.sum()))
    np.testing.assert_allclose(fit_normal_scores(X, weight.astype(float)).forward(X), repeated.forward(X), rtol=1e-12)


def test_backward_undoes_forward_and_the_ends_are_continued(rng):
    X = np.column_stack([rng.lognormal(size=2000), rng.integers(0, 3, size=2000), np.full(2000, 7.0)])
    scale = fit_normal_scores(X, np.ones(2000))
    assert scale.n_columns == 3
    np.testing.assert_allclose(scale.backward(scale.forward(X)), X, rtol=1e-9)
    beyond = np.array([[-9.0, -5.0, 3.0], [1e9, 5.0, 9.0]])
    assert np.all(scale.forward(beyond)[0] < scale.forward(X).min(0))
    assert np.all(scale.forward(beyond)[1] > scale.forward(X).max(0))
    np.testing.assert_allclose(scale.backward(scale.forward(beyond)), beyond, rtol=1e-9)
    steps = scale.forward(X.max(0) + np.array([[0.0], [1.0], [2.0]]))
    np.testing.assert_allclose(steps[2] - steps[1], steps[1] - steps[0], rtol=1e-9)
    assert np.all(np.diff(scale.forward(np.sort(X, axis=0)), axis=0) >= 0.0)
    np.testing.assert_allclose(scale.forward(X)[:, :2].std(0), 1.0, rtol=1e-2)


@pytest.mark.slow
def test_a_fit_sees_the_order_of_a_column_alone(rng):
    X = rng.normal(size=(60, 2))
    y = np.sin(X.sum(1)) + 0.1 * rng.normal(size=60)
    arguments = {"normalize_X": "quantile", "n_inducing": 10, "optimizer": None, "max_iter": 20, "tol": 1.0}
    arguments["random_state"] = 0
    first = NGDSVGPRegressor(**arguments).fit(X, y)
    second = NGDSVGPRegressor(**arguments).fit(np.exp(3.0 * X), y)
    np.testing.assert_allclose(first.predict(X), second.predict(np.exp(3.0 * X)), rtol=1e-6)
    assert np.all(np.isin(np.round(second.inducing_points_, 9), np.round(np.exp(3.0 * X), 9)))


@pytest.mark.parametrize("value", ["rank", None, 2])
def test_other_values_of_normalize_X_are_refused(value):
    with pytest.raises(ValueError, match=r"normalize_X=.*must be .*"):
        NGDSVGPRegressor(normalize_X=value).fit(np.arange(10.0)[:, None], np.arange(10.0))


@pytest.mark.parametrize("heavy", [0, 25, 49])
def test_weights_that_vanish_beside_others(heavy):
    X = np.arange(50.0)[:, None]
    weight = np.full(50, 1e-30)
    weight[heavy] = 1.0
    with np.errstate(all="raise"):
        found = fit_normal_scores(X, weight)
        scores = found.forward(X)
    assert np.all(np.diff(scores[:, 0]) > 0.0)
    np.testing.assert_allclose(found.backward(scores), X, atol=1e-12)


def test_values_whose_ranks_differ_by_nothing_have_one_score(rng):
    """Weights that vanish clip ranks to one value: forward, backward and slopes stay finite, and agree."""
    X = (np.linspace(0.0, 1.0, 200) ** 3)[:, None]
    found = fit_normal_scores(X, np.exp(-0.25 * np.arange(200)[::-1]))
    assert np.all(np.diff(found.forward(X)[:, 0]) > 0.0)
    np.testing.assert_allclose(found.backward(found.forward(X)), X, rtol=1e-9, atol=1e-9)
    x, step = np.array([[0.15], [0.5], [0.9]]), 1e-7
    slope = (found.forward(x + step) - found.forward(x - step)) / (2.0 * step)
    np.testing.assert_allclose(found.slope(x), slope, rtol=1e-5)


@pytest.mark.parametrize("gap", [1e-2, 1e-6, 1e-9])
def test_beyond_the_data_a_near_tie_of_the_outermost_values_says_nothing(rng, gap):
    X = np.sort(rng.normal(size=(200, 1)), axis=0)
    X[0], X[-1] = X[1] - gap, X[-2] + gap
    scale = fit_normal_scores(X, np.ones(200))
    beyond = np.array([[X[0, 0] - 1.0], [X[-1, 0] + 1.0]])
    # Normal values are about their own scores.
    further = (scale.forward(beyond) - scale.forward(X[[0, -1]])) * [[-1.0], [1.0]]
    assert np.all((further > 0.5) & (further < 2.5))
    np.testing.assert_allclose(scale.backward(scale.forward(beyond)), beyond, rtol=1e-9)
    step = 1e-6
    slope = (scale.forward(beyond + step) - scale.forward(beyond - step)) / (2.0 * step)
    np.testing.assert_allclose(scale.slope(beyond), slope, rtol=1e-6)
