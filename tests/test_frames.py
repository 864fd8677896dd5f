"""Data frames as they are: categories, strings, missing values and sparse columns, against scikit-learn's encoders."""

import copy
import io
import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import estimator_checks_generator

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, trusted_types
from skgp_natgrad._backend import rows
from skgp_natgrad.estimators.rows import inputs
from skgp_natgrad.inspection import RelevanceDisplay
from skgp_natgrad.kernels import Columns
from skgp_natgrad.kernels.columns import by_position, on_blocks

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RNG = np.random.default_rng(5)
N = 150
FAST = {"kernel": 1.0 * Matern(nu=2.5), "random_state": 0}
# Standardised columns of one category have a common unit, unlike those that are encoded by hand. Their further columns
# are zeros, which change the last digits of a search.
AS_BY_HAND = {**FAST, "normalize_X": False}
# The scale of all variances is free where there are no categories: given hyperparameters are the same with both.
GIVEN = {**AS_BY_HAND, "kernel": 900.0 * Matern(100.0, nu=2.5), "optimizer": None}


def table(n=N, rng=RNG):
    """Numbers, a type of categories, strings and booleans, with missing cells in three of them."""
    frame = pd.DataFrame(
        {
            "city": rng.choice(["Bonn", "Rome", "Oslo"], n),
            "age": rng.uniform(20.0, 60.0, n),
            "code": pd.Categorical(rng.choice([1, 2, 3], n)),
            "owns": rng.random(n) < 0.4,
            "income": rng.normal(size=n),
        }
    )
    frame.loc[frame.index % 11 == 3, "city"] = None
    frame.loc[frame.index % 7 == 2, "income"] = np.nan
    return frame


FRAME = table()
Y = np.sin(FRAME.age / 8.0) + (FRAME.city == "Rome") + 0.7 * FRAME.owns + FRAME.income.fillna(0.5)
Y = (Y + 0.1 * RNG.normal(size=N)).to_numpy()
TARGETS = {NGDSVGPRegressor: Y, NGDSVGPClassifier: np.where(np.median(Y) < Y, "high", "low")}
each_estimator = pytest.mark.parametrize("estimator", TARGETS)
# The same code serves both.
first_of_all_the_regressor = pytest.mark.parametrize(
    "estimator", [NGDSVGPRegressor, pytest.param(NGDSVGPClassifier, marks=pytest.mark.slow)]
)
NEW = table(30)
# A fit leaves out the rows in which a number is missing.
IS_COMPLETE, IS_NEW_COMPLETE = FRAME.income.notna(), NEW.income.notna()


def by_hand(model, frame=FRAME, **options):
    """The same by scikit-learn's own parts, of complete rows."""
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False, **options)
    parts = [("numbers", "passthrough", ["age", "owns", "income"]), ("levels", encoder, ["city", "code"])]
    return make_pipeline(ColumnTransformer(parts, sparse_threshold=0), model)


def in_polars(frame):
    cells = {name: [None if pd.isna(cell) else cell for cell in frame[name].tolist()] for name in frame}
    return pl.DataFrame(cells).with_columns(pl.col("code").cast(pl.String).cast(pl.Enum(["1", "2", "3"])))


def in_pyarrow(frame):
    return pytest.importorskip("pyarrow", reason="pyarrow is not installed").Table.from_pandas(frame)


def distributions(model, frame):
    """All that a model predicts: moments, or probabilities."""
    model = model[-1] if hasattr(model, "steps") else model
    return model.predict(frame, return_std=True) if isinstance(model, NGDSVGPRegressor) else model.predict_proba(frame)


@pytest.fixture(scope="module")
def fitted():
    return {estimator: estimator(**FAST).fit(FRAME, y) for estimator, y in TARGETS.items()}


# -- the same as by hand --------------------------------------------------------------------


@pytest.mark.slow
@each_estimator
@pytest.mark.parametrize("given", [pd.DataFrame, in_polars, in_pyarrow], ids=["pandas", "polars", "pyarrow"])
def test_a_frame_is_what_a_pipeline_makes_of_it(estimator, given):
    model = estimator(**GIVEN).fit(given(FRAME), TARGETS[estimator])
    hand = by_hand(estimator(**GIVEN)).fit(FRAME[IS_COMPLETE], TARGETS[estimator][IS_COMPLETE])
    new = NEW[IS_NEW_COMPLETE]
    expected = distributions(hand, hand[:-1].transform(new))
    assert_allclose(distributions(model, given(new)), expected, rtol=0.0, atol=1e-5)
    assert_allclose(distributions(model, given(NEW)), distributions(model, NEW), rtol=0.0, atol=1e-10)
    assert_array_equal(model.feature_names_in_, FRAME.columns)
    assert model.n_features_in_ == 5
    names = ["age", "owns", "income", "city=Bonn", "city=Oslo", "city=Rome", "city=None"]
    further = [f"{column}=another level ({i})" for column in ("city", "code") for i in (1, 2, 3)]
    assert model.encoding_.names == [*names, "code=1", "code=2", "code=3", *further]


