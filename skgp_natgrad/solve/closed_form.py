"""q in closed form, on all rows, for a Gaussian likelihood.

With the likelihood conjugate, one natural gradient step of size one from anywhere ends at the best
q (Salimbeni, Eleftheriadis and Hensman 2018, section 2.3; Hensman, Fusi and Lawrence 2013). With
rows whitened by the inducing points, A = L^-1 Kzx, and weights W,

    S^-1 = I + A W A^T / s^2,    S^-1 m = A W y / s^2

and the bound is the collapsed one of Titsias 2009. The sums over the rows do not contain the noise
variance s^2, so that any other noise costs one factorisation. Where rows have known variances a on
top, W holds weight / (1 + a / s^2), and s^2 stays; where a target is missing, W holds zero. Of the
kernel's hyperparameters the lengthscales stay; the noise and the scale of kernel and noise together
are chosen by the density of each row given all others.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from .._backend import placement
from .._backend.repeated import among, common_weight, contradicted, n_observations
from ..prediction.calibration import Average, Calibration
from ..prediction.left_out import LeftOut
from ..training.batches import bucket
from ..training.shares import filled_up, gathered
from ..variational import gaussian, model
from . import given_noise, noise_search, rounding, row_means
from .amplitude import multiplied, room
from .drawn import drawn
from .held_out_labels import Gain
from .label_means import Means
from .noise_search import left_out_of, leverages, search_noise
from .row_sums import sums_of, weights_of
from .system import points_of, prior_of, whitened

# Rows whose predictions from all others are compared, and fewest of them that are no inducing points.
_HELD_OUT_ROWS, _FEWEST = 1500, 100
# Range of the search for the noise, in logarithms around its start: the noise of the exact process, which is smaller
# than that of a few inducing points.
_RANGE = -4.0, 10.0
# Most pairs of rows whose leverages are wanted.
_MOST_PAIRS = 5_000_000
# Of the log density of a Gaussian variable under its own distribution.
_VARIANCE = 0.5


class Optimum(NamedTuple):
    """The best q and the parameters it belongs to.

    Attributes
    ----------
    q : Gaussian
    parameters : Parameters
    elbo : ndarray of shape (n_turns,)
        The bound, last at this q.
    held_out : Average
        The log density of held-out rows, of all targets together, in nats per unit of weight.
    calibration : Calibration, optional
        Of class probabilities.
    left_out : LeftOut, optional
        Predictions of some rows from all others, where they were asked for.
    means : Means, optional
        The mean where it rests on further points, too: q's own is then that part which the inducing points explain.
    gain : Gain, optional
        Of class labels, by how much held-out ones are predicted better than by their frequencies.
    status : str, optional
        Why q is not the best one yet: "turns" if Newton's method ended at its limit of them.
    """

    q: gaussian.Gaussian
    parameters: model.Parameters
    elbo: np.ndarray
    held_out: Average
    calibration: Calibration | None = None
    left_out: LeftOut | None = None
    means: Means | None = None
    gain: Gain | None = None
    status: str | None = None


class HeldOut(NamedTuple):
    """Rows X (B, D) for leave-one-out predictions, at positions ``index``, which leaves out those that fill them up.

    Whitened (J, M, B), residual (J, B), y - prior_mean (K, B), the weight with which each counts, what is left out of
    the diagonal of W, by how much the noise of one observation is wider than s^2, and how many observations each row is
    (K, B each).
    """

    index: np.ndarray
    X: np.ndarray
    A: jax.Array
    residual: jax.Array
    y: jax.Array
    weight: jax.Array
    left_out: jax.Array
    widening: jax.Array
    n_each: jax.Array

    def n_rows(self, k):
        """Number of observations that count for a target."""
        return int(self.n_each[k][np.asarray(self.weight[k]) > 0.0].sum())


def held_out_rows(parameters, prior, constants, table, random_state, n_rows=_HELD_OUT_ROWS):
    """Random rows that are no inducing points; all kinds if these are few.

    What a row at an inducing point is predicted with says little about new rows. All others are like these, however
    near they are to a point: without those that the points explain, the rest would be the odd ones. And where X is
    repeated, so is it among new rows; it may be only there that the noise is seen.
    """
    part = table.sample
    chosen, counts = drawn(part.weight, n_rows, random_state)
    rows, repeated = part.rows(chosen), contradicted(part.X, part.y - part.added)[:, chosen]
    missing = bucket(len(chosen)) - len(chosen)
    X = np.pad(rows.X, ((0, missing), (0, 0)))
    A, residual = whitened(parameters.log_kernels, prior, X)
    is_point = among(X, points_of(prior))
    y, weight, relative = weights_of(rows, parameters, rows.per_target)
    widening = np.divide(weight, relative, out=np.ones_like(weight), where=relative > 0.0)
    share = np.divide(counts, rows.weight, out=np.zeros(len(chosen)), where=rows.weight > 0.0)
    # A weight that nothing contradicts says how much a row matters, and not how well rows are predicted.
    weight, n_each = weight * share, n_observations(rows.weight, repeated)
    weight = np.where(repeated, weight, np.minimum(weight, 1.0))
    y, weight, left_out, widening, n_each, repeated = (
        np.broadcast_to(np.pad(each, ((0, 0), (0, missing)), constant_values=last), (len(y), len(X)))
        for each, last in (
            (y - rows.prior_mean(constants), 0.0),
            (weight, 0.0),
            (relative / n_each, 0.0),
            (widening, 1.0),
            (n_each, 0.0),
            (repeated, False),
        )
    )
    counted = weight > 0.0
    apart = ~is_point & counted
    some = apart | (repeated & counted)
    enough = apart.sum(1, keepdims=True) >= _FEWEST
    return HeldOut(chosen, X, A, residual, y, np.where(some | ~enough, weight, 0.0), left_out, widening, n_each)


def solve(parameters, constants, table, random_state, n_left_out=0, on_all_rows=False, searches=True):
    """The best q of all rows; noise and scale are chosen by leave-one-out densities as far as their bounds allow.

    Parameters
    ----------
    parameters : Parameters
        Without mean-only points, and with a Gaussian likelihood.
    constants : Constants
    table : Table
    random_state : numpy.random.RandomState
        Chooses the held-out rows.
    n_left_out : int, default=0
        Rows whose predictions from all others are wanted.
    on_all_rows : bool, default=False
        Whether the mean may rest on all rows, if that predicts these rows better (`row_means`). It asks for one kernel,
        and for rows in the memory of one process.
    searches : bool, default=True
        Otherwise noise and scale stay.

    Returns
    -------
    optimum : Optimum
    """
    prior, n_processes = prior_of(parameters, constants.masks, constants.jitter), placement.current().n_processes
    sums = sums_of(parameters, prior, constants, filled_up(table, n_processes))
    some = gathered(table, n_processes)
    held = held_out_rows(parameters, prior, constants, some, random_state)
    variance = parameters.raw_likelihood.variance
    start = np.ravel(variance)
    bounds = list(zip(*(np.ravel(likelihood.variance) for _, likelihood in constants.log_bounds), strict=True))
    if table.has_known or not searches:
        # Known variances give the scale; the rest of the noise is that of the evidence.
        bounds = [(each, each) for each in start]
    ranges = _ranges(start, bounds, some.sample.weight)
    log_scales, log_noise, density = _scales(parameters, constants, sums, held, start, bounds, ranges)
    sums, held, whitened_by = *_in_units(sums, held, log_scales), parameters
    for k in np.flatnonzero(np.isnan(log_noise)):
        # For the scale that is used, which bounds or other targets have moved.
        log_noise[k], density[k], _ = search_noise(sums, held, k, start[k], ranges[k], bounds[k][1], False)
    parameters = parameters._replace(
        log_kernels=tuple(map(multiplied, parameters.log_kernels, log_scales)),
        raw_likelihood=parameters.raw_likelihood.with_leaves([np.reshape(log_noise, variance.shape)]),
    )
    q, elbo = given_noise.optimum(sums, log_noise)
    share = np.broadcast_to(sums.weight / constants.weight, len(density))
    optimum = Optimum(q, parameters, np.array([float(elbo)]), _average(held, share, density))
    if not n_left_out:
        return optimum
    held = held_out_rows(whitened_by, prior, constants, some, random_state, n_left_out)
    left_out = _left_out(*_in_units(sums, held, log_scales, of_sums=False), log_noise, _widths(some))
    optimum = optimum._replace(left_out=left_out)
    if not on_all_rows:
        return optimum
    y, _, weight = weights_of(table, parameters, table.per_target)
    y, weight = y - table.prior_mean(constants), np.broadcast_to(weight, y.shape)
    noise, n_rows = np.exp(log_noise), len(held.index)
    rows = table.X, np.where(weight > 0.0, y, 0.0), weight, held.index, np.asarray(held.left_out)[:, :n_rows]
    problem = row_means.Problem(parameters.log_kernels[0], prior, float(np.exp(log_scales[0])), noise, *rows)
    quadratic = (np.asarray(sums.square) - np.einsum("km,km->k", sums.cross, q.mean)) / noise
    return row_means.improved(optimum, problem, quadratic, share, random_state)


def _average(held, share, density):
    """The density of all targets together, each with a share, and its standard error."""
    n_rows = np.maximum(list(map(held.n_rows, range(len(density)))), 1)
    error = float(np.sqrt((share**2 * _VARIANCE / n_rows).sum()))
    return Average(float((share * density).sum()), error)


def _widths(table):
    """To which each target is rounded: (K,)."""
    return np.array([rounding.width(each) for each in table.sample.y])


def _left_out(sums, held, log_noise, width):
    """The `LeftOut` of held-out rows."""
    error, variance = np.full((2, *np.shape(held.y)), np.nan)
    for k in range(len(error)):
        counted, *found, _ = left_out_of(sums, held, k, log_noise[k])
        error[k, counted], variance[k, counted] = found
    noise = np.exp(log_noise)[:, None] * np.asarray(held.widening)
    # Of a row that is an inducing point it may round below zero.
    of_rows = np.asarray(held.weight), np.asarray(held.n_each)
    leverage = leverages(sums, held, log_noise) if error.size * error.shape[1] <= _MOST_PAIRS else None
    return LeftOut(
        held.X, error, np.maximum(variance - noise, 0.0), noise, *of_rows, width, leverage, np.asarray(held.y)
    )


def left_out_of_model(moments_of, parameters, constants, table, random_state, n_rows):
    """Predictions of rows by a model whose q need not be the best one, each row without its own part.

    Leverages are those of the best q on all of the model's points, which are below one and sum to at most the number of
    points, whatever training has reached; the errors are those of the model.

    Parameters
    ----------
    moments_of : callable
        Latent means and variances (K, B) at rows (B, D), without offsets.
    parameters : Parameters
        With all points, those of the mean alone as well, in one set.
    constants : Constants
    table : Table
        Without known variances.
    random_state : numpy.random.RandomState
    n_rows : int

    Returns
    -------
    left_out : LeftOut
    """
    prior, n_processes = prior_of(parameters, constants.masks, constants.jitter), placement.current().n_processes
    sums = sums_of(parameters, prior, constants, filled_up(table, n_processes))
    held = held_out_rows(parameters, prior, constants, gathered(table, n_processes), random_state, n_rows)
    log_noise, (mean, var) = np.ravel(parameters.raw_likelihood.variance), moments_of(held.X)
    # Without the prior mean, which the offsets of rows may be part of.
    difference = np.asarray(held.y) - (mean - np.asarray(constants.prior_mean))
    error, variance = np.full((2, *np.shape(held.y)), np.nan)
    for k in range(len(error)):
        counted, *_, rest = left_out_of(sums, held, k, log_noise[k])
        error[k, counted], variance[k, counted] = difference[k, counted] / rest, var[k, counted] / rest
    noise = np.exp(log_noise)[:, None] * np.ones_like(error)
    of_rows = np.asarray(held.weight), np.asarray(held.n_each)
    return LeftOut(held.X, error, variance, noise, *of_rows, _widths(table))


def _ranges(start, bounds, weight):
    """The range of each target's noise: lower where all weights are small, as the evidence does not know that."""
    least, most = _RANGE[0] + min(np.log(common_weight(weight)), 0.0), _RANGE[1]
    return [np.clip([each + least, each + most], *ends) for each, ends in zip(start, bounds, strict=True)]


