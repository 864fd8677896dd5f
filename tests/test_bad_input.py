"""What cannot be fitted or predicted: the error says what, where, and what to do."""

import copy
import os
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import LinearRegression

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, predictive_distribution, svgp
from skgp_natgrad._backend import memory
from skgp_natgrad.estimators.predictions import by_blocks
from skgp_natgrad.start import sizes

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
ESTIMATORS = [NGDSVGPRegressor, NGDSVGPClassifier]
each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)
each_bad_number = pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])

X = np.random.default_rng(0).normal(size=(30, 2))
Y = X[:, 0] - X[:, 1]
OPTIONS = {"n_inducing": 5, "max_iter": 20, "random_state": 0}


def targets(estimator):
    return Y if estimator is NGDSVGPRegressor else (Y > 0).astype(float)


def spoiled(table, place, value):
    """A copy of ``table`` with one other value."""
    copy = np.array(table, dtype=object if isinstance(value, str) or value is None else None)
    copy[place] = value
    return copy


@pytest.fixture(scope="module")
def fitted():
    return {each: each(**OPTIONS).fit(X, targets(each)) for each in ESTIMATORS}


# -- values that are no numbers -----------------------------------------------------------


@pytest.mark.slow
@each_estimator
@each_bad_number
def test_the_place_of_a_value_that_is_not_finite_is_named(estimator, bad, fitted):
    y, model = targets(estimator), estimator(**OPTIONS)
    with pytest.raises(ValueError, match=rf"^X\[17, 1\]={bad} is not finite; leave the row out"):
        model.fit(spoiled(X, (17, 1), bad), y)
    with pytest.raises(ValueError, match=rf"^y\[4\]={bad} is not finite"):
        model.fit(X, spoiled(y, 4, bad))
    with pytest.raises(ValueError, match=rf"^sample_weight\[29\]={bad} is not finite"):
        model.fit(X, y, sample_weight=spoiled(np.ones(30), 29, bad))
    with pytest.raises(ValueError, match=rf"^X\[0, 0\]={bad} is not finite"):
        fitted[estimator].predict(spoiled(X, (0, 0), bad))


@pytest.mark.slow
@each_estimator
def test_strings_and_missing_cells_are_named(estimator, fitted):
    y, red = targets(estimator), spoiled(X, (3, 1), "red")
    with pytest.raises(ValueError, match=r"^X\[3, 1\]='red' is not a number; if the column"):
        estimator(**OPTIONS).fit(red, y)
    with pytest.raises(ValueError, match=r"^X\[3, 1\]='red' \(column 'colour'\) is not a number; if the column"):
        estimator(**OPTIONS).fit(pd.DataFrame(red, columns=["size", "colour"]), y)
    with pytest.raises(ValueError, match=r"^X\[3, 1\]=.* is not finite"):
        estimator(**OPTIONS).fit(spoiled(X, (3, 1), None), y)
    with pytest.raises(ValueError, match=r"^sample_weight\[2\]='a' is not a number"):
        estimator(**OPTIONS).fit(X, y, sample_weight=spoiled(np.ones(30), 2, "a"))
    with pytest.raises(ValueError, match=r"^X\[3, 1\]='red'"):
        fitted[estimator].predict(red)


def test_targets_that_are_no_numbers_are_named(fitted):
    model = fitted[NGDSVGPRegressor]
    with pytest.raises(ValueError, match=r"^y\[4\]='a' is not a number"):
        NGDSVGPRegressor(**OPTIONS).fit(X, spoiled(Y, 4, "a"))
    with pytest.raises(ValueError, match=r"^y\[0\]='a' is not a number") as caught:
        NGDSVGPRegressor(**OPTIONS).fit(X, np.full(30, "a"))
    assert str(caught.value).count("y[0]") == 1
    with pytest.raises(ValueError, match=r"^y\[4, 1\]=nan is not finite"):
        NGDSVGPRegressor(**OPTIONS).fit(X, spoiled(np.c_[Y, Y], (4, 1), np.nan))
    with pytest.raises(ValueError, match=r"^y\[4\]=nan is not finite"):
        model.predict_log_density(X, spoiled(Y, 4, np.nan))


