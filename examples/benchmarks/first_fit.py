"""Seconds from the start of a process to a fitted model, with nothing set: the first fit, and a later one.

    python examples/benchmarks/first_fit.py --rounds 5 --rst

Each fit is made in a process of its own, on random rows of a smooth function. "Import to fitted" is
import, validation, the search for the kernel with all that it compiles, and the solution. A later fit
is that of another table of the same size in the same process, which compiles nothing anew. With
"filled cache" a process before it has compiled the same programs into the folder of
``enable_compilation_cache``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from _common import Results, machine, number, parser, show, where

_CHILD = """
import sys, time
began = time.perf_counter()
import numpy as np
import skgp_natgrad
n, d, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if folder:
    skgp_natgrad.enable_compilation_cache(folder)
kind = {"regression": skgp_natgrad.NGDSVGPRegressor, "classification": skgp_natgrad.NGDSVGPClassifier}[sys.argv[4]]
rng, seconds = np.random.default_rng(0), []
imported = time.perf_counter() - began
for _ in range(2):
    began = time.perf_counter()
    X = rng.normal(size=(n, d))
    f = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)
    kind(random_state=0).fit(X, f if sys.argv[4] == "regression" else f > 0.0)
    seconds.append(time.perf_counter() - began)
import json
print(json.dumps({"import": imported, "first": seconds[0], "later": seconds[1]}))
"""


def parse_arguments(argv=None):
    p = parser(__doc__, "first_fit.jsonl")
    p.add_argument("--rows", type=int, default=500)
    p.add_argument("--columns", type=int, default=10)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--tasks", nargs="+", choices=["regression", "classification"], default=["regression"])
    return p.parse_args(argv)


def measured(args, task, folder):
    """The times of one process."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    command = [sys.executable, "-c", _CHILD, str(args.rows), str(args.columns), folder, task]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def run(args, results):
    """A line for each task, with an empty and with a filled cache."""
    for task in args.tasks:
        with tempfile.TemporaryDirectory() as folder:
            filled = str(Path(folder, "programs"))
            measured(args, task, filled)
            # In turns: the machine may drift.
            rounds = [(measured(args, task, ""), measured(args, task, filled)) for _ in range(args.rounds)]
        for name, found in zip(("no cache", "filled cache"), zip(*rounds, strict=True), strict=True):
            times = {key: float(np.median([each[key] for each in found])) for key in found[0]}
            settings = {"task": task, "cache": name, "n": args.rows, "d": args.columns, "rounds": args.rounds}
            results.add(settings | times | machine())


def main(argv=None):
    args = parse_arguments(argv)
    results = Results(args.output)
    if not args.only_print:
        run(args, results)
    header = ["task", "cache", "n", "d", "import, s", "import to fitted, s", "later fit, s"]
    rows = [
        [
            r["task"],
            r["cache"],
            r["n"],
            r["d"],
            number(r["import"]),
            number(r["import"] + r["first"]),
            number(r["later"]),
        ]
        for r in results.records
    ]
    show(header, rows, args.rst, [where(results.records)])


if __name__ == "__main__":
    main()
