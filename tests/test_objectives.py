"""What training raises: each objective equals an independent computation, and trains."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special, stats
from sklearn.base import clone
from sklearn.gaussian_process.kernels import ConstantKernel, Matern
from sklearn.model_selection import GridSearchCV

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, likelihoods, objectives, svgp
from skgp_natgrad.likelihoods import Bernoulli, Gaussian, Poisson, StudentT
from skgp_natgrad.objectives import ELBO, Predictive, Tightened
from skgp_natgrad.step import step
from skgp_natgrad.training.lbfgs import optimal_q
from skgp_natgrad.variational import bound as bounds
from skgp_natgrad.variational import gaussian, natural_gradient

from .conftest import count_compilations

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

JITTER, N_POINTS = 1e-8, 6
KERNEL = ConstantKernel(1.3) * Matern([1.1, 0.7], nu=2.5)
ALGORITHM = svgp.Algorithm()

# Compiled as a whole.
bound_given_q = jax.jit(bounds.bound_given_q, static_argnums=0)
slopes = jax.jit(jax.grad(bounds.bound_given_q, argnums=(2, 3)), static_argnums=0)
candidate = jax.jit(natural_gradient.candidate)
best_q = jax.jit(optimal_q, static_argnames="algorithm")


def problem(objective, rng, likelihood=None, kernel=KERNEL, n_rows=25, n_points=N_POINTS, n_mean=0, basis="orthogonal"):
    """The kernel, a state with a random q, its constants, and a batch of all rows with random weights."""
    likelihood = Gaussian(variance=0.2) if likelihood is None else likelihood
    X = rng.uniform(-2.0, 2.0, size=(n_rows, 2))
    y = np.sin(2.0 * X[:, :1].T) + 0.3 * rng.normal(size=(1, n_rows))
    table = svgp.Table(X, y, np.ones(n_rows))
    settings = svgp.Settings(algorithm=ALGORITHM._replace(basis=basis))
    plan = svgp.Plan(
        (kernel,), likelihood, objective=objective, n_inducing=n_points, n_mean_inducing=n_mean, settings=settings
    )
    state, constants = svgp.init(plan, table, random_state=0)
    root = 0.3 * rng.normal(size=state.q.cov.shape)
    q = jax.jit(gaussian.from_natural)(
        rng.normal(size=state.q.mean.shape), np.eye(root.shape[-1]) + root @ root.swapaxes(-1, -2)
    )
    weights = state.parameters.weights._replace(a=0.3 * rng.normal(size=state.parameters.weights.a.shape))
    state = state._replace(q=q, parameters=state.parameters._replace(weights=weights))
    batch = svgp.batch(table)._replace(weight=rng.uniform(0.5, 2.0, size=n_rows))
    # In NumPy: what a test does with a number of them is not compiled.
    return kernel, jax.device_get(state), constants, batch


def bound_of(state, constants, batch, objective=None, basis="orthogonal"):
    """The bound as training reports it."""
    constants = constants if objective is None else constants._replace(objective=objective)
    algorithm = ALGORITHM._replace(basis=basis)
    return float(step.bound_of_batch(state.q, state.parameters, constants, batch, algorithm))


def dense(kernel, state, X):
    """Latent mean and variance, the residual, and the whitened rows, in NumPy."""
    Z = np.asarray(state.parameters.points.Z)[: len(state.q.mean[0])]
    Kzz = kernel(Z)
    L = np.linalg.cholesky(Kzz + JITTER * np.diag(Kzz).mean() * np.eye(len(Z)))
    A = np.linalg.solve(L, kernel(Z, X))
    residual = kernel.diag(X) - (A * A).sum(0)
    m, S = np.asarray(state.q.mean[0]), np.asarray(state.q.cov[0])
    return m @ A, residual + np.einsum("ib,ij,jb->b", A, S, A), residual, A


def divergence(q):
    m, S = np.asarray(q.mean[0]), np.asarray(q.cov[0])
    return 0.5 * (np.trace(S) + m @ m - len(m) - np.linalg.slogdet(S)[1])


def collapsed(kernel, state, X, y, noise):
    """The tightened bound at the best q: log N(y; 0, Q + s^2 I) - sum log(1 + (k - q) / s^2) / 2."""
    _, _, residual, A = dense(kernel, state, X)
    marginal = stats.multivariate_normal(np.zeros(len(X)), A.T @ A + noise * np.eye(len(X)))
    return marginal.logpdf(y) - 0.5 * np.log1p(residual / noise).sum()


# -- the tightened bound ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("x64")
def test_one_step_reaches_the_collapsed_tightened_bound(seed):
    rng = np.random.default_rng(seed)
    noise, scales = 10.0 ** rng.uniform(-3.0, 1.0), rng.uniform(0.5, 2.0, size=2)
    kernel = ConstantKernel(rng.uniform(0.3, 3.0)) * Matern(scales, nu=2.5)
    kernel, state, constants, batch = problem(Tightened(), rng, Gaussian(variance=noise), kernel)
    batch = batch._replace(weight=np.ones(25))
    want = collapsed(kernel, state, batch.X, batch.y[0], noise)
    # By a step of size one, with hyperparameters that stay, and as L-BFGS collapses the bound.
    dm, dS = slopes("orthogonal", state.parameters, state.q.mean, state.q.cov, batch, constants)
    stepped = candidate(state.q, dm, dS, 1.0)
    best = best_q(state.q, state.parameters, constants, batch, algorithm=ALGORITHM)
    for q in (stepped, best):
        assert_allclose(bound_of(state._replace(q=q), constants, batch), want, rtol=1e-10)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.usefixtures("x64")
def test_tightened_is_nowhere_looser_than_the_elbo(seed):
    rng = np.random.default_rng(seed)
    noise = 10.0 ** rng.uniform(-6.0, 2.0)
    kernel, state, constants, batch = problem(Tightened(), rng, Gaussian(variance=noise))
    gain = bound_of(state, constants, batch) - bound_of(state, constants, batch, ELBO())
    r = dense(kernel, state, batch.X)[2] / noise
    want = 0.5 * batch.weight @ (r - np.log1p(r))
    assert gain >= 0.0
    assert_allclose(gain, want, rtol=1e-8, atol=1e-12 * abs(bound_of(state, constants, batch)))


@pytest.mark.usefixtures("x64")
def test_tightened_is_the_elbo_where_a_point_sits_at_every_row(rng):
    _, state, constants, batch = problem(Tightened(), rng, n_rows=N_POINTS)
    points = state.parameters.points._replace(Z=np.asarray(batch.X))
    state = state._replace(parameters=state.parameters._replace(points=points))
    assert_allclose(bound_of(state, constants, batch), bound_of(state, constants, batch, ELBO()), rtol=1e-12)


@pytest.mark.slow
def test_every_output_has_its_own_residual(toy):
    """Two columns of y with a kernel each are two models."""
    X, y = toy
    kernels = [KERNEL, ConstantKernel(0.7) * Matern([0.6, 2.0], nu=2.5)]
    arguments = {"optimizer": None, "gamma_schedule": 1.0, "max_iter": 2, "normalize_y": False}
    arguments |= {"objective": "tightened", "inducing_init": X[:8], "n_inducing": 8}
    both = NGDSVGPRegressor(kernels, **arguments).fit(X, np.stack([y, y**2], 1))
    each = [
        NGDSVGPRegressor(kernel, **arguments).fit(X, y**power) for kernel, power in zip(kernels, (1, 2), strict=True)
    ]
    assert_allclose(both.elbo_, sum(one.elbo_ for one in each), rtol=1e-10)


def moved(tree, direction, size):
    return jax.tree.map(lambda x, d: x + size * d, tree, direction)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "kernel", "n_mean", "basis"),
    [
        (Tightened(), KERNEL, 0, "orthogonal"),
        (Tightened(), KERNEL, 4, "orthogonal"),
        (Tightened(), KERNEL, 4, "hybrid"),
        (Predictive(0.3), KERNEL, 4, "orthogonal"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("x64")
def test_gradient_of_the_bound_is_that_of_differences(objective, kernel, n_mean, basis, rng):
    _, state, constants, batch = problem(objective, rng, kernel=kernel, n_mean=n_mean, basis=basis)
    algorithm = ALGORITHM._replace(basis=basis)

    @jax.jit
    def value(parameters, m, S):
        q = gaussian.from_natural(*natural_of(m, S))
        return step.bound(q, parameters, constants, batch, algorithm)

    at = (state.parameters, state.q.mean, state.q.cov)
    gradient = jax.device_get(jax.jit(jax.grad(value, argnums=(0, 1, 2)))(*at))
    n_leaves = len(jax.tree.leaves(at))
    for only in range(n_leaves):
        # One leaf at a time: a large gradient must not hide an error in a small one.
        leaves, structure = jax.tree.flatten(jax.tree.map(lambda x: rng.normal(size=np.shape(x)), at))
        leaves = [leaf * (i == only) for i, leaf in enumerate(leaves)]
        direction = jax.tree.unflatten(structure, leaves)
        direction = (*direction[:2], 0.5 * (direction[2] + direction[2].swapaxes(-1, -2)))
        h = 1e-5
        slope = (value(*moved(at, direction, h)) - value(*moved(at, direction, -h))) / (2.0 * h)
        got = sum((g * d).sum() for g, d in zip(*map(jax.tree.leaves, (gradient, direction)), strict=True))
        assert_allclose(got, slope, rtol=1e-6, atol=1e-6)


def natural_of(m, S):
    precision = jnp.linalg.inv(S)
    return jnp.einsum("kij,kj->ki", precision, m), precision


@pytest.mark.slow
def test_one_iteration_of_the_estimator_ends_at_the_collapsed_bound(rng):
    X = rng.uniform(-2.0, 2.0, size=(40, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=40)
    arguments = {"optimizer": None, "gamma_schedule": 1.0, "normalize_X": False, "normalize_y": False}
    reg = NGDSVGPRegressor(KERNEL, objective="tightened", n_inducing=6, max_iter=2, random_state=0, **arguments)
    reg.fit(X, y)
    Z, noise = reg.inducing_points_, reg.likelihood_.variance
    K = KERNEL(Z)
    A = np.linalg.solve(np.linalg.cholesky(K + 1e-8 * np.diag(K).mean() * np.eye(6)), KERNEL(Z, X))
    marginal = stats.multivariate_normal(np.zeros(40), A.T @ A + noise * np.eye(40)).logpdf(y)
    want = marginal - 0.5 * np.log1p((KERNEL.diag(X) - (A * A).sum(0)) / noise).sum()
    assert_allclose(reg.elbo_, want, rtol=1e-9)
    assert reg.n_rejected_steps_ == 0
    elbo = clone(reg).set_params(objective="elbo").fit(X, y)
    assert reg.elbo_ > elbo.elbo_
    # At the same hyperparameters q is the same, and so are the predictions.
    assert_allclose(reg.predict(X), elbo.predict(X), rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_exact_mean_pays_the_tightened_term(rng):
    """The mean, and so the bound but for the residual's part, is the ELBO's."""
    X = rng.uniform(-2.0, 2.0, size=(60, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=60)
    fixed = ConstantKernel(1.3, "fixed") * Matern([1.1, 0.7], "fixed", nu=2.5)
    reg = NGDSVGPRegressor(
        fixed,
        likelihood=Gaussian(0.1, "fixed"),
        n_inducing=5,
        n_mean_inducing=20,
        mean_solver="exact",
        optimizer=None,
        max_iter=20,
        normalize_X=False,
        normalize_y=False,
        random_state=0,
    )
    elbo = clone(reg).fit(X, y)
    tightened = reg.set_params(objective="tightened").fit(X, y)
    Z = tightened.inducing_points_
    K = fixed(Z)
    A = np.linalg.solve(np.linalg.cholesky(K + 1e-8 * np.diag(K).mean() * np.eye(5)), fixed(Z, X))
    r = (fixed.diag(X) - (A * A).sum(0)) / 0.1
    assert_allclose(tightened.elbo_ - elbo.elbo_, 0.5 * (r - np.log1p(r)).sum(), rtol=1e-8)
    assert_allclose(tightened.predict(X), elbo.predict(X), rtol=1e-8, atol=1e-10)


@pytest.mark.slow
def test_lbfgs_collapses_the_tightened_bound(toy):
    reg = NGDSVGPRegressor(solver="lbfgs", objective="tightened", n_inducing=5, max_iter=60, random_state=0).fit(*toy)
    elbo = clone(reg).set_params(objective="elbo").fit(*toy)
    assert reg.elbo_ > elbo.elbo_ + 0.1
    # What the few points leave open is not taken for noise.
    assert reg.likelihood_.variance < elbo.likelihood_.variance


@pytest.mark.slow
def test_a_stream_goes_on_under_the_tightened_bound(toy):
    X, y = toy
    reg = NGDSVGPRegressor(objective="tightened", n_inducing=10, max_iter=100, random_state=0)
    reg.partial_fit(X[::2], y[::2]).partial_fit(X[1::2], y[1::2])
    assert reg.score(X, y) > 0.8


# -- the predictive objective ---------------------------------------------------------------


def every_likelihood():
    """One of each that the package has."""
    found = {*likelihoods.names("regression"), *likelihoods.names("classification")}
    package = [
        each for each in map(likelihoods.by_name, sorted(found)) if type(each).__module__ == likelihoods.__name__
    ]
    return [*package, Bernoulli(link="logit")]


def ready(likelihood, rng, n_rows=9):
    """The likelihood for some targets, in the form in which it computes, and the targets (1, B)."""
    n_classes = 0 if "regression" in likelihood.tasks else 2 if likelihood.name == "bernoulli" else 3
    if likelihood.name in ("poisson", "negative_binomial", "zero_inflated_poisson"):
        y = rng.integers(0, 6, size=(1, n_rows)).astype(float)
    elif likelihood.name == "binomial":
        y = (np.arange(n_rows)[None] % 2).astype(float)
    elif likelihood.name == "ordinal" or n_classes:
        y = (np.arange(n_rows)[None] % (n_classes or 3)).astype(float)
    else:
        y = rng.uniform(0.1, 0.9, size=(1, n_rows))
    likelihood = likelihood.prepare(y, n_classes)
    return likelihood, parameters_of(likelihood), y, likelihood.n_latent(1, n_classes)


def parameters_of(likelihood):
    """The values of the parameters, as the engine starts from them."""
    return likelihood.value_and_bounds(1)[0]


Z_NODES = np.linspace(-12.0, 12.0, 4001)


def averaged(density, mean, var):
    """log E[density(f)] under N(mean, var), by many nodes over twelve deviations."""
    f = mean[..., None] + np.sqrt(var)[..., None] * Z_NODES
    weights = stats.norm.pdf(Z_NODES) * (Z_NODES[1] - Z_NODES[0])
    return np.log(density(f) @ weights)


def gaussian_case(model, mean, var, y):
    return stats.norm.logpdf(y[0], mean[0], np.sqrt(var[0] + model.variance[0]))


def poisson_case(model, mean, var, y):
    return averaged(lambda f: stats.poisson.pmf(y[0][:, None], np.exp(f)), mean[0], var[0])


def student_t_case(model, mean, var, y):
    noise = stats.t(df=model.df[0, 0], scale=model.scale[0, 0])
    return averaged(lambda f: noise.pdf(y[0][:, None] - f), mean[0], var[0])


def probit_case(model, mean, var, y):
    return averaged(lambda f: special.ndtr((2.0 * y[0] - 1.0)[:, None] * f), mean[0], var[0])


def logit_case(model, mean, var, y):
    return averaged(lambda f: special.expit((2.0 * y[0] - 1.0)[:, None] * f), mean[0], var[0])


def heteroscedastic_case(model, mean, var, y):
    def given_g(g):
        return stats.norm.pdf(y[0][:, None], mean[0][:, None], np.sqrt(var[0][:, None] + np.exp(g)))

    return averaged(given_g, mean[1], var[1])


def chained_beta_case(model, mean, var, y):
    z = np.linspace(-9.0, 9.0, 301)
    f, g = (m[:, None] + np.sqrt(v)[:, None] * z for m, v in zip(mean, var, strict=True))
    density = stats.beta.pdf(y[0][:, None, None], np.exp(f)[:, :, None], np.exp(g)[:, None, :])
    weights = stats.norm.pdf(z) * (z[1] - z[0])
    return np.log(np.einsum("bij,i,j->b", density, weights, weights))


def robust_max_case(model, mean, var, y):
    labels = y[0].astype(int)

    def wins(f):
        others = [special.ndtr((f - mean[k][:, None]) / np.sqrt(var[k])[:, None]) for k in range(len(mean))]
        return np.prod([np.where((labels == k)[:, None], 1.0, p) for k, p in enumerate(others)], axis=0)

    rows = np.arange(len(labels))
    p = np.exp(averaged(wins, mean[labels, rows], var[labels, rows]))
    return np.log((1.0 - model.epsilon) * p + model.epsilon / 2.0 * (1.0 - p))


CASES = [
    (Gaussian(0.3), gaussian_case, 1e-12),
    (Poisson(), poisson_case, 1e-10),
    (StudentT(), student_t_case, 1e-9),
    (Bernoulli(), probit_case, 1e-10),
    (Bernoulli(link="logit"), logit_case, 1e-9),
    (likelihoods.HeteroscedasticGaussian(), heteroscedastic_case, 1e-9),
    (likelihoods.ChainedBeta(), chained_beta_case, 1e-5),
    (likelihoods.RobustMax(), robust_max_case, 1e-9),
]


@pytest.mark.parametrize(
    ("likelihood", "expected", "tolerance"), CASES, ids=lambda each: getattr(each, "__name__", repr(each))
)
@pytest.mark.usefixtures("x64")
def test_data_term_is_the_log_density_of_the_prediction(likelihood, expected, tolerance, rng):
    likelihood, model, y, n_latent = ready(likelihood, rng)
    mean, var = rng.normal(size=(n_latent, 9)), rng.uniform(0.05, 0.5, size=(n_latent, 9))
    term = jax.jit(Predictive(0.25).data_term)(model, mean, var, None, y)
    assert_allclose(0.25 * term, expected(model, mean, var, y), rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", every_likelihood(), ids=repr)
@pytest.mark.usefixtures("x64")
def test_data_term_has_gradients_under_every_likelihood(likelihood, rng):
    """In the moments and in the likelihood's parameters; close to the density of predictions."""
    likelihood, model, y, n_latent = ready(likelihood, rng)
    at = model, rng.normal(size=(n_latent, 9)), rng.uniform(0.05, 0.5, size=(n_latent, 9))

    @jax.jit
    def both(model, mean, var):
        def term(model, mean, var):
            return Predictive(1.0).data_term(model, mean, var, None, y).sum()

        return jax.value_and_grad(term, argnums=(0, 1, 2))(model, mean, var)

    value, gradient = jax.device_get(both(*at))
    direction = jax.tree.map(lambda x: 0.1 * np.asarray(x) * rng.uniform(0.5, 1.0, size=np.shape(x)), at)
    h = 1e-4
    slope = (both(*moved(at, direction, h))[0] - both(*moved(at, direction, -h))[0]) / (2.0 * h)
    got = sum(np.sum(g * d) for g, d in zip(*map(jax.tree.leaves, (gradient, direction)), strict=True))
    assert_allclose(got, slope, rtol=1e-6, atol=1e-8)
    predicted = jax.jit(lambda *at: likelihood.with_leaves(jax.tree.leaves(at[0])).log_predictive_density(*at[1:], y))
    # Softmax averages over fewer points in training.
    assert_allclose(value, predicted(*at).sum(), rtol=5e-3 if likelihood.name == "softmax" else 1e-6)


