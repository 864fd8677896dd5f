"""Rows that are read a slice at a time: of NumPy memory maps, h5py, zarr and Dask arrays, and of arrays in memory.

A reader returns the rows from ``start`` to ``stop`` as a new array. The package uses tables that do not fit in memory
only through readers. No library is imported for them: a table needs ``shape``, ``dtype`` and slices.
"""

from __future__ import annotations

import itertools
import mmap
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import jax.numpy as jnp
import numpy as np
from scipy import sparse

# Rows that are read at once, and rows among which minibatches are shuffled: tables of up to so many are held in memory.
# A window has so many blocks that it is like the whole even where rows are sorted; q would follow each of few.
BLOCK_ROWS, WINDOW_ROWS = 1 << 11, 1 << 19
# Attributes of containers that hold their rows in memory, or on a device.
_IN_MEMORY = ("iloc", "columns", "__dataframe__", "__array_interface__", "__dlpack__")
# What a reader of files may raise when one is damaged.
_OF_READERS = (OSError, ValueError, RuntimeError, IndexError, KeyError, EOFError)


def is_file_like(table):
    """Whether a table is one whose rows are to be read by slices."""
    if isinstance(table, np.memmap):
        return table._mmap is not None and table.ndim > 0
    if isinstance(table, (np.ndarray, Rows)) or sparse.issparse(table) or isinstance(table, type):
        return False
    if any(hasattr(table, name) for name in _IN_MEMORY):
        return False
    kind, shape = getattr(table, "dtype", None), getattr(table, "shape", None)
    has_slices = hasattr(table, "__len__") and hasattr(table, "__getitem__")
    return has_slices and isinstance(kind, np.dtype) and isinstance(shape, tuple) and len(shape) > 0


def rows_of(name, table):
    """The `Rows` of a table: the argument's ``name`` is that of error messages.

    Raises
    ------
    ValueError
        If the number of rows is not known, as it may be with Dask.
    """
    if isinstance(table, Rows):
        return table
    if np.isnan(np.asarray(table.shape, dtype=float)).any():
        raise ValueError(
            f"{name} has the shape {table.shape}: the number of its rows is not known; call "
            f"{name}.compute_chunk_sizes() first."
        )
    if isinstance(table, np.memmap) and _is_in_its_file(name, table):
        return Filed(name, table)
    return Sliced(name, table)


def _is_in_its_file(name, table):
    """Whether the rows of a memory map can be read from the file of its name."""
    if table._mmap is None or table.filename is None or min(table.strides, default=1) <= 0:
        return False
    # What was written to a private copy of the pages is not in the file, and a file that was removed has no name.
    if table.mode == "c" or not os.path.exists(table.filename):
        return False
    ends = [slice(0, 1), slice(len(table) - 1, len(table))] if len(table) else []
    _refuse_short(Sliced(name, table), table, len(table))
    # Another file may have taken its name.
    return all(Filed(name, table).read(*end.indices(len(table))[:2]).tobytes() == table[end].tobytes() for end in ends)


class Rows:
    """Rows that are read by slices.

    Attributes
    ----------
    name : str
        Of the argument.
    shape : tuple of int
    dtype : numpy.dtype
    """

    def __init__(self, name, shape, dtype):
        self.name, self.shape, self.dtype = name, tuple(map(int, shape)), np.dtype(dtype)

    def __len__(self):
        return self.shape[0]

    @property
    def ndim(self):
        """Number of axes."""
        return len(self.shape)

    def read(self, start, stop):
        """The rows from ``start`` to ``stop`` as an array."""
        raise NotImplementedError

    def whole(self):
        """All rows as an array."""
        return self.read(0, len(self))


class Sliced(Rows):
    """Rows of an object that has ``shape``, ``dtype`` and slices: an array, an h5py dataset, a zarr or a Dask array."""

    def __init__(self, name, table):
        super().__init__(name, table.shape, table.dtype)
        self._table, self._place = table, _place_of(table)

    def read(self, start, stop):
        if isinstance(self._table, np.memmap):
            _refuse_short(self, self._table, stop)
        try:
            found = self._table[start:stop]
            is_masked = np.ma.is_masked(found)
            found = np.asarray(found)
        except _OF_READERS as error:
            raise _unreadable(self, start, stop, f"{type(error).__name__}: {error}") from error
        if is_masked:
            raise ValueError(
                f"{self.name}: values among the rows from {start} to {stop} are masked; leave the rows out, or store "
                "the values filled in."
            )
        if found.shape != (stop - start, *self.shape[1:]):
            raise _unreadable(self, start, stop, f"their shape is {found.shape}")
        return found


