"""The distribution of standardised errors of one target, chosen by rows that were left out.

Its shape is that of largest density. Its second moment is also that of the errors, and its central intervals hold their
shares of them: the deviation and the intervals that are returned are statements of their own, and a Student-t
distribution that suits the middle may be far from them. Where it is, a wide part of the distribution takes the large
errors, whose variance the second moment gives.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import optimize, special, stats

from ..prediction.calibration import Average
from ..prediction.dispersion import NORMAL_DF

# Standard errors of the gain in density, at least.
_ERRORS = 2.0
# Bounds of the logarithm of the scale, of what the process is multiplied by, and of the degrees of freedom less the
# fewest: with three the deviation is that of a normal error times 1.7, and still of use.
_FEWEST_DF = 3.0
_BOUNDS = [(-10.0, 10.0), (0.0, 2.0), (-10.0, 7.0)]
_STARTS = (0.9, 1.0, 1.0), (0.0, 0.0, 2.0)
# By how much the logarithm of the second moment, and the share of errors in an interval, may be off; what squares cost.
_OFF, _COST = 0.1, 2.0
_OFF_SHARE, _COST_OF_SHARE = 0.03, 60.0
# Coverages of the intervals that count: of 50 % not where y is rounded.
_LEVELS = np.array([0.5, 0.9, 0.95, 0.99])
# Bounds of the logarithm of the wide part's share, and where its search starts; there at least the logarithms of the
# others' degrees of freedom. Intervals have or have not a row, so that the loss has steps, and many minima.
_SHARES, _FIRST_SHARES, _FIRST_TAILS = (-7.0, -0.7), (-4.0, -2.5, -1.0), (1.0, 3.0)
# Either may be off by so many standard errors, too. Rows that tell what they cost, and the precision of the search.
_CHANCE, _CHANCE_OF_MOMENT, _ROWS, _SEARCH = 2.0, 1.5, 2000, {"xatol": 1e-2, "fatol": 1e-4, "maxfev": 250}
# A standard deviation of the errors that is smaller than this share of that of rounding is not from rounding.
_ROUNDED = 0.5


class Errors(NamedTuple):
    """What the process of the logarithms is multiplied by, and the distribution of errors: see `Dispersion`.

    Attributes
    ----------
    scale : float
        Logarithm of the factor of the variance where the process is zero.
    factor : float
        What the process is multiplied by.
    df, share, spread : float
        Of the wide part the probability, and its variance as a multiple of that of the process.
    """

    scale: float = 0.0
    factor: float = 0.0
    df: float = NORMAL_DF
    share: float = 0.0
    spread: float = 1.0


class Seen(NamedTuple):
    """Errors of one target and what is known of them: (B,) each.

    Attributes
    ----------
    error, variance : ndarray
    predicted : ndarray
        Logarithms of the squares of standardised errors, as the process predicts each from all others.
    weight, n_each : ndarray
    width : float
        To which y is rounded.
    """

    error: np.ndarray
    variance: np.ndarray
    predicted: np.ndarray
    weight: np.ndarray
    n_each: np.ndarray
    width: float

    @property
    def levels(self):
        """Of the intervals that count: of rounded errors those that hold more than one value."""
        if not self.width:
            return _LEVELS
        of_one_value = np.average(np.abs(self.error) < 0.5 * self.width, weights=self.weight)
        return _LEVELS[max(0.5, of_one_value) < _LEVELS]

    def some(self, n_rows):
        """So many of the rows at most, from all over them."""
        rows = slice(None, None, -(-len(self.error) // n_rows))
        return Seen(*(each[rows] for each in self[:-1]), self.width)

    def squared_scale(self, errors):
        """The squared scale of each error, without the wide part."""
        return self.variance * np.exp(errors.scale + errors.factor * self.predicted)

    def densities(self, errors):
        """The log density of each error: of a rounded one the mean over the interval that it may be in."""
        if self.width:
            # Of either sign alike: the smaller probabilities have more digits.
            near, far = (np.abs(self.error) + side * 0.5 * self.width for side in (-1.0, 1.0))
            inside = self._below(errors, -near) - self._below(errors, -far)
            return np.log(np.maximum(inside, np.finfo(float).tiny)) - np.log(self.width)
        found = stats.t.logpdf(self.error, errors.df, scale=np.sqrt(self.squared_scale(errors)))
        if not errors.share:
            return found
        of_wide = stats.norm.logpdf(self.error, scale=np.sqrt(errors.spread * self.variance))
        return np.logaddexp(found + np.log1p(-errors.share), of_wide + np.log(errors.share))

    def density(self, errors):
        """The mean of `densities`."""
        return float(np.average(self.densities(errors), weights=self.weight))

    def moment(self, errors):
        """The mean square of errors by their deviations under the distribution."""
        return float(np.average(self._squares(errors), weights=self.weight))

    def _squares(self, errors):
        of_most = self.squared_scale(errors) / (1.0 - 2.0 / errors.df)
        return self.error**2 / ((1.0 - errors.share) * of_most + errors.share * errors.spread * self.variance)

    def error_of_moment(self, errors):
        """The standard error of the logarithm of `moment`: that of a few large errors is large."""
        found = Average.of(self._squares(errors), self.weight, self.n_each)
        return found.error / max(found.mean, np.finfo(float).tiny)

    def coverage(self, errors, levels):
        """The shares of the errors that are in central intervals of these levels."""
        inside = 1.0 - 2.0 * self._below(errors, -np.abs(self.error))
        return np.array([np.average(inside <= level, weights=self.weight) for level in levels])

    def _below(self, errors, bound):
        """The probability of an error below each bound."""
        found = special.stdtr(errors.df, bound / np.sqrt(self.squared_scale(errors)))
        if not errors.share:
            return found
        return found + errors.share * (special.ndtr(bound / np.sqrt(errors.spread * self.variance)) - found)


def floor(width, error, weight):
    """The least square of an error that is seen, of a target that is rounded to this width: zero where it is not.

    Errors far below the width are those of a function that is known exactly, whatever its values are.
    """
    least = width**2 / 12.0
    return least if np.average(error**2, weights=weight) > _ROUNDED**2 * least else 0.0


def best(seen):
    """The `Errors` of largest density and of the right second moment; the normal ones if they are as good.

    Parameters
    ----------
    seen : Seen

    Returns
    -------
    errors : Errors
    """
    found, normal = _with_moment(seen, _student_t(seen)), Errors()
    gain = Average.of(seen.densities(found) - seen.densities(normal), seen.weight, seen.n_each)
    if gain.mean > _ERRORS * gain.error:
        return found
    return found if not _is_right(seen, normal) and gain.mean + _cost(seen, normal) > _cost(seen, found) else normal


def _student_t(seen):
    """The Student-t distribution of largest density."""
    return min((_lowest(seen, _of_t, start, _BOUNDS) for start in _STARTS), key=lambda each: each[1])[0]


def _with_moment(seen, found):
    """The distribution itself if its second moment is right; else the one of largest density whose moment is."""
    if _is_right(seen, found):
        return found
    seen = seen.some(_ROWS)
    start = found.scale, found.factor, np.clip(np.log(found.df - _FEWEST_DF), *_BOUNDS[2])

    second = np.average(seen.error**2 / seen.variance, weights=seen.weight)

    def of_mixture(seen, x):
        errors = _of_t(seen, x)._replace(share=float(np.exp(x[3])))
        of_most = np.average(seen.squared_scale(errors) / seen.variance, weights=seen.weight) / (1.0 - 2.0 / errors.df)
        return errors._replace(spread=float(max((second - (1.0 - errors.share) * of_most) / errors.share, 1.0)))

    # How far the deviation varies is for the density alone to say, where one distribution has all errors.
    bounds = [_BOUNDS[0], (0.0, max(found.factor, 1e-3)), _BOUNDS[2]]
    tried = [_lowest(seen, _of_t, start, bounds, _cost, _SEARCH)]
    # The wide part has the tails, and large errors hide how the deviation of the others varies.
    bounds = [_BOUNDS[0], (0.0, max(found.factor, 1.0)), _BOUNDS[2], _SHARES]
    starts = [(start[0], 1.0, max(start[2], tails), share) for tails in _FIRST_TAILS for share in _FIRST_SHARES]
    tried += [_lowest(seen, of_mixture, each, bounds, _cost, _SEARCH) for each in starts]
    return min(tried, key=lambda each: each[1])[0]


def _of_t(seen, x):
    return Errors(float(x[0]), float(x[1]), float(_FEWEST_DF + np.exp(x[2])))


def _excess(seen, errors):
    """By how much the logarithm of the errors' second moment is above that of the distribution."""
    return float(np.log(max(seen.moment(errors), np.finfo(float).tiny)))


