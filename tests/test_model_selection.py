"""Searches: the scores of scikit-learn's, fits in threads, and candidates that are stopped."""

import threading
import warnings

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.exceptions import FitFailedWarning
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, ShuffleSplit, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, likelihoods
from skgp_natgrad.model_selection import NGDGridSearchCV, NGDRandomizedSearchCV, _halving
from skgp_natgrad.model_selection._rungs import Rung
from skgp_natgrad.step import chunk

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore:Without effect", "ignore:.*bound"
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 2))
Y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=90)
WEIGHT = RNG.uniform(0.5, 2.0, size=90)
OPTIONS = {"solver": "ngd", "n_inducing": 8, "max_iter": 40, "random_state": 0}
LENGTH_SCALES = {"kernel__length_scale": [0.05, 0.5, 1.0, 20.0]}


def regressor(**options):
    return NGDSVGPRegressor(RBF(), **OPTIONS | options)


def classifier(**options):
    return NGDSVGPClassifier(RBF(), **OPTIONS | options)


def same_results(found, expected, rtol=1e-9):
    """All scores, ranks and parameters of two searches; not their times."""
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        if "_time" in name:
            continue
        if name.startswith(("split", "mean", "std")):
            assert_allclose(found[name], values, rtol=rtol, atol=1e-12, err_msg=name)
        else:
            assert_array_equal(found[name], values, err_msg=name)


def both(model, grid, y=Y, fit=None, **options):
    """Our search and scikit-learn's after the same call."""
    return [
        search(model, grid, cv=3, error_score="raise", **options).fit(X, y, **fit or {})
        for search in (NGDGridSearchCV, GridSearchCV)
    ]


# -- the scores of scikit-learn's search --------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "y"),
    [(regressor(), Y), (regressor(batch_size=25), Y), (classifier(), Y > 0), (classifier(batch_size=25), Y > 0)],
    ids=["regressor", "regressor on minibatches", "classifier", "classifier on minibatches"],
)
def test_scores_are_those_of_scikit_learn(model, y):
    ours, theirs = both(model, {"gamma_schedule": [0.1, 0.5], "kernel__length_scale": [0.5, 2.0]}, y)
    same_results(ours.cv_results_, theirs.cv_results_)
    assert ours.best_params_ == theirs.best_params_
    assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-9)


@pytest.mark.slow
def test_candidates_of_several_structures_with_several_scores_and_weights():
    grid = [
        {"n_inducing": [5, 8], "learning_rate": [0.01, 0.1]},
        {"jitter": [1e-8, 1e-6], "likelihood": ["gaussian", "student_t"]},
        {"solver": ["lbfgs", "evidence"]},
    ]
    scoring = {"r2": "r2", "error": "neg_mean_absolute_error"}
    options = {"scoring": scoring, "refit": "error", "return_train_score": True}
    ours, theirs = both(regressor(), grid, fit={"sample_weight": WEIGHT}, **options)
    same_results(ours.cv_results_, theirs.cv_results_)
    assert ours.best_index_ == theirs.best_index_
    assert ours.score(X, Y) == pytest.approx(theirs.score(X, Y), rel=1e-9)


@pytest.mark.slow
def test_metadata_are_routed():
    request = {"sample_weight": True, "offset": True}
    with config_context(enable_metadata_routing=True):
        model = regressor().set_fit_request(**request).set_score_request(**request)
        ours, theirs = both(model, {"gamma_schedule": [0.1, 0.5]}, fit={"sample_weight": WEIGHT, "offset": X[:, 1]})
    same_results(ours.cv_results_, theirs.cv_results_)
    plain = both(model, {"gamma_schedule": [0.1, 0.5]})[0]
    assert not np.any(plain.cv_results_["mean_test_score"] == ours.cv_results_["mean_test_score"])


@pytest.mark.slow
def test_small_noise():
    """The noise is so small that rounding decides about the last digits of q, but not of the scores."""
    smooth = np.sin(2.0 * X[:, 0]) + X[:, 1]
    grid = {"likelihood__variance": [1e-8, 1e-6], "kernel__length_scale": [1.0, 2.0]}
    likelihood = likelihoods.Gaussian(variance_bounds=(1e-10, 1.0))
    ours, theirs = both(regressor(likelihood=likelihood, n_inducing=30), grid, smooth)
    assert ours.best_score_ > 0.99
    same_results(ours.cv_results_, theirs.cv_results_)


