"""Kernels on linear combinations of columns; their values and gradients are in test_equivalence as well."""

import pickle

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from skgp_natgrad import NGDSVGPRegressor, kernels, likelihoods, svgp
from skgp_natgrad.choose import evidence
from skgp_natgrad.choose.scale import Scale
from skgp_natgrad.estimators.fitted.hyperparameters import (
    at_bounds,
    in_units_of_model,
    in_units_of_X,
    without_effect,
)
from skgp_natgrad.estimators.fitted.summary import terms_of
from skgp_natgrad.kernels import Columns, LinearTransform
from skgp_natgrad.kernels.base import is_signed
from skgp_natgrad.kernels.columns import by_position, on_blocks
from skgp_natgrad.neighbours.rates import rates

MATRIX = [[0.5, -1.0], [0.3, 0.4], [-0.7, 0.2]]
EXPRESSIONS = [
    LinearTransform(sk.RBF([0.5, 2.0]), MATRIX),
    1.5 * LinearTransform(sk.Matern(0.9, nu=2.5), MATRIX, "fixed") + sk.DotProduct(0.3),
    Columns(LinearTransform(1.0 * sk.RBF(0.7) + Columns(sk.RationalQuadratic(1.3, 0.4), -1), MATRIX), [3, 0, 1]) ** 2,
]


@pytest.mark.parametrize("kernel", EXPRESSIONS, ids=repr)
def test_its_gradient_is_that_of_finite_differences(kernel, rng):
    X = rng.normal(size=(9, 4 if kernel is EXPRESSIONS[2] else 3))
    K, gradient = kernel(X, eval_gradient=True)
    assert_array_equal(K, kernel(X))
    assert gradient.shape == (9, 9, kernel.n_dims) == (9, 9, len(kernel.theta)) == (9, 9, len(kernel.bounds))
    for i, step in enumerate(1e-5 * np.eye(kernel.n_dims)):
        ahead, behind = (kernel.clone_with_theta(kernel.theta + sign * step)(X) for sign in (1, -1))
        assert_allclose(gradient[:, :, i], (ahead - behind) / 2e-5, atol=1e-8)


def test_it_is_a_kernel_of_scikit_learn(rng):
    kernel, X, A = LinearTransform(sk.RBF([0.5, 2.0]), MATRIX), rng.normal(size=(6, 3)), np.array(MATRIX)
    assert_allclose(kernel(X, X[:4]), sk.RBF([0.5, 2.0])(X @ A, X[:4] @ A), rtol=1e-14)
    assert_allclose(LinearTransform(sk.DotProduct(0.5), A).diag(X), 0.25 + ((X @ A) ** 2).sum(1), rtol=1e-12)
    copied = clone(kernel)
    assert copied == kernel == pickle.loads(pickle.dumps(kernel))
    assert copied.kernel is not kernel.kernel
    assert kernel not in (kernel.kernel, LinearTransform(sk.RBF([0.5, 2.0]), A.T), LinearTransform(sk.RBF(), A))
    assert kernel != LinearTransform(sk.RBF([0.5, 2.0]), A, "fixed")
    assert [each.name for each in kernel.hyperparameters] == ["kernel__length_scale", "matrix"]
    assert_allclose(kernel.theta, [np.log(0.5), np.log(2.0), *A.ravel()])
    assert_allclose(kernel.bounds[2:], [[-10.0, 10.0]] * 6)
    assert copied.set_params(kernel__length_scale=1.0, matrix=A[:, :1]).theta.shape == (4,)
    assert repr(kernel) == "LinearTransform(RBF(length_scale=[0.5, 2]), 3 x 2 matrix)"
    assert kernel.is_stationary()
    assert not LinearTransform(sk.DotProduct(), A).is_stationary()


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ("abc", "which is no array of numbers"),
        ([1.0, 2.0, 3.0], r"of shape \(3,\) for X with 3 columns; give a row for each of the 3 columns"),
        (np.eye(2), r"of shape \(2, 2\) for X with 3 columns"),
        (np.ones((3, 0)), "at least one column"),
        (1e3 * np.eye(3), "entries reach 1000; they must be finite and at most 80"),
        (np.full((3, 1), np.nan), "must be finite"),
        ([[1.0], [2.0], [11.0]], r"matrix_bounds=\[-10.0, 10.0\], but matrix has entries from 1 to 11; widen"),
    ],
)
def test_wrong_matrices_are_refused(matrix, message):
    with pytest.raises(ValueError, match=message):
        kernels.from_sklearn(LinearTransform(sk.RBF(), matrix), 3)


def test_what_is_inside_counts_the_combinations():
    with pytest.raises(ValueError, match="3 values for the 2 combinations that a LinearTransform makes"):
        kernels.from_sklearn(LinearTransform(sk.RBF([1.0, 1.0, 1.0]), MATRIX), 3)
    with pytest.raises(TypeError, match="kernel='rbf', which must be a kernel of sklearn"):
        kernels.from_sklearn(LinearTransform("rbf", MATRIX), 3)
    with pytest.raises(ValueError, match="X has no column names"):
        by_position(LinearTransform(Columns(sk.RBF(), "a"), MATRIX), ["a", "b", "c"])
    named = Columns(LinearTransform(sk.RBF(), MATRIX), ["c", "a", "b"])
    assert by_position(named, ["a", "b", "c"]).columns == [2, 0, 1]


