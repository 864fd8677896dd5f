"""A row's variance by one product: its digits beside those of two, and where there is none."""

import pickle

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import solve_triangular
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, Matern

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, kernels
from skgp_natgrad._backend.linalg import squared_lengths
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.prediction import evaluate, joint, posterior
from skgp_natgrad.prediction import model as prediction_model
from skgp_natgrad.prediction.gradients import gradients
from skgp_natgrad.prediction.gradients import target_moments as slopes_of_moments
from skgp_natgrad.prediction.posterior import reduced, reduction_of

from .conftest import make_problem

EXTENDED = np.longdouble
N_ROWS, N_POINTS = 400, 60

needs_extended = pytest.mark.skipif(
    np.finfo(EXTENDED).eps > 1e-18, reason="numpy.longdouble is double precision on this platform"
)


# -- digits, against a reference in extended precision ---------------------------------------


def extended_factor(A):
    """The Cholesky factor of a matrix in extended precision, which LAPACK does not have."""
    L = np.zeros_like(A)
    for j in range(len(A)):
        L[j, j] = np.sqrt(A[j, j] - L[j, :j] @ L[j, :j])
        L[j + 1 :, j] = (A[j + 1 :, j] - L[j + 1 :, :j] @ L[j, :j]) / L[j, j]
    return L


def extended_solve(L, B):
    found = np.zeros_like(B)
    for i in range(len(L)):
        found[i] = (B[i] - L[i, :i] @ found[:i]) / L[i, i]
    return found


def exact_variance(K, precision, Kzx):
    A = extended_solve(extended_factor(K.astype(EXTENDED)), Kzx.astype(EXTENDED))
    half = extended_solve(extended_factor(precision.astype(EXTENDED)), A)
    return 1.0 - (A * A).sum(0) + (half * half).sum(0)


def two_products(whiten, root, Kzx):
    A = whiten @ Kzx
    return np.maximum(1.0 - (A * A).sum(0), 0.0) + ((root.T @ A) ** 2).sum(0)


def one_product(whiten, root, Kzx):
    found = reduction_of(whiten[None], root[None])
    if found is None:
        return two_products(whiten, root, Kzx)
    assert_array_equal(found[0], np.tril(found[0]))
    return 1.0 - squared_lengths(found[0], Kzx)


def optimum(kernel, ratio, jitter, rng):
    """K, L^-1, the precision of the best q and a root of its covariance, and test rows: amplitude one, N / s^2."""
    X = rng.uniform(-3, 3, (N_ROWS, 2))
    Z = X[:N_POINTS].copy()
    # New rows, rows of training, inducing points, and rows next to these.
    X_new = np.concatenate([rng.uniform(-3, 3, (200, 2)), X[-50:], Z[:20], Z[:20] + 1e-6])
    K = kernel(Z) + jitter * np.eye(N_POINTS)
    whiten = solve_triangular(np.linalg.cholesky(K), np.eye(N_POINTS), lower=True)
    A = whiten @ kernel(Z, X)
    precision = np.eye(N_POINTS) + ratio / N_ROWS * (A @ A.T)
    root = solve_triangular(np.linalg.cholesky(precision), np.eye(N_POINTS), lower=True).T
    return K, whiten, 0.5 * (precision + precision.T), root, kernel(Z, X_new)


@needs_extended
@pytest.mark.parametrize("jitter", [1e-8, 1e-12])
@pytest.mark.parametrize("ratio", [1.0, 1e4, 1e8, 1e12])
@pytest.mark.parametrize("kernel", [RBF(1.0), RBF(4.0), Matern(1.0, nu=2.5)], ids=["rough", "smooth", "matern"])
def test_one_product_has_the_digits_of_two(kernel, ratio, jitter, rng):
    """N k / s^2 from 1 to 1e12, variances down to 1e-11 of the prior's."""
    K, whiten, precision, root, Kzx = optimum(kernel, ratio, jitter, rng)
    exact = exact_variance(K, precision, Kzx)
    two, one = (np.abs(form(whiten, root, Kzx) - exact) for form in (two_products, one_product))
    # Where S is wider than the prior by more than rounding, by its own rounding, the two products stay.
    assert ratio > 1e8 or reduction_of(whiten[None], root[None]) is not None
    rounding = 20 * np.finfo(float).eps
    assert one.max() < 2.0 * two.max() + rounding
    assert (one / exact).max() < 3.0 * (two / exact).max() + rounding
    # All that is lost is some rounding of the prior's variance, magnified by an ill-conditioned K.
    assert one.max() < 1e-10
    assert np.median(one) < 2.0 * np.median(two) + rounding


