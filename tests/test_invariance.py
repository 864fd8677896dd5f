"""Predictions depend on neither the order nor the sign of columns, nor on the order of rows, nor on labels' names."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import DotProduct, Matern

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.training.batches import Table
from skgp_natgrad.training.distinct_rows import distinct, order_of

ATOL = 1e-6


def problem(n_rows, n_columns, n_classes, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_columns)) * rng.uniform(0.5, 20.0, n_columns) + rng.normal(size=n_columns)
    X[:, -1] = np.round(rng.normal(size=n_rows))
    U = (X - X.mean(0)) / X.std(0)
    f = np.sin(2.0 * U[:, 0]) + U[:, 1] * U[:, -1] + 0.4 * rng.normal(size=n_rows)
    return X, f if n_classes == 0 else np.digitize(f, np.quantile(f, np.linspace(0, 1, n_classes + 1)[1:-1] ** 1.3))


def changed(X, rng):
    """X with permuted and negated columns."""
    order, sign = rng.permutation(X.shape[1]), rng.choice([-1.0, 1.0], X.shape[1])
    sign[0] = -1.0
    return (X * sign)[:, order]


def renamed(y, n_classes):
    """Labels whose sorted order is another, and the column of each of the old ones."""
    rank = np.roll(np.arange(n_classes), 1)
    return np.array(list("abcdefgh"))[rank][y], rank


def test_lengthscales_follow_their_columns(rng):
    """With few rows they are in proportion to the columns' deviations, wherever a column stands."""
    X, y = rng.normal(size=(15, 3)) * [1.0, 10.0, 100.0], rng.normal(size=15)
    for order in ([0, 1, 2], [1, 2, 0], [2, 0, 1]):
        kernel = NGDSVGPRegressor(normalize_X=False, random_state=0).fit(X[:, order], y).kernel_
        ratio = kernel.k2.length_scale / X[:, order].std(0)
        assert_allclose(ratio, ratio[0], rtol=1e-6)


# -- the order of the rows -------------------------------------------------------------------


@pytest.mark.parametrize("n_values", [0, 2, 3], ids=["real", "binary", "ternary"])
@pytest.mark.parametrize("n_columns", [1, 3, 8])
def test_the_order_is_that_of_the_table(n_values, n_columns, rng):
    X = rng.integers(0, n_values, (150, n_columns)).astype(float) if n_values else rng.normal(size=(150, n_columns))
    table = np.unique(np.column_stack([X, rng.integers(0, 3, 150)]), axis=0)
    # All values of three binary columns may occur with each label: then the weights tell them apart.
    kinds, labels, weight = [0] * n_columns + [1], [n_columns], rng.uniform(size=len(table))
    order = order_of(table, weight, kinds, labels)
    assert_array_equal(np.sort(order), np.arange(len(table)))
    for _ in range(5):
        rows, columns, names = rng.permutation(len(table)), rng.permutation(n_columns), rng.permutation(3)
        sign = rng.choice([-1.0, 1.0], n_columns)

        def other(found, columns=columns, names=names, sign=sign):
            return np.column_stack([(found[:, :-1] * sign)[:, columns], names[found[:, -1].astype(int)]])

        again = other(table)[rows]
        assert_array_equal(again[order_of(again, weight[rows], kinds, labels)], other(table[order]))
        assert_array_equal(order_of(table[rows], weight[rows], kinds, labels), np.argsort(rows)[order])


def test_a_constant_column_leaves_the_order_as_it_is(rng):
    """A fit with one offset for all rows is that without any."""
    table, weight = rng.normal(size=(60, 3)), rng.uniform(size=60)
    among = np.insert(table, 2, np.log(5.0), axis=1)
    assert_array_equal(order_of(among, weight, [0, 0, 1, 2]), order_of(table, weight, [0, 0, 2]))


def test_distinct_rows_are_merged_whatever_is_missing(rng):
    X, y = rng.normal(size=(20, 2)), rng.normal(size=(2, 20))
    y[0, :5] = np.nan
    twice = np.concatenate([np.arange(20), np.arange(10)])
    found = distinct(Table(X[twice], y[:, twice], np.ones(30)), False)[0]
    assert len(found.weight) == 20
    again = distinct(Table(X, y, np.where(np.arange(20) < 10, 2.0, 1.0)), False)[0]
    for a, b in zip(found[:3], again[:3], strict=True):
        assert_array_equal(a, b)


