"""The distribution of targets that a transformer maps back from those of a regressor."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from . import _quadrature
from .distribution import PredictiveDistribution

# A transformer is affine if its values deviate from an affine map by no more, relative to their range.
_ROUNDING = 1e-8
_N_CHECKED = 1001
# Normal scores between which the inverse must be monotone, and those whose probability outside is below 1e-11.
_WITHIN, _ENDS = 6.0, 7.0
# Of the central difference: the step at which rounding and curvature are alike, relative to the values.
_DIFFERENCE = np.finfo(float).eps ** (1.0 / 3.0)
# How well a transformer and its inverse must undo each other: as scikit-learn's ``check_inverse``.
_CLOSE = {"rtol": 1e-5, "atol": 1e-8}


class _Inverse(NamedTuple):
    """What was found of a transformer's inverse: its direction, its slope if it is affine, and where it is defined."""

    sign: float
    slope: float | None
    domain: tuple[float, float]


class Transformed(PredictiveDistribution):
    """The distribution of h(Z), where h is the inverse of a fitted transformer and Z has another distribution.

    Parameters
    ----------
    inner : PredictiveDistribution
        Of Z.
    transformer : object
        With ``transform`` and ``inverse_transform`` of tables with a column for each output.
    """

    def __init__(self, inner, transformer):
        self._inner, self._transformer = inner, transformer
        self._discrete, self._mixed, self._may_lack = inner._discrete, inner._mixed, inner._may_lack
        self._reach = inner._reach
        self._single = np.prod(inner.shape) == inner.shape[0]
        self.shape = inner.shape if self._single else self._columns("inverse_transform", inner.mean()).shape

    # -- the transformer ---------------------------------------------------------------------------

    def _columns(self, method, table):
        """The transformer's ``method`` of a table (N, T), without NumPy's words about values outside of its domain."""
        with np.errstate(all="ignore"):
            return np.asarray(getattr(self._transformer, method)(table.copy()), dtype=float)

    def _forward(self, y):
        """Targets of any shape as Z."""
        return self._columns("transform", y.reshape(-1, 1)).reshape(y.shape)

    def _inverse_of(self, z):
        """The inverse at values of any shape; NaN at those that are not finite, which some transformers refuse."""
        found, finite = np.full(z.shape, np.nan), np.isfinite(z)
        if np.any(finite):
            found[finite] = self._columns("inverse_transform", z[finite][:, None]).ravel()
        return found

    def _backward(self, z):
        """Values of Z, of any shape, as targets; those beyond the domain of the inverse are those at its end."""
        return self._inverse_of(np.clip(z, *self._inverse.domain))

    @functools.cached_property
    def _inverse(self):
        """See `_Inverse`. ValueError where the inverse is not monotone, or none."""
        ends = self._inner._at_scores(np.array([-_WITHIN, _WITHIN]))
        low, high = ends.min(), ends.max()
        reach = high - low
        z = np.linspace(low - reach, high + reach, 3 * _N_CHECKED)
        h = self._inverse_of(z)
        inside = np.flatnonzero(np.isfinite(h) & (z >= low) & (z <= high))
        if len(inside) < 2:
            raise ValueError(f"{self._transformer!r} has no finite inverse of predictions from {low:g} to {high:g}.")
        first, last = inside[[0, -1]]
        sign = np.sign(h[last] - h[first])
        steps = np.diff(np.where(np.isfinite(h), h, np.nan))
        monotone = sign * steps >= -8.0 * np.finfo(float).eps * (np.abs(h[1:]) + np.abs(h[:-1]))
        if sign == 0.0 or not np.all(monotone[first:last]):
            raise ValueError(
                f"The inverse of {self._transformer!r} is not monotone on predictions from {low:g} to "
                f"{high:g}, so the distribution of y is not defined by it; give an inverse that is, such as "
                "lambda z: np.sign(z) * z**2 for the square root."
            )
        self._check_undone(h[inside])
        slope = (h[last] - h[first]) / (z[last] - z[first])
        if np.abs(h[inside] - h[first] - slope * (z[inside] - z[first])).max() <= _ROUNDING * np.ptp(h[inside]):
            return _Inverse(sign, slope, (-np.inf, np.inf))
        # Beyond ``low`` and ``high`` as far as it is monotone.
        below, above = np.flatnonzero(~monotone[:first]), np.flatnonzero(~monotone[last:])
        first = below[-1] + 1 if below.size else 0
        last = last + above[0] if above.size else len(z) - 1
        low = self._edge(z[first], z[first - 1], -sign) if first else -np.inf
        high = self._edge(z[last], z[last + 1], sign) if last < len(z) - 1 else np.inf
        return _Inverse(sign, None, (low, high))

    def _check_undone(self, y):
        z = self._forward(y)
        again = self._inverse_of(z)
        bad = np.flatnonzero(np.isfinite(z) & ~np.isclose(again, y, **_CLOSE))
        if bad.size:
            raise ValueError(
                f"The inverse of {self._transformer!r} does not undo it: y = {y[bad[0]]:g} becomes {again[bad[0]]:g}. "
                "Give functions that are inverse to each other."
            )

    def _edge(self, good, bad, sign):
        """The last number between two at which the inverse is finite, and does not turn around."""
        least = self._inverse_of(np.array([good]))[0]
        while True:
            middle = 0.5 * (good + bad)
            if middle in (good, bad):
                return good
            found = self._inverse_of(np.array([middle]))[0]
            if np.isfinite(found) and sign * (found - least) >= 0.0:
                good = middle
            else:
                bad = middle

    @functools.cached_property
    def _ends(self):
        """The targets (N, 2) outside of which there is next to no probability, the lower first."""
        return np.sort(self._at_scores(np.array([-_ENDS, _ENDS])).reshape(-1, 2), axis=1)

    def _require_single(self, what):
        if not self._single:
            raise ValueError(
                f"{what} of {np.prod(self.shape[1:])} outputs are not defined through the transformer "
                f"{self._transformer!r}, which may mix them; score each output by itself, or all by nlpd_scorer."
            )

    # -- the distribution --------------------------------------------------------------------------

    @property
    def _normal(self):
        return self._single and self._inner._normal and self._inverse.slope is not None

    @property
    def _closed(self):
        return self._single and self._inner._closed

    @functools.cached_property
    def _moments(self):
        self._require_single("Moments")
        mean, std = self._inner._moments
        if self._inverse.slope is not None:
            return self._backward(mean), np.abs(self._inverse.slope) * std
        if self._discrete:
            raise ValueError(f"Moments of counts behind {self._transformer!r} are not known; use quantile or sample.")
        return _quadrature.moments(self)

    def _quantile(self, levels):
        self._require_single("Intervals")
        return self._backward(self._inner._quantile(levels if self._inverse.sign > 0.0 else 1.0 - levels))

    def _at_scores(self, scores):
        return self._backward(self._inner._at_scores(self._inverse.sign * scores))

    def _knots(self, n_knots):
        return self._backward(self._inner._knots(n_knots))

    def _at_ends(self, y, rows, of_inner):
        """Probabilities of targets: ``of_inner(z)`` of Z, and 0 or 1 outside of all that the inverse returns."""
        if self._inverse.slope is not None:
            return of_inner(self._forward(y))
        low, high = self._ends[rows].T
        low, high = low.reshape(y.shape), high.reshape(y.shape)
        # The lower end itself may have no transform, such as zero under Box-Cox.
        found = of_inner(self._forward(np.clip(y, np.nextafter(low, high), high)))
        return np.where(y >= high, 1.0, np.where(y < low, 0.0, found))

    def _cdf_at(self, y, rows, k):
        def of_inner(z):
            found = self._inner._cdf_at(z, rows, k)
            return found if self._inverse.sign > 0.0 else 1.0 - found

        return self._at_ends(y, rows, of_inner)

    def _pit(self, y):
        self._require_single("Distribution functions")
        rows, below = np.arange(len(y)), None

        def of_inner(z):
            nonlocal below
            at, below = self._inner._pit(z)
            if self._inverse.sign > 0.0:
                return at
            # What is smaller is larger to the regressor.
            at, below = (1.0 - at, None) if below is None else (1.0 - below, 1.0 - at)
            return at

        at = self._at_ends(y, rows, of_inner)
        return at, below if below is None else np.minimum(below, at)

    def _log_density(self, y):
        if not self._single:
            return self._log_density_of_several(y)
        z = self._forward(y)
        if self._discrete:
            # Probabilities have no unit.
            return self._inner._log_density(z)
        slope = self._inverse.slope
        slope = self._slope(z, y) if slope is None else np.full(y.shape, np.abs(slope))
        return self._inner._log_density(z) - np.log(slope).reshape(len(y))

    def _slope(self, z, y):
        """The derivative of the inverse at ``z`` by central differences; ValueError where y has no density."""
        low, middle, high = np.moveaxis(self._inner._at_scores(np.array([-1.0, 0.0, 1.0])), -1, 0)
        defined = np.isfinite(z)
        z = np.where(defined, z, middle)
        at, step = self._backward(z), _DIFFERENCE * np.maximum(np.abs(z), high - low)
        # What was added, after rounding.
        after, before = z + step, z - step
        rises = np.stack([self._backward(after) - at, at - self._backward(before)]) * self._inverse.sign
        defined &= np.isclose(at, y, **_CLOSE) & np.all(rises > 0.0, axis=0)
        if not np.all(defined):
            raise ValueError(
                f"y = {y[~defined].flat[0]:g} has no density: it is outside of, or at the end of, what the inverse of "
                f"{self._transformer!r} returns. Score by crps_scorer or interval_scorer, use a transformer whose "
                "inverse rises everywhere, such as PowerTransformer, or give the estimator a likelihood for such "
                "targets in place of TransformedTargetRegressor."
            )
        return rises.sum(0) / (after - before)

    def _log_density_of_several(self, y):
        slopes = _slopes(lambda table: self._columns("transform", table), y)
        if slopes is None:
            raise ValueError(
                f"The density of {y.shape[1]} outputs needs an affine transformer, and {self._transformer!r} is none; "
                "score by crps_scorer, use StandardScaler, or give the estimator a likelihood for such targets in "
                "place of TransformedTargetRegressor."
            )
        found = self._inner._log_density(self._columns("transform", y))
        return found if self._discrete else found + np.linalg.slogdet(slopes)[1]

    def _draws(self, n_draws, random_state):
        draws = self._inner._draws(n_draws, random_state)
        if self._single:
            return self._backward(draws)
        return np.stack([self._columns("inverse_transform", draw) for draw in np.moveaxis(draws, -1, 0)], axis=-1)

    def _observed(self, y):
        # Only where some targets have a probability, since the transformer may not be defined elsewhere.
        return y if self._mixed is None else self._backward(self._inner._observed(self._forward(y)))


def _slopes(forward, y):
    """The matrix (T, T) of derivatives of a map of targets (N, T); None if it is not affine on their range."""
    low, high = y.min(0), y.max(0)
    reach = np.where(high > low, high - low, np.maximum(np.abs(low), 1.0))
    corners = low + np.vstack([np.zeros_like(low), np.diag(reach)])
    origin, *others = forward(corners)
    slopes = (np.array(others) - origin) / reach[:, None]
    checked = np.vstack([y, low + np.linspace(0.0, 1.0, _N_CHECKED)[:, None] * reach])
    found = forward(checked)
    error = np.abs(found - origin - (checked - low) @ slopes).max()
    return slopes if error <= _ROUNDING * np.abs(found - origin).max() else None
