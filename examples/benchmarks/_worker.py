"""The process that runs one contender, told what to do over a pipe.

    python _worker.py < job.jsonl

The first line of the standard input is a job, in JSON:

``library``, ``target``
    The module that is imported first, with its seconds reported, and the function of a module of
    ``contenders``, as ``module:function``.
``kind``
    A name in JOBS: what is reported.
``data``
    An npz file; or a folder of npy files, which are mapped into memory.
``settings``
    What the function is called with, and what the job itself needs.

The answers are lines of JSON as well, each with the name of an ``event``; the
last is ``done`` or ``failed``. What a library prints goes to the standard error.
Only the standard library and NumPy are needed here.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import sys
import time
import traceback
from pathlib import Path

import numpy as np

# Rows of the prediction that warms up, at most (enough for all that is compiled), and repetitions of one that is timed.
_WARM_UP, _MOST_REPEATS = 50_000, 200


class Channel:
    """Lines of JSON in both directions; the standard output is kept free of anything else."""

    def __init__(self):
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def send(self, event, **values):
        """Send an event."""
        self._answers.write(json.dumps({"event": event, **values}) + "\n")
        self._answers.flush()

    def receive(self):
        """The next line, or None if there will be no other."""
        line = sys.stdin.readline()
        return json.loads(line) if line else None


class Clock:
    """Seconds while it runs; it may be paused twice."""

    def __init__(self):
        self.seconds, self._since = 0.0, None

    def resume(self):
        """Go on."""
        self._since = time.perf_counter()

    def pause(self):
        """Stand still; return the seconds so far."""
        if self._since is not None:
            self.seconds += time.perf_counter() - self._since
        self._since = None
        return self.seconds


def peak_memory():
    """The largest resident memory of this process so far, in MB."""
    peak = _of_status("VmHWM")
    if peak is not None:
        return peak
    # On Linux this may be that of the parent, from before this program was loaded.
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size * (1 if sys.platform == "darwin" else 1024) / 1e6


def resident_memory():
    """The present resident memory in MB, or None where the system does not tell."""
    return _of_status("VmRSS")


def _of_status(name):
    """An entry of Linux' description of this process, in MB; elsewhere None."""
    with contextlib.suppress(OSError, StopIteration), open("/proc/self/status") as file:
        return int(next(line for line in file if line.startswith(f"{name}:")).split()[1]) * 1024 / 1e6
    return None


# -- reports: what a contender that trains is given ---------------------------------------


class Report:
    """Called after each block of iterations; the clock stands in the meantime.

    The answer says whether to end training.
    """

    def __init__(self, channel, data, settings):
        self.channel, self.data, self.settings = channel, data, settings
        self.clock = Clock()

    def __call__(self, n_iter, make_predictor, final=False):
        seconds = self.clock.pause()
        enough = self.look(n_iter, seconds, make_predictor, final)
        self.clock.resume()
        return enough

    def look(self, n_iter, seconds, make_predictor, final):
        """What is done while the clock stands."""
        raise NotImplementedError


class Blocks(Report):
    """Sends the seconds of a block, and waits until it is told to go on."""

    iterations, seconds = 0, 0.0

    def look(self, n_iter, seconds, make_predictor, final):
        """Send this block, wait for the next."""
        if final:
            return True
        self.channel.send("block", iterations=n_iter - self.iterations, seconds=seconds - self.seconds)
        self.iterations, self.seconds = n_iter, seconds
        return self.channel.receive() is None