def test_labels_may_be_strings_when_something_else_is_wrong():
    labels = np.where(Y > 0, "a", "b")
    with pytest.raises(ValueError, match=r"^X\[1, 0\]=nan"):
        NGDSVGPClassifier().fit(spoiled(X, (1, 0), np.nan), labels)
    with pytest.raises(ValueError, match=r"^Found input variables with inconsistent"):
        NGDSVGPClassifier().fit(X, labels[:-1])
    with pytest.raises(ValueError, match=r"^y\[4\]=None is not finite"):
        NGDSVGPClassifier().fit(X, spoiled(labels, 4, None))


@pytest.mark.parametrize(
    ("label", "message"),
    [(np.datetime64("NaT"), r"^y\[4\]=None is not finite"), (7, "y holds strings and other labels")],
)
def test_labels_of_no_kind_are_refused(label, message):
    labels = np.where(Y > 0, "2025", "2026").astype(object if isinstance(label, int) else "M8[Y]")
    with pytest.raises(ValueError, match=message):
        NGDSVGPClassifier().fit(X, spoiled(labels, 4, label))


def test_a_weight_that_is_no_number_is_named():
    with pytest.raises(ValueError, match="sample_weight contains NaN"):
        NGDSVGPRegressor().fit(X, Y, sample_weight=np.nan)


def test_the_advice_for_missing_values_names_no_other_estimator():
    with pytest.raises(ValueError, match=r"^X\[3, 1\]=nan is not finite; .*missing_inputs='allow'") as caught:
        NGDSVGPRegressor(**OPTIONS).fit(spoiled(X, (3, 1), np.nan), Y)
    assert str(caught.value).endswith("\nInput X contains NaN.")


# -- targets ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("likelihood", "usual", "bad", "remedy"),
    [
        ("poisson", 2.0, -1.0, "leave negative ones out"),
        ("negative_binomial", 2.0, 0.5, "round fractions"),
        ("gamma", 2.0, 0.0, "leave these rows out"),
        ("exponential", 2.0, -1.0, "leave these rows out"),
        ("beta", 0.5, 1.0, "move zeros and ones inside"),
        ("chained_beta", 0.5, 0.0, "move zeros and ones inside"),
        ("ordinal", 1.0, 0.5, "number the levels"),
    ],
)
def test_a_target_that_the_likelihood_cannot_observe(likelihood, usual, bad, remedy):
    model = NGDSVGPRegressor(likelihood=likelihood, **OPTIONS)
    y = spoiled(np.full(30, usual), 4, bad)
    with pytest.raises(ValueError, match=rf"^y\[4\]={bad:g}: .* y must hold .* value {bad:g}; .*{remedy}"):
        model.fit(X, y)
    y[[2, 7]] = bad
    with pytest.raises(ValueError, match=rf"^y\[4, 1\]={bad:g}: .* y must hold"):
        # A row without weight is not checked.
        model.fit(X, np.c_[np.full(30, usual), y], sample_weight=np.arange(30) > 3)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_one_impossible_target_is_named_wherever_others_are():
    # The likelihood sees one output after the other, and there -4 is the first.
    y = np.full((30, 2), 2.0)
    y[4, 1], y[7, 0] = -25.0, -4.0
    with pytest.raises(ValueError, match=r"^y\[4, 1\]=-25: .* has the value -25; "):
        NGDSVGPRegressor(likelihood="poisson", **OPTIONS).fit(X, y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(30), r"needs at least two classes; y has one class with weight, \[0.0\]"),
        (Y, "Unknown label type: continuous"),
        (np.c_[Y > 0, Y < 0], "y should be a 1d array"),
        (None, "requires y to be passed"),
    ],
)
def test_labels_that_are_no_classes(y, message):
    with pytest.raises(ValueError, match=message):
        NGDSVGPClassifier(**OPTIONS).fit(X, y)


# -- weights ------------------------------------------------------------------------------


@each_estimator
@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (spoiled(np.ones(30), 7, -0.5), r"^sample_weight\[7\]=-0.5 is negative \(1 of 30 are\); weights must be"),
        (np.zeros(30), "sample_weight is zero for every row; at least one"),
        (np.ones(29), r"sample_weight.shape == \(29,\)"),
        (np.ones((30, 1)), "must be 1D"),
    ],
)
def test_bad_weights(estimator, weight, message):
    with pytest.raises(ValueError, match=message):
        estimator(**OPTIONS).fit(X, targets(estimator), sample_weight=weight)


