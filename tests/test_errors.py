"""The distribution of errors: rounded targets, a wide part, the second moment; and few rows, whose noise is open."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, stats
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    WhiteKernel,
)

from skgp_natgrad import NGDSVGPRegressor, svgp
from skgp_natgrad.kernels import Columns
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.prediction.dispersion import StudentTotal
from skgp_natgrad.solve import closed_form
from skgp_natgrad.solve.left_out import rounding_width
from skgp_natgrad.start import errors as errors_of
from skgp_natgrad.start import evidence, few_rows, search
from skgp_natgrad.start.candidates import matern52
from skgp_natgrad.start.view import View

# -- the width of a rounding ---------------------------------------------------------------------


@pytest.mark.parametrize("width", [1.0, 0.1, 0.25, 1e-3, 1e4])
def test_the_width_of_rounded_numbers_in_any_units(rng, width):
    y = np.round(rng.normal(scale=3.0, size=800)) * width
    assert rounding_width(y) == pytest.approx(width, rel=1e-9)
    assert rounding_width((y - y.mean()) / y.std()) == pytest.approx(width / y.std(), rel=1e-9)
    y[::7] = np.nan
    assert rounding_width(y) == pytest.approx(width, rel=1e-9)


def test_the_width_of_labels_and_counts(rng):
    assert rounding_width((rng.uniform(size=200) < 0.3).astype(float)) == 1.0
    assert rounding_width(rng.poisson(0.05, size=1000).astype(float)) == 1.0
    # Some numbers with three digits, most with two.
    assert rounding_width(np.r_[np.round(rng.normal(size=500), 1), np.round(rng.normal(size=20), 2)]) == pytest.approx(
        0.1
    )


def test_other_numbers_have_no_width(rng):
    y = rng.normal(size=500)
    assert rounding_width(y) == 0.0
    assert rounding_width(np.r_[y, y[:100]]) == 0.0
    assert rounding_width(np.where(y > 1.5, np.exp(y), 0.0)) == 0.0
    assert rounding_width(np.full(50, 3.0)) == 0.0
    assert rounding_width(np.array([])) == 0.0


def test_errors_far_below_the_width_are_not_from_rounding():
    """Whole numbers that X tells exactly: a sum of whole numbers, say."""
    weight = np.ones(100)
    assert errors_of.floor(1.0, np.full(100, 1e-3), weight) == 0.0
    assert errors_of.floor(1.0, np.full(100, 0.3), weight) == pytest.approx(1.0 / 12.0)


# -- the distribution of errors ------------------------------------------------------------------

FOUND = errors_of.Errors(scale=0.4, factor=0.7, df=4.5)


def seen_of(error, width=0.0, predicted=0.3, variance=0.8):
    ones = np.ones_like(error)
    return errors_of.Seen(error, variance * ones, predicted * ones, ones, ones, width)


def density(seen_error, errors):
    return float(np.exp(seen_of(np.atleast_1d(seen_error)).densities(errors))[0])


def test_the_density_is_that_of_student_t():
    expected = stats.t(4.5, scale=np.sqrt(0.8 * np.exp(0.4 + 0.7 * 0.3))).pdf(0.7)
    assert density(0.7, FOUND) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("error", [0.0, 0.4, -1.3, 30.0])
def test_a_rounded_error_has_the_mean_density_of_its_interval(error):
    expected = integrate.quad(density, error - 0.5, error + 0.5, args=(FOUND,), epsabs=1e-14)[0]
    found = float(np.exp(seen_of(np.array([error]), width=1.0).densities(FOUND))[0])
    assert found == pytest.approx(expected, rel=1e-6)


def test_errors_of_student_t_have_their_degrees_of_freedom(rng):
    error = stats.t(5.0).rvs(4000, random_state=rng)
    assert 3.5 < errors_of.best(seen_of(error, predicted=0.0, variance=5.0 / 3.0)).df < 7.5


@pytest.mark.parametrize("n", [100, 2000])
def test_normal_errors_stay_normal(rng, n):
    """Of a hundred samples three do not by chance."""
    found = [errors_of.best(seen_of(rng.normal(size=n), predicted=0.0, variance=1.0)) for _ in range(10)]
    assert found.count(errors_of.Errors()) >= 9


def test_one_gross_error_among_normal_ones_makes_heavy_tails(rng):
    """However large it is: a gain of the mean density would have an error as large as itself."""
    error = np.append(rng.normal(size=300), 30.0)
    assert errors_of.best(seen_of(error, predicted=0.0, variance=float(np.mean(error**2)))).df < 10.0


# -- predictions with a wide part ----------------------------------------------------------------


def errors_with_a_wide_part():
    errors = StudentTotal(np.array([[5.0]]), np.array([[0.2]]))
    return errors.given(np.array([[4.0, 9.0]])), np.array([[1.0, -2.0]]), np.array([[0.25, 1.0]])


@pytest.mark.slow
def test_the_wide_part_by_quadrature(x64):
    errors, mean, var = errors_with_a_wide_part()

    def at(y):
        return np.exp(np.asarray(errors.log_density_each(mean, var, np.full((1, 2), y))))[0]

    ys = np.linspace(-200.0, 200.0, 800_001)
    each = np.array([0.8 * stats.t(5.0, m, np.sqrt(v)).pdf(ys) + 0.2 * stats.norm(m, np.sqrt(w)).pdf(ys)
                     for m, v, w in zip(mean[0], var[0], [4.0, 9.0], strict=True)])  # fmt: skip
    np.testing.assert_allclose(at(0.3), [np.interp(0.3, ys, each[0]), np.interp(0.3, ys, each[1])], rtol=1e-6)
    moments = np.array([np.trapezoid(each * (ys - mean.T) ** 2, ys, axis=1)])
    np.testing.assert_allclose(errors.predictive_moments(mean, var)[1], moments, rtol=1e-3)
    below = errors.predictive_cdf(mean, var, np.full((1, 2), 0.3))
    np.testing.assert_allclose(below[0], np.trapezoid(np.where(ys <= 0.3, each, 0.0), ys, axis=1), atol=1e-3)


def test_quantiles_of_the_wide_part_invert_its_distribution():
    errors, mean, var = errors_with_a_wide_part()
    plain = StudentTotal(errors.df, errors.share)
    found = svgp.quantiles(plain, mean, var, np.array([0.01, 0.5, 0.9]), known=errors.rows[0])
    for level, quantile in zip([0.01, 0.5, 0.9], np.moveaxis(found, -1, 0), strict=True):
        np.testing.assert_allclose(errors.predictive_cdf(mean, var, quantile), level, atol=1e-9)


def with_gross_errors(rng):
    X = rng.uniform(-2.0, 2.0, size=(300, 1))
    y = np.sin(X[:, 0]) + 0.05 * rng.normal(size=300) + 4.0 * rng.normal(size=300) * (rng.uniform(size=300) < 0.05)
    return NGDSVGPRegressor(1.0 * RBF(), random_state=0).fit(X, y)


@pytest.mark.slow
def test_all_predictions_have_the_tails_of_gross_errors(rng):
    reg = with_gross_errors(rng)
    X = np.array([[0.3], [-1.0]])
    mean, std = reg.predict(X, return_std=True)
    draws = reg.sample_y(X, 40_000, random_state=0)
    np.testing.assert_allclose(draws.std(1), std, rtol=0.04)
    lower, upper = reg.predict_interval(X, coverage=0.9)
    np.testing.assert_allclose(np.mean((draws > lower[:, None]) & (draws < upper[:, None]), axis=1), 0.9, atol=0.01)
    assert np.all((lower < mean) & (mean < upper))


@pytest.mark.slow
def test_gradients_of_a_deviation_with_gross_errors(rng):
    reg, step = with_gross_errors(rng), 1e-5
    X = np.array([[0.3], [-1.0]])
    std = [reg.predict(X + sign * step, return_std=True)[1] for sign in (-1.0, 1.0)]
    _, slope = reg.predict_gradient(X, return_std=True)
    np.testing.assert_allclose(slope[:, 0], (std[1] - std[0]) / (2.0 * step), rtol=1e-4, atol=1e-6)


# -- few rows ------------------------------------------------------------------------------------


def test_models_of_few_rows_leave_rows_out_with_an_unknown_mean(rng):
    X, y, weight, ratio = rng.normal(size=(6, 1)), rng.normal(size=(1, 6)), rng.uniform(0.3, 1.0, size=6), np.log(0.4)
    K = Matern(1.0, nu=2.5)(X)
    found = few_rows._Models(*(each[0] for each in few_rows._Models.of(K, np.array([ratio]), y, weight)))
    C = K + np.diag(0.4 / weight)
    for i in range(6):
        rest = np.setdiff1d(np.arange(6), [i])
        inverse = np.linalg.inv(C[np.ix_(rest, rest)])
        centre = inverse.sum(0) @ y[0, rest] / inverse.sum()
        mean = centre + K[i, rest] @ inverse @ (y[0, rest] - centre)
        of_centre = (1.0 - K[i, rest] @ inverse.sum(1)) ** 2 / inverse.sum()
        variance = C[i, i] - K[i, rest] @ inverse @ K[rest, i] + of_centre
        assert found.mean[0, i] == pytest.approx(mean, rel=1e-9)
        assert found.variance[0, i] == pytest.approx(found.scale[0] * variance, rel=1e-9)
        known = C[i, i] - K[i, rest] @ inverse @ K[rest, i]
        assert found.unit_variance[i] == pytest.approx(known, rel=1e-9)


def test_models_of_few_rows_leave_all_rows_of_an_x_out(rng):
    X, y, weight = rng.normal(size=(4, 1))[[0, 1, 0, 2, 3, 0]], rng.normal(size=(2, 6)), rng.uniform(0.3, 1.0, size=6)
    K, alike = Matern(1.0, nu=2.5)(X), np.array([0, 2, 5])
    found = few_rows._Models.of(K, np.log([0.4, 2.0]), y, weight, None, [alike])
    for r, ratio in enumerate((0.4, 2.0)):
        C, rest = K + np.diag(ratio / weight), np.array([1, 3, 4])
        inverse = np.linalg.inv(C[np.ix_(rest, rest)])
        centre = y[:, rest] @ inverse.sum(0) / inverse.sum()
        mean = centre[:, None] + (y[:, rest] - centre[:, None]) @ inverse @ K[np.ix_(rest, alike)]
        to_rest = K[np.ix_(alike, rest)] @ inverse
        variance = np.diag(C)[alike] - (to_rest * K[np.ix_(alike, rest)]).sum(1)
        variance += (1.0 - to_rest.sum(1)) ** 2 / inverse.sum()
        assert_allclose(found.mean_apart[r][:, alike], mean, rtol=1e-9)
        assert_allclose(found.variance_apart[r][:, alike], np.outer(found.scale[r], variance), rtol=1e-9)
    assert_array_equal(found.mean_apart[..., [1, 3, 4]], found.mean[..., [1, 3, 4]])


def test_the_evidence_of_few_rows_by_quadrature(rng):
    """Up to a constant, that of the reference prior: the density is integrated over the mean and the scale."""
    X, y = rng.normal(size=(3, 1)), rng.normal(size=3)

    log_scale, mean = np.meshgrid(np.linspace(-60.0, 60.0, 1201), np.linspace(-10.0, 14.0, 1201), indexing="ij")

    def by_quadrature(K, ratio):
        C = K + np.exp(ratio) * np.eye(3)
        away = y - mean[..., None]
        square = np.einsum("abi,ij,abj->ab", away, np.linalg.inv(C), away)
        log_density = -0.5 * (3.0 * log_scale + np.linalg.slogdet(C)[1] + square * np.exp(-log_scale))
        return np.log(np.exp(log_density).sum())

    models = [(Matern(length, nu=2.5)(X), ratio) for length, ratio in ((1.0, -1.0), (3.0, 0.5))]
    exact = [by_quadrature(*each) for each in models]
    found = [few_rows._Models.of(K, np.array([ratio]), y[None], np.ones(3)).evidence[0, 0] for K, ratio in models]
    assert found[1] - found[0] == pytest.approx(exact[1] - exact[0], abs=0.02)


@pytest.mark.parametrize("kernel", [None, RBF([1.0, 1.0]), 1.0 * Matern() + 1.0 * RBF([1.0, 2.0])], ids=repr)
def test_what_few_rows_leave_open_belongs_to_the_process_that_is_kept(rng, kernel):
    """One row is predicted from all others by the average, whose variance is that of the process times the factor."""
    X, y = rng.normal(size=(9, 2)), rng.normal(size=9)
    reg = NGDSVGPRegressor(kernel, random_state=0).fit(X, y)
    scale, variance = reg._y_scale.scale[0], float(np.ravel(reg.likelihood_.variance)[0])
    inflation = float(np.exp(reg._dispersion.posterior.prior_mean[0, 0]))
    inside = reg._x_scale.forward(X)
    K = reg.kernel_(inside) + variance * np.eye(9)
    own = np.mean(reg.kernel_.diag(inside))
    scales = None if kernel is None or not hasattr(kernel, "length_scale") else np.array([own])
    given = np.log([variance / own]), (y[None] - y.mean()) / scale, np.ones(9), scales
    model = few_rows._Models.of(reg.kernel_(inside) / own, *given)
    np.testing.assert_allclose(1.0 / np.diag(np.linalg.inv(K)), model.scale[0] * model.unit_variance[0], rtol=1e-5)
    # More than the process says, and less than a hundred times as much.
    assert 1.0 < inflation < 100.0


# Kernels of two columns, each with the value of its first hyperparameter that is given and stays.
GIVEN = {
    "anisotropic": 1.0 * RBF([1.0, 1.0]),
    "isotropic": 1.0 * Matern(1.0, nu=2.5),
    "alone": RBF([1.0, 1.0]),
    "sum": 1.0 * RBF([1.0, 1.0]) + 1.0 * Matern([2.0, 2.0], nu=1.5),
    "product": 1.0 * RBF([1.0, 1.0]) * Matern(1.0, nu=0.5),
    "noise": 1.0 * RBF([1.0, 1.0]) + WhiteKernel(0.1),
    "fixed lengthscale": 1.0 * Matern(2.0, "fixed"),
    "fixed amplitude": ConstantKernel(2.0, "fixed") * Matern([1.0, 1.0]),
    "line": 1.0 * DotProduct(),
    "period": 1.0 * ExpSineSquared(1.0, 3.0) * RBF(2.0),
    "one column": 1.0 * Columns(RBF(1.0), [1]) + 1.0 * RBF([1.0, 1.0], (0.5, 2.0)),
}


def of_two_columns(rng, n_rows, n_targets=1):
    X = rng.uniform(-2.0, 2.0, size=(n_rows, 2))
    slopes = rng.normal(size=(2, n_targets))
    return X, np.squeeze(np.sin(X @ slopes) + 0.2 * rng.normal(size=(n_rows, n_targets)))


@pytest.mark.parametrize("kernel", GIVEN.values(), ids=GIVEN)
def test_given_kernels_of_few_rows_are_averaged_within_their_bounds(rng, kernel):
    X, y = of_two_columns(rng, 7)
    reg = NGDSVGPRegressor(kernel, random_state=0).fit(X, y)
    assert reg.kernel_.bounds.shape == kernel.bounds.shape
    assert np.all(reg.kernel_.theta >= kernel.bounds[:, 0] - 1e-9)
    assert np.all(reg.kernel_.theta <= kernel.bounds[:, 1] + 1e-9)
    assert reg.error_df_ == 6.0
    lower, upper = reg.predict_interval(10.0 + X, coverage=0.9)
    assert np.all(upper - lower > 0.5 * np.std(y))


def test_hyperparameters_that_are_fixed_are_not_averaged(rng):
    X, y = of_two_columns(rng, 8)
    kernel = ConstantKernel(2.0, "fixed") * RBF([1.0, 2.0], "fixed") + WhiteKernel(0.3, "fixed")
    reg = NGDSVGPRegressor(kernel, random_state=0).fit(X, y)
    assert reg.kernel_ == kernel
    assert reg._dispersion is None


def coverage_of_few(n_rows, n_draws, function):
    held = []
    for seed in range(n_draws):
        rng = np.random.default_rng(1000 * n_rows + seed)
        X = rng.normal(size=(n_rows + 200, 1))
        y = function(X[:, 0]) + 0.7 * rng.normal(size=len(X))
        reg = NGDSVGPRegressor(random_state=0).fit(X[:n_rows], y[:n_rows])
        lower, upper = reg.predict_interval(X[n_rows:], coverage=0.9)
        held.append(np.mean((lower <= y[n_rows:]) & (y[n_rows:] <= upper)))
    return np.mean(held)


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [5])
def test_intervals_of_few_rows_hold_what_they_say(n_rows):
    assert 0.8 <= coverage_of_few(n_rows, 12, lambda x: x) <= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("function", [lambda x: x, np.zeros_like, lambda x: np.sin(2.0 * x)], ids=["x", "0", "sin"])
@pytest.mark.parametrize("n_rows", [2, 3, 8, 15])
def test_intervals_of_few_rows_of_all_kinds(n_rows, function):
    assert 0.8 <= coverage_of_few(n_rows, 50, function) <= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("name", ["anisotropic", "isotropic", "sum", "noise"])
@pytest.mark.parametrize("n_rows", [6, 10, 25])
def test_intervals_of_few_rows_under_given_kernels(n_rows, name):
    held = []
    for seed in range(40):
        X, y = of_two_columns(np.random.default_rng(1000 * n_rows + seed), n_rows + 200)
        reg = NGDSVGPRegressor(GIVEN[name], random_state=0).fit(X[:n_rows], y[:n_rows])
        lower, upper = reg.predict_interval(X[n_rows:], coverage=0.9)
        held.append(np.mean((lower <= y[n_rows:]) & (y[n_rows:] <= upper)))
    assert 0.8 <= np.mean(held) <= 0.97


@pytest.mark.slow
def test_few_rows_of_noise_are_predicted_as_by_a_constant():
    gain = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(2015, 2)), rng.normal(size=2015)
        reg = NGDSVGPRegressor(random_state=0).fit(X[:15], y[:15])
        constant = stats.norm(y[:15].mean(), y[:15].std()).logpdf(y[15:])
        gain.append(np.mean(reg.predict_log_density(X[15:], y[15:]) - constant))
    assert np.median(gain) > -0.04
    assert min(gain) > -0.14


def test_few_rows_without_noise_are_interpolated():
    X = np.linspace(-2.0, 2.0, 12)[:, None]
    reg = NGDSVGPRegressor(random_state=0).fit(X, np.sin(2.0 * X[:, 0]))
    assert np.sqrt(np.mean((reg.predict(X + 0.1) - np.sin(2.0 * X[:, 0] + 0.2))[:-1] ** 2)) < 0.05


# -- whole fits ----------------------------------------------------------------------------------


def rounded(rng, n, width=1.0, noise=0.3):
    X = rng.uniform(0.0, 6.0, size=(n, 1))
    return X, np.round((3.0 + 2.0 * np.sin(X[:, 0]) + noise * rng.normal(size=n)) / width) * width


def tenths(rng, n):
    return rounded(rng, n, 0.1, 0.03)


def rates(rng, n, mean=0.3):
    X = rng.uniform(0.0, 6.0, size=(n, 1))
    return X, rng.poisson(mean * np.exp(np.sin(X[:, 0]))).astype(float)


def labels(rng, n):
    X = rng.uniform(0.0, 6.0, size=(n, 1))
    return X, (rng.uniform(size=n) < 0.5 + 0.4 * np.sin(X[:, 0])).astype(float)


def judged(reg, X, y):
    """Root mean square of standardised errors, the least deviation, and the coverage of the 95 % interval."""
    mean, std = reg.predict(X, return_std=True)
    lower, upper = reg.predict_interval(X, coverage=0.95)
    return np.sqrt(np.mean(((y - mean) / std) ** 2)), std.min(), np.mean((lower <= y) & (y <= upper))


# A little more than a tenth: of errors most of which are zero a thousand rows tell no more.
@pytest.mark.slow
@pytest.mark.parametrize(
    "draw", [rounded, *(pytest.param(each, marks=pytest.mark.slow) for each in (tenths, rates, labels))]
)
def test_rounded_targets_have_a_deviation(draw):
    """With a given kernel; the widths are those of the draws."""
    X, y = draw(np.random.default_rng(0), 3000)
    width = 0.1 if draw is tenths else 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        reg = NGDSVGPRegressor(1.0 * Matern(1.0, nu=2.5), random_state=0).fit(X[:1000], y[:1000])
    ratio, least, covered = judged(reg, X[1000:], y[1000:])
    # Counts have heavier tails than a Student-t distribution has a deviation for.
    assert 0.9 < ratio < (1.35 if draw is rates else 1.12)
    assert least > 0.5 * width / np.sqrt(12.0)
    assert (0.88 if draw is rates else 0.9) < covered < 0.985


@pytest.mark.slow
@pytest.mark.parametrize("draw", [rounded, tenths, rates, labels])
def test_rounded_targets_have_a_deviation_by_default(draw):
    X, y = draw(np.random.default_rng(0), 5000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        reg = NGDSVGPRegressor(random_state=0).fit(X[:1000], y[:1000])
    ratio, least, covered = judged(reg, X[1000:], y[1000:])
    assert 0.9 < ratio < (1.35 if draw is rates else 1.12)
    assert least > 0.5 * (0.1 if draw is tenths else 1.0) / np.sqrt(12.0)
    assert (0.88 if draw is rates else 0.9) < covered < 0.985


@pytest.mark.slow
def test_a_few_large_errors_are_in_the_tails():
    """Intervals hold what they say; the deviation is that of a Student-t distribution, so that the errors exceed it."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 10.0, size=(4300, 1))
    y = np.sin(X[:, 0]) + 0.05 * rng.normal(size=4300) + 5.0 * (rng.uniform(size=4300) < 0.03)
    reg = NGDSVGPRegressor(1.0 * RBF(), random_state=0).fit(X[:300], y[:300])
    ratio, _, _ = judged(reg, X[300:], y[300:])
    assert 0.7 < ratio < 2.5
    for level in (0.5, 0.9, 0.99):
        lower, upper = reg.predict_interval(X[300:], coverage=level)
        assert np.mean((lower <= y[300:]) & (y[300:] <= upper)) == pytest.approx(level, abs=0.06)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "message"),
    [(labels, "only zeros and ones. Use NGDSVGPClassifier"), (rates, "small counts. Use likelihood='poisson'")],
)
def test_counts_and_labels_are_told(draw, message):
    X, y = draw(np.random.default_rng(0), 150)
    with pytest.warns(UserWarning, match=message):
        NGDSVGPRegressor(1.0 * RBF(), random_state=0).fit(X, y)


