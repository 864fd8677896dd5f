"""One fit on one, two and four devices: does it end at the same model, and what does a step cost?

    python examples/benchmarks/multi_device.py --rst
    python examples/benchmarks/multi_device.py --max-rows 1500 --n-inducing 30 --iterations 40 --predicted-rows 5000

On a CPU the devices are simulated (XLA's ``--xla_force_host_platform_device_count``): they take turns on the same
cores, so that equality and the overhead are what can be seen, and no gain. Where JAX sees several GPUs,
``--device gpu`` measures the gain.

The differences are those of 40 iterations on a full batch, at each of which all rows count, from the same start. The
time of a step is that of a second fit on minibatches, preparation included; "first" is the first one, which compiles.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import _together
from _common import Results, contest_parser, machine, say, show, where, written
from accuracy import load, split


def parse_arguments(argv=None):
    p = contest_parser(__doc__, "multi_device.jsonl")
    p.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    p.add_argument("--devices", type=int, nargs="+", default=[1, 2, 4])
    _together.add_arguments(p)
    return p.parse_args(argv)


def worker(path, output, settings):
    """One number of devices, in a process of its own."""
    _together.report(*_together.fitted(path, json.loads(settings), lambda n_rows: slice(None)), output)


def measured(args, path, folder):
    """What each number of devices found, with the differences from the first one."""
    first = None
    for n_devices in args.devices:
        say(f"{n_devices} devices")
        settings = {name: value for name, value in vars(args).items() if isinstance(value, int)}
        settings |= {"n_devices": n_devices}
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={n_devices}"
        environment = {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"} if args.device == "cpu" else {}
        output = str(Path(folder) / f"{n_devices}.npz")
        command = ["--worker", str(path), output, json.dumps(settings)]
        found = _together.run("multi_device.py", [command], [output], environment)
        if found is None:
            continue
        first = first or found[1]
        yield {"n_devices": n_devices, **found[0], **_together.differences(found[1], first)}


def main():
    args = parse_arguments()
    results = Results(args.output)
    key = {name: getattr(args, name) for name in ("device", "dataset", "max_rows", "n_inducing", "batch_size")}
    if not args.only_print:
        common = key | machine()
        with written(**_together.data(args, load, split)) as path, tempfile.TemporaryDirectory() as folder:
            for found in measured(args, path, folder):
                results.add(common | found)
    header = ["devices", "ELBO, relative", "predictions", "first, s", "ms a step", "rows predicted a s", "peak MB"]
    found = [results.find(key | {"n_devices": n}) for n in args.devices]
    found = [each for each in found if each]
    forms = {"n_devices": "d", "elbo": ".1e", "prediction": ".1e", "first": ".1f", "step": ".2f", "predicted": ".0f"}
    forms["peak_memory"] = ".0f"
    rows = [[format(each[name], form) for name, form in forms.items()] for each in found]
    show(header, rows, args.rst, [where(found)] if found else ())


if __name__ == "__main__":
    worker(*sys.argv[2:]) if sys.argv[1:2] == ["--worker"] else main()
