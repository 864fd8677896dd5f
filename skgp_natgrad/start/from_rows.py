"""What a fitted estimator computes again from the rows that it keeps, with the hyperparameters and points of its fit.

*q* of a fit in one step: the estimator keeps the rows and not q.

*The log marginal likelihood* of all rows as a function of the hyperparameters, and its gradient. Under Gaussian noise,
with a point at every row, that is the evidence of the exact process. Otherwise it is the bound of the best q on the
model's inducing points. At the best q the bound does not change with q, so its gradient is that with q held fixed. All
is in the units of the model.

*Each row predicted from all others*, under Gaussian noise, as the rows are given (`solve.left_out`). The table has the
sum of the weights of equal rows, of which one is left out with its own weight.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from .._backend import device as _device
from .._backend import threads
from .._backend.types import Floats
from ..choose import evidence, targets
from ..kernels.base import Kernel
from ..likelihoods import Likelihood
from ..solve import closed_form, exact, newton
from ..training.batches import Table
from ..variational.model import Constants, Parameters
from ..variational.points import Masks, Points
from . import inducing_points
from .plan import Plan
from .state import Previous, common_kernel, specification


def with_best_q(plan: Plan, table: Table, previous: Previous) -> Previous:
    """The record of a fit in one step with its q, for fits that continue by steps.

    Under Gaussian noise this q is a function of the rows, which need less memory: a fitted estimator keeps these.

    Parameters
    ----------
    plan : Plan
        Of the fit that follows. If it has fewer inducing points, q rests on so many of those of the record.
    table : Table
        The rows of the earlier fit.
    previous : Previous

    Returns
    -------
    previous : Previous

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import svgp
    >>> X = np.linspace(-2, 2, 100)[:, None]
    >>> table = svgp.Table(X, np.sin(X.T), np.ones(100))
    >>> plan = svgp.Plan(kernels=(RBF(),), n_inducing=10)
    >>> result = svgp.train(*svgp.init(plan, table, random_state=0), table, plan, random_state=0)
    >>> svgp.with_best_q(plan._replace(n_inducing=5), table, result.previous).q.mean.shape
    (1, 5)
    """
    parameters, masks, n_inducing = previous.whitened_by, previous.masks, plan.n_inducing
    Z = parameters.points.Z[: int(masks.Z.sum())]
    if n_inducing is not None and n_inducing < len(Z) and isinstance(plan.inducing_init, str):
        Z = inducing_points.thinned(Z, common_kernel(plan, parameters), n_inducing)
        points, masks = inducing_points.padded((Z, Z[:0]), (n_inducing, 0))
        parameters = parameters._replace(points=points)
    fixed = 2 * (tuple(parameters[:2]),)
    constants = Constants(fixed, masks, previous.prior_mean, 1.0, previous.weight, previous.jitter, 0.0)
    with _device.computation(plan.device), threads.single_threaded(len(masks.Z)):
        q, factors = closed_form.best_q(parameters, constants, table)
    return previous._replace(q=q, parameters=parameters, whitened_by=parameters, masks=masks, factors=factors)


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
        at = *_at_points(plan, table, previous), table
        is_exact = plan.likelihood.conjugate and exact.places(*at) is not None
        return _exact(plan, table, previous) if is_exact else _of_best_q(*at)


def _exact(plan, table, previous):
    """The evidence, of each target on its own: noises may differ."""
    value, slopes, of_noise = 0.0, [], []
    for at, rows in _of_targets(plan, table, previous):
        each, slope = evidence.value_and_gradient(at, rows)
        more, more_slope = _of_weights(at.noise, rows)
        value += each + more
        slopes.append(slope.kernel)
        of_noise.append([slope.noise + more_slope])
    kernel = jax.tree.map(lambda *each: sum(each), *slopes)
    return MarginalLikelihood(value, (kernel,), plan.likelihood.with_leaves([np.array(of_noise)]))


def _of_targets(plan, table, previous):
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
    noise, half = evidence.noise_variance(log_noise, rows), 0.5 * (1.0 - rows.weight)
    power = np.minimum(half, 0.0)
    value = half * evidence.LOG_2PI + power * np.log(noise) - 0.5 * np.log(rows.weight)
    return float(value.sum()), float((power * np.exp(log_noise) / noise).sum())


def _of_best_q(parameters, constants, table):
    """The bound of the best q on the inducing points."""
    rows = newton.filled_up(table)
    fit = newton.best_q(parameters, constants, rows)
    return MarginalLikelihood(fit.bounds[-1], *newton.slope(parameters, constants, rows, fit.q))


def _at_points(plan, table, previous):
    """The `Parameters` of a plan, and the `Constants`, with the inducing points and prior means of a fit."""
    (logs, raw), *bounds = specification(plan.kernels, plan.likelihood, table.n_columns, table.n_targets)
    before = previous.parameters
    none = np.zeros((0, table.n_columns))
    weights = before.weights._replace(a=np.zeros((len(previous.prior_mean), 0)))
    parameters = Parameters(logs, raw, Points(before.points.Z, none), weights)
    masks = Masks(previous.masks.Z, np.zeros(0))
    at = previous.prior_mean, 1.0, table.total_weight, previous.jitter, 0.0
    return parameters, Constants(tuple(bounds), masks, *at)


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
        found = closed_form.left_out(*_at_points(plan, table, previous), table, index, weight)
    return found.error, found.latent, found.noise
