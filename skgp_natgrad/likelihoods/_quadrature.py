"""Predictive densities: integrals of a narrow function under a normal density."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

_LOG_SQRT_2PI = float(0.5 * np.log(2.0 * np.pi))
# The search starts from this many standard deviations, and drops what is below exp(-40) of the
# largest value.
_REACH = 1e4
_DROP = 40.0
_ZOOMS = 4
N_NODES = 128


def log_expectation(log_function, mean, var, n_nodes=N_NODES):
    """log E[exp(log_function(f))] under N(mean, var), elementwise.

    The integrand has a peak that may be far from the mean and much narrower than the
    normal density (a count of 10^4 says more about its rate than the latent function
    does), which fixed nodes miss. A grid is shrunk, a few times, to where the
    integrand is not negligible; there the trapezoidal rule converges geometrically
    (Trefethen and Weideman 2014).

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
    grid = jax.lax.fori_loop(0, _ZOOMS, lambda _, grid: _zoom(grid, log_integrand(grid)), grid)
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
