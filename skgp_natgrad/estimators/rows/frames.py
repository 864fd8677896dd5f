"""Tables with categories: which columns these are, the numbers of the others, and the levels as strings.

narwhals reads the data frames of pandas, Polars and PyArrow. An array has categories where they are named.
"""

from __future__ import annotations

import math
import numbers
import re

import narwhals.stable.v2 as nw
import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import _get_feature_names

from . import cells

# The share of a column's different strings that look like numbers, or like dates, from which on it is refused.
_LOOK_LIKE_NUMBERS = 0.5
_DATE = re.compile(r"(19|20)\d\d([-/])(0[1-9]|1[0-2])\2(0[1-9]|[12]\d|3[01])([T ]\d\d:\d\d.*)?")

_GIVE_A_FRAME = "is not finite; give X as a data frame, as in the fit, which may lack numbers"


def positions(given, X):
    """The positions of the categories that the argument ``categorical_features``, as ``given``, selects."""
    if given is None or (isinstance(given, str) and given == "from_dtype"):
        if given is None or not is_frame(X):
            return []
        kinds = nw.from_native(X).schema.dtypes()
        return sorted({*_text_columns(X), *(k for k, kind in enumerate(kinds) if kind in (nw.Categorical, nw.Enum))})
    if isinstance(given, str) or np.ndim(given) != 1:
        raise ValueError(
            f"categorical_features={given!r} must be 'from_dtype', None, or a list: of names or positions of columns, "
            "or of True and False for each column."
        )
    if cells.n_axes(X) != 2:
        return []
    names = list(nw.from_native(X).columns) if is_frame(X) else []
    n_columns, listed = np.shape(X)[1], list(given)
    if listed and all(isinstance(each, (bool, np.bool_)) for each in listed):
        if len(listed) != n_columns:
            raise ValueError(
                f"categorical_features is a mask of {len(listed)} values, but X has {n_columns} columns; give one "
                "for each."
            )
        return np.flatnonzero(listed).tolist()
    unknown = [each for each in listed if each not in (names if isinstance(each, str) else range(n_columns))]
    if unknown:
        known = f"those named {names}" if names else "no names"
        raise ValueError(
            f"categorical_features: X has no column {unknown[0]!r}; it has {n_columns} columns, and {known}."
        )
    return sorted({names.index(each) if isinstance(each, str) else int(each) for each in listed})


def _text_columns(X, but=()):
    """The columns of a data frame that hold strings; those that look like numbers are refused."""
    frame = nw.from_native(X)
    kinds = enumerate(frame.schema.dtypes())
    found = [k for k, kind in kinds if k not in but and kind in (nw.String, nw.Object)]
    return [k for k in found if _is_text(frame.columns[k], frame[:, k].to_list())]


def _is_text(name, column):
    """Whether the cells that are not missing are strings, of which few look like numbers."""
    different = {cell for cell in column if isinstance(cell, str)}
    others = any(not isinstance(cell, str) and cells.is_label(cell) for cell in column)
    numeric = sorted(filter(cells.is_finite_number, different))
    # Beside numbers they would all be taken as such.
    if numeric and (others or len(numeric) >= _LOOK_LIKE_NUMBERS * len(different)):
        raise ValueError(
            f"X: column {name!r} holds strings that look like numbers, such as {numeric[0]!r} ({len(numeric)} of "
            f"{len(different)} different ones). Convert it to numbers (in pandas by pandas.to_numeric, with "
            "errors='coerce' where others are missing values), or name it in categorical_features if they are "
            "categories."
        )
    dates = sorted(filter(_DATE.fullmatch, different))
    if dates and len(dates) >= _LOOK_LIKE_NUMBERS * len(different):
        raise ValueError(
            f"X: column {name!r} holds dates as strings, such as {dates[0]!r}. Convert it to numbers, such as the days "
            "since the first of them (in pandas by pandas.to_datetime), or name it in categorical_features if they are "
            "categories."
        )
    return bool(different) and not others