@pytest.mark.usefixtures("x64")
def test_kl_weight_enters_as_stated(rng):
    weight = 0.35
    kernel, state, constants, batch = problem(Predictive(weight), rng, Gaussian(variance=0.2))
    mean, var, _, _ = dense(kernel, state, batch.X)
    rows = stats.norm.logpdf(batch.y[0], mean, np.sqrt(var + 0.2))
    want = batch.weight @ rows - weight * divergence(state.q)
    assert_allclose(bound_of(state, constants, batch), want, rtol=1e-11)
    # What training raises is that over the weight, so that steps are those of a divergence of weight one.
    given_q = bound_given_q("orthogonal", state.parameters, state.q.mean, state.q.cov, batch, constants)
    assert_allclose(given_q - divergence(state.q), want / weight, rtol=1e-11)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_negative_curvature_is_left_out(rng):
    """Rows far off pull the variance up, so far that a whole step leaves the Gaussians; the fallback does not."""
    _, state, constants, batch = problem(Predictive(0.05), rng, Gaussian(variance=0.01))
    batch = batch._replace(y=10.0 * batch.y)
    m, S = state.q.mean, state.q.cov

    @jax.jit
    def found(m, S):
        (_, latent), (dm, dS) = jax.value_and_grad(bounds.bound_and_moments, argnums=(2, 3), has_aux=True)(
            "orthogonal", state.parameters, m, S, batch, constants
        )
        return dm, dS, bounds.concave_gradient(state.parameters, latent, batch, constants)

    dm, dS, concave = found(m, S)
    whole, clipped = (candidate(state.q, dm, d, 1.0).precision[0] for d in (dS, concave))
    assert np.linalg.eigvalsh(whole).min() < 0.0
    assert np.linalg.eigvalsh(clipped).min() >= 1.0 - 1e-9
    before = bound_of(state, constants, batch)
    algorithm = ALGORITHM._replace(optimizer=None)
    after, report = jax.jit(lambda state: step.step(state, constants, batch, 1.0, 0.0, algorithm)[1:])(state)
    assert bool(report.rejected)
    assert_allclose(float(report.elbo), before, rtol=1e-12)
    assert bound_of(after, constants, batch) >= before


