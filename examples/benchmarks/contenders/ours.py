"""This package: fits whose clock stands still between chunks, searches, and what XLA says of a step."""

from __future__ import annotations

import collections
import contextlib
import logging
import re
import warnings
from unittest import mock

import jax
from accuracy import paper_kernel
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from contenders import Predictor
from skgp_natgrad import LogLinear, NGDSVGPClassifier, NGDSVGPRegressor, _runtime, steps

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


class _Stop(Exception):
    """Ends a fit at its first compiled chunk."""


def step_flops(model, X, y):
    """Operations of one training step, as XLA counts them; it counts none for a factorisation."""
    seen = []

    def catch(*arguments):
        seen.extend(arguments)
        raise _Stop

    with mock.patch.object(steps, "run_chunk", catch), contextlib.suppress(_Stop):
        model.fit(X, y)
    state, problem, batches, gammas, rates, _, method = seen
    batch = jax.tree.map(lambda x: x[0], batches)
    with _runtime.computation(model.device):
        one_step = jax.jit(steps.step, static_argnames="method")
        compiled = one_step.lower(state, problem, batch, gammas[0], rates[0], method=method).compile()
    return compiled.cost_analysis()["flops"]
