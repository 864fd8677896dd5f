"""Correlated outputs: against an exact process on stacked rows, written in NumPy, and against independent outputs."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal, norm
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern, WhiteKernel

from skgp_natgrad import NGDSVGPRegressor, kernels, metrics, predictive_distribution, svgp
from skgp_natgrad.choose import evidence
from skgp_natgrad.choose.scale import Scale
from skgp_natgrad.kernels import Columns, Coregionalization
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.start import coregionalization

W, KAPPA = np.array([[0.9, 0.3], [-0.7, 0.8], [0.4, 0.1]]), np.array([0.2, 0.1, 0.5])
B = W @ W.T + np.diag(KAPPA)
FIXED = {"deviation_bounds": "fixed", "angle_bounds": "fixed"}
NOISE = 0.05
GIVEN = {
    "kernel": RBF(0.8, "fixed"),
    "likelihood": Gaussian(NOISE, "fixed"),
    "normalize_X": False,
    "normalize_y": False,
    "missing_targets": "ignore",
    "random_state": 0,
}

X_OF_TWO = np.random.default_rng(0).normal(size=(20, 2))


@pytest.fixture(scope="module")
def table():
    """Rows, weights, and three outputs of which some are missing."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-2.0, 2.0, size=(40, 2))
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] - np.cos(X[:, 0]), rng.normal(size=40)])
    Y[rng.random((40, 3)) < 0.4] = np.nan
    return X, Y, rng.uniform(0.5, 2.0, size=40)


@pytest.fixture(scope="module")
def model(table):
    return NGDSVGPRegressor(output_kernel=Coregionalization.from_factors(W, KAPPA, **FIXED), **GIVEN).fit(*table)


class Exact:
    """The posterior of stacked rows, by plain linear algebra."""

    def __init__(self, X, Y, weight):
        self.p, self.n = np.nonzero(~np.isnan(Y.T))
        self.X, self.y = X[self.n], Y[self.n, self.p]
        self.covariance = self.between(self.X, self.p, self.X, self.p) + np.diag(NOISE / weight[self.n])

    @staticmethod
    def between(X, p, Z, q):
        return np.exp(-0.5 * ((X[:, None] - Z[None]) ** 2).sum(-1) / 0.8**2) * B[p][:, q]

    def at(self, X):
        """Mean (N, 3) and covariance (N, 3, N, 3) of the latent functions."""
        n, p = (each.ravel() for each in np.indices((len(X), 3)))
        cross = self.between(X[n], p, self.X, self.p)
        mean = cross @ np.linalg.solve(self.covariance, self.y)
        covariance = self.between(X[n], p, X[n], p) - cross @ np.linalg.solve(self.covariance, cross.T)
        return mean.reshape(-1, 3), covariance.reshape(len(X), 3, len(X), 3)


# -- the kernel ---------------------------------------------------------------------------


def test_every_low_rank_and_diagonal_matrix_is_a_kernel(rng):
    """As gpflow.kernels.Coregion has it: W W^T + diag(kappa) at pairs of outputs."""
    for n_outputs, rank in ((2, 1), (4, 2), (3, 3)):
        factors = rng.normal(size=(n_outputs, rank)), rng.uniform(0.1, 2.0, size=n_outputs)
        kernel, full = Coregionalization.from_factors(*factors), factors[0] @ factors[0].T + np.diag(factors[1])
        p, q = rng.integers(n_outputs, size=(7, 1)), rng.integers(n_outputs, size=(5, 1))
        assert_allclose(kernel(p, q), full[p, q.T], rtol=1e-12)
        assert_allclose(kernel.diag(p), np.diag(full)[p[:, 0]], rtol=1e-12)
        for found, expected in zip(kernel.factors, factors, strict=True):
            assert_allclose(found, expected, rtol=1e-10)


def test_a_large_column_leaves_the_digits_of_small_ones():
    factors = np.array([[1e5, 1.0], [-1e5, 2.0]]), np.array([1e-3, 1e-4])
    for found, expected in zip(Coregionalization.from_factors(*factors).factors, factors, strict=True):
        assert_allclose(found, expected, rtol=1e-6)


