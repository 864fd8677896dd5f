"""``fit(X, y)`` with nothing set, on the CPU and on a GPU: the same model, and in how many seconds?

    python examples/benchmarks/gpu_fit.py --rst
    python examples/benchmarks/gpu_fit.py --ways cpu xla --max-rows 3000 --tables power pendigits

Tables: power, pendigits, protein, nycflights from ``--data-dir``, and a million rows of the arm of ``neighbours.py``. A
tenth of the rows is held out, of which the first 3000 are scored. Each way is a process of its own, and no table begins
after ``--seconds``:

- cpu and gpu: ``device="cpu"`` and ``device="gpu"``;
- xla: the way of a GPU on the CPU (``SKGP_NATGRAD_XLA=1``), where there is none: for the digits, not for the seconds.

First is a fit that compiles, fit the one after it, both on the clock. Rows a second are those of the scored rows, means
with deviations or class probabilities, after a first prediction. Programs are those of XLA that the first fit compiles.
The memory is the largest of the process, and that of the GPU as JAX reports it. The last columns are differences from
the first way: whether the plan is the same, and of the log density.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _common import Results, contest_parser, machine, number, say, show, where, written
from _worker import peak_memory
from accuracy import load
from defaults import halves, provenance
from neighbours import arm

TABLES = ("power", "pendigits", "protein", "nycflights", "arm")
WAYS = ("cpu", "gpu", "xla")
_ROWS_OF_ARM, _SCORED = 1_000_000, 3000


def parse_arguments(argv=None):
    p = contest_parser(__doc__, "gpu_fit.jsonl")
    p.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    p.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS[:2], help="the first one is compared with")
    p.add_argument("--seconds", type=float, default=600.0, help="no way of a table begins after these")
    return p.parse_args(argv)


def parts(name, args):
    """The arrays of training and of the rows that are scored, and the task."""
    if name == "arm":
        n_rows = min(args.max_rows or _ROWS_OF_ARM, _ROWS_OF_ARM)
        X, y, _ = arm(-(-n_rows * 10 // 9), np.random.default_rng(args.seed))
        task = "regression"
    else:
        X, y, task = load(args.data_dir, name)
    X, y, X_test, y_test = halves(X, y, task, args.seed)
    return {"X": X[: args.max_rows], "y": y[: args.max_rows], "X_test": X_test[:_SCORED], "y_test": y_test[:_SCORED]}


class _Programs(logging.Handler):
    """Counts the programs that XLA compiles."""

    n = 0

    def emit(self, record):
        self.n += record.getMessage().startswith("Finished XLA compilation")


def worker(path, output, way):
    """Two fits and a prediction by one way."""
    import jax
    from sklearn.metrics import log_loss

    from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
    from skgp_natgrad.metrics import nlpd_scorer

    with np.load(path) as arrays:
        X, y, X_test, y_test = (arrays[name] for name in ("X", "y", "X_test", "y_test"))
    classifies = y.dtype.kind != "f"
    device = {"xla": "auto"}.get(way, way)
    model = (NGDSVGPClassifier if classifies else NGDSVGPRegressor)(random_state=0, device=device)
    counted, logger = _Programs(), logging.getLogger("jax")
    logger.addHandler(counted)
    logger.propagate = False
    with jax.log_compiles(True):
        first = timed(lambda: model.fit(X, y))
    again = timed(lambda: model.fit(X, y))
    if classifies:
        density = -log_loss(y_test, model.predict_proba(X_test), labels=model.classes_)
        seconds = timed(lambda: model.predict_proba(X_test))
    else:
        density = nlpd_scorer(model, X_test, y_test)
        seconds = timed(lambda: model.predict(X_test, return_std=True))
    memory = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    found = {"first": first, "fit": again, "rate": len(X_test) / seconds, "density": float(density)}
    found |= {"plan": model.plan_}
    found |= {"fitted_on": model.summary().fitted_on, "programs": counted.n, "peak_memory": peak_memory()}
    Path(output).write_text(json.dumps(found | {"of_gpu": memory and memory / 2**20}))


def timed(function):
    """The seconds of a call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def measure(name, args, key, results, start):
    """Run what has no result yet, as long as there is time."""
    missing = [way for way in args.ways if not results.find(key | {"way": way})]
    if not missing or time.monotonic() - start > args.seconds:
        return
    arrays = parts(name, args)
    common = {"rows": len(arrays["X"]), "columns": arrays["X"].shape[1], **provenance(), **machine()}
    with written(**arrays) as path, tempfile.TemporaryDirectory() as folder:
        for way in missing:
            if time.monotonic() - start > args.seconds:
                return
            say(f"{name}, {common['rows']} rows: {way}")
            output = Path(folder) / "found.json"
            output.unlink(missing_ok=True)
            forced = {"SKGP_NATGRAD_XLA": "1", "JAX_PLATFORMS": "cpu"}
            environment = {"gpu": {}, "cpu": {"JAX_PLATFORMS": "cpu"}, "xla": forced}[way]
            command = [sys.executable, __file__, "--worker", str(path), str(output), way]
            ended = subprocess.run(command, env=os.environ | environment, check=False)
            if ended.returncode or not output.exists():
                say(f"{name}: {way} LEFT OUT: ended with status {ended.returncode}")
                continue
            results.add(key | {"way": way} | common | json.loads(output.read_text()))


def main(argv=None):
    args, start = parse_arguments(argv), time.monotonic()
    results = Results(args.output)
    keys = [{"dataset": name, "max_rows": args.max_rows, "seed": args.seed} for name in args.tables]
    for name, key in [] if args.only_print else zip(args.tables, keys, strict=True):
        measure(name, args, key, results, start)
    show_results([[results.find(key | {"way": way}) for way in args.ways] for key in keys], args.rst)


def show_results(tables, rst):
    """Print a line for each way of each table."""
    rows, records = [], []
    for ways in tables:
        found = [record for record in ways if record]
        for record in found:
            ahead = record["density"] - found[0]["density"]
            rows.append(
                (
                    record["dataset"],
                    f"{record['rows']}, {record['columns']}",
                    record["fitted_on"],
                    f"{record['first']:.1f}",
                    f"{record['fit']:.1f}",
                    record["programs"],
                    f"{record['rate']:.0f}",
                    f"{record['peak_memory']:.0f}",
                    number(record["of_gpu"], ".0f"),
                    f"{record['density']:.4f}",
                    "yes" if record["plan"] == found[0]["plan"] else "no",
                    f"{ahead:.0e}",
                )
            )
        records += found
    header = ("data set", "rows, cols", "fitted on", "first, s", "fit, s", "programs", "rows/s", "peak MB", "GPU MB")
    header += ("log density", "same plan", "ahead")
    commits = sorted({str(record["commit"]) for record in records})
    show(header, rows, rst, [where(records), f"Commits: {', '.join(commits)}"] if records else ())


if __name__ == "__main__":
    worker(*sys.argv[2:]) if sys.argv[1:2] == ["--worker"] else main()
