"""A regression with an inducing point at every row: the exact Gaussian process, without a variational Gaussian."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern

from skgp_natgrad import NGDSVGPRegressor, svgp
from skgp_natgrad._backend import device, placement
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.prediction.posterior import latent_moments
from skgp_natgrad.solve import closed_form, exact

KERNEL = ConstantKernel(1.3) * Matern([0.7, 1.9], nu=1.5) + ConstantKernel(0.4) * DotProduct(0.5)
pytestmark = pytest.mark.usefixtures("x64")
SETTINGS = svgp.Settings(algorithm=svgp.Algorithm(solver="evidence", optimizer=None))


def problem(rng, n=50, n_targets=1, noise=0.05, **of_table):
    X = rng.normal(size=(n, 2))
    y = np.sin(2.0 * X.T[:1]) + X.T[1:] + noise**0.5 * rng.normal(size=(n_targets, n))
    table = svgp.Table(X, y, np.ones(n))._replace(**of_table)
    plan = svgp.Plan((KERNEL,), Gaussian(np.full(n_targets, noise)), n_inducing=None, jitter=1e-14, settings=SETTINGS)
    return table, plan, *svgp.init(plan, table, random_state=0)


def solved(table, state, constants, searches=False):
    given = state.parameters, constants, table, np.random.RandomState(0), len(table.X)
    return closed_form.solve(*given, searches=searches)


def of_scikit_learn(table, noise, x):
    process = GaussianProcessRegressor(KERNEL, alpha=noise, optimizer=None).fit(table.X, table.y[0])
    mean, deviation = process.predict(x, return_std=True)
    return mean, deviation**2, process.log_marginal_likelihood_value_


def test_it_is_scikit_learns(rng):
    table, _, state, constants = problem(rng)
    found, x = solved(table, state, constants), rng.normal(size=(20, 2))
    assert found.q is None
    mean, variance, evidence = of_scikit_learn(table, 0.05, x)
    moments = latent_moments((KERNEL,), found.posterior, x, xp=np)
    assert_allclose(moments[0][0], mean, rtol=1e-9, atol=1e-10)
    assert_allclose(moments[1][0], variance, rtol=1e-8, atol=1e-10)
    assert_allclose(found.elbo, [evidence], rtol=1e-10)


def test_rows_left_out_are_predicted_by_the_others(rng):
    table, _, state, constants = problem(rng, n=30)
    left_out = solved(table, state, constants).left_out
    for i in range(30):
        others = table.rows(np.arange(30) != i)
        mean, variance, _ = of_scikit_learn(others, 0.05, table.X[i : i + 1])
        assert_allclose(left_out.error[0, i], table.y[0, i] - mean[0], rtol=1e-8)
        assert_allclose(left_out.latent[0, i], variance[0], rtol=1e-7)


@pytest.mark.parametrize("searches", [False, True])
@pytest.mark.parametrize("n_targets", [1, 2])
def test_it_is_the_solution_on_inducing_points(rng, monkeypatch, n_targets, searches):
    table, plan, state, constants = problem(rng, 120, n_targets)
    found = solved(table, state, constants, searches)
    monkeypatch.setattr(exact, "places", lambda *_: None)
    expected = solved(table, *svgp.init(plan, table, random_state=0), searches)
    assert_allclose(found.elbo, expected.elbo, rtol=1e-8)
    assert_allclose(found.held_out, expected.held_out, rtol=1e-7)
    assert_allclose(found.parameters.raw_likelihood.variance, expected.parameters.raw_likelihood.variance, atol=1e-7)
    for name in ("error", "latent", "noise", "y", "weight", "n_each", "width"):
        # Padding differs.
        one, other = (np.asarray(getattr(each.left_out, name))[..., :120] for each in (found, expected))
        assert_allclose(one, other, rtol=1e-5, atol=1e-7, err_msg=name)
    assert_allclose(found.left_out.X[:120], expected.left_out.X[:120])
    model, _ = svgp.condition(state._replace(q=expected.q, parameters=expected.parameters), constants, plan)
    x, kernels = rng.normal(size=(20, 2)), model.kernels
    moments = [latent_moments(kernels, each, x, xp=np) for each in (found.posterior, model.posterior)]
    assert_allclose(*moments, rtol=1e-5, atol=1e-8)


def weighted(table, rng):
    return table._replace(weight=rng.uniform(0.2, 3.0, size=table.n_rows))


def repeated_in_part(table, rng):
    """Rows of equal X, with other targets and weights, one of which is nothing."""
    X, weight = table.X.copy(), rng.integers(1, 4, size=table.n_rows).astype(float)
    X[20:30], X[30:35] = X[:10], X[:5]
    weight[0] = 0.0
    return table._replace(X=X, weight=weight)


def with_known_noise(table, rng):
    return table._replace(known=rng.uniform(0.0, 0.5, size=table.y.shape))


def with_missing_targets(table, rng):
    y = table.y.copy()
    y[0, 3], y[-1, 7:9] = np.nan, np.nan
    return table._replace(y=y)


def with_all(table, rng):
    for more in (repeated_in_part, with_known_noise, with_missing_targets):
        table = more(table, rng)
    return table


def given_the_others(table, k, noise, x, without=None):
    """Mean and variance at ``x`` of the k-th target, plainly: each row with the noise of its weight.

    ``without`` is a row and the part of its weight that is left out.
    """
    weight = np.where(np.isnan(table.y[k]), 0.0, table.weight)
    if without is not None:
        weight[without[0]] -= without[1]
    seen = weight > 0.0
    known = 0.0 if table.known is None else table.known[k, seen]
    K = KERNEL(table.X[seen]) + np.diag((noise + known) / weight[seen])
    across = np.linalg.solve(K, KERNEL(table.X[seen], x))
    return across.T @ table.y[k, seen], KERNEL.diag(x) - (across * KERNEL(table.X[seen], x)).sum(0)


@pytest.mark.parametrize(
    "changed", [weighted, repeated_in_part, with_known_noise, with_missing_targets, with_all], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("n_targets", [1, 2])
def test_rows_may_weigh_repeat_and_miss(rng, changed, n_targets, monkeypatch):
    table, plan, *_ = problem(rng, 50, n_targets)
    table = changed(table, rng)
    state, constants = svgp.init(plan, table, random_state=0)
    constants = constants._replace(prior_mean=0.0 * constants.prior_mean)
    found, x = solved(table, state, constants), rng.normal(size=(20, 2))
    assert found.q is None
    mean, variance = latent_moments((KERNEL,), found.posterior, x, xp=np)
    for k in range(n_targets):
        expected = given_the_others(table, k, 0.05, x)
        assert_allclose(mean[k], expected[0], rtol=1e-8, atol=1e-9)
        assert_allclose(variance[k], expected[1], rtol=1e-8, atol=1e-9)
        left_out = found.left_out
        for i in np.flatnonzero(np.isfinite(left_out.error[k])):
            # Of repeated rows with other targets one observation.
            part = 1.0 if left_out.n_each[k, i] > 1.0 else table.weight[i]
            one, other = given_the_others(table, k, 0.05, table.X[i : i + 1], (i, part))
            assert_allclose(left_out.error[k, i], table.y[k, i] - one[0], rtol=1e-8, atol=1e-9)
            assert_allclose(left_out.latent[k, i], other[0], rtol=1e-7, atol=1e-9)
    monkeypatch.setattr(exact, "places", lambda *_: None)
    on_points = solved(table, state, constants)
    assert_allclose(found.elbo, on_points.elbo, rtol=1e-8)
    assert_allclose(found.held_out, on_points.held_out, rtol=1e-7)


def test_xla_finds_the_same(rng, monkeypatch):
    table, plan, *_ = problem(rng, 50, 2)
    table = with_all(table, rng)
    given = table, *svgp.init(plan, table, random_state=0)
    with device.computation():
        expected = solved(*given)
        monkeypatch.setenv(placement.SWITCH, "1")
        found = solved(*given)
    assert_allclose(found.posterior.alpha, expected.posterior.alpha, rtol=1e-8, atol=1e-10)
    assert_allclose(found.posterior.reduction, expected.posterior.reduction, rtol=1e-8, atol=1e-10)
    assert_allclose(found.left_out.error, expected.left_out.error, rtol=1e-8)
    assert_allclose(found.elbo, expected.elbo, rtol=1e-10)


def test_each_target_may_have_its_kernel(rng):
    table, plan, *_ = problem(rng, 40, 2)
    kernels = KERNEL, ConstantKernel(0.7) * RBF([1.0, 0.4])
    together = plan._replace(kernels=kernels)
    found = solved(table, *svgp.init(together, table, random_state=0), searches=True)
    assert found.q is None
    for k, kernel in enumerate(kernels):
        alone = plan._replace(kernels=(kernel,), likelihood=Gaussian(0.05))
        one = solved(
            table._replace(y=table.y[k : k + 1]),
            *svgp.init(alone, table._replace(y=table.y[k : k + 1]), random_state=0),
            True,
        )
        assert_allclose(found.posterior.alpha[k], one.posterior.alpha[0], rtol=1e-8)
        assert_allclose(found.left_out.error[k], one.left_out.error[0], rtol=1e-8)


def test_where_it_is_not_the_exact_process_there_is_q(rng, monkeypatch):
    table, _, state, constants = problem(rng)
    few = 2.0**-30
    for other in (table._replace(X=table.X + few), table.rows(np.arange(49))):
        assert exact.places(state.parameters, constants, other) is None
    places = exact.places(state.parameters, constants, table)
    assert_allclose(np.asarray(state.parameters.points.Z)[places], table.X)
    # Of several processes each has a part of the rows.
    monkeypatch.setattr(exact.placement, "current", lambda: SimpleNamespace(n_processes=2))
    assert exact.places(state.parameters, constants, table) is None


def cholesky(A):
    """In extended precision."""
    L = np.zeros_like(A)
    for j in range(len(A)):
        L[j, j] = np.sqrt(A[j, j] - L[j, :j] @ L[j, :j])
        L[j + 1 :, j] = (A[j + 1 :, j] - L[j + 1 :, :j] @ L[j, :j]) / L[j, j]
    return L


def solve_lower(L, B):
    found = np.zeros_like(B)
    for i in range(len(L)):
        found[i] = (B[i] - L[i, :i] @ found[:i]) / L[i, i]
    return found


def in_extended_precision(K, across, variance, y, noise):
    """Means and variances at new rows, and errors and variances of rows left out."""
    K, across = (np.asarray(each, np.longdouble) for each in (K, across))
    identity = np.eye(len(K), dtype=np.longdouble)
    V = solve_lower(cholesky(K + np.longdouble(noise) * identity), identity)
    half, c = V @ across, (V * V).sum(0)
    alpha = V.T @ (V @ y.astype(np.longdouble))
    return across.T @ alpha, variance - (half * half).sum(0), alpha / c, 1.0 / c


def largest_errors(found, expected, noise):
    """Of means in deviations, and of variances relative to them: those of y."""
    (mean, variance, error, without), (mean_is, variance_is, error_is, without_is) = found, expected
    return np.array(
        [
            np.max(np.abs(mean - mean_is) / np.sqrt(variance_is + noise)),
            np.max(np.abs(variance - variance_is) / (variance_is + noise)),
            np.max(np.abs(error - error_is) / np.sqrt(without_is)),
            np.max(np.abs(without - without_is) / without_is),
        ]
    )


def digits(rng, kernel, noise, n=60):
    """The `largest_errors` of the exact process, and those that the last bit of the kernel's values makes."""
    X, x = rng.normal(size=(n, 2)), rng.normal(size=(15, 2))
    table = svgp.Table(X, (np.sin(2.0 * X.T[:1]) + noise**0.5 * rng.normal(size=(1, n))), np.ones(n))
    likelihood = Gaussian(noise, variance_bounds=(1e-14, 1e3))
    plan = svgp.Plan((kernel,), likelihood, n_inducing=None, settings=SETTINGS)
    state, constants = svgp.init(plan, table, random_state=0)
    found = solved(table, state, constants)
    assert found.q is None
    mean, variance = latent_moments((kernel,), found.posterior, x, xp=np)
    left_out = found.left_out.error[0, :n], found.left_out.variance[0, :n]
    K, across, y = kernel(X), kernel(X, x), table.y[0] - constants.prior_mean[0]
    expected = in_extended_precision(K, across, kernel.diag(x), y, noise)
    bits = np.triu(rng.uniform(-1.0, 1.0, size=(n, n)))
    bits = 1.0 + 0.5 * np.finfo(float).eps * np.asarray(bits + np.triu(bits, 1).T, np.longdouble)
    rounded = in_extended_precision(K * bits, across, kernel.diag(x), y, noise)
    moments = mean[0] - constants.prior_mean[0], variance[0], *left_out
    return largest_errors(moments, expected, noise), largest_errors(rounded, expected, noise)


