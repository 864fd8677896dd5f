"""Steps on q(v): along the natural gradient, or along the ordinary one.

In natural parameters the natural gradient is the ordinary gradient in the
expectation parameters (eta1 = E[v], eta2 = E[v v^T]). Including the KL divergence,
it points from the present parameters to

    precision = I - 2 dE/dS,    nat1 = dE/dm - 2 dE/dS m

where E is the expected log-likelihood as a function of the moments (m, S)
(Salimbeni, Eleftheriadis and Hensman 2018, eq. 10; eq. 14-15 of the orthogonal
paper). At gamma = 1 with a Gaussian likelihood and the full batch this is the
optimum. In other coordinates the natural gradient is the image of that
direction, a Jacobian-vector product.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from . import gaussian
from .parameterizations import PARAMETERIZATIONS, Parameterization

# Most halvings of a step of q, which then stays as it is.
_Q_HALVINGS = 20


class Step(NamedTuple):
    """The new q, the step size used, the number of halvings, and whether the fallback was used."""

    q: gaussian.Gaussian
    gamma: jax.Array
    n_halvings: jax.Array
    fell_back: jax.Array


def direction(q, dm, dS):
    """The natural gradient in natural parameters, (K, M) and (K, M, M).

    Parameters
    ----------
    q : Gaussian
    dm, dS : arrays of shape (K, M) and (K, M, M)
        Gradients of the expected log-likelihood in the moments of ``q``.
    """
    curvature = -2.0 * dS
    nat1 = dm + jnp.einsum("kij,kj->ki", curvature, q.mean)
    return nat1 - q.nat1, jnp.eye(dm.shape[-1], dtype=dm.dtype) + curvature - q.precision


def candidate(q, dm, dS, gamma, parameterization="natural"):
    """Return q after a natural gradient step of size ``gamma``, whether it is positive definite or not.

    Parameters
    ----------
    q : Gaussian
    dm, dS : arrays of shape (K, M) and (K, M, M)
        Gradients of the expected log-likelihood in the moments of ``q``.
    gamma : scalar
    parameterization : str or Parameterization
        The coordinates in which the step is straight.
    """
    return _moved(q, velocity(q, dm, dS, parameterization), gamma, parameterization)


def velocity(q, dm, dS, parameterization="natural"):
    """The natural gradient in the coordinates of a parameterization."""
    coordinates = _coordinates(parameterization)

    def from_natural(nat1, precision):
        return coordinates.from_gaussian(coordinates.from_natural(nat1, precision))

    return jax.jvp(from_natural, (q.nat1, q.precision), direction(q, dm, dS))[1]


def ordinary_gradient(q, dm, dS, parameterization):
    """The gradient of the bound in the coordinates of a parameterization."""
    coordinates = _coordinates(parameterization)

    def bound(xi):
        moved = coordinates.to_gaussian(xi)
        return (dm * moved.mean).sum() + (dS * moved.cov).sum() - gaussian.kl_to_standard(moved)

    return jax.grad(bound)(coordinates.from_gaussian(q))


def _coordinates(parameterization):
    return parameterization if isinstance(parameterization, Parameterization) else PARAMETERIZATIONS[parameterization]


def _moved(q, velocity, gamma, parameterization):
    coordinates = _coordinates(parameterization)
    xi = coordinates.from_gaussian(q)
    return coordinates.to_gaussian(jax.tree.map(lambda x, v: x + gamma * v, xi, velocity))


def step(q, velocity, gamma, parameterization="natural", acceptable=gaussian.is_finite, fallback=None):
    """Return the first acceptable step of size ``gamma``, ``gamma / 2``, ``gamma / 4``, ...

    If twenty halvings are not enough, or the velocity is not finite, q does not
    change. Along the gradient itself a small enough step is always acceptable; a
    fallback need not ascend, but may allow longer steps.

    Parameters
    ----------
    q : Gaussian
    velocity : pair of arrays of shape (K, M) and (K, M, M)
        In the coordinates of ``parameterization``.
    gamma : scalar
    parameterization : str or Parameterization
    acceptable : callable
        Whether a candidate is acceptable; must be false if the candidate is not finite.
    fallback : callable, optional
        Returns the velocity of all steps except the first, and whether it differs
        from ``velocity``; called only if it is needed.

    Returns
    -------
    step : Step
    """

    def rejected(carry):
        _, _, n_halvings, accepted = carry
        return ~accepted & (n_halvings < _Q_HALVINGS)

    def retry(carry):
        _, gamma, n_halvings, _ = carry
        gamma = 0.5 * gamma
        q_new = _moved(q, second, gamma, parameterization)
        return q_new, gamma, n_halvings + 1, acceptable(q_new)

    q_new = _moved(q, velocity, gamma, parameterization)
    accepted = acceptable(q_new)
    second, differs = velocity, jnp.zeros((), bool)
    if fallback is not None:
        second, differs = jax.lax.cond(accepted, lambda: (velocity, differs), fallback)
    q_new, gamma, n_halvings, accepted = jax.lax.while_loop(rejected, retry, (q_new, gamma, 0, accepted))
    q_new = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), q_new, q)
    return Step(q_new, jnp.where(accepted, gamma, 0.0), n_halvings, differs & accepted & (n_halvings > 0))
