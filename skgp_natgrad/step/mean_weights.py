"""The mean-only weights: their metric, and steps along their own natural gradient."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .._backend.device import quick_jit
from .._backend.linalg import jittered_cholesky, triangular_inverse
from ..variational import bound
from ..variational.bases import BASES
from ..variational.model import kernels_of
from ..variational.points import absolute_jitter
from .algorithm import NATURAL_MEAN_SOLVERS
from .whitening import whitened_anew

# Most halvings of a step of the weights, which then stay as they are.
_MEAN_HALVINGS = 30
# A fall of the bound by at most this many units of rounding does not count.
_ROUNDING = 100.0


def with_a(parameters, a):
    """The parameters with the mean-only weights replaced by ``a`` (K, G)."""
    return parameters._replace(weights=parameters.weights._replace(a=a))


def mean_metric(parameters, constants, algorithm, factors):
    """The metric of the mean-only weights.

    For ``mean_solver="natural"`` it is the inverse of their prior covariance
    (eq. 15a), (1 or K, G, G); otherwise its diagonal D (eq. 16), (1 or K, G).
    """
    masks, points, basis = constants.masks, parameters.points, BASES[algorithm.basis]
    kernels = kernels_of(parameters)
    pairs = zip(kernels, (None,) * len(kernels) if factors is None else factors, strict=True)
    if algorithm.mean_solver != "natural":
        return jnp.stack([basis.metric(kernel, factor, points, masks) for kernel, factor in pairs])
    matrices = [basis.metric_matrix(kernel, factor, points, masks) for kernel, factor in pairs]
    return jnp.stack([_inverse(K, absolute_jitter(K, masks.Z_mean, constants.jitter)) for K in matrices])


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


def _inverse(K, jitter):
    L_inv = triangular_inverse(jittered_cholesky(K, jitter)[0])
    return L_inv.T @ L_inv


def natural_mean_step(bound_of_a, value, gradient, state, gamma, dtype):
    """A step along the natural gradient of the mean-only weights.

    This metric ignores the posterior's covariance, so that a step of size one can be
    far too long. The step is the largest ``gamma / 2^i`` that raises the batch's bound
    by at least half of what its slope predicts; for a parabola this is at most the
    step to its maximum. ``dtype`` is that of the rows.
    """
    a, slope, metric = state.parameters.weights.a, gradient.weights.a, state.metric
    direction = slope / metric if metric.ndim == 2 else jnp.einsum("...gh,...h->...g", metric, slope)
    promised = (slope * direction).sum()
    rounding = _ROUNDING * jnp.finfo(dtype).eps * jnp.abs(value)

    def falls_short(carry):
        size, n_halvings = carry
        enough = bound_of_a(a + size * direction) >= value + 0.5 * size * promised - rounding
        return ~enough & (n_halvings < _MEAN_HALVINGS)

    size, n_halvings = jax.lax.while_loop(falls_short, lambda carry: (0.5 * carry[0], carry[1] + 1), (gamma, 0))
    return jnp.where(n_halvings < _MEAN_HALVINGS, a + size * direction, a)
