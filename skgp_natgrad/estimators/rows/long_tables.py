"""Tables of many rows, and tables in files: they are checked, weighted and scaled block by block.

A table of up to ``WINDOW_ROWS`` rows is held in memory. A longer one becomes a `LongTable`, whose rows are validated
and scaled as they are read. The result is the same for rows in memory and in a file.
"""

from __future__ import annotations

import functools
import numbers

import numpy as np
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.validation import validate_data

from ... import svgp
from ..._backend import memory
from ..._backend import rows as _rows
from ..._backend.rows import Constant, Held, Mapped, Rows, rows_of
from ...choose.scale import Moments, Scale, scale_from, snapped, spans_between
from ...likelihoods import Likelihood
from . import encoding, inputs
from .class_labels import positions


def opened(X, **others):
    """Whether ``X`` has so many rows that they are read by blocks; and X and the other arguments of a fit.

    Files of long tables come back as `Rows`, those of others as arrays in memory.
    """
    is_long = _n_rows(X) > _rows.WINDOW_ROWS
    found = []
    for name, table in {"X": X, **others}.items():
        if _rows.is_file_like(table):
            table = rows_of(name, table)
            table = table if is_long else table.whole()
        found.append(table)
    return is_long, *found


def _n_rows(X):
    shape = getattr(X, "shape", None)
    return shape[0] if shape else len(X) if isinstance(X, (list, tuple)) else 0


class Numbers(Rows):
    """Rows in double precision; one that holds no finite number is refused by its place.

    ``missing`` allows NaN, and ``minimum`` is the least value allowed.
    """

    def __init__(self, rows, missing=False, minimum=-np.inf):
        if rows.dtype.kind not in "biufO":
            raise ValueError(f"{rows.name} has the type {rows.dtype}; give numbers.")
        super().__init__(rows.name, rows.shape, float)
        self._rows, self._missing, self._minimum = rows, missing, minimum

    def read(self, start, stop):
        found = self._rows.read(start, stop)
        may_lack = (self.name,) if self._missing else ()
        with inputs.counted_from(start), inputs.locate(may_lack=may_lack, **{self.name: found}):
            found = np.asarray(found, dtype=np.float64)
            bad = np.isinf(found) if self._missing else ~np.isfinite(found)
            if bad.any():
                raise ValueError(f"Input {self.name} contains NaN or infinity.")
        if not np.all((found >= self._minimum) | np.isnan(found)):
            place = np.argwhere(found < self._minimum)[0]
            raise ValueError(
                f"{self.name}[{start + place[0]}]={found[tuple(place)]:g} must be at least {self._minimum:g}."
            )
        return found


def _columns(rows):
    """Rows (N,) or (N, columns) with two axes."""
    if rows.ndim == 2:
        return rows
    return Mapped(lambda values: values.reshape(-1, 1), rows, shape=(len(rows), 1), dtype=rows.dtype)


# -- the arguments of a fit ------------------------------------------------------------------


def columns_of(estimator, X, given, y, reset):
    """X of many rows as `Rows`, checked now where it lies in memory, or as it is read; and the types of its columns.

    X is ``given`` as numbers: see `encoding.of_fit`.
    """
    if not isinstance(X, Rows):
        types = encoding.column_types(estimator, given)
        with inputs.locate(X=X):
            none = [None] if y is None else []
            return Held("X", encoding.validated(estimator, X, *none, reset=reset)), types
    types = inputs.column_types(np.empty((0, X.shape[1]), X.dtype) if X.ndim == 2 else X)
    found, few = Numbers(X), X.read(0, min(len(X), 2))
    # Its shape alone is checked here, and that there is a y.
    few = np.zeros(few.shape) if few.ndim == 2 else few
    validate_data(estimator, few, *([None] if y is None else []), dtype=np.float64, reset=reset)
    return found, types


