"""Counts in one step: the best q against a general optimizer, quadrature, and a generalised linear model."""

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize, stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct
from sklearn.linear_model import PoissonRegressor

from skgp_natgrad import NGDSVGPRegressor, svgp
from skgp_natgrad._backend import device
from skgp_natgrad._backend.flat import flat, rebuilt
from skgp_natgrad.likelihoods import Gaussian, NegativeBinomial, Poisson
from skgp_natgrad.solve import newton
from skgp_natgrad.solve.system import prior_of, whitened
from skgp_natgrad.start import routes

KERNEL = ConstantKernel(0.8) * RBF(0.7)


def counts(seed, n=70, n_targets=1):
    """Rows, counts with exposures and weights."""
    rng = np.random.default_rng(seed)
    X, offset = rng.uniform(-2, 2, (n, 2)), np.log(rng.uniform(0.2, 4.0, (n_targets, n)))
    y = rng.poisson(np.exp(offset + np.sin(2.0 * X[:, 0])), (n_targets, n)).astype(float)
    return svgp.Table(X, y, rng.uniform(0.2, 2.0, n), offset)


def problem(table, kernel=KERNEL, likelihood=None, n_inducing=8):
    """Parameters and constants of some inducing points, and the batch of all rows."""
    plan = svgp.Plan((kernel,), likelihood or Poisson(), n_inducing=n_inducing, inducing_init="random")
    state, constants = svgp.init(plan, table, random_state=0)
    return state.parameters, constants, newton.filled_up(table)


@pytest.fixture(autouse=True)
def on_the_cpu():
    with device.computation("cpu"):
        yield


def rows_of(parameters, constants, batch):
    """Rows whitened by the points, and what these leave unexplained."""
    prior = prior_of(parameters, constants.masks, constants.jitter)
    (A,), (residual,) = whitened(parameters.log_kernels, prior, batch.X)
    return A[np.asarray(prior.mask) > 0.0], residual


def bound_by_quadrature(m, root, A, residual, batch, constants, k):
    """The bound of N(m, root root^T) for one target: expectations by Gauss-Hermite, probabilities by SciPy."""
    rows = batch.weight > 0.0
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    mean = np.asarray(batch.prior_mean(constants))[k, rows] + m @ A[:, rows]
    var = residual[rows] + ((root.T @ A[:, rows]) ** 2).sum(0)
    f = mean[:, None] + np.sqrt(var)[:, None] * nodes
    each = stats.poisson.logpmf(np.asarray(batch.y)[k, rows, None], np.exp(f)) @ weights / weights.sum()
    divergence = 0.5 * ((root**2).sum() + m @ m - len(m)) - np.log(np.abs(np.diag(root))).sum()
    return float(batch.weight[rows] @ each) - divergence


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_no_other_gaussian_has_a_larger_bound(seed):
    """A general optimizer over means and triangular roots, with quadrature, ends at the same bound and the same q."""
    table = counts(seed, n=40)
    parameters, constants, batch = problem(table, n_inducing=5)
    fit = newton.best_q(parameters, constants, batch)
    A, residual = rows_of(parameters, constants, batch)
    lower = np.tril_indices(5)

    def unpacked(x):
        root = np.zeros((5, 5))
        root[lower] = x[5:]
        return x[:5], root

    start = np.concatenate([np.zeros(5), 0.5 * np.eye(5)[lower]])
    found = optimize.minimize(
        lambda x: -bound_by_quadrature(*unpacked(x), A, residual, batch, constants, 0), start, options={"gtol": 1e-5}
    )
    m, root = unpacked(found.x)
    assert_allclose(fit.bounds[-1], -found.fun, rtol=0.0, atol=1e-7)
    assert_allclose(fit.q.mean[0, :5], m, atol=1e-4)
    assert_allclose(fit.q.cov[0, :5, :5], root @ root.T, atol=1e-4)


def test_each_target_has_its_own_q():
    table = counts(2, n_targets=2)
    parameters, constants, batch = problem(table)
    together = newton.best_q(parameters, constants, batch)
    total = 0.0
    for k in range(2):
        one = table._replace(y=table.y[k : k + 1], offset=table.offset[k : k + 1])
        alone = newton.best_q(*problem(one))
        assert_allclose(together.q.mean[k], alone.q.mean[0], atol=1e-6)
        total += alone.bounds[-1]
    assert_allclose(together.bounds[-1], total, atol=1e-7)


