"""Mixtures of the distributions that several regressors predict, as those of ensembles are."""

from __future__ import annotations

import functools

import numpy as np
from scipy.special import logsumexp

from .. import svgp
from .distribution import PredictiveDistribution


class Mixture(PredictiveDistribution):
    """Each row's y has the distribution of one of the parts, with these probabilities.

    Parameters
    ----------
    parts : list of PredictiveDistribution
    weights : array-like of shape (n_parts,)
        At least zero; their sum is made one.
    """

    def __init__(self, parts, weights):
        weights = np.asarray(weights, dtype=float)
        if not (np.all(weights >= 0.0) and 0.0 < weights.sum() < np.inf):
            raise ValueError(f"weights={weights.tolist()} must be at least zero, and not all zero, to mix predictions.")
        kept = np.flatnonzero(weights)
        self.parts, self.weights = [parts[i] for i in kept], weights[kept] / weights.sum()
        self.shape = self.parts[0].shape
        self._discrete = all(part._discrete for part in self.parts)
        self._mixed = next((part._mixed for part in self.parts if part._mixed is not None), None)
        self._may_lack = any(part._may_lack for part in self.parts)

    def _mean_of(self, values):
        """The weighted sum of arrays of the parts."""
        return sum(weight * each for weight, each in zip(self.weights, values, strict=True))

    @property
    def _closed(self):
        return all(part._closed for part in self.parts)

    @functools.cached_property
    def _moments(self):
        means, stds = zip(*(part._moments for part in self.parts), strict=True)
        mean = self._mean_of(means)
        with np.errstate(invalid="ignore"):
            var = self._mean_of([std**2 + (each - mean) ** 2 for each, std in zip(means, stds, strict=True)])
        return mean, np.where(np.isnan(var), np.inf, np.sqrt(var))

    def _quantile(self, levels):
        ends = np.stack([part._quantile(levels) for part in self.parts])
        low, high = (each.reshape(self.shape[0], -1, len(levels)) for each in (ends.min(0), ends.max(0)))
        found = np.empty(low.shape)
        for k, q in np.ndindex(low.shape[1:]):
            found[:, k, q] = self._root(low[:, k, q], high[:, k, q], levels[q], k)
        return found.reshape(*self.shape, -1)

    def _root(self, low, high, level, k):
        """The smallest y (N,) between two numbers for which the distribution function reaches the level."""

        def excess(y, rows):
            return self._cdf_at(y, rows.astype(int), k) - level

        return svgp.quantile_between(excess, low, high, self._discrete)

    def _knots(self, n_knots):
        n_each = max(5, n_knots * 5 // len(self.parts))
        return np.concatenate([part._knots(min(n_knots, n_each)) for part in self.parts], axis=-1)

    def _cdf_at(self, y, rows, k):
        return self._mean_of([part._cdf_at(y, rows, k) for part in self.parts])

    def _pit(self, y):
        each = [part._pit(y) for part in self.parts]
        at = self._mean_of([at for at, _ in each])
        if all(below is None for _, below in each):
            return at, None
        return at, self._mean_of([at if below is None else below for at, below in each])

    def _log_density(self, y):
        if len({(part._discrete, part._mixed and part._mixed.name) for part in self.parts}) > 1:
            raise ValueError(
                "Some members of the ensemble predict densities, and others probabilities of y, which cannot be "
                "added; score by crps_scorer, or use members with the same likelihood."
            )
        each = np.stack([part._log_density(y) for part in self.parts])
        return logsumexp(each, axis=0, b=self.weights[:, None])

    def _draws(self, n_draws, random_state):
        numbers = random_state.multinomial(n_draws, self.weights)
        parts = [part._draws(n, random_state) for part, n in zip(self.parts, numbers, strict=True) if n]
        return np.concatenate(parts, axis=-1)[..., random_state.permutation(n_draws)]

    def _check_possible(self, y):
        for part in self.parts:
            part._check_possible(y)

    def _observed(self, y):
        for part in self.parts:
            y = part._observed(y)
        return y
