"""Tables in which rows repeat the X of others, with the same targets or with others."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, svgp
from skgp_natgrad._backend import repeated
from skgp_natgrad.choose import evidence
from skgp_natgrad.choose.splits import Shuffled, in_random_order, merged
from skgp_natgrad.estimators.fitted import outcome
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.prediction.calibration import Average
from skgp_natgrad.solve import closed_form, common_covariance, held_out_labels
from skgp_natgrad.solve.left_out import drawn
from skgp_natgrad.start import choice

from .conftest import left_out_density, on_points

ONE_STEP = svgp.Settings(algorithm=svgp.Algorithm(solver="evidence", optimizer=None))


def cells(rng, shape, n, n_classes=2):
    """Rows that take few values, the labels' probabilities at each, and labels."""
    X = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1).reshape(-1, len(shape)).astype(float)
    logits = 1.5 * rng.normal(size=(len(X), n_classes))
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    index = rng.integers(len(X), size=n)
    return X, p, index, (rng.random(n)[:, None] > p[index].cumsum(1)).sum(1)


@pytest.mark.parametrize("numbers", [None, lambda X: np.zeros(len(X), np.uint64)], ids=["", "without numbers"])
def test_rows_are_grouped_to_the_bit(numbers, rng, monkeypatch):
    """Equal rows together and in their order, others apart, even if all had the same number."""
    if numbers is not None:
        monkeypatch.setattr(repeated, "_numbers", numbers)
    for X in (
        rng.integers(0, 3, (300, 3)) / 7.0,
        rng.integers(0, 2, (300, 2)).astype("float32"),
        rng.normal(size=(50, 100)),
        np.where(rng.random((40, 2)) < 0.5, 0.0, -0.0),
        np.ones((1, 2)),
    ):
        order, start = repeated.grouped(X)
        found = np.empty(len(X), int)
        found[order] = np.repeat(np.arange(len(start)), np.diff(start, append=len(X)))
        np.testing.assert_array_equal(found[:, None] == found, (X[:, None] == X).all(-1))
        assert all(np.all(np.diff(group) > 0) for group in np.split(order, start[1:]))


def brute_force(X, y):
    same = (X[:, None] == X[None]).all(-1)
    return [[any(y[k, same[i]] != y[k, i]) for i in range(len(X))] for k in range(len(y))]


# -- rows of equal X ---------------------------------------------------------------------------


def test_contradictions_are_found(rng):
    X, y = rng.integers(3, size=(40, 2)).astype(float), rng.integers(2, size=(2, 40)).astype(float)
    found = repeated.contradicted(X, y)
    assert found.tolist() == brute_force(X, y)
    assert not repeated.contradicted(X, np.zeros((1, 40))).any()
    assert not repeated.contradicted(rng.normal(size=(40, 2)), y).any()


def test_a_missing_target_contradicts_nothing():
    X = np.zeros((3, 1))
    assert not repeated.contradicted(X, np.array([[1.0, np.nan, 1.0], [np.nan, np.nan, np.nan]])).any()
    assert repeated.contradicted(X, np.array([[1.0, np.nan, 2.0]])).all()


def test_weights_are_observations_where_there_is_a_contradiction():
    weight, is_contradicted = np.array([0.3, 1.0, 2.9, 700.0, 5.0]), np.array([True, True, True, True, False])
    assert repeated.n_observations(weight, is_contradicted, 100).tolist() == [1.0, 1.0, 2.0, 100.0, 1.0]


def test_rows_of_equal_x_stay_together_in_a_random_order(rng):
    X = rng.integers(4, size=(60, 2)).astype(float)
    order, ends = repeated.shuffled(X, np.random.RandomState(1))
    assert sorted(order) == list(range(60))
    parts = np.split(X[order], ends[:-1])
    assert len(parts) == len(np.unique(X, axis=0))
    assert ends[-1] == 60
    assert all((part == part[0]).all() for part in parts)


def test_distinct_rows_are_permuted(rng):
    order, ends = repeated.shuffled(rng.normal(size=(50, 3)), np.random.RandomState(3))
    assert order.tolist() == np.random.RandomState(3).permutation(50).tolist()
    assert ends.tolist() == list(range(1, 51))


