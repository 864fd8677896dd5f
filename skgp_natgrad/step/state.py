"""The state that a step updates, and its report."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._backend.device import quick_jit
from ..variational import bound as bounds
from ..variational import gaussian, model
from . import adaptive_gamma
from .mean_weights import mean_metric
from .optimizer import fresh_optimizer
from .whitening import unwhitened


class Best(NamedTuple):
    """The state to return to, with its metric and bound: the best on the full batch, the last sound one otherwise."""

    bound: jax.Array
    q: gaussian.Gaussian
    u: jax.Array
    parameters: model.Parameters
    metric: jax.Array


class State(NamedTuple):
    """The state of training that a step updates.

    Attributes
    ----------
    q : Gaussian
    u : array of shape (K, M)
        The mean of f(Z), which stays when the optimizer changes the kernel: see
        `whitened_anew`. (K, 0) if the optimizer updates q itself, or no kernel.
    held : scalar
        The fraction of it that is held: from zero, where the noise is large, to one.
    parameters : Parameters
        Everything else that is trained.
    metric : array of shape (1 or K, G) or (1 or K, G, G)
        Metric of the mean-only weights, from the last refresh.
    optimizer : object
        The optimizer's moments.
    best : Best
    shrink : scalar
        Factor of both step sizes: halved when a step is undone.
    gain : adaptive_gamma.Gain, optional
        State of the natural gradient's step size, if it is adapted while training.
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

    @property
    def n_points(self):
        """The number of inducing points of q."""
        if self.q is None:
            raise ValueError(
                "state.q is None: this state is that of an exact process, which has no steps. Start from svgp.init "
                "with a plan of a solver of steps, such as svgp.Settings(algorithm=svgp.Algorithm(solver='ngd')), and "
                "with fewer points than rows."
            )
        return self.q.mean.shape[-1]


class Report(NamedTuple):
    """What each step reports.

    Attributes
    ----------
    elbo : array of shape (n_steps,)
        The bound before the step.
    gamma : array of shape (n_steps,)
        The natural gradient's step size.
    rejected : array of bool of shape (n_steps,)
        Whether the step was shortened, replaced, skipped or undone.
    clipped : array of bool of shape (n_steps,)
        Whether it was replaced by a step along the gradient without negative curvature.
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
    # A strong type, as the steps return: a weak type would be compiled separately.
    best = Best(jnp.full((), -jnp.inf, dtype=float), q, u, parameters, metric)
    shrink = jnp.ones((), dtype=float)
    optimizer = fresh_optimizer(q, parameters, algorithm)
    return State(q, u, shrink, parameters, metric, optimizer, best, shrink, first_gain(q, algorithm))


def untrained_state(q, parameters):
    """The state that one step to the best q starts from: it needs nothing of what repeated steps carry along."""
    return State(q, np.zeros((len(q.mean), 0)), np.ones(()), parameters, np.zeros(()), None, None, np.ones(()), None)


def best_of(state, bound):
    """The state as the one to return to."""
    return Best(bound, state.q, state.u, state.parameters, state.metric)


def first_gain(q, algorithm):
    """The adaptive step size's state before its first step; None for a schedule."""
    return adaptive_gamma.initial(q) if algorithm.adaptive else None
