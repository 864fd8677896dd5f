"""The state at which training starts: new, from an earlier fit, or from the earlier rows of a stream."""

from __future__ import annotations

import functools
import operator
from typing import NamedTuple

import jax
import numpy as np

from .. import kernels, priors
from .._backend import processes
from .._backend.types import Floats
from ..neighbours import Neighbours
from ..prediction.calibration import Average, Calibration
from ..prediction.dispersion import Dispersion
from ..prediction.posterior import Posterior
from ..solve.held_out_labels import Gain
from ..step.algorithm import check
from ..step.state import State, initial_state, untrained_state
from ..step.whitening import rewhitened
from ..training import loop
from ..training.batches import bucket
from ..training.shares import MOST, gathered, total
from ..variational import gaussian, streaming
from ..variational.bases import BASES
from ..variational.model import Constants, Parameters
from ..variational.points import Factor, Masks, factorise_in_place
from . import inducing_points, sizes

# Largest initial latent variance, for latent functions that are logarithms: expectations do not explode. And the
# number of rows from which the prior variance is computed.
_WIDEST, _SOME_ROWS = 4.0, 1000
# The variance of a row that points may leave unexplained, as a share of the noise: the row then loses next to nothing.
# If there are as many points as there may be, it also tells as little as the point that the others explain best, times:
_LITTLE, _MORE = 0.01, 2.0
# Smallest jitter: in single precision the covariances of rows with the points are no more precise than this.
_LEAST_JITTER = {"float64": 0.0, "float32": 1e-6}


class Previous(NamedTuple):
    """The record from which a later fit continues, as NumPy arrays.

    Attributes
    ----------
    q : Gaussian or None
        None where it is the best q of rows that are kept, which `with_best_q` computes again.
    parameters : Parameters
        The parameters at which the later fit starts.
    whitened_by : Parameters
        The parameters by which ``q`` is whitened.
    masks : Masks
    prior_mean : ndarray of shape (K, 1)
    weight : float
        Sum of the weights of all rows so far.
    jitter : float
    untrained : float
        The part of this weight that came after the last training of the hyperparameters.
    factors : tuple of Factor, optional
        That whiten ``q``, if they are at hand.
    """

    q: gaussian.Gaussian | None
    parameters: Parameters
    whitened_by: Parameters
    masks: Masks
    prior_mean: np.ndarray
    weight: float
    jitter: float
    untrained: float = 0.0
    factors: tuple[Factor, ...] | None = None


def previous_of(state, constants):
    """The record from which a later fit continues after ``state``."""
    arrays = jax.tree.map(np.asarray, (state.q, state.parameters, constants.masks, constants.prior_mean))
    q, parameters, masks, prior_mean = arrays
    return Previous(q, parameters, parameters, masks, prior_mean, constants.weight, constants.jitter)


def common_kernel(plan, parameters):
    """The sum of the kernels of all latent functions, as one of scikit-learn."""
    now = jax.tree.map(np.exp, parameters.log_kernels)
    return functools.reduce(operator.add, map(kernels.to_sklearn, plan.kernels, now))


def init(plan, table, random_state, previous=None, posterior=None):
    """Return the `State` and the `Constants` with which training starts.

    Parameters
    ----------
    plan : Plan
        Complete.
    table : Table
    random_state : numpy.random.RandomState
    previous : Previous, optional
        The fit that this one continues.
    posterior : Posterior, optional
        The posterior of the earlier rows of a stream, which then count as well.

    Returns
    -------
    state : State
    constants : Constants
    """
    algorithm, trains = plan.settings.algorithm, plan.route.trains
    if previous is not None and plan.basis == "orthogonal" and not (plan.n_mean_inducing or algorithm.solves_mean):
        previous = _without_further_points(previous)
    if previous is None:
        q, parameters, masks, prior_mean = _first(plan, table, random_state)
    else:
        # One step does not read the q of an earlier fit either.
        q = gaussian.separate(previous.q) if trains else gaussian.standard(len(previous.prior_mean), 0)
        previous = previous._replace(q=q)
        _, parameters, _, masks, prior_mean, *_ = previous
    constants = _constants(plan, table, masks, prior_mean)
    if plan.untrained:
        # In the coordinates of the earlier q, which stays.
        constants = constants._replace(jitter=previous.jitter)
    if posterior is not None:
        q, parameters, constants = _follow(plan, table, previous, constants, random_state)
    elif previous is not None and trains:
        sizes.require_points(plan, plan.n_latent(table), len(parameters.points.Z))
        q = _rewhitened(q, parameters, previous, constants, plan.basis)
    if not trains or plan.untrained:
        return untrained_state(q, parameters), constants
    return initial_state(q, parameters, constants, algorithm.of_steps), constants


