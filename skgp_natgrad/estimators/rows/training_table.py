"""The training table: weighted, scaled, without duplicate rows if it is small; and given points in its units."""

from __future__ import annotations

import reprlib
from typing import NamedTuple

import numpy as np

from ..._backend.repeated import at_most_one, grouped
from ..._backend.rows import Rows, filled_up
from ...choose import scale as scaling
from ...svgp import INDUCING_INITS, LongTable, Table
from ..arguments import checks
from . import encoding, inputs, long_tables

# Largest value of a row in each type: beyond it squares overflow, and distances do not exist.
_LARGEST = {"float64": np.finfo(float).max, "float32": 1e18}
# Rows of training that the fitted estimator holds, at most: as many as a regression has points with nothing set.
KEPT_ROWS = 5000


class Scales(NamedTuple):
    """The scales of X and y."""

    x: scaling.Scale | scaling.NormalScores
    y: scaling.Scale


def weighted(X, types, targets, batch_size):
    """The rows with weight (merged where equal, on the full batch), X's spans of rounding, and the places of few rows.

    The places are an array (2, N): of each row the position in the table, or -1 without weight, and its own weight.
    """
    if isinstance(X, Rows):
        table, span = long_tables.weighted(X, types, targets, batch_size)
        return distinct(table, targets.n_classes > 0)[0] if table.n_rows <= batch_size else table, span, None
    weight = inputs.weights(targets.weight, X)
    seen = ~np.isnan(targets.columns)
    used = (weight > 0) & seen.any(1)
    inputs.refuse_unseen(seen[weight > 0].any(0), targets.may_lack)
    tables = X[used], targets.columns[used]
    spans = [scaling.spans_of_rounding(*pair) for pair in zip(tables, (types, targets.types), strict=True)]
    X, y = map(scaling.snapped, tables, spans)
    known = (None if each is None else each[used].T for each in (targets.offset, targets.known, targets.mean_function))
    table = Table(X, y.T, weight[used], *known)
    position = np.arange(len(table.weight))
    if len(table.weight) <= batch_size:
        table, position = distinct(table, targets.n_classes > 0)
    places = np.stack([np.full(len(used), -1.0), weight])
    places[0, used] = position
    return table, spans[0], places if len(used) <= KEPT_ROWS else None


def scales_of(table, spans, normalize_X, likelihood, normalize_y, choice, by_parts=False, blocks=()):
    """The `Scales` of a table's columns that ``normalize_X`` allows; several only if there is a ``choice``.

    ``by_parts``: whether further rows may follow; a y that is constant so far may vary in them. ``blocks``: see
    `Plan`.
    """
    affine = normalize_X != "quantile"
    if isinstance(table, LongTable):
        x, y = long_tables.scales(table, spans, affine and bool(normalize_X), likelihood, normalize_y)
    else:
        y = table.y
        if table.offset is not None:
            y, _ = likelihood.without_offset(y, np.broadcast_to(table.weight, y.shape), table.offset)
        weight = at_most_one(table.weight)
        y = scaling.fit_targets(y.T, weight, normalize_y)
        active = bool(normalize_X) and (affine or bool(blocks))
        x = scaling.fit_scale("X", table.X, weight, active, spans)
        x = scaling.in_blocks(x, table.X, weight, blocks) if active else x
    if by_parts:
        ends = table.extremes.y if isinstance(table, LongTable) else table.y
        y = y._replace(scale=np.where(np.nanmax(ends, axis=1) > np.nanmin(ends, axis=1), y.scale, 1.0))
    found = [x] if affine else []
    if normalize_X == "common":
        return [Scales(scaling.fit_common_scale(x), y)]
    wide = scaling.is_wide(table.n_rows, table.n_columns, blocks)
    if normalize_X == "quantile" or (normalize_X == "auto" and choice and not wide):
        # The quantiles of a long table are those of its sample.
        scores = scaling.fit_normal_scores(table.sample.X, at_most_one(table.sample.weight), spans)
        found.append(scaling.affine_in_blocks(scores, x, blocks) if blocks else scores)
    n_features = table.n_columns - sum(len(block) - 1 for block in blocks)
    if normalize_X == "auto" and choice and (wide or n_features >= scaling.MANY_COLUMNS):
        found.append(scaling.fit_common_scale(x))
    return [Scales(x, y) for x in found]


