"""Hyperparameters for the whole table: those under which its rows are predicted best from their neighbours.

Some random rows are farther apart than the rows of the whole table. Their evidence therefore chooses lengthscales that
are too long, and kernels that are too smooth, for the whole table. The density of a row given its m nearest among all
rows is cheap (Vecchia 1988; Datta, Banerjee, Finley and Gelfand 2016):

    mean = k^T a,  variance = k_xx + s^2 - k^T b,  a = C^-1 y,  b = C^-1 k,  C = K(neighbours) + s^2 I

Its gradient needs no derivative of a factorisation. With the slopes g of the mean and h of the variance,

    d C = -g (a b^T + b a^T) / 2 + h b b^T,    d k = g a - 2 h b,    d k_xx = h

is pulled back through the kernel only.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import numpy as np

from .._backend.device import wide_jit
from .._backend.flat import flat, rebuilt
from .._backend.rows import filled_up
from ..neighbours.conditional import ABSENT
from .evidence import LOG_2PI, Best, Hyperparameters
from .minimum import GAIN, minimised
from .neighbours import covariances, nearest, of_neighbours
from .restarts import distinct, places

# Rows that are treated at a time: their covariances are computed, factorised and pulled back. With 100 an evaluation of
# 400 rows took .75 to .9 of the time that it took with 50, with 200 a little less; but the starts are compared by 100.
_BLOCK_ROWS = 100
# Most iterations of L-BFGS: to the end some hundred rows overfit.
_ITERATIONS = 14
# Factors of lengthscales and noise that give further starts, and the number of rows that compares the starts.
_SHORTER, _LESS_NOISE = (1.0, 0.3, 0.1, 0.03), (1.0, 0.1)
_ROWS_OF_STARTS = 100


class Rows(NamedTuple):
    """Rows (B, D), their neighbours (B, m, D), and of both the targets, weights and known noise variances."""

    x: np.ndarray
    X: np.ndarray
    # (B, T) and (B, m, T)
    y: np.ndarray
    y_near: np.ndarray
    # (B,) and (B, m)
    weight: np.ndarray
    weight_near: np.ndarray
    known: np.ndarray
    known_near: np.ndarray

    @classmethod
    def of(cls, hyperparameters, table, judges, n_neighbours):
        """The rows ``judges`` of a table, each with the neighbours that explain most of its prior variance."""
        index = judges.index
        near = nearest(hyperparameters, table, judges, n_neighbours)
        weight = np.where(table.weight > 0.0, table.weight, 1.0)
        y = np.moveaxis(table.y[:, near], 0, -1)
        of_near = np.where(near >= 0, weight[near], 1.0 / ABSENT)
        # Known variances are those of a single target.
        (known,) = np.zeros((1, len(table.X))) if table.known is None else table.known
        x, X, of_rows = table.X[index], table.X[near], table.y[:, index].T
        return cls(x, X, of_rows, y, weight[index], of_near, known[index], known[near])

    def blocks(self):
        """Parts of the rows, small enough that their covariances stay in the cache.

        The last one is filled up by rows without weight: for another size programs would be compiled anew.
        """
        for start in range(0, len(self.x), _BLOCK_ROWS):
            part = Rows(*(each[start : start + _BLOCK_ROWS] for each in self))
            weight = filled_up(part.weight, _BLOCK_ROWS, value=0.0)
            yield Rows(*(filled_up(each, _BLOCK_ROWS) for each in part))._replace(weight=weight)


def value_and_gradient(hyperparameters, rows):
    """The mean log density of rows given their neighbours, summed over the targets, and its gradient.

    Parameters
    ----------
    hyperparameters : Hyperparameters
    rows : Rows
        The noise variance of a row, known or not, is divided by its weight.

    Returns
    -------
    value : float
        In nats; minus infinity if a covariance has no inverse in double precision.
    gradient : Hyperparameters
    """
    parts = []
    for block in rows.blocks():
        parts.append(_of_block(hyperparameters, block))
        if not np.isfinite(parts[-1][0]):
            return -np.inf, jax.tree.map(np.zeros_like, hyperparameters)
    values, gradients = zip(*parts, strict=True)
    n_rows = len(rows.x)
    return sum(values) / n_rows, jax.tree.map(lambda *each: sum(each) / n_rows, *gradients)


def _of_block(hyperparameters, rows):
    """The sum of the log densities of some rows, and its gradient."""
    kernel, noise = hyperparameters.kernel, float(np.exp(hyperparameters.noise))
    among, across, prior = (np.array(each, float) for each in covariances(kernel, rows.x, rows.X))
    places = np.arange(among.shape[1])
    among[:, places, places] += (noise + rows.known_near) / rows.weight_near
    try:
        solved = np.linalg.solve(among, np.concatenate([rows.y_near, across[..., None]], axis=2))
    except np.linalg.LinAlgError:
        return -np.inf, None
    a, b = solved[..., :-1], solved[..., -1]
    # The noise variance of a single observation, whatever the row's weight.
    variance = prior + noise + rows.known - (across * b).sum(1)
    errors = rows.y - np.einsum("bm,bmt->bt", across, a)
    n_targets, squares = errors.shape[1], (errors * errors).sum(1)
    if not (np.all(np.isfinite(squares)) and np.all(variance > 0.0)):
        return -np.inf, None
    # Each row counts by its weight, at most as one.
    counts = np.minimum(rows.weight, 1.0)
    value = -0.5 * float(counts @ (n_targets * (LOG_2PI + np.log(variance)) + squares / variance))
    of_variance = 0.5 * counts * (squares / variance - n_targets) / variance
    a = np.einsum("bmt,bt->bm", a, errors * (counts / variance)[:, None])
    of_among = (of_variance[:, None] * b - 0.5 * a)[:, :, None] * b[:, None] - 0.5 * b[:, :, None] * a[:, None]
    of_across = a - 2.0 * of_variance[:, None] * b
    gradient = _pull_back(kernel, rows.x, rows.X, (of_among, of_across, of_variance))
    of_noise = noise * ((of_among[:, places, places] / rows.weight_near).sum() + of_variance.sum())
    return value, Hyperparameters(jax.tree.map(np.asarray, gradient), np.asarray(of_noise))


@wide_jit
def _pull_back(kernel, x, X, cotangents):
    """The gradient in the kernel's log hyperparameters, from those in the covariances of rows and neighbours."""
    return jax.vjp(lambda logs: of_neighbours(logs, x, X), kernel)[1](cotangents)[0]


