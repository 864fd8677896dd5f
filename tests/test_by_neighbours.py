"""Hyperparameters from rows that are predicted by their neighbours, and the choice of a kernel by them."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
from scipy import stats
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, ExpSineSquared, Matern

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, svgp
from skgp_natgrad._backend import device
from skgp_natgrad._backend.flat import flat, rebuilt
from skgp_natgrad._backend.repeated import groups
from skgp_natgrad.choose import by_neighbours, candidates, dense, evidence, neighbours, refinement, search, turned
from skgp_natgrad.choose.candidates import laplacian, matern12, matern52, matern52_and_linear, rough_and_smooth
from skgp_natgrad.choose.splits import Shuffled, in_random_order
from skgp_natgrad.choose.view import View
from skgp_natgrad.kernels import LinearTransform, from_sklearn
from skgp_natgrad.likelihoods import Softmax
from skgp_natgrad.solve.held_out_labels import Densities

KERNELS = matern52, matern12, rough_and_smooth, matern52_and_linear, laplacian
pytestmark = pytest.mark.usefixtures("x64")


def view_of(rng, n_rows=40, n_targets=2, weighted=False):
    X = rng.normal(size=(n_rows, 3))
    y = np.sin(X @ rng.normal(size=(3, n_targets))).T + 0.1 * rng.normal(size=(n_targets, n_rows))
    return View(svgp.Table(X, y, rng.uniform(0.3, 1.0, n_rows) if weighted else np.ones(n_rows)))


def start_of(view, make, length_scale=0.4, noise=0.05):
    return view.start(make, length_scale * view.longest, np.log(noise), np.inf)


def rows_of(view, hyperparameters, index, n_neighbours):
    judges = neighbours.Judges(index, groups(view.table.X), False)
    return by_neighbours.Rows.of(hyperparameters, view.table, judges, n_neighbours)


@pytest.mark.parametrize("make", KERNELS)
def test_given_all_others_it_is_the_leave_one_out_density(rng, make):
    view = view_of(rng)
    start = start_of(view, make)[0]
    value, _ = by_neighbours.value_and_gradient(start, rows_of(view, start, np.arange(40), 39))
    # Of all targets together; that of the exact process is a mean over targets.
    assert value == pytest.approx(2.0 * evidence.leave_one_out_density(start, view.table), abs=1e-10)


def with_known_noise(rng, view):
    """The view with one target, of whose rows a variance is known."""
    table = view.table
    known = rng.uniform(0.0, 0.2, (1, len(table.X)))
    view.table = table._replace(y=table.y[:1], known=known)
    return view


def test_known_noise_is_that_of_the_exact_process(rng):
    view = with_known_noise(rng, view_of(rng, weighted=True))
    start = start_of(view, matern52)[0]
    judges = neighbours.Judges.of(view.table.X, np.arange(40), False)
    error, latent, noise = evidence.left_out(start, view.table)
    with device.computation("cpu"):
        means, variances = neighbours.predictions(start, view.table, judges, 39)
    np.testing.assert_allclose(view.table.y.T - means, error.T, atol=1e-9)
    np.testing.assert_allclose(variances, np.ravel(latent), atol=1e-9)
    # Rows count by their weights.
    density = -0.5 * (np.log(2.0 * np.pi * (latent + noise)) + error**2 / (latent + noise))
    value, _ = by_neighbours.value_and_gradient(start, rows_of(view, start, np.arange(40), 39))
    assert value == pytest.approx(np.mean(view.table.weight * density), abs=1e-10)


@pytest.mark.parametrize("noise", [1e-4, 1e-8, 1e-12])
def test_it_is_exact_at_small_noise(rng, noise):
    view = view_of(rng)
    start = start_of(view, matern12, noise=noise)[0]
    value, _ = by_neighbours.value_and_gradient(start, rows_of(view, start, np.arange(40), 39))
    assert value == pytest.approx(2.0 * evidence.leave_one_out_density(start, view.table), abs=1e-9)


@pytest.mark.parametrize(("weighted", "known"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("make", KERNELS)
def test_its_gradient_by_finite_differences(rng, make, weighted, known):
    view = view_of(rng, weighted=weighted)
    view = with_known_noise(rng, view) if known else view
    start = start_of(view, make)[0]
    rows = rows_of(view, start, np.arange(25), 12)
    found = flat(by_neighbours.value_and_gradient(start, rows)[1])
    at = flat(start)
    for i, step in enumerate(1e-5 * np.eye(len(at))):
        values = [by_neighbours.value_and_gradient(rebuilt(each, start), rows)[0] for each in (at + step, at - step)]
        assert found[i] == pytest.approx((values[0] - values[1]) / 2e-5, abs=1e-8)


def test_blocks_change_nothing(rng, monkeypatch):
    view = view_of(rng)
    start = start_of(view, matern52)[0]
    rows = rows_of(view, start, np.arange(40), 10)
    whole, gradient = by_neighbours.value_and_gradient(start, rows)
    monkeypatch.setattr(by_neighbours, "_BLOCK_ROWS", 20)
    value, other = by_neighbours.value_and_gradient(start, rows)
    assert value == pytest.approx(whole, abs=1e-12)
    np.testing.assert_allclose(flat(other), flat(gradient), atol=1e-12)


def test_equal_rows_are_no_neighbours(rng):
    """Otherwise copies would be predicted best by the shortest lengthscale."""
    X = np.repeat(rng.normal(size=(20, 2)), 2, axis=0)
    view = View(svgp.Table(X, rng.normal(size=(1, 40)), np.ones(40)))
    start = start_of(view, matern52)[0]
    judges = neighbours.Judges(np.arange(40), groups(view.table.X), False)
    near = neighbours.nearest(start, view.table, judges, 5)
    assert near.min() >= 0
    assert not np.any(near // 2 == np.arange(40)[:, None] // 2)


def test_rows_without_weight_are_no_neighbours(rng):
    """As if they were not there, however near they are."""
    view = view_of(rng)
    start, judges = start_of(view, matern52)[0], np.arange(5)
    X, y, weight = view.table[:3]
    near = X[judges] + 1e-3 * rng.normal(size=(5, X.shape[1])) * view.varies
    more = np.concatenate([X, near]), np.concatenate([y, 9.0 + y[:, judges]], axis=1), np.append(weight, np.zeros(5))
    found = [
        neighbours.verdict(start, table, neighbours.Judges(judges, groups(table.X), False), 10)
        for table in (view.table, svgp.Table(*more))
    ]
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_judges_know_a_deviation_that_varies(rng):
    """Errors that are alike near one another have nearly the density under their own deviations; others lose little."""
    X = rng.uniform(-1.0, 1.0, size=(1500, 2))
    for deviation in (np.exp(2.0 * X[:, 0]), np.ones(1500)):
        errors = deviation * rng.normal(size=1500)
        found = neighbours.of_errors(errors, neighbours.nearest_others(X), np.ones(1500)).mean()
        best = stats.norm.logpdf(errors, 0.0, deviation).mean()
        assert best - 0.1 < found < best + 0.02
    for errors in (np.zeros(3), np.ones(1)):
        near = neighbours.nearest_others(np.ones((len(errors), 2)))
        assert np.all(np.isfinite(neighbours.of_errors(errors, near, np.ones(len(errors)))))


@pytest.mark.slow
def test_a_row_with_fewer_neighbours_than_others(rng):
    """What is missing says nothing: the density is that of the neighbours that are there."""
    X = rng.normal(size=(12, 2))
    X[4:] = X[4]
    view = View(svgp.Table(X, rng.normal(size=(1, 12)), np.ones(12)))
    start = start_of(view, matern52)[0]
    found = [by_neighbours.value_and_gradient(start, rows_of(view, start, np.array([5]), n))[0] for n in (4, 9)]
    assert found[1] == pytest.approx(found[0], abs=1e-10)


@pytest.mark.slow
def test_a_start_without_an_inverse_on_all_rows_gives_way(rng, monkeypatch):
    view = view_of(rng, 150)
    start, bounds, prior = start_of(view, matern52)
    judges = neighbours.Judges(np.arange(150), groups(view.table.X), False)
    honest, asked = by_neighbours.value_and_gradient, []

    def without_the_first(hyperparameters, rows):
        if len(rows.x) == 150:
            asked.append(flat(hyperparameters))
        fails = len(rows.x) == 150 and np.array_equal(asked[-1], asked[0])
        return (-np.inf, hyperparameters) if fails else honest(hyperparameters, rows)

    monkeypatch.setattr(by_neighbours, "value_and_gradient", without_the_first)
    found = by_neighbours.maximise(start, bounds, view.table, judges, 10, prior)
    assert np.isfinite(found.evidence)
    assert not np.array_equal(asked[0], asked[1])


@pytest.mark.slow
def test_it_sees_a_table_as_dense_as_it_is(rng):
    """Some hundred rows take for noise what the neighbours in the whole table predict."""
    X = rng.uniform(-1.0, 1.0, size=(4000, 2))
    y = X[:, 0] + np.sin(15.0 * X[:, 0]) * np.cos(15.0 * X[:, 1]) + 0.05 * rng.normal(size=4000)
    view = View(svgp.Table(X, y[None] / y.std(), np.ones(4000)))
    start, bounds, prior = start_of(view, matern52, 1.0)
    of_few = evidence.maximise(start, bounds, view.table.rows(np.arange(60)), prior).hyperparameters
    judges = neighbours.Judges(np.arange(300), groups(view.table.X), False)
    dense = by_neighbours.maximise(of_few, bounds, view.table, judges, 30, prior).hyperparameters
    assert np.exp(of_few.noise) > 0.2
    assert np.exp(dense.noise) < 0.05
    others = judges._replace(index=np.arange(300, 600))
    gain = (
        neighbours.verdict(dense, view.table, others, 400).densities.mean()
        - neighbours.verdict(of_few, view.table, others, 400).densities.mean()
    )
    assert gain > 0.5


@pytest.mark.slow
def test_the_default_kernel_of_a_dense_table(rng):
    """A wiggly function whose waves some hundred rows do not show: it is predicted all the same."""
    X = rng.uniform(-1.0, 1.0, size=(4000, 2))
    f = np.sin(20.0 * X[:, 0]) * np.cos(20.0 * X[:, 1])
    y = f + 0.05 * rng.normal(size=4000)
    model = NGDSVGPRegressor(random_state=0).fit(X[:3000], y[:3000])
    mean, std = model.predict(X[3000:], return_std=True)
    assert np.sqrt(np.mean((mean - f[3000:]) ** 2)) < 0.1
    assert 0.8 < np.sqrt(np.mean(((y[3000:] - mean) / std) ** 2)) < 1.25
    labels = NGDSVGPClassifier(random_state=0).fit(X[:3000], f[:3000] > 0.0)
    # A Matern 5/2 kernel of the right lengthscale has .907.
    assert labels.score(X[3000:], f[3000:] > 0.0) > 0.9


def dense_table(rng, n_rows):
    """Waves that some tens of rows take for noise."""
    X = rng.uniform(-1.0, 1.0, size=(n_rows, 2))
    y = np.sin(12.0 * X[:, 0]) * np.cos(12.0 * X[:, 1])
    return X, y


@pytest.mark.parametrize("known", [False, True])
def test_a_given_kernel_is_trained_in_a_dense_table(rng, monkeypatch, known):
    """The evidence of few rows takes the waves for noise; bounds and what is fixed hold."""
    monkeypatch.setattr(evidence, "ROWS", 60)
    monkeypatch.setattr(dense, "MOST_BY_EVIDENCE", 300)
    X, truth = dense_table(rng, 1500)
    y = truth + 0.05 * rng.normal(size=1500)
    kernel = ConstantKernel(0.25, "fixed") * Matern(1.0, (0.1, 10.0), nu=2.5)
    alpha = np.full(1200, 0.05**2 / 2.0) if known else None
    given = {"kernel": kernel, "normalize_y": False, "n_neighbors": 0}
    model = NGDSVGPRegressor(random_state=0, **given).fit(X[:1200], y[:1200], alpha=alpha)
    assert model.kernel_.k1.constant_value == 0.25
    assert 0.1 <= model.kernel_.k2.length_scale < 0.5
    monkeypatch.setattr(dense, "MOST_BY_EVIDENCE", 3000)
    sparse = NGDSVGPRegressor(random_state=0, **given).fit(X[:1200], y[:1200], alpha=alpha)
    errors = [np.std(each.predict(X[1200:]) - truth[1200:]) for each in (model, sparse)]
    assert errors[0] < 0.8 * errors[1]


def test_kernels_of_several_targets_are_trained_by_their_own(rng, monkeypatch):
    monkeypatch.setattr(evidence, "ROWS", 60)
    monkeypatch.setattr(dense, "MOST_BY_EVIDENCE", 300)
    X, wavy = dense_table(rng, 1000)
    y = np.column_stack([X[:, 0], wavy]) + 0.05 * rng.normal(size=(1000, 2))
    given = {"normalize_y": False, "n_neighbors": 0, "random_state": 0}
    model = NGDSVGPRegressor([1.0 * Matern(1.0, nu=2.5) for _ in range(2)], **given).fit(X, y)
    smooth, short = (each.k2.length_scale for each in model.kernel_)
    assert short < 1.0 < 2.0 < smooth


@pytest.fixture
def trained_to_an_eighth(monkeypatch):
    """Neighbours train given kernels to lengthscales of 1/8; a list of what they were given."""
    monkeypatch.setattr(dense, "MOST_BY_EVIDENCE", 100)
    monkeypatch.setattr(evidence, "ROWS", 60)
    given = []

    def trained(start, bounds, table, rows, n_evidence, of_labels, others):
        given.append((len(table.X), len(rows.order), n_evidence, of_labels, others is not None))
        return start._replace(kernel=jax.tree.map(lambda leaf: np.full_like(leaf, np.log(0.125)), start.kernel))

    monkeypatch.setattr(dense, "trained", trained)
    return given


def test_a_given_kernel_of_labels_is_trained_in_a_dense_table(rng, trained_to_an_eighth):
    """It has the lengthscale that neighbours find; its scale is that which predicts labels best."""
    X, y = dense_table(rng, 150)
    model = NGDSVGPClassifier(1.0 * Matern(1.0, nu=2.5), n_restarts_optimizer=0, random_state=0).fit(X, y > 0.0)
    assert trained_to_an_eighth == [(150, 150, 60, True, False)]
    assert model.kernel_.k2.length_scale == pytest.approx(0.125)


@pytest.mark.parametrize(
    ("arguments", "of_fit", "copies"),
    [
        ({}, {}, False),
        ({}, {}, True),
        ({}, {"alpha": np.full(150, 0.01)}, False),
        ({}, {"alpha": np.full(150, 0.01)}, True),
        ({"n_inducing": 100}, {}, False),
        ({"hyperparameter_prior": "weak"}, {}, False),
    ],
)
def test_where_neighbours_train_a_given_kernel(rng, trained_to_an_eighth, arguments, of_fit, copies):
    """Not with a prior, whose most probable values are those of the evidence, and not among copies of few rows."""
    X, y = dense_table(rng, 150)
    X[:20] = X[20:40] if copies else X[:20]
    NGDSVGPRegressor(1.0 * Matern(1.0, nu=2.5), random_state=0, **arguments).fit(X, y, **of_fit)
    may = not arguments and not (copies and of_fit)
    assert trained_to_an_eighth == ([(150, 150, 60, False, True)] if may else [])


def test_the_part_of_a_table_has_whole_groups_and_no_large_one(rng):
    X = np.repeat(np.arange(90.0), [300, *[2] * 89])[:, None]
    table = svgp.Table(X, rng.normal(size=(1, len(X))), np.ones(len(X)))
    rows = Shuffled(*in_random_order(table, np.random.RandomState(0)))
    positions, part = rows.part(1000)
    assert len(positions) == 478
    assert np.array_equal(part.order, rows.order)
    positions, part = rows.part(100)
    assert len(positions) == 100
    assert part.n_groups == 50
    assert np.all(np.unique(X[positions], return_counts=True)[1] == 2)
    # The same order, in which each group ends where it says.
    kept = rows.order[np.isin(rows.order, positions)]
    assert np.array_equal(positions[part.order], kept)
    assert np.all(X[positions[part.order]][part.ends - 1] == X[positions[part.order]][part.ends - 2])


@pytest.mark.parametrize(
    ("gain", "error", "is_taken"), [(0.05, 1.0, True), (0.01, 1.0, False), (0.05, 1.05, True), (0.05, 1.4, False)]
)
def test_a_given_kernel_is_trained_if_judges_clearly_prefer_it(rng, monkeypatch, gain, error, is_taken):
    """The gain of 400 judges has a standard error of a hundredth; errors may not be much larger."""
    view = view_of(rng, 300)
    start, bounds, _ = start_of(view, matern52)
    found = start._replace(noise=start.noise + 1.0)
    noise = rng.normal(size=400)
    noise *= 0.2 / noise.std()
    verdicts = iter([(np.zeros(400), 1.0), (noise - noise.mean() + gain, error)])

    def verdict(*_):
        densities, error = next(verdicts)
        return Densities(densities, *np.ones((2, 400))), np.full(2, error)

    monkeypatch.setattr(by_neighbours, "maximise", lambda *_: evidence.Best(found, 0.0))
    monkeypatch.setattr(dense, "verdict_by_neighbours", verdict)
    rows = Shuffled(*in_random_order(view.table, np.random.RandomState(0)))
    assert dense.trained(start, bounds, view.table, rows, 80, False) is (found if is_taken else start)


def test_a_given_kernel_stays_where_judges_prefer_it(rng, monkeypatch):
    for name, value in {"_TRAINING_ROWS": 60, "_MORE_ROWS": 80, "_FEWEST_ROWS": 60}.items():
        monkeypatch.setattr(dense, name, value)
    X = rng.normal(size=(300, 2))
    table = svgp.Table(X, np.sin(2.0 * X[:, :1].T) + 0.1 * rng.normal(size=(1, 300)), np.ones(300))
    view, rows = View(table), Shuffled(*in_random_order(table, np.random.RandomState(0)))
    start, bounds, _ = start_of(view, matern52, 0.5, 0.01)
    spoilt = evidence.Best(start._replace(noise=np.log(100.0)), 0.0)
    training, judging, verdict = [], [], dense.verdict_by_neighbours

    def judged(table, hyperparameters, judges, n_neighbours):
        judging.append(judges.index)
        return verdict(table, hyperparameters, judges, n_neighbours)

    monkeypatch.setattr(dense, "verdict_by_neighbours", judged)
    with device.computation("cpu"):
        monkeypatch.setattr(by_neighbours, "maximise", lambda *given: training.append(given[3].index) or spoilt)
        assert dense.trained(start, bounds, view.table, rows, 80, False) is start
        better = evidence.Best(start, 0.0)
        monkeypatch.setattr(by_neighbours, "maximise", lambda *_: better)
        found = dense.trained(spoilt.hyperparameters, bounds, view.table, rows, 80, False)
    assert found is start
    # No row judges what it has trained, or that of which it was evidence.
    assert len(judging) == 4
    assert not np.isin(np.concatenate(judging), [*rows.order[:80], *np.concatenate(training)]).any()


def test_nothing_is_trained_where_nothing_is_free(rng):
    """The noise of the regression of labels is free, but not used."""
    start, (low, high), _ = start_of(view_of(rng), matern52)
    assert dense.trained(start, (start, start), None, None, 80, False) is start
    bounds = (start._replace(noise=low.noise), start._replace(noise=high.noise))
    assert dense.trained(start, bounds, None, None, 80, True) is start


def test_starts_at_shorter_lengthscales_of_any_kernel():
    """Those of linear combinations are divided like those of columns; periods and fixed values stay."""
    kernel = LinearTransform(Matern(1.0, nu=2.5), np.eye(2)) + ExpSineSquared(1.0, 3.0)
    log = jax.tree.map(np.log, from_sklearn(kernel, 2).value)
    starts = list(by_neighbours.starts_near(evidence.Hyperparameters(log, np.log(0.1)), 2))
    moved = np.array([flat(each.kernel) - flat(log) for each in starts])
    moved_at = np.flatnonzero(np.any(moved != 0.0, axis=0))
    assert len(moved_at) == 1
    np.testing.assert_allclose(np.unique(moved[:, moved_at]), np.log([0.03, 0.1, 0.3, 1.0]))


@pytest.mark.slow
def test_the_scale_of_latent_functions_is_found_with_their_lengthscales(rng, monkeypatch):
    """Neighbours choose among kernels of labels in a dense table; the scale is that which predicts labels best."""
    monkeypatch.setattr(dense, "MOST_BY_EVIDENCE", 100)
    X = rng.normal(size=(200, 3))
    table = svgp.Table(X, ((np.abs(X[:, 0] + 0.3 * X[:, 1]) * 1.5).astype(int) % 3)[None].astype(float), np.ones(200))
    found = refinement.Found(ConstantKernel(1.0) * RBF(1.0), 0.1, 0.0, by_neighbours=Densities(*np.ones((3, 10))))
    monkeypatch.setattr(search, "best_kernels", lambda *_, **__: [found])
    plan = svgp.Plan(None, Softmax().prepare(table.y, 3), 3, settings=svgp.Settings(svgp.Algorithm(solver="evidence")))
    chosen = svgp.choose_kernel(plan, [table], 0)[1].kernels[0]
    assert chosen.k2.length_scale == 1.0
    # A maximum of the density on a grid of factors of three, then in between: not the start, 3.
    assert chosen.k1.constant_value > 3.3


def test_a_kernel_of_labels_keeps_hyperparameters_that_training_would_spoil(rng, monkeypatch):
    """Few rows may train a kernel of labels to predict others worse than it did: the judges then keep it as it was."""
    fewer = {"_TRAINING_ROWS": 60, "_MORE_LABELS": 80, "_FEWEST_JUDGES": 100, "_FEWEST_ROWS": 60}
    for name, value in fewer.items():
        monkeypatch.setattr(dense, name, value)
    X = rng.normal(size=(300, 2))
    table = svgp.Table(X, np.where(np.sin(2.0 * X[:, 0]) > 0.0, 1.0, -1.0)[None], np.ones(300))
    view, rows = View(table), Shuffled(*in_random_order(table, np.random.RandomState(0)))
    start = start_of(view, matern52, 0.5, 0.1)[0]
    candidates = [(0, view, refinement.Candidate(matern52, np.inf, (evidence.Best(start, 0.0),), 0.0))]
    spoilt = start._replace(noise=np.log(100.0))
    for way in ("_trained", "_of_evidence"):
        monkeypatch.setattr(dense, way, lambda *_: spoilt)
    with device.computation("cpu"):
        found = dense.best_kernels([view], candidates, rows, 80, True)[0]
        judges = neighbours.Judges.of(X, rows.outside(80))
        worse = neighbours.verdict(spoilt, view.table, judges, 100).densities.mean()
    assert found.noise == pytest.approx(0.1)
    assert found.density > worse


@pytest.mark.parametrize("best", [(0.25, 0.125), (0.125, 0.25)])
def test_labels_have_the_best_kernel_of_each_form_under_one_scaling(rng, monkeypatch, best):
    """Trained or not; the scaling is that of the kernel that predicts best before training."""
    view = view_of(rng, 300, 1)
    rows = Shuffled(*in_random_order(view.table, np.random.RandomState(0)))
    # The noise tells scaling and kernel: here its logarithm is the density that judges find.
    starts = {(0, matern52): -1.0, (0, matern12): -3.0, (1, matern52): -2.0, (1, matern12): -0.5}

    def judged(table, hyperparameters, judges, n_neighbours):
        density = np.full(4, hyperparameters.noise)
        return Densities(density, *np.ones((2, 4))), np.zeros(1)

    def candidate(make, noise):
        start = start_of(view, make)[0]._replace(noise=np.array(noise))
        return refinement.Candidate(make, np.inf, (evidence.Best(start, 0.0),), 0.0)

    def changed_by(gains):
        def way(_, candidate, rows):
            start = candidate.best[0].hyperparameters
            return start._replace(noise=start.noise + gains[candidate.make])

        return way

    # One way on helps one kernel, the other way nearly as much; both spoil the other kernel.
    monkeypatch.setattr(dense, "verdict_by_neighbours", judged)
    monkeypatch.setattr(dense, "_trained", changed_by({matern52: best[0], matern12: -5.0}))
    monkeypatch.setattr(dense, "_of_evidence", changed_by({matern52: best[1], matern12: -4.0}))
    monkeypatch.setattr(dense, "_FEWEST_JUDGES", 100)
    candidates = [(index, view, candidate(make, noise)) for (index, make), noise in starts.items()]
    with device.computation("cpu"):
        found = dense.best_kernels([view, view], candidates, rows, 80, True)
    assert [each.index for each in found] == [1, 1]
    assert [np.log(each.noise) for each in found] == pytest.approx([-0.5, -1.75])


@pytest.mark.parametrize("spoils", [False, True])
def test_each_kernel_of_measurements_goes_on_in_both_ways(rng, monkeypatch, spoils):
    """Under the scaling that is best, trained or not: from the trained values, and from those before."""
    view = view_of(rng, 300, 1)
    rows = Shuffled(*in_random_order(view.table, np.random.RandomState(0)))
    # By the position of the scaling.
    went, noises, after = [], (0.5, 2.0), (3.0, 5.0) if spoils else (1.0, 0.05)
    position = {noise: index for index, noise in enumerate(noises)}

    def candidate(index, make):
        start = start_of(view, make)[0]._replace(noise=np.log(noises[index]))
        return index, view, refinement.Candidate(make, np.inf, (evidence.Best(start, 0.0),), 0.0)

    def noise_of(candidate):
        return round(float(np.exp(candidate.best[0].hyperparameters.noise)), 3)

    def trained(view, candidate, judges):
        if len(judges.index) == dense._TRAINING_ROWS:
            noise = after[position[noise_of(candidate)]]
            return candidate.best[0].hyperparameters._replace(noise=np.log(noise))
        went.append(("neighbours", candidate.make, after.index(noise_of(candidate))))
        return candidate.best[0].hyperparameters

    def of_evidence(view, candidate, rows):
        went.append(("evidence", candidate.make, position[noise_of(candidate)]))
        return candidate.best[0].hyperparameters

    monkeypatch.setattr(dense, "_trained", trained)
    monkeypatch.setattr(dense, "_of_evidence", of_evidence)
    for name, value in {"_TRAINING_ROWS": 60, "_MORE_ROWS": 80}.items():
        monkeypatch.setattr(dense, name, value)
    candidates = [candidate(*each) for each in ((0, matern52), (1, matern52), (0, matern12), (1, matern12))]
    with device.computation("cpu"):
        dense.best_kernels([view, view], candidates, rows, 80, False)
    ways = itertools.product(("neighbours", "evidence"), (matern52, matern12), [0 if spoils else 1])
    assert sorted(went, key=str) == sorted(ways, key=str)


def test_few_rows_train_the_best_of_each_form(rng, monkeypatch):
    """Those that predict best at the evidence; another form is not excluded by many fits of the best one."""
    view = view_of(rng, 300, 1)
    rows = Shuffled(*in_random_order(view.table, np.random.RandomState(0)))
    noises, trained_at = {matern52: 0.05 * 3.0 ** np.arange(5), matern12: np.array([50.0])}, []

    def trained(view, candidate, judges):
        if len(judges.index) == dense._TRAINING_ROWS:
            trained_at.append((candidate.make, float(np.exp(candidate.best[0].hyperparameters.noise))))
        return candidate.best[0].hyperparameters

    def candidate(make, noise):
        start = start_of(view, make)[0]._replace(noise=np.log(noise))
        return 0, view, refinement.Candidate(make, np.inf, (evidence.Best(start, 0.0),), 0.0)

    monkeypatch.setattr(dense, "_trained", trained)
    monkeypatch.setattr(dense, "_of_evidence", lambda view, candidate, rows: candidate.best[0].hyperparameters)
    for name, value in {"_TRAINING_ROWS": 60, "_MORE_ROWS": 80}.items():
        monkeypatch.setattr(dense, name, value)
    candidates = [candidate(make, each) for make in noises for each in noises[make]]
    with device.computation("cpu"):
        dense.best_kernels([view], candidates, rows, 80, False)
    for make in noises:
        found = sorted(noise for each, noise in trained_at if each is make)
        np.testing.assert_allclose(found, noises[make][: dense._TRAINED])


def test_kernels_with_seasons_go_on_as_one():
    first, second = (candidates.WithSeason((period,), 0, 1) for period in (1.0, 2.0))
    assert candidates.form(first) is candidates.form(second._replace(grows=True))
    assert len({candidates.form(each) for each in (matern52, matern12, first, second)}) == 3


def the_best(monkeypatch, densities, errors):
    """Position of the finalist that `dense._best_of_all` takes.

    ``densities`` (n, B) are those of all judges; ``errors`` (n, B) are squared and averaged over the judges asked.
    """

    def tried(index, view, candidate, hyperparameters, judges, n_neighbours):
        of_judges = Densities(densities[index][judges.index], *np.ones((2, len(judges.index))))
        error = np.sqrt(np.mean(np.square(errors[index][..., judges.index]), axis=-1))
        return dense.Tried(index, view, candidate, of_judges, np.atleast_1d(error))

    monkeypatch.setattr(dense, "_tried", tried)
    best = (evidence.Best(None, 0.0),)
    of_kernel = refinement.Candidate(matern52, np.inf, best, 0.0)
    finalists = [dense.Tried(i, None, of_kernel) for i in range(len(densities))]
    every = np.arange(len(densities[0]))
    return dense._best_of_all(finalists, neighbours.Judges(every, every, False))[0].index


def test_finalists_are_compared_by_all_judges(rng, monkeypatch):
    """Half of them find the other one worse, the rest far better."""
    best = rng.normal(size=600)
    other = best + 0.2 * rng.normal(size=600)
    other[::2] -= 0.1
    other[1::2] += 1.0
    assert the_best(monkeypatch, [best, other], np.ones((2, 600))) == 1


@pytest.mark.parametrize(("error", "is_taken"), [(0.12, True), (0.13, False)])
def test_a_kernel_with_gross_errors_is_not_taken_for_its_density(monkeypatch, error, is_taken):
    """Its density is much larger, but its error larger by more than a quarter."""
    found = the_best(monkeypatch, [np.zeros(50), np.ones(50)], [np.full(50, 0.1), np.full(50, error)])
    assert found == (1 if is_taken else 0)


def test_gross_errors_of_any_judge_count(rng, monkeypatch):
    """Half of the judges find two kernels level; the others show the gross errors of the one with larger densities."""
    level = rng.normal(size=600)
    errors = np.full((2, 600), 0.1)
    errors[1, 1::2] = 10.0
    assert the_best(monkeypatch, [level, level + 0.5], errors) == 0


def test_the_noise_of_one_target_hides_no_gross_errors_of_another(monkeypatch):
    noise, density = np.full(50, 1.0), np.ones(50)
    errors = [np.stack([noise, np.full(50, 0.1)]), np.stack([noise, np.full(50, 0.2)])]
    assert the_best(monkeypatch, [np.zeros(50), density], errors) == 0


def test_densities_that_are_no_numbers_are_not_larger():
    finite, none = Densities(*np.ones((3, 4))), Densities(np.full(4, -np.inf), *np.ones((2, 4)))
    assert finite.are_larger_than(none)
    assert not none.are_larger_than(finite)
    assert not none.are_larger_than(none)


def test_the_error_of_judges_is_that_of_the_exact_process(rng):
    """With all other rows as neighbours; of each target."""
    X = rng.normal(size=(40, 2))
    table = svgp.Table(X, np.stack([np.sin(X[:, 0]), X[:, 1] ** 2]) + 0.1 * rng.normal(size=(2, 40)), np.ones(40))
    view = View(table)
    start = start_of(view, matern52, 0.5, 0.1)[0]
    judges = neighbours.Judges.of(X, np.array([3, 17]), False)
    with device.computation("cpu"):
        found = neighbours.verdict(start, view.table, judges, 39)
        kernel = view.to_sklearn(matern52, start.kernel)
    errors = []
    for i in judges.index:
        rest = np.arange(40) != i
        exact = np.linalg.solve(kernel(X[rest]) + 0.1 * np.eye(39), table.y[:, rest].T)
        errors.append(table.y[:, i] - (kernel(X[[i]], X[rest]) @ exact)[0])
    np.testing.assert_allclose(found.error, np.sqrt(np.mean(np.square(errors), axis=0)), rtol=1e-9)


def test_directions_of_many_measurements_are_found_beside_repeated_and_constant_columns(rng, monkeypatch):
    """Two targets that change along one combination of columns; weights, copies of rows, a constant column."""
    monkeypatch.setattr(evidence, "ROWS", 200)
    monkeypatch.setattr(turned, "COLUMNS", (3, 60))
    for name, fewer in {"MOST_BY_EVIDENCE": 300, "_MORE_ROWS": 200}.items():
        monkeypatch.setattr(dense, name, fewer)
    X = np.column_stack([rng.normal(size=(700, 3)), np.full(700, 2.0)])
    X[550:600] = X[:50]
    along = X[:, :3] @ [1.0, 1.0, -1.0]
    y = np.column_stack([np.sin(2.0 * along), np.cos(2.0 * along)]) + 0.02 * rng.normal(size=(700, 2))
    model = NGDSVGPRegressor(random_state=0).fit(X[:600], y[:600], sample_weight=rng.uniform(0.5, 2.0, 600))
    assert "linear combinations" in model.plan_
    assert np.sqrt(np.mean((model.predict(X[600:]) - y[600:]) ** 2)) < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("of_labels", [False, True])
def test_weights_tell_what_is_more_and_not_how_much_there_is(rng, monkeypatch, of_labels):
    """Weights that sum to one are as good as weights of one."""
    for name, fewer in {"_TRAINING_ROWS": 60, "_MORE_ROWS": 80, "_MORE_LABELS": 80, "_FEWEST_JUDGES": 100}.items():
        monkeypatch.setattr(dense, name, fewer)
    X = rng.normal(size=(300, 2))
    y = np.sin(4.0 * X[:, 0]) + 0.1 * rng.normal(size=300)
    y = np.where(y > 0.0, 1.0, -1.0) if of_labels else y / y.std()
    found = []
    with device.computation("cpu"):
        for weight in (np.ones(300), np.full(300, 1.0 / 300)):
            table = svgp.Table(X, y[None], weight)
            view, rows = View(table), Shuffled(*in_random_order(table, np.random.RandomState(0)))
            start = start_of(view, matern52, 0.5)[0]
            candidates = [(0, view, refinement.Candidate(matern52, np.inf, (evidence.Best(start, 0.0),), 0.0))]
            found.append(dense.best_kernels([view], candidates, rows, 80, of_labels)[0])
    np.testing.assert_allclose(found[0].kernel.theta, found[1].kernel.theta, atol=1e-6)
    assert found[0].density == pytest.approx(found[1].density, abs=1e-6)


def test_rows_are_nearest_also_under_very_long_lengthscales(rng):
    """The shares that they explain differ by less than single precision."""
    X = rng.normal(size=(600, 4))
    rows = svgp.Table(X, np.sin(X[:, :1].T), np.ones(600))
    kernel = jax.tree.map(np.log, from_sklearn(1.0 * Matern(np.full(4, 3000.0), nu=2.5), 4).value)
    judges = neighbours.Judges.of(X, np.arange(0, 600, 20), False)
    with device.computation("cpu"):
        near = neighbours.nearest(evidence.Hyperparameters(kernel, np.log(0.01)), rows, judges, 20)
    for row, found in zip(judges.index, near, strict=True):
        squares = ((X - X[row]) ** 2).sum(1)
        assert len(set(found) & set(np.argsort(squares)[1:21])) >= 19