def test_values_return_to_the_kernel(rng):
    kernel = 1.5 * LinearTransform(sk.RBF([0.5, 2.0]), MATRIX)
    found = kernels.to_sklearn(kernel, kernels.from_sklearn(kernel, 3).value)
    assert_allclose(found.theta, kernel.theta, atol=1e-14)
    # A column with several in its place, as a category has, gives each of them its weights.
    spread = on_blocks(kernel, [np.array([0, 2]), np.array([1]), np.array([3])])
    assert_allclose(spread.k2.matrix, np.array(MATRIX)[[0, 1, 0, 2]])
    assert_array_equal(spread.k2.kernel.length_scale, [0.5, 2.0])


def test_a_fixed_matrix_is_in_the_units_of_X(rng):
    X, scale = rng.normal(size=(7, 3)), Scale(np.zeros(3), np.array([1.0, 10.0, 0.1]))
    fixed = 1.5 * Columns(LinearTransform(sk.RBF([0.5, 2.0], "fixed"), np.array(MATRIX), "fixed"), [1, 2, 0])
    (of_model,) = in_units_of_model([fixed], scale)
    assert_allclose(of_model(scale.forward(X)), fixed(X), rtol=1e-10)
    (back,) = in_units_of_X([of_model], scale)
    assert_allclose(back.k2.kernel.matrix, MATRIX, rtol=1e-14)
    trained = LinearTransform(sk.RBF([0.5, 2.0]), np.array(MATRIX))
    assert in_units_of_model([trained], scale)[0] is trained


def test_the_rates_of_columns():
    """With a lengthscale for each column as the matrix they are those of the lengthscales."""
    plain, combined = sk.RBF([1.0, 2.0, 4.0]), LinearTransform(sk.RBF(2.0), 2.0 * np.diag([1.0, 0.5, 0.25]))
    found = [rates(kernels.from_sklearn(each, 3).value, 3) for each in (plain, 3.0 * combined)]
    assert_allclose(*found, rtol=1e-12)


def test_lengthscales_of_combinations_without_effect(rng):
    """At the upper bound they change nothing if the combination hardly varies in units of them."""
    X = rng.normal(size=(50, 3))
    for matrix, there in ((np.eye(3)[:, :2], True), (50.0 * np.eye(3)[:, :2], False)):
        kernel = LinearTransform(sk.RBF([1.0, 100.0], (1e-3, 100.0)), matrix, "fixed")
        trees = [((jax.tree.map(np.log, each),), likelihoods.Gaussian()) for each in kernels.from_sklearn(kernel, 3)]
        found = without_effect(trees[0], trees[1:], [1.0], X, 1.0)
        assert [list(each) for each in found.values()] == ([[1]] if there else [])


def test_the_summary_has_directions():
    """The loadings of combinations in units of their lengthscales, and lengthscales along the columns."""
    matrix = np.array([[3.0, 0.0], [4.0, 0.0], [0.0, 1.0]])
    kernel = 4.0 * LinearTransform(sk.Matern([10.0, 0.5], nu=2.5), matrix)
    kernel += 1.0 * LinearTransform(sk.DotProduct(), matrix)
    first, second = terms_of(kernel, ["a", "b", "c"], np.array([1.0, 10.0, 1.0]), np.eye(3), 1.0)
    (factor,) = first.factors
    assert (factor.kernel, factor.quantity) == ("Matern(nu=2.5) of linear combinations", "length_scale")
    assert [each.length_scale for each in factor.directions] == pytest.approx([0.5, 2.0])
    assert list(factor.directions[1].loadings.items())[:2] == [("b", pytest.approx(0.8)), ("a", pytest.approx(0.6))]
    assert factor.by_column == pytest.approx({"a": 10.0 / 3.0, "b": 25.0, "c": 0.5})
    assert first.amplitude == pytest.approx(2.0)
    assert second.factors[0].by_column == {}
    inside = LinearTransform(4.0 * sk.RBF(2.0) * Columns(sk.RBF(3.0), [1]), matrix)
    (term,) = terms_of(inside, ["a", "b", "c"], np.ones(3), np.eye(3), 1.0)
    assert [len(each.directions) for each in term.factors] == [2, 1]
    assert term.factors[1].directions[0].length_scale == pytest.approx(3.0)


