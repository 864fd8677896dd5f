"""Many fits in one process, and fits in many processes.

Prints resident memory and the number of compiled programs over 500 fits of unequal
folds; with ``--threads`` or ``--processes``, seconds of a cross-validation with one
job and with two, and whether they agree:

    python examples/benchmarks/soak.py
    python examples/benchmarks/soak.py --threads
    python examples/benchmarks/soak.py --processes
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import jax
import joblib
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor

N_ROWS = (60, 400)
COMPILATION = "/jax/core/compile/backend_compile_duration"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--threads", action="store_true", help="two jobs in threads")
    mode.add_argument("--processes", action="store_true", help="two jobs in processes, of joblib's loky")
    parser.add_argument("--n-fits", type=int, default=500)
    arguments = parser.parse_args()
    # The fits are cut short on purpose. In the environment, since processes inherit no filter.
    os.environ["PYTHONWARNINGS"] = "ignore"
    warnings.simplefilter("ignore", ConvergenceWarning)
    if arguments.threads or arguments.processes:
        compare_jobs("threading" if arguments.threads else "loky")
    else:
        soak(arguments.n_fits)


def soak(n_fits):
    """Fit regressor and classifier in turn to tables of random size, and watch the memory."""
    n_compiled = count_compilations()
    rng = np.random.default_rng(0)
    resident, start = {}, time.perf_counter()
    for i in range(1, n_fits + 1):
        fit_once(NGDSVGPRegressor if i % 2 else NGDSVGPClassifier, *table(rng, rng.integers(*N_ROWS)))
        if i % 50 == 0:
            resident[i] = resident_mib()
            seconds = time.perf_counter() - start
            print(f"fit {i}: {resident[i]:.1f} MiB resident, {n_compiled()} programs, {seconds:.0f} s", flush=True)
    first, last = min(resident), max(resident)
    print(f"growth from fit {first} to {last}: {resident[last] - resident[first]:.1f} MiB")


def table(rng, n):
    """A random table of ``n`` rows and its targets."""
    X = rng.normal(size=(n, 3))
    return X, np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)


def fit_once(estimator, X, y):
    """Fit and predict."""
    y = y if estimator is NGDSVGPRegressor else y > 0
    estimator(n_inducing=20, max_iter=40, random_state=0).fit(X, y).predict(X)


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


def count_compilations():
    """Return a function that says how many programs have been compiled since."""
    events = []

    def listen(event, duration, **details):
        if event == COMPILATION:
            events.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    return lambda: len(events)


def resident_mib():
    """Resident memory of this process in MiB (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    main()
