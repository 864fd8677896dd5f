"""Searches for the noise of a Gaussian likelihood by the leave-one-out density of some rows.

With short lengthscales a kernel explains every row by itself, and predicts new rows like a constant, whatever part of
the variance is noise: the density hardly depends on the noise, and its maximum is accidental. So if the mean nearly
interpolates its own rows, the search takes the largest noise with a density that is not significantly lower. Densities
are compared row by row, so that the standard error is small if both noises predict alike.
"""

from __future__ import annotations

import functools

import numpy as np

from ..prediction.calibration import Average
from .left_out import left_out_of

# First step and precision of the search, in logarithms.
_STEP, _PRECISION = 2.0, 0.2
# With fewer rows noise and scale are kept; else the scale has a prior, worth so many rows with a scale of one.
FEWEST, _ROWS_OF_PRIOR = 10, 3.0
# Two densities are level within so many standard errors: if the rows show that X predicts y, and if they do not.
_LEVEL_NOISE, _LEVEL_OF_NOTHING = 1.0, 3.0
# A difference below this, in nats, counts as none.
_SAME = 1e-5
# Mean leverages above which the mean follows its rows, and above which it follows them a little; and the root mean
# square error, in standard deviations of the target, below which the function is real and the noise is kept.
_FOLLOWS, _A_LITTLE, _SMALL_ERROR = 0.3, 0.1, 0.3
# A noise counts as different if its logarithm is larger by this.
_APART = 1.0
# Most further values after the minimum has been bracketed.
_FURTHER = 8
# Share of an interval at which a golden section evaluates, and the least possible fall for which it does.
_GOLDEN, _SMALL_FALL = 0.382, 0.01
LOG_2PI = float(np.log(2.0 * np.pi))


def density_of(left_out, held, k, free_scale=False, rows_scale=1.0):
    """The density of the result of `left_out_of` for the k-th target, and the scale of all variances.

    Parameters
    ----------
    left_out : tuple of ndarrays
    held : HeldOutRows
    k : int
    free_scale : bool, default=False
        Whether kernel and noise are scaled together, by the factor of largest density, shrunk a little to
        ``rows_scale``.
    rows_scale : float, default=1.0
        The scale of the prior's rows.

    Returns
    -------
    density : float
    scale : float
    """
    counted, error, variance, _ = left_out
    n_rows, log_variance, ratio = held.n_rows(k), 0.0, 0.0
    if len(counted):
        weight = np.asarray(held.weight[k])[counted]
        log_variance, ratio = (np.average(each, weights=weight) for each in (np.log(variance), error**2 / variance))
    scale = (ratio * n_rows + _ROWS_OF_PRIOR * rows_scale) / (n_rows + _ROWS_OF_PRIOR) if free_scale else 1.0
    return float(-0.5 * (LOG_2PI + log_variance + np.log(scale) + ratio / scale)), float(scale)


def search_noise(system, k, start, limits, most, free_scale):
    """The noise of the k-th target with the largest leave-one-out density, or a larger one that is as good.

    Parameters
    ----------
    system : left_out.OnPoints, exact.Process or left_out.Scaled
    k : int
    start : float
        Logarithm of the noise variance at which the search begins.
    limits : pair of float
        Bounds of this logarithm; the noise is kept if they are equal.
    most : float
        The upper bound for a larger noise that is as good.
    free_scale : bool
        As in `density_of`.

    Returns
    -------
    log_noise, density, scale : float
    """
    tried, held = {}, system.held

    @functools.cache
    def left_out(log_noise):
        """Each noise costs one factorisation."""
        return left_out_of(system, k, log_noise)

    def loss(log_noise):
        tried[log_noise] = density_of(left_out(log_noise), held, k, free_scale)
        if tried[log_noise][0] >= max(density for density, _ in tried.values()):
            system.keep(k)
        return -tried[log_noise][0]

    best = float(start)
    if limits[0] < limits[1] and held.n_rows(k) >= FEWEST:
        best = lowest(loss, best, limits, _STEP, _PRECISION)
        more = _Level(left_out, held, k, best, free_scale).most_noise(sorted(tried), most)
        if more > best:
            # The scale of the prior's rows shrinks, so that scale times noise stays the same.
            rows_scale = float(np.exp(best - more)) * tried[best][1]
            return more, *density_of(left_out(more), held, k, free_scale, rows_scale)
    if best not in tried:
        loss(best)
    return float(best), *tried[best]