@pytest.mark.slow
def test_the_rarest_levels_are_one():
    frame = FRAME.assign(city=np.where(np.arange(N) < 90, "Bonn", np.arange(N) % 30).astype(str))
    frame["income"] = frame.income.fillna(0.0)
    frame["city"] = frame.city.astype("category")
    model = NGDSVGPRegressor(max_categories=4, **AS_BY_HAND).fit(frame, Y)
    hand = by_hand(NGDSVGPRegressor(**AS_BY_HAND), max_categories=4).fit(frame, Y)
    assert_allclose(model.predict(frame), hand.predict(frame), rtol=0.0, atol=1e-5)
    assert sum(name.startswith("city=") for name in model.encoding_.names) == 4 + 3
    assert len(NGDSVGPRegressor(**FAST).fit(frame, Y).encoding_.names) > 30
    # The rare ones are shown as one, whichever it was.
    assert "infrequent_sklearn" in model.inducing_points_[:, 0]
    assert_allclose(model.feature_importances_.sum(), 1.0)


@pytest.mark.slow
@first_of_all_the_regressor
def test_categories_may_be_named(estimator):
    y, frame = TARGETS[estimator], FRAME[["age", "owns"]].assign(code=FRAME.code.astype(int), city=FRAME.city)
    first = estimator(categorical_features=["code", "city"], **FAST).fit(frame, y)
    for given in ([2, 3], [False, False, True, True], np.array([2, 3])):
        assert_array_equal(
            estimator(categorical_features=given, **FAST).fit(frame, y).predict(frame), first.predict(frame)
        )
    array = frame.to_numpy()
    of_array = estimator(categorical_features=[2, 3], **FAST).fit(array, y)
    assert_array_equal(of_array.predict(array), first.predict(frame))
    of_list = estimator(categorical_features=[2, 3], **FAST).fit(array.tolist(), y)
    assert_array_equal(of_list.predict(array.tolist()), first.predict(frame))
    # A whole number is one level, whatever the type of its column is.
    assert_array_equal(first.predict(frame.assign(code=frame.code.astype(float))), first.predict(frame))
    assert_array_equal(first.predict(frame.assign(code=frame.code.astype("category"))), first.predict(frame))


@pytest.mark.slow
def test_a_type_of_categories_is_no_number_unless_it_is_said():
    frame = FRAME[["age", "code"]]
    assert NGDSVGPRegressor(**FAST).fit(frame, Y).encoding_.names[:4] == ["age", "code=1", "code=2", "code=3"]
    as_numbers = NGDSVGPRegressor(categorical_features=None, **FAST).fit(frame, Y)
    assert as_numbers.encoding_.names == ["age", "code"]
    assert_array_equal(as_numbers.predict(frame), NGDSVGPRegressor(**FAST).fit(frame.astype(float), Y).predict(frame))


def test_a_frame_of_numbers_is_an_array_to_the_bit():
    X = RNG.normal(size=(80, 3))
    frame = pd.DataFrame(X, columns=list("abc")).assign(c=np.arange(80))
    one, other = (NGDSVGPRegressor(**FAST).fit(each, Y[:80]) for each in (frame, frame.to_numpy(float)))
    assert_array_equal(one.predict(frame, return_std=True), other.predict(frame.to_numpy(float), return_std=True))
    assert_array_equal(one.feature_importances_, other.feature_importances_)
    assert_array_equal(one.inducing_points_, other.inducing_points_)
    assert other.encoding_ is None
    # Refitted to an array, nothing of the frame remains.
    assert one.fit(X, Y[:80]).encoding_ is None
    assert not hasattr(one, "feature_names_in_")


# -- missing values -------------------------------------------------------------------------


@pytest.mark.slow
def test_types_that_may_be_missing_are_numbers():
    frame = pd.DataFrame(
        {
            "whole": pd.array([1, None, 3] * 20, dtype="Int64"),
            "flag": pd.array([True, None, False] * 20, dtype="boolean"),
            "object": np.array([True, None, 2.5] * 20, dtype=object),
            "none": np.array([None] * 60, dtype=object),
        }
    )
    model = NGDSVGPRegressor(**FAST).fit(frame, Y[:60])
    numbers, is_complete = np.array([[1.0, 1.0, 1.0, 0.0], [3.0, 0.0, 2.5, 0.0]] * 20), np.arange(60) % 3 != 1
    expected = NGDSVGPRegressor(**FAST).fit(numbers, Y[:60][is_complete])
    assert_allclose(model.predict(frame)[is_complete], expected.predict(numbers), rtol=0.0, atol=1e-10)


