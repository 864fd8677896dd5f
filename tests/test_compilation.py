"""Compile once: the programs are counted, not timed."""

import jax
import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern
from sklearn.model_selection import GridSearchCV, cross_val_score

from skgp_natgrad import LogLinear, NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.likelihoods import StudentT
from skgp_natgrad.prediction import evaluate

from .conftest import count_compilations

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.slow
def test_grid_search_over_numbers_compiles_once(rng):
    jax.clear_caches()
    X = rng.normal(size=(203, 4))  # folds of 135 and 136 rows
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=203)
    model = NGDSVGPRegressor(
        ConstantKernel() * RBF(1.0),
        likelihood=StudentT(),
        gamma_schedule=LogLinear(),
        n_inducing=20,
        n_mean_inducing=10,
        max_iter=20,
        random_state=0,
    )
    values = {
        "likelihood__df": [3.0, 5.0],
        "gamma_schedule__final": [0.1, 0.5],
        "learning_rate": [0.01, 0.05],
        "kernel__k2__length_scale": [1.0, 2.0],
        "max_iter": [15, 25],
        "jitter": [1e-8, 1e-6],
    }
    # All first values, all second ones, and each parameter's second one alone.
    first, second = ({name: pair[i : i + 1] for name, pair in values.items()} for i in (0, 1))
    grid = [first, second, *({**first, name: second[name]} for name in values)]
    with count_compilations() as counts:
        GridSearchCV(model, grid, cv=3, error_score="raise").fit(X, y).predict(X)
        model.set_params(kernel__k1__constant_value_bounds="fixed").fit(X, y).predict(X[:7], return_std=True)
    assert counts["_chunk"] == 1
    # Of few points the posterior is NumPy's.
    assert counts["condition"] == 0
    # The mean of the table's rows in chunks, and what the likelihood adds to the moments of the few.
    assert counts["_of_rows"] == 1
    assert counts["_of_moments"] == 1
    # Nothing is dispatched operation by operation: every program is one of a few.
    assert sum(counts.values()) == 8, counts


_STEPS = {"n_inducing": 20, "max_iter": 20}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "arguments", "n_programs"),
    [
        (NGDSVGPRegressor, {}, 0),
        (NGDSVGPRegressor, _STEPS, 0),
        (NGDSVGPClassifier, {}, 6),
        (NGDSVGPClassifier, _STEPS, 0),
    ],
    ids=["measurements", "measurements by steps", "labels", "labels by steps"],
)
def test_a_grid_of_amplitudes_and_lengthscales_compiles_so_many_programs(estimator, arguments, n_programs, rng):
    """After a first fit, those of folds that have another number of rows: 32 fits as a search of C and gamma has."""
    jax.clear_caches()
    X = rng.normal(size=(203, 4))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=203)
    y = y > 0.0 if estimator is NGDSVGPClassifier else y
    model = estimator(1.0 * RBF(1.0), random_state=0, **arguments).fit(X, y)
    model.predict(X)
    grid = {"kernel__k1__constant_value": [0.5, 2.0], "kernel__k2__length_scale": [0.5, 1.0, 2.0, 4.0]}
    with count_compilations() as counts:
        GridSearchCV(model, grid, cv=4, error_score="raise").fit(X, y).predict(X)
    assert sum(counts.values()) == n_programs, counts


