"""scikit-learn's callbacks: told of the tasks of a fit, alone, in a pipeline and in a search."""

import copy
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, svgp
from skgp_natgrad.estimators.fitted import attributes
from skgp_natgrad.estimators.fitted.attributes import calibration_of
from skgp_natgrad.estimators.fitting import between_chunks
from skgp_natgrad.training import loop

sklearn_callback = pytest.importorskip("sklearn.callback", reason="scikit-learn has callbacks since 1.9")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=60)
WEIGHT = RNG.uniform(0.5, 2.0, size=60)
OPTIONS = {"n_inducing": 8, "max_iter": 50, "tol": 0.0, "random_state": 0}

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def regressor(**options):
    return NGDSVGPRegressor(1.0 * RBF(), **OPTIONS | options)


class Recorder:
    """A callback that records what it is told, and ends training at a task."""

    def __init__(self, stop_at=None):
        self.stop_at, self.told = stop_at, []

    def setup(self, estimator, context):
        self.told.append(("setup", context.max_subtasks))

    def teardown(self, estimator, context):
        self.told.append(("teardown", None))

    def on_fit_task_begin(self, estimator, context, *, X=None, y=None):
        self.told.append(("begin", context.task_id, X is not None and y is not None))

    def on_fit_task_end(self, estimator, context, *, metadata=None, fitted_estimator=None):
        score = fitted_estimator.score(X, Y)
        self.told.append(("end", context.task_id, context.parent is None, score, metadata))
        return context.parent is not None and context.task_id == self.stop_at

    def of(self, what):
        return [each[1:] for each in self.told if each[0] == what]


@pytest.mark.slow
def test_each_chunk_is_a_task_with_a_fitted_model():
    recorder = Recorder()
    model = regressor().set_callbacks(recorder).fit(X, Y, sample_weight=WEIGHT)
    assert recorder.told[0] == ("setup", 3)
    assert recorder.told[-1] == ("teardown", None)
    assert [each[0] for each in recorder.of("begin")] == [0, 0, 1, 2]
    *chunks, whole = recorder.of("end")
    assert [each[0] for each in chunks] == [0, 1, 2]
    assert not any(each[1] for each in chunks)
    assert whole[1]
    # The last task and the whole end at the same model, and the score rises towards it.
    assert chunks[0][2] < chunks[2][2] == pytest.approx(whole[2], abs=1e-6)
    assert whole[2] == model.score(X, Y)
    assert_array_equal(whole[3]["sample_weight"], WEIGHT)
    plain = regressor().fit(X, Y, sample_weight=WEIGHT)
    assert_array_equal(plain.predict(X), model.predict(X))
    assert not {"_callback_fit_ctx", "_skl_callbacks_to_teardown"} & set(vars(model))


@pytest.mark.slow
def test_a_callback_ends_training():
    model = regressor().set_callbacks(Recorder(stop_at=0)).fit(X, Y)
    assert model.n_iter_ == 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "n_tasks", "n_ended"),
    [
        ({"solver": "evidence", "n_inducing": "auto", "max_iter": "auto", "tol": 1e-3}, 1, 1),
        ({"solver": "lbfgs"}, 50, None),
    ],
    ids=["evidence", "lbfgs"],
)
def test_solvers_without_chunks(options, n_tasks, n_ended):
    recorder = Recorder()
    model = regressor(**options).set_callbacks(recorder).fit(X, Y)
    assert recorder.told[0] == ("setup", n_tasks)
    assert len(recorder.of("end")) - 1 == (model.n_iter_ if n_ended is None else n_ended)


def test_a_failed_fit_is_torn_down_and_changes_nothing(monkeypatch):
    recorder = Recorder()
    model = regressor().set_callbacks(recorder)
    with pytest.raises(ValueError, match="inconsistent"):
        model.fit(X, Y[:5])
    assert recorder.told == []
    before = dict(vars(model))

    def fail(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "_driver", fail)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    assert recorder.told[-1] == ("teardown", None)
    assert vars(model) == before


def test_users_callback_and_scikit_learns_share_a_model(monkeypatch):
    """Both are asked in one list: the posterior is conditioned once for both."""
    seen, recorder = [], Recorder()
    model = regressor(callback=lambda n_iter, model: seen.append((n_iter, model.score(X, Y)))).set_callbacks(recorder)
    model.fit(X, Y)
    assert [n_iter for n_iter, _ in seen] == [20, 40, 50]
    assert [score for _, score in seen] == [each[2] for each in recorder.of("end")[:3]]


@pytest.mark.parametrize("make", [lambda: regressor(), lambda: make_pipeline(StandardScaler(), regressor())])
def test_scoring_monitor_alone_and_in_a_pipeline(make):
    monitor = sklearn_callback.ScoringMonitor(scoring="r2")
    model = make()
    last = model if isinstance(model, NGDSVGPRegressor) else model[-1]
    last.set_callbacks(monitor)
    model.fit(X, Y)
    scores = [row["r2"] for row in monitor.get_logs().data if row["task_name"] == "iterations"]
    assert len(scores) == 3
    assert scores[0] < scores[-1]