def deviation(table, likelihood):
    """Standard deviations of the targets that are seen, without their offsets."""
    part = table.sample
    y = part.y
    if part.offset is not None:
        y, _ = likelihood.without_offset(y, np.broadcast_to(part.weight, y.shape), part.offset)
    return scaling.fit_targets(y[~np.isnan(y).all(1)].T, at_most_one(part.weight), True).scale


def scaled(table, scales, dtype, likelihood, n_latent):
    """The table in the units of the model, whose latent functions may be several for each target.

    Raises
    ------
    ValueError
        If some values are too large to be squared in this type.
    """
    if isinstance(table, LongTable):
        scaled(table.extremes, scales, dtype, likelihood, n_latent)
        return table.mapped(lambda part: scaled(part, scales, dtype, likelihood, n_latent))
    with np.errstate(over="ignore"):
        X = scales.x.forward(table.X)
    largest = np.abs(X).max()
    if not largest <= _LARGEST[dtype]:
        raise ValueError(
            f"X holds values up to {largest:g} in the units of the model, which dtype={dtype!r} cannot "
            "square; rescale X (normalize_X=True does), or use dtype='float64'."
        )
    known = None if table.known is None else likelihood.known_in_units(table.known, *scales.y[:2])
    offset = None if table.offset is None else latent_offset(table.offset, scales.y, n_latent)
    y = likelihood.observed(table.y)
    return Table(X, scales.y.forward(y.T).T, table.weight, offset, known, table.mean_function)


def latent_offset(offset, scale, n_latent):
    """What is added to the latent functions (K, N), for an offset (T, N) in the units of y: to the first of each."""
    return filled_up(offset / scale.scale[:, None], n_latent, value=0.0)


def distinct(table, of_labels):
    """Return the distinct rows of a table in a fixed order, with their weights summed; and where each row has gone.

    A repeated row and a row of twice the weight then give the same table, to the bit, and so does every order of the
    rows; every order and sign of the columns, and with ``of_labels`` other names of the labels, give the same order.
    """
    known = [each.T for each in (table.y, table.offset, table.known) if each is not None]
    kinds = np.repeat(np.arange(1 + len(known)), [table.n_columns, *(each.shape[1] for each in known)])
    columns = np.column_stack([table.X, *known])
    # By weight first, for a fixed order of sums. A missing value equals another.
    order = np.argsort(table.weight, kind="stable")
    groups, start = grouped(np.where(np.isnan(columns), np.inf, columns)[order])
    order = order[groups]
    weight = np.add.reduceat(table.weight[order], start)
    place = order_of(columns[order[start]], weight, kinds, [table.n_columns] if of_labels else [])
    found = [None if each is None else np.ascontiguousarray(each) for each in table.rows(order[start][place])]
    position = np.empty(len(order), int)
    position[order] = np.repeat(np.argsort(place), np.diff([*start, len(order)]))
    return Table(*found)._replace(weight=weight[place]), position


# A canonical order of the rows, which does not depend on how the table is given. Rows that are drawn by their places
# must not depend on the order of rows and columns, on the sign of a column, or on the names of labels. So rows are
# sorted by a hash that is refined like the colours of a graph (Weisfeiler and Leman 1968): the hash of a column depends
# on the rows of its values, that of a label on its rows, and that of a row on its values and their columns. Values
# enter by their ranks around the middle one, whose sign is that of the column. All sums are of integers modulo 2^64,
# which are the same in every order.

# One round tells rows apart by the sizes of their ranks, the next ones by signs and columns; then weights count, too.
_ROUNDS, _WITHOUT_WEIGHTS = 8, 4
_HALF = 1 << 63