def test_eigenvectors_would_lose_digits(rng):
    """Why the root of I - S is triangular: the same difference with eigenvectors of I - S."""
    K, whiten, precision, root, Kzx = optimum(Matern(1.0, nu=2.5), 1e12, 1e-12, rng)
    values, vectors = np.linalg.eigh(np.eye(N_POINTS) - root @ root.T)
    mixed = 1.0 - (values[:, None] * ((vectors.T @ whiten) @ Kzx) ** 2).sum(0)
    exact = exact_variance(K, precision, Kzx) if np.finfo(EXTENDED).eps < 1e-18 else two_products(whiten, root, Kzx)
    error, of_eigenvectors = (np.max(np.abs(each - exact) / exact) for each in (one_product(whiten, root, Kzx), mixed))
    assert error < 0.7 * of_eigenvectors


# -- what there is, and what there is not ----------------------------------------------------


def test_directions_without_data_are_dropped(rng):
    """I - S of rank 5 of 30: its other eigenvalues are rounding, of either sign."""
    A = rng.normal(size=(30, 5))
    root = np.linalg.inv(np.linalg.cholesky(np.eye(30) + 10.0 * A @ A.T)).T
    whiten = np.tril(rng.normal(size=(30, 30)))
    (V,) = reduction_of(whiten[None], root[None])
    assert np.count_nonzero(V.any(1)) <= 30
    expected = whiten.T @ (np.eye(30) - root @ root.T) @ whiten
    assert_allclose(V.T @ V, expected, atol=1e-13 * np.abs(whiten.T @ whiten).max())
    assert not reduction_of(whiten[None], np.eye(30)[None]).any()


@pytest.mark.parametrize("excess", [1e-6, 0.1])
def test_a_q_wider_than_the_prior_keeps_two_products(excess, rng):
    vectors = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    variances = np.append(np.geomspace(1e-6, 0.9, 11), 1.0 + excess)
    root = np.linalg.cholesky(vectors * variances @ vectors.T)
    narrow = np.linalg.cholesky(vectors * np.minimum(variances, 0.99) @ vectors.T)
    whiten = np.tril(rng.normal(size=(1, 12, 12)))
    assert reduction_of(whiten, root[None]) is None
    assert reduction_of(whiten, np.stack([narrow, root])) is None
    assert reduction_of(whiten, np.stack([narrow, narrow])).shape == (2, 12, 12)


def fitted_both_ways(basis, rng, n_kernels=1, n_second=0):
    """Kernels, and the posterior of a random model of two latent functions with masked points, in both forms."""
    parameters, q, _, constants = make_problem(Gaussian(), rng, n_mean_inducing=5, basis=basis)
    each = (1.3 * Matern(0.9, nu=2.5), 0.5 * RBF(0.8))[:n_kernels]
    twins = tuple(kernels.from_sklearn(kernel, 3).value for kernel in each)
    parameters = parameters._replace(log_kernels=jax.tree.map(np.log, twins))
    masks = constants.masks._replace(Z=np.arange(len(constants.masks.Z)) < 5.0)
    # Narrower than the prior, as under data.
    wide = np.eye(q.mean.shape[-1])
    q = q._replace(precision=q.precision + wide, cov=np.linalg.inv(q.precision + wide))
    two = posterior.condition(basis, parameters, q, constants._replace(masks=masks))[0]
    two = jax.tree.map(np.asarray, two)
    return each, twins, two, reduced(two)


