"""Tables of many rows, and tables in files: they are checked, weighted and scaled block by block.

A table of up to ``WINDOW_ROWS`` rows is held in memory. A longer one becomes a `LongTable`, whose rows are validated
and scaled as they are read. The result is the same for rows in memory and in a file.
"""

from __future__ import annotations

import functools

import numpy as np

from ... import svgp
from ..._backend import memory
from ..._backend import rows as _rows
from ...choose.scale import Moments, Scale, in_blocks, scale_from, snapped, spans_between
from ...likelihoods import Likelihood
from . import inputs

# -- the table -------------------------------------------------------------------------------


def weighted(X, types, targets, batch_size):
    """As `training_table.weighted`, of many rows: a `LongTable`, or a `Table` where few are used; and X's spans."""

    def read(start, stop):
        y, w = targets.columns.read(start, stop), targets.weight.read(start, stop)
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


def scales(table, spans, scales_X, likelihood, normalize_y, blocks):
    """The `Scale` of X, which does nothing unless ``scales_X``, and that of y, from all rows."""
    extremes, heaviest = table.extremes, table.facts.heaviest
    ends = extremes.y.T if not table.has_offset else _ends_without_offset(table, likelihood)
    of_X, of_y = Moments(*extremes.X), Moments(*ends)
    if scales_X or normalize_y:
        for part in table.blocks():
            # As `training_table.scales_of`, which knows all weights at once.
            weight = np.minimum(part.weight, 1.0)
            of_X.add(part.X, weight)
            of_y.add(without_offset(part, likelihood).T, weight)
    n_columns, n_targets = table.n_columns, table.n_targets
    x, y = Scale(np.zeros(n_columns), np.ones(n_columns), spans), Scale(np.zeros(n_targets), np.ones(n_targets))
    if scales_X:
        x = scale_from("X", *of_X.result, np.abs(extremes.X).max(), heaviest, spans)
        x = in_blocks(x, of_X.result[1].__getitem__, blocks)
    if normalize_y:
        y = scale_from("y", *of_y.result, np.abs(ends).max(), heaviest)
        y = y._replace(scale=np.ones(n_targets), spans=None) if isinstance(normalize_y, str) else y
    return x, y


def without_offset(part, likelihood):
    """The targets (T, N) without their offset."""
    if part.offset is None:
        return part.y
    return likelihood.without_offset(part.y, np.broadcast_to(part.weight, part.y.shape), part.offset)[0]


def _ends_without_offset(table, likelihood):
    lowest, highest = np.full((2, table.n_targets), np.nan)
    for part in table.blocks():
        y = without_offset(part, likelihood)
        lowest, highest = np.fmin(lowest, np.fmin.reduce(y, axis=1)), np.fmax(highest, np.fmax.reduce(y, axis=1))
    return np.stack([lowest, highest])
