"""Noise that is neither normal nor Student-t: a mixture of normals, from errors of rows that were left out.

The density of the noise is a sum of equal normals on an even grid (`prediction.errors`). Given the latent variances of
the errors the likelihood is concave in the weights, and each EM step raises it (Laird 1978). Few steps from a smooth
start leave the density smooth, many let it follow the errors (Richardson 1972, Lucy 1974). The start, normal or flat,
the bandwidth and the number of steps are those of largest density of errors in folds that EM did not see. The mixture
is used if it beats the `Errors` that were chosen before, by the same density. Rounding counts as noise here: of rounded
targets, too, the density is that of y itself, and not of what was rounded.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import stats

from ..prediction.calibration import Average
from ..prediction.dispersion import NORMAL_DF
from ..prediction.errors import variance_share
from .errors import Errors

# The fewest rows for a mixture, and the most that it is fitted to.
_FEWEST, _ROWS = 100, 1000
# The check that comes first, of the integral transform: its bins, and the chance of an alarm without reason.
_BINS, _CHANCE = 20, 1e-3
# What is tried: bandwidths, numbers of EM steps, and folds.
_BANDWIDTHS, _STEPS, _FOLDS = (0.05, 0.1, 0.2, 0.4), (1, 4, 16, 64), 5
# Centres are so many bandwidths apart, which leaves ripples of 1e-3, and reach up to so many deviations.
_SPACING, _REACH = 1.5, 6.0
# The variance of the wide part, as a multiple of that of the errors. It has the weight of one observation at least.
_WIDE = 9.0
# The largest deviation of the noise, in widths of rounding, if that alone is noise: its own is 12^-1/2.
_ONE_VALUE = 0.35
# The least gain in density, in its standard errors.
_ERRORS = 2.0
_LEAST = np.finfo(float).tiny


class NoiseMixture(NamedTuple):
    """The distribution of the noise of one target: see `MixtureTotal`.

    Attributes
    ----------
    weights, centres : ndarray of shape (K,)
    bandwidth : float
    """

    weights: np.ndarray
    centres: np.ndarray
    bandwidth: float


NONE = NoiseMixture(np.ones(1), np.zeros(1), 1.0)


def better(seen, noise, errors):
    """The mixture and the `Errors` beside it if these predict left-out errors better than the given `Errors` alone.

    Parameters
    ----------
    seen : Seen
    noise : ndarray of shape (B,)
        The part of each error's variance that is the noise's.
    errors : Errors

    Returns
    -------
    mixture : NoiseMixture
        `NONE` if it is no better.
    errors : Errors
    """
    step, width = -(-len(noise) // _ROWS), seen.width
    seen, noise = seen.some(_ROWS)._replace(width=0.0), noise[::step]
    if len(noise) < _FEWEST:
        return NONE, errors
    if _unevenness(seen, seen.below(errors, seen.error)) < stats.chi2.isf(_CHANCE, _BINS - 1):
        return NONE, errors
    # With the deviation of the errors, which may vary, and with that of the process alone.
    found = dict.fromkeys((_normal(errors), Errors()))
    grids = [_Grid(seen, noise / seen.variance, normal, each) for normal in found for each in _BANDWIDTHS]
    grids = [grid for grid in grids if not grid.follows_values(width)]
    tried = [each for grid in grids for start in grid.starts for each in _held_out(grid, start)]
    before = seen.densities(errors)
    gains = [Average.of(density - before, seen.weight, seen.n_each) for density, *_ in tried]
    best = max(range(len(tried)), key=lambda i: gains[i].mean, default=None)
    if best is None or not gains[best].mean > _ERRORS * gains[best].error:
        return NONE, errors
    _, grid, start, n_steps = tried[best]
    weights = grid.weights(start, slice(None), [n_steps])[0]
    return grid.mixture(weights), grid.errors._replace(share=float(weights[-1]), spread=grid.spread)


def _normal(errors):
    """Normal `Errors` of the same variance."""
    if errors.df >= NORMAL_DF:
        return errors
    return errors._replace(scale=float(errors.scale - np.log(variance_share(errors.df))), df=NORMAL_DF)


def _unevenness(seen, transform):
    """How uneven the integral transform of the errors (B,) is: a chi-squared variable if by chance."""
    shares = np.histogram(transform, _BINS, (0.0, 1.0), weights=seen.weight)[0] / seen.weight.sum()
    return len(transform) * _BINS * np.sum((shares - 1.0 / _BINS) ** 2)


def _held_out(grid, start):
    """The densities of all errors, each under the weights of the folds without it, for every number of steps."""
    fold = np.random.default_rng(0).permutation(len(grid.densities)) % _FOLDS
    found = np.empty((len(_STEPS), len(fold)))
    for each in range(_FOLDS):
        for k, weights in enumerate(grid.weights(start, fold != each, _STEPS)):
            found[k, fold == each] = np.log(grid.centred(weights)[fold == each] @ weights)
    return [(density, grid, start, n_steps) for density, n_steps in zip(found, _STEPS, strict=True)]


class _Grid:
    """Centres of one bandwidth, and the densities of the errors under each component, the last of them the wide one."""

    def __init__(self, seen, share, errors, bandwidth):
        self.seen, self.share, self.errors, self.bandwidth = seen, share, errors, bandwidth
        self.squared = seen.squared_scale(errors)
        self.spread = _WIDE
        reach = min(np.max(np.abs(seen.error) / np.sqrt(self.squared * share)), _REACH)
        n_each_side = int(np.ceil(reach / (_SPACING * bandwidth)))
        self.centres = _SPACING * bandwidth * np.arange(-n_each_side, n_each_side + 1)
        self.densities = self._densities(self.centres)

    def follows_values(self, width):
        """Whether components are so narrow that each would stand for one of several values of a rounded target."""
        deviation = np.median(np.sqrt(self.squared * self.share))
        return deviation > _ONE_VALUE * width and self.bandwidth * deviation < 0.5 * width

    @property
    def starts(self):
        """Weights to begin with: of normal noise, and of noise that is flat, of variance one both."""
        rest = 1.0 - self.bandwidth**2
        each = np.exp(-0.5 * self.centres**2 / rest), 1.0 * (np.abs(self.centres) <= np.sqrt(3.0 * rest))
        least = 1.0 / len(self.share)
        return [np.append((1.0 - least) * one / one.sum(), least) for one in each]

    def weights(self, start, rows, steps):
        """The weights after so many EM steps each, in rising order, from some rows."""
        densities, count = self.densities[rows], self.seen.weight[rows] / self.seen.weight[rows].mean()
        found, weights = [], start
        for n_steps in np.diff(steps, prepend=0):
            for _ in range(n_steps):
                weights = weights * ((count / (densities @ weights)) @ densities)
                weights[-1] += 1.0
                weights = weights / weights.sum()
            found.append(weights)
        return found

    def mixture(self, weights):
        """The `NoiseMixture` of these weights, whose mean is zero."""
        of_most = weights[:-1] / weights[:-1].sum()
        used = of_most > 0.0
        return NoiseMixture(of_most[used], self.centres[used] - of_most @ self.centres, self.bandwidth)

    def centred(self, weights):
        """The densities of the errors under components that are moved so that the mean is zero."""
        return self._densities(self.centres - weights[:-1] @ self.centres / weights[:-1].sum())

    def _components(self, centres):
        """Centres and deviations of the components of each error, the wide one last: (B, K + 1) each."""
        own = self.squared * self.share
        centre = np.append(np.sqrt(own)[:, None] * centres, np.zeros((len(own), 1)), axis=1)
        scale = np.repeat(np.sqrt(self.squared - own * (1.0 - self.bandwidth**2))[:, None], centre.shape[1], axis=1)
        scale[:, -1] = np.sqrt(self.spread * self.seen.variance)
        return centre, scale

    def _densities(self, centres):
        """The densities of the errors under each component: (B, K + 1)."""
        centre, scale = self._components(centres)
        away = (self.seen.error[:, None] - centre) / scale
        return np.maximum(np.exp(-0.5 * away**2) / (np.sqrt(2.0 * np.pi) * scale), _LEAST)