# -- every objective trains -----------------------------------------------------------------


@pytest.fixture
def toy():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, size=(200, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.2 * rng.normal(size=200)


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1024, 50])
@pytest.mark.parametrize("objective", ["elbo", "tightened", "predictive", Predictive(0.2)], ids=repr)
def test_every_objective_trains_a_regressor(objective, batch_size, toy):
    X, y = toy
    arguments = {"n_inducing": 10, "max_iter": 150, "learning_rate": 0.05, "random_state": 0}
    reg = NGDSVGPRegressor(objective=objective, batch_size=batch_size, **arguments)
    assert repr(clone(reg).objective) == repr(objective)
    check_trained(reg.fit(X, y), X)
    assert reg.score(X, y) > 0.7


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1024, 50])
def test_predictive_objective_trains_a_classifier(batch_size, toy):
    X, labels = toy[0], np.where(toy[1] > 0.0, "above", "below")
    clf = NGDSVGPClassifier(objective="predictive", n_inducing=10, max_iter=150, batch_size=batch_size, random_state=0)
    check_trained(clf.fit(X, labels), X)
    assert clf.score(X, labels) > 0.8
    # Its q is not made of the rows' factors, and none can be left out: that ended far below a constant.
    assert clf.calibration_ == (1.0, 1.0)


