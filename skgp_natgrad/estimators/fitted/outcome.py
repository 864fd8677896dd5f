"""Checks at the end of a fit: an error if it diverged, warnings if the result may be unreliable."""

from __future__ import annotations

import re
import threading
import warnings
from typing import NamedTuple

import jax
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ... import svgp
from ..arguments import constructor, reading
from ..rows import encoding, numbers
from . import attributes, hyperparameters, mean_only
from .hyperparameters import logarithms_of_units

# A fit has diverged if its bound ends this many nats, per unit of weight, below that of the constant model and below
# its own first value.
_FAR = 10.0
_LAST = 50
# Fraction of the steps that may be rejected or shortened without a warning; an adaptive step size is too large now
# and then.
_FEW, _FEW_WHILE_FOUND = 0.05, 0.15
# The kinds of warnings given in each of the last searches; since version 1.9 scikit-learn tells a fit its search.
_told, _MOST_SEARCHES = {}, 100
_telling = threading.Lock()
# A forecast further ahead, in windows of the test of convergence, is not given.
_MOST_WINDOWS = 40
# A root mean square error of the prediction, in deviations of y, that is worse than a constant.
_WORSE_MEAN = 1.02
# Nats per unit of weight by which single precision may change the bound without a warning.
_COARSE = 5e-3
# Standard errors by which the ranking of held-out labels, or a mean that is worse than a constant, must be ahead of
# chance; and the nats of the whole table by which a bound must be larger than that of a constant.
_SURE, _NOTHING = 2.0, 1.0
# Rows from which the variance of the prior is computed.
_SOME_ROWS = 1000


class Outcome(NamedTuple):
    """A fit, its result, and what its warnings need.

    Attributes
    ----------
    estimator : NGDSVGPRegressor or NGDSVGPClassifier
    fit : preparation.Fit
    result : svgp.Result
    constant : float or None
        The bound of the constant model per unit of weight, where it is known.
    step_sizes : list of str
        The arguments to lower, with their values.
    accuracy : Accuracy, optional
        Of a classifier whose bound does not show whether its labels are better than the most frequent one.
    left_out : Average, optional
        Log density of training labels that were predicted without themselves.
    """

    estimator: object
    fit: object
    result: svgp.Result
    constant: float | None
    step_sizes: list
    accuracy: NamedTuple | None = None
    left_out: NamedTuple | None = None

    def with_accuracy(self):
        """The outcome with the accuracy of the labels, once the estimator is fitted."""
        if self.constant is None or self.result.trained.status == "too few" or not hasattr(self.estimator, "classes_"):
            return self
        if -_value(self.result, self.fit)[0] / np.log(2.0) < 1.0 - _largest_share(self.fit.some):
            # A wrong label has a probability below one half, and costs more than log 2: there are too few of them.
            return self
        model = attributes.model_of(self.estimator)
        return self._replace(accuracy=svgp.accuracy(model, self.fit.some, self.fit.plan.device))

    def warn(self, stacklevel):
        """Give the warnings that a user should see; their ``stacklevel`` is counted from the caller."""
        fit, result, level = self.fit, self.result, stacklevel + 1
        mean_only.warn_of_lost(result.lost, level)
        for message in fit.warnings:
            warnings.warn(message, UserWarning, stacklevel=level)
        of_kinds, found = numbers.told_of_kinds(self.estimator, fit), _of_training(self)
        for kind in self._new(of_kinds, constructor.family_of(self.estimator)):
            warnings.warn(of_kinds[kind], UserWarning, stacklevel=level)
        for kind in self._new(found):
            warnings.warn(found[kind], ConvergenceWarning, stacklevel=level)
        if fit.plan.settings.algorithm.optimizer is not None:
            self._warn_at_bounds(level)
        if fit.previous is None:
            attributes.warn_fewer_points(self.estimator, fit.plan, result.constants.masks, level)

    def _warn_at_bounds(self, stacklevel):
        """Name the hyperparameters at a bound, and the columns without effect (only once for the fits of a search)."""
        fit, result, level = self.fit, self.result, stacklevel + 1
        at = result.state.parameters[:2], result.constants.log_bounds
        given, idle = self.estimator.kernel is not None, {}
        if given:
            some = fit.some.sample
            kernels = attributes.model_of(self.estimator).kernels
            variances = [np.mean(kernel.diag(some.X[:_SOME_ROWS])) for kernel in kernels]
            deviation = float(np.nanstd(some.y)) if fit.plan.likelihood.conjugate else 1.0
            idle = hyperparameters.without_effect(*at, variances, some.X, deviation)
        may_vanish = attributes.noise_may_vanish(self.estimator, fit)
        value, *bounds = _in_units_of_X(fit, at[0], *at[1])
        hyperparameters.warn_at_bounds(value, bounds, level, given, may_vanish, idle)
        names = encoding.encoded_names(self.estimator)
        pairs = [(name, names[i]) for name, parts in idle.items() for part in parts.values() for i in part]
        new = self._new(pairs, constructor.family_of(self.estimator))
        if new:
            warnings.warn(_without_effect(new), ConvergenceWarning, stacklevel=level)

    def _new(self, kinds, family=None):
        """The kinds of warnings that no other fit of the same search has given in this process.

        With a ``family`` of clones, none of its fits.
        """
        around = getattr(self.estimator, "_parent_callback_ctx", None)
        if around is not None and not _is_refit(around):
            family = around.root_uuid
        if family is None:
            return list(kinds)
        with _telling:
            told = _told.setdefault((family, type(self.estimator)), set())
            new = [kind for kind in kinds if kind not in told]
            told.update(new)
            while len(_told) > _MOST_SEARCHES:
                del _told[next(iter(_told))]
        return new


