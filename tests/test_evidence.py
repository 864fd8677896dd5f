"""The evidence of an exact Gaussian process, its gradient and its maximum, against scikit-learn's."""

import jax
import numpy as np
import pytest
from scipy import integrate, optimize, stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, WhiteKernel

from skgp_natgrad import kernels
from skgp_natgrad._backend.flat import flat, turning_back
from skgp_natgrad.choose import evidence, minimum
from skgp_natgrad.choose.candidates import OF_DENSE, OF_LABELS, laplacian, matern52_and_linear, rough_and_smooth
from skgp_natgrad.choose.evidence import Hyperparameters
from skgp_natgrad.choose.view import weak_prior
from skgp_natgrad.training.batches import Table

pytestmark = pytest.mark.usefixtures("x64")
# Searches that end at the maximum itself.
EXACT = 1e-9
NOISE = 0.07


def rows_of(rng, n):
    X = rng.normal(size=(n, 3))
    return Table(X, np.sin(X @ [1.0, 0.5, 0.0])[None] + 0.2 * rng.normal(size=(1, n)), np.ones(n))


@pytest.fixture
def rows(rng):
    return rows_of(rng, 40)


def hyperparameters_of(kernel, noise=NOISE):
    logs = [jax.tree.map(np.log, each) for each in kernels.from_sklearn(kernel, 3)]
    noises = np.log([noise, 1e-5, 1e5])
    return [Hyperparameters(*each) for each in zip(logs, noises, strict=True)]


@pytest.mark.parametrize(
    ("make", "n"),
    [
        *((make, 40) for make in dict.fromkeys((*OF_LABELS, *OF_DENSE, matern52_and_linear))),
        *((rough_and_smooth, n) for n in (300, 400, 500)),
        (laplacian, 600),
    ],
)
def test_value_and_gradient_equal_those_of_scikit_learn(make, n, rng):
    """Of each kernel, of rows that are pulled back in one block and in several, and that need no padding."""
    rows = rows_of(rng, n)
    kernel = make(np.array([1.3, 0.8, 2.0]), (1e-3, 1e3))
    exact = GaussianProcessRegressor(kernel + WhiteKernel(NOISE), optimizer=None, alpha=0.0).fit(rows.X, rows.y[0])
    expected, slope = exact.log_marginal_likelihood(exact.kernel_.theta, eval_gradient=True)
    value, gradient = evidence.value_and_gradient(hyperparameters_of(kernel)[0], rows)
    assert value == pytest.approx(expected, rel=1e-10)
    # In scikit-learn's order: each kernel's parameters by name, the noise last.
    found = np.concatenate([*map(np.ravel, jax.tree.leaves(gradient.kernel)), [gradient.noise]])
    np.testing.assert_allclose(np.sort(found), np.sort(slope), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("noise", [1e-6, 1e-8, 1e-10])
def test_gradient_at_little_noise_equals_that_of_scikit_learn(noise, rng):
    """Where alpha alpha^T and the inverse all but cancel."""
    X = rng.uniform(size=(60, 3))
    y = np.sin(3.0 * X).sum(1) + np.sqrt(noise) * rng.normal(size=60)
    kernel = ConstantKernel(1.4) * Matern([0.5, 0.8, 0.6], nu=2.5)
    exact = GaussianProcessRegressor(kernel + WhiteKernel(noise), optimizer=None, alpha=0.0).fit(X, y)
    _, slope = exact.log_marginal_likelihood(exact.kernel_.theta, eval_gradient=True)
    _, gradient = evidence.value_and_gradient(hyperparameters_of(kernel, noise)[0], Table(X, y[None], np.ones(60)))
    found = np.concatenate([*map(np.ravel, jax.tree.leaves(gradient.kernel)), [gradient.noise]])
    np.testing.assert_allclose(np.sort(found), np.sort(slope), rtol=1e-7, atol=1e-9 * np.abs(slope).max())


def test_gradient_equals_finite_differences_with_weights_and_several_targets(rows, rng):
    weight = rng.uniform(0.5, 3.0, size=40)
    table = rows._replace(weight=weight, y=np.vstack([rows.y, rng.normal(size=(2, 40))]))
    kernel = ConstantKernel(1.4) * Matern([1.0, 2.0, 0.7], nu=1.5) + ConstantKernel(0.2) * DotProduct(0.9)
    at, _, _ = hyperparameters_of(kernel)
    flat, rebuilt = jax.flatten_util.ravel_pytree(at)
    _, gradient = evidence.value_and_gradient(at, table)
    for i, slope in enumerate(jax.flatten_util.ravel_pytree(gradient)[0]):
        ends = [evidence.value_and_gradient(rebuilt(flat.at[i].add(step)), table)[0] for step in (1e-5, -1e-5)]
        assert slope == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6, abs=1e-7)


