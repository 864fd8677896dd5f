"""Decides by left-out rows whether rows are predicted from their neighbours or from the inducing points.

Predictions from neighbours use all rows of the table, and keep the hyperparameters that were found. A model on few
inducing points treats the variance that they do not explain as noise; its noise and scale are fitted to it.
"""

from __future__ import annotations

import jax
import numpy as np

from .._backend import placement, processes
from ..neighbours import Neighbours
from ..solve import closed_form
from ..solve.system import weights_of
from ..training.long_table import AnyTable
from . import errors, sizes
from .state import Result

# Inducing points of a model that predicts from neighbours, for everything else that needs a q.
POINTS = 500
# Neighbours of each row if their number is "auto".
_NEIGHBOURS = 200
# Rows that compare both ways; the gain, in nats a row, that more inducing points would not make up for; and the least
# gain over a mean on all rows, which is smooth, and whose judges had no part in it.
_ROWS, _CLEAR, _OF_MEANS = 2000, 0.1, 0.3
# With fewer rows nothing is compared.
_FEWEST = 10


def may(plan, table):
    """Whether a prediction from neighbours is tried for this plan and table."""
    if not plan.n_neighbours or processes.sharing(plan.n_devices) > 1:
        return False
    if plan.n_neighbours != "auto":
        return True
    # Rows that are read from a file are held in memory only if the user asks for neighbours.
    alone = table.sample is table and plan.n_devices is None and placement.on_one_cpu() and not table.y_is_constant
    return alone and sizes.fit_as_neighbours(table.n_rows, table.n_columns, table.n_targets, plan.n_bytes)


def are_likely(plan, table):
    """Whether neighbours are expected to be better, so that the fit begins with few inducing points."""
    is_open = plan.n_neighbours == "auto"
    too_many = sizes.are_too_many(table.n_rows, table.n_targets, plan.n_bytes)
    return may(plan, table) and (too_many or not is_open)


def found(optimum, parameters, constants, table, plan):
    """The neighbours, if the user asks for them or they predict better; else None.

    Parameters
    ----------
    optimum : Optimum
        With predictions of left-out rows.
    parameters : Parameters
        With the hyperparameters that were found.
    constants : Constants
    table : Table
    plan : Plan

    Returns
    -------
    optimum : Optimum or None
        With neighbours, and the left-out rows as these predict them; `on_points` completes it.
    """
    asked, points = plan.n_neighbours != "auto", optimum.left_out
    neighbours = _neighbours(parameters, constants, table, plan.n_neighbours if asked else _NEIGHBOURS)
    more_noise, some = _variance(parameters) / _variance(optimum.parameters), _some(points)
    gain = _density(_left_out(neighbours, parameters, some, more_noise)) - _density(some)
    least = _OF_MEANS if optimum.means is not None else 0.0 if plan.n_inducing_alone is None else _CLEAR
    if not (asked or gain > least):
        return None
    left_out = _left_out(neighbours, parameters, points, more_noise)
    held_out = optimum.held_out._replace(mean=optimum.held_out.mean + gain)
    return optimum._replace(left_out=left_out, held_out=held_out, neighbours=neighbours, means=None)


def on_points(optimum, parameters, constants, table, random_state):
    """An `Optimum` with neighbours, with q on some points for all else; noise and scale are kept."""
    found = closed_form.solve(parameters, constants, table, random_state, searches=False)
    return optimum._replace(q=found.q, parameters=found.parameters, elbo=found.elbo)


def joined(neighbours: Neighbours, result: Result, table: AnyTable) -> Neighbours:
    """The neighbours of a stream together with its next rows, under the noise and the prior mean of a `Result`."""
    parameters, constants = result.state.parameters, result.constants
    return neighbours.joined(_neighbours(parameters, constants, table, neighbours.n_neighbours))


def _neighbours(parameters, constants, table, n_neighbours):
    table = table.in_memory()
    y, _, weight = weights_of(table, parameters, table.per_target)
    with np.errstate(divide="ignore"):
        noise = _variance(parameters) / weight
    return Neighbours.of(table.X, y - table.prior_mean(constants), noise, n_neighbours)


def _variance(parameters):
    """The noise variances (T, 1)."""
    return np.exp(np.asarray(parameters.raw_likelihood.variance)).reshape(-1, 1)


def _some(left_out):
    """At most `_ROWS` of the rows that were predicted, evenly spaced."""
    index = np.flatnonzero(np.isfinite(left_out.error).any(0))
    index = index[np.linspace(0, len(index) - 1, min(len(index), _ROWS)).round().astype(int)]
    of_rows = ("error", "latent", "noise", "weight", "n_each", "y")
    return left_out._replace(X=left_out.X[index], **{name: getattr(left_out, name)[:, index] for name in of_rows})


def _left_out(neighbours, parameters, points, more_noise):
    """The `LeftOut` of the same rows, each predicted from its neighbours without rows that equal it."""
    seen = np.isfinite(points.error)
    some = seen.any(0)
    mean, latent = np.zeros((2, *seen.shape))
    kernels = jax.tree.map(np.exp, parameters.log_kernels)
    mean[:, some], latent[:, some] = neighbours.moments(kernels, points.X[some], without_equal=True)
    error = np.where(seen, points.y - mean, np.nan)
    return points._replace(error=error, latent=latent, noise=points.noise * more_noise, leverage=None)


def _density(left_out):
    """The mean log density of the rows under the best distribution of errors, averaged over the targets."""
    found = []
    for k, error in enumerate(left_out.error):
        rows = np.flatnonzero(np.isfinite(error) & (left_out.weight[k] > 0.0))
        if len(rows) < _FEWEST:
            return 0.0
        error, variance, weight, n_each = (
            each[k, rows] for each in (left_out.error, left_out.variance, left_out.weight, left_out.n_each)
        )
        width = np.ravel(left_out.width)[k]
        seen = errors.Seen(
            error, variance, np.zeros(len(rows)), weight, n_each, width if errors.floor(width, error, weight) else 0.0
        )
        found.append(seen.density(errors.best(seen)))
    return float(np.mean(found))