def test_rows_of_a_sparse_output_are_among_those_of_the_evidence():
    y = np.full((2, 5000), np.nan)
    y[0], y[1, ::100] = 1.0, 2.0
    y[0, 1::100] = np.nan
    table = svgp.Table(np.arange(5000.0)[:, None], y, np.ones(5000))
    some = coregionalization._some_rows(table, np.random.RandomState(0))
    assert np.sum(~np.isnan(some.y[1])) == 50
    assert np.sum(~np.isnan(some.y)) <= evidence.ROWS


def test_a_template_and_wrong_sizes_are_refused():
    with pytest.raises(ValueError, match="single numbers are a template for output_kernel"):
        Coregionalization()(np.zeros((2, 1)))
    with pytest.raises(ValueError, match="2 deviations and 2 angles: give one deviation for each output and rank=2"):
        kernels.from_sklearn(Coregionalization([1.0, 1.0], [1.0, 1.0], rank=2), 1)
    with pytest.raises(ValueError, match="on 2 columns, but the number of the output is one column"):
        kernels.from_sklearn(Coregionalization([1.0, 1.0], [1.0, 1.0]), 2)


@pytest.mark.slow
def test_a_kernel_that_names_the_column_of_outputs_keeps_their_numbers(table):
    """In a table with a row for each value, which the user has stacked."""
    X, Y, _ = table
    p, n = np.nonzero(~np.isnan(Y.T))
    rows = np.column_stack([X[n], p])
    kernel = Columns(RBF(0.8, "fixed"), [0, 1]) * Columns(Coregionalization.from_factors(W, KAPPA, **FIXED), 2)
    found = NGDSVGPRegressor(kernel, likelihood=Gaussian(0.1, "fixed"), random_state=0).fit(rows, Y[n, p])
    assert_array_equal(found._x_scale.forward(rows)[:, 2], p)
    kernel.set_params(k1__kernel__length_scale_bounds=(1e-5, 1e5))
    with pytest.raises(ValueError, match="normalize_X='quantile' would change it"):
        NGDSVGPRegressor(kernel, normalize_X="quantile").fit(rows, Y[n, p])


def test_each_term_of_a_sum_has_its_own_matrix(rng):
    X = np.column_stack([rng.normal(size=(8, 2)), np.arange(8) % 2])
    inside = Columns(RBF(0.7), -1)
    given = 2.0 * Matern([1.0, 2.0]) + 0.5 * inside * DotProduct(1.5)
    kernel = coregionalization.on_outputs(given, 2, Coregionalization([1.0, 2.0], [0.5, 2.0]))
    p = X[:, 2].astype(int)
    between = kernel.k1.k2.kernel.covariance
    assert_allclose(kernel(X), given(X[:, :2]) * between[p][:, p], rtol=1e-12)
    assert kernel.k1.k2.kernel is not kernel.k2.k2.kernel


# -- the evidence -------------------------------------------------------------------------


@pytest.mark.usefixtures("x64")
def test_evidence_with_a_noise_for_each_output_and_its_gradient(table):
    X, Y, weight = table
    rows = coregionalization.stacked(svgp.Table(X, Y.T, np.maximum(weight, 1.0)))
    kernel = Columns(RBF(0.8), [0, 1]) * Columns(Coregionalization.from_factors(W, KAPPA), 2)
    logs = svgp.specification((kernel,), Gaussian(), 3, 1)[0][0][0]
    noise = np.log([0.05, 0.2, 0.01])
    at = evidence.Hyperparameters(logs, noise)
    value, gradient = evidence.value_and_gradient(at, rows)
    p = rows.X[:, 2].astype(int)
    covariance = kernel(rows.X) + np.diag(np.exp(noise)[p] / rows.weight)
    assert_allclose(value, multivariate_normal.logpdf(rows.y[0], cov=covariance), rtol=1e-10)
    for k, step in enumerate(1e-6 * np.eye(3)):
        ends = [evidence.value(evidence.Hyperparameters(logs, noise + sign * step), rows) for sign in (1.0, -1.0)]
        assert_allclose(gradient.noise[k], (ends[0] - ends[1]) / 2e-6, rtol=1e-6)
    with pytest.raises(ValueError, match="number of each row's output in the last column"):
        evidence.value(at, rows._replace(X=rows.X - 0.5))


# -- the exact process --------------------------------------------------------------------


