"""The columns of X as numbers: categories as blocks of one-hot columns, missing numbers as the mean of their column.

scikit-learn's encoders do this. They are fitted to the rows of a first fit, and kept as ``encoding_``; all code behind
this file sees numbers. A table of numbers that is no data frame needs no encoding.
"""

from __future__ import annotations

import math
import numbers
import warnings
import weakref
from typing import NamedTuple

import narwhals.stable.v2 as nw
import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils import check_array, check_X_y
from sklearn.utils.validation import validate_data

from ..._backend import memory, processes
from ..._backend.rows import Rows
from . import inputs

# Values that a message lists; and the share of a column's different strings that look like numbers, from which on the
# column is refused.
_LISTED, _LOOK_LIKE_NUMBERS = 5, 0.5
# From `_tell` to the line that calls `predict`.
_TO_CALLER = 9
# What was said about later rows, by the imputer of the encoding.
_told = weakref.WeakKeyDictionary()


class Encoding(NamedTuple):
    """How the D columns of X become E columns: its numbers, then where these are missing, then the levels.

    Attributes
    ----------
    numbers, categories : ndarray of int
        Positions of the columns of X.
    imputer : SimpleImputer
        Of the numbers.
    encoder : OneHotEncoder
        Of the categories, which are strings, or None where missing.
    owner : ndarray of int of shape (E,)
        The column of X to which each column of numbers belongs.
    names : list of str
        Of the E columns: that of a number, ``"age is missing"``, ``"colour=red"``.
    """

    numbers: np.ndarray
    categories: np.ndarray
    imputer: SimpleImputer
    encoder: OneHotEncoder
    owner: np.ndarray
    names: list

    @classmethod
    def fitted(cls, values, levels, categories, columns, max_categories):
        """The encoding of rows: numbers ``values`` (N, D), and ``levels`` (N, C) of the ``categories``."""
        kept = np.setdiff1d(np.arange(len(columns)), categories)
        imputer = SimpleImputer(add_indicator=True, keep_empty_features=True).set_output(transform="default")
        encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False, max_categories=max_categories)
        encoder.set_output(transform="default")
        owner, names = list(kept), [columns[k] for k in kept]
        if len(kept):
            lacking = kept[imputer.fit(values[:, kept]).indicator_.features_]
            owner += list(lacking)
            names += [f"{columns[k]} is missing" for k in lacking]
        if len(categories):
            # The position before the first underscore tells the column of a level.
            found = encoder.fit(levels).get_feature_names_out([str(k) for k in categories])
            found = [(int(k), level) for k, _, level in (name.partition("_") for name in found)]
            owner += [k for k, _ in found]
            names += [f"{columns[k]}={level}" for k, level in found]
        return cls(kept, np.asarray(categories, int), imputer, encoder, np.array(owner, int), names)

    @property
    def n_columns(self):
        """The number of columns of X."""
        return len(self.numbers) + len(self.categories)

    @property
    def is_identity(self):
        """Whether the columns of numbers are those of X."""
        return len(self.owner) == len(self.numbers)

    @property
    def blocks(self):
        """The columns of numbers that belong to each column of X."""
        return [np.flatnonzero(self.owner == k) for k in range(self.n_columns)]

    def forward(self, values, levels):
        """The rows as numbers (N, E)."""
        values = values[:, self.numbers] if len(self.categories) else values
        n_levels = np.count_nonzero(np.isin(self.owner, self.categories))
        if len(self.owner) > len(self.numbers) + n_levels or np.isnan(values).any():
            values = self.imputer.transform(values)
        return np.hstack([values, self.encoder.transform(levels)]) if len(self.categories) else values

    def backward(self, table):
        """Rows of numbers (M, E) in the terms of X (M, D): the nearest level of each category; NaN where missing."""
        found = np.empty((len(table), self.n_columns), dtype=object if len(self.categories) else float)
        n_numbers, is_level = len(self.numbers), np.isin(self.owner, self.categories)
        found[:, self.numbers] = table[:, :n_numbers]
        for column in np.flatnonzero(~is_level)[n_numbers:]:
            found[table[:, column] > 0.5, self.owner[column]] = np.nan
        if len(self.categories) and len(table):
            found[:, self.categories] = self.encoder.inverse_transform(table[:, is_level])
        return found

    def relevance(self, gradients, covariance):
        """The variance that a linear function with these gradients (..., E, N) has along each column of X: (D,)."""
        within = covariance * (self.owner[:, None] == self.owner)
        each = np.mean(gradients * (within @ gradients), axis=(*range(gradients.ndim - 2), gradients.ndim - 1))
        return np.maximum(np.bincount(self.owner, each, self.n_columns), 0.0)


def changing(estimator):
    """The `Encoding` of a fitted estimator; None if the columns of numbers are those of X."""
    found = getattr(estimator, "encoding_", None)
    return None if found is None or found.is_identity else found


def column_names(estimator):
    """The names of the columns of X of a fitted estimator."""
    return list(getattr(estimator, "feature_names_in_", [f"x{i}" for i in range(estimator.n_features_in_)]))


