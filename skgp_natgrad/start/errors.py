"""The distribution of standardised errors of one target, chosen by rows that were left out.

It is the Student-t distribution of largest density, if its second moment and its central intervals are right for the
errors. The model also returns standard deviations and intervals, and a Student-t distribution that fits the middle may
be far off in these. Then it is the best of others, mixtures among them: in a mixture a wide normal component takes the
large errors, and its variance follows from the second moment.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import optimize, special

from ..prediction.calibration import Average
from ..prediction.dispersion import NORMAL_DF

# The least gain in density, in standard errors of the gain.
_ERRORS = 2.0
# Bounds of the log scale, of the factor of the process, and of the logarithm of the degrees of freedom above the
# fewest. With three degrees of freedom the deviation is sqrt(3) = 1.7 times the scale, and still of use.
_FEWEST_DF = 3.0
_BOUNDS = [(-10.0, 10.0), (0.0, 2.0), (-10.0, 7.0)]
_STARTS = (0.9, 1.0, 1.0), (0.0, 0.0, 2.0)
# Tolerated errors of the log second moment, and of the share of errors in an interval, this in standard deviations of a
# row's being inside, but at least the third number; and the costs of their squares. With a tolerance of .03 at all
# levels, intervals of 95 % held .926 of pol's rows.
_OFF, _OFF_SHARE, _LEAST_OFF = 0.1, 0.06, 0.0125
_COST, _COST_OF_SHARE = 2.0, 5.0
# Levels of the intervals that are checked; that of 50 % is left out where y is rounded.
_LEVELS = np.array([0.5, 0.9, 0.95, 0.99])
# Bounds of the logarithm of the wide part's share, starts of the search for it, and least starts of the log degrees of
# freedom. Several starts, since a row is inside an interval or not: the loss has steps, and many minima.
_SHARES, _FIRST_SHARES, _FIRST_TAILS = (-7.0, -0.7), (-4.0, -2.5, -1.0), (1.0, 3.0)
# Standard errors by which shares and moment may be off as well; rows for the costs; the precision of the search.
_CHANCE, _CHANCE_OF_MOMENT, _ROWS, _SEARCH = 3.0, 1.5, 2000, {"xatol": 1e-2, "fatol": 1e-4, "maxfev": 250}
# Errors whose standard deviation is below this share of that of rounding are not due to rounding.
_ROUNDED = 0.5


class Errors(NamedTuple):
    """The factor of the process of the logarithms, and the distribution of errors: see `Dispersion`.

    Attributes
    ----------
    scale : float
        Logarithm of the factor of the variance where the process is zero.
    factor : float
        The process is multiplied by it.
    df, share, spread : float
        Degrees of freedom; the probability of the wide part, and its variance as a multiple of the predicted one.
    """

    scale: float = 0.0
    factor: float = 0.0
    df: float = NORMAL_DF
    share: float = 0.0
    spread: float = 1.0


def _log_student_t(x, df):
    """The log density, by SciPy's formula; `scipy.stats.t` takes several times as long, mostly for its checks."""
    if np.isinf(df):
        return -(x**2) / 2.0 - np.log(np.sqrt(2.0 * np.pi))
    normaliser = np.log(special.poch(0.5 * df, 0.5)) - 0.5 * (np.log(df) + np.log(np.pi))
    return normaliser - (df + 1) / 2 * np.log1p(x * x / df)


