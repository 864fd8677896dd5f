"""Trees of arrays as one vector, for scipy; in NumPy, so that nothing is compiled."""

from __future__ import annotations

import jax
import numpy as np


def flat(tree):
    """The leaves of ``tree`` in one vector."""
    return np.concatenate([np.zeros(0), *(np.ravel(np.asarray(leaf)) for leaf in jax.tree.leaves(tree))])


def rebuilt(x, like):
    """The vector of `flat` as a tree with the structure of ``like``."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([np.size(leaf) for leaf in leaves], dtype=int)
    parts = [x[end - np.size(leaf) : end].reshape(np.shape(leaf)) for leaf, end in zip(leaves, ends, strict=True)]
    return jax.tree.unflatten(structure, parts)


# Losses that are not finite everywhere, for the line search of L-BFGS.


def turning_back(loss, lowest=np.inf):
    """``loss`` with a value from which L-BFGS turns back wherever it is not finite.

    The line search interpolates between values: at an infinite or a huge one its next step would be nothing, and the
    search would end. So the value is larger than the lowest so far by some orders of magnitude, and no more.

    Parameters
    ----------
    loss : callable
        Of a vector: a value and its gradient.
    lowest : float, default=inf
        A value that is known.

    Returns
    -------
    finite : callable
        Before any finite value is known, the largest number where ``loss`` is not finite.
    """

    def finite(x):
        nonlocal lowest
        value, gradient = loss(x)
        value, gradient = float(value), np.asarray(gradient)
        if np.isfinite(value) and np.all(np.isfinite(gradient)):
            lowest = min(lowest, value)
            return value, gradient
        return min(lowest + 1e3 + 10.0 * abs(lowest), np.finfo(float).max), np.zeros_like(gradient)

    return finite
