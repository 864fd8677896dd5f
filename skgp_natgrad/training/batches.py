"""The rows of a fit, and the minibatches drawn from them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from .._backend import placement
from .._backend import rows as _rows
from .._backend.device import quick_jit
from .._backend.repeated import grouped
from .._backend.rows import filled_up
from .._backend.types import Floats, NDArray
from ..step.chunk import STEPS_PER_CALL
from ..variational.model import Batch, Constants
from . import windows

# Sizes to which the rows of a full batch, and the points of a small table, are padded. The
# first three avoid round numbers: a table and its folds then usually share one size, and
# with it the compiled program.
_BUCKETS = (60, 304, 640, 1024)


def _is_constant(y):
    """Whether a target (N,) has one value where it is not missing."""
    return np.nanmin(y) == np.nanmax(y)


class Table(NamedTuple):
    """A weighted table in memory; `LongTable` is one that is read by blocks, and has the same methods.

    Attributes
    ----------
    X : ndarray of shape (N, D)
    y : ndarray of shape (T, N)
        A target that is NaN is missing.
    weight : ndarray of shape (N,)
    offset : ndarray of shape (K, N), optional
        Known parts of the latent functions, which are added to them.
    known : ndarray of shape (P T, N), optional
        What else is known of the rows, as variances of Gaussian noise: see `likelihoods.Likelihood.given`.
    mean_function : ndarray of shape (K, N), optional
        Latent values, as of another classifier, that count in class probabilities alone: see `Calibration`.

    Examples
    --------
    >>> import numpy as np
    >>> from skgp_natgrad import svgp
    >>> table = svgp.Table(np.zeros((5, 2)), np.zeros((1, 5)), np.ones(5))
    >>> table.n_rows, table.n_columns, table.n_targets
    (5, 2, 1)
    """

    X: Floats
    y: Floats
    weight: Floats
    offset: Floats | None = None
    known: Floats | None = None
    mean_function: Floats | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.weight)

    @property
    def n_columns(self) -> int:
        """Number of columns of X."""
        return self.X.shape[1]

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return len(self.y)

    @property
    def total_weight(self) -> float:
        """Sum of the rows' weights."""
        return float(self.weight.sum())

    @property
    def has_offset(self) -> bool:
        """Whether parts of the latent functions are known."""
        return self.offset is not None

    @property
    def added(self) -> Floats:
        """What is added to the latent functions: the offset, or zeros for each target."""
        return np.zeros_like(self.y) if self.offset is None else self.offset

    @property
    def has_known(self) -> bool:
        """Whether something else is known of the rows."""
        return self.known is not None

    @property
    def y_is_constant(self) -> bool:
        """Whether each target has one value in all rows."""
        return all(map(_is_constant, self.y))

    @property
    def has_constant_y(self) -> bool:
        """Whether some target has one value in all rows."""
        return any(map(_is_constant, self.y))

    @property
    def n_distinct(self) -> int:
        """Number of distinct rows of X."""
        return len(grouped(self.X)[1])

    @property
    def sample(self) -> Table:
        """The rows for computations that need only some; of a table in memory all."""
        return self

    @property
    def starts(self) -> NDArray[np.intp]:
        """The first row of each block."""
        return np.arange(0, self.n_rows, _rows.BLOCK_ROWS)

    def check_shapes(self) -> None:
        """Raise ValueError if the arrays do not belong to the same rows."""
        if not np.shape(self.y)[1:] == np.shape(self.weight) == np.shape(self.X)[:1]:
            raise ValueError(
                f"Table: X {np.shape(self.X)}, y {np.shape(self.y)} and weight {np.shape(self.weight)} must have the "
                "shapes (N, D), (T, N) and (N,)."
            )

    def rows(self, index: Any) -> Table:
        """The table of some rows."""
        return Table(self.X[index], *(None if each is None else each[..., index] for each in self[1:]))

    def blocks(self, size: int) -> Iterator[Table]:
        """Tables of at most ``size`` successive rows each, until there are no more."""
        return (self.rows(slice(start, start + size)) for start in range(0, self.n_rows, size))

    def mapped(self, function: Callable[[Table], Table]) -> Table:
        """The table that ``function`` makes of this one; it must treat each row alone."""
        return function(self)

    def in_memory(self) -> Table:
        """The table in memory."""
        return self

    def reader(self) -> windows.InMemory:
        """What gives the rows of minibatches: see `windows.ReadAhead`."""
        return windows.InMemory(self)

    def prior_mean(self, constants: Constants) -> Floats:
        """The prior mean at the rows: (K, 1) or (K, N)."""
        prior_mean = np.asarray(constants.prior_mean)
        return prior_mean if self.offset is None else prior_mean + self.offset

    @property
    def per_target(self) -> bool:
        """Whether the rows' weights differ between targets: some are missing, or more is known of them."""
        return self.known is not None or bool(np.isnan(self.y).any())

    def target(self, k: int) -> Table:
        """The table of one target: the rows in which it is not missing."""
        rows = self.rows(~np.isnan(self.y[k]))
        return rows._replace(y=rows.y[k : k + 1], known=None if self.known is None else rows.known[k :: len(self.y)])

    @property
    def filled_y(self) -> Floats:
        """The targets, with missing ones replaced by the observed ones in turn; a target without any, by all others."""
        of_all = self.y[~np.isnan(self.y)]
        seen = (y[~np.isnan(y)] for y in self.y)
        others = (np.resize(own if own.size else of_all, self.n_rows) for own in seen)
        return np.stack([np.where(np.isnan(y), other, y) for y, other in zip(self.y, others, strict=True)])


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
    y, offset, known = (
        None if each is None else filled_up(each, size, -1) for each in (rows.y, rows.offset, rows.known)
    )
    X, weight = (filled_up(each, size, value=0.0) for each in (rows.X, rows.weight))
    return Batch(X, y, weight, np.arange(n_columns), np.zeros(()), offset, known)