@pytest.mark.slow
def test_minibatch_fits_of_any_size_share_a_program(rng):
    jax.clear_caches()
    X = rng.normal(size=(500, 3))
    y = (X[:, 0] > 0).astype(int)
    kernel = 1.0 * Matern(np.ones(3), nu=2.5)
    model = NGDSVGPClassifier(kernel, n_inducing=10, batch_size=64, max_iter=20, random_state=0)
    with count_compilations() as counts:
        for n in (300, 301, 499):
            model.fit(X[:n], y[:n]).predict_proba(X[: n // 3])
    assert counts["_chunk"] == 1
    # Of latent moments, for the calibration, and of probabilities.
    assert counts["_of_rows"] == 2
    assert counts["_cavities"] == counts["_log_densities"] == 1


def test_evidence_of_any_size_shares_its_programs(rng):
    X = rng.normal(size=(60, 2))
    model = NGDSVGPRegressor(RBF(1.0), n_inducing=5, solver="evidence", random_state=0).fit(X, X[:, 0])
    with count_compilations() as counts:
        model.fit(X[:59], X[:59, 0])
    assert not counts


@pytest.mark.slow
def test_prediction_has_three_programs_at_most(rng):
    """One for a row, one for few, and one for chunks."""
    jax.clear_caches()
    X = rng.normal(size=(500, 2))
    model = NGDSVGPClassifier(n_inducing=10, max_iter=20).fit(X, X[:, 0] > 0)
    many = np.tile(X, (10, 1))
    with count_compilations() as counts:
        for n in (1, 1, 2, evaluate.FEW_ROWS, evaluate.FEW_ROWS + 1, 499):
            model.predict_proba(X[:n])
        for rows in (many, many[:-1]):
            model.predict_proba(rows)
    assert counts == {"_of_moments": 2, "_of_rows": 1}


@pytest.mark.slow
def test_the_mean_at_few_rows_compiles_nothing(rng):
    jax.clear_caches()
    X = rng.normal(size=(50, 2))
    model = NGDSVGPRegressor(n_inducing=10, max_iter=20).fit(X, X[:, 0])
    with count_compilations() as counts:
        model.predict(X[:1])
        model.predict(X[: evaluate.FEW_ROWS])
    assert not counts


@pytest.mark.slow
def test_folds_across_a_bucket_cost_one_more(rng):
    """The one exception: folds of 304 and 305 rows stand on two sides of a padded size."""
    jax.clear_caches()
    X, y = rng.normal(size=(381, 2)), rng.normal(size=381)
    with count_compilations() as counts:
        cross_val_score(NGDSVGPRegressor(RBF(1.0), n_inducing=10, max_iter=20), X, y, cv=5)
    assert counts["_chunk"] == 2


@pytest.mark.slow
def test_the_counter_counts(rng):
    """The two tests above can fail: another structure is another program."""
    jax.clear_caches()
    X, y = rng.normal(size=(50, 2)), rng.normal(size=50)
    with count_compilations() as counts:
        for kernel in (RBF(1.0), RBF([1.0, 1.0]), ConstantKernel() * RBF(1.0)):
            NGDSVGPRegressor(kernel, n_inducing=5, max_iter=20).fit(X, y)
    assert counts["_chunk"] == 3


@pytest.mark.slow
def test_a_grid_of_32_fits_of_a_classifier_compiles_next_to_nothing_after_its_first(rng):
    """Amplitude and lengthscale, as C and gamma of an SVC: the number itself, of all programs."""
    jax.clear_caches()
    X = rng.normal(size=(203, 4))  # folds of 152 and 153 rows
    y = X[:, 0] + 0.5 * rng.normal(size=203) > 0.0
    grid = {"kernel__k1__constant_value": [0.5, 2.0, 8.0, 32.0], "kernel__k2__length_scale": [1.0, 4.0]}
    model = NGDSVGPClassifier(ConstantKernel() * RBF(1.0), random_state=0)
    order = np.random.default_rng(0).permutation(203)
    with count_compilations() as first:
        model.fit(X[order[:152]], y[order[:152]]).score(X[order[152:]], y[order[152:]])
    with count_compilations() as counts:
        search = GridSearchCV(model, grid, cv=4, refit=False, error_score="raise").fit(X, y)
    assert len(search.cv_results_["params"]) * 4 == 32
    assert sum(first.values()) > 6
    assert sum(counts.values()) <= 6, counts


@pytest.mark.slow
def test_a_grid_of_32_fits_by_steps_compiles_next_to_nothing_after_its_first(rng):
    """The default kernel has one structure: no fold chooses another."""
    jax.clear_caches()
    X = rng.normal(size=(403, 4))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_t(3, 403)
    model = NGDSVGPRegressor(likelihood="student_t", n_inducing=32, max_iter=20, random_state=0)
    grid = {"learning_rate": [0.01, 0.02, 0.05, 0.1], "batch_size": [64, "auto"]}
    with count_compilations() as first:
        model.fit(X[:302], y[:302]).score(X[302:], y[302:])
    with count_compilations() as counts:
        GridSearchCV(model, grid, cv=4, refit=False, error_score="raise").fit(X, y)
    assert sum(first.values()) > 6
    assert sum(counts.values()) <= 6, counts


@pytest.mark.parametrize("kernel", [None, 1.0 * RBF([1.0, 1.0])])
def test_one_row_more_compiles_nothing(kernel, rng):
    """As in Bayesian optimisation."""
    X = rng.uniform(-2.0, 2.0, size=(19, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=19)
    for n_rows in (12, 18):
        NGDSVGPRegressor(kernel, random_state=0).fit(X[:n_rows], y[:n_rows]).predict(X, return_std=True)
    with count_compilations() as counts:
        NGDSVGPRegressor(kernel, random_state=0).fit(X, y).predict(X, return_std=True)
    assert counts == {}
