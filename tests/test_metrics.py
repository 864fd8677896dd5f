"""Metrics of predicted distributions against quadrature, and scorers around every wrapper of scikit-learn."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, stats
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.gaussian_process.kernels import RBF
from sklearn.inspection import permutation_importance
from sklearn.linear_model import BayesianRidge, LinearRegression, LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate, learning_curve
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, QuantileTransformer, StandardScaler

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, metrics
from skgp_natgrad.likelihoods import Censored
from skgp_natgrad.metrics import DistributionScorer
from skgp_natgrad.metrics.predictions import predictions_of

RNG = np.random.default_rng(11)
Y, MEAN, STD = RNG.normal(size=(3, 20, 2))
STD = np.exp(0.5 * STD)
WEIGHT = RNG.integers(0, 3, size=20).astype(float)
WEIGHT[0] = 1.0
EVERY = ["nlpd", "msll", "crps", "interval_score", "interval_width", "coverage_error", "calibration_error"]

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


# -- functions of arrays ---------------------------------------------------------------------


def crps_by_quadrature(distribution, y):
    parts = [
        integrate.quad(lambda x: distribution.cdf(x) ** 2, -np.inf, y, epsabs=1e-13),
        integrate.quad(lambda x: distribution.sf(x) ** 2, y, np.inf, epsabs=1e-13),
    ]
    return sum(value for value, _ in parts)


@pytest.mark.slow
def test_crps_of_normal_predictions_against_quadrature():
    expected = np.array(
        [
            [crps_by_quadrature(stats.norm(m, s), y) for y, m, s in zip(*row, strict=True)]
            for row in zip(Y, MEAN, STD, strict=True)
        ]
    )
    raw = metrics.crps_gaussian(Y, MEAN, STD, multioutput="raw_values")
    assert_allclose(raw, expected.mean(0), rtol=1e-8)
    assert_allclose(metrics.crps_gaussian(Y, MEAN, STD), expected.mean(), rtol=1e-8)
    weighted = metrics.crps_gaussian(Y, MEAN, STD, sample_weight=WEIGHT, multioutput="raw_values")
    assert_allclose(weighted, WEIGHT @ expected / WEIGHT.sum(), rtol=1e-8)


def test_crps_of_draws_is_its_definition_and_unbiased():
    draws = RNG.normal(size=(5, 2, 7))
    pairs = np.abs(draws[..., :, None] - draws[..., None, :]).sum((-2, -1)) / (7 * 6)
    expected = np.abs(draws - Y[:5, :, None]).mean(-1) - 0.5 * pairs
    assert_allclose(metrics.crps_samples(Y[:5], draws, multioutput="raw_values"), expected.mean(0), rtol=1e-12)
    # Three draws a row are enough in the mean over many rows.
    n = 200_000
    of_three = metrics.crps_samples(np.full(n, 0.4), RNG.normal(size=(n, 3)))
    assert_allclose(of_three, crps_by_quadrature(stats.norm(), 0.4), atol=0.01)


def test_scores_against_scoringrules():
    scoringrules = pytest.importorskip("scoringrules", reason="compares with scoringrules, where it is installed")
    draws = RNG.normal(size=(20, 2, 9))
    lower, upper = MEAN - STD, MEAN + 2.0 * STD
    raw = {"multioutput": "raw_values"}
    assert_allclose(metrics.crps_gaussian(Y, MEAN, STD, **raw), scoringrules.crps_normal(Y, MEAN, STD).mean(0))
    fair = scoringrules.crps_ensemble(Y, draws, estimator="fair")
    assert_allclose(metrics.crps_samples(Y, draws, **raw), fair.mean(0))
    of_intervals = scoringrules.interval_score(Y, lower, upper, 0.2)
    assert_allclose(metrics.interval_score(Y, lower, upper, 0.8, **raw), of_intervals.mean(0))
    density = scoringrules.logs_normal(Y, MEAN, STD).sum(1)
    assert_allclose(metrics.negative_log_predictive_density(Y, MEAN, STD), density.mean())


def test_densities_against_scipy():
    density = stats.norm(MEAN, STD).logpdf(Y).sum(1)
    assert_allclose(metrics.negative_log_predictive_density(Y, MEAN, STD), -density.mean(), rtol=1e-12)
    weighted = metrics.negative_log_predictive_density(Y, MEAN, STD, sample_weight=WEIGHT)
    assert_allclose(weighted, -np.average(density, weights=WEIGHT), rtol=1e-12)
    train = RNG.normal(2.0, 3.0, size=(30, 2))
    baseline = stats.norm(train.mean(0), train.std(0)).logpdf(Y).sum(1)
    found = metrics.mean_standardized_log_loss(Y, MEAN, STD, y_train=train)
    assert_allclose(found, (baseline - density).mean(), rtol=1e-12)
    trivial = metrics.mean_standardized_log_loss(Y, Y.mean(0) + 0 * Y, Y.std(0) + 0 * Y)
    assert_allclose(trivial, 0.0, atol=1e-12)


def test_intervals():
    lower, upper = MEAN - STD, MEAN + STD
    inside = np.abs(Y - MEAN) <= STD
    assert_allclose(metrics.interval_coverage(Y, lower, upper, multioutput="raw_values"), inside.mean(0))
    assert_allclose(
        metrics.interval_width(lower, upper, sample_weight=WEIGHT), np.average(2 * STD.mean(1), weights=WEIGHT)
    )
    # The score is the sum of the two pinball losses over half the level outside (Gneiting and Raftery 2007).
    pinball = [np.where(q > Y, 1 - p, -p) * (q - Y) for p, q in ((0.1, lower), (0.9, upper))]
    assert_allclose(metrics.interval_score(Y, lower, upper, 0.8), np.mean(sum(pinball)) / 0.1, rtol=1e-12)


def test_calibration_errors():
    n = 40_000
    rate = np.exp(RNG.normal(size=n))
    counts = RNG.poisson(rate)
    right = stats.poisson(rate)
    assert metrics.pit_calibration_error(right.cdf(counts), right.cdf(counts - 1)) < 0.005
    wide = stats.nbinom(1.0, 1.0 / (1.0 + rate))
    assert metrics.pit_calibration_error(wide.cdf(counts), wide.cdf(counts - 1)) > 0.03
    # Uniform on [0, 1/2]: the share below p is min(2 p, 1), at a distance of min(p, 1 - p).
    half = metrics.pit_calibration_error(np.linspace(0, 0.5, n))
    assert_allclose(half, 0.25, atol=0.003)
    raw = metrics.pit_calibration_error(np.column_stack([np.linspace(0, 1, n), np.zeros(n)]), multioutput="raw_values")
    assert_allclose(raw, [0.0, 0.5], atol=1e-4)

    p = RNG.uniform(size=n)
    labels = np.where(RNG.uniform(size=n) < p, "yes", "no")
    assert metrics.expected_calibration_error(labels, p) < 0.015
    sure = np.where(p > 0.5, 0.99, 0.01)
    expected = 0.99 - np.mean((p > 0.5) == (labels == "yes"))
    assert_allclose(metrics.expected_calibration_error(labels, sure), expected, rtol=1e-10)
    doubled = metrics.expected_calibration_error(
        np.r_[labels, labels], np.r_[p, sure], sample_weight=np.r_[np.ones(n), np.zeros(n)]
    )
    assert_allclose(doubled, metrics.expected_calibration_error(labels, p), rtol=1e-10)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: metrics.crps_gaussian(Y, MEAN, STD[:, :1]),
            "y_std has 20 rows and 1 columns, but y_true has 20 and 2",
        ),
        (lambda: metrics.crps_gaussian(Y, MEAN, -STD), "y_std must not be negative"),
        (lambda: metrics.crps_gaussian(Y, MEAN, STD, multioutput="sum"), "multioutput='sum' must be"),
        (lambda: metrics.crps_samples(Y, RNG.normal(size=(20, 2, 1))), "at least two draws"),
        (lambda: metrics.negative_log_predictive_density(Y, MEAN, 0 * STD), "y_std must be positive"),
        (lambda: metrics.negative_log_predictive_density([np.nan], [0.0], [1.0]), "y_true contains NaN"),
        (lambda: metrics.mean_standardized_log_loss([1.0, 1.0], [0, 0], [1, 1]), "y_true is constant"),
        (lambda: metrics.interval_coverage(Y, MEAN + STD, MEAN - STD), "lower must not exceed upper"),
        (lambda: metrics.interval_score(Y, MEAN, MEAN, coverage=90), "coverage=90 must be"),
        (lambda: metrics.crps_gaussian(Y, MEAN, STD, sample_weight=-WEIGHT), "sample_weight must hold 20 numbers"),
        (lambda: metrics.pit_calibration_error([0.1, 1.2]), "pit must hold probabilities"),
        (lambda: metrics.expected_calibration_error([0, 1], [[0.1, 0.4, 0.5]] * 2), "give a probability for each"),
    ],
)
def test_bad_arrays(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# -- scorers ---------------------------------------------------------------------------------

X = RNG.normal(size=(60, 2)) * [1.0, 30.0]
TARGET = 20.0 * (np.sin(X[:, 0]) + 0.1 * RNG.normal(size=60)) + 100.0
CV = KFold(3)


def regressor(**options):
    return NGDSVGPRegressor(1.0 * RBF(), **{"n_inducing": 10, "max_iter": 30, "tol": 1.0, "random_state": 0} | options)


@pytest.fixture(scope="module")
def fitted():
    return regressor().fit(StandardScaler().fit_transform(X), TARGET)


def around(fitted):
    """The same model in wrappers that are fitted with it, without training it again."""
    scaler = StandardScaler().fit(X)
    search = GridSearchCV(Pipeline([("scale", scaler), ("model", fitted)]), {})
    search.best_estimator_ = search.estimator
    return {
        "pipeline": search.estimator,
        "search": search,
        "nested": Pipeline([("same", "passthrough"), ("in", search)]),
    }


@pytest.mark.parametrize("metric", EVERY)
def test_scorers_look_into_wrappers(metric, fitted):
    scorer = DistributionScorer(metric)
    expected = scorer(fitted, StandardScaler().fit_transform(X), TARGET)
    for name, wrapper in around(fitted).items():
        assert scorer(wrapper, X, TARGET) == expected, name


def test_scores_are_the_metrics_of_the_estimators_predictions(fitted):
    rows = StandardScaler().fit_transform(X)
    mean, std = fitted.predict(rows, return_std=True)
    weight = RNG.uniform(size=60)
    lower, upper = fitted.predict_interval(rows, 0.9)
    expected = {
        "nlpd": metrics.negative_log_predictive_density(TARGET, mean, std, sample_weight=weight),
        "msll": metrics.mean_standardized_log_loss(TARGET, mean, std, sample_weight=weight),
        "crps": metrics.crps_gaussian(TARGET, mean, std, sample_weight=weight),
        "interval_score": metrics.interval_score(TARGET, lower, upper, 0.9, sample_weight=weight),
        "interval_width": metrics.interval_width(lower, upper, sample_weight=weight),
        "coverage_error": abs(metrics.interval_coverage(TARGET, lower, upper, sample_weight=weight) - 0.9),
        "calibration_error": metrics.pit_calibration_error(stats.norm(mean, std).cdf(TARGET), sample_weight=weight),
    }
    for metric, value in expected.items():
        assert_allclose(DistributionScorer(metric)(fitted, rows, TARGET, sample_weight=weight), -value, rtol=1e-9)


@pytest.mark.parametrize(
    "transformer", [StandardScaler(), MinMaxScaler(), FunctionTransformer(np.negative, np.negative)]
)
def test_a_transformed_target_has_the_scores_of_its_own_units(transformer):
    """BayesianRidge is equivariant, nearly: with and without the transformer it predicts the same distribution."""
    plain = BayesianRidge().fit(X, TARGET)
    wrapped = TransformedTargetRegressor(BayesianRidge(), transformer=transformer).fit(X, TARGET)
    for metric in EVERY:
        scorer = DistributionScorer(metric)
        assert_allclose(scorer(wrapped, X, TARGET), scorer(plain, X, TARGET), rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_a_map_of_several_targets_has_the_determinant_of_its_derivatives(fitted):
    both = np.column_stack([TARGET, TARGET**2 / 50.0]) + RNG.normal(size=(60, 2))
    inner = regressor()
    wrapped = TransformedTargetRegressor(inner, transformer=PCA(whiten=True)).fit(X, both)
    whitened = wrapped.transformer_.transform(both)
    density = wrapped.regressor_.predict_log_density(X, whitened)
    # Whitened by the covariance C: the determinant is |C|^(-1/2).
    expected = density.mean() - 0.5 * np.linalg.slogdet(np.cov(both.T))[1]
    assert_allclose(metrics.nlpd_scorer(wrapped, X, both), expected, rtol=1e-9)
    error = np.abs(both - wrapped.predict(X)).mean()
    assert 0.3 * error < -metrics.crps_scorer(wrapped, X, both) < 1.2 * error
    with pytest.raises(ValueError, match="Intervals of 2 outputs"):
        metrics.interval_scorer(wrapped, X, both)
    wrapped.transformer_ = FunctionTransformer(np.exp, np.log).fit(both)
    with pytest.raises(ValueError, match="The density of 2 outputs needs an affine transformer"):
        metrics.nlpd_scorer(wrapped, X, both / 100.0)


def test_a_logarithm_has_the_scores_of_log_normal_targets():
    y = np.exp(0.02 * TARGET)
    model = TransformedTargetRegressor(BayesianRidge(), func=np.log, inverse_func=np.exp).fit(X, y)
    quantile = TransformedTargetRegressor(BayesianRidge(), transformer=QuantileTransformer(n_quantiles=20)).fit(X, y)
    with pytest.raises(ValueError, match="has no density: it is outside of, or at the end of"):
        metrics.nlpd_scorer(quantile, X, y)
    mean, std = model.regressor_.predict(X, return_std=True)
    log_normal = stats.lognorm(std, scale=np.exp(mean))
    assert_allclose(metrics.nlpd_scorer(model, X, y), log_normal.logpdf(y).mean(), rtol=1e-8)
    found = metrics.interval_scorer(model, X, y)
    assert_allclose(found, -metrics.interval_score(y, *log_normal.interval(0.9)), rtol=1e-9)
    draws = log_normal.rvs(size=(4000, 60), random_state=1).T
    assert_allclose(metrics.crps_scorer(model, X, y), -metrics.crps_samples(y, draws), rtol=0.02)


@pytest.mark.slow
def test_scorers_of_counts():
    rate = np.exp(1.0 + np.sin(X[:, 0]))
    counts = np.random.default_rng(0).poisson(rate)
    model = regressor(likelihood="poisson", max_iter=60).fit(X[:, :1], counts)
    draws = model.sample_y(X[:, :1], 3000, random_state=3, joint=False)
    assert_allclose(metrics.crps_scorer(model, X[:, :1], counts), -metrics.crps_samples(counts, draws), rtol=0.03)
    below, at = model.predict_cdf(X[:, :1], counts - 1), model.predict_cdf(X[:, :1], counts)
    expected = -metrics.pit_calibration_error(at, below)
    assert_allclose(metrics.calibration_scorer(model, X[:, :1], counts), expected, rtol=1e-12)


@pytest.mark.slow
def test_scorers_of_classifiers(fitted):
    labels = np.array(["a", "b", "c"])[np.digitize(TARGET, [90.0, 110.0])]
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, labels)
    assert_allclose(metrics.nlpd_scorer(model, X, labels), -log_loss(labels, model.predict_proba(X)), rtol=1e-10)
    expected = metrics.expected_calibration_error(labels, model.predict_proba(X))
    assert_allclose(metrics.calibration_scorer(model, X, labels), -expected, rtol=1e-12)
    with pytest.raises(ValueError, match="metric='crps' is for regressors; for LogisticRegression use 'nlpd'"):
        metrics.crps_scorer(model, X, labels)
    with pytest.raises(ValueError, match="label 'z', which LogisticRegression was not trained on"):
        metrics.nlpd_scorer(model, X, np.where(labels == "a", "z", labels))
    own = NGDSVGPClassifier(1.0 * RBF(), n_inducing=8, max_iter=5, calibrate=False, random_state=0).fit(X, labels)
    expected = -log_loss(labels, own.predict_proba(X))
    assert_allclose(metrics.nlpd_scorer(own, X, labels), expected, rtol=1e-9)


def test_model_selection():
    model = make_pipeline(StandardScaler(), regressor(max_iter=2))
    scores = cross_val_score(model, X, TARGET, cv=CV, scoring=metrics.nlpd_scorer, error_score="raise")
    for score, (train, test) in zip(scores, CV.split(X), strict=True):
        fitted = clone(model).fit(X[train], TARGET[train])
        rows = fitted[:-1].transform(X[test])
        assert score == pytest.approx(fitted[-1].predict_log_density(rows, TARGET[test]).mean(), rel=1e-9)
    cheap = make_pipeline(StandardScaler(), BayesianRidge())
    several = {"nlpd": metrics.nlpd_scorer, "crps": metrics.crps_scorer, "r2": "r2"}
    found = cross_validate(cheap, X, TARGET, cv=CV, scoring=several, error_score="raise")
    assert np.all(found["test_crps"] < 0)
    search = GridSearchCV(cheap, {"bayesianridge__alpha_init": [None, 2.0]}, cv=CV, scoring=metrics.nlpd_scorer)
    search.fit(X, TARGET)
    assert search.score(X, TARGET) == metrics.nlpd_scorer(search.best_estimator_, X, TARGET)
    curve = learning_curve(
        cheap, X, TARGET, cv=CV, train_sizes=[10, 30], scoring=metrics.crps_scorer, error_score="raise"
    )
    # More rows, smaller errors.
    assert np.all(np.diff(curve[2].mean(1)) > 0.0)
    assert np.all(curve[2] < 0.0)
    importance = permutation_importance(search, X, TARGET, scoring=metrics.nlpd_scorer, n_repeats=3, random_state=0)
    assert importance.importances_mean[0] > importance.importances_mean[1]


def test_sample_weight_by_metadata_routing():
    weight = RNG.integers(1, 4, size=60).astype(float)
    with config_context(enable_metadata_routing=True):
        scorer = clone(metrics.nlpd_scorer).set_score_request(sample_weight=True)
        base = BayesianRidge().set_fit_request(sample_weight=False)
        found = cross_validate(
            base, X, TARGET, cv=CV, scoring=scorer, params={"sample_weight": weight}, error_score="raise"
        )["test_score"]
    for (train, test), score in zip(CV.split(X), found, strict=True):
        fold = BayesianRidge().fit(X[train], TARGET[train])
        assert_allclose(score, metrics.nlpd_scorer(fold, X[test], TARGET[test], sample_weight=weight[test]), rtol=1e-12)


def test_estimators_without_a_distribution_are_named(fitted):
    model = make_pipeline(StandardScaler(), LinearRegression()).fit(X, TARGET)
    with pytest.raises(TypeError, match="LinearRegression in Pipeline predicts no distribution"):
        metrics.nlpd_scorer(model, X, TARGET)
    with pytest.raises(ValueError, match=r"metric='nll' must be a str among .*'nlpd'"):
        DistributionScorer("nll")(fitted, X, TARGET)
    with pytest.raises(ValueError, match=r"coverage=1\.5 must be"):
        DistributionScorer("interval_score", coverage=1.5)(fitted, X, TARGET)


def test_a_column_of_targets_is_scored_as_a_vector(rng):
    X = rng.normal(size=(40, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=40)
    regressor, classifier = BayesianRidge().fit(X, y), LogisticRegression().fit(X, y > 0)
    for scorer in (metrics.nlpd_scorer, metrics.calibration_scorer):
        assert_allclose(scorer(regressor, X, y[:, None]), scorer(regressor, X, y))
    assert_allclose(metrics.nlpd_scorer(classifier, X, (y > 0)[:, None]), metrics.nlpd_scorer(classifier, X, y > 0))


def test_a_classifier_without_log_probabilities_is_scored(rng):
    X = rng.normal(size=(60, 2))
    y = (X[:, 0] > 0).astype(int)
    model = KNeighborsClassifier(10).fit(X, y)
    assert_allclose(metrics.nlpd_scorer(model, X, y), -log_loss(y, model.predict_proba(X)))


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["nlpd", "crps", "interval_score", "coverage_error", "calibration_error"])
def test_more_successes_than_trials_are_refused_by_every_metric(metric):
    """As in a search that passes ``trials`` to its fits alone."""
    trials = np.full(60, 10)
    successes = np.random.default_rng(0).binomial(trials, 0.5)
    model = regressor(likelihood="binomial", max_iter=5).fit(X[:, :1], successes, trials=trials)
    assert -100.0 < DistributionScorer(metric)(model, X[:, :1], successes, trials=trials) < 0.0
    with pytest.raises(ValueError, match="is more than its number of trials, 1"):
        DistributionScorer(metric)(model, X[:, :1], successes)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["censored", "tweedie"])
def test_densities_beside_probabilities_have_no_normal_baseline(likelihood):
    """Their difference depends on the units of y."""
    y = np.maximum(TARGET - 95.0, 0.0)
    given = Censored(lower=0.0) if likelihood == "censored" else likelihood
    model = regressor(likelihood=given, max_iter=5).fit(X[:, :1], y)
    with pytest.raises(ValueError, match=rf"metric='msll'.*likelihood='{likelihood}'.*use 'nlpd' or 'crps'"):
        metrics.msll_scorer(model, X[:, :1], y)
    # Where all scored targets have a probability, none of them has any below it.
    at, below = predictions_of(model, X[y == 0.0][:, :1])._pit(y[y == 0.0])
    assert np.all(at > 0.0)
    assert_allclose(below, 0.0, atol=1e-9)


def test_weights_of_a_search_with_several_metrics():
    weight = np.random.default_rng(0).uniform(0.5, 2.0, size=60)
    cheap = make_pipeline(StandardScaler(), BayesianRidge()).fit(X, TARGET)
    several = {"nlpd": metrics.nlpd_scorer, "r2": "r2"}
    found = permutation_importance(cheap, X, TARGET, scoring=several, n_repeats=2, random_state=0, sample_weight=weight)
    alone = permutation_importance(
        cheap, X, TARGET, scoring=metrics.nlpd_scorer, n_repeats=2, random_state=0, sample_weight=weight
    )
    assert_allclose(found["nlpd"].importances, alone.importances, rtol=1e-12)


@pytest.mark.parametrize("constant", [0.1, 0.3, 273.15, 1e9 + 0.1])
@pytest.mark.parametrize("n", [3, 7, 12])
def test_a_constant_has_no_normal_distribution(constant, n):
    """The mean of equal numbers may differ from them by rounding."""
    y = np.full(n, constant)
    with pytest.raises(ValueError, match="y_train is constant"):
        metrics.mean_standardized_log_loss(np.zeros(n), np.zeros(n), np.ones(n), y_train=y)
    with pytest.raises(ValueError, match="y_true is constant"):
        metrics.mean_standardized_log_loss(
            np.append(y, 5.0), np.zeros(n + 1), np.ones(n + 1), sample_weight=[1] * n + [0]
        )


def test_labels_and_probabilities_that_are_none_are_refused():
    proba = [[0.9, 0.1], [0.2, 0.8]]
    for y, labels in ((["a", "b"], [0, 1]), ([0, 7], [0, 1]), ([0.0, np.nan], [0, 1])):
        with pytest.raises(ValueError, match="none of the labels"):
            metrics.expected_calibration_error(y, proba, labels=labels)
    with pytest.raises(ValueError, match=r"y_proba\[1\] sums to 0.9"):
        metrics.expected_calibration_error([0, 1], [[0.9, 0.1], [0.2, 0.7]])


@pytest.mark.parametrize("metric", ["crps", "interval_score", "interval_width", "coverage_error", "calibration_error"])
def test_targets_that_are_missing_are_left_out_of_every_metric(metric):
    rng = np.random.default_rng(5)
    both = np.column_stack([TARGET, TARGET**2 / 50.0]) + rng.normal(size=(60, 2))
    model = regressor(missing_targets="ignore").fit(X, both)
    gaps = np.where(rng.uniform(size=both.shape) < 0.3, np.nan, both)
    weight, scorer = rng.uniform(0.5, 2.0, size=60), DistributionScorer(metric)
    each = []
    for k in range(2):
        rows = ~np.isnan(gaps[:, k])
        mean, std = (part[rows, k] for part in model.predict(X, return_std=True))
        single, lower, upper = gaps[rows, k], *stats.norm(mean, std).interval(0.9)
        each.append(
            {
                "crps": lambda: metrics.crps_gaussian(single, mean, std, sample_weight=weight[rows]),
                "interval_score": lambda: metrics.interval_score(single, lower, upper, sample_weight=weight[rows]),
                "interval_width": lambda: metrics.interval_width(lower, upper, sample_weight=weight[rows]),
                "coverage_error": lambda: abs(
                    metrics.interval_coverage(single, lower, upper, sample_weight=weight[rows]) - 0.9
                ),
                "calibration_error": lambda: metrics.pit_calibration_error(
                    stats.norm(mean, std).cdf(single), sample_weight=weight[rows]
                ),
            }[metric]()
        )
    assert_allclose(scorer(model, X, gaps, sample_weight=weight), -np.mean(each), rtol=1e-6)
    # Without gaps it is the metric of all.
    assert_allclose(scorer(model, X, both), scorer(model.set_params(missing_targets="error"), X, both), rtol=1e-12)
    if metric != "interval_width":
        with pytest.raises(ValueError, match=r"NaN|not finite"):
            scorer(model, X, gaps)


@pytest.mark.slow
def test_a_decreasing_transformer_turns_distribution_functions_around():
    model = BayesianRidge().fit(X, TARGET)
    turned = TransformedTargetRegressor(BayesianRidge(), func=np.negative, inverse_func=np.negative).fit(X, TARGET)
    found, expected = (predictions_of(each, X).cdf(TARGET + 1.0) for each in (turned, model))
    assert_allclose(found, expected, rtol=1e-6)
    counts = np.random.default_rng(0).poisson(3.0, size=60).astype(float)
    poisson = regressor(likelihood="poisson").fit(X, counts)
    turned = TransformedTargetRegressor(poisson, func=np.negative, inverse_func=np.negative, check_inverse=False)
    turned.regressor_, turned.transformer_ = poisson, FunctionTransformer(np.negative, np.negative).fit(counts[:, None])
    turned._training_dim = 1
    at, below = predictions_of(turned, X)._pit(-counts)
    upper, under = predictions_of(poisson, X)._pit(counts)
    assert_allclose((at, below), (1.0 - under, 1.0 - upper), rtol=1e-12)


def test_what_a_baseline_does_not_take_is_named():
    with pytest.raises(TypeError, match="BayesianRidge takes no offset"):
        metrics.crps_scorer(BayesianRidge().fit(X, TARGET), X, TARGET, offset=np.ones(60))
