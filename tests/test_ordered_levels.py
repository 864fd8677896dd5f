"""Labels that are levels in an order: which one is taken, and that every method keeps it."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, trusted_types
from skgp_natgrad._backend import rows
from skgp_natgrad.estimators.rows import class_labels
from skgp_natgrad.estimators.rows.class_labels import ordered_by_type
from skgp_natgrad.likelihoods import Ordinal
from skgp_natgrad.metrics import calibration_scorer, expected_calibration_error, nlpd_scorer

pytestmark = pytest.mark.filterwarnings("error::UserWarning", "ignore::sklearn.exceptions.ConvergenceWarning")
# Neither this order nor its reverse is that of the alphabet.
LEVELS = ["low", "mid", "high"]
N = 60
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 1))
# Each level has a third of the rows: without one of them, and without a fold, tables of one shape share their programs.
CODES = (rankdata(X[:, 0] + 0.3 * RNG.normal(size=N)).astype(int) - 1) // (N // 3)
FOLDS = KFold(3, shuffle=True, random_state=0)
STRINGS = np.array(LEVELS)[CODES]
ORDERED = pd.Series(pd.Categorical.from_codes(CODES, LEVELS, ordered=True))


def classifier(likelihood="ordinal", **settings):
    return NGDSVGPClassifier(
        RBF(), likelihood=likelihood, **{"n_inducing": 6, "max_iter": 30, "random_state": 0, **settings}
    )


def stated(**settings):
    return classifier(Ordinal(levels=LEVELS), **settings)


def encoded(model, y, rows=slice(None), classes=None, streams=False):
    """The classes, and the positions of the labels among them, that a fit would take; nothing is fitted."""
    targets = model._rows_of(X[rows], y, None, streams, classes)[2]
    return targets.attributes["classes_"].tolist(), targets.columns[:, 0]


@pytest.fixture(scope="module")
def by_codes():
    """The fit to the numbers of the levels, which is what all others must be."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return classifier().fit(X, CODES)


@pytest.fixture(scope="module")
def by_type():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return classifier().fit(X, ORDERED)


def enum_of_polars():
    polars = pytest.importorskip("polars", reason="polars is not installed: it comes with the test extra")
    return polars.Series(STRINGS, dtype=polars.Enum(LEVELS))


# -- the order that is taken -------------------------------------------------------------------