def test_a_weight_divides_the_noise(rows, rng):
    weight = rng.uniform(1.0, 3.0, size=40)
    kernel = ConstantKernel(1.4) * RBF([1.0, 2.0, 0.7])
    exact = GaussianProcessRegressor(kernel, optimizer=None, alpha=NOISE / weight).fit(rows.X, rows.y[0])
    value, _ = evidence.value_and_gradient(hyperparameters_of(kernel)[0], rows._replace(weight=weight))
    assert value == pytest.approx(exact.log_marginal_likelihood(), rel=1e-10)


def test_a_weight_below_one_is_a_power_of_the_likelihood(rng):
    """Of single rows by quadrature: the integral of N(y | f, s^2)^w under the prior, but for a constant in w."""
    rows = Table(rng.normal(size=(1, 3)), rng.normal(size=(1, 1)), np.ones(1))
    kernel = ConstantKernel(1.4) * RBF([1.0, 2.0, 0.7])

    def integral(noise, weight):
        def density(f):
            return stats.norm.pdf(rows.y[0, 0], f, np.sqrt(noise)) ** weight * stats.norm.pdf(f, 0.0, np.sqrt(1.4))

        return np.log(integrate.quad(density, -12.0, 12.0, epsabs=1e-13, epsrel=1e-12, points=[rows.y[0, 0]])[0])

    for weight in (0.03, 0.4, 1.0):
        table = rows._replace(weight=np.full(1, weight))
        each = [evidence.value_and_gradient(hyperparameters_of(kernel, s)[0], table)[0] for s in (0.02, 0.5)]
        assert each[1] - each[0] == pytest.approx(integral(0.5, weight) - integral(0.02, weight), rel=1e-9)


def test_maximum_equals_that_of_scikit_learn(rows):
    kernel = ConstantKernel(1.0) * RBF([1.0, 1.0, 1.0])
    exact = GaussianProcessRegressor(kernel + WhiteKernel(NOISE, (1e-5, 1e5)), alpha=0.0).fit(rows.X, rows.y[0])
    start, *bounds = hyperparameters_of(kernel)
    best = evidence.maximise(start, bounds, rows, gain=EXACT)
    assert best.evidence == pytest.approx(exact.log_marginal_likelihood_value_, abs=1e-3)


def test_prior_pulls_and_is_not_in_the_evidence(rows):
    kernel = ConstantKernel(1.0) * RBF([1.0, 1.0, 1.0])
    start, *bounds = hyperparameters_of(kernel)
    free = evidence.maximise(start, bounds, rows, gain=EXACT)
    held = evidence.maximise(start, bounds, rows, weak_prior(start, np.ones(3, bool)), gain=EXACT)
    value, _ = evidence.value_and_gradient(held.hyperparameters, rows)
    assert held.evidence == pytest.approx(value, rel=1e-9)
    assert held.evidence < free.evidence
    # The third column has no effect: only the prior holds its lengthscale.
    assert held.hyperparameters.kernel.k2.length_scale[2] < free.hyperparameters.kernel.k2.length_scale[2]


