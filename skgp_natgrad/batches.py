"""The rows of a fit, and the minibatches drawn from them."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from .objectives import Batch

STEPS_PER_CALL = 20

# Sizes to which the rows of a full batch, and the points of a small table, are padded. The
# first three lie off the round numbers: the folds of a table and the table itself then
# usually share one, and with it the compiled program.
_BUCKETS = (60, 304, 640, 1024)


class Rows(NamedTuple):
    """A weighted table: X (N, D), y (T, N), weight (N,)."""

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray


def bucket(n):
    """Return the padded size for ``n`` rows or points."""
    for size in _BUCKETS:
        if n <= size:
            return size
    return 1 << int(n - 1).bit_length()


def batch_size_for(n_rows, batch_size):
    """Return the number of rows of every batch, padding included."""
    return min(batch_size, bucket(n_rows))


def is_full(n_rows, batch_size):
    """Whether one batch holds the whole table."""
    return n_rows <= batch_size_for(n_rows, batch_size)


def padded(rows, size, n_columns=0):
    """The rows as one batch, filled up to ``size`` with rows of weight zero."""
    padding = size - len(rows.weight)
    return Batch(
        np.pad(rows.X, ((0, padding), (0, 0))),
        np.pad(rows.y, ((0, 0), (0, padding)), mode="edge"),
        np.pad(rows.weight, (0, padding)),
        np.arange(n_columns),
    )


def iterate_batches(rows, batch_size, n_mean, n_columns, random_state):
    """Yield `Batch` objects with a leading axis: for one call of compiled steps each.

    The full batch is one batch, with all columns. Otherwise rows are drawn without
    replacement, and reshuffled when all were seen, and ``n_columns`` of the
    ``n_mean`` columns of the mean-only points' covariance for each batch.
    """
    n_rows = len(rows.weight)
    size = batch_size_for(n_rows, batch_size)
    if is_full(n_rows, batch_size):
        full = jax.device_put(jax.tree.map(lambda x: x[None], padded(rows, size, n_mean)))
        while True:
            yield full
    stream = np.empty(0, dtype=int)
    needed = STEPS_PER_CALL * size
    while True:
        while len(stream) < needed:
            stream = np.concatenate([stream, random_state.permutation(n_rows)])
        index, stream = stream[:needed].reshape(STEPS_PER_CALL, size), stream[needed:]
        columns = np.argsort(random_state.random_sample((STEPS_PER_CALL, n_mean)), axis=1)[:, :n_columns]
        yield Batch(rows.X[index], np.moveaxis(rows.y[:, index], 0, 1), rows.weight[index], columns)
