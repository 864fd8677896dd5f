"""Fitted estimators saved and loaded: what they hold, by which version, and under other settings of JAX."""

import copy
import importlib
import inspect
import io
import os
import pickle
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator, clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, Matern
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skgp_natgrad
from skgp_natgrad import LogLinear, NGDSVGPClassifier, NGDSVGPRegressor, likelihoods, objectives, trusted_types
from skgp_natgrad.estimators.fitted import persistence
from skgp_natgrad.likelihoods import Ordinal, RobustMax, StudentT

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RNG = np.random.default_rng(8)
X = RNG.normal(size=(60, 3))
Y = X[:, 0] + np.sin(X[:, 1])
OPTIONS = {"n_inducing": 6, "max_iter": 20, "random_state": 0}
MODELS = {
    "regressor": (NGDSVGPRegressor(**OPTIONS), Y),
    "nothing set": (NGDSVGPRegressor(random_state=0), Y),
    "classifier": (NGDSVGPClassifier(likelihood=RobustMax(), **OPTIONS), np.array(["a", "b", "c"])[np.arange(60) % 3]),
    "many parts": (
        NGDSVGPRegressor(
            [ConstantKernel() * RBF() + Matern(nu=1.5), RBF()],
            likelihood=StudentT(),
            gamma_schedule=LogLinear(),
            n_mean_inducing=4,
            batch_size=32,
            warm_start=True,
            **OPTIONS,
        ),
        np.column_stack([Y, X[:, 2]]),
    ),
    "ordinal": (
        NGDSVGPRegressor(RBF() ** 2, likelihood=Ordinal(bins="learned"), **OPTIONS),
        np.arange(60) % 4,
    ),
    "exact": (NGDSVGPRegressor(RBF(), n_mean_inducing=4, mean_solver="exact", **OPTIONS), Y),
    "lbfgs": (NGDSVGPRegressor(RBF(), solver="lbfgs", **OPTIONS), Y),
    "pipeline": (make_pipeline(StandardScaler(), NGDSVGPClassifier(**OPTIONS)), Y > 0),
}


def saved_by_joblib(model):
    file = io.BytesIO()
    joblib.dump(model, file)
    return file.getvalue()


CASES = [pytest.param(name, marks=() if i < 2 else pytest.mark.slow) for i, name in enumerate(MODELS)]


@pytest.fixture(scope="module", params=CASES)
def fitted(request):
    model, y = MODELS[request.param]
    return clone(model).fit(X, y)


@pytest.fixture(scope="module")
def regressor():
    return clone(MODELS["regressor"][0]).fit(X, Y)


def predictions(model):
    found = [model.predict(X)]
    if hasattr(model, "predict_proba"):
        found.append(model.predict_proba(X))
    if isinstance(model, NGDSVGPRegressor):
        found += [*model.predict(X, return_std=True), model.sample_y(X[:5], 3)]
    return found


def assert_same(one, other):
    for a, b in zip(predictions(one), predictions(other), strict=True):
        assert a.dtype == b.dtype
        assert_array_equal(a, b)


# -- what they hold -----------------------------------------------------------------------

PLAIN = (np.ndarray, np.generic, str, int, float, bool, type(None))


def check_plain(value, place):
    """NumPy arrays, numbers and strings, in containers, and in objects of this package and scikit-learn."""
    if isinstance(value, PLAIN):
        return
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    else:
        ours = type(value).__module__.startswith("skgp_natgrad.")
        assert ours or isinstance(value, (BaseEstimator, Kernel)), f"{place} is {type(value)}"
        items = vars(value).items()
    for name, item in items:
        check_plain(item, f"{place}.{name}")


@pytest.mark.slow
def test_fitted_attributes_are_plain(fitted):
    predictions(fitted)
    check_plain(fitted, type(fitted).__name__)


@pytest.mark.slow
def test_what_a_callback_sees_is_plain():
    seen = []
    model = clone(MODELS["regressor"][0]).set_params(kernel=RBF(), callback=lambda n_iter, model: seen.append(model))
    model.fit(X, Y)
    check_plain({name: value for name, value in vars(seen[0]).items() if name != "callback"}, "model")
    assert_same(pickle.loads(pickle.dumps(model.set_params(callback=None))), seen[0])