class Seen(NamedTuple):
    """Errors of one target with their variances, weights and the like: (B,) each.

    Attributes
    ----------
    error, variance : ndarray
    predicted : ndarray
        Logarithms of squared standardised errors, as the process predicts each from all others.
    weight, n_each : ndarray
    width : float
        The width to which y is rounded; zero if it is not.
    """

    error: np.ndarray
    variance: np.ndarray
    predicted: np.ndarray
    weight: np.ndarray
    n_each: np.ndarray
    width: float

    @property
    def levels(self):
        """The levels of the intervals that count; of rounded errors, of those that hold more than one value."""
        if not self.width:
            return _LEVELS
        of_one_value = np.average(np.abs(self.error) < 0.5 * self.width, weights=self.weight)
        return _LEVELS[max(0.5, of_one_value) < _LEVELS]

    def average(self, values):
        """The weighted mean; `numpy.average` takes several times as long, mostly for its checks."""
        return float(values @ self.weight / self.weight.sum())

    def some(self, n_rows):
        """At most so many of the rows, evenly spaced."""
        rows = slice(None, None, -(-len(self.error) // n_rows))
        return Seen(*(each[rows] for each in self[:-1]), self.width)

    def squared_scale(self, errors):
        """The squared scale of each error, without the wide part."""
        return self.variance * np.exp(errors.scale + errors.factor * self.predicted)

    def densities(self, errors):
        """The log density of each error; a rounded error has the mean density over its rounding interval."""
        if self.width:
            # The distribution is symmetric, and the lower tail has more digits.
            near, far = (np.abs(self.error) + side * 0.5 * self.width for side in (-1.0, 1.0))
            inside = self.below(errors, -near) - self.below(errors, -far)
            return np.log(np.maximum(inside, np.finfo(float).tiny)) - np.log(self.width)
        scale = np.sqrt(self.squared_scale(errors))
        found = _log_student_t(self.error / scale, errors.df) - np.log(scale)
        if not errors.share:
            return found
        wide = errors.spread * self.variance
        of_wide = -0.5 * (np.log(2.0 * np.pi * wide) + self.error**2 / wide)
        return np.logaddexp(found + np.log1p(-errors.share), of_wide + np.log(errors.share))

    def density(self, errors):
        """The mean of `densities`."""
        return self.average(self.densities(errors))

    def moment(self, errors):
        """The mean square of the errors divided by their standard deviations under the distribution."""
        return self.average(self._squares(errors))

    def _squares(self, errors):
        of_most = self.squared_scale(errors) / (1.0 - 2.0 / errors.df)
        return self.error**2 / ((1.0 - errors.share) * of_most + errors.share * errors.spread * self.variance)

    def error_of_moment(self, errors):
        """The standard error of the logarithm of `moment`; a few large errors make it large."""
        found = Average.of(self._squares(errors), self.weight, self.n_each)
        return found.error / max(found.mean, np.finfo(float).tiny)

    def coverage(self, errors, levels):
        """The shares of the errors inside central intervals of these levels."""
        inside = 1.0 - 2.0 * self.below(errors, -np.abs(self.error))
        return self.weight @ (inside[:, None] <= levels) / self.weight.sum()

    def below(self, errors, bound):
        """The probability of an error below each bound."""
        found = special.stdtr(errors.df, bound / np.sqrt(self.squared_scale(errors)))
        if not errors.share:
            return found
        return found + errors.share * (special.ndtr(bound / np.sqrt(errors.spread * self.variance)) - found)


def floor(width, error, weight):
    """The least squared error that counts: the variance of rounding to this width, or zero.

    It is zero if errors are far below the width: the model then knows y exactly, and its steps are no rounding.
    """
    least = width**2 / 12.0
    return least if np.average(error**2, weights=weight) > _ROUNDED**2 * least else 0.0


def best(seen):
    """The `Errors` of largest density with the right second moment; the normal ones if these are as good.

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
    """The distribution itself if it `_is_right`; else the one with the best density less `_cost`."""
    if _is_right(seen, found):
        return found
    seen = seen.some(_ROWS)
    start = found.scale, found.factor, np.clip(np.log(found.df - _FEWEST_DF), *_BOUNDS[2])

    second = seen.average(seen.error**2 / seen.variance)

    def of_mixture(seen, x):
        errors = _of_t(seen, x)._replace(share=float(np.exp(x[3])))
        of_most = seen.average(seen.squared_scale(errors) / seen.variance) / (1.0 - 2.0 / errors.df)
        return errors._replace(spread=float(max((second - (1.0 - errors.share) * of_most) / errors.share, 1.0)))

    # Without a wide part the density alone decides how much the deviation varies: the factor may not grow.
    bounds = [_BOUNDS[0], (0.0, max(found.factor, 1e-3)), _BOUNDS[2]]
    tried = [_lowest(seen, _of_t, start, bounds, _cost, _SEARCH)]
    # With a wide part for the large errors, which hide how the deviation of the others varies, it may.
    bounds = [_BOUNDS[0], (0.0, max(found.factor, 1.0)), _BOUNDS[2], _SHARES]
    starts = [(start[0], 1.0, max(start[2], tails), share) for tails in _FIRST_TAILS for share in _FIRST_SHARES]
    tried += [_lowest(seen, of_mixture, each, bounds, _cost, _SEARCH) for each in starts]
    return min(tried, key=lambda each: each[1])[0]


def _of_t(seen, x):
    return Errors(float(x[0]), float(x[1]), float(_FEWEST_DF + np.exp(x[2])))


def _excess(seen, errors):
    """The log second moment of the errors less that of the distribution."""
    return float(np.log(max(seen.moment(errors), np.finfo(float).tiny)))


def _apart(seen, errors):
    """The differences between the shares of errors in intervals and the intervals' levels, in deviations of a row."""
    return np.abs(seen.coverage(errors, seen.levels) - seen.levels) / _deviations(seen.levels)


def _deviations(levels):
    """The standard deviations of being inside an interval."""
    return np.sqrt(levels * (1.0 - levels))


def _is_right(seen, errors):
    """Whether second moment and intervals are right, within what the number of rows allows."""
    off = max(_OFF, _CHANCE_OF_MOMENT * seen.error_of_moment(errors))
    return abs(_excess(seen, errors)) <= off and covers(seen, seen.coverage(errors, seen.levels))


def covers(seen, shares):
    """Whether these shares of errors in the intervals of `Seen.levels` are right, within what the rows allow."""
    off = max(_OFF_SHARE, _CHANCE / np.sqrt(len(seen.error))) * _deviations(seen.levels)
    return bool(np.all(np.abs(shares - seen.levels) <= np.maximum(off, _LEAST_OFF)))


def _cost(seen, errors):
    """The cost of a wrong second moment and wrong intervals, in nats."""
    moment = abs(_excess(seen, errors))
    shares = _apart(seen, errors)
    return _COST * moment**2 + _COST_OF_SHARE * float(shares @ shares)


def _lowest(seen, make, start, bounds, cost=None, options=None):
    """The `Errors` that ``make`` returns for the best parameters found, and the loss there."""

    def loss(x):
        errors = make(seen, x)
        return -seen.density(errors) + (0.0 if cost is None else cost(seen, errors))

    limits = optimize.Bounds(*np.transpose(bounds))
    found = optimize.minimize(loss, start, method="Nelder-Mead", bounds=limits, options=options or {"xatol": 1e-3})
    return make(seen, found.x), float(found.fun)
