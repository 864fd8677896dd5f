"""Columns that are constant up to rounding: decided once, by the rounding of the column as it was given."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.choose.scale import fit_scale, snapped, spans_of_rounding
from skgp_natgrad.estimators.rows import inputs

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RNG = np.random.default_rng(0)
GOOD = RNG.normal(size=(300, 3))
LABELS = GOOD[:, 0] + np.sin(2.0 * GOOD[:, 1]) > 0.0
COIN = RNG.random(300) < 0.5
OPTIONS = {"n_inducing": 20, "max_iter": 100, "random_state": 0}

TENTHS = np.where(COIN, 0.1 + 0.2, 0.3)
CONSTANT = {
    "three tenths": TENTHS,
    "one unit in the last place": np.where(COIN, 1.0, np.nextafter(1.0, 2.0)),
    "a million and 1e-10": 1e6 + 1e-10 * RNG.uniform(-1.0, 1.0, size=300),
    "the largest numbers": np.where(COIN, -1e308, np.nextafter(-1e308, 0.0)),
    "next to nothing": np.where(COIN, 5e-324, 0.0),
    "float32": np.where(COIN, np.float32(0.1) + np.float32(0.2), np.float32(0.3)).astype(np.float32),
    "float32 at an offset": (1e6 + 0.1 * COIN).astype(np.float32),
    "float16": np.where(COIN, 1e3, 1e3 + 0.5).astype(np.float16),
    "integers above 2^53": 2**60 + COIN.astype(np.int64),
    "unsigned integers": np.full(300, 2**64 - 1, np.uint64) - COIN.astype(np.uint64),
}
INFORMATIVE = {
    "a million and 1e-3": 1e6 + 1e-3 * GOOD[:, 0],
    "ten units": 1e6 + 1e-9 * COIN,
    "float32": np.where(COIN, 1.0, 1.0 + 1e-6).astype(np.float32),
    "float32 at an offset": (1e6 + GOOD[:, 0]).astype(np.float32),
    "years in float16": np.where(COIN, 2010.0, 2020.0).astype(np.float16),
    "integers above 2^53": 2**53 + 1000 * COIN.astype(np.int64),
    "integers below 2^53": 2**53 - 1 - COIN.astype(np.int64),
    "bits": COIN,
    "tiny": 1e-150 * GOOD[:, 0],
    "both signs": np.where(COIN, 1e308, -1e308),
}


def settled(column):
    """The column as a fit sees it."""
    table = column[:, None]
    given = table.astype(float)
    return snapped(given, spans_of_rounding(given, inputs.column_types(table)))[:, 0]


@pytest.mark.parametrize("column", CONSTANT.values(), ids=CONSTANT)
def test_what_differs_by_rounding_is_constant(column):
    assert np.ptp(column) > 0 or column.dtype.itemsize < 8
    assert np.ptp(settled(column)) == 0.0
    assert settled(column)[0] in column.astype(float)


@pytest.mark.parametrize("column", INFORMATIVE.values(), ids=INFORMATIVE)
def test_what_differs_by_more_is_kept(column):
    assert_array_equal(settled(column), column.astype(float))


def test_the_type_of_a_column_is_the_one_that_it_was_given_in():
    single, double, whole = (np.dtype(name) for name in ("float32", "float64", "int64"))
    frame = pd.DataFrame({"a": np.ones(3, np.float32), "b": np.ones(3), "c": [1, 2, 3], "d": ["1", "2", "3"]})
    assert inputs.column_types(frame) == [single, double, whole, double]
    nullable = frame[["a", "c"]].astype({"a": "Float32", "c": "Int64"})
    assert inputs.column_types(nullable) == [single, whole]
    assert inputs.column_types(frame["a"]) == [single]
    assert inputs.column_types(frame[["a", "b"]].to_numpy(object)) == [double, double]
    assert inputs.column_types([[1, 2], [3, 4]]) == [whole, whole]
    assert inputs.column_types([1.5, 2]) == [double]
    assert inputs.column_types(Named(["Float32", "decimal(precision=38, scale=2)"])) == [single, double]
    assert inputs.column_types(Arrow()) == [double, double]


class Named:
    """A frame whose types are known by name alone, as those of Polars."""

    columns = ("a", "b")

    def __init__(self, dtypes):
        self.dtypes = dtypes


class Arrow:
    """A table whose columns are the values, as PyArrow's."""

    columns = ([1.0], [2.0])

    def __array__(self, dtype=None, copy=None):
        return np.array([[1.0, 2.0]])


def test_the_scale_is_that_of_the_column_wherever_it_lies():
    """The mean and deviation of few units of rounding are found to the last digits."""
    column = np.where(COIN, 2.0**52, 2.0**52 + 1.0)[:, None]
    scale = fit_scale("X", column, np.ones(300), active=True)
    assert_allclose(scale.scale, COIN.std())
    weight = RNG.uniform(1.0, 2.0, size=300)
    table = GOOD * [1e-150, 1.0, 1e150]
    scale = fit_scale("X", table, weight, active=True)
    mean = np.average(GOOD, axis=0, weights=weight)
    assert_allclose(scale.offset, mean * [1e-150, 1.0, 1e150], rtol=1e-12)
    deviation = np.sqrt(np.average((GOOD - mean) ** 2, axis=0, weights=weight))
    assert_allclose(scale.scale, deviation * [1e-150, 1.0, 1e150], rtol=1e-12)


