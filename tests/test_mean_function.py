"""Mean functions: known ones are offsets, fitted ones leave their residuals to the process, and all extrapolate."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics import r2_score
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad._backend import processes
from skgp_natgrad.estimators.rows import linear_mean, out_of_fold
from skgp_natgrad.likelihoods import Gaussian

RNG = np.random.default_rng(6)
X = RNG.uniform(-3.0, 3.0, size=(40, 2))
Y = 5.0 + 30.0 * X[:, 0] - 4.0 * X[:, 1] + np.sin(2.0 * X[:, 0]) + 0.1 * RNG.normal(size=40)
NEW = np.vstack([RNG.uniform(-3.0, 3.0, size=(6, 2)), [[20.0, -20.0], [0.0, 0.0]]])
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
KERNEL = ConstantKernel(1.0, "fixed") * RBF(0.8, "fixed")
OPTIONS = {"normalize_X": False, "normalize_y": False, "random_state": 0, "jitter": 1e-12}


def regressor(mean_function, **options):
    return NGDSVGPRegressor(
        KERNEL, likelihood=Gaussian(0.01, "fixed"), mean_function=mean_function, **OPTIONS | options
    )


def trend(rows):
    """30 x_0 - 4 x_1 + 5, and half of it."""
    return 5.0 + rows @ [30.0, -4.0]


def both_trends(rows):
    return np.column_stack([trend(rows), -0.5 * trend(rows)])


@pytest.fixture(scope="module")
def known():
    return regressor(trend).fit(X, Y)


@pytest.fixture(scope="module")
def linear():
    return regressor("linear").fit(X, Y)


def test_plan_and_summary_say_how_well_a_fitted_mean_function_predicts(known, linear):
    score = r2_score(Y, cross_val_predict(LinearRegression(), X, Y, cv=LeaveOneOut()))
    (line,) = linear.summary().of_rows
    assert line == f"the mean function LinearRegression has an R2 of {score:.2f} at rows that it has not seen"
    assert line in linear.plan_
    assert known.summary().of_rows == ()
    weight, spoiled = np.arange(40) < 30, np.where(np.arange(40) < 30, Y, -Y)
    some = regressor("linear").fit(X, spoiled, sample_weight=weight)
    score = r2_score(Y[:30], cross_val_predict(LinearRegression(), X[:30], Y[:30], cv=LeaveOneOut()))
    assert f"R2 of {score:.2f} at" in some.plan_


def test_the_score_of_a_mean_function_counts_weights_and_targets_that_vary():
    """Rows of weight five count five times; a constant target, or one of too few rows, has no score."""
    y, weight = X[:, 0] + 2.0 * np.random.default_rng(0).normal(size=40), np.where(np.arange(40) < 20, 5.0, 1.0)
    others = ~np.eye(40, dtype=bool)
    fits = [LinearRegression().fit(X[rest], y[rest], weight[rest]) for rest in others]
    left_out = [fit.predict(X[[i]])[0] for i, fit in enumerate(fits)]
    score = r2_score(y, left_out, sample_weight=weight)
    assert abs(score - r2_score(y, left_out)) > 0.02
    (line,) = regressor("linear").fit(X, y, sample_weight=weight).summary().of_rows
    assert f"R2 of {score:.2f} at" in line
    assert regressor("linear").fit(X, np.ones(40)).summary().of_rows == ()
    missing = np.where(np.arange(40)[:, None] < [40, 3], np.column_stack([Y, Y]), np.nan)
    with pytest.warns(UserWarning, match="too few rows"):
        (line,) = regressor(Ridge(), missing_targets="ignore").fit(X, missing).summary().of_rows
    assert line == "the mean function Ridge has an R2 of 1.00 at rows that it has not seen"


def test_a_function_is_an_offset(known):
    plain, at = regressor(None).fit(X, Y, offset=trend(X)), trend(NEW)
    for found, expected in zip(known.predict(NEW, True), plain.predict(NEW, True, offset=at), strict=True):
        assert_array_equal(found, expected)
    y = trend(NEW) + 0.3
    assert_array_equal(known.predict_cdf(NEW, y), plain.predict_cdf(NEW, y, offset=at))
    assert_array_equal(known.predict_log_density(NEW, y), plain.predict_log_density(NEW, y, offset=at))
    assert_array_equal(known.predict_quantiles(NEW, 0.3), plain.predict_quantiles(NEW, 0.3, offset=at))
    assert_array_equal(known.predict_interval(NEW)[0], plain.predict_interval(NEW, offset=at)[0])
    assert_array_equal(known.sample_y(NEW, 2), plain.sample_y(NEW, 2, offset=at))
    assert_array_equal(known.predict(NEW, offset=2.0), plain.predict(NEW, offset=at + 2.0))
    assert known.score(X, Y) == plain.score(X, Y, offset=trend(X))


@pytest.mark.parametrize("weighted", [False, True])
def test_a_linear_mean_leaves_its_errors_at_rows_left_out_to_the_process(weighted, linear):
    weight = np.where(np.arange(40) < 30, 1.0, 3.0) if weighted else np.ones(40)
    line = LinearRegression().fit(X, Y, sample_weight=weight)
    residuals = Y - without_its_own(X, Y, weight)
    exact = GaussianProcessRegressor(KERNEL, alpha=0.01 / weight, optimizer=None).fit(X, residuals)
    mean, std = exact.predict(NEW, return_std=True)
    found = regressor("linear").fit(X, Y, sample_weight=weight) if weighted else linear
    got = found.predict(NEW, return_std=True)
    assert_allclose(got[0], line.predict(NEW) + mean, rtol=1e-6)
    assert_allclose(got[1], np.sqrt(std**2 + 0.01), rtol=1e-5)
    assert_allclose(found.predict(NEW[6:7]), line.predict(NEW[6:7]))
    assert found.mean_function_[0].coef_ == pytest.approx(line.coef_)


def without_its_own(rows, y, weight):
    """What a linear regression predicts at each row that was fitted to the rows of other X.

    By least squares around the means: scikit-learn 1.9 leaves out columns of a millionth of the largest one's size.
    """
    found = np.empty(len(rows))
    for k, row in enumerate(rows):
        rest = (rows != row).any(1)
        own, root = weight[rest], np.sqrt(weight[rest])
        center, middle = np.average(rows[rest], axis=0, weights=own), np.average(y[rest], weights=own)
        coef = np.linalg.lstsq(root[:, None] * (rows[rest] - center), root * (y[rest] - middle))[0]
        found[k] = middle + (row - center) @ coef
    return found


def _of_shape(n_rows, n_columns):
    return np.random.default_rng(n_rows).normal(size=(n_rows, n_columns))


SHAPES = {
    "few columns": _of_shape(20, 3),
    "as many columns": _of_shape(10, 10),
    "one row more": _of_shape(11, 10),
    "more columns": _of_shape(12, 30),
    "collinear": _of_shape(9, 2) @ [[1.0, 0.0, 1.0], [0.0, 1.0, 2.0]],
    "a row that decides alone": np.column_stack([_of_shape(15, 2), np.arange(15) == 5]),
    "repeated": np.vstack([_of_shape(15, 6), _of_shape(15, 6)[:9]]),
    "a constant column": np.column_stack([_of_shape(8, 1), np.full(8, 7.0)]),
    "units": _of_shape(15, 4) * [1e6, 1.0, 1e-3, 10.0] + [1e7, 0.0, 5.0, 0.0],
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rows", SHAPES.values(), ids=SHAPES)
def test_errors_of_a_linear_mean_are_those_of_regressions_without_the_row(rows, weighted):
    rng = np.random.default_rng(3)
    y, weight = (
        rows[:, 0] + rng.normal(size=len(rows)),
        rng.uniform(0.3, 2.0, len(rows)) if weighted else np.ones(len(rows)),
    )
    expected = without_its_own(rows, y, weight)
    assert_allclose(linear_mean.left_out(rows, y, weight), expected, rtol=1e-7, atol=1e-9 * np.abs(y).max())


def coverage(mean_function, n_rows, n_columns, n_draws):
    """That of intervals of 90 %, where the first of many columns counts, beside noise of deviation .5."""
    found = []
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(n_rows + 300, n_columns))
        y = rows[:, 0] + 0.5 * rng.normal(size=len(rows))
        model = NGDSVGPRegressor(mean_function=mean_function, random_state=seed)
        mean, std = model.fit(rows[:n_rows], y[:n_rows]).predict(rows[n_rows:], return_std=True)
        found.append(np.mean(np.abs(y[n_rows:] - mean) < norm.ppf(0.95) * std))
    return np.mean(found)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(50, 60), (200, 150), (40, 30), (100, 60), (30, 10), (12, 30), (300, 3)])
def test_intervals_around_a_linear_mean_cover_at_every_shape(shape):
    """Residuals at its own rows are next to nothing where there are many columns."""
    assert 0.85 < coverage("linear", *shape, 10 if shape[0] < 100 else 4) < 0.97


def test_gradients_contain_the_slope_of_the_mean(linear, known):
    for model in (linear, known):
        found = model.predict_gradient(NEW)
        for column, step in enumerate(1e-5 * np.eye(2)):
            expected = (model.predict(NEW + step) - model.predict(NEW - step)) / 2e-5
            assert_allclose(found[:, column], expected, rtol=1e-6, atol=1e-5)


def test_it_is_cloned_saved_and_of_the_users_choice(linear):
    loaded = pickle.loads(pickle.dumps(linear))
    assert_array_equal(loaded.predict(NEW), linear.predict(NEW))
    assert clone(linear).mean_function == "linear"
    assert regressor(Ridge()).set_params(mean_function__alpha=3.0).mean_function.alpha == 3.0
    assert regressor(trend).get_params()["mean_function"] is trend


def test_several_outputs_with_missing_values():
    y = np.column_stack([Y, -0.5 * Y])
    y[:20:3, 0] = np.nan
    found = regressor("linear", missing_targets="ignore").fit(X, y)
    seen = ~np.isnan(y[:, 0])
    assert_allclose(found.mean_function_[0].coef_, LinearRegression().fit(X[seen], y[seen, 0]).coef_)
    assert found.predict_gradient(NEW).shape == (8, 2, 2)
    both = regressor(both_trends).fit(X, both_trends(X))
    assert_allclose(both.predict(NEW), both_trends(NEW), atol=1e-8)


@pytest.mark.slow
def test_a_stream_keeps_its_first_mean_and_counts_take_a_function():
    options = {"n_inducing": 10, "max_iter": 5}
    model = regressor("linear", **options).partial_fit(X[:20], Y[:20])
    before = model.mean_function_
    assert model.partial_fit(X[20:], Y[20:]).mean_function_ is before
    counts = np.random.default_rng(0).poisson(np.exp(1.0 + 0.5 * X[:, 0]))
    options |= {"likelihood": "poisson", "mean_function": half_of_first, "optimizer": None}
    found = NGDSVGPRegressor(KERNEL, **OPTIONS | options).fit(X, counts)
    plain = NGDSVGPRegressor(KERNEL, **OPTIONS | options).set_params(mean_function=None)
    plain.fit(X, counts, offset=0.5 * X[:, 0])
    assert_array_equal(found.predict(NEW), plain.predict(NEW, offset=0.5 * NEW[:, 0]))
    with pytest.raises(ValueError, match="predict_gradient is not available with mean_function and likelihood Poisson"):
        found.predict_gradient(NEW)


def half_of_first(rows):
    return 0.5 * rows[:, 0]


def too_few(rows):
    return np.zeros(3)


WRONG = [
    ("quadratic", {}, "mean_function='quadratic' must be None, 'linear', a function of X, or a regressor"),
    (3.0, {}, "mean_function=3.0 must be None"),
    (Ridge, {}, "must be None, 'linear', a function of X, or a regressor with fit and predict"),
    ("linear", {"likelihood": "poisson"}, "would be fitted to y, but with likelihood Poisson a mean function"),
    (too_few, {}, r"mean_function\(X\) has the shape \(3,\); give a number, or one value for each of the 40 rows"),
]


@pytest.mark.parametrize(("mean_function", "options", "message"), WRONG, ids=[str(case[2])[:30] for case in WRONG])
def test_wrong_mean_functions_are_refused_by_name(mean_function, options, message):
    with pytest.raises(ValueError, match=message):
        NGDSVGPRegressor(KERNEL, mean_function=mean_function, **OPTIONS | options).fit(X, np.round(Y**2))


@pytest.mark.slow
def test_many_rows_take_a_function_of_blocks(monkeypatch):
    monkeypatch.setattr("skgp_natgrad._backend.rows.WINDOW_ROWS", 16)
    monkeypatch.setattr("skgp_natgrad._backend.rows.BLOCK_ROWS", 8)
    options = {"n_inducing": 5, "max_iter": 1, "batch_size": 8}
    with pytest.raises(
        ValueError, match="needs all rows in the memory of one process, but this table of 40 rows is read by blocks"
    ):
        regressor("linear", **options).fit(X, Y)
    found = regressor(trend, **options).fit(X, Y)
    plain = regressor(None, **options).fit(X, Y, offset=trend(X))
    assert_array_equal(found.predict(NEW), plain.predict(NEW, offset=trend(NEW)))


def test_what_cannot_be_fitted_rightly_is_refused(monkeypatch):
    weight = RNG.uniform(0.5, 2.0, size=40)
    with pytest.raises(ValueError, match="takes no sample_weight"):
        regressor(make_pipeline(StandardScaler(), Ridge())).fit(X, Y, sample_weight=weight)
    missing = np.column_stack([Y, np.full(40, np.nan)])
    with pytest.raises(ValueError, match="y is missing in every row of positive weight"):
        regressor("linear", missing_targets="ignore").fit(X, missing)
    monkeypatch.setattr(processes, "sharing", lambda n_devices: 2)
    with pytest.raises(ValueError, match="40 rows several processes share"):
        regressor("linear").fit(X, Y)


@pytest.mark.slow
def test_a_stream_refuses_another_mean_function():
    first = regressor(trend, solver="ngd", n_inducing=10, max_iter=3).partial_fit(X, Y)
    with pytest.raises(ValueError, match="mean_function='linear'"):
        first.set_params(mean_function="linear").partial_fit(X, Y)


@pytest.mark.slow
def test_a_stream_refuses_the_method_of_another_model():
    """Methods of two fitted models have one repr."""
    first, other, copy = (Ridge(1.0).fit(X, factor * Y) for factor in (1.0, -1.0, 1.0))
    model = regressor(first.predict, solver="ngd", n_inducing=10, max_iter=3).partial_fit(X, Y)
    model.set_params(mean_function=copy.predict).partial_fit(X, Y)
    with pytest.raises(ValueError, match="mean_function=<bound method"):
        model.set_params(mean_function=other.predict).partial_fit(X, Y)


def test_a_stream_sees_changes_in_place():
    """Of a regressor that the previous fit was given; equal parameters are no change."""
    first = regressor(Ridge(1.0), solver="ngd", n_inducing=10, max_iter=3).partial_fit(X, Y)
    first.set_params(mean_function=Ridge(1.0)).partial_fit(X, Y)
    with pytest.raises(
        ValueError, match=r"mean_function=Ridge\(alpha=50.0\), and the previous fit had mean_function=Ridge"
    ):
        first.set_params(mean_function__alpha=50.0).partial_fit(X, Y)


def noisy(n_rows, seed):
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-3.0, 3.0, size=(n_rows, 2))
    return rows, np.sin(2.0 * rows[:, 0]) + 0.5 * rows[:, 1] + 0.3 * rng.normal(size=n_rows)


@pytest.mark.slow
def test_a_regressor_that_memorises_leaves_its_errors_at_new_rows():
    """A fully grown tree has no residual at its own rows: the process would believe that there is no noise."""
    (rows, y), (new, y_new) = noisy(300, 0), noisy(300, 1)
    tree = DecisionTreeRegressor(random_state=0)
    model = NGDSVGPRegressor(1.0 * RBF(), mean_function=tree, random_state=0).fit(rows, y)
    assert_array_equal(model.mean_function_[0].predict(rows), y)
    mean, std = model.predict(new, return_std=True)
    assert 0.7 < np.sqrt(np.mean(((y_new - mean) / std) ** 2)) < 1.4
    # A function is taken as it is, also one that has seen the rows.
    seen = NGDSVGPRegressor(1.0 * RBF(), mean_function=tree.fit(rows, y).predict, random_state=0).fit(rows, y)
    densities = [each.predict_log_density(new, y_new).mean() for each in (model, seen)]
    assert densities[0] > -0.9
    assert densities[1] < -100.0


def test_residuals_are_those_of_copies_that_have_not_seen_the_row():
    """Written out: the offset of the fit is what five copies predict, equal rows in one part."""
    rows = np.vstack([X, X[:10]])
    y, weight = np.concatenate([Y, Y[:10] + 1.0]), np.linspace(0.5, 2.0, 50)
    forest = DecisionTreeRegressor(random_state=1)
    part = out_of_fold.parts_of(rows, np.zeros(50), np.random.RandomState(3))
    assert_array_equal(part[:10], part[40:])
    assert sorted(np.bincount(part[:40])) == [8] * 5
    expected = np.empty(50)
    for k in range(5):
        rest = part != k
        expected[~rest] = clone(forest).fit(rows[rest], y[rest], sample_weight=weight[rest]).predict(rows[~rest])
    found = regressor(forest, random_state=3).fit(rows, y, sample_weight=weight)
    plain = regressor(None).fit(rows, y, sample_weight=weight, offset=expected)
    at = forest.fit(rows, y, sample_weight=weight).predict(NEW)
    assert_allclose(found.predict(NEW), plain.predict(NEW, offset=at), rtol=1e-12)


@pytest.mark.parametrize("mean_function", ["linear", Ridge(), DecisionTreeRegressor()], ids=str)
def test_of_too_few_rows_none_can_be_left_out(mean_function):
    """Then there is no mean function, and the model is the same without one; copies of a row are one."""
    rows, y = np.repeat(X[:4], 2, axis=0), np.repeat(Y[:4], 2)
    with pytest.warns(UserWarning, match="was not fitted, and is zero: that needs 5 rows of different X"):
        found = regressor(mean_function).fit(rows, y)
    plain = regressor(None).fit(rows, y)
    assert_allclose(found.predict(NEW, return_std=True), plain.predict(NEW, return_std=True), rtol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        regressor(mean_function).fit(X[:5], Y[:5])


def test_an_output_of_too_few_values_has_no_mean_function():
    y = np.column_stack([Y, np.where(np.arange(40) < 4, -Y, np.nan)])
    with pytest.warns(UserWarning, match="was not fitted, and is zero"):
        found = regressor("linear", missing_targets="ignore").fit(X, y)
    plain = regressor(None, missing_targets="ignore").fit(X, y)
    assert_allclose(found.predict(NEW)[:, 1], plain.predict(NEW)[:, 1], rtol=1e-9, atol=1e-12)
    assert found.mean_function_[0].coef_ == pytest.approx(LinearRegression().fit(X, Y).coef_)


@pytest.mark.slow
def test_a_stream_that_begins_with_few_rows_goes_on_without():
    options = {"solver": "ngd", "n_inducing": 10, "max_iter": 3}
    with pytest.warns(UserWarning, match="was not fitted, and is zero"):
        found = regressor("linear", **options).partial_fit(X[:4], Y[:4])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "mean_function")
        found.partial_fit(X[4:], Y[4:])
    plain = regressor(None, **options).partial_fit(X[:4], Y[:4]).partial_fit(X[4:], Y[4:])
    assert_allclose(found.predict(NEW), plain.predict(NEW), rtol=1e-9)


def test_what_a_mean_function_leaves_may_be_noise(rng):
    x = rng.normal(size=(60, 2))
    y = 3.0 * x[:, 0] + 0.5 * rng.normal(size=60)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        NGDSVGPRegressor(mean_function="linear", random_state=0).fit(x, y)