def test_evidence_and_predictions_are_those_of_the_exact_process_on_stacked_rows(model, table, rng):
    exact, X = Exact(*table), rng.uniform(-2.5, 2.5, size=(6, 2))
    mean, covariance = exact.at(X)
    var = np.einsum("ipip->ip", covariance)
    f_mean, f_std = model.predict_latent(X, return_std=True)
    assert_allclose(f_mean, mean, rtol=1e-8, atol=1e-8)
    assert_allclose(f_std, np.sqrt(var), rtol=1e-8)
    std = model.predict(X, return_std=True)[1]
    assert_allclose(std, np.sqrt(var + NOISE), rtol=1e-8)
    assert_allclose(model.predict(X), mean, rtol=1e-8, atol=1e-8)
    joint = model.predict(X, return_cov=True)[1]
    for k in range(3):
        assert_allclose(joint[:, :, k], covariance[:, k, :, k] + NOISE * np.eye(6), rtol=1e-7, atol=1e-8)
    # Weights w stand for w observations of noise s^2; their constant is left to the other tests of the bound.
    y = rng.normal(size=(6, 3))
    y[2, 1] = np.nan
    assert_allclose(model.predict_log_density(X, y), np.nansum(norm.logpdf(y, mean, std), axis=1), rtol=1e-8)
    full = np.nan_to_num(y)
    assert_allclose(model.predict_cdf(X, full), norm.cdf(full, mean, std), rtol=1e-7)
    lower, upper = model.predict_interval(X, 0.8)
    assert_allclose((lower, upper), (mean - 1.2815515655446 * std, mean + 1.2815515655446 * std), rtol=1e-7, atol=1e-7)


def test_log_marginal_likelihood_is_that_of_the_exact_process(table):
    X, Y, _ = table
    found = NGDSVGPRegressor(output_kernel=Coregionalization.from_factors(W, KAPPA, **FIXED), **GIVEN).fit(X, Y)
    exact = Exact(X, Y, np.ones(40))
    expected = multivariate_normal.logpdf(exact.y, cov=exact.covariance)
    assert_allclose(found.log_marginal_likelihood(), expected, rtol=1e-8)
    assert_allclose(found.elbo_, expected, rtol=1e-6)


def test_draws_are_joint_over_outputs(model, table):
    X = np.array([[0.1, 0.2], [1.0, -1.0]])
    mean, covariance = Exact(*table).at(X)
    y = model.sample_y(X, n_samples=20_000, random_state=1)
    assert y.shape == (2, 3, 20_000)
    expected = covariance.reshape(6, 6) + NOISE * np.eye(6)
    assert_allclose(y.mean(-1), mean, atol=0.05)
    assert_allclose(np.cov(y.reshape(6, -1)), expected, atol=0.04)


def test_rows_left_out_are_predicted_as_by_a_refit(model, table):
    X, Y, weight = table
    found = model.leave_one_out_
    assert found.residual.shape == Y.shape
    assert_array_equal(np.isnan(found.residual), np.isnan(Y))
    for n, p in np.argwhere(~np.isnan(Y))[::11]:
        others = Y.copy()
        others[n, p] = np.nan
        mean, covariance = Exact(X, others, weight).at(X[[n]])
        std = np.sqrt(covariance[0, p, 0, p] + NOISE)
        assert_allclose(found.residual[n, p], Y[n, p] - mean[0, p], rtol=1e-6)
        assert_allclose(found.std[n, p], std, rtol=1e-6)
        assert_allclose(found.log_density[n, p], norm.logpdf(Y[n, p], mean[0, p], std), rtol=1e-6)


def test_gradients_are_slopes_of_predictions_and_importances_sum_to_one(model):
    X, h = np.array([[0.1, 0.2], [1.0, -1.0]]), 1e-5
    for found, quantity in zip(model.predict_gradient(X, return_std=True), (0, 1), strict=True):
        assert found.shape == (2, 3, 2)
        for d, step in enumerate(h * np.eye(2)):
            ends = [model.predict(X + sign * step, return_std=True)[quantity] for sign in (1.0, -1.0)]
            assert_allclose(found[:, :, d], (ends[0] - ends[1]) / (2 * h), rtol=1e-5, atol=1e-7)
    assert model.feature_importances_.shape == (2,)
    assert_allclose(model.feature_importances_.sum(), 1.0)