class Curve(Report):
    """Scores the model at iterations that are spaced by equal factors, and at the end."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        most = self.settings.get("max_iter") or 1
        self.max_iter, self.due = most, list(np.geomspace(1, most, self.settings["n_scores"]).round())

    def look(self, n_iter, seconds, make_predictor, final):
        """Score if it is time to."""
        if final or n_iter >= self.due[0]:
            self.due = [iteration for iteration in self.due if iteration > n_iter] or [np.inf]
            scores = score(make_predictor(), self.data["X_test"], self.data["y_test"])
            self.channel.send("score", iterations=n_iter, seconds=seconds, **scores)
        return n_iter >= self.max_iter


class Predictions(Report):
    """Once trained, times predictions of tables of several lengths."""

    def look(self, n_iter, seconds, make_predictor, final):
        """Wait for the end of training, then time what the model has."""
        if not final and n_iter < self.settings.get("max_iter", np.inf):
            return False
        predictor = make_predictor()
        functions = {"mean": predictor.mean, "mean and variance": predictor.moments}
        if self.settings["task"] == "classification":
            functions = {"probabilities": predictor.proba}
        self.channel.send("trained", peak_memory=peak_memory())
        for n_rows in self.settings["n_rows"]:
            X = np.resize(self.data["X_test"], (n_rows, self.data["X_test"].shape[1]))
            for name, function in functions.items():
                self.channel.send("predicted", function=name, rows=n_rows, **self._timed(function, X))
        return True

    def _timed(self, function, X):
        """Seconds of calls that predict all rows, after one for some of them: median and best."""
        size = self.settings["rows_a_call"] or len(X)
        parts = [X[start : start + size] for start in range(0, len(X), size)]
        function(parts[0][:_WARM_UP])
        seconds = []
        for _ in range(np.clip(self.settings["rows_in_all"] // len(X), 1, _MOST_REPEATS)):
            start = time.perf_counter()
            for part in parts:
                function(part)
            seconds.append(time.perf_counter() - start)
        return {"seconds": float(np.median(seconds)), "best": min(seconds), "peak_memory": peak_memory()}


def score(predictor, X, y, chunk=2048):
    """RMSE and mean log density of the test rows, whose likelihood is Gaussian; of labels the share of wrong ones."""
    if predictor.proba is not None:
        proba = np.concatenate([predictor.proba(X[start : start + chunk]) for start in range(0, len(X), chunk)])
        log_density = np.log(proba[np.arange(len(y)), y.astype(int)])
        return {"rmse": float(np.mean(proba.argmax(axis=1) != y)), "log_density": float(log_density.mean())}
    parts = [predictor.moments(X[start : start + chunk]) for start in range(0, len(X), chunk)]
    mean, var = (np.concatenate(values) for values in zip(*parts, strict=True))
    square = (y - mean) ** 2
    log_density = -0.5 * (np.log(2.0 * np.pi * var) + square / var)
    return {"rmse": float(np.sqrt(square.mean())), "log_density": float(log_density.mean())}


# -- jobs ---------------------------------------------------------------------------------


def train(channel, function, data, settings, report):
    """Train, with a report of the given class."""
    report = report(channel, data, settings)
    report.clock.resume()
    function(data, settings, report)


def search(channel, function, data, settings):
    """A grid search with its compilations and its memory: scikit-learn's, or the library's own."""
    from sklearn.model_selection import GridSearchCV

    module = sys.modules[function.__module__]
    kind = getattr(module, "OWN_SEARCH", None) if settings.get("own_search") else GridSearchCV
    options = settings.get("search_options", {})
    counting = getattr(module, "count_compilations", contextlib.nullcontext)
    estimator, grid = function(data, settings)
    scoring = _Scoring()
    with counting() as counts:
        start = time.perf_counter()
        found = kind(
            estimator, grid, cv=settings["folds"], scoring=scoring, error_score="raise", refit=False, **options
        )
        found.fit(data["X"], data["y"])
        seconds = time.perf_counter() - start
    channel.send(
        "searched",
        seconds=seconds,
        fits=len(found.cv_results_["params"]) * settings["folds"],
        first_fit=scoring.times[0] - start if scoring.times else None,
        best_score=float(found.best_score_),
        compilations=None if counts is None else dict(counts),
        # Fits in other processes leave no times and no memory here.
        memory_after_fifth=scoring.memory[max(0, len(scoring.memory) // 5 - 1)] if scoring.memory else None,
        memory_at_end=scoring.memory[-1] if scoring.memory else None,
    )


class _Scoring:
    """The estimator's own score; called after each fit, it writes down the time and the memory."""

    def __init__(self):
        self.times, self.memory = [], []

    def __call__(self, estimator, X, y):
        value = estimator.score(X, y)
        self.times.append(time.perf_counter())
        self.memory.append(resident_memory())
        return value


JOBS = {
    "blocks": lambda *arguments: train(*arguments, Blocks),
    "curve": lambda *arguments: train(*arguments, Curve),
    "predictions": lambda *arguments: train(*arguments, Predictions),
    "search": search,
    "profile": lambda channel, function, *arguments: channel.send("profiled", **function(*arguments)),
}


def arrays(path):
    """The arrays of an npz file, or memory maps of those of a folder."""
    if path.is_dir():
        return {file.stem: np.load(file, mmap_mode="r") for file in path.glob("*.npy")}
    with np.load(path) as data:
        return dict(data)


def main():
    channel = Channel()
    job = channel.receive()
    try:
        start = time.perf_counter()
        library = importlib.import_module(job["library"])
        seconds = time.perf_counter() - start
        channel.send("imported", seconds=seconds, version=getattr(library, "__version__", None))
        module, function = job["target"].split(":")
        function = getattr(importlib.import_module(f"contenders.{module}"), function)
        JOBS[job["kind"]](channel, function, arrays(Path(job["data"])), job["settings"])
    except Exception as error:
        if not isinstance(error, ImportError):
            traceback.print_exc()
        channel.send("failed", error=f"{type(error).__name__}: {error}")
    else:
        channel.send("done", peak_memory=peak_memory())


if __name__ == "__main__":
    main()