def starts_near(start, n_columns):
    """The start, and others with shorter lengthscales and less noise: few rows take fast variation for noise."""
    every = places(start.kernel, np.arange(n_columns), of_combinations=True)
    lengths = [place.at for _, name, place in every if name == "length_scale"]
    for shorter, less in itertools.product(np.log(_SHORTER), np.log(_LESS_NOISE)):
        x = flat(start.kernel)
        for at in lengths:
            x[at] += shorter
        yield Hyperparameters(rebuilt(x, start.kernel), start.noise + less)


def maximise(start, bounds, table, judges, n_neighbours, log_prior, starts=None):
    """The hyperparameters that maximise the density of rows given their neighbours, times the prior density.

    Parameters
    ----------
    start : Hyperparameters
        The neighbours are found under it.
    bounds : tuple of Hyperparameters
        Lower and upper.
    table : Table
    judges : neighbours.Judges
        The rows.
    n_neighbours : int
    log_prior : callable
        See `evidence.maximise`.
    starts : sequence of Hyperparameters, optional
        The search begins at the one that suits some rows best; default: `starts_near` the start.

    Returns
    -------
    best : Best
        With the log density of these rows in place of the evidence.
    """
    low, high = map(flat, bounds)
    rows = Rows.of(start, table, judges, n_neighbours)

    def loss(x, rows=rows):
        value, gradient = value_and_gradient(rebuilt(x, start), rows)
        if not np.isfinite(value):
            return np.inf, np.zeros_like(x)
        prior, slope = log_prior(x)
        n_rows = len(rows.x)
        return -prior - n_rows * value, np.where(low < high, -slope - n_rows * flat(gradient), 0.0)

    some = Rows(*(each[:_ROWS_OF_STARTS] for each in rows))
    starts = starts_near(start, rows.X.shape[-1]) if starts is None else starts
    starts = distinct([np.clip(flat(each), low, high) for each in starts])
    starts.sort(key=lambda x: loss(x, some)[0])
    # Where noise is small, a covariance of the other rows may have no inverse under the best start of some.
    possible = (each for each in ((x, loss(x)) for x in starts) if np.isfinite(each[1][0]))
    x0, at_start = next(possible, (None, None))
    if x0 is None:
        return Best(start, -np.inf)
    x, value, _ = minimised(loss, x0, low, high, at_start, gain=GAIN * len(table.y), max_iter=_ITERATIONS)
    return Best(rebuilt(x, start), -log_prior(x)[0] - value)
