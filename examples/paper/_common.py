"""What the scripts of this folder share: arguments, data, timed fits, results, tables.

A cell is one fit: an experiment, a data set, a method, a seed and the settings
that decide its outcome. Every finished cell is one line of JSON in a file of the
output folder, so that a run of hours can be stopped and goes on where it was.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import itertools
import json
import os
import platform
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

import skgp_natgrad

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_DATA = ROOT.parent / "shared" / "data"
DEFAULT_OUTPUT = Path(__file__).resolve().parent / "results"
QUICK = "QUICK VERSION: fewer rows, points and iterations, larger steps; not the paper's experiment."

# -- arguments ----------------------------------------------------------------------------


def parser(description, datasets, methods, seeds=(0,)):
    """The argument parser of a script; its own arguments are added to it."""
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data-dir", type=Path, default=Path(os.environ.get("SKGP_DATA", DEFAULT_DATA)))
    p.add_argument("--datasets", nargs="+", choices=list(datasets), help="default: all, with --quick a few")
    p.add_argument("--methods", nargs="+", choices=list(methods), default=list(methods))
    p.add_argument("--seeds", nargs="+", type=int, default=list(seeds), help="one split of the rows each")
    p.add_argument("--max-iter", type=int, help="iterations of each fit")
    p.add_argument("--max-rows", type=int, help="use a random part of each table")
    p.add_argument("--quick", action="store_true", help="minutes instead of hours; marked as such")
    p.add_argument("--only-print", action="store_true", help="run nothing, show what there is")
    p.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, help="folder of results")
    p.add_argument("--pictures", type=Path, default=DEFAULT_OUTPUT, help="folder of the picture")
    p.add_argument("--device", default="auto", choices=["auto", "cpu", "gpu"])
    form = p.add_mutually_exclusive_group()
    form.add_argument("--rst", dest="format", action="store_const", const="rst", help="print an rst table")
    form.add_argument("--markdown", dest="format", action="store_const", const="markdown", help="a markdown table")
    p.set_defaults(format="text")
    return p


# -- data ---------------------------------------------------------------------------------


class Table(NamedTuple):
    """A data set; ``n_train`` rows are its own training part, if it has one."""

    name: str
    task: str
    X: np.ndarray
    y: np.ndarray
    n_train: int | None


class Split(NamedTuple):
    """Standardised training and test rows, and the number of classes of the whole table."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    n_classes: int


def load(data_dir, name):
    """Return a data set of the folder ``data_dir``."""
    for task in ("regression", "classification"):
        path = data_dir / task / f"{name}.npz"
        if path.exists():
            with np.load(path) as archive:
                n_train = int(archive["n_train"]) if "n_train" in archive else None
                return Table(name, task, archive["X"].astype(float), archive["y"], n_train)
    known = sorted(path.stem for path in data_dir.glob("*/*.npz"))
    raise SystemExit(f"{name} is not in {data_dir} (--data-dir or SKGP_DATA); there are: {', '.join(known)}")


def split(table, seed, max_rows=None, target="standardised"):
    """Shuffle, hold out a tenth, standardise by the training part.

    mnist keeps its own test part, and its pixels are scaled to [0, 1].
    ``target`` is how a regression target is scaled: see `scale_target`.
    """
    rng = np.random.RandomState(seed)
    if table.name == "mnist":
        train, test = rng.permutation(table.n_train)[:max_rows], np.arange(table.n_train, len(table.X))
        X, X_test = table.X[train] / 255.0, table.X[test[:max_rows]] / 255.0
        test = test[:max_rows]
    else:
        order = rng.permutation(len(table.X))[:max_rows]
        train, test = np.split(order, [int(0.9 * len(order))])
        scaler = StandardScaler().fit(table.X[train])
        X, X_test = scaler.transform(table.X[train]), scaler.transform(table.X[test])
    y = table.y if table.task == "classification" else scale_target(table.y.astype(float), train, target)
    n_classes = len(np.unique(table.y)) if table.task == "classification" else 0
    return Split(X, y[train], X_test, y[test], n_classes)


def scale_target(y, train, target):
    """Mean 0 and deviation 1 ("standardised"), into (0, 1) ("unit"), or 0, 1, ... ("levels")."""
    if target == "standardised":
        return (y - y[train].mean()) / y[train].std()
    if target == "unit":
        # A beta density has no finite logarithm at 0 and 1.
        return np.clip((y - y.min()) / (y.max() - y.min()), 1e-6, 1.0 - 1e-6)
    step = np.diff(np.unique(np.round(y, 6))).min()
    return np.round((y - y.min()) / step)


# -- one timed fit ------------------------------------------------------------------------


