"""Moments and scores of distributions that are known by their quantiles and distribution functions."""

from __future__ import annotations

import numpy as np

# Of the trapezoidal rule, which converges faster than any power for smooth integrands with normal weights.
_STEP = 0.125
# A moment is infinite if so much of it comes from the last node, or if its square would overflow.
_FROM_TAIL, _LARGEST = 1e-6, 1e150
# Normal scores between which the squared distribution function is integrated; beyond them its square is below rounding.
_REACH = 6.0
N_KNOTS = 25
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_NODES, _WEIGHTS = 0.5 + 0.5 * _NODES, 0.5 * _WEIGHTS


def moments(distribution):
    """Mean and standard deviation: the integral of the quantile at Phi(s), under a standard normal s."""
    scores = np.arange(-distribution._reach, distribution._reach + _STEP, _STEP)
    density = _STEP * np.exp(-0.5 * scores**2) / np.sqrt(2.0 * np.pi)
    at = distribution._at_scores(scores)
    middle = at[..., [len(scores) // 2]]
    with np.errstate(over="ignore", invalid="ignore"):
        mean = middle + _integral(at - middle, density)[..., None]
        std = np.sqrt(_integral((at - mean) ** 2, density))
    return mean[..., 0], np.where(np.isnan(std), np.inf, std)


def _integral(values, density):
    """The sum (...) over the last axis; infinite where its ends are not small."""
    parts = values * density
    sizes = np.abs(parts)
    ends = np.maximum(sizes[..., 0], sizes[..., -1])
    converged = (ends <= _FROM_TAIL * sizes.sum(-1)) & (np.abs(values).max(-1) < _LARGEST)
    heavier = np.where(sizes[..., 0] > sizes[..., -1], parts[..., 0], parts[..., -1])
    return np.where(converged, parts.sum(-1), np.copysign(np.inf, heavier))


def scores_of_knots(n_knots):
    """Normal scores of quantiles between which distribution functions are smooth."""
    return np.linspace(-_REACH, _REACH, n_knots)


def crps(distribution, y):
    """The integral of (F(x) - [y <= x])^2, by Gauss-Legendre rules between quantiles and y."""
    knots = distribution._knots(N_KNOTS)
    knots, columns = knots.reshape(len(y), -1, knots.shape[-1]), y.reshape(len(y), -1)
    each = [_of_output(distribution, knots[:, k], column, k) for k, column in enumerate(columns.T)]
    return np.stack(each, axis=-1).reshape(y.shape)


def _of_output(distribution, knots, y, k):
    points = np.sort(np.column_stack([knots, y]), axis=1)
    rows = np.repeat(np.arange(len(y)), len(_NODES))
    total = np.zeros(len(y))
    for left, right in zip(points.T[:-1], points.T[1:], strict=True):
        if np.any(right > left):
            x = left[:, None] + (right - left)[:, None] * _NODES
            found = distribution._cdf_at(x.ravel(), rows, k).reshape(x.shape)
            total += (right - left) * ((found - (left >= y)[:, None]) ** 2 @ _WEIGHTS)
    # At the last knot the integrand is the square of Phi(-6).
    tail = 1e-18 * (points[:, -1] - points[:, 0])
    return np.where(tail <= _FROM_TAIL * total, total, np.inf)
