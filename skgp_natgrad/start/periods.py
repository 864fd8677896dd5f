"""Periods that targets show along a column of X: the starts of a search for a kernel's period."""

from __future__ import annotations

import numpy as np

# Bins of the periodogram's Fourier transform. The column's range takes an eighth of them, so that frequencies are an
# eighth of a turn over the range apart; the shortest period has some eight bins.
_BINS, _OVERSAMPLED = 2**19, 8
# Most turns per row and in all, and fewest turns: fewer cannot be told from a trend.
_TURNS_PER_ROW, _MOST_TURNS, _FEWEST_TURNS = 20, 8000, 0.75
# The factor of peaks with more turns than half the number of the column's values: if these are evenly spaced, such a
# peak is an alias of a slower one.
_OF_IMAGES = 0.8
# The number of highest peaks, and the multiples of their periods that are tried: a peak is often a harmonic of the true
# period, or half of one if successive turns differ.
_PEAKS, _MULTIPLES = 4, (1.0, 2.0, 3.0, 0.5, 4.0)
# A season's least number of turns, share of the variance, and agreement of four parts (1/4 with random phases).
_TURNS_OF_SEASON, _SHARE, _AGREEMENT = 4.0, 0.05, 0.6
# Degree of the polynomial trend that is removed first.
_DEGREE = 3


def likely_periods(x, y, weight, n_peaks=_PEAKS, multiples=_MULTIPLES):
    """Periods at which targets vary along a column, the most likely first.

    The residuals from a smooth trend are summed in bins of the column, and Fourier transformed. This finds a thousand
    turns among a thousand rows in some milliseconds, faster than a sum for each frequency.

    Parameters
    ----------
    x : ndarray of shape (N,)
        A column of X.
    y : ndarray of shape (T, N)
        Targets; NaN is missing.
    weight : ndarray of shape (N,)
    n_peaks : int
        Number of peaks of the periodogram.
    multiples : sequence of float
        Multiples of the peaks' periods; all are returned.

    Returns
    -------
    periods : ndarray
        In the units of ``x``; empty if the column has only a few values.
    """
    span, n_values = np.ptp(x), len(np.unique(x))
    # Few values, such as two, have no period beside the trend.
    if not (np.isfinite(span) and span > 0.0) or n_values <= 2 * (_DEGREE + 1):
        return np.zeros(0)
    at = 2.0 * (x - x.min()) / span - 1.0
    power = sum(_power(at, *_residuals(at, each, weight)) for each in y)
    turns = np.arange(len(power)) / _OVERSAMPLED
    power = np.where(turns > 0.5 * n_values, _OF_IMAGES, 1.0) * power
    peaks = _highest(power, turns >= _FEWEST_TURNS, n_peaks)
    return (span / turns[peaks][None, :] * np.asarray(multiples)[:, None]).ravel()


def season(x, y, weight):
    """The period of a season along a column; None if there is none.

    A season has enough turns, a clear part of the targets' variance, and the same phase in all parts of the column. The
    periodogram of a smooth function has peaks, too, but its phase changes.

    Parameters
    ----------
    x, y, weight : ndarray of shape (N,), (T, N) and (N,)
        As in `likely_periods`.
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
    # The share of the highest of so many peaks of noise.
    of_noise = 2.0 / len(x) * (np.log(0.5 * len(x)) + 5.0)
    return float(periods[0]) if share > max(_SHARE, of_noise) and agreement > _AGREEMENT else None


def _residuals(at, y, weight):
    """The targets without a trend, divided by their norm, and zero where missing; and the weights."""
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
    """Positions of the highest local maxima, each at least one turn away from all higher ones."""
    inner = np.flatnonzero((power[1:-1] >= power[:-2]) & (power[1:-1] > power[2:])) + 1
    inner = inner[allowed[inner] & (power[inner] > 0.0)]
    found = []
    for peak in inner[np.argsort(-power[inner], kind="stable")]:
        if all(abs(peak - other) >= _OVERSAMPLED for other in found):
            found.append(peak)
        if len(found) == n_peaks:
            break
    return np.array(found, dtype=int)
