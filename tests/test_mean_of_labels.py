"""Mean functions of classifiers: out-of-fold log probabilities, with a weight that labels choose which neither saw."""

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtri, softmax
from scipy.stats import norm
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from skgp_natgrad import NGDSVGPClassifier
from skgp_natgrad._backend import processes
from skgp_natgrad.estimators.rows import mean_of_labels, out_of_fold
from skgp_natgrad.solve.common_covariance import Rows
from skgp_natgrad.solve.held_out_labels import folds_of

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
KERNEL = ConstantKernel(1.0) * RBF(1.0)
# A process that knows nothing of new rows.
BLIND = ConstantKernel(1.0, "fixed") * RBF(1e-3, "fixed")
FOREST = RandomForestClassifier(50, min_samples_leaf=3, random_state=0)


def corners(n_rows, seed, n_classes=3):
    """Labels that change at thresholds of single columns, one in ten of them drawn at random."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-3.0, 3.0, size=(n_rows, 2))
    labels = (rows[:, 0] > 0.0).astype(int) + (rows[:, 1] > 1.0)
    labels = np.where(rng.random(n_rows) < 0.1, rng.integers(3, size=n_rows), labels)
    return rows, np.array(["left", "none", "right"])[np.minimum(labels, n_classes - 1)]


X, Y = corners(300, 0)
NEW, Y_NEW = corners(500, 1)


def classifier(mean_function, kernel=KERNEL, **options):
    return NGDSVGPClassifier(kernel, mean_function=mean_function, **{"random_state": 0} | options)


def density(model, rows=NEW, labels=Y_NEW):
    return -log_loss(labels, model.predict_proba(rows))


@pytest.fixture(scope="module")
def plain():
    return classifier(None).fit(X, Y)


@pytest.fixture(scope="module")
def pooled():
    return classifier(FOREST).fit(X, Y)


def smoothed(p, n_rows):
    return (n_rows * p + 1.0 / p.shape[1]) / (n_rows + 1.0)


@pytest.mark.slow
def test_the_process_is_that_without_it(plain, pooled):
    """To the bit: only the factors in class probabilities differ, and labels that were left out are more probable."""
    assert pooled.elbo_ == plain.elbo_
    assert_array_equal(pooled.predict_latent(NEW), plain.predict_latent(NEW))
    assert pooled.mean_weight_ > 0.1
    said = f"the mean function has the weight {pooled.mean_weight_:.3g}, the process {pooled.calibration_[0]:.3g}"
    assert said in pooled.plan_
    assert f"chosen: {said}" in repr(pooled.summary())
    assert plain.mean_weight_ == 0.0
    assert density(pooled) > density(plain)
    assert density(pooled) > -log_loss(Y_NEW, pooled.mean_function_.predict_proba(NEW)) - 0.01


def test_probabilities_of_several_classes_are_averages_over_shifted_latent_functions(pooled):
    mean, std = pooled.predict_latent(NEW[:50], return_std=True)
    of_mean, of_deviation = pooled.calibration_
    log_p = np.log(smoothed(clone(FOREST).fit(X, Y).predict_proba(NEW[:50]), len(X)))
    draws = np.random.default_rng(0).standard_normal((20_000, *mean.shape))
    f = of_mean * mean + of_deviation * std * draws + pooled.mean_weight_ * log_p
    assert_allclose(pooled.predict_proba(NEW[:50]), softmax(f, axis=-1).mean(0), atol=0.01)


@pytest.mark.slow
def test_probabilities_of_two_classes_have_a_closed_form():
    found = classifier(GaussianNB()).fit(X, Y == "none")
    mean, std = found.predict_latent(NEW, return_std=True)
    of_mean, of_deviation = found.calibration_
    p = smoothed(GaussianNB().fit(X, Y == "none").predict_proba(NEW), len(X))
    f = of_mean * mean + found.mean_weight_ * np.sqrt(2.0) * ndtri(p[:, 1])
    assert_allclose(found.predict_proba(NEW)[:, 1], norm.cdf(f / np.sqrt(1.0 + (of_deviation * std) ** 2)), rtol=1e-5)


def test_auto_is_trees():
    """Also where a class has one row, of which early stopping could hold out no part."""
    trees = HistGradientBoostingClassifier(early_stopping=False)
    rows, labels = np.vstack([X, [[9.0, 9.0]]]), np.append(Y, "single")
    found, given = (classifier(each).fit(rows, labels) for each in ("auto", trees))
    assert_array_equal(found.predict_proba(NEW), given.predict_proba(NEW))
    assert found.mean_weight_ > 0.1
    assert found.mean_function_.classes_.tolist() == ["left", "none", "right", "single"]
    assert clone(found).mean_function == "auto"


@pytest.mark.slow
def test_a_classifier_that_tells_nothing_has_no_weight(plain):
    found = classifier(DummyClassifier()).fit(X, Y)
    assert found.mean_weight_ == 0.0
    assert found.calibration_ == plain.calibration_
    assert_array_equal(found.predict(NEW), plain.predict(NEW))
    assert_allclose(found.predict_proba(NEW), plain.predict_proba(NEW), rtol=1e-12)


@pytest.mark.slow
def test_a_process_that_tells_nothing_leaves_the_classifier_alone():
    found = classifier(FOREST, BLIND).fit(X, Y)
    assert density(found) > -log_loss(Y_NEW, found.mean_function_.predict_proba(NEW)) - 0.01
    assert density(found) > density(classifier(None, BLIND).fit(X, Y)) + 0.3


@pytest.mark.slow
def test_a_classifier_that_memorises_is_seen_through(plain):
    """At its own rows a fully grown tree is always right."""
    tree = DecisionTreeClassifier(random_state=0)
    found = classifier(tree).fit(X, Y)
    assert found.mean_function_.score(X, Y) == 1.0
    assert density(found) > density(plain) - 0.01


@pytest.mark.parametrize("weighted", [False, True])
def test_latent_values_at_the_rows_are_out_of_fold(weighted):
    """Beside scikit-learn's cross_val_predict; rows of equal X are in one part."""
    rows, labels = np.vstack([X, X[:20]]), np.concatenate([Y, Y[20:40]])
    weight = np.linspace(0.5, 2.0, 320) if weighted else np.ones(320)
    model = classifier(LogisticRegression(), random_state=5)
    part = out_of_fold.parts_of(rows, labels, np.random.RandomState(5))
    assert_array_equal(part[:20], part[300:])
    attributes, values = mean_of_labels.of_fit(model, rows, labels, np.unique(Y), weight, False)
    given = {"params": {"sample_weight": weight}} if weighted else {}
    p = cross_val_predict(LogisticRegression(), rows, labels, cv=PredefinedSplit(part), method="predict_proba", **given)
    log_p = np.log(smoothed(p, 320))
    assert_allclose(values, log_p - log_p.mean(1, keepdims=True), rtol=1e-10)
    all_rows = LogisticRegression().fit(rows, labels, sample_weight=weight)
    assert_allclose(attributes["mean_function_"].coef_, all_rows.coef_, rtol=1e-12)


