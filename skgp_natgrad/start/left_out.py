"""Each row of a table predicted from all others, under Gaussian noise, as the rows are given.

The exact process has closed forms (Rasmussen and Williams 2006, eq. 5.10 to 5.12). With fewer points, the best q
without a row follows from that with it: if the points explain the variance s of its posterior, and its share of the
noise's precision is p, then its mean moves away from y by 1 / (1 - s p), and s grows by this factor.

The table has the sum w of the weights of equal rows, of which one is left out with its own weight; the rest is then put
back as an observation at the same place.
"""

from __future__ import annotations

import numpy as np

from .._backend import device as _device
from .._backend import threads
from .._backend.types import Floats
from ..solve import newton
from ..solve.system import prior_of, whitened
from ..training.batches import Table
from .evidence import left_out
from .marginal_likelihood import at_points, is_exact, of_targets
from .plan import Plan
from .state import Previous

# The least share of a row's precision that the other rows have: below it is rounding.
_LEAST = 1e-12


def leave_one_out(
    plan: Plan, table: Table, previous: Previous, index: Floats, weight: Floats
) -> tuple[Floats, Floats, Floats]:
    """Errors of the rows of a table, each predicted from all others.

    Parameters
    ----------
    plan : Plan
        With one kernel and a Gaussian likelihood.
    table : Table
    previous : Previous
        The fit whose inducing points are taken.
    index, weight : ndarray of shape (N,)
        The positions of the rows in the table, in which equal ones are one, and the weight of each.

    Returns
    -------
    error, latent, noise : ndarray of shape (T, N)
        Of y minus its prediction; variances of the latent function, and of the noise. NaN where y is missing.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import svgp
    >>> X = np.linspace(-2, 2, 100)[:, None]
    >>> table = svgp.Table(X, np.sin(X.T), np.ones(100))
    >>> plan = svgp.Plan(kernels=(RBF(),), n_inducing=10)
    >>> result = svgp.train(*svgp.init(plan, table, random_state=0), table, plan, random_state=0)
    >>> error, *_ = svgp.leave_one_out(plan, table, result.previous, np.arange(100), np.ones(100))
    >>> bool(np.abs(error).max() < 0.1)
    True
    """
    with _device.computation(plan.device), threads.single_threaded(len(previous.masks.Z)):
        each = (_exact if is_exact(plan, table, previous) else _of_best_q)(plan, table, previous)
    error, explained, residual, noise = (values[:, index] for values in each)
    # What is put back.
    rest = np.maximum(table.weight[index] - weight, 0.0)
    kept = noise / (noise + rest * explained)
    return kept * error, kept * explained + residual, noise


def _exact(plan, table, previous):
    """Errors without all of a row's weight, what is explained of the latent variance, the rest of it, and the noise."""
    found = np.full((4, table.n_targets, table.n_rows), np.nan)
    for k, (at, rows) in enumerate(of_targets(plan, table, previous)):
        each = left_out(at, rows)
        if each is None:
            raise FloatingPointError(
                "The covariance of the rows has no Cholesky factor in double precision; fit a kernel with more noise."
            )
        error, latent, noise = np.broadcast_arrays(*each)
        found[:, k, ~np.isnan(table.y[k])] = np.concatenate([error, latent, 0.0 * latent, noise])
    return found


def _of_best_q(plan, table, previous):
    """As `_exact`."""
    parameters, constants = at_points(plan, table, previous)
    batch = newton.filled_up(table)
    fit = newton.best_q(parameters, constants, batch)
    prior = prior_of(parameters, constants.masks, constants.jitter)
    _, (residual,) = whitened(parameters.log_kernels, prior, batch.X)
    mean, var, residual = (each[..., : table.n_rows] for each in (fit.mean, fit.var, residual[None]))
    noise = plan.likelihood.value_and_bounds(table.n_targets)[0].given(table.known).noise_variance()
    noise = np.broadcast_to(noise, table.y.shape)
    explained = np.maximum(var - residual, 0.0)
    factor = 1.0 / np.maximum(1.0 - table.weight * explained / noise, _LEAST)
    return factor * (table.y - mean), factor * explained, np.broadcast_to(residual, table.y.shape), noise
