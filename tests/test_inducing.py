"""Where inducing points start."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skgp_natgrad import NGDSVGPRegressor, svgp
from skgp_natgrad.start import inducing_points

KERNEL = ConstantKernel(2.0) * Matern([0.7, 1.3], nu=1.5)


def conditional_variance(kernel, X, chosen):
    K = kernel(X)
    if not chosen:
        return np.diag(K)
    return np.diag(K - K[:, chosen] @ np.linalg.solve(K[np.ix_(chosen, chosen)], K[chosen]))


def test_greedy_takes_the_largest_conditional_variance(rng):
    X = rng.normal(size=(40, 2))
    points = inducing_points.greedy_variance(X, KERNEL, 12, None)
    chosen = []
    for point in points:
        variance = conditional_variance(KERNEL, X, chosen)
        index = int(np.flatnonzero((point == X).all(1))[0])
        assert variance[index] == pytest.approx(variance.max(), rel=1e-8)
        chosen.append(index)
    assert len(set(chosen)) == 12


def test_mean_points_continue_the_same_run(rng):
    X = np.unique(rng.normal(size=(40, 2)), axis=0)
    Z, Z_mean = inducing_points.place("greedy_variance", X, KERNEL, 7, 5, np.random.RandomState(0))
    assert_array_equal(np.vstack([Z, Z_mean]), inducing_points.greedy_variance(X, KERNEL, 12, None))


def test_given_points_are_continued(rng):
    X = np.unique(rng.normal(size=(40, 2)), axis=0)
    first = inducing_points.greedy_variance(X, KERNEL, 4, None)
    Z, Z_mean = inducing_points.complete(first, X, KERNEL, 4, 3, np.random.RandomState(0))
    assert_array_equal(Z, first)
    assert_array_equal(np.vstack([Z, Z_mean]), inducing_points.greedy_variance(X, KERNEL, 7, None))


def test_exhausted_variance_falls_back_to_an_even_spread():
    X = np.linspace(0, 1, 50)[:, None]
    points = inducing_points.greedy_variance(X, RBF(10.0), 30, None)
    assert len(np.unique(points)) == 30


@pytest.mark.parametrize(("solver", "method"), [("ngd", "k-means"), ("evidence", "greedy_variance")])
def test_points_that_move_start_at_the_centres_of_clusters(solver, method, rng):
    X = rng.normal(size=(80, 2))
    table = svgp.Table(X, np.sin(X[:, :1].T), np.ones(80))
    settings = svgp.Settings(svgp.Algorithm(solver=solver))
    plan = svgp.Plan(kernels=(KERNEL,), n_inducing=9, settings=settings)
    automatic, named = (
        svgp.init(each, table, random_state=0)[0].parameters.points.Z
        for each in (plan, plan._replace(inducing_init=method))
    )
    assert_array_equal(automatic, named)
    wanted, _ = inducing_points.place(method, X, KERNEL, 9, 0, np.random.RandomState(0))
    assert_array_equal(np.asarray(automatic)[:9], wanted)


@pytest.mark.parametrize("method", sorted(inducing_points.METHODS))
def test_too_few_distinct_rows(method, rng):
    X = np.repeat(rng.normal(size=(6, 2)), 5, axis=0)
    Z, Z_mean = inducing_points.place(method, X, KERNEL, 4, 10, np.random.RandomState(0))
    assert (len(Z), len(Z_mean)) == (4, 2)
    Z, Z_mean = inducing_points.place(method, X, KERNEL, 100, 10, np.random.RandomState(0))
    assert (len(Z), len(Z_mean)) == (6, 0)
    assert_allclose(np.unique(Z, axis=0), np.unique(X, axis=0))


def test_large_tables_are_searched_in_part(rng, monkeypatch):
    monkeypatch.setattr(inducing_points, "_CANDIDATES", 30)
    X = rng.normal(size=(500, 2))
    Z, _ = inducing_points.place("greedy_variance", X, KERNEL, 5, 0, np.random.RandomState(3))
    again, _ = inducing_points.place("greedy_variance", X, KERNEL, 5, 0, np.random.RandomState(3))
    assert_array_equal(Z, again)
    assert {tuple(row) for row in Z} <= {tuple(row) for row in X}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_arrays_in_the_units_of_the_user(rng):
    X = rng.normal(size=(50, 2)) * [10.0, 0.1] + 5.0
    y = rng.normal(size=50)
    options = {"optimizer": None, "max_iter": 3}
    model = NGDSVGPRegressor(inducing_init=X[:9], **options).fit(X, y)
    assert_allclose(model.inducing_points_, X[:9])
    assert model.mean_inducing_points_.shape == (0, 2)
    both = NGDSVGPRegressor(inducing_init=X[:9], n_inducing=6, n_mean_inducing=3, **options).fit(X, y)
    assert_allclose(both.inducing_points_, X[:6])
    assert_allclose(both.mean_inducing_points_, X[6:9])
    more = NGDSVGPRegressor(inducing_init=X[:9], n_mean_inducing=4, **options).fit(X, y)
    assert_allclose(more.inducing_points_, X[:9])
    assert more.mean_inducing_points_.shape == (4, 2)


@pytest.mark.parametrize("bad", ["kmeans", np.ones((3, 5)), [[np.nan, 1.0]], np.ones(2), np.empty((0, 2)), None])
def test_bad_arrays_are_refused(bad, rng):
    with pytest.raises(ValueError, match="inducing_init"):
        NGDSVGPRegressor(inducing_init=bad).fit(rng.normal(size=(20, 2)), rng.normal(size=20))
