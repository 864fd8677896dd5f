"""Hyperparameters of rare classes: rows of them have a larger part in the evidence where that predicts better."""

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.metrics import log_loss

from skgp_natgrad import NGDSVGPClassifier, svgp
from skgp_natgrad.choose import dense, refinement, search, targets, view
from skgp_natgrad.choose.splits import Shuffled, in_random_order
from skgp_natgrad.likelihoods import Softmax
from skgp_natgrad.solve import held_out_labels
from skgp_natgrad.start import choice, kernel_of_labels
from skgp_natgrad.training.batches import Table

pytestmark = pytest.mark.usefixtures("x64")
COUNTS = 4000, 900, 100


def table_of(rng, counts=COUNTS, copies=1):
    labels = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    X = rng.normal(size=(len(labels), 2))
    X, labels = np.repeat(X, copies, axis=0), np.repeat(labels, copies)
    y = (labels == np.arange(len(counts))[:, None]).astype(float)
    return Table(X, y, np.ones(len(X))), labels


def drawn(table, rng, n_groups):
    shuffled = Shuffled(*in_random_order(table, np.random.RandomState(rng.integers(1 << 30))))
    return shuffled.evenly_merged(table, n_groups)


@pytest.mark.parametrize("n_groups", [300, 3000])
def test_rows_are_drawn_in_proportion_to_the_roots_of_shares(rng, n_groups):
    """Against NumPy's own draws without replacement under these probabilities."""
    table, labels = table_of(rng)
    weight = 1.0 / np.sqrt(np.bincount(labels))[labels]
    expected = [
        np.bincount(labels[rng.choice(len(labels), n_groups, False, weight / weight.sum())], minlength=3)
        for _ in range(30)
    ]
    found = [drawn(table, rng, n_groups).y.sum(1) for _ in range(30)]
    assert np.all(np.sum(found, axis=1) == n_groups)
    error = np.std(expected, axis=0) + 1.0
    np.testing.assert_array_less(np.abs(np.mean(found, axis=0) - np.mean(expected, axis=0)), error)
    if n_groups == 300:
        # A random part has a fiftieth of the rarest.
        assert np.mean(found, axis=0)[2] > 2.0 * n_groups / 50.0


def test_copies_are_drawn_together(rng):
    table, _ = table_of(rng, (200, 20), copies=3)
    rows = drawn(table, rng, 50)
    assert rows.n_rows == 50
    np.testing.assert_array_equal(rows.weight, 3.0)


def test_all_rows_are_all_rows(rng):
    table, labels = table_of(rng, (60, 7))
    np.testing.assert_array_equal(drawn(table, rng, 67).y.sum(1), np.bincount(labels))


@pytest.mark.parametrize(("counts", "expected"), [((500, 500), 1.0), ((900, 100), 2.5)])
def test_the_gain_is_that_of_the_parts(rng, counts, expected):
    table, _ = table_of(rng, counts)
    found = Shuffled(*in_random_order(table, np.random.RandomState(0))).gain_of_rarest(table)
    assert found == pytest.approx(expected, rel=1e-12)


def with_a_rare_class(rng, n_rows):
    """Two of many columns decide, beyond thresholds that few rows exceed."""
    X = rng.normal(size=(n_rows, 20))
    return X, np.where(X[:, 0] > 2.0, 1, np.where((X[:, 1] < -1.5) & (X[:, 2] > 0.0), 2, 0))


@pytest.mark.slow
def test_kernels_are_offered_a_second_time(rng, monkeypatch):
    """In a table that is dense."""
    monkeypatch.setattr(dense, "MOST_BY_EVIDENCE", 1000)
    X, y = with_a_rare_class(rng, 2500)
    likelihood = Softmax().prepare(y[None].astype(float), 3)
    table = targets.regressed(Table(X, y[None].astype(float), np.ones(len(X))), 3, likelihood)
    options = {"noises": view.NOISE_BOUNDS_OF_LABELS, "of_labels": True, "by_neighbours": True}
    found = search.best_kernels([table], np.random.RandomState(0), 2, **options)
    assert [each.evenly for each in found] == [False, True]
    assert type(found[1].kernel) is type(found[0].kernel)
    # Of labels that are all about as frequent each has its part.
    balanced = table._replace(y=np.eye(3)[np.arange(2500) % 3].T)
    assert not any(each.evenly for each in search.best_kernels([balanced], np.random.RandomState(0), 2, **options))


@pytest.mark.parametrize(("gain", "is_taken"), [(0.05, True), (0.001, False), (-0.05, False)])
def test_it_is_taken_where_other_labels_say_so(rng, monkeypatch, gain, is_taken):
    monkeypatch.setattr(dense, "MOST_BY_EVIDENCE", 200)
    X, y = with_a_rare_class(rng, 300)
    table = Table(X, y[None].astype(float), np.ones(len(X)))
    usual, even = ConstantKernel(2.0) * RBF(1.0), ConstantKernel(3.0) * RBF(2.0)
    densities, noise = rng.normal(-0.5, 0.2, size=200), rng.normal(0.0, 0.1, size=200)
    of_labels = densities, densities + gain + noise - noise.mean()
    found = [refinement.Found(usual, 0.1, 0.0), refinement.Found(even, 0.1, 0.0, evenly=True)]
    each_of = [held_out_labels.Densities(labels, *np.ones((2, 200))) for labels in of_labels]
    found = [each._replace(by_neighbours=labels) for each, labels in zip(found, each_of, strict=True)]
    monkeypatch.setattr(search, "best_kernels", lambda *_, **__: found)
    monkeypatch.setattr(kernel_of_labels, "at_best_scale", lambda plan, *_: kernel_of_labels.Tried(plan, None))
    # So few labels beside those of two classes would be averaged over.
    monkeypatch.setattr(choice.few_labels, "suits", lambda *_: False)
    settings = svgp.Settings(algorithm=svgp.Algorithm(solver="evidence"))
    plan = svgp.Plan(None, Softmax().prepare(table.y, 3), 3, settings=settings)
    _, chosen = choice.choose_kernel(plan, [table], np.random.RandomState(0))
    assert (chosen.kernels[0].k2.length_scale == 2.0) == is_taken


@pytest.mark.slow
def test_a_rare_class_is_predicted_better_with_them(monkeypatch):
    """thyroid: 93 % of the labels are of one class."""
    path = (
        Path(os.environ.get("SKGP_DATA", Path(__file__).parents[2] / "shared" / "data")) / "classification/thyroid.npz"
    )
    if not path.exists():
        pytest.skip(f"{path} does not exist; SKGP_DATA gives the folder of the data sets")
    with np.load(path) as data:
        order = np.random.default_rng(0).permutation(len(data["y"]))
        X, y = data["X"][order].astype(float), data["y"][order]
    losses = []
    for drawn in (Shuffled.evenly_merged, Shuffled.merged):
        monkeypatch.setattr(Shuffled, "evenly_merged", drawn)
        model = NGDSVGPClassifier(random_state=0).fit(X[720:], y[720:])
        losses.append(log_loss(y[:720], model.predict_proba(X[:720])))
    assert losses[0] < losses[1] < 0.04
