"""The past of a stream in other units of y, and whether new rows contradict it or surprise its hyperparameters.

The latent functions scale with the units of y, so that their posterior from earlier rows can be converted to other
units exactly. The hyperparameters keep their numbers, now in the new units, and so does the share of the noise.
"""

from __future__ import annotations

import copy

import numpy as np
from scipy import special

from .._backend import device as _device
from .._backend import threads
from .._backend.device import quick_jit
from .._backend.types import Device
from ..prediction.model import Model, distribution
from ..prediction.quantiles import cumulative
from ..step.algorithm import Algorithm
from ..training import loop
from ..training.batches import Table, batch
from ..training.loop import Settings
from ..training.schedules import Auto, Constant
from ..variational import bound, gaussian, streaming
from .state import init, prior_mean_of

# Rows that test for a contradiction, and training steps for a likelihood that is not Gaussian.
_ROWS, _STEPS = 1000, 50
# New rows contradict the earlier ones if these make their fit worse by so many nats per unit of weight, and in all. New
# rows elsewhere in X are still fitted well, even if they are unlikely under the prior.
_EACH, _ALL = 0.25, 10.0
# A normal score of a target is no larger; and the share of the largest that are left out, as gross errors.
_FURTHEST, _OUTLIERS = 10.0, 0.01


def rescaled(previous, ratio, prior_mean):
    """The record of a fit whose latent functions are multiplied by ``ratio`` (K,), with this prior mean (K, 1)."""
    q = streaming.in_units(gaussian.separate(previous.q), ratio)
    return previous._replace(q=q, prior_mean=prior_mean)


def forgotten(plan, table, previous, latents):
    """The record of a fit that has forgotten some latent functions (K,); their prior mean is that of the table."""
    q = gaussian.separate(previous.q)

    def other(own, new):
        return np.where(np.reshape(latents, (-1,) + (1,) * (np.ndim(own) - 1)), new, own)

    q = gaussian.Gaussian(*map(other, q, gaussian.standard(*q.mean.shape)))
    prior_mean = other(previous.prior_mean, prior_mean_of(plan, table).reshape(-1, 1))
    # Gradients are divided by the weight of all rows that count: those of a past that is forgotten do not.
    weight = 0.0 if np.all(latents) else previous.weight
    return previous._replace(q=q, prior_mean=prior_mean, weight=weight)


def is_contradicted(plan, table, previous, posterior, latents, random_state):
    """Whether rows are fitted clearly worse with what earlier rows say of some latent functions than without it.

    Parameters
    ----------
    plan : Plan
    table : Table
    previous : Previous
        In the units of the table.
    posterior : Posterior
    latents : ndarray of bool of shape (K,)
    random_state : numpy.random.RandomState
        Not changed.

    Returns
    -------
    found : bool
    """
    draws, rows = copy.deepcopy(random_state), table.sample
    if rows.n_rows > _ROWS:
        rows = rows.rows(np.sort(draws.choice(rows.n_rows, _ROWS, replace=False)))
    one = plan.likelihood.conjugate and plan.objective.closed_form
    plan = plan._replace(
        n_devices=None,
        settings=Settings(
            algorithm=Algorithm(optimizer=None, adaptive=not one),
            gamma_schedule=Constant(1.0) if one else Auto(),
            batch_size=max(rows.n_rows, 2),
            max_iter=2 if one else _STEPS,
        ),
    )

    def fit_of(record):
        state, constants = init(plan, rows, copy.deepcopy(draws), record, posterior)
        best = loop.run(state, constants, rows, plan.settings, copy.deepcopy(draws)).state
        return float(_data_term(best.q, best.parameters, constants._replace(past=None), batch(rows)))

    with _device.computation(plan.device), threads.single_threaded(len(previous.parameters.points.Z)):
        lost = fit_of(forgotten(plan, rows, previous, latents)) - fit_of(previous)
    return bool(lost > max(_ALL, _EACH * rows.total_weight))


def is_surprised(model: Model, table: Table, device: Device = "auto") -> bool:
    """Whether another deviation would raise the density of the targets by as much as a contradiction costs.

    With z the normal scores of n targets under their predicted distributions, a factor of the deviation of z gains at
    most n (s^2 - 1 - log s^2) / 2 nats, where s^2 is the mean of z^2.

    Parameters
    ----------
    model : Model
    table : Table
        Rows that it has not seen, in its units.
    device : str

    Returns
    -------
    found : bool
    """
    likelihood, *moments, known = distribution(model, table.X, device, None, table.offset, table.known)
    seen = ~np.isnan(table.y) & (table.weight > 0.0)
    score = special.ndtri(cumulative(likelihood, *moments, np.where(seen, table.y, 0.0), known))
    gain = sum(_gain(each[rows]) for each, rows in zip(score, seen, strict=True))
    return bool(gain > max(_ALL, _EACH * seen.sum()))


def _gain(score):
    """What another deviation of some normal scores gains, without the largest: one row may be a gross error."""
    square = np.sort(np.clip(score, -_FURTHEST, _FURTHEST) ** 2)
    square = square[: len(square) - max(1, int(_OUTLIERS * len(square)))]
    if not len(square):
        return 0.0
    ratio = max(square.mean(), np.finfo(float).tiny)
    return 0.5 * len(square) * (ratio - 1.0 - np.log(ratio))


@quick_jit
def _data_term(q, parameters, constants, rows):
    return bound.bound_given_q("orthogonal", parameters, q.mean, q.cov, rows, constants)
