"""q in closed form, on all rows, for a Gaussian likelihood.

With the likelihood conjugate, one natural gradient step of size one from anywhere ends at the best
q (Salimbeni, Eleftheriadis and Hensman 2018, section 2.3; Hensman, Fusi and Lawrence 2013). With
rows whitened by the inducing points, A = L^-1 Kzx, and weights W,

    S^-1 = I + A W A^T / s^2,    S^-1 m = A W y / s^2

and the bound is the collapsed one of Titsias 2009. The sums over the rows do not contain the noise
variance s^2, so that another noise costs one factorisation. If rows have known variances a in
addition, W holds weight / (1 + a / s^2), and s^2 is kept; where a target is missing, W holds zero.
The lengthscales are kept; the noise, and the scale of kernel and noise together, maximise the
leave-one-out density.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._backend import in_place, placement
from .._backend.repeated import common_weight
from ..kernels import nugget
from ..kernels.algebra import multiplied, room
from ..neighbours import Neighbours
from ..prediction.calibration import Average, Calibration
from ..prediction.left_out import LeftOut
from ..prediction.posterior import Posterior
from ..training.shares import evened_out, gathered
from ..variational import gaussian, model
from ..variational.points import Factor, factorise_in_place
from . import exact, noise_search, row_means
from .held_out_labels import Gain
from .left_out import HeldOutRows, OnPoints, Scaled, held_out_rows, left_out_rows, widths
from .noise_search import LOG_2PI, search_noise
from .system import Means, Prior, Sums, gaussian_of, prior_of, sums_of, weights_of

# Range of the search for the noise, in logarithms around its start, which is the noise of the exact process: a model on
# few inducing points has more.
_RANGE = -4.0, 10.0
# The variance of the log density of a Gaussian variable under its own distribution.
_VARIANCE = 0.5


class Optimum(NamedTuple):
    """The best q and the parameters it belongs to.

    Attributes
    ----------
    q : Gaussian
    parameters : Parameters
    elbo : ndarray of shape (n_turns,)
        The bound after each turn; the last is at this q.
    held_out : Average
        The log density of held-out rows, over all targets, in nats per unit of weight.
    calibration : Calibration, optional
        Of class probabilities.
    left_out : LeftOut, optional
        Leave-one-out predictions of some rows, if they were requested.
    means : Means, optional
        The mean, if it uses further points as well; its part on the inducing points is also in q.
    gain : Gain, optional
        How much better held-out class labels are predicted than by their frequencies.
    neighbours : Neighbours, optional
        The rows from which others are predicted, if they predict better than the inducing points.
    ahead : float, optional
        How much better neighbours predict than the inducing points, in nats a row.
    status : str, optional
        Why q may not be the best one: "turns" if Newton's method reached its largest number of turns.
    sums : Sums, optional
        Of all rows under the parameters that were given, for another solution on these points.
    posterior : Posterior, optional
        Of the exact process, which needs no ``q``.
    factors : tuple of Factor, optional
        That whiten ``q``. Other ones, equal up to rounding, would lose the digits that the condition of K costs.
    """

    q: gaussian.Gaussian | None
    parameters: model.Parameters
    elbo: np.ndarray
    held_out: Average
    calibration: Calibration | None = None
    left_out: LeftOut | None = None
    means: Means | None = None
    gain: Gain | None = None
    neighbours: Neighbours | None = None
    ahead: float | None = None
    status: str | None = None
    sums: Sums | None = None
    factors: tuple[Factor, ...] | None = None
    posterior: Posterior | None = None


def solve(
    parameters, constants, table, random_state, n_left_out=0, on_all_rows=False, searches=True, scales=True, sums=None
):
    """The best q of all rows; leave-one-out densities choose noise and scale within their bounds.

    Parameters
    ----------
    parameters : Parameters
        Without mean-only points, and with a Gaussian likelihood.
    constants : Constants
    table : Table
    random_state : numpy.random.RandomState
        Chooses the held-out rows.
    n_left_out : int, default=0
        Number of rows to predict from all others.
    on_all_rows : bool, default=False
        Whether the mean may use all rows, if that predicts them better: under one kernel, in one process (`row_means`).
    searches : bool, default=True
        If False, noise and scale are kept.
    scales : bool, default=True
        If False, the scale of the kernel is kept: left-out rows of known levels do not tell how much levels differ.
    sums : Sums, optional
        Of all rows under these parameters.

    Returns
    -------
    optimum : Optimum
    """
    start = np.ravel(parameters.raw_likelihood.variance)
    bounds = list(zip(*(np.ravel(likelihood.variance) for _, likelihood in constants.log_bounds), strict=True))
    if table.has_known or not searches or any(map(nugget.in_kernel, parameters.log_kernels)):
        # Known variances fix the scale, and so does the scatter within places; the noise is kept from the evidence.
        bounds = [(each, each) for each in start]
    n_processes = placement.current().n_processes
    some = gathered(table, n_processes)
    how = start, bounds, _ranges(start, bounds, some.sample.weight), scales
    process = None if on_all_rows or sums is not None else exact.process_of(parameters, constants, table)
    if process is not None:
        process = process._replace(held=held_out_rows(parameters, constants, table, random_state, table.n_rows))
        factor, parameters, log_noise, density = _with_noise(parameters, constants, process, *how)
        return _exact_optimum(process, factor, parameters, constants, table, log_noise, density)
    prior, whitened_by = prior_of(parameters, constants.masks, constants.jitter), parameters
    of_rows = sums_of(parameters, prior, constants, evened_out(table, n_processes)) if sums is None else sums
    held = held_out_rows(parameters, constants, some, random_state)
    system = OnPoints.of(of_rows, parameters, prior, held)
    factor, parameters, log_noise, density = _with_noise(parameters, constants, system, *how)
    sums = of_rows.multiplied(factor)
    q, elbo = _best_q(sums, log_noise)
    share = np.broadcast_to(sums.weight / constants.weight, len(density))
    of_held_out, factors = _average(held, share, density), _factors(prior, factor)
    optimum = Optimum(q, parameters, np.array([float(elbo)]), of_held_out, sums=of_rows, factors=factors)
    if not n_left_out:
        return optimum
    held = held_out_rows(whitened_by, constants, some, random_state, n_left_out)
    system = Scaled(OnPoints.of(of_rows, whitened_by, prior, held), factor)
    left_out = left_out_rows(system, log_noise, widths(some))
    optimum = optimum._replace(left_out=left_out)
    if not on_all_rows:
        return optimum
    return _on_all_rows(optimum, prior.multiplied(factor[0]), sums, held, table, constants, random_state)


def _with_noise(parameters, constants, system, start, bounds, ranges, scales):
    """The factors of the kernels (J,), the parameters with these, log noises (T,), and densities (T,)."""
    log_scales, log_noise, density = _scales(parameters, constants, system, start, bounds, ranges, scales)
    factor, like, system = np.exp(log_scales), parameters.raw_likelihood, Scaled(system, np.exp(log_scales))
    for k in np.flatnonzero(np.isnan(log_noise)):
        # The noise for the scale in use, which bounds or other targets have moved.
        log_noise[k], density[k], _ = search_noise(system, k, start[k], ranges[k], bounds[k][1], False)
    parameters = parameters._replace(
        log_kernels=tuple(map(multiplied, parameters.log_kernels, log_scales)),
        raw_likelihood=like.with_leaves([log_noise.reshape(np.shape(like.variance))]),
    )
    return factor, parameters, log_noise, density


def _exact_optimum(process, factor, parameters, constants, table, log_noise, density):
    """The `Optimum` of the exact process, which has a posterior in place of q."""
    at = np.asarray(parameters.points.Z), constants.prior_mean
    found, left_out, evidence = process.solution(log_noise, factor, *at, widths(table))
    share = np.broadcast_to(process.sums[2] / constants.weight, len(density))
    of_held_out = _average(process.held, share, density)
    return Optimum(None, parameters, np.array([evidence]), of_held_out, left_out=left_out, posterior=found)


def _on_all_rows(optimum, prior, sums, held, table, constants, random_state):
    """The optimum with a mean on all rows, if that predicts the held-out ones better."""
    parameters, n_rows = optimum.parameters, len(held.index)
    y, _, weight = weights_of(table, parameters, table.per_target)
    y, weight = y - table.prior_mean(constants), np.broadcast_to(weight, y.shape)
    noise = np.exp(np.ravel(parameters.raw_likelihood.variance))
    rows = table.X, np.where(weight > 0.0, y, 0.0), weight, held.index, held.left_out[:, :n_rows]
    problem = row_means.Problem(parameters.log_kernels[0], prior, noise, *rows)
    quadratic = (np.asarray(sums.square) - np.einsum("km,km->k", sums.cross, optimum.q.mean)) / noise
    share = np.broadcast_to(sums.weight / constants.weight, len(noise))
    return row_means.improved(optimum, problem, quadratic, share, random_state)


def _factors(prior, factor):
    """The factors of the kernels times ``factor`` (J,), without L, which a posterior does not need."""
    if prior.jitter is None:
        return None
    pairs = zip(prior.whiten, prior.jitter, factor, strict=True)
    return tuple(Factor(None, np.asarray(whiten) / each**0.5, jitter * each) for whiten, jitter, each in pairs)


def best_q(parameters, constants, table):
    """The best q of all rows for the hyperparameters as they are, on the inducing points, and its `Factor`s."""
    Z, mask = parameters.points.Z, constants.masks.Z
    factors = tuple(factorise_in_place(each, Z, mask, constants.jitter) for each in parameters.log_kernels)
    sums = sums_of(parameters, Prior.of(Z, mask, factors), constants, table)
    return _best_q(sums, np.ravel(parameters.raw_likelihood.variance))[0], factors


def left_out(parameters, constants, table, index, weight):
    """The `LeftOut` of rows at these positions (N,) of a table, each without so much of its weight (N,)."""
    held = HeldOutRows.given(parameters, constants, table, index, weight)
    process = exact.process_of(parameters, constants, table)
    if process is None:
        prior = prior_of(parameters, constants.masks, constants.jitter)
        system = OnPoints.of(sums_of(parameters, prior, constants, table), parameters, prior, held)
    else:
        system = process._replace(held=held)
    return left_out_rows(system, np.ravel(parameters.raw_likelihood.variance), widths(table))


def _best_q(sums, log_noise):
    """The best q for these noise variances (K,), and the bound."""
    noise = np.exp(log_noise)
    grams = [sums.gram[k % len(sums.gram)] for k in range(len(noise))]
    precision = np.stack([1.0 / each * gram for each, gram in zip(noise, grams, strict=True)])
    precision[:, *np.diag_indices(precision.shape[-1])] += 1.0
    q = gaussian_of(sums.cross / noise[:, None], precision, list(map(in_place.definite_cholesky, precision)))
    explained = np.stack([2.0 * cross - gram @ m for cross, gram, m in zip(sums.cross, grams, q.mean, strict=True)])
    return q, _bound(sums, log_noise, noise, q, explained)


def _bound(sums, log_noise, noise, q, explained):
    """The collapsed bound, from ``explained`` = 2 cross - gram m.

    In this form it is stationary at the best mean: an error e of the mean changes it by order e^2, not e / s^2.
    """
    fit = (sums.square - (explained * q.mean).sum(1)) / noise + (q.mean**2).sum(1)
    normaliser = sums.weight * (LOG_2PI + log_noise) + sums.log_widening
    each = normaliser - q.log_det_cov + fit + sums.residual / noise
    return -0.5 * each.sum()


def _average(held, share, density):
    """The sum of the targets' densities, weighted by their shares, and its standard error."""
    n_rows = np.maximum(list(map(held.n_rows, range(len(density)))), 1)
    error = float(np.sqrt((share**2 * _VARIANCE / n_rows).sum()))
    return Average(float((share * density).sum()), error)


