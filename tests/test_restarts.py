"""Several starts for the hyperparameters of a given kernel; periods and fixed lengthscales in the units of X."""

import pickle
import warnings

import numpy as np
import pytest
from scipy.signal import lombscargle
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, ExpSineSquared, RationalQuadratic

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.choose.periods import likely_periods
from skgp_natgrad.kernels import Columns
from skgp_natgrad.likelihoods import Gaussian

NOISE = 0.1


def season(period, n_rows=200, n_periods=10, n_columns=1, seed=0):
    """Rows of a season in the first column, and further rows without noise."""
    rng = np.random.default_rng(seed)
    X, T = (rng.uniform(0.0, n_periods * period, (n, n_columns)) for n in (n_rows, 100))
    of_X, of_T = (np.sin(2.0 * np.pi * each[:, 0] / period) for each in (X, T))
    return X, of_X + NOISE * rng.normal(size=n_rows), T, of_T


def error(model, table):
    X, y, T, f = table
    return np.sqrt(np.mean((model.fit(X, y).predict(T) - f) ** 2))


def regressor(kernel, **options):
    return NGDSVGPRegressor(kernel, random_state=0, **options)


# -- periods ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("period", "span", "n_rows"), [(5.0, 20.0, 200), (0.05, 20.0, 200), (0.05, 100.0, 200), (300.0, 1e4, 900)]
)
def test_the_periodogram_has_the_period_of_irregular_rows(rng, period, span, n_rows):
    x = rng.uniform(0.0, span, n_rows)
    y = np.sin(2.0 * np.pi * x / period) + NOISE * rng.normal(size=n_rows) + 30.0 * (x / span) ** 2
    found = likely_periods(x, y[None], np.ones(n_rows))[0]
    assert abs(span / found - span / period) < 0.2  # turns over the whole range
    near = np.linspace(0.99, 1.01, 201) * found
    trend = np.polyval(np.polyfit(x, y, 3), x)
    best = near[np.argmax(lombscargle(x, y - trend, 2.0 * np.pi / near))]
    assert abs(span / found - span / best) < 0.2


def test_of_equal_distances_the_periodogram_names_no_image_first():
    x = np.arange(240.0)
    y = np.sin(2.0 * np.pi * x / 12.0)
    assert likely_periods(x, y[None], np.ones(240))[0] == pytest.approx(12.0, rel=0.02)


def test_the_periodogram_leaves_out_missing_targets_and_rows_without_weight(rng):
    x = rng.uniform(0.0, 50.0, 300)
    y = np.vstack([np.sin(2.0 * np.pi * x / 5.0), np.full(300, np.nan)])
    y[0, :80] = np.nan
    y[0, 80:100] = 1e6
    weight = np.where(np.arange(300) < 100, 0.0, 1.0)
    assert likely_periods(x, y, weight)[0] == pytest.approx(5.0, rel=0.02)


@pytest.mark.parametrize("x", [np.zeros(50), np.arange(50) % 2, np.arange(4)])
def test_few_values_have_no_period(x):
    assert len(likely_periods(x.astype(float), np.arange(len(x))[None] % 3.0, np.ones(len(x)))) == 0


@pytest.mark.slow
@pytest.mark.parametrize("start", [6.0, *(pytest.param(each, marks=pytest.mark.slow) for each in (0.5, 60.0))])
def test_the_period_is_found_from_a_wrong_start(start):
    model = regressor(1.0 * ExpSineSquared(1.0, start), normalize_X=False)
    table = season(5.0)
    assert error(model, table) < 0.5 * NOISE
    # Its multiples explain a season, too.
    turns = model.kernel_.k2.periodicity / 5.0
    assert turns == pytest.approx(round(turns), abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (1.0 * ExpSineSquared(1.0, 30.0), {}),
        (1.0 * ExpSineSquared(1.0, 0.2) * RBF(1.0), {}),
        (1.0 * ExpSineSquared(1.0, 12.0) + 1.0 * RBF(), {}),
        (1.0 * ExpSineSquared(1.0, 12.0) + 1.0 * DotProduct(), {"n_columns": 3}),
        (1.0 * Columns(ExpSineSquared(1.0, 6.0), 0) + 1.0 * RBF([1.0] * 3), {"n_columns": 3}),
        (1.0 * ExpSineSquared(1.0, 6.0), {"n_rows": 1500, "n_periods": 100}),
    ],
)
def test_periods_are_found_in_sums_and_products(kernel, options, seed):
    if options.get("n_columns") == 3 and "Columns" not in repr(kernel):
        kernel = Columns(kernel, 0)
    assert error(regressor(kernel, normalize_X=False), season(5.0, seed=seed, **options)) < 0.6 * NOISE


