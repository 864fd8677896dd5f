"""The natural gradient step on q(v).

In the natural parameterization the natural gradient is the ordinary gradient in
the expectation parameters (eta1 = E[v], eta2 = E[v v^T]); with the KL's part
worked out, one step of size gamma is a convex combination (Salimbeni,
Eleftheriadis and Hensman 2018, eq. 10; eq. 14-15 of the orthogonal paper):

    precision <- (1 - gamma) precision + gamma (I - 2 dE/dS)
    shift     <- (1 - gamma) shift     + gamma (dE/dm - 2 dE/dS m)

where E is the expected log-likelihood as a function of the moments (m, S). At
gamma = 1 with a Gaussian likelihood and the full batch this is the optimum.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from . import gaussians

_MAX_HALVINGS = 20


class Step(NamedTuple):
    """The new q, the step size that was taken, and how often it was halved."""

    q: gaussians.Gaussian
    gamma: jax.Array
    n_halvings: jax.Array


def candidate(q, dm, dS, gamma):
    """Return q after the closed-form step of size ``gamma``, definite or not.

    Parameters
    ----------
    q : Gaussian
    dm, dS : arrays of shape (K, M) and (K, M, M)
        Gradients of the expected log-likelihood in the moments of ``q``.
    gamma : scalar
    """
    curvature = -2.0 * dS
    identity = jnp.eye(dm.shape[-1], dtype=dm.dtype)
    shift = dm + jnp.einsum("kij,kj->ki", curvature, q.mean)
    return gaussians.from_natural(
        (1.0 - gamma) * q.shift + gamma * shift,
        (1.0 - gamma) * q.precision + gamma * (identity + curvature),
    )


def step(q, dm, dS, gamma):
    """Return the step of the largest size ``gamma / 2^i`` whose precision is positive definite.

    The step of size zero is definite, so a small enough one always is; if even
    twenty halvings are not enough, or the gradients are not finite, q stays.
    """

    def indefinite(carry):
        q_new, _, n_halvings = carry
        return ~gaussians.is_finite(q_new) & (n_halvings < _MAX_HALVINGS)

    def halve(carry):
        _, gamma, n_halvings = carry
        gamma = 0.5 * gamma
        return candidate(q, dm, dS, gamma), gamma, n_halvings + 1

    first = (candidate(q, dm, dS, gamma), gamma, 0)
    q_new, gamma, n_halvings = jax.lax.while_loop(indefinite, halve, first)
    accepted = gaussians.is_finite(q_new)
    q_new = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), q_new, q)
    return Step(q_new, jnp.where(accepted, gamma, 0.0), n_halvings)
