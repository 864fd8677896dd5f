"""Exported models: the module that predicts from them imports neither JAX nor scikit-learn, and gives the same."""

import functools
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    RationalQuadratic,
)
from sklearn.linear_model import LinearRegression

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, kernels
from skgp_natgrad.likelihoods import Bernoulli
from skgp_natgrad.prediction import dispersion
from skgp_natgrad.tools import skgp_predictor, skgp_processes
from skgp_natgrad.tools.export import _plain

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RNG = np.random.default_rng(3)
X = RNG.normal(size=(120, 3))
Y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * RNG.normal(size=120)
TWO_VALUED = Y + np.random.default_rng(0).choice([-0.5, 1.0], p=[0.7, 0.3], size=120)
NEW = 1.5 * RNG.normal(size=(40, 3))
LABELS = np.array(["c", "a", "b"], dtype=object)[(X[:, 0] > 0.5).astype(int) + (X[:, 1] > 0.0)]
KERNELS = [
    RBF([1.0, 2.0, 3.0]),
    Matern(0.7, nu=0.5),
    Matern([0.7, 1.0, 2.0], nu=1.5),
    Matern(2.0, nu=2.5),
    Matern(1.3, nu=np.inf),
    RationalQuadratic(0.8, 1.7),
    ExpSineSquared(1.1, 2.3),
    DotProduct(0.6),
    kernels.Laplacian([1.0, 2.0, 0.5]),
    2.0 * RBF(1.2) + ConstantKernel(0.3) * Matern(nu=1.5) ** 2,
    kernels.Columns(RBF([1.0, 2.0]), [-1, 0]) * kernels.Columns(Matern(nu=0.5), 1),
    kernels.LinearTransform(RBF([1.0, 2.0]), [[1.0, 0.0], [-0.5, 2.0], [0.3, 1.0]]),
    kernels.LinearTransform(kernels.Columns(RBF(0.7), [1]), [[1.0, 0.0], [-0.5, 2.0], [0.3, 1.0]]) + DotProduct(),
    RBF(1.2) + 0.5 * kernels.Nugget(),
]
GIVEN = {"max_iter": 20, "random_state": 0}
# Each with a model and targets.
FITS = {
    "plain": (NGDSVGPRegressor(RBF(), n_inducing=9, **GIVEN), Y),
    "two kernels, two outputs": (
        NGDSVGPRegressor([RBF(), Matern(nu=0.5) + DotProduct()], n_inducing=9, **GIVEN),
        np.column_stack([Y, X[:, 2]]),
    ),
    "softmax": (NGDSVGPClassifier(RBF(), n_inducing=9, likelihood="softmax", **GIVEN), LABELS),
    "default": (NGDSVGPRegressor(random_state=0), Y + 0.4 * X[:, 2] * RNG.standard_t(3, size=120)),
    "normal scores": (NGDSVGPRegressor(RBF(), normalize_X="quantile", random_state=0), Y),
    "Student-t": (NGDSVGPRegressor(RBF(), likelihood="student_t", n_inducing=9, **GIVEN), Y),
    "steps, mean-only points": (
        NGDSVGPRegressor(RBF(), solver="ngd", n_inducing=9, n_mean_inducing=9, **GIVEN),
        Y,
    ),
    "decoupled": (NGDSVGPRegressor(RBF(), basis="decoupled", solver="adam", n_inducing=9, **GIVEN), Y),
    "probit": (NGDSVGPClassifier(RBF(), n_inducing=9, **GIVEN), X[:, 0] + Y > 0.0),
    "logit": (NGDSVGPClassifier(RBF(), likelihood=Bernoulli("logit"), n_inducing=9, **GIVEN), Y > 0.0),
    "skew noise": (NGDSVGPRegressor(RBF(), random_state=0), TWO_VALUED),
    "default classes": (NGDSVGPClassifier(random_state=0), LABELS),
    "neighbours": (NGDSVGPRegressor(RBF(), n_neighbors=30, n_inducing=9, random_state=0), Y),
    "neighbours of two outputs": (
        NGDSVGPRegressor(
            [RBF(), Matern(nu=0.5) + DotProduct()],
            n_neighbors=150,
            n_inducing=9,
            missing_targets="ignore",
            random_state=0,
        ),
        np.column_stack([Y, np.where(X[:, 2] > 0.5, np.nan, X[:, 2])]),
    ),
}
FAST = ("plain", "neighbours", "normal scores")


