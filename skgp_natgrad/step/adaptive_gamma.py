"""The natural gradient's step size, adapted while training.

In natural coordinates the expected bound is close to a parabola of curvature one
(exactly so for a conjugate likelihood and fixed hyperparameters), and a minibatch
gives its slope with noise. The best step for such a parabola is the gain

    gamma = |E slope|^2 / E |slope|^2

(Schaul, Zhang and LeCun 2013, "No more pesky learning rates", eq. 5): one without
noise, and smaller, the noisier the minibatch. The slope is the gradient in the mean,
measured in the Fisher metric. The numerator needs no long average: the product of
the slopes of two consecutive minibatches estimates it, after two corrections. The
part of the slope that the step between them removed is added back (in natural
coordinates it is gamma times the first slope), and their shared noise is removed.

They share noise because rows are drawn without replacement: rows that one batch has
too many of are missing in the following ones, until the rows are shuffled again. Let
rho be the covariance of the two batches' noise divided by the variance of the first's,
`batches.noise_correlation`. The expectation of the product, divided by E |slope|^2, is

    r = gamma + (1 - gamma) rho,    so that    gamma = (r - rho) / (1 - rho)

This assumes that the spread of the rows' slopes does not change with time, and that q
contains no noise. In fact the earlier batches of an epoch have moved q by their noise,
which the next batch also compensates. This raises the estimate somewhat, most where an
epoch is about as long as q's memory. It is not corrected: noise that the rest of an
epoch cancels does less harm, and experiments favour the larger step.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

# The prior is far from the posterior, so that the first steps are small, as in section 5 of the natural gradient paper.
_FIRST = _SMALLEST = 1e-3
_GROWTH = 1.5
# Memory of the averages, in multiples of the memory of q in steps; and its limits.
_REACH = 2.0
_SHORTEST, _LONGEST = 5.0, 50.0
# If the product of two slopes exceeds the square of the first by this factor, the bound has changed: it is ignored.
_LARGEST = 3.0
# The first slopes are by far the largest: averages are scaled down to at most this multiple of the present square.
_FALL = 20.0


class Gain(NamedTuple):
    """The state of the adaptive step size, kept from step to step.

    Attributes
    ----------
    gamma : scalar
        The size of the last step; before the first step, the initial size.
    direction : pair of arrays of shape (K, M) and (K, M, M)
        The last natural gradient, in natural parameters.
    product, power : scalars
        Averages of the two squared norms, without and with noise; only their ratio matters.
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
    """Update the gain by the natural gradient at ``q``; the returned gain holds the size of the next step.

    Parameters
    ----------
    gain : Gain
        Its ``gamma`` is the size of the step that led to ``q``.
    q : Gaussian
    direction : pair of arrays of shape (K, M) and (K, M, M)
    correlation : scalar
        Correlation of its noise with the noise of the last direction; below one.

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
    # Not clipped before averaging: with noise alone, half of the products are negative.
    average = jnp.where(power > 0.0, product / jnp.where(power > 0.0, power, 1.0), _FIRST)
    gamma = jnp.clip(average, _SMALLEST, jnp.minimum(1.0, _GROWTH * jnp.maximum(gain.gamma, _SMALLEST)))
    # If the direction is not finite the step fails, and the last direction is kept.
    finite = jnp.all(jnp.isfinite(now))
    direction = jax.tree.map(lambda new, old: jnp.where(finite, new, old), direction, gain.direction)
    return Gain(gamma, direction, product, power)


def _averages(gain, product, power):
    """The averages of the gain, updated by one more pair unless it is unusable.

    Averages of the squares, not of their ratio: otherwise batches with little noise would
    count as much as others, and with few inducing points the ratio has no expectation,
    since its denominator can be small.
    """
    usable = jnp.isfinite(product) & jnp.isfinite(power) & (power > 0.0)
    share = jnp.clip(gain.gamma / _REACH, 1.0 / _LONGEST, 1.0 / _SHORTEST)
    largest = _FALL * power
    keep = (1.0 - share) * jnp.where(gain.power > largest, largest / gain.power, 1.0)
    averages = keep * gain.product + share * product, keep * gain.power + share * power
    return tuple(jnp.where(usable, new, old) for new, old in zip(averages, (gain.product, gain.power), strict=True))


def _slope(direction, q):
    """The gradient in the mean that corresponds to a direction in natural parameters."""
    nat1, precision = direction
    return nat1 - jnp.einsum("kij,kj->ki", precision, q.mean)
