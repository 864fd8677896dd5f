"""Means of class labels on further points, and by regression: whitening, optima, and the model they end in."""

import pickle

import numpy as np
import pytest
from scipy import optimize
from scipy.special import logsumexp
from sklearn.datasets import load_digits
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skgp_natgrad import NGDSVGPClassifier, svgp
from skgp_natgrad._backend import device, in_place
from skgp_natgrad._backend.repeated import among
from skgp_natgrad.likelihoods import Bernoulli, Softmax
from skgp_natgrad.solve import class_labels, common_covariance, further_points
from skgp_natgrad.solve.system import points_of, prior_of
from skgp_natgrad.start import sizes

KERNEL = ConstantKernel(4.0, "fixed") * Matern([1.0, 0.7], "fixed", nu=1.5)
STEPS = svgp.Settings(algorithm=svgp.Algorithm(solver="evidence"))
JITTER = 1e-10


def table_of(rng, n_classes, n=60):
    X = rng.normal(size=(n, 2))
    f = np.stack([np.sin(2.0 * X @ rng.normal(size=2)) for _ in range(n_classes)])
    y = np.argmax(f + 0.3 * rng.gumbel(size=f.shape), axis=0)
    return svgp.Table(X, y[None].astype(float), rng.uniform(0.5, 2.0, size=n))


def plan_of(likelihood, n_classes, n_inducing, n_further=0):
    return svgp.Plan(
        (KERNEL,),
        likelihood,
        n_classes,
        n_inducing=n_inducing,
        n_mean_inducing=n_further,
        jitter=JITTER,
        settings=STEPS,
    )


class Prepared:
    """All that is asked for, of a table with few inducing points."""

    def __init__(self, table, likelihood, n_classes, n_inducing, n_further):
        self.plan = plan_of(likelihood.prepare(table.y, n_classes), n_classes, n_inducing, n_further)
        state, self.constants = svgp.init(self.plan, table, random_state=0)
        self.parameters, self.table = state.parameters, table
        prior = prior_of(self.parameters, self.constants.masks, self.constants.jitter)
        self.Z = points_of(prior)
        self.rows = common_covariance.rows_of_table(self.parameters, prior, table)
        is_point = among(table.X, self.Z)
        candidates = further_points.candidates(table.X, is_point)
        self.chosen = np.sort(np.random.RandomState(0).permutation(candidates)[:n_further])
        which = self.chosen, is_point, self.constants.jitter
        self.wide = further_points.whitened(self.parameters.log_kernels[0], self.rows, table.X, *which)


@pytest.mark.parametrize("n_further", [7, 100])
def test_rows_are_whitened_by_all_points(rng, x64, monkeypatch, n_further):
    """Of several blocks, with rows of all kinds: inducing points, further points and others; with copies of rows."""
    monkeypatch.setattr(further_points, "_BLOCK_ROWS", 4)
    table = table_of(rng, 3)
    table.X[50:55] = table.X[20:25]
    p = Prepared(table, Softmax(), 3, 12, n_further)
    assert len(p.chosen) == min(n_further, 55 - 12)
    points, K, K_rows = np.concatenate([p.Z, table.X[p.chosen]]), None, None
    K = KERNEL(points) + JITTER * 4.0 * np.eye(len(points))
    K_rows = np.linalg.solve(np.linalg.cholesky(K), KERNEL(points, table.X))
    n_filled_up = len(p.rows.weight) - 60
    w, g, h = rng.normal(size=(3, len(points))), rng.normal(size=(3, 60)), rng.uniform(size=(3, 60))
    g, h = (np.pad(each, ((0, 0),) * (each.ndim - 1) + ((0, n_filled_up),)) for each in (g, h))
    np.testing.assert_allclose(p.wide.product(w)[:, :60], w @ K_rows, atol=1e-4)
    np.testing.assert_allclose(p.wide.adjoint(g), g[:, :60] @ K_rows.T, atol=1e-4)
    # Of the first points in the coordinates w R.
    inverse_root = np.linalg.inv(np.tril(rng.normal(size=(len(p.Z),) * 2)) + 3.0 * np.eye(len(p.Z)))
    whole = np.eye(len(points))
    whole[: len(p.Z), : len(p.Z)] = inverse_root
    expected = [np.diag(whole @ (np.eye(len(points)) + (K_rows * each[:60]) @ K_rows.T) @ whole.T) for each in h]
    np.testing.assert_allclose(p.wide.curvatures(h, inverse_root), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("likelihood", "n_classes"), [(Bernoulli(link="logit"), 2), (Softmax(), 3)])
