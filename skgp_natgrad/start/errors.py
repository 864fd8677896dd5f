"""The distribution of standardised errors of one target, chosen by rows that were left out: Student-t, or normal."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import optimize, special

from ..prediction.dispersion import NORMAL_DF

# The least gain of a Student-t distribution over the normal one, in nats of all rows together: by chance three of a
# hundred samples gain more.
_GAIN = 4.0
# Bounds of the log scale, of the factor of the process, and of the logarithm of the degrees of freedom above the
# fewest. With three degrees of freedom the deviation is sqrt(3) = 1.7 times the scale, and still of use.
_FEWEST_DF = 3.0
_BOUNDS = [(-10.0, 10.0), (0.0, 2.0), (-10.0, 7.0)]
_STARTS = (0.9, 1.0, 1.0), (0.0, 0.0, 2.0)
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
        Degrees of freedom; beside a `NoiseMixture` the probability of its wide part, and the variance of that as a
        multiple of the predicted one.
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

    def average(self, values):
        """The weighted mean; `numpy.average` takes several times as long, mostly for its checks."""
        return float(values @ self.weight / self.weight.sum())

    def some(self, n_rows):
        """At most so many of the rows, evenly spaced."""
        rows = slice(None, None, -(-len(self.error) // n_rows))
        return Seen(*(each[rows] for each in self[:-1]), self.width)

    def squared_scale(self, errors):
        """The squared scale of each error."""
        return self.variance * np.exp(errors.scale + errors.factor * self.predicted)

    def densities(self, errors):
        """The log density of each error; a rounded error has the mean density over its rounding interval."""
        if self.width:
            # The distribution is symmetric, and the lower tail has more digits.
            near, far = (np.abs(self.error) + side * 0.5 * self.width for side in (-1.0, 1.0))
            inside = self.below(errors, -near) - self.below(errors, -far)
            return np.log(np.maximum(inside, np.finfo(float).tiny)) - np.log(self.width)
        scale = np.sqrt(self.squared_scale(errors))
        return _log_student_t(self.error / scale, errors.df) - np.log(scale)

    def density(self, errors):
        """The mean of `densities`."""
        return self.average(self.densities(errors))

    def below(self, errors, bound):
        """The probability of an error below each bound."""
        return special.stdtr(errors.df, bound / np.sqrt(self.squared_scale(errors)))


def floor(width, error, weight):
    """The least squared error that counts: the variance of rounding to this width, or zero.

    It is zero if errors are far below the width: the model then knows y exactly, and its steps are no rounding.
    """
    least = width**2 / 12.0
    return least if np.average(error**2, weights=weight) > _ROUNDED**2 * least else 0.0


def best(seen):
    """The `Errors` of the Student-t distribution of largest density; the normal ones if these are as good.

    Parameters
    ----------
    seen : Seen

    Returns
    -------
    errors : Errors
    """
    found, density = max((_largest(seen, start) for start in _STARTS), key=lambda each: each[1])
    return found if len(seen.error) * (density - seen.density(Errors())) > _GAIN else Errors()


def _largest(seen, start):
    """The `Errors` of largest density that a search from ``start`` finds, and this density."""

    def errors_of(x):
        return Errors(float(x[0]), float(x[1]), float(_FEWEST_DF + np.exp(x[2])))

    limits = optimize.Bounds(*np.transpose(_BOUNDS))
    options = {"method": "Nelder-Mead", "bounds": limits, "options": {"xatol": 1e-3}}
    found = optimize.minimize(lambda x: -seen.density(errors_of(x)), start, **options)
    return errors_of(found.x), -float(found.fun)