@pytest.mark.slow
def test_numbers_that_are_newly_missing_are_told(fitted):
    model = clone(fitted[NGDSVGPRegressor]).fit(FRAME, Y)
    lacking = NEW.assign(age=NEW.age.where(NEW.index > 3), city=NEW.city.where(NEW.index > 0, "Paris"))
    with pytest.warns(UserWarning, match="'city' holds Paris, .* no level .* missing in column 'age': .* average over"):
        found = model.predict(lacking)
    zeros = model.encoding_.forward(*inputs_of(model, lacking))
    assert_array_equal(np.isnan(zeros[:, 0]), NEW.index <= 3)
    assert_array_equal(zeros[0, 3:7], np.zeros(4))
    assert_allclose(np.linalg.norm(zeros[0, -6:-3]), 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_allclose(model.predict(NEW[4:]), found[4:], rtol=1e-9)
    with pytest.warns(UserWarning, match="'code' holds 7"):
        model.predict(lacking.assign(code=7))


def inputs_of(model, frame):
    """Numbers and levels, read without the package's functions."""
    values = frame.assign(city=0.0, code=0.0).astype(float).to_numpy()
    city, code = ([None if pd.isna(cell) else str(cell) for cell in frame[name]] for name in ("city", "code"))
    return values, np.array([city, code], dtype=object).T


@pytest.mark.slow
def test_missing_values_of_arrays_are_refused_unless_allowed():
    X = RNG.normal(size=(60, 2))
    X[5, 1] = np.nan
    with pytest.raises(ValueError, match=r"^X\[5, 1\]=nan is not finite; .*missing_inputs='allow'"):
        NGDSVGPRegressor(**FAST).fit(X, Y[:60])
    model = NGDSVGPRegressor(missing_inputs="allow", **FAST).fit(X, Y[:60])
    is_complete = np.arange(60) != 5
    expected = NGDSVGPRegressor(**FAST).fit(X[is_complete], Y[:60][is_complete])
    assert_allclose(model.predict(X)[is_complete], expected.predict(X[is_complete]), rtol=0.0, atol=1e-10)
    with pytest.raises(ValueError, match=r"^X\[0, 0\]=inf is not finite"):
        model.predict(np.where(np.isnan(X), X, np.inf))
    with pytest.raises(ValueError, match=r"^X\[2, 4\]=nan \(column 'income'\) is not finite"):
        NGDSVGPRegressor(missing_inputs="error", **FAST).fit(FRAME, Y)
    with pytest.raises(ValueError, match=r"^X\[3, 0\] is missing; set missing_inputs"):
        NGDSVGPRegressor(missing_inputs="error", **FAST).fit(FRAME[["city"]], Y)
    of_frame = NGDSVGPRegressor(**FAST).fit(pd.DataFrame(np.nan_to_num(X)), Y[:60])
    with pytest.raises(ValueError, match=r"^X\[5, 1\]=nan is not finite"):
        of_frame.predict(X)


def test_rows_without_weight_are_left_out_of_levels_and_means(fitted):
    further = NEW.assign(city="Paris", age=1e6)
    weight = np.r_[np.ones(N), np.zeros(30)]
    model = NGDSVGPRegressor(**FAST).fit(pd.concat([FRAME, further]), np.r_[Y, np.zeros(30)], sample_weight=weight)
    assert_array_equal(model.predict(NEW), fitted[NGDSVGPRegressor].predict(NEW))


# -- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["2023-01-15-A", "1234-56-7890", "2023.10.11", "2020-01-01 to 2020-03-31"])
def test_names_that_begin_like_dates_are_categories(rng, first):
    frame = pd.DataFrame({"x": rng.normal(size=30), "batch": np.where(np.arange(30) % 2, first, first + "1")})
    model = NGDSVGPRegressor(**FAST).fit(frame, frame["x"] + (np.arange(30) % 2))
    mean = model.predict(frame.assign(x=0.0))
    assert len(np.unique(mean)) == 2


@pytest.mark.slow
@each_estimator
def test_strings_that_look_like_numbers_are_refused_by_name(estimator):
    frame = FRAME.assign(price=[f"{value:.2f}" for value in Y])
    with pytest.raises(ValueError, match=r"column 'price' holds strings that look like numbers, such as '.*to_numeric"):
        estimator().fit(frame, TARGETS[estimator])
    frame.loc[4, "price"] = "unknown"
    with pytest.raises(ValueError, match=r"column 'price' .*errors='coerce'.* name it in categorical_features"):
        estimator().fit(in_polars(frame), TARGETS[estimator])
    # Nor are they numbers because no column, or another one, holds categories; nor at a prediction.
    numbers = pd.DataFrame({"age": FRAME.age, "price": [f"{value:.2f}" for value in Y]})
    for given in (None, ["age"]):
        with pytest.raises(ValueError, match=r"column 'price' holds strings"):
            estimator(categorical_features=given).fit(numbers, TARGETS[estimator])
    model = estimator(**FAST).fit(numbers.astype(float), TARGETS[estimator])
    with pytest.raises(ValueError, match=r"column 'price' holds strings"):
        model.predict(numbers)
    # "3+" among numbers of persons is a level.
    persons = FRAME.assign(persons=np.array(["1", "none", "3+"])[np.arange(N) % 3])
    assert "persons=3+" in NGDSVGPRegressor(**FAST).fit(persons, Y).encoding_.names


def test_a_word_among_numbers_is_refused_by_its_place():
    frame = pd.DataFrame({"a": np.arange(9.0), "b": np.array([1.0, "red", *range(7)], dtype=object)})
    with pytest.raises(ValueError, match=r"^X\[1, 1\]='red' \(column 'b'\) is not a number; .*categorical_features"):
        NGDSVGPRegressor().fit(frame, np.arange(9.0))
    # Of a prediction, too.
    model = NGDSVGPRegressor(**FAST).fit(frame.assign(b=1.0), np.arange(9.0))
    with pytest.raises(ValueError, match=r"^X\[1, 1\]='red' \(column 'b'\)"):
        model.predict(frame)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["b", "a"]])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("city", "must be 'from_dtype', None, or a list"),
        (["town"], r"no column 'town'; it has 5 columns, and those named \['city'"),
        ([5], "no column 5; it has 5 columns"),
        ([True, False], "a mask of 2 values, but X has 5 columns"),
        ([1.5], "no column 1.5"),
    ],
)
def test_categories_that_are_none(given, message):
    with pytest.raises(ValueError, match=f"categorical_features.*{message}"):
        NGDSVGPRegressor(categorical_features=given).fit(FRAME, Y)


