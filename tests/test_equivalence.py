"""The heart of the tests: each numerical piece equals something independent of it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from skgp_natgrad import Constant, NGDSVGPRegressor, kernels, likelihoods
from skgp_natgrad.likelihoods import Bernoulli, Gaussian, HeteroscedasticGaussian, Ordinal, RobustMax, Softmax, StudentT
from skgp_natgrad.step import step
from skgp_natgrad.step.algorithm import Algorithm
from skgp_natgrad.variational import bound as bounds
from skgp_natgrad.variational import gaussian, natural_gradient
from skgp_natgrad.variational import model as model_parts
from skgp_natgrad.variational.points import Masks, Points

from .conftest import make_problem
from .reference import reference_elbo, reference_moments, titsias

JITTER = 1e-8


def likelihood_id(likelihood):
    return repr(likelihood)


# The identities hold whatever the likelihood: those of each number of latent functions (1, 2, 3 and 4) and of
# each shape of parameters (none, numbers, a vector), and the first without mean-only points.
SHAPES = [Bernoulli(), StudentT(), Softmax(), HeteroscedasticGaussian(), Ordinal(bins="learned")]
CASES = [(likelihood, 4) for likelihood in SHAPES] + [(SHAPES[0], 0)]


@jax.jit
def elbo(parameters, q, batch, constants):
    """The bound, as the training step reports it."""
    return step.bound(q, parameters, constants, batch, Algorithm())


def exact_regressor(kernel, noise, Z, **kwargs):
    """One natural gradient step of size one, everything else fixed."""
    return NGDSVGPRegressor(
        kernel,
        likelihood=Gaussian(variance=noise),
        inducing_init=Z,
        optimizer=None,
        gamma_schedule=Constant(1.0),
        max_iter=1,
        tol=np.finfo(float).max,
        normalize_X=False,
        normalize_y=False,
        **kwargs,
    )


@jax.jit
def latent_moments(parameters, m, S, X, constants):
    return bounds.latent_moments("orthogonal", parameters, m, S, X, constants)


@jax.jit
def _matrix(kernel, *rows):
    return kernel(*rows)


def compiled_kernel(log_kernels):
    """The only kernel, compiled; its matrices are NumPy arrays."""
    (kernel,) = jax.tree.map(np.exp, log_kernels)
    return lambda *rows: np.asarray(_matrix(kernel, *rows))


@functools.partial(jax.jit, static_argnames="name")
def _call(model, name, *arguments):
    return getattr(model, name)(*arguments)


def call(model, name, *arguments):
    """A method of the likelihood, compiled as a whole; NumPy arrays."""
    return jax.device_get(_call(model, name, *arguments))


@pytest.fixture
def table(rng):
    X = rng.uniform(-3, 3, size=(80, 2))
    return X, np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=80), rng.uniform(-3, 3, size=(30, 2))


# -- one step is the optimum, and with all the inducing points it is the exact GP -----------


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_one_step_is_titsias_optimum(table, rng):
    X, y, X_new = table
    kernel = sk.ConstantKernel(1.5) * sk.Matern([1.2, 0.8], nu=2.5) + sk.RBF(2.0)
    Z, noise, jitter = rng.uniform(-3, 3, size=(15, 2)), 0.05, 1e-8
    reg = exact_regressor(kernel, noise, Z, jitter=jitter).fit(X, y)
    bound, mean, var = titsias(kernel, Z, X, y, noise, jitter, X_new)
    assert_allclose(reg.elbo_, bound, rtol=1e-8)
    y_mean, y_std = reg.predict(X_new, return_std=True)
    assert_allclose(y_mean, mean, atol=1e-8)
    assert_allclose(y_std**2, var + noise, rtol=1e-8)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_inducing_points_at_the_data_are_the_exact_gp(table):
    X, y, X_new = table
    kernel, noise = sk.ConstantKernel(1.5) * sk.Matern([1.2, 0.8], nu=1.5), 0.05
    reg = exact_regressor(kernel, noise, X).fit(X, y)
    exact = GaussianProcessRegressor(kernel, alpha=noise, optimizer=None).fit(X, y)
    mean, cov = exact.predict(X_new, return_cov=True)
    y_mean, y_std = reg.predict(X_new, return_std=True)
    assert_allclose(y_mean, mean, atol=1e-5)
    assert_allclose(np.sqrt(y_std**2 - noise), np.sqrt(np.diag(cov)), atol=1e-5)
    assert_allclose(reg.predict(X_new, return_cov=True)[1], cov + noise * np.eye(len(cov)), atol=1e-5)
    assert_allclose(reg.elbo_, exact.log_marginal_likelihood_value_, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_trained_hyperparameters_approach_the_exact_gp(table):
    X, y, X_new = table
    kernel = sk.ConstantKernel(4.0) * sk.RBF(2.0)
    reg = NGDSVGPRegressor(
        kernel, inducing_init=X, max_iter=800, gamma_schedule=0.5, learning_rate=0.05, tol=0.0, normalize_X=False
    ).fit(X, y)
    exact = GaussianProcessRegressor(kernel + sk.WhiteKernel(0.1), normalize_y=True).fit(X, y)
    best = exact.log_marginal_likelihood_value_
    assert best - 2.0 < reg.elbo_ < best + 1e-4
    assert_allclose(reg.predict(X_new), exact.predict(X_new), atol=0.15)
    assert_allclose(reg.likelihood_.variance, exact.kernel_.k2.noise_level, rtol=0.1)


# -- the natural gradient step ------------------------------------------------------------


@pytest.mark.parametrize(("likelihood", "n_mean_inducing"), CASES, ids=repr)
@pytest.mark.usefixtures("x64")
def test_closed_form_step_is_the_gradient_in_expectation_parameters(likelihood, n_mean_inducing, rng):
    parameters, q, batch, constants = make_problem(likelihood, rng, n_mean_inducing=n_mean_inducing)
    gamma = 0.3

    def bound(eta1, eta2):
        return reference_elbo(parameters, eta1, eta2 - jnp.einsum("ki,kj->kij", eta1, eta1), batch, JITTER)

    def expectation(m, S):
        return bounds.bound_given_q("orthogonal", parameters, m, S, batch, constants)

    @jax.jit
    def both(q):
        eta2 = q.cov + jnp.einsum("ki,kj->kij", q.mean, q.mean)
        dm, dS = jax.grad(expectation, argnums=(0, 1))(q.mean, q.cov)
        return natural_gradient.candidate(q, dm, dS, gamma), jax.grad(bound, argnums=(0, 1))(q.mean, eta2)

    moved, (d1, d2) = both(q)
    assert_allclose(moved.nat1, q.nat1 + gamma * d1, atol=1e-10)
    assert_allclose(moved.precision, q.precision - 2.0 * gamma * d2, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize(("likelihood", "n_mean_inducing"), CASES, ids=repr)
@pytest.mark.usefixtures("x64")
def test_bound_and_its_gradients_equal_plain_autodiff(likelihood, n_mean_inducing, rng):
    parameters, q, batch, constants = make_problem(likelihood, rng, n_mean_inducing=n_mean_inducing)

    def ours(parameters):
        return elbo(parameters, q, batch, constants._replace(scale=1.7))

    def plain(parameters):
        return reference_elbo(parameters, q.mean, q.cov, batch, JITTER, 1.7)

    value, gradient = jax.jit(jax.value_and_grad(ours))(parameters)
    expected, expected_gradient = jax.jit(jax.value_and_grad(plain))(parameters)
    assert_allclose(value, expected, rtol=1e-11)
    for got, want in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected_gradient), strict=True):
        assert_allclose(got, want, rtol=1e-8, atol=1e-8)


@pytest.mark.usefixtures("x64")
def test_masked_points_are_not_there(rng):
    parameters, q, batch, constants = make_problem(StudentT(), rng, n_mean_inducing=4)
    want = elbo(parameters, q, batch, constants)

    def pad(x, *widths):
        return np.pad(x, widths, constant_values=0.3)

    padded = parameters._replace(
        points=Points(pad(parameters.points.Z, (0, 2), (0, 0)), pad(parameters.points.Z_mean, (0, 3), (0, 0))),
        weights=parameters.weights._replace(a=pad(parameters.weights.a, (0, 0), (0, 3))),
    )
    masks = Masks(np.r_[np.ones(6), 0, 0], np.r_[np.ones(4), 0, 0, 0])
    precision = np.stack([np.block([[P, np.zeros((6, 2))], [np.zeros((2, 6)), np.eye(2)]]) for P in q.precision])
    q = jax.jit(gaussian.from_natural)(np.pad(q.nat1, ((0, 0), (0, 2))), precision)
    batch = batch._replace(columns=np.arange(7))
    assert_allclose(elbo(padded, q, batch, constants._replace(masks=masks)), want, rtol=1e-12)


# -- the orthogonal basis -----------------------------------------------------------------


@pytest.mark.usefixtures("x64")
def test_orthogonal_optimum_is_appendix_d(rng):
    """At appendix D's solution every gradient of the bound vanishes, and so does a natural gradient step."""
    noise = 0.1
    likelihood = Gaussian(variance=noise)
    parameters, _, batch, constants = make_problem(likelihood, rng, n_mean_inducing=5, n_targets=1)
    batch = batch._replace(weight=np.ones(25))
    kernel = compiled_kernel(parameters.log_kernels)
    Z, Z_mean = parameters.points[:2]
    alpha = np.concatenate([Z, Z_mean])
    jitter = JITTER * float(np.diag(kernel(Z, Z)).mean())
    nugget = np.zeros((11, 11))
    nugget[:6, :6] = jitter * np.eye(6)
    Kaa, Kax = kernel(alpha, alpha) + nugget, kernel(alpha, batch.X)
    weights = np.linalg.solve(Kax @ Kax.T / noise + Kaa, Kax @ batch.y[0] / noise)
    a_z, a_g = weights[:6], weights[6:]
    Kzz, Kzx, Kzg = Kaa[:6, :6], Kax[:6], Kaa[:6, 6:]
    L = np.linalg.cholesky(Kzz)
    A = np.linalg.solve(L, Kzx)
    S = np.linalg.inv(np.eye(6) + A @ A.T / noise)
    # k_xz a_z + k_xg a_g = k_xz L^-T (m - L^-1 Kzg a_g) + k_xg a_g.
    m = L.T @ a_z + np.linalg.solve(L, Kzg @ a_g)
    optimum = parameters._replace(weights=parameters.weights._replace(a=a_g[None]))

    def bound(a, m, S):
        return reference_elbo(parameters._replace(weights=parameters.weights._replace(a=a)), m, S, batch, JITTER)

    gradients = jax.jit(jax.grad(bound, argnums=(0, 1, 2)))(a_g[None], m[None], S[None])
    for gradient in gradients:
        assert_allclose(gradient, 0.0, atol=1e-6)

    def expectation(m, S):
        return bounds.bound_given_q("orthogonal", optimum, m, S, batch, constants)

    q = jax.jit(gaussian.from_natural)(np.linalg.solve(S, m)[None], np.linalg.inv(S)[None])

    @jax.jit
    def step_from(q):
        dm, dS = jax.grad(expectation, argnums=(0, 1))(q.mean, q.cov)
        return natural_gradient.candidate(q, dm, dS, 0.7)

    moved = step_from(q)
    assert_allclose(moved.mean, q.mean, atol=1e-7)
    assert_allclose(moved.cov, q.cov, atol=1e-8)
    mean = latent_moments(optimum, m[None], S[None], batch.X, constants).mean
    assert_allclose(mean[0], Kax.T @ weights, atol=1e-8)


