"""Tables at the edge: scales, outliers, repetition, and next to no rows."""

import re
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, Matern

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = np.sin(X[:, 0]) + X[:, 1]
CLASSES = (Y > 0).astype(int)


def fit(estimator, X, y, kernel=None, **options):
    """A short fit, in which nothing may overflow or divide by zero."""
    model = estimator(kernel, **{"n_inducing": 5, "max_iter": 20, "random_state": 0, **options})
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.filterwarnings("ignore", "n_inducing=5, but", UserWarning)
        return model.fit(X, y)


def check_regressor(X, y, **options):
    """Fit, and check that all that is predicted is finite; return mean and deviation."""
    model = fit(NGDSVGPRegressor, X, y, **options)
    mean, std = model.predict(X, return_std=True)
    cov = model.predict(X[:3], return_cov=True)[1]
    for values in (mean, std, cov, model.sample_y(X[:3], 2), model.predict_log_density(X, y), model.jitter_):
        assert np.all(np.isfinite(values))
    assert np.all(std > 0)
    assert np.all(np.diag(cov) > 0)
    assert model.jitter_ > 0
    return mean, std


def check_classifier(X, y=CLASSES, **options):
    """Fit, and check that the probabilities are; return them."""
    model = fit(NGDSVGPClassifier, X, y, **options)
    proba = model.predict_proba(X)
    assert np.all(np.isfinite(model.predict_log_proba(X)))
    assert_allclose(proba.sum(1), 1.0)
    assert model.jitter_ > 0
    return proba


def rmse(mean, y):
    return np.sqrt(np.mean((mean - y) ** 2))


# The search for a kernel ends within its own precision, not to the last digits.
GIVEN = {"kernel": 1.0 * Matern([1.0, 1.0, 1.0], nu=2.5)}


@pytest.fixture(scope="module")
def usual():
    return check_regressor(X, Y, **GIVEN), check_classifier(X, **GIVEN)


# -- scales -------------------------------------------------------------------------------


@pytest.mark.slow
def test_spreads_of_columns_do_not_matter(usual):
    """Nor do those of y."""
    (mean, std), proba = usual
    table = X * [1e-12, 1.0, 1e12]
    assert_allclose(check_classifier(table, **GIVEN), proba, atol=1e-6)
    for unit in (1.0, 1e-12, 1e12, 1e100):
        got = check_regressor(table, unit * Y, **GIVEN)
        assert_allclose(got[0] / unit, mean, atol=1e-6)
        assert_allclose(got[1] / unit, std, rtol=1e-6)


@pytest.mark.slow
def test_far_offsets_cost_only_digits(usual):
    (mean, _), proba = usual
    assert_allclose(check_regressor(X + 1e6, Y - 1e6, **GIVEN)[0] + 1e6, mean, atol=1e-4)
    assert_allclose(check_classifier(X + 1e6, **GIVEN), proba, atol=1e-4)


@pytest.mark.slow
def test_units_hardly_matter_to_the_search_for_a_kernel():
    first = NGDSVGPRegressor(random_state=0).fit(X, Y).predict(X)
    for table, shift, unit in ((X * [1e-12, 1.0, 1e12], 0.0, 1e12), (X + 1e6, -1e6, 1.0)):
        got = NGDSVGPRegressor(random_state=0).fit(table, unit * Y + shift).predict(table)
        assert rmse((got - shift) / unit, first) < 0.05


def test_precision_of_the_input(usual):
    """Integers are exact; of float32 nothing is lost but its own rounding."""
    (mean, std), proba = usual
    got = check_regressor(X.astype(np.float32), Y.astype(np.float32), **GIVEN)
    assert_allclose(got[0], mean, atol=1e-4)
    assert_allclose(got[1], std, rtol=1e-4)
    assert_allclose(check_classifier(X.astype(np.float32), **GIVEN), proba, atol=1e-4)
    whole = np.rint(10 * X)
    for dtype in (np.int8, np.int64):
        assert_allclose(
            check_regressor(whole.astype(dtype), Y, **GIVEN), check_regressor(whole, Y, **GIVEN), rtol=1e-12
        )
    assert_allclose(check_classifier(whole.astype(int), **GIVEN), check_classifier(whole, **GIVEN), rtol=1e-12)


@pytest.mark.slow
def test_kernels_at_the_ends(usual):
    """At 1e-5 all rows are strangers, at 1e5 they are one: the mean of y is left."""
    for length_scale in (1e-5, 1e5):
        kernel = RBF(length_scale, "fixed")
        mean, std = check_regressor(X, Y, kernel=kernel)
        assert rmse(mean, Y.mean()) < 0.3
        assert np.all(std > 0.2 * Y.std())
        assert np.all(np.abs(check_classifier(X, kernel=kernel) - 0.5) < 0.3)


# -- outliers -----------------------------------------------------------------------------


