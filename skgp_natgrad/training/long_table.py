"""A table that is read by blocks, as it may not fit in memory: the methods of `Table`, and a bounded sample."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from .._backend import rows as _rows
from .._backend.types import Floats, NDArray
from . import windows
from .batches import Table

# Rows of the sample from which the start is chosen, and by which the end is judged.
SAMPLE_ROWS = 1 << 16


class LongTable:
    """A weighted table whose rows are read when they are needed; see `Table` for its properties.

    Parameters
    ----------
    read : callable
        ``read(start, stop)`` returns a `Table` of the given rows from ``start`` to ``stop``, without unused rows;
        whether a row is used must depend only on this row. It is called from another thread.
    n_given : int
        Number of given rows.

    Attributes
    ----------
    facts : Facts
        What a first pass over the rows has found.
    n_rows : int
        Number of used rows.
    starts : ndarray of shape (n_blocks,)
        The first used row of each block.

    Examples
    --------
    >>> import numpy as np
    >>> from skgp_natgrad import svgp
    >>> X = np.linspace(-2, 2, 10_000)[:, None]
    >>> def read(start, stop):
    ...     part = X[start:stop]
    ...     return svgp.Table(part, np.sin(part.T), np.ones(len(part)))
    >>> table = svgp.LongTable(read, len(X))
    >>> table.n_rows, table.total_weight
    (10000, 10000.0)
    >>> [part.n_rows for part in table.blocks(4000)]
    [4000, 4000, 2000]
    """

    n_rows: int
    starts: NDArray[np.intp]

    def __init__(self, read: Callable[[int, int], Table], n_given: int) -> None:
        self.facts = Facts(read, n_given)
        self._source, self._functions = _Source(read, self.facts.counts, n_given), ()
        ends = np.cumsum(self.facts.counts)
        self.starts, self.n_rows = np.concatenate([[0], ends[:-1]]), int(ends[-1])

    n_columns = property(lambda self: len(self.facts.lowest[0]), doc="Number of columns of X.")
    n_targets = property(lambda self: len(self.facts.lowest[1]), doc="Number of targets.")
    total_weight = property(lambda self: self.facts.total_weight, doc="Sum of the rows' weights.")
    has_offset = property(lambda self: self.facts.has_offset, doc="Whether parts of the latent functions are known.")
    has_known = property(lambda self: self.facts.has_known, doc="Whether more is known of the rows.")

    @property
    def per_target(self) -> bool:
        """Whether the rows' weights differ between targets: some are missing, or more is known of them."""
        return self.has_known or bool(self.facts.missing.any())

    @property
    def extremes(self) -> Table:
        """A `Table` of two rows, the least and the largest value of each column."""
        X, y = (np.stack(each) for each in zip(self.facts.lowest, self.facts.highest, strict=True))
        offset = np.zeros((self.n_targets, 2)) if self.has_offset else None
        # Of a target that is missing in all rows nothing is known.
        y = np.where(y[:1] > y[1:], np.nan, y)
        return self._made(Table(X, y.T.copy(), np.ones(2), offset))

    @property
    def y_is_constant(self) -> bool:
        """Whether each target has one value in all rows."""
        return self.extremes.y_is_constant

    def check_shapes(self) -> None:
        """Every table that is read has the shapes of one."""

    @property
    def n_distinct(self) -> int:
        """The largest number of distinct rows of X that there may be."""
        return self.n_rows

    def mapped(self, function: Callable[[Table], Table]) -> LongTable:
        """The table whose rows are what ``function`` makes of this one's as they are read; it must treat each alone."""
        found = object.__new__(type(self))
        vars(found).update(vars(self), _functions=(*self._functions, function))
        vars(found).pop("sample", None)
        return found

    def _made(self, table):
        for function in self._functions:
            table = function(table)
        return table

    def block_of(self, index: Any) -> NDArray[np.intp]:
        """The block of each row."""
        return np.searchsorted(self.starts, index, side="right") - 1

    def block(self, number: int) -> Table:
        """The `Table` of a block."""
        return self._made(self._source.block(number))

    def blocks(self, size: int | None = None) -> Iterator[Table]:
        """Tables of ``size`` successive rows each, the last one of fewer; the next is read while one is used."""
        size, held = size or _rows.BLOCK_ROWS, []
        for block in _rows.ahead(self.block, np.flatnonzero(self._source.counts).tolist()):
            held.append(block)
            if sum(part.n_rows for part in held) >= size:
                *full, last = windows.joined(held).blocks(size)
                yield from full
                held = [last]
                if last.n_rows == size:
                    yield held.pop()
        if held:
            yield windows.joined(held)

    def rows(self, index: Any) -> Table:
        """The `Table` of some rows."""
        return self._made(self._given(np.asarray(index)))

    def _given(self, index):
        """Some rows as they are given."""
        return windows.gathered(self._source.block, index, self.block_of(index), self.starts)

    @functools.cached_property
    def sample(self) -> Table:
        """A random part in memory, for everything that needs only some rows; it is read in one pass."""
        if self._source.sample is None:
            # Its own random numbers, drawn without a permutation of all rows.
            size = min(SAMPLE_ROWS, self.n_rows)
            index = np.random.default_rng(0).choice(self.n_rows, size, replace=False, shuffle=False)
            self._source.sample = self._given(np.sort(index))
        return self._made(self._source.sample)

    @property
    def filled_y(self) -> Floats:
        """Targets of the sample, missing ones filled as in `Table`, and the extreme values of all rows."""
        y, ends = self.sample.y, self.extremes.y
        unseen = np.isnan(y).all(1)[:, None]
        known = self.sample._replace(y=np.where(unseen, ends[:, :1], y))
        return np.concatenate(
            [known.filled_y, known._replace(X=known.X[:2], y=ends, weight=np.ones(2)).filled_y], axis=1
        )

    def in_memory(self) -> Table:
        """The `Table` of all rows."""
        return windows.joined(list(self.blocks()))

    def reader(self) -> windows.ReadAhead:
        """What gives the rows of minibatches."""
        return windows.ReadAhead(self)


