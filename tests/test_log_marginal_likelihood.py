"""The log marginal likelihood in scikit-learn's coordinates: against its exact process, and finite differences."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import approx_fprime
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, ExpSineSquared, RationalQuadratic, WhiteKernel

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.kernels import Columns
from skgp_natgrad.likelihoods import Gaussian

# In an order that is not that of the JAX kernels' fields, with something fixed between.
KERNEL = ConstantKernel(0.5, "fixed") + WhiteKernel(0.1) + 1.0 * RationalQuadratic(2.0, 0.7) * RBF([1.0, 2.0])


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(4)
    X = rng.uniform(-3.0, 3.0, size=(40, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=40)


@pytest.fixture(scope="module")
def model(table):
    return NGDSVGPRegressor(KERNEL, normalize_X=False, random_state=0).fit(*table)


@pytest.mark.parametrize("shift", [0.0, 0.4, -1.0])
def test_value_and_gradient_are_those_of_the_exact_process(shift, table, model):
    exact = GaussianProcessRegressor(KERNEL, alpha=0.0, normalize_y=True, optimizer=None).fit(*table)
    theta = KERNEL.theta + shift * np.arange(6.0)
    value, gradient = model.log_marginal_likelihood(theta, eval_gradient=True)
    expected, slope = exact.log_marginal_likelihood(theta, eval_gradient=True)
    assert_allclose(value, expected, rtol=1e-10)
    assert_allclose(gradient, slope, rtol=1e-7, atol=1e-9)


def test_nothing_given_is_the_fit_itself(table, model):
    before = model.predict(table[0], return_std=True)
    assert model.log_marginal_likelihood() == pytest.approx(model.elbo_, abs=1e-5)
    assert model.log_marginal_likelihood() == pytest.approx(model.log_marginal_likelihood(model.kernel_.theta))
    assert model.log_marginal_likelihood(model.kernel_.theta + 5.0) < model.elbo_
    assert_array_equal(model.predict(table[0], return_std=True), before)
    saved = pickle.loads(pickle.dumps(model))
    assert saved.log_marginal_likelihood(KERNEL.theta) == model.log_marginal_likelihood(KERNEL.theta)


def test_periods_and_fixed_lengths_have_the_units_of_X(table):
    X, y = table[0] * [3.0, 0.2] + 5.0, table[1]
    kernel = 1.0 * Columns(ExpSineSquared(1.3, 2.0), [0]) + Columns(RBF(0.3, "fixed"), [1]) + WhiteKernel(0.2)
    model = NGDSVGPRegressor(kernel, n_restarts_optimizer=0, random_state=0).fit(X, y)
    exact = GaussianProcessRegressor(kernel, alpha=0.0, normalize_y=True, optimizer=None).fit(X, y)
    found = model.log_marginal_likelihood(kernel.theta, eval_gradient=True)
    expected = exact.log_marginal_likelihood(kernel.theta, eval_gradient=True)
    assert_allclose(found[0], expected[0], rtol=1e-9)
    assert_allclose(found[1], expected[1], rtol=1e-7, atol=1e-9)


def test_known_noise_missing_targets_and_several_outputs(table):
    X, y = table
    rng = np.random.default_rng(0)
    Y, alpha = np.c_[y, rng.normal(size=40)], rng.uniform(0.01, 0.5, size=(40, 2))
    Y[::3, 1] = np.nan
    kernel = 1.0 * RBF(1.0) + WhiteKernel(0.3)
    given = {"normalize_X": False, "normalize_y": False, "missing_targets": "ignore", "random_state": 0}
    model = NGDSVGPRegressor(kernel, **given).fit(X, Y, alpha=alpha)
    expected, slope = 0.0, np.zeros(3)
    for target, known in zip(Y.T, alpha.T, strict=True):
        seen = np.isfinite(target)
        exact = GaussianProcessRegressor(kernel, alpha=known[seen], optimizer=None).fit(X[seen], target[seen])
        each = exact.log_marginal_likelihood(kernel.theta, eval_gradient=True)
        expected, slope = expected + each[0], slope + each[1]
    value, gradient = model.log_marginal_likelihood(kernel.theta, eval_gradient=True)
    assert_allclose(value, expected, rtol=1e-9)
    assert_allclose(gradient, slope, rtol=1e-7)


def test_a_weight_of_two_counts_twice(table):
    X, y = table
    weight = np.random.default_rng(1).integers(1, 4, size=40)
    model = NGDSVGPRegressor(KERNEL, normalize_X=False, normalize_y=False, random_state=0)
    model.fit(X, y, sample_weight=weight)
    copies = np.repeat(np.arange(40), weight)
    exact = GaussianProcessRegressor(KERNEL, alpha=0.0, optimizer=None).fit(X[copies], y[copies])
    found = model.log_marginal_likelihood(KERNEL.theta, eval_gradient=True)
    expected = exact.log_marginal_likelihood(KERNEL.theta, eval_gradient=True)
    assert_allclose(found[0], expected[0], rtol=1e-9)
    assert_allclose(found[1], expected[1], rtol=1e-7)


@pytest.mark.parametrize("n_inducing", ["auto", 15])
def test_any_weights_have_the_gradient_of_the_value(n_inducing, table):
    weight = np.random.default_rng(2).uniform(0.2, 1.7, size=40)
    model = NGDSVGPRegressor(KERNEL, n_inducing=n_inducing, random_state=0).fit(*table, sample_weight=weight)
    assert model.log_marginal_likelihood() == pytest.approx(model.elbo_, abs=1e-5)
    _, gradient = model.log_marginal_likelihood(KERNEL.theta, eval_gradient=True)
    assert_allclose(gradient, approx_fprime(KERNEL.theta, model.log_marginal_likelihood, 1e-6), atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("elsewhere", [False, True], ids=["few points", "as many points as rows"])
def test_the_bound_on_few_points_is_below_the_evidence(elsewhere, table, model):
    points = {"inducing_init": table[0] + 0.4} if elsewhere else {"n_inducing": 12}
    few = NGDSVGPRegressor(KERNEL, normalize_X=False, random_state=0, **points).fit(*table)
    gap = model.log_marginal_likelihood(KERNEL.theta) - few.log_marginal_likelihood(KERNEL.theta)
    assert gap > (0.1 if elsewhere else 1.0)
    # The collapsed bound of Titsias (2009), by plain inverses.
    X, y = table[0], (table[1] - table[1].mean()) / table[1].std()
    latent = ConstantKernel(0.5) + KERNEL.k2
    Z, noise = few.inducing_points_, 0.1
    nystroem = latent(X, Z) @ np.linalg.solve(latent(Z) + 1e-10 * np.eye(len(Z)), latent(Z, X))
    covariance = nystroem + noise * np.eye(40)
    expected = -0.5 * (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(2.0 * np.pi * covariance)[1])
    expected -= 0.5 * (latent.diag(X) - np.diag(nystroem)).sum() / noise
    assert_allclose(few.log_marginal_likelihood(KERNEL.theta), expected, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["poisson", "bernoulli", "softmax"])
def test_counts_and_labels_have_the_bound_of_the_best_q(likelihood, table):
    X, y = table
    kernel, rng = 1.0 * RBF([1.0, 2.0]), np.random.default_rng(5)
    target = {"poisson": rng.poisson(np.exp(y)), "bernoulli": y > 0.0, "softmax": np.digitize(y, [-0.5, 0.5])}
    estimator = NGDSVGPRegressor if likelihood == "poisson" else NGDSVGPClassifier
    model = estimator(kernel, likelihood=likelihood, random_state=0).fit(X, target[likelihood])
    # Under "softmax" the latent functions of the fit share a covariance, which is not the best.
    assert 2.0 > model.log_marginal_likelihood() - model.elbo_ > -1e-6
    _, gradient = model.log_marginal_likelihood(kernel.theta, eval_gradient=True)
    # Newton's method ends within some 1e-6 nats, so that differences need a step that is not small. Of softmax
    # the slope is right to a percent.
    steps = 0.01 * np.eye(len(kernel.theta))
    rises = [
        np.subtract(*(model.log_marginal_likelihood(kernel.theta + by * step) for by in (1, -1))) for step in steps
    ]
    assert_allclose(gradient, np.array(rises) / 0.02, atol=0.03 if likelihood == "softmax" else 5e-3)
    # Natural gradient steps end at the same bound.
    stepped = estimator(
        kernel, likelihood=likelihood, solver="ngd", optimizer=None, n_inducing="all", normalize_X=True, max_iter=400
    ).fit(X, target[likelihood])
    assert_allclose(stepped.log_marginal_likelihood(kernel.theta), stepped.elbo_, rtol=1e-3)


@pytest.mark.slow
def test_it_says_what_it_needs(table):
    X, y = table
    with pytest.raises(NotFittedError):
        NGDSVGPRegressor(KERNEL).log_marginal_likelihood()
    model = NGDSVGPRegressor(1.0 * RBF(), random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="Gradient can only be evaluated for theta!=None"):
        model.log_marginal_likelihood(eval_gradient=True)
    with pytest.raises(ValueError, match=r"must be 2 finite logarithms.*: of k1__constant_value, k2__length_scale"):
        model.log_marginal_likelihood([0.0])
    few = {"solver": "ngd", "n_inducing": 5, "max_iter": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        heavy = NGDSVGPRegressor(RBF(), likelihood="student_t", **few).fit(X, y)
        each = NGDSVGPRegressor([RBF(), RBF()], **few).fit(X, np.c_[y, y])
        stream = NGDSVGPRegressor(RBF(), **few).partial_fit(X, y).partial_fit(X, y)
    with pytest.raises(ValueError, match="likelihood StudentT has no direct solution; elbo_"):
        heavy.log_marginal_likelihood()
    with pytest.raises(ValueError, match="kernel_ is a list"):
        each.log_marginal_likelihood()
    with pytest.raises(ValueError, match=r"holds no rows.*at most 5000"):
        stream.log_marginal_likelihood()


def test_values_beyond_the_bounds_are_evaluated(table):
    kernel = 1.0 * RBF(1.0, (0.9, 1.1)) + WhiteKernel(0.1, (0.05, 0.2))
    with pytest.warns(match="bound"):
        model = NGDSVGPRegressor(kernel, normalize_X=False, random_state=0).fit(*table)
    exact = GaussianProcessRegressor(kernel, alpha=0.0, normalize_y=True, optimizer=None).fit(*table)
    theta = np.log([2.0, 3.0, 0.7])
    assert_allclose(model.log_marginal_likelihood(theta), exact.log_marginal_likelihood(theta), rtol=1e-10)


def test_noise_outside_of_the_kernel_stays(table):
    model = NGDSVGPRegressor(1.0 * RBF(), likelihood=Gaussian(0.2, "fixed"), normalize_X=False).fit(*table)
    exact = GaussianProcessRegressor(1.0 * RBF(), alpha=0.2, normalize_y=True, optimizer=None).fit(*table)
    theta = np.log([2.0, 3.0])
    assert_allclose(model.log_marginal_likelihood(theta), exact.log_marginal_likelihood(theta), rtol=1e-10)