class Filed(Rows):
    """Rows of a NumPy memory map, read from its file.

    Pages of a mapping that were read count as memory of the process, and a page that is no longer in the
    file ends it by a signal; a file that is read gives an error instead.
    """

    def __init__(self, name, table):
        super().__init__(name, table.shape, table.dtype)
        self._place, self._strides = os.fspath(table.filename), table.strides
        self._start = _position_in_file(table)

    def read(self, start, stop):
        if stop <= start:
            return np.empty((0, *self.shape[1:]), self.dtype)
        lead, *within = self._strides
        if within and max(within) > lead:
            # Column by column, as in Fortran's order.
            columns = [self._range(start, stop, (), (), i * within[0]) for i in range(self.shape[1])]
            return np.stack(columns, axis=1)
        return self._range(start, stop, self.shape[1:], tuple(within), 0)

    def _range(self, start, stop, shape, strides, offset):
        """Rows of an array whose first element lies ``offset`` bytes behind that of the table."""
        lead = self._strides[0]
        span = lead * (stop - start - 1) + sum(s * (n - 1) for s, n in zip(strides, shape, strict=True))
        n_bytes, place = span + self.dtype.itemsize, self._start + offset + lead * start
        try:
            found = np.fromfile(self._place, dtype=np.uint8, count=n_bytes, offset=place)
        except OSError as error:
            raise _unreadable(self, start, stop, str(error)) from error
        if len(found) < n_bytes:
            raise _ends_early(self, self._start + offset, lead)
        return np.ndarray((stop - start, *shape), self.dtype, found, strides=(lead, *strides))


class Mapped(Rows):
    """Rows computed from those of other tables: ``function(*arrays)`` of each slice."""

    def __init__(self, function, *tables, shape, dtype=float):
        super().__init__(tables[0].name, shape, dtype)
        self._function, self._tables = function, tables

    def read(self, start, stop):
        return self._function(*(table.read(start, stop) for table in self._tables))


def mapped(function, *tables, shape, dtype=float):
    """``function(*tables)``: of arrays now, and of `Rows` as they are read."""
    return Mapped(function, *tables, shape=shape, dtype=dtype) if isinstance(tables[0], Rows) else function(*tables)


def ahead(function, items):
    """The values of a function at each item, in turn; the next one is computed while one is used."""
    items = iter(items)
    with ThreadPoolExecutor(1, "skgp_natgrad-rows") as pool:
        following = [pool.submit(function, item) for item in itertools.islice(items, 1)]
        while following:
            value = following.pop().result()
            following = [pool.submit(function, item) for item in itertools.islice(items, 1)]
            yield value


def slices(n_rows):
    """First and last row of each block, and of the last one what is left."""
    return ((start, min(start + BLOCK_ROWS, n_rows)) for start in range(0, n_rows, BLOCK_ROWS))


def filled_up(array, size, axis=0, value=None):
    """The array with ``size`` elements along an axis: those missing are ``value``, or copies of the last one.

    It is the array itself if none is missing.
    """
    missing = size - array.shape[axis]
    if not missing:
        return array
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, missing)
    pad = np.pad if isinstance(array, np.ndarray) else jnp.pad
    return pad(array, widths, mode="edge") if value is None else pad(array, widths, constant_values=value)


def release(table):
    """Let go of the pages of a memory map that were written: they are in the file, and no longer count as memory."""
    shared = isinstance(table, np.memmap) and table._mmap is not None and table.mode in ("r+", "w+")
    if shared and sys.platform == "linux":
        table._mmap.madvise(mmap.MADV_DONTNEED)


def _position_in_file(table):
    """The position in its file of the first element of a memory map, which may be a part of another one."""
    mapped = np.frombuffer(table._mmap, np.uint8).__array_interface__["data"][0]
    first = table.__array_interface__["data"][0]
    return table.offset - table.offset % mmap.ALLOCATIONGRANULARITY + first - mapped


def _refuse_short(rows, table, stop):
    """Refuse rows that are no longer in the file: to touch them would end the process."""
    if table.filename is None or min(table.strides, default=1) <= 0 or not os.path.exists(table.filename):
        return
    first = _position_in_file(table)
    last = first + sum(s * (n - 1) for s, n in zip(table.strides, (stop, *table.shape[1:]), strict=True))
    if last + table.dtype.itemsize > os.path.getsize(table.filename):
        raise _ends_early(rows, first, table.strides[0])


def _place_of(table):
    """The name of the file of a table; empty if it is not known."""
    for found in (getattr(table, "filename", None), getattr(getattr(table, "file", None), "filename", None)):
        if found is not None:
            return os.fspath(found)
    store = getattr(table, "store", None)
    return "" if store is None else str(store)


def _of(rows):
    return f" of {rows._place!r}" if rows._place else ""


def _unreadable(rows, start, stop, reason):
    return OSError(
        f"{rows.name}: the rows from {start} to {stop - 1}{_of(rows)} cannot be read ({reason}). Repair or restore the "
        "file."
    )


def _ends_early(rows, first, lead):
    """The error for a file in which row i of the table begins at ``first + i * lead``."""
    size = os.path.getsize(rows._place)
    row = max(size - first, 0) // lead
    return OSError(
        f"{rows.name}: the file{_of(rows)} ends at row {row} of {len(rows)}: it has {size} bytes, "
        f"but about {first + lead * len(rows)} are needed. Restore the file."
    )
