"""One training step.

One step evaluates the kernel once on one minibatch. One reverse pass gives the gradients in q's moments, for the step
on q, and the gradients in everything else, for the optimizer.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .._backend.device import quick_jit
from ..variational import bound as bounds
from ..variational import gaussian, natural_gradient
from ..variational.model import has_closed_form
from ..variational.parameterizations import within_blocks
from . import adaptive_gamma
from .algorithm import NATURAL_MEAN_SOLVERS, SOLVERS
from .mean_weights import with_a
from .optimizer import optimizer_step, point_rate_of
from .state import Report
from .whitening import mean_at, whitened_anew

# A fall of the bound by at most this many units of rounding does not count.
_ROUNDING = 100.0
# Fall of the bound in a step of q, relative to its terms, that is allowed.
_SLACK = 1e-9


def bound(q, parameters, constants, batch, algorithm, known_factors=None):
    """The bound of a batch plus the log prior, in the units in which it is reported."""
    given_q = bounds.bound_given_q(algorithm.basis, parameters, q.mean, q.cov, batch, constants, known_factors)
    return _reported(given_q, q, parameters, constants)


def _reported(given_q, q, parameters, constants):
    return constants.objective.reported(given_q - gaussian.kl_to_standard(q) + constants.log_prior(parameters))


bound_of_batch = quick_jit(bound, static_argnames="algorithm")


def step(state, constants, batch, gamma, rate, algorithm):
    """One step of q and one of everything else, from one reverse pass.

    Returns
    -------
    state : State
        The state before the step, with q whitened by its kernel.
    moved : State
    report : Report
        For ``state``.
    """
    factors = bounds.factors(algorithm.basis, state.parameters, constants)
    state = whitened_anew(state, factors, algorithm)
    q, parameters = state.q, state.parameters
    gamma, rate = state.shrink * gamma, state.shrink * rate

    def bound_of(parameters, m, S, widening=0.0):
        if algorithm.optimizer is None:
            parameters = jax.lax.stop_gradient(parameters)._replace(weights=parameters.weights)
        return bounds.bound_and_moments(algorithm.basis, parameters, m, S, batch, constants, factors, widening)

    (value, latent), (gradient, dm, dS, dv) = jax.value_and_grad(bound_of, argnums=(0, 1, 2, 3), has_aux=True)(
        parameters, q.mean, q.cov, 0.0
    )
    point_rate = point_rate_of(dv, latent.rows.mean, batch, constants)
    natural, gain = SOLVERS[algorithm.solver].natural, state.gain
    if algorithm.adaptive:
        gain = adaptive_gamma.updated(gain, q, natural_gradient.direction(q, dm, dS), batch.correlation)
        gamma = jnp.minimum(gamma, gain.gamma)
    if algorithm.mean_solver in NATURAL_MEAN_SOLVERS:
        a = NATURAL_MEAN_SOLVERS[algorithm.mean_solver].step(
            lambda a: bound_of(with_a(parameters, a), q.mean, q.cov)[0], value, gradient, state, gamma, batch.X.dtype
        )
        gradient = with_a(gradient, jnp.zeros_like(a))
    if constants.priors is not None and algorithm.optimizer is not None:
        gradient = jax.tree.map(jnp.add, gradient, jax.grad(constants.log_prior)(parameters))
    coordinates = within_blocks(algorithm.parameterization, parameters.points.sizes)
    xi_gradient = None if natural else natural_gradient.ordinary_gradient(q, dm, dS, coordinates)
    (xi_direction, parameters), optimizer, skipped = optimizer_step(
        state, constants, (xi_gradient, gradient), rate, algorithm, point_rate
    )
    if algorithm.mean_solver in NATURAL_MEAN_SOLVERS:
        parameters = with_a(parameters, a)
    if natural:
        moved = _natural_step(state, constants, batch, latent, value, (dm, dS), gamma, algorithm)
        if algorithm.adaptive:
            gain = gain._replace(gamma=moved.gamma)
    else:
        moved = natural_gradient.step(q, xi_direction, rate, coordinates)
    rejected = (moved.n_halvings > 0) | skipped
    report = Report(_reported(value, q, state.parameters, constants), moved.gamma, rejected, moved.fell_back)
    u = mean_at(parameters.points.of_q, state, moved.q.mean, factors, constants, algorithm)
    # All of u is held where points move at half the rate of the rest or less.
    held = jnp.minimum(1.0, 2.0 * (1.0 - point_rate))
    state_after = state._replace(q=moved.q, u=u, held=held, parameters=parameters, optimizer=optimizer, gain=gain)
    return state, state_after, report


def _natural_step(state, constants, batch, latent, value, gradient, gamma, algorithm):
    """The natural gradient step of q, shortened until the result is a Gaussian and does not lower the bound.

    For a conjugate likelihood every step of size up to one raises the batch's
    bound: it moves on a straight line, in natural parameters, towards the batch's
    optimum, and the divergence from the optimum falls along this line. A past posterior
    is conjugate too: its expectation is linear in E[v] and E[v v^T]. If q has two
    blocks the bound rises for another reason: see `paper.solve`.
    """
    q, parameters, (dm, dS) = state.q, state.parameters, gradient
    coordinates = within_blocks(algorithm.parameterization, parameters.points.sizes)
    velocity = natural_gradient.velocity(q, dm, dS, coordinates)
    if has_closed_form(parameters, constants) and algorithm.parameterization == "natural":
        return natural_gradient.step(q, velocity, gamma, coordinates)
    before = value - gaussian.kl_to_standard(q)
    # The bound is a difference of larger numbers, which are sums themselves.
    slack = max(_SLACK, _ROUNDING * jnp.finfo(batch.X.dtype).eps)
    rounding = slack * (jnp.abs(value) + gaussian.kl_to_standard(q) + constants.weight)

    def acceptable(q_new):
        given_q = bounds.bound_after(parameters, latent, q, q_new, batch, constants)
        bound = given_q - gaussian.kl_to_standard(q_new)
        return gaussian.is_finite(q_new) & (bound >= before - rounding)

    def fallback():
        concave = bounds.concave_gradient(parameters, latent, batch, constants)
        clipped = natural_gradient.velocity(q, dm, concave, coordinates)
        return clipped, jnp.any(jnp.abs(concave - dS) > _ROUNDING * jnp.finfo(dS.dtype).eps * jnp.abs(dS).max())

    return natural_gradient.step(q, velocity, gamma, coordinates, acceptable, fallback)
