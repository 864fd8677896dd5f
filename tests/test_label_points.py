"""The rows on which the means of class labels rest: gains, the bound's slopes, the order of choice, and the model."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from skgp_natgrad import NGDSVGPClassifier, svgp
from skgp_natgrad._backend import device
from skgp_natgrad._backend.repeated import among
from skgp_natgrad.likelihoods import Bernoulli, Softmax
from skgp_natgrad.solve import class_labels, common_covariance, further_points, held_out_labels
from skgp_natgrad.solve.system import covariance_of
from skgp_natgrad.start import sizes

from .test_label_means import JITTER, KERNEL, STEPS, Prepared, table_of

# Rows, to which some are added that fill up.
N = 70


def labels_of(p, mean=None):
    """A fit under the inducing points, its latent means and the `Labels` it leaves; with the given means if any."""
    fit = common_covariance.fit_at_scale(p.parameters, p.constants, p.rows, 0.0)
    mean = fit.mean if mean is None else np.broadcast_to(mean, fit.mean.shape)
    system = p.parameters, p.constants, p.rows
    return fit, further_points.Labels.of(p.parameters.log_kernels[0], system, p.table.X, fit, mean)


def unexplained_of(p, candidates):
    """Covariances of the candidates with all rows beside the inducing points, by scikit-learn's kernel."""
    Kzz = KERNEL(p.Z) + JITTER * 4.0 * np.eye(len(p.Z))
    X = p.table.X
    return KERNEL(X[candidates], X) - KERNEL(X[candidates], p.Z) @ np.linalg.solve(Kzz, KERNEL(p.Z, X))


@pytest.mark.slow
@pytest.mark.parametrize(("likelihood", "n_classes"), [(Bernoulli(link="logit"), 2), (Softmax(), 3)])
def test_slopes_and_curvature_are_those_of_the_bound(rng, x64, monkeypatch, likelihood, n_classes):
    """Against finite differences of the bound in the weights of further points, which have a prior of their own."""
    monkeypatch.setattr(further_points, "_BLOCK_ROWS", 16)
    p = Prepared(table_of(rng, n_classes, N), likelihood, n_classes, 12, 0)
    candidates = further_points.candidates(p.table.X, among(p.table.X, p.Z))[:9]
    fit, labels = labels_of(p)
    slope, curvature = further_points._quadratic(labels, candidates)
    K = unexplained_of(p, candidates)
    var = np.broadcast_to(p.rows.residual + fit.covariance.own, fit.mean.shape)
    n_filled_up = fit.mean.shape[1] - N
    assert n_filled_up > 0

    def bound(a):
        mean = fit.mean + np.pad(a @ K, ((0, 0), (0, n_filled_up)))
        value, _ = common_covariance.value_and_slope(p.parameters, p.constants, p.rows, mean, var)
        return float(value) - 0.5 * np.sum((a @ K[:, candidates]) * a)

    for k in range(len(fit.mean)):
        for c in range(len(candidates)):
            step = np.zeros((len(fit.mean), len(candidates)))
            step[k, c] = 1e-4
            expected = (bound(step) - bound(-step)) / 2e-4
            np.testing.assert_allclose(slope[c, k], expected, rtol=1e-5, atol=1e-6)
    h = labels.h[:, :N].mean(0)
    np.testing.assert_allclose(curvature, K[:, candidates] + (K * h) @ K.T, atol=1e-9)


