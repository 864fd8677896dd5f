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