@pytest.mark.parametrize("n_kernels", [1, 2])
@pytest.mark.parametrize("basis", ["orthogonal", "hybrid", "decoupled"])
@pytest.mark.usefixtures("x64")
def test_all_predictions_are_those_of_two_products(basis, n_kernels, rng):
    """Moments at few rows and at many, joint covariances and derivatives."""
    each, twins, two, one = fitted_both_ways(basis, rng, n_kernels)
    assert one.root_S is None
    assert_array_equal(one.reduction, np.tril(one.reduction))
    X = rng.normal(size=(20, 3))
    for predict, some in ((evaluate.at_few_rows, each), (evaluate.in_chunks, twins)):
        got, expected = (predict(evaluate.latent_moments, some, Gaussian(), form, X[:7]) for form in (one, two))
        assert_allclose(got, expected, rtol=1e-11, atol=1e-13)
    got, expected = (joint.covariance_of_latents(twins, form, X) for form in (one, two))
    assert_allclose(got, expected, atol=1e-13)
    likelihood = Gaussian(np.full((2, 1), 0.1))
    got, expected = (gradients(slopes_of_moments, twins, likelihood, form, None, X) for form in (one, two))
    assert_allclose(got, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.usefixtures("x64")
def test_strips_hold_all_rows(rng):
    """More rows than one strip has, not a multiple of their number; with one matrix for all and with one each."""
    L, B = np.tril(rng.normal(size=(2, 251, 251))), rng.normal(size=(1, 251, 3))
    assert_allclose(squared_lengths(L, B), ((L @ B) ** 2).sum(-2), rtol=1e-13)
    assert_allclose(jax.jit(squared_lengths)(L, B), ((L @ B) ** 2).sum(-2), rtol=1e-13)


def test_values_that_are_not_finite_are_left_to_the_caller(rng):
    _, _, two, _ = fitted_both_ways("orthogonal", rng)
    broken = two._replace(root_S=np.nan * two.root_S)
    assert reduced(broken) is broken


# -- the estimators --------------------------------------------------------------------------

X = np.random.default_rng(5).normal(size=(80, 3))
Y = np.sin(X[:, 0]) + 0.1 * X[:, 1]
STEPS = {"n_inducing": 12, "max_iter": 20, "random_state": 0}
MODELS = {
    "regressor": (NGDSVGPRegressor(**STEPS), Y),
    "solve": (NGDSVGPRegressor(1.0 * RBF(), basis="solve", n_mean_inducing=6, **STEPS), Y),
    "exact mean": (NGDSVGPRegressor(1.0 * RBF(), mean_solver="exact", n_mean_inducing=6, **STEPS), Y),
    # With fewer points than rows: the exact process has one product from the start.
    "evidence": (NGDSVGPRegressor(1.0 * RBF(), n_inducing=40, random_state=0), Y),
    "classes at once": (NGDSVGPClassifier(1.0 * RBF(), random_state=0), np.digitize(Y, [-0.5, 0.5])),
}


def predictions(model):
    found = [*model.predict_latent(X, return_std=True), *model.predict_latent(X[:9], return_cov=True)]
    if isinstance(model, NGDSVGPRegressor):
        found += [*model.predict(X[:3], return_std=True), *model.predict_gradient(X[:9], return_std=True)]
        found += [*model.predict(X[:9], return_cov=True)]
    else:
        found.append(model.predict_proba(X))
    return [*found, model.sample_y(X[:5], 3)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", MODELS)
def test_one_product_predicts_what_two_predict(name, monkeypatch):
    """A model may have the factors of both products, as where q is wider than the prior."""
    estimator, y = MODELS[name]
    with monkeypatch.context() as patch:
        patch.setattr("skgp_natgrad.prediction.model.reduced", lambda two: two)
        loaded = pickle.loads(pickle.dumps(estimator.fit(X, y)))
    assert loaded._posterior.reduction is None
    model = estimator.fit(X, y)
    assert model._posterior.root_S is None
    assert model._posterior.whiten is None
    assert model._posterior.reduction.shape[-2:] == loaded._posterior.whiten.shape[-2:]
    for got, expected in zip(predictions(model), predictions(loaded), strict=True):
        assert_allclose(got, expected, rtol=1e-7, atol=1e-7)
    # As many numbers as before.
    assert len(pickle.dumps(model)) < len(pickle.dumps(loaded)) + 1000


@pytest.mark.slow
def test_a_wide_q_is_predicted_by_two_products():
    """Outliers under a likelihood that is not log-concave: its negative curvature makes q wider than the prior."""
    rng = np.random.default_rng(0)
    table = np.linspace(-1.0, 1.0, 30)[:, None]
    y = np.where(np.arange(30) % 2, 3.0, -3.0) + 0.01 * rng.normal(size=30)
    options = {"optimizer": None, "n_inducing": 10, "max_iter": 30, "gamma_schedule": 0.2, "tol": 0.0}
    model = NGDSVGPRegressor(0.1 * RBF(1.0), likelihood="student_t", random_state=0, **options)
    with pytest.warns((ConvergenceWarning, UserWarning)):
        model.fit(table, y)
    assert model._posterior.reduction is None
    std = model.predict_latent(table, return_std=True)[1]
    covariance = model.predict_latent(table, return_cov=True)[1]
    assert_allclose(np.diag(covariance), std**2, rtol=1e-10)
    few = model.predict_latent(table[:2], return_std=True)[1]
    assert_allclose(few, std[:2], rtol=1e-10)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n_rows", [300, 5000])
@pytest.mark.parametrize(
    "options", [{"dtype": "float32"}, {}, {"solver": "evidence"}], ids=["single", "double", "solved"]
)
def test_fits_into_little_noise_have_the_deviations_of_two_products(n_rows, options, rng, monkeypatch):
    """N k / s^2 of 3e10 and 5e11, with rows in single precision too."""
    X = rng.uniform(-3, 3, (n_rows, 2))
    y = np.sin(X[:, 0]) + np.cos(X[:, 1])
    options = {"solver": "ngd", "max_iter": 20, "optimizer": None, "batch_size": None} | options
    if options["solver"] == "evidence":
        options = {"solver": "evidence"}
    model = NGDSVGPRegressor(
        1.0 * RBF(1.0), likelihood=Gaussian(1e-8, "fixed"), n_inducing=40, random_state=0, **options
    )
    new = rng.uniform(-3, 3, (50, 2))
    found = model.fit(X, y).predict_latent(new, return_std=True)[1]
    assert model._posterior.reduction is not None
    monkeypatch.setattr(prediction_model, "reduced", lambda posterior: posterior)
    expected = clone(model).fit(X, y).predict_latent(new, return_std=True)[1]
    assert_allclose(found, expected, rtol=1e-5)