@pytest.mark.parametrize("save", [pickle.dumps, saved_by_joblib], ids=["pickle", "joblib"])
def test_a_callback_is_not_saved_with_a_fitted_model_and_stays_in_copies(save):
    """A lambda cannot be pickled, and a function of the main program is not there in another one."""
    model = NGDSVGPRegressor(RBF(), callback=lambda n_iter, model: False, **OPTIONS).fit(X, Y)
    loaded = pickle.loads(save(model)) if save is pickle.dumps else joblib.load(io.BytesIO(save(model)))
    assert loaded.callback is None
    assert_array_equal(loaded.predict(X), model.predict(X))
    for each in (copy.copy(model), copy.deepcopy(model), clone(model)):
        assert each.callback is model.callback
    assert_same(copy.deepcopy(model), model)
    # Sent to another process to be fitted there, an estimator has its callback.
    assert pickle.loads(pickle.dumps(NGDSVGPRegressor(callback=print))).callback is print


@pytest.mark.slow
def test_the_check_can_fail(regressor):
    import jax.numpy as jnp

    for value in (jnp.ones(2), lambda: None):
        wrong = copy.copy(regressor)
        wrong.elbo_ = [{"x": value}]
        with pytest.raises(AssertionError, match=r"elbo_\.0\.x"):
            check_plain(wrong, "model")


# -- size ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_default_model_saves_one_triangle():
    """The one matrix of the size of all covariances; the others follow from the rows."""
    model = clone(MODELS["nothing set"][0]).fit(X, Y)
    n_points = len(model._posterior.Z)
    sizes = sorted((len(each) for each in _arrays(model.__getstate__())), reverse=True)
    assert sizes[0] == n_points * (n_points + 1) // 2
    assert sizes[1] <= n_points * X.shape[1]
    loaded = pickle.loads(pickle.dumps(model))
    assert_same(loaded, model)
    for each in (model, loaded):
        each.set_params(max_iter=20).partial_fit(X[:5] + 0.1, Y[:5])
    assert_same(loaded, model)


def _arrays(value):
    if isinstance(value, np.ndarray):
        return [value.ravel()]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else []
    return [array for each in items for array in _arrays(each)]


def test_triangles_are_exact():
    A = RNG.normal(size=(2, 5, 5))
    for each in (A, np.tril(A), A + A.swapaxes(1, 2), np.triu(A)):
        saved = persistence._packed(each)
        assert isinstance(saved, persistence.Triangle) == (each is not A and bool(np.any(np.tril(each, -1))))
        assert_array_equal(persistence._unpacked(saved), each)


# -- versions -----------------------------------------------------------------------------

OTHERS = pytest.mark.parametrize("number", [persistence.FORMAT - 1, persistence.FORMAT + 1])


