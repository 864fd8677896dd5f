"""Integrals over a normal density: its distribution function, and of smooth and of narrow functions."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from numpy.polynomial.chebyshev import chebinterpolate
from scipy.special import erfcx

_LOG_SQRT_2PI = float(0.5 * np.log(2.0 * np.pi))
# The search starts from this many standard deviations, and drops what is below exp(-40) of the
# largest value.
_REACH = 1e4
_DROP = 40.0
_ZOOMS = 4
N_NODES = 128
# The trapezoidal rule's error for a function that is analytic within the distance d of the real line
# falls as exp(-2 pi d / spacing). For the links of two classes d is 2.8 (a zero of the normal
# distribution function) and pi: 18.5 nodes for each unit of deviation are exact to 1e-9, and the most
# there are to 1e-6 at a deviation of ten. Seven deviations from the mean the weights are negligible.
_WIDTH = 14.0
_BLOCK = 32
_MOST_BLOCKS = 4
_NODES_PER_DEVIATION = 18.5


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def expectation(function, mean, deviation):
    """E[function(f)] under N(mean, deviation^2), elementwise, for a function that is smooth on the scale of one.

    The number of nodes depends on the largest standard deviation: a narrow posterior, the usual case, needs a quarter
    of the nodes of a wide one. Value and derivatives use the same nodes.

    Parameters
    ----------
    function : callable
        Elementwise and differentiable; must not use other traced values.
    mean, deviation : arrays of the same shape
    """
    return _weighted_sums(lambda f, u: (function(f),), 1, mean, deviation)[0]


@expectation.defjvp
def _(function, primals, tangents):
    def with_slopes(f, u):
        value, slope = jax.jvp(function, (f,), (jnp.ones_like(f),))
        return value, slope, slope * u

    value, of_mean, of_deviation = _weighted_sums(with_slopes, 3, *primals)
    return value, of_mean * tangents[0] + of_deviation * tangents[1]


def _weighted_sums(integrands, n_integrands, mean, deviation):
    """The expectations of ``integrands(f, u)`` for f = mean + deviation u, of a standard normal u."""
    needed = _NODES_PER_DEVIATION * deviation.max()
    # Negated, so that a NaN gives the most blocks: the other rows must not lose nodes because of it.
    n_blocks = 1 + (~(needed <= _BLOCK * np.arange(1, _MOST_BLOCKS))).sum()
    spacing = _WIDTH / (n_blocks * _BLOCK - 1)

    def add_block(i, sums):
        u = -0.5 * _WIDTH + spacing * (i * _BLOCK + jnp.arange(_BLOCK))
        weights = spacing * jnp.exp(-0.5 * u**2 - _LOG_SQRT_2PI)
        u = u.reshape(_BLOCK, *mean.ndim * (1,))
        values = integrands(mean + deviation * u, u)
        return [total + jnp.tensordot(weights, each, 1) for total, each in zip(sums, values, strict=True)]

    return jax.lax.fori_loop(0, n_blocks, add_block, n_integrands * [jnp.zeros_like(mean)])


def log_expectation(log_function, mean, var, n_nodes=N_NODES):
    """log E[exp(log_function(f))] under N(mean, var), elementwise.

    The integrand has a peak that may be far from the mean and much narrower than the
    normal density (a count of 10^4 determines its rate more precisely than the latent function does). Fixed nodes miss
    this peak. So a grid is shrunk a few times to the interval where the integrand is not negligible, and there the
    trapezoidal rule converges geometrically (Trefethen and Weideman 2014). Derivatives are those of the sum over the
    last grid, since the integral does not depend on the place of its nodes.

    Parameters
    ----------
    log_function : callable
        Maps f of shape (..., n_nodes) to values of that shape.
    mean, var : arrays of the same shape (...)
    n_nodes : int
    """
    deviation = jnp.sqrt(var)[..., None]

    def log_integrand(z):
        value = log_function(mean[..., None] + deviation * z) - 0.5 * z**2
        return jnp.where(jnp.isnan(value), -jnp.inf, value)

    start = np.sinh(np.linspace(-1.0, 1.0, n_nodes) * np.arcsinh(_REACH))
    grid = jnp.broadcast_to(start, (*mean.shape, n_nodes))

    def zoomed(_, grid):
        return _zoom(grid, jax.lax.stop_gradient(log_integrand(grid)))

    grid = jax.lax.fori_loop(0, _ZOOMS, zoomed, grid)
    spacing = grid[..., 1] - grid[..., 0]
    return jax.scipy.special.logsumexp(log_integrand(grid), axis=-1) + jnp.log(spacing) - _LOG_SQRT_2PI


def _zoom(grid, values):
    """An even grid over the cells that touch values within `_DROP` of the largest."""
    last = grid.shape[-1] - 1
    kept = values >= values.max(-1, keepdims=True) - _DROP
    first_kept, last_kept = jnp.argmax(kept, -1), last - jnp.argmax(kept[..., ::-1], -1)
    low, high = (
        jnp.take_along_axis(grid, index[..., None], axis=-1)
        for index in (jnp.maximum(first_kept - 1, 0), jnp.minimum(last_kept + 1, last))
    )
    return low + (high - low) * np.linspace(0.0, 1.0, last + 1)


# The logarithm of the normal distribution function. In a training step of a probit likelihood, JAX's function takes
# longer than everything else: it evaluates every branch of two functions, and again for the derivative. Here one
# polynomial gives the value everywhere, and the derivative.

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