class Recorder:
    """The callback of a fit: its clock, its curves and its progress line.

    Scoring the model does not count as training time. The first chunk holds the
    placing of points and the compilation, so its seconds are kept apart.
    """

    def __init__(self, label, max_iter, score=None, n_scores=0, max_seconds=None):
        self.label, self.max_iter, self.score, self.max_seconds = label, max_iter, score, max_seconds
        self.due = list(np.unique(np.geomspace(1, max_iter, n_scores).round().astype(int))) if n_scores else []
        self.iteration, self.seconds, self.scored_iteration, self.scores = [], [], [], []
        self.training, self.resumed = 0.0, time.perf_counter()
        self._shown = time.perf_counter()

    def __call__(self, n_iter, model):
        self.training += time.perf_counter() - self.resumed
        self.iteration.append(int(n_iter))
        self.seconds.append(round(self.training, 4))
        if self.score is not None and self.due and (n_iter >= self.due[0] or n_iter >= self.max_iter):
            self.due = [iteration for iteration in self.due if iteration > n_iter]
            self.scored_iteration.append(int(n_iter))
            self.scores.append(self.score(model))
        self._show(n_iter, model)
        self.resumed = time.perf_counter()
        return self.max_seconds is not None and self.training > self.max_seconds

    def _show(self, n_iter, model):
        now = time.perf_counter()
        if now - self._shown > (1.0 if sys.stderr.isatty() else 60.0):
            self._shown = now
            left = self.training / n_iter * (self.max_iter - n_iter)
            progress(f"{self.label}: {n_iter}/{self.max_iter}, {self.training:.0f} s, {left:.0f} s left")

    def record(self):
        """The curves, as JSON takes them."""
        names = self.scores[0] if self.scores else {}
        scores = {name: [one[name] for one in self.scores] for name in names}
        return {"iteration": self.iteration, "seconds": self.seconds} | (
            {"scored_iteration": self.scored_iteration, **scores} if scores else {}
        )