# -- shapes -------------------------------------------------------------------------------


@each_estimator
def test_wrong_shapes(estimator, fitted):
    with pytest.raises(ValueError, match=r"X has 1 features, but NGDSVGP.* is expecting 2"):
        fitted[estimator].predict(X[:, :1])
    refused = [
        (X[0], "Expected 2D array, got 1D array"),
        (X[:, :, None], "dim 3"),
        (X[:0], r"0 sample\(s\)"),
        (X + 1j, "Complex data not supported"),
    ]
    for table, message in refused:
        with pytest.raises(ValueError, match=message):
            fitted[estimator].predict(table)
        with pytest.raises(ValueError, match=message):
            estimator(**OPTIONS).fit(table, targets(estimator)[: len(table)])


def test_wrong_shapes_of_targets(fitted):
    for bad, message in ((Y[:3], "inconsistent"), (np.c_[Y, Y], "y has 2 columns, but .* fitted with 1")):
        with pytest.raises(ValueError, match=message):
            fitted[NGDSVGPRegressor].predict_log_density(X, bad)
    with pytest.raises(ValueError, match=r"n_samples=0 must be an int in the range \[1, inf\)"):
        fitted[NGDSVGPRegressor].sample_y(X, 0)


# -- names --------------------------------------------------------------------------------


@each_estimator
def test_the_names_that_are_allowed_are_listed(estimator):
    misspelt = {
        "basis": ("orthogonl", "orthogonal"),
        "solver": ("nqd", "ngd"),
        "inducing_init": ("kmeans", "k-means"),
        "gamma_schedule": ("loglinear", "log_linear"),
        "parameterization": ("naturl", "natural"),
        "optimizer": ("adm", "adam"),
        "device": ("gpus", "gpu"),
        "likelihood": ("ordinl", "ordinal"),
    }
    for argument, (value, meant) in misspelt.items():
        with pytest.raises(ValueError, match=f"{argument}='{value}' must be .*'{meant}'"):
            estimator(**{**OPTIONS, argument: value}).fit(X, targets(estimator))
    with pytest.raises(ValueError, match=r"Invalid parameter 'n_inducin' for .* Valid parameters are: .*'n_inducing'"):
        estimator().set_params(n_inducin=3)


# -- no half-made state -------------------------------------------------------------------


@each_estimator
@pytest.mark.parametrize("warm_start", [False, True])
def test_a_refused_fit_changes_nothing(estimator, warm_start, fitted):
    y, model = targets(estimator), copy.deepcopy(fitted[estimator]).set_params(warm_start=warm_start)
    fresh, before = estimator(**OPTIONS), dict(vars(model))
    frame = pd.DataFrame(spoiled(np.c_[X, X], (1, 1), np.inf), columns=list("abcd"))
    for bad in ((spoiled(X, (1, 1), np.nan), y), (X, spoiled(y, 3, np.inf)), (frame, y), (X, y, np.zeros(30))):
        for each in (model, fresh):
            for learn in (each.fit, each.partial_fit):
                with pytest.raises(ValueError, match=r"is not finite|sample_weight is zero|features"):
                    learn(*bad) if len(bad) < 3 else learn(*bad[:2], sample_weight=bad[2])
        assert vars(model).keys() == before.keys()
        assert all(value is before[name] for name, value in vars(model).items())
        assert vars(fresh).keys() == fresh.get_params().keys()
    assert_array_equal(model.predict(X), fitted[estimator].predict(X))
    with pytest.raises(NotFittedError):
        fresh.predict(X)


@pytest.mark.parametrize("seed", ["a", 2**32, -1, 1.5, True, np.random.default_rng(0)], ids=str)
def test_a_seed_that_is_none_is_refused_wherever_it_is_used(seed, fitted):
    """The mean function is fitted before other arguments are read."""
    X, y = np.linspace(0.0, 1.0, 40)[:, None], np.linspace(0.0, 1.0, 40)
    message = r"random_state=.* must be an int in the range \[0, 4294967295\]"
    for mean_function in (None, LinearRegression()):
        with pytest.raises(ValueError, match=message):
            NGDSVGPRegressor(RBF(), random_state=seed, mean_function=mean_function).fit(X, y)
    with pytest.raises(ValueError, match=message):
        fitted[NGDSVGPRegressor].sample_y(X[:, [0, 0]], random_state=seed)
    with pytest.raises(ValueError, match=message):
        predictive_distribution(fitted[NGDSVGPRegressor], X[:, [0, 0]]).sample(random_state=seed)