@pytest.mark.slow
def test_many_zeros_are_told_and_other_numbers_are_not(rng):
    X = rng.normal(size=(200, 2))
    with pytest.warns(UserWarning, match="zero in most rows and positive in the others. Use likelihood='tweedie'"):
        NGDSVGPRegressor(1.0 * RBF(), random_state=0).fit(X, np.where(X[:, 0] > 1.0, np.exp(X[:, 1]), 0.0))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*Use likelihood")
        for y in (np.exp(X[:, 0]), np.round(30.0 + 5.0 * X[:, 0]), np.round(X[:, 0])):
            NGDSVGPRegressor(1.0 * RBF(), random_state=0).fit(X, y)


# -- noise without signal ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_noise_is_not_interpolated(seed):
    """A kernel that is so short that every row is explained by itself predicts others as the constant does."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(200, 3)), rng.normal(size=200)
    reg = NGDSVGPRegressor(1.0 * Matern(0.05, nu=2.5), random_state=0).fit(X, y)
    assert reg.score(X, y) < 0.3
    assert 0.6 < reg.summary().noise ** 2 < 1.4


def weak(seed, n_rows, share):
    """Rows of three columns, and targets of which a smooth function has a share of the variance."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3))
    f = np.sin(X[:, 0] + 0.5 * X[:, 1])
    return X, f, np.sqrt(share / (1.0 - share)) * f / f.std() + rng.normal(size=n_rows)