@pytest.mark.slow
def test_with_fixed_hyperparameters_it_is_the_exact_gaussian_process(rng):
    X = rng.normal(size=(40, 3)) * [1.0, 10.0, 0.1] + 5.0
    y = np.sin(X @ [1.0, 0.1, 0.0]) + 0.1 * rng.normal(size=40)
    inner = sk.RBF([1.0, 2.0], "fixed")
    kernel = sk.ConstantKernel(1.3, "fixed") * LinearTransform(inner, [[1.0, 0.0], [0.1, -0.1], [2.0, 3.0]], "fixed")
    options = {"likelihood": likelihoods.Gaussian(0.05, "fixed"), "normalize_y": False, "calibrate": False}
    model = NGDSVGPRegressor(kernel, jitter=1e-12, **options).fit(X, y)
    exact = GaussianProcessRegressor(kernel, alpha=0.05, optimizer=None).fit(X, y)
    X_new = X[:15] + 0.3 * rng.normal(size=(15, 3)) * [1.0, 10.0, 0.1]
    mean, std = exact.predict(X_new, return_std=True)
    own_mean, own_std = model.predict(X_new, return_std=True)
    assert_allclose(own_mean, mean, atol=1e-7)
    assert_allclose(own_std**2, std**2 + 0.05, atol=1e-7)
    assert_allclose(model.kernel_.k2.matrix, kernel.k2.matrix, rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_the_evidence_trains_the_matrix(rng):
    """From another direction to the one along which the function changes, where scikit-learn's search stays."""
    X, w = rng.normal(size=(60, 3)), np.array([0.6, -0.8, 0.0])
    y = np.sin(2.0 * X @ w) + 0.05 * rng.normal(size=60)
    kernel = 1.0 * LinearTransform(sk.RBF(1.0, "fixed"), [[1.0], [-0.3], [0.3]])
    logs = [jax.tree.map(np.log, each) for each in kernels.from_sklearn(kernel, 3)]
    start, *bounds = map(evidence.Hyperparameters, logs, np.log([0.1, 1e-6, 1.0]))
    found = evidence.maximise(start, bounds, svgp.Table(X, y[None], np.ones(60)), gain=1e-6)
    matrix = found.hyperparameters.kernel.k2.matrix[:, 0]
    assert abs(matrix @ w) > 0.999 * np.linalg.norm(matrix)
    at = kernels.to_sklearn(kernel, jax.tree.map(np.exp, found.hyperparameters.kernel))
    noise = sk.WhiteKernel(float(np.exp(found.hyperparameters.noise)), (1e-6, 1.0))
    exact = GaussianProcessRegressor(at + noise, alpha=0.0).fit(X, y)
    assert found.evidence == pytest.approx(exact.log_marginal_likelihood_value_, abs=1e-3)
    assert_allclose(matrix, exact.kernel_.k1.k2.matrix[:, 0], atol=1e-2)


@pytest.mark.slow
def test_its_evidence_and_what_is_left_out(rng):
    X, A = rng.normal(size=(40, 3)), np.array(MATRIX)
    y = np.sin(2.0 * X @ A[:, 0]) + 0.1 * rng.normal(size=40)
    kernel = 1.0 * LinearTransform(sk.RBF([1.0, 2.0], "fixed"), A) + sk.WhiteKernel(0.1)
    model = NGDSVGPRegressor(kernel, normalize_X=False, normalize_y=False, random_state=0).fit(X, y)
    exact = GaussianProcessRegressor(model.kernel_, alpha=0.0, optimizer=None).fit(X, y)
    theta = model.kernel_.theta + 0.1
    found, expected = (each.log_marginal_likelihood(theta, eval_gradient=True) for each in (model, exact))
    assert_allclose(found[0], expected[0], atol=1e-5)
    assert_allclose(found[1], expected[1], atol=1e-3)
    precision = np.linalg.inv(model.kernel_(X))
    assert_allclose(model.leave_one_out_.residual.ravel(), (precision @ y) / np.diag(precision), atol=1e-4)


@pytest.mark.slow
def test_steps_train_the_matrix(rng):
    X = rng.normal(size=(100, 3))
    y = np.sin(2.0 * X @ [0.6, -0.8, 0.0])
    kernel = 1.0 * LinearTransform(sk.RBF(1.0, "fixed"), [[1.0], [-0.3], [0.3]])
    model = NGDSVGPRegressor(kernel, solver="ngd", n_inducing=20, max_iter=300, random_state=0).fit(X, y)
    before, after = (np.ravel(each.k2.matrix) @ [0.6, -0.8, 0.0] for each in (kernel, model.kernel_))
    norms = [np.linalg.norm(each.k2.matrix) for each in (kernel, model.kernel_)]
    assert before / norms[0] < 0.9 < 0.99 < after / norms[1]
    assert_allclose(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X), rtol=1e-12)


class Slope(sk.DotProduct):
    """Stands for a kernel whose slope may have any sign."""


class JaxSlope(kernels.Kernel):
    slope: object
    signed = ("slope",)


def test_other_kernels_may_have_hyperparameters_of_any_sign():
    kernels.register(Slope, JaxSlope)
    assert is_signed(2.0 * Slope(), "k2__slope")
    assert not is_signed(2.0 * Slope(), "k1__constant_value")
    likelihood = likelihoods.Gaussian().value_and_bounds(1)[0].to_raw()
    at, low, high = (((JaxSlope(np.array(slope)),), likelihood) for slope in (-0.5, -0.5, 2.0))
    (notice,) = at_bounds(at, (low, high))
    assert "kernel__slope at its lower bound -0.5." in notice.details