@functools.cache
def fitted(name):
    model, y = FITS[name]
    return model.fit(X, y)


# What a service runs.
SERVICE = """
import sys
import numpy as np
sys.path.insert(0, {folder!r})
from skgp_predictor import load
model = load({folder!r} + "/model.npz")
X = np.load({folder!r} + "/X.npy")
classifies = hasattr(model, "predict_proba")
found = [model.predict(X), model.predict_proba(X)] if classifies else [*model.predict(X, return_std=True)]
assert not {{"jax", "sklearn", "skgp_natgrad"}} & set(sys.modules)
np.savez({folder!r} + "/found.npz", *found)
"""


def by_few_rows(predict):
    """Predictions of a few rows at a time: those of many have larger rounding errors in short distances."""
    return np.concatenate([predict(NEW[start : start + 8]) for start in range(0, len(NEW), 8)])


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_kernels_are_those_of_scikit_learn(kernel):
    covariance, variance = (
        skgp_processes._covariance(_plain(kernel, 3), NEW),
        skgp_processes._variance(_plain(kernel, 3)),
    )
    assert_allclose(covariance(X), kernel(X, NEW), rtol=1e-12, atol=1e-12)
    assert_allclose(np.broadcast_to(variance(NEW), len(NEW)), kernel.diag(NEW), rtol=1e-12)


@pytest.mark.parametrize("name", [pytest.param(each, marks=() if each in FAST else pytest.mark.slow) for each in FITS])
def test_a_service_without_jax_predicts_the_same(name, tmp_path):
    model = fitted(name)
    assert name != "skew noise" or np.any(model._dispersion.errors.centres != 0.0)
    model.export(tmp_path / "model.npz")
    np.save(tmp_path / "X.npy", NEW)
    subprocess.run([sys.executable, "-I", "-c", SERVICE.format(folder=str(tmp_path))], check=True)
    with np.load(tmp_path / "found.npz") as file:
        first, second = (file[each] for each in file.files)
    if hasattr(model, "predict_proba"):
        assert_array_equal(first, model.predict(NEW))
        expected = [second, by_few_rows(model.predict_proba)]
        assert len(np.unique(first)) > 1
    else:
        mean = by_few_rows(model.predict)
        std = by_few_rows(lambda rows: model.predict(rows, return_std=True)[1])
        expected = [np.stack([first, second]), np.stack([mean, std])]
        assert np.ptp(std) > 0.0
    assert_allclose(*expected, rtol=1e-10, atol=1e-10)
    # A row for itself, as a service has it.
    loaded = skgp_predictor.load(tmp_path / "model.npz")
    assert_array_equal(loaded.predict(NEW[:1]).shape, model.predict(NEW[:1]).shape)


@pytest.fixture(scope="module")
def regressor():
    return fitted("plain")


def test_without_the_deviation_the_file_is_small(regressor, tmp_path):
    regressor.export(tmp_path / "mean.npz", return_std=False)
    model = skgp_predictor.load(tmp_path / "mean.npz")
    assert_allclose(model.predict(NEW), regressor.predict(NEW), rtol=1e-10, atol=1e-10)
    with pytest.raises(ValueError, match="return_std=True"):
        model.predict(NEW, return_std=True)
    assert "triangle" not in "".join(np.load(tmp_path / "mean.npz").files)


def test_wrong_rows_are_refused(regressor, tmp_path):
    regressor.export(tmp_path / "model.npz")
    model = skgp_predictor.load(tmp_path / "model.npz")
    for wrong, match in (
        (NEW[:, :2], "3 columns"),
        (NEW[0], "3 columns"),
        (np.full((1, 3), np.nan), r"^X\[0, 0\]=nan is not"),
    ):
        with pytest.raises(ValueError, match=match):
            model.predict(wrong)
    assert model.predict(NEW[:0]).shape == (0,)


