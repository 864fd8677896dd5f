"""What arguments need to have an effect: one warning names those that were set and have none.

A row of the table names its needs; each is a function that returns why the argument has no effect, or None.
"""

from __future__ import annotations

import numpy as np

from ..._backend.notices import Notice
from ...svgp import BASES, NATURAL_MEAN_SOLVERS, SOLVERS, is_collapsed
from . import constructor


def tell(estimator, fit):
    """Warn of arguments that were set and have no effect, or not the one that was meant.

    Parameters
    ----------
    estimator : NGDSVGPRegressor or NGDSVGPClassifier
    fit : preparation.Fit
    """
    for notice in _without_effect(estimator, fit) + _of_units(estimator, fit):
        notice.give()


def _without_effect(estimator, fit):
    """One warning of the arguments that were set and have no effect, with the reason for each: a list."""
    found = []
    for name, row in estimator._arguments.items():
        value = getattr(estimator, name)
        reason = next(filter(None, (need(fit, estimator) for need in row.needs)), None)
        # A search sets a checkpoint that makes its own file of each fit, not the user.
        if reason and not constructor.is_default(estimator, name) and not hasattr(value, "of_fit"):
            found.append(f"{name}={value!r} ({reason})")
    if not found:
        return []
    details = f"{'; '.join(found)}. Leave each at its default, or change what it depends on."
    return [Notice("Without effect here: some arguments that were set.", details)]


def _of_units(estimator, fit):
    """A warning of a fixed noise larger than the deviation of y, which may have been given in its units: a list."""
    likelihood, scale = fit.plan.likelihood, fit.scales.y.scale
    fixed = [name for name in likelihood.fixed if name in likelihood.powers]
    if not fixed or estimator.normalize_y is not True:
        return []
    deviation = max(np.max(getattr(likelihood, name)) ** (1.0 / likelihood.powers[name]) for name in fixed)
    if not deviation > 1.0:
        return []
    details = (
        f"{likelihood!r} is on the scale of the standardised y: its deviation is {deviation * scale.max():.4g} in "
        f"the units of y, and that of y itself only {scale.max():.4g}. Divide it by the deviation of y (a variance "
        "by its square), or set normalize_y='center' to give it in the units of y."
    )
    return [Notice("The fixed noise is larger than the deviation of y.", details)]


def _solver(fit):
    return SOLVERS[fit.plan.settings.algorithm.solver]


def _here(fit):
    return f"solver={fit.plan.settings.algorithm.solver!r}"


def steps(fit, _):
    """A route of many steps."""
    return None if fit.plan.route.trains else f"{_here(fit)} takes one step of size one on all rows"


def iterations(fit, _):
    """A route that can be interrupted."""
    return None if fit.plan.route.trains else f"{_here(fit)} has no iterations to continue from"


def natural_steps(fit, _):
    """A solver that takes natural gradient steps."""
    return None if _solver(fit).natural else f"{_here(fit)} takes no natural gradient steps"


def optimizer(fit, estimator):
    """A solver that updates something by an optimizer; None needs hyperparameters that can be kept."""
    if fit.plan.settings.algorithm.optimizer is None:
        is_chosen = estimator.kernel is None and not fit.plan.route.trains
        return "kernel=None is chosen from the data, and has no hyperparameters to keep" if is_chosen else None
    return steps(fit, estimator) or (None if _solver(fit).optimizes else f"{_here(fit)} has steps of its own")


def rate(fit, _):
    """Something that is updated with a step size."""
    plan = fit.plan
    if "learning_rate" not in _solver(fit).step_sizes:
        return f"{_here(fit)} finds its step sizes"
    nothing = plan.settings.algorithm.optimizer is None and not plan.n_mean_inducing and _solver(fit).natural
    if nothing and fit.neighbours is not None:
        return "a stream that predicts from neighbors keeps its hyperparameters"
    return "optimizer=None updates nothing" if nothing else None


def coordinates(fit, _):
    """A distribution q that moves in one of several coordinates."""
    plan, algorithm = fit.plan, fit.plan.settings.algorithm
    if not BASES[algorithm.basis].natural:
        return f"basis={algorithm.basis!r} has no natural parameters"
    best = is_collapsed(algorithm, plan.likelihood.conjugate and plan.objective.closed_form)
    return f"{_here(fit)} computes the best q in closed form here" if best else None


def places(fit, _):
    """Points that are fewer than the rows; an array is refused, or belongs to an earlier call of partial_fit."""
    every_row = fit.plan.n_inducing is None and isinstance(fit.plan.inducing_init, str)
    return "n_inducing puts a point at every row" if every_row and fit.plan.route.trains else None


def mean_points(fit, _):
    """Points for the mean alone."""
    return "there are no mean-only points" if fit.plan.route.trains and not fit.plan.n_mean_inducing else None


def mean_basis(fit, _):
    """Points for the mean alone, or the decoupled basis, whose mean rests on a copy of the inducing points."""
    return mean_points(fit, _) if BASES[fit.plan.basis].natural else None


def mean_steps(fit, _):
    """Points for the mean alone, whose weights have steps of their own."""
    return mean_points(fit, _) if fit.plan.settings.algorithm.mean_solver in NATURAL_MEAN_SOLVERS else None


def deviations(fit, _):
    """A predicted deviation of numbers that can be calibrated; calibrate=False needs nothing."""
    plan = fit.plan
    if not plan.calibrate:
        return None
    if not plan.likelihood.conjugate:
        return 'in regression only likelihood="gaussian" has calibrated deviations'
    if not plan.objective.closed_form:
        return "this objective trains the predicted density itself"
    return "alpha says how the deviation varies" if fit.table.has_known else None


def neighbours(fit, estimator):
    """A Gaussian likelihood that is solved for in one step, or a stream that began so."""
    if estimator.n_neighbors == 0 or fit.plan.route.search == "evidence" or fit.neighbours is not None:
        return None
    return f"{_here(fit)} with this likelihood predicts from inducing points"


def kernel_search(fit, estimator):
    """A search for the hyperparameters of a given kernel; a fit that continues another one needs none."""
    plan, search = fit.plan, fit.plan.route.search
    if fit.previous is not None:
        return None
    if estimator.kernel is None and plan.hyperparameter_prior is None:
        return "the default kernel has a search of its own"
    if plan.n_restarts == 0:
        # No search needs further starts.
        return None
    if plan.settings.algorithm.optimizer is None:
        return "optimizer=None keeps the kernel's hyperparameters"
    if search == "bound":
        return "for counts the search starts at the given values alone"
    several = len(plan.kernels) > 1 and (plan.n_classes or len(plan.kernels) != fit.table.n_targets)
    if search == "restarts" and several:
        return "no target belongs to a single kernel of the list"
    finds_noise = search == "evidence" and not plan.likelihood.fixed
    is_free = finds_noise or not all(each.fixed for kernel in plan.kernels for each in kernel.hyperparameters)
    return None if is_free else "all that it would search for is fixed"
