"""The distribution of errors: rounded targets, gross errors, the second moment; and few rows, whose noise is open."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    WhiteKernel,
)

from skgp_natgrad import NGDSVGPRegressor, svgp
from skgp_natgrad.choose import evidence, search
from skgp_natgrad.choose.candidates import matern52
from skgp_natgrad.choose.view import View
from skgp_natgrad.kernels import Columns
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.solve import closed_form
from skgp_natgrad.solve.left_out import rounding_width
from skgp_natgrad.start import dispersion, few_rows
from skgp_natgrad.start import errors as errors_of

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
    assert dispersion.floor(1.0, np.full(100, 1e-3), weight) == 0.0
    assert dispersion.floor(1.0, np.full(100, 0.3), weight) == pytest.approx(1.0 / 12.0)


# -- the distribution of errors ------------------------------------------------------------------

NO_PROCESS = np.zeros((0, 1))


def found_of(error, variance=1.0, log_factors=NO_PROCESS):
    return errors_of.best(error, np.full(len(error), variance), np.ones(len(error)), log_factors)


def log_density_of(found, errors):
    """By SciPy, of errors with a predicted variance of one."""
    deviation = np.where(found.undispersed, 1.0, np.exp(0.5 * found.log_scale))
    each = stats.norm.pdf(errors[:, None], deviation * found.centres, deviation * found.scales)
    return np.log(each @ found.weights)


@pytest.mark.parametrize("n", [100, 2000])
def test_normal_errors_stay_normal(rng, n):
    found = [found_of(rng.normal(size=n)) for _ in range(10)]
    assert sum(each is errors_of.NORMAL for each in found) >= 9


@pytest.mark.parametrize(
    ("law", "allowed"),
    [
        (stats.t(3.0), 0.012),
        (stats.t(5.0), 0.012),
        (stats.uniform(-1.0, 2.0), 0.06),
        (stats.expon(-1.0), 0.11),
        (stats.norm(0.0, 0.02), 0.006),
    ],
    ids=["t3", "t5", "flat", "exponential", "narrow"],
)
def test_one_grid_has_tails_edges_and_skewness(rng, law, allowed):
    """The divergence from the density itself, with a mean of zero whatever the form; 1000 errors tell no more."""
    found = found_of(law.rvs(1000, random_state=rng))
    assert found.weights.sum() == pytest.approx(1.0)
    assert found.weights @ found.centres == pytest.approx(0.0, abs=1e-12)
    fresh = law.rvs(50_000, random_state=rng)
    assert -0.002 < np.mean(law.logpdf(fresh) - log_density_of(found, fresh)) < allowed


def test_scales_alone_are_symmetric_and_other_noise_has_centres(rng):
    assert not np.any(found_of(rng.standard_t(4.0, size=800)).centres)
    assert np.any(found_of(rng.exponential(size=800) - 1.0).centres)


def test_one_gross_error_among_normal_ones_makes_heavy_tails(rng):
    """However large it is; and the others keep their deviation."""
    error = np.append(rng.normal(size=300), 30.0)
    found = found_of(error, float(np.mean(error**2)))
    assert 0.001 < found.weights[found.scales > 8.0].sum() < 0.03
    assert np.exp(0.5 * found.log_scale) * np.sqrt(np.mean(error**2)) * found.scales[
        np.argmax(found.weights)
    ] == pytest.approx(1.0, rel=0.5)


@pytest.mark.parametrize("n", [120, 1500])
def test_an_error_beyond_all_others_costs_some_nats_only(rng, n):
    """A new row a hundred deviations away, after errors with light tails: a normal tail loses thousands of nats."""
    found = found_of(rng.uniform(-1.0, 1.0, size=n))
    assert found is not errors_of.NORMAL
    assert log_density_of(found, np.array([100.0]))[0] > -40.0


def test_gross_errors_count_in_the_variance(rng):
    error = np.where(rng.uniform(size=1000) < 0.03, 5.0, 0.05 * rng.normal(size=1000))
    found = found_of(error - error.mean(), 0.7)
    variance = 0.7 * np.exp(found.log_scale) * (found.weights @ (found.scales**2 + found.centres**2))
    assert variance == pytest.approx(error.var(), rel=0.25)


def test_the_process_is_used_if_it_tells_the_deviation(rng):
    """Of several the best; a factor that says nothing about the errors is none."""
    log_factor = rng.normal(size=600)
    error = np.exp(0.5 * log_factor) * rng.normal(size=600)
    assert found_of(error, log_factors=np.stack([0.2 * log_factor, log_factor, 3.0 * log_factor])).process == 1
    assert found_of(error, log_factors=rng.normal(size=(2, 600))).process is None


@pytest.mark.parametrize("factor", [1e-4, 1e4])
def test_units_do_not_matter(rng, factor):
    error = rng.standard_t(3.0, size=300)
    found, scaled = found_of(error), found_of(factor * error)
    assert_allclose(scaled.weights, found.weights, rtol=1e-6)
    assert scaled.log_scale == pytest.approx(found.log_scale + 2.0 * np.log(factor))


def test_a_weight_counts_as_so_many_rows(rng):
    """Of weights that are whole numbers only the folds differ."""
    error = rng.standard_t(3.0, size=200)
    double = errors_of._Grid(error, np.ones(200), np.where(error > 0.0, 2.0, 1.0))
    twice = np.append(error, error[error > 0.0])
    repeated = errors_of._Grid(twice, np.ones(len(twice)), np.ones(len(twice)))
    assert_allclose(double._weights(slice(None), [])[0], repeated._weights(slice(None), [])[0], atol=1e-8)


def test_each_em_step_raises_the_penalised_likelihood(rng):
    grid = errors_of._Grid(rng.exponential(size=300) - 1.0, np.ones(300), np.ones(300)).with_centres()
    _, *each = grid._weights(slice(None), range(1, 40))
    prior, used = errors_of._PRIOR * grid.prior, grid.prior > 0.0
    likelihood = [np.log(grid.densities @ w).sum() + prior[used] @ np.log(w[used]) for w in each]
    assert np.all(np.diff(likelihood) > -1e-9)


@pytest.mark.parametrize("process", [None, 0])
def test_densities_of_components_are_those_of_scipy(rng, process):
    error, variance = rng.exponential(size=250) - 1.0, rng.uniform(0.5, 2.0, size=250)
    log_factor = 0.0 if process is None else rng.normal(size=250)
    grid = errors_of._Grid(error, variance, np.ones(250), process, log_factor).with_centres()
    dispersed = np.sqrt(grid.squared * np.exp(log_factor) * variance)
    for k in (5, grid.n_alone - 1, grid.n_alone + 7, len(grid.scales) - 3):
        deviation = np.sqrt(variance) if grid.undispersed[k] else dispersed
        expected = stats.norm(deviation * grid.centres[k], deviation * grid.scales[k]).pdf(error)
        assert_allclose(grid.densities[:, k], expected, rtol=1e-9, atol=1e-300)
    assert np.any(grid.undispersed) == (process is not None)
    assert grid.smooth.sum() == pytest.approx(1.0)
    assert grid.smooth @ (grid.centres**2 + grid.scales**2) == pytest.approx(1.0, abs=0.01)


def test_gross_errors_are_the_same_at_all_x_where_the_deviation_varies(rng):
    log_factor = 2.0 * rng.normal(size=1500)
    error = np.where(rng.uniform(size=1500) < 0.05, 20.0, np.exp(0.5 * log_factor)) * rng.normal(size=1500)
    found = found_of(error, log_factors=log_factor[None])
    assert found.process == 0
    gross = found.undispersed > 0.0
    assert found.weights[gross].sum() == pytest.approx(0.05, abs=0.02)
    assert found.weights[gross] @ found.scales[gross] ** 2 / found.weights[gross].sum() == pytest.approx(400.0, rel=0.4)


# -- predictions with gross errors ----------------------------------------------------------------


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
    assert 0.9 < ratio < 1.12
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
    assert 0.9 < ratio < 1.12
    assert least > 0.5 * (0.1 if draw is tenths else 1.0) / np.sqrt(12.0)
    assert (0.88 if draw is rates else 0.9) < covered < 0.985


@pytest.mark.slow
def test_a_few_large_errors_are_in_the_tails():
    """Intervals hold what they say. Nine rows have such errors, which are too few for their share of the variance."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 10.0, size=(4300, 1))
    y = np.sin(X[:, 0]) + 0.05 * rng.normal(size=4300) + 5.0 * (rng.uniform(size=4300) < 0.03)
    reg = NGDSVGPRegressor(1.0 * RBF(), random_state=0).fit(X[:300], y[:300])
    ratio, _, _ = judged(reg, X[300:], y[300:])
    assert 0.7 < ratio < 2.7
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
