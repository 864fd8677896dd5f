"""What a given kernel, a warm start and the same hyperparameters save of a fit with nothing set, and what they give up.

    python examples/benchmarks/refit.py --data-dir /path/to/data
    python examples/benchmarks/refit.py --datasets energy pima --only-print

The first tenth of the rows is held out, as in ``defaults.py``; of *energy:50* fifty other rows are fitted. *nothing
set* chooses all; *given kernel* is a Matern 5/2 with a lengthscale for each column, whose hyperparameters are
searched for; *warm start* is a second fit of the model with nothing set, to the same rows; *same hyperparameters* has
the kernel and the noise of this second fit and ``optimizer=None``. Each is fitted twice in one process: seconds are
those of the processor in the second fit, where programs have been compiled.
"""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path

import numpy as np
from _common import parser
from accuracy import DEFAULT_DATA, load
from defaults import halves, keep, key_of, provenance, records_of
from sklearn.base import clone
from sklearn.gaussian_process.kernels import Matern

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.metrics import nlpd_scorer

# With the number of rows of the fit, where these are a part.
_SETS = ["energy:50", "energy", "power", "kin8nm", "pima"]


def models(task, n_columns, found):
    """The contenders after the first, of which ``found`` is the fitted model."""
    start = clone(found)
    yield "given kernel", start.set_params(kernel=1.0 * Matern(np.ones(n_columns), nu=2.5))
    yield "warm start", found.set_params(warm_start=True)
    same = {"kernel": found.kernel_, "optimizer": None}
    if task == "regression":
        same["likelihood"] = found.likelihood_
    yield "same hyperparameters", clone(found).set_params(warm_start=False, **same)


def fitted(model, rows):
    """Processor's seconds of a second fit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            start = time.process_time()
            model.fit(*rows)
            seconds = time.process_time() - start
    return seconds


def run(name, data_dir):
    """The records of a data set."""
    dataset, _, n_rows = name.partition(":")
    X, y, task = load(data_dir, dataset)
    X, y, X_test, y_test = halves(X, y, task, 0)
    X, y = (each[: int(n_rows) if n_rows else None] for each in (X, y))
    first = (NGDSVGPRegressor if task == "regression" else NGDSVGPClassifier)(random_state=0)

    def record(contender, model):
        seconds = fitted(model, (X, y))
        found = {"density": nlpd_scorer(model, X_test, y_test), "seconds": seconds, "rows": len(X)}
        return {"dataset": name, "contender": contender, "split": 0, **found} | provenance()

    yield record("nothing set", first)
    for contender, model in models(task, X.shape[1], first):
        yield record(contender, model)


def main(argv=None):
    p = parser(__doc__, "refit.jsonl")
    p.add_argument("--data-dir", type=Path, default=Path(os.environ.get("SKGP_DATA", DEFAULT_DATA)))
    p.add_argument("--datasets", nargs="+", default=_SETS)
    args = p.parse_args(argv)
    done = {key_of(record)[0] for record in records_of(args.output)}
    for name in [] if args.only_print else args.datasets:
        if name not in done:
            for record in run(name, args.data_dir):
                keep(record, args.output)
    for record in records_of(args.output):
        if record["dataset"] in args.datasets:
            print(
                f"{record['dataset']:<10} {record['contender']:<22} {record['density']:.3f} {record['seconds']:.2f} s"
            )


if __name__ == "__main__":
    main()