def numbers_of_y(y, n_rows, ignores_missing):
    """Numbers y of many rows (N, T) as `Rows`, the types of its columns, and whether it has one axis."""
    types = inputs.column_types(np.empty((0, *y.shape[1:]), y.dtype) if isinstance(y, Rows) else y)
    if not isinstance(y, Rows):
        y = Held("y", inputs.targets(y, ignores_missing))
    elif y.ndim > 2:
        raise ValueError(f"y has the shape {y.shape}; give numbers, one row for each of X.")
    else:
        y = Numbers(y, missing=ignores_missing)
    check_consistent_length(np.broadcast_to(0.0, n_rows), np.broadcast_to(0.0, len(y)))
    return _columns(y), types, y.ndim == 1


def labels_of_y(y, n_rows):
    """Labels of many rows as `Rows` with one axis."""
    inputs.refuse_masked("y", y)
    y = y if isinstance(y, Rows) else Held("y", column_or_1d(y, warn=True))
    if y.ndim == 2 and y.shape[1] == 1:
        y = Mapped(np.ravel, y, shape=(len(y),), dtype=y.dtype)
    if y.ndim != 1:
        raise ValueError(f"y has the shape {y.shape}; give one label for each row of X.")
    check_consistent_length(np.broadcast_to(0.0, n_rows), np.broadcast_to(0.0, len(y)))
    return y


def weights(sample_weight, n_rows):
    """Weights of many rows as `Rows`."""
    if isinstance(sample_weight, Rows):
        if sample_weight.shape != (n_rows,):
            raise ValueError(f"sample_weight has the shape {sample_weight.shape}; give one for each of {n_rows} rows.")
        return Numbers(sample_weight, minimum=0.0)
    if sample_weight is None or isinstance(sample_weight, numbers.Number):
        return Constant("sample_weight", inputs.weights(sample_weight, np.zeros((1, 1)))[0], n_rows)
    return Held("sample_weight", inputs.weights(sample_weight, np.broadcast_to(0.0, (n_rows, 1))))


def known(name, value, n_rows, n_targets, minimum=-np.inf):
    """As `inputs.known`, for many rows: `Rows` (N, T), or None."""
    if not isinstance(value, Rows):
        value = inputs.known(name, value, n_rows, n_targets, minimum)
        return None if value is None else Held(name, value)
    if value.ndim > 2 or len(value) != n_rows or _columns(value).shape[1] not in (1, n_targets):
        raise ValueError(f"{name} has the shape {value.shape}; give one value for each of {n_rows} rows and targets.")

    def broadcast(values):
        return np.broadcast_to(values, (len(values), n_targets))

    return Mapped(broadcast, _columns(Numbers(value, minimum=minimum)), shape=(n_rows, n_targets))


def label_weights(y, weight):
    """The sorted labels of many rows, and the sum of the weights of each."""
    totals = {}

    def of_block(ends):
        labels, weights = y.read(*ends), weight.read(*ends)
        with inputs.counted_from(ends[0]), inputs.locate(labels):
            inputs.check_labels(labels)
        values, position = np.unique(labels, return_inverse=True)
        return values.tolist(), np.bincount(position, weights)

    for values, sums in _rows.ahead(of_block, _rows.slices(len(y))):
        for value, total in zip(values, sums.tolist(), strict=True):
            totals[value] = totals.get(value, 0.0) + total
    labels = np.unique(np.array(list(totals), dtype=y.dtype))
    return labels, np.array([totals[label] for label in labels.tolist()])


def encoded(y, weight, classes, factor):
    """Positions of labels (N, 1), and weights multiplied by the factor of each class (N,), as `Rows`."""

    def position(labels):
        return positions(classes, labels).reshape(-1, 1).astype(float)

    def weighted(labels, weight):
        return weight * factor[positions(classes, labels)]

    n_rows = len(y)
    return Mapped(position, y, shape=(n_rows, 1)), Mapped(weighted, y, weight, shape=(n_rows,))


# -- the table -------------------------------------------------------------------------------