def test_known_noise_and_offsets_of_each_output(table):
    X, Y, _ = table
    alpha, offset = np.linspace(0.1, 0.5, 120).reshape(40, 3), np.array([1.0, -2.0, 5.0]) * np.ones((40, 1))
    between = Coregionalization.from_factors(W, KAPPA, **FIXED)
    found = NGDSVGPRegressor(output_kernel=between, **GIVEN).fit(X, Y + offset, alpha=alpha, offset=offset)
    exact = Exact(X, Y, np.ones(40))
    exact.covariance += np.diag(alpha[exact.n, exact.p])
    mean, covariance = exact.at(X[:4])
    y_mean, y_std = found.predict(X[:4], return_std=True, offset=offset[:4], alpha=alpha[:4])
    assert_allclose(y_mean, mean + offset[:4], rtol=1e-7)
    assert_allclose(y_std, np.sqrt(np.einsum("ipip->ip", covariance) + NOISE + alpha[:4]), rtol=1e-7)


@pytest.mark.slow
def test_a_diagonal_matrix_is_independent_outputs(table):
    X, Y, _ = table
    between = Coregionalization(np.ones(3), np.full(3, 0.5 * np.pi), **FIXED)
    apart = NGDSVGPRegressor(**GIVEN).fit(X, Y)
    together = NGDSVGPRegressor(output_kernel=between, **GIVEN).fit(X, Y)
    for found, expected in zip(together.predict(X, return_std=True), apart.predict(X, return_std=True), strict=True):
        assert_allclose(found, expected, rtol=1e-8, atol=1e-8)
    assert_allclose(together.log_marginal_likelihood(), apart.log_marginal_likelihood(), rtol=1e-8)


# -- what is learned ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def correlated():
    """A sparse output in other units that goes against two dense ones; one dense output is noisy."""
    rng = np.random.default_rng(2)
    X = rng.uniform(0.0, 4.0, size=(120, 2))
    f = np.linalg.cholesky(RBF(0.9)(X) + 1e-8 * np.eye(120)) @ rng.normal(size=(120, 3))
    F = f[:, [0]] * [1.0, 0.9, -0.9] + f * [0.0, 0.3, 0.3]
    Y = [50.0, 0.0, 1000.0] + [10.0, 1.0, 100.0] * (F + [0.1, 0.4, 0.1] * rng.normal(size=F.shape))
    seen = Y.copy()
    seen[rng.permutation(120)[:96], 2] = np.nan
    return X, Y, seen


@pytest.fixture(scope="module")
def fits(correlated):
    options = {"kernel": 1.0 * RBF(), "missing_targets": "ignore", "calibrate": False, "random_state": 0}
    names = ("independent", "coregionalization")
    return {name: NGDSVGPRegressor(output_kernel=name, **options).fit(correlated[0], correlated[2]) for name in names}


@pytest.mark.slow
def test_a_dense_output_helps_a_sparse_one(fits, correlated):
    X, Y, seen = correlated
    held_out = np.isnan(seen[:, 2])
    alone, densities = np.where([False, False, True], Y, np.nan)[held_out], {}
    for name, found in fits.items():
        mean, std = found.predict(X[held_out], return_std=True)
        density = norm.logpdf(Y[held_out, 2], mean[:, 2], std[:, 2])
        # In the units of y, without what is missing.
        assert_allclose(found.predict_log_density(X[held_out], alone), density, rtol=1e-6)
        densities[name] = density.mean()
    assert densities["coregionalization"] > densities["independent"] + 0.3


def test_correlations_and_a_noise_for_each_output_are_found(fits):
    found = fits["coregionalization"]
    correlation = found.output_correlation_
    assert_allclose(np.diag(correlation), 1.0)
    assert correlation[0, 1] > 0.7
    assert correlation[0, 2] < -0.7
    assert correlation[1, 2] < -0.6
    summary = found.summary()
    assert_allclose(summary.noise / [1.0, 0.4, 10.0], 1.0, atol=0.45)
    assert "correlation of outputs: 1.00 0." in repr(summary)
    assert_allclose(np.sqrt(np.diag(found.output_covariance_)), summary.terms[0].amplitude, rtol=1e-6)
    with pytest.raises(AttributeError, match="needs correlated outputs"):
        fits["independent"].output_covariance_  # noqa: B018


@pytest.mark.slow
def test_units_of_y_do_not_matter(fits, correlated):
    X, _, seen = correlated
    other = NGDSVGPRegressor(**fits["coregionalization"].get_params(deep=False)).fit(X, 3.0 * seen - 7.0)
    found, expected = (each.predict(X, return_std=True) for each in (other, fits["coregionalization"]))
    assert_allclose(found[0], 3.0 * expected[0] - 7.0, rtol=1e-3, atol=0.1)
    assert_allclose(found[1], 3.0 * expected[1], rtol=1e-3)


