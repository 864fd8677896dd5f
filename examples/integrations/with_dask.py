"""Dask: the fits of a search on the workers of a cluster, and a table in a Dask array."""

import tempfile

import joblib
import numpy as np
from dask import array
from dask.distributed import Client, LocalCluster
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import GridSearchCV

import skgp_natgrad
from skgp_natgrad import NGDSVGPRegressor

rng = np.random.default_rng(0)
X = rng.uniform(0, 10, size=(300, 1))
y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=300)
reg = NGDSVGPRegressor(RBF(), solver="ngd", n_inducing=30, max_iter=150, tol=0.1, random_state=0)

# %% The recipe
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        client.run(skgp_natgrad.enable_compilation_cache, tempfile.mkdtemp())
        search = GridSearchCV(reg, {"kernel__length_scale": [0.01, 0.1, 1.0]}, cv=3, error_score="raise")
        with joblib.parallel_config("dask"):
            search.fit(X, y)
        blocks = reg.fit(array.from_array(X, chunks=(100, 1)), array.from_array(y, chunks=100)).predict(X)

    # %% What it shows
    print(
        f"{len(search.cv_results_['params'])} candidates on 2 workers: {search.best_params_}, {search.best_score_:.3f}"
    )
    in_memory = reg.fit(X, y).predict(X)
    print(f"a table in blocks gives the same predictions: {np.array_equal(blocks, in_memory)}")
    assert search.best_score_ > 0.9
    assert np.array_equal(blocks, in_memory)
