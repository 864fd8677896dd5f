"""Hyperparameters of rare classes: rows of them have a larger part among those that tell hyperparameters."""

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import log_loss

from skgp_natgrad import NGDSVGPClassifier
from skgp_natgrad.choose import dense
from skgp_natgrad.choose.splits import Shuffled, in_random_order
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


def test_rows_at_the_X_of_some_come_last(rng):
    table, labels = table_of(rng, (300, 30), copies=2)
    shuffled = Shuffled(*in_random_order(table, np.random.RandomState(0)))
    # Of each pair of copies one; those that are frequent and rare.
    without = np.concatenate([np.flatnonzero(labels == 0)[:200:2], np.flatnonzero(labels == 1)[:20:2]])
    some = shuffled.evenly(table, 200, without)
    assert len(np.unique(some)) == 400
    assert not np.any(np.isin(table.X[some, 0], table.X[without, 0]))
    # All that are left of the rare ones, whose part would be a fourth.
    assert np.count_nonzero(labels[some] == 1) == 40
    assert len(shuffled.evenly(table, 250, without)) == 500


def test_rare_labels_have_more_of_the_evidence_by_which_kernels_go_on(rng):
    """None of its rows is a judge."""
    table, labels = table_of(rng)
    contest = dense._Contest(table.X, Shuffled(*in_random_order(table, np.random.RandomState(0))), 1000, 2, True)
    place = {tuple(x): position for position, x in enumerate(table.X)}
    some = np.array([place[tuple(x)] for x in contest._even_rows(SimpleNamespace(table=table)).X])
    assert len(np.unique(some)) == 1000
    assert not np.intersect1d(some, contest.judges.index).size
    # A random part has a fiftieth of the rarest, some of which judge.
    assert np.count_nonzero(labels[some] == 2) > 40


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
    for drawn in (Shuffled.evenly, lambda self, table, n_groups, without: np.setdiff1d(self.first(n_groups), without)):
        monkeypatch.setattr(Shuffled, "evenly", drawn)
        model = NGDSVGPClassifier(random_state=0).fit(X[720:], y[720:])
        losses.append(log_loss(y[:720], model.predict_proba(X[:720])))
    assert losses[0] < losses[1] < 0.04
