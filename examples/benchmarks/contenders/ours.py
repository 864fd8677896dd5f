"""This package: fits whose clock stands still between chunks, searches, and what XLA says of a step."""

from __future__ import annotations

import collections
import contextlib
import gzip
import json
import logging
import re
import tempfile
import warnings
from pathlib import Path
from unittest import mock

import jax
from accuracy import paper_kernel
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from contenders import Predictor
from skgp_natgrad import LogLinear, NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad._backend import device
from skgp_natgrad.step import chunk, step
from skgp_natgrad.step.chunk import STEPS_PER_CALL

ESTIMATORS = {"regression": NGDSVGPRegressor, "classification": NGDSVGPClassifier}


def make(settings, n_features, estimators=ESTIMATORS):
    """The estimator that the settings describe."""
    kernel = settings.get("kernel", "paper")
    gamma = settings.get("gamma", 0.1)
    return estimators[settings["task"]](
        kernel=paper_kernel(n_features, settings.get("ard", False), 1.0) if kernel == "paper" else None,
        gamma_schedule=LogLinear(min(1e-3, gamma), gamma, n_steps=20),
        tol=0.0,
        **settings["arguments"],
    )


class _Pausing:
    """A fit whose clock stands while the callback's model is made; mixed into an estimator.

    What it times is all that a fit does for a chunk of iterations: drawing the
    batches, the compiled steps, and the check of convergence.
    """

    def _on_chunk(self, show, fitted_as):
        on_chunk = super()._on_chunk(show, fitted_as)

        def paused(report, state):
            jax.block_until_ready(state)
            self.clock.pause()
            return on_chunk(report, state)

        return paused


class _TimedRegressor(_Pausing, NGDSVGPRegressor):
    """The regressor, with a clock."""


class _TimedClassifier(_Pausing, NGDSVGPClassifier):
    """The classifier, with a clock."""


_TIMED = {"regression": _TimedRegressor, "classification": _TimedClassifier}


def train(data, settings, report):
    """Fit, with a report after each chunk of iterations and at the end, when the mean may have been solved for."""
    model = make(settings, data["X"].shape[1], _TIMED)
    model.clock = report.clock
    model.callback = lambda n_iter, snapshot: report(n_iter, lambda: predictor(snapshot))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(data["X"], data["y"])
    report(model.n_iter_, lambda: predictor(model), final=True)


def predictor(model):
    """How a user calls the estimator."""

    def moments(X):
        mean, std = model.predict(X, return_std=True)
        return mean, std**2

    return Predictor(model.predict, moments, getattr(model, "predict_proba", None))


def search(data, settings):
    """The estimator and the grid of a search."""
    model = ESTIMATORS[settings["task"]](
        ConstantKernel() * RBF(),
        n_inducing=settings["n_inducing"],
        max_iter=settings["max_iter"],
        batch_size=settings["batch_size"],
        tol=0.0,
        random_state=0,
    )
    grid = {
        "kernel__k1__constant_value": settings["amplitudes"],
        "kernel__k2__length_scale": settings["length_scales"],
    }
    return model, grid


@contextlib.contextmanager
def count_compilations():
    """Count XLA compilations by the name of the program, from JAX's own log."""
    counts = collections.Counter()

    class Handler(logging.Handler):
        def emit(self, record):
            found = re.match(r"Finished XLA compilation of jit\((\w+)\)", record.getMessage())
            if found:
                counts[found.group(1)] += 1

    logger, handler = logging.getLogger("jax"), Handler()
    logger.addHandler(handler)
    propagate, logger.propagate = logger.propagate, False
    try:
        with jax.log_compiles(True):
            yield counts
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


def profile(data, settings):
    """The device's milliseconds a step by the name of the program's part, from JAX's profiler; and the device."""
    with tempfile.TemporaryDirectory() as folder:

        def record_second_chunk(n_iter, _):
            if n_iter == STEPS_PER_CALL:
                jax.profiler.start_trace(folder)
            if n_iter == 2 * STEPS_PER_CALL:
                jax.profiler.stop_trace()
            return n_iter == 2 * STEPS_PER_CALL

        model = make(settings, data["X"].shape[1]).set_params(callback=record_second_chunk)
        model.fit(data["X"], data["y"])
        (path,) = Path(folder).rglob("*.trace.json.gz")
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    with device.computation(model.device):
        kind = jax.numpy.zeros(()).devices().pop().device_kind
    return {"milliseconds": _on_device(events), "kind": kind}


def _on_device(events):
    """Milliseconds a step by name: of a GPU's streams, else of XLA's threads."""
    processes = {one["pid"]: one["args"]["name"] for one in events if one.get("name") == "process_name"}
    threads = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one.get("name") == "thread_name"}
    gpus = {pid for pid, name in processes.items() if "GPU" in name}
    total = collections.defaultdict(float)
    for one in events:
        place = (one.get("pid"), one.get("tid"))
        # Of a GPU the rows of its streams: others show the same work again, by the operation it belongs to.
        of_device = threads.get(place, "").startswith("Stream") and place[0] in gpus
        of_threads = not gpus and "XLAEigen" in threads.get(place, "") and "::" not in one["name"]
        if one.get("ph") == "X" and (of_device or of_threads):
            total[one["name"]] += one["dur"] / 1e3 / STEPS_PER_CALL
    return total


class _Stop(Exception):
    """Ends a fit at its first compiled chunk."""


def step_flops(model, X, y):
    """Operations of one training step, as XLA counts them; it counts none for a factorisation."""
    seen = []

    def catch(*arguments):
        seen.extend(arguments)
        raise _Stop

    with mock.patch.object(chunk, "run_chunk", catch), contextlib.suppress(_Stop):
        model.fit(X, y)
    state, constants, batches, gammas, rates, _, method, *_ = seen
    batch = jax.tree.map(lambda x: x[0], batches)
    with device.computation(model.device):
        one_step = jax.jit(step.step, static_argnames="algorithm")
        compiled = one_step.lower(state, constants, batch, gammas[0], rates[0], algorithm=method).compile()
    return compiled.cost_analysis()["flops"]
