"""q in closed form: against the collapsed bound, exact processes and refits without a row."""

import jax
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern

from skgp_natgrad import svgp
from skgp_natgrad.kernels import amplitudes, from_sklearn
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.solve import closed_form, noise_search

from .conftest import left_out_density, on_points

KERNEL = ConstantKernel(1.3) * Matern([1.0, 0.7], nu=1.5)
FIXED = Gaussian(0.2, "fixed")
STEP = svgp.Settings(algorithm=svgp.Algorithm(solver="evidence"))


def table_of(rng, n=50, n_targets=1):
    X = rng.normal(size=(n, 2))
    y = np.sin(2.0 * X.sum(1)) + 0.4 * rng.normal(size=(n_targets, n))
    return svgp.Table(X, y, rng.uniform(0.5, 2.0, size=n))


def plan_of(likelihood=FIXED, n_inducing=None, kernels=(KERNEL,)):
    return svgp.Plan(kernels=kernels, likelihood=likelihood, n_inducing=n_inducing, jitter=1e-12, settings=STEP)


def trained(plan, table):
    return svgp.train(*svgp.init(plan, table, random_state=0), table, plan, random_state=0)


def test_every_row_an_inducing_point_is_the_exact_process(rng):
    table, X = table_of(rng), rng.normal(size=(20, 2))
    result = trained(plan_of(), table)
    model, _ = svgp.condition(result.state, result.constants, plan_of(), exact=result.posterior)
    exact = GaussianProcessRegressor(KERNEL, alpha=0.2 / table.weight, optimizer=None).fit(table.X, table.y[0])
    mean, deviation = exact.predict(X, return_std=True)
    found = svgp.predict(model, X)
    np.testing.assert_allclose(found[0][0], mean, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(found[1][0], deviation**2, rtol=1e-6)


@pytest.mark.parametrize("n_outputs", [1, 2])
def test_q_follows_from_the_rows(rng, n_outputs):
    """What a fitted estimator does not keep, and a later fit computes again."""
    table, plan = table_of(rng, n_targets=n_outputs), plan_of(n_inducing=12)
    previous = trained(plan, table).previous
    found = svgp.with_best_q(plan, table, previous._replace(q=None))
    for expected, again in zip(previous.q, found.q, strict=True):
        np.testing.assert_allclose(again, expected, rtol=1e-9, atol=1e-9)
    # On fewer points: the best q of a fit that has only these.
    fewer = svgp.with_best_q(plan._replace(n_inducing=6), table, previous)
    Z = fewer.parameters.points.Z[fewer.masks.Z > 0.0]
    assert len(Z) == 6
    alone = trained(plan._replace(n_inducing=6, inducing_init=Z), table).previous.q
    np.testing.assert_allclose(fewer.q.mean[:, :6], alone.mean[:, :6], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("shared", [True, False])
def test_the_bound_is_the_collapsed_one(rng, shared):
    table = table_of(rng, n_targets=2)
    kernels = (KERNEL,) if shared else (KERNEL, ConstantKernel(0.8) * RBF(1.1))
    plan = plan_of(Gaussian([0.2, 0.5], "fixed"), 12, kernels)
    state, constants = svgp.init(plan, table, random_state=0)
    result = svgp.train(state, constants, table, plan, random_state=0)
    Z, expected = np.asarray(state.parameters.points.Z)[np.asarray(constants.masks.Z) > 0], 0.0
    for k, noise in enumerate((0.2, 0.5)):
        kernel = kernels[0 if shared else k]
        Kzz = kernel(Z) + 1e-12 * np.mean(kernel.diag(Z)) * np.eye(len(Z))
        Q = kernel(table.X, Z) @ np.linalg.solve(Kzz, kernel(Z, table.X))
        C = Q + np.diag(noise / table.weight)
        # Titsias 2009; a weight multiplies a row's log density, its normalising constant included.
        log_det = np.linalg.slogdet(C)[1] + (table.weight * np.log(noise) - np.log(noise / table.weight)).sum()
        log_det += (table.weight - 1.0).sum() * np.log(2.0 * np.pi)
        fit = table.y[k] @ np.linalg.solve(C, table.y[k])
        trace = (table.weight * (kernel.diag(table.X) - np.diag(Q))).sum() / noise
        expected += -0.5 * (len(C) * np.log(2.0 * np.pi) + log_det + fit + trace)
    assert result.elbo == pytest.approx(expected, rel=1e-8)


def test_it_is_a_natural_gradient_step_of_size_one(rng):
    table = table_of(rng)
    result = trained(plan_of(n_inducing=12), table)
    steps = plan_of(n_inducing=12)._replace(settings=svgp.Settings(algorithm=svgp.Algorithm(optimizer=None)))
    state, constants = svgp.init(steps, table, random_state=0)
    state, _ = svgp.step(state, constants, svgp.batch(table), steps, gamma=1.0, rate=0.0)
    np.testing.assert_allclose(result.state.q.mean, state.q.mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(result.state.q.cov, state.q.cov, rtol=1e-9, atol=1e-10)
    _, report = svgp.step(state, constants, svgp.batch(table), steps, gamma=1.0, rate=0.0)
    assert result.elbo == pytest.approx(float(report.elbo), rel=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("n_inducing", [None, 12])
def test_leave_one_out_equals_refits_without_the_row(rng, x64, n_inducing):
    table, noise = table_of(rng, n=30), 0.2
    plan = plan_of(n_inducing=n_inducing)
    state, constants = svgp.init(plan, table, random_state=0)
    system = on_points(state.parameters, constants, table)
    found = left_out_density(system, np.log(noise))
    points = np.asarray(state.parameters.points.Z)[np.asarray(constants.masks.Z) > 0]
    each = []
    for i in range(30):
        rest = np.delete(np.arange(30), i)
        part = svgp.Table(table.X[rest], table.y[:, rest], table.weight[rest])
        fixed = plan._replace(n_inducing=len(points), inducing_init=points)
        without = trained(fixed, part)
        model, _ = svgp.condition(without.state, without.constants, fixed)
        mean, var = (value[0, 0] for value in svgp.predict(model, table.X[i : i + 1], "target_moments"))
        each.append(-0.5 * (np.log(2.0 * np.pi * var) + (table.y[0, i] - mean) ** 2 / var))
    # No row counts for more than one.
    assert found == pytest.approx(np.average(each, weights=np.minimum(table.weight, 1.0)), rel=1e-6)


def test_held_out_rows_are_like_new_ones(rng, x64):
    """All rows that are no points, however well the points explain them: here the far ones are the quiet ones."""
    X = np.sort(rng.normal(size=(600, 2)), axis=0) * np.where(np.arange(600) % 5, 1.0, 6.0)[:, None]
    y = np.where(np.arange(600) % 5, 0.5, 0.01) * rng.normal(size=600)
    table = svgp.Table(X, y[None], np.ones(600))
    plan = plan_of(Gaussian(0.2), kernels=(4.0 * RBF(8.0),), n_inducing=60)
    state, constants = svgp.init(plan, table, random_state=0)
    held = closed_form.held_out_rows(state.parameters, constants, table, np.random.RandomState(0))
    points = np.asarray(state.parameters.points.Z)[np.asarray(constants.masks.Z) > 0]
    apart = (X[:, None] != points).any(-1).all(1)
    assert 0 < apart.sum() < 600
    assert_array_equal(np.asarray(held.weight)[0, :600] > 0.0, apart)
    solved = closed_form.solve(state.parameters, constants, table, np.random.RandomState(0))
    variance = float(np.exp(np.ravel(solved.parameters.raw_likelihood.variance)[0]))
    assert variance == pytest.approx(y[apart].var(), rel=0.1)


@pytest.mark.parametrize(("ratio", "rtol"), [(1e4, 1e-10), (1e8, 1e-7), (1e12, 1e-5)])
@pytest.mark.parametrize("length_scale", [1.0, 4.0])
def test_leave_one_out_is_exact_at_small_noise(rng, x64, length_scale, ratio, rtol):
    """Up to N k / s^2 = ratio, also at rows that the points explain: against least squares by a QR factorisation."""
    X, noise = rng.uniform(-2.0, 2.0, size=(400, 2)), 400.0 / ratio
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2
    table = svgp.Table(X, y[None] - y.mean(), np.ones(400))
    plan = plan_of(Gaussian(noise, (1e-14, 10.0)), n_inducing=60, kernels=(1.0 * RBF(length_scale),))
    plan = plan._replace(inducing_init="random", jitter=1e-10)
    state, constants = svgp.init(plan, table, random_state=0)
    system = on_points(state.parameters, constants, table)
    found = left_out_density(system, np.log(noise))
    A, residual, y, counts = (
        np.asarray(each)[0][..., :400] for each in (system.A, system.residual, system.held.y, system.held.weight)
    )
    Q, R = np.linalg.qr(np.vstack([A.T / np.sqrt(noise), np.eye(len(A))]))
    w = np.linalg.solve(R, Q[:400].T @ y / np.sqrt(noise))
    leverage = (Q[:400] ** 2).sum(1)
    variance = residual + noise * leverage / (1.0 - leverage) + noise
    each = stats.norm(0.0, np.sqrt(variance)).logpdf((y - A.T @ w) / (1.0 - leverage))
    assert found == pytest.approx(each[counts > 0.0].mean(), rel=rtol)


def test_noise_and_scale_have_the_largest_leave_one_out_density(rng, x64):
    table = table_of(rng, n=60)
    plan = plan_of(Gaussian(0.05))
    state, constants = svgp.init(plan, table, random_state=0)
    solved = closed_form.solve(state.parameters, constants, table, np.random.RandomState(0))

    def density(log_noise, log_scale):
        logs = jax.tree.map(
            lambda value, part: value + log_scale * part,
            solved.parameters.log_kernels[0],
            amplitudes(solved.parameters.log_kernels[0]),
        )
        raw = solved.parameters.raw_likelihood
        raw = raw.with_leaves([raw.variance + log_noise + log_scale])
        at = solved.parameters._replace(log_kernels=(logs,), raw_likelihood=raw)
        system = on_points(at, constants, table)
        return left_out_density(system, float(np.ravel(raw.variance)[0]))

    best = density(0.0, 0.0)
    assert best == pytest.approx(solved.held_out.mean, rel=1e-6)
    for log_noise, log_scale in ((0.4, 0.0), (-0.4, 0.0), (0.0, 0.1), (0.0, -0.1)):
        assert density(log_noise, log_scale) < best


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
def test_each_target_has_the_variance_of_its_errors(rng, shared):
    """One is noisy and one is not; held-out errors, in predicted deviations, have a variance near one."""
    X = rng.uniform(-2.0, 2.0, size=(300, 2))
    y = np.stack([np.sin(3.0 * X[:, 0]) + 0.3 * rng.normal(size=300), X[:, 1]])
    table, kernel = svgp.Table(X[:200], y[:, :200], np.ones(200)), ConstantKernel(1.0) * Matern([1.0, 1.0], nu=2.5)
    plan = plan_of(Gaussian(0.01), kernels=(kernel,) if shared else (kernel, kernel))
    result = trained(plan, table)
    model, _ = svgp.condition(result.state, result.constants, plan, exact=result.posterior)
    mean, var = svgp.predict(model, X[200:], "target_moments")
    spread = np.sqrt(np.mean((y[:, 200:] - mean) ** 2 / var, axis=1))
    # One kernel has one scale for both.
    assert np.all(spread > (0.3 if shared else 0.6))
    assert np.all(spread < 1.5)
    # The bound is that of the parameters that are stored.
    raw = result.state.parameters.raw_likelihood.variance
    held = plan_of(Gaussian(np.exp(np.ravel(raw)), "fixed"), kernels=model.kernels)
    assert trained(held, table).elbo == pytest.approx(result.elbo, rel=1e-6)


@pytest.mark.slow
def test_a_fixed_kernel_gets_the_noise_that_suits_it(rng, x64, monkeypatch):
    """In place of the noise for a scale that it may not have; a larger noise that is as good is not taken here."""
    monkeypatch.setattr(noise_search._Level, "most_noise", lambda self, tried, most: self._best)
    table, kernel = table_of(rng, n=80), ConstantKernel(50.0, "fixed") * Matern([1.0, 0.7], nu=1.5)
    state, constants = svgp.init(plan_of(Gaussian(0.2), kernels=(kernel,)), table, random_state=0)
    solved = closed_form.solve(state.parameters, constants, table, np.random.RandomState(0))
    system = on_points(state.parameters, constants, table)
    log_noise = float(np.ravel(solved.parameters.raw_likelihood.variance)[0])
    others = np.linspace(np.log(0.2) - 4.0, np.log(0.2) + 10.0, 60)
    best = max(left_out_density(system, each) for each in others)
    assert left_out_density(system, log_noise) == pytest.approx(solved.held_out.mean, rel=1e-9)
    assert solved.held_out.mean > best - 1e-3


def test_bounds_hold(rng):
    table = table_of(rng)
    kernel = ConstantKernel(1.3, "fixed") * Matern([1.0, 0.7], nu=1.5)
    result = trained(plan_of(Gaussian(0.2, (0.15, 0.25)), kernels=(kernel,)), table)
    assert float(np.exp(result.state.parameters.log_kernels[0].k1.constant_value)) == pytest.approx(1.3, rel=1e-14)
    assert 0.15 <= float(np.exp(result.state.parameters.raw_likelihood.variance).ravel()[0]) <= 0.25
    result = trained(plan_of(FIXED), table)
    assert float(np.exp(result.state.parameters.raw_likelihood.variance).ravel()[0]) == pytest.approx(0.2, rel=1e-14)


@pytest.mark.parametrize(
    "kernel",
    [
        KERNEL,
        Matern(1.0, nu=0.5) * ConstantKernel(2.0) + ConstantKernel(0.5) * DotProduct(1.0),
        ConstantKernel(2.0) + ConstantKernel(3.0) * RBF(1.0) * Matern(1.0),
    ],
)
def test_amplitudes_multiply_the_whole_kernel(kernel, rng, x64):
    value, X = from_sklearn(kernel, 2).value, rng.normal(size=(6, 2))
    scaled = jax.tree.map(lambda each, part: each * 1.7**part, value, amplitudes(value))
    np.testing.assert_allclose(scaled(X, X), 1.7 * np.asarray(value(X, X)), rtol=1e-12)


@pytest.mark.parametrize("kernel", [RBF(1.0), RBF(1.0) + ConstantKernel(1.0) * RBF(2.0)])
def test_a_kernel_without_a_factor_has_no_amplitude(kernel):
    assert not any(map(np.any, jax.tree.leaves(amplitudes(from_sklearn(kernel, 2).value))))
