"""Displays: what they hold, what they draw, and what they refuse."""

import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF
from sklearn.impute import SimpleImputer
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.inspection import (
    IntervalCalibrationDisplay,
    PredictiveDisplay,
    RelevanceDisplay,
    ResidualDisplay,
    TrainingDisplay,
)
from skgp_natgrad.likelihoods import Poisson

pytest.importorskip("matplotlib").use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

RNG = np.random.default_rng(2)
X = RNG.uniform(0, 10, size=(150, 1))
COUNTS = RNG.poisson(np.exp(1 + np.sin(X[:, 0])))
TARGET = np.sin(X[:, 0]) + 0.2 * RNG.normal(size=150)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def counts():
    options = {"n_inducing": 10, "max_iter": 60, "tol": 1.0, "batch_size": 50, "random_state": 0}
    return NGDSVGPRegressor(1.0 * RBF(), likelihood="poisson", **options).fit(X, COUNTS)


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.mark.slow
def test_training(counts):
    display = TrainingDisplay.from_estimator(make_pipeline("passthrough", counts))
    bound, steps = display.axes_
    assert_array_equal(bound.lines[0].get_ydata(), counts.elbo_curve_)
    assert_array_equal(steps.lines[0].get_ydata(), counts.step_sizes_)
    assert f"{counts.elbo_curve_[-1]:.6g}" in bound.get_title()
    axes = plt.subplots(2)[1]
    assert TrainingDisplay([1.0], [np.nan]).plot(ax=axes).axes_ is axes
    assert "A single step, to ELBO 1" in axes[0].get_title()
    with pytest.raises(ValueError, match="ax must be 2 axes for TrainingDisplay, but there are 1"):
        display.plot(ax=axes[0])


@pytest.mark.slow
def test_predictive(counts):
    display = PredictiveDisplay.from_estimator(counts, X, COUNTS, coverages=(0.5, 0.9), grid_resolution=40)
    assert display.grid[0] < X.min() < X.max() < display.grid[-1]
    assert_array_equal(display.y_mean, counts.predict(display.grid[:, None]))
    lower, upper = display.intervals[0.9]
    assert_array_equal((lower, upper), counts.predict_interval(display.grid[:, None], 0.9))
    # Bands of counts stay above zero.
    for band in display.ax_.collections[1:]:
        assert band.get_paths()[0].vertices[:, 1].min() >= 0.0
    assert_array_equal(display.inducing_points, counts.inducing_points_[:, 0])
    ax = plt.subplots()[1]
    assert display.plot(ax=ax).ax_ is ax


def test_predictive_of_a_frame_through_a_transformed_target():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"hours": X[:, 0]})
    inner = make_pipeline(StandardScaler(), BayesianRidge())
    model = TransformedTargetRegressor(inner, func=np.log, inverse_func=np.exp).fit(frame, np.exp(TARGET))
    display = PredictiveDisplay.from_estimator(model, frame, np.exp(TARGET), grid_resolution=20)
    lower, upper = display.intervals[0.95]
    assert np.all(lower > 0.0)
    assert np.all(upper > display.y_mean)
    assert display.ax_.get_xlabel() == "hours"
    assert display.inducing_points is None


@pytest.mark.slow
def test_inducing_points_are_drawn_in_the_units_of_x(counts):
    """Also inside a pipeline, whose steps need no inverse."""
    Z, lowest, highest = counts.inducing_points_[:, 0], X.min() - 0.5, X.max() + 0.5
    cases = {
        "scaled": (FunctionTransformer(lambda rows: (rows - 1000.0) / 5.0), lambda z: 1000.0 + 5.0 * z),
        "without an inverse": (FunctionTransformer(np.cbrt), lambda z: z**3),
        "falling": (FunctionTransformer(np.negative), np.negative),
    }
    for name, (transformer, inverse) in cases.items():
        rows = inverse(X)
        model = Pipeline([("impute", SimpleImputer()), ("step", transformer), ("count", counts)])
        model[:-1].fit(rows)
        display = PredictiveDisplay.from_estimator(model, rows, grid_resolution=2000)
        expected = np.sort(inverse(Z[(lowest < Z) & (highest > Z)]))
        drawn = np.sort(display.inducing_points)
        assert_allclose(drawn[1:-1], expected[1:-1], atol=1e-3 * np.ptp(rows), err_msg=name)
    there_and_back = Pipeline([("step", FunctionTransformer(np.cos)), ("count", counts)])
    there_and_back[:-1].fit(X)
    assert PredictiveDisplay.from_estimator(there_and_back, X).inducing_points is None
    twice = Pipeline([("step", FunctionTransformer(lambda rows: np.hstack([rows, rows]))), ("count", counts)])
    with pytest.raises(ValueError, match="X has 2 features"):
        PredictiveDisplay.from_estimator(twice, X)


