"""``fit(X, y)`` with nothing set by one process and by several, each with its share of the rows: the same model?

    python examples/benchmarks/processes_fit.py --rst
    python examples/benchmarks/processes_fit.py --dataset protein --max-rows 8000

Processes run on this machine, each on a core of its own and with one thread; one that fits alone has one core, too. A
tenth of the rows is held out, of which the first 3000 are scored, and the target is standardised. Seconds are those of
a first fit, with all compilation, on the clock and of each process's core; the memory is the largest of each process.
The last columns are differences from the first number of processes: whether the plan is the same, and by how much the
log density in nats per row and the error, the RMSE, are ahead.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from _common import Results, contest_parser, machine, say, show, where, written
from _worker import peak_memory
from accuracy import load
from defaults import halves, provenance

_SCORED = 3000
_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NPROC"), "1") | {"JAX_PLATFORMS": "cpu"}


def parse_arguments(argv=None):
    p = contest_parser(__doc__, "processes_fit.jsonl")
    p.add_argument("--dataset", default="nycflights")
    p.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    p.set_defaults(max_rows=100_000)
    return p.parse_args(argv)


def worker(path, output, rank, n_processes, port):
    """One of several processes: its fit, and the scores of the held-out rows."""
    rank, n_processes = int(rank), int(n_processes)
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    import jax

    from skgp_natgrad import NGDSVGPRegressor
    from skgp_natgrad.metrics import nlpd_scorer

    if n_processes > 1:
        jax.distributed.initialize(f"127.0.0.1:{port}", n_processes, rank)
    warnings.simplefilter("ignore")
    with np.load(path) as arrays:
        X, y, X_test, y_test = (arrays[name] for name in ("X", "y", "X_test", "y_test"))
    own = slice(rank * len(X) // n_processes, (rank + 1) * len(X) // n_processes)
    model = NGDSVGPRegressor(random_state=0, n_devices="all" if n_processes > 1 else None)
    start, start_of_core = time.perf_counter(), time.process_time()
    model.fit(X[own], y[own])
    found = {"fit": time.perf_counter() - start, "of_core": time.process_time() - start_of_core}
    mean = model.predict(X_test)
    found |= {"peak_memory": peak_memory(), "plan": model.plan_}
    found |= {"density": float(nlpd_scorer(model, X_test, y_test))}
    found |= {"error": float(np.sqrt(np.mean((y_test - mean) ** 2))), "first": mean[:10].tolist()}
    Path(output).write_text(json.dumps(found))


def measured(n_processes, path):
    """What all processes of a fit say, the first one's with the largest seconds and memory; None if one failed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder) / f"{rank}.json" for rank in range(n_processes)]
        commands = [
            [sys.executable, __file__, "--worker", str(path), str(output), str(rank), str(n_processes), port]
            for rank, output in enumerate(outputs)
        ]
        running = [subprocess.Popen(each, env=os.environ | _ONE_THREAD) for each in commands]
        codes = [each.wait() for each in running]
        if any(codes):
            say(f"{n_processes} processes LEFT OUT: ended with {codes}")
            return None
        found = [json.loads(output.read_text()) for output in outputs]
    largest = {name: max(each[name] for each in found) for name in ("fit", "of_core", "peak_memory")}
    return found[0] | largest | {"same": all(each["first"] == found[0]["first"] for each in found)}


def main(argv=None):
    args = parse_arguments(argv)
    results, key = Results(args.output), {"dataset": args.dataset, "max_rows": args.max_rows, "seed": args.seed}
    missing = [n for n in args.processes if not (args.only_print or results.find(key | {"n_processes": n}))]
    if missing:
        X, y, X_test, y_test = halves(*load(args.data_dir, args.dataset), args.seed, args.max_rows)
        common = key | {"rows": len(X), "columns": X.shape[1], **provenance(), **machine()}
        with written(X=X, y=y, X_test=X_test[:_SCORED], y_test=y_test[:_SCORED]) as path:
            for n in missing:
                say(f"{args.dataset}, {len(X)} rows: {n} processes")
                found = measured(n, path)
                if found:
                    results.add(common | {"n_processes": n} | found)
    found = [each for each in (results.find(key | {"n_processes": n}) for n in args.processes) if each]
    show_results(found, args.rst)


def show_results(found, rst):
    """Print a line for each number of processes."""
    rows = [
        (
            record["dataset"],
            f"{record['rows']}, {record['columns']}",
            record["n_processes"],
            f"{record['fit']:.0f}",
            f"{record['of_core']:.0f}",
            f"{record['peak_memory']:.0f}",
            f"{record['density']:.4f}",
            f"{record['error']:.4f}",
            "yes" if record["same"] else "no",
            "yes" if record["plan"] == found[0]["plan"] else "no",
            f"{record['density'] - found[0]['density']:.0e}",
            f"{found[0]['error'] - record['error']:.0e}",
        )
        for record in found
    ]
    header = ("data set", "rows, cols", "processes", "s", "s of a core", "MB each", "log density", "error")
    header += ("same in all", "same plan", "ahead", "ahead in error")
    commits = sorted({str(record["commit"]) for record in found})
    show(header, rows, rst, [where(found), f"Commits: {', '.join(commits)}"] if found else ())


if __name__ == "__main__":
    worker(*sys.argv[2:]) if sys.argv[1:2] == ["--worker"] else main()