@pytest.mark.slow
def test_saved_scored_and_cleared_by_another_fit(fits, correlated):
    X, Y, seen = correlated
    found = fits["coregionalization"]
    saved = pickle.loads(pickle.dumps(found))
    assert_array_equal(saved.predict(X), found.predict(X))
    assert_array_equal(saved.sample_y(X[:3], 2), found.sample_y(X[:3], 2))
    assert found.score(X, seen) > 0.8
    assert metrics.nlpd_scorer(found, X, seen) == pytest.approx(found.predict_log_density(X, seen).mean())
    assert found.kernel.get_params() == (1.0 * RBF()).get_params()
    saved.set_params(output_kernel="independent").fit(X, seen)
    assert_allclose(saved.predict(X), fits["independent"].predict(X))
    with pytest.raises(ValueError, match="y has 2 columns, but the regressor was fitted with 3"):
        found.predict_cdf(X, Y[:, :2])
    with pytest.raises(ValueError, match="X has 1 features"):
        found.predict(X[:, :1])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("options", [{"solver": "ngd", "max_iter": 300, "n_inducing": 60}, {"n_inducing": 80}])
def test_fewer_points_and_training_by_steps(options, fits, correlated):
    X, _, seen = correlated
    arguments = fits["coregionalization"].get_params(deep=False) | options
    found = NGDSVGPRegressor(**arguments).fit(X, seen)
    assert found.inducing_points_.shape == (options["n_inducing"], 3)
    assert found.output_correlation_[0, 2] < -0.6
    assert found.score(X, seen) > 0.75


@pytest.mark.slow
def test_the_default_kernel_and_calibration(correlated):
    X, Y, seen = correlated
    rank = Coregionalization(rank=2)
    found = NGDSVGPRegressor(output_kernel=rank, missing_targets="ignore", random_state=0).fit(X, seen)
    assert found.output_correlation_[0, 2] < -0.6
    assert metrics.nlpd_scorer(found, X, Y) > metrics.nlpd_scorer(found, X, Y[::-1])


@pytest.mark.slow
def test_outputs_with_unequal_noises_and_missing_targets_are_covered():
    shares = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2.0, 2.0, size=(600, 2))
        f, g = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1], np.cos(1.5 * X[:, 1])
        Y = np.column_stack([f, 0.8 * f + 0.3 * g, 0.5 * g - f]) + [0.05, 0.2, 0.6] * rng.normal(size=(600, 3))
        seen = np.where(rng.random((200, 3)) < 0.4, np.nan, Y[:200])
        model = NGDSVGPRegressor(output_kernel="coregionalization", missing_targets="ignore", random_state=0)
        lower, upper = model.fit(X[:200], seen).predict_interval(X[200:], 0.9)
        shares.append(np.mean((lower <= Y[200:]) & (Y[200:] <= upper), axis=0))
    assert np.all(np.abs(np.mean(shares, axis=0) - 0.9) < 0.05)


# -- refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output_kernel": "lmc"}, "output_kernel='lmc' must be .* a str among {'independent', 'coregionalization'}"),
        ({"likelihood": "student_t"}, "needs likelihood='gaussian'"),
        ({"kernel": RBF() + WhiteKernel()}, "a kernel without WhiteKernel"),
        ({"kernel": [RBF(), RBF(), RBF()]}, "needs one kernel"),
        ({"warm_start": True}, "needs warm_start=False, not True"),
        ({"normalize_X": "quantile"}, "needs normalize_X='auto' or True or False, not 'quantile'"),
        ({"normalize_y": "center"}, "needs normalize_y=True or False"),
        ({"mean_function": "linear"}, "needs mean_function=None.*subtract it from y"),
        ({"hyperparameter_prior": "weak"}, "needs hyperparameter_prior=None"),
        ({"n_neighbors": 20}, "needs n_neighbors='auto' or 0"),
        ({"output_kernel": Coregionalization(rank=4)}, "rank=4 must be from 1 to 3"),
        ({"output_kernel": Coregionalization([1.0, 1.0])}, "deviation has the shape \\(2,\\), but y has 3 columns"),
        ({"missing_inputs": "allow"}, "needs an X of numbers, none of them missing"),
    ],
)
def test_what_correlated_outputs_do_not_have_is_refused(options, message, table):
    X, Y, _ = table
    if "missing_inputs" in options:
        X = np.where(np.arange(80).reshape(40, 2) == 0, np.nan, X)
    with pytest.raises(ValueError, match=message):
        NGDSVGPRegressor(**{"output_kernel": "coregionalization", "missing_targets": "ignore"} | options).fit(X, Y)


