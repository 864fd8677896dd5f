"""Few class labels with nothing set: hyperparameters are averages, and probabilities are not certain by chance."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics import log_loss

from skgp_natgrad import NGDSVGPClassifier


def of_noise(rng, n_rows, share=0.5):
    return rng.normal(size=(n_rows, 3)), (np.arange(n_rows) < share * n_rows).astype(int)


@pytest.mark.parametrize("n_rows", [8, 20])
def test_labels_of_noise_are_not_predicted(rng, n_rows):
    X, y = of_noise(rng, n_rows)
    found = NGDSVGPClassifier(random_state=0).fit(X, y).predict_proba(rng.normal(size=(200, 3)))
    assert np.mean(found.max(1)) < 0.65


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_prior_follows_frequencies_that_are_sure(rng, share):
    X, y = of_noise(rng, 40, share)
    found = NGDSVGPClassifier(random_state=0).fit(X, y).predict_proba(rng.normal(size=(200, 3)))[:, 1]
    assert np.mean(found) == pytest.approx(share, abs=0.1)


def test_several_classes_are_averaged_as_well(rng):
    X = rng.normal(size=(330, 2)) + 4.0 * np.array([[0, 0], [1, 0], [0, 1]])[np.arange(330) % 3]
    y = np.arange(330) % 3
    clf = NGDSVGPClassifier(random_state=0).fit(X[:30], y[:30])
    assert log_loss(y[30:], clf.predict_proba(X[30:])) < 0.5
    assert clf.score(X[30:], y[30:]) > 0.9


def drawn(seed, n_rows):
    """Labels of a line, a ring or noise, two to five columns."""
    rng = np.random.default_rng(seed)
    n_columns, kind = 2 + seed % 4, seed // 4 % 3
    while True:
        X = rng.normal(size=(n_rows + 1000, n_columns))
        line = 3.0 * X @ rng.normal(size=n_columns) / np.sqrt(n_columns)
        latent = [line, 4.0 * ((X[:, :2] ** 2).sum(1) - 1.4), 0.0 * line][kind]
        y = (rng.uniform(size=len(X)) < 1.0 / (1.0 + np.exp(-latent))).astype(int)
        if 0 < y[:n_rows].sum() < n_rows:
            return X, y


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [8, 12, 20, 40])
def test_few_labels_are_predicted_as_well_as_by_the_evidence_and_by_a_constant(n_rows):
    ours, others = [], []
    for seed in range(500, 530):
        X, y = drawn(seed, n_rows)
        rows = X[:n_rows], y[:n_rows]
        ours.append(log_loss(y[n_rows:], NGDSVGPClassifier(random_state=0).fit(*rows).predict_proba(X[n_rows:])))
        other = GaussianProcessClassifier(1.0 * RBF(), random_state=0).fit(*rows)
        others.append(log_loss(y[n_rows:], other.predict_proba(X[n_rows:])))
    assert np.mean(ours) < min(np.mean(others), np.log(2.0)) + 0.01
