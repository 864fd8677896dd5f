"""Class labels: the kernel's scale, the calibration and q, with rows that are held out.

The kernel's scale is that of the largest density of held-out labels, and their predictions calibrate the
class probabilities. (Leave-one-out moments from the slopes alone favour scales that are too large: a
label that its own latent value fits well has next to no curvature.)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .._backend import placement
from .._backend.repeated import among, contradicted, n_observations
from ..prediction.calibration import Average, Calibration, calibrate, log_densities
from ..variational.model import Constants, Parameters
from . import amplitude, label_means, label_points, label_regression
from .closed_form import Optimum
from .common_covariance import (
    FINE,
    ROUGH,
    TOLERANCE,
    TURNS,
    Rows,
    covariance_of,
    curvature,
    curvatures,
    fit_at_scale,
    gaussian_of,
    refined,
    rows_of_table,
    value_and_slope,
)
from .mean_system import points_of, prior_of

# Parts of which one is predicted from the others: of few rows each of five in turn, of more each of three, of many one.
_HELD_OUT_ROWS, _FOLDS = 2000, ((300, 5), (1000, 3))
# Of many observations.
_SHARE = 0.2
# Observations in a row, at most.
_MOST_OBSERVATIONS = 100
# Of the median weight of a label, which a class weight is part of: a row that matters more is no better judge.
_MOST_TOLD = 3.0
# The kernel's scale changes by this factor, at most so many times.
_STEP, _STEPS = float(np.log(3.0)), 8
# Nats per unit of weight by which the bound still changes at the end, before their share of `ROUGH` or `FINE`.
_LEAST_CHANGE = 1e-3
# Standard errors by which regression must be ahead of the likelihood.
_SURE = 2.0


class HeldOut(NamedTuple):
    """What is left out of a fit.

    Attributes
    ----------
    index : ndarray of shape (B,)
        Rows.
    residual : ndarray of shape (B,)
        What the points leave unexplained.
    y : ndarray of shape (T, B)
        Labels.
    weight : ndarray of shape (B,)
        How much of each row's weight.
    told : ndarray of shape (B,)
        The weight with which its prediction counts.
    counts : ndarray of shape (B,)
        The number of observations in it.
    """

    index: np.ndarray
    residual: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    told: np.ndarray
    counts: np.ndarray


def folds_of(rows, random_state, is_point=False, is_contradicted=False, share=_SHARE):
    """Parts of the observations (`HeldOut`), each to be predicted from all others: all of few, and a part of many.

    Rows that are inducing points come last: how they are predicted says little about new rows. Rows whose X has other
    labels, too, are as many observations as their weight; as new rows will repeat them, they have their share among the
    first where there are others to fill a part. Of many observations ``share`` are held out; those of a class of which
    that would be less than one come last of all: a single row that nothing predicts would decide about all others.
    """
    residual, y, weight = map(np.asarray, rows[2:])
    n_each = n_observations(weight, is_contradicted, _MOST_OBSERVATIONS)
    positive = np.flatnonzero(weight > 0.0)
    order = random_state.permutation(np.repeat(positive, n_each[positive].astype(int)))
    n_folds = next((n for most, n in _FOLDS if len(order) <= most), 1)
    size = min(int(np.ceil(len(order) * (1.0 / n_folds if n_folds > 1 else share))), _HELD_OUT_ROWS)
    apart = np.broadcast_to(~np.asarray(is_point), weight.shape)
    first = (apart | (is_contradicted if np.count_nonzero(apart[order]) >= size else False))[order]
    _, label, n_of_label = np.unique(y[0, order], return_inverse=True, return_counts=True)
    is_rare = (n_of_label[label] * share < 1.0) if n_folds == 1 else np.zeros(len(order), bool)
    order = np.concatenate([order[first & ~is_rare], order[~first & ~is_rare], order[is_rare]])
    each = weight / n_each
    told = np.minimum(each, _MOST_TOLD * _usual_of_label(each, y[0]))
    parts = (np.unique(order[i * size : (i + 1) * size], return_counts=True) for i in range(n_folds))
    return [
        HeldOut(part, residual[part], y[:, part], each[part] * counts, told[part] * counts, counts)
        for part, counts in parts
        if len(part)
    ]


def _usual_of_label(weight, label):
    """The median weight of the rows of each label, for each row."""
    found = np.zeros(len(weight))
    for one in np.unique(label):
        rows = label == one
        found[rows] = np.median(weight[rows & (weight > 0.0)]) if np.any(weight[rows] > 0.0) else 0.0
    return found


def without(rows, held):
    """The rows without what is held out."""
    weight = np.array(rows.weight)
    weight[held.index] = np.maximum(weight[held.index] - held.weight, 0.0)
    return rows._replace(weight=weight)


def moments_of(fit, held):
    """Latent moments (K, B) of held-out rows."""
    mean, own = fit.mean[:, held.index], np.asarray(fit.covariance.own)[held.index]
    return mean, np.broadcast_to(np.exp(fit.log_scale) * held.residual + own, mean.shape)


class Densities(NamedTuple):
    """Log densities of held-out labels, in nats, weights, and numbers of observations of their rows: (B,) each."""

    each: np.ndarray
    weight: np.ndarray
    counts: np.ndarray

    @property
    def mean(self):
        """In nats a row; minus infinity if one is not a number."""
        mean = float(np.average(self.each, weights=self.weight))
        return mean if np.isfinite(mean) else -np.inf

    def are_larger_than(self, others, n_errors=1.0):
        """Whether they exceed those of the same labels by more than a standard error (Breiman et al. 1984).

        Few rows do not tell a wide prior from a narrow one.
        """
        found = Average.of(self.each - others.each, self.weight, self.counts)
        return found.mean > n_errors * found.error


class _Problem(NamedTuple):
    """What the fits of one table share."""

    parameters: Parameters
    constants: Constants
    rows: Rows
    folds: list
    is_point: np.ndarray

    @classmethod
    def of(cls, parameters, constants, table, random_state, share=_SHARE):
        """The problem of a table; ``random_state`` chooses the held-out rows."""
        if placement.current().n_processes > 1:
            raise ValueError("solver='evidence' takes all class labels in one process; use solver='ngd'.")
        prior = prior_of(parameters, constants.masks, constants.jitter)
        rows = rows_of_table(parameters, prior, table)
        # Only what the likelihood's part needs, so that one program serves all.
        parameters = parameters._replace(log_kernels=None, points=None, weights=None)
        constants = constants._replace(log_bounds=None, masks=None, past=None, scale=1.0)
        kinds = among(table.X, points_of(prior)), contradicted(table.X, table.y)[0]
        padded = (np.pad(each, (0, len(rows.weight) - len(each))) for each in kinds)
        return cls(parameters, constants, rows, folds_of(rows, random_state, *padded, share), kinds[0])

    @property
    def likelihood(self):
        return self.parameters.raw_likelihood.from_raw(np)

    @property
    def coarse(self):
        """Parameters under which means are looked for that will be scaled, or are a start."""
        return self.parameters._replace(raw_likelihood=self.parameters.raw_likelihood.coarser())

    @property
    def weight(self):
        """The weights with which predictions of all held-out rows count."""
        return np.concatenate([held.told for held in self.folds])

    @property
    def counts(self):
        """Numbers of observations in all held-out rows."""
        return np.concatenate([held.counts for held in self.folds])

    @property
    def doubt(self):
        """That a further label is another than those seen: Platt's (1999), who takes one and one more for two classes.

        Without it few labels that are all predicted well ask for certainty.
        """
        n = self.counts.sum()
        return 1.0 / (n + 2.0) if n <= _FOLDS[-1][0] else 0.0

    def with_bound(self, rows, fit):
        """The fit with the bound at its q as the last one."""
        var = np.broadcast_to(rows.residual + fit.covariance.own, fit.mean.shape)
        value, _ = value_and_slope(self.parameters, self.constants, rows, fit.mean, var)
        divergence = 0.5 * float((fit.w**2).sum()) + len(fit.w) * float(fit.covariance.divergence)
        return fit._replace(bounds=[*fit.bounds, float(value) - divergence])

    def fits(self, log_scale, before=None, turns=TURNS):
        """A fit without each of the folds."""
        return [
            fit_at_scale(self.parameters, self.constants, without(self.rows, held), log_scale, each, turns)
            for held, each in zip(self.folds, before or [None] * len(self.folds), strict=True)
        ]

    def moments(self, fits):
        """Latent moments (K, B) of all held-out rows, and their labels."""
        moments = zip(*(moments_of(*pair) for pair in zip(fits, self.folds, strict=True)), strict=True)
        return [np.concatenate(each, axis=-1) for each in moments], np.concatenate([h.y for h in self.folds], axis=-1)

    def densities(self, fits):
        """The `Densities` of the labels of all held-out rows, which are doubted."""
        moments, y = self.moments(fits)
        each = np.asarray(log_densities(self.likelihood, *moments, y, self.doubt))
        return Densities(each, self.weight, self.counts)


def best_scale(parameters, constants, table, random_state, share=_SHARE):
    """The scale of the kernel under which held-out labels have the largest density.

    Parameters
    ----------
    parameters : Parameters
        Without mean-only points, with one kernel, and a likelihood of classes without parameters.
    constants : Constants
    table : Table
    random_state : numpy.random.RandomState
        Chooses the held-out rows.
    share : float
        Of many observations that are held out.

    Returns
    -------
    kernel : Kernel
        The scaled kernel, as logarithms.
    densities : Densities
    """
    problem = _Problem.of(parameters, constants, table, random_state, share)
    (kernel,), bounds = parameters.log_kernels, [each[0] for each, _ in constants.log_bounds]
    log_scale, densities = _climb(problem, amplitude.room(kernel, *bounds))
    return amplitude.multiplied(kernel, log_scale), densities


def solve(parameters, constants, table, random_state, n_further=0, at_most=False):
    """q of all rows, and the calibration of class probabilities by rows that are held out.

    Means are those of the likelihood, or of regression (`label_regression`) where held-out labels have a larger density
    under these, both calibrated.

    Parameters
    ----------
    parameters, constants, table, random_state
        As in `best_scale`.
    n_further : int, default=0
        Further points on which the means rest.
    at_most : bool, default=False
        Whether fewer will do where labels ask for no more: see `label_points`.

    Returns
    -------
    optimum : Optimum
    """
    problem = _Problem.of(parameters, constants, table, random_state)
    further = _further(problem, parameters, constants, table, n_further, at_most, random_state) if n_further else None
    by_likelihood = _by_likelihood if further is None else functools.partial(_on_further_points, *further)
    best, other = (_held_out(problem, find) for find in (by_likelihood, _by_regression))
    if other.densities.are_larger_than(best.densities, _SURE):
        best, further = other, None
    fit, means = best.find(problem, problem.rows, best.fits[0]), None
    if further is not None:
        means = label_means.of_basis(further.wide, fit.w)
        fit = fit._replace(w=means.m)
    average = Average.of(*best.densities)
    return Optimum(gaussian_of(fit), parameters, np.array(fit.bounds), average, best.calibration, means=means)


class _Further(NamedTuple):
    """Rows that are whitened by further points as well, and fits under the inducing points alone, without each fold."""

    wide: label_means.Wide
    starts: list


def _further(problem, parameters, constants, table, n_further, at_most, random_state):
    """The `_Further` points where labels ask for them; None if there are none, or their covariance has no factor."""
    candidates = label_means.candidates(table.X, problem.is_point)
    if not len(candidates):
        return None
    system, (log_kernel,) = (problem.coarse, problem.constants), parameters.log_kernels
    starts = [fit_at_scale(*system, without(problem.rows, held), 0.0, None, 2) for held in problem.folds]
    mean = starts[0].mean.copy()
    for held, fit in zip(problem.folds, starts, strict=True):
        mean[:, held.index] = fit.mean[:, held.index]
    labels = label_points.Labels.of(log_kernel, (*system, problem.rows), table.X, starts[0], mean)
    chosen = label_points.chosen(labels, candidates, n_further, at_most, random_state)
    del labels
    if not len(chosen):
        return None
    which = chosen, problem.is_point, constants.jitter
    wide = label_means.whitened(log_kernel, problem.rows, table.X, *which)
    return None if wide is None else _Further(wide, starts)


class _Way(NamedTuple):
    """A way to the means, its fits without each of the folds, their calibration, and held-out labels' densities."""

    find: Callable
    fits: list
    calibration: Calibration
    densities: Densities


