"""Predicts rows from their nearest neighbours in a table."""

from __future__ import annotations

import numpy as np

from .._backend.repeated import grouped, groups
from .._backend.types import Floats
from .conditional import ABSENT, moments, sent
from .nearest import Nearest
from .rates import rates

# Rows whose neighbours are held at once.
_ROWS_AT_ONCE = 4096
# The least share of a row's precision that other observations have: below it is rounding.
_ROUNDING = 1e-9


class Neighbours:
    """Rows with targets, from which other rows are predicted.

    Parameters
    ----------
    X : ndarray of shape (N, D)
        No two rows are equal.
    y : ndarray of shape (T, N)
        Targets minus the prior mean.
    noise : ndarray of shape (T, N) or (1, N)
        Variances.
    n_neighbours : int
        Number of rows from which one row is predicted.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import kernels, svgp
    >>> X = np.linspace(-3.0, 3.0, 200)[:, None]
    >>> rows = svgp.Neighbours(X, np.sin(X.T), np.full((1, 200), 1e-6), n_neighbours=20)
    >>> mean, variance = rows.moments((kernels.from_sklearn(RBF(), 1).value,), np.array([[0.5]]))
    >>> bool(abs(mean[0, 0] - np.sin(0.5)) < 1e-4)
    True
    """

    def __init__(self, X: Floats, y: Floats, noise: Floats, n_neighbours: int) -> None:
        self.X, self.y, self.noise, self.n_neighbours = X, y, noise, n_neighbours
        self._nearest = {}

    @classmethod
    def of(cls, X: Floats, y: Floats, noise: Floats, n_neighbours: int) -> Neighbours:
        """The process of rows that may be equal: equal rows become one with their mean and less noise.

        A missing target has infinite noise.
        """
        order, start = grouped(X)
        with np.errstate(divide="ignore", invalid="ignore"):
            precision = np.add.reduceat(1.0 / noise[:, order], start, axis=1)
            mean = np.add.reduceat((y / noise)[:, order], start, axis=1) / precision
            noise = 1.0 / precision
        there = np.isfinite(noise).any(0)
        mean, noise = (each[:, there] for each in (mean, noise))
        absent = ~np.isfinite(noise)
        mean = np.where(absent, 0.0, mean)
        return cls(X[order[start]][there], mean, np.where(absent, ABSENT, noise), n_neighbours)

    def joined(self, others: Neighbours) -> Neighbours:
        """The process of these rows and of others of the same targets, such as the next of a stream."""
        both = self._followed_by(others)
        return self.of(both.X, both.y, np.where(both.noise < ABSENT, both.noise, np.inf), others.n_neighbours)

    def in_units(self, unit: Floats) -> Neighbours:
        """The same rows with targets divided by positive numbers (T, 1)."""
        unit = unit[:1] if np.all(unit == unit[0]) else unit
        noise = np.where(self.noise < ABSENT, self.noise / unit**2, ABSENT)
        return type(self)(self.X, self.y / unit, noise, self.n_neighbours)

    def of_number(self, n_neighbours: int) -> Neighbours:
        """The same rows, of which so many predict one row."""
        found = type(self)(self.X, self.y, self.noise, n_neighbours)
        found._nearest = self._nearest
        return found

    def __getstate__(self):
        # The search structures are not saved: they are built again when needed.
        values, place = np.unique(self.noise, return_inverse=True)
        place = place.reshape(self.noise.shape).astype(np.min_scalar_type(len(values)))
        few = values.nbytes + place.nbytes < self.noise.nbytes
        return {**vars(self), "noise": (values, place) if few else self.noise, "_nearest": {}}

    def __setstate__(self, state):
        vars(self).update(state)
        if isinstance(self.noise, tuple):
            values, place = self.noise
            self.noise = values[place]

    def rates_of(self, kernels: tuple) -> Floats:
        """The inverse lengthscales of each kernel (J, D), in whose units rows are near."""
        return np.stack([rates(kernel, self.X.shape[1]) for kernel in kernels])

    def moments(self, kernels: tuple, x: Floats) -> tuple[Floats, Floats]:
        """Latent means and variances (T, B), without the prior mean.

        Parameters
        ----------
        kernels : tuple of Kernel
            JAX kernels: one for all targets, or one for each.
        x : ndarray of shape (B, D)
        """
        return self._moments(kernels, x, lambda kernel, rows: self._near(kernel, x[rows]), self)

    def moments_without(self, kernels: tuple, x: Floats, y: Floats, precision: Floats) -> tuple[Floats, Floats]:
        """Latent means and variances (T, B) of rows of the table, each without an observation of its own.

        Other observations at the same X are kept, as they are for a new row.

        Parameters
        ----------
        kernels : tuple of Kernel
        x : ndarray of shape (B, D)
        y, precision : ndarray of shape (T, B)
            The targets minus the prior mean, and the inverse noise variances, of the observations that are left out: an
            infinite one for all at this X.
        """
        own, rest = self._rest(x, y, precision)
        remains = (rest.noise < ABSENT).any(0)

        def near(kernel, rows):
            def counts(at, found):
                return remains[rows][at][:, None] | (found != own[rows][at][:, None])

            found = self._near(kernel, x[rows], counts)
            places = len(self.X) + np.arange(len(x))[rows]
            return np.where((found >= 0) & (found == own[rows][:, None]), places[:, None], found)

        return self._moments(kernels, x, near, self._followed_by(rest))

    def _moments(self, kernels, x, near, others):
        """Moments of rows ``x`` from some of ``others``, where ``near`` finds them for a kernel and a slice of rows."""
        mean, variance = np.empty((2, len(self.y), len(x)))
        for j, kernel in enumerate(kernels):
            targets = slice(None) if len(kernels) == 1 else slice(j, j + 1)
            noise = others.noise if len(others.noise) == 1 else others.noise[targets]
            X, *of_others = sent(others.X, others.y[targets], noise)
            for start in range(0, len(x), _ROWS_AT_ONCE):
                rows = slice(start, start + _ROWS_AT_ONCE)
                found = moments(kernel, x[rows], X, near(kernel, rows), *of_others)
                mean[targets, rows], variance[targets, rows] = found
        return mean, variance

    def _rest(self, x, y, precision):
        """The positions of rows ``x``, -1 for others, and a process of what is left of each without an observation."""
        group = groups(np.concatenate([self.X, x]))
        place = np.full(group.max() + 1, -1)
        place[group[: len(self.X)]] = np.arange(len(self.X))
        own = place[group[len(self.X) :]]
        whole = 1.0 / self.noise[:, own]
        precision = precision if np.any(precision != precision[:1]) else precision[:1]
        is_left = (own >= 0) & (whole - precision > _ROUNDING * whole)
        precision = np.where(is_left, precision, 0.0)
        left = whole - precision
        mean = np.where(is_left, (whole * self.y[:, own] - precision * y) / left, 0.0)
        return own, type(self)(x, mean, np.where(is_left, 1.0 / left, ABSENT), self.n_neighbours)

    def _followed_by(self, others):
        """These rows, and then those of another process of the same targets."""
        n = max(len(self.noise), len(others.noise))
        noise = [np.broadcast_to(each.noise, (n, len(each.X))) for each in (self, others)]
        y = np.concatenate([self.y, others.y], axis=1)
        both = np.concatenate([self.X, others.X]), y, np.concatenate(noise, axis=1)
        return type(self)(*both, self.n_neighbours)

    def _near(self, kernel, x, counts=None):
        """The neighbours of rows: (B, m); only rows that count, if it is asked (see `Nearest.query`)."""
        unit = rates(kernel, self.X.shape[1])
        key = unit.tobytes()
        nearest = self._nearest.get(key)
        if nearest is None:
            nearest = Nearest(self.X, unit)
            # Those of earlier kernels are dropped.
            kept = list(self._nearest.items())[1 - len(self.y) :] if len(self.y) > 1 else []
            self._nearest = dict(kept) | {key: nearest}
        return nearest.query(x, min(self.n_neighbours, len(self.X)), counts)