def test_means_are_the_best_under_their_variances(rng, x64, likelihood, n_classes):
    """Against a search over all latent values of a process with a point at each row, by SciPy."""
    table = table_of(rng, n_classes)
    p = Prepared(table, likelihood, n_classes, 12, 48)
    fit = common_covariance.fit_at_scale(p.parameters, p.constants, p.rows, 0.0)
    prior_mean = np.asarray(p.constants.prior_mean)
    # Without variance the expected log-likelihood has a simple form.
    var = np.full(fit.mean.shape, 1e-12)

    def log_likelihood(mean):
        return common_covariance.value_and_slope(p.parameters, p.constants, p.rows, mean, var)

    h = common_covariance.curvatures(p.parameters, p.constants, p.rows, fit.mean, var)
    _, mean = further_points.best(log_likelihood, prior_mean, p.wide, fit.covariance, h, fit.w, 1e-13)
    inverse, y = np.linalg.inv(KERNEL(table.X) + JITTER * 4.0 * np.eye(60)), table.y[0].astype(int)

    def loss(f):
        f = f.reshape(len(prior_mean), 60)
        if len(f) == 1:
            slope = (y - 1.0 / (1.0 + np.exp(-f[0])))[None]
            value = -np.logaddexp(0.0, -(2.0 * y - 1.0) * f[0])
        else:
            value = f[y, np.arange(60)] - logsumexp(f, axis=0)
            slope = (np.arange(len(f))[:, None] == y) - np.exp(f - logsumexp(f, axis=0))
        rest = f - prior_mean
        total = 0.5 * np.sum((rest @ inverse) * rest) - table.weight @ value
        return total, (rest @ inverse - table.weight * slope).ravel()

    options = {"maxiter": 20_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-8}
    found = optimize.minimize(loss, mean[:, :60].ravel(), jac=True, method="L-BFGS-B", options=options)
    # The same value to the precision of the rows, and hardly other means.
    assert loss(mean[:, :60].ravel())[0] - found.fun < 1e-3
    np.testing.assert_allclose(found.x.reshape(-1, 60), mean[:, :60], atol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("likelihood", "n_classes"), [(Bernoulli(), 2), (Softmax(), 3)])
def test_the_model_has_the_means_of_the_solution(rng, likelihood, n_classes, monkeypatch):
    # Regression, whose means rest on the inducing points, is never ahead.
    monkeypatch.setattr(class_labels, "_SURE", np.inf)
    table = table_of(rng, n_classes)
    plan = plan_of(likelihood, n_classes, 12, 20)
    result = svgp.train(*svgp.init(plan, table, random_state=0), table, plan, random_state=0)
    with device.computation():
        p = Prepared(table, likelihood, n_classes, 12, 20)
        optimum = class_labels.solve(p.parameters, p.constants, table, np.random.RandomState(0), 20)
    model, _ = svgp.condition(result.state, result.constants, plan)
    mean, var = svgp.predict(model, table.X)
    assert optimum.means.a.shape == (len(mean), 20)
    # k_xz Kzz^-1 (L m - Kzg a) + k_xg a, with matrices of scikit-learn's.
    (m, a), g = optimum.means[1:], optimum.means.Z_mean
    Kzz = KERNEL(p.Z) + JITTER * 4.0 * np.eye(12)
    at_Z = np.linalg.cholesky(Kzz) @ m[:, :12].T - KERNEL(p.Z, g) @ a.T
    expected = KERNEL(table.X, p.Z) @ np.linalg.solve(Kzz, at_Z) + KERNEL(table.X, g) @ a.T
    np.testing.assert_allclose(mean, np.asarray(p.constants.prior_mean) + expected.T, atol=1e-5)
    assert np.all(var > 0.0)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_regression_is_that_of_scikit_learn(rng, x64, n_classes):
    table = table_of(rng, n_classes)
    p = Prepared(table, Bernoulli() if n_classes == 2 else Softmax(), n_classes, None, 0)
    prior_mean = np.asarray(p.constants.prior_mean)
    fit = common_covariance.regressed(p.rows, prior_mean)
    target = common_covariance.targets_of(table.y[0], table.weight, prior_mean)
    noise = 0.01 * 4.0 / table.weight
    exact = GaussianProcessRegressor(KERNEL, alpha=noise, optimizer=None).fit(table.X, target.T)
    mean, deviation = exact.predict(table.X, return_std=True)
    np.testing.assert_allclose(fit.mean[:, :60] - prior_mean, mean.reshape(60, -1).T, atol=1e-6)
    own = np.asarray(fit.covariance.own + p.rows.residual)[:60]
    np.testing.assert_allclose(own, deviation.reshape(60, -1)[:, 0] ** 2, rtol=1e-5)
    # What is right of a label exceeds the others by one number, whatever the prior mean.
    right = target + prior_mean
    if n_classes == 2:
        np.testing.assert_allclose(right[0], np.where(table.y[0] == 1.0, 5.0, -5.0))
    else:
        np.testing.assert_allclose(
            np.sort(right, axis=0) - right.min(0), [[0.0] * 60, [0.0] * 60, [10.0] * 60], atol=1e-9
        )