def test_many_numbers_as_labels_are_told_before_the_fit():
    """Few rows of each number; of text, of stated levels, and of more rows of each nothing is said."""
    X, y = np.linspace(0.0, 1.0, 120)[:, None], np.arange(120) // 3

    def told(y, **options):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            NGDSVGPClassifier(RBF(), n_inducing=5, max_iter=1, **options).fit(X, y)
        return [str(each.message) for each in caught if "look like a quantity" in str(each.message)]

    (text,) = told(y)
    assert "y has 40 different numbers in 120 rows" in text
    assert "NGDSVGPRegressor" in text
    assert "if they are names, give them as strings" in text
    assert not told(y.astype(str)) + told(y // 2) + told(y, likelihood="ordinal")


@pytest.mark.slow
def test_names_of_columns_are_forgotten_by_the_next_fit():
    model = NGDSVGPRegressor(RBF(), **OPTIONS).fit(pd.DataFrame(X, columns=["a", "b"]), Y)
    assert list(model.feature_names_in_) == ["a", "b"]
    assert not hasattr(model.fit(X, Y), "feature_names_in_")


def test_a_warning_made_an_error_costs_no_model():
    model = NGDSVGPRegressor(RBF(), n_inducing=5, max_iter=3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConvergenceWarning, match="too few iterations"):
            model.fit(X, Y)
    assert model.predict(X).shape == (30,)


# -- masked arrays ------------------------------------------------------------------------


@each_estimator
def test_masked_values_are_refused(estimator, fitted):
    y, model = targets(estimator), estimator(**OPTIONS)
    masked = np.ma.masked_array(X, np.zeros((30, 2), bool))
    masked[7, 1] = masked[9, 0] = np.ma.masked
    with pytest.raises(ValueError, match=r"^X\[7, 1\] is masked \(2 of 60 values are\); leave.*filled"):
        model.fit(masked, y)
    with pytest.raises(ValueError, match=r"^y\[3\] is masked \(1 of 30"):
        model.fit(X, np.ma.masked_array(y, np.arange(30) == 3))
    with pytest.raises(ValueError, match=r"^sample_weight\[0\] is masked"):
        model.fit(X, y, sample_weight=np.ma.masked_array(np.ones(30), np.arange(30) == 0))
    with pytest.raises(ValueError, match=r"^inducing_init\[7, 1\] is masked"):
        model.set_params(inducing_init=masked).fit(X, y)
    with pytest.raises(ValueError, match=r"^X\[7, 1\] is masked"):
        fitted[estimator].predict(masked)
    nothing_masked = np.ma.masked_array(X, np.zeros((30, 2), bool))
    assert_array_equal(fitted[estimator].predict(nothing_masked), fitted[estimator].predict(X))


@pytest.mark.slow
def test_masked_values_beside_a_prediction(fitted):
    """They are refused, or missing targets, in memory and beside an X that is read by slices."""
    model, masked = (
        fitted[NGDSVGPRegressor],
        np.ma.masked_array(np.where(np.arange(30) == 3, 1e6, Y), np.arange(30) == 3),
    )
    sliced = InFile(X)
    for rows in (X, sliced):
        with pytest.raises(ValueError, match=r"^y\[3\] is masked"):
            model.predict_log_density(rows, masked)
        with pytest.raises(ValueError, match=r"^y\[3\] is masked"):
            model.score(rows, masked)
        with pytest.raises(ValueError, match=r"^offset\[3\] is masked"):
            model.predict(rows, offset=masked)
        with pytest.raises(ValueError, match=r"^sample_weight\[3\] is masked"):
            model.score(rows, Y, sample_weight=masked)
    lacking = NGDSVGPRegressor(**OPTIONS, missing_targets="ignore").fit(X, Y)
    seen = np.arange(30) != 3
    for rows in (X, sliced):
        assert lacking.score(rows, masked) == lacking.score(X[seen], Y[seen])
        assert_array_equal(lacking.predict_log_density(rows, masked)[seen], lacking.predict_log_density(X, Y)[seen])
    with pytest.raises(ValueError, match=r"^y\[4\]=inf is not finite; leave the row out"):
        lacking.fit(X, spoiled(Y, 4, np.inf))


class InFile:
    """A table that is read by slices, as an h5py dataset is."""

    def __init__(self, table):
        self._table, self.shape, self.dtype = table, table.shape, table.dtype

    def __len__(self):
        return len(self._table)

    def __getitem__(self, rows):
        return self._table[rows]


# -- dates, and numbers that are none ------------------------------------------------------


@each_estimator
@pytest.mark.parametrize("unit", ["datetime64[s]", "timedelta64[D]"])
def test_dates_are_refused(estimator, unit, fitted):
    """Their numbers are those of a unit, which another table need not have."""
    y, model, dates = targets(estimator), estimator(**OPTIONS), np.arange(60).reshape(30, 2).astype(unit)
    for table in (dates, pd.DataFrame(dates), dates.tolist(), [list(row) for row in dates]):
        with pytest.raises((TypeError, ValueError), match=r"^X"):
            model.fit(table, y)
    for table in (dates, pd.DataFrame(dates), InFile(dates)):
        with pytest.raises(ValueError, match=r"^X has the type .*umbers"):
            fitted[estimator].predict(table)
    with pytest.raises(ValueError, match=r"^sample_weight has the type"):
        model.fit(X, y, sample_weight=dates[:, 0])
    if estimator is NGDSVGPRegressor:
        with pytest.raises(ValueError, match=r"^y has the type"):
            model.fit(X, dates[:, 0])


def test_a_file_of_complex_numbers_is_refused_however_long(fitted, monkeypatch):
    monkeypatch.setattr(by_blocks, "_ROWS", 16)
    with pytest.raises(ValueError, match=r"^X has the type complex128; give numbers"):
        fitted[NGDSVGPRegressor].predict(InFile(X + 1j))


@pytest.mark.slow
def test_labels_that_are_missing_have_a_place():
    y = np.where(Y > 0, "None", "b").astype(object)
    assert list(NGDSVGPClassifier(**OPTIONS).fit(X, y).classes_) == ["None", "b"]
    for missing in (pd.NA, None, pd.NaT, np.nan):
        with pytest.raises((TypeError, ValueError), match=r"^y\[4\]="):
            NGDSVGPClassifier(**OPTIONS).fit(X, spoiled_objects(y, 4, missing))
    for classes in ([0, 1, np.nan], ["a", 1], [0, 1, None], [0, 1, 0.5], [[0, 1]]):
        with pytest.raises(ValueError, match=r"^classes=.* must be labels"):
            NGDSVGPClassifier(**OPTIONS).partial_fit(X, Y > 0, classes=classes)


def spoiled_objects(table, place, value):
    copy = table.copy()
    copy[place] = value
    return copy


def test_points_in_a_data_frame_have_the_columns_of_X():
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = NGDSVGPRegressor(**{**OPTIONS, "n_inducing": "auto", "inducing_init": frame[:5][["b", "a"]]})
    with pytest.raises(ValueError, match=r"inducing_init has the columns \['b', 'a'\], but X has \['a', 'b'\]"):
        model.fit(frame, Y)
    model.set_params(inducing_init=frame[:5]).fit(frame, Y)


@pytest.mark.slow
def test_targets_whose_squares_are_nothing_are_refused():
    with pytest.raises(ValueError, match="whose variance underflows; rescale y"):
        NGDSVGPRegressor(**OPTIONS).fit(X, Y * 1e-160)
    small = NGDSVGPRegressor(**OPTIONS).fit(X * 1e-160, Y)
    assert small.score(X * 1e-160, Y) == pytest.approx(NGDSVGPRegressor(**OPTIONS).fit(X, Y).score(X, Y), abs=1e-3)


@pytest.mark.parametrize("rate", [0, 0.0, np.float32(0)])
def test_a_learning_rate_of_zero_names_what_it_means(rate):
    with pytest.raises(ValueError, match=r"^learning_rate=.*0.* must be above 0; .*set optimizer=None"):
        NGDSVGPRegressor(learning_rate=rate).fit(X, Y)


# -- fewer rows than points ---------------------------------------------------------------


@pytest.mark.slow
@each_estimator
def test_fewer_rows_than_points_are_told(estimator):
    """Each distinct row stands three times."""
    table, y = np.repeat(X[:4], 3, axis=0), np.repeat([0.0, 1.0, 0.0, 1.0], 3)
    with pytest.warns(UserWarning, match="\nn_inducing=5, but 4 are used: X has too few distinct rows") as caught:
        model = estimator(**OPTIONS).fit(table, y)
    assert sum("n_inducing" in str(warning.message) for warning in caught) == 1
    assert caught[0].filename == __file__
    assert model.inducing_points_.shape == (4, 2)


@pytest.mark.slow
def test_the_default_number_of_points_is_a_limit_and_no_request():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = NGDSVGPClassifier(max_iter=20).fit(X[:9], Y[:9] > 0)
    assert model.inducing_points_.shape == (9, 2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fewer_rows_than_mean_only_points_are_told():
    """The decoupled basis counts a copy of the inducing points among the mean's."""
    for options in ({}, {"basis": "decoupled", "solver": "adam"}):
        model = NGDSVGPRegressor(n_inducing=5, n_mean_inducing=10, max_iter=2, **options)
        with pytest.warns(UserWarning, match="\nn_mean_inducing=10, but 4 are used"):
            model.fit(X[:9], Y[:9])


# -- memory -------------------------------------------------------------------------------


@pytest.fixture
def little_memory(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 2 * memory.GIB)


@pytest.mark.usefixtures("little_memory")
def test_a_covariance_that_does_not_fit_is_refused_at_once(fitted):
    rows = np.zeros((200_000, 2))
    with pytest.raises(MemoryError, match=r"return_cov=True at 200000 rows needs 298 GiB .* 2 GiB are av.* return_std"):
        fitted[NGDSVGPRegressor].predict(rows, return_cov=True)
    for model in fitted.values():
        with pytest.raises(MemoryError, match=r"sample_y of n_samples=1 at 200000 rows needs 1\.49e\+03 GiB .* fewer"):
            model.sample_y(rows)
        with pytest.raises(MemoryError, match=r"n_samples=1000000000 at 30 rows"):
            model.sample_y(X, 1_000_000_000)
    assert fitted[NGDSVGPRegressor].predict(X, return_cov=True)[1].shape == (30, 30)


@pytest.mark.usefixtures("little_memory")
def test_points_that_do_not_fit_are_refused_at_once(rng):
    X = rng.normal(size=(20_000, 2))
    for n_inducing in (None, 15_000):
        with pytest.raises(MemoryError, match=f"n_inducing={n_inducing}, .* GiB .* lower n_inducing"):
            NGDSVGPRegressor(n_inducing=n_inducing, max_iter=1).fit(X, X[:, 0])


def stop(n_iter, model):
    raise AssertionError("it trained")


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"n_inducing": 100, "n_mean_inducing": 15_000, "mean_solver": "exact"},
            r"n_mean_inducing=15000: the solution for the mean needs 10\.2 GiB .*n_mean_inducing to at most (\d+)",
        ),
        (
            {"n_inducing": 9000, "solver": "ngd"},
            r"9000 points here: a training step needs 2\.41 GiB .* lower n_inducing to at most (\d+)",
        ),
        (
            {"n_inducing": 300, "batch_size": 10**6, "max_iter": 5},
            r"batch_size=1000000, 1000000 rows .* a batch needs .*lower batch_size to at most (\d+)",
        ),
        (
            {"n_inducing": 20, "n_mean_inducing": 12_000, "mean_solver": "natural"},
            r"the metric of the mean needs .*lower n_mean_inducing to at most (\d+)",
        ),
        (
            {"n_inducing": 2000, "n_mean_inducing": 12_000, "basis": "solve"},
            r"a training step needs .* lower n_mean_inducing to at most (\d+)",
        ),
        (
            {"n_inducing": 12_000, "solver": "evidence"},
            r"the one step on all rows needs .* n_inducing to at most (\d+)",
        ),
    ],
)
def test_a_stage_that_does_not_fit_is_refused_before_the_first_step(options, message, monkeypatch):
    """And what the message names does fit."""
    X = np.random.default_rng(0).normal(size=(1_500_000 if "batch_size" in options else 20_000, 1))
    model = NGDSVGPRegressor(RBF(), callback=stop, **options)
    with pytest.raises(MemoryError, match=message + r".*2 GiB are available here") as caught:
        model.fit(X, X[:, 0])
    name, most = re.search(r"lower (\w+) to at most (\d+)\. 2 GiB", str(caught.value)).groups()
    plans = []
    monkeypatch.setattr(sizes, "require", lambda plan, table: plans.append((plan, table)) or never_fits())
    for value in (int(most), int(1.01 * int(most)) + 1):
        with pytest.raises(InterruptedError):
            model.set_params(**{name: value}).fit(X, X[:, 0])
    needed = [max(stage.n_bytes for stage in plan.route.stages(plan, table)) for plan, table in plans]
    assert needed[0] <= 2 * memory.GIB < needed[1]