def test_merged_rows_have_the_mean_of_their_targets(rng):
    X, y, weight = rng.integers(2, size=(30, 2)).astype(float), rng.normal(size=(2, 30)), rng.uniform(0.5, 3.0, 30)
    table = merged(svgp.Table(X, y, weight))
    _, first = np.unique(X, axis=0, return_index=True)
    assert table.X.tolist() == X[np.sort(first)].tolist()
    for i, row in enumerate(table.X):
        same = (row == X).all(1)
        np.testing.assert_allclose(table.y[:, i], np.average(y[:, same], axis=1, weights=weight[same]), rtol=1e-12)
        np.testing.assert_allclose(table.weight[i], weight[same].sum(), rtol=1e-14)
    distinct = svgp.Table(rng.normal(size=(30, 2)), y, weight)
    assert merged(distinct).y is y


def test_merged_rows_of_equal_targets_keep_them(rng):
    X, weight = np.repeat([[0.0], [1.0]], 7, axis=0), rng.uniform(0.1, 1.0, 14)
    assert merged(svgp.Table(X, np.repeat([[0.1, 1.0 / 3.0]], 7, axis=1), weight)).y.tolist() == [[0.1, 1.0 / 3.0]]


def test_copies_and_heavy_rows_count_as_one_observation():
    """Three copies, two targets of one X, a heavy row, and a light one."""
    X = np.array([0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 3.0])[:, None]
    y, weight = np.array([[1.0, 1.0, 1.0, 0.0, 4.0, 2.0, 3.0]]), np.array([1.0, 1.0, 1.0, 1.0, 3.0, 20.0, 0.25])
    found = merged(svgp.Table(X, y, weight))
    assert found.weight.tolist() == [1.0, 4.0, 1.0, 0.25]
    assert found.y.tolist() == [[1.0, 3.0, 2.0, 3.0]]
    apart = svgp.Table(X[3:], y[:, 3:], weight[3:], known=np.full((1, 4), 0.1))
    assert merged(apart).weight.tolist() == [1.0, 1.0, 1.0, 0.25]
    # Labels agree without being copies.
    labels = np.array([[1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0]])
    assert merged(svgp.Table(X, labels, weight)).weight.tolist() == [3.0, 4.0, 20.0, 0.25]


def test_weights_that_all_are_small_are_those_of_equal_rows(rng):
    weight = rng.exponential(size=50)
    common = (weight**2).sum() / weight.sum()
    for scale in (1e-300, 1e-9, 0.5 / common):
        assert repeated.common_weight(scale * weight) == pytest.approx(scale * common, rel=1e-12)
        found = merged(svgp.Table(rng.normal(size=(50, 1)), rng.normal(size=(1, 50)), scale * weight)).weight
        np.testing.assert_allclose(found, np.minimum(weight / common, 1.0), rtol=1e-12)
    assert repeated.common_weight(np.zeros(3)) == 1.0
    assert repeated.common_weight(np.full(4, 0.3)) == pytest.approx(0.3)


@pytest.mark.parametrize(("given", "merges"), [({"known": np.full((1, 3000), 0.1)}, True), ({}, False)])
def test_rows_that_are_not_merged_are_no_more_than_were_asked_for(rng, given, merges):
    """However many of them share an X: the evidence costs their number cubed."""
    X = rng.integers(3, size=(3000, 1)).astype(float)
    table = svgp.Table(X, rng.normal(size=(1, 3000)), np.ones(3000), **given)
    shuffled = Shuffled(*in_random_order(table, np.random.RandomState(0), merges))
    rows = choice._rows_of_evidence(table, shuffled)
    assert rows.n_rows == evidence.ROWS
    assert len(np.unique(rows.X)) == 3
    assert merges is False or shuffled.merged(table, 250).n_rows == 250
    plain = table._replace(known=None)
    shuffled = Shuffled(*in_random_order(plain, np.random.RandomState(0)))
    assert choice._rows_of_evidence(plain, shuffled).n_rows == 3000
    assert merged(plain).n_rows == 3


def test_where_targets_are_missing_rows_are_not_merged():
    table = svgp.Table(np.array([[1.0], [0.0], [1.0]]), np.array([[1.0, 2.0, np.nan]]), np.ones(3))
    assert merged(table).X is table.X


