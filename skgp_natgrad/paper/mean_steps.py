"""Steps along the natural gradient of the mean-only weights, with their prior's metric or its diagonal.

Salimbeni, Cheng, Boots and Deisenroth (2018), equations 15a and 16.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .._backend.linalg import jittered_cholesky, triangular_inverse
from ..step.algorithm import MeanSolver
from ..step.mean_weights import diagonal_metric
from ..variational.points import absolute_jitter

# Most halvings of a step of the weights, which then stay as they are.
_MEAN_HALVINGS = 30
# A fall of the bound by at most this many units of rounding does not count.
_ROUNDING = 100.0


def _natural_metric(basis, kernel, factor, points, masks, jitter):
    """The inverse of the weights' prior covariance (eq. 15a): (G, G)."""
    K = basis.metric_matrix(kernel, factor, points, masks)
    L_inv = triangular_inverse(jittered_cholesky(K, absolute_jitter(K, masks.Z_mean, jitter))[0])
    return L_inv.T @ L_inv


def _step(bound_of_a, value, gradient, state, gamma, dtype):
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


MEAN_STEPS = {"natural": MeanSolver(_natural_metric, _step), "diagonal": MeanSolver(diagonal_metric, _step)}
