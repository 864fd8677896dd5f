"""Decides by left-out rows whether rows are predicted from their neighbours or from the inducing points.

Predictions from neighbours use all rows of the table, and keep the hyperparameters that were found. A model on few
inducing points treats the variance that they do not explain as noise; its noise and scale are fitted to it.

Neighbours are compared with few points. If they are not far better, thousands of points follow.
"""

from __future__ import annotations

import jax
import numpy as np

from .._backend import placement, processes
from ..choose.neighbours import nearest_others, of_errors
from ..neighbours import Neighbours
from ..solve import closed_form
from ..solve.system import weights_of
from ..training.long_table import AnyTable
from ..training.shares import by_parts, gathered
from . import sizes
from .state import Result

# Inducing points of a model that predicts from neighbours, for everything else that needs a q.
POINTS = 500
# Neighbours of each row if their number is "auto".
_NEIGHBOURS = 200
# Rows that compare both ways, and the gain over few points, in nats a row, that more points would not make up for: 3000
# points are ahead where it is .05 (kin8nm), and neighbours where it is .12 (keggdirected: 2.55 in place of 1.76).
_PROBED, _WORTH_NEIGHBOURS = 2000, 0.1
# With fewer rows nothing is compared.
_FEWEST_PROBED = 10
# The least gain, in nats a row, that is worth twice as many neighbours, with which a row takes three times as long; and
# the loss by half of them, from which on these do as well.
_WORTH_TWICE, _LOSS_OF_HALF = 0.05, 0.002
# Most rows that such neighbours predict to calibrate the errors.
_CALIBRATED = 4096


def may(plan, table):
    """Whether a prediction from neighbours is tried for this plan and table."""
    if not plan.n_neighbours:
        return False
    if plan.n_neighbours != "auto":
        return True
    # Rows of files are held in memory, too, so that a file and the same array have the same model: if it is known how
    # much memory there is.
    in_memory = table.sample is table or bool(np.isfinite(plan.n_bytes))
    n_processes = processes.sharing(plan.n_devices)
    shape = table.n_rows * n_processes, table.n_columns, table.n_targets
    found = in_memory and not table.y_is_constant and sizes.fit_as_neighbours(*shape, plan.n_bytes)
    # Each process then holds the rows of all.
    return found if n_processes == 1 else all(processes.exchanged(found))


def first(plan, table, points_do):
    """The plan with few inducing points, if neighbours may be better; else as it is.

    Where ``points_do``, as there is one at every row or they explain the kernel, neighbours are used only if the user
    asks for them.
    """
    if plan.n_neighbours == "auto" and points_do:
        return plan._replace(n_neighbours=0)
    if not (may(plan, table) and POINTS < plan.n_inducing < table.n_distinct):
        return plan
    return plan._replace(n_inducing=POINTS, otherwise=plan._replace(n_neighbours=0))


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
    more_noise = _variance(parameters) / _variance(optimum.parameters)
    some = _some(points, _PROBED)

    def density_by(neighbours):
        return _density(_left_out(neighbours, parameters, some, more_noise))

    density, of_points = density_by(neighbours), _density(some)
    if not asked:
        if not density - of_points > _WORTH_NEIGHBOURS:
            return None
        half = neighbours.of_number(_NEIGHBOURS // 2)
        of_half = density_by(half)
        if density - of_half < _LOSS_OF_HALF:
            neighbours, density = half, of_half
        elif density - of_half > _WORTH_TWICE:
            twice = neighbours.of_number(2 * _NEIGHBOURS)
            of_twice = density_by(twice)
            if of_twice > density + _WORTH_TWICE:
                neighbours, density, points = twice, of_twice, _some(points, _CALIBRATED)
    left_out = _left_out(neighbours, parameters, points, more_noise)
    ahead = density - of_points
    held_out = optimum.held_out._replace(mean=optimum.held_out.mean + ahead)
    return optimum._replace(left_out=left_out, held_out=held_out, neighbours=neighbours, means=None, ahead=ahead)


def on_points(optimum, parameters, constants, table, random_state):
    """An `Optimum` with neighbours, with q on some points for all else; noise and scale are kept."""
    found = closed_form.solve(parameters, constants, table, random_state, searches=False, sums=optimum.sums)
    return optimum._replace(
        q=found.q, parameters=found.parameters, elbo=found.elbo, factors=found.factors, posterior=found.posterior
    )


def joined(neighbours: Neighbours, result: Result, table: AnyTable) -> Neighbours:
    """The neighbours of a stream together with its next rows, under the noise and the prior mean of a `Result`."""
    parameters, constants = result.state.parameters, result.constants
    return neighbours.joined(_neighbours(parameters, constants, table, neighbours.n_neighbours))


def _neighbours(parameters, constants, table, n_neighbours):
    table = gathered(table.in_memory(), placement.current().n_processes, np.inf)
    y, _, weight = weights_of(table, parameters, table.per_target)
    with np.errstate(divide="ignore"):
        noise = _variance(parameters) / weight
    return Neighbours.of(table.X, y - table.prior_mean(constants), noise, n_neighbours)


def _variance(parameters):
    """The noise variances (T, 1)."""
    return np.exp(np.asarray(parameters.raw_likelihood.variance)).reshape(-1, 1)


def _some(left_out, most):
    """At most so many of the rows that were predicted, evenly spaced."""
    index = np.flatnonzero(np.isfinite(left_out.error).any(0))
    index = index[np.linspace(0, len(index) - 1, min(len(index), most)).round().astype(int)]
    names = "error", "latent", "noise", "weight", "n_each", "y", "part"
    of_rows = {name: getattr(left_out, name)[:, index] for name in names}
    return left_out._replace(X=left_out.X[index], **of_rows)


def _left_out(neighbours, parameters, points, more_noise):
    """The `LeftOut` of the same rows, each predicted from its neighbours without its own observation."""
    seen = np.isfinite(points.error)
    some = seen.any(0)
    mean, latent = np.zeros((2, *seen.shape))
    kernels = jax.tree.map(np.exp, parameters.log_kernels)
    X, y, precision = points.X[some], points.y[:, some], points.part[:, some] / _variance(parameters)

    def moments(rows):
        return neighbours.moments_without(kernels, X[rows], y[:, rows], precision[:, rows])

    mean[:, some], latent[:, some] = by_parts(moments, len(X), placement.current().n_processes)
    error = np.where(seen, points.y - mean, np.nan)
    return points._replace(error=error, latent=latent, noise=points.noise * more_noise)


def _density(left_out):
    """The mean log density of the rows under the best `neighbours.of_errors`, averaged over the targets."""
    found = []
    for k, error in enumerate(left_out.error):
        rows = np.flatnonzero(np.isfinite(error) & (left_out.weight[k] > 0.0))
        if len(rows) < _FEWEST_PROBED:
            return 0.0
        deviation = np.sqrt(left_out.variance[k, rows])
        weight = left_out.weight[k, rows]
        each = of_errors(error[rows] / deviation, nearest_others(left_out.X[rows]), weight) - np.log(deviation)
        found.append(np.average(each, weights=weight))
    return float(np.mean(found))
