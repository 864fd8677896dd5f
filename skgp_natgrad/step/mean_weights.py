"""The mean-only weights and their metric."""

from __future__ import annotations

import jax.numpy as jnp

from .._backend.device import quick_jit
from ..variational import bound
from ..variational.bases import BASES
from ..variational.model import kernels_of
from .algorithm import NATURAL_MEAN_SOLVERS
from .whitening import whitened_anew


def with_a(parameters, a):
    """The parameters with the mean-only weights replaced by ``a`` (K, G)."""
    return parameters._replace(weights=parameters.weights._replace(a=a))


def diagonal_metric(basis, kernel, factor, points, masks, jitter):
    """The diagonal D (eq. 16) of the inverse of the weights' prior covariance: (G,)."""
    return basis.metric(kernel, factor, points, masks)


def mean_metric(parameters, constants, algorithm, factors):
    """The metric of the mean-only weights: that of their solver, else its diagonal; (1 or K, G) or (1 or K, G, G)."""
    kernels, solver = kernels_of(parameters), algorithm.mean_solver
    metric = diagonal_metric if solver in ("adam", "exact") else NATURAL_MEAN_SOLVERS[solver].metric
    seen = parameters.points, constants.masks, constants.jitter
    pairs = zip(kernels, (None,) * len(kernels) if factors is None else factors, strict=True)
    return jnp.stack([metric(BASES[algorithm.basis], *pair, *seen) for pair in pairs])


def refresh(state, constants, algorithm):
    """The state with q whitened by its present kernel, and with the metric of that kernel.

    The optimizer updates the coordinates a D, which keep their values.
    """
    parameters = state.parameters
    factors = bound.factors(algorithm.basis, parameters, constants)
    state = whitened_anew(state, factors, algorithm)
    metric = mean_metric(parameters, constants, algorithm, factors)
    if algorithm.mean_solver not in NATURAL_MEAN_SOLVERS:
        parameters = with_a(parameters, parameters.weights.a * state.metric / metric)
    return state._replace(parameters=parameters, metric=metric)


refreshed = quick_jit(refresh, static_argnames="algorithm")