@quick_jit
def first(batches):
    """The first of the batches that `BatchStream` yields together."""
    return jax.tree.map(lambda x: x[0], batches)


def noise_correlation(n_rows, size, seen):
    """The correlation between the noise of one batch's mean and the next one's, for rows drawn without replacement.

    Rows come from one random permutation after another. Two rows of the same permutation
    exclude each other, so that their covariance is -S^2 / N, where S^2 is the variance of
    the rows; rows of different permutations are independent.

    Parameters
    ----------
    n_rows : int
        More than ``size``.
    size : int
    seen : int array
        Number of rows of the batch's first permutation that were drawn before the batch.

    Returns
    -------
    correlation : array
        The covariance of the two means divided by the variance of the first, in [-1, 0].
    """
    first = np.minimum(size, n_rows - seen)
    second = size - first
    shared = np.minimum(size, (-seen - size) % n_rows) * np.where(second > 0, second, first)
    return -shared / (n_rows * size - first**2 - second**2)


class StreamPosition(NamedTuple):
    """The state of a stream, which determines its next batches: rows already drawn, remaining blocks, random state."""

    upcoming: np.ndarray
    blocks: np.ndarray
    random_state: dict | None


class BatchStream:
    """Endless iterator over `Batch` objects with a leading axis, each for one call of compiled steps.

    The full batch is one batch, with all columns. Otherwise rows are drawn without
    replacement, and reshuffled when all have been seen (of a long table window by window, see
    `windows`); each batch also draws ``n_columns`` of the ``n_mean`` columns of the mean-only points'
    covariance.

    Attributes
    ----------
    full : bool
        Whether each batch is the whole table.
    """

    def __init__(self, rows, batch_size, n_mean, n_columns, random_state):
        self.n_mean, self.n_columns, self.random_state = n_mean, n_columns, random_state
        self.size = batch_size_for(rows.n_rows, batch_size)
        self.full = is_full(rows.n_rows, batch_size)
        self.rows = rows.in_memory() if self.full else rows
        self.reader = self.rows.reader()
        self._order = windows.Order(self.rows)
        self.upcoming, self.blocks = np.empty(0, dtype=int), np.empty(0, dtype=int)
        # The batches that `next` will return; and whether the reader knows which rows come next.
        self._prepared, self._named = None, False

    def close(self):
        """End reading ahead."""
        self.reader.close()

    def __iter__(self):
        return self

    def __next__(self):
        if self.full:
            return self._whole
        self.prepare()
        (_, batch), self._prepared = self._prepared, None
        return batch

    def prepare(self):
        """Draw the batches that `next` will return, and start to send them while the device is busy."""
        if not self.full and self._prepared is None:
            self._prepared = self.position, placed(self._drawn(), now=True)

    @property
    def position(self):
        """The `StreamPosition` before the batches that `next` will return."""
        if self._prepared is not None:
            return self._prepared[0]
        return StreamPosition(self.upcoming, self.blocks, self.random_state.get_state(legacy=False))

    def go_to(self, position):
        """Continue from an earlier position."""
        self._prepared, self.upcoming, self.blocks = None, position.upcoming, position.blocks
        self._named = False
        self.random_state.set_state(position.random_state)

    @functools.cached_property
    def _whole(self):
        return placed(jax.tree.map(lambda x: x[None], padded(self.rows, self.size, self.n_mean)), now=True)

    def _drawn(self):
        n_rows, needed = self.rows.n_rows, STEPS_PER_CALL * self.size
        left = len(self.upcoming) + self._order.n_rows(self.blocks)
        while len(self.upcoming) < needed:
            drawn, self.blocks = self._order.window(self.blocks, self.random_state)
            self.upcoming, self._named = np.concatenate([self.upcoming, drawn]), False
        if not self._named:
            self.reader.want(self.upcoming, self._order.next_blocks(self.blocks))
            self._named = True
        # For each batch: rows of the permutation that were drawn before the preceding batch.
        seen = (np.arange(-1, STEPS_PER_CALL - 1) * self.size - left) % n_rows
        index, self.upcoming = self.upcoming[:needed], self.upcoming[needed:]
        order = np.argsort(self.random_state.random_sample((STEPS_PER_CALL, self.n_mean)), axis=1)
        columns = order[:, : self.n_columns]
        correlation = noise_correlation(n_rows, self.size, seen)
        rows = self.reader.rows(index)
        X = rows.X.reshape(STEPS_PER_CALL, self.size, rows.n_columns)
        y, weight, offset, known = (None if each is None else self._by_batch(each) for each in rows[1:5])
        return Batch(X, y, weight, columns, correlation, offset, known)

    def _by_batch(self, values):
        """Values (..., rows) with a leading axis of batches."""
        return np.moveaxis(values.reshape(*values.shape[:-1], STEPS_PER_CALL, self.size), -2, 0)


