"""``optimizer=None`` keeps the hyperparameters and the noise that are given, on the way that would have been chosen."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, ExpSineSquared, Matern, WhiteKernel
from sklearn.model_selection import GridSearchCV

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, kernels
from skgp_natgrad.likelihoods import Gaussian

RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(120, 2)), RNG.normal(size=(40, 2))
Y = np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2 + 0.3 * (0.3 + np.abs(X[:, 0])) * RNG.normal(size=120)
TWO = np.column_stack([Y, np.cos(X[:, 0]) + 0.5 * RNG.normal(size=120)])
COUNTS = RNG.poisson(np.exp(1.0 + np.sin(X[:, 0])))
LABELS = (X[:, 0] + 0.5 * RNG.normal(size=120) > 0.0).astype(int)
THREE = LABELS + (X[:, 1] > 0.5)
WEIGHT = RNG.integers(1, 4, size=120).astype(float)
KERNEL = ConstantKernel(2.0) * Matern([1.0, 2.0], nu=2.5)
LEVELS = np.linspace(0.05, 0.95, 7)


def predicted(model):
    if hasattr(model, "classes_"):
        return model.predict_proba(NEW)
    moments = model.predict(NEW, return_std=True)
    return np.concatenate([np.ravel(each) for each in (*moments, model.predict_quantiles(NEW, LEVELS))])


def again(model, y, X=X, **fit):
    """The model of the same arguments that keeps the hyperparameters which `model` found, copied as searches copy."""
    found = clone(model).set_params(kernel=model.kernel_, likelihood=model.likelihood_, optimizer=None)
    return clone(found).fit(X, y, **fit)


def assert_same(found, model):
    """To 1e-8 of a deviation of what is predicted."""
    one, other = predicted(found), predicted(model)
    assert_allclose(one, other, rtol=0.0, atol=1e-8 * max(1.0, np.std(other)))


def assert_kept(found, model):
    assert_same(found, model)
    assert found.kernel_ == model.kernel_
    assert_array_equal(found.kernel_.theta, model.kernel_.theta)
    for name in model.likelihood_.parameters:
        assert_array_equal(getattr(found.likelihood_, name), getattr(model.likelihood_, name))
    assert found.plan_ == model.plan_.replace("hyperparameters from some rows", "hyperparameters as given").replace(
        "hyperparameters at the largest bound of some rows", "hyperparameters as given"
    )


CASES = {
    "kernel": (NGDSVGPRegressor(KERNEL), Y, {}),
    "kernel with noise": (NGDSVGPRegressor(KERNEL + WhiteKernel(0.1)), Y, {}),
    "period": (NGDSVGPRegressor(1.0 * RBF() + kernels.Columns(ExpSineSquared(1.0, 2.0), 0)), Y, {}),
    "directions": (NGDSVGPRegressor(1.0 * kernels.LinearTransform(RBF(), [[1.0], [0.5]])), Y, {}),
    "weights": (NGDSVGPRegressor(KERNEL), Y, {"sample_weight": WEIGHT}),
    "known noise": (NGDSVGPRegressor(KERNEL), Y, {"alpha": 0.01 * WEIGHT}),
    "normal scores": (NGDSVGPRegressor(KERNEL, normalize_X="quantile"), Y, {}),
    "one unit": (NGDSVGPRegressor(KERNEL, normalize_X="common"), Y, {}),
    "centred": (NGDSVGPRegressor(KERNEL, normalize_y="center"), 50.0 * Y, {}),
    "not calibrated": (NGDSVGPRegressor(KERNEL, calibrate=False), Y, {}),
    "mean function": (NGDSVGPRegressor(KERNEL, mean_function="linear"), Y, {}),
    "two targets": (NGDSVGPRegressor(KERNEL), TWO, {}),
    "a kernel for each": (NGDSVGPRegressor([KERNEL, KERNEL]), TWO, {}),
    "neighbours": (NGDSVGPRegressor(KERNEL, n_neighbors=20), Y, {}),
    "points": (NGDSVGPRegressor(KERNEL, n_inducing=20, random_state=0), Y, {}),
    "counts": (NGDSVGPRegressor(KERNEL, likelihood="poisson", random_state=0), COUNTS, {}),
    "labels": (NGDSVGPClassifier(KERNEL), LABELS, {}),
    "three classes": (NGDSVGPClassifier(KERNEL), THREE, {}),
}


SLOW = ("labels", "three classes", "period", "counts", "a kernel for each", "known noise")


@pytest.mark.parametrize("name", [pytest.param(each, marks=[pytest.mark.slow] * (each in SLOW)) for each in CASES])
def test_the_same_data_give_the_same_predictions(name):
    model, y, fit = CASES[name]
    model = clone(model).fit(X, y, **fit)
    found = again(model, y, **fit)
    if isinstance(model.kernel_, list):
        assert_same(found, model)
    else:
        assert_kept(found, model)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["measurements", "two targets", "long tails", "labels", "counts", "pixels"])
def test_what_a_default_fit_found_is_kept_by_kernel_and_likelihood_alone(name):
    y = {"two targets": TWO, "labels": LABELS, "counts": COUNTS}.get(name, Y)
    table = {"long tails": np.sinh(4.0 * X), "pixels": RNG.normal(size=(120, 50)) + X[:, :1]}.get(name, X)
    likelihood = {"likelihood": "poisson"} if name == "counts" else {}
    cls = NGDSVGPClassifier if name == "labels" else NGDSVGPRegressor
    model = cls(random_state=0, **likelihood).fit(table, y)
    found = cls(kernel=model.kernel_, likelihood=model.likelihood_, optimizer=None, random_state=0).fit(table, y)
    query = table[::3] + 0.01
    of_labels = (found.predict_proba(query), model.predict_proba(query)) if name == "labels" else None
    of_numbers = of_labels or (found.predict(query, return_std=True), model.predict(query, return_std=True))
    assert_allclose(*map(np.array, of_numbers), rtol=0.0, atol=1e-8)
    if name == "long tails":
        assert model.kernel_.how == "quantile"
        assert "normal scores" in found.plan_


@pytest.mark.parametrize("n_rows", [2, 7, 15])
@pytest.mark.parametrize("y", [Y, TWO], ids=["one", "two"])
def test_the_average_over_hyperparameters_of_few_rows_is_kept(n_rows, y):
    model = NGDSVGPRegressor().fit(X[:n_rows], y[:n_rows])
    assert np.all(model.likelihood_.inflation > 0.0)
    assert model.likelihood_.df >= 3.0
    found = again(model, y[:n_rows], X[:n_rows])
    assert_kept(found, model)
    # A user who gives the noise alone keeps one point of the average, and no allowance for the others.
    likelihood = Gaussian(model.likelihood_.variance)
    alone = NGDSVGPRegressor(model.kernel_, likelihood=likelihood, optimizer=None).fit(X[:n_rows], y[:n_rows])
    assert_allclose(alone.predict(NEW), model.predict(NEW), rtol=0.0, atol=1e-8)


def test_it_is_the_exact_process_of_scikit_learn():
    exact = GaussianProcessRegressor(KERNEL, alpha=0.07, optimizer=None).fit(X, Y - Y.mean())
    options = {"optimizer": None, "normalize_X": False, "normalize_y": "center", "calibrate": False, "jitter": 1e-12}
    for solver in ("auto", "evidence"):
        found = NGDSVGPRegressor(KERNEL, likelihood=Gaussian(0.07), solver=solver, **options).fit(X, Y)
        assert found.n_iter_ == 1
        mean, std = exact.predict(NEW, return_std=True)
        assert_allclose(found.predict(NEW), mean + Y.mean(), atol=1e-6)
        assert_allclose(found.predict(NEW, return_std=True)[1], np.hypot(std, np.sqrt(0.07)), atol=1e-6)


def test_nothing_is_searched_for(monkeypatch):
    def refused(*_, **__):
        raise AssertionError("a search")

    places = "start.choice.Starts.search", "start.by_bound._Problem.maximised", "choose.search.best_kernels"
    for place in places:
        monkeypatch.setattr(f"skgp_natgrad.{place}", refused)
    monkeypatch.setattr("skgp_natgrad.solve.noise_search.lowest", refused)
    monkeypatch.setattr("skgp_natgrad.solve.class_labels.best_scale", refused)
    for solver in ("auto", "evidence"):
        options = {"optimizer": None, "solver": solver}
        NGDSVGPRegressor(KERNEL, calibrate=False, **options).fit(X, TWO)
        NGDSVGPRegressor(KERNEL, likelihood="poisson", **options).fit(X, COUNTS)
        NGDSVGPClassifier(KERNEL, **options).fit(X, LABELS)


def test_all_that_is_fixed_is_kept_too():
    """Fixed lengthscales are in the units of X, here those of the model, and a fixed noise is known."""
    table = (X - X.mean(0)) / X.std(0)
    fixed = ConstantKernel(2.0, "fixed") * Matern([1.0, 2.0], "fixed", nu=2.5)
    likelihood = Gaussian(0.1, "fixed")
    model = NGDSVGPRegressor(fixed, likelihood=likelihood).fit(table, Y)
    found = NGDSVGPRegressor(model.kernel_, likelihood=model.likelihood_, optimizer=None).fit(table, Y)
    assert_kept(found, model)
    free = NGDSVGPRegressor(KERNEL, likelihood=Gaussian(0.1), calibrate=False, optimizer=None).fit(table, Y)
    assert_allclose(predicted(free), predicted(model), rtol=0.0, atol=1e-8)


def test_searches_and_saved_models_keep_them():
    model = pickle.loads(pickle.dumps(NGDSVGPRegressor(KERNEL, random_state=0).fit(X, Y)))
    grid = {"kernel": [model.kernel_, KERNEL]}
    search = GridSearchCV(NGDSVGPRegressor(likelihood=model.likelihood_, optimizer=None), grid, cv=3).fit(X, Y)
    assert search.best_index_ == 0
    assert_kept(search.best_estimator_, model)


@pytest.mark.slow
def test_steps_are_taken_by_solvers_of_steps():
    options = {"optimizer": None, "max_iter": 30, "n_inducing": 20, "random_state": 0}
    found = NGDSVGPRegressor(KERNEL, solver="ngd", **options).fit(X, Y)
    assert "iterations of solver 'ngd'" in found.plan_
    assert_array_equal(found.kernel_.theta, KERNEL.theta)


def test_a_default_kernel_has_nothing_to_keep():
    with pytest.warns(UserWarning, match=r"optimizer=None \(kernel=None is chosen from the data"):
        NGDSVGPRegressor(optimizer=None).fit(X[:15], Y[:15])


def test_a_kernel_says_for_which_scaling_it_is():
    kernel = kernels.Normalized(KERNEL, "quantile")
    found = NGDSVGPRegressor(kernel, optimizer=None).fit(X, Y)
    plain = NGDSVGPRegressor(KERNEL, optimizer=None, normalize_X="quantile").fit(X, Y)
    assert_array_equal(predicted(found), predicted(plain))
    assert found.kernel_ == kernel
    assert found.kernel_ != kernels.Normalized(KERNEL, "common")
    value, slope = found.log_marginal_likelihood(found.kernel_.theta, eval_gradient=True)
    assert_allclose(value, plain.log_marginal_likelihood(KERNEL.theta))
    assert len(slope) == len(KERNEL.theta)
    with pytest.raises(ValueError, match=r"normalize_X=True, but kernel=.* is for normalize_X='quantile'"):
        NGDSVGPRegressor(kernel, normalize_X=True).fit(X, Y)
    with pytest.raises(ValueError, match="how, of kernel"):
        NGDSVGPRegressor(kernels.Normalized(KERNEL, "other")).fit(X, Y)


def test_a_tag_of_the_scaling_is_a_kernel_of_scikit_learn():
    kernel = kernels.Normalized(KERNEL, "quantile")
    K, slope = kernel(X, eval_gradient=True)
    assert_array_equal(K, KERNEL(X))
    assert slope.shape == (120, 120, len(kernel.theta))
    assert_array_equal(kernel.diag(X), KERNEL.diag(X))
    moved = kernel.clone_with_theta(kernel.theta + 1.0)
    assert_allclose(moved.theta, KERNEL.theta + 1.0)
    assert next(each.name for each in kernel.hyperparameters) == "kernel__k1__constant_value"
    assert kernel.is_stationary()
    assert repr(kernel).endswith(", 'quantile')")
    both = NGDSVGPRegressor(kernels.Normalized(KERNEL + WhiteKernel(0.2), "common"), optimizer=None).fit(X, Y)
    assert_allclose(both.likelihood_.variance, 0.2)
    assert repr(both.kernel_).endswith("WhiteKernel(noise_level=0.2), 'common')")


@pytest.mark.slow
def test_a_frame_of_categories_is_encoded_anew():
    pandas = pytest.importorskip("pandas")
    groups = pandas.Categorical(RNG.integers(0, 4, 120).astype(str))
    table = pandas.DataFrame({"a": X[:, 0], "g": groups})
    model = NGDSVGPRegressor(random_state=0).fit(table, Y)
    found = again(model, Y, table)
    query = table.iloc[::4]
    one, other = (np.array(each.predict(query, return_std=True)) for each in (found, model))
    assert_allclose(one, other, rtol=0.0, atol=1e-8)


def test_an_effect_of_the_place_is_kept():
    place = np.repeat(np.arange(30), 4)
    y = np.sin(2.0 * X[place, 0]) + 0.6 * RNG.normal(size=120)[place] + 0.2 * RNG.normal(size=120)
    model = NGDSVGPRegressor(1.0 * RBF(), random_state=0).fit(X[place], y)
    assert "Nugget" in repr(model.kernel_)
    assert_kept(again(model, y, X[place]), model)