@pytest.mark.slow
@pytest.mark.parametrize("period", [0.05, 300.0])
@pytest.mark.parametrize("factor", [0.03, 0.5, 2.0, 30.0])
@pytest.mark.parametrize("normalize_X", ["auto", False])
def test_periods_are_found_on_any_scale(period, factor, normalize_X):
    model = regressor(1.0 * ExpSineSquared(1.0, factor * period), normalize_X=normalize_X)
    assert error(model, season(period)) < 0.5 * NOISE


@pytest.mark.slow
def test_two_periods_are_found():
    rng = np.random.default_rng(0)
    X, T = rng.uniform(0.0, 50.0, (300, 1)), rng.uniform(0.0, 50.0, (200, 1))
    f = [np.sin(2.0 * np.pi * each[:, 0] / 5.0) + 0.7 * np.sin(2.0 * np.pi * each[:, 0] / 1.7) for each in (X, T)]
    kernel = 1.0 * ExpSineSquared(1.0, 6.0) + 1.0 * ExpSineSquared(1.0, 1.0)
    table = X, f[0] + NOISE * rng.normal(size=300), T, f[1]
    assert error(regressor(kernel, normalize_X=False), table) < 0.5 * NOISE


@pytest.mark.slow
def test_steps_start_at_the_period_that_targets_show():
    table = season(5.0)
    options = {"normalize_X": False, "solver": "ngd", "n_inducing": 50, "max_iter": 300}
    assert error(regressor(1.0 * ExpSineSquared(1.0, 20.0), **options), table) < NOISE
    held = regressor(1.0 * ExpSineSquared(1.0, 1.7), optimizer=None, **options).fit(*table[:2])
    assert held.kernel_.k2.periodicity == 1.7


@pytest.mark.slow
@pytest.mark.parametrize("start", [6.0, 60.0])
def test_the_period_of_classes_is_found(start):
    X, y, T, f = season(5.0, n_rows=400)
    model = NGDSVGPClassifier(1.0 * ExpSineSquared(1.0, start), random_state=0, normalize_X=False)
    assert np.mean(model.fit(X, y > 0.0).predict(T) == (f > 0.0)) > 0.93


# -- starts ----------------------------------------------------------------------------------


def wiggly(seed=0):
    rng = np.random.default_rng(seed)
    X, T = rng.uniform(0.0, 30.0, (300, 1)), rng.uniform(0.0, 30.0, (100, 1))
    return X, np.sin(5.0 * X[:, 0]) + NOISE * rng.normal(size=300), T, np.sin(5.0 * T[:, 0])


@pytest.mark.slow
def test_a_wiggly_function_is_no_noise():
    alone = error(regressor(1.0 * RBF(3.0), n_restarts_optimizer=0), wiggly())
    assert error(regressor(1.0 * RBF(3.0)), wiggly()) < 0.7 * NOISE < 0.6 < alone


@pytest.mark.slow
def test_bounds_hold_for_all_starts_and_fixed_values_stay():
    X, y, _, _ = season(5.0)
    kernel = 1.0 * ExpSineSquared(1.0, 7.0, periodicity_bounds=(6.0, 9.0)) + ConstantKernel(0.3, "fixed")
    found = regressor(kernel, normalize_X=False, n_restarts_optimizer=2).fit(X, y).kernel_
    assert 6.0 <= found.k1.k2.periodicity <= 9.0
    assert found.k2.constant_value == 0.3
    kernel = 1.0 * ExpSineSquared(1.0, 7.0, periodicity_bounds="fixed")
    assert regressor(kernel, normalize_X=False).fit(X, y).kernel_.k2.periodicity == 7.0


@pytest.mark.slow
def test_values_that_are_near_the_best_are_searched_from_alone():
    X, y, T, _ = season(5.0, n_periods=1.0)
    models = [regressor(1.0 * RBF(), n_restarts_optimizer=number).fit(X, y) for number in (0, "auto")]
    np.testing.assert_array_equal(*(model.predict(T) for model in models))


