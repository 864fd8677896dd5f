"""The columns of X as numbers: categories as blocks of one-hot columns; numbers that are missing stay so.

scikit-learn's encoders do this. They are fitted to the rows of a first fit, and kept as ``encoding_``; all code behind
this file sees numbers. A table of numbers that is no data frame needs no encoding. Where few rows are complete, columns
of zeros and ones say where a number is missing: so these rows, filled in by the mean, are told apart in the fit.

A level that the fit has not seen must be as far from each known one as these are from each other. So a block has
further columns, zero in the rows of the fit, in which each such level has a place of its own on the unit sphere. The
place depends on its name alone: it is the same in every call, also where a stream learns the level.
"""

from __future__ import annotations

import hashlib
import numbers
from typing import NamedTuple

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.validation import validate_data

from ..._backend import memory, processes
from ..._backend.notices import Notice
from ..._backend.rows import Rows, rows_of
from . import cells, donors, frames, inputs

# What stands for a level that the fit has not seen.
ANOTHER = "another level"
# Values that a message lists.
_LISTED = 5
# Columns of a block for levels that the fit has not seen: a sphere, on which few places are close.
FURTHER = 3


class Encoded(np.ndarray):
    """Rows that are already numbers, as `further_rows` returns them."""


class Encoding(NamedTuple):
    """How the D columns of X become E columns: numbers, where these are missing, levels, and places of other levels.

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
        Of the E columns: that of a number, ``"age is missing"``, ``"colour=red"``, ``"colour=another level (1)"``.
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
        leaves_out = donors.are_enough(values[:, kept])
        encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False, max_categories=max_categories)
        encoder.set_output(transform="default")
        owner, names = list(kept), [columns[k] for k in kept]
        if len(kept):
            lacking = kept[imputer.fit(values[:, kept]).indicator_.features_]
            lacking = [] if leaves_out else lacking
            owner += list(lacking)
            names += [f"{columns[k]} is missing" for k in lacking]
        if len(categories):
            # The position before the first underscore tells the column of a level.
            found = encoder.fit(levels).get_feature_names_out([str(k) for k in categories])
            found = [(int(k), level) for k, _, level in (name.partition("_") for name in found)]
            owner += [k for k, _ in found]
            names += [f"{columns[k]}={level}" for k, level in found]
            owner += [k for k in categories for _ in range(FURTHER)]
            names += [f"{columns[k]}={ANOTHER} ({i + 1})" for k in categories for i in range(FURTHER)]
        return cls(kept, np.asarray(categories, int), imputer, encoder, np.array(owner, int), names)

    @property
    def says_where(self):
        """Whether a column of numbers says where another one is missing (E,)."""
        return (np.arange(len(self.owner)) >= len(self.numbers)) & ~self.is_level

    @property
    def leaves_out(self):
        """Whether a fit does without the rows in which numbers are missing."""
        return not self.says_where.any()

    @property
    def n_columns(self):
        """The number of columns of X."""
        return len(self.numbers) + len(self.categories)

    @property
    def is_identity(self):
        """Whether the columns of numbers are those of X."""
        return len(self.owner) == len(self.numbers)

    @property
    def is_level(self):
        """Whether each column of numbers belongs to a category (E,)."""
        return np.isin(self.owner, self.categories)

    @property
    def blocks(self):
        """The columns of numbers that belong to each column of X."""
        sizes = np.bincount(self.owner, minlength=self.n_columns)
        return np.split(np.argsort(self.owner, kind="stable"), np.cumsum(sizes)[:-1])

    def forward(self, values, levels):
        """The rows as numbers (N, E), NaN where one is missing."""
        values = values[:, self.numbers] if len(self.categories) else values
        if not self.leaves_out:
            says_where = self.imputer.transform(values)[:, len(self.numbers) :]
            values = np.hstack([values, says_where])
        if not len(self.categories):
            return values
        return np.hstack([values, self.encoder.transform(levels), *self._further(levels)])

    def _further(self, levels):
        """For each category, the places (N, 3) of levels that the fit has not seen: zero for others."""
        for known, column in zip(self.encoder.categories_, levels.T, strict=True):
            places = dict.fromkeys(known, np.zeros(FURTHER))
            yield np.array([places.setdefault(level, _place(level)) for level in column]).reshape(-1, FURTHER)

    def filled(self, table):
        """Rows of numbers with the mean of the fit where one is missing."""
        means = np.zeros(len(self.owner))
        means[: len(self.numbers)] = self.imputer.statistics_ if len(self.numbers) else ()
        return np.where(np.isnan(table), means, table)

    def backward(self, table):
        """Rows of numbers (M, E) in the terms of X (M, D): the nearest level of each category; NaN where missing."""
        found = np.empty((len(table), self.n_columns), dtype=object if len(self.categories) else float)
        n_numbers, of_levels = len(self.numbers), np.flatnonzero(self.is_level)
        found[:, self.numbers] = table[:, :n_numbers]
        for column in np.flatnonzero(self.says_where):
            found[table[:, column] > 0.5, self.owner[column]] = np.nan
        if len(self.categories) and len(table):
            known, further = np.split(of_levels, [len(of_levels) - FURTHER * len(self.categories)])
            found[:, self.categories] = self.encoder.inverse_transform(table[:, known])
            for k, place in zip(self.categories, further.reshape(-1, FURTHER), strict=True):
                found[np.linalg.norm(table[:, place], axis=1) > 0.5, k] = ANOTHER
        return found

    def relevance(self, gradients, covariance):
        """The variance that a linear function with these gradients (..., E, N) has along each column of X: (D,)."""
        within = covariance * (self.owner[:, None] == self.owner)
        each = np.mean(gradients * (within @ gradients), axis=(*range(gradients.ndim - 2), gradients.ndim - 1))
        return np.maximum(np.bincount(self.owner, each, self.n_columns), 0.0)


def _place(level):
    """The place on the unit sphere of a level that the fit has not seen, which depends on its name alone."""
    if level is None:
        level = ""
    height, angle = np.frombuffer(hashlib.blake2b(level.encode(), digest_size=16).digest(), "<u8") / 2.0**64
    height, angle = 2.0 * height - 1.0, 2.0 * np.pi * angle
    radius = np.sqrt(1.0 - height**2)
    return np.array([radius * np.cos(angle), radius * np.sin(angle), height])


def of(estimator):
    """The `Encoding` of a fitted estimator; that of an array of numbers changes nothing."""
    names = column_names(estimator)
    each = np.arange(len(names))
    found = getattr(estimator, "encoding_", None)
    return Encoding(each, each[:0], None, None, each, names) if found is None else found


def changing(estimator):
    """The `Encoding` of a fitted estimator; None if the columns of numbers are those of X."""
    found = getattr(estimator, "encoding_", None)
    return None if found is None or found.is_identity else found


def blocks(estimator):
    """The columns of numbers of an estimator that are no numbers of X: see `Plan`."""
    found = of(estimator)
    every = found.blocks if len(found.categories) else []
    of_categories = [every[k] for k in found.categories]
    indicators = np.flatnonzero(~found.is_level)[len(found.numbers) :, None]
    return tuple(tuple(map(int, block)) for block in [*of_categories, *indicators])


def columns_of_levels(estimator):
    """Positions of the columns of numbers that are no numbers of X."""
    return [k for block in blocks(estimator) for k in block]


def column_names(estimator):
    """The names of the columns of X of a fitted estimator."""
    return list(getattr(estimator, "feature_names_in_", [f"x{i}" for i in range(estimator.n_features_in_)]))


def shown_names(estimator):
    """The names of the columns of numbers of a fitted estimator; each level has the name of its column."""
    found, columns = of(estimator), column_names(estimator)
    return [columns[k] if own else name for k, own, name in zip(found.owner, found.is_level, found.names, strict=True)]


def slopes_of_columns(estimator, *gradients):
    """Derivatives (..., E) in the columns of X (..., D): zero in categories."""
    encoding = of(estimator)
    found = [np.zeros((*gradient.shape[:-1], encoding.n_columns)) for gradient in gradients]
    for of_columns, gradient in zip(found, gradients, strict=True):
        of_columns[..., encoding.numbers] = gradient[..., : len(encoding.numbers)]
    return found


def column_types(estimator, X):
    """As `inputs.column_types`, of the columns of numbers; what was filled in has double precision."""
    types, found = inputs.column_types(X), of(estimator)
    is_own = np.bincount(found.owner, minlength=found.n_columns) == 1
    is_own[found.categories] = False
    return [types[k] if is_own[k] else np.dtype(float) for k in found.owner]


def of_fit(estimator, X, y, sample_weight, streams, is_long):
    """X of a fit as checked numbers, or as `Rows`; the types of its columns; and the weights.

    The encoding of a first fit is set as ``encoding_``, if X needs one.
    """
    names = ("categorical_features", "max_categories", "missing_inputs")
    given = [estimator._arguments[name].read(name, getattr(estimator, name)) for name in names]
    first = estimator._previous(streams) is None
    if first:
        estimator.encoding_ = None
    if isinstance(X, Rows):
        rows = _read_by_blocks(estimator, X, y, first, *given)
    else:
        sample_weight = sample_weight.whole() if isinstance(sample_weight, Rows) else sample_weight
        rows = _first_rows(estimator, X, y, sample_weight, *given) if first else _rows(estimator, X, y)
    rows, weight = donors.of_fit(estimator, rows, sample_weight, streams, y)
    return rows_of("X", rows) if is_long else rows, column_types(estimator, X), weight


def _read_by_blocks(estimator, X, y, first, given, _, missing):
    """X of many rows in a file, which are checked as they are read; here its shape is."""
    if changing(estimator) is not None or missing == "allow" or not (given is None or isinstance(given, str)):
        raise ValueError(
            f"X has {len(X)} rows, which are read by blocks: this needs a table of numbers, none of them missing "
            f"(here categorical_features={given!r} and missing_inputs={missing!r}). Encode it beforehand, or fit "
            "to some of its rows."
        )
    found, few = inputs.Numbers(X), X.read(0, min(len(X), 2))
    few = np.zeros(few.shape) if few.ndim == 2 else few
    validate_data(estimator, few, *([None] if y is None else []), dtype=np.float64, reset=first)
    return found


def _first_rows(estimator, X, y, sample_weight, given, most, missing):
    cells.refuse_repeated_names(X)
    categories = frames.positions(given, X)
    values, levels = _parts(estimator, X, categories, True, y)
    if not (len(categories) or missing == "allow" or frames.is_frame(X)):
        return values
    used = slice(None)
    if sample_weight is not None and not isinstance(sample_weight, numbers.Number):
        used = inputs.weights(sample_weight, values) > 0.0
    of_rows = values[used], levels[used], categories, column_names(estimator)
    estimator.encoding_ = Encoding.fitted(*of_rows, most)
    if most == estimator._arguments["max_categories"].default:
        _tell_merged(estimator.encoding_, column_names(estimator), most)
    is_changed = changing(estimator) is not None or np.isnan(values).any()
    if is_changed and processes.sharing(estimator.n_devices) > 1:
        raise ValueError(
            "X has categories or missing values, which each process would encode by its own rows alone; encode them "
            "beforehand, the same in all processes."
        )
    n_columns = len(estimator.encoding_.owner)
    memory.require(8 * len(values) * n_columns, f"X as {n_columns} columns of numbers", "lower max_categories")
    return estimator.encoding_.forward(values, levels)


def further_rows(estimator, X):
    """Validate the X of a prediction, and return it as numbers in the units of X, NaN where one is missing."""
    return np.asarray(X) if isinstance(X, Encoded) else _rows(estimator, inputs.dense(estimator, X))


def points(estimator, given):
    """Points that a user gives in the terms of X, as numbers, if the encoding changes the columns."""
    found = changing(estimator)
    if found is None:
        return given
    if len(np.shape(given)) != 2 or np.shape(given)[1] != found.n_columns:
        raise ValueError(
            f"inducing_init has the shape {np.shape(given)}; give rows with the {found.n_columns} columns of X."
        )
    return found.filled(found.forward(*frames.numbers_and_levels(given, found.categories, "allow")))


def _rows(estimator, X, *y):
    """Rows after those of the first fit as numbers; a warning tells of new levels and newly missing numbers."""
    found = of(estimator)
    values, levels = _parts(estimator, X, found.categories, False, *y)
    if estimator.encoding_ is not None:
        _tell(found, column_names(estimator), values, levels)
    return found.forward(values, levels)


def _tell(encoding, columns, values, levels):
    """Warn of levels, and of missing numbers, that the rows of the fit do not have."""
    texts = []
    seen = encoding.encoder.categories_ if len(encoding.categories) else []
    for k, known, column in zip(encoding.categories, seen, levels.T, strict=True):
        unseen = sorted(map(str, set(column).difference(known)))
        if unseen:
            listed = ", ".join(unseen[:_LISTED]) + (", ..." if len(unseen) > _LISTED else "")
            texts.append(
                f"column {columns[k]!r} holds {listed}, which {'is no level' if len(unseen) == 1 else 'are no levels'} "
                "of the fit: such a row is as far from each known level as these are from each other"
            )
    known = encoding.numbers[encoding.imputer.indicator_.features_] if len(encoding.numbers) else ()
    for k in sorted(set(np.flatnonzero(np.isnan(values).any(0))).difference(known)):
        what = "predictions average over the values that similar rows of the fit have"
        texts.append(f"numbers are missing in column {columns[k]!r}: {what}")
    if texts:
        Notice("X differs from the rows of the fit.", f"There, {'; '.join(texts)}.").give()


def _tell_merged(encoding, columns, most):
    """Warn of levels that are one, where the user has not said how many there may be."""
    merged = encoding.encoder.infrequent_categories_ if len(encoding.categories) else []
    texts = [
        f"{columns[k]!r} has {len(known)} levels, of which the {len(rare)} with the fewest rows are taken as one"
        for k, known, rare in zip(
            encoding.categories, encoding.encoder.categories_ if merged else [], merged, strict=True
        )
        if rare is not None and len(rare) > 1
    ]
    if texts:
        remedy = f"Set max_categories={most} to another number, or to None for all of them."
        Notice("The rarest levels of a column are taken as one.", f"X: column {'; '.join(texts)}. {remedy}").give()


def _parts(estimator, X, categories, reset, *y):
    """As `frames.numbers_and_levels`, of a table with the columns of the fit."""
    cells.refuse_repeated_names(X)
    if cells.n_axes(X) == 2:
        validate_data(estimator, frames.with_names(X), *y, reset=reset, skip_check_array=True)
    else:
        categories = []
    # Without an encoding nothing can be filled in.
    missing = estimator.missing_inputs if reset or estimator.encoding_ is not None else "error"
    return frames.numbers_and_levels(X, categories, missing, estimator)