def init_together(plan, table, random_state, previous=None, posterior=None):
    """See `svgp.init`; several processes find the start from rows of all of them, and each uses that of the first."""
    n_processes = processes.sharing(plan.n_devices)
    if n_processes == 1:
        return init(plan, table, random_state, previous, posterior)
    some = gathered(table, n_processes)
    n_rows = max(processes.exchanged(len(table.weight))) * n_processes
    weight = total(table.weight.sum(), n_processes)
    if plan.n_inducing is None and total(len(table.weight), n_processes) > MOST:
        raise ValueError(
            f"n_inducing=None puts a point at every row, which no process of {n_processes} can do for {n_rows} rows; "
            "give it a number."
        )
    settings = plan.settings
    full_batch = n_rows <= n_processes * -(-settings.batch_size // n_processes)
    check(settings.algorithm, plan.likelihood, plan.objective, full_batch, settings.searched is not None)
    found = init(plan, some, processes.agree(random_state), previous, posterior)
    state, constants = processes.tree_of_first(found)
    earlier = float(constants.weight) - float(some.weight.sum())
    batch_size = n_processes * -(-settings.batch_size // n_processes)
    return state, constants._replace(
        scale=n_rows / min(n_rows, batch_size), weight=weight + earlier, n_rows=float(n_rows)
    )


def _without_further_points(previous):
    """The earlier fit without the further points that a solution in one step may have added for its means.

    The posterior at the inducing points stays, including the means there.
    """
    parameters, masks = previous.parameters, previous.masks
    return previous._replace(
        parameters=parameters._replace(
            points=parameters.points._replace(Z_mean=parameters.points.Z_mean[:0]),
            weights=parameters.weights._replace(a=parameters.weights.a[:, :0]),
        ),
        masks=masks._replace(Z_mean=masks.Z_mean[:0]),
    )


def _first(plan, table, random_state):
    """q, the parameters, the masks and the prior mean of a new fit."""
    n_latent = plan.n_latent(table)
    start, _, _ = specification(plan.kernels, plan.likelihood, table.n_columns, table.n_targets)
    points, masks = inducing_points.first(plan, table, random_state)
    # One step ends at the best q from anywhere, and does not read the first one: no array is made for it.
    q = _first_q(plan.kernels, plan.likelihood, table.sample.X, n_latent, sum(points.sizes) * plan.route.trains)
    weights = BASES[plan.basis].first_weights(n_latent, len(points.Z), len(points.Z_mean))
    prior_mean = prior_mean_of(plan, table).reshape(n_latent, 1)
    return q, Parameters(*start, points, weights), masks, prior_mean


def prior_mean_of(plan, table):
    """The constants around which the latent functions vary: (K,)."""
    table = table.sample
    y, weight = table.filled_y, table.weight
    missing = np.isnan(table.y)
    if table.has_offset or table.has_known or missing.any():
        weight = np.where(missing, 0.0, weight)
    if table.has_offset or table.has_known:
        y, weight = plan.likelihood.given(table.known).without_offset(y, weight, table.added)
    return plan.route.prior_mean(plan, y, weight)


def _first_q(sklearn_kernels, likelihood, X, n_latent, size):
    """The initial q(v): the prior, or a narrower one where expectations under the prior would be too large."""
    if likelihood.conjugate:
        return gaussian.standard(n_latent, size)
    prior = np.array([np.mean(kernel.diag(X[:_SOME_ROWS])) for kernel in sklearn_kernels])
    variance = np.minimum(1.0, _WIDEST / np.where(prior > 0.0, prior, 1.0))
    return gaussian.isotropic(np.repeat(variance, n_latent // len(prior)), size)


def _constants(plan, table, masks, prior_mean):
    settings, n_rows = plan.settings, table.n_rows
    values = specification(plan.kernels, plan.likelihood, table.n_columns, table.n_targets)
    found = None if plan.hyperparameter_prior is None else priors.settled(plan.hyperparameter_prior, *values)
    return Constants(
        log_bounds=values[1:],
        masks=masks,
        prior_mean=prior_mean,
        scale=n_rows / min(n_rows, settings.batch_size),
        weight=table.total_weight,
        jitter=max(float(plan.jitter), _LEAST_JITTER[settings.dtype]),
        train_points=float(plan.train_points and plan.n_inducing is not None),
        # All floats, so that no value gets a compiled program of its own.
        objective=jax.tree.map(float, plan.objective),
        n_rows=float(n_rows),
        # Without free hyperparameters there are no priors.
        priors=found or None,
    )


def _rewhitened(q, parameters, previous, constants, basis):
    """q whitened by the hyperparameters and the jitter of this fit."""
    before, now = (previous.whitened_by[:2], previous.jitter), (parameters[:2], constants.jitter)
    if not _differ(before, now):
        return q
    then = previous.whitened_by, constants._replace(jitter=previous.jitter)
    return rewhitened(q, then, (parameters, constants), basis)


def _differ(first, second):
    """Whether two trees of arrays hold different numbers."""
    return any(map(np.any, map(np.not_equal, jax.tree.leaves(first), jax.tree.leaves(second))))


def _follow(plan, table, previous, constants, random_state):
    """The start for the next rows of a stream: q, the parameters and the constants."""
    parameters, n_inducing = previous.parameters, plan.n_inducing
    Z_old, factors = previous.whitened_by.points.Z, _factors(previous)
    kernels_now = jax.tree.map(np.exp, parameters.log_kernels)
    Z = parameters.points.Z[: int(previous.masks.Z.sum())]
    if plan.untrained:
        Z = _for_few_rows(plan, table, previous, factors, Z)
    elif n_inducing is None or isinstance(plan.inducing_init, str):
        share = previous.weight / (previous.weight + table.total_weight)
        share = share if plan.route.init_method(plan) == "k-means" else None
        Z = inducing_points.follow(Z, table.sample.X, common_kernel(plan, parameters), n_inducing, random_state, share)
    sizes.require_points(plan, plan.n_latent(table), len(Z))
    points, masks = inducing_points.padded((Z, parameters.points.Z_mean), (n_inducing or bucket(len(Z)), 0))
    past = streaming.of_posterior(Z_old, factors, previous.q, points.Z, plan.likelihood.conjugate)
    q = previous.q
    if not plan.untrained:
        q = streaming.best_q(past, kernels_now, points.Z, masks.Z, constants.jitter)
    constants = constants._replace(masks=masks, past=past, weight=constants.weight + previous.weight)
    return q, parameters._replace(points=points), constants


def _factors(previous):
    """The `Factor` of each kernel that whitens q, its inverse without masked points."""
    log_kernels, Z, mask = previous.whitened_by.log_kernels, previous.whitened_by.points.Z, previous.masks.Z
    found = previous.factors or [factorise_in_place(each, Z, mask, previous.jitter) for each in log_kernels]
    return [each._replace(inverse=each.inverse * mask) for each in found]


def _for_few_rows(plan, table, previous, factors, Z):
    """The old points ``Z`` (M, D); or the best of these and of the rows that tell more than some old point."""
    if plan.n_inducing is not None and not isinstance(plan.inducing_init, str):
        return Z
    X, parameters, Z_old = table.sample.X, previous.parameters, previous.whitened_by.points.Z
    now = map(kernels.to_sklearn, plan.kernels, jax.tree.map(np.exp, parameters.log_kernels))
    little = _LITTLE * np.exp(np.min(parameters.raw_likelihood.variance))
    is_full = plan.n_inducing is not None and len(Z) >= plan.n_inducing

    def of_kernel(kernel, factor):
        A = factor.inverse
        # The diagonal of the inverse covariance is one over the variance of each point given the others.
        least = _MORE / np.square(A[:, : len(Z)]).sum(0).max() if is_full else 0.0
        unexplained = kernel.diag(X) - np.square(A @ kernel(Z_old, X)).sum(0)
        return unexplained - max(little, least)

    tells = np.max(list(map(of_kernel, now, factors)), axis=0)
    rows = np.sort(np.argsort(-tells, kind="stable")[: plan.n_inducing])
    rows = rows[tells[rows] > 0.0]
    if not len(rows):
        return Z
    both = inducing_points.distinct_rows(np.concatenate([Z, X[rows]]))
    if plan.n_inducing is None or len(both) <= plan.n_inducing:
        return both
    return inducing_points.thinned(both, common_kernel(plan, parameters), plan.n_inducing)


# Initial values and bounds of the hyperparameters of kernels and likelihood together.


def specification(sklearn_kernels, likelihood, n_features, n_targets):
    """Return values and bounds of all hyperparameters: logarithms for the kernels, raw values for the likelihood.

    Parameters
    ----------
    sklearn_kernels : tuple of sklearn.gaussian_process.kernels.Kernel
        One for all latent functions, or one for each.
    likelihood : Likelihood
        Prepared for the targets.
    n_features, n_targets : int
        Numbers of columns of X and y.

    Returns
    -------
    start, lower, upper : tuple of (tuple of Kernel, Likelihood)
        A fixed hyperparameter has both bounds at its value.
    """
    specs = [kernels.from_sklearn(kernel, n_features) for kernel in sklearn_kernels]
    of_kernels = zip(*specs, strict=True) if specs else ((), (), ())
    of_likelihood = [each.to_raw() for each in likelihood.value_and_bounds(n_targets)]
    # A hyperparameter of a kernel may be fixed at zero.
    with np.errstate(divide="ignore"):
        of_kernels = [jax.tree.map(np.log, each) for each in of_kernels]
    return tuple(zip(of_kernels, of_likelihood, strict=True))


# The result of training, with the record from which a later fit continues.


class Result(NamedTuple):
    """The result of `svgp.train`.

    Attributes
    ----------
    state : State
    constants : Constants
        The constants for ``state``: the exact mean adds points.
    elbo : float
        The bound at ``state``.
    trained : training.loop.Result
        The result of the iterations, before the exact mean: its state, the reports of all
        iterations, the bound and the status.
    previous : Previous
        The record from which a later fit can continue.
    lost : str or None
        What the exact mean's solution lacks: see `solve.exact_mean.Solution`.
    calibration : Calibration, optional
        The calibration of class probabilities, if it was found together with q.
    dispersion : Dispersion, optional
        How the standard deviation of y varies with X, if that was asked for and the errors show it.
    held_out : Average, optional
        The log density of held-out rows in nats per unit of weight, if it was found together with q.
    gain : Gain, optional
        How much better held-out class labels are predicted than by their frequencies, if that was found together with
        q.
    error_of_mean : ndarray of shape (2, T), optional
        The leave-one-out root mean square error, in standard deviations of y; and by how many standard errors its
        square is above that of a constant.
    log_prior : float
        The log density of the hyperparameters under their priors, which ``elbo`` includes.
    neighbours : Neighbours, optional
        The rows from which others are predicted, if they predict better than the inducing points.
    posterior : Posterior, optional
        Of the exact process, which has no q in ``state``.
    ahead : float, optional
        How much better neighbours predict left-out rows than the inducing points, in nats a row.
    rise : float
        Nats per unit of weight by which the best mean has a larger bound than that which natural gradient steps found.
    """

    state: State
    constants: Constants
    elbo: float
    trained: loop.Result
    previous: Previous
    lost: str | None
    calibration: Calibration | None = None
    dispersion: Dispersion | None = None
    held_out: Average | None = None
    log_prior: float = 0.0
    gain: Gain | None = None
    error_of_mean: Floats | None = None
    neighbours: Neighbours | None = None
    posterior: Posterior | None = None
    ahead: float | None = None
    rise: float = 0.0


def of_training(trained: loop.Result, constants: Constants) -> Result:
    """The `Result` if nothing follows the training."""
    log_prior = float(constants.objective.reported(constants.log_prior(trained.state.parameters)))
    previous = previous_of(trained.state, constants)
    return Result(trained.state, constants, trained.elbo, trained, previous, None, log_prior=log_prior)
