"""One fit by one process and by several, each with its share of the rows: the same model, and what does a step cost?

    python examples/benchmarks/multi_process.py --rst
    python examples/benchmarks/multi_process.py --max-rows 1500 --n-inducing 30 --iterations 40 --predicted-rows 5000

All processes run on this machine, where they share its cores: equality and the overhead are what can be seen, and no
gain. The documentation has launch lines for a cluster ("Several devices and hosts").

The differences are those of 40 iterations on a full batch from the same start, between one process with all rows and
several with a part each; "same bits" is whether all processes end with the same model. The time of a step is that of a
second fit on minibatches, preparation included; "first" is the first one, which compiles. Each process predicts alone.
"""

from __future__ import annotations

import json
import socket
import sys
import tempfile
from pathlib import Path

import _together
from _common import Results, contest_parser, machine, say, show, where, written
from accuracy import load, split


def parse_arguments(argv=None):
    p = contest_parser(__doc__, "multi_process.jsonl")
    p.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    _together.add_arguments(p)
    return p.parse_args(argv)


def worker(path, output, settings, rank, n_processes, port):
    """One of several processes."""
    import jax

    rank, n_processes = int(rank), int(n_processes)
    if n_processes > 1:
        jax.distributed.initialize(f"127.0.0.1:{port}", n_processes, rank)

    def share(n_rows):
        return slice(rank * n_rows // n_processes, (rank + 1) * n_rows // n_processes)

    _together.report(*_together.fitted(path, json.loads(settings), share), output)


def measured(args, path, folder):
    """What each number of processes found, with the differences from the first one."""
    first = None
    for n in args.processes:
        say(f"{n} processes")
        settings = {name: value for name, value in vars(args).items() if isinstance(value, int)} | {"n_devices": "all"}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        outputs = [str(Path(folder) / f"{n}-{rank}.npz") for rank in range(n)]
        commands = [
            ["--worker", str(path), output, json.dumps(settings), str(rank), str(n), port]
            for rank, output in enumerate(outputs)
        ]
        found = _together.run("multi_process.py", commands, outputs, {"JAX_PLATFORMS": "cpu"})
        if found is None:
            continue
        first = first or found[1]
        yield {"n_processes": n, **found[0], **_together.differences(found[1], first)}


def main():
    args = parse_arguments()
    results = Results(args.output)
    key = {name: getattr(args, name) for name in ("dataset", "max_rows", "n_inducing", "batch_size")}
    if not args.only_print:
        common = key | machine()
        with written(**_together.data(args, load, split)) as path, tempfile.TemporaryDirectory() as folder:
            for found in measured(args, path, folder):
                results.add(common | found)
    header = ["processes", "ELBO, relative", "predictions", "same bits", "first, s", "ms a step", "peak MB each"]
    found = [results.find(key | {"n_processes": n}) for n in args.processes]
    found = [each for each in found if each]
    forms = {"n_processes": "d", "elbo": ".1e", "prediction": ".1e", "same": "", "first": ".1f", "step": ".2f"}
    forms["peak_memory"] = ".0f"
    found = [{"same": {True: "yes", False: "no", None: "-"}[each.get("same bits")], **each} for each in found]
    rows = [[format(each[name], form) for name, form in forms.items()] for each in found]
    show(header, rows, args.rst, [where(found)] if found else ())


if __name__ == "__main__":
    worker(*sys.argv[2:]) if sys.argv[1:2] == ["--worker"] else main()
