"""What a fit says of itself at its end: an error where it diverged, warnings where it is not what it seems."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .. import svgp
from . import _arguments, _bounds, _fitted
from ._inert import warn_of_inert

# The bound of a fit that diverged lies so many nats, for each unit of weight, below that of the constant model and
# below its own first one.
_FAR = 10.0
_LAST = 50
# Part of the steps that may be rejected or shortened without a word; a step size that is found while training is now
# and then too large.
_FEW, _FEW_WHILE_FOUND = 0.05, 0.15
# Nats for each unit of weight that single precision may take off the bound, or add to it, without a word.
_COARSE = 5e-3


class Outcome(NamedTuple):
    """What is known of a fit at its end.

    Attributes
    ----------
    estimator : NGDSVGPRegressor or NGDSVGPClassifier
    fit : _preparation.Fit
    result : svgp.Result
    constant : float or None
        The bound of the constant model for each unit of weight, where it is known.
    step_sizes : list of str
        The arguments to lower, with their values.
    """

    estimator: object
    fit: object
    result: svgp.Result
    constant: float | None
    step_sizes: list

    def warn(self, stacklevel):
        """Say what a user should know; ``stacklevel`` of the warnings is counted from the caller."""
        fit, result, level = self.fit, self.result, stacklevel + 1
        warn_of_inert(self.estimator, fit.plan, level)
        _warn_of_mean(result.lost, level)
        _warn_of_training(result.trained, fit, self.constant, self.step_sizes, level)
        if fit.plan.settings.algorithm.optimizer is not None:
            _bounds.warn_at_bounds(result.state.parameters[:2], result.constants.log_bounds, level)
        if fit.previous is None:
            _fitted.warn_fewer_points(self.estimator, fit.plan, result.constants.masks, level)


def judge(estimator, fit, result):
    """The `Outcome` of a fit.

    Raises
    ------
    FloatingPointError
        If training diverged; its checkpoint is removed.
    """
    # Of the bound that training saw: the noise of a mean that is solved for is not the bound's own.
    constant = None if fit.posterior is not None else svgp.bound_of_constants(result, fit.table, fit.plan)
    step_sizes = _arguments.step_sizes(estimator, fit.plan.settings.algorithm)
    try:
        refuse_diverged(result.trained, fit.weight, constant, step_sizes)
    except FloatingPointError:
        # Other arguments are to be tried, for which its state is of no use.
        if fit.checkpoint is not None:
            fit.checkpoint.remove()
        raise
    return Outcome(estimator, fit, result, constant, step_sizes)


def refuse_diverged(result, weight, constant, step_sizes):
    """Raise if training went far below where it began, and below a model that is constant.

    Parameters
    ----------
    result : training.loop.Result
    weight : float
        Of all rows.
    constant : float or None
        The bound of the constant model for each unit of weight, where it is known.
    step_sizes : list of str
        The arguments to lower, with their values.

    Raises
    ------
    FloatingPointError
    """
    if not len(result.report.elbo):
        return
    # Of the last bounds the median too: one minibatch with an outlier is no divergence.
    last = max(result.elbo, np.median(result.report.elbo[-_LAST:])) / weight
    first = result.report.elbo[0] / weight
    if last < min(first, np.inf if constant is None else constant) - _FAR:
        known = "" if constant is None else f" and that of a constant model {constant:.3g}"
        raise FloatingPointError(
            f"Training diverged: the ELBO ended at {last:.3g} nats a row, its first value is {first:.3g}{known}. "
            f"{_smaller(step_sizes)}, or look for extreme values in X, y and sample_weight."
        )


def _smaller(step_sizes):
    """What to do where steps are too large."""
    given = f"Lower {' or '.join(step_sizes)}" if step_sizes else ""
    if any(size.startswith("gamma_schedule") for size in step_sizes):
        return given
    return f"{given}, or give gamma_schedule a small number" if given else "Give gamma_schedule a small number"


def _warn_of_training(result, fit, constant, step_sizes, stacklevel):
    settings = fit.plan.settings
    found = [_not_converged(result.status, settings, step_sizes), _rejections(result.report, settings, step_sizes)]
    found += [_too_coarse(result.lost), _no_better(result, fit.weight, constant, step_sizes)]
    for message in filter(None, found):
        warnings.warn(message, ConvergenceWarning, stacklevel=stacklevel + 1)


def _not_converged(status, settings, step_sizes):
    window = f"n_iter_no_change={settings.n_iter_no_change}"
    change = f"by more than tol={settings.tol:g} for each row over {window} iterations"
    return {
        None: None,
        "too few": f"max_iter={settings.max_iter} is too few iterations to tell whether the ELBO has converged: "
        f"that takes two averages over {window} iterations. Raise max_iter or lower n_iter_no_change.",
        "rising": f"The ELBO was still rising at max_iter={settings.max_iter} ({change}). Raise "
        f"{' or '.join(['max_iter', *step_sizes[-1:]])}, or accept it with a larger tol.",
        "falling": f"The ELBO was falling at the end ({change}): the steps are too large. Lower "
        f"{' or '.join(step_sizes)}.",
        "unsound": "The ELBO of some minibatches is not finite, whatever the steps; the last sound state is kept. "
        "Look for extreme values in X, y and sample_weight, or choose a likelihood with heavier tails.",
        "no step": "The line search found no step that raises the ELBO while the hyperparameters move; lower "
        f"{' or '.join(step_sizes[-1:])}.",
    }[status]


def _rejections(report, settings, step_sizes):
    n_rejected, n_steps = int(report.rejected.sum()), len(report.rejected)
    few = _FEW_WHILE_FOUND if settings.algorithm.adaptive else _FEW
    if n_rejected <= max(1, few * n_steps):
        return None
    return (
        f"{n_rejected} of {n_steps} steps were rejected, shortened or taken back, since they lowered the ELBO or left "
        f"the Gaussians. {_smaller(step_sizes)}; larger minibatches may help, too."
    )


def _too_coarse(lost):
    if not lost > _COARSE:
        return None
    return (
        f"dtype='float32' is too coarse for this model: rounding changes the ELBO by {lost:.2g} nats a row, since the "
        "noise is small beside the signal. Use dtype='float64'."
    )


def _no_better(result, weight, constant, step_sizes):
    if constant is None or result.status == "too few" or result.elbo > constant * weight:
        return None
    return (
        f"The ELBO, {result.elbo / weight:.4g} nats a row, is no better than that of a constant, {constant:.4g}. X may "
        "say nothing of y; or train for longer, start from shorter lengthscales (kernel) and less noise (likelihood), "
        f"or take smaller steps. {_smaller(step_sizes)}."
    )


def _warn_of_mean(lost, stacklevel):
    """Say what ``mean_solver="exact"`` could not use: see `exact_mean.Solution`."""
    kept = {"solution": "the trained mean, without mean-only points,", "likelihood": "the trained likelihood"}.get(lost)
    if kept is not None:
        warnings.warn(
            f'mean_solver="exact": rounding spoils the {lost}, and {kept} is kept. Lower n_mean_inducing, or raise '
            "jitter.",
            ConvergenceWarning,
            stacklevel=stacklevel + 1,
        )