def _scales(parameters, constants, sums, held, start, bounds, ranges):
    """Logarithms of what each kernel is multiplied by (J,), and of the noise that goes with it, and densities (K,).

    The scale has the largest density of the kernel's targets, within its bounds. The noise is NaN where
    it must be searched for under this scale.
    """
    n_kernels = len(parameters.log_kernels)
    found, noise, density = np.zeros(n_kernels), *np.full((2, len(start)), np.nan)
    for j, kernel in enumerate(parameters.log_kernels):
        targets = range(len(start)) if n_kernels == 1 else [j]
        limits = room(kernel, *(each[j] for each, _ in constants.log_bounds))
        free = all(bounds[k][0] < bounds[k][1] for k in targets)
        if not (limits[0] < limits[1] and free) or min(map(held.n_rows, targets)) < noise_search.FEWEST:
            continue
        each = []
        for k in targets:
            log_noise, density[k], scale = search_noise(sums, held, k, start[k], ranges[k], bounds[k][1], True)
            each.append(np.log(scale))
        # A constant target fits under any scale, and better the smaller it is.
        varies = np.array([np.ptp(np.asarray(held.y[k])[np.asarray(held.weight[k]) > 0.0]) > 0.0 for k in targets])
        found[j] = np.clip(np.mean(np.array(each)[varies if varies.any() else ~varies]), *limits)
        together = log_noise + found[j]
        if len(targets) == 1 and found[j] == each[0] and bounds[k][0] <= together <= bounds[k][1]:
            noise[k] = together
    return found, noise, density


def _in_units(sums, held, log_scales, of_sums=True):
    """The sums and the held-out rows for kernels that are multiplied: A grows by the root."""
    factor = np.exp(log_scales)
    if of_sums:
        of_targets = np.broadcast_to(factor, len(sums.cross))
        sums = sums._replace(
            gram=sums.gram * factor[:, None, None],
            cross=sums.cross * of_targets[:, None] ** 0.5,
            residual=sums.residual * factor,
        )
    return sums, held._replace(A=held.A * factor[:, None, None] ** 0.5, residual=held.residual * factor[:, None])
