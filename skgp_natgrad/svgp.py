"""The engine without estimators: pure functions of plain arrays and pytrees.

A `Plan` describes the model and its training, and a `Table` holds the rows. `init` returns the initial state, `train`
trains it, `condition` turns the trained state into a `Model`, and `predict` evaluates the model. For a training loop of
your own, call `step` in place of `train`.

Nothing here is validated: rows must be finite and standardised, and targets must suit the likelihood. The estimators
add checks before these calls and fitted attributes after them.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from sklearn.utils import check_random_state

from ._backend import device as _device
from ._backend import threads
from ._backend.types import Seed
from .neighbours import Neighbours
from .prediction.calibration import Calibration
from .prediction.dispersion import Dispersion
from .prediction.joint import covariance, memory_of_draws, sample_latent, sample_targets
from .prediction.left_out import accuracy
from .prediction.model import Model, calibrated, condition, distribution, gradients, predict
from .prediction.posterior import Posterior
from .prediction.quantiles import cumulative, quantile_between, quantiles
from .solve import added_rows, exact_mean
from .start import choice, dispersion, few_rows
from .start.choice import searches, some_rows
from .start.coregionalization import Correlated, correlated
from .start.dispersion import dispersed
from .start.following import contradicted, forgotten, is_surprised, rescaled
from .start.from_rows import (
    MarginalLikelihood,
    has_marginal_likelihood,
    leave_one_out,
    log_marginal_likelihood,
    with_best_q,
)
from .start.inducing_points import METHODS as INDUCING_INITS
from .start.inducing_points import add_mean_only, with_means
from .start.plan import Plan, check_plan, sized
from .start.points_or_neighbours import joined
from .start.routes import is_solved_at_once, route_of
from .start.state import Previous, Result, init_together, of_training, previous_of, specification
from .step.algorithm import MEAN_SOLVERS, NATURAL_MEAN_SOLVERS, SOLVERS, Algorithm, is_collapsed, refused_in_stream
from .step.chunk import STEPS_PER_CALL, one_step
from .step.optimizer import OPTIMIZERS, is_transformation
from .step.state import Report, State
from .step.whitening import settled
from .training import constant_model, loop
from .training.batches import Table, batch
from .training.long_table import AnyTable, LongTable
from .training.loop import Callbacks, Settings
from .variational.bases import BASES, Weights
from .variational.gaussian import Gaussian
from .variational.model import Batch, Constants, Parameters
from .variational.parameterizations import PARAMETERIZATIONS
from .variational.points import Masks, Points

__all__ = [
    "BASES",
    "INDUCING_INITS",
    "MEAN_SOLVERS",
    "NATURAL_MEAN_SOLVERS",
    "OPTIMIZERS",
    "PARAMETERIZATIONS",
    "SOLVERS",
    "STEPS_PER_CALL",
    "Algorithm",
    "Batch",
    "Calibration",
    "Constants",
    "Correlated",
    "Dispersion",
    "Gaussian",
    "LongTable",
    "MarginalLikelihood",
    "Masks",
    "Model",
    "Neighbours",
    "Parameters",
    "Plan",
    "Points",
    "Posterior",
    "Previous",
    "Report",
    "Result",
    "Settings",
    "State",
    "Table",
    "Weights",
    "accuracy",
    "batch",
    "bound_of_constants",
    "calibrated",
    "check_plan",
    "choose_kernel",
    "complete",
    "condition",
    "contradicted",
    "correlated",
    "covariance",
    "cumulative",
    "dispersed",
    "distribution",
    "forgotten",
    "gradients",
    "has_marginal_likelihood",
    "init",
    "interim",
    "is_collapsed",
    "is_solved_at_once",
    "is_surprised",
    "is_transformation",
    "joined",
    "leave_one_out",
    "log_marginal_likelihood",
    "memory_of_draws",
    "predict",
    "previous_of",
    "quantile_between",
    "quantiles",
    "refused_in_stream",
    "rescaled",
    "route_of",
    "sample_latent",
    "sample_targets",
    "searches",
    "sized",
    "some_rows",
    "specification",
    "step",
    "train",
    "with_best_q",
]


def complete(plan: Plan, table: AnyTable, random_state: Seed = None) -> Plan:
    """The plan with everything that it leaves to the data: kernels, hyperparameters, sizes, a prepared likelihood.

    Parameters
    ----------
    plan : Plan
    table : Table
    random_state : int, RandomState instance or None
        Draws the rows from which hyperparameters are chosen.

    Returns
    -------
    plan : Plan

    Examples
    --------
    >>> import numpy as np
    >>> from skgp_natgrad import svgp
    >>> X = np.linspace(-2, 2, 100)[:, None]
    >>> table = svgp.Table(X, np.sin(X.T), np.ones(100))
    >>> plan = svgp.complete(svgp.Plan(n_inducing=10), table, random_state=0)
    >>> len(plan.kernels)
    1
    """
    with _device.computation(_device.HOST):
        return choice.complete(plan, table, check_random_state(random_state))


def choose_kernel(
    plan: Plan,
    tables: Sequence[AnyTable],
    random_state: Seed = None,
    in_common_unit: Sequence[bool] | None = None,
) -> tuple[int, Plan]:
    """Choose the default kernel and one of several scalings of the same rows: see `start.choice.choose_kernel`."""
    with _device.computation(_device.HOST):
        return choice.choose_kernel(plan, tables, check_random_state(random_state), in_common_unit)


def init(
    plan: Plan,
    table: AnyTable,
    random_state: Seed = None,
    previous: Previous | None = None,
    posterior: Posterior | None = None,
) -> tuple[State, Constants]:
    """Return the state at which training starts, and what stays fixed during training.

    Parameters
    ----------
    plan : Plan
        See `complete` for one without kernels.
    table : Table
    random_state : int, RandomState instance or None
        Chooses inducing points.
    previous : Previous, optional
        The record of the fit that this one continues.
    posterior : Posterior, optional
        The posterior of the previous fit, whose rows then count as well: the next part of a stream.

    Returns
    -------
    state : State
    constants : Constants

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import svgp
    >>> X = np.linspace(-2, 2, 100)[:, None]
    >>> table = svgp.Table(X, np.sin(X.T), np.ones(100))
    >>> state, constants = svgp.init(svgp.Plan(kernels=(RBF(),), n_inducing=10), table, random_state=0)
    >>> state.q.mean.shape
    (1, 10)
    """
    if plan.kernels is None:
        raise ValueError("Plan(kernels=None) has no kernel yet; give one, or call svgp.complete(plan, table) first.")
    table.check_shapes()
    check_plan(plan, table)
    with _device.computation(plan.device):
        return init_together(plan, table, check_random_state(random_state), previous, posterior)


def train(
    state: State,
    constants: Constants,
    table: AnyTable,
    plan: Plan,
    random_state: Seed = None,
    callbacks: Callbacks = (),
) -> Result:
    """Train until the bound stops improving, or for ``plan.settings.max_iter`` iterations.

    Parameters
    ----------
    state : State
        Must not be used again: its memory is donated to the device.
    constants : Constants
    table : Table
    plan : Plan
    random_state : int, RandomState instance or None
        Draws minibatches.
    callbacks : sequence of callable
        Called in turn as ``callback(monitor, state)`` after each chunk of iterations; a true answer ends training.

    Returns
    -------
    result : Result

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import svgp
    >>> X = np.linspace(-2, 2, 100)[:, None]
    >>> table = svgp.Table(X, np.sin(X.T), np.ones(100))
    >>> plan = svgp.Plan(kernels=(RBF(),), n_inducing=10, settings=svgp.Settings(max_iter=200))
    >>> result = svgp.train(*svgp.init(plan, table, random_state=0), table, plan, random_state=0)
    >>> bool(result.trained.report.elbo[-1] > result.trained.report.elbo[0])
    True
    """
    random_state = check_random_state(random_state)
    with _device.computation(plan.device, plan.n_devices):
        if plan.untrained:
            return _with_few_rows(state, constants, table, plan)
        if not plan.route.trains:
            return _in_one_step(state, constants, table, plan, random_state)
        trained = loop.run(state, constants, table, plan.settings, random_state, callbacks)
        result = exact_mean.with_rise(of_training(trained, constants), table, plan)
        return _with_mean(result, table, plan, random_state) if plan.settings.algorithm.solves_mean else result


def _with_few_rows(state, constants, table, plan):
    """The result of few more rows of a stream, for which the hyperparameters stay."""
    with threads.single_threaded(len(constants.masks.Z)):
        optimum, factors = added_rows.solve(state.parameters, constants, table)
    found = of_training(_solved(state, optimum, optimum.elbo), constants)
    return found._replace(previous=found.previous._replace(untrained=plan.untrained, factors=factors))


def _solved(state, optimum, bounds):
    """The `loop.Result` of an `Optimum`, without steps."""
    state = state._replace(q=optimum.q, parameters=optimum.parameters)
    report = Report(bounds, np.ones_like(optimum.elbo), *np.zeros((2, len(optimum.elbo)), bool))
    return loop.Result(state, report, float(bounds[-1]), optimum.status, 0.0)


def _in_one_step(state, constants, table, plan, random_state, before=None):
    """The result of natural gradient steps of size one on all rows: one for a Gaussian likelihood, else few."""
    judges = np.random.RandomState(0)  # Calibrates alike after a search and for hyperparameters that are kept.
    with threads.single_threaded(len(constants.masks.Z)):
        pinned = constants.pinned(state.parameters)
        optimum, other = plan.route.solve(state.parameters, pinned, table, plan, judges, before)
        optimum = optimum._replace(sums=None)
        if other.n_inducing != plan.n_inducing:
            state, constants = init(other, table, random_state)
            return _in_one_step(state, constants, table, other, random_state, optimum)
    bounds = optimum.elbo + float(constants.log_prior(optimum.parameters))
    found = of_training(_solved(state, optimum, bounds), constants)
    found = found._replace(previous=found.previous._replace(factors=optimum.factors))
    few, dispersed, of_errors = plan.averages is not None, None, (optimum.left_out, plan.kernels, judges)
    if plan.route.disperses(plan, table):
        dispersed = few_rows.dispersion(plan, table.sample.X) if few else dispersion.fit(*of_errors)
    if optimum.means is not None:
        parameters, constants = with_means(optimum.means, optimum.parameters, found.constants)
        found = found._replace(state=found.state._replace(parameters=parameters), constants=constants)
    names = "calibration", "held_out", "gain", "neighbours", "posterior", "ahead"
    found = found._replace(dispersion=dispersed, **{name: getattr(optimum, name) for name in names})
    return found._replace(error_of_mean=optimum.left_out and optimum.left_out.error_of_mean)


def _with_mean(result, table, plan, random_state):
    """The result with the exact mean, which rests on further points that training did not use."""
    state, settings = result.state, plan.settings
    parameters, constants = add_mean_only(plan, table, state.parameters, result.constants, random_state)
    given = state.q, parameters, constants.pinned(parameters), table, settings.tol, random_state
    solution = exact_mean.solve(*given, settings.algorithm.optimizer is not None)
    state = state._replace(q=solution.q, parameters=solution.parameters)
    return result._replace(state=state, constants=constants, elbo=solution.elbo + result.log_prior, lost=solution.lost)


def interim(state: State, constants: Constants, report: Report, plan: Plan) -> Result:
    """The result that an unfinished training would have if it ended here: for callbacks.

    Parameters
    ----------
    state : State
    constants : Constants
    report : Report
    plan : Plan

    Returns
    -------
    result : Result
    """
    with _device.computation(plan.device):
        state, elbo = settled(state, constants, plan.settings.algorithm.of_steps), float(report.elbo[-1])
        return of_training(loop.Result(state, report, elbo, None, 0.0), constants)


def bound_of_constants(result: Result, table: AnyTable, plan: Plan) -> float | None:
    """The bound, per unit of weight, of the model whose latent functions are constant.

    None if y itself is constant. Hyperparameters that are fixed in training are fixed here too.
    """
    if not table.has_offset and table.y_is_constant:
        return None
    parameters, constants = result.trained.state.parameters, result.constants
    if plan.settings.algorithm.optimizer is None:
        constants = constants._replace(log_bounds=2 * (parameters[:2],))
    with _device.computation(plan.device):
        return constant_model.best_log_likelihood(parameters.raw_likelihood, constants, table)


def step(
    state: State, constants: Constants, batch: Batch, plan: Plan, gamma: float, rate: float
) -> tuple[State, Report]:
    """One step of q along the natural gradient and one of everything else, for a loop of your own.

    Parameters
    ----------
    state : State
    constants : Constants
    batch : Batch
    plan : Plan
    gamma, rate : float
        Step sizes of the natural gradient and of the optimizer.

    Returns
    -------
    state : State
    report : Report
        The bound before the step, among others.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import svgp
    >>> X = np.linspace(-2, 2, 100)[:, None]
    >>> table = svgp.Table(X, np.sin(X.T), np.ones(100))
    >>> plan = svgp.Plan(kernels=(RBF(),), n_inducing=10)
    >>> state, constants = svgp.init(plan, table, random_state=0)
    >>> bounds = []
    >>> for _ in range(20):
    ...     state, report = svgp.step(state, constants, svgp.batch(table), plan, gamma=1.0, rate=0.01)
    ...     bounds.append(float(report.elbo))
    >>> bounds[-1] > bounds[0]
    True
    """
    # The constants have the scale of the plan's batches; this one may have another size.
    constants = constants._replace(scale=constants.n_rows / len(batch.weight))
    with _device.computation(plan.device), threads.single_threaded(state.n_points):
        # By the array's own method, so that rows on the device stay there.
        batch = batch._replace(X=batch.X.astype(plan.settings.dtype))
        found = one_step(state, constants, batch, float(gamma), float(rate), plan.settings.algorithm.of_steps)
        return jax.block_until_ready(found)
