"""The log marginal likelihood of all rows as a function of the hyperparameters, and its gradient.

Under Gaussian noise, with a point at every row, that is the evidence of the exact process. Otherwise it is the bound of
the best q on the model's inducing points. At the best q the bound does not change with q, so its gradient is that with
q held fixed. All is in the units of the model.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from .._backend import device as _device
from .._backend import threads
from ..kernels.base import Kernel
from ..likelihoods import Likelihood
from ..solve import newton
from ..training.batches import Table
from ..variational.model import Constants, Parameters
from ..variational.points import Masks, Points
from . import evidence, targets
from .plan import Plan
from .state import Previous, specification

_LOG_2PI = float(np.log(2.0 * np.pi))


class MarginalLikelihood(NamedTuple):
    """The log marginal likelihood, or the bound, and its gradient.

    Attributes
    ----------
    value : float
        In nats; minus infinity if the rows' covariance has no Cholesky factor in double precision.
    kernels : tuple of Kernel
        The gradient in the logarithms of each kernel's hyperparameters.
    likelihood : Likelihood
        The gradient in the raw values of the likelihood's parameters.
    """

    value: float
    kernels: tuple[Kernel, ...]
    likelihood: Likelihood


def has_marginal_likelihood(plan: Plan) -> bool:
    """Whether `log_marginal_likelihood` finds the best q: of measurements, counts and class labels under one kernel.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    found : bool

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import likelihoods, svgp
    >>> svgp.has_marginal_likelihood(svgp.Plan(kernels=(RBF(),), likelihood=likelihoods.StudentT()))
    False
    """
    likelihood, labels = plan.likelihood, plan.n_classes > 0 and not plan.likelihood.parameters
    return (likelihood.conjugate or likelihood.by_newton or labels) and len(plan.kernels) == 1


def log_marginal_likelihood(plan: Plan, table: Table, previous: Previous) -> MarginalLikelihood:
    """The log marginal likelihood of a table's rows under the hyperparameters of a plan.

    Parameters
    ----------
    plan : Plan
        Its kernels and its likelihood; see `has_marginal_likelihood`.
    table : Table
    previous : Previous
        The fit whose inducing points and prior means are taken.

    Returns
    -------
    found : MarginalLikelihood
        The exact one under Gaussian noise if the points are all rows of the table, else a lower bound.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import svgp
    >>> X = np.linspace(-2, 2, 100)[:, None]
    >>> table = svgp.Table(X, np.sin(X.T), np.ones(100))
    >>> plan = svgp.Plan(kernels=(RBF(),), n_inducing=10)
    >>> result = svgp.train(*svgp.init(plan, table, random_state=0), table, plan, random_state=0)
    >>> svgp.log_marginal_likelihood(plan, table, result.previous).value < 100.0
    True
    """
    with _device.computation(plan.device), threads.single_threaded(len(previous.masks.Z)):
        return (_exact if is_exact(plan, table, previous) else _of_best_q)(plan, table, previous)


def is_exact(plan, table, previous):
    """Whether the model is the exact process: with Gaussian noise, and a point at every row."""
    return plan.likelihood.conjugate and np.sum(previous.masks.Z) == table.n_distinct


def _exact(plan, table, previous):
    """The evidence, of each target on its own: noises may differ."""
    value, slopes, of_noise = 0.0, [], []
    for at, rows in of_targets(plan, table, previous):
        each, slope = evidence.value_and_gradient(at, rows)
        more, more_slope = _of_weights(at.noise, rows)
        value += each + more
        slopes.append(slope.kernel)
        of_noise.append([slope.noise + more_slope])
    kernel = jax.tree.map(lambda *each: sum(each), *slopes)
    return MarginalLikelihood(value, (kernel,), plan.likelihood.with_leaves([np.array(of_noise)]))


def of_targets(plan, table, previous):
    """The `evidence.Hyperparameters` of each target, and its rows around zero."""
    ((log_kernel,), raw), *_ = specification(plan.kernels, plan.likelihood, table.n_columns, table.n_targets)
    rows = targets.without_offset(table, plan.likelihood)
    rows = rows._replace(y=rows.y - previous.prior_mean)
    for k, noise in enumerate(np.ravel(raw.variance)):
        yield evidence.Hyperparameters(log_kernel, noise), rows.target(k)


def _of_weights(log_noise, rows):
    """What a row of weight w adds to one observation with noise s^2 / w, to be w of them, and its slope in log s^2.

    N(y | f, s^2)^w = N(y | f, s^2 / w) (2 pi s^2)^((1 - w) / 2) w^(-1/2), of which the evidence has the power of s^2
    where w is below one.
    """
    noise, half = np.exp(log_noise) + (0.0 if rows.known is None else rows.known[0]), 0.5 * (1.0 - rows.weight)
    power = np.minimum(half, 0.0)
    value = half * _LOG_2PI + power * np.log(noise) - 0.5 * np.log(rows.weight)
    return float(value.sum()), float((power * np.exp(log_noise) / noise).sum())


def _of_best_q(plan, table, previous):
    """The bound of the best q on the inducing points."""
    parameters, constants = at_points(plan, table, previous)
    rows = newton.filled_up(table)
    fit = newton.best_q(parameters, constants, rows)
    return MarginalLikelihood(fit.bounds[-1], *newton.slope(parameters, constants, rows, fit.q))


def at_points(plan, table, previous):
    """The `Parameters` of a plan, and the `Constants`, with the inducing points and prior means of a fit."""
    (logs, raw), *bounds = specification(plan.kernels, plan.likelihood, table.n_columns, table.n_targets)
    before = previous.parameters
    none = np.zeros((0, table.n_columns))
    weights = before.weights._replace(a=np.zeros((len(previous.prior_mean), 0)))
    parameters = Parameters(logs, raw, Points(before.points.Z, none), weights)
    masks = Masks(previous.masks.Z, np.zeros(0))
    at = previous.prior_mean, 1.0, table.total_weight, previous.jitter, 0.0
    return parameters, Constants(tuple(bounds), masks, *at)