def batch(table: Table) -> Batch:
    """Return all rows of a table as one batch; if the table is a part of a larger one, this is a minibatch.

    Parameters
    ----------
    table : Table

    Returns
    -------
    batch : Batch

    Examples
    --------
    >>> import numpy as np
    >>> from skgp_natgrad import svgp
    >>> X = np.linspace(-2, 2, 100)[:, None]
    >>> table = svgp.Table(X, np.sin(X.T), np.ones(100))
    >>> svgp.batch(table).X.shape
    (100, 1)
    >>> rows = np.random.default_rng(0).choice(100, size=20, replace=False)
    >>> minibatch = svgp.batch(svgp.Table(table.X[rows], table.y[:, rows], table.weight[rows]))
    >>> minibatch.X.shape, minibatch.y.shape
    ((20, 1), (1, 20))
    """
    return padded(table, len(table.weight))._replace(columns=None)


# Transfer of batches to the devices.

# The axis of the rows in each array of a batch, counted from the last.
_ROWS = Batch(X=-2, y=-1, weight=-1, columns=None, correlation=None, offset=-1, known=-1)


def placed(batch, now=False):
    """The batch, or several with leading axes, on the devices, filled up with rows of weight zero to equal shares."""
    where = placement.current()
    n_rows = batch.weight.shape[-1]
    size = where.rounded_up(n_rows)
    return where.rows(_longer(batch, size) if size > n_rows else batch, _ROWS, now)


def _longer(batch, size):
    """The batch of ``size`` rows, with its last row repeated with weight zero."""

    def longer(axis, table):
        return table if axis is None or table is None else filled_up(table, size, axis)

    longest = jax.tree.map(longer, _ROWS, batch, is_leaf=lambda x: x is None)
    return longest._replace(weight=filled_up(batch.weight, size, -1, value=0.0))
