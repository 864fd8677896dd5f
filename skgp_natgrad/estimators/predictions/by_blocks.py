"""Predictions at rows in a file: block by block, written where the caller wants them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from inspect import signature
from typing import Any, TypeVar

import numpy as np

from ..._backend import rows as _rows
from ..rows import cells
from ..rows.inputs import Numbers

# Rows that are predicted at once: a multiple of the rows of a compiled call.
_ROWS = 1 << 14
# Fewer rows than this at the end join the block before: another program would predict them.
_FEW = 8

_Method = TypeVar("_Method", bound=Callable[..., Any])


def with_names(method: _Method) -> _Method:
    """Decorate a method, so that an unknown argument is refused in the name of the user's class, with those there are.

    Python would name the base class in which the method is written.
    """
    names = list(signature(method).parameters)[1:]

    @functools.wraps(method)
    def called(self, *arguments, **options):
        unknown = next((name for name in options if name not in names), None)
        if unknown is not None:
            raise TypeError(
                f"{type(self).__name__}.{method.__name__}() got an unexpected keyword argument {unknown!r}; it "
                f"takes {', '.join(names)}."
            )
        return method(self, *arguments, **options)

    return called


def by_blocks(*aligned: str) -> Callable[[_Method], _Method]:
    """Decorate a method of predictions at the rows of X, so that an X in a file is read and predicted by blocks.

    If the method has an argument ``out``, the values are written to it, and it is returned.

    Parameters
    ----------
    *aligned : str
        Names of further arguments that may have a value for each row.
    """

    def decorate(method: _Method) -> _Method:
        @with_names
        @functools.wraps(method)
        def called(self, X, *arguments, **options):
            if not _rows.is_file_like(X) and not arguments and options.get("out") is None:
                return method(self, X, *arguments, **options)
            given = signature(method).bind(self, X, *arguments, **options)
            given.apply_defaults()
            options = dict(list(given.arguments.items())[2:])
            out = options.pop("out", None)
            found = _predicted(functools.partial(method, self), X, options, aligned, out)
            return found if out is None else out

        return called

    return decorate


def _predicted(method, X, options, aligned, out):
    """The values of a method at all rows, in ``out`` if it is not None."""
    if not _rows.is_file_like(X):
        return _stored(method(X, **options), slice(None), None, out)
    rows = _rows.rows_of("X", X)
    if options.get("return_cov") or len(rows) <= _ROWS or rows.ndim != 2:
        held = {name: _opened(name, options[name]).whole() for name in aligned if np.ndim(options[name])}
        return _stored(method(rows.whole(), **(options | held)), slice(None), None, out)
    # The method itself refuses a missing value, where it is none of its own.
    rows, fixed = Numbers(rows, missing=True), {name: value for name, value in options.items() if name not in aligned}
    tables = {name: _opened(name, options[name]) for name in aligned if np.ndim(options[name])}
    fixed |= {name: options[name] for name in aligned if name not in tables}
    _check_lengths(len(rows), tables)
    values = None

    def read(ends):
        return slice(*ends), rows.read(*ends), {name: table.read(*ends) for name, table in tables.items()}

    for part, X_part, of_part in _rows.ahead(read, _slices(len(rows))):
        with cells.counted_from(part.start):
            found = method(X_part, **fixed, **of_part)
        values = _stored(found, part, (values, len(rows)), out)
    return values


def _opened(name, table):
    # A masked array stays one, for the method to refuse.
    return _rows.rows_of(name, table if _rows.is_file_like(table) else np.asanyarray(table))


def _slices(n_rows):
    """First and last row of each block."""
    starts = list(range(0, n_rows, _ROWS))
    if len(starts) > 1 and n_rows - starts[-1] <= _FEW:
        starts.pop()
    return list(zip(starts, [*starts[1:], n_rows], strict=True))


def _check_lengths(n_rows, tables):
    for name, table in tables.items():
        if len(table) != n_rows:
            raise ValueError(f"{name} has {len(table)} rows, and X has {n_rows}; give one for each row.")


def _stored(piece, rows, whole, out):
    """Write the values of some rows into ``out``, or into arrays of all rows, and return these.

    ``whole`` is None if these are all rows, else the arrays so far (None at first) and the number of all rows.
    """
    pieces = piece if isinstance(piece, tuple) else (piece,)
    if out is not None:
        into = out if isinstance(piece, tuple) else (out,)
        _check_out(into, pieces, len(pieces[0]) if whole is None else whole[1])
    elif whole is None:
        return piece
    elif whole[0] is None:
        into = tuple(np.empty((whole[1], *each.shape[1:]), each.dtype) for each in pieces)
    else:
        into = whole[0] if isinstance(piece, tuple) else (whole[0],)
    for target, values in zip(into, pieces, strict=True):
        target[rows] = values
        if values.dtype.kind != "f" and not np.array_equal(target[rows], values):
            raise ValueError(f"out, of type {target.dtype}, does not hold all labels; give one of type {values.dtype}.")
        _rows.release(target)
    return tuple(into) if isinstance(piece, tuple) else into[0]


def _check_out(out, pieces, n_rows):
    wanted = [((n_rows, *each.shape[1:]), each.dtype) for each in pieces]
    found = [(getattr(each, "shape", None), getattr(each, "dtype", None)) for each in out]
    fits = len(found) == len(wanted) and all(
        shape == of and kind is not None and np.can_cast(dtype, kind, "same_kind")
        for (shape, kind), (of, dtype) in zip(found, wanted, strict=True)
    )
    if not fits:
        asked = " and ".join(f"the shape {shape} and a type that holds {dtype}" for shape, dtype in wanted)
        raise ValueError(f"out must be an array of {asked}; it has {found}.")