def test_arguments_are_checked_before_the_table():
    with pytest.raises(ValueError, match=r"max_categories=1 must be an int in the range \[2, inf\) or None"):
        NGDSVGPRegressor(max_categories=1).fit(FRAME, Y)
    with pytest.raises(ValueError, match=r"missing_inputs='alow' must be a str among {'auto', 'allow', 'error'}"):
        NGDSVGPRegressor(missing_inputs="alow").fit(FRAME, Y)


def test_an_array_that_lacks_numbers_after_a_fit_to_a_frame():
    frame = pd.DataFrame({"a": np.arange(9.0), "b": np.sin(np.arange(9.0))})
    model = NGDSVGPRegressor(**FAST).fit(frame, np.arange(9.0))
    rows = frame.to_numpy(copy=True)
    rows[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"^X\[3, 1\]=nan is not finite; give X as a data frame, as in the fit"):
        model.predict(rows)
    with pytest.raises(ValueError, match=r"^X\[3, 1\]=inf is not finite; leave the row out"):
        model.predict(np.where(np.isnan(rows), np.inf, rows))
    with pytest.raises(ValueError, match=r"^X\[3, 1\]=nan is not finite; leave .*missing_inputs='allow'"):
        model.fit(rows, np.arange(9.0))


def test_cells_that_are_no_categories():
    frame = pd.DataFrame({"a": np.arange(4.0), "b": [[1], [2], [3], [4]]})
    with pytest.raises(TypeError, match="column 1 holds values that are no categories"):
        NGDSVGPRegressor(categorical_features=["b"]).fit(frame, np.arange(4.0))
    with pytest.raises(ValueError, match="has the type datetime64"):
        NGDSVGPRegressor().fit(FRAME.assign(day=pd.Timestamp("2020-01-01")), Y)


# -- what speaks of columns -----------------------------------------------------------------


def test_importances_are_those_of_the_columns(fitted):
    model = fitted[NGDSVGPRegressor]
    found = model.feature_importances_
    assert found.shape == (5,)
    assert_allclose(found.sum(), 1.0)
    assert found[2] < 0.1 < found[1]
    # Of a category: the variance of the linear part, from finite differences of predictions at the points.
    encoding, points = model.encoding_, model._encoded_points
    gradient = np.empty((len(points), points.shape[1]))
    inner = copy.copy(model)
    inner.encoding_, inner.n_features_in_ = None, points.shape[1]
    del inner.feature_names_in_
    for k, step in enumerate(1e-4 * np.eye(points.shape[1])):
        gradient[:, k] = (inner.predict(points + step) - inner.predict(points - step)) / 2e-4
    covariance = np.cov(points.T, bias=True)
    blocks = [np.flatnonzero(encoding.owner == k) for k in range(5)]
    each = [np.mean(((gradient[:, b] @ covariance[np.ix_(b, b)]) * gradient[:, b]).sum(1)) for b in blocks]
    assert_allclose(found, np.array(each) / np.sum(each), rtol=1e-5)