@pytest.mark.slow
def test_default_estimators_and_drawn_parameters():
    searches = [
        search(NGDSVGPRegressor(random_state=0), {"normalize_y": [True, "center"]}, n_iter=2, cv=2, random_state=0)
        for search in (NGDRandomizedSearchCV, RandomizedSearchCV)
    ]
    ours, theirs = (search.fit(X, Y) for search in searches)
    same_results(ours.cv_results_, theirs.cv_results_)


@pytest.mark.slow
def test_failed_fits_have_the_score_for_errors():
    for early_stopping in (False, True):
        search = NGDGridSearchCV(
            regressor(), {"n_inducing": [8, -1]}, cv=3, error_score=-7.0, early_stopping=early_stopping
        )
        with pytest.warns(FitFailedWarning, match="n_inducing=-1"):
            search.fit(X, Y)
        assert_array_equal(search.cv_results_["split0_test_score"] == -7.0, [False, True])
        assert search.best_params_ == {"n_inducing": 8}


def test_other_estimators_may_be_searched_over():
    ours, theirs = both(Ridge(), {"alpha": [0.1, 1.0, 10.0]})
    same_results(ours.cv_results_, theirs.cv_results_, rtol=1e-12)


def test_clones_and_parameters():
    for search in (NGDGridSearchCV(regressor(), LENGTH_SCALES), NGDRandomizedSearchCV(regressor(), LENGTH_SCALES)):
        assert search.n_jobs == -1
        assert search.early_stopping is False
        again = clone(search.set_params(early_stopping=4, estimator__max_iter=7))
        assert again.early_stopping == 4
        assert again.estimator.max_iter == 7
        assert repr(again) == repr(search)


# -- threads ------------------------------------------------------------------------------


class Threads(RegressorMixin, BaseEstimator):
    """Notes in which threads it is fitted, and with which backend of joblib around it."""

    noted = []

    def __init__(self, number=0):
        self.number = number

    def fit(self, X, y):
        """Note it."""
        self.noted.append((threading.current_thread() is threading.main_thread(), threading.get_ident()))
        return self

    def predict(self, X):
        """Predict zeros."""
        return np.zeros(len(X))


@pytest.mark.parametrize(("n_jobs", "in_main"), [(2, False), (1, True), (None, True)])
def test_fits_run_in_threads_of_this_process(n_jobs, in_main, monkeypatch):
    monkeypatch.setattr(Threads, "noted", [])
    NGDGridSearchCV(Threads(), {"number": [0, 1]}, cv=2, n_jobs=n_jobs, refit=False).fit(X, Y)
    assert [main for main, _ in Threads.noted] == 4 * [in_main]


def test_a_backend_that_the_user_names_is_kept(monkeypatch):
    monkeypatch.setattr(Threads, "noted", [])
    with joblib.parallel_config("sequential"):
        NGDGridSearchCV(Threads(), {"number": [0, 1]}, cv=2, refit=False).fit(X, Y)
    assert all(main for main, _ in Threads.noted)
    assert len(Threads.noted) == 4


# -- early stopping -----------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch):
    """The number of steps that were taken so far, without those of size zero at the end of a fit."""
    counts = []

    def watched(state, constants, batches, gammas, rates, n_steps, *others):
        counts.append(n_steps if np.any(gammas) or np.any(rates) else 0)
        return run_chunk(state, constants, batches, gammas, rates, n_steps, *others)

    run_chunk = chunk.run_chunk
    monkeypatch.setattr(chunk, "run_chunk", watched)
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"batch_size": 25, "learning_rate": "cosine"}], ids=["whole", "minibatches"])
def test_candidates_that_go_on_take_the_steps_of_a_fit_that_never_paused(options, counted):
    model = regressor(max_iter=120, tol=0.0, **options)
    full = GridSearchCV(model, LENGTH_SCALES, cv=3, error_score="raise", refit=False).fit(X, Y)
    n_full = sum(counted)
    counted.clear()
    halved = NGDGridSearchCV(model, LENGTH_SCALES, cv=3, error_score="raise", refit=False, early_stopping=2).fit(X, Y)
    rung = halved.cv_results_["rung"]
    assert_array_equal(np.sort(rung), [0, 0, 1, 2])
    for split in range(3):
        name = f"split{split}_test_score"
        found, expected = halved.cv_results_[name], full.cv_results_[name]
        assert_array_equal(found[rung == 2], expected[rung == 2])
        assert not np.any(found[rung == 0] == expected[rung == 0])
    assert halved.best_params_ == full.best_params_
    assert halved.cv_results_["params"] == full.cv_results_["params"]
    # Of 120 iterations: 40 (a quarter is 30, and pauses come after each 20) of all, 20 of two, 60 of one.
    assert n_full == 3 * 4 * 120
    assert sum(counted) == 3 * (4 * 40 + 2 * 20 + 60)