# -- fits ------------------------------------------------------------------------------------


def check_classes(X, y, n_classes, **own):
    rng = np.random.default_rng(1)
    proba = NGDSVGPClassifier(random_state=0, **own).fit(X, y).predict_proba(X)
    other = changed(X, rng)
    assert_allclose(NGDSVGPClassifier(random_state=0, **own).fit(other, y).predict_proba(other), proba, atol=ATOL)
    names, rank = renamed(y, n_classes)
    model = NGDSVGPClassifier(random_state=0, **own).fit(X, names)
    assert_allclose(model.predict_proba(X)[:, rank], proba, atol=ATOL)
    return model, names, rank


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_class_probabilities(n_classes):
    X, y = problem(120, 4, n_classes)
    check_classes(X, y, n_classes)


BY_STEPS = {"solver": "ngd", "n_inducing": 15, "max_iter": 40}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("own", [{}, {"kernel": 1.0 * Matern(nu=1.5) + 1.0 * DotProduct()}, BY_STEPS], ids=str)
def test_classes_that_exchange_their_names(own, n_classes):
    X, y = problem(120, 4, n_classes)
    first, second = (
        NGDSVGPClassifier(**own, random_state=0).fit(X, np.array(list(names))[y]).predict_proba(X)
        for names in ("abc", "bac")
    )
    assert_allclose(second[:, [1, 0, 2][:n_classes]], first, atol=ATOL)
    assert np.abs(second - first).max() > 0.1


@pytest.mark.slow
def test_the_mean_and_the_deviation():
    X, y = problem(150, 4, 0)
    moments = NGDSVGPRegressor(random_state=0).fit(X, y).predict(X, return_std=True)
    other = changed(X, np.random.default_rng(1))
    for got, expected in zip(
        NGDSVGPRegressor(random_state=0).fit(other, y).predict(other, return_std=True), moments, strict=True
    ):
        assert_allclose(got, expected, atol=ATOL)
    mean, std = NGDSVGPRegressor(random_state=0).fit(X, -y).predict(X, return_std=True)
    assert_allclose(-mean, moments[0], atol=ATOL)
    assert_allclose(std, moments[1], atol=ATOL)


@pytest.mark.slow
def test_everything_by_class_is_in_the_order_of_the_labels():
    """The model has its classes in an order of its own, which no method shows."""
    X, y = problem(120, 4, 3)
    model = NGDSVGPClassifier(random_state=0).fit(X, y)
    names, rank = renamed(y, 3)
    other = NGDSVGPClassifier(random_state=0).fit(X, names)
    # In the order in which the model has them the frequent label is the first.
    assert_array_equal(np.argsort(model._class_ranks), np.argsort(-np.bincount(y), kind="stable"))
    for a, b in zip(model.predict_latent(X, return_std=True), other.predict_latent(X, return_std=True), strict=True):
        assert_allclose(b[:, rank], a, atol=1e-5)
    covariance = model.predict_latent(X[:5], return_cov=True)[1]
    assert_allclose(
        np.sqrt(np.einsum("iik->ik", covariance)), model.predict_latent(X[:5], return_std=True)[1], rtol=1e-6
    )
    assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X), rtol=1e-3, atol=1e-3)
    assert_array_equal(model.summary().prior_mean, np.asarray(other.summary().prior_mean)[rank])
    draws = model.sample_y(X, n_samples=400, joint=False)
    shares = (draws[..., None] == model.classes_).mean((0, 1))
    assert_allclose(shares, model.predict_proba(X).mean(0), atol=0.02)
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.slow
def test_a_stream_keeps_the_order_of_its_classes():
    X, y = problem(160, 3, 3)
    own = {"n_inducing": 20, "max_iter": 150, "tol": 0.05, "random_state": 0}
    model = NGDSVGPClassifier(**own).partial_fit(X[:80], y[:80]).partial_fit(X[80:], y[80:])
    assert model.score(X, y) > 0.6


@pytest.mark.slow
@pytest.mark.parametrize(("n_rows", "n_columns", "n_classes"), [(450, 5, 2), (250, 4, 3)])
def test_the_whole_search(n_rows, n_columns, n_classes):
    check_classes(*problem(n_rows, n_columns, n_classes, 3), n_classes)
