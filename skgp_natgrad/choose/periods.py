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
# A season's least number of turns, which three years have; its share of the variance; and the agreement of four parts
# (1/4 with random phases).
_TURNS_OF_SEASON, _SHARE, _AGREEMENT = 2.75, 0.05, 0.7
# Seasons of a column at most. Degree of the polynomial trend that is removed first, and waves of a season.
_SEASONS, _DEGREE, _HARMONICS = 2, 3, 5


def likely_periods(x, y, weight, multiples=_MULTIPLES, turns=(_FEWEST_TURNS, np.inf), others=()):
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
    multiples : sequence of float
        Multiples of the peaks' periods; all are returned.
    turns : pair of floats
        Fewest and most turns of a peak over the column's range.
    others : sequence of float
        Periods of seasons that are removed first.

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
    power = sum(_power(at, *_residuals(at, each, weight, span / np.asarray(others))) for each in y)
    at_turns = np.arange(len(power)) / _OVERSAMPLED
    power = np.where(at_turns > 0.5 * n_values, _OF_IMAGES, 1.0) * power
    peaks = _highest(power, (at_turns >= turns[0]) & (at_turns <= turns[1]))
    return (span / at_turns[peaks][None, :] * np.asarray(multiples)[:, None]).ravel()


def seasons(x, y, weight):
    """The periods of seasons along a column, the clearest first; each further one in what the others leave.

    Parameters
    ----------
    x, y, weight : ndarray of shape (N,), (T, N) and (N,)
        As in `likely_periods`.
    """
    found = []
    while len(found) < _SEASONS:
        period = season(x, y, weight, found)
        if period is None:
            break
        found.append(period)
    return found


def season(x, y, weight, others=()):
    """The period of a season along a column, beside those of ``others``; None if there is none.

    A season has enough turns, a clear part of the targets' variance, and the same phase in all parts of the column. The
    periodogram of a smooth function has peaks, too, but its phase changes: then lower peaks are tried.

    Parameters
    ----------
    x, y, weight : ndarray of shape (N,), (T, N) and (N,)
        As in `likely_periods`.
    others : sequence of float
        Periods of seasons that are removed first.
    """
    span, turns_of_others = np.ptp(x), np.ptp(x) / np.asarray(others)
    limits = _TURNS_OF_SEASON, 0.5 * len(np.unique(x))
    for period in likely_periods(x, y, weight, (1.0,), limits, others):
        turns, at = span / period, 2.0 * (x - x.min()) / span - 1.0
        # Two seasons that beat more slowly are one that changes, as one that grows does.
        beat = np.any(np.abs(turns - turns_of_others) < _TURNS_OF_SEASON)
        if not beat and _keeps_its_phase(at, y, weight, turns, turns_of_others):
            return float(period)
    return None


def _keeps_its_phase(at, y, weight, turns, turns_of_others):
    """Whether a wave is a clear part of the targets, with one phase in all four parts of the column."""
    part = np.minimum((2.0 * (at + 1.0)).astype(int), 3)
    rotated = np.exp(1j * np.pi * turns * at)
    sums = np.zeros((len(y), 4), dtype=complex)
    for k, each in enumerate(y):
        residual, own = _residuals(at, each, weight, turns_of_others)
        np.add.at(sums[k], part, own * residual * rotated)
    share = 2.0 * np.mean(np.abs(sums.sum(1)) ** 2) / len(at)
    agreement = np.sum(np.abs(sums.sum(1)) ** 2) / (4.0 * np.sum(np.abs(sums) ** 2))
    # The share of the highest of so many peaks of noise.
    of_noise = 2.0 / len(at) * (np.log(0.5 * len(at)) + 5.0)
    return share > max(_SHARE, of_noise) and agreement > _AGREEMENT


def _residuals(at, y, weight, turns=()):
    """The targets without a trend and seasons of so many turns, divided by their norm, zero where missing; and the
    weights."""
    weight = np.where(np.isfinite(y), np.minimum(weight, 1.0), 0.0)
    y, root = np.where(weight > 0.0, y, 0.0), np.sqrt(weight)
    waves = np.pi * at[:, None] * np.outer(turns, np.arange(1, _HARMONICS + 1)).ravel()
    trend = np.hstack([np.polynomial.legendre.legvander(at, _DEGREE), np.cos(waves), np.sin(waves)])
    y = y - trend @ np.linalg.lstsq(root[:, None] * trend, root * y, rcond=None)[0]
    size = np.sqrt((weight * y * y).sum())
    return y / size if size > 0.0 else np.zeros_like(y), weight


def _power(at, y, weight):
    """The periodogram at the multiples of one turn over ``_OVERSAMPLED`` times the range."""
    n_frequencies = int(min(_TURNS_PER_ROW * len(at), _MOST_TURNS) * _OVERSAMPLED)
    place = np.rint(0.5 * (at + 1.0) * (_BINS // _OVERSAMPLED)).astype(int)
    binned = np.bincount(place, weight * y, minlength=_BINS)
    return np.abs(np.fft.rfft(binned)[: min(n_frequencies, _BINS // 2)]) ** 2


def _highest(power, allowed):
    """Positions of the highest local maxima, each at least one turn away from all higher ones."""
    inner = np.flatnonzero((power[1:-1] >= power[:-2]) & (power[1:-1] > power[2:])) + 1
    inner = inner[allowed[inner] & (power[inner] > 0.0)]
    found = []
    for peak in inner[np.argsort(-power[inner], kind="stable")]:
        if all(abs(peak - other) >= _OVERSAMPLED for other in found):
            found.append(peak)
        if len(found) == _PEAKS:
            break
    return np.array(found, dtype=int)
