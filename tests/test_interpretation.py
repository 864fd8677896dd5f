"""Fitted hyperparameters in the user's units, and the relevance of columns."""

import pickle
import re

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, DotProduct, ExpSineSquared, Matern, WhiteKernel

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.estimators.fitted.summary import Summary, terms_of
from skgp_natgrad.kernels import Columns, LinearTransform
from skgp_natgrad.kernels.formula import formula

RNG = np.random.default_rng(3)
X = RNG.normal(size=(90, 3)) * [1.0, 100.0, 5.0] + [0.0, 1000.0, -3.0]
Y = 40.0 * np.sin(X[:, 0]) + 0.1 * X[:, 1] + 2.0 * RNG.normal(size=90) + 500.0
FIXED = {"n_inducing": 10, "max_iter": 2, "tol": 1e9, "optimizer": None, "random_state": 0}

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def fitted():
    options = {"n_inducing": 30, "max_iter": 300, "tol": 0.02, "random_state": 0}
    return NGDSVGPRegressor(1.0 * RBF([1.0, 1.0, 1.0]), **options).fit(X, Y)


@pytest.mark.slow
def test_units_are_those_of_the_same_model_on_raw_data(fitted):
    """The exact Gaussian process of the summary's numbers on raw rows predicts what the model predicts."""
    summary = fitted.summary()
    (term,) = summary.terms
    lengths = [term.factors[0].by_column[name] for name in ("x0", "x1", "x2")]
    kernel = term.amplitude**2 * RBF(lengths) + WhiteKernel(summary.noise**2)
    exact = GaussianProcessRegressor(kernel, optimizer=None).fit(X, Y - summary.prior_mean)
    mean, std = exact.predict(X[:20], return_std=True)
    own_mean, own_std = fitted.predict(X[:20], return_std=True)
    assert_allclose(mean + summary.prior_mean, own_mean, atol=0.1 * Y.std())
    assert_allclose(std, own_std, rtol=0.3)
    # Exactly: the prior covariance of y.
    scaled = fitted._x_scale.forward(X[:5])
    assert_allclose((term.amplitude**2 * RBF(lengths))(X[:5]), fitted.kernel_(scaled) * Y.var(), rtol=1e-9)


@pytest.mark.slow
def test_terms_of_an_expression_with_columns():
    kernel = (
        4.0 * Columns(Matern([1.0, 2.0], nu=1.5), [0, 2]) * Columns(ExpSineSquared(1.3, 0.5), 1)
        + 9.0 * RBF(2.0)
        + DotProduct(0.5) ** 2
    )
    model = NGDSVGPRegressor(kernel, normalize_X=False, **FIXED).fit(X, Y)
    first, second, third = model.summary().terms
    assert_allclose([first.amplitude, second.amplitude], [2.0 * Y.std(), 3.0 * Y.std()], rtol=1e-9)
    assert first.factors[0][1:3] == ("length_scale", {"x0": 1.0, "x2": 2.0})
    assert first.factors[1][1:3] == ("periodicity", {"x1": 0.5})
    assert second.factors[0].by_column == {"x0": 2.0, "x1": 2.0, "x2": 2.0}
    variance = (DotProduct(0.5) ** 2).diag(model.inducing_points_).mean()
    assert_allclose(third.amplitude, np.sqrt(variance) * Y.std(), rtol=1e-9)
    text = repr(model.summary())
    assert "Matern(nu=1.5) * ExpSineSquared" in text
    assert "periodicity: x1 0.5" in text
    # The noise in the units of y, and not beside it the parameter of the standardised one.
    assert text.startswith(f"Gaussian: prior mean {Y.mean():.4g}, noise {np.sqrt(0.1) * Y.std():.4g}\n")


