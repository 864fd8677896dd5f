"""Leave-one-out predictions of measurements, from the sums over the rows and a noise variance."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from .._backend import in_place, placement
from .._backend.repeated import among, contradicted, grouped, n_observations, shuffled
from .._backend.rows import filled_up
from ..kernels import nugget
from ..prediction.left_out import LeftOut
from ..training.batches import bucket
from ..training.shares import evened_out, gathered
from .system import Sums, points_in, prior_of, sums_of, weights_of, whitened

# Rows with leave-one-out predictions, and the fewest of them that are no inducing points.
HELD_OUT_ROWS, _FEWEST = 1500, 100
# The least share of a row that the other rows leave open: below it is rounding.
_MIN_REST = 1e-9
# A target is rounded if at least the first share of rows have a repeated value, and the second share lie on the grid of
# the least distance. Values rarer than the third number times the usual count may be rounded otherwise.
_REPEATED, _ON_GRID, _USUAL = 0.3, 0.95, 0.2
# Distances up to this share of the range are floating-point rounding; and the largest distance of a value from the
# grid, as a share of the grid's spacing.
_PRECISION, _TOLERANCE = 1e-6, 1e-2


class OnPoints(NamedTuple):
    """A model on inducing points: sums over all rows, and the rows that are left out, whitened.

    Attributes
    ----------
    sums : Sums
    A, residual : array of shape (J, M, B), (J, B)
    held : HeldOutRows
    """

    sums: Sums
    A: jax.Array
    residual: jax.Array
    held: HeldOutRows

    @classmethod
    def of(cls, sums, parameters, prior, held):
        """The model of these sums."""
        return cls(sums, *whitened(parameters.log_kernels, prior, held.X), held)

    def at(self, k, log_noise, counted):
        """See `left_out_of`: of a row a, s = a^T (I + gram / noise)^-1 a."""
        j, h = (k if len(each) > 1 else 0 for each in (self.A, self.sums.gram))
        noise, held = np.exp(log_noise), self.held
        # Without padding and rows that do not count; a copy, since the solution overwrites it.
        A = np.array(np.asarray(self.A[j])[:, counted], order="C")
        factor = in_place.cholesky_of_sum(np.asarray(self.sums.gram[h]), 1.0 / noise)
        mean = in_place.cholesky_solve(factor, np.asarray(self.sums.cross[k]) / noise) @ A
        half = in_place.lower_solve(factor, A) if len(counted) else A
        own = np.einsum("mb,mb->b", half, half)
        rest = np.maximum(1.0 - held.left_out[k, counted] * own / noise, _MIN_REST)
        return held.y[k, counted] - mean, own, rest, np.asarray(self.residual[j])[counted]

    def keep(self, k):
        """Nothing: q is found from the sums."""


class Scaled(NamedTuple):
    """A system under kernels multiplied by ``factor`` (J,).

    Where kernel and noise are multiplied together, so are all variances, and no mean and no leverage changes.
    """

    system: Any
    factor: np.ndarray

    @property
    def held(self):
        """The rows that are left out."""
        return self.system.held

    def at(self, k, log_noise, counted):
        """See `left_out_of`."""
        factor = self.factor[k % len(self.factor)]
        difference, own, rest, residual = self.system.at(k, log_noise - np.log(factor), counted)
        return difference, factor * own, rest, factor * residual

    def keep(self, k):
        """As the system does."""
        self.system.keep(k)


class _OfModel(NamedTuple):
    """The latent means and variances (K, B) of a model at held-out rows, with the leverages of the best q."""

    best: OnPoints
    mean: np.ndarray
    var: np.ndarray

    @property
    def held(self):
        """The rows that are left out."""
        return self.best.held

    def at(self, k, log_noise, counted):
        """See `left_out_of`."""
        *_, rest, _ = self.best.at(k, log_noise, counted)
        return self.held.y[k, counted] - self.mean[k, counted], self.var[k, counted], rest, 0.0


class HeldOutRows(NamedTuple):
    """Rows X (B, D) for leave-one-out predictions, at positions ``index``, which has no entries for padding.

    y is y - prior_mean (K, B). Then (K, B) each: the weight of a row as a judge, the part of the diagonal of W that is
    left out, the noise of one observation divided by s^2, the number of observations in the row, and whether other
    targets are seen at its X.

    Where the kernel has a `Nugget`, each row is left out with all others of its X, which it would predict otherwise:
    then y is their mean, and ``apart`` what the row's own target differs from it; else that is zero.
    """

    index: np.ndarray
    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    left_out: np.ndarray
    widening: np.ndarray
    n_each: np.ndarray
    repeated: np.ndarray
    apart: np.ndarray

    @classmethod
    def given(cls, parameters, constants, table, index, weight):
        """Rows at positions ``index`` (N,) of a table, without so much of their weights: where a target is seen."""
        rows = table.rows(index)
        y, total, relative = weights_of(rows, parameters, rows.per_target)
        share = np.divide(weight, rows.weight, out=np.zeros(len(index)), where=rows.weight > 0.0)
        widening = np.divide(total, relative, out=np.ones_like(total), where=relative > 0.0)
        each = (np.broadcast_to(values, y.shape) for values in (share * total, share * relative, widening))
        none = np.zeros_like(y)
        return cls(index, rows.X, y - rows.prior_mean(constants), *each, none + 1.0, none > 0.0, none)

    def n_rows(self, k):
        """Number of observations that count for a target."""
        return int(self.n_each[k][self.weight[k] > 0.0].sum())


def held_out_rows(parameters, constants, table, random_state, n_rows=HELD_OUT_ROWS):
    """Random rows that are no inducing points; also others if these are few.

    The prediction of a row at an inducing point says little about new rows. All other rows are used, however near they
    are to a point: without those near points, the rest would be outliers. Repeated rows are used even at points: new
    rows will repeat them as well, and they may be the only ones that show the noise.
    """
    part, by_place = table.sample, any(map(nugget.in_kernel, parameters.log_kernels))
    if by_place:
        chosen = _one_of_each_place(part.X, n_rows, random_state)
        counts, repeated = part.weight[chosen], np.zeros((part.n_targets, len(chosen)), bool)
    else:
        chosen, counts = drawn(part.weight, n_rows, random_state)
        repeated = contradicted(part.X, part.y - part.added)[:, chosen]
    rows = part.rows(chosen)
    X = filled_up(rows.X, bucket(len(chosen)), value=0.0)
    is_point = among(X, points_in(parameters, constants.masks))
    y, weight, relative = weights_of(rows, parameters, rows.per_target)
    widening = np.divide(weight, relative, out=np.ones_like(weight), where=relative > 0.0)
    share = np.divide(counts, rows.weight, out=np.zeros(len(chosen)), where=rows.weight > 0.0)
    # Without other targets at the same X, a large weight says that a row matters, but not that it judges better.
    weight, n_each = weight * share, n_observations(rows.weight, repeated)
    weight = np.where(repeated, weight, np.minimum(weight, 1.0))
    y, left_out = y - rows.prior_mean(constants), relative / n_each
    apart = np.zeros_like(y)
    if by_place:
        mean, left_out = (each[:, chosen] for each in _means_of_places(part, parameters, constants))
        y, apart = mean, y - mean
    y, weight, left_out, widening, n_each, repeated, apart = (
        np.broadcast_to(filled_up(each, len(X), 1, value=last), (len(y), len(X)))
        for each, last in (
            (y, 0.0),
            (weight, 0.0),
            (left_out, 0.0),
            (widening, 1.0),
            (n_each, 0.0),
            (repeated, False),
            (apart, 0.0),
        )
    )
    counted = weight > 0.0
    away = ~is_point & counted
    some = away | (repeated & counted)
    enough = away.sum(1, keepdims=True) >= _FEWEST
    weight = np.where(some | ~enough, weight, 0.0)
    return HeldOutRows(chosen, X, y, weight, left_out, widening, n_each, repeated, apart)


def _one_of_each_place(X, n_rows, random_state):
    """Positions of random rows of X (N, D), in order, of which no two are equal: at most so many."""
    order, ends = shuffled(X, random_state)
    starts = np.concatenate([[0], ends[:-1]])
    return np.sort(order[starts + (random_state.uniform(size=len(ends)) * (ends - starts)).astype(int)][:n_rows])


def _means_of_places(table, parameters, constants):
    """For each row and target, the mean of y - prior_mean at its X, and the part of the diagonal of W there: (K, N)."""
    y, _, relative = weights_of(table, parameters, table.per_target)
    y, relative = y - table.prior_mean(constants), np.broadcast_to(relative, y.shape)
    order, start = grouped(table.X)
    sizes = np.diff(start, append=len(order))
    total, product = (np.add.reduceat(each[:, order], start, axis=1) for each in (relative, relative * y))
    found = np.empty((2, *y.shape))
    mean = np.divide(product, total, out=np.zeros_like(total), where=total > 0.0)
    found[:, :, order] = np.repeat(np.stack([mean, total]), sizes, axis=2)
    return found


def drawn(weight, n_rows, random_state):
    """Some rows, in order, and how often each was drawn; if there are few, all rows and their weights.

    Parameters
    ----------
    weight : ndarray of shape (N,)
    n_rows : int
        Number of draws; they are systematic, so that rows of equal weight are drawn at most once.
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


