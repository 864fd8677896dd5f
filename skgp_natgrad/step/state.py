"""What a step carries, and what it reports."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from .._backend.device import quick_jit
from ..variational import bound as bounds
from ..variational import gaussian, model
from . import adaptive_gamma
from .mean_weights import mean_metric
from .optimizer import fresh_optimizer
from .whitening import unwhitened


class Best(NamedTuple):
    """The state to go back to, with its metric and its bound: of a full batch the best, else the last sound one."""

    bound: jax.Array
    q: gaussian.Gaussian
    u: jax.Array
    parameters: model.Parameters
    metric: jax.Array


class State(NamedTuple):
    """What a step carries.

    Attributes
    ----------
    q : Gaussian
    u : array of shape (K, M)
        The mean of f(Z), which q keeps when the optimizer moves the kernel: see
        `whitened_anew`. (K, 0) where the optimizer moves q itself, or no kernel.
    held : scalar
        How much of that: from zero, where the noise is large, to one.
    parameters : Parameters
        Everything else that is trained.
    metric : array of shape (1 or K, G) or (1 or K, G, G)
        Of the mean-only weights, as of the last refresh.
    optimizer : object
        The optimizer's moments.
    best : Best
    shrink : scalar
        Factor of both step sizes: halved when a step had to be taken back.
    gain : adaptive_gamma.Gain, optional
        The natural gradient's step size where it is found while training.
    """

    q: gaussian.Gaussian
    u: jax.Array
    held: jax.Array
    parameters: model.Parameters
    metric: jax.Array
    optimizer: object
    best: Best
    shrink: jax.Array
    gain: adaptive_gamma.Gain | None


class Report(NamedTuple):
    """Of each step: the bound before it, the natural gradient's step size, and whether it failed.

    A step that was ``rejected`` went another way than asked; one that was
    ``clipped`` among them along the gradient without negative curvature.
    """

    elbo: jax.Array
    gamma: jax.Array
    rejected: jax.Array
    clipped: jax.Array


@functools.partial(quick_jit, static_argnames="algorithm")
def initial_state(q, parameters, constants, algorithm):
    """Return the state at the start of training; compiled, so that no two of its arrays share memory to donate."""
    factors = bounds.factors(algorithm.basis, parameters, constants)
    metric, u = mean_metric(parameters, constants, algorithm, factors), unwhitened(q.mean, factors, algorithm)
    # A strong type, as the steps return it: a weak one would be compiled for on its own.
    best = Best(jnp.full((), -jnp.inf, dtype=float), q, u, parameters, metric)
    shrink = jnp.ones((), dtype=float)
    optimizer = fresh_optimizer(q, parameters, algorithm)
    return State(q, u, shrink, parameters, metric, optimizer, best, shrink, first_gain(q, algorithm))


def best_of(state, bound):
    """The state as the one to go back to."""
    return Best(bound, state.q, state.u, state.parameters, state.metric)


def first_gain(q, algorithm):
    """The step size's state before its first step; None where it is scheduled."""
    return adaptive_gamma.initial(q) if algorithm.adaptive else None