def weighted(X, types, targets, batch_size):
    """As `training_table.weighted`, of many rows: a `LongTable`, or a `Table` where few are used; and X's spans."""
    weight = weights(targets.weight, len(X)) if not isinstance(targets.weight, Rows) else targets.weight

    def read(start, stop):
        y, w = targets.columns.read(start, stop), weight.read(start, stop)
        rest = (None if each is None else each.read(start, stop).T for each in (targets.offset, targets.known))
        part = svgp.Table(X.read(start, stop), y.T, w, *rest)
        used = (w > 0) & ~np.isnan(y).all(1)
        return part if used.all() else part.rows(used)

    table = svgp.LongTable(read, len(X))
    if not table.n_rows:
        raise ValueError("sample_weight is zero for every row; at least one row must have a positive weight.")
    facts = table.facts
    inputs.refuse_unseen(facts.lowest[1] <= facts.highest[1], targets.may_lack)
    # A column with missing values has no span.
    ends = (
        (facts.lowest[0], facts.highest[0]),
        [np.where(facts.missing, np.nan, end) for end in (facts.lowest[1], facts.highest[1])],
    )
    each = zip(ends, (types, targets.types), facts.is_whole, strict=True)
    spans = [spans_between(*of, kinds, whole.__getitem__) for of, kinds, whole in each]
    return _held(table.mapped(functools.partial(_snapped, spans=spans)), batch_size), spans[0]


def _snapped(part, spans):
    return part._replace(X=snapped(part.X, spans[0]), y=snapped(part.y.T, spans[1]).T)


def _held(table, batch_size):
    """The table in memory if it is not long, or if a batch is to hold all of it."""
    if table.n_rows > max(batch_size, _rows.WINDOW_ROWS):
        return table
    return in_memory(table, "give a smaller batch_size")


def in_memory(table, remedy="use more processes, each with fewer rows"):
    """The table with all rows in memory, if there is enough."""
    n_bytes = 4 * 8 * table.n_rows * (table.n_columns + table.n_targets + 1)
    memory.require(n_bytes, f"A batch of {table.n_rows} rows", remedy)
    return table.in_memory()


def check_targets(likelihood, table):
    """Refuse targets that are impossible under the likelihood, which were not among the sample's."""
    if type(likelihood).check_targets is not Likelihood.check_targets:
        for part in table.blocks():
            likelihood.check_targets(part.filled_y if not np.isnan(part.y).any() else part.y[~np.isnan(part.y)][None])


# -- the scale -------------------------------------------------------------------------------


def scales(table, spans, scales_X, likelihood, normalize_y):
    """The `Scale` of X, which does nothing unless ``scales_X``, and that of y, from all rows."""
    extremes, heaviest = table.extremes, table.facts.heaviest
    ends = extremes.y.T if not table.has_offset else _ends_without_offset(table, likelihood)
    of_X, of_y = Moments(*extremes.X), Moments(*ends)
    if scales_X or normalize_y:
        for part in table.blocks():
            # As `training_table.scales_of`, which knows all weights at once.
            weight = np.minimum(part.weight, 1.0)
            of_X.add(part.X, weight)
            of_y.add(_without_offset(part, likelihood).T, weight)
    n_columns, n_targets = table.n_columns, table.n_targets
    x, y = Scale(np.zeros(n_columns), np.ones(n_columns), spans), Scale(np.zeros(n_targets), np.ones(n_targets))
    if scales_X:
        x = scale_from("X", *of_X.result, np.abs(extremes.X).max(), heaviest, spans)
    if normalize_y:
        y = scale_from("y", *of_y.result, np.abs(ends).max(), heaviest)
        y = y._replace(scale=np.ones(n_targets), spans=None) if isinstance(normalize_y, str) else y
    return x, y


def _without_offset(part, likelihood):
    """The targets (T, N) without their offset."""
    if part.offset is None:
        return part.y
    return likelihood.without_offset(part.y, np.broadcast_to(part.weight, part.y.shape), part.offset)[0]


def _ends_without_offset(table, likelihood):
    lowest, highest = np.full((2, table.n_targets), np.nan)
    for part in table.blocks():
        y = _without_offset(part, likelihood)
        lowest, highest = np.fmin(lowest, np.fmin.reduce(y, axis=1)), np.fmax(highest, np.fmax.reduce(y, axis=1))
    return np.stack([lowest, highest])
