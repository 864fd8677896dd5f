"""CalibratedRegressorCV: intervals that are right for new groups and later times."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.gaussian_process.kernels import RBF, Matern
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GroupKFold, KFold, PredefinedSplit, TimeSeriesSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, predictive_distribution
from skgp_natgrad.metrics import crps_scorer, interval_coverage, nlpd_scorer
from skgp_natgrad.model_selection import CalibratedRegressorCV, _calibrated

from .conftest import example

RNG = np.random.default_rng(0)
X, NEW = RNG.uniform(-2.0, 2.0, (80, 2)), RNG.uniform(-2.0, 2.0, (20, 2))
Y = np.sin(X[:, 0]) + 0.3 * RNG.normal(size=80)
GROUPS = np.repeat(np.arange(20), 4)
# With the panels and the series of the benchmark.
benchmark = example("benchmarks", "calibrated")


def exact(**options):
    return NGDSVGPRegressor(1.0 * RBF(), optimizer=None, **options)


# -- coverage ----------------------------------------------------------------------------------


def covered(model, X, y):
    """The share of targets (N,) or (N, n) in the intervals of their row."""
    lower, upper = model.predict_interval(X, coverage=0.9)
    return np.mean((lower <= y.T) & (upper >= y.T))


def test_new_groups_are_covered_where_a_plain_fit_takes_their_effects_for_those_of_columns():
    """The lengthscales tell each group from all others, as those of the largest evidence do."""
    model = NGDSVGPRegressor(1.5**2 * RBF([1.0, 0.3, 0.3]), optimizer=None, calibrate=False)
    shares = []
    for seed in range(3):
        X, y, group, X_new, y_new = benchmark.panel(seed)
        both = model, CalibratedRegressorCV(model, cv=GroupKFold(5))
        plain, calibrated = both[0].fit(X, y), both[1].fit(X, y, groups=group)
        shares.append([covered(each, X_new, y_new) for each in (plain, calibrated)])
    plain, calibrated = np.mean(shares, axis=0)
    assert abs(calibrated - 0.9) < 0.05 < abs(plain - 0.9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_intervals_of_new_groups_and_of_forecasts_cover_what_they_say():
    """With nothing set, means of ten draws."""
    of_panels, of_series, of_horizons = [], [], []
    for seed in range(10):
        X, y, group, X_new, y_new = benchmark.panel(seed)
        model = CalibratedRegressorCV(NGDSVGPRegressor(random_state=0), cv=GroupKFold(5)).fit(X, y, groups=group)
        of_panels.append(covered(model, X_new, y_new))
        time, y, later, futures = benchmark.series(seed)
        model = CalibratedRegressorCV(NGDSVGPRegressor(random_state=0), cv=TimeSeriesSplit(8, test_size=30))
        model.fit(time, y)
        of_series.append(covered(model, later, futures))
        of_horizons.append([covered(model, later[k : k + 10], futures[k : k + 10]) for k in (0, 10, 20)])
    assert abs(np.mean(of_panels) - 0.9) < 0.05
    assert abs(np.mean(of_series) - 0.9) < 0.05
    assert np.all(np.abs(np.mean(of_horizons, axis=0) - 0.9) < 0.08)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_folds_with_the_hyperparameters_of_all_rows_cover_new_groups_nearly_as_well():
    shares = []
    for seed in range(10):
        X, y, group, X_new, y_new = benchmark.panel(seed)
        alone = NGDSVGPRegressor(random_state=0).fit(X, y)
        same = benchmark.contender("same hyperparameters", alone, GroupKFold(5)).fit(X, y, groups=group)
        shares.append([covered(model, X_new, y_new) for model in (alone, same)])
    alone, same = np.mean(shares, axis=0)
    assert abs(same - 0.9) < 0.05 < abs(alone - 0.9)


# -- what it does ------------------------------------------------------------------------------


@pytest.mark.slow
def test_it_passes_the_checks_of_scikit_learn():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(CalibratedRegressorCV(exact(), cv=2))


def test_errors_are_those_of_left_out_rows_and_means_stay():
    folds = list(KFold(4).split(X))
    model = CalibratedRegressorCV(exact(), cv=folds).fit(X, Y)
    expected = []
    for train, test in folds:
        mean, std = exact().fit(X[train], Y[train]).predict(X[test], return_std=True)
        expected.append((Y[test] - mean) / std)
    assert_allclose(model.standardized_errors_, np.concatenate(expected))
    plain = exact().fit(X, Y)
    mean, std = model.predict(NEW, return_std=True)
    assert_array_equal(mean, plain.predict(NEW))
    assert_array_equal(mean, model.predict(NEW))
    of_plain = plain.predict(NEW, return_std=True)[1]
    assert_allclose(std, np.sqrt(model.factor_ * of_plain**2 + model.added_variance_))
    assert model.n_features_in_ == 2
    assert model.score(X, Y) == plain.score(X, Y)


def test_deviations_of_a_fit_that_is_right_stay_and_others_are_put_right():
    rng = np.random.default_rng(1)
    rows = rng.uniform(size=(4000, 1))
    for width in (0.1, 1.0, 10.0):
        model = CalibratedRegressorCV(_Wrong(width), cv=KFold(4)).fit(rows, (1.0 + rows[:, 0]) * rng.normal(size=4000))
        _, std = model.predict(rows, return_std=True)
        assert_allclose(std, 1.0 + rows[:, 0], rtol=0.1)
    # A variance that is missing, as that between groups, is added.
    y = np.sqrt(0.01 * (1.0 + rows[:, 0]) ** 2 + 4.0) * rng.normal(size=4000)
    model = CalibratedRegressorCV(_Wrong(0.1), cv=KFold(4)).fit(rows, y)
    assert_allclose(model.predict(rows, return_std=True)[1], 2.0, rtol=0.1)


class _Wrong(LinearRegression):
    """A regressor of mean zero whose deviation is this multiple of 1 + x."""

    def __init__(self, width=1.0):
        super().__init__(fit_intercept=False)
        self.width = width

    def predict(self, X, return_std=False):
        mean = np.zeros(len(X))
        return (mean, self.width * (1.0 + X[:, 0])) if return_std else mean


def test_the_distribution_is_one():
    model = CalibratedRegressorCV(exact(), cv=KFold(4)).fit(X, Y)
    found = predictive_distribution(make_pipeline("passthrough", model), NEW)
    mean, std = model.predict(NEW, return_std=True)
    assert_array_equal(found.std(), std)
    levels = np.array([0.01, 0.5, 0.95])
    quantiles = model.predict_quantiles(NEW, levels)
    assert_allclose(found.cdf(quantiles[:, 2]), 0.95)
    assert_allclose(quantiles[:, 1], mean)
    lower, upper = model.predict_interval(NEW, 0.9)
    assert_allclose(upper - mean, mean - lower)
    assert_allclose(upper, quantiles[:, 2])
    draws = found.sample(20000)
    assert_allclose(draws.std(axis=1), std, rtol=0.1)
    # The density is the slope of the distribution function.
    step = 1e-5
    slope = (found.cdf(mean + std + step) - found.cdf(mean + std - step)) / (2.0 * step)
    assert_allclose(np.exp(found.log_density(mean + std)), slope, rtol=1e-5)
    assert nlpd_scorer(model, X, Y) == predictive_distribution(model, X).log_density(Y).mean()
    assert crps_scorer(model, X, Y) < 0.0


def test_outputs_are_calibrated_one_by_one():
    two = np.column_stack([Y, 100.0 * RNG.normal(size=80)])
    model = CalibratedRegressorCV(exact(), cv=KFold(4)).fit(X, two)
    assert model.predict_quantiles(NEW, [0.1, 0.9]).shape == (20, 2, 2)
    assert model.factor_.shape == model.added_variance_.shape == model.error_df_.shape == (2,)
    lower, upper = model.predict_interval(X)
    assert np.all(interval_coverage(two, lower, upper, multioutput="raw_values") > 0.8)
    missing = two.copy()
    missing[:9, 0] = np.nan
    assert np.isfinite(CalibratedRegressorCV(exact(missing_targets="ignore"), cv=4).fit(X, missing).factor_).all()


def test_groups_and_weights_go_where_they_belong():
    weight = RNG.uniform(0.5, 2.0, size=80)
    folds = GroupKFold(4)
    expected = CalibratedRegressorCV(exact(), cv=list(folds.split(X, Y, GROUPS))).fit(X, Y, sample_weight=weight)
    found = CalibratedRegressorCV(exact(), cv=folds).fit(X, Y, sample_weight=weight, groups=GROUPS)
    assert_array_equal(found.standardized_errors_, expected.standardized_errors_)
    within = make_pipeline("passthrough", clone(found))
    name = "calibratedregressorcv"
    within.fit(X, Y, **{f"{name}__groups": GROUPS, f"{name}__sample_weight": weight})
    assert_array_equal(within[-1].predict_interval(NEW), found.predict_interval(NEW))
    with config_context(enable_metadata_routing=True):
        inner = exact().set_fit_request(sample_weight=True)
        requesting = CalibratedRegressorCV(inner, cv=folds).set_score_request(sample_weight=True)
        routed = clone(within).set_params(calibratedregressorcv=requesting)
        routed.fit(X, Y, groups=GROUPS, sample_weight=weight)
        assert_array_equal(routed[-1].predict_interval(NEW), found.predict_interval(NEW))
        scores = cross_val_score(requesting, X, Y, cv=folds, params={"groups": GROUPS, "sample_weight": weight})
        assert len(scores) == 4
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            CalibratedRegressorCV(exact(), cv=folds).fit(X, Y, sample_weight=weight, groups=GROUPS)
    with pytest.raises(ValueError, match="groups"):
        clone(found).fit(X, Y)


def test_what_is_known_of_rows_is_known_where_they_are_left_out():
    offset, alpha = 5.0 * X[:, 1], np.where(np.arange(80) % 2, 0.01, 4.0)
    y = Y + offset + np.sqrt(alpha) * RNG.normal(size=80)
    model = CalibratedRegressorCV(exact(calibrate=False), cv=KFold(4)).fit(X, y, offset=offset, alpha=alpha)
    assert np.sqrt(np.mean(model.standardized_errors_**2)) < 2.0
    wide, narrow = (model.predict(NEW, return_std=True, alpha=each)[1] for each in (4.0, 0.01))
    assert np.all(wide > narrow)


def test_what_a_step_of_a_pipeline_is_told_is_known_where_rows_are_left_out():
    offset, weight = 5.0 * X[:, 1], np.where(np.arange(80) < 40, 0.2, 1.0)
    expected = CalibratedRegressorCV(exact(), cv=KFold(4)).fit(X, Y + offset, weight, offset=offset)
    model = CalibratedRegressorCV(make_pipeline("passthrough", exact()), cv=KFold(4))
    name = "ngdsvgpregressor"
    model.fit(X, Y + offset, **{f"{name}__offset": offset, f"{name}__sample_weight": weight})
    assert_array_equal(model.standardized_errors_, expected.standardized_errors_)
    assert model.factor_ == expected.factor_


def test_fits_at_the_same_time_are_the_same():
    one, two = (CalibratedRegressorCV(exact(), cv=4, n_jobs=n).fit(X, Y) for n in (None, 2))
    assert_array_equal(one.predict_interval(NEW), two.predict_interval(NEW))


def test_what_cannot_be_done_is_said():
    with pytest.raises(ValueError, match="leaves out no row"):
        CalibratedRegressorCV(exact(), cv=PredefinedSplit(np.full(80, -1))).fit(X, Y)
    with pytest.raises(ValueError, match="sample_weight is positive"):
        CalibratedRegressorCV(exact(), cv=[(np.arange(9, 80), np.arange(9))]).fit(X, Y, np.arange(80) > 8)
    with pytest.raises(TypeError, match="needs a regressor, and NGDSVGPClassifier is a classifier"):
        CalibratedRegressorCV(NGDSVGPClassifier()).fit(X, Y > 0.0)
    # Before a fit, which may take long.
    with pytest.raises(ValueError, match="'groups' parameter should not be None"):
        CalibratedRegressorCV(BaseEstimator(), cv=GroupKFold(2)).fit(X, Y)
    with pytest.raises(TypeError, match="LinearRegression predicts no distribution"):
        CalibratedRegressorCV(LinearRegression()).fit(X, Y)
    flat = CalibratedRegressorCV(exact(), cv=2).fit(X, np.zeros(80))
    assert np.all(flat.predict(NEW, return_std=True)[1] > 0.0)


def test_deviations_go_on_varying_where_the_left_out_rows_do_not_tell(rng):
    """Errors of one deviation more than was predicted everywhere: the factor stays near one, and the rest is added."""
    deviations = 1.0 + 0.01 * rng.normal(size=60)
    errors = 3.0 * deviations * rng.normal(size=60)
    factor, added, _ = _calibrated._spread(errors, deviations, np.ones(60))
    assert 0.5 < factor < 12.0
    assert factor + added == pytest.approx(np.mean(errors**2), rel=0.25)
    # Where they tell, the prior has no part.
    deviations = np.exp(rng.normal(size=2000))
    errors = 3.0 * deviations * rng.normal(size=2000)
    factor, added, _ = _calibrated._spread(errors, deviations, np.ones(2000))
    assert factor == pytest.approx(9.0, rel=0.1)
    assert added < 0.2


@pytest.mark.slow
def test_forecasts_of_a_given_kernel():
    """The later rows of each fold have other errors than rows between those of the fit."""
    time, y, later, futures = benchmark.series(0)
    model = CalibratedRegressorCV(NGDSVGPRegressor(9.0 * Matern(0.3, nu=0.5)), cv=TimeSeriesSplit(5, test_size=30))
    assert abs(covered(model.fit(time, y), later, futures) - 0.9) < 0.1