def left_out_of(system, k, log_noise):
    """Leave-one-out predictions of the held-out rows that count for the k-th target, at one factorisation.

    The system says how far y is from the mean at each of these rows, the variance s of the posterior there, one minus
    the leverage h (s times the precision that is left out), and the prior variance that the points do not explain.
    Without what is left out the error is the difference divided by 1 - h, and its variance residual + s / (1 - h) plus
    the noise.

    Parameters
    ----------
    system : OnPoints, exact.Process or Scaled
    k : int
    log_noise : float

    Returns
    -------
    counted : ndarray of shape (C,)
        Positions of the rows that count.
    error, variance : ndarray of shape (C,)
    rest : ndarray of shape (C,)
        One minus the leverage.
    """
    held, counted = system.held, np.flatnonzero(system.held.weight[k])
    difference, own, rest, residual = system.at(k, log_noise, counted)
    noise = np.exp(log_noise) * held.widening[k, counted]
    return counted, difference / rest + held.apart[k, counted], residual + own / rest + noise, rest


def left_out_rows(system, log_noise, width):
    """The `LeftOut` of a system's held-out rows."""
    held, (error, variance) = system.held, np.full((2, *np.shape(system.held.y)), np.nan)
    for k in range(len(error)):
        counted, *found, _ = left_out_of(system, k, log_noise[k])
        error[k, counted], variance[k, counted] = found
    noise = np.exp(log_noise)[:, None] * held.widening
    # Of copies nothing is left: they are one observation.
    part = np.where(held.repeated, held.left_out, np.inf)
    # The latent variance of a row at an inducing point may round below zero, and is clipped.
    of_rows = held.X, error, np.maximum(variance - noise, 0.0), noise, held.weight, held.n_each
    return LeftOut(*of_rows, width, held.y + held.apart, part)