def _apart(seen, errors):
    """By how much the shares of the errors in intervals differ from their levels."""
    return np.abs(seen.coverage(errors, seen.levels) - seen.levels)


def _is_right(seen, errors):
    """Whether second moment and intervals are right, as far as so many rows tell."""
    levels, n_rows = seen.levels, len(seen.error)
    off = max(_OFF, _CHANCE_OF_MOMENT * seen.error_of_moment(errors))
    off_shares = np.maximum(_OFF_SHARE, _CHANCE * np.sqrt(levels * (1.0 - levels) / n_rows))
    return abs(_excess(seen, errors)) <= off and bool(np.all(_apart(seen, errors) <= off_shares))


def _cost(seen, errors):
    """What a wrong second moment and wrong intervals cost, in nats."""
    moment = abs(_excess(seen, errors))
    shares = _apart(seen, errors)
    return _COST * moment**2 + _COST_OF_SHARE * float(shares @ shares)


def _lowest(seen, make, start, bounds, cost=None, options=None):
    """The `Errors` that ``make`` makes of the best of some numbers, and the loss there."""

    def loss(x):
        errors = make(seen, x)
        return -seen.density(errors) + (0.0 if cost is None else cost(seen, errors))

    limits = optimize.Bounds(*np.transpose(bounds))
    found = optimize.minimize(loss, start, method="Nelder-Mead", bounds=limits, options=options or {"xatol": 1e-3})
    return make(seen, found.x), float(found.fun)