@pytest.mark.slow
def test_several_outputs_and_kernels_and_frames():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    both = np.column_stack([Y, 3.0 * Y])
    shared = NGDSVGPRegressor(1.0 * RBF(), **FIXED).fit(frame, both).summary()
    assert_allclose(shared.terms[0].amplitude, both.std(0), rtol=1e-9)
    assert_allclose(shared.noise, np.sqrt(0.1) * both.std(0), rtol=1e-9)
    assert sorted(shared.terms[0].factors[0].by_column) == ["a", "b", "c"]
    assert_allclose(shared.terms[0].factors[0].by_column["b"], X[:, 1].std(), rtol=1e-9)
    each = NGDSVGPRegressor([1.0 * RBF(), 4.0 * Columns(RBF(), "b")], **FIXED).fit(frame, both).summary()
    assert [term.latent for term in each.terms] == [0, 1]
    assert_allclose([term.amplitude for term in each.terms], [Y.std(), 6.0 * Y.std()], rtol=1e-9)
    assert list(each.terms[1].factors[0].by_column) == ["b"]
    # Scores are around the median one for each deviation of a normal column.
    scores = NGDSVGPRegressor(1.0 * RBF(), normalize_X="quantile", **FIXED).fit(frame, Y).summary()
    assert_allclose(scores.terms[0].factors[0].by_column["b"], X[:, 1].std(), rtol=0.3)


@pytest.mark.slow
def test_a_likelihood_with_a_link_has_no_noise():
    model = NGDSVGPRegressor(4.0 * RBF(), likelihood="poisson", **FIXED).fit(X, np.round(Y / 100.0))
    summary = model.summary()
    assert summary.noise is None
    assert_allclose(summary.terms[0].amplitude, 2.0, rtol=1e-12)
    assert_allclose(np.exp(summary.prior_mean), np.round(Y / 100.0).mean(), rtol=1e-9)


@pytest.mark.slow
def test_importances_are_mean_squared_slopes(fitted):
    """Of y = 40 sin(x0) + 0.1 x1 + noise the parts have the variances of 40 cos(x0) x0 and 0.1 x1, nearly."""
    importances = fitted.feature_importances_
    assert_allclose(importances.sum(), 1.0, rtol=1e-12)
    points = fitted.inducing_points_
    expected = np.mean((40.0 * np.cos(points[:, 0])) ** 2) * points[:, 0].var(), 0.01 * points[:, 1].var()
    assert_allclose(importances[1] / importances[0], expected[1] / expected[0], rtol=0.5)
    assert importances[2] < 0.02
    # The slopes of the latent mean are those of the predicted mean.
    slopes = fitted.predict_gradient(points)
    relevance = (slopes**2).mean(0) * points.var(0)
    assert_allclose(importances, relevance / relevance.sum(), rtol=1e-6)


@pytest.mark.slow
def test_feature_selection():
    model = NGDSVGPRegressor(1.0 * RBF(), n_inducing=15, max_iter=60, tol=1.0, random_state=0)
    chosen = SelectFromModel(model, threshold=0.02).fit(X, Y)
    assert chosen.get_support().tolist() == [True, True, False]
    ranked = RFE(model, n_features_to_select=2).fit(X, Y)
    assert ranked.support_.tolist() == [True, True, False]


@pytest.mark.slow
def test_classifiers_and_unfitted_estimators(fitted):
    labels = np.where(X[:, 1] > 1000.0, "high", "low")
    model = NGDSVGPClassifier(1.0 * RBF(), n_inducing=10, max_iter=30, tol=1.0, calibrate=False, random_state=0)
    assert not hasattr(model, "feature_importances_")
    with pytest.raises(NotFittedError):
        model.summary()
    model.fit(X, labels)
    assert model.feature_importances_.argmax() == 1
    assert "Bernoulli" in repr(model.summary())
    constant = NGDSVGPRegressor(1.0 * RBF(), **FIXED).fit(X, np.ones(90))
    assert_allclose(constant.feature_importances_.sum(), 1.0)