@pytest.mark.slow
def test_regression_is_used_where_classes_hardly_overlap(rng):
    X = rng.uniform(-1.0, 1.0, size=(1500, 2))
    y = (np.floor(3.0 * X[:, 0]) + np.floor(3.0 * X[:, 1])) % 2
    table = svgp.Table(X, y[None], np.ones(1500))
    kernel = ConstantKernel(10.0) * RBF(0.15)

    def chosen(y):
        plan = svgp.Plan((kernel,), Bernoulli().prepare(y[None], 2), 2, n_inducing=200, settings=STEPS)
        some = table._replace(y=y[None])
        state, constants = svgp.init(plan, some, random_state=0)
        used = []
        with pytest.MonkeyPatch.context() as patch, device.computation():
            judged = class_labels._judged
            patch.setattr(class_labels, "_judged", lambda *a: used.append(judged(*a)) or used[-1])
            optimum = class_labels.solve(state.parameters, constants, some, np.random.RandomState(0))
        by_likelihood, by_regression = (each.densities.mean for each in used)
        # One of both is taken, with its own density.
        assert optimum.held_out.mean in (pytest.approx(by_likelihood), pytest.approx(by_regression))
        return optimum.held_out.mean, by_likelihood, by_regression

    # Labels that are mostly noise are never regressed for less.
    best, by_likelihood, by_regression = chosen(rng.integers(2, size=1500).astype(float))
    assert best >= min(by_likelihood, by_regression)
    best, by_likelihood, _ = chosen(y)
    assert best >= by_likelihood - 1e-12


@pytest.mark.slow
def test_the_estimator_keeps_its_further_points(monkeypatch):
    X, y = load_digits(n_class=3, return_X_y=True)
    monkeypatch.setattr(sizes, "_OPERATIONS_OF_LABELS", 1e7)
    monkeypatch.setattr(sizes, "_MORE_OPERATIONS_OF_LABELS", 1e7)
    # Where regression is ahead it needs none.
    monkeypatch.setattr(class_labels, "_SURE", np.inf)
    model = NGDSVGPClassifier(Matern(20.0, nu=2.5), random_state=0).fit(X[:400], y[:400])
    assert len(model.inducing_points_) < 150 < len(model.mean_inducing_points_) <= 400
    assert model.score(X[400:], y[400:]) > 0.95
    assert "further points" in str(model.plan_)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X[400:410]), model.predict_proba(X[400:410]))
    # Later rows go on from what the inducing points know.
    model.partial_fit(X[400:], y[400:])
    assert len(model.mean_inducing_points_) == 0
    assert model.score(X[400:], y[400:]) > 0.9


def test_sizes_of_further_points_keep_to_time_and_memory():
    assert sizes.n_further_of_labels(1000, 1000, np.inf) == 0
    assert sizes.n_further_of_labels(5000, 2000, np.inf) == 3000
    few = sizes.n_further_of_labels(60_000, 1500, np.inf)
    assert 5000 < few < 20_000
    assert few**2 * (few / 3.0 + 60_000 - few) < 1e13
    assert sizes.n_further_of_labels(20_000, 1500, 10**9) < sizes.n_further_of_labels(20_000, 1500, np.inf)
    assert sizes.n_further_of_labels(20_000, 1500, 10**5) == 0


@pytest.mark.parametrize("n", [1, 5, 37])
def test_the_factor_takes_the_place_of_its_matrix(rng, monkeypatch, n):
    monkeypatch.setattr(in_place, "_PANEL", 8)
    half = rng.normal(size=(n, n + 3))
    A = half @ half.T
    expected, place = np.linalg.cholesky(A), np.tril(A)
    found = in_place.cholesky_over(place)
    assert found is place
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    b = rng.normal(size=(n, 2))
    np.testing.assert_allclose(in_place.upper_solve(found, b.copy()), np.linalg.solve(expected.T, b), rtol=1e-8)
    indefinite = A.copy()
    indefinite[-1, -1] = -1.0
    assert in_place.cholesky_over(indefinite) is None
