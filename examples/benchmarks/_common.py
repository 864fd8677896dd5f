"""What the benchmarks share: arguments, workers, results, tables, pictures.

Every contender runs in a process of its own (see `_worker`), under the
interpreter that has its library. One of them works at a time.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from accuracy import DEFAULT_DATA, load, split
from sklearn.cluster import MiniBatchKMeans

HERE = Path(__file__).resolve().parent
# Libraries that come with the package.
INSTALLED = ("skgp_natgrad", "sklearn")
ENVIRONMENTS = {
    "gpflow": {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"},
    # XLA and OpenBLAS would take the cores from each other, as the developer's notes say of ours.
    "gpjax": {"JAX_ENABLE_X64": "1", "OPENBLAS_NUM_THREADS": "1"},
}
# Letters of an event that are shown; the results have all of it.
_LONGEST_LINE = 300
# What is compiled is part of what is measured.
_CACHES = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE")


class Contender(NamedTuple):
    """Who competes: a library, the function of ``contenders`` that runs it, and its settings.

    ``home`` is another checkout of this package where that one is meant, with its own contenders.
    """

    library: str
    target: str
    settings: dict
    home: Path | None = None


# -- arguments ----------------------------------------------------------------------------


def parser(description, output):
    """What all scripts take; their own arguments are added to it."""
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--output", type=Path, default=Path(output), help="file of JSON lines, which is added to")
    p.add_argument("--only-print", action="store_true", help="run nothing, show what there is")
    p.add_argument("--rst", action="store_true", help="print rst tables")
    return p


def peer_parser(description, output):
    """The same with what those take that compare libraries on real data."""
    p = parser(description, output)
    p.add_argument("--data-dir", type=Path, default=Path(os.environ.get("SKGP_DATA", DEFAULT_DATA)))
    p.add_argument(
        "--peer-python",
        action="append",
        default=[],
        metavar="[LIBRARY=]PATH",
        help="interpreter of the peers, or of one of them, by the name of its module; may be repeated",
    )
    p.add_argument("--contenders", nargs="+", metavar="NAME", help="default: all")
    return p


def contest_parser(description, output):
    """The same for tables of which a random part may do."""
    p = peer_parser(description, output)
    p.add_argument("--max-rows", type=int, help="use a random part of the table")
    return p


def chosen(contenders, args, optional=()):
    """The contenders that ``--contenders`` asks for; else all but the optional ones."""
    unknown = set(args.contenders or ()) - set(contenders)
    if unknown:
        raise SystemExit(f"--contenders {' '.join(sorted(unknown))}: there are {', '.join(contenders)}")
    names = args.contenders or [name for name in contenders if name not in optional]
    return {name: contenders[name] for name in names}


def placed(contenders, device):
    """Those that can be told a device, this package, its floor and GPyTorch, told which."""
    found = {name: one for name, one in contenders.items() if one.library in ("skgp_natgrad", "gpytorch")}
    for one in found.values():
        one.settings["device"] = device
        if "arguments" in one.settings:
            one.settings["arguments"]["device"] = device
    return found


def interpreter(library, entries):
    """The interpreter that has a library, from the values of ``--peer-python``."""
    given = dict(entry.split("=", 1) if "=" in entry else ("", entry) for entry in entries)
    common = "" if library in INSTALLED else given.get("")
    return given.get(library) or common or sys.executable


# -- data ---------------------------------------------------------------------------------


@contextlib.contextmanager
def prepared(dataset, args, n_points=0, n_mean_points=0):
    """A file with the split and standardised table, and with centres of k-means for the peers' points.

    Their own place points at no cost or leave that to the user; the seconds of
    k-means are nobody's.
    """
    X, y, task = load(args.data_dir, dataset)
    X, X_test, y, y_test = split(X, y, task, args)
    total = min(n_points + n_mean_points, len(X))
    centres = np.empty((0, X.shape[1]))
    if total:
        centres = MiniBatchKMeans(total, n_init=1, random_state=args.seed).fit(X).cluster_centers_
        centres = np.random.RandomState(args.seed).permutation(centres)
    with written(X=X, y=y, X_test=X_test, y_test=y_test, Z=centres[:n_points], Z_mean=centres[n_points:]) as path:
        yield path


@contextlib.contextmanager
def written(**arrays):
    """A temporary file with these arrays."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        np.savez(path, **arrays)
        yield path


