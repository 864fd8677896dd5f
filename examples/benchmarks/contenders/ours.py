"""This package: training through the engine, fits and searches by the estimators, and what XLA says of a step."""

from __future__ import annotations

import collections
import contextlib
import functools
import gzip
import json
import tempfile
import warnings
from pathlib import Path

import jax
import numpy as np
from accuracy import paper_kernel
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from contenders import Predictor
from skgp_natgrad import Cosine, LogLinear, NGDSVGPClassifier, NGDSVGPRegressor, likelihoods, svgp
from skgp_natgrad._backend import device
from skgp_natgrad.model_selection import NGDGridSearchCV

ESTIMATORS = {"regression": NGDSVGPRegressor, "classification": NGDSVGPClassifier}
OWN_SEARCH = NGDGridSearchCV
COMPILATION = "/jax/core/compile/backend_compile_duration"


# -- the engine ---------------------------------------------------------------------------


def described(data, settings):
    """The plan and the table of standardised rows, numbers or two classes, from the estimator's arguments."""
    arguments = {"learning_rate": 0.02, "batch_size": 1024, "n_mean_inducing": 0} | settings["arguments"]
    n_features, gamma = data["X"].shape[1], settings.get("gamma", 0.1)
    kernel = paper_kernel(n_features, settings.get("ard", False), 1.0)
    y = np.atleast_2d(data["y"].T)
    plan = svgp.Plan(
        kernels=(kernel,) if settings.get("kernel", "paper") == "paper" else None,
        likelihood=likelihoods.by_name(arguments.get("likelihood", "gaussian")),
        n_classes=2 if settings.get("task") == "classification" else 0,
        settings=svgp.Settings(
            algorithm=_given(svgp.Algorithm(), arguments),
            gamma_schedule=LogLinear(min(1e-3, gamma), gamma, n_steps=20),
            rate_schedule=Cosine(arguments["learning_rate"], 0.0, n_steps=arguments["max_iter"]),
            n_columns=arguments.get("mean_columns", arguments["batch_size"]),
            tol=0.0,
        ),
    )
    plan = _given(plan._replace(settings=_given(plan.settings, arguments)), arguments, without=("likelihood",))
    table = svgp.Table(data["X"], y, np.ones(len(data["X"])))
    return svgp.complete(plan, table, arguments["random_state"]), table


def _given(record, arguments, without=()):
    """The record with those of the arguments that are fields of it."""
    return record._replace(**{name: arguments[name] for name in set(record._fields) & set(arguments) - set(without)})


def train(data, settings, report):
    """Train, with a report after each chunk of iterations and at the end, when the mean may have been solved for.

    What is timed is all that a fit does for a chunk of iterations: drawing the
    batches, the compiled steps, and the check of convergence.
    """
    seed = settings["arguments"]["random_state"]
    plan, table = described(data, settings)
    state, constants = svgp.init(plan, table, seed)

    def callback(monitor, state):
        jax.block_until_ready(state)
        return report(monitor.n_iter, lambda: _of_engine(svgp.interim(state, constants, monitor.report, plan), plan))

    result = svgp.train(state, constants, table, plan, seed, [callback])
    report(len(result.trained.report.elbo), lambda: _of_engine(result, plan), final=True)


def _of_engine(result, plan):
    """How a user calls the engine."""
    model, _ = svgp.condition(result.state, result.constants, plan)

    def moments(X):
        mean, var = svgp.predict(model, X, "target_moments", device=plan.device)
        return mean[0], var[0]

    def proba(X):
        return np.moveaxis(svgp.predict(model, X, "class_probabilities", device=plan.device), 0, -1)

    mean = lambda X: svgp.predict(model, X, "target_mean", device=plan.device)[0]  # noqa: E731
    return Predictor(mean, moments, proba if plan.n_classes else None)


def step_flops(data, settings):
    """Operations of one training step, as XLA counts them; it counts none for a factorisation."""
    plan, table = described(data, settings)
    state, constants = svgp.init(plan, table, settings["arguments"]["random_state"])
    size = plan.settings.batch_size
    batch = svgp.batch(svgp.Table(table.X[:size], table.y[:, :size], table.weight[:size]))
    # As many of the mean-only points' columns as training takes.
    batch = batch._replace(columns=np.arange(min(plan.settings.n_columns, plan.route.n_trained_mean(plan))))
    one_step = functools.partial(svgp.step, plan=plan, gamma=0.1, rate=0.01)
    with device.computation(plan.device):
        compiled = jax.jit(one_step).lower(state, constants, batch).compile()
    return compiled.cost_analysis()["flops"]


# -- the estimators -----------------------------------------------------------------------


def make(settings, n_features):
    """The estimator that the settings describe."""
    kernel = settings.get("kernel", "paper")
    gamma = settings.get("gamma", 0.1)
    return ESTIMATORS[settings["task"]](
        kernel=paper_kernel(n_features, settings.get("ard", False), 1.0) if kernel == "paper" else None,
        gamma_schedule=LogLinear(min(1e-3, gamma), gamma, n_steps=20),
        tol=0.0,
        **settings["arguments"],
    )


def fit(data, settings, report):
    """Fit the estimator, with one report at the end."""
    model = make(settings, data["X"].shape[1])
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
    """Count XLA compilations by the name of the program."""
    counts = collections.Counter()

    def listen(event, seconds, fun_name="unnamed", **_):
        if event == COMPILATION:
            counts[fun_name.removeprefix("jit(").removesuffix(")")] += 1

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield counts
    jax.monitoring.unregister_event_duration_listener(listen)


def profile(data, settings):
    """The device's milliseconds a step by the name of the program's part, from JAX's profiler; and the device."""
    with tempfile.TemporaryDirectory() as folder:

        def record_second_chunk(n_iter, _):
            if n_iter == svgp.STEPS_PER_CALL:
                jax.profiler.start_trace(folder)
            if n_iter == 2 * svgp.STEPS_PER_CALL:
                jax.profiler.stop_trace()
            return n_iter == 2 * svgp.STEPS_PER_CALL

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
            total[one["name"]] += one["dur"] / 1e3 / svgp.STEPS_PER_CALL
    return total