KINDS = {
    "series": lambda: ORDERED,
    "categorical": lambda: ORDERED.array,
    "index": lambda: pd.CategoricalIndex(ORDERED),
    "enum": enum_of_polars,
    "numbers": lambda: ORDERED.cat.rename_categories([5, 0, 3]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_a_type_is_taken(kind):
    classes, position = encoded(classifier(), KINDS[kind]())
    assert classes == ([5, 0, 3] if kind == "numbers" else LEVELS)
    assert_array_equal(position, CODES)


@pytest.mark.slow
def test_the_order_of_a_type_gives_the_log_loss_of_numbers(by_codes, by_type):
    assert by_type.classes_.tolist() == LEVELS
    assert log_loss(CODES, by_type.predict_proba(X)) == log_loss(CODES, by_codes.predict_proba(X))
    # Of the order of the alphabet it is not even near.
    with pytest.warns(UserWarning, match="'high' < 'low' < 'mid'") as found:
        sorted_by_name = classifier().fit(X, STRINGS)
    assert [each.filename for each in found if each.category is UserWarning] == [__file__]
    assert log_loss(STRINGS, sorted_by_name.predict_proba(X)) > log_loss(CODES, by_type.predict_proba(X)) + 0.1


@pytest.mark.parametrize("y", [STRINGS, list(STRINGS), STRINGS.astype(object), pd.Series(STRINGS, dtype="string")])
def test_the_order_of_strings_is_stated_by_the_likelihood(y):
    classes, position = encoded(stated(), y)
    assert classes == LEVELS
    assert_array_equal(position, CODES)


@pytest.mark.slow
def test_a_stated_order_gives_the_bits_of_numbers(by_codes):
    assert_array_equal(stated().fit(X, STRINGS).predict_proba(X), by_codes.predict_proba(X))


def test_the_likelihood_decides_before_the_type():
    backwards = LEVELS[::-1]
    y = pd.Series(pd.Categorical(STRINGS, categories=backwards, ordered=True))
    assert encoded(classifier(), y)[0] == backwards
    assert encoded(stated(), y)[0] == LEVELS
    assert encoded(stated().set_params(likelihood__levels=backwards), ORDERED)[0] == backwards


@pytest.mark.parametrize(
    "y",
    [
        STRINGS,
        STRINGS.astype(object),
        pd.Series(STRINGS),
        pd.Series(STRINGS, dtype="string"),
        pd.Series(pd.Categorical(STRINGS, categories=LEVELS)),
    ],
    ids=["array", "objects", "series", "string type", "unordered"],
)
def test_strings_without_a_stated_order_warn_of_the_one_that_is_taken(y):
    with pytest.warns(UserWarning, match=r"'high' < 'low' < 'mid'.*Ordinal\(levels=\[\.\.\.\]\)"):
        classes, position = encoded(classifier(), y)
    assert classes == sorted(LEVELS)
    assert_array_equal(position, np.searchsorted(classes, STRINGS))


def test_a_categorical_of_polars_has_no_order():
    polars = pytest.importorskip("polars", reason="polars is not installed: it comes with the test extra")
    with pytest.warns(UserWarning, match="'high' < 'low' < 'mid'"):
        encoded(classifier(), polars.Series(STRINGS, dtype=polars.Categorical))


@pytest.mark.parametrize("y", [CODES, CODES > 0, CODES.astype(float), pd.Series(CODES, dtype="category")])
def test_numbers_have_their_own_order_without_a_warning(y):
    assert encoded(classifier(), y)[0] == np.unique(y).tolist()


@pytest.mark.parametrize("likelihood", ["softmax", "auto", "robust_max", "bernoulli"])
def test_other_likelihoods_sort_their_labels(likelihood):
    for y in (ORDERED, STRINGS):
        classes, position = encoded(classifier(likelihood), y)
        assert classes == sorted(LEVELS)
        assert_array_equal(position, np.searchsorted(classes, STRINGS))
        assert encoded(classifier(likelihood), y, classes=LEVELS, streams=True)[0] == sorted(LEVELS)


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ("low mid high", r"levels=\['low mid high'\] must be labels"),
        (["low", "mid", None], "levels=.*must be labels"),
        (["low", "mid", "low"], "two or more levels, each once"),
        (["low"], "two or more"),
        (["low", "mid"], r"\['high'\], which are not among the levels \['low', 'mid'\].*name all levels"),
        ([0, 1, 2], r"\['high', 'low', 'mid'\], which are not among the levels \[0, 1, 2\]"),
    ],
)
def test_levels_that_do_not_fit_are_refused(levels, message):
    with pytest.raises(ValueError, match=message):
        classifier(Ordinal(levels=levels)).fit(X, STRINGS)


def test_levels_of_a_regressor_are_refused():
    with pytest.raises(ValueError, match=r"Ordinal\(levels=.*labels of NGDSVGPClassifier.*n_levels"):
        NGDSVGPRegressor(RBF(), likelihood=Ordinal(levels=[0, 1, 2])).fit(X, CODES)


def test_the_number_of_levels_is_that_of_the_stated_ones():
    with pytest.raises(ValueError, match=r"n_levels=4.*y has 3 classes"):
        classifier(Ordinal(levels=LEVELS, n_levels=4)).fit(X, STRINGS)


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        (ORDERED, LEVELS),
        (ORDERED.to_frame(), LEVELS),
        (pd.Series(STRINGS, dtype="category"), None),
        (pd.DataFrame({"a": ORDERED, "b": ORDERED}), None),
        (CODES, None),
        (list(STRINGS), None),
        (None, None),
    ],
)
def test_the_order_of_a_type(y, expected):
    assert ordered_by_type(y) == expected


# -- levels without a row ------------------------------------------------------------------------