def test_every_part_has_rows_of_each_label_and_rare_labels_are_in_none():
    labels = np.repeat([0, 1, 2], [200, 7, 4])
    part = out_of_fold.parts_of(np.arange(211.0)[:, None], labels, np.random.RandomState(0))
    assert np.all(part[labels == 2] == -1)
    for label in (0, 1):
        counts = np.bincount(part[labels == label], minlength=5)
        assert counts.min() > 0
        assert np.ptp(counts) <= 1


@pytest.mark.slow
def test_rare_classes_and_rows_without_weight():
    """A class of two rows is too rare to be left out; a class of one is known to the classifier of all rows alone."""
    rows = np.vstack([X, [[9.0, 9.0], [9.1, 9.0], [-9.0, 9.0], [0.0, 0.0]]])
    labels = np.concatenate([Y, ["rare", "rare", "single", "absent"]])
    weight = np.r_[np.ones(303), 0.0]
    found = classifier(FOREST).fit(rows, labels, sample_weight=weight)
    assert found.mean_function_.classes_.tolist() == ["left", "none", "rare", "right", "single"]
    assert found.classes_.tolist() == ["absent", "left", "none", "rare", "right", "single"]
    p = found.predict_proba(np.vstack([NEW, rows]))
    assert np.all(np.isfinite(found.predict_log_proba(NEW)))
    assert_allclose(p.sum(1), 1.0, rtol=1e-6)


