"""Few class labels with nothing set: hyperparameters are averages, and probabilities are not certain by chance."""

import numpy as np
import pytest
from scipy import special
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from skgp_natgrad import NGDSVGPClassifier, svgp
from skgp_natgrad.start import few_labels, kernel_of_labels


def of_noise(rng, n_rows, share=0.5):
    return rng.normal(size=(n_rows, 3)), (np.arange(n_rows) < share * n_rows).astype(int)


@pytest.mark.parametrize("n_rows", [8, 20])
def test_labels_of_noise_are_not_predicted(rng, n_rows):
    X, y = of_noise(rng, n_rows)
    found = NGDSVGPClassifier(random_state=0).fit(X, y).predict_proba(rng.normal(size=(200, 3)))
    assert np.mean(found.max(1)) < 0.65


@pytest.mark.parametrize(("counts", "are_few"), [((10, 10), True), ((20, 20), False), ((990, 10), True)])
def test_few_are_labels_that_could_not_judge_kernels(counts, are_few):
    y = np.repeat([0.0, 1.0], counts)
    table = svgp.Table(np.arange(len(y))[:, None] * 1.0, y[None], np.ones(len(y)))
    assert (few_labels.n_judging(table) < few_labels.MOST) == are_few


def test_positives_beyond_a_thousand_rows_are_held_out_once():
    y = np.repeat([0.0, 1.0], [1600, 20])
    table = svgp.Table(np.arange(len(y))[:, None] * 1.0, y[None], np.ones(len(y)))
    assert few_labels.n_judging(table) == pytest.approx(40.0 * kernel_of_labels.HELD_OUT)


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
@pytest.mark.parametrize(("n_rows", "tolerance"), [(8, 0.01), (12, 0.01), (20, 0.01), (40, 0.05)])
def test_few_labels_are_predicted_as_well_as_by_the_evidence_and_by_a_constant(n_rows, tolerance):
    """Forty have the sum of kernels, which real tables ask for, and not these: one lengthscale is right for them."""
    ours, others = [], []
    for seed in range(500, 530):
        X, y = drawn(seed, n_rows)
        rows = X[:n_rows], y[:n_rows]
        ours.append(log_loss(y[n_rows:], NGDSVGPClassifier(random_state=0).fit(*rows).predict_proba(X[n_rows:])))
        other = GaussianProcessClassifier(1.0 * RBF(), random_state=0).fit(*rows)
        others.append(log_loss(y[n_rows:], other.predict_proba(X[n_rows:])))
    assert np.mean(ours) < min(np.mean(others), np.log(2.0)) + tolerance


def positives(seed, of, n_rows, n_columns, n_positives):
    """Rows of which some ten are positive in the first ``n_rows``, and the probabilities of all."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows + 5000, n_columns))
    latent = of(X)
    offset = np.linspace(-15.0, 5.0, 400)
    expected = special.expit(latent[:, None] + offset).mean(0) * n_rows
    p = special.expit(latent + offset[np.argmin(np.abs(expected - n_positives))])
    while True:
        y = rng.uniform(size=len(X)) < p
        if 7 <= y[:n_rows].sum() <= 12:
            return X, y, p


FUNCTIONS = {
    "line": lambda X: 1.5 * (X[:, 0] + 0.7 * X[:, 1]),
    "ring": lambda X: 3.0 * (np.abs(np.hypot(X[:, 0], X[:, 1]) - 2.0) < 0.4),
    "none": lambda X: 0.0 * X[:, 0],
}


def nats_a_positive(q, p):
    """The expected loss of probabilities ``q`` where ``p`` are right."""
    return -(p * np.log(q) + (1.0 - p) * np.log1p(-q)).sum() / p.sum()


def losses(of, seed, n, n_columns):
    """Losses of ours, of logistic regression and of a constant; and ours and the right sum of the largest hundredth."""
    X, y, p = positives(seed, of, n, n_columns, 9)
    each = [model.fit(X[:n], y[:n]) for model in (NGDSVGPClassifier(random_state=0), LogisticRegression())]
    ours, other = (model.predict_proba(X[n:])[:, 1] for model in each)
    top = np.argsort(-ours, kind="stable")[: len(ours) // 100]
    found = [nats_a_positive(q, p[n:]) for q in (ours, other, np.full(len(X) - n, y[:n].mean()))]
    return [*found, ours[top].sum(), p[n:][top].sum()]


def test_few_positives_are_predicted_where_logistic_regression_predicts_them():
    ours, logistic, constant, told, right = losses(FUNCTIONS["line"], 1, 250, 3)
    assert ours < logistic + 0.2 < constant - 0.3
    assert 0.5 < told / right < 2.0


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_few_positives_are_predicted_as_well_as_by_the_better_of_two(name):
    sizes = [((800, 1000, 1500)[seed % 3], (2, 5, 8, 3)[seed % 4]) for seed in range(10)]
    found = [losses(FUNCTIONS[name], seed, *size) for seed, size in enumerate(sizes)]
    ours, logistic, constant, told, right = np.mean(found, axis=0)
    assert ours < min(logistic, constant) + 0.1
    assert 1.0 / 1.5 < told / right < 1.5


@pytest.mark.slow
def test_a_part_of_the_frequent_class_has_its_weight():
    ours, logistic, constant, *_ = losses(FUNCTIONS["line"], 3, 8000, 3)
    assert ours < min(logistic, constant) + 0.2
