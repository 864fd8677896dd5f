"""Checks at the end of a fit: an error if it diverged, warnings if the result may be unreliable."""

from __future__ import annotations

import copy
import re
from typing import NamedTuple

import jax
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ... import svgp
from ..._backend.notices import Notice
from ..arguments import constructor, reading
from ..rows import encoding, numbers
from . import attributes, hyperparameters
from .hyperparameters import logarithms_of_units

# A fit has diverged if its bound ends this many nats, per unit of weight, below that of the constant model and below
# its own first value.
_FAR = 10.0
_LAST = 50
# Fraction of the steps that may be rejected or shortened without a warning; an adaptive step size is too large now
# and then.
_FEW, _FEW_WHILE_FOUND = 0.05, 0.15
# A forecast further ahead, in windows of the test of convergence, is not given.
_MOST_WINDOWS = 40
# A root mean square error of the prediction, in deviations of y, that is worse than a constant.
_WORSE_MEAN = 1.02
# Nats per unit of weight by which single precision may change the bound without a warning.
_COARSE = 5e-3
# Standard errors by which the ranking of held-out labels, or a mean that is worse than a constant, must be ahead of
# chance; and the nats of the whole table by which a bound must be larger than that of a constant.
_SURE, _NOTHING = 2.0, 1.0
_NO_BETTER = "The model predicts no better than a constant."
# Fewer rows may look like noise by chance, and no other solver would find more in them.
_FEW_ROWS = 20
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
    left_out : Average, optional
        Log density of training labels that were predicted without themselves.
    """

    estimator: object
    fit: object
    result: svgp.Result
    constant: float | None
    step_sizes: list
    left_out: NamedTuple | None = None

    def warn(self):
        """Give the warnings that a user should see."""
        fit, result = self.fit, self.result
        at_bounds, irrelevant = self._at_bounds() if fit.plan.settings.algorithm.optimizer is not None else ([], [])
        of_points = [] if fit.previous else attributes.of_fewer_points(self.estimator, fit.plan, result.constants.masks)
        of_table = numbers.of_table(self.estimator, fit)
        for notice in [*of_table, *irrelevant, *fit.warnings, *_of_training(self), *at_bounds, *of_points]:
            notice.give()

    def _at_bounds(self):
        """Warnings of the hyperparameters at a bound, and of the columns without effect."""
        fit, result = self.fit, self.result
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
        names = encoding.of(self.estimator).names
        pairs = [(name, names[i]) for name, parts in idle.items() for part in parts.values() for i in part]
        return hyperparameters.at_bounds(value, bounds, given, may_vanish, idle), _without_effect(pairs)


def _in_units_of_X(fit, *trees):
    """Hyperparameters of the model with the logarithms of those that ``kernel_`` shows."""
    units = logarithms_of_units(fit.plan.kernels, fit.scales.x, fit.table.n_columns)
    return [(jax.tree.map(np.add, tuple(kernels), units), likelihood) for kernels, likelihood in trees]


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
    """The warnings of the training."""
    checks = [_rejections, _too_coarse, _slow_mean]
    if max(outcome.fit.some.n_rows, outcome.fit.weight) >= _FEW_ROWS:
        checks += [_no_better, _worse_mean, _worse_labels]
    found = [*_of_ends(outcome), *(check(outcome) for check in checks)]
    return [Notice(*each, ConvergenceWarning) for each in found if each is not None]


def _without_effect(found):
    """That columns have no effect, by pairs of the lengthscale's name and the column's: a list."""
    if not found:
        return []
    columns, hyperparameters = (list(dict.fromkeys(each)) for each in reversed(list(zip(*found, strict=True))))
    these, are, them = ("Columns", "are", "them") if len(columns) > 1 else ("Column", "is", "it")
    details = (
        f"{these} {', '.join(map(str, columns))} of X {are} irrelevant: training ended with "
        f"{', '.join(hyperparameters)} at the upper bound, where the kernel hardly depends on {them}. Wider bounds "
        f"would change nothing. You may leave {them} out; keeping {them} does no harm."
    )
    return [Notice("Columns of X are irrelevant.", details, ConvergenceWarning)]


# What is said of a training by its status, and of an exact mean by what is lost: see `exact_mean.Solution`.
_ENDS = {
    "too few": "There are too few iterations to decide whether the ELBO has converged.",
    "rising": "The ELBO was still rising at the end.",
    "falling": "The ELBO was falling at the end; the steps are too large.",
    "unsound": "The ELBO of some minibatches is not finite, even with smaller steps; the last sound state is kept.",
    "turns": "Newton's method has not converged.",
    "no step": "The line search found no step that raises the ELBO while the hyperparameters change.",
    "solution": "The mean that mean_solver='exact' found is useless because of rounding errors.",
    "likelihood": "The likelihood that mean_solver='exact' found is useless because of rounding errors.",
    "passes": "mean_solver='exact' ended its passes over the rows before the mean converged.",
}


def _or_solved(outcome):
    """That without the argument ``max_iter`` the fit would take one step, if this argument alone asks for many."""
    estimator, plan = outcome.estimator, outcome.fit.plan
    if plan.settings.algorithm.solver == "evidence" or constructor.is_default(estimator, "max_iter"):
        return ""
    without = copy.copy(estimator)
    without.max_iter = "auto"
    solver = reading.solver_of(without, plan.likelihood, False, outcome.fit.table.n_rows)
    return ", or leave max_iter out: then fit solves for q in one step" if solver == "evidence" else ""


def _of_ends(outcome):
    settings, trained, step_sizes = outcome.fit.plan.settings, outcome.result.trained, outcome.step_sizes
    or_solved, fewer = _or_solved(outcome), "Lower n_mean_inducing, or raise jitter."
    details = {
        "too few": _too_few(trained, settings, or_solved),
        "rising": f"At max_iter={settings.max_iter} it changed {_change(trained, settings)}. Raise max_iter"
        f"{' or ' if step_sizes else ''}{_now(step_sizes[-1:])}, or raise tol to accept this result{or_solved}.",
        "falling": f"It changed {_change(trained, settings)}. Lower {_now(step_sizes)}.",
        "unsound": "Look for extreme values in X, y and sample_weight, or choose a likelihood with heavier tails.",
        "turns": f"It had not converged after {len(trained.report.elbo)} turns. Look for extreme values in y and "
        "offset; otherwise give another kernel, or train it with solver='ngd'.",
        "no step": f"Lower {_now(step_sizes[-1:])}.",
        "solution": f"The trained mean, without mean-only points, is kept. {fewer}",
        "likelihood": f"The trained likelihood is kept. {fewer}",
        "passes": "Raise tol.",
    }
    return [(_ENDS[each], details[each]) for each in (outcome.result.lost, trained.status) if each in _ENDS]


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


def _too_few(trained, settings, or_solved):
    """Why the test of convergence could not be made."""
    window, trend = settings.n_iter_no_change, trained.trend
    n_iter, n_counted = len(trained.report.elbo), 0 if trend is None else trend.n_counted
    enough = -(-2 * window * n_iter // max(n_counted, 1))
    counted = "" if n_counted == n_iter else f" ({n_counted} of them before the learning rate decays)"
    return (
        f"max_iter={settings.max_iter} is too few: the averages over two windows of n_iter_no_change={window} "
        f"iterations are compared, but there are {n_iter}{counted}. Raise max_iter to {enough}, or lower "
        f"n_iter_no_change{or_solved}."
    )


def _rejections(outcome):
    report, algorithm = outcome.result.trained.report, outcome.fit.plan.settings.algorithm
    n_rejected, n_steps = int(report.rejected.sum()), len(report.rejected)
    if n_rejected <= max(1, (_FEW_WHILE_FOUND if algorithm.adaptive else _FEW) * n_steps):
        return None
    details = (
        f"{n_rejected} of {n_steps} steps were rejected, shortened or undone, because they lowered the ELBO or left q "
        f"without a positive definite covariance. {_smaller(outcome.step_sizes)}; a larger batch_size may also help."
    )
    return "Many steps were rejected.", details


def _too_coarse(outcome):
    lost = outcome.result.trained.lost
    if not lost > _COARSE:
        return None
    details = (
        f"dtype='float32' is too coarse for this model: rounding changes the ELBO by {lost:.2g} nats per row, because "
        "the noise is small compared with the signal. Use dtype='float64'."
    )
    return "Single precision is too coarse.", details


def _slow_mean(outcome):
    """Natural gradient steps have not found the mean: see `svgp.Result`."""
    settings, rise = outcome.fit.plan.settings, outcome.result.rise
    if not rise > settings.tol:
        return None
    details = (
        f"mean_solver={settings.algorithm.mean_solver!r}: the best mean on the same points has an ELBO that is larger "
        f"by {rise:.2g} nats per row (tol={settings.tol:g}); its predictions may be better than these by far. With "
        "little noise these steps are short: the number that they need grows with the rows over the noise variance. "
        "Use mean_solver='exact', which solves for the mean, or raise max_iter."
    )
    return "The mean has not converged.", details


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
    if constant is None or result.trained.status == "too few" or outcome.estimator.mean_function is not None:
        # What a mean function leaves may well be noise.
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
    details = f"{found} X may contain no information about y. Otherwise {_remedy(outcome)}."
    return _NO_BETTER, details


def _no_gain(gain, remedy):
    """That held-out labels show no gain over their frequencies: neither their density does, nor their ranking."""
    if gain.mean > 0.0 or gain.ranking > 0.5 + _SURE * gain.chance:
        return None
    details = (
        "Held-out labels are predicted no better than by their frequencies: their log density is lower "
        f"by {-gain.mean:.2g} +- {gain.error:.2g} nats per row, and {gain.ranking:.2g} of all pairs of rows with "
        f"different labels are ranked correctly (by chance 0.5 +- {gain.chance:.2g}). X may contain no "
        f"information about y. Otherwise {remedy}."
    )
    return _NO_BETTER, details


def _worse_mean(outcome):
    """The mean of y predicts left-out rows better than the model does, by more than chance explains."""
    if outcome.result.error_of_mean is None or outcome.fit.plan.averages is not None:
        return None
    ratio, ahead = outcome.result.error_of_mean
    worse = ratio[(ratio > _WORSE_MEAN) & (ahead > _SURE)]
    if not len(worse):
        return None
    details = (
        f"Training rows, each predicted from all others, have a root mean square error of {worse.max():.3g} standard "
        f"deviations of y: the mean of y predicts them better. To mend it, {_remedy(outcome)}, or choose a likelihood "
        "that suits y."
    )
    return "The predicted mean is worse than the mean of y.", details


def _worse_labels(outcome):
    """The most frequent label is right more often than the predicted ones, by more than chance explains."""
    fit, result = outcome.fit, outcome.result
    if outcome.constant is None or result.trained.status == "too few" or not fit.plan.n_classes:
        return None
    if -_value(result, fit)[0] / np.log(2.0) < 1.0 - _largest_share(fit.some):
        # A wrong label has a probability below one half, and costs more than log 2: there are too few of them.
        return None
    found = svgp.accuracy(attributes.model_of(outcome.estimator), fit.some, fit.plan.device)
    if found.model >= found.constant - found.error:
        return None
    details = (
        f"The most frequent class has {found.constant:.3g} of the weight of the training rows, but the predicted class "
        f"is right for only {found.model:.3g}: always predicting that class would be better. To mend it, "
        f"{_remedy(outcome)}."
    )
    return "The most frequent class is right more often than the predicted one.", details


def _remedy(outcome):
    return outcome.fit.plan.route.remedy or (
        "train for longer, start from shorter lengthscales (kernel) and less noise (likelihood), or take smaller "
        f"steps. {_smaller(outcome.step_sizes)}"
    )


def _largest_share(table):
    """The share of the weight that the most frequent class has."""
    table = table.sample
    return np.bincount(table.y[0].astype(int), weights=table.weight).max() / table.weight.sum()
