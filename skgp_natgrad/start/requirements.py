"""The memory that each stage of a fit needs, compared with what there is before any work is done.

Only arrays that grow with a table, a batch or a number of points count, each as often as it is held at
the same time at least. So a fit that is refused could not have succeeded; one that is not may still need
some hundred MiB more, for compiled programs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._backend import memory
from ..mean_solve import row_means
from ..step.algorithm import SOLVERS
from ..step.chunk import STEPS_PER_CALL
from ..training.batches import batch_size_for, is_full
from ..variational.bases import BASES
from . import sizes

_BYTES = 8
# Square matrices of the points that are held at once, for each latent function. A step: the covariance, its factor,
# precision and gradient, and the best state's; the solution for the mean: factor and inverse of the points' covariance
# for each kernel, and for each latent function the system, what a block of rows adds to it, its factor and a copy; one
# step: the same and a search for the noise; the prediction's state: whiten and root_S, on the device and here, and
# two more while the reduction takes the place of root_S.
_STEP, _MEAN_SOLVE, _ONE_STEP, _PREDICTION = 4, 6, 8, 6
# Matrices of points and rows of a batch: the covariance, whitened rows, and the gradients with respect to both.
_OF_ROWS = 3


class Stage(NamedTuple):
    """A part of a fit, and what it holds at once.

    Attributes
    ----------
    name : str
    n_bytes : int
    asked : str
        The arguments that ask for it, with their values.
    would_fit : function
        Called with a number of bytes: what would fit, as text.
    """

    name: str
    n_bytes: int
    asked: str
    would_fit: object


def require(plan, table):
    """Raise MemoryError if some stage of a plan needs more memory than there is.

    Parameters
    ----------
    plan : Plan
        Sizes may still be "auto", which stands for sizes that fit.
    table : Table

    Raises
    ------
    MemoryError
        Names all such stages, the arguments, and values that would fit.
    """
    _refuse(stages(plan, table))


def require_points(plan, n_latent, n_points):
    """The same for the training steps of a stream, whose points are those of the fit before and of the new rows."""
    _refuse([_of_points("a training step", plan, _STEP, n_latent, n_points, 0)])


def _refuse(needed):
    """Raise MemoryError if some of these stages need more than is available."""
    found = memory.available()
    too_large = [] if found is None else [stage for stage in needed if stage.n_bytes > found]
    if too_large:
        needs = " ".join(
            f"{stage.asked}: {stage.name} needs {stage.n_bytes / memory.GIB:.3g} GiB of memory; lower "
            f"{stage.would_fit(found)}."
            for stage in too_large
        )
        raise MemoryError(f"{needs} {found / memory.GIB:.3g} GiB are available here.")


def stages(plan, table):
    """The stages of a fit that are known to be large."""
    settings, n_latent = plan.settings, plan.n_latent(table)
    n_inducing = _n_inducing(plan, table)
    if SOLVERS[settings.algorithm.solver].one_step:
        # "auto" follows from the memory.
        known = plan.n_inducing != "auto" or not isinstance(plan.inducing_init, str)
        n_inducing = n_inducing if known else min(sizes.FEWEST, table.n_rows)
        of_points = [] if not known and plan.likelihood.conjugate else _of_one_step(plan, table, n_inducing)
        return of_points + _of_further_points(plan, table, n_inducing)
    # What "auto" is with many steps.
    n_mean = 0 if plan.n_mean_inducing == "auto" else min(plan.n_mean_inducing, table.n_rows)
    solved = settings.algorithm.mean_solver == "exact"
    with_covariance = n_mean if BASES[plan.basis].second_part else 0
    found = [_batches(plan, table, n_inducing + (0 if solved else n_mean))]
    found.append(_of_points("a training step", plan, _STEP, n_latent, n_inducing, with_covariance))
    found.append(_of_points("the state of predictions", plan, _PREDICTION, n_latent, n_inducing, with_covariance))
    if settings.algorithm.mean_solver == "natural":
        found.append(_of_points("the metric of the mean", plan, _STEP, 1, 0, n_mean))
    if solved and n_mean:
        found.append(_of_points("the solution for the mean", plan, _MEAN_SOLVE, n_latent, n_inducing, n_mean))
    return found


def _of_one_step(plan, table, n_inducing):
    if plan.likelihood.conjugate:
        return [_of_points("the one step on all rows", plan, _ONE_STEP, plan.n_latent(table), n_inducing, 0)]
    # Class labels share a covariance, and their covariances with the points are held for all rows.
    each = _BYTES * sizes.ARRAYS_OF_LABELS * table.n_rows

    def would_fit(n_bytes):
        return f"n_inducing to at most {max(int(n_bytes / each), 1)}"

    asked = f"n_inducing={plan.n_inducing!r}, {n_inducing} points here"
    rows = Stage("the covariance of all rows with the points", each * n_inducing, asked, would_fit)
    return [_of_points("the solution for class labels", plan, _ONE_STEP, 1, n_inducing, 0), rows]


def _of_further_points(plan, table, n_inducing):
    """The stage of the means on further points after one step."""
    n_rows, n_further = table.n_rows, plan.n_mean_inducing
    if n_further in ("auto", 0):
        return []
    if plan.likelihood.conjugate:
        n_bytes, would_fit = row_means.n_bytes(n_rows, table.n_targets), lambda n_bytes: "n_mean_inducing to 0"
    else:
        n_further = min(n_further, n_rows)
        n_bytes = sizes.n_bytes_of_further(n_rows, n_inducing, n_further)

        def would_fit(n_bytes):
            # The positive root of that quadratic, if there is one.
            rest = n_bytes / 8 - n_rows * n_inducing / 2
            most = np.sqrt(max(rest + (n_rows / 4) ** 2, 0.0)) - n_rows / 4
            return f"n_mean_inducing to at most {max(int(most), 0)}"

    asked = f"n_mean_inducing={plan.n_mean_inducing}, {n_further} further points here"
    return [Stage("the mean on further points", n_bytes, asked, would_fit)]


def _n_inducing(plan, table):
    """The number of inducing points, where it is known."""
    if not isinstance(plan.inducing_init, str):
        return len(np.atleast_1d(plan.inducing_init))
    if plan.n_inducing is None:
        return table.n_distinct
    return min(sizes.OF_STEPS if plan.n_inducing == "auto" else plan.n_inducing, table.n_rows)


def _of_points(name, plan, n_matrices, n_latent, n_inducing, n_further):
    """The stage that holds square matrices of the points."""
    each = _BYTES * n_matrices * n_latent

    def would_fit(n_bytes):
        name, other = ("n_mean_inducing", n_inducing) if n_further > n_inducing else ("n_inducing", n_further)
        return f"{name} to at most {max(int(np.sqrt(n_bytes / each)) - other, 1)}"

    asked = f"n_inducing={plan.n_inducing!r}, {n_inducing} points here"
    if n_further:
        asked += f", n_mean_inducing={plan.n_mean_inducing!r}"
    return Stage(name, each * (n_inducing + n_further) ** 2, asked, would_fit)


def _batches(plan, table, n_points):
    """The stage that holds the rows of batches, and their covariances with the points."""
    batch_size, n_rows = plan.settings.batch_size, table.n_rows
    size, n_columns = batch_size_for(n_rows, batch_size), table.n_columns + table.n_targets + 1
    width = np.dtype(plan.settings.dtype).itemsize
    of_points = width * _OF_ROWS * plan.n_latent(table) * n_points
    # Those of one call of the compiled steps, and of the next.
    of_row = of_points + 2 * STEPS_PER_CALL * _BYTES * n_columns
    n_bytes = size * (of_points + _BYTES * n_columns if is_full(n_rows, batch_size) else of_row)

    def would_fit(n_bytes):
        return f"batch_size to at most {max(int(n_bytes / of_row), 1)}"

    asked = f"batch_size={batch_size}, {size} rows and {n_points} points here"
    return Stage("a batch", n_bytes, asked, would_fit)