@contextlib.contextmanager
def written_apart(**arrays):
    """A temporary folder with a file for each of these arrays, which workers map into memory."""
    with tempfile.TemporaryDirectory() as folder:
        for name, array in arrays.items():
            np.save(Path(folder) / f"{name}.npy", array)
        yield folder


# -- workers ------------------------------------------------------------------------------


def worker_script(home):
    """The program of a worker, of this checkout or of another one."""
    return (HERE if home is None else home / "examples" / "benchmarks") / "_worker.py"


def _environment(contender):
    """The environment of a worker."""
    inherited = {name: value for name, value in os.environ.items() if name not in _CACHES}
    checkout = {} if contender.home is None else {"PYTHONPATH": str(contender.home)}
    return inherited | ENVIRONMENTS.get(contender.library, {}) | checkout


class Worker:
    """A process that runs one contender.

    Attributes
    ----------
    failure : str or None
        What went wrong.
    """

    def __init__(self, contender, kind, data, args):
        job = {"library": contender.library, "target": contender.target, "kind": kind}
        job |= {"data": str(data), "settings": contender.settings}
        self.failure = None
        self._process = subprocess.Popen(
            [interpreter(contender.library, args.peer_python), str(worker_script(contender.home))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(contender),
        )
        self.tell(job)

    def tell(self, message=True):
        """Send a line."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def next(self, *names):
        """The next event of one of these names, or None if the process ends before."""
        for event in self.events():
            if event["event"] in names:
                return event
        return None

    def events(self):
        """The events to come."""
        for line in self._process.stdout:
            event = json.loads(line)
            self.failure = event.get("error", self.failure)
            yield event
        if self._process.wait():
            self.failure = self.failure or f"ended with status {self._process.returncode}"

    def finish(self):
        """Let the process end; return the peak memory that it reports, in MB."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        last = self.next("done")
        self._process.wait()
        return last and last["peak_memory"]


def run_alone(name, contender, kind, data, args):
    """Run a contender from start to end; returns its events by name (lists), or None if it failed."""
    say(f"{name}: starts")
    worker = Worker(contender, kind, data, args)
    events = {}
    for event in worker.events():
        events.setdefault(event.pop("event"), []).append(event)
        if "failed" not in events and events.keys() - {"imported"}:
            say(f"{name}: {json.dumps(event)[:_LONGEST_LINE]}")
    worker.finish()
    if worker.failure:
        say(f"{name}: LEFT OUT: {worker.failure}")
        return None
    return events


# -- results ------------------------------------------------------------------------------


class Results:
    """A file of JSON lines, each a key of settings and what was measured."""

    def __init__(self, path):
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.records = [json.loads(line) for line in lines if line.strip()]

    def find(self, key):
        """The last record whose entries contain those of ``key``, or None."""
        key = json.loads(json.dumps(key))
        return next((record for record in reversed(self.records) if key.items() <= record.items()), None)

    def add(self, record):
        """Append a record."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(record)
        with self.path.open("a") as file:
            file.write(line + "\n")
        self.records.append(json.loads(line))


def machine():
    """Where and when something was measured."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration), open("/proc/cpuinfo") as file:
        model = next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    now = datetime.datetime.now().astimezone()
    return {"processor": model, "cores": cores, "date": now.isoformat(timespec="seconds")}


def say(text):
    """One line on stderr."""
    print(text, file=sys.stderr, flush=True)


# -- tables and pictures ------------------------------------------------------------------


def show(header, rows, rst=False, notes=()):
    """Print a table of strings, as text or rst, and what there is to say of it."""
    # In rst a cell that is a dash alone would be a list.
    rows = [["\\-" if rst and value == "-" else str(value) for value in row] for row in rows]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    rule = "  ".join("=" * width for width in widths)
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [header, *rows]
    ]
    print("\n".join([rule, lines[0], rule, *lines[1:], rule] if rst else lines))
    for note in notes:
        print(f"\n{note}")


def number(value, form=".1f", missing="-"):
    """A number as text, or a dash."""
    return missing if value is None else format(value, form)


def where(records):
    """The machine and the day of some records, as a note."""
    places = sorted({(record["processor"], record["cores"], record["date"][:10]) for record in records})
    return "Measured on " + "; ".join(f"{model}, {cores} cores, {day}" for model, cores, day in places) + "."


def pyplot():
    """matplotlib.pyplot without a display, or an explanation."""
    try:
        import matplotlib
    except ImportError:
        raise SystemExit("The picture needs matplotlib: pip install matplotlib") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def save(figure, path):
    """Write a picture beside the results."""
    figure.savefig(path, dpi=130)
    say(f"saved {path}")