@pytest.mark.parametrize("absent", LEVELS)
def test_a_level_that_y_lacks_stays_a_class_in_its_place(absent):
    seen = LEVELS.index(absent) != CODES
    for model, y in ((classifier(), ORDERED), (stated(), STRINGS)):
        classes, position = encoded(model, y[seen], seen)
        assert classes == LEVELS
        assert_array_equal(position, CODES[seen])


@pytest.mark.slow
def test_folds_without_a_level_are_scored():
    order = np.argsort(CODES, kind="stable")
    # Each fold is a level of its own.
    folds = [(np.setdiff1d(order, fold), fold) for fold in np.split(order, 3)]
    assert all(not set(CODES[train]) & set(CODES[test]) for train, test in folds)
    by_type, by_levels, by_numbers = (
        cross_val_score(model, X, y, cv=folds, scoring=nlpd_scorer, error_score="raise")
        for model, y in ((classifier(), ORDERED), (stated(), STRINGS), (classifier(Ordinal(levels=[0, 1, 2])), CODES))
    )
    assert_array_equal(by_type, by_numbers)
    assert_array_equal(by_levels, by_numbers)
    # Improbable, but not impossible: it is a class.
    assert by_type.min() > -100.0


# -- what keeps the order ---------------------------------------------------------------------------


def test_every_prediction_is_that_of_numbers(by_codes, by_type):
    names = np.array(LEVELS)
    assert_array_equal(by_type.predict(X), names[by_codes.predict(X)])
    assert_array_equal(by_type.sample_y(X, 5), names[by_codes.sample_y(X, 5)])
    for method in ("predict_proba", "predict_log_proba", "decision_function", "predict_latent"):
        assert_array_equal(getattr(by_type, method)(X), getattr(by_codes, method)(X))
    assert by_type.score(X, ORDERED) == by_type.score(X, STRINGS) == by_codes.score(X, CODES)
    assert len(set(by_type.predict(X))) == 3


@pytest.mark.slow
def test_decisions_of_two_levels_are_positive_for_the_upper_one():
    levels = ["small", "big"]
    model = classifier(Ordinal(levels=levels)).fit(X, np.where(CODES > 0, "big", "small"))
    assert model.classes_.tolist() == levels
    assert_array_equal(model.predict(X) == "big", model.decision_function(X) > 0)
    assert 0.1 < np.mean(model.decision_function(X) > 0) < 0.9


@pytest.mark.parametrize("weight", ["balanced", {"low": 1.0, "mid": 2.0, "high": 5.0}])
def test_weights_of_classes_follow_the_labels(weight):
    of_codes = weight if isinstance(weight, str) else dict(enumerate(weight.values()))
    # Not all levels as often as each other.
    few = np.flatnonzero(np.arange(N) % 3 >= CODES)
    found, expected = (
        classifier(class_weight=each)._rows_of(X[few], y[few], None, False)[2].weight
        for each, y in ((weight, ORDERED), (of_codes, CODES))
    )
    assert len(set(found)) == 3
    assert_array_equal(found, expected)


def test_balanced_weights_are_those_of_the_levels_that_occur():
    found = class_labels.weights(
        "balanced", np.array(LEVELS), CODES[CODES < 2], np.where(CODES[CODES < 2] == 0, 3.0, 1.0)
    )
    # 80 units of weight, three quarters of them on the first of two levels.
    assert_allclose(found, [80 / 2 / 60, 80 / 2 / 20, 0.0])


@pytest.mark.slow
@pytest.mark.parametrize("save", ["pickle", "skops"])
def test_saved_models_keep_the_order(by_type, save):
    for model in (by_type, stated().fit(X, STRINGS)):
        if save == "pickle":
            loaded = pickle.loads(pickle.dumps(model))
        else:
            skops_io = pytest.importorskip("skops.io", reason="skops is not installed: it comes with the test extra")
            loaded = skops_io.loads(skops_io.dumps(model), trusted=trusted_types())
        assert loaded.classes_.tolist() == LEVELS
        assert_array_equal(loaded.predict(X), model.predict(X))
        assert loaded.likelihood_.levels == model.likelihood_.levels
        assert repr(loaded) == repr(model)
        assert repr(clone(loaded)) == repr(model)


