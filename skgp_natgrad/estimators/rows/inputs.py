"""The arguments of a fit: X, y, weights and what is known of the rows, each checked by one function.

Those of a table of up to ``WINDOW_ROWS`` rows are arrays. Those of a longer one are `Rows`, in memory or in files:
they are checked as they are read. The result is the same.
"""

from __future__ import annotations

import contextlib
import math
import numbers
from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight

from ..._backend import rows as _rows
from ..._backend.memory import GIB
from ..._backend.rows import Rows, mapped, rows_of
from . import cells

# A sparse X is made dense up to this number of bytes.
_MOST_DENSE = GIB


def opened(X, **others):
    """Whether ``X`` has so many rows that they are read by blocks; and X and the other arguments of a fit.

    Files of long tables come back as `Rows`, those of others as arrays in memory.
    """
    shape = getattr(X, "shape", None)
    n_rows = shape[0] if shape else len(X) if isinstance(X, (list, tuple)) else 0
    is_long, found = n_rows > _rows.WINDOW_ROWS, []
    for name, table in {"X": X, **others}.items():
        if _rows.is_file_like(table):
            table = rows_of(name, table)
            table = table if is_long else table.whole()
        found.append(table)
    return is_long, *found


class Numbers(Rows):
    """Rows in double precision; one that holds no finite number is refused by its place.

    ``missing`` allows NaN; ``minimum`` and ``whole`` are as of `known`.
    """

    def __init__(self, rows, missing=False, minimum=-np.inf, whole=False):
        if rows.dtype.kind not in "biufO":
            raise ValueError(f"{rows.name} has the type {rows.dtype}; give numbers.")
        super().__init__(rows.name, rows.shape, float)
        self._rows, self._missing, self._limits = rows, missing, (minimum, whole)

    def read(self, start, stop):
        found = self._rows.read(start, stop)
        may_lack = (self.name,) if self._missing else ()
        with cells.counted_from(start):
            with cells.locate(may_lack=may_lack, **{self.name: found}):
                found = np.asarray(found, dtype=np.float64)
                bad = np.isinf(found) if self._missing else ~np.isfinite(found)
                if bad.any():
                    raise ValueError(f"Input {self.name} contains NaN or infinity.")
            _refuse_outside(self.name, found, *self._limits)
        return found


def _refuse_outside(name, values, minimum, whole):
    cells.refuse(name, values, values < minimum, f"must be at least {minimum:g}.")
    cells.refuse(name, values, whole & (values != np.floor(values)), "must be an integer.")


def like(X, name, table):
    """An array as `Rows` if X is one, since both are read by blocks; None stays."""
    return rows_of(name, table) if isinstance(X, Rows) and table is not None else table


def dense(estimator, X):
    """X as it is, or a sparse one, or a frame with sparse columns, as a dense one if this takes at most a GiB."""
    pairs = zip(X.columns, X.dtypes, strict=True) if cells.is_frame(X) else ()
    of_columns = {name: kind.subtype for name, kind in pairs if type(kind).__name__ == "SparseDtype"}
    if not (sparse.issparse(X) or of_columns):
        return X
    n_bytes = 8 * math.prod(X.shape)
    if n_bytes > _MOST_DENSE:
        raise TypeError(
            f"X is sparse, but {type(estimator).__name__} computes distances between dense rows. As a dense array it "
            f"has {n_bytes / GIB:.3g} GiB, and only up to {_MOST_DENSE / GIB:.3g} GiB are made dense here: give fewer "
            "columns, for instance by TruncatedSVD, fewer rows at a time, or X.toarray()."
        )
    return X.astype(of_columns) if of_columns else X.toarray()


def with_missing(y, ignores_missing):
    """Return ``y`` with NaN in place of its masked values, where these are targets that are missing."""
    return y.astype(float).filled(np.nan) if ignores_missing and np.ma.isMaskedArray(y) else y


def targets(y, ignores_missing):
    """Return ``y`` as numbers, (N,) or (N, T); with ``ignores_missing`` some may be NaN, or masked."""
    if isinstance(y, Rows):
        y = Numbers(y, missing=ignores_missing)
    else:
        options = {"ensure_all_finite": "allow-nan" if ignores_missing else True, "input_name": "y"}
        y = with_missing(y, ignores_missing)
        with cells.locate(y=y, may_lack=("y",) if ignores_missing else ()):
            y = check_array(y, dtype=np.float64, ensure_2d=False, allow_nd=True, **options)
    if y.ndim > 2:
        raise ValueError(f"y has the shape {y.shape}; give numbers, one row for each of X.")
    return y


def in_columns(table):
    """A table (N,) or (N, T) with two axes."""
    shape = len(table), (*table.shape, 1)[1]
    return mapped(lambda values: values.reshape(len(values), shape[1]), table, shape=shape)


def labels(y, X):
    """Labels with one axis, one for each row of X; `check_labels` says what they may be."""
    if not isinstance(y, Rows):
        with cells.locate(labels=y):
            y = like(X, "y", column_or_1d(y, warn=True))
    if y.ndim == 2 and y.shape[1] == 1:
        y = mapped(np.ravel, y, shape=(len(y),), dtype=y.dtype)
    if y.ndim != 1:
        raise ValueError(f"y has the shape {y.shape}; give one label for each row of X.")
    check_consistent_length(X, y)
    return y


def check_labels(y):
    """Refuse labels that are none: values that are missing, and numbers that are no classes."""
    of_objects = np.vectorize(cells.is_label, otypes=[bool])
    is_good = {"f": np.isfinite, "O": of_objects, "M": np.isfinite, "m": np.isfinite}.get(y.dtype.kind)
    if is_good is not None and not np.all(is_good(y)):
        raise ValueError("Input y contains NaN, None or infinity.")
    one_of_each = {isinstance(label, str): label for label in y.flat} if y.dtype.kind == "O" else ()
    if len(one_of_each) > 1:
        raise ValueError(f"y holds strings and other labels, such as {list(one_of_each.values())}; give one kind.")
    check_classification_targets(y)