def _ranges(start, bounds, weight):
    """The range of each target's noise; lower if all weights are small, which the evidence ignores."""
    least, most = _RANGE[0] + min(np.log(common_weight(weight)), 0.0), _RANGE[1]
    return [np.clip([each + least, each + most], *ends) for each, ends in zip(start, bounds, strict=True)]


def _scales(parameters, constants, system, start, bounds, ranges, scales):
    """Log factors of the kernels (J,), and the log noise and the density of each target (K,).

    The factor maximises the density of the kernel's targets, within its bounds. The noise is NaN if it
    must be searched for under this factor: for all of them if the kernels are not to have other ``scales``.
    """
    n_kernels, held = len(parameters.log_kernels), system.held
    found, noise, density = np.zeros(n_kernels), *np.full((2, len(start)), np.nan)
    for j, kernel in enumerate(parameters.log_kernels if scales else ()):
        targets = range(len(start)) if n_kernels == 1 else [j]
        limits = room(kernel, *(each[j] for each, _ in constants.log_bounds))
        free = all(bounds[k][0] < bounds[k][1] for k in targets)
        if not (limits[0] < limits[1] and free) or min(map(held.n_rows, targets)) < noise_search.FEWEST:
            continue
        each = []
        for k in targets:
            log_noise, density[k], scale = search_noise(system, k, start[k], ranges[k], bounds[k][1], True)
            each.append(np.log(scale))
        # A constant target fits under any scale, best under the smallest.
        varies = np.array([np.ptp(held.y[k][held.weight[k] > 0.0]) > 0.0 for k in targets])
        found[j] = np.clip(np.mean(np.array(each)[varies if varies.any() else ~varies]), *limits)
        together = log_noise + found[j]
        if len(targets) == 1 and found[j] == each[0] and bounds[k][0] <= together <= bounds[k][1]:
            noise[k] = together
    return found, noise, density
