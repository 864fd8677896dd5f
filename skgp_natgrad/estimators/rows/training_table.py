"""The training table: weighted, scaled, without duplicate rows if it is small; and given points in its units."""

from __future__ import annotations

import reprlib
from typing import NamedTuple

import numpy as np

from ..._backend.repeated import at_most_one
from ..._backend.rows import Rows, filled_up
from ...choose import scale as scaling
from ...svgp import INDUCING_INITS, LongTable, Table
from ...training.distinct_rows import distinct
from ..arguments import checks
from . import cells, encoding, inputs, long_tables

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
    weight = targets.weight
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
    active = bool(normalize_X) and (affine or bool(blocks))
    if isinstance(table, LongTable):
        x, y = long_tables.scales(table, spans, active, likelihood, normalize_y, blocks)
    else:
        weight = at_most_one(table.weight)
        y = scaling.fit_targets(long_tables.without_offset(table, likelihood).T, weight, normalize_y)
        x = scaling.fit_scale("X", table.X, weight, active, spans)
        x = scaling.in_blocks(x, scaling.deviations(table.X, weight), blocks) if active else x
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
    y = long_tables.without_offset(part, likelihood)
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
    cells.refuse_masked("inducing_init", inducing_init)
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
