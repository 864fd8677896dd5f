"""A weak prior on the hyperparameters of the default kernel, under which the evidence is maximised."""

from __future__ import annotations

import jax
import numpy as np

from .._backend.flat import flat

# Deviation of the logarithms. The prior is weak: it holds only what the rows leave open.
_DEVIATION = 3.0


def weak_prior(centre, varies, tie=np.inf):
    """A normal prior on the logarithms around ``centre``.

    Parameters
    ----------
    centre : Hyperparameters
    varies : ndarray of shape (D,)
        Whether a column of X varies: the others have no part in a tie.
    tie : float, default=inf
        Deviation, among the lengthscales of a kernel, of the logarithms from their mean, both less those of
        ``centre``.

    Returns
    -------
    log_prior : callable
        Of all logarithms as a vector (`flat`): their log density up to a constant, and its gradient.
    """
    middle, groups = flat(centre), _lengthscales(centre, varies)

    def log_prior(x):
        far = x - middle
        apart = np.zeros_like(far)
        for group in groups:
            apart[group] = far[group] - far[group].mean()
        value = -0.5 * (float(far @ far) / _DEVIATION**2 + float(apart @ apart) / tie**2)
        return value, -far / _DEVIATION**2 - apart / tie**2

    return log_prior


def _lengthscales(tree, varies):
    """Where in the vector of the leaves of ``tree`` the lengthscales of each of its kernels are."""
    if not np.any(varies):
        return []
    leaves = jax.tree.leaves(tree)
    ends = np.cumsum([np.size(leaf) for leaf in leaves], dtype=int)
    starts = [end - np.size(leaf) for leaf, end in zip(leaves, ends, strict=True) if np.ndim(leaf)]
    return [start + np.flatnonzero(varies) for start in starts]
