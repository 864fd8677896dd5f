"""The q of a fit in one step, computed again from its rows: a fitted estimator keeps the rows and not q."""

from __future__ import annotations

from .._backend import device as _device
from .._backend import threads
from ..solve import closed_form
from ..training.batches import Table
from ..variational.model import Constants
from . import inducing_points, placement
from .plan import Plan
from .state import Previous, common_kernel


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
        points, masks = placement.padded((Z, Z[:0]), (n_inducing, 0))
        parameters = parameters._replace(points=points)
    fixed = 2 * (tuple(parameters[:2]),)
    constants = Constants(fixed, masks, previous.prior_mean, 1.0, previous.weight, previous.jitter, 0.0)
    with _device.computation(plan.device), threads.single_threaded(len(masks.Z)):
        q, factors = closed_form.best_q(parameters, constants, table)
    return previous._replace(q=q, parameters=parameters, whitened_by=parameters, masks=masks, factors=factors)
