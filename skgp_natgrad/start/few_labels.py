"""Hyperparameters for few class labels, averaged over the posterior of the hyperparameters.

Labels are few if too few could judge kernels (`kernel_of_labels`): there are few rows, or few rows beside those of the
most frequent class. Ten positives among a thousand rows tell hardly more than twenty labels of balanced classes.

Few labels hardly tell the scale of a kernel or the frequencies of the classes: a wide prior and short lengthscales
explain labels by chance, and probabilities become too certain. So three numbers are averaged over a grid: the scale, a
common factor of the lengthscales, and the share of the prior mean that follows the frequencies. Points are weighted by
the bound on the evidence of the labels and a weak prior, whose influence vanishes with more rows. Where X tells
nothing, a small scale has the largest evidence; frequencies that differ by chance have hardly more evidence than equal
ones. The whole prior mean predicts the frequencies at any scale: else a small scale could not explain rare labels.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from .. import kernels as _kernels
from .._backend import threads
from .._backend.repeated import contradicted, n_observations
from ..choose import targets
from ..choose.candidates import matern52
from ..choose.view import View
from ..prediction.calibration import log_densities
from ..solve import class_labels, held_out_labels
from . import kernel_of_labels
from .state import init

# Hyperparameters are averaged over where fewer labels than this, as `n_judging` counts them, would judge kernels.
MOST = 25
# Rows and inducing points of the evidence: all rows beside those of the most frequent class, and a part of these.
_ROWS, _POINTS = 3000, 200
# The variance of the latent functions in the middle of the grid.
_VARIANCE = 3.0
# The grid: log factors of the lengthscales and of that variance, and shares of the prior mean. Then the standard
# deviations of the prior of lengthscales, share and variance around zero; the last is wide, as X may tell nothing.
_FACTORS = np.log(2.0) * np.arange(-2, 3, 2)
_SCALES = np.log(3.0) * np.arange(-9, 4, 2)
_SHARES = 0.0, 0.5, 1.0
_DEVIATIONS = 1.0, 0.5, 4.0
# Factors of the prior mean, of which one predicts the frequencies.
_LEVELS = np.geomspace(0.25, 16.0, 400)


class Share(NamedTuple):
    """The average share of the prior mean that follows the frequencies of the classes."""

    of_frequencies: float


def suits(plan, table):
    """Whether labels are few, of several classes, and have nothing beside X."""
    is_open = plan.route.compares_labels and table.mean_function is None
    return is_open and len(np.unique(table.y)) > 1 and n_judging(table) < MOST


def n_judging(table):
    """The number of labels of balanced classes that tell as much as those which would be held out to judge kernels.

    Balanced classes have as many labels beside those of one class as there are here.
    """
    # A row may stand for many observations.
    n_each = n_observations(table.weight, contradicted(table.X, table.y)[0])
    counts = np.bincount(np.unique(table.y[0], return_inverse=True)[1], weights=n_each)
    n_balanced = (counts.sum() - counts.max()) * len(counts) / (len(counts) - 1)
    return n_balanced * held_out_labels.share_of(counts.sum(), kernel_of_labels.HELD_OUT)


def plain(plan, table, random_state):
    """The plan with the plain kernel, a Matern 5/2 with lengthscales of sqrt(D) standard deviations, and averages."""
    view, variance = View(table), _VARIANCE
    kernel = view.to_sklearn(matern52, view.start(matern52, view.longest, 0.0, np.inf)[0].kernel)
    kernel = targets.multiplied(kernel, variance)
    log_kernel = jax.tree.map(np.log, _kernels.from_sklearn(kernel, table.X.shape[1]).value)
    rows = _rows_of_evidence(table, random_state)
    of_points = {"n_inducing": _POINTS, "inducing_init": "random"} if rows.n_rows > _POINTS else {"n_inducing": None}

    def moved(factor):
        longer = jax.tree.map(lambda each: np.exp(each + factor if np.ndim(each) else each), log_kernel)
        return plan._replace(kernels=(_kernels.to_sklearn(kernel, longer),), n_mean_inducing=0, **of_points)

    # The frequencies are those of all rows.
    levels, evidence = _levels(plan, table, variance * np.exp(_SCALES)), []
    prior_mean = plan.likelihood.latent_of_base_rates(table.y, table.weight, plan.n_classes)[:, None]
    for factor in _FACTORS:
        state, constants = init(moved(factor), rows, random_state)
        constants = constants._replace(prior_mean=np.asarray(prior_mean, np.asarray(constants.prior_mean).dtype))
        with threads.single_threaded(len(constants.masks.Z)):
            each = class_labels.evidences(state.parameters, constants, rows, np.outer(_SHARES, levels), _SCALES)
        evidence.append(each)
    factor, log_scale, share = _averages(np.array(evidence))
    (kernel,) = moved(factor).kernels
    (level,) = _levels(plan, table, [variance * np.exp(log_scale)])
    return plan._replace(
        kernels=(targets.multiplied(kernel, float(np.exp(log_scale))),), averages=Share(float(share * level))
    )


def _averages(evidence):
    """The averages of the log factors of lengthscales and variance, and of the share: from (factors, shares, scales).

    What share predicts the frequencies of labels depends on how much the function varies: it is averaged beside the
    averages of the others.
    """
    grid = np.meshgrid(_FACTORS, _SHARES, _SCALES, indexing="ij")
    log_weight = np.where(np.isfinite(evidence), evidence, -np.inf) - 0.5 * sum(
        (each / at) ** 2 for each, at in zip(grid, _DEVIATIONS, strict=True)
    )
    weight = np.exp(log_weight - log_weight.max())
    factor, _, log_scale = (float((weight * each).sum() / weight.sum()) for each in grid)
    beside = weight[np.argmin(np.abs(_FACTORS - factor)), :, np.argmin(np.abs(_SCALES - log_scale))]
    return factor, log_scale, beside @ np.array(_SHARES) / beside.sum()


def _rows_of_evidence(table, random_state):
    """At most `_ROWS` rows: of the most frequent class a part, which has its weight."""
    if table.n_rows <= _ROWS:
        return table
    _, label, counts = np.unique(table.y[0], return_inverse=True, return_counts=True)
    is_frequent = label == np.argmax(counts)
    frequent, others = np.flatnonzero(is_frequent), np.flatnonzero(~is_frequent)
    part = random_state.choice(frequent, _ROWS - len(others), replace=False)
    index = np.sort(np.concatenate([part, others]))
    rows, times = table.rows(index), table.weight[frequent].sum() / table.weight[part].sum()
    return rows._replace(weight=np.where(is_frequent[index], times * rows.weight, rows.weight))


def _levels(plan, table, variances):
    """Factors of the prior mean under which functions of these variances predict the frequencies of the classes."""
    likelihood, (y, weight) = plan.likelihood, (table.y, table.weight)
    mean = likelihood.latent_of_base_rates(y, weight, plan.n_classes)[:, None] * _LEVELS
    share = likelihood.base_rates(y, weight, plan.n_classes)

    def level(variance):
        var = np.full(mean.shape, variance)
        each = [log_densities(likelihood, mean, var, np.full((1, len(_LEVELS)), c)) for c in range(len(share))]
        return _LEVELS[np.argmax(share @ np.array(each))]

    return np.array([level(variance) for variance in variances])
