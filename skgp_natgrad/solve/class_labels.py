"""Class labels: the kernel's scale, the calibration and q, with rows that are held out.

The kernel's scale maximises the density of held-out labels, and their predictions calibrate the class
probabilities. (Leave-one-out moments from the slopes would favour scales that are too large: a label
that its own latent value fits well has hardly any curvature.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._backend import placement
from .._backend.repeated import among, contradicted
from .._backend.rows import filled_up
from ..kernels import algebra
from ..prediction.calibration import Average, Calibration, calibrate, log_densities, rounded
from ..variational.model import Constants, Parameters
from . import further_points
from .closed_form import Optimum
from .common_covariance import (
    FINE,
    ROUGH,
    TOLERANCE,
    TURNS,
    Rows,
    curvatures,
    fit_at_scale,
    refined,
    regressed,
    rows_of_table,
    value_and_slope,
    with_single,
)
from .held_out_labels import SHARE, Densities, Gain, HeldOut, folds_of, moments_of, without
from .system import covariance_of, of_likelihood, points_of, prior_of

# The kernel's scale changes by this factor, at most so many times: up to a variance of 59,000, if held-out labels ask
# for it.
_STEP, _STEPS = float(np.log(3.0)), 8
# Change of the bound, in nats per unit of weight, that ends a search, times `ROUGH` or `FINE`.
_LEAST_CHANGE = 1e-3
# Most held-out labels that calibrate each scale.
_CALIBRATING = 500
# Parts of many labels that are held out where they also choose the weight of a mean function: it is uncertain.
_PARTS_WITH_MEAN_FUNCTION = 3
# Standard errors by which regression must be better than the likelihood.
_SURE = 2.0


class _Problem(NamedTuple):
    """The common part of all fits to one table."""

    parameters: Parameters
    constants: Constants
    rows: Rows
    folds: list
    is_point: np.ndarray
    mean_function: np.ndarray | None

    @classmethod
    def of(cls, parameters, constants, table, random_state, share=SHARE, n_of_many=1):
        """The problem of a table; ``random_state`` chooses the held-out rows."""
        if placement.current().n_processes > 1:
            raise ValueError("solver='evidence' takes all class labels in one process; use solver='ngd'.")
        prior = prior_of(parameters, constants.masks, constants.jitter)
        rows = rows_of_table(parameters, prior, table)
        kinds = among(table.X, points_of(prior)), contradicted(table.X, table.y)[0]
        padded = (filled_up(each, len(rows.weight), value=False) for each in kinds)
        folds = folds_of(rows, random_state, *padded, share, n_of_many)
        return cls(*of_likelihood(parameters, constants), rows, folds, kinds[0], table.mean_function)

    def rows_without(self, fold):
        """The rows without one of the folds."""
        return without(self.rows, self.folds[fold])

    @property
    def likelihood(self):
        return self.parameters.raw_likelihood.from_raw(np)

    @property
    def coarse(self):
        """Parameters with a coarser likelihood, to search for means that will be scaled, or that are a start."""
        return self.parameters._replace(raw_likelihood=self.parameters.raw_likelihood.coarser())

    @property
    def roughly(self):
        """The problem in single precision, if the likelihood's quadrature has larger errors than rounding."""
        return self._replace(rows=with_single(self.rows)) if self.likelihood.averages_points else self

    @property
    def held(self):
        """The held-out rows of all folds together."""
        return HeldOut(*(np.concatenate(each, axis=-1) for each in zip(*self.folds, strict=True)))

    @property
    def mean_function_of_held(self):
        """The mean function (K, B) at these rows, or None."""
        return None if self.mean_function is None else self.mean_function[:, self.held.index]

    def with_bound(self, rows, fit):
        """The fit with the bound at its q as the last one."""
        value, _ = value_and_slope(self.parameters, self.constants, rows, fit.mean, fit.var(rows))
        divergence = 0.5 * float((fit.w**2).sum()) + len(fit.w) * float(fit.covariance.divergence)
        return fit._replace(bounds=[*fit.bounds, float(value) - divergence])

    def fits(self, log_scale, before=None, turns=TURNS):
        """A fit without each of the folds."""
        return [
            fit_at_scale(self.parameters, self.constants, without(self.rows, held), log_scale, each, turns)
            for held, each in zip(self.folds, before or [None] * len(self.folds), strict=True)
        ]

    def moments(self, fits):
        """Latent moments (K, B) of all held-out rows."""
        moments = zip(*(moments_of(*pair) for pair in zip(fits, self.folds, strict=True)), strict=True)
        return [np.concatenate(each, axis=-1) for each in moments]

    def densities(self, fits, calibrates):
        """The `Densities` of the labels of all held-out rows, with `HeldOut.doubt`."""
        held, moments = self.held, self.moments(fits)
        if calibrates:
            # Two numbers, that are found anew for each scale, need few labels and a coarse likelihood.
            some = np.linspace(0, len(held.index) - 1, min(len(held.index), _CALIBRATING)).round().astype(int)
            of_some = [each[:, some] for each in (*moments, held.y)]
            found = calibrate(self.likelihood.coarser(), *of_some, held.told[some], held.doubt)
            moments = found.moments(*moments)
        each = np.asarray(log_densities(self.likelihood, *moments, held.y, held.doubt))
        return Densities(each, held.told, held.counts)