def test_ranks_put_those_that_went_further_first():
    score, failed = np.zeros(5), np.zeros(5, bool)
    assert_array_equal(_halving.ranked([1, 2, 2, 4, 5], score, [0, 2, 2, 1, 0], failed), [4, 1, 1, 3, 5])
    score[1], failed[2] = np.nan, True
    assert_array_equal(_halving.ranked([1, 2, 2, 4, 5], score, [0, 2, 2, 1, 0], failed), [2, 4, 4, 1, 3])


class _Diverges:
    """A callback that ends training with an error once it has gone so far."""

    def __init__(self, n_iter):
        self.n_iter = n_iter

    def __call__(self, n_iter, model):
        if n_iter >= self.n_iter:
            raise FloatingPointError("diverged")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")
@pytest.mark.parametrize("error_score", [np.nan, -7.0])
def test_a_candidate_that_fails_late_leaves_its_place_to_the_next(error_score):
    """The best one at the first rung fails at the second."""
    model = regressor(max_iter=120, tol=0.0)
    grid = [
        {"kernel__length_scale": [1.0], "callback": [_Diverges(50)]},
        {"kernel__length_scale": [0.01, 0.9]},
    ]
    search = NGDGridSearchCV(model, grid, cv=2, error_score=error_score, early_stopping=True).fit(X, Y)
    results = search.cv_results_
    assert_array_equal(results["rung"], [0, 0, 1])
    assert_array_equal(results["rank_test_score"], [3, 2, 1])
    assert search.best_index_ == 2
    assert search.best_score_ > 0.5
    # Where no other one is left, it is an error, as it is with "raise".
    with pytest.raises(ValueError, match="fits failed"):
        NGDGridSearchCV(model, {"callback": 3 * [_Diverges(50)]}, cv=2, early_stopping=True).fit(X, Y)
    with pytest.raises(FloatingPointError, match="diverged"):
        search.set_params(error_score="raise").fit(X, Y)


def test_a_candidate_without_a_score_is_the_last(monkeypatch):
    def scorer(model, X, y):
        return np.nan if model.n_iter_ > 60 else model.score(X, y)

    model, grid = regressor(max_iter=120, tol=0.0), {"kernel__length_scale": [1.0, 0.9, 0.01]}
    search = NGDGridSearchCV(model, grid, cv=2, scoring=scorer, refit=False, early_stopping=True)
    # Threads that leave catch_warnings in another order than they entered it can take a recorder of warnings away.
    told = []
    monkeypatch.setattr(warnings, "warn", lambda message, *_, **__: told.append(str(message)))
    results = search.fit(X, Y).cv_results_
    assert any("non-finite" in message for message in told)
    assert np.isnan(results["mean_test_score"]).sum() == 1
    assert results["rank_test_score"][np.isnan(results["mean_test_score"])] == 3


@pytest.mark.slow
def test_estimators_among_the_candidates_are_cloned():
    """One that was fitted to all rows would know the held-out ones."""
    noise = np.random.default_rng(1).normal(size=90)
    fitted = regressor(max_iter=80, tol=0.0, warm_start=True).fit(X, noise)
    model = make_pipeline(StandardScaler(), Ridge())
    grid = {"ridge": [fitted, clone(fitted)]}
    search = NGDGridSearchCV(model, grid, cv=2, error_score="raise", refit=False, early_stopping=2).fit(X, noise)
    at_first = search.cv_results_["rung"]
    assert_array_equal(np.sort(at_first), [0, 1])
    full = GridSearchCV(model, grid, cv=2, error_score="raise", refit=False).fit(X, noise)
    found, expected = (each.cv_results_["mean_test_score"][at_first == 1] for each in (search, full))
    assert_array_equal(found, expected)


