"""q under a changing kernel: with little noise the mean of u = f(Z) is held constant."""

from __future__ import annotations

import functools

import jax.numpy as jnp

from .._backend.device import quick_jit
from ..variational import bound, gaussian
from ..variational.bases import BASES
from ..variational.model import kernels_of
from ..variational.points import by_kernel
from .algorithm import SOLVERS


def _holds_u(algorithm):
    """Whether the mean of u = f(Z) is held while the optimizer changes the kernel."""
    return SOLVERS[algorithm.solver].natural and algorithm.optimizer is not None


def unwhitened(m, factors, algorithm):
    """The mean of u = L v (K, M)."""
    if not _holds_u(algorithm):
        return jnp.zeros((len(m), 0))
    return jnp.concatenate([m[latents] @ factor.L.T for factor, latents in by_kernel(factors, len(m))])


@functools.partial(quick_jit, static_argnames="basis")
def rewhitened(q, before, now, basis):
    """``q`` under other hyperparameters or another jitter, with the mean of u = f(Z) held.

    ``before`` and ``now`` are pairs of `Parameters` and `Constants`.
    """
    old, new = (bound.factors(basis, *pair) for pair in (before, now))
    if old is None:
        return q
    m = [
        q.mean[latents] @ first.L.T @ last.inverse.T
        for (first, latents), last in zip(by_kernel(old, len(q.mean)), new, strict=True)
    ]
    return gaussian.with_mean(q, jnp.concatenate(m))


def mean_at(Z_new, state, m, factors, constants, algorithm):
    """The mean of f at the new positions of the inducing points (K, M), under the kernel of ``state``.

    The mean given by ``m`` is a function, which the points only represent: the points
    move along this function.
    """
    u = unwhitened(m, factors, algorithm)
    if not _holds_u(algorithm):
        return u
    kernels = kernels_of(state.parameters)
    points, a, changes = state.parameters.points, state.parameters.weights.a, []
    change_of_mean = BASES[algorithm.basis].change_of_mean
    for (kernel, latents), factor in zip(by_kernel(kernels, len(m)), factors, strict=True):
        of_these = a[latents], m[latents], Z_new
        changes.append(change_of_mean(kernel, factor, points, constants.masks, *of_these))
    return u + jnp.concatenate(changes)


def whitened_anew(state, factors, algorithm):
    """The state with q whitened by its present kernel, with the mean of u = f(Z) held.

    If the mean of v = L^-1 u were held instead, the mean of u would change with L, with little noise by many standard
    deviations. With large noise this does no harm, and training is faster: then v is held instead of u, and in between
    a fraction of each. The covariance of v is always held.
    """
    if not _holds_u(algorithm):
        return state
    m = [state.u[latents] @ factor.inverse.T for factor, latents in by_kernel(factors, len(state.u))]
    m = state.held * jnp.concatenate(m) + (1.0 - state.held) * state.q.mean
    return state._replace(q=gaussian.with_mean(state.q, m), u=unwhitened(m, factors, algorithm))


@functools.partial(quick_jit, static_argnames="algorithm")
def settled(state, constants, algorithm):
    """The state with q whitened by its present kernel: for callbacks and results between two chunks."""
    return whitened_anew(state, bound.factors(algorithm.basis, state.parameters, constants), algorithm)
