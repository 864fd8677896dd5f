"""The kernel that was chosen for class labels, with hyperparameters that more rows tell."""

import jax
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from skgp_natgrad import svgp
from skgp_natgrad._backend import device
from skgp_natgrad.likelihoods import Softmax
from skgp_natgrad.solve.class_labels import Densities
from skgp_natgrad.start import choice, evidence, neighbours, refinement, search, started, targets
from skgp_natgrad.start.candidates import matern52
from skgp_natgrad.start.splits import Shuffled, in_random_order
from skgp_natgrad.start.view import NOISE_BOUNDS_OF_LABELS, View
from skgp_natgrad.training.batches import Table


@pytest.fixture(autouse=True)
def in_a_fit():
    """Rows are computed in threads, which take over the scope of a fit."""
    with device.computation("cpu"):
        yield


def table_of(rng, n_rows):
    X = rng.normal(size=(n_rows, 3))
    y = (np.abs(X[:, 0] + 0.3 * X[:, 1]) * 1.5).astype(int) % 3
    return Table(X, y[None].astype(float), np.ones(n_rows))


def regressed(table):
    return targets.regressed(table, 3, Softmax().prepare(table.y, 3))


def found_of(table, length_scale=1.0, evenly=False):
    view = View(table, noises=NOISE_BOUNDS_OF_LABELS)
    start, _, _ = view.start(matern52, length_scale * np.ones_like(view.longest), np.log(0.1), np.inf)
    candidate = refinement.Candidate(matern52, np.inf, (evidence.Best(start, -np.inf),), -1.0)
    kernel = view.to_sklearn(matern52, start.kernel)
    rows = Shuffled(*in_random_order(table, np.random.RandomState(0)))
    return refinement.Found(kernel, 0.1, -1.0, evenly, candidate=candidate, rows=rows)


def evidence_of(found, table):
    """By scikit-learn's process."""
    kernel = found.kernel + WhiteKernel(found.noise)
    process = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(table.X, table.y.T)
    return process.log_marginal_likelihood(process.kernel_.theta)


def few(monkeypatch, n_rows, n_judges):
    monkeypatch.setattr(refinement, "_ROWS_OF_LABELS", n_rows)
    monkeypatch.setattr(refinement, "_FEWEST_JUDGES", n_judges)


@pytest.mark.parametrize("evenly", [False, True])
def test_labels_are_predicted_better_and_more_likely(rng, monkeypatch, evenly):
    few(monkeypatch, 300, 100)
    table = regressed(table_of(rng, 700))
    found = found_of(table, 20.0, evenly)
    more = refinement.on_more_labels(found, table)
    assert more is not found
    assert (more.evenly, more.density) == (evenly, found.density)
    assert evidence_of(more, table) > evidence_of(found, table) + 50.0
    assert NOISE_BOUNDS_OF_LABELS[0] <= 1.001 * more.noise
    # The kernel is what the search has: it may be refined once more.
    again = refinement.on_more_labels(more, table)
    assert evidence_of(again, table) > evidence_of(more, table) - 10.0


@pytest.mark.parametrize("evenly", [False, True])
@pytest.mark.parametrize("gain", [0.01, -0.01])
def test_it_is_taken_where_neighbours_predict_labels_better(rng, monkeypatch, gain, evenly):
    few(monkeypatch, 100, 50)
    table, calls, fitted = regressed(table_of(rng, 150)), [], []
    maximise = evidence.maximise

    def densities(hyperparameters, table, judges):
        calls.append(judges.index)
        return np.full(len(judges.index), -1.0 + gain * (len(calls) - 1))

    def maximised(start, bounds, rows, *arguments):
        fitted.append(rows.X[:, :3])
        return maximise(start, bounds, rows, *arguments)

    monkeypatch.setattr(neighbours, "label_densities", densities)
    monkeypatch.setattr(evidence, "maximise", maximised)
    found = found_of(table, evenly=evenly)
    more = refinement.on_more_labels(found, table)
    assert (more is found) == (gain < 0.0)
    # The same rows judge both, and all others are those of the evidence.
    np.testing.assert_array_equal(*calls)
    assert len(calls[0]) == 50
    # Columns have an order of their own there.
    together = np.sort(np.concatenate([table.X[calls[0]], *fitted]), axis=1)
    np.testing.assert_array_equal(np.unique(together, axis=0), np.unique(np.sort(table.X, axis=1), axis=0))


def test_of_hardly_more_rows_it_stays(rng, monkeypatch):
    few(monkeypatch, 100, 51)
    table = regressed(table_of(rng, 150))
    found = found_of(table)
    assert refinement.on_more_labels(found, table) is found


@pytest.mark.slow
@pytest.mark.parametrize("by_neighbours", [True, False])
def test_its_scale_is_found_anew(rng, monkeypatch, by_neighbours):
    """The scale of the latent functions belongs to the lengthscales."""
    table = table_of(rng, 200)
    before, after = (refinement.Found(ConstantKernel(1.0) * RBF(scale), 0.1, 0.0) for scale in (5.0, 1.0))
    if by_neighbours:
        before = before._replace(by_neighbours=Densities(*np.ones((3, 10))))
    monkeypatch.setattr(search, "best_kernels", lambda *_, **__: (0, [before]))
    monkeypatch.setattr(refinement, "on_more_labels", lambda found, **_: after if found is before else None)
    plan = svgp.Plan(None, Softmax().prepare(table.y, 3), 3, settings=svgp.Settings(svgp.Algorithm(solver="evidence")))
    _, chosen = choice.choose_kernel(plan, [table], np.random.RandomState(0))
    kernel = chosen.kernels[0]
    assert kernel.k2.length_scale == 1.0
    # A maximum of the density on a grid of factors of three, then in between: not the start, 3.
    seed = np.random.RandomState(0).randint(np.iinfo(np.int32).max)
    tried = choice._tried(started.started(plan, after, table), table, seed)
    assert kernel.k1.constant_value == tried.plan.kernels[0].k1.constant_value != 3.0


def test_columns_that_fill_up_are_left_out(rng):
    table = regressed(table_of(rng, 50))
    found = found_of(table, 2.0)
    assert np.shape(found.kernel.k2.length_scale) == (3,)
    assert jax.tree.leaves(found.candidate.best[0].hyperparameters.kernel.k2)[0].shape == (8,)
