"""Views turned by what a kernel has learned, and their place in the choice of the default kernel."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern
from sklearn.model_selection import train_test_split

from skgp_natgrad import NGDSVGPRegressor, svgp
from skgp_natgrad._backend.flat import flat
from skgp_natgrad.choose import covariances, evidence, search, turned
from skgp_natgrad.choose.candidates import laplacian, matern12, matern52, rough_and_smooth
from skgp_natgrad.choose.splits import Split
from skgp_natgrad.choose.turned import TurnedView
from skgp_natgrad.choose.view import View

pytestmark = pytest.mark.usefixtures("x64")


def table_of(rng, n_rows=60, n_columns=4, n_targets=2):
    X = rng.normal(size=(n_rows, n_columns)) * np.linspace(1.0, 3.0, n_columns)
    y = np.sin(X @ rng.normal(size=(n_columns, n_targets)) / 2.0).T + 0.1 * rng.normal(size=(n_targets, n_rows))
    return svgp.Table(X, y, np.ones(n_rows))


def outer_of(rng, view):
    """The outer products of random gradients in the columns that vary."""
    slopes = rng.normal(size=(3, len(view.longest))) * view.varies
    return slopes.T @ slopes


def given(view):
    """The table with the columns as they were given."""
    view = getattr(view, "base", view)
    X = np.empty((len(view.table.X), view.width))
    X[:, view._order] = view.table.X[:, : view.width]
    return view.table._replace(X=X)


def ridge_of(rng, n_rows, w=(1.0, -1.0, 1.0, 0.5)):
    X = rng.uniform(-1.0, 1.0, size=(n_rows, len(w)))
    return X, np.sin(3.0 * X @ w) + 0.1 * rng.normal(size=n_rows)


def test_outer_products_are_those_of_predicted_slopes(rng):
    view = View(table_of(rng))
    at = view.start(matern52, 0.5 * view.longest, np.log(0.05), np.inf)[0]
    found = evidence.outer_product_of_slopes(at, view.table)
    kernel = view.to_sklearn(matern52, at.kernel)
    exact = GaussianProcessRegressor(kernel, alpha=0.05, optimizer=None).fit(given(view).X, given(view).y.T)
    expected, h = np.zeros((4, 4)), 1e-5
    X = given(view).X
    slopes = np.stack([(exact.predict(X + e) - exact.predict(X - e)) / (2.0 * h) for e in h * np.eye(4)], axis=2)
    expected = np.einsum("ntd,nte->de", slopes, slopes) / len(X)
    # The view sorts the columns.
    order = [int(np.flatnonzero((view.table.X[:, i][:, None] == X).all(0))[0]) for i in range(4)]
    assert_allclose(found[:4, :4], expected[np.ix_(order, order)], rtol=1e-6)
    assert_array_equal(found[4:], 0.0)


@pytest.mark.parametrize("make", [matern52, matern12, rough_and_smooth, laplacian])
def test_its_kernel_is_that_of_the_turned_columns(rng, make):
    """On the columns given, among them a constant one and one that another determines."""
    table = table_of(rng, n_columns=5)
    X = np.insert(table.X, 2, 7.0, axis=1)
    X[:, 1] = 2.0 * X[:, 4]
    view = View(table._replace(X=X))
    # No function of these rows has a slope across the plane on which they lie.
    across = np.linalg.svd(view.table.X[:, view.varies])[2][-1]
    slopes = rng.normal(size=(9, 5)) @ (np.eye(5) - np.outer(across, across))
    outer = np.zeros((8, 8))
    outer[np.ix_(view.varies, view.varies)] = slopes.T @ slopes
    other = TurnedView(view, outer)
    assert other.width == other.n_columns == 4
    start, (low, high), _ = other.start(make, 0.7 * other.longest, 0.0, np.inf)
    assert np.all((flat(low) <= flat(start)) & (flat(start) <= flat(high)))
    kernel = other.to_sklearn(make, start.kernel)
    assert_allclose(kernel(X), covariances.covariance_of_rows(start.kernel, other.table.X), rtol=1e-6)
    assert_array_equal(given(other).X, X)


def test_directions_are_eigenvectors(rng):
    view = View(table_of(rng, n_columns=3))
    outer = outer_of(rng, view)
    other = TurnedView(view, outer)
    values = np.diag(other.matrix.T @ outer @ other.matrix)
    assert_allclose(values, np.linalg.eigvalsh(outer[:3, :3])[::-1], rtol=1e-9, atol=1e-9)
    assert_allclose(other.matrix.T @ other.matrix, np.eye(3), atol=1e-12)
    assert_allclose(other.turn(view.table).X[:, :3], view.table.X @ other.matrix, atol=1e-12)


def test_equal_rows_stay_equal(rng):
    table = table_of(rng, n_rows=203)
    table = table._replace(X=table.X[np.arange(203) // 7])
    view = View(table)
    X = TurnedView(view, outer_of(rng, view)).table.X
    assert_array_equal(X, X[7 * (np.arange(203) // 7)])


def split_of(rng, X, y, n_rows):
    table = svgp.Table(X, np.atleast_2d(y), np.ones(len(X)))
    view = View(table)
    outside = np.arange(n_rows, len(X))
    parts = [Split(view.table.rows(np.arange(n_rows)), view.table.rows(outside), outside)]
    return view, parts, search.smooth_one(view, parts, np.inf, search._Effort((np.inf,)))


@pytest.mark.slow
def test_a_function_of_one_direction_is_found(rng):
    view, parts, candidate = split_of(rng, *ridge_of(rng, 250), 120)
    found, _, better = turned.first(view, parts, candidate)
    assert better.density > candidate.density + 0.1
    kernel = found.to_sklearn(matern52, better.best[0].hyperparameters.kernel)
    along = kernel.k2.matrix[:, 0] @ [1.0, -1.0, 1.0, 0.5] / np.sqrt(3.25)
    assert abs(along) > 0.97
    # The density is that of the exact process with this kernel.
    noise = np.exp(better.best[0].hyperparameters.noise)
    X, y = given(view).X, view.table.y[0]
    exact = GaussianProcessRegressor(kernel, alpha=noise, optimizer=None).fit(X[:120], y[:120])
    mean, std = exact.predict(X[120:], return_std=True)
    variance = std**2 + noise
    expected = -0.5 * (np.log(2.0 * np.pi * variance) + (y[120:] - mean) ** 2 / variance).mean()
    assert better.density == pytest.approx(expected, abs=1e-5)


def test_columns_stay_where_directions_do_not_predict_better(rng):
    X = rng.uniform(-1.0, 1.0, size=(250, 3))
    y = np.sin(4.0 * X[:, 0]) + 0.1 * rng.normal(size=250)
    view, parts, candidate = split_of(rng, X, y, 120)
    found, same, best = turned.first(view, parts, candidate)
    assert found is None
    assert (same, best) == (parts, candidate)
    two = split_of(rng, X[:, :2], y, 120)
    assert turned.first(*two)[0] is None


def test_the_lengthscales_of_the_next_round_are_those_of_the_same_metric(rng):
    view = View(table_of(rng, n_columns=3))
    first, other = TurnedView(view, outer_of(rng, view)), TurnedView(view, outer_of(rng, view))
    at = first.start(rough_and_smooth, rng.uniform(0.2, 0.6) * first.longest, np.log(0.1), np.inf)[0].kernel
    for start, before in ((view, np.eye(8)[:, :3]), (first, first.matrix)):
        found = turned._along(at, start, other)
        for old, new in ((at.k1, found.k1), (at.k2, found.k2)):
            metric = before @ np.diag(np.exp(-2.0 * old.k2.length_scale[:3])) @ before.T
            along = np.diag(other.matrix.T @ metric @ other.matrix) ** -0.5
            assert_allclose(np.exp(new.k2.length_scale[:3]), along, rtol=1e-6)
            assert new.k1.constant_value == old.k1.constant_value


@pytest.mark.slow
def test_with_nothing_set(rng):
    """A ridge function has directions; the summary, gradients, streams and a saved model know them."""
    X, X_test, y, y_test = train_test_split(*ridge_of(rng, 900), test_size=200, random_state=0)
    units = np.array([1.0, 100.0, 0.01, 5.0])
    model = NGDSVGPRegressor(random_state=0).fit(X * units, y)
    assert "LinearTransform" in repr(model.kernel_)
    assert "of linear combinations" in model.plan_
    first = model.summary().terms[0].factors[0].directions[0]
    assert list(first.loadings)[-1] == "x3"
    assert np.abs(np.diff(np.abs(list(first.loadings.values())[:3]))).max() < 0.1
    plain = NGDSVGPRegressor(1.0 * Matern(np.ones(4), nu=2.5), random_state=0).fit(X * units, y)
    gain = np.mean(
        model.predict_log_density(X_test * units, y_test) - plain.predict_log_density(X_test * units, y_test)
    )
    assert gain > 0.02
    assert_allclose(pickle.loads(pickle.dumps(model)).predict(X * units), model.predict(X * units), rtol=1e-12)
    some, h = X[:5] * units, 1e-4
    slopes = [(model.predict(some + e) - model.predict(some - e)) / (2.0 * h) for e in h * np.diag(units)]
    assert_allclose(model.predict_gradient(some) * units, np.transpose(slopes), atol=1e-4)
    assert model.feature_importances_.argmin() == 3
    model.set_params(max_iter=20).partial_fit(X_test * units, y_test)
    assert "LinearTransform" in repr(model.kernel_)
