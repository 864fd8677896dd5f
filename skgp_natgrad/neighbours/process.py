"""Predicts rows from their nearest neighbours in a table."""

from __future__ import annotations

import numpy as np

from .._backend.repeated import grouped
from .._backend.types import Floats
from .conditional import ABSENT, moments
from .nearest import Nearest
from .rates import rates

# Rows whose neighbours are held at once.
_ROWS_AT_ONCE = 4096


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
        parts = self, others
        n = max(len(each.noise) for each in parts)
        noise = np.concatenate([np.broadcast_to(each.noise, (n, len(each.X))) for each in parts], axis=1)
        X, y = np.concatenate([each.X for each in parts]), np.concatenate([each.y for each in parts], axis=1)
        return self.of(X, y, np.where(noise < ABSENT, noise, np.inf), others.n_neighbours)

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

    def __reduce__(self):
        # The search structures are not pickled: they are built again when needed.
        return type(self), (self.X, self.y, self.noise, self.n_neighbours)

    def moments(self, kernels: tuple, x: Floats, without_equal: bool = False) -> tuple[Floats, Floats]:
        """Latent means and variances (T, B), without the prior mean.

        Parameters
        ----------
        kernels : tuple of Kernel
            JAX kernels: one for all targets, or one for each.
        x : ndarray of shape (B, D)
        without_equal : bool, default=False
            Whether each row is predicted without rows that equal it.
        """
        mean, variance = np.empty((2, len(self.y), len(x)))
        for start in range(0, len(x), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            for j, kernel in enumerate(kernels):
                targets = slice(None) if len(kernels) == 1 else slice(j, j + 1)
                near = self._near(kernel, x[rows], without_equal)
                noise = self.noise if len(self.noise) == 1 else self.noise[targets]
                found = moments(kernel, x[rows], self.X, near, self.y[targets], noise)
                mean[targets, rows], variance[targets, rows] = found
        return mean, variance

    def _near(self, kernel, x, without_equal):
        """The neighbours of rows: (B, m)."""

        def differ(at, found):
            return (self.X[found] != x[at][:, None]).any(2)

        unit = rates(kernel, self.X.shape[1])
        key = unit.tobytes()
        nearest = self._nearest.get(key)
        if nearest is None:
            nearest = Nearest(self.X, unit)
            # Those of earlier kernels are dropped.
            kept = list(self._nearest.items())[1 - len(self.y) :] if len(self.y) > 1 else []
            self._nearest = dict(kept) | {key: nearest}
        n = min(self.n_neighbours, len(self.X))
        return nearest.query(x, n, differ if without_equal else None)
