"""Functions called between chunks of iterations: the progress display, the user's callback, the checkpoint."""

from __future__ import annotations

import contextlib
import copy

from .. import svgp
from . import _fitted, _progress


@contextlib.contextmanager
def of(estimator, fit, constants):
    """Context manager: the callbacks of a fit, in the order in which they are called."""
    title = type(estimator).__name__
    verbose = 0 if svgp.SOLVERS[fit.plan.settings.algorithm.solver].one_step else estimator.verbose
    with _progress.show(title, verbose, fit.plan.settings.max_iter, fit.weight) as progress:
        callbacks = [progress, _users(estimator, fit, constants), fit.checkpoint]
        yield [callback for callback in callbacks if callback is not None]


def _users(estimator, fit, constants):
    """The user's callback, called with a fitted copy of the estimator; None if there is none."""
    if estimator.callback is None:
        return None

    def callback(monitor, state):
        result = svgp.interim(state, constants, monitor.report, fit.plan)
        snapshot = copy.copy(estimator)
        _fitted.store(snapshot, fit, result)
        return estimator.callback(monitor.n_iter, snapshot) is True

    return callback


def after_one_step(estimator, fit):
    """Show one line and call the user's callback once, if the fit has no iterations between which to do so."""
    if not svgp.SOLVERS[fit.plan.settings.algorithm.solver].one_step:
        return
    if estimator.verbose:
        print(f"[{type(estimator).__name__}] ELBO per row {estimator.elbo_ / fit.weight:.4f}: {estimator.plan_}")
    if estimator.callback is not None:
        estimator.callback(estimator.n_iter_, copy.copy(estimator))
