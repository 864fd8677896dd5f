"""A WhiteKernel in a given kernel is the Gaussian noise, as in scripts that were written for scikit-learn."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Product, WhiteKernel

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.kernels import Columns
from skgp_natgrad.kernels.white import joined, parted, place
from skgp_natgrad.likelihoods import Gaussian

EXACT = {"n_inducing": "all", "solver": "lbfgs", "batch_size": None, "tol": 1e-9, "normalize_X": False}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(3)
    X = rng.uniform(-3.0, 3.0, size=(60, 1))
    return X, np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=60)


@pytest.mark.slow
def test_the_noise_and_its_place_are_those_of_scikit_learn(table):
    kernel = 1.0 * RBF(1.0) + WhiteKernel(0.1)
    exact = GaussianProcessRegressor(kernel, alpha=0.0, normalize_y=True).fit(*table)
    model = NGDSVGPRegressor(kernel, **EXACT).fit(*table)
    assert_allclose(model.kernel_.theta, exact.kernel_.theta, atol=2e-3)
    assert repr(model.kernel_).split("(")[0] == repr(exact.kernel_).split("(")[0]
    assert model.kernel_.k2.noise_level == model.likelihood_.variance
    # The WhiteKernel of scikit-learn is in the deviation of y as well.
    X = np.linspace(-4.0, 4.0, 30)[:, None]
    for found, expected in zip(model.predict(X, return_std=True), exact.predict(X, return_std=True), strict=True):
        assert_allclose(found, expected, atol=2e-3)


@pytest.mark.parametrize("normalize_y", [True, False, "center"])
@pytest.mark.parametrize("arguments", [{}, {"solver": "ngd", "n_inducing": 10, "max_iter": 30}])
def test_it_is_the_gaussian_likelihood(normalize_y, arguments, table):
    X, y = table
    given = {"normalize_y": normalize_y, "random_state": 0, **arguments}
    # With "center" the default of the likelihood would be multiplied by the variance of y.
    noise = 0.11 if normalize_y == "center" else 0.1
    apart = NGDSVGPRegressor(1.0 * RBF(), likelihood=Gaussian(noise, (1e-5, 1e5)), **given)
    inside = NGDSVGPRegressor(1.0 * RBF() + WhiteKernel(noise), **given)
    with pytest.warns() if arguments else np.errstate():
        assert_array_equal(inside.fit(X, 5.0 * y).predict(X), apart.fit(X, 5.0 * y).predict(X))
    assert inside.likelihood_.variance == apart.likelihood_.variance
    assert_array_equal(inside.kernel_.theta[:-1], apart.kernel_.theta)


@pytest.mark.slow
def test_centred_targets_leave_the_value_in_their_units(table):
    X, y = table
    given = {"normalize_y": "center", "optimizer": None, "n_inducing": 10, "max_iter": 1}
    with pytest.warns(match="too few iterations"):
        model = NGDSVGPRegressor(RBF() + WhiteKernel(0.1), **given).fit(X, 20.0 * y)
    assert model.kernel_.k2.noise_level == model.likelihood_.variance == pytest.approx(0.1)


def test_bounds_and_fixed_values_hold(table):
    with pytest.warns(match="variance at its lower bound 0.5"):
        model = NGDSVGPRegressor(1.0 * RBF() + WhiteKernel(1.0, (0.5, 2.0)), random_state=0).fit(*table)
    assert model.kernel_.k2.noise_level == pytest.approx(0.5)
    assert model.kernel_.bounds.shape == (3, 2)
    fixed = NGDSVGPRegressor(WhiteKernel(0.5, "fixed") + RBF(), random_state=0).fit(*table)
    assert fixed.kernel_.k1.noise_level == 0.5
    assert fixed.likelihood_.variance == pytest.approx(0.5)


@pytest.mark.slow
def test_a_fit_of_the_fitted_kernel_gives_the_same_model(table):
    first = NGDSVGPRegressor(1.0 * RBF() + WhiteKernel(0.3), **EXACT).fit(*table)
    again = NGDSVGPRegressor(first.kernel_, **EXACT, optimizer=None).fit(*table)
    assert_allclose(again.predict(table[0], return_std=True), first.predict(table[0], return_std=True), atol=1e-6)
    assert_allclose(again.kernel_.theta, first.kernel_.theta, atol=1e-12)


@pytest.mark.slow
def test_saved_cloned_and_warm_started(table):
    X, y = table
    kernel = ConstantKernel(0.5) + WhiteKernel(0.2) + 1.0 * Columns(RBF(), ["a"])
    frame = pytest.importorskip("pandas").DataFrame({"b": y, "a": X[:, 0]})
    model = NGDSVGPRegressor(kernel, random_state=0).fit(frame, y)
    assert [type(each).__name__ for each in (model.kernel_.k1.k2, model.kernel_.k2.k2)] == ["WhiteKernel", "Columns"]
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict(frame), model.predict(frame))
    assert clone(model).set_params(kernel__k1__k2__noise_level=0.7).kernel.k1.k2.noise_level == 0.7
    warm = NGDSVGPRegressor(RBF() + WhiteKernel(0.2), warm_start=True, max_iter=60, n_inducing=8, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = warm.fit(X, y).likelihood_.variance
        warm.set_params(optimizer=None).fit(X, y)
        assert warm.likelihood_.variance == pytest.approx(found)
        # A value that has changed is where the fit starts.
        assert warm.set_params(kernel__k2__noise_level=0.9).fit(X, y).likelihood_.variance == pytest.approx(0.9)


def test_several_outputs_each_have_their_noise(table):
    X, y = table
    noisy = y + np.random.default_rng(0).normal(size=len(y))
    model = NGDSVGPRegressor(1.0 * RBF() + WhiteKernel(0.3), random_state=0).fit(X, np.c_[y, noisy])
    assert model.likelihood_.variance[1] > 2.0 * model.likelihood_.variance[0]
    assert model.kernel_.k2.noise_level == pytest.approx(model.likelihood_.variance.mean())


@pytest.mark.parametrize(
    ("kernel", "arguments", "message"),
    [
        (RBF() * WhiteKernel(), {}, "A WhiteKernel that is added to a single kernel is read as Gaussian noise"),
        ((RBF() + WhiteKernel()) ** 2.0, {}, "elsewhere .* leave it out"),
        ([RBF() + WhiteKernel()], {}, "a list"),
        (WhiteKernel(), {}, "noise alone"),
        (RBF() + WhiteKernel() + WhiteKernel(), {}, "has 2 WhiteKernels"),
        (RBF() + WhiteKernel(), {"likelihood": "student_t"}, "likelihood='student_t' has no Gaussian noise"),
        (RBF() + WhiteKernel(), {"likelihood": Gaussian(0.2)}, "states the noise as well"),
        (RBF() + WhiteKernel(1.0, (2.0, 3.0)), {}, "outside of variance_bounds"),
    ],
)
def test_elsewhere_it_is_refused(kernel, arguments, message, table):
    with pytest.raises(ValueError, match=message):
        NGDSVGPRegressor(kernel, **arguments).fit(*table)


def test_labels_have_no_noise(table):
    with pytest.raises(ValueError, match="no Gaussian noise"):
        NGDSVGPClassifier(RBF() + WhiteKernel()).fit(table[0], table[1] > 0.0)


def test_parts_come_back_to_their_places():
    given = (RBF(1.0) + WhiteKernel(1.0)) + (RBF(2.0) + ConstantKernel(3.0) * RBF(4.0))
    latent, noise = parted(given)
    assert noise.noise_level == 1.0
    assert latent == RBF(1.0) + (RBF(2.0) + ConstantKernel(3.0) * RBF(4.0))
    back = joined(given, latent, 0.5)
    assert [type(each) for each in (back.k1.k2, back.k2.k2)] == [WhiteKernel, Product]
    assert_array_equal(back.theta, np.log([1.0, 0.5, 2.0, 3.0, 4.0]))
    assert [place(each) for each in (given, back.k1, back.k1.k2, latent)] == [1, 1, 0, None]
    assert parted(latent) == (latent, None)
    assert parted(latent)[0] is latent
