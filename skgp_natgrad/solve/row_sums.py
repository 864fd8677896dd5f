"""The sums over the rows that q in closed form is made of, in one pass: see `closed_form`.

Of many points on one CPU they are formed in place (`_backend/in_place`), else by a program of XLA's.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._backend import in_place, placement
from .._backend.device import once_jit
from .._backend.linalg import weighted_gram
from .system import rows_of, whitened

_BLOCK_ROWS = 2048


class Sums(NamedTuple):
    """Sums over the rows, with their weights; one of a kind for all targets (H = 1) where that is right for all.

    Attributes
    ----------
    gram : array of shape (H, M, M)
        A W A^T.
    cross : array of shape (K, M)
        A W (y - prior_mean).
    square : array of shape (K,)
        (y - prior_mean)^T W (y - prior_mean).
    residual : array of shape (H,)
        The variance that the inducing points leave unexplained, times W.
    weight : array of shape (G,)
        The weights of the rows in which a target is not missing; one for all targets where none is.
    log_widening : array of shape (G,)
        These, times log(1 + a / s^2) for known variances a.
    """

    gram: jax.Array
    cross: jax.Array
    square: jax.Array
    residual: jax.Array
    weight: jax.Array
    log_widening: jax.Array

    def multiplied(self, factor):
        """The sums under kernels that are multiplied (J,): A grows by the root."""
        of_targets = np.broadcast_to(factor, len(self.cross))
        gram, cross = self.gram * factor[:, None, None], self.cross * of_targets[:, None] ** 0.5
        return self._replace(gram=gram, cross=cross, residual=self.residual * factor)


def sums_of(parameters, prior, constants, table):
    """The `Sums` over all rows of a table."""
    n_targets, n_points = table.n_targets, len(prior.points)
    n_each = n_targets if table.per_target else 1
    n_grams = max(len(prior.root), n_each)
    shapes = (n_grams, n_points, n_points), (n_targets, n_points), (n_targets,), (n_grams,), (n_each,), (n_each,)
    sums = Sums(*map(np.zeros, shapes))
    if in_place.pays(n_points, table.n_rows):
        return _sums_in_place(sums, parameters, prior, constants, table)
    where = placement.current()
    sums, shared = where.replicated(sums, now=True), where.replicated((parameters, prior))
    for block in _blocks(parameters, constants, table):
        # Calls that wait for the device would hold their rows.
        sums = _add_block(jax.block_until_ready(sums), *shared, *where.rows(block, (-2, -1, -1, -1)))
    return jax.tree.map(np.asarray, sums)


def _blocks(parameters, constants, table):
    """X, y - prior_mean, weights and diagonals of W, filled up to blocks of one size."""
    size = placement.current().block_size(table.n_rows, _BLOCK_ROWS)
    for rows in table.blocks(size):
        y, *weights = weights_of(rows, parameters, table.per_target)
        missing = size - rows.n_rows
        block = [np.pad(each, ((0, 0), (0, missing))) for each in (y - rows.prior_mean(constants), *weights)]
        yield np.pad(rows.X, ((0, missing), (0, 0))), *block


def weights_of(table, parameters, per_target):
    """The targets, zero where missing (T, N), the weights of each (G, N), and the diagonal of W (G, N)."""
    seen = ~np.isnan(table.y)
    y = np.where(seen, table.y, 0.0)
    if not per_target:
        return y, table.weight[None], table.weight[None]
    weight = np.where(seen, table.weight, 0.0)
    if table.known is None:
        return y, weight, weight
    variance = np.exp(np.asarray(parameters.raw_likelihood.variance)).reshape(-1, 1)
    return y, weight, weight / (1.0 + table.known / variance)


@functools.partial(once_jit, donate_argnames="sums")
def _add_block(sums, parameters, prior, X, y, weight, relative):
    rows = rows_of(parameters, prior, X, None)
    A, residual = jnp.stack([each.A for each in rows]), jnp.stack([each.residual for each in rows])
    of_kernels = jnp.broadcast_to(relative, (max(len(rows), len(relative)), relative.shape[-1]))
    gram = jnp.concatenate([weighted_gram(A[latents], of_kernels[of]) for latents, of in _pairs(rows)])
    # A row times the transpose takes XLA twenty times as long.
    cross = A @ (relative * y)[..., None]
    added = Sums(gram, cross[..., 0], *_of_rows(jnp, residual, y, weight, relative))
    return jax.tree.map(jnp.add, sums, added)


def _pairs(rows):
    """Slices of the kernels, and of the weights that go with each: all of them with a single kernel."""
    if len(rows) == 1:
        return [(slice(0, 1), slice(None))]
    return [(slice(j, j + 1),) * 2 for j in range(len(rows))]


def _of_rows(xp, residual, y, weight, relative):
    """The last four of the `Sums`, by JAX or NumPy."""
    widening = weight * xp.log(weight / xp.where(relative > 0.0, relative, weight))
    return (
        (relative * y * y).sum(1),
        (relative * residual).sum(1),
        weight.sum(1),
        xp.where(weight > 0.0, widening, 0.0).sum(1),
    )


def _sums_in_place(sums, parameters, prior, constants, table):
    """The `Sums`, added up in the arrays of ``sums``, by NumPy but for the covariances."""
    for X, y, weight, relative in _blocks(parameters, constants, table):
        A, residual = whitened(parameters.log_kernels, prior, X)
        for h, gram in enumerate(sums.gram):
            in_place.add_gram(gram, A[h % len(A)], relative[h % len(relative)])
        sums.cross[:] += (A @ (relative * y)[..., None])[..., 0]
        with np.errstate(divide="ignore", invalid="ignore"):
            rest = _of_rows(np, residual, y, weight, relative)
        for total, value in zip(sums[2:], rest, strict=True):
            total += value
    for gram in sums.gram:
        in_place.mirrored(gram)
    return sums
