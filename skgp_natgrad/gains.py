"""The natural gradient's step size, found while training.

In natural coordinates the expected bound is close to a parabola of curvature one
(for a conjugate likelihood and fixed hyperparameters it is one), and a minibatch
shows its slope with noise. The best step for such a parabola is the gain

    gamma = |E slope|^2 / E |slope|^2

(Schaul, Zhang and LeCun 2013, "No more pesky learning rates", eq. 5): one without
noise, and the smaller the less of what a minibatch says is news. Both norms are
those of the mean's part in the Fisher metric, and the upper one needs no large
average: slopes of two minibatches in a row have independent noise, so that their
inner product estimates it without bias, once the part that the step between them
has removed is put back.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

_FIRST = 0.1
_SMALLEST = 1e-3
_GROWTH = 1.5
# Averages reach back over as many steps as q itself does, within limits.
_SHORTEST, _LONGEST = 5.0, 50.0


class Gain(NamedTuple):
    """What is remembered from step to step.

    Attributes
    ----------
    gamma : scalar
        The next step size.
    velocity : array of shape (K, M)
        The last natural gradient's part in the mean of q.
    signal, power : scalars
        Averages of the two norms.
    last : scalar
        The last slope's norm.
    """

    gamma: jax.Array
    velocity: jax.Array
    signal: jax.Array
    power: jax.Array
    last: jax.Array


def initial(q):
    """Return the gain before the first step."""
    zero = jnp.zeros((), dtype=float)
    return Gain(jnp.full((), _FIRST, dtype=float), jnp.zeros_like(q.mean), zero, zero, zero)


def updated(gain, q, dm):
    """Take in the slope at ``q``: ``dm`` (K, M) is that of the expected log-likelihood in its mean.

    Parameters
    ----------
    gain : Gain
        Its ``gamma`` is the size of the step that led to ``q``.
    q : Gaussian
    dm : array of shape (K, M)

    Returns
    -------
    gain : Gain
    """
    slope = dm - q.mean
    velocity = jnp.einsum("kij,kj->ki", q.cov, slope)
    share = 1.0 / jnp.clip(1.0 / jnp.maximum(gain.gamma, _SMALLEST), _SHORTEST, _LONGEST)
    signal = gain.signal + share * ((gain.velocity * slope).sum() + gain.gamma * gain.last - gain.signal)
    power = gain.power + share * (gain.last - gain.power)
    known = gain.last > 0.0
    gamma = jnp.clip(jnp.where(known, signal / jnp.where(known, power, 1.0), _FIRST), _SMALLEST, 1.0)
    gamma = jnp.minimum(gamma, _GROWTH * jnp.maximum(gain.gamma, _SMALLEST))
    return Gain(gamma, velocity, jnp.where(known, signal, 0.0), jnp.where(known, power, 0.0), (velocity * slope).sum())