@pytest.mark.slow
def test_importances_do_not_depend_on_how_a_category_is_written():
    """Two levels as 0 and 1, or as two columns, whose derivatives are half as large."""
    flag = RNG.random(N) < 0.5
    number, y = pd.DataFrame({"x": FRAME.age, "flag": flag}), np.sin(FRAME.age / 8.0) + flag
    category = number.assign(flag=np.where(flag, "yes", "no"))
    found = [NGDSVGPRegressor(1.0 * RBF([5.0, 5.0]), **{"random_state": 0}).fit(each, y) for each in (number, category)]
    assert_allclose(*(each.feature_importances_ for each in found), atol=0.05)


@pytest.mark.slow
def test_points_summary_and_gradients_are_those_of_the_columns(fitted):
    model = fitted[NGDSVGPRegressor]
    shown = model.inducing_points_
    known = FRAME[IS_COMPLETE]
    assert shown.shape == (len(known), 5)
    assert set(shown[:, 0]) == {"Bonn", "Oslo", "Rome", None}
    assert set(shown[:, 2]) == {"1", "2", "3"}
    cells = {tuple("nan" if pd.isna(cell) else str(cell) for cell in row) for row in shown[:, [0, 2]]}
    assert cells == {
        tuple("nan" if pd.isna(cell) else str(cell) for cell in row) for row in known[["city", "code"]].to_numpy()
    }
    assert_allclose(np.sort(shown[:, 1].astype(float)), np.sort(known.age), rtol=1e-12)
    ard = NGDSVGPRegressor(1.0 * Matern(np.ones(5)), random_state=0).fit(FRAME, Y)
    by_column = ard.summary().terms[0].factors[0].by_column
    assert set(by_column) == {"age", "owns", "income", "city", "code"}
    assert "city" in repr(ard.summary())
    new = NEW[IS_NEW_COMPLETE]
    gradient, of_std = ard.predict_gradient(new, return_std=True)
    assert gradient.shape == of_std.shape == (len(new), 5)
    assert not gradient[:, [0, 2]].any()
    ends = [ard.predict(new.assign(age=new.age + step)) for step in (1e-2, -1e-2)]
    assert_allclose(gradient[:, 1], (ends[0] - ends[1]) / 2e-2, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_points_may_be_given_as_rows_of_the_frame():
    options = {**FAST, "train_inducing_points": False, "max_iter": 10}
    given = NGDSVGPRegressor(inducing_init=FRAME.head(20), **options).fit(FRAME, Y)
    assert_array_equal(
        given.inducing_points_[:, [0, 2]],
        FRAME.head(20)[["city", "code"]].astype("str").to_numpy(object, na_value=None),
    )
    again = NGDSVGPRegressor(inducing_init=given.inducing_points_, **options).fit(FRAME, Y)
    assert_allclose(again.predict(NEW), given.predict(NEW), atol=1e-8)
    with pytest.raises(ValueError, match=r"inducing_init has the shape \(9, 2\); give rows with the 5 columns of X"):
        NGDSVGPRegressor(inducing_init=np.zeros((9, 2)), **options).fit(FRAME, Y)
    with pytest.raises(ValueError, match="inducing_init has the columns"):
        NGDSVGPRegressor(inducing_init=FRAME[["age", "city"]].head(9), **options).fit(FRAME, Y)


def test_displays_and_scikit_learns_inspection_take_the_frame(fitted):
    pytest.importorskip("matplotlib")
    model = fitted[NGDSVGPRegressor]
    assert set(RelevanceDisplay.from_estimator(model).names) == set(FRAME.columns)
    # scikit-learn does not sort a missing value among strings.
    known = FRAME[FRAME.city.notna()]
    along = partial_dependence(model, known, ["city"], categorical_features=["city"], kind="average")
    average = dict(zip(along["grid_values"][0], along["average"][0], strict=True))
    assert average["Rome"] > average["Bonn"] + 0.5
    found = permutation_importance(model, FRAME, Y, n_repeats=2, random_state=0)
    assert found.importances_mean.shape == (5,)
    assert found.importances_mean[0] > found.importances_mean[2]


@pytest.mark.slow
def test_kernels_on_columns_by_the_names_of_the_frame():
    options = {"random_state": 0, "optimizer": None, "normalize_X": False}
    kernel = 1.0 * Columns(RBF([9.0, 0.5], [(1e-2, 1e2), (1e-3, 1e3)]), ["age", "city"]) + Columns(RBF(2.0), "income")
    model = NGDSVGPRegressor(kernel, **options).fit(FRAME, Y)
    assert model.kernel_.k1.k2.columns == [0, 3, 4, 5, 6, 10, 11, 12]
    assert model.kernel_.k2.columns == [2]
    hand = 1.0 * Columns(RBF([9.0] + 4 * [0.5], [(1e-2, 1e2)] + 4 * [(1e-3, 1e3)]), [0, 3, 4, 5, 6])
    expected = by_hand(NGDSVGPRegressor(hand + Columns(RBF(2.0), 2), **options)).fit(FRAME[IS_COMPLETE], Y[IS_COMPLETE])
    new = NEW[IS_NEW_COMPLETE]
    assert_allclose(model.predict(new), expected.predict(new), rtol=0.0, atol=1e-5)
    # By position they are the columns of the frame as well.
    same = NGDSVGPRegressor(by_position(kernel, FRAME.columns), **options).fit(FRAME, Y)
    assert_array_equal(same.predict(NEW), model.predict(NEW))
    with pytest.raises(ValueError, match="no columns are named 'town'"):
        NGDSVGPRegressor(Columns(RBF(), "town")).fit(FRAME, Y)


def test_a_kernel_on_blocks_is_that_on_repeated_columns(rng):
    kernel = ConstantKernel(2.0) * RBF([1.0, 2.0, 3.0]) + Columns(Columns(Matern([0.5, 0.7]), [1, 0]) ** 2, [2, 0])
    blocks = [np.array([3, 0]), np.array([1]), np.array([2, 4, 5])]
    found, X = on_blocks(kernel, blocks), rng.normal(size=(7, 6))
    hand = ConstantKernel(2.0) * RBF([1.0, 2.0, 3.0, 1.0, 3.0, 3.0])
    hand += Columns(Matern([0.5, 0.5, 0.7, 0.7, 0.7]), [3, 0, 2, 4, 5]) ** 2
    assert_allclose(found(X), hand(X), rtol=1e-13)
    assert kernel.k1.k2.length_scale == [1.0, 2.0, 3.0]


# -- the life of a model --------------------------------------------------------------------


@each_estimator
def test_a_model_of_a_frame_is_saved_and_loaded(estimator, fitted, tmp_path):
    model, file = fitted[estimator], io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    skops = pytest.importorskip("skops.io")
    skops.dump(model, tmp_path / "model.skops")
    loaded = [pickle.loads(pickle.dumps(model)), joblib.load(file), copy.deepcopy(model)]
    loaded.append(skops.load(tmp_path / "model.skops", trusted=trusted_types()))
    for each in loaded:
        assert_array_equal(distributions(each, NEW), distributions(model, NEW))
        assert_array_equal(each.feature_importances_, model.feature_importances_)
        assert each.encoding_.names == model.encoding_.names


@pytest.mark.parametrize("given", [pd.DataFrame, in_polars, in_pyarrow], ids=["pandas", "polars", "pyarrow"])
def test_columns_in_another_order_are_refused(given):
    frame = given(FRAME)
    model = NGDSVGPRegressor(**FAST).fit(frame, Y)
    assert model.feature_names_in_.tolist() == list(FRAME.columns)
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        model.predict(given(FRAME[list(FRAME.columns)[::-1]]))


@pytest.mark.slow
@first_of_all_the_regressor
def test_streams_and_warm_starts_keep_the_encoding(estimator):
    y = TARGETS[estimator]
    model = estimator(**FAST, n_inducing=30, max_iter=20, warm_start=True).fit(FRAME, y)
    names = model.encoding_.names
    with pytest.warns(UserWarning, match="'city' holds Paris"):
        model.fit(FRAME.assign(city="Paris"), y)
    with pytest.warns(UserWarning, match="'code' holds 99"):
        model.partial_fit(FRAME.assign(code=99), y)
    assert model.encoding_.names == names
    assert distributions(model, NEW) is not None
    stream = estimator(**FAST, n_inducing=30, max_iter=20)
    stream.partial_fit(FRAME[:100], y[:100]).partial_fit(FRAME[100:], y[100:])
    assert stream.score(FRAME, y) > 0.4
    with pytest.raises(ValueError, match="max_categories=5, and the previous fit had max_categories=500"):
        model.set_params(max_categories=5).fit(FRAME, y)


@pytest.mark.slow
def test_cross_validation_and_a_mean_function(fitted):
    found = cross_val_predict(NGDSVGPRegressor(**FAST), FRAME, Y, cv=3)
    assert np.corrcoef(found, Y)[0, 1] > 0.8
    model = NGDSVGPRegressor(mean_function="linear", **GIVEN).fit(FRAME, Y)
    hand = by_hand(NGDSVGPRegressor(mean_function="linear", **GIVEN)).fit(FRAME[IS_COMPLETE], Y[IS_COMPLETE])
    new = NEW[IS_NEW_COMPLETE]
    assert_allclose(model.predict(new), hand.predict(new), rtol=0.0, atol=1e-5)
    assert model.predict_gradient(new).shape == (len(new), 5)


@pytest.mark.slow
def test_long_tables(monkeypatch, tmp_path):
    """A long frame is encoded in memory; a long file with categories is refused, and predictions read files."""
    options = {**FAST, "n_inducing": 20, "max_iter": 10}
    short = NGDSVGPRegressor(solver="ngd", batch_size=None, **options).fit(FRAME, Y)
    codes = np.column_stack([FRAME.age, FRAME.code.astype(float)])
    file = np.memmap(tmp_path / "codes", dtype=float, mode="w+", shape=codes.shape)
    file[:] = codes
    named = NGDSVGPRegressor(categorical_features=[1], **options).fit(file, Y)
    assert_array_equal(named.predict(file), named.predict(codes))
    monkeypatch.setattr(rows, "WINDOW_ROWS", 100)
    long = NGDSVGPRegressor(solver="ngd", batch_size=None, **options).fit(FRAME, Y)
    assert_allclose(long.predict(NEW), short.predict(NEW), atol=1e-6)
    with pytest.raises(ValueError, match=r"X has 150 rows, which are read by blocks: .*categorical_features=\[1\]"):
        NGDSVGPRegressor(categorical_features=[1], **options).fit(file, Y)
    with pytest.raises(ValueError, match=r"missing_inputs='allow'.* Encode it beforehand"):
        NGDSVGPRegressor(missing_inputs="allow", **options).fit(file, Y)
    with pytest.raises(ValueError, match="X has 150 rows, which are read by blocks"):
        named.partial_fit(file, Y)


@pytest.mark.parametrize("scaling", [True, "quantile"])
def test_the_levels_of_long_frames_keep_equal_distances(scaling, monkeypatch):
    options = {"n_inducing": 5, "max_iter": 2, "batch_size": 50, "solver": "ngd", "normalize_X": scaling}
    frame = pd.DataFrame({"x": np.arange(150.0), "letter": np.repeat(["a", "b", "c"], [100, 40, 10])})
    short = NGDSVGPRegressor(RBF(), random_state=0, **options).fit(frame, Y)._x_scale
    monkeypatch.setattr(rows, "WINDOW_ROWS", 100)
    long = NGDSVGPRegressor(RBF(), random_state=0, **options).fit(frame, Y)._x_scale
    table = np.column_stack([np.zeros(3), np.eye(3), np.zeros((3, 3))])
    assert_allclose(long.forward(table), short.forward(table), rtol=1e-12)


# -- sparse tables and tags -----------------------------------------------------------------


@pytest.mark.slow
def test_a_frame_with_sparse_columns():
    one_hot = OneHotEncoder().fit_transform(FRAME[["code"]])
    frame = pd.DataFrame.sparse.from_spmatrix(one_hot, columns=list("abc"))
    dense = NGDSVGPRegressor(**FAST).fit(one_hot.toarray(), Y)
    assert_array_equal(NGDSVGPRegressor(**FAST).fit(one_hot, Y).predict(one_hot), dense.predict(one_hot.toarray()))
    for given in (frame, frame.assign(c=frame.c.sparse.to_dense())):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "pandas.DataFrame with sparse")
            assert_array_equal(NGDSVGPRegressor(**FAST).fit(given, Y).predict(given), dense.predict(one_hot.toarray()))
    # A matrix whose rows have categories.
    codes = sparse.csr_array(FRAME.code.astype(float).to_numpy()[:, None])
    assert len(NGDSVGPRegressor(categorical_features=[0], **FAST).fit(codes, Y).encoding_.names) == 6