# -- draws ---------------------------------------------------------------------------------------


def test_rows_are_drawn_in_proportion_to_their_weight(rng):
    weight = rng.exponential(size=200) * rng.integers(2, size=200)
    counts, n_draws = np.zeros(200), 50
    for seed in range(400):
        index, each = drawn(weight, n_draws, np.random.RandomState(seed))
        assert each.sum() == n_draws
        assert (np.diff(index) > 0).all()
        counts[index] += each
        # Systematic draws take every row as often as its share, rounded down or up.
        assert (np.abs(each - n_draws * weight[index] / weight.sum()) < 1.0).all()
    assert (counts[weight == 0.0] == 0).all()
    np.testing.assert_allclose(counts / 400, n_draws * weight / weight.sum(), atol=0.12)


def test_equal_weights_are_drawn_once_and_few_rows_all():
    index, counts = drawn(np.full(300, 0.1), 100, np.random.RandomState(0))
    assert (len(index), counts.tolist()) == (100, [1] * 100)
    index, counts = drawn(np.array([0.5, 2.0]), 2, np.random.RandomState(0))
    assert (index.tolist(), counts.tolist()) == ([0, 1], [0.5, 2.0])


# -- what is left out ----------------------------------------------------------------------------


def test_one_observation_of_a_contradicted_row_is_left_out(rng, x64):
    """As by refits with a weight that is smaller by one. Weights that nothing contradicts count as one."""
    X = np.repeat(rng.normal(size=(12, 1)), 2, axis=0)
    y = rng.normal(size=(1, 24))
    # The last two rows are not repeated, and are left out as a whole.
    X[-1] += 1.0
    weight = rng.integers(1, 5, size=24).astype(float)
    table, noise = svgp.Table(X, y, weight), 0.3
    plan = svgp.Plan(kernels=(2.0 * Matern(0.7, nu=1.5),), likelihood=Gaussian(noise, "fixed"), settings=ONE_STEP)
    state, constants = svgp.init(plan, table, random_state=0)
    system = on_points(state.parameters, constants, table)
    found = left_out_density(system, np.log(noise))
    each = []
    for i in range(24):
        left = weight.copy()
        left[i] -= 1.0 if i < 22 else weight[i]
        cov = 2.0 * Matern(0.7, nu=1.5)(X[left > 0]) + noise * np.diag(1.0 / left[left > 0])
        cross = 2.0 * Matern(0.7, nu=1.5)(X[i : i + 1], X[left > 0])
        half = np.linalg.solve(cov, cross.T)
        mean, var = half.T @ y[0, left > 0], 2.0 - cross @ half + noise
        each.append(-0.5 * (np.log(2.0 * np.pi * var.item()) + (y[0, i] - mean.item()) ** 2 / var.item()))
    told = np.where(np.arange(24) < 22, weight, 1.0)
    assert found == pytest.approx(np.average(each, weights=told), rel=1e-6)


def test_labels_of_contradicted_rows_are_held_out_in_part():
    n_rows = 40
    weight, is_contradicted = np.full(n_rows, 30.0), np.arange(n_rows) < 20
    zeros = np.zeros(n_rows)
    rows = common_covariance.Rows(np.zeros((1, n_rows)), zeros + 1.0, zeros, zeros[None], weight)
    folds = held_out_labels.folds_of(rows, np.random.RandomState(0), is_contradicted=is_contradicted)
    held = np.zeros(n_rows)
    for fold in folds:
        np.testing.assert_allclose(fold.weight, np.where(is_contradicted[fold.index], fold.counts, 30.0))
        left = held_out_labels.without(rows, fold).weight
        np.testing.assert_allclose(left[fold.index] + fold.weight, 30.0)
        assert (left >= 0.0).all()
        held[fold.index] += fold.weight
    # 620 observations in three parts, of which the last is not whole.
    assert len(folds) == 3
    np.testing.assert_allclose(held, 30.0)


def test_the_error_of_a_mean_counts_observations(rng):
    values, counts = rng.normal(size=20), rng.integers(1, 6, size=20)
    once = Average.of(np.repeat(values, counts), np.ones(counts.sum()))
    assert Average.of(values, counts.astype(float), counts) == pytest.approx(once, rel=1e-12)