@pytest.mark.slow
def test_training_reaches_appendix_d(table, rng):
    X, y, X_new = table
    kernel, noise = sk.RBF(1.0), 0.1
    Z, Z_mean = X[:8], X[8:20]
    reg = NGDSVGPRegressor(
        kernel=sk.RBF(1.0, "fixed"),
        likelihood=Gaussian(noise, "fixed"),
        n_inducing=8,
        n_mean_inducing=12,
        inducing_init=np.concatenate([Z, Z_mean]),
        optimizer=None,
        gamma_schedule=0.5,
        learning_rate=0.1,
        max_iter=3000,
        tol=0.0,
        normalize_X=False,
        normalize_y=False,
    ).fit(X, y)
    alpha = np.concatenate([Z, Z_mean])
    weights = np.linalg.solve(kernel(alpha, X) @ kernel(X, alpha) / noise + kernel(alpha), kernel(alpha, X) @ y / noise)
    assert_allclose(reg.predict(X_new), kernel(X_new, alpha) @ weights, atol=2e-3)
    _, coupled, _ = titsias(kernel, Z, X, y, noise, 1e-8, X_new)
    assert np.abs(reg.predict(X_new) - coupled).max() > 0.05


# -- kernels ------------------------------------------------------------------------------

KERNELS = [
    sk.ConstantKernel(2.0),
    sk.RBF(0.7),
    sk.RBF([0.5, 1.0, 2.0]),
    *(sk.Matern(0.8, nu=nu) for nu in (0.5, 1.5, 2.5, np.inf)),
    *(sk.Matern([0.8, 1.1, 2.0], nu=nu) for nu in (0.5, 1.5, 2.5, np.inf)),
    sk.RationalQuadratic(0.9, alpha=0.6),
    sk.ExpSineSquared(1.2, periodicity=2.3),
    sk.DotProduct(0.4),
    sk.DotProduct(0.4) ** 2,
    1.5 * sk.Matern([0.8, 1.1, 2.0], nu=2.5) + sk.RBF(1.7) * sk.DotProduct(1.2, "fixed"),
    (sk.RBF(0.6) + sk.ConstantKernel(0.3)) ** 1.5 * sk.RationalQuadratic(1.0, 2.0, "fixed"),
    kernels.Laplacian(0.7),
    kernels.Laplacian([0.5, 1.0, 2.0]),
    kernels.Columns(sk.RBF([0.5, 2.0]), [2, 0]),
    kernels.LinearTransform(sk.Matern([0.8, 1.5], nu=2.5), [[0.5, -1.0], [0.3, 0.4], [-0.7, 0.2]]),
    kernels.LinearTransform(0.5 * kernels.Columns(sk.RBF(0.7), 1) + sk.DotProduct(0.4), 0.5 - np.eye(3)[:, :2]),
    1.5 * kernels.Columns(kernels.LinearTransform(sk.RBF(0.7), [[0.0], [-2.0]], "fixed"), [2, 0]),
    1.2 * kernels.Columns(sk.DotProduct(0.4), 1) * kernels.Columns(sk.RBF(0.7), [0, -1]) + sk.Matern(0.8, nu=1.5),
    kernels.Columns(kernels.Coregionalization([1.0, 0.5], [0.7, 1.9]), 1),
    sk.RBF(0.7) + 0.5 * kernels.Nugget(),
    1.3
    * kernels.Columns(sk.RBF([0.5, 2.0]), [0, 2])
    * kernels.Columns(kernels.Coregionalization([1.0, 0.5, 2.0], [0.7, 1.9, 0.3, 2.5, 1.2, 1.4], rank=2), 1),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.usefixtures("x64")
def test_kernel_and_its_gradient_equal_scikit_learns(kernel, rng):
    X, Z = rng.normal(size=(12, 3)), rng.normal(size=(7, 3))
    spec = kernels.from_sklearn(kernel, 3)
    # Gradients in log hyperparameters of a weighted sum of all entries, for the free ones.
    C = rng.normal(size=(12, 12))
    C[np.diag_indices(12)] = 0.0

    @jax.jit
    def ours_of(twin, log_value):
        gradient = jax.grad(lambda log_value: (C * model_parts.exponential(log_value)(X, X)).sum())(log_value)
        return twin(X, Z), twin.diag(X), twin(X, X), gradient

    log_value = jax.tree.map(np.log, spec.value)
    K, diagonal, K_of_one, got = ours_of(spec.value, log_value)
    assert_allclose(K, kernel(X, Z), rtol=1e-12)
    assert_allclose(diagonal, kernel.diag(X), rtol=1e-12)
    # Rows that coincide: cancellation in the squared distance is at most a few 1e-15.
    assert_allclose(K_of_one, kernel(X), atol=2e-7 if "nu=0.5" in repr(kernel) else 1e-12)
    _, gradient = kernel(X, eval_gradient=True)
    want = np.einsum("ij,ijt->t", C, gradient)
    # As a scikit-learn kernel whose hyperparameters hold exp(gradient), its theta is the gradient.
    free = jax.tree.map(lambda lower, upper, g: np.where(lower == upper, np.nan, g), spec.lower, spec.upper, got)
    ours = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(free)])
    assert_allclose(np.sort(ours[~np.isnan(ours)]), np.sort(want), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.usefixtures("x64")
def test_kernel_gradient_in_the_inputs_equals_finite_differences(kernel, rng):
    X, Z = rng.normal(size=(5, 3)), rng.normal(size=(4, 3))
    C, direction, h = rng.normal(size=(5, 4)), rng.normal(size=(4, 3)), 1e-6
    twin = kernels.from_sklearn(kernel, 3).value
    got = (np.asarray(jax.jit(jax.grad(lambda Z: (C * twin(X, Z)).sum()))(Z)) * direction).sum()
    want = (C * (kernel(X, Z + h * direction) - kernel(X, Z - h * direction))).sum() / (2 * h)
    assert_allclose(got, want, rtol=1e-6, atol=1e-8)


# -- integrals that test_likelihoods' battery does not reach -------------------------------


def integrate_normal(function, mean, var):
    sd = np.sqrt(var)
    value, _ = integrate.quad(
        lambda z: stats.norm.pdf(z) * function(mean + sd * z), -12, 12, epsabs=1e-13, epsrel=1e-12, limit=500
    )
    return value


@pytest.mark.parametrize("scale", [0.01, 0.05, 0.3])
@pytest.mark.parametrize("residual", [0.0, 0.7, 20.0, 1e4])
@pytest.mark.usefixtures("x64")
def test_student_t_expectation_of_a_narrow_likelihood(scale, residual):
    """The latent deviation is many times the scale, as in the first steps of training."""
    model = StudentT(df=3.0, scale=scale).value_and_bounds(1)[0]
    got = call(model, "expected_log_prob", np.zeros((1, 1)), np.ones((1, 1)), np.full((1, 1), residual))[0]
    want, _ = integrate.quad(
        lambda f: stats.norm.pdf(f) * stats.t.logpdf(residual, 3.0, f, scale),
        -12,
        12,
        points=sorted({0.0, min(residual, 11.9)}),
        epsabs=1e-12,
        epsrel=1e-11,
        limit=2000,
    )
    assert_allclose(got, want, rtol=1e-7)


@pytest.mark.parametrize("df", [1.0, 50.0, 1e3, 1e6])
@pytest.mark.parametrize("residual", [0.0, 0.5, 2.0, 6.0])
@pytest.mark.usefixtures("x64")
def test_student_t_density_for_all_degrees_of_freedom(df, residual):
    model = StudentT(df=df, scale=0.3).value_and_bounds(1)[0]
    moments = np.zeros((1, 1)), np.full((1, 1), 0.1)
    got = call(model, "log_predictive_density", *moments, np.full((1, 1), residual))[0]
    density, _ = integrate.quad(
        lambda f: stats.norm.pdf(f, 0.0, np.sqrt(0.1)) * stats.t.pdf(residual, df, f, 0.3),
        -8.0,
        8.0 + residual,
        points=[0.0, residual * 0.1 / 0.19, residual],
        epsabs=0.0,
        epsrel=1e-11,
        limit=1000,
    )
    assert_allclose(got, np.log(density), atol=1e-8)


@pytest.mark.parametrize("scale", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("residual", [0.0, 3.0, 1e3, 1e6])
@pytest.mark.usefixtures("x64")
def test_student_t_density_far_from_the_data(scale, residual):
    """A narrow likelihood under a wide latent distribution, and an outlier."""
    model = StudentT(df=3.0, scale=scale).value_and_bounds(1)[0]
    moments = np.zeros((1, 1)), np.full((1, 1), 4.0)
    got = call(model, "log_predictive_density", *moments, np.full((1, 1), residual))[0]
    # The same convolution, integrated over the noise instead of the latent function.
    density, _ = integrate.quad(
        lambda u: stats.t.pdf(u, 3.0) * stats.norm.pdf(residual, scale * u, 2.0),
        *(residual / scale + np.array([-30.0, 30.0]) / scale),
        points=[0.0, residual / scale],
        epsabs=0,
        epsrel=1e-10,
        limit=2000,
    )
    assert_allclose(got, np.log(density), rtol=1e-6, atol=1e-7)


def brute_force(rng, mean, var, n=400_000):
    """Latent draws (K, n) by antithetic Monte Carlo."""
    z = rng.standard_normal((len(mean), n // 2))
    return mean[:, None] + np.sqrt(var)[:, None] * np.concatenate([z, -z], axis=1)


@pytest.mark.usefixtures("x64")
def test_softmax_equals_nested_quadrature():
    model = Softmax(n_points=1024).value_and_bounds(1)[0]
    mean, var = np.array([0.4, -0.3]), np.array([0.5, 1.1])
    # Two classes: only the difference of the latent functions matters, a one-dimensional integral.
    expected = integrate_normal(lambda d: -np.logaddexp(0.0, -d), mean[0] - mean[1], var.sum())
    got = call(model, "expected_log_prob", mean[:, None], var[:, None], np.zeros((1, 1)))[0]
    assert_allclose(got, expected, atol=2e-3)
    proba = call(model, "class_probabilities", mean[:, None], var[:, None])[:, 0]
    want = integrate_normal(lambda d: 1.0 / (1.0 + np.exp(-d)), mean[0] - mean[1], var.sum())
    assert_allclose(proba, [want, 1 - want], atol=1e-3)


@pytest.mark.usefixtures("x64")
def test_softmax_converges_to_the_integral(rng):
    mean, var = rng.normal(size=4), rng.uniform(0.1, 1.0, size=4)
    f = brute_force(rng, mean, var)
    want = f[2].mean() - np.log(np.exp(f).sum(0)).mean()
    models, y = [Softmax(n).value_and_bounds(1)[0] for n in (64, 4096)], np.full((1, 1), 2.0)
    got = [call(model, "expected_log_prob", mean[:, None], var[:, None], y)[0] for model in models]
    assert_allclose(got[0], want, atol=0.02)
    assert_allclose(got[1], want, atol=3e-3)


@pytest.mark.usefixtures("x64")
def test_softmax_derivatives_are_bonnets_and_prices(rng):
    """With many points the derivative rule is that of the value; its curvature never has the wrong sign."""
    model = Softmax(n_points=8192).value_and_bounds(1)[0]
    mean, var, y = rng.normal(size=(3, 5)), rng.uniform(0.1, 0.6, size=(3, 5)), rng.integers(0, 3, size=(1, 5))
    gradients = jax.jit(jax.grad(lambda m, v: model.expected_log_prob(m, v, y).sum(), argnums=(0, 1)))
    dm, dv = gradients(mean, var)
    h = 1e-5
    for k in range(3):
        step = np.zeros((3, 1))
        step[k] = h
        for got, args in ((dm, (step, 0.0)), (dv, (0.0, step))):
            up = call(model, "expected_log_prob", mean + args[0], var + args[1], y)
            down = call(model, "expected_log_prob", mean - args[0], var - args[1], y)
            assert_allclose(got[k], (up - down) / (2 * h), atol=2e-3)
    assert np.all(np.asarray(dv) <= 0.0)


@pytest.mark.usefixtures("x64")
def test_robust_max_equals_quadrature():
    epsilon, mean, var = 0.02, np.array([0.3, -0.5, 0.8]), np.array([0.4, 1.2, 0.7])
    model = RobustMax(epsilon=epsilon).value_and_bounds(1)[0]

    def wins(c):
        others = [k for k in range(3) if k != c]

        def below(f):
            return np.prod([stats.norm.cdf((f - mean[k]) / np.sqrt(var[k])) for k in others])

        return integrate_normal(below, mean[c], var[c])

    p = np.array([wins(c) for c in range(3)])
    assert_allclose(p.sum(), 1.0, rtol=1e-10)
    for c in range(3):
        got = call(model, "expected_log_prob", mean[:, None], var[:, None], np.full((1, 1), float(c)))[0]
        assert_allclose(got, p[c] * np.log1p(-epsilon) + (1 - p[c]) * np.log(epsilon / 2), rtol=1e-8)
    proba = call(model, "class_probabilities", mean[:, None], var[:, None])[:, 0]
    assert_allclose(proba, (1 - epsilon) * p + epsilon / 2 * (1 - p), rtol=1e-8)


# -- minibatches --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gaussian", "student_t", "softmax"])
@pytest.mark.usefixtures("x64")
def test_minibatch_bound_is_unbiased(name, rng):
    """The mean over all minibatches of a partition is the bound itself, weights included."""
    parameters, q, batch, constants = make_problem(likelihoods.by_name(name), rng, n_mean_inducing=3, n_rows=24)
    full = elbo(parameters, q, batch, constants)
    parts = [
        elbo(
            parameters,
            q,
            model_parts.Batch(batch.X[i : i + 6], batch.y[:, i : i + 6], batch.weight[i : i + 6], batch.columns),
            constants._replace(scale=4.0),
        )
        for i in range(0, 24, 6)
    ]
    assert_allclose(np.mean(parts), full, rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_moments_equal_plain_algebra(rng):
    parameters, q, batch, constants = make_problem(Gaussian(), rng, n_mean_inducing=4)
    got = latent_moments(parameters, q.mean, q.cov, batch.X, constants)

    @jax.jit
    def plain(parameters, q, X):
        (kernel,) = model_parts.exponential(parameters.log_kernels)
        return reference_moments(kernel, parameters.points, parameters.weights.a, q.mean, q.cov, X, JITTER)

    want = plain(parameters, q, batch.X)
    for ours, theirs in zip(got[:3], want, strict=True):
        assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)