@pytest.mark.slow
def test_a_gain_is_the_largest_rise_of_a_quadratic(rng, x64):
    p = Prepared(table_of(rng, 3, N), Softmax(), 3, 12, 0)
    _, labels = labels_of(p)
    gains = labels.gains()
    assert gains.shape == (N,)
    assert np.all(gains >= 0.0)
    for n in range(N):
        k, g, h = (np.asarray(each)[..., n] for each in (p.rows.residual, labels.g, labels.h))
        # The weight a of a point at the row adds k a to its latent mean.
        a = np.linspace(-3.0, 3.0, 600_001)
        rise = [(gk * k * a - 0.5 * hk * (k * a) ** 2 - 0.5 * k * a**2).max() for gk, hk in zip(g, h, strict=True)]
        np.testing.assert_allclose(gains[n], sum(rise), atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize("n_classes", [1, 3])
def test_each_point_gains_the_most_beside_those_before(rng, n_classes):
    """Against the solution for every set that could come next."""
    factor, slope = rng.normal(size=(15, 20)), rng.normal(size=(15, n_classes))
    curvature = factor @ factor.T

    def rise(chosen):
        g = slope[chosen]
        return 0.5 * np.sum(g * np.linalg.solve(curvature[np.ix_(chosen, chosen)], g))

    expected = []
    for _ in range(8):
        others = [c for c in range(15) if c not in expected]
        expected.append(max(others, key=lambda c: rise([*expected, c])))
    np.testing.assert_array_equal(further_points._best(slope, curvature, 8), expected)


def test_points_that_the_others_explain_come_last(rng):
    factor = rng.normal(size=(12, 4))
    factor[7] = 0.0
    curvature = factor @ factor.T
    found = further_points._best(factor @ rng.normal(size=(4, 2)), curvature, 12)
    np.testing.assert_array_equal(np.sort(found), np.arange(12))
    assert np.linalg.matrix_rank(curvature[np.ix_(found[:4], found[:4])]) == 4


@pytest.mark.slow
def test_rows_are_taken_where_labels_are_open(rng, x64):
    """As many as hold nearly all gains, or as were asked for; of fewer, all labels together decide, or chance."""
    p = Prepared(table_of(rng, 2, 600), Bernoulli(), 2, 12, 0)
    # Far from the boundary of a steep latent function labels are all but certain.
    steep = np.where(p.table.y[0] == 1.0, 1.0, -1.0) * np.where(np.abs(p.table.X[:, 0]) < 0.3, 0.1, 30.0)
    _, labels = labels_of(p, np.pad(steep, (0, len(p.rows.weight) - 600)))
    candidates, gains = np.arange(600), labels.gains()[:600]

    def chosen(n_points, at_most=False, seed=0):
        return further_points.chosen(labels, candidates, n_points, at_most, np.random.RandomState(seed))

    needed = chosen(600, at_most=True)
    assert len(needed) < 200
    # All that is needed is where labels are open; the number is rounded up.
    n_needed, largest = further_points._n_needed(gains), np.sort(gains)[::-1]
    assert np.all(np.abs(p.table.X[np.argsort(-gains)[:n_needed], 0]) < 0.3)
    assert set(np.argsort(-gains)[:n_needed]) <= set(needed)
    assert largest[:n_needed].sum() >= 0.99 * gains.sum() > largest[: n_needed - 1].sum()
    np.testing.assert_array_equal(np.sort(gains[needed])[::-1], largest[: further_points._shared(n_needed)])
    # A number that was asked for is kept, and those needed are among them.
    assert len(chosen(300)) == 300
    assert set(needed) < set(chosen(300))
    np.testing.assert_array_equal(chosen(600), candidates)
    np.testing.assert_array_equal(chosen(1000), candidates)
    few = chosen(20, at_most=True)
    assert len(np.unique(few)) == 20
    assert np.all(np.diff(few) > 0)
    assert set(few) <= set(np.flatnonzero(gains))


def test_similar_numbers_of_points_share_a_size():
    numbers = np.arange(1, 30_000)
    found = np.array([further_points._shared(int(n)) for n in numbers])
    assert np.all((found >= numbers) & (found <= 1.125 * numbers))
    # Eight sizes in each power of two.
    assert len(np.unique(found[numbers > 1024])) < 8 * 5
    assert further_points._shared(0) == 0


@pytest.mark.slow
def test_many_points_are_drawn_in_proportion(rng, x64, monkeypatch):
    monkeypatch.setattr(further_points, "_FEW", 0)
    p = Prepared(table_of(rng, 2, 200), Bernoulli(), 2, 12, 0)
    _, labels = labels_of(p)
    candidates = np.arange(200)
    assert further_points._n_needed(labels.gains()) > 40
    draws = [further_points.chosen(labels, candidates, 40, False, np.random.RandomState(seed)) for seed in range(200)]
    assert all(len(np.unique(each)) == 40 for each in draws)
    assert len(np.unique(draws, axis=0)) == 200
    frequency = np.bincount(np.concatenate(draws), minlength=200) / 200.0
    order = np.argsort(labels.gains()[:200])
    assert frequency[order[-50:]].mean() > 2.0 * frequency[order[:50]].mean()


def test_the_first_place_in_a_random_order_is_in_proportion(rng):
    """Also where some weigh nothing, which come last."""
    weight = np.array([1.0, 0.0, 3.0, 1e-200, 4.0, 0.0])
    orders = [further_points._in_random_order(weight, np.random.RandomState(seed)) for seed in range(2000)]
    first = np.bincount([order[0] for order in orders], minlength=6) / 2000.0
    np.testing.assert_allclose(first, weight / weight.sum(), atol=0.04)
    assert all(set(order[-2:]) == {1, 5} for order in orders)


def test_equal_rows_count_together(rng, x64):
    """The first of some copies agrees with the prediction, and the others do not."""
    table = table_of(rng, 2, N)
    table.X[40:43] = table.X[39]
    table.y[0, 39:43] = [0.0, 1.0, 1.0, 1.0]
    p = Prepared(table, Bernoulli(link="logit"), 2, 12, 0)
    _, labels = labels_of(p, np.full(len(p.rows.weight), -3.0))
    gains = labels.gains()
    assert np.all(gains[40:43] == 0.0)
    k = float(p.rows.residual[39])
    g, h = labels.g[0, 39:43].sum(), labels.h[0, 39:43].sum()
    np.testing.assert_allclose(gains[39], 0.5 * g**2 * k / (1.0 + h * k))
    assert gains[39] > 2.0 * (0.5 * labels.g[0, 40] ** 2 * k / (1.0 + labels.h[0, 40] * k))


def test_where_nothing_is_gained_there_are_no_points_but_those_asked_for(rng, x64):
    p = Prepared(table_of(rng, 2, 200), Bernoulli(link="logit"), 2, 12, 0)
    _, labels = labels_of(p)
    nothing = labels._replace(g=np.zeros_like(labels.g))
    no_number = labels._replace(g=np.full_like(labels.g, np.nan))
    for each in nothing, no_number:
        assert len(further_points.chosen(each, np.arange(200), 50, True, np.random.RandomState(0))) == 0
        given = further_points.chosen(each, np.arange(200), 50, False, np.random.RandomState(0))
        assert len(np.unique(given)) == 50
        assert given.max() > 100
    # One that is none leaves the others as they are.
    g = labels.g.copy()
    g[:, 5] = np.nan
    some = further_points.chosen(labels._replace(g=g), np.arange(200), 200, True, np.random.RandomState(0))
    assert 5 not in some
    assert len(some) > 20


def problem_of(table, likelihood, n_classes):
    """What fits of the table share, with twelve inducing points."""
    p = Prepared(table, likelihood, n_classes, 12, 0)
    return p, class_labels._Problem.of(p.parameters, p.constants, table, np.random.RandomState(0))


@pytest.mark.slow
@pytest.mark.parametrize("n_further", [5, 1000])
def test_each_fold_starts_from_its_own_fit(rng, n_further, monkeypatch):
    """No label that is held out has a part in what predicts it: it may say anything, as far as points stay."""
    monkeypatch.setattr(further_points, "chosen", lambda labels, rows, n, *_: rows[:n])
    table = table_of(rng, 2, 90)
    with device.computation():
        p, problem = problem_of(table, Bernoulli(), 2)
        assert len(problem.folds) == 5

        def predicted(problem, fold):
            way = class_labels._OnFurtherPoints.of(problem, p.parameters, table, n_further, False, None)
            return held_out_labels.moments_of(way.fit_without(fold), problem.folds[fold])

        for fold in range(2):
            y = np.array(problem.rows.y)
            y[:, problem.folds[fold].index] = 1.0 - y[:, problem.folds[fold].index]
            other = problem._replace(rows=problem.rows._replace(y=y))
            for found, expected in zip(predicted(other, fold), predicted(problem, fold), strict=True):
                np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_the_covariance_of_all_rows_does_not_swing(rng, x64, monkeypatch):
    """It is between that under which rows were held out and the next; of these rows there is the next one alone."""
    monkeypatch.setattr(further_points, "chosen", lambda labels, rows, n, *_: rows[:n])
    table = table_of(rng, 3, 90)
    with device.computation():
        p, problem = problem_of(table, Softmax(), 3)
        way = class_labels._OnFurtherPoints.of(problem, p.parameters, table, 9, False, None)
        before = way.fit_without(0)
        var = np.broadcast_to(problem.rows.residual + before.covariance.own, before.mean.shape)
        system = problem.coarse, problem.constants, problem.rows
        after = np.asarray(common_covariance.curvatures(*system, before.mean, var).max(0))
        found = way.fit_of_all(before)
        expected = covariance_of(problem.rows.A, found.h)
    held = np.isin(np.arange(len(after)), problem.folds[0].index)
    assert not before.h[held].any()
    assert after[held].all()
    np.testing.assert_allclose(found.h, np.where(held, after, 0.5 * (before.h + after)), rtol=1e-12)
    np.testing.assert_allclose(found.covariance.own, expected.own, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_chosen_points_raise_the_bound_more_than_random_ones(rng, n_classes, monkeypatch):
    table = table_of(rng, n_classes, 900)
    likelihood = Bernoulli() if n_classes == 2 else Softmax()
    plan = svgp.Plan((KERNEL,), likelihood, n_classes, n_inducing=10, n_mean_inducing=15, jitter=JITTER, settings=STEPS)
    plan = plan._replace(likelihood=plan.likelihood.prepare(table.y, n_classes), inducing_init="random")
    # Whatever is ahead with held-out labels, the means are those of the likelihood.
    monkeypatch.setattr(class_labels, "_SURE", np.inf)

    def bound(plan):
        return svgp.train(*svgp.init(plan, table, random_state=0), table, plan, random_state=0).elbo

    chosen, nearly_all = bound(plan), bound(plan._replace(n_mean_inducing=890, n_mean_inducing_at_most=True))
    monkeypatch.setattr(further_points, "chosen", lambda labels, rows, n, _, rs: np.sort(rs.permutation(rows)[:n]))
    random, all_rows = bound(plan), bound(plan._replace(n_mean_inducing=890))
    assert random < chosen < all_rows + 1e-6 * abs(all_rows)
    # Few more than a hundredth of what the points gain is lost.
    assert all_rows - nearly_all < 0.05 * (all_rows - random)


@pytest.mark.slow
def test_the_plan_says_how_many_points_there_are(rng, monkeypatch):
    """A fit with nothing set takes no more than labels ask for; a number that is given is kept."""
    monkeypatch.setattr(sizes, "_OPERATIONS_OF_LABELS", 1e7)
    monkeypatch.setattr(sizes, "_MORE_OPERATIONS_OF_LABELS", 1e7)
    monkeypatch.setattr(class_labels, "_SURE", np.inf)
    X = rng.uniform(-1.0, 1.0, size=(1200, 2))
    y = X[:, 0] > np.sin(6.0 * X[:, 1])
    # A fixed lengthscale is in the units of X.
    kernel = ConstantKernel(4.0, "fixed") * Matern([0.58, 0.4], "fixed", nu=1.5)
    open_model = NGDSVGPClassifier(kernel, random_state=0).fit(X, y)
    n_open, n_inducing = len(open_model.mean_inducing_points_), len(open_model.inducing_points_)
    given = NGDSVGPClassifier(kernel, n_inducing=n_inducing, n_mean_inducing=1000, random_state=0).fit(X, y)
    assert 0 < n_open < 1000 == len(given.mean_inducing_points_)
    assert f" and {n_open} further points for the mean" in open_model.plan_
    assert " and 1000 further points for the mean" in given.plan_
    assert np.mean(open_model.predict(X) == given.predict(X)) > 0.99