def best_scale(parameters, constants, table, random_state, share=SHARE, calibrates=True, searches=True):
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
        The held-out share, if there are many observations.
    calibrates : bool
        Whether class probabilities are calibrated, as those of held-out labels then are.
    searches : bool
        Whether other scales are tried.

    Returns
    -------
    kernel : Kernel
        The scaled kernel, as logarithms.
    densities : Densities
    """
    problem = _Problem.of(parameters, constants, table, random_state, share).roughly
    (kernel,), bounds = parameters.log_kernels, [each[0] for each, _ in constants.log_bounds]
    log_scale, densities = _climb(problem, algebra.room(kernel, *bounds) if searches else (0.0, 0.0), calibrates)
    return algebra.multiplied(kernel, log_scale), densities


def evidences(parameters, constants, table, levels, log_scales):
    """The bound on the evidence of all labels, in nats, for factors of the prior mean and of the kernel.

    Parameters
    ----------
    parameters, constants, table
        As in `best_scale`.
    levels : array of shape (L, S)
        Factors of the prior mean at each scale.
    log_scales : array of shape (S,)

    Returns
    -------
    bounds : ndarray of shape (L, S)
    """
    parameters_of_all, of_all = of_likelihood(parameters, constants)
    rows = with_single(rows_of_table(parameters, prior_of(parameters, constants.masks, constants.jitter), table))
    found = np.empty(np.shape(levels))
    for i, of_scales in enumerate(levels):
        fit = None
        for k, (level, log_scale) in enumerate(zip(of_scales, log_scales, strict=True)):
            here = of_all._replace(prior_mean=level * constants.prior_mean)
            fit = fit_at_scale(parameters_of_all, here, rows, log_scale, fit)
            found[i, k] = fit.bounds[-1]
    return found


def solve(parameters, constants, table, random_state, n_further=0, at_most=False, compares=True):
    """q of all rows, and the calibration of class probabilities by held-out rows.

    The means are the best under the likelihood, or those of a regression (`regressed`) if calibrated predictions by
    these have a larger density of held-out labels.

    Parameters
    ----------
    parameters, constants, table, random_state
        As in `best_scale`.
    n_further : int, default=0
        Number of further points for the means.
    at_most : bool, default=False
        Whether there may be fewer if they gain almost as much: see `further_points`.
    compares : bool, default=True
        Whether a regression is tried, whose predictions need calibration.

    Returns
    -------
    optimum : Optimum
    """
    n_of_many = 1 if table.mean_function is None else _PARTS_WITH_MEAN_FUNCTION
    problem = _Problem.of(parameters, constants, table, random_state, n_of_many=n_of_many)
    given = parameters, table, n_further, at_most, random_state
    further = _OnFurtherPoints.of(problem, *given) if n_further else None
    best = _judged(problem, _UnderLikelihood(problem) if further is None else further)
    other = _judged(problem, _ByRegression(problem)) if compares else best
    if other.densities.are_larger_than(best.densities, _SURE):
        best, further = other, None
    del other
    fit, means = best.way.fit_of_all(best.fits[0]), None
    if further is not None:
        means = further_points.of_basis(further.wide, fit.w)
        fit = fit._replace(w=means.m)
    found = Average.of(*best.densities), best.calibration
    return Optimum(fit.q, parameters, np.array(fit.bounds), *found, means=means, gain=_gain(problem, best))


class _UnderLikelihood(NamedTuple):
    """The best means under the likelihood."""

    problem: _Problem

    def fit_without(self, fold):
        """The `Fit` without one of the folds."""
        problem = self.problem
        return fit_at_scale(problem.parameters, problem.constants, problem.rows_without(fold), 0.0, None, 2)

    def fit_of_all(self, before):
        """The `Fit` of all rows; the start is one without a fold."""
        system = self.problem.parameters, self.problem.constants, self.problem.rows
        return refined(*system, fit_at_scale(*system, 0.0, before))


class _OnFurtherPoints(NamedTuple):
    """Means on inducing and further points, under the coarse likelihood and the inducing points' covariance.

    Attributes
    ----------
    problem : _Problem
    wide : further_points.Wide
        Rows whitened by both kinds of points.
    starts : list of Fit
        On the inducing points only, one without each of the folds.
    """

    problem: _Problem
    wide: further_points.Wide
    starts: list

    @classmethod
    def of(cls, problem, parameters, table, n_further, at_most, random_state):
        """These means; None if there are no further points, or their covariance has no Cholesky factor."""
        candidates = further_points.candidates(table.X, problem.is_point)
        if not len(candidates):
            return None
        system, (log_kernel,), roughly = (problem.coarse, problem.constants), parameters.log_kernels, problem.roughly
        folds = range(len(problem.folds))
        starts = [fit_at_scale(*system, roughly.rows_without(fold), 0.0, None, 2) for fold in folds]
        del roughly
        mean = starts[0].mean.copy()
        for held, fit in zip(problem.folds, starts, strict=True):
            mean[:, held.index] = fit.mean[:, held.index]
        labels = further_points.Labels.of(log_kernel, (*system, problem.rows), table.X, starts[0], mean)
        chosen = further_points.chosen(labels, candidates, n_further, at_most, random_state)
        del labels
        if not len(chosen):
            return None
        which = chosen, problem.is_point, problem.constants.jitter
        wide = further_points.whitened(log_kernel, problem.rows, table.X, *which)
        return None if wide is None else cls(problem, wide, starts)

    def fit_without(self, fold):
        """The `Fit` without one of the folds."""
        return self._best(self.problem.rows_without(fold), self.starts[fold], ROUGH)

    def fit_of_all(self, before):
        """The `Fit` of all rows; the start is the one without the first fold."""
        problem, rows = self.problem, self.problem.rows
        h = np.asarray(curvatures(problem.coarse, problem.constants, rows, before.mean, before.var(rows)).max(0))
        held = problem.folds[0].index
        earlier = np.array(before.h)
        earlier[held] = h[held]
        # The mean of both: under a wide prior h would oscillate, and variances would differ from the calibrated ones.
        h = 0.5 * (earlier + h)
        return self._best(rows, before._replace(h=h, covariance=covariance_of(rows.A, h)), FINE)

    def _best(self, rows, fit, share):
        problem = self.problem
        system = problem.coarse, problem.constants, rows
        var = fit.var(rows)
        (rounded_var,) = rounded(problem.likelihood, var)

        def log_likelihood(mean):
            return value_and_slope(*system, *rounded(problem.likelihood, mean), rounded_var)

        # Both tolerances: with classes that hardly overlap the loss is almost zero, and a relative change says little.
        ends = share * TOLERANCE, share * _LEAST_CHANGE * float(np.sum(rows.weight))
        start = fit.covariance, curvatures(*system, fit.mean, var), fit.w
        w, mean = further_points.best(log_likelihood, problem.constants.prior_mean, self.wide, *start, *ends)
        return problem.with_bound(rows, fit._replace(w=w, mean=mean))


class _ByRegression(NamedTuple):
    """Means of a regression of the labels."""

    problem: _Problem

    def fit_without(self, fold):
        """The `Fit` without one of the folds."""
        return self._fit(self.problem.rows_without(fold))

    def fit_of_all(self, before):
        """The `Fit` of all rows."""
        return self._fit(self.problem.rows)

    def _fit(self, rows):
        return self.problem.with_bound(rows, regressed(rows, np.asarray(self.problem.constants.prior_mean)))


class _Judged(NamedTuple):
    """A way to the means, its fits without each fold, their calibration, and the densities of held-out labels."""

    way: _UnderLikelihood | _OnFurtherPoints | _ByRegression
    fits: list
    calibration: Calibration
    densities: Densities


def _judged(problem, way):
    """The way, `_Judged` by held-out rows."""
    fits = [way.fit_without(fold) for fold in range(len(problem.folds))]
    moments, held, values = problem.moments(fits), problem.held, problem.mean_function_of_held
    found = calibrate(problem.likelihood, *moments, held.y, held.told, held.doubt, values)
    each = np.asarray(log_densities(problem.likelihood, *found.moments(*moments, values), held.y))
    return _Judged(way, fits, found, Densities(each, held.told, held.counts))


def _gain(problem, judged):
    """The `Gain` of a way to the means over the frequencies of all labels."""
    moments, values = problem.moments(judged.fits), problem.mean_function_of_held
    mean = moments[0] if values is None else judged.calibration.moments(*moments, values)[0]
    labels, weight = (np.asarray(each) for each in (problem.rows.y[0], problem.rows.weight))
    total = np.bincount(labels.astype(int), weights=weight)
    return Gain.of(judged.densities, np.asarray(mean), problem.held.y[0].astype(int), total / total.sum())


def _climb(problem, limits, calibrates):
    """The scale of largest density, in steps by a factor: upwards from one or, if that does not help, downwards."""
    # After a single turn h would belong to the scale before, and the densities would not be comparable.
    best, fits = 0.0, problem.fits(0.0, None, 3)
    densities = problem.densities(fits, calibrates)
    for direction in (_STEP, -_STEP):
        for _ in range(_STEPS):
            log_scale = best + direction
            if not limits[0] <= log_scale <= limits[1]:
                break
            tried = problem.fits(log_scale, fits, 2)
            densities_there = problem.densities(tried, calibrates)
            if not densities_there.are_larger_than(densities):
                break
            best, fits, densities = log_scale, tried, densities_there
        if best > 0.0:
            break
    return best, densities
