"""Losses that are not finite everywhere, for the line search of L-BFGS."""

from __future__ import annotations

import numpy as np


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