def test_a_sparse_table_is_made_dense_up_to_the_bound(monkeypatch):
    X = sparse.csr_array(np.eye(60))
    monkeypatch.setattr(inputs, "_MOST_DENSE", X.shape[0] * X.shape[1] * 8)
    model = NGDSVGPRegressor(**FAST).fit(X, Y[:60])
    monkeypatch.setattr(inputs, "_MOST_DENSE", X.shape[0] * X.shape[1] * 8 - 1)
    for call in (lambda: model.predict(X), lambda: clone(model).fit(X, Y[:60])):
        with pytest.raises(TypeError, match="X is sparse, but NGDSVGPRegressor"):
            call()


def test_tags_say_what_is_taken():
    tags = get_tags(NGDSVGPRegressor()).input_tags
    assert (tags.allow_nan, tags.sparse, tags.categorical) == (False, True, True)
    tags = get_tags(NGDSVGPClassifier(missing_inputs="allow", categorical_features=None)).input_tags
    assert (tags.allow_nan, tags.sparse, tags.categorical) == (True, True, False)


# Those that the tags change.
OF_TAGS = {
    "check_estimators_pickle",
    "check_estimators_nan_inf",
    "check_estimator_sparse_tag",
    "check_positive_only_tag_during_fit",
    "check_fit_idempotent",
}
CHECKS = [
    (estimator, check.func.__name__, check)
    for estimator in TARGETS
    for _, check in estimator_checks_generator(
        estimator(1.0 * RBF(), missing_inputs="allow", categorical_features=None, n_inducing=10, max_iter=20)
    )
    if check.func.__name__ in OF_TAGS and "readonly_memmap" not in check.keywords
]