def test_a_data_frame_of_numbers_is_taken():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(25, 2)), columns=["a", "b"])
    Y = np.column_stack([X["a"], X["a"] + 0.1 * X["b"]])
    model = NGDSVGPRegressor(RBF(), output_kernel="coregionalization", random_state=0)
    found = clone(model).fit(X.to_numpy(), Y).predict(X.to_numpy(), return_std=True)
    assert_array_equal(model.fit(X, Y).predict(X, return_std=True), found)
    lacking = X.assign(b=np.where(X.index == 2, np.nan, X["b"]))
    assert model.predict(lacking, return_std=True)[1][2, 1] > 2.0 * found[1][2, 1]
    with pytest.raises(ValueError, match="needs an X of numbers, none of them missing"):
        clone(model).fit(lacking, Y)


def test_one_column_and_streams_are_refused(table):
    X, Y, _ = table
    found = NGDSVGPRegressor(output_kernel="coregionalization")
    with pytest.raises(ValueError, match="needs a y of several columns"):
        found.fit(X, np.nan_to_num(Y[:, 0]))
    with pytest.raises(AttributeError) as caught:
        found.partial_fit(X, np.nan_to_num(Y))
    assert "no partial_fit with output_kernel='coregionalization'" in str(caught.value.__cause__ or caught.value)


def test_their_distribution_is_that_of_predictions(fits, correlated):
    X, model = correlated[0], fits["coregionalization"]
    found = predictive_distribution(model, X[:9])
    assert found.shape == (9, 3)
    assert_allclose(found.mean(), model.predict(X[:9]))
    quantiles = model.predict_quantiles(X[:9], [0.3])[..., 0]
    assert_allclose(found.quantile([0.3])[..., 0], quantiles)
    each = np.stack([found._cdf_at(quantiles[:, k], np.arange(9), k) for k in range(3)], axis=1)
    assert_allclose(each, 0.3, atol=1e-9)
    assert_allclose(found.cdf(quantiles), 0.3, atol=1e-9)


def test_the_density_of_rows_without_some_outputs_is_that_of_the_others(fits, correlated):
    X = correlated[0][:9]
    model = copy.copy(fits["coregionalization"])
    model._output_scale = Scale(np.array([5.0, 0.0, -2.0]), np.array([1000.0, 0.1, 3.0]))
    mean, std = model.predict(X, return_std=True)
    y = np.full((9, 3), np.nan)
    y[:, 0] = mean[:, 0] + std[:, 0]
    assert_allclose(model.predict_log_density(X, y), norm.logpdf(y[:, 0], mean[:, 0], std[:, 0]), rtol=1e-4)


@pytest.mark.slow
def test_without_optimizer_the_kernel_stays(correlated):
    X, _, seen = correlated
    between = Coregionalization([1.0, 1.0, 1.0], [0.5, 0.7, 1.2])
    model = NGDSVGPRegressor(1.0 * RBF(0.8), optimizer=None, output_kernel=between, missing_targets="ignore")
    assert_allclose(model.fit(X, seen).output_correlation_, between.covariance, atol=1e-9)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: Coregionalization([1.0, 1.0], [1.0, 1.0])([[0], [np.nan]]), "numbers of outputs that are not finite"),
        (lambda: Coregionalization([1.0, -1.0], [1.0, 1.0]).covariance, "must be positive"),
        (lambda: Coregionalization([1.0, 1.0], [1.0, 1.0], rank=1.5).covariance, "rank=1.5 of Coregionalization"),
        (lambda: Coregionalization.from_factors([[1.0], [2.0]], [-1.0, 1.0]), "one positive kappa"),
        (lambda: NGDSVGPRegressor(output_kernel=Coregionalization(rank="2")).fit(X_OF_TWO, X_OF_TWO), "rank='2'"),
    ],
)
def test_wrong_values_are_named(call, match):
    with pytest.raises(ValueError, match=match):
        call()