@pytest.mark.slow
def test_restarts_are_random_by_random_state():
    X, y, T, _ = wiggly()
    options = {"n_restarts_optimizer": 3}
    first, second = (regressor(1.0 * RBF(3.0), **options).fit(X, y).predict(T) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("wrong", [-1, 1.5, "some", None])
def test_wrong_numbers_of_restarts_are_refused(wrong):
    with pytest.raises(ValueError, match=r"n_restarts_optimizer=.*an int in the range"):
        regressor(RBF(), n_restarts_optimizer=wrong).fit([[0.0], [1.0]], [0.0, 1.0])


FIXED = ConstantKernel(1.0, "fixed") * RBF(1.0, "fixed")
FEW_STEPS = {"solver": "ngd", "n_inducing": 5, "max_iter": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "options", "reason"),
    [
        (None, FEW_STEPS, "the default kernel has a search of its own"),
        (RBF(), {**FEW_STEPS, "optimizer": None}, "optimizer=None keeps the kernel's hyperparameters"),
        (FIXED, FEW_STEPS, "all that it would search for is fixed"),
        (FIXED, {"likelihood": Gaussian(0.1, "fixed")}, "all that it would search for is fixed"),
        (RBF(), {"likelihood": "poisson", "n_inducing": 5}, "for counts the search starts at the given values alone"),
        (FIXED, {}, None),
        (RBF(), FEW_STEPS, None),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_restarts_without_effect_are_named_and_have_none(kernel, options, reason, rng):
    X = rng.uniform(0.0, 3.0, (30, 1))
    y = rng.poisson(1.0 + X[:, 0]).astype(float)
    few, many = (regressor(kernel, n_restarts_optimizer=number, **options) for number in ("auto", 3))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        predicted = [model.fit(X, y).predict(X) for model in (few, many)]
    told = [str(each.message) for each in caught if "Without effect" in str(each.message)]
    assert [text.splitlines()[1].partition(". Leave")[0] for text in told] == (
        [f"n_restarts_optimizer=3 ({reason})"] if reason else []
    )
    if reason:
        np.testing.assert_array_equal(*predicted)


def test_a_search_of_one_start_needs_no_restarts(rng):
    X = rng.uniform(0.0, 3.0, (30, 1))
    model = regressor(RBF(), likelihood="poisson", n_inducing=5, n_restarts_optimizer=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Without effect")
        model.fit(X, rng.poisson(1.0, 30))


# -- units -----------------------------------------------------------------------------------

YEARS = 1990.0 + np.arange(240)[:, None] / 12.0
BETWEEN = YEARS + 0.04


def of_years(X):
    return 2.0 * np.sin(2.0 * np.pi * X[:, 0]) + 0.1 * (X[:, 0] - 1990.0)


def monthly():
    return YEARS, of_years(YEARS) + 0.3 * np.random.default_rng(0).normal(size=len(YEARS)), BETWEEN, of_years(BETWEEN)


IN_YEARS = [
    1.0 * ExpSineSquared(1.0, 1.0, periodicity_bounds="fixed") + 1.0 * RBF(),
    1.0 * ExpSineSquared(1.0, 1.0, periodicity_bounds=(0.9, 1.1)) * RBF(20.0, "fixed"),
]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", IN_YEARS)
def test_periods_and_fixed_lengths_are_in_the_units_of_x(kernel):
    table = monthly()
    scaled, raw = (regressor(kernel, normalize_X=value) for value in ("auto", False))
    assert error(scaled, table) < 0.1
    np.testing.assert_allclose(scaled.predict(BETWEEN), raw.fit(*table[:2]).predict(BETWEEN), atol=1e-3)
    shown = scaled.kernel_.get_params()
    assert {name: value for name, value in shown.items() if name.endswith("periodicity")} == {
        next(name for name in shown if name.endswith("periodicity")): pytest.approx(1.0, abs=0.01)
    }
    bounds = [value for name, value in shown.items() if name.endswith("periodicity_bounds")]
    assert bounds == [kernel.get_params()[name] for name in shown if name.endswith("periodicity_bounds")]
    assert "periodicity: x0 1\n" in f"{scaled.summary()}\n"


@pytest.mark.slow
def test_the_fitted_kernel_gives_the_same_model_again():
    X, y, T, _ = monthly()
    model = regressor(IN_YEARS[1]).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(T), model.predict(T))
    options = {
        "likelihood": model.likelihood_,
        "optimizer": None,
        "n_inducing": None,
        "gamma_schedule": 1.0,
        "max_iter": 4,
    }
    held = regressor(model.kernel_, **options).fit(X, y)
    assert held.kernel_ == model.kernel_
    np.testing.assert_allclose(held.predict(T), model.predict(T), atol=1e-4)


@pytest.mark.slow
def test_fixed_lengths_of_all_columns_are_those_of_the_exact_process(rng):
    X, T = (rng.uniform(size=(n, 3)) * [1.0, 100.0, 10.0] for n in (80, 30))
    y = np.sin(X[:, 1] / 20.0) + X[:, 0] + NOISE * rng.normal(size=80)
    for kernel in (
        ConstantKernel(2.0, "fixed") * RBF([1.0, 30.0, 20.0], "fixed"),
        ConstantKernel(2.0, "fixed") * RBF(15.0, "fixed"),
        ConstantKernel(2.0, "fixed") * RationalQuadratic(15.0, 2.0, "fixed", "fixed"),
    ):
        exact = GaussianProcessRegressor(kernel, alpha=0.04, optimizer=None).fit(X, y - y.mean())
        options = {"likelihood": Gaussian(0.04, "fixed"), "normalize_y": "center", "calibrate": False}
        found = regressor(kernel, **options).fit(X, y)
        assert found.kernel_ == kernel
        np.testing.assert_allclose(found.predict(T) - y.mean(), exact.predict(T), atol=1e-5)


@pytest.mark.slow
def test_streams_and_warm_starts_keep_the_units():
    X, y, T, f = monthly()
    order = np.random.default_rng(0).permutation(len(X))
    kernel = 4.0 * ExpSineSquared(1.0, 1.0, periodicity_bounds="fixed") + 1.0 * RBF()
    model = regressor(kernel, n_inducing=40, max_iter=150)
    for part in (order[:120], order[120:]):
        model.partial_fit(X[part], y[part])
        assert model.kernel_.k1.k2.periodicity == 1.0
    assert np.sqrt(np.mean((model.predict(T) - f) ** 2)) < 0.3
    kernel = clone(kernel).set_params(k1__k2__periodicity_bounds=(0.5, 2.0))
    warm = regressor(kernel, n_inducing=40, max_iter=60, warm_start=True)
    periods = [warm.fit(X, y).kernel_.k1.k2.periodicity for _ in range(2)]
    # The second fit goes on from what the first has found.
    assert periods == pytest.approx([1.0, 1.0], abs=0.01)
    assert warm.elbo_curve_[0] > warm.elbo_ - 20.0


@pytest.mark.slow
def test_periods_at_their_bounds_are_told_in_the_units_of_x():
    X, y, _, _ = monthly()
    kernel = 1.0 * ExpSineSquared(1.0, 1.006, periodicity_bounds=(1.005, 1.1)) + 1.0 * RBF()
    with pytest.warns(match=r"periodicity at its lower bound 1\.005"):
        regressor(kernel, n_restarts_optimizer=0).fit(X, y)


def test_a_period_has_no_meaning_in_normal_scores():
    with pytest.raises(ValueError, match=r"ExpSineSquared.*normalize_X='quantile'"):
        regressor(1.0 * ExpSineSquared(), normalize_X="quantile").fit(*monthly()[:2])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fixed_lengthscale_has_no_meaning_in_normal_scores():
    X, y, _, _ = monthly()
    fixed, told = 1.0 * RBF(2.0, "fixed"), r"RBF\(.*fixed lengthscale.*normalize_X='quantile'"
    with pytest.raises(ValueError, match=told):
        regressor(fixed, normalize_X="quantile").fit(X, y)
    model = regressor(1.0 * RBF(), normalize_X="quantile", n_inducing=5, max_iter=3, solver="ngd").fit(X, y)
    with pytest.raises(ValueError, match=told):
        model.set_params(kernel=fixed).partial_fit(X, y)


@pytest.mark.slow
def test_an_amplitude_is_found_in_the_units_of_y():
    """By steps, where y is centred alone."""
    X = np.linspace(0.0, 20.0, 120)[:, None]
    y = 100.0 * np.sin(2.0 * np.pi * X[:, 0] / 5.0) + np.random.default_rng(0).normal(size=120)
    kernel = ConstantKernel(1e4, (1.0, 1e8)) * ExpSineSquared(1.0, 6.0)
    options = {"normalize_X": False, "normalize_y": "center", "solver": "ngd", "n_inducing": 20, "max_iter": 60}
    reg = NGDSVGPRegressor(kernel, random_state=0, **options).fit(X, y)
    assert np.sqrt(np.mean((reg.predict(X) - y) ** 2)) < 10.0