def weights(sample_weight, X):
    """Return ``sample_weight`` as finite numbers of at least zero, one for each row of ``X``."""
    if isinstance(sample_weight, Rows):
        if sample_weight.shape != (len(X),):
            raise ValueError(f"sample_weight has the shape {sample_weight.shape}; give one for each of {len(X)} rows.")
        return Numbers(sample_weight, minimum=0.0)
    if isinstance(X, Rows) and (sample_weight is None or isinstance(sample_weight, numbers.Number)):
        return rows_of("sample_weight", np.broadcast_to(weights(sample_weight, np.zeros((1, 1))), len(X)))
    with cells.locate(sample_weight=sample_weight):
        given = np.asarray(1.0 if sample_weight is None else sample_weight)
        if given.size and not np.any(given):
            raise ValueError("sample_weight is zero for every row; at least one row must have a positive weight.")
        given = np.full(len(X), given) if isinstance(sample_weight, numbers.Number) else sample_weight
        weight = _check_sample_weight(given, X, dtype=np.float64)
    what = "is negative ({n} of {of} are); weights must be at least zero, and zero leaves a row out."
    cells.refuse("sample_weight", weight, weight < 0, what)
    return like(X, "sample_weight", weight)


def known(name, value, n_rows, n_targets, minimum=-np.inf, whole=False):
    """Return what is known of each row and target, (n_rows, n_targets), or None.

    Parameters
    ----------
    name : str
        The argument.
    value : float, array-like of shape (n_rows,) or (n_rows, n_targets), or None
        One value for each row serves all targets.
    n_rows, n_targets : int
    minimum : float
        Smallest value allowed.
    whole : bool
        Whether only integers are allowed.
    """
    if value is None:
        return None
    value = np.full(n_rows, value) if isinstance(value, numbers.Number) else value
    if not isinstance(value, Rows):
        with cells.locate(**{name: value}):
            value = check_array(value, dtype=np.float64, ensure_2d=False, allow_nd=True, input_name=name)
    if value.ndim > 2 or len(value) != n_rows or (*value.shape, 1)[1] not in (1, n_targets):
        raise ValueError(
            f"{name} has the shape {value.shape}; give a number, or one value for each of the {n_rows} rows"
            + (f", or one for each row and column of y, ({n_rows}, {n_targets})." if n_targets > 1 else ".")
        )
    if isinstance(value, Rows):
        value = Numbers(value, minimum=minimum, whole=whole)
    else:
        _refuse_outside(name, value, minimum, whole)
    shape = n_rows, n_targets
    return mapped(lambda values: np.broadcast_to(values, (len(values), n_targets)), in_columns(value), shape=shape)


def refuse_unseen(seen, may_lack=False):
    """Refuse a column of y that is missing in every row of positive weight.

    ``seen`` (T,) tells which columns have values. With ``may_lack`` one such column is enough.
    """
    if not (np.any(seen) if may_lack else np.all(seen)):
        where = f"column {np.flatnonzero(~seen)[0]} of y" if len(seen) > 1 and not may_lack else "y"
        raise ValueError(
            f"{where} is missing in every row of positive weight; leave it out. (The rows of fit, or of the first call "
            "of partial_fit, set its scale; in later calls of partial_fit a column may be missing altogether.)"
        )


def column_types(table):
    """Return the type of the numbers in each column of a validated ``table``, as it was before validation.

    In a data frame each column has its own type. A type unknown to NumPy, and objects, count as double
    precision.

    Parameters
    ----------
    table : array-like of shape (N, columns) or (N,)

    Returns
    -------
    types : list of numpy.dtype
    """
    if cells.is_frame(table):
        return [_number_type(dtype) for dtype in table.dtypes]
    array = table if isinstance(table, Rows) else np.asarray(table)
    return [_number_type(array.dtype)] * (array.shape[1] if array.ndim > 1 else 1)


def _number_type(dtype):
    """A column's type in NumPy; pandas and Polars have their own types, named like NumPy's."""
    with contextlib.suppress(TypeError, ValueError):
        found = np.dtype(getattr(dtype, "numpy_dtype", None) or str(dtype).lower())
        if found.kind in "biuf":
            return found
    return np.dtype(float)


class Targets(NamedTuple):
    """The targets of one call of ``fit`` or ``partial_fit``.

    Attributes
    ----------
    columns : ndarray of shape (N, T)
        For a long table this, ``weight``, ``offset`` and ``known`` are `Rows`.
    weight : ndarray of shape (N,)
        The user's weights, multiplied by those of the classes.
    types : list of numpy.dtype
        Types of the columns as given.
    default_likelihood : str
    n_classes : int
        Zero for numbers.
    scale : bool
        Whether the columns may be standardised.
    attributes : dict
        Fitted attributes that prediction needs.
    offset : ndarray of shape (N, T) or None
        Known parts of the latent functions.
    known : ndarray of shape (N, P T) or None
        What else is known of the rows: see `numbers.known_of_rows`.
    may_lack : bool
        Whether a column may be missing in all rows, as in later calls of a stream.
    mean_function : ndarray of shape (N, K) or None
        Of labels, latent values that have a part in class probabilities.
    """

    columns: np.ndarray
    weight: np.ndarray
    types: list
    default_likelihood: str
    n_classes: int
    scale: bool
    attributes: dict
    offset: np.ndarray | None = None
    known: np.ndarray | None = None
    may_lack: bool = False
    mean_function: np.ndarray | None = None
