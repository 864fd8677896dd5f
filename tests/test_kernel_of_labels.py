"""The default kernel of class labels: the shares of its terms, their variances, and the scaling of X."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, Product, Sum
from sklearn.metrics import log_loss

from skgp_natgrad import NGDSVGPClassifier
from skgp_natgrad.choose.candidates import OF_LABELS, WithSeason, matern12
from skgp_natgrad.choose.effects import WithEffects
from skgp_natgrad.solve.held_out_labels import Densities
from skgp_natgrad.start import kernel_of_labels

pytestmark = pytest.mark.usefixtures("x64")


def densities_of(log_densities, weight=None):
    ones = np.ones(log_densities.shape[1])
    return [Densities(each, ones if weight is None else weight, ones) for each in log_densities]


@pytest.mark.parametrize("n_labels", [30, 2000])
def test_shares_are_those_of_the_most_probable_mixture(rng, n_labels):
    """Against a general optimiser of the same log density."""
    log_densities, weight = rng.normal(-0.5, 0.4, (4, n_labels)), rng.uniform(0.2, 2.0, n_labels)
    weight *= n_labels / weight.sum()
    log_densities[1] += 0.3
    prior = kernel_of_labels._EQUAL / 4

    def loss(at):
        log_share = log_softmax(at)
        return -(weight @ np.log(np.exp(log_share) @ np.exp(log_densities)) + prior * log_share.sum())

    expected = np.exp(log_softmax(minimize(loss, np.zeros(4), tol=1e-12).x))
    for unit in (1.0, 100.0):
        found = kernel_of_labels.shares(densities_of(log_densities, unit * weight))
        np.testing.assert_allclose(found, expected, atol=2e-4)


def test_few_labels_tell_little_and_what_is_no_number_has_no_share(rng):
    better = np.stack([np.zeros(5), np.full(5, -0.2)])
    few, many = (kernel_of_labels.shares(densities_of(np.repeat(better, n, axis=1))) for n in (1, 400))
    one = kernel_of_labels.shares(densities_of(better[:, :1]))
    assert 0.5 < one[0] < 0.52 < few[0] < 0.6
    assert many[0] > 0.95
    better[1, 3] = np.nan
    np.testing.assert_array_equal(kernel_of_labels.shares(densities_of(better)), [1.0, 0.0])
    np.testing.assert_array_equal(kernel_of_labels.shares(densities_of(np.full((2, 5), -np.inf))), [0.5, 0.5])


@pytest.mark.slow
def test_labels_almost_without_noise_have_as_wide_a_prior_as_they_ask_for():
    """Beyond one step of the scale, and new labels are as probable as at that step, all else equal."""
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (2600, 2))
    y = np.sin(4.0 * X[:, 0]) + X[:, 1] > 0.0
    given = {"random_state": 0, "n_restarts_optimizer": 0}
    wide = NGDSVGPClassifier(1.0 * Matern([1.0, 1.0], nu=1.5), **given).fit(X[:600], y[:600])
    assert wide.kernel_.k1.constant_value > 27.0
    kernel = ConstantKernel(27.0) * wide.kernel_.k2
    narrow = NGDSVGPClassifier(kernel, optimizer=None, **given).fit(X[:600], y[:600])
    losses = [log_loss(y[600:], model.predict_proba(X[600:])) for model in (wide, narrow)]
    assert losses[0] < losses[1] + 1e-3


def terms_of(kernel):
    return terms_of(kernel.k1) + terms_of(kernel.k2) if isinstance(kernel, Sum) else [kernel]


@pytest.fixture
def summed(rng, monkeypatch):
    """A model with three kernels and given shares."""
    monkeypatch.setattr(kernel_of_labels, "OF_LABELS", (*OF_LABELS[::2], matern12))
    monkeypatch.setattr(kernel_of_labels, "shares", lambda *_: np.array([0.25, 0.75, 0.0]))
    X = rng.normal(size=(400, 2))
    return NGDSVGPClassifier(normalize_X=True, random_state=0).fit(X, np.sin(2.0 * X[:, 0]) + X[:, 1] > 0.0), X


def test_terms_have_their_shares_of_the_variance(summed):
    model, X = summed
    variances = np.array([float(each.diag(X[:1])[0]) for each in terms_of(model.kernel_)])
    np.testing.assert_allclose(variances / variances.sum(), [0.25, 0.75, 0.0], atol=1e-6)
    assert all(isinstance(each, Product) for each in terms_of(model.kernel_))


def test_a_kernel_of_several_terms_has_its_share_as_a_whole(rng):
    X = rng.normal(size=(40, 3))
    kernels = [make(np.full(3, 1.5), (1e-2, 1e2)) for make in OF_LABELS]
    assert any(isinstance(each, Sum) for each in kernels)
    share = np.array([0.2, 0.5, 0.3])
    expected = sum(part * each(X) / each.diag(X).mean() for part, each in zip(share, kernels, strict=True))
    np.testing.assert_allclose(kernel_of_labels._sum_of(kernels, share, X)(X), expected, atol=1e-12)


def test_effects_of_a_category_are_one_term_of_the_sum(rng):
    """With the covariance of the sum in which each kernel has effects of its own, for columns of zero and one."""
    levels = [np.eye(n)[rng.integers(0, n, 40)] for n in (3, 2)]
    X = np.column_stack([rng.normal(size=(40, 2)), *levels])
    blocks, bounds, length_scale = ((2, 3, 4), (5, 6)), (1e-2, 1e2), np.full(7, 1.5)
    kernels = [WithEffects(make, blocks, (1.0, 1.0))(length_scale, bounds) for make in OF_LABELS[::2]]
    # A search may move the variances, and the lengthscales within their bounds.
    kernels[1].set_params(k2__k1__constant_value=0.7, k2__k2__kernel__length_scale=0.3)
    share = np.array([0.2, 0.8])
    found = kernel_of_labels._sum_of(kernels, share, X)
    expected = sum(part * each(X) / np.mean(each.diag(X)) for part, each in zip(share, kernels, strict=True))
    np.testing.assert_allclose(found(X), expected, atol=1e-5)
    assert len(terms_of(found)) == 2 + len(blocks)
    said = kernel_of_labels.Shares(tuple(kernels), tuple(share)).said(None)
    assert said.endswith(": Matern(nu=2.5) 0.20, Laplacian 0.80; the other terms, of categories, belong to all")


def test_seasons_are_no_effects_of_a_category(rng):
    """Two periods of one column stay two terms, and `summary` says them."""
    X = np.column_stack([np.linspace(0.0, 5.0, 40), rng.normal(size=40)])
    makes = WithSeason((0.5, 0.13), 0, 2), OF_LABELS[0]
    kernels = [make(np.full(2, 1.5), (1e-2, 1e2)) for make in makes]
    share = np.array([0.6, 0.4])
    found = kernel_of_labels._sum_of(kernels, share, X)
    expected = sum(part * each(X) / np.mean(each.diag(X)) for part, each in zip(share, kernels, strict=True))
    np.testing.assert_allclose(found(X), expected, atol=1e-12)
    said = kernel_of_labels.Shares(tuple(kernels), tuple(share)).said(None)
    assert said.count("ExpSineSquared") == 2
    assert "categories" not in said


def test_the_summary_says_the_shares(summed):
    said = str(summed[0].summary())
    assert "shares of the variance" in said
    assert "0.25" in said
    assert "0.75" in said


@pytest.mark.parametrize("scaling", ["normal scores of X", "standardised X"])
def test_held_out_labels_choose_the_scaling(rng, monkeypatch, scaling):
    """Normal scores, of which those of an outlying row are below five, or what is clearly more probable."""
    X, tried = rng.normal(size=(400, 2)), kernel_of_labels.at_best_scale
    monkeypatch.setattr(kernel_of_labels, "OF_LABELS", OF_LABELS[:1])
    X[0] = 8.0

    def judged(plan, table, seed, searches):
        is_scores = np.abs(table.X).max() < 5.0
        density = -0.1 if is_scores == (scaling == "normal scores of X") else -0.5
        of_labels = Densities(np.full(100, density), *np.ones((2, 100)))
        return tried(plan, table, seed, searches)._replace(of_labels=of_labels)

    monkeypatch.setattr(kernel_of_labels, "at_best_scale", judged)
    assert scaling in NGDSVGPClassifier(random_state=0).fit(X, X[:, 0] > 0.0).plan_


@pytest.mark.slow
def test_a_warm_start_keeps_its_kernel_unless_another_predicts_labels_better(rng, monkeypatch):
    X = rng.normal(size=(400, 2))
    one, other = (np.sin(2.0 * x) > 0.0 for x in X.T)
    model = NGDSVGPClassifier(random_state=0, warm_start=True, normalize_X=True).fit(X, one)
    first, level = model.kernel_, densities_of(np.full((1, 400), -0.1))[0]
    assert first.k2.length_scale[0] < first.k2.length_scale[1]
    with monkeypatch.context() as patch:
        patch.setattr(kernel_of_labels, "at_best_scale", lambda plan, *_: kernel_of_labels.Tried(plan, level))
        np.testing.assert_allclose(model.fit(X, one).kernel_.k2.length_scale, first.k2.length_scale, rtol=1e-6)
    changed = model.fit(X, other).kernel_
    assert changed.k2.length_scale[0] > changed.k2.length_scale[1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_warm_start_on_the_same_labels_stays_near_its_kernel(seed, monkeypatch):
    """No lengthscale is ten times as long, no term is lost, and new labels are predicted as well."""
    monkeypatch.setattr(kernel_of_labels, "OF_LABELS", OF_LABELS)
    X = np.random.default_rng(seed).normal(size=(1400, 2))
    y = np.sin(2.0 * X[:, 0]) > 0.0
    model, found = NGDSVGPClassifier(random_state=0, warm_start=True, normalize_X=True), []
    for _ in range(2):
        terms = terms_of(model.fit(X[:400], y[:400]).kernel_)
        variances = [each.k1.constant_value for each in terms]
        lengths = [each.k2.length_scale for each in terms if hasattr(each.k2, "length_scale")]
        loss = log_loss(y[400:], model.predict_proba(X[400:]))
        found.append((np.concatenate(lengths), np.array(variances) / np.sum(variances), loss))
    (lengths, shares, loss), (lengths_again, shares_again, loss_again) = found
    np.testing.assert_array_less(np.abs(np.log(lengths_again / lengths)), np.log(10.0))
    np.testing.assert_array_less(np.abs(np.log(shares_again / shares)), np.log(10.0))
    assert loss_again < loss + 0.01


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "gain"), [("thresholds", 0.0), ("waves", -0.02), ("lines", -0.02)])
def test_the_sum_beside_the_plain_kernel(rng, kind, gain, monkeypatch):
    """It is better where functions jump at thresholds, and elsewhere about as good."""
    X = rng.normal(size=(2400, 6))
    rates = {
        "thresholds": 4.0 * ((X[:, 0] > 0.3) ^ ((X[:, 1] > -0.5) & (X[:, 2] < 0.7))) - 2.0,
        "waves": 3.0 * np.sin(2.0 * X[:, 0]) * np.cos(X[:, 1]),
        "lines": 2.0 * X[:, 0] - X[:, 1],
    }[kind]
    y = rng.uniform(size=len(X)) < 1.0 / (1.0 + np.exp(-rates))

    def density(makes):
        monkeypatch.setattr(kernel_of_labels, "OF_LABELS", makes)
        model = NGDSVGPClassifier(random_state=0).fit(X[:800], y[:800])
        return np.mean(np.log(model.predict_proba(X[800:])[np.arange(1600), y[800:].astype(int)]))

    assert density(OF_LABELS) > density(OF_LABELS[:1]) + gain


def test_another_scaling_must_be_clearly_better_than_normal_scores(rng):
    level = rng.normal(size=400)
    noise = 0.2 * rng.normal(size=400)

    def best(gain):
        each = [Densities(d, *np.ones((2, 400))) for d in (level + noise - noise.mean() + gain, level)]
        return kernel_of_labels._best_scaling(each)

    # The gain of 400 labels has a standard error of a hundredth.
    assert best(0.004) == 1
    assert best(0.05) == 0