def test_the_curvature_of_few_rows_shortens_the_search_on_more(rng, monkeypatch):
    """And the search ends at the same maximum."""
    X = rng.normal(size=(240, 3)) * [1.0, 5.0, 30.0]
    y = np.sin(X @ [1.0, 0.1, 0.0]) + 0.2 * rng.normal(size=240)
    table = Table(X, y[None], np.ones(240))
    start, *bounds = hyperparameters_of(ConstantKernel(1.0, (1e-5, 1e5)) * RBF([1.0, 1.0, 1.0], (1e-3, 1e3)))
    few = evidence.maximise(start, bounds, table.rows(np.arange(80)), weak_prior(start, np.ones(3, bool)), gain=EXACT)
    n_evaluations, call = [0], evidence.Objective.__call__

    def counted(self, x):
        n_evaluations[0] += 1
        return call(self, x)

    monkeypatch.setattr(evidence.Objective, "__call__", counted)
    found, counts = [], []
    for spread in (None, few.spread):
        n_evaluations[0] = 0
        prior = weak_prior(start, np.ones(3, bool))
        found.append(evidence.maximise(few.hyperparameters, bounds, table, prior, spread, EXACT))
        counts.append(n_evaluations[0])
    assert found[1].evidence == pytest.approx(found[0].evidence, abs=1e-3)
    assert counts[1] < 0.8 * counts[0]


def test_the_spread_is_that_of_the_inverse_hessian(rng):
    """Of a parabola that L-BFGS has seen along all of its axes."""
    widths = np.array([0.3, 2.0, 5.0, 1.0])

    def loss(x):
        return 0.5 * float(((x / widths) ** 2).sum()), x / widths**2

    low, high = np.full(4, -50.0), np.array([50.0, 50.0, 50.0, -50.0])
    start = np.array([1.0, -3.0, 4.0, -50.0])
    for spread in (None, np.array([0.5, 1.0, 9.0, 1.0])):
        found = minimum.minimised(loss, start, low, high, None, spread, EXACT)
        np.testing.assert_allclose(found.x[:3], 0.0, atol=1e-4)
        assert found.x[3] == start[3]
        assert found.spread[3] == 0.0
        np.testing.assert_allclose(found.spread[:3], widths[:3], rtol=0.2)


def test_the_terms_of_a_sum_are_tied_to_one_another(rng):
    """By the deviation of each column's lengthscale from that of other terms, each relative to the term's mean."""
    start, *_ = hyperparameters_of(RBF([1.0, 2.0, 3.0]) + RBF([2.0, 2.0, 5.0]))
    varies, x = np.array([True, True, False]), rng.normal(size=7)
    far = (x - flat(start))[:6].reshape(2, 3)[:, :2]
    centred = far - far.mean(1, keepdims=True)
    expected = -0.5 * ((x - flat(start)) ** 2).sum() / 9.0 - 0.5 * (centred**2).sum() / 0.7**2
    expected -= 0.5 * ((centred - centred.mean(0)) ** 2).sum() / 0.4**2
    log_prior = weak_prior(start, varies, 0.7, 0.4)
    assert log_prior(x)[0] == pytest.approx(expected, rel=1e-12)
    slope = optimize.approx_fprime(x, lambda at: log_prior(at)[0], 1e-7)
    np.testing.assert_allclose(log_prior(x)[1], slope, rtol=1e-5, atol=1e-5)


def test_fixed_hyperparameters_stay(rows):
    kernel = ConstantKernel(1.3, "fixed") * RBF([1.0, 1.0, 1.0])
    start, *bounds = hyperparameters_of(kernel)
    bounds = [each._replace(noise=np.log(NOISE)) for each in bounds]
    best = evidence.maximise(start, bounds, rows, gain=EXACT).hyperparameters
    assert best.kernel.k1.constant_value == start.kernel.k1.constant_value
    assert best.noise == pytest.approx(np.log(NOISE), rel=1e-14)
    assert not np.allclose(best.kernel.k2.length_scale, 0.0)


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_a_hyperparameter_that_is_fixed_at_zero_changes_no_maximum(rows):
    """Its logarithm is minus infinity, which SciPy takes for no bound."""
    kernel = ConstantKernel(1.0) * RBF([1.0, 1.0, 1.0])
    ends = []
    for each in (kernel, kernel + ConstantKernel(0.0, "fixed") * RBF(1.0)):
        start, *bounds = hyperparameters_of(each)
        ends.append(evidence.maximise(start, bounds, rows, gain=EXACT))
    assert ends[1].evidence == pytest.approx(ends[0].evidence, abs=1e-6)
    assert ends[1].hyperparameters.kernel.k2.k1.constant_value == -np.inf