@pytest.mark.parametrize(
    ("estimator", "check"),
    [
        pytest.param(
            *(each, check),
            id=f"{each.__name__}-{name}",
            marks=pytest.mark.slow if each is NGDSVGPClassifier else (),
        )
        for each, name, check in CHECKS
    ],
)
def test_scikit_learns_checks_with_missing_values(estimator, check):
    options = {"missing_inputs": "allow", "categorical_features": None, "n_inducing": 10, "max_iter": 20}
    check(estimator(1.0 * RBF(), **options))


@pytest.mark.parametrize("kind", [str, object, bytes])
def test_an_array_of_numeric_strings_is_refused(kind):
    X = np.array([["1.5"], ["2"], ["3"]] * 5).astype(kind)
    with pytest.raises(
        ValueError, match=r"X holds strings that look like numbers, such as .*1\.5.*categorical_features"
    ):
        NGDSVGPRegressor().fit(X, np.arange(15.0))
    model = NGDSVGPRegressor(1.0 * RBF(1.0)).fit(X.astype(float), 0.1 * np.arange(15.0))
    with pytest.raises(ValueError, match="X holds strings"):
        model.predict(X)
    with pytest.raises(ValueError, match="column 'x' holds strings that look like numbers"):
        model.predict(pd.DataFrame(X.astype(str), columns=["x"]))


