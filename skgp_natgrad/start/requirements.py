"""The memory that each stage of a fit needs, compared with the available memory before any work is done.

Only arrays that grow with the table, the batch or the number of points are counted, each with the least
number of copies that are held at once. So a fit that is refused could not have succeeded; one that is not
refused may still need some hundred MiB more, for compiled programs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._backend import memory
from ..step.chunk import STEPS_PER_CALL
from ..training.batches import batch_size_for, is_full
from . import sizes

# Of a number in double precision.
BYTES = 8
# Square matrices of the points that are held at once, for each latent function. A step: the covariance, its factor,
# precision and gradient, and those of the best state. The solution for the mean: factor and inverse of the points'
# covariance for each kernel, and for each latent function the system, the summand of a block of rows, its factor and a
# copy. One step: the same, and a search for the noise. The state of predictions: whiten and root_S, on the device and
# on the host, and two more while the reduction replaces root_S.
STEP, MEAN_SOLVE, ONE_STEP, PREDICTION = 4, 6, 8, 6
# Matrices of the points times a batch's rows: covariance and whitened rows, and the gradients with respect to these.
_OF_ROWS = 3


class Stage(NamedTuple):
    """A part of a fit, and the memory that it needs at once.

    Attributes
    ----------
    name : str
    n_bytes : int
    asked : str
        The arguments that cause it, with their values.
    would_fit : function
        Takes a number of bytes; returns as text what would fit into them.
    """

    name: str
    n_bytes: int
    asked: str
    would_fit: object


def require(plan, table):
    """Raise MemoryError if some stage of a plan needs more memory than is available.

    Parameters
    ----------
    plan : Plan
        Sizes may still be "auto": these will be chosen so that they fit.
    table : Table

    Raises
    ------
    MemoryError
        Names all such stages, the arguments, and values that would fit.
    """
    _refuse(plan.route.stages(plan, table))


def require_points(plan, n_latent, n_points):
    """The same for the training steps of a stream, with the number of points of the earlier fit and the new rows."""
    _refuse([of_points("a training step", plan, STEP, n_latent, n_points, 0)])


def _refuse(needed):
    """Raise MemoryError if some of these stages need more than is available."""
    found = memory.available()
    too_large = [stage for stage in needed if stage.n_bytes > found]
    if too_large:
        needs = " ".join(
            f"{stage.asked}: {stage.name} needs {stage.n_bytes / memory.GIB:.3g} GiB of memory; lower "
            f"{stage.would_fit(found)}."
            for stage in too_large
        )
        raise MemoryError(f"{needs} {found / memory.GIB:.3g} GiB are available here.")


def of_mean(plan, n_further, n_bytes, would_fit):
    """The stage of one step that finds means on further points."""
    asked = f"n_mean_inducing={plan.n_mean_inducing}, {n_further} further points here"
    return Stage("the mean on further points", n_bytes, asked, would_fit)


def of_neighbours(plan, table):
    """The stage of rows from which others are predicted."""
    n_bytes = sizes.n_bytes_of_neighbours(table.n_rows, table.n_columns, table.n_targets)
    return Stage("the table in memory", n_bytes, f"n_neighbors={plan.n_neighbours}", lambda n_bytes: "n_neighbors to 0")


def n_inducing(plan, table):
    """The number of inducing points, where it is known."""
    if not isinstance(plan.inducing_init, str):
        return len(np.atleast_1d(plan.inducing_init))
    if plan.n_inducing is None:
        return table.n_distinct
    return min(sizes.OF_STEPS if plan.n_inducing == "auto" else plan.n_inducing, table.n_rows)


def of_points(name, plan, n_matrices, n_latent, n_inducing, n_further):
    """The stage that holds square matrices of the points."""
    each = BYTES * n_matrices * n_latent

    def would_fit(n_bytes):
        name, other = ("n_mean_inducing", n_inducing) if n_further > n_inducing else ("n_inducing", n_further)
        return f"{name} to at most {max(int(np.sqrt(n_bytes / each)) - other, 1)}"

    asked = f"n_inducing={plan.n_inducing!r}, {n_inducing} points here"
    if n_further:
        asked += f", n_mean_inducing={plan.n_mean_inducing!r}"
    return Stage(name, each * (n_inducing + n_further) ** 2, asked, would_fit)


def batches(plan, table, n_points):
    """The stage that holds the rows of batches, and their covariances with the points."""
    batch_size, n_rows = plan.settings.batch_size, table.n_rows
    size, n_columns = batch_size_for(n_rows, batch_size), table.n_columns + table.n_targets + 1
    width = np.dtype(plan.settings.dtype).itemsize
    of_points = width * _OF_ROWS * plan.n_latent(table) * n_points
    # The rows of one call of the compiled steps, and those of the next call.
    of_row = of_points + 2 * STEPS_PER_CALL * BYTES * n_columns
    n_bytes = size * (of_points + BYTES * n_columns if is_full(n_rows, batch_size) else of_row)

    def would_fit(n_bytes):
        return f"batch_size to at most {max(int(n_bytes / of_row), 1)}"

    asked = f"batch_size={batch_size}, {size} rows and {n_points} points here"
    return Stage("a batch", n_bytes, asked, would_fit)