@pytest.mark.usefixtures("little_memory")
def test_further_points_that_do_not_fit_are_refused_before_the_solution(monkeypatch):
    X = np.random.default_rng(0).normal(size=(40_000, 2))
    monkeypatch.setattr(svgp, "complete", never_fits)
    with pytest.raises(
        MemoryError, match=r"n_mean_inducing=40000, .* needs \d\.\d+ GiB of memory; lower n_mean_inducing to 0"
    ):
        NGDSVGPRegressor(RBF(), solver="evidence", n_mean_inducing=40_000).fit(X, X[:, 0])
    model = NGDSVGPClassifier(RBF(), solver="evidence", n_inducing=500, n_mean_inducing=30_000)
    with pytest.raises(MemoryError, match=r"the mean on further points needs .* lower n_mean_inducing") as caught:
        model.fit(X, X[:, 0] > 0.0)
    most = int(re.search(r"to at most (\d+)", str(caught.value)).group(1))
    needed = [sizes.n_bytes_of_further(40_000, 500, each) for each in (most, most + 1)]
    assert needed[0] <= 2 * memory.GIB < needed[1]


@pytest.mark.usefixtures("little_memory")
def test_counts_whose_covariance_with_the_points_does_not_fit_are_refused(monkeypatch):
    X = np.random.default_rng(0).normal(size=(100_001, 1))
    model, refused = NGDSVGPRegressor(RBF(), likelihood="poisson", solver="evidence"), r"all rows .* to at most (\d+)"
    monkeypatch.setattr(svgp, "complete", never_fits)
    with pytest.raises(MemoryError, match=refused) as caught:
        model.set_params(n_inducing=2000).fit(X, np.ones(len(X)))
    most = int(re.search(refused, str(caught.value)).group(1))
    # Filled up to a power of two; what the kernel has returned, and the copy that is whitened.
    assert most == 2 * memory.GIB // (2 * 8 * 2**17)
    with pytest.raises(InterruptedError):
        model.set_params(n_inducing=most).fit(X, np.ones(len(X)))


