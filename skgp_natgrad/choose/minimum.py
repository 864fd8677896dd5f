"""The minimum of a loss of logarithms of hyperparameters, by L-BFGS, and the curvature that it has seen on its way."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import optimize

from .._backend.flat import turning_back

# L-BFGS ends with an iteration that gains less than this, in nats for each target. What is left to the maximum is more,
# seldom more than some nats, and held-out rows compare what searches have found.
GAIN = 0.1
# Given kernels end at the maximum itself, as in scikit-learn, or after so many iterations; evidences that are compared
# are those of maxima; and rows between others do not see how a season goes on: with the gain above, forecasts of ten
# seasons of amplitude 5 were off by .62 deviations of the noise.
TO_THE_END = {"gain": 1e-9, "max_iter": 60}
# Far more iterations than any search needs.
MOST = 1000
# The loss is divided by its largest slope, at most by this.
_STEEPEST = 1e100


class Minimum(NamedTuple):
    """Where L-BFGS ends, the loss there, and the roots of the diagonal of its inverse Hessian."""

    x: np.ndarray
    value: float
    spread: np.ndarray


def minimised(loss, x0, low, high, at_start=None, spread=None, gain=GAIN, max_iter=MOST):
    """The `Minimum` by L-BFGS from ``x0``; ``at_start``: loss and gradient at ``x0``, if known; ``gain``: see `GAIN`.

    The first step of L-BFGS is the gradient itself, in units of ``spread``, the roots of the diagonal of an inverse
    Hessian. Where none is known it may lead to a corner of the bounds, and the loss is scaled so that no logarithm
    moves by more than one. Fixed logarithms, which may be minus infinity, are left out.
    """
    at_start, free = at_start or loss(x0), low < high
    if not np.any(free):
        return Minimum(x0, at_start[0], np.zeros_like(x0))
    # Powers of two, so that the way there and back rounds nothing.
    unit = np.ones(np.count_nonzero(free)) if spread is None else 2.0 ** np.round(np.log2(spread[free]))
    steepest = np.abs(at_start[1]).max(initial=0.0) if spread is None else 1.0
    scale = 1.0 / np.clip(steepest, 1.0, _STEEPEST)
    evaluated = {x0.tobytes(): at_start}

    def all_of(variables):
        x = x0.copy()
        x[free] = variables * unit
        return x

    def scaled(variables):
        x = all_of(variables)
        value, slope = evaluated.pop(x.tobytes(), None) or loss(x)
        return scale * value, scale * slope[free] * unit

    values = [scale * at_start[0]]

    def ends(intermediate_result):
        values.append(intermediate_result.fun)
        if not values[-2] - values[-1] >= scale * gain:
            raise StopIteration

    bounds = optimize.Bounds(low[free] / unit, high[free] / unit)
    options = {"maxiter": max_iter, "maxcor": 20, "gtol": 0.0, "ftol": 0.0}
    how = {"method": "L-BFGS-B", "bounds": bounds, "callback": ends, "options": options}
    found = optimize.minimize(turning_back(scaled), x0[free] / unit, jac=True, **how)
    own = np.diag(found.hess_inv.todense())
    known = np.zeros_like(x0)
    known[free] = unit * np.sqrt(scale * np.maximum(own, np.finfo(float).tiny))
    return Minimum(all_of(found.x), float(found.fun) / scale, known)