def test_early_stopping_without_effect_says_so():
    model, grid = NGDSVGPRegressor(random_state=0), {"kernel": [RBF(), RBF(2.0), RBF(0.5)]}
    with pytest.warns(UserWarning, match="early_stopping has no effect.\nearly_stopping=True: all fits ended"):
        NGDGridSearchCV(model, grid, cv=2, refit=False, early_stopping=True).fit(X, Y)


@pytest.mark.slow
def test_what_is_known_of_rows_and_not_routed_is_told():
    counts, exposure = np.random.default_rng(2).poisson(3.0, size=90), np.full(90, 0.5)
    search = NGDGridSearchCV(regressor(likelihood="poisson"), {"kernel__length_scale": [1.0]}, cv=2)
    with pytest.warns(UserWarning, match="offset is passed to fit alone: held-out rows are scored without it"):
        search.fit(X, counts, offset=exposure)


@pytest.mark.parametrize(
    ("n_candidates", "factor", "expected"),
    [(1, 3, [1.0]), (2, 3, [1.0]), (3, 3, [1 / 3, 1]), (20, 3, [1 / 9, 1 / 3, 1]), (999, 2, [1 / 8, 1 / 4, 1 / 2, 1])],
)
def test_shares_of_the_rungs(n_candidates, factor, expected):
    assert_allclose(_halving.shares(n_candidates, factor), expected)


@pytest.mark.slow
def test_early_stopping_within_a_pipeline_with_drawn_folds_and_several_scores():
    model = make_pipeline(StandardScaler(), classifier(max_iter=60, tol=0.0))
    grid = {f"ngdsvgpclassifier__{name}": values for name, values in LENGTH_SCALES.items()}
    scoring = ["accuracy", "neg_log_loss"]
    search = NGDGridSearchCV(model, grid, scoring=scoring, refit="neg_log_loss", cv=ShuffleSplit(2), early_stopping=2)
    search.fit(X, Y > 0)
    results = search.cv_results_
    assert_array_equal(np.sort(results["rung"]), [0, 0, 1, 2])
    assert results["rung"][search.best_index_] == 2
    assert results["rank_test_accuracy"][search.best_index_] == 1
    assert search.best_estimator_[-1].checkpoint is None
    assert search.best_estimator_[-1].n_iter_ == 60
    assert not any("checkpoint" in name for name in results)
    with pytest.raises(ValueError, match="early_stopping=2 compares candidates by one score"):
        search.set_params(refit=False).fit(X, Y > 0)


def test_callbacks_of_scikit_learn_hear_of_every_rung():
    callback = pytest.importorskip("sklearn.callback", reason="needs scikit-learn 1.9")
    monitor = callback.ScoringMonitor(scoring="r2")
    model = regressor(max_iter=60, tol=0.0).set_callbacks(monitor)
    search = NGDGridSearchCV(model, {"kernel__length_scale": [0.1, 1.0]}, cv=2, early_stopping=2).fit(X, Y)
    rows = monitor.get_logs().data
    # Two fits a candidate, of which those of one go on to twice as many chunks of iterations; and the refit.
    assert len([row for row in rows if row["task_name"] == "iterations"]) == 2 * (2 * 2 + 1) + 3
    assert_array_equal(search.cv_results_["rung"], [0, 1])


@pytest.mark.slow
def test_fits_that_end_by_themselves_are_not_repeated(counted):
    """All have converged, or need no iterations, before the second rung."""
    grid = [{"tol": [1e9], "n_iter_no_change": [5, 8]}, {"solver": ["evidence", "lbfgs"]}]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Without effect here: .*\n.*checkpoint")
        search = NGDGridSearchCV(regressor(max_iter=120), grid, cv=2, refit=False, early_stopping=True).fit(X, Y)
    assert_array_equal(search.cv_results_["rung"], 4 * [0])
    # One chunk of iterations a fit.
    assert sum(counted) == 2 * 2 * 20
    theirs = GridSearchCV(regressor(max_iter=120), grid, cv=2, refit=False).fit(X, Y)
    assert_allclose(search.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], rtol=1e-9)


def test_early_stopping_says_what_it_needs():
    with pytest.raises(ValueError, match=r"early_stopping=True needs an estimator of skgp_natgrad with iterations"):
        NGDGridSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, early_stopping=True).fit(X, Y)
    with pytest.raises(ValueError, match="The 'early_stopping' parameter"):
        NGDGridSearchCV(regressor(), LENGTH_SCALES, early_stopping="soon").fit(X, Y)