def test_a_gaussian_likelihood_ends_after_one_turn():
    """At the collapsed bound, the log density of N(0, A^T A + noise) less the trace of what is unexplained."""
    table = counts(3)._replace(offset=None)
    likelihood = Gaussian(0.3)
    parameters, constants, batch = problem(table, likelihood=likelihood)
    fit = newton.best_q(parameters, constants, batch)
    A, residual = rows_of(parameters, constants, batch)
    A, residual = A[:, : table.n_rows], residual[: table.n_rows]
    noise = 0.3 / table.weight
    y = table.y[0] - np.asarray(constants.prior_mean)[0]
    exact = stats.multivariate_normal.logpdf(y, np.zeros(len(y)), A.T @ A + np.diag(noise))
    # A row of weight w is w observations.
    exact += 0.5 * (np.log(2.0 * np.pi * noise) - table.weight * np.log(2.0 * np.pi * 0.3)).sum()
    assert len(fit.bounds) == 1
    assert fit.status is None
    assert_allclose(fit.bounds[0], exact - 0.5 * (residual / noise).sum(), rtol=1e-10)


def test_the_slope_is_that_of_the_largest_bound():
    parameters, constants, batch = problem(counts(4))
    start = tuple(parameters[:2])

    def of(x):
        log_kernels, raw_likelihood = rebuilt(x, start)
        there = parameters._replace(log_kernels=log_kernels, raw_likelihood=raw_likelihood)
        return there, newton.best_q(there, constants, batch)

    x = flat(start)
    there, fit = of(x)
    slope = flat(newton.slope(there, constants, batch, fit.q))
    steps = 1e-4 * np.eye(len(x))
    differences = [(of(x + d)[1].bounds[-1] - of(x - d)[1].bounds[-1]) / 2e-4 for d in steps]
    assert_allclose(slope, differences, rtol=1e-4, atol=1e-5)


def test_bounds_rise_and_the_mean_is_stationary():
    parameters, constants, batch = problem(counts(5), ConstantKernel(3.0) * RBF(0.7), n_inducing=None)
    fit = newton.best_q(parameters, constants, batch)
    assert np.all(np.diff(fit.bounds) >= -1e-6)
    assert fit.status is None
    assert np.all(np.isfinite(flat(jax.tree.map(np.asarray, fit.q))))
    # At the best q the expected gradient balances the prior's: m = A g.
    A, _ = rows_of(parameters, constants, batch)
    rate = np.exp(fit.mean[0] + 0.5 * fit.var[0])
    assert_allclose(fit.q.mean[0, : len(A)], A @ (batch.weight * (batch.y[0] - rate)), atol=2e-3)


@pytest.mark.slow
def test_a_q_from_which_rates_overflow_is_no_start():
    """The q of other hyperparameters may be useless here: under a wider kernel its mean is farther from the prior."""
    table = counts(11)
    table = table._replace(y=np.where(np.arange(table.n_rows) % 2, 0.0, 1e6)[None], offset=None)
    narrow, constants, batch = problem(table, ConstantKernel(0.5) * RBF(1.0), n_inducing=None)
    wide = problem(table, ConstantKernel(50.0) * RBF(0.3), n_inducing=None)[0]
    afar = newton.best_q(narrow, constants, batch).q
    found = [newton.best_q(wide, constants, batch, start).bounds for start in (None, afar)]
    assert np.all(np.isfinite(found[1]))
    assert np.all(np.diff(found[1]) >= 0.0)
    assert_allclose(found[1][-1], found[0][-1], rtol=1e-9)


def test_turns_that_do_not_suffice_are_a_status(monkeypatch):
    monkeypatch.setattr(newton, "_TURNS", 2)
    fit = newton.best_q(*problem(counts(5)))
    assert (len(fit.bounds), fit.status) == (2, "turns")


@pytest.mark.slow
def test_turns_that_did_not_suffice_are_told(monkeypatch):
    monkeypatch.setattr(newton, "_TURNS", 2)
    table = counts(12)
    reg = NGDSVGPRegressor(ConstantKernel(3.0, "fixed") * RBF(0.7, "fixed"), likelihood="poisson", random_state=0)
    with pytest.warns(ConvergenceWarning, match="It had not converged after 2 turns.*solver='ngd'"):
        reg.fit(table.X, table.y[0], offset=table.offset[0])
    assert reg.n_iter_ == 2


