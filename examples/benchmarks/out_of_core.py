"""Fits and predictions of tables on disk: peak memory, rows a second, time waiting for rows, log density.

    python examples/benchmarks/out_of_core.py --rows 10000000 --rst
    python examples/benchmarks/out_of_core.py --rows 200000 --fewer 100000 --window-rows 32768

The table is made on disk, block by block (random columns, y a smooth function of some of them with
noise), and removed at the end. Each fit is a process of its own, whose peak memory the system reports
(``VmHWM``; before the fit, which is the libraries', and after it). Fits are made of all rows from the
file; and of fewer rows from the file, from an array in memory, and from an array that is shuffled as a
whole instead of by windows. The first two of these have the same bits. Log densities are those of
other rows. Predictions of all rows, with their deviations, are written to another file.

Rows a second are those of the training steps after the first 20, and of predictions; of the fit in one
step all rows by the whole time. The time waiting for rows is that in which the next rows were not yet
read when they were asked for, also where the device was still at work.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from _common import Results, machine, number, parser, say, show, where

_ROWS = 1 << 16
_TEST_ROWS = 10_000
_SPEED = re.compile(r"([\d.e+]+) rows a second")
_WAITING = re.compile(r"([\d.]+)% of the time waiting")


def parse_arguments(argv=None):
    p = parser(__doc__, "out_of_core.jsonl")
    p.add_argument("--rows", type=int, default=10_000_000)
    p.add_argument(
        "--fewer", type=int, default=1_000_000, help="rows of the fits that are compared with fits in memory"
    )
    p.add_argument("--columns", type=int, default=10)
    p.add_argument("--type", choices=["float32", "float64"], default="float64", help="of the numbers in the file")
    p.add_argument("--folder", type=Path, help="where the files are made; default: a temporary folder")
    p.add_argument("--solvers", nargs="+", choices=["ngd", "evidence"], default=["ngd", "evidence"])
    p.add_argument("--points", type=int, default=100, help="inducing points")
    p.add_argument("--iterations", type=int, default=2000)
    p.add_argument(
        "--window-rows", type=int, help="rows among which minibatches are shuffled, instead of the package's"
    )
    p.add_argument("--job", help=argparse.SUPPRESS)
    return p.parse_args(argv)


# -- the table -------------------------------------------------------------------------------


def make(folder, args):
    """Files of X and y, and of rows for the test."""
    direction = np.random.default_rng(args.seed).normal(size=(args.columns, 3)) / np.sqrt(args.columns)
    for name, n_rows, seed in (("train", args.rows, 1), ("test", _TEST_ROWS, 2)):
        rng = np.random.default_rng([args.seed, seed])
        with open(folder / f"{name}_X.npy", "wb") as X_file, open(folder / f"{name}_y.npy", "wb") as y_file:
            _header(X_file, (n_rows, args.columns), args.type)
            _header(y_file, (n_rows,), args.type)
            for start in range(0, n_rows, _ROWS):
                X = rng.normal(size=(min(_ROWS, n_rows - start), args.columns))
                a, b, c = (X @ direction).T
                y = np.sin(2.0 * a) + b * np.cos(c) + 0.2 * rng.normal(size=len(X))
                X_file.write(X.astype(args.type).tobytes())
                y_file.write(y.astype(args.type).tobytes())


def _header(file, shape, dtype):
    description = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, description)


# -- one fit, in a process of its own --------------------------------------------------------


def run_job(job):
    """Fit, predict, and print what was measured."""
    from skgp_natgrad import NGDSVGPRegressor
    from skgp_natgrad._backend import rows

    warnings.simplefilter("ignore")
    if job["window_rows"]:
        rows.WINDOW_ROWS = job["window_rows"]
    folder = Path(job["folder"])
    X, y = (np.load(folder / f"train_{name}.npy", mmap_mode="r")[: job["rows"]] for name in "Xy")
    if not job["from_file"]:
        X, y = np.array(X), np.array(y)
    model = NGDSVGPRegressor(n_inducing=job["points"], random_state=job["seed"], verbose=2, solver=job["solver"])
    if job["solver"] == "ngd":
        model.set_params(max_iter=job["iterations"], tol=0.0)
    found, shown, began = {"memory_before": peak_memory()}, io.StringIO(), time.perf_counter()
    with contextlib.redirect_stdout(shown):
        model.fit(X, y)
    found |= {"seconds": time.perf_counter() - began, "memory_fit": peak_memory()}
    speed, waiting = (pattern.findall(shown.getvalue()) for pattern in (_SPEED, _WAITING))
    found["rows_a_second"] = float(speed[-1]) if speed else job["rows"] / found["seconds"]
    found["waiting"] = float(waiting[-1]) / 100.0 if waiting else None
    X_test, y_test = (np.load(folder / f"test_{name}.npy") for name in "Xy")
    found["log_density"] = float(model.predict_log_density(X_test, y_test).mean())
    if job["predicts"]:
        out = [np.lib.format.open_memmap(folder / f"out_{i}.npy", "w+", float, (len(X),)) for i in range(2)]
        model.predict(X[:20_000])
        began = time.perf_counter()
        model.predict(X, return_std=True, out=tuple(out))
        found["predicted_a_second"] = len(X) / (time.perf_counter() - began)
        found["memory_predict"] = peak_memory()
    print(json.dumps(found))


def peak_memory():
    """The largest resident memory of this process so far, in MB; None where the system does not report it."""
    with contextlib.suppress(OSError, StopIteration), open("/proc/self/status") as file:
        return int(next(line for line in file if line.startswith("VmHWM")).split()[1]) / 1024.0
    return None


# -- all of them -----------------------------------------------------------------------------


def jobs(args):
    """The fits, by what they are called in the table."""
    common = {name: getattr(args, name) for name in ("seed", "points", "iterations", "window_rows")}
    for solver in args.solvers:
        for title, n_rows, from_file, window in (
            ("file", args.rows, True, args.window_rows),
            ("file", args.fewer, True, args.window_rows),
            ("memory", args.fewer, False, args.window_rows),
            ("memory, one shuffle", args.fewer, False, args.fewer),
        ):
            job = common | {"solver": solver, "rows": n_rows, "from_file": from_file, "window_rows": window}
            yield title, job | {"predicts": from_file and n_rows == args.rows}


def measure(args, results):
    """Make the table, and run all fits that the results do not hold yet."""
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        say(f"writing {args.rows} rows to {folder}")
        make(Path(folder), args)
        for title, job in jobs(args):
            key = {"title": title, "columns": args.columns, "type": args.type, **job}
            command = [sys.executable, __file__, "--job", json.dumps(job | {"folder": folder})]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found = json.loads(done.stdout.splitlines()[-1])
            say(f"{title}, {job['rows']} rows, {job['solver']}: {json.dumps(found)}")
            results.add(key | found | machine())


def main(argv=None):
    args = parse_arguments(argv)
    if args.job:
        run_job(json.loads(args.job))
        return
    results = Results(args.output)
    if not args.only_print:
        measure(args, results)
    records, lines = [], []
    for title, job in jobs(args):
        record = results.find({"title": title, "columns": args.columns, "type": args.type, **job})
        if record is None:
            continue
        records.append(record)
        waiting = record["waiting"]
        lines.append(
            [job["solver"], title, job["rows"], number(record["memory_before"], ".0f")]
            + [number(record.get(name), ".0f") for name in ("memory_fit", "memory_predict", "seconds")]
            + [number(record["rows_a_second"], ".3g"), number(waiting and 100.0 * waiting, ".1f")]
            + [number(record["log_density"], ".4f"), number(record.get("predicted_a_second"), ".3g")]
        )
    header = ["solver", "rows in", "rows", "MB before", "MB fit", "MB predict", "seconds", "rows/s", "waiting %"]
    if records:
        show([*header, "log density", "predicted/s"], lines, args.rst, [where(records)])


if __name__ == "__main__":
    main()
