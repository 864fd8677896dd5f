"""The natural gradient's step size, found while training.

In natural coordinates the expected bound is close to a parabola of curvature one
(for a conjugate likelihood and fixed hyperparameters it is one), and a minibatch
shows its slope with noise. The best step for such a parabola is the gain

    gamma = |E slope|^2 / E |slope|^2

(Schaul, Zhang and LeCun 2013, "No more pesky learning rates", eq. 5): one without
noise, and the smaller the less of what a minibatch says is news. The slope is
that of the mean, in the Fisher metric. The upper norm needs no long average: the
product of the slopes of two minibatches in a row estimates it, once the part that
the step between them has removed is put back (in natural coordinates that is
gamma times the first), and the noise that they share is taken out.

They share some since rows are drawn without replacement: what one batch has too
much of is missing in those that follow, until the rows are shuffled again. With
rho the covariance of the two batches' noise over the variance of the first's,
`batches.noise_correlation`, the product's expectation is, over E |slope|^2,

    r = gamma + (1 - gamma) rho,    so that    gamma = (r - rho) / (1 - rho)

It is assumed that the rows' slopes spread alike all the time, and that no noise is
left in q. The batches of an epoch before the two have moved q by their noise, which
the next one makes up for as well; this raises the result by some, most where an epoch
is about as long as q's memory. It is left there: noise that the rest of an epoch
cancels harms less, and the step that is best by trial is the larger one.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

# The prior is far from the posterior: the first steps are small, as in the natural gradient paper's section 5.
_FIRST = _SMALLEST = 1e-3
_GROWTH = 1.5
# Averages reach back over so many times as many steps as q itself does, within limits.
_REACH = 2.0
_SHORTEST, _LONGEST = 5.0, 50.0
# A pair of slopes whose product is larger by so much than the first's square says that the bound has changed, no more.
_LARGEST = 3.0
# The first slopes are the largest by far: averages are scaled down to so many times the present square.
_FALL = 20.0


class Gain(NamedTuple):
    """What is remembered from step to step.

    Attributes
    ----------
    gamma : scalar
        The size of the last step; before the first one, the size to begin with.
    direction : pair of arrays of shape (K, M) and (K, M, M)
        The last natural gradient, in natural parameters.
    product, power : scalars
        Averages of the two norms' squares, without noise and with it; their ratio alone counts.
    """

    gamma: jax.Array
    direction: tuple
    product: jax.Array
    power: jax.Array


def initial(q):
    """Return the gain before the first step."""
    first, nothing = jnp.full((), _FIRST, dtype=float), jnp.zeros((), dtype=float)
    return Gain(first, (jnp.zeros_like(q.mean), jnp.zeros_like(q.cov)), nothing, nothing)


def updated(gain, q, direction, correlation=0.0):
    """Take in the natural gradient at ``q``; the gain that is returned holds the size of the next step.

    Parameters
    ----------
    gain : Gain
        Its ``gamma`` is the size of the step that led to ``q``.
    q : Gaussian
    direction : pair of arrays of shape (K, M) and (K, M, M)
    correlation : scalar
        Of the noise in it with that in the last one; below one.

    Returns
    -------
    gain : Gain
    """
    before, now = _slope(gain.direction, q), _slope(direction, q)
    toward = jnp.einsum("kij,kj->ki", q.cov, before)
    power = (toward * before).sum()
    shared = (toward * (now + gain.gamma * before)).sum()
    product = (jnp.clip(shared, -_LARGEST * power, _LARGEST * power) - correlation * power) / (1.0 - correlation)
    product, power = _averages(gain, product, power)
    # Not clipped before: where noise is all there is, half of the products are negative.
    average = jnp.where(power > 0.0, product / jnp.where(power > 0.0, power, 1.0), _FIRST)
    gamma = jnp.clip(average, _SMALLEST, jnp.minimum(1.0, _GROWTH * jnp.maximum(gain.gamma, _SMALLEST)))
    # Without a direction that is finite the step fails, and the last one is remembered.
    finite = jnp.all(jnp.isfinite(now))
    direction = jax.tree.map(lambda new, old: jnp.where(finite, new, old), direction, gain.direction)
    return Gain(gamma, direction, product, power)


def _averages(gain, product, power):
    """The averages of the gain with one more pair, unless it says nothing.

    Not the average of ratios: batches of little noise would count as much as others, and
    with few inducing points the ratio of a small square has no expectation.
    """
    usable = jnp.isfinite(product) & jnp.isfinite(power) & (power > 0.0)
    share = jnp.clip(gain.gamma / _REACH, 1.0 / _LONGEST, 1.0 / _SHORTEST)
    largest = _FALL * power
    keep = (1.0 - share) * jnp.where(gain.power > largest, largest / gain.power, 1.0)
    averages = keep * gain.product + share * product, keep * gain.power + share * power
    return tuple(jnp.where(usable, new, old) for new, old in zip(averages, (gain.product, gain.power), strict=True))


def _slope(direction, q):
    """The gradient in the mean that belongs to a direction in natural parameters."""
    nat1, precision = direction
    return nat1 - jnp.einsum("kij,kj->ki", precision, q.mean)
