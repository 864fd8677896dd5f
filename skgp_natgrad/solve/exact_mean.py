"""The exact mean on all points, from a linear system in place of gradient steps: see `mean_system`."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._backend import placement
from .._backend.flat import flat
from ..training.shares import filled_up, gathered
from ..variational import gaussian, model
from . import leave_one_out
from .mean_system import Iterate, between, bounds, divergence, pass_over, rescaled, target
from .system import prior_of

_MAX_PASSES = 30
_NEWTON_HALVINGS = 10
_ROUNDS = 6
# Fall of the bound, relative to its terms, that counts as rounding.
_ROUNDING = 1e-9


class Solution(NamedTuple):
    """The trained state with the solved mean, and its bound.

    ``lost`` names the part that rounding spoiled and that was discarded: "solution", "likelihood" or None.
    """

    q: gaussian.Gaussian
    parameters: model.Parameters
    elbo: float
    lost: str | None


def solve(q, parameters, constants, rows, tol, random_state, trains_likelihood=True):
    """Solve for the mean on inducing and mean-only points together.

    Parameters
    ----------
    q : Gaussian
    parameters : Parameters
        With the mean-only points in place; the solver starts at their weights.
    constants : Constants
    rows : Table
    tol : float
        Newton's method stops when the bound rises by less than this many nats per unit of weight.
    random_state : numpy.random.RandomState
        Chooses the held-out rows.
    trains_likelihood : bool
        Whether the likelihood's parameters are estimated anew.

    Returns
    -------
    solution : Solution
    """
    n_processes = placement.current().n_processes
    some, rows = gathered(rows, n_processes), filled_up(rows, n_processes)
    prior = prior_of(parameters, constants.masks, constants.jitter)
    trained, start = parameters, _first_position(q, parameters, prior)
    solved, statistics = optimum(parameters, prior, start, constants, rows, tol)
    position = solved
    if trains_likelihood and np.any(np.less(*leave_one_out.limits(constants))):
        held_out = leave_one_out.some_rows(some, random_state)
        if model.has_closed_form(parameters, constants):
            of = functools.partial(_statistics_of, parameters, prior, solved, statistics, constants, rows)
            parameters, position = leave_one_out.search_noise(parameters, prior, of, constants, held_out)
        else:
            parameters, position = _alternate(parameters, prior, position, statistics, constants, rows, tol, held_out)
    candidates = [(trained.raw_likelihood, at) for at in (start, solved)] + [(parameters.raw_likelihood, position)]
    before, after, elbo = bounds(candidates, parameters, prior, constants, rows)
    lost = None
    if not after >= before - _ROUNDING * (abs(before) + float(constants.weight)):
        # The system is too ill-conditioned for double precision: the trained mean is better.
        parameters, position, elbo, lost = trained, start, before, "solution"
    elif not np.isfinite(elbo):
        parameters, position, elbo, lost = trained, solved, after, "likelihood"
    return Solution(*_as_basis(position, parameters, prior), elbo, lost)


def optimum(parameters, prior, position, constants, rows, tol):
    """The best mean and covariance for fixed hyperparameters.

    Newton's method: a step is halved until the bound does not fall. With a
    conjugate likelihood one step is enough, and it cannot be too long.

    Returns
    -------
    position : Iterate
    statistics : Statistics
        At ``position``; for a conjugate likelihood at any position.
    """
    statistics = pass_over(parameters, prior, position, constants, rows)
    if model.has_closed_form(parameters, constants):
        return target(statistics)[0], statistics
    bound = float(statistics.expectation) - float(divergence(position))
    for _ in range(_MAX_PASSES):
        end = target(statistics)[0]
        rise = -np.inf
        for halving in range(_NEWTON_HALVINGS):
            moved = between(position, end, 0.5**halving)
            ahead = pass_over(parameters, prior, moved, constants, rows)
            rise = float(ahead.expectation) - float(divergence(moved)) - bound
            if rise >= 0.0:
                position, statistics, bound = moved, ahead, bound + rise
                break
        if not rise > tol * float(constants.weight):
            break
    return position, statistics


def _statistics_of(parameters, prior, position, statistics, constants, rows, tried):
    """The statistics of a conjugate likelihood under the parameters ``tried``, from those under ``parameters``."""
    if rows.has_known:
        # The curvatures of rows whose noise is known in part are not proportional.
        return pass_over(tried, prior, position, constants, rows)
    return rescaled(statistics, parameters, tried, constants)


def _alternate(parameters, prior, position, statistics, constants, rows, tol, held_out):
    """Estimate the likelihood's parameters and the position in turn.

    The parameters are estimated under the variance of a process whose covariance, too,
    rests on all the points. With that of the inducing points alone, part of the
    variance would be counted that the mean has already explained; the noise, reduced
    by it, would fall without end.
    """
    unexplained = leave_one_out.unexplained(parameters, prior, held_out)
    for _ in range(_ROUNDS):
        before, factor = parameters, target(statistics)[1]
        mean, _, own = leave_one_out.predictions(parameters, prior, factor, position, constants, held_out)
        parameters = leave_one_out.estimate_likelihood(parameters, mean, unexplained + own, constants, held_out)
        position, statistics = optimum(parameters, prior, position, constants, rows, tol)
        first, last = (flat(each.raw_likelihood) for each in (before, parameters))
        if np.max(np.abs(first - last)) < leave_one_out.SETTLED:
            break
    return parameters, position


@jax.jit
def _first_position(q, parameters, prior):
    """The mean of the orthogonal basis as whitened weights on all points."""
    a, size = parameters.weights.a, q.mean.shape[-1]
    root = jnp.broadcast_to(prior.root, (len(a), *prior.root.shape[1:]))
    return Iterate(jnp.concatenate([q.mean, jnp.einsum("kh,khg->kg", a, root[:, size:, size:])], axis=1), q)


@jax.jit
def _as_basis(position, parameters, prior):
    """Whitened weights on all points as q(v) and mean-only weights of the orthogonal basis."""
    size = position.q.cov.shape[-1]
    m, own = position.w[:, :size], position.w[:, size:]
    whiten = jnp.broadcast_to(prior.whiten, (len(own), *prior.whiten.shape[1:]))
    a = jnp.einsum("kg,kgh->kh", own, whiten[:, size:, size:]) * prior.mask[size:]
    q = gaussian.with_mean(position.q, m)
    return q, parameters._replace(weights=parameters.weights._replace(a=a))