def timed_fit(estimator, arguments, data, label, score, n_scores=0, max_seconds=None):
    """Fit an estimator and return it with the record of its cell.

    Parameters
    ----------
    estimator : class
    arguments : dict
        Of its constructor.
    data : Split
    label : str
        For the progress line.
    score : callable
        ``score(model)`` returns a dict of floats.
    n_scores : int
        How often to score along the way, at iterations spaced by equal factors.
    max_seconds : float, optional
        Stop after so many seconds of training.
    """
    recorder = Recorder(label, arguments["max_iter"], score, n_scores, max_seconds)
    model = estimator(**arguments, callback=recorder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(data.X, data.y)
    end = sizes(data) | {
        "iterations": int(model.n_iter_),
        "elbo_per_row": float(model.elbo_) / len(data.X),
        "rejected_steps": int(model.n_rejected_steps_),
        "seconds": round(recorder.training, 2),
        "seconds_first_chunk": recorder.seconds[0] if recorder.seconds else None,
        **score(model),
    }
    bound_iteration, bound = log_bins(np.asarray(model.elbo_curve_) / len(data.X))
    curve = recorder.record() | {"bound_iteration": bound_iteration, "bound_per_row": bound}
    return model, end | {"curve": curve}


def fit_ours(estimator, data, score):
    """Fit an estimator that chooses all that it was not given; returns the record of its cell."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator.fit(data.X, data.y)
    seconds = time.perf_counter() - start
    return sizes(data) | {"seconds": round(seconds, 2), **score(estimator)}


def sizes(data):
    """Rows and columns of a split."""
    return {"n": len(data.X), "n_test": len(data.X_test), "d": data.X.shape[1]}


def log_bins(curve, n_bins=400):
    """Means of a curve over bins of iterations that widen by equal factors."""
    curve = np.asarray(curve, dtype=float)
    if not len(curve):
        return [], []
    edges = np.unique(np.geomspace(1, len(curve) + 1, n_bins).round().astype(int)) - 1
    centres = [(a + b - 1) / 2 for a, b in itertools.pairwise(edges)]
    return centres, [round(float(curve[a:b].mean()), 6) for a, b in itertools.pairwise(edges)]


def training_seconds(record, iterations):
    """Seconds of training until each of ``iterations``, without set-up and compilation.

    These are estimated as what the first chunk took beyond the median of the others.
    """
    n, seconds = np.asarray(record["curve"]["iteration"]), np.asarray(record["curve"]["seconds"])
    if len(n) > 1:
        rate = np.median(np.diff(seconds) / np.diff(n))
        seconds = seconds - max(0.0, seconds[0] - rate * n[0])
    return np.interp(iterations, np.r_[0, n], np.r_[0.0, seconds])


def score_regression(data):
    """The score of a regressor: RMSE, MAE and mean log density of the test part."""

    def score(model):
        error = np.asarray(model.predict(data.X_test)) - data.y_test
        return {
            "rmse": float(np.sqrt(np.mean(error**2))),
            "mae": float(np.mean(np.abs(error))),
            "log_density": float(np.mean(model.predict_log_density(data.X_test, data.y_test))),
        }

    return score


def score_log_density(data):
    """The mean log density of the test part alone, in the units of the scaled target."""
    return lambda model: {"log_density": float(np.mean(model.predict_log_density(data.X_test, data.y_test)))}


def score_classification(data, epsilon=1e-3):
    """The score of a classifier: accuracy and mean log probability of the test part.

    A test row of a class that the training part lacks gets the robust-max
    likelihood's probability of an error, epsilon / (K - 1).
    """

    def score(model):
        proba = model.predict_proba(data.X_test)
        column = np.searchsorted(model.classes_, data.y_test).clip(max=len(model.classes_) - 1)
        known = model.classes_[column] == data.y_test
        right = np.where(known, proba[np.arange(len(proba)), column], epsilon / max(1, data.n_classes - 1))
        return {
            "accuracy": float(np.mean(model.classes_[proba.argmax(1)] == data.y_test)),
            "log_density": float(np.log(np.maximum(right, np.finfo(float).tiny)).mean()),
            "rows_of_unseen_classes": int((~known).sum()),
        }

    return score


# -- results ------------------------------------------------------------------------------


def cell(experiment, dataset, method, seed, **settings):
    """What identifies a result; two cells with equal contents are the same."""
    return {"experiment": experiment, "dataset": dataset, "method": method, "seed": seed, "settings": settings}


def _identity(one):
    return json.dumps({key: one[key] for key in cell("", "", "", 0)}, sort_keys=True, default=str)


class Results:
    """A file of finished cells, one line of JSON each; the last of equal cells counts."""

    def __init__(self, path):
        self.path = path
        self._found = {_identity(record): record for record in self._read()}

    def _read(self):
        if not self.path.exists():
            return
        for number, line in enumerate(self.path.read_text().splitlines(), 1):
            try:
                record = json.loads(line)
                _identity(record)
            except (ValueError, KeyError, TypeError):
                if line.strip():
                    progress(f"{self.path.name}: line {number} is not a result (a run that was cut off?), skipped")
                continue
            yield record

    def get(self, one):
        """The record of a cell, or None."""
        return self._found.get(_identity(one))

    def add(self, record):
        """Append a record in a single write, under a lock where the system has one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(record, default=_plain) + "\n"
        with open(self.path, "ab+") as file, _locked(file):
            # A line that was cut off must not swallow this one.
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                line = line if file.read(1) == b"\n" else "\n" + line
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
        self._found[_identity(record)] = json.loads(line)


@contextlib.contextmanager
def _locked(file):
    try:
        import fcntl
    except ImportError:
        yield
        return
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _plain(value):
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else str(value)


@functools.cache
def commit():
    """The commit of the checkout as this process found it; with a plus sign where its code was changed since."""

    def git(*arguments):
        return subprocess.run(
            ["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "skgp_natgrad", "examples/paper/*.py")
        return git("rev-parse", "--short=10", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None  # not a checkout


def processor():
    """The name of the processor, as far as the system tells it."""
    with contextlib.suppress(OSError, StopIteration), open("/proc/cpuinfo") as file:
        return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    return platform.processor() or platform.machine()


def provenance():
    """Where, when and with which version a cell was run."""
    import jax

    device = jax.devices()[0]
    return {
        "platform": platform.platform(),
        "processor": processor(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "jax_device": f"{device.platform}: {device.device_kind}",
        "jax": jax.__version__,
        "version": skgp_natgrad.__version__,
        "commit": commit(),
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def run_missing(cells, results, run_one, args):
    """Run the cells that are not in ``results``; one that fails is reported and left out.

    Returns the number of failures.
    """
    missing = [] if args.only_print else [one for one in cells if results.get(one) is None]
    failures = 0
    commit()  # before anybody changes what this process has loaded
    for number, one in enumerate(missing, 1):
        label = f"[{number}/{len(missing)}] {one['dataset']} {one['method']} seed {one['seed']}"
        progress(f"{label}: starts", final=True)
        try:
            record = run_one(one, label)
        except Exception as error:
            failures += 1
            progress(f"{label}: FAILED: {type(error).__name__}: {error}", final=True)
            if os.environ.get("SKGP_TRACEBACK"):
                traceback.print_exc()
            continue
        results.add(one | record | provenance() | {"quick": bool(args.quick)})
        progress(f"{label}: done in {record.get('seconds', 0.0):.0f} s", final=True)
    if failures:
        progress(f"{failures} of {len(missing)} cells failed; run again to try them once more", final=True)
    return failures


def progress(text, final=False):
    """One line on stderr, written over where stderr is a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="\n" if final else "", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


# -- tables -------------------------------------------------------------------------------


def print_table(title, header, rows, form="text", notes=()):
    """Print a table of strings as text, rst or markdown."""
    # In rst a cell that is a dash alone would be a list.
    rows = [["\\-" if form == "rst" and value == "-" else str(value) for value in row] for row in rows]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(row):
        return "  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip()

    if form == "markdown":
        body = ["| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows]]
    else:
        rule = "  ".join("=" * width for width in widths)
        body = [rule, line(header), rule, *map(line, rows), rule]
    print("\n".join(["", title, "", *body, "", *notes]))


def mean_text(values, digits):
    """The mean of some numbers, with their standard deviation where there are several."""
    values = [value for value in values if value is not None]
    if not values:
        return "-"
    text = f"{np.mean(values):.{digits}f}"
    return f"{text} ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else text
