"""A table that is read by blocks, since it need not fit in memory: the methods of `Table`, and a bounded sample."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from .._backend import rows as _rows
from . import windows
from .batches import Table

# Rows of the sample from which the start is chosen, and by which the end is judged.
SAMPLE_ROWS = 1 << 16


class Facts(NamedTuple):
    """What is known of all rows of a long table.

    Attributes
    ----------
    n_columns, n_targets : int
    total_weight, heaviest : float
        Sum of the weights, and the largest one.
    has_offset, has_noise, per_target, y_is_constant : bool
        As of `Table`.
    extremes : Table
        Two rows with the least and the largest value of each target.
    """

    n_columns: int
    n_targets: int
    total_weight: float
    heaviest: float
    has_offset: bool
    has_noise: bool
    per_target: bool
    y_is_constant: bool
    extremes: Table


class LongTable:
    """A weighted table whose rows are read when they are needed.

    Parameters
    ----------
    read : callable
        ``read(start, stop)`` returns the `Table` of those of the given rows that are used.
    counts : ndarray of shape (n_blocks,)
        How many rows of each block of ``BLOCK_ROWS`` given rows are used.
    n_given : int
        Number of given rows.
    facts : Facts
        What one pass over the rows has found.
    """

    def __init__(self, read, counts, n_given, facts):
        self._source = _Source(read, np.asarray(counts), int(n_given))
        self._functions, self.facts = (), facts
        ends = np.cumsum(counts)
        self.starts, self.n_rows = np.concatenate([[0], ends[:-1]]), int(ends[-1])

    n_columns = property(lambda self: self.facts.n_columns, doc="Number of columns of X.")
    n_targets = property(lambda self: self.facts.n_targets, doc="Number of targets.")
    total_weight = property(lambda self: self.facts.total_weight, doc="Sum of the rows' weights.")
    has_offset = property(lambda self: self.facts.has_offset, doc="Whether parts of the latent functions are known.")
    has_noise = property(lambda self: self.facts.has_noise, doc="Whether variances of the noise are known.")
    per_target = property(lambda self: self.facts.per_target, doc="As of `Table`.")
    y_is_constant = property(lambda self: self.facts.y_is_constant, doc="As of `Table`.")

    def check_shapes(self):
        """Every table that is read has the shapes of one."""

    @property
    def n_distinct(self):
        """The largest number of distinct rows of X that there may be."""
        return self.n_rows

    def mapped(self, function):
        """The table whose rows are what ``function`` makes of this one's as they are read; it must treat each alone."""
        found = object.__new__(type(self))
        vars(found).update(vars(self), _functions=(*self._functions, function))
        vars(found).pop("sample", None)
        return found

    def _made(self, table):
        for function in self._functions:
            table = function(table)
        return table

    def block_of(self, index):
        """The block of each row."""
        return np.searchsorted(self.starts, index, side="right") - 1

    def block(self, number):
        """The `Table` of a block."""
        return self._made(self._source.block(number))

    def blocks(self, size=None):
        """Tables of at most ``size`` successive rows each; the next block is read while one is used."""
        size = size or _rows.BLOCK_ROWS
        for block in _rows.ahead(self.block, np.flatnonzero(self._source.counts).tolist()):
            yield from block.blocks(size)

    def rows(self, index):
        """The `Table` of some rows."""
        return self._made(self._given(np.asarray(index)))

    def _given(self, index):
        """Some rows as they are given."""
        return windows.gathered(self._source.block, index, self.block_of(index), self.starts)

    @functools.cached_property
    def sample(self):
        """A random part in memory: what needs no more than some rows takes them from here, in one pass for all."""
        if self._source.sample is None:
            # Its own random numbers, drawn without a permutation of all rows.
            size = min(SAMPLE_ROWS, self.n_rows)
            index = np.random.default_rng(0).choice(self.n_rows, size, replace=False, shuffle=False)
            self._source.sample = self._given(np.sort(index))
        return self._made(self._source.sample)

    @property
    def filled_y(self):
        """Targets of the sample, missing ones filled as in `Table`, and the extreme values of all rows."""
        return np.concatenate([self.sample.filled_y, self._made(self.facts.extremes).y], axis=1)

    def in_memory(self):
        """The `Table` of all rows."""
        return windows.joined(list(self.blocks()))

    def reader(self):
        """What gives the rows of minibatches."""
        return windows.ReadAhead(self)


class _Source:
    """The rows as they are given, and the sample of them, which all tables made of these share."""

    def __init__(self, read, counts, n_given):
        self.read, self.counts, self.n_given, self.sample = read, counts, n_given, None

    def block(self, number):
        start = number * _rows.BLOCK_ROWS
        return self.read(start, min(start + _rows.BLOCK_ROWS, self.n_given))