@pytest.mark.slow
def test_predictive_with_what_is_known_of_the_rows():
    trials = np.full(150, 20)
    y = RNG.binomial(trials, 1.0 / (1.0 + np.exp(-np.sin(X[:, 0]))))
    options = {"n_inducing": 8, "max_iter": 40, "tol": 1.0, "random_state": 0}
    reg = NGDSVGPRegressor(1.0 * RBF(), likelihood="binomial", **options).fit(X, y, trials=trials)
    display = PredictiveDisplay.from_estimator(reg, X, y, trials=20)
    grid = display.grid[:, None]
    assert_array_equal(display.y_mean, reg.predict(grid, trials=20))
    assert_array_equal(display.intervals[0.95], reg.predict_interval(grid, 0.95, trials=20))
    with pytest.raises(ValueError, match=r"trials must be one number for the whole grid; its shape is \(150,\)"):
        PredictiveDisplay.from_estimator(reg, X, y, trials=trials)


@pytest.mark.parametrize(("n_points", "marker"), [(20, "^"), (500, "|")])
def test_many_inducing_points_are_drawn_as_ticks(n_points, marker):
    grid = np.linspace(0, 1, 30)
    display = PredictiveDisplay(grid, grid, {}, inducing_points=np.linspace(0, 1, n_points)).plot()
    assert display.ax_.lines[-1].get_marker() == marker
    assert len(display.ax_.lines[-1].get_xdata()) == n_points


def test_calibration_counts_the_targets_in_their_intervals():
    model = BayesianRidge().fit(X, TARGET)
    display = IntervalCalibrationDisplay.from_estimator(model, X, TARGET)
    mean, std = model.predict(X, return_std=True)
    for coverage, observed in zip(display.coverages, display.observed, strict=True):
        inside = np.abs(TARGET - mean) <= stats.norm.ppf(0.5 + 0.5 * coverage) * std
        assert_allclose(observed, inside.mean(), atol=1e-12)
    ends = [stats.norm(mean, std).interval(coverage) for coverage in display.coverages]
    same = IntervalCalibrationDisplay.from_predictions(TARGET, *zip(*ends, strict=True), display.coverages)
    assert_allclose(same.observed, display.observed, atol=1e-12)
    assert same.n_samples == 150


def test_calibration_of_right_counts_is_within_chance():
    class Right(BayesianRidge):
        """The distribution that the counts are from."""

        def predict_log_density(self, X, y):
            return stats.poisson(np.exp(X[:, 0])).logpmf(y)

        def predict_cdf(self, X, y):
            return stats.poisson(np.exp(X[:, 0])).cdf(y)

    rows = RNG.normal(size=(4000, 1))
    y = RNG.poisson(np.exp(rows[:, 0]))
    model = Right()
    model.likelihood_ = Poisson()
    display = IntervalCalibrationDisplay.from_estimator(model, rows, y)
    assert_allclose(display.observed, display.coverages, atol=0.03)
    assert_allclose(ResidualDisplay.from_estimator(model, rows, y).density_, 1.0, atol=0.25)


def test_residuals():
    pit = RNG.uniform(size=500)
    display = ResidualDisplay.from_predictions(pit, n_bins=10)
    assert_allclose(display.density_, np.histogram(pit, np.linspace(0, 1, 11))[0] / 50.0)
    # Steps that span several bins are spread over them.
    assert_allclose(ResidualDisplay([0.5], [0.0], n_bins=4).plot().density_, [2.0, 2.0, 0.0, 0.0])


@pytest.mark.slow
def test_relevance():
    both = np.column_stack([X[:, 0], RNG.normal(size=150) * 100.0])
    model = NGDSVGPRegressor(1.0 * RBF([1.0, 1.0]), n_inducing=10, max_iter=30, tol=1.0, random_state=0)
    model.fit(both, TARGET)
    display = RelevanceDisplay.from_estimator(model)
    assert display.names == ["x0", "x1"]
    assert_allclose(display.importances, np.sort(model.feature_importances_)[::-1])
    assert display.length_scales == model.summary().terms[0].factors[0].by_column
    single = RelevanceDisplay.from_estimator(model, max_features=1)
    assert len(single.names) == 1
    # A single bar does not fill the axis.
    assert np.abs(np.diff(single.ax_.get_ylim())) == 5.0


def test_what_displays_refuse(counts):
    with pytest.raises(ValueError, match=r"X has the shape \(150, 2\), but PredictiveDisplay draws"):
        PredictiveDisplay.from_estimator(counts, np.hstack([X, X]))
    for display in (RelevanceDisplay, TrainingDisplay):
        with pytest.raises(NotFittedError, match="This NGDSVGPRegressor instance is not fitted yet"):
            display.from_estimator(NGDSVGPRegressor())
    labels = LogisticRegression().fit(X, TARGET > 0)
    for display in (IntervalCalibrationDisplay, ResidualDisplay):
        with pytest.raises(TypeError, match="LogisticRegression is a classifier"):
            display.from_estimator(labels, X, TARGET > 0)


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"ResidualDisplay.plot needs matplotlib; install it by pip install"):
        ResidualDisplay([0.5]).plot()
