"""q for class labels with one covariance for all latent functions: stationarity, leave-one-out moments, scale."""

import pickle

import jax
import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import expit, softmax
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern
from sklearn.metrics import log_loss

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, svgp
from skgp_natgrad.estimators.arguments.reading import solver_of
from skgp_natgrad.kernels import algebra, from_sklearn
from skgp_natgrad.likelihoods import Bernoulli, Softmax, by_name
from skgp_natgrad.prediction import calibration
from skgp_natgrad.solve import class_labels, common_covariance, held_out_labels
from skgp_natgrad.solve.system import covariance_of, prior_of
from skgp_natgrad.variational import gaussian
from skgp_natgrad.variational.bound import bound_given_q

KERNEL = ConstantKernel(2.0, (1e-3, 1e3)) * Matern([1.0, 0.7], nu=1.5)
KERNEL_1D = ConstantKernel(2.0, (1e-3, 1e3)) * RBF()
FIXED = ConstantKernel(2.0, "fixed") * Matern([1.0, 0.7], nu=1.5)
STEPS = svgp.Settings(algorithm=svgp.Algorithm(solver="evidence"))


def table_of(rng, n_classes, n=50):
    X = rng.normal(size=(n, 2))
    f = np.stack([np.sin(2.0 * X @ rng.normal(size=2)) for _ in range(n_classes)])
    y = np.argmax(f + 0.5 * rng.gumbel(size=f.shape), axis=0)
    return svgp.Table(X, y[None].astype(float), rng.uniform(0.5, 2.0, size=n))


def plan_of(likelihood, n_classes, n_inducing=None, kernel=KERNEL):
    return svgp.Plan((kernel,), likelihood, n_classes, n_inducing=n_inducing, jitter=1e-12, settings=STEPS)


def prepared(plan, table):
    """What `fit_at_scale` needs."""
    plan = plan._replace(likelihood=plan.likelihood.prepare(table.y, plan.n_classes))
    state, constants = svgp.init(plan, table, random_state=0)
    prior = prior_of(state.parameters, constants.masks, constants.jitter)
    rows = common_covariance.rows_of_table(state.parameters, prior, table)
    return state.parameters, constants, rows


def exact_slopes(m, v, y, link):
    """dE/dm and dE/dv of E[log p(y | f)] under f ~ N(m, v), by quadrature."""

    def expectation(function):
        def integrand(z):
            f = m + np.sqrt(v) * z
            return function(f) * stats.norm.pdf(z)

        return integrate.quad(integrand, -12, 12, epsabs=1e-12, limit=200)[0]

    sign = 2.0 * y - 1.0
    if link == "logit":
        return expectation(lambda f: sign * expit(-sign * f)), -0.5 * expectation(lambda f: expit(f) * expit(-f))

    def ratio(f):
        return np.exp(stats.norm.logpdf(f) - stats.norm.logcdf(sign * f))

    first = expectation(lambda f: sign * ratio(f))
    return first, 0.5 * expectation(lambda f: -ratio(f) * (ratio(f) + sign * f))