def _held_out(problem, find):
    """The `_Way` by rows that are held out."""
    fits = [find(problem, without(problem.rows, held), fold=k) for k, held in enumerate(problem.folds)]
    (mean, var), y = problem.moments(fits)
    found = calibrate(problem.likelihood, mean, var, y, problem.weight, problem.doubt)
    each = np.asarray(log_densities(problem.likelihood, found.mean * mean, found.deviation**2 * var, y))
    return _Way(find, fits, found, Densities(each, problem.weight, problem.counts))


def _by_likelihood(problem, rows, before=None, fold=None):
    """The best q under the likelihood."""
    if before is None:
        return fit_at_scale(problem.parameters, problem.constants, rows, 0.0, None, 2)
    system = problem.parameters, problem.constants, rows
    return refined(*system, fit_at_scale(*system, 0.0, before))


def _on_further_points(wide, starts, problem, rows, before=None, fold=None):
    """Means on further points, too, under the coarse likelihood, and the inducing points' covariance for them."""
    system = problem.coarse, problem.constants, rows
    if before is None:
        fit = starts[fold]
    else:
        var = np.broadcast_to(rows.residual + before.covariance.own, before.mean.shape)
        h = curvature(*system, before.mean, var)
        fit = before._replace(h=h, covariance=covariance_of(rows, h, 1.0))
    var = np.broadcast_to(rows.residual + fit.covariance.own, fit.mean.shape)
    log_likelihood = functools.partial(_log_likelihood, system, var)
    share = ROUGH if before is None else FINE
    # Relative to a loss that is all but nothing, as of classes that hardly overlap, a change says little.
    ends = share * TOLERANCE, share * _LEAST_CHANGE * float(np.sum(rows.weight))
    start = fit.covariance, curvatures(*system, fit.mean, var), fit.w
    w, mean = label_means.best(log_likelihood, problem.constants.prior_mean, wide, *start, *ends)
    return problem.with_bound(rows, fit._replace(w=w, mean=mean))


def _log_likelihood(system, var, mean):
    return value_and_slope(*system, mean, var)


def _by_regression(problem, rows, before=None, fold=None):
    """Means that regress the labels."""
    return problem.with_bound(rows, label_regression.fit(rows, np.asarray(problem.constants.prior_mean)))


def _climb(problem, limits):
    """The scale of largest density among those that differ by a factor, from one upwards, else downwards."""
    # After a single turn h would still be that of the scale before, and the densities not comparable.
    best, fits = 0.0, problem.fits(0.0, None, 3)
    densities = problem.densities(fits)
    for direction in (_STEP, -_STEP):
        for _ in range(_STEPS):
            log_scale = best + direction
            if not limits[0] <= log_scale <= limits[1]:
                break
            tried = problem.fits(log_scale, fits, 2)
            densities_there = problem.densities(tried)
            if not densities_there.are_larger_than(densities):
                break
            best, fits, densities = log_scale, tried, densities_there
        if best > 0.0:
            break
    return best, densities
