"""Prediction: few rows by NumPy, more in chunks, all of them alike."""

import pickle

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    RationalQuadratic,
)

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, kernels
from skgp_natgrad._backend import device
from skgp_natgrad.likelihoods import Gaussian, Poisson
from skgp_natgrad.prediction import evaluate, posterior
from skgp_natgrad.prediction.posterior import reduced

from .conftest import all_likelihoods, make_problem

EVERY_KERNEL = (
    0.7 * RBF([1.0, 2.0, 0.5])
    + Matern(0.8, nu=0.5) * Matern(1.3, nu=1.5)
    + ConstantKernel(0.3) * Matern([1.0, 2.0, 3.0], nu=2.5)
    + RationalQuadratic(1.1, alpha=0.7) * DotProduct(0.4)
    + ExpSineSquared(1.2, 3.0) ** 2
)
SMOOTH = (1.3 * Matern(0.9, nu=2.5),)
FEW = range(1, evaluate.FEW_ROWS + 1, 3)


def conditioned(likelihood, rng, basis="orthogonal", sklearn_kernels=SMOOTH):
    """Kernels of scikit-learn, their twins, the likelihood and the `Posterior` of a random model; and its targets."""
    parameters, q, batch, constants = make_problem(likelihood, rng, n_mean_inducing=5, basis=basis)
    twins = tuple(kernels.from_sklearn(kernel, 3).value for kernel in sklearn_kernels)
    parameters = parameters._replace(log_kernels=jax.tree.map(np.log, twins))
    masks = constants.masks._replace(Z=np.arange(len(constants.masks.Z)) < 5.0)
    constants = constants._replace(prior_mean=rng.normal(size=constants.prior_mean.shape), masks=masks)
    fitted, _ = posterior.condition(basis, parameters, q, constants)
    values = parameters.raw_likelihood.from_raw(np)
    return sklearn_kernels, twins, values, reduced(jax.tree.map(np.asarray, fitted)), batch.y


def check_few_rows_equal_chunks(functions, model, X, y):
    sklearn_kernels, twins, likelihood, fitted, _ = model
    for function in functions:
        targets = [y] if function is evaluate.log_density else []
        all_rows = evaluate.in_chunks(function, twins, likelihood, fitted, X, *targets)
        for n in FEW:
            some = [each[:, :n] for each in targets]
            few = evaluate.at_few_rows(function, sklearn_kernels, likelihood, fitted, X[:n], *some)
            for got, expected in zip(jax.tree.leaves(few), jax.tree.leaves(all_rows), strict=True):
                assert isinstance(got, np.ndarray)
                assert_allclose(got, expected[..., :n], rtol=1e-10, atol=1e-10 * np.abs(expected).max())


@pytest.mark.parametrize("basis", ["orthogonal", "hybrid", "decoupled"])
@pytest.mark.parametrize("sklearn_kernels", [(EVERY_KERNEL,), (EVERY_KERNEL, 0.5 * RBF(0.8))], ids=["one", "list"])
@pytest.mark.usefixtures("x64")
def test_few_rows_have_the_moments_of_chunks(sklearn_kernels, basis, rng):
    """Two latent functions, with one kernel and with one for each; a masked point."""
    model = conditioned(Gaussian(), rng, basis, sklearn_kernels)
    check_few_rows_equal_chunks([evaluate.latent_mean, evaluate.target_moments], model, rng.normal(size=(20, 3)), None)


@pytest.mark.parametrize("likelihood", all_likelihoods(), ids=repr)
@pytest.mark.usefixtures("x64")
def test_few_rows_have_the_predictions_of_chunks(likelihood, rng):
    regression = "regression" in likelihood.tasks
    function = evaluate.target_moments if regression else evaluate.class_probabilities
    check_few_rows_equal_chunks([function], conditioned(likelihood, rng), rng.normal(size=(12, 3)), None)