def encoded_names(estimator):
    """The names of the columns of numbers of a fitted estimator."""
    found = changing(estimator)
    return column_names(estimator) if found is None else found.names


def slopes_of_columns(estimator, *gradients):
    """Derivatives (..., E) in the columns of X (..., D): zero in categories."""
    encoding = changing(estimator)
    if encoding is None:
        return gradients
    found = [np.zeros((*gradient.shape[:-1], encoding.n_columns)) for gradient in gradients]
    for of_columns, gradient in zip(found, gradients, strict=True):
        of_columns[..., encoding.numbers] = gradient[..., : len(encoding.numbers)]
    return found


def shown_names(estimator):
    """The same, but each level has the name of its column."""
    found = changing(estimator)
    if found is None:
        return column_names(estimator)
    columns, is_level = column_names(estimator), np.isin(found.owner, found.categories)
    return [columns[k] if own else name for k, own, name in zip(found.owner, is_level, found.names, strict=True)]


def column_types(estimator, X):
    """As `inputs.column_types`, of the columns of numbers; what was filled in has double precision."""
    found, of_numbers = inputs.column_types(X), changing(estimator)
    if of_numbers is None:
        return found
    is_own = np.bincount(of_numbers.owner, minlength=of_numbers.n_columns) == 1
    is_own[of_numbers.categories] = False
    return [found[k] if is_own[k] else np.dtype(float) for k in of_numbers.owner]


def of_fit(estimator, X, sample_weight, first):
    """X of a fit as numbers, where it needs an encoding; that of a ``first`` fit is set as ``encoding_``."""
    names = ("categorical_features", "max_categories", "missing_inputs")
    given, most, missing = (estimator._arguments[name].read(name, getattr(estimator, name)) for name in names)
    if first:
        estimator.encoding_ = None
    if isinstance(X, Rows):
        if changing(estimator) is not None or missing == "allow" or not (given is None or isinstance(given, str)):
            raise ValueError(
                f"X has {len(X)} rows, which are read by blocks: this needs a table of numbers, none of them missing "
                f"(here categorical_features={given!r} and missing_inputs={missing!r}). Encode it beforehand, or fit "
                "to some of its rows."
            )
        return X
    if not first:
        return X if estimator.encoding_ is None else _rows(estimator, X)
    inputs.refuse_repeated_names(X)
    categories = positions(given, X)
    if not (len(categories) or missing == "allow" or _is_frame(X)):
        return X
    values, levels = _parts(estimator, X, categories, reset=True)
    used = slice(None)
    if sample_weight is not None and not isinstance(sample_weight, (Rows, numbers.Number)):
        used = inputs.weights(sample_weight, values) > 0.0
    of_rows = values[used], levels[used], categories, column_names(estimator)
    estimator.encoding_ = Encoding.fitted(*of_rows, most)
    if changing(estimator) is not None and processes.sharing(estimator.n_devices) > 1:
        raise ValueError(
            "X has categories or missing values, which each process would encode by its own rows alone; encode them "
            "beforehand, the same in all processes."
        )
    n_columns = len(estimator.encoding_.owner)
    memory.require(8 * len(values) * n_columns, f"X as {n_columns} columns of numbers", "lower max_categories")
    return estimator.encoding_.forward(values, levels)


def validated(estimator, X, *y, reset, **options):
    """scikit-learn's ``validate_data``, of rows in double precision; ``n_features_in_`` stays that of an encoded X."""
    if estimator.encoding_ is None:
        return validate_data(estimator, X, *y, dtype=np.float64, reset=reset, **options)
    check = check_X_y if y else check_array
    return check(X, *y, dtype=np.float64, estimator=estimator, **options)


def further_rows(estimator, X):
    """Validate the X of a prediction, and return it as numbers in the units of X."""
    X = inputs.dense(estimator, X)
    if estimator.encoding_ is not None:
        return _rows(estimator, X)
    with inputs.locate(X=X):
        return validate_data(estimator, X, dtype=np.float64, reset=False)


def points(estimator, given):
    """Points that a user gives in the terms of X, as numbers, if the encoding changes the columns."""
    found = changing(estimator)
    if found is None:
        return given
    values, levels = _numbers_and_levels(given, found.categories, "allow")
    return found.forward(values, levels) if values.shape[1] == found.n_columns else values


def _rows(estimator, X):
    """Rows after those of the first fit as numbers; new levels and newly missing numbers are told once."""
    inputs.refuse_repeated_names(X)
    found = estimator.encoding_
    values, levels = _parts(estimator, X, found.categories, reset=False)
    _tell(found, column_names(estimator), values, levels)
    return found.forward(values, levels)