@pytest.mark.parametrize("noise", [1e-2, 1e-4, 1e-6, 1e-8])
def test_its_digits_are_those_of_extended_precision(rng, noise):
    assert np.max(digits(rng, KERNEL, noise)[0]) < 1e-7


@pytest.mark.parametrize("noise", [1e-2, 1e-4, 1e-6, 1e-8, 1e-10])
def test_a_large_amplitude_costs_what_rounding_of_the_kernel_costs(rng, noise):
    """N k / s^2 goes from 6e7 to 6e15."""
    found, rounded = digits(rng, ConstantKernel(1e4) * RBF(10.0), noise)
    assert np.max(found) < 100.0 * np.max(rounded)


@pytest.mark.parametrize("noise", [1e-2, 1e-4, 1e-6, 1e-8])
def test_leave_one_out_has_the_digits_of_extended_precision(rng, noise):
    """Under a smooth kernel, whose leverages are nearly one."""
    X = rng.uniform(-1.0, 1.0, size=(60, 2))
    y = np.sin(3.0 * X[:, 0]) + noise**0.5 * rng.normal(size=60)
    kernel = RBF(3.0)
    plan = svgp.Plan((kernel,), Gaussian(noise), n_inducing=None, settings=SETTINGS)
    table = svgp.Table(X, y[None], np.ones(60))
    left_out = solved(table, *svgp.init(plan, table, random_state=0)).left_out
    L = cholesky(np.asarray(kernel(X), np.longdouble) + np.longdouble(noise) * np.eye(60, dtype=np.longdouble))
    V = solve_lower(L, np.eye(60, dtype=np.longdouble))
    c = (V * V).sum(0)
    error = V.T @ (V @ y.astype(np.longdouble)) / c
    assert_allclose(left_out.error[0, :60], error.astype(float), rtol=1e-4, atol=1e-5 * noise**0.5)
    assert_allclose(left_out.variance[0, :60], (1.0 / c).astype(float), rtol=1e-6)


@pytest.mark.filterwarnings("error")
def test_the_estimator_goes_on_from_it(rng):
    X = rng.normal(size=(60, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
    model = NGDSVGPRegressor(KERNEL, optimizer=None, random_state=0).fit(X, y)
    assert model.jitter_ == 0.0
    assert model._posterior.reduction is not None
    assert model._warm_state.q is None
    more = rng.normal(size=(20, 2))
    after = model.partial_fit(more, np.sin(more[:, 0])).predict(X[:5])
    together = NGDSVGPRegressor(KERNEL, optimizer=None, random_state=0).fit(
        np.r_[X, more], np.r_[y, np.sin(more[:, 0])]
    )
    assert_allclose(after, together.predict(X[:5]), atol=0.1)