@pytest.mark.slow
def test_a_fit_pauses_and_continues_to_the_same_bits(tmp_path):
    """With a random state of its own, of which a continued fit knows only the file."""
    model = regressor(max_iter=60, tol=0.0, batch_size=25)
    whole = model.set_params(random_state=np.random.RandomState(3)).fit(X, Y)
    n_iter = []
    for share in (0.3, 0.6, 1.0):
        place = Rung(str(tmp_path), share)
        paused = clone(model).set_params(checkpoint=place, random_state=np.random.RandomState(3)).fit(X, Y)
        n_iter.append(paused.n_iter_)
        assert place.left_unfinished == (share < 1.0)
    assert n_iter == [20, 40, 60]
    assert_array_equal(paused.elbo_curve_, whole.elbo_curve_)
    assert_array_equal(paused.predict(X), whole.predict(X))


def test_numpy_booleans_and_small_factors():
    search = NGDGridSearchCV(regressor(max_iter=20), {"learning_rate": [0.01, 0.02]}, cv=2, early_stopping=np.False_)
    assert "rung" not in search.fit(X, Y).cv_results_
    assert "rung" in search.set_params(early_stopping=np.True_).fit(X, Y).cv_results_
    for factor in (0, 1):
        with pytest.raises(ValueError, match="The 'early_stopping' parameter"):
            search.set_params(early_stopping=factor).fit(X, Y)


def test_several_scores_are_refused_before_any_fit():
    model = regressor(callback=lambda *_: pytest.fail("it trained"))
    scoring = ["r2", "neg_mean_squared_error"]
    search = NGDGridSearchCV(model, {"max_iter": [20, 40]}, cv=2, scoring=scoring, refit=False, early_stopping=True)
    with pytest.raises(ValueError, match="refit=False must be the name of one of them"):
        search.fit(X, Y)


def test_the_splitter_of_scikit_learns_older_versions():
    """Before version 1.9 a search does not keep its splitter."""
    labels = Y > 0.0
    search = NGDGridSearchCV(classifier(), LENGTH_SCALES, cv=3, early_stopping=2)
    search._y = labels
    for (train, test), (expected, other) in zip(
        search._splitter().split(X, labels), StratifiedKFold(3).split(X, labels), strict=True
    ):
        assert_array_equal(train, expected)
        assert_array_equal(test, other)


class Short(NGDSVGPRegressor):
    """A user's subclass without the argument by which fits pause."""

    def __init__(self, length_scale=1.0):
        super().__init__(RBF(length_scale), n_inducing=8, solver="ngd", max_iter=20, random_state=0)
        self.length_scale = length_scale


def test_candidates_that_cannot_pause_are_refused_by_name():
    with pytest.raises(ValueError, match="early_stopping=True needs an estimator of skgp_natgrad with iterations"):
        NGDGridSearchCV(Short(), {"length_scale": [0.5, 1.0]}, cv=2, early_stopping=True).fit(X, Y)


def test_a_single_score_may_have_its_name():
    """As `refit` of scikit-learn's searches."""
    grid = {"learning_rate": [0.01, 0.02, 0.03]}
    named, plain = (
        NGDGridSearchCV(regressor(max_iter=20), grid, cv=2, scoring="r2", refit=refit, early_stopping=True).fit(X, Y)
        for refit in ("r2", True)
    )
    assert named.best_params_ == plain.best_params_


def test_splits_of_a_generator_are_drawn_once(monkeypatch):
    """scikit-learn before version 1.9 does not keep them for the search."""
    splits = list(ShuffleSplit(2, random_state=0).split(X))
    generator = (each for each in splits)
    search = NGDGridSearchCV(regressor(max_iter=20), {"learning_rate": [0.01, 0.02]}, cv=generator, early_stopping=True)
    splitter = type(search)._splitter

    def of_older_versions(self):
        monkeypatch.delattr(self, "_checked_cv_orig", raising=False)
        return splitter(self)

    monkeypatch.setattr(type(search), "_splitter", of_older_versions)
    assert search.fit(X, Y).n_splits_ == 2
    assert search.cv is generator
    with pytest.raises(StopIteration):
        next(generator)