@pytest.mark.parametrize(
    ("kernel", "forms", "by_column"),
    [
        (RBF(2.0) ** 2, ["RBF ** 2"], [{"a": 20.0, "b": 200.0}]),
        ((2.0 * RBF(2.0)) ** 2, ["RBF ** 2"], [{"a": 20.0, "b": 200.0}]),
        (Columns(RBF(3.0), [0]) ** 2 + Columns(RBF(), [1]), ["RBF ** 2", "RBF"], [{"a": 30.0}, {"b": 100.0}]),
        ((RBF() + 2.0 * Matern(nu=1.5)) ** 2, ["(RBF + ConstantKernel * Matern(nu=1.5)) ** 2"], [{}]),
    ],
)
def test_a_summary_of_powers_has_the_units_of_its_columns(kernel, forms, by_column, rng):
    X = rng.normal(size=(5, 2))
    found = terms_of(kernel, ["a", "b"], np.array([10.0, 100.0]), X, 1.0)
    factors = [factor for term in found for factor in term.factors]
    assert [factor.kernel for factor in factors] == forms
    assert [factor.by_column for factor in factors] == by_column
    assert sum(term.amplitude**2 for term in found) == pytest.approx(np.mean(kernel.diag(X)))


def test_a_summary_lists_the_columns_with_the_shortest_lengthscales_in_their_deviations(rng):
    X = rng.permuted(np.repeat([[-1.0], [1.0]], 25, axis=0) * np.array([0.1, *np.ones(10), 100.0]), axis=0)
    lengths = np.array([5.0, *np.linspace(20.0, 11.0, 10), 100.0])
    terms = terms_of(RBF(lengths), [f"x{k}" for k in range(12)], np.ones(12), X, 1.0)
    # Fifty of its deviations are long for the first column, and one is short for the last.
    assert list(terms[0].factors[0].by_column) == ["x11", *(f"x{k}" for k in range(10, 0, -1)), "x0"]
    said = repr(Summary(tuple(terms), 0.0, 1.0, "Gaussian()"))
    assert re.search(r"length_scale: x11 100, x10 11, .*, x4 17, and 4 more$", said)


def test_a_summary_says_shared_directions_once(rng):
    matrix = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    lengths = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    kernel = LinearTransform(RBF(lengths), matrix) + LinearTransform(Matern(lengths[::-1], nu=1.5), matrix)
    terms = terms_of(kernel, list("abcdef"), np.ones(6), rng.normal(size=(9, 6)), 1.0)
    lines = [line.strip() for line in repr(Summary(tuple(terms), 0.0, 1.0, "Gaussian()")).splitlines()]
    said = [line for line in lines if line.startswith("length_scale of directions")]
    assert said == [
        "length_scale of directions: 1 1, 2 2, 3 3, 4 4, and 2 more",
        "length_scale of directions: 5 1, 6 2, 4 3, 3 4, and 2 more",
    ]
    assert sum(line.startswith("direction ") for line in lines) == 6
    assert all(line.endswith(", and 2 more") for line in lines if line.startswith("direction "))


def test_a_summary_says_what_was_compared_and_by_how_much_the_winner_is_ahead(rng):
    X = rng.normal(size=(400, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=400)
    ahead = r"kernel .*Matern.* ahead by -?[\d.e-]+ nats a row of .*Constant.*"
    shares = r"shares of the variance, in the order of the terms: Matern.* \d\.\d\d, .*Laplacian \d\.\d\d"
    regressor, classifier = NGDSVGPRegressor(random_state=0), NGDSVGPClassifier(random_state=0)
    for model, target, expected in ((regressor, y, ahead), (classifier, y > 0.0, shares)):
        model.fit(X, target)
        (line,) = model.summary().compared
        assert re.fullmatch(expected, line)
        assert f"chosen: {line}" in repr(model.summary())
        assert pickle.loads(pickle.dumps(model)).summary().compared == (line,)
    # Shares are matched to the terms by their order.
    of_terms = [" * ".join(factor.kernel for factor in term.factors) for term in model.summary().terms]
    listed = re.sub(r" \d\.\d\d", "", line.partition(": ")[2])
    assert listed.replace(" + ", ", ").split(", ") == of_terms
    # Nothing is compared where the kernel is given.
    assert NGDSVGPRegressor(RBF(), random_state=0).fit(X[:50], y[:50]).summary().compared == ()


def test_a_kernel_is_named_without_its_numbers():
    kernel = 2.0 * (RBF(1.0) + Matern(1.0, nu=1.5)) * Columns(Matern(1.0, nu=0.5), 0) + RBF(1.0) ** 2
    expected = "ConstantKernel * (RBF + Matern(nu=1.5)) * Matern(nu=0.5) + RBF ** 2"
    assert formula(kernel) == expected