def test_rows_among_others_are_found_to_the_bit(rng):
    Z = rng.normal(size=(40, 3))
    Z[0] = 0.0
    X = np.concatenate([Z[[5, 0, 5]], Z[5:7] + 1e-15, rng.normal(size=(4, 3)), [[-0.0, 0.0, -0.0]]])
    expected = (X[:, None] == Z).all(-1).any(1)
    assert expected.sum() >= 4
    np.testing.assert_array_equal(repeated.among(X, Z), expected)
    np.testing.assert_array_equal(repeated.among(X.astype(np.float32), Z)[:3], True)
    assert repeated.among(X[:0], Z).shape == (0,)


def test_rows_apart_from_the_points_are_held_out_in_proportion():
    """Those that repeat themselves have their share, and no more; none where all rows are points."""
    n_rows = 2000
    weight, is_contradicted = np.ones(n_rows), np.arange(n_rows) < 400
    for is_point in (is_contradicted, True):
        residual = np.zeros(n_rows)
        rows = common_covariance.Rows(np.zeros((1, n_rows)), 1.0 - residual, residual, weight[None], weight)
        (held,) = held_out_labels.folds_of(rows, np.random.RandomState(0), is_point, is_contradicted)
        assert len(held.index) == 400
        assert 0.1 < is_contradicted[held.index].mean() < 0.3


def test_all_rows_count_for_the_noise_where_all_are_points(rng, x64):
    X = np.concatenate([rng.normal(size=(300, 1)), np.repeat(rng.normal(size=(60, 1)), 2, axis=0)])
    table = svgp.Table(X, rng.normal(size=(1, 420)), np.ones(420))
    plan = svgp.Plan(kernels=(2.0 * RBF(0.3),), n_inducing=None, likelihood=Gaussian(0.1), settings=ONE_STEP)
    state, constants = svgp.init(plan, table, random_state=0)
    held = closed_form.held_out_rows(state.parameters, constants, table, np.random.RandomState(0))
    assert held.n_rows(0) == 420


def test_few_rows_of_many_observations_have_a_noise(rng):
    X = np.repeat([[0.0], [1.0]], 1000, axis=0)
    y = rng.integers(1, 5, size=2000) + 2.0 * X[:, 0]
    deviation = NGDSVGPRegressor(random_state=0).fit(X, y).predict([[0.0], [1.0]], return_std=True)[1]
    np.testing.assert_allclose(deviation, np.sqrt(1.25), rtol=0.05)


# -- whole fits ----------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["auto", pytest.param("ngd", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("shape", "n_classes"), [((2, 2, 4), 2), pytest.param((4, 5), 3, marks=pytest.mark.slow)])
def test_probabilities_of_few_distinct_rows_are_those_of_their_counts(rng, solver, shape, n_classes):
    X, p, index, y = cells(rng, shape, 2000, n_classes)
    model = NGDSVGPClassifier(solver=solver, random_state=0).fit(X[index], y)

    def cross_entropy(q):
        return -(p * np.log(q)).sum(1).mean()

    counts = np.array([np.bincount(y[index == i], minlength=n_classes) for i in range(len(X))]) + 0.5
    entropy, of_counts = cross_entropy(p), cross_entropy(counts / counts.sum(1, keepdims=True))
    of_model, constant = cross_entropy(model.predict_proba(X)), cross_entropy(np.mean(p, axis=0)[None])
    assert of_counts - entropy < 0.2 * (constant - entropy)
    assert of_model - entropy < 2.0 * (of_counts - entropy) + 1e-3


@pytest.mark.slow
def test_a_given_kernel_is_fitted_to_the_means_of_repeated_rows(rng):
    X, p, index, y = cells(rng, (5, 6), 1500)
    kernel = ConstantKernel(1.0) * RBF([1.0, 1.0])
    model = NGDSVGPClassifier(kernel, random_state=0).fit(X[index], y)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], p[:, 1], atol=0.2)


