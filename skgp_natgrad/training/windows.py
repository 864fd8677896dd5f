"""The order of rows in minibatches, and reading them ahead.

Rows are drawn without replacement. Of a table of up to ``WINDOW_ROWS`` rows each epoch is one random
permutation. A longer table is read by blocks of ``BLOCK_ROWS`` successive rows: an epoch puts the blocks
in random order and takes some of them at a time, a window, whose rows are permuted as a whole. The order depends only
on the number of rows, and is the same in memory and on a disk.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from .._backend import rows as _rows


class Order:
    """The random order of a table's rows, window by window.

    Parameters
    ----------
    table : Table or LongTable
    """

    def __init__(self, table):
        self._ends = np.append(table.starts[1:], table.n_rows)
        self._starts, self._whole = table.starts, table.n_rows <= _rows.WINDOW_ROWS
        self._per_window = len(self._starts) if self._whole else max(_rows.WINDOW_ROWS // _rows.BLOCK_ROWS, 1)

    def n_rows(self, blocks):
        """Number of rows of some blocks."""
        return int((self._ends[blocks] - self._starts[blocks]).sum())

    def next_blocks(self, blocks):
        """The blocks of the next window, if ``blocks`` are those that are left of the epoch."""
        n_windows = -(-len(blocks) // self._per_window)
        # Windows of about one size: a small one at the end would be shuffled less.
        return np.sort(blocks[: -(-len(blocks) // n_windows)]) if n_windows else blocks

    def window(self, blocks, random_state):
        """The rows of the next window, permuted, and the blocks that are left of the epoch, which may be a new one."""
        if not len(blocks):
            blocks = self._epoch(random_state)
        now = self.next_blocks(blocks)
        if self._whole:
            rows = np.arange(self._ends[-1])
        else:
            rows = np.concatenate([np.arange(self._starts[block], self._ends[block]) for block in now])
        rows, blocks = rows[random_state.permutation(len(rows))], blocks[len(now) :]
        # The next window is known early, so that it can be read.
        return rows, blocks if len(blocks) else self._epoch(random_state)

    def _epoch(self, random_state):
        n_blocks = len(self._starts)
        return np.arange(n_blocks) if self._whole else random_state.permutation(n_blocks)


class InMemory:
    """The rows of a table in memory."""

    waited = 0.0

    def __init__(self, table):
        self._table = table

    def want(self, index, blocks):
        """Name the rows and blocks that come next."""

    def rows(self, index):
        """The table of some rows."""
        return self._table.rows(index)

    def close(self):
        """Nothing is open."""


class ReadAhead:
    """The rows of a table that is read by blocks; those that come next are read in the background.

    Parameters
    ----------
    table : LongTable

    Attributes
    ----------
    waited : float
        Seconds in which rows were waited for.
    """

    def __init__(self, table):
        self._table, self._read, self.waited = table, {}, 0.0
        self._pool = ThreadPoolExecutor(1, "skgp_natgrad-rows")

    def want(self, index, blocks):
        """Name the rows that come next, and the blocks that follow; drop all others."""
        wanted = dict.fromkeys([*np.unique(self._table.block_of(index)).tolist(), *blocks.tolist()])
        for block in [block for block in self._read if block not in wanted]:
            self._read.pop(block).cancel()
        for block in wanted:
            if block not in self._read:
                self._read[block] = self._pool.submit(self._table.block, block)

    def rows(self, index):
        """The table of some rows, all of them wanted."""
        return gathered(self._block, index, self._table.block_of(index), self._table.starts)

    def _block(self, number):
        began = time.perf_counter()
        try:
            return self._read[number].result()
        finally:
            self.waited += time.perf_counter() - began

    def close(self):
        """End the background's work."""
        self._read.clear()
        self._pool.shutdown(wait=True, cancel_futures=True)


def gathered(block, index, numbers, starts):
    """The table of some rows, which lie in blocks of these numbers; ``block(number)`` is the table of one of them."""
    order = np.argsort(numbers, kind="stable")
    named, first = np.unique(numbers[order], return_index=True)
    each = zip(named.tolist(), np.split(order, first[1:]), strict=True)
    parts = [block(number).rows(index[of_block] - starts[number]) for number, of_block in each]
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return joined(parts).rows(back)


def joined(parts):
    """One table of the rows of several."""
    if len(parts) == 1:
        return parts[0]
    X = np.concatenate([part.X for part in parts])
    each = zip(*(part[1:] for part in parts), strict=True)
    rest = [None if column[0] is None else np.concatenate(column, axis=-1) for column in each]
    return type(parts[0])(X, *rest)