# -- fits ---------------------------------------------------------------------------------


def lengthscales(model):
    """Those of all parts of the kernel."""
    values = model.kernel_.get_params().items()
    return np.concatenate([np.ravel(value) for name, value in values if name.endswith("length_scale")])


def classifier(**own):
    return NGDSVGPClassifier(**{**OPTIONS, **own})


@pytest.mark.slow
@pytest.mark.parametrize("normalize_X", [True, False])
@pytest.mark.parametrize(
    "name", ["three tenths", "one unit in the last place", "a million and 1e-10", "integers above 2^53"]
)
def test_a_constant_column_changes_nothing(name, normalize_X):
    """Beside three good columns; before, the accuracy was that of guessing."""
    column = CONSTANT[name].astype(float)
    model = classifier(normalize_X=normalize_X).fit(np.column_stack([GOOD, column]), LABELS)
    exact = classifier(normalize_X=normalize_X).fit(np.column_stack([GOOD, np.full(300, column.min())]), LABELS)
    table = np.column_stack([GOOD, column])
    assert model.score(table, LABELS) > 0.95
    assert np.all(lengthscales(model) > 0.1)
    assert_allclose(model.predict_proba(table), exact.predict_proba(table), atol=1e-6)


@pytest.mark.slow
def test_types_of_a_frame_are_those_of_its_columns():
    """The same numbers are constant in single precision, and information in double."""
    column = (1e6 + 0.1 * LABELS).astype(np.float32)
    noise = pd.DataFrame(RNG.normal(size=(300, 2)), columns=["a", "b"])
    single = classifier().fit(noise.assign(c=column), LABELS)
    double = classifier().fit(noise.assign(c=column.astype(float)), LABELS)
    assert single.score(noise.assign(c=column), LABELS) < 0.9
    assert double.score(noise.assign(c=column), LABELS) > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("normalize_X", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_information_at_an_offset_is_used(normalize_X):
    table = np.column_stack([1e6 + 1e-3 * GOOD[:, 0], 2**53 + 1000 * (GOOD[:, 1] > 0).astype(np.int64)])
    y = np.sin(2.0 * GOOD[:, 0]) + (GOOD[:, 1] > 0)
    model = NGDSVGPRegressor(**OPTIONS, normalize_X=normalize_X).fit(table, y)
    assert model.score(table, y) > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("normalize_y", [True, False])
def test_a_constant_target_up_to_rounding(normalize_y):
    y = TENTHS + np.where(LABELS, 0.0, np.spacing(0.3))
    model = NGDSVGPRegressor(**OPTIONS, normalize_y=normalize_y).fit(GOOD, y)
    exact = NGDSVGPRegressor(**OPTIONS, normalize_y=normalize_y).fit(GOOD, np.full(300, y.min()))
    assert_array_equal(model.predict(GOOD), exact.predict(GOOD))
    assert_allclose(model.predict(GOOD), 0.3, atol=0.04)


@pytest.mark.slow
def test_rows_without_weight_do_not_count():
    weight = np.ones(300)
    weight[7] = 0.0
    column = TENTHS.copy()
    column[7] = 5.0
    table = np.column_stack([GOOD, column])
    model = classifier().fit(table, LABELS, sample_weight=weight)
    assert np.mean(model.predict(table[weight > 0]) == LABELS[weight > 0]) > 0.95
    assert np.all(lengthscales(model) > 0.1)


@pytest.mark.slow
def test_other_values_of_such_a_column_can_be_predicted_at():
    table = np.column_stack([GOOD, TENTHS])
    model = classifier().fit(table, LABELS)
    for value in (0.3, 0.8):
        assert model.score(np.column_stack([GOOD, np.full(300, value)]), LABELS) > 0.95
    assert_allclose(model.predict_proba(np.column_stack([GOOD, np.full(300, -1e3)])), 0.5, atol=0.1)


def test_all_columns_constant_up_to_rounding():
    table = np.column_stack([TENTHS, TENTHS[::-1]])
    model = NGDSVGPRegressor(**OPTIONS).fit(table, GOOD[:, 0])
    assert_allclose(model.predict(table), GOOD[:, 0].mean(), atol=0.1)
    assert len(model.inducing_points_) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("offset", "dtype"), [(1e6, np.float32), (1e8, np.float32), (1.7e9, np.float32), (1.7e18, np.float64)]
)
@pytest.mark.parametrize("normalize_X", [True, False])
def test_predictions_see_a_constant_column_too(normalize_X, offset, dtype, rng):
    """Rounding far larger than the unit that the column keeps."""
    good = rng.normal(size=(200, 2))
    jittered = (dtype(offset) + np.spacing(dtype(offset)) * rng.integers(0, 4, size=200)).astype(dtype)
    y = np.sin(good).sum(1)
    predictions = []
    for column in (jittered, np.full(200, jittered.min())):
        X = pd.DataFrame({"a": good[:, 0], "b": good[:, 1], "c": column})
        options = {"n_inducing": 20, "max_iter": 40, "normalize_X": normalize_X, "random_state": 0}
        predictions.append(NGDSVGPRegressor(**options).fit(X, y).predict(X))
    assert_array_equal(*predictions)


def test_years_in_half_precision_are_no_rounding():
    years = np.repeat(np.arange(2010, 2014), 10).astype(np.float16)
    assert len(np.unique(settled(years))) == 4
