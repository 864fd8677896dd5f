"""The first bad cell of a table: scikit-learn's checks do not say where it is, or what to do about it."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import math
import numbers
import os
import reprlib
from collections import abc

import numpy as np

from ..._backend.placement import during

# By the name of the table: the remedies for a missing value, and for a value that is not a number.
_MISSING = {
    "X": "is not finite; leave the row out, or fill the value in (a fit with missing_inputs='allow' does so where it "
    "is missing)",
    "y": "is not finite; leave the row out, or set missing_targets='ignore' where it was not observed",
}
_LEAVE_OUT = "is not finite; leave the row out"
_EMPTY = ("None", "<NA>", "NaT")
# How the types of dates and durations begin, in NumPy, pandas, Polars and PyArrow.
_TIMES = ("datetime", "timestamp", "date", "time", "timedelta", "duration", "period")
# How scikit-learn's advice to take another estimator for missing values goes.
_OTHER_ESTIMATORS = "does not accept missing values encoded as NaN natively"
_NOT_A_NUMBER = {
    "X": "is not a number; if the column holds categories, name it in categorical_features; of dates give the number "
    "of days since a fixed one",
    "y": "is not a number; NGDSVGPClassifier takes labels of any type",
}
# What may be meant by a text in place of a table.
_READ = {
    "X": "give its rows, as from pandas.read_csv(path), pandas.DataFrame(dict) or list(iterator)",
    "y": "give its values, such as frame['target'], list(iterator) or list(dict.values())",
    "sample_weight": "NGDSVGPClassifier has class_weight='balanced' for classes of equal weight",
}
# The number of the first row in the caller's table, of which a block is checked.
_FIRST_ROW = contextvars.ContextVar("first row", default=0)


def counted_from(row):
    """Context manager in which errors number the rows of a table from ``row`` on: that of a block in a longer one."""
    return during(_FIRST_ROW, row)


def first_row():
    """Return the number of the first row: see `counted_from`."""
    return _FIRST_ROW.get()


@contextlib.contextmanager
def locate(labels=None, may_lack=(), of_missing=None, **tables):
    """Context manager around a check: masked values and times are refused, and errors name the first bad value's place.

    Rows and columns count from zero, rows of a block as in `counted_from`. scikit-learn's messages do not give a
    position. A table is searched only after its check has failed, since it may have a million rows.

    Parameters
    ----------
    labels : array-like, optional
        The classifier's ``y``: strings are allowed, NaN and inf are not.
    may_lack : collection of str
        Names of the tables that may hold NaN.
    of_missing : str, optional
        What is said of a missing value of X, in place of the usual.
    **tables : array-like
        Tables that must hold finite numbers, by the name of the argument; None is skipped.
    """
    _refuse_other_than_tables("y", labels)
    refuse_masked("y", labels)
    for name, table in tables.items():
        _refuse_other_than_tables(name, table)
        refuse_masked(name, table)
        _refuse_times(name, table)
    refuse_repeated_names(tables.get("X"))
    try:
        yield
    except (TypeError, ValueError) as error:
        places = [
            _first_bad(name, table, _is_number if name in may_lack else is_finite_number, of_missing)
            for name, table in tables.items()
        ]
        places.append(_first_bad("labels", labels, is_label))
        found = next(filter(None, places), None)
        if found is None:
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        of_check = [line for line in str(error).splitlines() if _OTHER_ESTIMATORS not in line]
        raise kind("\n".join([found, *of_check])) from error


def refuse(name, values, bad, what):
    """Raise ValueError with the place of the first of ``values`` (N, ...) that is ``bad``.

    ``what`` is said of it, with ``{n}`` for the number of bad values and ``{of}`` for that of all.
    """
    places = np.argwhere(bad)
    if len(places):
        value = values[tuple(places[0])]
        shown = "" if value is np.ma.masked else f"={value:g}"
        raise ValueError(f"{at(name, places[0])}{shown} {what.format(n=len(places), of=np.size(values))}")


def at(name, place):
    """A place of a table, whose rows are numbered as in `counted_from`."""
    return f"{name}[{', '.join(map(str, (place[0] + first_row(), *place[1:])))}]"


def refuse_masked(name, table):
    """Raise ValueError if ``table`` is a NumPy masked array with masked values, which checks would take for numbers."""
    if np.ma.is_masked(table):
        what = "is masked ({n} of {of} values are); leave the rows out, or fill the values in, for instance with "
        refuse(name, table, np.ma.getmaskarray(table), f"{what}table.filled(np.nan) and SimpleImputer.")


def _refuse_other_than_tables(name, table):
    """Raise TypeError if ``table`` is a text, path, dict or iterator, of which NumPy would make a single cell."""
    if isinstance(table, (str, bytes, os.PathLike, abc.Mapping, abc.Iterator)):
        raise TypeError(
            f"{name}={reprlib.repr(table)} is of type {type(table).__name__}, not an array or a data frame; "
            f"{_READ.get(name, 'give a number, or one for each row')}."
        )


def _refuse_times(name, table):
    """Raise ValueError if ``table`` holds dates or durations, which NumPy takes for numbers of any unit."""
    table = np.asarray(table[:1]) if isinstance(table, (list, tuple)) else table
    # PyArrow's tables have a schema.
    of_arrow = getattr(getattr(table, "schema", None), "types", [getattr(table, "dtype", None)])
    for k, kind in enumerate(table.dtypes if is_frame(table) else of_arrow):
        if str(kind).lower().startswith(_TIMES):
            column = f" in column {table.columns[k]!r}" if is_frame(table) else ""
            raise ValueError(
                f"{name} has the type {kind}{column}, whose numbers have no unit of their own. Give numbers, such as "
                "the days since a fixed date."
            )


def refuse_repeated_names(X):
    """Raise ValueError if columns of a data frame have one name: names tell them apart."""
    names = list(X.columns) if is_frame(X) else []
    repeated = [name for name, n in collections.Counter(names).items() if n > 1]
    if repeated:
        raise ValueError(
            f"X has several columns named {', '.join(map(repr, repeated))}: give each column a name of its own, or an "
            "array without names (X.to_numpy())."
        )


def refuse_numeric_strings(X):
    """Raise ValueError if an array, or a list of rows, holds strings that look like numbers and would count as such."""
    X = np.array(X, dtype=object) if isinstance(X, list) else X
    cells = X.flat if isinstance(X, np.ndarray) and X.dtype.kind in "OUS" else ()
    found = next((cell for cell in cells if isinstance(cell, (str, bytes))), None)
    if found is not None and is_finite_number(found):
        raise ValueError(
            f"X holds strings that look like numbers, such as {np.array(found).item()!r}. Give numbers "
            "(X.astype(float)), or name the columns of categories in categorical_features."
        )


def _first_bad(name, table, is_good, of_missing=None):
    """Say where the first bad value of ``table`` is; None if there is none, or if it is not a table.

    That is None, or sparse or complex.
    """
    try:
        cells = np.asarray(table)
    except ValueError:
        return _ragged("y" if name == "labels" else name, table)
    if cells.ndim not in (1, 2) or cells.dtype.kind == "c":
        return None
    is_object = cells.dtype.kind not in "biuf"
    for place in map(tuple, np.ndindex(cells.shape) if is_object else np.argwhere(~np.isfinite(cells))):
        cell = cells[place].item() if isinstance(cells[place], np.generic) else cells[place]
        if not is_good(cell):
            missing = isinstance(cell, numbers.Number) or str(cell) in _EMPTY
            usual = _LEAVE_OUT if is_good is _is_number and name == "y" else _MISSING.get(name, _LEAVE_OUT)
            of_missing = usual if of_missing is None or cell in (math.inf, -math.inf) else of_missing
            what = of_missing if missing else _NOT_A_NUMBER.get(name, "is not a number")
            column = f" (column {table.columns[place[1]]!r})" if is_frame(table) and len(place) == 2 else ""
            return f"{at('y' if name == 'labels' else name, place)}={cell!r}{column} {what}."
    return None


def _ragged(name, table):
    """Say which row of a list of lists is the first of another length; None if there is no such row."""
    try:
        lengths = [len(row) if isinstance(row, (list, tuple)) else np.size(row) for row in table]
    except (TypeError, ValueError):
        return None
    k = next((k for k, n in enumerate(lengths) if n != lengths[0]), None)
    if k is None:
        return None
    first, other = at(name, [0]), at(name, [k])
    return f"{name} is not a table: {first} has length {lengths[0]}, but {other} has length {lengths[k]}."


def n_axes(table):
    """The number of axes of a table; zero of lists of different lengths."""
    try:
        return len(getattr(table, "shape", None) or np.asarray(table).shape)
    except ValueError:
        return 0


def is_frame(table):
    """Whether each column has a name and a type: PyArrow's tables have columns that are neither."""
    return hasattr(table, "columns") and hasattr(table, "dtypes")


def is_finite_number(cell):
    """Whether a cell is a finite number, or text that looks like one."""
    try:
        return math.isfinite(float(cell))
    except (TypeError, ValueError):
        return False


def _is_number(cell):
    """Whether a cell is a finite number, or missing."""
    return cell is None or is_finite_number(cell) or (isinstance(cell, numbers.Number) and math.isnan(cell))


def is_label(cell):
    """Whether a cell may be a label: a number that is finite, or anything else that is not missing."""
    if isinstance(cell, float):
        return math.isfinite(cell)
    # A string may have any name.
    return isinstance(cell, str) or str(cell) not in _EMPTY