def _in_units_of_X(fit, *trees):
    """Hyperparameters of the model with the logarithms of those that ``kernel_`` shows."""
    units = logarithms_of_units(fit.plan.kernels, fit.scales.x, fit.table.n_columns)
    return [(jax.tree.map(np.add, tuple(kernels), units), likelihood) for kernels, likelihood in trees]


def _is_refit(context):
    """Whether a context of scikit-learn is that of the model which a search returns: its last fit, to all rows.

    Within another search it is the model that this one returns.
    """
    names = set()
    while context is not None:
        # A pipeline's own context takes the place of the task of the search, and keeps its name.
        names |= {context.task_name, context.source_task_name or ""}
        context = context.parent
    return "search" not in names and any(name.startswith("refit") for name in names)


def judge(estimator, fit, result):
    """Return the `Outcome` of a fit.

    Raises
    ------
    FloatingPointError
        If training diverged; its checkpoint is removed.
    """
    # Compared with the bound that training saw: the exact mean changes the noise afterwards.
    # Among several outputs, one without variance would decide alone.
    known = fit.posterior is None and (fit.some.n_targets == 1 or not fit.some.sample.has_constant_y)
    constant = svgp.bound_of_constants(result, fit.some, fit.plan) if known else None
    step_sizes = reading.step_sizes(estimator, fit.plan.settings.algorithm)
    try:
        refuse_diverged(result.trained, fit.weight, constant, step_sizes)
    except FloatingPointError:
        # The next attempt will have other arguments, for which this state is useless.
        if fit.checkpoint is not None:
            fit.checkpoint.remove()
        raise
    return Outcome(estimator, fit, result, constant, step_sizes)


def refuse_diverged(result, weight, constant, step_sizes):
    """Raise if training ended far below its start and far below a constant model.

    Parameters
    ----------
    result : training.loop.Result
    weight : float
        Sum of the weights of all rows.
    constant : float or None
        The bound of the constant model per unit of weight, where it is known.
    step_sizes : list of str
        The arguments to lower, with their values.

    Raises
    ------
    FloatingPointError
    """
    if not len(result.report.elbo):
        return
    # The median of the last bounds counts too: one minibatch with an outlier is not a divergence.
    last = max(result.elbo, np.median(result.report.elbo[-_LAST:])) / weight
    first = result.report.elbo[0] / weight
    if last < min(first, np.inf if constant is None else constant) - _FAR:
        known = "" if constant is None else f" (a constant model has {constant:.3g})"
        raise FloatingPointError(
            f"Training diverged: the ELBO ended at {last:.3g} nats per row, from {first:.3g} at the start{known}. "
            f"{_smaller(step_sizes)}, or look for extreme values in X, y and sample_weight."
        )


