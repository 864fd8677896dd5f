"""Many mixed fits in one process: its memory must not grow.

    python examples/campaigns/soak.py --results campaigns.jsonl

Regressors and classifiers of several likelihoods, solvers and precisions are fitted in turn to tables of
random size, and predict. The report says what memory each process had after its first fits and at its
end, and the slope between. A slope of more than a tenth of a MiB for each fit is a failure.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import _campaign
import jax
import numpy as np
from sklearn.gaussian_process.kernels import RBF

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor

N_ROWS = (60, 400)
COMMON = {"kernel": RBF(), "n_inducing": 20, "max_iter": 40, "random_state": 0}
KINDS = (
    (NGDSVGPRegressor, {}),
    (NGDSVGPClassifier, {}),
    (NGDSVGPRegressor, {"dtype": "float32", "batch_size": 50}),
    (NGDSVGPRegressor, {"likelihood": "poisson"}),
    (NGDSVGPRegressor, {"solver": "lbfgs", "dtype": "float32"}),
    (NGDSVGPClassifier, {"dtype": "float32", "n_mean_inducing": 10}),
    (NGDSVGPRegressor, {"solver": "evidence", "max_iter": "auto", "normalize_X": True}),
    (NGDSVGPRegressor, {"mean_solver": "exact", "n_mean_inducing": 30}),
)
_MOST = 0.1
COMPILATION = "/jax/core/compile/backend_compile_duration"
_compiled = []


def perform(number, args):
    """Fit and predict."""
    rng, (cls, options) = _campaign.rng_of(args, number), KINDS[number % len(KINDS)]
    X = rng.normal(size=(rng.integers(*N_ROWS), 3))
    y = np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=len(X))
    if cls is NGDSVGPClassifier:
        y = y > 0
    elif "likelihood" in options:
        y = rng.poisson(np.exp(0.5 * y))
    model = cls(**{**COMMON, **options}).fit(X, y)
    assert np.all(np.isfinite(model.predict(X))), "not finite"
    record = {"dtype": model.dtype, "outcome": "finite", "process": os.getpid(), "resident_mib": round(resident(), 1)}
    return {**record, "programs": len(_compiled)}


def resident():
    """Resident memory of this process in MiB (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def grows(args):
    """Whether this process' memory has grown."""
    records = _campaign.Results(args.results).of({"campaign": "soak", "process": os.getpid()})
    found = [record["resident_mib"] for record in records]
    if len(found) < _campaign.WARM + _campaign.ENOUGH:
        return False
    slope = _campaign.growth(found)[2]
    print(f"slope {slope:.3f} MiB for each fit")
    return slope > _MOST


def main(argv=None):
    args = _campaign.parser(__doc__, 1000).parse_args(argv)
    # The fits are cut short on purpose.
    warnings.simplefilter("ignore")
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: _compiled.append(event) if event == COMPILATION else None
    )
    status = _campaign.run(args, "soak", lambda number: perform(number, args), keep_programs=True)
    return status or int(not args.report and bool(grows(args)))


if __name__ == "__main__":
    sys.exit(main())