def test_another_format_is_refused(regressor, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(skgp_predictor, "FORMAT", 0)
        regressor.export(tmp_path / "model.npz")
    with pytest.raises(ValueError, match="format 0"):
        skgp_predictor.load(tmp_path / "model.npz")


@pytest.fixture(scope="module")
def of_frame(tmp_path_factory):
    """A model of a data frame with names, and its exported predictor."""
    frame = pd.DataFrame(X[:30], columns=["age", "height", "weight"])
    model = NGDSVGPRegressor(RBF(), n_inducing=9, **GIVEN).fit(frame, Y[:30])
    path = tmp_path_factory.mktemp("frame") / "model.npz"
    model.export(path)
    return model, skgp_predictor.load(path), frame


def rows_of(frame):
    return {
        "another order": frame[["height", "age", "weight"]],
        "another name": frame.rename(columns={"age": "years"}),
        "other names": frame.rename(columns=str.upper),
        "a column more": frame.assign(more=1.0),
        "a column less": frame[["age", "height"]],
        "a name twice": frame.rename(columns={"age": "height"}),
        "text": frame.astype(str),
        "text in one column": frame.assign(age="3"),
        "dates": frame.assign(age=pd.Timestamp("2020-01-01")),
        "durations": frame.astype("timedelta64[s]").to_numpy(),
        "an array of text": frame.to_numpy().astype(str),
        "a list of text": frame.astype(str).to_numpy().tolist(),
        "complex": frame.to_numpy() + 1j,
        "complex objects": (frame.to_numpy() + 1j).astype(object),
        "masked": np.ma.masked_greater(frame.to_numpy(), 0.5),
        "one row": frame.to_numpy()[0],
        "three axes": frame.to_numpy()[None],
        "ragged": [[1.0, 2.0, 3.0], [1.0]],
    }


def with_categories(n, rng):
    """A frame with numbers, levels of three kinds, some missing, and many levels of which most are rare."""
    return pd.DataFrame(
        {
            "colour": rng.choice(["red", "green", None], size=n),
            "size": rng.normal(size=n),
            "grade": pd.Categorical(rng.choice([1, 2, 3], size=n)),
            "number": rng.integers(0, 9, size=n),
            "town": rng.choice([f"town {i}" for i in range(12)], size=n, p=np.r_[0.5, 0.4, np.full(10, 0.01)]),
            "holds": rng.choice([True, False], size=n),
        }
    )


@pytest.mark.filterwarnings("ignore:X differs from the rows of the fit", "ignore::UserWarning")
@pytest.mark.parametrize("options", [{}, {"categorical_features": ["colour", "grade", "holds", "town"]}])
def test_a_frame_with_categories_is_encoded_as_in_the_fit(options, tmp_path):
    rng = np.random.default_rng(1)
    frame, new = with_categories(80, rng), with_categories(30, rng)
    y = frame["size"] + (frame["colour"] == "red") + rng.normal(size=80)
    model = NGDSVGPRegressor(RBF(), n_inducing=9, max_categories=4, **GIVEN, **options).fit(frame, y)
    model.export(tmp_path / "model.npz")
    predictor = skgp_predictor.load(tmp_path / "model.npz")
    new.loc[:5, "colour"], new.loc[4:8, "town"] = "blue", "another town"
    for rows in (new, new.iloc[:1], new.astype(object)):
        found, expected = (each.predict(rows, return_std=True) for each in (predictor, model))
        assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert len(np.unique(predictor.predict(new.assign(size=0.0, number=0)))) > 5
    for name, value, match in (("size", "3", r"X\[2, 1\]='3' is not a number"), ("size", None, r"X\[2, 1\]")):
        wrong = new.astype(object)
        wrong.loc[2, name] = value
        with pytest.raises(ValueError, match=match):
            predictor.predict(wrong)
    cells = new.to_numpy(dtype=object)
    masked = np.ma.masked_array(cells, mask=np.zeros(cells.shape, bool))
    masked[0, 1] = np.ma.masked
    for wrong, match in ((cells[:, :1], "give a table"), (cells[0], "give a table"), (masked, "masked values")):
        with pytest.raises(ValueError, match=match):
            predictor.predict(wrong)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names", "ignore:The table of the fit has names")
@pytest.mark.parametrize("name", rows_of(pd.DataFrame({"age": [1.0], "height": [1.0], "weight": [1.0]})))
def test_what_the_estimator_refuses_is_refused(of_frame, name):
    model, predictor, frame = of_frame
    for predict in (model.predict, predictor.predict):
        with pytest.raises((ValueError, TypeError)):
            predict(rows_of(frame)[name])


def test_what_the_estimator_takes_is_taken(of_frame):
    model, predictor, frame = of_frame
    for rows in (frame, frame.astype("Float64"), frame.astype(object), frame.round().astype(int), frame.astype("f4")):
        assert_allclose(predictor.predict(rows), model.predict(rows), rtol=1e-10)
    with pytest.warns(UserWarning, match="names of columns, and X has none"):
        assert_allclose(predictor.predict(frame.to_numpy()), predictor.predict(frame), rtol=1e-12)
    unmasked = np.ma.masked_array(frame.to_numpy(), mask=False)
    with pytest.warns(UserWarning, match="X has none"):
        assert_allclose(predictor.predict(unmasked.tolist()), predictor.predict(frame), rtol=1e-12)


def test_messages_name_the_columns_and_the_values(of_frame, regressor, tmp_path):
    _, predictor, frame = of_frame
    of_frames = rows_of(frame) | {"categories": frame.assign(age=pd.Categorical(["1"] * len(frame)))}
    messages = {
        "another order": "column 0 is 'height', and was 'age'; give the columns in the order of the fit",
        "another name": "it lacks 'age' and it holds 'years'",
        "text in one column": r"X\[0, 0\]='3' is not a number",
        "categories": r"X\[0, 0\]='1' is not a number",
    }
    for name, message in messages.items():
        with pytest.raises(ValueError, match=message):
            predictor.predict(of_frames[name])
    regressor.export(tmp_path / "model.npz")
    with pytest.warns(UserWarning, match="X has names of columns, and the table of the fit has none"):
        skgp_predictor.load(tmp_path / "model.npz").predict(frame)


def of_text(path):
    path.write_text("model")


def of_one_array(path):
    with open(path, "wb") as file:
        np.save(file, X)


def of_another_program(path):
    np.savez(path, X=X, y=Y)


def of_another_description(path):
    np.savez(path, about=np.array("a table of 2020"), X=X)


def of_objects(path):
    np.savez(path, about=np.array([{}], dtype=object))


def of_nothing(path):
    path.write_bytes(b"")


def of_half(path):
    fitted("plain").export(path)
    path.write_bytes(path.read_bytes()[:2000])


@pytest.mark.parametrize(
    "write",
    [of_text, of_one_array, of_another_program, of_another_description, of_objects, of_nothing, of_half],
)
def test_a_file_of_others_is_told_what_it_is(write, tmp_path):
    write(tmp_path / "model.npz")
    with pytest.raises(ValueError, match="is no model that the method export of an estimator of skgp_natgrad has"):
        skgp_predictor.load(tmp_path / "model.npz")
    with pytest.raises(FileNotFoundError):
        skgp_predictor.load(tmp_path / "another.npz")


class OfMyOwn(RBF):
    """A kernel that the predictor does not know."""


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"_output_scale": object()}, "output_kernel='independent'"),
        ({"mean_function_": [LinearRegression()]}, "mean_function=None"),
        ({"likelihood_": NGDSVGPRegressor(likelihood="poisson").likelihood}, "likelihood str"),
    ],
)
def test_what_cannot_be_exported_is_refused(regressor, change, match, tmp_path):
    other = NGDSVGPRegressor()
    vars(other).update(vars(regressor) | change)
    with pytest.raises(ValueError, match=match):
        other.export(tmp_path / "model.npz")
    assert not list(tmp_path.iterdir())


def test_a_kernel_of_the_users_own_is_refused():
    with pytest.raises(ValueError, match="class of your own"):
        _plain(RBF() + OfMyOwn(), 3)


def test_the_largest_factor_of_the_variance_is_that_of_the_package():
    assert skgp_predictor._LARGEST == dispersion._LARGEST