@pytest.mark.usefixtures("x64")
def test_a_row_does_not_know_its_neighbours(rng):
    """Several chunks, of which the last is not full, and the same rows in another order."""
    _, twins, likelihood, fitted, _ = conditioned(Poisson(), rng)
    X = rng.normal(size=(2 * evaluate.CHUNK_ROWS + 7, 3))
    order = rng.permutation(len(X))
    inorder = evaluate.in_chunks(evaluate.target_moments, twins, likelihood, fitted, X)
    shuffled = evaluate.in_chunks(evaluate.target_moments, twins, likelihood, fitted, X[order])
    for got, expected in zip(shuffled, inorder, strict=True):
        assert got.shape == expected.shape == (2, len(X))
        assert_allclose(got, expected[:, order], rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_the_mean_alone_reads_no_covariance(rng):
    sklearn_kernels, twins, likelihood, fitted, _ = conditioned(Gaussian(), rng)
    of_covariance = {name: getattr(fitted, name) for name in ("whiten", "root_S", "reduction")}
    without = fitted._replace(**jax.tree.map(lambda each: np.nan * each, of_covariance))
    X = rng.normal(size=(4, 3))
    for predict, each in ((evaluate.at_few_rows, sklearn_kernels), (evaluate.in_chunks, twins)):
        mean = predict(evaluate.target_moments, each, likelihood, fitted, X)[0]
        assert_allclose(predict(evaluate.target_mean, each, likelihood, without, X), mean, rtol=1e-10)
        assert np.all(np.isnan(predict(evaluate.target_moments, each, likelihood, without, X)[1]))


@pytest.mark.parametrize("n_kernels", [1, 2])
@pytest.mark.usefixtures("x64")
def test_many_points_have_the_moments_of_few(rng, monkeypatch, n_kernels):
    """By BLAS and by XLA, of several chunks: their rows are fewer, the more points there are."""
    given = (*SMOOTH, 0.5 * RBF(0.8))[:n_kernels]
    _, twins, likelihood, fitted, y = conditioned(Gaussian(), rng, sklearn_kernels=given)
    rows = rng.normal(size=(700, 3))
    targets = rng.normal(size=(len(y), 700))
    for function, *more in ((evaluate.target_moments,), (evaluate.latent_moments,), (evaluate.log_density, targets)):
        expected = evaluate.in_chunks(function, twins, likelihood, fitted, rows, *more)
        with monkeypatch.context() as patch:
            patch.setattr(evaluate, "_BY_BLAS", 1)
            patch.setattr(evaluate, "_COVARIANCES", 1000)
            assert evaluate.chunk_rows(len(fitted.Z)) < 256
            # Threads compute as `computation` says.
            with device.computation("cpu"):
                found = evaluate.in_chunks(function, twins, likelihood, fitted, rows, *more)
        assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


def test_chunks_are_fetched_while_others_compute():
    events = []

    def dispatched():
        for i in range(4):
            events.append(f"call {i}")
            yield i

    events.extend(f"fetch {i}" for i in evaluate._in_flight(dispatched(), 2))
    assert events == ["call 0", "call 1", "call 2", "fetch 0", "call 3", "fetch 1", "fetch 2", "fetch 3"]
    assert list(evaluate._in_flight(iter("ab"), 8)) == ["a", "b"]


# -- the estimators -----------------------------------------------------------------------

OPTIONS = {"n_inducing": 12, "n_mean_inducing": 6, "max_iter": 20, "random_state": 0}


@pytest.fixture(scope="module")
def fitted_models():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(70, 3))
    y = np.sin(X[:, 0]) + X[:, 1]
    models = {
        "two columns": NGDSVGPRegressor(1.0 * RBF(), **OPTIONS).fit(X, np.column_stack([y, 50.0 + X[:, 2]])),
        "three classes": NGDSVGPClassifier(**OPTIONS).fit(X, np.digitize(y, [-1.0, 1.0])),
    }
    return X, models


def predictions(model, X):
    if isinstance(model, NGDSVGPClassifier):
        return [model.predict_proba(X)]
    return [model.predict(X), *model.predict(X, return_std=True)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", ["two columns", "three classes"])
def test_a_row_is_predicted_alike_in_every_company(name, fitted_models):
    X, models = fitted_models
    together = predictions(models[name], X)
    for n in (1, 2, evaluate.FEW_ROWS, evaluate.FEW_ROWS + 1):
        for got, expected in zip(predictions(models[name], X[:n]), together, strict=True):
            assert_allclose(got, expected[:n], rtol=1e-10, atol=1e-10)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_prediction_changes_nothing(fitted_models):
    X, models = fitted_models
    for model in models.values():
        before = pickle.dumps(model)
        for n in (1, 5, len(X)):
            predictions(model, X[:n])
        assert pickle.dumps(model) == before


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_rows_far_away_are_predicted_quietly(fitted_models, recwarn):
    """What overflows in the kernel is no warning, with few rows as with many."""
    X, models = fitted_models
    far = 1e160 * X
    assert_array_equal(models["two columns"].predict(far[:2]), models["two columns"].predict(far)[:2])
    assert not [w for w in recwarn if issubclass(w.category, RuntimeWarning)]