def test_densities_equal_predictions_of_scikit_learn(rows, rng):
    kernel = ConstantKernel(1.4) * Matern([1.0, 2.0, 0.7], nu=2.5)
    weight = rng.uniform(0.5, 3.0, size=40)
    rows, at = rows._replace(weight=weight), hyperparameters_of(kernel)[0]

    def density(train, test):
        gp = GaussianProcessRegressor(kernel, optimizer=None, alpha=NOISE / weight[train])
        mean, deviation = gp.fit(rows.X[train], rows.y[0, train]).predict(rows.X[test], return_std=True)
        variance = deviation**2 + NOISE
        return -0.5 * (np.log(2.0 * np.pi * variance) + (rows.y[0, test] - mean) ** 2 / variance)

    first, last = np.arange(30), np.arange(30, 40)
    found = evidence.held_out_density(at, rows.rows(first), rows.rows(last))
    assert found == pytest.approx(np.average(density(first, last), weights=weight[last]), rel=1e-9)
    each = [density(np.delete(np.arange(40), i), [i])[0] for i in range(40)]
    assert evidence.leave_one_out_density(at, rows) == pytest.approx(np.average(each, weights=weight), rel=1e-8)


def test_left_out_rows_of_little_weight_have_the_prior_s_variance_or_less(rows, rng):
    # With weights down to 1e-20 the precision of a row is next to nothing but its own noise's.
    weight = 10.0 ** rng.uniform(-20.0, 3.0, size=40)
    at = hyperparameters_of(ConstantKernel(1.4) * Matern([1.0, 2.0, 0.7], nu=2.5))[0]
    found = evidence.leave_one_out_density(at, rows._replace(weight=weight))
    heavy = weight > 1e-8
    # Rows of next to no weight say nothing of the others.
    others = rows.rows(np.flatnonzero(heavy))._replace(weight=weight[heavy])
    assert found == pytest.approx(evidence.leave_one_out_density(at, others), rel=1e-6)


def test_a_covariance_without_a_factor_is_no_maximum(rows):
    kernel = ConstantKernel(1.0, (1e-5, 1e300)) * RBF([1e8, 1e8, 1e8], (1e-5, 1e9))
    at = hyperparameters_of(kernel, noise=1e-30)[0]
    value, gradient = evidence.value_and_gradient(at, rows)
    assert value == -np.inf
    assert not np.any(jax.flatten_util.ravel_pytree(gradient)[0])
    assert evidence.leave_one_out_density(at, rows) == evidence.held_out_density(at, rows, rows) == -np.inf


@pytest.mark.slow
def test_a_search_with_too_little_noise_for_a_factor_begins_with_more(rng):
    """As the noise of few rows of a smooth function is for more of them."""
    X = rng.normal(size=(200, 3))
    rows = Table(X, np.sin(X @ [1.0, 0.5, 0.0])[None] + 1e-3 * rng.normal(size=(1, 200)), np.ones(200))
    start, *bounds = hyperparameters_of(ConstantKernel() * RBF([5.0, 5.0, 5.0]), noise=1e-6)
    bounds[0], without = (each._replace(noise=np.log(1e-17)) for each in (bounds[0], start))
    assert evidence.value_and_gradient(without, rows)[0] == -np.inf
    best, found = (evidence.maximise(each, bounds, rows, gain=EXACT) for each in (start, without))
    assert found.evidence == pytest.approx(best.evidence, abs=1e-2)
    # A fixed noise stays.
    fixed = [each._replace(noise=without.noise) for each in bounds]
    assert evidence.maximise(without, fixed, rows, gain=EXACT).evidence == -np.inf