@pytest.mark.slow
def test_a_warm_start_keeps_the_order():
    model = classifier(warm_start=True).fit(X, ORDERED)
    twin = classifier(warm_start=True).fit(X, CODES)
    # Without a word: strings do not state another.
    assert model.fit(X, STRINGS).classes_.tolist() == LEVELS
    assert_array_equal(model.predict_proba(X), twin.fit(X, CODES).predict_proba(X))
    assert model.fit(X, ORDERED).classes_.tolist() == LEVELS
    with pytest.raises(ValueError, match="warm_start=True, but y has the classes"):
        model.fit(X, ORDERED.cat.reorder_categories(LEVELS[::-1], ordered=True))


# -- streams ---------------------------------------------------------------------------------------

FIRST = np.flatnonzero(CODES < 2)


@pytest.mark.parametrize(
    ("likelihood", "y", "classes"),
    [
        (Ordinal(levels=LEVELS), STRINGS, None),
        (Ordinal(levels=LEVELS), STRINGS, sorted(LEVELS)),
        ("ordinal", ORDERED, None),
        ("ordinal", ORDERED, np.unique(STRINGS)),
        ("ordinal", STRINGS, LEVELS),
        ("ordinal", STRINGS, pd.Categorical(sorted(LEVELS), categories=LEVELS, ordered=True)),
    ],
    ids=["levels", "levels and classes", "type", "type and classes", "classes", "type of classes"],
)
def test_the_first_call_of_a_stream_states_the_order(likelihood, y, classes):
    found, position = encoded(classifier(likelihood), y[FIRST], FIRST, classes, streams=True)
    assert found == LEVELS
    assert_array_equal(position, CODES[FIRST])


@pytest.mark.slow
def test_a_stream_keeps_the_order_of_its_first_call():
    model = classifier().partial_fit(X[FIRST], STRINGS[FIRST], classes=LEVELS)
    expected = classifier().partial_fit(X[FIRST], CODES[FIRST], classes=[0, 1, 2])
    assert_array_equal(model.predict_proba(X), expected.predict_proba(X))
    # Later rows need not state it again, and np.unique sorts.
    model.partial_fit(X[FIRST], STRINGS[FIRST], classes=np.unique(STRINGS))
    assert model.classes_.tolist() == LEVELS
    assert_array_equal(model.predict_proba(X), expected.partial_fit(X[FIRST], CODES[FIRST]).predict_proba(X))
    before = model.predict_proba(X)
    backwards = ORDERED.cat.reorder_categories(LEVELS[::-1], ordered=True)
    message = r"have the order \['low', 'mid', 'high'\], but here they have the order \['high', 'mid', 'low'\]"
    for y, classes in ((backwards, None), (STRINGS, LEVELS[::-1])):
        with pytest.raises(ValueError, match=message):
            model.partial_fit(X, y, classes=classes)
    assert_array_equal(model.predict_proba(X), before)
    with pytest.warns(UserWarning, match="'high' < 'low' < 'mid'") as found:
        classifier().partial_fit(X[FIRST], STRINGS[FIRST], classes=np.unique(STRINGS))
    assert [each.filename for each in found if each.category is UserWarning] == [__file__]


def test_a_stream_of_strings_warns_where_its_classes_are_sorted():
    with pytest.warns(UserWarning, match="'high' < 'low' < 'mid'"):
        found, _ = encoded(classifier(), STRINGS[FIRST], FIRST, np.unique(STRINGS), streams=True)
    assert found == sorted(LEVELS)


def test_the_named_classes_of_a_stream_are_all():
    unused = ORDERED.cat.set_categories(["none", *LEVELS])
    assert encoded(classifier(), unused, classes=np.unique(STRINGS), streams=True)[0] == LEVELS
    assert encoded(classifier(), unused, streams=True)[0] == ["none", *LEVELS]
    with pytest.raises(ValueError, match=r"\['top'\], which are not among the levels"):
        encoded(classifier(), ORDERED, classes=[*LEVELS, "top"], streams=True)