def _tell(encoding, columns, values, levels):
    """Warn of what the encoding has not seen, once for each column."""
    told, new = _told.setdefault(encoding.imputer, set()), []
    seen = [set(each) for each in encoding.encoder.categories_] if len(encoding.categories) else []
    for k, known, column in zip(encoding.categories, seen, levels.T, strict=True):
        unseen = sorted(map(str, set(column) - known))
        if unseen and k not in told:
            listed = ", ".join(unseen[:_LISTED]) + (", ..." if len(unseen) > _LISTED else "")
            new.append((k, f"column {columns[k]!r} holds {listed}: all columns of its levels are zero"))
    lacking = set(np.flatnonzero(np.isnan(values).any(0))) - set(encoding.owner[len(encoding.numbers) :])
    for k in sorted(lacking - told):
        new.append((k, f"numbers are missing in column {columns[k]!r}: they are replaced by its mean"))
    if new:
        told.update(k for k, _ in new)
        warnings.warn(
            f"X differs from the rows of the fit: {'; '.join(text for _, text in new)}. This is said once.",
            UserWarning,
            stacklevel=_TO_CALLER,
        )


# -- reading ---------------------------------------------------------------------------------


def positions(given, X):
    """The positions of the categories that the argument ``categorical_features``, as ``given``, selects."""
    if given is None or (isinstance(given, str) and given == "from_dtype"):
        if given is None or not _is_frame(X):
            return []
        kinds = nw.from_native(X).schema.dtypes()
        return sorted({*_text_columns(X), *(k for k, kind in enumerate(kinds) if kind in (nw.Categorical, nw.Enum))})
    if isinstance(given, str) or np.ndim(given) != 1:
        raise ValueError(
            f"categorical_features={given!r} must be 'from_dtype', None, or a list: of names or positions of columns, "
            "or of True and False for each column."
        )
    if np.ndim(X) != 2:
        return []
    names = list(nw.from_native(X).columns) if _is_frame(X) else []
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


def _is_text(name, cells):
    """Whether the cells that are not missing are strings, of which few look like numbers."""
    different = {cell for cell in cells if isinstance(cell, str)}
    if not different or any(not isinstance(cell, str) and inputs.is_label(cell) for cell in cells):
        return False
    numeric = sorted(filter(inputs.is_finite_number, different))
    if len(numeric) >= _LOOK_LIKE_NUMBERS * len(different):
        raise ValueError(
            f"X: column {name!r} holds strings that look like numbers, such as {numeric[0]!r} ({len(numeric)} of "
            f"{len(different)} different ones). Convert it to numbers (in pandas by pandas.to_numeric, with "
            "errors='coerce' where others are missing values), or name it in categorical_features if they are "
            "categories."
        )
    return True


def _parts(estimator, X, categories, reset):
    """As `_numbers_and_levels`, of a table with the columns of the fit."""
    if np.ndim(X) != 2:
        categories = []
    else:
        validate_data(estimator, X, reset=reset, skip_check_array=True)
    return _numbers_and_levels(X, categories, estimator.missing_inputs, estimator)


def _numbers_and_levels(X, categories, missing_inputs, estimator=None):
    """The numbers (N, D) of a table, zero in its categories, and the levels (N, C) of these."""
    X = X if hasattr(X, "shape") or not len(categories) else np.array(X, dtype=object)
    if _is_frame(X):
        _text_columns(X, but=categories)
    cells, rest = [_cells(X, int(k)) for k in categories], _without(X, categories)
    allows = missing_inputs == "allow" or (missing_inputs == "auto" and _is_frame(X))
    with inputs.locate(X=rest, may_lack=("X",) if allows else ()):
        options = {"ensure_all_finite": "allow-nan" if allows else True, "input_name": "X", "estimator": estimator}
        values = check_array(rest, dtype=np.float64, **options)
    levels = np.empty((len(values), len(cells)), dtype=object)
    for j, (k, column) in enumerate(zip(categories, cells, strict=True)):
        levels[:, j] = _levels(k, column)
        if missing_inputs == "error" and None in levels[:, j]:
            row = levels[:, j].tolist().index(None) + inputs.first_row()
            raise ValueError(f"X[{row}, {k}] is missing; set missing_inputs='auto' to give these rows a level.")
    return values, levels


def _levels(k, column):
    """The cells of a column as strings, or None where missing."""
    try:
        level = {cell: _level(cell) for cell in set(column)}
    except TypeError as error:
        raise TypeError(f"X: column {k} holds values that are no categories ({error}); give strings.") from error
    return [level[cell] for cell in column]


def _level(cell):
    if not inputs.is_label(cell) or (isinstance(cell, numbers.Real) and math.isnan(cell)):
        return None
    if isinstance(cell, (bool, str)) or not isinstance(cell, numbers.Real):
        return str(cell)
    # A whole number is the same level in a column of integers and in one of floats, which missing values make of it.
    return str(int(cell)) if cell == int(cell) else repr(float(cell))


def _is_frame(X):
    return nw.dependencies.is_into_dataframe(X)


def _with_nan(column):
    cells = [np.nan if _level(cell) is None and not isinstance(cell, float) else cell for cell in column.to_list()]
    return nw.new_series(column.name, cells, backend=column.implementation)


def _cells(X, k):
    return (nw.from_native(X)[:, k].to_list() if _is_frame(X) else X[:, k].tolist()) if np.shape(X)[0] else []


def _without(X, categories):
    """The table with zeros in place of its categories, and NaN in place of other signs of missing objects."""
    if _is_frame(X):
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
