"""The distribution of a target's errors: a mixture of normals that rows which were left out choose.

The errors are divided by their predicted deviations. Their density is a sum of normals on one grid: of scales that are
powers of two, and beside the centre zero the narrowest ones have an even grid of other centres. Heavy tails and gross
errors are scales alone (a Student-t is a mixture of scales); flat, skew and bimodal noise needs centres. The likelihood
is concave in the weights, and each EM step raises it (Laird 1978). Few steps from a smooth start leave the density
smooth, many let it follow the errors (Richardson 1972, Lucy 1974).

There is one rule: of what is more complex than the distribution so far, that of largest log density of errors in folds
which its weights did not see, if the density gains a few nats in all. So it is decided whether the deviation varies
with X, and how strongly; whether there are centres, and after how many steps; and whether errors are not just normal,
with the variance that the Gaussian process predicts.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np
from scipy import special

# The least gain of what is more complex, in nats of all rows together.
_GAIN = 4.0
# Folds of rows by which it is judged.
_FOLDS = 5
# The narrowest scale, as a power of two, in standard deviations of the errors; the scales that have centres, and their
# distance in scales, which leaves ripples of 1e-3; and how far they reach, in deviations.
_NARROWEST, _WITH_CENTRES, _SPACING, _REACH = -6, (0.125, 0.25, 0.5), 1.5, 6.0
# The widest scale, as a power of two, if no error is wider: new errors may be far larger than those seen.
_WIDEST = 10
# EM steps of the weights of scales, and further ones with centres: what is tried.
_STEPS_OF_SCALES, _STEPS = 100, (4, 32, 256)
# The share of the weight that is spread evenly at first; and the prior, a Student-t distribution of so many degrees of
# freedom that counts as so many observations, without which an error beyond all others would cost hundreds of nats.
_SPREAD, _DF, _PRIOR = 0.1, 3.0, 2.0
# Components of less weight are left out.
_LEAST_WEIGHT = 1e-12
_LEAST = np.finfo(float).tiny


class Errors(NamedTuple):
    """A distribution of errors, whose mean is zero.

    Attributes
    ----------
    weights, centres, scales : ndarray of shape (K,)
        Of the normals, for errors that are divided by their deviations.
    undispersed : ndarray of shape (K,)
        One for normals of which no function of X multiplies the variance, nor the other factor, else zero.
    log_scale : float
        The logarithm of the factor of the other variances.
    process : int or None
        Which of the functions of X multiplies variances, by its position; None if there is none.
    """

    weights: np.ndarray = np.ones(1)
    centres: np.ndarray = np.zeros(1)
    scales: np.ndarray = np.ones(1)
    undispersed: np.ndarray = np.zeros(1)
    log_scale: float = 0.0
    process: int | None = None


NORMAL = Errors()


class _Candidate(NamedTuple):
    """Weights on a grid after so many steps with centres, and the log density of errors that they have not seen."""

    density: float
    grid: _Grid | None = None
    n_steps: int = 0


def best(error, variance, weight, log_factors):
    """The `Errors` of rows that were left out.

    Parameters
    ----------
    error, variance : ndarray of shape (B,)
        Errors, and the variances that were predicted for them.
    weight : ndarray of shape (B,)
    log_factors : ndarray of shape (P, B)
        Predictions of the logarithms of squared errors, relative to these variances.

    Returns
    -------
    errors : Errors
        `NORMAL` if no other distribution is clearly better.
    """
    count = weight / weight.mean()
    normal = _Candidate(-0.5 * count @ (error**2 / variance + np.log(2.0 * np.pi * variance)))
    grids = [_Grid(error, variance, count)]
    grids += [_Grid(error, variance, count, k, each) for k, each in enumerate(log_factors)]
    constant, *varying = [_Candidate(grid.held_out()[0], grid) for grid in grids]
    found = _clearly_better(constant, varying)
    grid = found.grid.with_centres()
    densities = zip(grid.held_out(_STEPS)[1:], _STEPS, strict=True)
    found = _clearly_better(found, [_Candidate(density, grid, n_steps) for density, n_steps in densities])
    found = _clearly_better(normal, [found])
    return NORMAL if found.grid is None else found.grid.errors(found.n_steps)


def _clearly_better(candidate, others):
    """The best of the others if it is clearly better than the candidate."""
    found = max(others, key=lambda each: each.density, default=candidate)
    return found if found.density > candidate.density + _GAIN else candidate


class _Grid:
    """Components for errors of these variances, up to a factor, and the density of each error under each of them.

    If a function of X multiplies the variances, wide components without it are among them, for gross errors.
    """

    def __init__(self, error, variance, count, process=None, log_factor=0.0):
        self.error, self.count, self.process = error, count, process
        self.squared, self.deviation = _fitted(error, np.exp(log_factor) * variance, count)
        self.centres, self.scales, self.undispersed, self.smooth = np.zeros((4, 0))
        self.densities = np.zeros((len(error), 0))
        self._add(0.0, _scales(error / self.deviation), self.deviation)
        if process is not None:
            squared, deviation = _fitted(error, variance, count)
            scales = _scales(error / deviation)
            self._add(0.0, np.sqrt(squared) * scales[scales >= 1.0], np.sqrt(variance), undispersed=1.0)
        self.n_alone = len(self.scales)

    @property
    def prior(self):
        """The weights of the prior: octaves of the scale of normals that are mixed to Student-t."""
        least, most = (special.gammainc(0.5 * _DF, factor * _DF / self.scales**2) for factor in (0.25, 1.0))
        each = np.where((np.arange(len(self.scales)) < self.n_alone) & (self.undispersed == 0.0), most - least, 0.0)
        return each / each.sum()

    def with_centres(self):
        """The grid in which some scales have other centres, too, and weights of these that add up to a normal."""
        found = copy.copy(self)
        reach = min(np.max(np.abs(self.error / self.deviation)), _REACH)
        for scale in _WITH_CENTRES:
            n_each_side = int(np.ceil(reach / (_SPACING * scale)))
            centres = _SPACING * scale * np.arange(-n_each_side, n_each_side + 1)
            smooth = np.exp(-0.5 * centres**2 / (1.0 - scale**2))
            found._add(centres, scale, self.deviation, smooth=smooth / (len(_WITH_CENTRES) * smooth.sum()))
        return found

    def _add(self, centres, scales, deviation, undispersed=0.0, smooth=0.0):
        """Add components with these centres and scales, for errors of these deviations (B,)."""
        away = ((self.error / deviation)[:, None] - centres) / scales
        densities = np.exp(-0.5 * away**2) / (np.sqrt(2.0 * np.pi) * scales * deviation[:, None])
        values = {"centres": centres, "scales": scales, "undispersed": undispersed, "smooth": smooth}
        for name, each in values.items():
            setattr(self, name, np.append(getattr(self, name), np.broadcast_to(each, away.shape[1:])))
        self.densities = np.append(self.densities, np.maximum(densities, _LEAST), axis=1)

    def held_out(self, steps=()):
        """Log densities of all errors under weights of the folds without each: of scales alone, then after steps."""
        fold, found = np.random.default_rng(0).permutation(len(self.count)) % _FOLDS, np.zeros(1 + len(steps))
        for each in range(_FOLDS):
            unseen = fold == each
            for k, weights in enumerate(self._weights(~unseen, steps)):
                found[k] += self.count[unseen] @ np.log(self.densities[unseen] @ weights)
        return found

    def errors(self, n_steps):
        """The `Errors` after so many steps with centres; of scales alone without steps."""
        weights = self._weights(slice(None), [n_steps] if n_steps else [])[-1]
        used = weights > _LEAST_WEIGHT
        weights, centres, scales, undispersed = (
            each[used] for each in (weights, self.centres, self.scales, self.undispersed)
        )
        weights, varies = weights / weights.sum(), undispersed == 0.0
        centres[varies] -= weights @ centres / weights[varies].sum()
        return Errors(weights, centres, scales, undispersed, float(np.log(self.squared)), self.process)

    def _weights(self, rows, steps):
        """Weights from some rows: of scales alone, and after so many steps with centres each, in rising order."""
        alone, given = slice(self.n_alone), (self.densities[rows], self.count[rows])
        normal = 1.0 * ((self.scales[alone] == 1.0) & (self.undispersed[alone] == 0.0))
        start = (1.0 - _SPREAD) * normal + _SPREAD / self.n_alone
        of_scales = np.zeros_like(self.scales)
        of_scales[alone] = _by_em(given[0][:, alone], given[1], start, self.prior[alone], [_STEPS_OF_SCALES])[0]
        start = (1.0 - _SPREAD) * of_scales + _SPREAD * self.smooth
        return [of_scales, *_by_em(*given, start, self.prior, steps)]


def _fitted(error, variance, count):
    """The factor of the variances with which those of the errors agree, and the deviations (B,) with it."""
    squared = np.maximum(np.average(error**2 / variance, weights=count), _LEAST)
    return squared, np.sqrt(squared * variance)


def _scales(standardised):
    """The powers of two from the narrowest scale up to the widest, or to the largest of standardised errors."""
    widest = max(np.ceil(np.log2(max(np.max(np.abs(standardised)), 1.0))), _WIDEST)
    return 2.0 ** np.arange(_NARROWEST, widest + 1.0)


def _by_em(densities, count, weights, prior, steps):
    """The weights after so many EM steps each, in rising order; the prior counts as some observations."""
    found, total = [], count.sum() + _PRIOR
    for n_steps in np.diff(steps, prepend=0):
        for _ in range(n_steps):
            weights = (weights * ((count / (densities @ weights)) @ densities) + _PRIOR * prior) / total
        found.append(weights)
    return found