# -- scorers and searches ---------------------------------------------------------------------------


@pytest.mark.parametrize("scorer", [nlpd_scorer, calibration_scorer])
def test_scorers_follow_the_classes(by_codes, by_type, scorer):
    assert scorer(by_type, X, ORDERED) == scorer(by_type, X, STRINGS) == scorer(by_codes, X, CODES)


def test_the_scorer_of_the_density_is_the_log_loss(by_type):
    proba = by_type.predict_proba(X)
    assert_allclose(nlpd_scorer(by_type, X, ORDERED), -log_loss(CODES, proba), rtol=1e-12)
    # scikit-learn takes the columns for those of sorted labels, as the guide says.
    assert_allclose(log_loss(STRINGS, proba[:, np.argsort(by_type.classes_)]), log_loss(CODES, proba), rtol=1e-12)
    with pytest.raises(ValueError, match=r"label 'top', which NGDSVGPClassifier was not trained on"):
        nlpd_scorer(by_type, X[:2], ["top", "low"])
    error = expected_calibration_error(STRINGS, proba, labels=by_type.classes_)
    assert error == -calibration_scorer(by_type, X, STRINGS)


@pytest.mark.slow
def test_pipelines_and_searches_keep_the_order(by_codes):
    model = make_pipeline(StandardScaler(), classifier())
    search = GridSearchCV(model, {"ngdsvgpclassifier__max_iter": [30]}, cv=FOLDS, scoring=nlpd_scorer)
    assert search.fit(X, ORDERED).classes_.tolist() == LEVELS
    expected = clone(search).fit(X, CODES)
    assert_array_equal(search.cv_results_["split0_test_score"], expected.cv_results_["split0_test_score"])
    assert search.best_score_ == expected.best_score_
    assert_array_equal(search.predict_proba(X), expected.predict_proba(X))


# -- long tables and several processes ------------------------------------------------------------------


def test_long_tables_keep_the_order(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "BLOCK_ROWS", 16)
    monkeypatch.setattr(rows, "WINDOW_ROWS", 32)
    np.save(tmp_path / "y.npy", STRINGS)
    mapped = np.load(tmp_path / "y.npy", mmap_mode="r")

    def read(model, y):
        targets = model._rows_of(X, y, None, False)[2]
        assert isinstance(targets.columns, rows.Rows)
        found = targets.columns.read(0, N)[:, 0], targets.weight.read(0, N)
        return targets.attributes["classes_"].tolist(), *found

    weight = {"low": 1.0, "mid": 2.0, "high": 5.0}
    for model, y in ((stated(class_weight=weight), mapped), (classifier(class_weight=weight), ORDERED)):
        classes, position, weights = read(model, y)
        assert classes == LEVELS
        assert_array_equal(position, CODES)
        assert_array_equal(weights, np.array([1.0, 2.0, 5.0])[CODES])
    with pytest.warns(UserWarning, match="'high' < 'low' < 'mid'"):
        assert read(classifier(), mapped)[0] == sorted(LEVELS)


@pytest.mark.slow
def test_fits_of_long_tables_keep_the_order(monkeypatch):
    monkeypatch.setattr(rows, "BLOCK_ROWS", 16)
    monkeypatch.setattr(rows, "WINDOW_ROWS", 32)
    found, expected = (classifier(batch_size=8, solver="ngd").fit(X, y) for y in (ORDERED, CODES))
    assert_array_equal(found.predict(X), np.array(LEVELS)[expected.predict(X)])
    assert_array_equal(found.predict_proba(X), expected.predict_proba(X))


def test_processes_state_the_same_order():
    assert class_labels.levels_of_all([LEVELS, LEVELS]) == LEVELS
    assert class_labels.levels_of_all([None, None]) is None
    with pytest.raises(ValueError, match="processes of one fit give different levels"):
        class_labels.levels_of_all([LEVELS, LEVELS[::-1]])
