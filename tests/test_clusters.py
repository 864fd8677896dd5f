"""Searches whose fits run elsewhere: what travels, and a cluster of dask's."""

import pickle

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import GridSearchCV

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad._backend import device
from skgp_natgrad.model_selection import NGDGridSearchCV

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

X = np.random.default_rng(0).normal(size=(70, 2))
Y = np.sin(X[:, 0]) + X[:, 1]
OPTIONS = {"solver": "ngd", "n_inducing": 5, "max_iter": 20, "random_state": 0}
GRID = {"gamma_schedule": [0.1, 0.5]}


@pytest.mark.slow
@pytest.mark.parametrize(("model", "y", "of_row"), [(NGDSVGPRegressor, Y, 16), (NGDSVGPClassifier, Y > 0, 0)])
def test_pickles_hold_no_data_and_no_program(model, y, of_row):
    """Of a fit they hold the posterior: a few matrices of the inducing points' size; and a row's place and weight."""
    model = model(RBF(), **OPTIONS)
    assert len(pickle.dumps(model)) < 2000
    sizes = []
    for repeats in (1, 4):
        fitted = model.fit(np.tile(X, (repeats, 1)), np.tile(y, repeats))
        sizes.append(len(pickle.dumps(fitted)))
    # Some integers are pickled in more bytes than others.
    assert abs(sizes[1] - sizes[0] - 3 * len(X) * of_row) < 50
    assert max(sizes) < 15_000


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes of dask's, each with one thread."""
    distributed = pytest.importorskip("distributed", reason="needs the extra cluster")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_a_search_on_a_cluster_has_the_scores_of_one_here(cluster):
    model = NGDSVGPRegressor(RBF(), **OPTIONS)
    for kind, options in ((GridSearchCV, {}), (NGDGridSearchCV, {}), (NGDGridSearchCV, {"early_stopping": 2})):
        search = kind(model.set_params(max_iter=60), GRID, cv=3, error_score="raise", **options)
        here = search.fit(X, Y).cv_results_
        with joblib.parallel_config("dask"):
            there = search.fit(X, Y).cv_results_
        assert_allclose(there["mean_test_score"], here["mean_test_score"], rtol=1e-9)
    # The last one's candidates paused in one task, and continued in another.
    assert_allclose(there["rung"], here["rung"])
    assert max(there["rung"]) == 1


def test_a_worker_of_a_cluster_knows_its_share_of_the_cores(cluster):
    """As one of joblib's does, in which `test_processes` counts the threads."""
    assert set(cluster.run(device._share_of_cores).values()) == {"1"}