def test_scoring_monitor_and_progress_bar_in_a_search(capsys):
    pytest.importorskip("rich")
    monitor, bar = sklearn_callback.ScoringMonitor(scoring="r2"), sklearn_callback.ProgressBar()
    search = GridSearchCV(regressor().set_callbacks(monitor), {"n_inducing": [8]}, cv=2)
    search.set_callbacks(bar).fit(X, Y)
    data = monitor.get_logs().data
    # Two folds and the refit.
    assert len([row for row in data if row["task_name"] == "iterations"]) == 9
    # What listens changes no fit.
    assert search.best_score_ == pytest.approx(cross_val_score(regressor(), X, Y, cv=2).mean(), rel=1e-10)


@pytest.mark.slow
def test_partial_fit_and_the_classifier_tell_too():
    recorder = Recorder()
    model = regressor().set_callbacks(recorder).partial_fit(X[:30], Y[:30]).partial_fit(X[30:], Y[30:])
    assert len(recorder.of("end")) == 8
    monitor = sklearn_callback.ScoringMonitor(scoring="accuracy")
    NGDSVGPClassifier(1.0 * RBF(), **OPTIONS).set_callbacks(monitor).fit(X, Y > 0)
    assert monitor.get_logs().data[-1]["accuracy"] > 0.8
    assert model.n_iter_ == 50


def test_a_fitted_model_is_saved_without_callbacks_and_a_copy_keeps_them():
    model = regressor().set_callbacks(Recorder())
    assert hasattr(pickle.loads(pickle.dumps(model)), "_skl_callbacks")
    model.fit(X, Y)
    assert not hasattr(pickle.loads(pickle.dumps(model)), "_skl_callbacks")
    assert hasattr(copy.deepcopy(model), "_skl_callbacks") or hasattr(copy.copy(model), "_skl_callbacks")
    assert clone(model)._skl_callbacks is model._skl_callbacks


@pytest.mark.slow
def test_warnings_point_to_the_call_of_fit():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        regressor(gamma_schedule=0.1, solver="lbfgs", max_iter=2).fit(X, Y)
    assert len(caught) >= 2
    assert {each.filename for each in caught} == {__file__}


def test_without_scikit_learns_callbacks_methods_stay_as_they_are():
    """Older versions of scikit-learn: there is nothing to be told."""
    idle = between_chunks.Hooks(object(), X, Y)
    idle.start(None)
    idle.begin()
    assert idle.end(None) is False
    idle.finish(None)
    assert idle.root is None


def test_a_score_is_told_of_weights_and_offsets():
    given = between_chunks.Hooks(object(), X, Y, sample_weight=None, offset=Y).given
    assert list(given["metadata"]) == ["offset"]
    assert between_chunks.Hooks(object(), X, Y, sample_weight=None, offset=None).given["metadata"] is None


@pytest.mark.parametrize("stop", [True, np.True_])
def test_a_callback_ends_training_by_any_truth(stop):
    assert regressor(callback=lambda n_iter, model: stop).fit(X, Y).n_iter_ == 20
    assert regressor(callback=lambda n_iter, model: 1).fit(X, Y).n_iter_ == 50


@pytest.mark.slow
def test_class_probabilities_are_calibrated_for_callbacks_that_ask(monkeypatch):
    """None for one that does not look; for others as if training had ended there; the fit is the same for all."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(1300, 2))  # of which a thousand are drawn
    labels = (rows[:, 0] + 0.5 * rng.normal(size=len(rows)) > 0).astype(int)

    def classifier(**options):
        return NGDSVGPClassifier(400.0 * RBF(0.3), optimizer=None, **OPTIONS | {"batch_size": 100} | options)

    counted, original = [], svgp.calibrated
    monkeypatch.setattr(svgp, "calibrated", lambda *arguments: counted.append(1) or original(*arguments))
    without = classifier().fit(rows, labels).predict_proba(rows)
    assert len(counted) == 1
    assert_array_equal(classifier(callback=lambda n_iter, model: None).fit(rows, labels).predict_proba(rows), without)
    assert len(counted) == 2

    kept = {}
    last = classifier(callback=lambda n_iter, model: kept.update({n_iter: (model, model.predict_proba(rows))}))
    assert_array_equal(last.fit(rows, labels).predict_proba(rows), without)
    model, probabilities = kept[20]
    assert model.calibration_ != (1.0, 1.0)
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(rows), probabilities)
    ended = classifier(callback=lambda n_iter, model: n_iter == 20).fit(rows, labels)
    assert_array_equal(ended.predict_proba(rows), probabilities)


def test_a_calibration_that_is_asked_for_later_is_one(monkeypatch):
    """By several threads, after an interrupt, and of copies."""
    calls = []

    def calibrated(model, rows, random_state, device):
        calls.append(rows)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return SimpleNamespace(calibration=svgp.Calibration(random_state.rand())), None

    monkeypatch.setattr(svgp, "calibrated", calibrated)
    state = {"_calibration": attributes._later(None, np.zeros(3), np.random.RandomState(0), "cpu")}
    with pytest.raises(KeyboardInterrupt):
        calibration_of(state)
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(calibration_of, [state, copy.deepcopy(state)] * 4))
    assert found == {svgp.Calibration(np.random.RandomState(0).rand())}
    n_calls = len(calls)
    assert calibration_of(copy.deepcopy(state)) in found
    assert len(calls) == n_calls