def numbers_and_levels(X, categories, missing_inputs, estimator=None):
    """The numbers (N, D) of a table, zero in its categories, and the levels (N, C) of these."""
    X = X if hasattr(X, "shape") or not len(categories) else np.array(X, dtype=object)
    of_categories, rest = [_cells(X, int(k)) for k in categories], _without(X, categories)
    if is_frame(X):
        _text_columns(X, but=categories)
    else:
        cells.refuse_numeric_strings(rest)
    allows = missing_inputs == "allow" or (missing_inputs == "auto" and is_frame(X))
    # After a fit to a data frame only another one may lack numbers.
    of_array = missing_inputs == "auto" and hasattr(estimator, "feature_names_in_") and not is_frame(X)
    of_missing = _GIVE_A_FRAME if of_array else None
    with cells.locate(X=rest, may_lack=("X",) if allows else (), of_missing=of_missing):
        options = {"ensure_all_finite": "allow-nan" if allows else True, "input_name": "X", "estimator": estimator}
        values = check_array(rest, dtype=np.float64, **options)
    levels = np.empty((len(values), len(of_categories)), dtype=object)
    for j, (k, column) in enumerate(zip(categories, of_categories, strict=True)):
        levels[:, j] = _levels(k, column)
        if missing_inputs == "error" and None in levels[:, j]:
            place = cells.at("X", (levels[:, j].tolist().index(None), k))
            raise ValueError(f"{place} is missing; set missing_inputs='auto' to give these rows a level.")
    return values, levels


def _levels(k, column):
    """The cells of a column as strings, or None where missing."""
    if any(isinstance(cell, float) and math.isinf(cell) for cell in column):
        raise ValueError(f"X: column {k} of categories holds infinity, which is no level; replace it by a value.")
    try:
        level = {cell: _level(cell) for cell in set(column)}
    except TypeError as error:
        raise TypeError(f"X: column {k} holds values that are no categories ({error}); give strings.") from error
    return [level[cell] for cell in column]


def _level(cell):
    if not cells.is_label(cell) or (isinstance(cell, numbers.Real) and math.isnan(cell)):
        return None
    if isinstance(cell, (bool, str)) or not isinstance(cell, numbers.Real):
        return str(cell)
    # A whole number is the same level in a column of integers and in one of floats, which missing values make of it.
    return str(int(cell)) if cell == int(cell) else repr(float(cell))


def is_frame(X):
    """Whether X is a data frame of a library that narwhals knows."""
    return nw.dependencies.is_into_dataframe(X)


class _Named:
    """What scikit-learn before 1.9 asks a data frame that is not of pandas: its shape and the names of its columns."""

    def __init__(self, frame):
        self.shape, self._names = frame.shape, frame.columns

    def __dataframe__(self):
        return self

    def column_names(self):
        return self._names


def with_names(X):
    """X, or in its place the names of a data frame's columns where scikit-learn does not know them."""
    return _Named(nw.from_native(X)) if is_frame(X) and _get_feature_names(X) is None else X


def _with_nan(column):
    found = [np.nan if _level(cell) is None and not isinstance(cell, float) else cell for cell in column.to_list()]
    return nw.new_series(column.name, found, backend=column.implementation)


def _cells(X, k):
    return (nw.from_native(X)[:, k].to_list() if is_frame(X) else X[:, k].tolist()) if np.shape(X)[0] else []


def _without(X, categories):
    """The table with zeros in place of its categories, and NaN in place of other signs of missing objects."""
    if is_frame(X):
        frame = nw.from_native(X)
        zeros = {k: nw.lit(0.0).alias(frame.columns[k]) for k in map(int, categories)}
        objects = [k for k, kind in enumerate(frame.schema.dtypes()) if kind == nw.Object and k not in zeros]
        others = [_with_nan(frame[:, k]) for k in objects]
        return frame.with_columns(*zeros.values(), *others).to_native() if zeros or others else X
    if not len(categories):
        return X
    X = X.astype(object) if X.dtype.kind not in "fiub" else X.copy()
    X[:, categories] = 0
    return X
