"""Rows of measurements that are predicted each from all others, as the sums over the rows and a noise variance tell."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from .._backend import in_place, placement
from .._backend.repeated import among, contradicted, n_observations
from .._backend.rows import filled_up
from ..prediction.left_out import LeftOut
from ..training.batches import bucket
from ..training.shares import evened_out, gathered
from .system import points_of, prior_of, sums_of, weights_of, whitened

# Rows whose predictions from all others are compared, and fewest of them that are no inducing points.
HELD_OUT_ROWS, _FEWEST = 1500, 100
# Most pairs of rows whose leverages are wanted.
_MOST_PAIRS = 5_000_000
_MIN_REST = 1e-9
# Share of the rows whose value occurs elsewhere, and share of those on the grid of the least distance, at least.
# A value that is rarer than a part of what is usual may be rounded otherwise.
_REPEATED, _ON_GRID, _USUAL = 0.3, 0.95, 0.2
# Distances up to this share of the range are rounding of double or single precision; and how far from the grid, as a
# share of its distance, a value may be.
_PRECISION, _TOLERANCE = 1e-6, 1e-2


class HeldOutRows(NamedTuple):
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

    def multiplied(self, factor):
        """The rows under kernels that are multiplied (J,)."""
        return self._replace(A=self.A * factor[:, None, None] ** 0.5, residual=self.residual * factor[:, None])


def held_out_rows(parameters, prior, constants, table, random_state, n_rows=HELD_OUT_ROWS):
    """Random rows that are no inducing points; all kinds if these are few.

    What a row at an inducing point is predicted with says little about new rows. All others are like these, however
    near they are to a point: without those that the points explain, the rest would be the odd ones. And where X is
    repeated, so is it among new rows; it may be only there that the noise is seen.
    """
    part = table.sample
    chosen, counts = drawn(part.weight, n_rows, random_state)
    rows, repeated = part.rows(chosen), contradicted(part.X, part.y - part.added)[:, chosen]
    X = filled_up(rows.X, bucket(len(chosen)), value=0.0)
    A, residual = whitened(parameters.log_kernels, prior, X)
    is_point = among(X, points_of(prior))
    y, weight, relative = weights_of(rows, parameters, rows.per_target)
    widening = np.divide(weight, relative, out=np.ones_like(weight), where=relative > 0.0)
    share = np.divide(counts, rows.weight, out=np.zeros(len(chosen)), where=rows.weight > 0.0)
    # A weight that nothing contradicts says how much a row matters, and not how well rows are predicted.
    weight, n_each = weight * share, n_observations(rows.weight, repeated)
    weight = np.where(repeated, weight, np.minimum(weight, 1.0))
    y, weight, left_out, widening, n_each, repeated = (
        np.broadcast_to(filled_up(each, len(X), 1, value=last), (len(y), len(X)))
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
    return HeldOutRows(chosen, X, A, residual, y, np.where(some | ~enough, weight, 0.0), left_out, widening, n_each)


def drawn(weight, n_rows, random_state):
    """Some rows, in order, and how often each was drawn: all with their weights, if there are few.

    Parameters
    ----------
    weight : ndarray of shape (N,)
    n_rows : int
        Number of draws: systematic ones, so that rows of equal weight are drawn at most once.
    random_state : numpy.random.RandomState

    Returns
    -------
    index, counts : ndarray of shape (at most n_rows,)
    """
    if len(weight) <= n_rows:
        return np.arange(len(weight)), weight
    order = random_state.permutation(len(weight))
    ends = np.cumsum(weight[order])
    at = (random_state.uniform() + np.arange(n_rows)) * (ends[-1] / n_rows)
    position = np.minimum(np.searchsorted(ends, at, side="right"), len(order) - 1)
    return np.unique(order[position], return_counts=True)


def left_out_of(sums, held, k, log_noise):
    """Of the held-out rows that count for the k-th target, each given all others, at one factorisation.

    With s = a^T (I + gram / noise)^-1 a and the leverage h of what is left out, that part of W times s / noise, the
    error without it is (y - mean) / (1 - h), and its variance residual + s / (1 - h) + noise * widening.

    Returns
    -------
    counted : ndarray of shape (C,)
        Positions of the rows that count.
    error, variance : ndarray of shape (C,)
    rest : ndarray of shape (C,)
        One less the leverage of what is left out.
    """
    (j, h), noise, counted = _of_target(sums, held, k), np.exp(log_noise), np.flatnonzero(held.weight[k])
    rows = held.A[j], held.residual[j], held.y[k], held.left_out[k], held.widening[k]
    # Without what fills up, and the rows that do not count. A copy, in whose place the solution is.
    A, residual, y, left_out, widening = (np.array(np.asarray(each)[..., counted], order="C") for each in rows)
    factor = in_place.cholesky_of_sum(np.asarray(sums.gram[h]), 1.0 / noise)
    mean = in_place.cholesky_solve(factor, np.asarray(sums.cross[k]) / noise) @ A
    half = in_place.lower_solve(factor, A) if len(counted) else A
    s = np.einsum("mb,mb->b", half, half)
    rest = np.maximum(1.0 - left_out * s / noise, _MIN_REST)
    return counted, (y - mean) / rest, residual + s / rest + noise * widening, rest


def _leverages(sums, held, log_noise):
    """By how much the mean at each held-out row (B, first axis) follows the target of each: (K, B, B)."""
    each = []
    for k in range(len(log_noise)):
        (j, h), noise = _of_target(sums, held, k), np.exp(log_noise[k])
        factor = in_place.cholesky_of_sum(np.asarray(sums.gram[h]), 1.0 / noise)
        half = in_place.lower_solve(factor, np.array(held.A[j], order="C"))
        each.append(half.T @ half * (np.asarray(held.left_out[k]) / noise))
    return np.stack(each)


def _of_target(sums, held, k):
    """Positions of the whitened rows and of the sums that the k-th target has."""
    return (k if len(each) > 1 else 0 for each in (held.A, sums.gram))


def left_out_rows(sums, held, log_noise, width):
    """The `LeftOut` of held-out rows."""
    error, variance = np.full((2, *np.shape(held.y)), np.nan)
    for k in range(len(error)):
        counted, *found, _ = left_out_of(sums, held, k, log_noise[k])
        error[k, counted], variance[k, counted] = found
    noise = np.exp(log_noise)[:, None] * np.asarray(held.widening)
    # Of a row that is an inducing point it may round below zero.
    of_rows = np.asarray(held.weight), np.asarray(held.n_each)
    leverage = _leverages(sums, held, log_noise) if error.size * error.shape[1] <= _MOST_PAIRS else None
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
    sums = sums_of(parameters, prior, constants, evened_out(table, n_processes))
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
    return LeftOut(held.X, error, variance, noise, *of_rows, widths(table))


def widths(table):
    """To which each target is rounded: (K,)."""
    return np.array([rounding_width(each) for each in table.sample.y])


def rounding_width(y):
    """The distance between neighbouring values of a target (N,) that is rounded; zero of any other.

    Parameters
    ----------
    y : ndarray of shape (N,)
        NaN where it is missing.

    Returns
    -------
    width : float
    """
    y = y[np.isfinite(y)]
    if not len(y):
        return 0.0
    values, counts = np.unique(y, return_counts=True)
    # Equal numbers that were computed in different ways are one.
    first = np.concatenate([[True], np.diff(values) > _PRECISION * (values[-1] - values[0])])
    counts, values = np.add.reduceat(counts, np.flatnonzero(first)), values[first]
    repeated = counts > 1
    if np.count_nonzero(repeated) < 2 or counts[repeated].sum() < _REPEATED * len(y):
        return 0.0
    usual = values[repeated & (counts > _USUAL * (counts**2).sum() / counts.sum())]
    # Where one value has nearly all rows, the others are what there is.
    usual = usual if len(usual) > 1 else values[repeated]
    found = float(np.diff(usual).min())
    steps = (values - usual[0]) / found
    on_grid = np.abs(steps - np.rint(steps)) < _TOLERANCE
    return found if counts[on_grid].sum() >= _ON_GRID * len(y) else 0.0
