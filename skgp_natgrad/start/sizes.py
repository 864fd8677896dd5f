"""Sizes within a budget of operations and memory: those that the user leaves open are chosen, others may be refused.

A fit is refused before any work is done. Of the memory of each stage only arrays that grow with the table, the batch or
the number of points are counted, each with the least number of copies that are held at once. So a fit that is refused
could not have succeeded; one that is not refused may still need some hundred MiB more, for compiled programs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import linalg

from .._backend import memory
from ..step.chunk import STEPS_PER_CALL
from ..training.batches import batch_size_for, is_full

# Inducing points of a fit by steps.
OF_STEPS = 100
# The solution on all rows costs about 3 N M^2 operations for each latent function; the budget is half a minute on two
# cores. Then the most rows with a point at each; the most points of more rows: with 5000 in place of 3000 elevators and
# kin8nm took twice the time for no larger density; and the fewest.
_OPERATIONS, _AT_EVERY_ROW, _MOST, FEWEST = 2.7e12, 5000, 3000, 100
# For class labels, whose latent functions share a covariance, there are several such solutions. With more rows than the
# second number the time grows in proportion to the rows.
_OPERATIONS_OF_LABELS, _ROWS_OF_LABELS, _MOST_OF_LABELS = 7e10, 10_000, 5000
# If these points do not explain more than this share of the prior variance, the budget is larger, whatever the number
# of rows.
_MUCH, _MORE_OPERATIONS_OF_LABELS = 0.15, 6e11
# If they do not explain more than this share, there are further points for the means, within this budget.
WORTH_FURTHER_POINTS, _OPERATIONS_OF_MEANS = 0.03, 8e12
# Inducing points for the variance where the mean of a regression uses all rows.
OF_VARIANCE = 2000
# Fewer points do where they leave unexplained no more than this share of the noise variance: since the density of a row
# then gains at most half of it by further points.
_FEWER, _LITTLE_OF_NOISE = (1000, 2000), 0.01
# Most rows that are left out, the budget of operations for them, and the fewest such rows.
_MOST_LEFT_OUT, _OPERATIONS_OF_LEFT_OUT, _FEWEST_LEFT_OUT = 8192, 2e11, 500
# M x M matrices that the solution holds at once for each latent function, and the part of the memory for them.
MATRICES, _PART = 12, 0.5
# M x N arrays that the solutions for class labels and for counts hold at once.
ARRAYS_OF_LABELS, ARRAYS_OF_COUNTS = 5, 2


def n_inducing(n_rows, n_latent, n_bytes):
    """The number of inducing points for the closed form.

    Parameters
    ----------
    n_rows : int
    n_latent : int
    n_bytes : float
        Available memory.
    """
    affordable = np.sqrt(_OPERATIONS / (3.0 * n_rows * n_latent))
    fits = np.sqrt(_PART * n_bytes / (8.0 * MATRICES * n_latent))
    return int(np.clip(min(affordable, fits), FEWEST, _AT_EVERY_ROW if n_rows <= _AT_EVERY_ROW else _MOST))


def n_inducing_of_labels(n_rows, n_bytes, unexplained=lambda n_points: 0.0):
    """The number of inducing points for the solution for class labels.

    Parameters
    ----------
    n_rows : int
    n_bytes : float
        Available memory.
    unexplained : callable, optional
        Takes a number of points; returns the share of the prior variance that they do not explain.
    """
    few = np.sqrt(_OPERATIONS_OF_LABELS / (3.0 * min(n_rows, _ROWS_OF_LABELS)))
    more = max(few, np.sqrt(_MORE_OPERATIONS_OF_LABELS / (3.0 * n_rows)))
    matrices = np.sqrt(_PART * n_bytes / (8.0 * MATRICES))
    most = min(_MOST_OF_LABELS, matrices, _PART * n_bytes / (8.0 * ARRAYS_OF_LABELS * n_rows))
    few, more = (int(np.clip(each, FEWEST, max(most, FEWEST))) for each in (few, more))
    return more if few < min(more, n_rows) and unexplained(few) > _MUCH else few


def n_further_of_labels(n_rows, n_inducing, n_bytes):
    """The largest number of further points for the means of class labels, beside the inducing points.

    Parameters
    ----------
    n_rows : int
    n_inducing : int
    n_bytes : float
        Available memory.
    """

    def operations(n):
        # Those that factorise the points' covariance, and those that whiten the other rows.
        return n**2 * (n / 3.0 + np.maximum(n_rows - n, 0.0))

    found = np.arange(max(n_rows - n_inducing, 0), 0, -100.0)
    fits = operations(found) <= _OPERATIONS_OF_MEANS
    fits &= n_bytes_of_further(n_rows, n_inducing, found) <= _PART * n_bytes
    return int(found[fits].max(initial=0))


def n_bytes_of_further(n_rows, n_inducing, n_further):
    """The memory for further points of class labels: the root of their covariance, and whitened rows."""
    return 8 * n_further**2 + 4 * (n_inducing + n_further) * n_rows


def n_bytes_of_neighbours(n_rows, n_columns, n_targets):
    """The memory for predictions from neighbours: table, distinct rows twice, these scaled in two orders, a tree."""
    return 8 * n_rows * (5 * n_columns + 8 * n_targets + 4)


def fit_as_neighbours(n_rows, n_columns, n_targets, n_bytes):
    """Whether predictions from neighbours fit into their part of the memory."""
    return n_bytes_of_neighbours(n_rows, n_columns, n_targets) <= _PART * n_bytes


def n_left_out(n_points):
    """The number of rows to leave out, for a model with so many points: each row is whitened twice."""
    return int(min(_MOST_LEFT_OUT, max(_OPERATIONS_OF_LEFT_OUT / (2.0 * n_points**2), _FEWEST_LEFT_OUT)))


# The share of the prior variance that random points do not explain: whether there are enough of them.

# Rows from which the share and the prior variance are estimated, and the jitter relative to the prior variance.
_ROWS, _ROWS_OF_VARIANCE, _JITTER = 500, 1000, 1e-8


def share(kernel, X, n_points):
    """The share of the prior variance at some rows that other rows, as inducing points, do not explain.

    The same rows in the same order give the same share: they are drawn with a fixed seed.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
    X : ndarray of shape (N, D)
    n_points : int
        Less than N.

    Returns
    -------
    share : float
        From zero to one; NaN if the points' covariance has no Cholesky factor.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> X = np.linspace(0.0, 1.0, 200)[:, None]
    >>> share(RBF(1.0), X, 50) < 1e-6 < share(RBF(1e-4), X, 50)
    True
    """
    order = np.random.RandomState(0).permutation(len(X))
    Z, rows = X[order[:n_points]], X[order[n_points : n_points + _ROWS]]
    covariance = kernel(Z)
    covariance[np.diag_indices(len(Z))] += _JITTER * covariance.diagonal().mean()
    try:
        factor = linalg.cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
    except linalg.LinAlgError:
        return np.nan
    whitened = linalg.solve_triangular(factor, kernel(Z, rows), lower=True, overwrite_b=True, check_finite=False)
    prior = kernel.diag(rows)
    return float(np.maximum(prior - (whitened * whitened).sum(0), 0.0).mean() / prior.mean())


def variance_of(kernel, X):
    """The mean prior variance at some rows."""
    return np.mean(kernel.diag(X[:_ROWS_OF_VARIANCE]))


def fewer_that_do(n_points, kernels, noise, X):
    """At most ``n_points``: fewer where these already explain all variance that the noise does not hide.

    Parameters
    ----------
    n_points : int
    kernels : sequence of sklearn.gaussian_process.kernels.Kernel
    noise : float
        The noise variance, the least of several targets.
    X : ndarray of shape (N, D)
        Rows of the table.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> X = np.linspace(0.0, 1.0, 6000)[:, None]
    >>> fewer_that_do(3000, [RBF(1.0)], 0.1, X), fewer_that_do(3000, [RBF(1e-4)], 0.1, X)
    (1000, 3000)
    """

    def do(n_fewer):
        return all(share(each, X, n_fewer) * variance_of(each, X) <= _LITTLE_OF_NOISE * noise for each in kernels)

    return next(filter(do, [each for each in _FEWER if each < min(n_points, len(X))]), n_points)


# The memory that each stage of a fit needs, compared with the available memory.

# Of a number in double precision.
BYTES = 8
# Square matrices of the points that are held at once, for each latent function. A step: the covariance, its factor,
# precision and gradient, and those of the best state. The solution for the mean: factor and inverse of the points'
# covariance for each kernel, and for each latent function the system, the summand of a block of rows, its factor and a
# copy. One step: the same, and a search for the noise. The state of predictions: whiten and root_S, on the device and
# on the host, and two more while the reduction replaces root_S.
STEP, MEAN_SOLVE, ONE_STEP, PREDICTION = 4, 6, 8, 6
# Matrices of the points times a batch's rows: covariance and whitened rows, and the gradients with respect to these.
_OF_BATCH = 3


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
    n_bytes = n_bytes_of_neighbours(table.n_rows, table.n_columns, table.n_targets)
    return Stage("the table in memory", n_bytes, f"n_neighbors={plan.n_neighbours}", lambda n_bytes: "n_neighbors to 0")


def known_n_inducing(plan, table):
    """The number of inducing points, where it is known."""
    if not isinstance(plan.inducing_init, str):
        return len(np.atleast_1d(plan.inducing_init))
    if plan.n_inducing is None:
        return table.n_distinct
    return min(OF_STEPS if plan.n_inducing == "auto" else plan.n_inducing, table.n_rows)


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
    of_points = width * _OF_BATCH * plan.n_latent(table) * n_points
    # The rows of one call of the compiled steps, and those of the next call.
    of_row = of_points + 2 * STEPS_PER_CALL * BYTES * n_columns
    n_bytes = size * (of_points + BYTES * n_columns if is_full(n_rows, batch_size) else of_row)

    def would_fit(n_bytes):
        return f"batch_size to at most {max(int(n_bytes / of_row), 1)}"

    asked = f"batch_size={batch_size}, {size} rows and {n_points} points here"
    return Stage("a batch", n_bytes, asked, would_fit)