def never_fits(*arguments, **options):
    raise InterruptedError


def test_many_latent_functions_need_more_memory(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: memory.GIB)
    X, y = np.random.default_rng(0).normal(size=(4000, 2)), np.arange(4000) % 10
    with pytest.raises(MemoryError, match=r"n_inducing=3000, .* a training step needs 2\.68 GiB"):
        NGDSVGPClassifier(RBF(), n_inducing=3000, solver="ngd", callback=stop).fit(X, y)


def test_available_memory_is_the_least_that_the_system_names(tmp_path, monkeypatch):
    known = memory.available()
    assert 2**26 < known < 2**50
    (tmp_path / "meminfo").write_text("MemTotal: 5000 kB\nMemAvailable:    3000 kB\n")
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(memory, "_MEMBERSHIP", tmp_path / "membership")
    assert memory.available() == 3000 * 1024
    inner, old = tmp_path / "groups" / "batch" / "job", tmp_path / "groups" / "memory" / "job"
    for folder in (inner, old):
        folder.mkdir(parents=True)
    (tmp_path / "membership").write_text("4:cpu,memory:/job\n0::/batch/job\n")
    (inner / "memory.max").write_text("max\n")
    assert memory.available() == 3000 * 1024
    # The limit of a group around it counts too, less what is used, which files need not be.
    (inner.parent / "memory.max").write_text("2000000\n")
    (inner.parent / "memory.current").write_text("700000\n")
    assert memory.available() == 1_300_000
    (inner.parent / "memory.stat").write_text("anon 100000\ninactive_file 500000\n")
    assert memory.available() == 1_800_000
    (old / "memory.limit_in_bytes").write_text("1024\n")
    assert memory.available() == 1024
    (old / "memory.usage_in_bytes").write_text("4096\n")
    assert memory.available() == 0
    monkeypatch.setattr(memory, "_unused", lambda: np.inf)
    monkeypatch.setattr(memory, "_MEMBERSHIP", tmp_path / "none")
    monkeypatch.setattr(memory, "_GROUPS", tmp_path / "none")
    assert memory.available() == np.inf
    memory.require(2**80, "anything", "nothing")  # where nothing is known, nothing is refused


