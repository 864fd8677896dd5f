"""Tables with more columns than rows: one lengthscale for all columns, and a search that sees as many as rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.metrics import log_loss

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, kernels, svgp
from skgp_natgrad.choose import covariances, evidence
from skgp_natgrad.choose.candidates import matern52
from skgp_natgrad.choose.view import View
from skgp_natgrad.choose.wide import WideView, matern52_and_linear, viewed


def table_of(n_rows, n_columns, seed=0):
    random_state = np.random.RandomState(seed)
    X = random_state.standard_normal((n_rows, n_columns)) * np.exp(random_state.standard_normal(n_columns)) + 1.0
    X[1] = X[0]
    return svgp.Table(X, random_state.standard_normal((1, n_rows)), np.ones(n_rows))


def test_a_table_is_wide_if_it_has_more_columns_than_rows_and_a_category_is_one_of_them():
    assert isinstance(viewed(table_of(12, 13)), WideView)
    assert type(viewed(table_of(12, 12))) is View
    assert type(viewed(table_of(12, 14), blocks=[[0, 1, 2]])) is View


@pytest.mark.parametrize("make", WideView.makes)
def test_the_evidence_of_turned_rows_is_that_of_the_kernel_in_all_columns(make):
    table = table_of(20, 70)
    view = viewed(table)
    assert view.table.X.shape[1] < 30
    start, _, _ = view.start(make, 0.5 * view.longest, np.log(0.3), np.inf)
    kernel = view.to_sklearn(make, start.kernel)
    covariance = kernel(table.X) + 0.3 * np.eye(20)
    y = table.y[0]
    expected = -0.5 * (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(covariance)[1] + 20 * np.log(2.0 * np.pi))
    assert_allclose(evidence.value(start, view.table), expected, rtol=1e-6)
    assert_array_equal(view.table.X[0], view.table.X[1])


def test_the_columns_have_one_lengthscale_whatever_their_order_and_units():
    table = table_of(20, 70)
    view, other = viewed(table), viewed(table._replace(X=1e4 * table.X[:, ::-1]))
    at = [each.start(matern52_and_linear, each.longest, 0.0, np.inf)[0].kernel for each in (view, other)]
    of_rows = [covariances.covariance_of_rows(*pair) for pair in zip(at, (view.table.X, other.table.X), strict=True)]
    # But for the constant beside the linear function.
    assert_allclose(of_rows[1], of_rows[0], atol=1e-3)
    kernel = view.to_sklearn(matern52, view.start(matern52, view.longest, 0.0, np.inf)[0].kernel)
    assert_allclose(kernel.k2.length_scale, np.sqrt(table.X.var(axis=0).sum()))
    assert np.ndim(kernels.from_sklearn(kernel, 70).value.k2.length_scale) == 0


def bits(n_rows, n_columns, seed):
    """Correlated bits, and a linear function of a tenth of them."""
    random_state = np.random.RandomState(seed)
    share = random_state.beta(0.5, 2.0, n_columns)
    loads = random_state.random_sample((8, n_columns)) * (random_state.random_sample((8, n_columns)) < 0.15)
    of_rows = random_state.random_sample((n_rows, 8)) < 0.3
    X = (random_state.random_sample((n_rows, n_columns)) < np.clip(share + 0.5 * of_rows @ loads, 0.0, 1.0)) * 1.0
    f = (X - X.mean(axis=0)) @ (random_state.standard_normal(n_columns) * (random_state.random_sample(n_columns) < 0.1))
    return X, 2.0 * f / f.std(), random_state


@pytest.mark.slow
@pytest.mark.parametrize("of_bits", [True, False])
def test_measurements_are_predicted_as_well_as_by_ridge_regression(of_bits):
    X, f, random_state = bits(500, 300, 0)
    if not of_bits:
        # Columns with units of their own.
        X = (X + 0.3 * random_state.standard_normal(X.shape)) * np.exp(3.0 * random_state.standard_normal(X.shape[1]))
    y = f + 0.5 * random_state.standard_normal(len(f))
    model = NGDSVGPRegressor(random_state=0).fit(X[:150], y[:150])
    mean, std = model.predict(X[150:], return_std=True)
    density = np.mean(-0.5 * np.log(2.0 * np.pi * std**2) - 0.5 * ((y[150:] - mean) / std) ** 2)
    scale = X[:150].std(axis=0) if not of_bits else 1.0
    ridge = RidgeCV(np.logspace(-1, 5, 20)).fit(X[:150] / scale, y[:150])
    error = np.mean((ridge.predict(X[150:] / scale) - y[150:]) ** 2)
    assert density > -0.5 * np.log(2.0 * np.pi * error) - 0.5 - 0.05


@pytest.mark.slow
def test_labels_of_sparse_rows_are_predicted_as_well_as_by_logistic_regression():
    X, f, random_state = bits(500, 1200, 1)
    y = random_state.random_sample(len(f)) < 1.0 / (1.0 + np.exp(-2.0 * f))
    X = sparse.csr_matrix(X / np.linalg.norm(X, axis=1, keepdims=True))
    model = NGDSVGPClassifier(random_state=0).fit(X[:150], y[:150])
    other = LogisticRegressionCV(Cs=np.logspace(-2, 4, 8), scoring="neg_log_loss", max_iter=500).fit(X[:150], y[:150])
    ours, theirs = (log_loss(y[150:], each.predict_proba(X[150:])) for each in (model, other))
    assert ours < theirs + 0.05