@pytest.mark.slow
def test_names_of_labels_and_the_type_of_the_table_do_not_matter(pooled):
    other = dict(zip(["left", "none", "right"], ["z", "a", "m"], strict=True))
    names = pd.Series(Y).map(other).to_numpy()
    found = classifier(FOREST).fit(pd.DataFrame(X, columns=["u", "v"]), names)
    new = pd.DataFrame(NEW, columns=["u", "v"])
    assert_allclose(found.mean_weight_, pooled.mean_weight_, rtol=1e-6)
    assert_allclose(found.predict_proba(new)[:, [2, 0, 1]], pooled.predict_proba(NEW), atol=1e-6)


@pytest.mark.slow
def test_all_predictions_are_of_one_distribution(pooled):
    p = pooled.predict_proba(NEW)
    assert_allclose(np.exp(pooled.predict_log_proba(NEW)), p, rtol=1e-4, atol=1e-6)
    assert_array_equal(pooled.predict(NEW), pooled.classes_[p.argmax(1)])
    assert_allclose(pooled.predict_proba(NEW[:2]), p[:2], rtol=1e-6)
    for joint in (True, False):
        drawn = pooled.sample_y(NEW[:40], 4000, joint=joint)
        shares = np.stack([(drawn == label).mean(1) for label in pooled.classes_], axis=1)
        assert_allclose(shares, p[:40], atol=0.05)


def test_it_is_cloned_saved_and_tuned(pooled):
    loaded = pickle.loads(pickle.dumps(pooled))
    assert_array_equal(loaded.predict_proba(NEW), pooled.predict_proba(NEW))
    assert loaded.mean_weight_ == pooled.mean_weight_
    copy = clone(pooled).set_params(mean_function__n_estimators=7)
    assert copy.get_params()["mean_function__n_estimators"] == 7
    assert pooled.mean_function.n_estimators == 50
    assert not hasattr(pooled.mean_function, "classes_")


@pytest.mark.slow
def test_steps_and_streams_weigh_it_by_labels_without_themselves():
    options = {"solver": "ngd", "n_inducing": 30, "max_iter": 100, "tol": 0.05}
    found, alone = (classifier(each, **options).fit(X, Y) for each in (FOREST, None))
    assert_array_equal(found.predict_latent(NEW), alone.predict_latent(NEW))
    assert found.mean_weight_ > 0.0
    assert density(found) > density(alone)
    stream = classifier(FOREST, **options).partial_fit(X[:150], Y[:150])
    before = stream.mean_function_
    assert stream.partial_fit(X[150:], Y[150:]).mean_function_ is before
    assert before.n_features_in_ == 2
    assert np.all(np.isfinite(stream.predict_proba(NEW)))
    again = classifier(FOREST, warm_start=True, **options).fit(X[:150], Y[:150]).fit(X, Y)
    assert density(again) > density(alone) - 0.02


def log_odds(rows):
    return 3.0 * rows[:, 0]


@pytest.mark.slow
def test_a_function_is_weighed_too():
    labels = corners(300, 0, n_classes=2)[1]
    found = classifier(log_odds, BLIND).fit(X, labels)
    of_mean, of_deviation = found.calibration_
    mean, std = found.predict_latent(NEW, return_std=True)
    f = (of_mean * mean + found.mean_weight_ * log_odds(NEW)) / np.sqrt(1.0 + (of_deviation * std) ** 2)
    assert found.mean_weight_ > 0.0
    assert_allclose(found.predict_proba(NEW)[:, 1], norm.cdf(f), rtol=1e-5)