def _smaller(step_sizes):
    """The advice for steps that are too large."""
    given = f"Lower {_now(step_sizes)}" if step_sizes else ""
    if any(size.startswith("gamma_schedule") for size in step_sizes):
        return given
    return f"{given}, or give gamma_schedule a small number" if given else "Give gamma_schedule a small number"


def _now(step_sizes):
    """The arguments that set step sizes, with their present values, after a verb."""
    return " or ".join(re.sub(r"^(\w+)=(.*)$", r"\1 (\2 now)", size) for size in step_sizes)


def _of_training(outcome):
    """The warnings of the training by their kinds."""
    settings, trained, step_sizes = outcome.fit.plan.settings, outcome.result.trained, outcome.step_sizes
    found = {
        trained.status: _not_converged(trained, settings, step_sizes),
        "rejected": _rejections(trained.report, settings, step_sizes),
        "too coarse": _too_coarse(trained.lost),
        "no better": _no_better(outcome),
        "worse mean": _worse_mean(outcome),
        "worse labels": _worse_labels(outcome),
        "slow mean": mean_only.slow(outcome.result.rise, settings),
    }
    return {kind: message for kind, message in found.items() if message}


def _without_effect(found):
    """That columns have no effect, by pairs of the lengthscale's name and the column's."""
    columns, hyperparameters = (list(dict.fromkeys(each)) for each in reversed(list(zip(*found, strict=True))))
    these, are, them = ("Columns", "are", "them") if len(columns) > 1 else ("Column", "is", "it")
    return (
        f"{these} {', '.join(map(str, columns))} of X {are} irrelevant: training ended with "
        f"{', '.join(hyperparameters)} at the upper bound, where the kernel hardly depends on {them}. Wider bounds "
        f"would change nothing. You may leave {them} out; keeping {them} does no harm."
    )


def _not_converged(trained, settings, step_sizes):
    return {
        None: None,
        "too few": _too_few(trained, settings),
        "rising": f"The ELBO was still rising at max_iter={settings.max_iter}: {_change(trained, settings)}. Raise "
        f"max_iter{' or ' if step_sizes else ''}{_now(step_sizes[-1:])}, or raise tol to accept this result.",
        "falling": f"The ELBO was falling at the end: {_change(trained, settings)}; the steps are too large. Lower "
        f"{_now(step_sizes)}.",
        "unsound": "The ELBO of some minibatches is not finite, even with smaller steps; the last sound state is kept. "
        "Look for extreme values in X, y and sample_weight, or choose a likelihood with heavier tails.",
        "turns": f"Newton's method had not converged after {len(trained.report.elbo)} turns: the ELBO still rose. "
        "Look for extreme values in y and offset; otherwise give another kernel, or train it with solver='ngd'.",
        "no step": "The line search found no step that raises the ELBO while the hyperparameters change; lower "
        f"{_now(step_sizes[-1:])}.",
    }[trained.status]


def _change(trained, settings):
    """By how much the bound changed at the end, and how many more iterations would do."""
    trend, window = trained.trend, settings.n_iter_no_change
    if trend is None or trend.rise is None:
        return f"by more than tol={settings.tol:g} nats a row"
    found = f"by {abs(trend.rise):.2g} nats a row over the last {window} iterations (tol={settings.tol:g})"
    n_more = trend.n_more(window, settings.tol)
    if n_more is None or n_more > _MOST_WINDOWS * window:
        return found
    return f"{found}; about {n_more} more iterations would do if it goes on slowing down at this rate"