class _Level:
    """Compares noises with the best one: which predict the held-out rows of a target as well."""

    def __init__(self, left_out, held, k, best, free_scale):
        self._left_out, self._best, self._free_scale = left_out, best, free_scale
        counted, of_rows = np.flatnonzero(held.weight[k]), (held.y, held.weight, held.n_each)
        self._y, self._weight, self._n_each = (np.asarray(each[k])[counted] for each in of_rows)
        self._at_best, error, rest = self._densities(best)
        self._n_errors = self._allowed(1.0 - np.mean(rest)) if len(rest) and error > _SMALL_ERROR else None

    def _allowed(self, leverage):
        """Standard errors by which a noise may be worse; None if no larger noise is allowed.

        A mean that follows its rows a little may be a weak function: it is kept if the constant is clearly worse.
        """
        if leverage > _FOLLOWS:
            return _LEVEL_OF_NOTHING if self._is_level(self._constant(), _LEVEL_OF_NOTHING) else _LEVEL_NOISE
        return _LEVEL_NOISE if leverage > _A_LITTLE and self._is_level(self._constant(), _LEVEL_NOISE) else None

    def most_noise(self, tried, limit):
        """The largest noise up to which all are level, among those that have been tried and further ones."""
        found, end = self._best, max(tried)
        while self._n_errors is not None and found < limit:
            ahead = next((each for each in tried if each >= found + _APART), min(max(found, end) + _STEP, limit))
            if not self._is_level(self._densities(ahead)[0], self._n_errors):
                break
            found = ahead
        return found

    def _is_level(self, others, n_errors):
        loss = Average.of(self._at_best - others, self._weight, self._n_each)
        return loss.mean <= max(n_errors * loss.error, _SAME)

    def _densities(self, log_noise):
        """Log densities of the rows, root mean square error in standard deviations of y, and one minus leverages."""
        _, error, variance, rest = self._left_out(log_noise)
        deviation = np.std(self._y) if len(self._y) else 0.0
        relative = np.sqrt(np.mean(error**2)) / deviation if deviation > 0.0 else 0.0
        return _normal(error, variance, self._weight, self._free_scale), relative, rest

    def _constant(self):
        """The log density of each row under the mean and the variance of all rows."""
        error = self._y - np.average(self._y, weights=self._weight)
        return _normal(error, np.ones(len(error)), self._weight, True)


def _normal(error, variance, weight, free_scale):
    """Log densities of errors, under the best scale of all variances if it is free."""
    ratio = error**2 / variance
    scale = max(np.average(ratio, weights=weight), np.finfo(float).tiny) if free_scale else 1.0
    return -0.5 * (LOG_2PI + np.log(scale * variance) + ratio / scale)


def lowest(loss, start, limits, step, precision):
    """The lowest of the values tried: downhill from the start with growing steps, then at vertices of parabolas.

    The noise of a kernel that fits the data is roughly known. From there, successive parabolic interpolation (Brent
    1973, section 5) needs about half as many values as a search that knows only the limits.

    Parameters
    ----------
    loss : callable
        A value that is not finite counts as infinite.
    start : float
    limits : pair of float
    step : float
        The first step, upwards if that is possible.
    precision : float
        The search ends if the next value would be closer than this to one already tried.

    Returns
    -------
    best : float
        The number with the lowest loss among those evaluated.
    """
    tried = {}

    def value(x):
        x = float(np.clip(x, *limits))
        if x not in tried:
            found = loss(x)
            tried[x] = found if np.isfinite(found) else np.inf
        return tried[x]

    start = float(np.clip(start, *limits))
    value(start)
    value(start + step if start + step <= limits[1] else start - step)
    while not min(tried) < (best := _best(tried)) < max(tried):
        end = float(np.clip(best + (step if best == max(tried) else -step), *limits))
        step *= 2.0
        if end == best:
            # The best is at a limit: there may be a minimum between it and the nearest value tried.
            end = best + _GOLDEN * min((x - best for x in tried if x != best), key=abs, default=0.0)
            if abs(end - best) < precision:
                return best
        value(end)
    for _ in range(_FURTHER):
        best = _best(tried)
        ahead = _next(tried, best, precision)
        if ahead is None:
            break
        value(ahead)
    return _best(tried)


def _best(tried):
    """The number with the lowest value; if none is finite the largest number, so that the search goes upwards."""
    return min(tried, key=tried.get) if np.isfinite(min(tried.values())) else max(tried)


def _next(tried, best, precision):
    """The next number to try; None if the best is found."""
    if best in (min(tried), max(tried)):
        return None
    low, high = max(x for x in tried if x < best), min(x for x in tried if x > best)
    below, at_best, above = tried[low], tried[best], tried[high]
    if not np.isfinite(below + above):
        return 0.5 * (best + (high if np.isfinite(below) else low))
    left, right = (best - low) * (at_best - above), (best - high) * (at_best - below)
    vertex = best if left == right else best - 0.5 * ((best - low) * left - (best - high) * right) / (left - right)
    if min(abs(vertex - x) for x in tried) >= precision:
        return vertex
    # How far a convex function could still fall on either side: along the line from the other one.
    falls = {
        best + _GOLDEN * (end - best): slope * abs(end - best)
        for end, slope in ((high, (below - at_best) / (best - low)), (low, (above - at_best) / (high - best)))
        if _GOLDEN * abs(end - best) >= precision
    }
    return max(falls, key=falls.get) if max(falls.values(), default=0.0) > _SMALL_FALL else None
