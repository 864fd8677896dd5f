"""The defaults on few rows, where a kernel of many hyperparameters fits too well: judged by rows it has not seen."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize, special, stats
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, ExpSineSquared
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.metrics import log_loss

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, svgp
from skgp_natgrad.choose import search, targets
from skgp_natgrad.choose.candidates import OF_MEASUREMENTS
from skgp_natgrad.choose.refinement import Found
from skgp_natgrad.choose.splits import FEWEST_OUTSIDE, Shuffled, in_random_order, splits
from skgp_natgrad.choose.view import NOISE_BOUNDS, weak_prior
from skgp_natgrad.likelihoods import Bernoulli, Gaussian, RobustMax, Softmax
from skgp_natgrad.prediction import calibration
from skgp_natgrad.start import few_rows
from skgp_natgrad.training.batches import Table

pytestmark = pytest.mark.usefixtures("x64")


@pytest.mark.parametrize("tie", [np.inf, 0.7])
def test_the_prior_is_normal_with_lengthscales_that_are_tied(tie, rng):
    varies = np.array([True, True, False, True])
    centre = {"amplitude": rng.normal(), "first": rng.normal(size=4), "other": rng.normal(size=4), "zoise": 0.3}
    # The leaves of a dictionary come in the order of its keys.
    precision = np.eye(10) / 9.0
    for start in (1, 5):
        columns = start + np.flatnonzero(varies)
        precision[np.ix_(columns, columns)] += (np.eye(3) - 1.0 / 3.0) / tie**2
    middle = np.concatenate([np.ravel(centre[key]) for key in sorted(centre)])
    law = stats.multivariate_normal(middle, np.linalg.inv(precision))
    log_prior = weak_prior(centre, varies, tie)
    x, z = rng.normal(size=(2, 10))
    assert log_prior(x)[0] - log_prior(z)[0] == pytest.approx(law.logpdf(x) - law.logpdf(z), rel=1e-9)
    slope = optimize.approx_fprime(x, lambda x: log_prior(x)[0], 1e-6)
    np.testing.assert_allclose(log_prior(x)[1], slope, atol=1e-4)


def _shuffled(X, n_targets=1):
    rng = np.random.RandomState(0)
    table = Table(X, rng.normal(size=(n_targets, len(X))), np.ones(len(X)))
    return table, Shuffled(*in_random_order(table, rng))


@pytest.mark.parametrize("n_rows", [2, 3, 60, 151, 349])
def test_of_a_small_table_each_row_judges_once(n_rows, rng):
    table, shuffled = _shuffled(rng.normal(size=(n_rows, 2)))
    parts = splits(table, shuffled, 250)
    judging = np.concatenate([part.others.X for part in parts])
    np.testing.assert_array_equal(np.sort(judging[:, 0]), np.sort(table.X[:, 0]))
    for part in parts:
        assert len(part.rows.X) + len(part.others.X) == n_rows
        assert not np.isin(part.rows.X[:, 0], part.others.X[:, 0]).any()
    assert sum(part.weight for part in parts) == n_rows


def test_rows_of_equal_X_are_never_on_both_sides(rng):
    X = rng.normal(size=(40, 2))[rng.integers(40, size=300)]
    table, shuffled = _shuffled(X)
    for part in splits(table, shuffled, 250):
        assert not np.isin(part.rows.X[:, 0], part.others.X[:, 0]).any()
        assert len(np.unique(part.rows.X[:, 0])) == len(part.rows.X)
    # A single X judges itself.
    (only,) = splits(*_shuffled(np.ones((20, 2))), 250)
    assert (len(only.rows.X), len(only.others.X)) == (1, 20)


def test_of_a_large_table_rows_outside_judge(rng):
    table, shuffled = _shuffled(rng.normal(size=(250 + FEWEST_OUTSIDE, 2)))
    (only,) = splits(table, shuffled, 250)
    assert (len(only.rows.X), len(only.others.X)) == (250, FEWEST_OUTSIDE)
    assert not np.isin(only.rows.X[:, 0], only.others.X[:, 0]).any()


def test_parts_without_a_target_judge_nothing(rng):
    table, shuffled = _shuffled(rng.normal(size=(50, 2)), n_targets=2)
    y = table.y.copy()
    y[:, 3:] = np.nan
    y[1] = np.nan
    parts = splits(table._replace(y=y), shuffled, 250)
    assert sum(part.weight for part in parts) == pytest.approx(1.5)
    (found,) = search.best_kernels([table._replace(y=y)], np.random.RandomState(0))
    assert found.index == 0
    assert -5.0 < found.density < 0.0


def test_copies_are_in_one_part_where_rows_are_not_merged(rng):
    X = rng.normal(size=(30, 2))[rng.integers(30, size=120)]
    table, _ = _shuffled(X)
    y = np.where(rng.uniform(size=120) < 0.1, np.nan, table.y)
    for part in splits(table._replace(y=y), Shuffled(rng.permutation(120), np.arange(1, 121)), 250):
        assert not np.isin(part.rows.X[:, 0], part.others.X[:, 0]).any()


def test_a_target_judges_only_where_it_is_on_both_sides(rng):
    y = np.array([[1.0, 2.0, np.nan], [np.nan, np.nan, 3.0]])
    table, shuffled = _shuffled(rng.normal(size=(3, 2)), n_targets=2)
    assert sum(part.weight for part in splits(table._replace(y=y), shuffled, 250)) == 1.0
    (found,) = search.best_kernels([table._replace(y=y)], np.random.RandomState(0))
    assert -5.0 < found.density < 0.0


def test_without_any_judge_the_first_kernel_is_taken(rng):
    table, _ = _shuffled(rng.normal(size=(450, 2)))
    y = np.where(np.arange(450) < 5, table.y, np.nan)
    (found,) = search.best_kernels([table._replace(y=y)], np.random.RandomState(0))
    assert found.index == 0
    assert found.density < 0.0
    assert NOISE_BOUNDS[0] <= found.noise <= NOISE_BOUNDS[1]


@pytest.mark.slow
def test_each_kernel_is_tried_with_both_ties_and_one_is_left(rng, monkeypatch):
    tried, judged = [], search._judged
    monkeypatch.setattr(
        search, "_judged", lambda make, tie, *rest: tried.append((make, tie)) or judged(make, tie, *rest)
    )
    table = Table(rng.normal(size=(60, 3)), rng.normal(size=(1, 60)), np.ones(60))
    found = search.best_kernels([table], np.random.RandomState(0), 2)
    assert len(found) == 1
    assert sorted(tried, key=str) == sorted([(make, tie) for make in OF_MEASUREMENTS for tie in (1.0, 0.3)], key=str)


@pytest.mark.slow
def test_the_smaller_tie_makes_a_kernel_nearly_isotropic(rng, monkeypatch):
    X = rng.normal(size=(80, 4))
    table = Table(X, np.sin(2.0 * X[:, :1].T) + 0.1 * rng.normal(size=(1, 80)), np.ones(80))
    spread = []
    for tie in (np.inf, 0.1):
        monkeypatch.setattr(search, "_OF_SMALL", search._Effort((tie,)))
        (found,) = search.best_kernels([table], np.random.RandomState(0), makes=OF_MEASUREMENTS[:1])
        spread.append(np.ptp(np.log(found.kernel.k2.length_scale)))
    assert spread[0] > 2.0
    assert spread[1] < 0.7


@pytest.mark.slow
def test_the_scale_of_few_labels_is_chosen_too(rng):
    X = rng.uniform(-1.0, 1.0, size=(200, 2))
    model = NGDSVGPClassifier(random_state=0).fit(X, X[:, 0] > X[:, 1])
    X_new = rng.uniform(-1.0, 1.0, size=(2000, 2))
    # That of the start is 3: not near enough to zero and one where labels are certain.
    assert model.kernel_(np.zeros((1, 2)))[0, 0] > 10.0
    assert log_loss(X_new[:, 0] > X_new[:, 1], model.predict_proba(X_new)) < 0.06


def test_doubted_labels_have_the_expected_log_density(rng):
    mean, var, y = rng.normal(size=(1, 9)), rng.uniform(0.1, 2.0, size=(1, 9)), rng.integers(2, size=(1, 9))
    right = stats.norm.logcdf(np.where(y[0], 1.0, -1.0) * mean[0] / np.sqrt(1.0 + var[0]))
    wrong = np.log(-np.expm1(right))
    found = calibration.log_densities(Bernoulli(), mean, var, y, 0.1)
    np.testing.assert_allclose(found, 0.9 * right + 0.1 * wrong, rtol=1e-9)
    # Of several classes the others share the doubt.
    f, y = 3.0 * rng.normal(size=(4, 200)), rng.integers(4, size=(1, 200))
    each = calibration.log_densities(Softmax(), f, np.full_like(f, 1e-12), y, 0.3)
    log_p = f - special.logsumexp(f, axis=0)
    is_right = np.arange(4)[:, None] == y
    expected = (np.where(is_right, 0.7, 0.1) * log_p).sum(0)
    np.testing.assert_allclose(each, expected, rtol=1e-4)


def test_the_others_share_a_doubt_under_uncertain_latent_functions(rng, x64):
    mean, var, y = 3.0 * rng.normal(size=(4, 200)), rng.uniform(0.1, 2.0, size=(4, 200)), rng.integers(4, size=(1, 200))
    right, doubted = (calibration.log_densities(Softmax(), mean, var, y, doubt) for doubt in (0.0, 0.3))
    log_p = np.asarray(Softmax(n_points=1024).log_class_probabilities(mean, var))
    expected = np.where(np.arange(4)[:, None] == y, 0.0, log_p).sum(0) / 3.0
    np.testing.assert_allclose((doubted - 0.7 * right) / 0.3, expected, rtol=0.02, atol=0.02)


@pytest.mark.slow
def test_densities_of_several_classes_round_to_single_precision(rng, x64):
    mean, var, y = 9.0 * rng.normal(size=(5, 300)), rng.uniform(0.1, 9.0, size=(5, 300)), rng.integers(5, size=(1, 300))
    found = calibration.log_densities(Softmax(), mean, var, y)
    exact = np.asarray(Softmax().training_log_density(mean, var, y))
    assert found.dtype == exact.dtype == float
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-6)
    assert np.abs(found - exact).max() > 0.0
    # What is not an average over some points keeps its digits.
    found, exact = calibration.log_densities(RobustMax(), mean, var, y), RobustMax().training_log_density(mean, var, y)
    np.testing.assert_allclose(found, exact, rtol=1e-12)


def test_few_labels_that_are_all_predicted_well_ask_for_no_certainty(rng):
    f = 4.0 * rng.choice([-1.0, 1.0], size=(1, 40))
    arguments = Bernoulli(), f, np.ones_like(f), (f > 0.0).astype(int), np.ones(40)
    plain, doubted = (calibration.calibrate(*arguments, doubt) for doubt in (0.0, 1.0 / 42.0))
    assert plain.mean > 1.1
    assert plain.deviation < 1.0
    proba = stats.norm.cdf(4.0 * doubted.mean / np.sqrt(1.0 + doubted.deviation**2))
    # That of one label in 42 is 0.976.
    assert 0.96 < proba < 0.99


def _linear(rng, n_rows):
    X = rng.normal(size=(n_rows, 10))
    return X, X @ rng.normal(size=10) / np.sqrt(10.0) + rng.normal(size=n_rows)


@pytest.mark.slow
def test_few_rows_of_a_noisy_line_are_not_explained_too_well():
    ours, line = [], []
    for seed in range(3):
        X, y = _linear(np.random.default_rng(seed), 1070)
        reg = NGDSVGPRegressor(random_state=0).fit(X[:70], y[:70])
        mean, std = BayesianRidge().fit(X[:70], y[:70]).predict(X[70:], return_std=True)
        ours.append(reg.predict_log_density(X[70:], y[70:]).mean())
        line.append(stats.norm.logpdf(y[70:], mean, std).mean())
    # By the density of each row given all others the first was fitted with twenty lengthscales, at half a nat less.
    assert np.mean(ours) > np.mean(line) - 0.12


@pytest.mark.slow
def test_few_noisy_labels_are_not_explained_too_well():
    ours, line = [], []
    for seed in range(3):
        X, y = _linear(np.random.default_rng(seed), 1100)
        labels = y > 0.0
        model = NGDSVGPClassifier(random_state=0).fit(X[:100], labels[:100])
        logistic = LogisticRegression().fit(X[:100], labels[:100])
        ours.append(log_loss(labels[100:], model.predict_proba(X[100:])))
        line.append(log_loss(labels[100:], logistic.predict_proba(X[100:])))
    # By the density of each row given all others it was 0.85, and 0.69 is that of a constant.
    assert np.mean(ours) < np.mean(line) + 0.06


def test_a_gross_error_is_at_its_own_row(rng):
    """Densities of held-out rows are in the order of the table."""
    table, _ = _shuffled(rng.normal(size=(40, 2)))
    y = 0.1 * table.y
    y[0, 17] = 5.0
    (found,) = search.best_kernels([table._replace(y=y)], np.random.RandomState(0))
    assert np.argmin(found.held_out.each) == 17


def test_a_search_of_few_rows_must_be_better_by_a_standard_error(rng):
    table, plan = _shuffled(rng.normal(size=(40, 2)))[0], svgp.Plan(None, Gaussian())
    plain = few_rows.plain(plan, table)
    for kernel, gains in ((RBF(), (0.9, 1.1)), (ExpSineSquared(), (-1.1, -0.9))):
        for gain, is_taken in zip(gains, (False, True), strict=True):
            noise = rng.normal(size=40)
            noise = (noise - noise.mean()) / noise.std() + gain / np.sqrt(40)
            each = plain.densities.each + noise + np.log(targets.scale_of(table)).mean()
            found = Found(ConstantKernel() * kernel, 0.1, 0.0, held_out=plain.densities._replace(each=each))
            assert (few_rows.better(plan, plain, found, table) is not None) == is_taken


def test_copies_do_not_tell_few_rows_what_they_are(rng):
    """Of noise that is measured twice, only the other rows say what a row is: nothing."""
    X, y = np.repeat(rng.normal(size=(14, 2)), 2, axis=0), np.repeat(rng.normal(size=14), 2)
    table = Table(X, (y + 0.01 * rng.normal(size=28))[None], np.ones(28))
    densities = few_rows.plain(svgp.Plan(None, Gaussian()), table).densities
    assert densities.mean < stats.norm.logpdf(y).mean() + 0.2


def test_no_other_kernel_of_the_search_predicts_better(rng):
    X = rng.normal(size=(60, 10))
    table = Table(X, (X @ rng.normal(size=10))[None] + 0.1 * rng.normal(size=(1, 60)), np.ones(60))
    found, alone = (
        search.best_kernels([table], np.random.RandomState(0), makes=makes)[0].density
        for makes in (OF_MEASUREMENTS, OF_MEASUREMENTS[:1])
    )
    # A linear function is told from a smooth one.
    assert found > alone + 0.03


def test_a_constant_output_does_not_end_the_search(rng):
    X = rng.normal(size=(60, 2))
    y = np.sin(3.0 * X[:, 0])
    both = NGDSVGPRegressor(random_state=0).fit(X, np.c_[y, np.full(60, 3.0)])
    alone = NGDSVGPRegressor(random_state=0).fit(X, y)
    assert_allclose(both.predict(X)[:, 0], alone.predict(X), atol=0.02)
    assert both.kernel_.get_params().keys() == alone.kernel_.get_params().keys()
