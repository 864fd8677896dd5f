"""Fits in many jobs: seconds of a cross-validation with one job and with two, and whether they agree.

python examples/benchmarks/jobs.py --threads
python examples/benchmarks/jobs.py --processes
"""

import argparse
import os
import time
import warnings

import joblib
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score

from skgp_natgrad import NGDSVGPRegressor


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--threads", action="store_true", help="two jobs in threads")
    mode.add_argument("--processes", action="store_true", help="two jobs in processes, of joblib's loky")
    arguments = parser.parse_args()
    # The fits are cut short on purpose. In the environment, since processes inherit no filter.
    os.environ["PYTHONWARNINGS"] = "ignore"
    warnings.simplefilter("ignore", ConvergenceWarning)
    compare_jobs("threading" if arguments.threads else "loky")


def table(rng, n):
    """A random table of ``n`` rows and its targets."""
    X = rng.normal(size=(n, 3))
    return X, np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)


def compare_jobs(backend):
    """Time one cross-validation with one job and with two."""
    X, y = table(np.random.default_rng(0), 2000)
    model = NGDSVGPRegressor(n_inducing=100, max_iter=200, random_state=0)
    scores = {}
    for n_jobs in (1, 2):
        for run in ("first", "second"):
            start = time.perf_counter()
            with joblib.parallel_config(backend):
                scores[n_jobs] = cross_val_score(model, X, y, cv=4, n_jobs=n_jobs)
            print(f"{backend}, n_jobs={n_jobs}, {run} run: {time.perf_counter() - start:.1f} s", flush=True)
    print(f"largest difference of a score: {np.abs(scores[1] - scores[2]).max():.1e}")


if __name__ == "__main__":
    main()