@pytest.mark.skipif("SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}), reason="no sysconf")
def test_without_meminfo_all_physical_memory_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "none")
    assert 2**26 < memory._unused() < 2**50


# -- arguments without effect -------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"solver": "adam", "parameterization": "mean_var_sqrt", "gamma_schedule": 0.5}, ["gamma_schedule=0.5"]),
        ({"mean_columns": 3, "mean_solver": "diagonal"}, ["mean_solver='diagonal'", "mean_columns=3"]),
        ({"optimizer": None, "learning_rate": 0.1}, ["learning_rate=0.1"]),
        ({"solver": "lbfgs", "learning_rate": 0.1, "optimizer": "yogi"}, ["optimizer='yogi'", "learning_rate=0.1"]),
        ({"solver": "lbfgs", "parameterization": "mean_var_sqrt"}, ["parameterization='mean_var_sqrt'"]),
        ({"n_inducing": None, "inducing_init": "k-means"}, ["inducing_init='k-means'"]),
        ({"n_inducing": "all", "inducing_init": "random"}, ["inducing_init='random'"]),
        ({"basis": "hybrid"}, ["basis='hybrid'"]),
        ({"basis": "solve"}, ["basis='solve'"]),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_arguments_without_effect_are_named_in_one_warning(options, named):
    X = np.linspace(0, 1, 12)[:, None]
    model = NGDSVGPRegressor(**{"n_inducing": 3, "max_iter": 2, **options})
    with pytest.warns(UserWarning, match="Without effect here") as caught:
        model.fit(X, X[:, 0])
    (warning,) = [one for one in caught if "Without effect" in str(one.message)]
    assert all(name in str(warning.message) for name in named)
    assert str(warning.message).count(" (") == len(named)
    assert warning.filename == __file__


