"""The logarithm of the normal distribution function.

In a training step of a probit likelihood, JAX's function takes longer than everything else: it evaluates every branch
of two functions, and again for the derivative. Here one polynomial gives the value everywhere, and the derivative.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from numpy.polynomial.chebyshev import chebinterpolate
from scipy.special import erfcx

# Shepherd and Laframboise (1981), "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x in 0 <= x < inf":
# in t = (x - k) / (x + k) it is a polynomial, to 4e-15.
_CENTRE = 3.75
_DEGREE = 20


def _factor(t):
    x = _CENTRE * (1.0 + t) / (1.0 - t)
    return (1.0 + 2.0 * x) * erfcx(x)


_COEFFICIENTS = chebinterpolate(_factor, _DEGREE)


def _scaled_complement(x):
    """exp(x^2) erfc(x) for x >= 0."""
    t = 1.0 - 2.0 * _CENTRE / (x + _CENTRE)
    # Clenshaw's recurrence.
    above, now = jnp.zeros_like(t), jnp.full_like(t, _COEFFICIENTS[-1])
    for coefficient in _COEFFICIENTS[-2:0:-1]:
        above, now = now, coefficient + 2.0 * t * now - above
    return (_COEFFICIENTS[0] + t * now - above) / (1.0 + 2.0 * x)


@jax.custom_jvp
def log_ndtr(z):
    """log P(u <= z) of a standard normal u, elementwise."""
    return _log_ndtr(z)[0]


def _log_ndtr(z):
    """The logarithm, and its derivative: the density over the distribution function."""
    x = jnp.abs(z) * np.sqrt(0.5)
    square, scaled = x * x, _scaled_complement(x)
    decay = jnp.exp(-square)
    below, tail = z < 0.0, 0.5 * scaled * decay
    inside = jnp.where(below, 0.5 * scaled, 1.0 - tail)
    logarithm = jnp.log(inside)
    # log(1 - tail) to the last digit, of a 1 - tail that is rounded (Higham 2002, section 1.14.1).
    above = jnp.where(inside < 1.0, logarithm * tail / jnp.where(inside < 1.0, 1.0 - inside, 1.0), -tail)
    density = jnp.where(below, 1.0, decay) / np.sqrt(2.0 * np.pi)
    return jnp.where(below, logarithm - square, above), density / inside


@log_ndtr.defjvp
def _(primals, tangents):
    (z,), (dz,) = primals, tangents
    value, slope = _log_ndtr(z)
    return value, slope * dz