def check_trained(estimator, X):
    """Risen; and a pickle predicts to the same bits."""
    curve = estimator.elbo_curve_
    assert np.mean(curve[-10:]) > np.mean(curve[:10])
    assert_array_equal(pickle.loads(pickle.dumps(estimator)).predict(X[:5]), estimator.predict(X[:5]))


@pytest.mark.slow
def test_full_batch_steps_of_q_never_lower_the_predictive_bound(toy):
    reg = NGDSVGPRegressor(objective="predictive", n_inducing=10, optimizer=None, max_iter=60, random_state=0).fit(*toy)
    assert np.all(np.diff(reg.elbo_curve_) >= -1e-6 * np.abs(reg.elbo_curve_[1:]))


@pytest.mark.slow
def test_predictive_objective_predicts_noise_that_varies_better():
    """With one noise for all rows, the variance of q follows the errors, also on rows that were not seen."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-3.0, 3.0, size=(600, 1))
    y = np.sin(2.0 * X[:, 0]) + np.where(X[:, 0] > 0.0, 0.5, 0.05) * rng.normal(size=600)
    reg = NGDSVGPRegressor(n_inducing=10, max_iter=300, random_state=0)
    density = {
        name: clone(reg).set_params(objective=name).fit(X[:300], y[:300]).predict_log_density(X[300:], y[300:]).mean()
        for name in ("elbo", "predictive")
    }
    assert density["predictive"] > density["elbo"] + 0.1


@pytest.mark.slow
def test_kl_weight_is_searched_without_compiling(toy):
    X, y = toy
    reg = NGDSVGPRegressor(objective=Predictive(), n_inducing=10, max_iter=40, random_state=0)
    reg.fit(X, y).predict(X)
    with count_compilations() as counts:
        reg.set_params(objective__kl_weight=2).fit(X, y)
        reg.set_params(objective__kl_weight=np.float32(0.5)).fit(X, y)
    assert not counts
    search = GridSearchCV(reg, {"objective__kl_weight": [0.1, 1.0]}, cv=2, error_score="raise").fit(X, y)
    assert search.best_estimator_.objective.kl_weight in (0.1, 1.0)


@pytest.mark.slow
def test_kl_weight_may_change_in_a_warm_start_and_the_objective_may_not(toy):
    reg = NGDSVGPRegressor(objective=Predictive(), n_inducing=10, max_iter=40, warm_start=True, random_state=0)
    reg.fit(*toy).set_params(objective__kl_weight=0.3).fit(*toy)
    with pytest.raises(ValueError, match=r"objective=ELBO\(\)"):
        reg.set_params(objective="elbo").fit(*toy)


# -- what an objective refuses --------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"objective": "elob"}, "objective='elob'.*'elbo'"),
        ({"objective": "tightened", "likelihood": "student_t"}, "'tightened'.*StudentT.*likelihood='gaussian'"),
        ({"objective": "tightened", "basis": "decoupled", "solver": "adam"}, "'tightened'.*basis='decoupled'"),
        ({"objective": Predictive(0.0)}, r"Predictive\(kl_weight=0.0\).*positive"),
        ({"objective": Predictive(-1)}, r"kl_weight=-1.*positive"),
        ({"objective": Predictive(np.inf)}, r"kl_weight=inf.*finite"),
        ({"objective": Predictive(True)}, r"kl_weight=True"),
        ({"objective": Predictive("1")}, r"kl_weight='1'"),
        ({"objective": "predictive", "mean_solver": "exact"}, "mean_solver='exact'.*'predictive'.*mean_solver='adam'"),
        ({"objective": "predictive", "solver": "lbfgs"}, "objective 'predictive' updates q.*mean_var_sqrt"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(arguments, message, toy):
    with pytest.raises(ValueError, match=message):
        NGDSVGPRegressor(n_inducing=5, max_iter=5, **arguments).fit(*toy)


def test_a_likelihood_without_a_predictive_density_is_refused():
    with pytest.raises(ValueError, match="Likelihood has no log_predictive_density"):
        Predictive().check(likelihoods.Likelihood())


@pytest.mark.parametrize("objective", ["predictive", Predictive(0.5)], ids=repr)
def test_predictive_has_no_stream(objective):
    reg = NGDSVGPRegressor(objective=objective)
    assert not hasattr(reg, "partial_fit")
    with pytest.raises(AttributeError) as caught:
        reg.partial_fit  # noqa: B018
    assert "objective='elbo'" in str(caught.value.__cause__ or caught.value)


def test_a_name_has_no_parameters():
    with pytest.raises(ValueError, match=r"objective__kl_weight.*Predictive\(\)"):
        NGDSVGPRegressor(objective="predictive").set_params(objective__kl_weight=0.5)


def test_names_are_those_of_the_files():
    assert objectives.names() == ["elbo", "predictive", "tightened"]