@OTHERS
def test_a_pickle_of_another_format_is_refused(regressor, number, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(persistence, "FORMAT", number)
        patch.setattr(persistence, "__version__", "7.3.1")
        other = pickle.dumps(regressor)
    message = rf"NGDSVGPRegressor was saved by skgp_natgrad 7\.3\.1 in format {number}.*install skgp_natgrad==7\.3\.1"
    with pytest.raises(ValueError, match=message):
        pickle.loads(other)


def test_a_pickle_of_another_release_loads(regressor, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(persistence, "__version__", "7.3.1")
        older = pickle.dumps(regressor)
    assert_same(pickle.loads(older), regressor)


class Recorder(pickle.Unpickler):
    """Keeps the names of the classes and functions that a pickle holds."""

    def __init__(self, content):
        super().__init__(io.BytesIO(content))
        self.names = []

    def find_class(self, module, name):
        self.names.append(f"{module}.{name}")
        return super().find_class(module, name)


def test_a_pickle_holds_classes_that_are_trusted(fitted):
    recorder = Recorder(pickle.dumps(fitted))
    recorder.load()
    ours = {name for name in recorder.names if name.startswith("skgp_natgrad")}
    assert ours
    assert ours <= set(trusted_types())


def test_the_stamp_stays_outside_of_the_estimator(regressor):
    stamp = regressor.__getstate__()["_saved_by"]
    assert stamp == {"format": persistence.FORMAT, "skgp_natgrad": skgp_natgrad.__version__}
    for twin in (copy.deepcopy(regressor), copy.copy(regressor), pickle.loads(pickle.dumps(regressor))):
        assert vars(twin).keys() == vars(regressor).keys()
        assert_same(twin, regressor)
    assert clone(regressor).get_params().keys() == regressor.get_params().keys()
    unstamped = NGDSVGPRegressor.__new__(NGDSVGPRegressor)
    unstamped.__setstate__(vars(regressor))
    assert_same(unstamped, regressor)


# -- other settings of JAX ----------------------------------------------------------------

LOAD = """
import pickle, sys
import numpy as np
import jax
with open(sys.argv[1], "rb") as file:
    model, X = pickle.load(file)
y = model.predict_proba(X) if hasattr(model, "predict_proba") else np.stack(model.predict(X, return_std=True))
np.savez(sys.argv[2], y=y, x64=jax.config.jax_enable_x64, platform=jax.default_backend())
"""


@pytest.mark.slow
@pytest.mark.parametrize("x64", ["0", "1"])
@pytest.mark.parametrize("name", ["regressor", "classifier"])
def test_a_pickle_predicts_the_same_under_another_x64_flag(name, x64, tmp_path):
    model, y = MODELS[name]
    model = clone(model).fit(X, y)
    (tmp_path / "model").write_bytes(pickle.dumps((model, X)))
    folder = Path(skgp_natgrad.__file__).parents[1]
    environment = {**os.environ, "JAX_ENABLE_X64": x64, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(folder)}
    subprocess.run(
        [sys.executable, "-c", LOAD, tmp_path / "model", tmp_path / "y.npz"], check=True, env=environment, cwd=tmp_path
    )
    with np.load(tmp_path / "y.npz") as found:
        assert bool(found["x64"]) == (x64 == "1")
        assert str(found["platform"]) == "cpu"
        here = model.predict_proba(X) if name == "classifier" else np.stack(model.predict(X, return_std=True))
        assert_array_equal(found["y"], here)


# -- skops --------------------------------------------------------------------------------


def load_by_skops(model):
    skops_io = pytest.importorskip("skops.io", reason="skops is not installed: it comes with the test extra")
    content = skops_io.dumps(model)
    unknown = skops_io.get_untrusted_types(data=content)
    classes = [name for name in unknown if name.startswith(("skgp_natgrad.", "sklearn.gaussian_process.kernels."))]
    assert unknown == classes
    assert set(unknown) <= set(trusted_types())
    return skops_io, content, unknown


def test_skops_needs_to_trust_classes_of_the_package_alone(fitted):
    skops_io, content, unknown = load_by_skops(fitted)
    for name in unknown:
        module, _, attribute = name.rpartition(".")
        assert isinstance(getattr(sys.modules[module], attribute), type), f"{name} is no class"
    loaded = skops_io.loads(content, trusted=trusted_types())
    assert_same(loaded, fitted)
    assert str(loaded.get_params()) == str(fitted.get_params())


def test_trusted_types_are_classes_that_can_be_used_as_they_are():
    names = trusted_types()
    # Kernels of a model with nothing set.
    assert {"skgp_natgrad.kernels.Laplacian", "sklearn.gaussian_process.kernels.Matern"} <= set(names)
    assert names == sorted(set(names))
    for name in names:
        module, _, attribute = name.rpartition(".")
        assert module.startswith("skgp_natgrad") or module in ("sklearn.gaussian_process.kernels", "numpy")
        found = getattr(importlib.import_module(module), attribute)
        assert isinstance(found, type), name
        assert not inspect.isabstract(found), name
        assert not attribute.startswith("_"), name
    every = {each for task in ("regression", "classification") for each in likelihoods.names(task)}
    known = [*map(likelihoods.by_name, every), *map(objectives.by_name, objectives.names())]
    places = {f"{type(each).__module__}.{type(each).__name__}" for each in known}
    # Other tests define likelihoods and objectives of their own, which nobody but their author trusts.
    assert {place for place in places if place.startswith("skgp_natgrad.")} <= set(names)
    assert not {"skgp_natgrad.likelihoods.Likelihood", "skgp_natgrad.Schedule"} & set(names)


@pytest.mark.slow
def test_a_warm_start_goes_on_from_a_file_of_skops():
    model, y = MODELS["many parts"]
    model = clone(model).fit(X, y)
    skops_io, content, unknown = load_by_skops(model)
    assert_same(skops_io.loads(content, trusted=unknown).fit(X, y), model.fit(X, y))


@OTHERS
def test_skops_refuses_another_format(regressor, number, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(persistence, "FORMAT", number)
        skops_io, content, unknown = load_by_skops(regressor)
    with pytest.raises(ValueError, match=f"in format {number}"):
        skops_io.loads(content, trusted=unknown)