def order_of(columns, weight, kinds, labels=()):
    """The canonical order of distinct rows, which weights decide only among those that are alike without them.

    Parameters
    ----------
    columns : ndarray of shape (N, C)
        Numbers; NaN where one is missing.
    weight : ndarray of shape (N,)
    kinds : sequence of int
        The kind of each column, as of X and of y: only columns of one kind may be exchanged.
    labels : sequence of int
        Positions of columns whose values are names.

    Returns
    -------
    order : ndarray of shape (N,)
    """
    columns = columns + 0.0
    ranks = [(j, _ranks(column, j in labels)) for j, column in enumerate(columns.T)]
    # A constant, such as the offset of all rows, tells none apart.
    ranks = [(j, rank) for j, rank in ranks if rank.any()]
    seeds = _mixed(np.asarray(kinds, np.uint64))
    row = np.zeros(len(columns), np.uint64)
    for i in range(_ROUNDS):
        if i == _WITHOUT_WEIGHTS:
            row = _mixed(row) + _mixed(_ranks(weight, True).astype(np.uint64))
        found = _mixed(row)
        for j, rank in ranks:
            found += _mixed(seeds[j] ^ (_of_names if j in labels else _of_numbers)(rank, row))
        row = found
        order = np.argsort(row, kind="stable")
        if not np.any(row[order[1:]] == row[order[:-1]]):
            return order
    # Rows are one another's mirror images: any order does that does not depend on the one given.
    return np.lexsort(np.vstack([columns.T[::-1], row]))


def _ranks(column, are_names):
    """The rank of each value, of numbers twice its distance to the middle rank; a missing one is there."""
    values, rank = np.unique(column, return_inverse=True)
    rank = np.ravel(rank).astype(np.int64)
    if are_names:
        return rank
    return np.where(np.isnan(column), 0, 2 * rank - (np.count_nonzero(~np.isnan(values)) - 1))


def _of_numbers(rank, row):
    """A hash of each number and its column (N,), the same if all ranks have the other sign."""
    size, sign = _mixed(np.abs(rank).astype(np.uint64)), np.sign(rank)
    weight = _mixed(row)
    total = int((weight * size * sign.astype(np.uint64)).sum())
    side = 0 if not total else 1 if total < _HALF else -1
    of_column = _mixed(np.array([int((weight * size).sum()), min(total, 2 * _HALF - total)], np.uint64))
    return of_column[0] ^ (of_column[1] + _mixed(size + (sign * side + 1).astype(np.uint64)))


def _of_names(rank, row):
    """A hash of each label (N,), which is that of its rows."""
    total = np.zeros(rank.max(initial=0) + 1, np.uint64)
    np.add.at(total, rank, _mixed(row))
    return _mixed(total)[rank]


def _mixed(number):
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): 64 bits of which each depends on all."""
    number = number + np.uint64(0x9E3779B97F4A7C15)
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))


def with_points(plan, estimator, n_features, scale):
    """The plan with ``inducing_init`` checked and the user's points in the units of the model."""
    if isinstance(plan.inducing_init, str):
        checks.choice("inducing_init", plan.inducing_init, ("auto", *INDUCING_INITS))
        return plan
    if plan.n_inducing is None:
        raise ValueError(
            f"n_inducing={estimator.n_inducing!r} puts an inducing point at every row, but inducing_init also "
            "gives points; leave one of the two at its default."
        )
    _check_names_of(plan.inducing_init, getattr(estimator, "feature_names_in_", None))
    given = _given_points(encoding.points(estimator, plan.inducing_init), n_features)
    exact = plan.settings.algorithm.solves_mean
    sized = plan.n_inducing != "auto"
    if exact and plan.n_mean_inducing and sized and len(given) == plan.n_inducing + plan.n_mean_inducing:
        raise ValueError(
            f"inducing_init has {len(given)} points, but mean_solver='exact' places the mean-only points "
            "itself; give only the inducing points."
        )
    return plan._replace(inducing_init=scale.forward(given))


def _check_names_of(inducing_init, names):
    """Refuse a data frame of points whose columns are not those of X, in their order."""
    columns = getattr(inducing_init, "columns", None)
    if names is not None and columns is not None and list(columns) != list(names):
        raise ValueError(
            f"inducing_init has the columns {list(columns)}, but X has {list(names)}; give the same ones in the same "
            "order."
        )


def _given_points(inducing_init, n_features):
    """The user's array of points, checked."""
    inputs.refuse_masked("inducing_init", inducing_init)
    try:
        given = np.asarray(inducing_init, dtype=float)
    except (TypeError, ValueError):
        given = np.empty(0)
    if given.ndim != 2 or given.shape[1] != n_features or len(given) == 0 or not np.all(np.isfinite(given)):
        raise ValueError(
            f"inducing_init={reprlib.repr(inducing_init)} must be one of 'auto', "
            f"{', '.join(map(repr, INDUCING_INITS))}, or a finite array of points of shape (n_points, {n_features}) in "
            "the units of X."
        )
    return given