def test_lbfgs_goes_on_beside_an_impossible_region():
    """With an infinite or a huge value there it would end where it meets it first."""
    visited = []

    def loss(x):
        visited.append(x[0])
        if x[0] > 3.5:
            return np.inf, np.full(2, np.nan)
        away = x - [3.0, 0.7]
        value = 10.0 * np.log1p(50.0 * away @ away) + away[0] ** 2
        return value, 1000.0 * away / (1.0 + 50.0 * away @ away) + [2.0 * away[0], 0.0]

    found = optimize.minimize(turning_back(loss), [-2.0, -4.0], jac=True, method="L-BFGS-B", bounds=[(-10, 10)] * 2)
    assert max(visited) > 3.5
    np.testing.assert_allclose(found.x, [3.0, 0.7], atol=1e-4)
    assert turning_back(loss)(np.array([4.0, 0.0]))[0] == np.finfo(float).max


@pytest.mark.slow
def test_a_search_turns_back_from_where_there_is_no_factor(rng, monkeypatch):
    """Of heavy rows of a function without noise, whose evidence rises towards a noise that leaves no factor."""
    X = rng.uniform(size=(300, 5))
    y = 10.0 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20.0 * (X[:, 2] - 0.5) ** 2 + 10.0 * X[:, 3] + 5.0 * X[:, 4]
    table = Table(3.5 * (X - 0.5), ((y - y.mean()) / y.std())[None], np.full(300, 1e4))
    logs = [jax.tree.map(np.log, each) for each in kernels.from_sklearn(ConstantKernel() * RBF(np.ones(5)), 5)]
    start, *bounds = map(Hyperparameters, logs, np.log([0.1, 1e-8, 1e3]))
    values, objective = [], evidence.Objective.__call__

    def recorded(self, x):
        found = objective(self, x)
        values.append(found[0])
        return found

    monkeypatch.setattr(evidence.Objective, "__call__", recorded)
    found = evidence.maximise(start, bounds, table, gain=EXACT)
    first = int(np.argmin(values))
    assert values[first] == -np.inf
    assert found.evidence > max(values[:first]) + 100.0


def test_the_first_step_stays_near_a_start_with_a_huge_gradient(rows, monkeypatch):
    """Of L-BFGS it would be the gradient itself, and lead to a corner of the bounds."""
    start, *bounds = hyperparameters_of(ConstantKernel() * RBF([3.0, 3.0, 3.0]), noise=1e-5)
    value, slope = evidence.value_and_gradient(start, rows)
    tried, objective = [], evidence.Objective.__call__

    def recorded(self, x):
        tried.append(x)
        return objective(self, x)

    monkeypatch.setattr(evidence.Objective, "__call__", recorded)
    assert np.abs(jax.flatten_util.ravel_pytree(slope)[0]).max() > 1e4
    best = evidence.maximise(start, bounds, rows, gain=EXACT)
    assert np.abs(tried[1] - tried[0]).max() <= 1.0 + 1e-12
    assert best.evidence > value + 1000.0


@pytest.mark.parametrize("scale", [1e3, 1e5, 1e80])
def test_the_end_is_a_maximum_however_steep_the_start(scale, rng):
    X = rng.normal(size=(60, 2))
    y = np.sin(3.0 * X[:, 0]) + 0.1 * rng.normal(size=60)
    table = Table(X, y[None], np.ones(60))
    logs = [
        jax.tree.map(np.log, each)
        for each in kernels.from_sklearn(ConstantKernel(1.0, (1e-9, 1e250)) * RBF([1.0, 1.0]), 2)
    ]
    start, *bounds = map(Hyperparameters, logs, np.log([0.1, 1e-9, 1e250]))
    found = evidence.maximise(start, bounds, table._replace(y=scale * y[None]), gain=EXACT)
    # The best is near -60 log(scale), and the start is below minus the scale's square.
    assert found.evidence > -100.0 * np.log(scale)
    if scale == 1e3:
        # The amplitude and the noise are those of y times the scale's square.
        unit = evidence.maximise(start, bounds, table, gain=EXACT)
        assert found.evidence == pytest.approx(unit.evidence - 60 * np.log(scale), abs=1e-3)
    if scale < 1e10:
        _, slope = evidence.value_and_gradient(found.hyperparameters, table._replace(y=scale * y[None]))
        assert np.abs(jax.flatten_util.ravel_pytree(slope)[0]).max() < 1e-2