@pytest.mark.parametrize(
    ("X", "categories"),
    [
        (pd.DataFrame({"a": pd.Series([1, "2", 3.0] * 5, dtype=object)}), "from_dtype"),
        (np.array([["x", "1.5"], ["y", "2"], ["z", "3"]] * 5, dtype=object), [0]),
        ([["1.5"], ["2"], ["3"]] * 5, "from_dtype"),
    ],
    ids=["beside numbers", "beside categories", "in lists"],
)
def test_numeric_strings_are_refused_wherever_they_are(X, categories):
    with pytest.raises(ValueError, match="strings that look like numbers"):
        NGDSVGPRegressor(categorical_features=categories).fit(X, np.arange(15.0))


@pytest.mark.slow
def test_a_warning_of_new_levels_names_the_callers_line():
    X = pd.DataFrame({"a": np.linspace(0.0, 3.0, 30), "b": ["x", "y", "z"] * 10})
    model = NGDSVGPRegressor(1.0 * RBF(1.0), optimizer=None).fit(X, np.sin(X["a"]))
    for predict in (model.predict, model.predict_interval):
        with pytest.warns(UserWarning, match="which is no level of the fit") as told:
            predict(X.assign(**{"b": "new", "a": np.nan} if predict == model.predict_interval else {"b": "new"}))
        assert told[0].filename == __file__


def test_infinity_is_no_level_and_a_date_names_its_column():
    X = pd.DataFrame({"a": np.linspace(0.0, 1.0, 20), "b": [1.0, np.inf] * 10})
    with pytest.raises(ValueError, match="column 1 of categories holds infinity"):
        NGDSVGPRegressor(categorical_features=["b"]).fit(X, X["a"])
    with pytest.raises(ValueError, match="in column 'day', whose numbers have no unit"):
        NGDSVGPRegressor().fit(X.assign(day=pd.Timestamp("2020-01-01")), X["a"])


def test_labels_and_weights_in_files_go_with_a_long_frame_in_memory(tmp_path, monkeypatch):
    """As arrays do; rows of a missing value are left out."""
    monkeypatch.setattr(rows, "WINDOW_ROWS", 20)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(48, 2)), columns=["a", "b"])
    frame.iloc[3, 1] = np.nan
    labels, weight = np.arange(48) % 3, rng.uniform(0.5, 1.0, 48)
    files = []
    for name, values in (("labels", labels), ("weight", weight)):
        np.save(tmp_path / f"{name}.npy", values)
        files.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
    arguments = {"kernel": RBF(), "optimizer": None, "random_state": 0}
    found = []
    for y, of_rows in ((labels, weight), files):
        model = NGDSVGPClassifier(**arguments).fit(frame, y, of_rows)
        found.append(model.predict_proba(frame))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
