"""Which hyperparameters training left at a bound."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..priors import named

# Largest difference of raw values that counts as rounding: training clips a raw value to its bound exactly.
_ROUNDING = 1e-9
# The name of the variance of Gaussian noise.
_NOISE = "likelihood__variance"


def warn_at_bounds(trained, log_bounds, stacklevel, kernel_is_given=True, noise_may_vanish=False):
    """Give one ConvergenceWarning that names all hyperparameters left at a bound by training.

    Parameters
    ----------
    trained : tuple of (tuple of Kernel, Likelihood)
        Logarithms of the kernels' hyperparameters and raw values of the likelihood's.
    log_bounds : pair of the same
        Where both are equal the hyperparameter is fixed, and does not count as being at a bound.
    stacklevel : int
        Of the warning, counted from the caller.
    kernel_is_given : bool, default=True
        Whether the user has a kernel whose bounds could be widened.
    noise_may_vanish : bool, default=False
        Whether Gaussian noise at its lower bound is a result, which ``plan_`` tells, and no failure.
    """
    trees = trained, *log_bounds
    found = [
        text
        for (name, transform, value), (*_, lower), (*_, upper) in zip(*map(named, trees), strict=True)
        if kernel_is_given or not name.startswith("kernel")
        for text in _at_bounds(name, transform, noise_may_vanish and name == _NOISE, value, lower, upper)
    ]
    if found:
        warnings.warn(
            f"Training ended with {'; '.join(found)}. A better value may lie beyond: widen the bounds "
            '(<name>_bounds of the kernel or the likelihood), or set them to "fixed" if the value is intended.',
            ConvergenceWarning,
            stacklevel=stacklevel + 1,
        )


def without_noise(trained, log_bounds):
    """Positions of the targets whose Gaussian noise training left at its lower bound."""
    likelihoods = trained[1], *(each for _, each in log_bounds)
    return np.flatnonzero(_reached(*(each.variance for each in likelihoods))[-1][0])


def _at_bounds(name, transform, may_vanish, *leaves):
    """Say which components of a hyperparameter are at which bound; one that may vanish is not at its lower one."""
    (value, *bounds), reached = _reached(*leaves)
    for side, bound, at_bound in tuple(zip(("lower", "upper"), bounds, reached, strict=True))[may_vanish:]:
        for one in np.unique(bound[at_bound]):
            at = np.flatnonzero(at_bound & (bound == one))
            components = f"[{', '.join(map(str, at))}]" if len(value) > 1 else ""
            yield f"{name}{components} at its {side} bound {transform.from_raw(one, np):.6g}"


def _reached(*leaves):
    """Values and bounds as vectors, and which components are at the lower and the upper one, of those that may move."""
    value, lower, upper = (np.ravel(np.asarray(leaf)) for leaf in leaves)
    moves = lower < upper
    return (value, lower, upper), (moves & (value <= lower + _ROUNDING), moves & (value >= upper - _ROUNDING))