@pytest.mark.slow
def test_the_noise_of_repeated_rows_is_seen(rng):
    """Where the points are, the targets differ by much; elsewhere they follow a function."""
    X = rng.uniform(-1.0, 1.0, size=(400, 1))
    y = np.sin(3.0 * X[:, 0])
    places = np.linspace(-1.0, 1.0, 8)[:, None]
    X = np.concatenate([X, np.repeat(places, 500, axis=0)])
    y = np.concatenate([y, np.repeat(np.sin(3.0 * places[:, 0]), 500) + rng.choice([-0.5, 0.5], size=4000)])
    model = NGDSVGPRegressor(random_state=0).fit(X, y)
    mean, deviation = model.predict(places, return_std=True)
    np.testing.assert_allclose(mean, np.sin(3.0 * places[:, 0]), atol=0.1)
    np.testing.assert_allclose(deviation, 0.5 * np.sqrt(4000 / 4400), rtol=0.2)


def test_rows_without_weight_change_nothing(rng, x64):
    X, y, noise = rng.integers(6, size=(40, 1)).astype(float), rng.normal(size=(1, 40)), 0.3
    weight = np.where(np.arange(40) < 30, rng.integers(1, 4, size=40), 0.0)
    densities = []
    for rows in (slice(None), slice(30)):
        table = svgp.Table(X[rows], y[:, rows], weight[rows])
        Z = np.arange(6.0)[:, None]
        plan = svgp.Plan(kernels=(2.0 * RBF(1.0),), likelihood=Gaussian(noise, "fixed"), settings=ONE_STEP)
        state, constants = svgp.init(plan._replace(n_inducing=6, inducing_init=Z), table, random_state=0)
        system = on_points(state.parameters, constants, table)
        densities.append(left_out_density(system, np.log(noise)))
    assert densities[0] == pytest.approx(densities[1], rel=1e-12)
    both = (svgp.Table(X[:30], y[:, :30], weight[:30]), svgp.Table(X, y, weight))
    small, large = (merged(table) for table in both)
    np.testing.assert_allclose(large.y[:, : len(small.weight)], small.y, rtol=1e-12)


@pytest.mark.slow
def test_replicates_of_known_noise_all_count(rng):
    """As in scikit-learn's GaussianProcessRegressor(alpha=array), whose rows may repeat."""
    X = np.repeat(np.linspace(-2.0, 2.0, 10)[:, None], 8, axis=0)
    alpha = rng.uniform(0.05, 0.5, size=80)
    y = np.sin(2.0 * X[:, 0]) + np.sqrt(alpha) * rng.normal(size=80)
    kernel = ConstantKernel(1.0) * RBF(1.0)
    units = {"normalize_X": False, "normalize_y": False, "random_state": 0}
    model = NGDSVGPRegressor(kernel, likelihood=Gaussian(1e-6, "fixed"), **units).fit(X, y, alpha=alpha)
    exact = GaussianProcessRegressor(kernel, alpha=alpha + 1e-6).fit(X, y)
    np.testing.assert_allclose(model.predict(X), exact.predict(X), atol=0.02)
    np.testing.assert_allclose(np.exp(model.kernel_.theta), np.exp(exact.kernel_.theta), rtol=0.05)


@pytest.mark.parametrize(
    ("elbo", "mean", "calibration", "value"),
    [
        (-2.0, -1.0, None, -1.1),
        (-1.05, -1.0, None, -1.05),
        (-1.0, np.nan, None, -1.0),
        (-0.5, -1.0, (1.0, 1.0), -1.0),
    ],
)
def test_held_out_rows_and_the_bound_judge_a_fit(elbo, mean, calibration, value):
    """Gaussian noise by the better one, held-out rows less their error; labels by those that are held out."""
    result = SimpleNamespace(
        trained=SimpleNamespace(elbo=10.0 * elbo), log_prior=0.0, held_out=Average(mean, 0.1), calibration=calibration
    )
    assert outcome._value(result, SimpleNamespace(weight=10.0))[0] == pytest.approx(value)


@pytest.mark.slow
def test_a_weak_signal_is_not_called_none(rng):
    X = rng.normal(size=(3000, 1))
    y = 0.3 * X[:, 0] + rng.normal(size=3000)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        assert NGDSVGPRegressor(random_state=0).fit(X, y).score(X, y) > 0.05