def _too_few(trained, settings):
    """Why the test of convergence could not be made."""
    window, trend = settings.n_iter_no_change, trained.trend
    n_iter, n_counted = len(trained.report.elbo), 0 if trend is None else trend.n_counted
    enough = -(-2 * window * n_iter // max(n_counted, 1))
    counted = "" if n_counted == n_iter else f" ({n_counted} of them before the learning rate decays)"
    return (
        f"max_iter={settings.max_iter} is too few iterations to decide whether the ELBO has converged: the averages "
        f"over two windows of n_iter_no_change={window} iterations are compared, but there are {n_iter}{counted}. "
        f"Raise max_iter to {enough}, or lower n_iter_no_change."
    )


def _rejections(report, settings, step_sizes):
    n_rejected, n_steps = int(report.rejected.sum()), len(report.rejected)
    few = _FEW_WHILE_FOUND if settings.algorithm.adaptive else _FEW
    if n_rejected <= max(1, few * n_steps):
        return None
    return (
        f"{n_rejected} of {n_steps} steps were rejected, shortened or undone, because they lowered the ELBO or left q "
        f"without a positive definite covariance. {_smaller(step_sizes)}; a larger batch_size may also help."
    )


def _too_coarse(lost):
    if not lost > _COARSE:
        return None
    return (
        f"dtype='float32' is too coarse for this model: rounding changes the ELBO by {lost:.2g} nats per row, "
        "because the noise is small compared with the signal. Use dtype='float64'."
    )


def _value(result, fit):
    """What a fit is judged by, per unit of weight, and its name."""
    bound, held_out = (result.trained.elbo - result.log_prior) / fit.weight, result.held_out
    if held_out is None:
        return bound, "ELBO"
    # The bound may be low although the model predicts well: if the prior is wide, or if the noise is smaller than the
    # variance that the inducing points do not explain. With Gaussian noise, scale and noise are fitted to the held-out
    # rows, and the gain must exceed its standard error.
    least = held_out.mean - held_out.error if result.calibration is None else held_out.mean
    if result.calibration is None and not least > bound:
        return bound, "ELBO"
    return least, "log density of held-out rows"


def _no_better(outcome):
    result, fit, constant = outcome.result, outcome.fit, outcome.constant
    (value, what), left_out = _value(result, fit), outcome.left_out
    if constant is None or result.trained.status == "too few":
        return None
    if value > constant and left_out is not None and left_out.mean + left_out.error < constant:
        # The model has overfitted the training labels, and the calibration has shrunk its probabilities to almost a
        # constant.
        value, what = left_out.mean, "log density of training labels, each predicted without itself"
    if value > constant + (_NOTHING / fit.weight if what == "ELBO" else 0.0):
        return None
    if result.gain is not None and what.endswith("held-out rows"):
        return _no_gain(result.gain, _remedy(outcome))
    found = f"The {what}, {value:.4g} nats per row, is no better than that of a constant, {constant:.4g}."
    return f"{found} X may contain no information about y. Otherwise {_remedy(outcome)}."


def _no_gain(gain, remedy):
    """That held-out labels show no gain over their frequencies: neither their density does, nor their ranking."""
    if gain.mean > 0.0 or gain.ranking > 0.5 + _SURE * gain.chance:
        return None
    return (
        "Held-out labels are predicted no better than by their frequencies, a constant: their log density is lower "
        f"by {-gain.mean:.2g} +- {gain.error:.2g} nats per row, and {gain.ranking:.2g} of all pairs of rows with "
        f"different labels are ranked correctly (by chance 0.5 +- {gain.chance:.2g}). X may contain no "
        f"information about y. Otherwise {remedy}."
    )


def _worse_mean(outcome):
    """The mean of y predicts left-out rows better than the model does, by more than chance explains."""
    if outcome.result.error_of_mean is None or outcome.fit.plan.averages is not None:
        return None
    ratio, ahead = outcome.result.error_of_mean
    worse = ratio[(ratio > _WORSE_MEAN) & (ahead > _SURE)]
    if not len(worse):
        return None
    return (
        f"Training rows, each predicted from all others, have a root mean square error of {worse.max():.3g} standard "
        f"deviations of y: the mean of y predicts them better. To mend it, {_remedy(outcome)}, or choose a likelihood "
        "that suits y."
    )


def _worse_labels(outcome):
    """The most frequent label is right more often than the predicted ones, by more than chance explains."""
    found = outcome.accuracy
    if found is None or found.model >= found.constant - found.error:
        return None
    return (
        f"The most frequent class has {found.constant:.3g} of the weight of the training rows, but the predicted class "
        f"is right for only {found.model:.3g}: always predicting that class would be better. To mend it, "
        f"{_remedy(outcome)}."
    )


def _remedy(outcome):
    return outcome.fit.plan.route.remedy or (
        "train for longer, start from shorter lengthscales (kernel) and less noise (likelihood), or take smaller "
        f"steps. {_smaller(outcome.step_sizes)}"
    )


def _largest_share(table):
    """The share of the weight that the most frequent class has."""
    table = table.sample
    return np.bincount(table.y[0].astype(int), weights=table.weight).max() / table.weight.sum()