@pytest.mark.parametrize("seed", [1, 2])
def test_of_level_maxima_that_of_more_noise_is_taken(seed, x64, monkeypatch):
    """For a weak function the evidence of short lengthscales and next to no noise is about as large."""
    X, _, y = weak(seed, 200, 0.05)
    seen = View(svgp.Table(X, ((y - y.mean()) / y.std())[None], np.ones(200)))
    start, bounds, prior = seen.start(matern52, 0.03 * seen.longest, np.log(0.05), 1.0)
    short = evidence.maximise(start, bounds, seen.table, prior)
    found = search._smooth_of(seen, seen.table, 1.0, search._Effort((1.0,)))
    assert abs(found.evidence - short.evidence) < 4.0
    assert np.exp(short.hyperparameters.noise) < 0.3
    assert 0.5 < np.exp(found.hyperparameters.noise) < 1.1


@pytest.mark.parametrize(("share", "explained"), [(0.0, (-0.01, 0.05)), (0.4, (0.3, 0.95))])
def test_a_mean_that_follows_its_rows_a_little(share, explained, x64):
    """Where it predicts others no better than the constant does it goes, and a function stays."""
    X, _, y = (each[:100] for each in weak(2, 2100, share))
    y = (y - y.mean()) / y.std()
    table = svgp.Table(X, y[None], np.ones(100))
    kernel, settings = 0.3 * Matern(np.ones(3), nu=0.5), svgp.Settings(algorithm=svgp.Algorithm(solver="evidence"))
    plan = svgp.Plan(kernels=(kernel,), likelihood=Gaussian(0.75), n_inducing=None, settings=settings)
    state, constants = svgp.init(plan, table, random_state=0)
    found = closed_form.solve(state.parameters, constants, table, np.random.RandomState(0), 100)
    # As (K + s^2 I) alpha = y.
    residual = np.exp(np.ravel(found.parameters.raw_likelihood.variance)) * found.posterior.alpha[0]
    assert explained[0] < 1.0 - np.sum(residual**2) / 100.0 < explained[1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_weak_signal_is_found_by_default(seed):
    X, f, y = weak(seed, 2300, 0.05)
    reg = NGDSVGPRegressor(random_state=0).fit(X[:300], y[:300])
    assert np.corrcoef(reg.predict(X[300:]), f[300:])[0, 1] > 0.5
    assert reg.score(X[300:], y[300:]) > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("n_columns", [3, 8])
@pytest.mark.parametrize("n_rows", [100, 300, 1000])
def test_noise_is_not_interpolated_by_default(n_rows, n_columns, seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n_rows, n_columns)), rng.normal(size=n_rows)
    reg = NGDSVGPRegressor(random_state=0).fit(X, y)
    assert reg.score(X, y) < 0.3
    assert 0.6 < float(np.ravel(reg.likelihood_.variance)[0]) * y.var() < 1.25


