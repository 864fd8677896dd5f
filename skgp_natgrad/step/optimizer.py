"""The optimizer's step, which updates everything except what natural gradients update."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from ..variational.parameterizations import within_blocks
from .algorithm import SOLVERS
from .mean_weights import with_a

OPTIMIZERS = {
    "adam": optax.scale_by_adam,
    "amsgrad": optax.scale_by_amsgrad,
    "nadam": functools.partial(optax.scale_by_adam, nesterov=True),
    "adabelief": optax.scale_by_belief,
    "yogi": optax.scale_by_yogi,
    "rmsprop": optax.scale_by_rms,
}
# Noise, relative to the variance, from which the inducing points move at the full rate; and the smallest fraction of
# this rate.
_USUAL_NOISE, _SLOWEST_POINTS = 0.02, 0.05


def is_transformation(optimizer):
    """Whether an optimizer is an optax transformation, with its own step sizes, and not a name."""
    return isinstance(optimizer, optax.GradientTransformation)


def _transformation(algorithm):
    if is_transformation(algorithm.optimizer):
        return algorithm.optimizer
    return optax.identity() if not SOLVERS[algorithm.solver].optimizes else OPTIMIZERS[algorithm.optimizer or "adam"]()


def coordinates(q, parameters, algorithm):
    """Coordinates of q that the optimizer updates; None under natural gradients."""
    if SOLVERS[algorithm.solver].natural:
        return None
    return within_blocks(algorithm.parameterization, parameters.points.sizes).from_gaussian(q)


def fresh_optimizer(q, parameters, algorithm):
    """The optimizer's state before its first step."""
    # Everything is in one vector: a program with few operations compiles faster.
    return _transformation(algorithm).init(ravel_pytree((coordinates(q, parameters, algorithm), parameters))[0])


def restarted_optimizer(q, parameters, algorithm, before):
    """The optimizer's state after a step that was undone; a user's transformation keeps its step count."""
    fresh = fresh_optimizer(q, parameters, algorithm)
    if not is_transformation(algorithm.optimizer):
        return fresh
    return jax.tree.map(lambda new, old: old if jnp.ndim(new) == 0 else new, fresh, before)


def point_rate_of(dv, mean, batch, constants):
    """The factor of the optimizer's step size for the inducing points: smaller where there is little noise.

    With little noise the rows determine f(Z) so precisely that a step of the usual size
    would move the points out of reach of this information. The noise is one over the mean
    curvature of the rows' log-likelihoods (for a Gaussian likelihood its variance). It is
    compared with the variance of the latent means (K, B), so that units do not matter;
    ``dv`` is the bound's derivative in all latent variances together. The two constants
    were measured: see the developer's notes in the documentation.
    """
    share = batch.weight / batch.weight.sum()
    curvature = -2.0 * dv / (len(mean) * constants.scale * batch.weight.sum())
    noise = 1.0 / jnp.maximum(curvature, jnp.finfo(curvature.dtype).tiny)
    signal = (share * (mean - (share * mean).sum(1, keepdims=True)) ** 2).sum() / len(mean)
    rate = jnp.clip(noise / (noise + signal) / _USUAL_NOISE, _SLOWEST_POINTS, 1.0)
    # Without a finite slope the optimizer's step is skipped.
    return jnp.where(jnp.isfinite(rate), rate, _SLOWEST_POINTS)


def optimizer_step(state, constants, gradient, rate, algorithm, point_rate):
    """Ascend in everything except what natural gradients update; skip the step if it is not finite.

    The mean-only weights move in the preconditioned coordinates a (D + eps). If natural
    gradients update q, the points move at ``point_rate`` times the rate of the rest.

    Returns
    -------
    direction : pair
        The direction of the coordinates of q (None if natural gradients update it), and
        the moved parameters.
    optimizer_state : object
    skipped : bool
    """
    xi_loss, loss = jax.tree.map(lambda g: -g / constants.weight, gradient)
    loss = loss._replace(points=jax.tree.map(lambda g: constants.train_points * g, loss.points))
    scale = state.metric if state.metric.ndim == 2 else 1.0
    flat, unravel = ravel_pytree((xi_loss, with_a(loss, loss.weights.a / scale)))
    finite = jnp.all(jnp.isfinite(flat))
    here = _position(state, algorithm, scale) if is_transformation(algorithm.optimizer) else None
    update, optimizer = _transformation(algorithm).update(jnp.where(finite, flat, 0.0), state.optimizer, here)
    # The update of a user's transformation is added as it is: it includes step size and sign.
    xi, direction = unravel(jnp.where(finite, -update if here is None else update, 0.0))
    if here is not None:
        # It may change parameters that have no gradient, as weight decay does.
        direction = direction._replace(points=jax.tree.map(lambda d: constants.train_points * d, direction.points))
    direction = with_a(direction, direction.weights.a / scale)
    if SOLVERS[algorithm.solver].natural:
        direction = direction._replace(points=jax.tree.map(lambda d: point_rate * d, direction.points))
    if algorithm.optimizer is None:
        direction = jax.tree.map(jnp.zeros_like, direction)._replace(weights=direction.weights)
    moved = within_bounds(jax.tree.map(lambda p, d: p + rate * d, state.parameters, direction), constants)
    return (xi, moved), choose(finite, optimizer, state.optimizer), ~finite


def _position(state, algorithm, scale):
    """All coordinates that the optimizer updates, as one flat vector: for weight decay and similar transformations."""
    parameters = with_a(state.parameters, state.parameters.weights.a * scale)
    return ravel_pytree((coordinates(state.q, state.parameters, algorithm), parameters))[0]


def within_bounds(parameters, constants):
    """Clip the kernels' and the likelihood's parameters to their bounds."""
    free = parameters.log_kernels, parameters.raw_likelihood
    kernels, likelihood = jax.tree.map(jnp.clip, free, *constants.log_bounds)
    return parameters._replace(log_kernels=kernels, raw_likelihood=likelihood)


def choose(condition, yes, no):
    """One of two trees of arrays; without a select operation per array, since each would be compiled separately."""
    return jax.lax.cond(condition, lambda: yes, lambda: no)
