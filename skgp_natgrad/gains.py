"""The natural gradient's step size, found while training.

In natural coordinates the expected bound is close to a parabola of curvature one
(for a conjugate likelihood and fixed hyperparameters it is one), and a minibatch
shows its slope with noise. The best step for such a parabola is the gain

    gamma = |E slope|^2 / E |slope|^2

(Schaul, Zhang and LeCun 2013, "No more pesky learning rates", eq. 5): one without
noise, and the smaller the less of what a minibatch says is news. The slope is
that of the mean, in the Fisher metric. The upper norm needs no long average:
directions of two minibatches in a row have independent noise, so that their
product estimates it without bias, once the part that the step between them has
removed is put back: in natural coordinates, that is gamma times the first.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

# The prior is far from the posterior: the first steps are small, as in the natural gradient paper's section 5.
_FIRST = _SMALLEST = 1e-3
_GROWTH = 1.5
# Averages reach back over as many steps as q itself does, within limits.
_SHORTEST, _LONGEST = 5.0, 50.0


class Gain(NamedTuple):
    """What is remembered from step to step.

    Attributes
    ----------
    gamma : scalar
        The size of the last step; before the first one, the size to begin with.
    direction : pair of arrays of shape (K, M) and (K, M, M)
        The last natural gradient, in natural parameters.
    average : scalar
        Of the ratio of the two norms.
    """

    gamma: jax.Array
    direction: tuple
    average: jax.Array


def initial(q):
    """Return the gain before the first step."""
    first = jnp.full((), _FIRST, dtype=float)
    return Gain(first, (jnp.zeros_like(q.mean), jnp.zeros_like(q.cov)), first)


def updated(gain, q, direction):
    """Take in the natural gradient at ``q``; the gain that is returned holds the size of the next step.

    Parameters
    ----------
    gain : Gain
        Its ``gamma`` is the size of the step that led to ``q``.
    q : Gaussian
    direction : pair of arrays of shape (K, M) and (K, M, M)

    Returns
    -------
    gain : Gain
    """
    before, now = _slope(gain.direction, q), _slope(direction, q)
    toward = jnp.einsum("kij,kj->ki", q.cov, before)
    power = (toward * before).sum()
    finite = jnp.all(jnp.isfinite(now)) & jnp.isfinite(power)
    # The ratio of averages would be that of the first steps for long, whose slopes are the largest by far.
    ratio = (toward * (now + gain.gamma * before)).sum() / jnp.where(power > 0.0, power, 1.0)
    ratio = jnp.where(finite & (power > 0.0), jnp.clip(ratio, 0.0, 1.0), gain.average)
    share = jnp.clip(gain.gamma, 1.0 / _LONGEST, 1.0 / _SHORTEST)
    average = gain.average + share * (ratio - gain.average)
    gamma = jnp.clip(average, _SMALLEST, _GROWTH * jnp.maximum(gain.gamma, _SMALLEST))
    # Without a direction that is finite the step fails, and the last one is remembered.
    direction = jax.tree.map(lambda new, old: jnp.where(finite, new, old), direction, gain.direction)
    return Gain(gamma, direction, average)


def _slope(direction, q):
    """The gradient in the mean that belongs to a direction in natural parameters."""
    shift, precision = direction
    return shift - jnp.einsum("kij,kj->ki", precision, q.mean)