@pytest.mark.slow
def test_one_outlier_of_y_is_an_outlier():
    y = Y.copy()
    y[7] = 1e6
    mean, std = check_regressor(X, y)
    # One row of sixty says little of the others, and is their second moment, which is 1.3e5 squared.
    assert np.all(np.abs(mean) < 2e5)
    assert np.all((std > 3e4) & (std < 5e5))
    y = np.delete(y, 7)
    robust = fit(NGDSVGPRegressor, np.delete(X, 7, 0), y)
    assert rmse(robust.predict(np.delete(X, 7, 0)), y) < 0.6 * y.std()


def test_one_outlier_of_a_column(usual):
    table = X.copy()
    table[7, 0] = 1e6
    assert rmse(check_regressor(table, Y)[0], Y) < 0.8 * Y.std()
    assert np.mean((check_classifier(table)[:, 1] > 0.5) == CLASSES) > 0.6


# -- constants ----------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, 3.7, -1e12, 1e-200])
def test_a_constant_target_is_predicted(value):
    said = re.escape(f"y is {value:.6g} in all rows: the model predicts this value everywhere")
    with pytest.warns(UserWarning, match=f"^y is constant.\n{said}"):
        assert_allclose(check_regressor(X, np.full(60, value))[0], value, rtol=1e-12, atol=1e-12)


def test_one_constant_output_of_several_is_named():
    with pytest.warns(UserWarning, match=r"^y is constant\.\ny \(output 1\) is 3 in all rows: "):
        NGDSVGPRegressor(RBF(), random_state=0).fit(X, np.column_stack([Y, np.full(60, 3.0)]))


def test_targets_whose_variance_underflows():
    """They would be fitted as a constant."""
    with pytest.raises(ValueError, match=r"y holds values up to .*, whose variance underflows; rescale y"):
        check_regressor(X, 1e-200 * Y)
    assert np.all(np.abs(check_regressor(X, 1e-140 * Y)[0]) < 1e-138)


@pytest.mark.slow
def test_constant_columns():
    table = np.column_stack([X[:, 0], np.full(60, 3.0), np.zeros(60)])
    assert rmse(check_regressor(table, X[:, 0])[0], X[:, 0]) < 0.5
    assert np.mean((check_classifier(table, X[:, 0] > 0)[:, 1] > 0.5) == (X[:, 0] > 0)) > 0.9
    mean, _ = check_regressor(np.full((60, 3), 2.0), Y)
    assert_allclose(mean, Y.mean(), atol=0.2 * Y.std())
    assert np.all(np.ptp(check_classifier(np.full((60, 3), 2.0)), axis=0) == 0.0)


# -- shapes -------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3])
def test_next_to_no_rows(n):
    mean, _ = check_regressor(X[:n], Y[:n])
    assert np.all(np.abs(mean - Y[:n].mean()) <= np.ptp(Y[:n]) + 1e-9)
    if n > 1:
        check_classifier(X[:n], np.arange(n) % 2)


@pytest.mark.slow
@pytest.mark.parametrize("n_columns", [1, 500])
def test_one_column_and_five_hundred(n_columns):
    table = np.random.default_rng(1).normal(size=(60, n_columns))
    table[:, 0] = X[:, 1]
    mean, std = check_regressor(table, X[:, 1])
    assert rmse(mean, X[:, 1]) < 1.05 * X[:, 1].std()
    assert np.all(std < 2 * X[:, 1].std())


# -- repetition ---------------------------------------------------------------------------


@pytest.mark.slow
def test_two_thirds_of_the_rows_are_copies():
    table, y = np.repeat(X[:20], 3, axis=0), np.repeat(Y[:20], 3)
    assert rmse(check_regressor(table, y)[0], y) < 0.5 * y.std()
    assert np.mean((check_classifier(table, y > 0)[:, 1] > 0.5) == (y > 0)) > 0.8
    # The same rows with targets that contradict each other.
    mean, std = check_regressor(table, Y)
    assert np.all(np.abs(mean) < 2 * np.abs(Y).max())
    assert np.all(std > 0.2 * Y.std())


@pytest.mark.parametrize("copies", [(0, 0, 1, 1, 2), (0, 0, 0, 0, 0)])
def test_copies_among_the_given_points(copies):
    points = X[list(copies)]
    mean, _ = check_regressor(X, Y, inducing_init=points)
    assert rmse(mean, Y) < Y.std()
    check_classifier(X, inducing_init=points)


@pytest.mark.slow
@pytest.mark.parametrize("shares", [[0.2, 0.8], [0.15, 0.35, 0.5]])
def test_far_from_all_rows_probabilities_lie_between_the_base_rates_and_equal_ones(shares, rng):
    X = rng.normal(size=(120, 2))
    f = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.3 * rng.normal(size=120)
    y = np.digitize(f, np.quantile(f, np.cumsum(shares)[:-1]))
    far = 1e3 * np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [1.0, -1.0]])
    found = NGDSVGPClassifier(1.0 * Matern(nu=1.5), random_state=0).fit(X, y).predict_proba(far)
    assert_allclose(found - found[0], 0.0, atol=1e-9)
    # A part of the way from equal probabilities to the shares, the same for all classes up to the link.
    part = (found[0] - 1.0 / len(shares)) / (np.array(shares) - 1.0 / len(shares))
    assert 0.2 < part[0] < 1.0
    assert 0.2 < part[-1] < 1.0
