"""Arguments that have no effect with the others given: one warning names them all."""

from __future__ import annotations

import warnings

import numpy as np

from ...svgp import BASES, NATURAL_MEAN_SOLVERS, SOLVERS, is_collapsed
from ...training.rungs import Rung
from . import constructor


def warn_of_inert(estimator, fit, stacklevel):
    """Give one UserWarning for the arguments that were set and have no effect, with the reason for each.

    Parameters
    ----------
    estimator : NGDSVGPRegressor or NGDSVGPClassifier
    fit : preparation.Fit
    stacklevel : int
        Of the warning, counted from the caller.
    """
    defaults = constructor.defaults(type(estimator))
    found = [
        f"{name}={getattr(estimator, name)!r} ({reason})"
        for name, reason in _reasons(fit.plan, fit.table.has_known)
        if name in defaults and getattr(estimator, name) is not defaults[name]
        # A rung is the search's.
        if getattr(estimator, name) != defaults[name] and not isinstance(getattr(estimator, name), Rung)
    ]
    if found:
        warnings.warn(
            f"Without effect here: {'; '.join(found)}. Leave each at its default, or change what it depends on.",
            UserWarning,
            stacklevel=stacklevel + 1,
        )


def warn_of_units(estimator, fit, stacklevel):
    """Warn of a fixed noise that is larger than all of y, as if it were given in the units of y."""
    likelihood, scale = fit.plan.likelihood, fit.scales.y.scale
    fixed = [name for name in likelihood.powers if isinstance(getattr(likelihood, f"{name}_bounds"), str)]
    if not fixed or estimator.normalize_y is not True:
        return
    deviation = max(np.max(getattr(likelihood, name)) ** (1.0 / likelihood.powers[name]) for name in fixed)
    if deviation > 1.0:
        warnings.warn(
            f"{likelihood!r} is on the scale of the standardised y: its deviation is {deviation * scale.max():.4g} in "
            f"the units of y, whose own is {scale.max():.4g}. Divide it by that of y (a variance by its "
            "square), or set normalize_y='center' to give it in the units of y.",
            UserWarning,
            stacklevel=stacklevel + 1,
        )


def _reasons(plan, has_known):
    """Pairs of an argument and the reason why it has no effect under this plan; what is known of rows says more."""
    algorithm = plan.settings.algorithm
    if plan.calibrate and not plan.n_classes:
        if not plan.likelihood.conjugate:
            yield "calibrate", 'only of likelihood="gaussian" the deviations of numbers are calibrated'
        elif not plan.objective.closed_form:
            yield "calibrate", "this objective trains the predicted density itself"
        elif has_known:
            yield "calibrate", "alpha says how the deviation varies"
    solver, here = SOLVERS[algorithm.solver], f"solver={algorithm.solver!r}"
    if plan.route.unread:
        yield from ((name, f"{here} takes one step of size one on all rows") for name in plan.route.unread)
        return
    if not solver.natural:
        yield "gamma_schedule", f"{here} takes no natural gradient steps"
    if not solver.optimizes and algorithm.optimizer is not None:
        yield "optimizer", f"{here} has steps of its own"
    if "learning_rate" not in solver.step_sizes:
        yield "learning_rate", f"{here} finds its step sizes"
    elif algorithm.optimizer is None and not plan.n_mean_inducing and solver.natural:
        yield "learning_rate", "optimizer=None updates nothing"
    if not BASES[algorithm.basis].natural:
        yield "parameterization", f"basis={algorithm.basis!r} has no natural parameters"
    elif is_collapsed(algorithm, plan.likelihood.conjugate and plan.objective.closed_form):
        yield "parameterization", f"{here} computes the best q in closed form here"
    # An array is not named: it is refused, or belongs to an earlier call of partial_fit.
    if plan.n_inducing is None and isinstance(plan.inducing_init, str):
        yield "inducing_init", "n_inducing puts a point at every row"
    if not plan.n_mean_inducing:
        # The decoupled basis differs even then: its mean rests on a copy of the inducing points.
        if BASES[algorithm.basis].natural:
            yield "basis", "there are no mean-only points"
        yield "mean_columns", "there are no mean-only points"
        if algorithm.mean_solver in NATURAL_MEAN_SOLVERS:
            yield "mean_solver", "there are no mean-only points"