@pytest.mark.slow
def test_linear_is_a_logistic_regression_in_any_units():
    units = [1e-3, 1e4]
    found = classifier("linear", BLIND).fit(X * units + 5.0, Y)
    expected = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X, Y).predict_proba(NEW)
    assert_allclose(found.mean_function_.predict_proba(NEW * units + 5.0), expected, rtol=1e-6)
    assert density(found, NEW * units + 5.0) > -log_loss(Y_NEW, expected) - 0.01


def one_column_too_few(rows):
    return np.zeros((len(rows), 2))


WRONG = [
    ("trees", {}, "mean_function='trees' must be None, 'auto', 'linear', a function of X, or a classifier"),
    (RandomForestClassifier, {}, "must be None, 'auto', 'linear', a function of X, or a classifier"),
    (3.0, {}, "mean_function=3.0 must be None"),
    (FOREST, {"likelihood": "ordinal"}, "gives probabilities, which likelihood Ordinal does not turn into latent"),
    (FOREST, {"calibrate": False}, "which calibrate=False with objective='elbo' does not have; set calibrate=True"),
    (FOREST, {"objective": "predictive", "n_inducing": 5}, "with objective='predictive' does not have"),
    (one_column_too_few, {}, r"mean_function\(X\) has the shape \(300, 2\)"),
]


@pytest.mark.parametrize(("mean_function", "options", "message"), WRONG, ids=[str(case[2])[:30] for case in WRONG])
@pytest.mark.filterwarnings("ignore:The order of the labels")
def test_wrong_mean_functions_are_refused_by_name(mean_function, options, message):
    with pytest.raises(ValueError, match=message):
        classifier(mean_function, **options).fit(X, Y)


@pytest.mark.slow
def test_what_cannot_be_weighed_rightly_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="takes no sample_weight"):
        classifier(KNeighborsClassifier()).fit(X, Y, sample_weight=np.linspace(0.5, 2.0, 300))
    stream = classifier(FOREST, solver="ngd", n_inducing=10, max_iter=3).partial_fit(X, Y)
    with pytest.raises(ValueError, match="mean_function=GaussianNB"):
        stream.set_params(mean_function=GaussianNB()).partial_fit(X, Y)
    with monkeypatch.context() as patch:
        patch.setattr("skgp_natgrad._backend.rows.WINDOW_ROWS", 16)
        patch.setattr("skgp_natgrad._backend.rows.BLOCK_ROWS", 8)
        with pytest.raises(ValueError, match="needs all rows in the memory of one process, but this table of 300 rows"):
            classifier(FOREST, solver="ngd", n_inducing=5, max_iter=1, batch_size=8).fit(X, Y)
    monkeypatch.setattr(processes, "sharing", lambda n_devices: 2)
    with pytest.raises(ValueError, match="300 rows several processes share"):
        mean_of_labels.of_fit(classifier(FOREST), X, Y, np.unique(Y), np.ones(300), False)


def test_more_labels_are_held_out_for_the_weight_of_a_mean_function():
    """Of many rows three parts without a row in common instead of one, the first the same as without it."""
    labels = np.repeat([0.0, 1.0], 1000)[None]
    rows = Rows(A=None, explained=None, residual=np.zeros(2000), y=labels, weight=np.ones(2000))
    (one,), three = (folds_of(rows, np.random.RandomState(0), n_of_many=n) for n in (1, 3))
    assert_array_equal(three[0].index, one.index)
    index = np.concatenate([part.index for part in three])
    assert len(np.unique(index)) == len(index) == 1200


@pytest.mark.parametrize("mean_function", [pytest.param("linear", marks=pytest.mark.slow), KNeighborsClassifier(1)])
def test_where_all_labels_are_rare_there_is_no_mean_function(mean_function):
    """None of the rows can be predicted by a copy that has not seen it."""
    rows, labels = X[:8], np.arange(8) % 2
    with pytest.warns(UserWarning, match="was not fitted, and is zero: that needs 5 rows of different X"):
        found = classifier(mean_function).fit(rows, labels)
    assert found.mean_function_ is None
    assert_array_equal(found.predict_proba(NEW), classifier(None).fit(rows, labels).predict_proba(NEW))