AnyTable: TypeAlias = Table | LongTable


class _Source:
    """The rows as they are given, and the sample of them, which all tables made of these share."""

    def __init__(self, read, counts, n_given):
        self.read, self.counts, self.n_given, self.sample = read, counts, n_given, None

    def block(self, number):
        start = number * _rows.BLOCK_ROWS
        return self.read(start, min(start + _rows.BLOCK_ROWS, self.n_given))


# Facts of a long table, collected in one pass over its rows.


class Facts:
    """Facts of all used rows, from one pass over blocks of them.

    Parameters
    ----------
    read, n_given
        As of `LongTable`.

    Attributes
    ----------
    counts : ndarray of shape (n_blocks,)
        Number of used rows in each block.
    total_weight, heaviest : float
        Sum of the weights, and the largest one.
    lowest, highest : tuple of ndarray
        Least and largest values of the columns of X (D,) and of the targets (T,).
    is_whole : tuple of ndarray of bool
        Whether all values of these columns are integers.
    missing : ndarray of shape (T,), bool
        Whether a target is missing in some row.
    has_offset, has_known : bool
    """

    def __init__(self, read, n_given):
        self.total_weight = self.heaviest = 0.0
        self.has_offset = self.has_known = False
        self.lowest = self.highest = self.is_whole = self.missing = None
        self.counts = np.array([self._add(part) for part in _rows.ahead(lambda at: read(*at), _rows.slices(n_given))])

    def _add(self, part):
        """Count a block; return the number of its rows."""
        missing = np.isnan(part.y).any(1)
        if self.missing is None:
            shape = part.n_columns, part.n_targets
            self.has_offset, self.has_known = part.has_offset, part.has_known
            self.lowest, self.highest = (tuple(np.full(n, end) for n in shape) for end in (np.inf, -np.inf))
            self.is_whole, self.missing = tuple(np.ones(n, bool) for n in shape), missing
        if part.n_rows:
            self.total_weight += float(part.weight.sum())
            self.heaviest = max(self.heaviest, float(part.weight.max()))
            tables = part.X, part.y.T
            self.lowest = tuple(
                np.fmin(end, np.fmin.reduce(each)) for end, each in zip(self.lowest, tables, strict=True)
            )
            self.highest = tuple(
                np.fmax(end, np.fmax.reduce(each)) for end, each in zip(self.highest, tables, strict=True)
            )
            whole = (np.all((each == np.rint(each)) | np.isnan(each), axis=0) for each in tables)
            self.is_whole = tuple(map(np.logical_and, self.is_whole, whole))
            self.missing = self.missing | missing
        return part.n_rows
