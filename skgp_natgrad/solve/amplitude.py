"""The scale of a kernel: how far its bounds let it go, and the kernel multiplied by a number."""

from __future__ import annotations

import jax
import numpy as np

from ..kernels import amplitudes


def multiplied(log_kernel, log_scale):
    """The kernel times a number, as logarithms."""
    return jax.tree.map(lambda value, part: value + part * log_scale, log_kernel, amplitudes(log_kernel))


def room(kernel, lower, upper):
    """The range of logarithms by which a kernel may be multiplied; zero to zero if it has no factor of its own."""
    low, high = -np.inf, np.inf
    for value, least, most, part in zip(*map(jax.tree.leaves, (kernel, lower, upper, amplitudes(kernel))), strict=True):
        if np.any(part):
            low, high = max(low, np.max(least - value)), min(high, np.min(most - value))
    has_factor = any(np.any(part) for part in jax.tree.leaves(amplitudes(kernel)))
    return (min(low, 0.0), max(high, 0.0)) if has_factor else (0.0, 0.0)