@pytest.mark.slow
def test_a_weak_signal_of_many_columns_is_not_taken_for_short_lengthscales():
    """Held-out rows say next to nothing, and the evidence has a larger maximum where every row explains itself."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2600, 8))
    f = np.sin(X[:, 0] + 0.5 * X[:, 7])
    y = 0.2 * f / f.std() + rng.normal(size=2600)
    model = NGDSVGPRegressor(random_state=0).fit(X[:600], y[:600])
    assert np.corrcoef(model.predict(X[600:]), f[600:])[0, 1] > 0.5


@pytest.mark.slow
def test_a_weak_wave_along_one_column_is_found():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 1))
    f = np.sin(6.0 * X[:, 0])
    y = 0.18 * f / f.std() + rng.normal(size=3000)
    model = NGDSVGPRegressor(random_state=0).fit(X[:1000], y[:1000])
    assert np.corrcoef(model.predict(X[1000:]), f[1000:])[0, 1] > 0.6


@pytest.mark.slow
def test_a_weak_signal_is_found(rng):
    X = rng.normal(size=(300, 1))
    y = 0.5 * np.sin(X[:, 0]) + rng.normal(size=300)
    reg = NGDSVGPRegressor(1.0 * Matern(1.0, nu=2.5), random_state=0).fit(X, y)
    assert np.corrcoef(reg.predict(X), np.sin(X[:, 0]))[0, 1] > 0.9