@pytest.mark.slow
@pytest.mark.parametrize("link", ["probit", "logit"])
def test_two_classes_end_at_the_maximum_of_the_bound(rng, x64, link):
    table = table_of(rng, 2)
    parameters, constants, rows = prepared(plan_of(Bernoulli(link=link), 2), table)
    fit = common_covariance.fit_at_scale(parameters, constants, rows, 0.0, turns=40, tolerance=1e-13)
    n = len(table.weight)
    mean, h = fit.mean[0, :n], fit.h[:n]
    K = KERNEL(table.X)
    # Opper and Archambeau 2009: mean = prior + K g and S^-1 = K^-1 + diag(h) at the maximum, with these g and h.
    S = np.linalg.inv(np.linalg.inv(K + 1e-12 * np.eye(n)) + np.diag(h))
    alpha = np.linalg.solve(K + 1e-12 * np.eye(n), mean - constants.prior_mean[0])
    for i in range(0, n, 7):
        g, v = exact_slopes(mean[i], S[i, i], table.y[0, i], link)
        np.testing.assert_allclose(alpha[i], table.weight[i] * g, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(h[i], -2.0 * table.weight[i] * v, rtol=1e-5)
    assert np.all(np.diff(fit.bounds) > -1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("likelihood", "n_classes"), [(Bernoulli(), 2), (Softmax(), 3)])
@pytest.mark.parametrize("n_inducing", [None, 12])
def test_means_are_the_best_and_the_bound_is_that_of_training(rng, x64, likelihood, n_classes, n_inducing):
    table = table_of(rng, n_classes)
    plan = plan_of(likelihood, n_classes, n_inducing, FIXED)
    result = svgp.train(*svgp.init(plan, table, random_state=0), table, plan, random_state=0)
    q = gaussian.separate(result.state.q)
    assert len(result.state.q.cov) == 1
    batch = svgp.batch(table)

    @jax.jit
    def bound(mean):
        parameters, constants = result.state.parameters, result.constants
        return bound_given_q("orthogonal", parameters, mean, q.cov, batch, constants)

    value, gradient = jax.value_and_grad(bound)(q.mean)
    np.testing.assert_allclose(value - gaussian.kl_to_standard(q), result.elbo, rtol=1e-9)
    # Minus the gradient of the divergence, which the bound above does not hold.
    scale = np.abs(np.asarray(q.mean)).max()
    np.testing.assert_allclose(gradient, q.mean, atol=3e-3 * scale)
    np.testing.assert_allclose(q.cov @ q.precision, np.broadcast_to(np.eye(q.mean.shape[1]), q.cov.shape), atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("n_inducing", [None, 12])
def test_held_out_rows_are_predicted_as_by_a_fit_without_them(rng, x64, n_inducing):
    table = table_of(rng, 3)
    plan = plan_of(Softmax(), 3, n_inducing, FIXED)
    parameters, constants, rows = prepared(plan, table)
    folds = held_out_labels.folds_of(rows, np.random.RandomState(0))
    assert sorted(np.concatenate([held.index for held in folds])) == list(range(50))
    held = folds[0]
    assert held.y.tolist() == table.y[:, held.index].tolist()
    fit = common_covariance.fit_at_scale(
        parameters, constants, held_out_labels.without(rows, held), 0.0, tolerance=1e-9, turns=20
    )
    mean, var = held_out_labels.moments_of(fit, held)
    others = np.setdiff1d(np.arange(50), held.index)
    some = svgp.Table(table.X[others], table.y[:, others], table.weight[others])
    Z = np.asarray(parameters.points.Z)[np.asarray(constants.masks.Z) > 0]
    plan = plan._replace(inducing_init=Z, n_inducing=len(Z))
    state, of_some = svgp.init(plan, some, random_state=0)
    # The prior means are those of all rows.
    of_some = of_some._replace(prior_mean=constants.prior_mean)
    result = svgp.train(state, of_some, some, plan, random_state=0)
    model, _ = svgp.condition(result.state, of_some, plan)
    found = svgp.predict(model, table.X[held.index])
    np.testing.assert_allclose(found[0], mean, atol=2e-2)
    np.testing.assert_allclose(found[1], var, rtol=3e-2)


@pytest.mark.slow
def test_the_scale_is_better_than_its_neighbours(rng, x64):
    table = table_of(rng, 3, n=120)
    plan = plan_of(Softmax(), 3)
    parameters, constants, rows = prepared(plan, table)
    given = parameters, constants, table, np.random.RandomState(0)
    kernel, density = class_labels.best_scale(*given, calibrates=False)
    scale = kernel.k1.constant_value - np.log(2.0)
    # Steps by a factor of three.
    np.testing.assert_allclose(scale / np.log(3.0), np.round(scale / np.log(3.0)), atol=1e-9)
    problem = class_labels._Problem.of(parameters, constants, table, np.random.RandomState(0))
    folds = problem.folds

    def densities(log_scale):
        found = []
        for held in folds:
            fit = common_covariance.fit_at_scale(parameters, constants, held_out_labels.without(rows, held), log_scale)
            moments = held_out_labels.moments_of(fit, held)
            found.append(class_labels.log_densities(plan.likelihood, *moments, held.y, problem.held.doubt))
        return np.concatenate(found)

    here, weight = densities(scale), np.concatenate([held.weight for held in folds])
    # A turn less or more may move each by some thousandths.
    np.testing.assert_allclose(density.mean, np.average(here, weights=weight), atol=5e-3)
    for step in (-np.log(3.0), np.log(3.0)):
        gain = densities(scale + step) - here
        assert np.average(gain, weights=weight) < gain.std() / np.sqrt(120.0) + 5e-3


@pytest.mark.parametrize("amplitude", [2.0, 1e4])
def test_starts_are_looked_for_in_single_precision(rng, x64, amplitude):
    table, kernel = table_of(rng, 3, 300), ConstantKernel(amplitude) * Matern([1.0, 0.7], nu=1.5)
    parameters, constants, rows = prepared(plan_of(Softmax(), 3, 60, kernel), table)
    system, single = (parameters, constants), common_covariance.with_single(rows)
    assert single.A_single.dtype == np.float32
    with jax.default_matmul_precision("float32"):
        exact, found = (common_covariance.fit_at_scale(*system, each, 0.0, None, 3) for each in (rows, single))
    assert found.w.dtype == found.mean.dtype == float
    np.testing.assert_array_equal(found.mean, found.mean.astype(np.float32))
    # Under a wide prior the search ends where the bound hardly changes, at means that may be far from one another.
    np.testing.assert_allclose(found.bounds, exact.bounds, rtol=1e-6 if amplitude == 2.0 else 2e-3)
    if amplitude == 2.0:
        np.testing.assert_allclose(found.mean, exact.mean, atol=1e-4)
    # The same covariance for the same curvature: it is made of rows in double precision.
    for pair in zip(*(covariance_of(each.A, exact.h) for each in (rows, single)), strict=True):
        np.testing.assert_array_equal(*pair)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["softmax", "bernoulli"])
def test_single_precision_is_for_starts_of_averages_over_points(rng, x64, monkeypatch, likelihood):
    n_classes, seen = 2 if likelihood == "bernoulli" else 3, []
    plan, table = plan_of(by_name(likelihood), n_classes, 20), table_of(rng, n_classes, 80)
    plan = plan._replace(likelihood=plan.likelihood.prepare(table.y, n_classes))
    state, constants = svgp.init(plan, table, random_state=0)
    fit_at_scale = common_covariance.fit_at_scale

    def recorded(parameters, constants, rows, *arguments):
        seen.append(rows.A_single is not None)
        return fit_at_scale(parameters, constants, rows, *arguments)

    monkeypatch.setattr(class_labels, "fit_at_scale", recorded)
    arguments = state.parameters, constants, table, np.random.RandomState(0)
    for task, is_single in (
        (lambda: class_labels.best_scale(*arguments), likelihood == "softmax"),
        (lambda: class_labels.solve(*arguments), False),
        (lambda: class_labels.solve(*arguments, n_further=30), likelihood == "softmax"),
    ):
        seen.clear()
        task()
        assert set(seen) == {is_single}


@pytest.mark.parametrize(
    ("n_rows", "n_folds", "size"), [(7, 4, 2), (300, 5, 60), (900, 3, 300), (1501, 1, 301), (12000, 1, 2000)]
)
def test_few_rows_are_all_held_out_in_turn(n_rows, n_folds, size):
    ones = np.ones(n_rows)
    rows = common_covariance.Rows(np.zeros((1, n_rows)), 0.5 * ones, 0.5 * ones, ones[None], ones)
    folds = held_out_labels.folds_of(rows, np.random.RandomState(0))
    assert (len(folds), len(folds[0].index)) == (n_folds, size)


def test_rows_at_inducing_points_are_held_out_last():
    is_point, half = np.arange(2000) < 1900, np.full(2000, 0.5)
    rows = common_covariance.Rows(np.zeros((1, 2000)), half, half, np.ones((1, 2000)), np.ones(2000))
    (held,) = held_out_labels.folds_of(rows, np.random.RandomState(0), is_point)
    assert len(held.index) == 400
    assert set(range(1900, 2000)) <= set(held.index)


@pytest.mark.parametrize("is_point", [False, True])
@pytest.mark.parametrize(("n_rare", "n_held_out"), [(1, 0), (4, 0), (5, 1), (50, 1)])
def test_a_class_of_a_few_rows_is_not_held_out(n_rare, n_held_out, is_point):
    """A fifth of four rows is less than one."""
    label, half = (np.arange(2000) < n_rare).astype(float), np.full(2000, 0.5)
    rows = common_covariance.Rows(np.zeros((1, 2000)), half, half, label[None], np.ones(2000))
    points = np.full(2000, is_point)
    held = [held_out_labels.folds_of(rows, np.random.RandomState(seed), points)[0] for seed in range(30)]
    assert {len(each.index) for each in held} == {400}
    assert max(each.y.sum() for each in held) >= n_held_out
    assert n_held_out or not any(each.y.any() for each in held)


def test_a_fixed_scale_stays(rng, x64):
    table = table_of(rng, 2)
    parameters, constants, _ = prepared(plan_of(Bernoulli(), 2, kernel=FIXED), table)
    kernel, _ = class_labels.best_scale(parameters, constants, table, np.random.RandomState(0))
    np.testing.assert_allclose(kernel.k1.constant_value, np.log(2.0))


@pytest.mark.parametrize("is_single", [False, True])
@pytest.mark.parametrize("amplitude", [1e-6, 1e6])
def test_extreme_scales_end(rng, x64, amplitude, is_single):
    table = table_of(rng, 3)
    parameters, constants, rows = prepared(
        plan_of(Softmax(), 3, kernel=ConstantKernel(amplitude, "fixed") * RBF()), table
    )
    rows = common_covariance.with_single(rows) if is_single else rows
    fit = common_covariance.fit_at_scale(parameters, constants, rows, 0.0)
    if amplitude < 1.0:
        # The model of constants, which has the classes' shares.
        total = np.bincount(table.y[0].astype(int), weights=table.weight)
        assert fit.bounds[-1] == pytest.approx(np.sum(total * np.log(total / total.sum())), abs=0.1)
    else:
        assert fit.bounds[-1] > fit.bounds[0] + 100.0
    assert np.abs(fit.mean).max() < 2.0 * np.sqrt(amplitude) + 1.0
    assert np.all(np.asarray(fit.covariance.own) >= 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("load", [load_iris, load_breast_cancer])
def test_nothing_set_predicts_classes_well(load):
    X, y = load(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(X))
    train, test = order[: 2 * len(X) // 3], order[2 * len(X) // 3 :]
    model = NGDSVGPClassifier(random_state=0).fit(X[train], y[train])
    proba = model.predict_proba(X[test])
    assert len(model._posterior.reduction) == 1
    assert log_loss(y[test], proba) < 0.15
    np.testing.assert_allclose(proba.sum(1), 1.0)
    # One row, in NumPy, as all of them, in a compiled program.
    np.testing.assert_allclose(model.predict_proba(X[test][:1]), proba[:1], atol=1e-6)
    assert np.all(np.diff(np.sort(model.predict_proba(X[test][:3]).sum(1))) < 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("likelihood", "n_classes"), [(Bernoulli(), 2), (Softmax(), 3)])
@pytest.mark.parametrize("amplitude", [1e-6, 1e6, 1e10])
def test_the_bound_of_extreme_scales_is_that_of_training(rng, x64, likelihood, n_classes, amplitude):
    table = table_of(rng, n_classes)
    plan = plan_of(likelihood, n_classes, kernel=ConstantKernel(amplitude, "fixed") * Matern([1.0, 0.7], nu=1.5))
    result = svgp.train(*svgp.init(plan, table, random_state=0), table, plan, random_state=0)
    q, batch = gaussian.separate(result.state.q), svgp.batch(table)
    value = jax.jit(
        lambda q: bound_given_q("orthogonal", result.state.parameters, q.mean, q.cov, batch, result.constants)
    )(q) - gaussian.kl_to_standard(q)
    np.testing.assert_allclose(value, result.elbo, rtol=1e-7)


@pytest.mark.slow
def test_a_list_of_kernels_is_for_steps(rng):
    table = table_of(rng, 3)
    plan = plan_of(Softmax(), 3)._replace(kernels=(KERNEL, KERNEL, KERNEL))
    with pytest.raises(ValueError, match="needs one kernel for all classes"):
        svgp.check_plan(plan, table)
    model = NGDSVGPClassifier(kernel=[1.0 * RBF()] * 3, max_iter=20, tol=1e9, random_state=0)
    model.fit(table.X, table.y[0].astype(int))
    assert "solver 'ngd'" in model.plan_


def test_a_kernel_without_an_upper_bound_may_be_multiplied(x64):
    bounded, free, without = (
        tuple(jax.tree.map(np.log, each) for each in from_sklearn(kernel, 1))
        for kernel in (KERNEL_1D, ConstantKernel(2.0, (1e-3, np.inf)) * RBF(), RBF())
    )
    np.testing.assert_allclose(algebra.room(*bounded), np.log([1e-3 / 2.0, 1e3 / 2.0]))
    np.testing.assert_allclose(algebra.room(*free), [np.log(1e-3 / 2.0), np.inf])
    assert algebra.room(*without) == (0.0, 0.0)


def test_few_heavy_rows_do_not_decide(rng):
    difference, weight = np.full(100, -0.5), np.ones(100)
    difference[0], weight[0] = 1.0, 100.0

    def are_larger(difference, weight):
        before = rng.normal(size=len(weight))
        pair = (held_out_labels.Densities(each, weight, 1) for each in (before + difference, before))
        return next(pair).are_larger_than(next(pair))

    assert not are_larger(difference, weight)
    assert are_larger(rng.normal(0.5, 0.1, size=100), np.ones(100))
    assert held_out_labels.Densities(np.array([1.0, np.nan]), np.ones(2), 1).mean == -np.inf


@pytest.mark.slow
def test_a_rare_class_under_a_given_kernel():
    X = np.random.default_rng(0).normal(size=(600, 1))
    y = np.zeros(600, int)
    y[:3] = 1
    model = NGDSVGPClassifier(kernel=1.0 * RBF(), random_state=0).fit(X, y)
    assert 0.0 < model.predict_proba(X)[:, 1].mean() < 0.01
    assert model.kernel_.k1.constant_value > 0.1


@pytest.mark.slow
def test_a_shared_covariance_in_all_that_a_model_does(rng):
    X, y = load_iris(return_X_y=True)
    model = NGDSVGPClassifier(kernel=2.0 * RBF(2.0), random_state=0).fit(X, y)
    separate = model._posterior._replace(reduction=np.repeat(model._posterior.reduction, 3, 0))
    other = pickle.loads(pickle.dumps(model))
    other._posterior = separate
    rows = X[rng.permutation(150)[:20]]
    for found, expected in zip(
        (*model.predict_latent(rows, return_cov=True), model.predict_proba(rows), model.sample_y(rows, 5, 0)),
        (*other.predict_latent(rows, return_cov=True), other.predict_proba(rows), other.sample_y(rows, 5, 0)),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    before = model.predict_proba(X)
    model.set_params(max_iter=100).partial_fit(X, y)
    assert np.abs(model.predict_proba(X) - before).max() < 0.2


def test_probabilities_and_draws_are_those_of_calibrated_latent_functions(rng):
    """In the order of the labels; by how often they occur, it is another one."""
    X = rng.normal(size=(120, 1))
    y = np.array(["c", "b", "a"])[np.digitize(X[:, 0] + 0.2 * rng.normal(size=120), [-0.4, 1.0])]
    kernel = ConstantKernel(0.3, "fixed") * RBF(1.0, "fixed")
    model = NGDSVGPClassifier(kernel, likelihood="softmax", random_state=0).fit(X, y)
    rows = np.linspace(-2.0, 1.5, 6)[:, None]
    mean, std = model.predict_latent(rows, return_std=True)
    of_mean, of_deviation = model.calibration_
    draws = rng.standard_normal((20_000, *mean.shape))
    plain, found = (softmax(a * mean + b * std * draws, -1).mean(0) for a, b in ((1.0, 1.0), (of_mean, of_deviation)))
    # Otherwise nothing would be seen of the calibration.
    assert np.abs(found - plain).max() > 0.05
    np.testing.assert_allclose(model.predict_proba(rows), found, atol=0.02)
    labels = model.sample_y(rows, 4000, random_state=0, joint=False)
    shares = (labels[..., None] == np.array(["a", "b", "c"])).mean(1)
    np.testing.assert_allclose(shares, found, atol=0.04)


@pytest.mark.slow
def test_further_points_of_labels_are_solved_for(rng):
    """Numbers of points ask for steps of an optimizer, but for the means of labels on further points."""
    X = rng.normal(size=(150, 2))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] > 0.0
    model = NGDSVGPClassifier(FIXED, n_inducing=20, n_mean_inducing=60, random_state=0).fit(X, y)
    assert model.plan_.count("20 inducing points and 60 further points for the mean") == 1
    assert "natural gradient steps on all rows" in model.plan_
    assert model.score(X, y) > 0.9
    named = NGDSVGPClassifier(FIXED, n_inducing=20, n_mean_inducing=60, solver="evidence", random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), named.predict_proba(X))


@pytest.mark.parametrize(
    ("likelihood", "arguments", "solver"),
    [
        ("bernoulli", {"n_mean_inducing": 60}, "evidence"),
        ("softmax", {"n_inducing": 20, "n_mean_inducing": 60}, "evidence"),
        ("bernoulli", {"n_inducing": 20}, "evidence"),
        ("bernoulli", {"n_inducing": 20, "n_mean_inducing": 0}, "evidence"),
        ("softmax", {"n_inducing": 20, "n_mean_inducing": 60, "max_iter": 5}, "ngd"),
        ("softmax", {"n_mean_inducing": 60, "basis": "hybrid"}, "ngd"),
        ("robust_max", {"n_mean_inducing": 60}, "ngd"),
        ("gaussian", {"n_inducing": 20, "n_mean_inducing": 60}, "ngd"),
        ("gaussian", {"n_inducing": 20}, "evidence"),
        ("gaussian", {"n_mean_inducing": 0}, "evidence"),
    ],
)
def test_numbers_of_points_keep_the_one_step_but_for_further_ones_of_numbers(likelihood, arguments, solver):
    cls = NGDSVGPRegressor if likelihood == "gaussian" else NGDSVGPClassifier
    assert solver_of(cls(**arguments), by_name(likelihood), False, 150) == solver


@pytest.mark.slow
def test_a_row_far_from_all_points_keeps_its_prior(rng):
    X = rng.normal(size=(40, 2))
    y = X[:, 0] > 0.0
    far = [[1e6, 0.0]]
    options = {"solver": "evidence", "n_inducing": 40, "inducing_init": X, "normalize_X": False, "calibrate": False}
    model = NGDSVGPClassifier(FIXED, **options, random_state=0)
    model.fit(np.vstack([X, far]), np.append(y, True))
    # Nothing is said of it but the prior, whose mean is that of the base rate and whose variance is two.
    frequency = (y.sum() + 2.0) / 43.0
    prior = stats.norm.cdf(np.sqrt(2.0) * stats.norm.ppf(frequency) / np.sqrt(3.0))
    assert model.predict_proba(far)[0, 1] == pytest.approx(prior, abs=1e-12)
    assert model.score(X, y) > 0.9


def test_labels_that_no_calibration_explains_are_left_as_they_are(rng):
    mean = np.full((1, 8), 1e200)
    with np.errstate(all="ignore"):
        found = calibration.calibrate(Bernoulli(), mean, np.ones((1, 8)), np.zeros((1, 8)), np.ones(8))
    assert found == calibration.Calibration()


# -- how frequent classes are -------------------------------------------------------------------


@pytest.mark.slow
def test_prior_means_are_those_of_base_rates():
    """Against averages of draws, for two classes of a function of unit variance."""
    y, weight = np.repeat([0.0, 1.0, 2.0], [60, 30, 10])[None], np.full(100, 2.0)
    for likelihood, n_classes in ((Softmax(), 3), (Bernoulli(), 2), (Bernoulli("logit"), 2)):
        labels = np.minimum(y, n_classes - 1.0)
        mean = likelihood.latent_of_base_rates(labels, weight, n_classes)
        f = mean[:, None] + (n_classes == 2) * np.random.default_rng(0).normal(size=(len(mean), 200_000))
        p = np.mean(likelihood.conditional_probabilities(f), axis=1)
        frequency = (np.bincount(labels[0].astype(int)) + 1.0) / (100 + n_classes)
        np.testing.assert_allclose(p, frequency, atol=0.003)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (3, 4))])
def test_where_little_is_to_be_learned_labels_are_as_probable_as_they_are_frequent(seed):
    """One label in eight, and the other one in 80, of which X says next to nothing."""
    rng = np.random.default_rng(seed)
    X, X_test = rng.normal(size=(80, 2)), rng.normal(size=(1000, 2))
    y, y_test = (rng.uniform(size=len(each)) < 0.05 + 0.1 * (each[:, 0] > 1.0) for each in (X, X_test))
    y[:3] = True
    for labels, truth in ((y, y_test), (np.arange(80) == 5, rng.uniform(size=1000) < 1.0 / 80.0)):
        model = NGDSVGPClassifier(random_state=0).fit(X, labels)
        rate = (labels.sum() + 1.0) / 82.0
        assert log_loss(truth, model.predict_proba(X_test)[:, 1]) < log_loss(truth, np.full(1000, rate)) + 0.06
        assert model.predict_proba([[1e4, 1e4]])[0, 1] == pytest.approx(rate, abs=0.15)
