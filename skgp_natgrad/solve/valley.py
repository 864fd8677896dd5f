"""The minimum of a function of one number whose values are expensive, from a start that is near."""

from __future__ import annotations

import numpy as np

# Further values, at most, after the minimum has been enclosed.
_FURTHER = 8
# Share of an interval after which a golden section looks into it, and how far the function must be able to fall there.
_GOLDEN, _SMALL_FALL = 0.382, 0.01


def lowest(loss, start, limits, step, precision):
    """The lowest of the values tried: downhill from the start by growing steps, then to the vertices of parabolas.

    Successive parabolic interpolation (Brent 1973, section 5) needs about half as many values as a search that knows no
    more than the limits, as the noise of a kernel that fits the data is about known.

    Parameters
    ----------
    loss : callable
        A value that is not finite counts as infinite.
    start : float
    limits : pair of float
    step : float
        The first step, upwards if that is possible.
    precision : float
        The search ends where the next value would be tried as near to one that has been.

    Returns
    -------
    best : float
        The number whose loss, of those evaluated, is lowest.
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
            # At a limit: the function may have its valley between it and what was tried.
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
    """The number with the lowest value; of none that is finite the largest, as the search goes upwards."""
    return min(tried, key=tried.get) if np.isfinite(min(tried.values())) else max(tried)


def _next(tried, best, precision):
    """Where to look next: None if that is the best already."""
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