def left_out_of_model(moments_of, parameters, constants, table, random_state, n_rows):
    """Leave-one-out predictions by a model whose q need not be the best one.

    The errors are those of the model. The leverages are those of the best q on all of its points: whatever the state of
    training, these are below one and sum to at most the number of points.

    Parameters
    ----------
    moments_of : callable
        Takes rows (B, D); returns latent means and variances (K, B) without offsets.
    parameters : Parameters
        With all points, mean-only ones included, in one set.
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
    held = held_out_rows(parameters, constants, gathered(table, n_processes), random_state, n_rows)
    system = OnPoints.of(sums, parameters, prior, held)
    mean, var = moments_of(held.X)
    # Without the prior mean, which ``held.y`` is given around: with the offsets of rows.
    system = _OfModel(system, mean - np.asarray(constants.prior_mean), var)
    return left_out_rows(system, np.ravel(parameters.raw_likelihood.variance), widths(table))


def widths(table):
    """The width to which each target is rounded, or zero: (K,)."""
    return np.array([rounding_width(each) for each in table.sample.y])


def rounding_width(y):
    """The distance between neighbouring values of a rounded target (N,); zero if it is not rounded.

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
    # Numbers that differ by floating-point rounding count as one.
    first = np.concatenate([[True], np.diff(values) > _PRECISION * (values[-1] - values[0])])
    counts, values = np.add.reduceat(counts, np.flatnonzero(first)), values[first]
    repeated = counts > 1
    if np.count_nonzero(repeated) < 2 or counts[repeated].sum() < _REPEATED * len(y):
        return 0.0
    usual = values[repeated & (counts > _USUAL * (counts**2).sum() / counts.sum())]
    # If one value has almost all rows, no others are usual: use all repeated values.
    usual = usual if len(usual) > 1 else values[repeated]
    found = float(np.diff(usual).min())
    steps = (values - usual[0]) / found
    on_grid = np.abs(steps - np.rint(steps)) < _TOLERANCE
    return found if counts[on_grid].sum() >= _ON_GRID * len(y) else 0.0