@pytest.mark.slow
def test_calibration_beside_known_noise_is_named():
    X = np.linspace(0, 1, 12)[:, None]
    with pytest.warns(UserWarning, match=r"Without effect here: .*\ncalibrate=True \(alpha says"):
        NGDSVGPRegressor(RBF(), calibrate=True).fit(X, X[:, 0], alpha=np.full(12, 0.01))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"solver": "lbfgs", "likelihood": "student_t", "parameterization": "mean_var_sqrt"},
        {"inducing_init": "k-means"},
        {"basis": "solve", "n_mean_inducing": 3},
        {"basis": "decoupled", "solver": "adam"},
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_arguments_with_an_effect_are_not_named(options):
    X = np.linspace(0, 1, 12)[:, None]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Without effect here")
        NGDSVGPRegressor(n_inducing=3, max_iter=2, **options).fit(X, X[:, 0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "left_out"),
    [
        ({"basis": "hybrid"}, {}),
        ({"basis": "solve"}, {}),
        ({"n_inducing": None, "inducing_init": "k-means"}, {"n_inducing": None}),
        ({"solver": "lbfgs", "parameterization": "mean_var_sqrt"}, {"solver": "lbfgs"}),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore:Without effect here")
def test_what_is_said_to_have_no_effect_has_none(options, left_out):
    X = np.linspace(0, 1, 12)[:, None]
    models = [
        NGDSVGPRegressor(**{"n_inducing": 3, "max_iter": 20, "random_state": 0, **each}).fit(X, np.sin(9 * X[:, 0]))
        for each in (options, left_out)
    ]
    assert_allclose(*(model.predict(X) for model in models), rtol=0, atol=1e-9)
    assert_allclose(*(model.elbo_curve_ for model in models), rtol=1e-9)