@pytest.mark.slow
def test_of_a_linear_kernel_it_is_the_generalised_linear_model():
    """Under a wide prior of linear functions the mode is that of maximum likelihood."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(2000, 2))
    y = rng.poisson(np.exp(1.5 + X @ [0.5, -0.3])).astype(float)
    reg = NGDSVGPRegressor(
        ConstantKernel(10.0, "fixed") * DotProduct(1.0, "fixed"), likelihood="poisson", normalize_X=False
    ).fit(X, y)
    linear = PoissonRegressor(alpha=0.0, tol=1e-10, max_iter=1000).fit(X, y)
    new = rng.normal(size=(20, 2))
    assert "Newton steps on all rows" in reg.plan_
    assert_allclose(reg.predict_latent(new), np.log(linear.predict(new)), atol=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("exposed", [False, True])
def test_nothing_set_it_finds_the_rate(exposed):
    """One smooth effect on counts, with exposures and without: within what the rows can tell."""
    rng = np.random.default_rng(7)
    X, offset = rng.uniform(0, 10, (400, 1)), np.log(rng.uniform(0.5, 1.5, 400)) * exposed
    truth = 0.5 + 0.8 * np.sin(X[:, 0])
    y = rng.poisson(np.exp(offset + truth))
    reg = NGDSVGPRegressor(likelihood="poisson", random_state=0).fit(X, y, offset=offset if exposed else None)
    mean, std = reg.predict_latent(X, return_std=True)
    assert reg.n_iter_ < 30
    assert np.sqrt(np.mean((mean - truth) ** 2)) < 0.15
    assert 0.75 < np.mean(np.abs(mean - truth) < 1.645 * std) <= 1.0


@pytest.mark.slow
def test_counts_that_vary_more_than_their_rate_get_a_wide_density():
    """Of counts that vary as a negative binomial, held-out rows choose a prior that is wide enough."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(600, 6))
    y = rng.poisson(np.exp(1.0 + 0.3 * X[:, 0]) * rng.gamma(0.7, 1.0 / 0.7, 600))
    reg = NGDSVGPRegressor(likelihood="poisson", random_state=0).fit(X[:450], y[:450])
    linear = PoissonRegressor(alpha=1e-3).fit(X[:450], y[:450])
    without = stats.poisson.logpmf(y[450:], linear.predict(X[450:])).mean()
    assert reg.predict_log_density(X[450:], y[450:]).mean() > without + 0.5


@pytest.mark.parametrize(("solver", "name"), [("evidence", "Newton step"), ("ngd", "iteration")])
def test_the_text_on_a_fit_counts_its_steps(solver, name):
    one, two = (routes.route_of(solver, Poisson()).described(svgp.Plan(), n_iter) for n_iter in (1, 2))
    assert f"1 {name} o" in one
    assert f"2 {name}s o" in two


def test_what_it_does_not_take_is_said():
    table = counts(9)
    with pytest.raises(ValueError, match=r"n_mean_inducing=3.*solver='ngd'"):
        NGDSVGPRegressor(KERNEL, likelihood="poisson", solver="evidence", n_mean_inducing=3).fit(table.X, table.y[0])
    with pytest.raises(ValueError, match="one kernel for all"):
        NGDSVGPRegressor([KERNEL, KERNEL], likelihood="poisson", solver="evidence").fit(
            table.X, np.column_stack([table.y[0], table.y[0]])
        )


@pytest.mark.slow
def test_another_likelihood_is_one_attribute(monkeypatch):
    """Parameters of the likelihood are at the largest bound, too: the dispersion of counts is found."""
    monkeypatch.setattr(NegativeBinomial, "by_newton", True)
    rng = np.random.default_rng(10)
    X, size = rng.uniform(0, 6, (1500, 1)), 2.0
    truth = 1.5 + np.sin(X[:, 0])
    y = rng.poisson(np.exp(truth) * rng.gamma(size, 1.0 / size, 1500))
    reg = NGDSVGPRegressor(likelihood="negative_binomial", random_state=0).fit(X, y)
    mean, std = reg.predict_latent(X, return_std=True)
    assert "Newton steps on all rows" in reg.plan_
    assert 0.8 / size < reg.likelihood_.dispersion < 1.25 / size
    assert np.sqrt(np.mean((mean - truth) ** 2)) < 2.0 * std.mean()
