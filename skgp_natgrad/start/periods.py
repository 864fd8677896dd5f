"""Periods that targets show along a column of X: where a search for the period of a kernel starts."""

from __future__ import annotations

import numpy as np

# Bins of the column's range, whose Fourier transform is the periodogram: the phase of the shortest period is known to
# a twentieth of a turn. Frequencies, each this part of one turn over the whole range apart.
_BINS, _OVERSAMPLED = 2**19, 8
# Of a row on average no more turns than this; and turns at all: of fewer, a trend cannot be told.
_TURNS_PER_ROW, _MOST_TURNS, _FEWEST_TURNS = 20, 8000, 0.75
# Of more turns than half as many as there are values of the column a peak counts less: at equal distances it is the
# image of one of fewer.
_OF_IMAGES = 0.8
# The highest peaks, and their multiples that may be the period: a peak is often a harmonic, and where two turns differ
# it is half of one.
_PEAKS, _MULTIPLES = 4, (1.0, 2.0, 3.0, 0.5, 4.0)
# Of a season: fewest turns, least share of the variance, and least agreement of four parts: of random phases it is 1/4.
_TURNS_OF_SEASON, _SHARE, _AGREEMENT = 4.0, 0.05, 0.6
# Degree of the trend that is taken away first.
_DEGREE = 3


def likely_periods(x, y, weight, n_peaks=_PEAKS, multiples=_MULTIPLES):
    """Periods at which targets vary along a column, the most likely first.

    The targets' residuals of a smooth trend are summed in bins of the column, and transformed: unlike a sum for each
    frequency this finds a thousand turns among a thousand rows in some milliseconds.

    Parameters
    ----------
    x : ndarray of shape (N,)
        A column of X.
    y : ndarray of shape (T, N)
        Targets; NaN is missing.
    weight : ndarray of shape (N,)
    n_peaks : int
        Of the periodogram.
    multiples : sequence of float
        Of the periods of these peaks, all of which are returned.

    Returns
    -------
    periods : ndarray
        In the units of ``x``; empty of a column that has a few values alone.
    """
    span, n_values = np.ptp(x), len(np.unique(x))
    # A multiple of the smallest period must fit in, and two values have no period.
    if not (np.isfinite(span) and span > 0.0) or n_values <= 2 * (_DEGREE + 1):
        return np.zeros(0)
    at = 2.0 * (x - x.min()) / span - 1.0
    power = sum(_power(at, *_residuals(at, each, weight)) for each in y)
    turns = np.arange(len(power)) / _OVERSAMPLED
    power = np.where(turns > 0.5 * n_values, _OF_IMAGES, 1.0) * power
    peaks = _highest(power, turns >= _FEWEST_TURNS, n_peaks)
    return (span / turns[peaks][None, :] * np.asarray(multiples)[:, None]).ravel()


def season(x, y, weight):
    """The period of a season along a column; None without one.

    A season has turns enough, a clear part of the targets' variance, and one phase in all parts of the column: a smooth
    function, whose periodogram has peaks too, loses its phase.

    Parameters
    ----------
    x, y, weight : ndarray of shape (N,), (T, N) and (N,)
        As of `likely_periods`.
    """
    periods = likely_periods(x, y, weight, n_peaks=1, multiples=(1.0,))
    if not len(periods):
        return None
    turns = np.ptp(x) / periods[0]
    if not _TURNS_OF_SEASON <= turns <= 0.5 * len(np.unique(x)):
        return None
    at = 2.0 * (x - x.min()) / np.ptp(x) - 1.0
    part = np.minimum((2.0 * (at + 1.0)).astype(int), 3)
    rotated = np.exp(1j * np.pi * turns * at)
    sums = np.zeros((len(y), 4), dtype=complex)
    for k, each in enumerate(y):
        residual, own = _residuals(at, each, weight)
        np.add.at(sums[k], part, own * residual * rotated)
    share = 2.0 * np.mean(np.abs(sums.sum(1)) ** 2) / len(x)
    agreement = np.sum(np.abs(sums.sum(1)) ** 2) / (4.0 * np.sum(np.abs(sums) ** 2))
    # That of the highest of so many peaks of noise.
    of_noise = 2.0 / len(x) * (np.log(0.5 * len(x)) + 5.0)
    return float(periods[0]) if share > max(_SHARE, of_noise) and agreement > _AGREEMENT else None


def _residuals(at, y, weight):
    """The targets without a trend, of unit variance, and zero where one is missing; and the weights."""
    weight = np.where(np.isfinite(y), np.minimum(weight, 1.0), 0.0)
    y, root = np.where(weight > 0.0, y, 0.0), np.sqrt(weight)
    trend = np.polynomial.legendre.legvander(at, _DEGREE)
    y = y - trend @ np.linalg.lstsq(root[:, None] * trend, root * y, rcond=None)[0]
    size = np.sqrt((weight * y * y).sum())
    return y / size if size > 0.0 else np.zeros_like(y), weight


def _power(at, y, weight):
    """The periodogram at the multiples of one turn over ``_OVERSAMPLED`` times the range."""
    n_frequencies = int(min(_TURNS_PER_ROW * len(at), _MOST_TURNS) * _OVERSAMPLED)
    place = np.rint(0.5 * (at + 1.0) * (_BINS // _OVERSAMPLED)).astype(int)
    binned = np.bincount(place, weight * y, minlength=_BINS)
    return np.abs(np.fft.rfft(binned)[: min(n_frequencies, _BINS // 2)]) ** 2


def _highest(power, allowed, n_peaks):
    """Positions of the highest local maxima, each a turn away from all higher ones."""
    inner = np.flatnonzero((power[1:-1] >= power[:-2]) & (power[1:-1] > power[2:])) + 1
    inner = inner[allowed[inner] & (power[inner] > 0.0)]
    found = []
    for peak in inner[np.argsort(-power[inner], kind="stable")]:
        if all(abs(peak - other) >= _OVERSAMPLED for other in found):
            found.append(peak)
        if len(found) == n_peaks:
            break
    return np.array(found, dtype=int)
