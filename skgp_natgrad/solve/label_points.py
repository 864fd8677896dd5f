"""The rows on which the means of class labels rest, beside the inducing points.

With a point at every row the best means are the covariances with the rows times the slopes g of the log-likelihood
there (Kimeldorf and Wahba 1971). A label that is well predicted has next to no slope, and its row no part in the means:
as in import vector machines (Zhu and Hastie 2005) those rows are enough whose labels the inducing points leave open.

What a point at a row gains is the rise of the bound to second order. Of its own label alone that is, for each class,
g^2 k / (2 (1 + h k)), with the curvature h and what the inducing points leave unexplained of the prior variance, k. Few
points are chosen one after the other, each for what it gains in all labels beside those before, with the inducing
points' means as they are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._backend import in_place
from .._backend.repeated import grouped
from .common_covariance import Rows, curvatures, value_and_slope
from .label_means import BLOCK_ROWS, Unexplained

# The part of all gains that may be left to rows that are no points, where no number of points was given.
_REST = 1e-2
# Their number has so many binary digits, and zeros.
_DIGITS = 4
# Up to so many points are chosen for all labels together, of so many rows: of fewer where fewer points are asked for,
# as their number sets the cost.
_FEW, _MOST, _CANDIDATES, _FOR_EACH = 1000, 2000, 100, 4
# Of a candidate's own curvature: what is left of it where the chosen points all but explain it.
_NOTHING = 1e-9


def _n_needed(gains):
    """The number of points that together gain all but a small part."""
    gained = np.cumsum(np.sort(gains)[::-1])
    return int(np.searchsorted(gained, (1.0 - _REST) * gained[-1]) + 1) if len(gains) and gained[-1] > 0.0 else 0


def _shared(n):
    """No fewer points, and at most an eighth more: similar tables, and folds of one, then share their programs."""
    unit = 1 << max(n.bit_length() - _DIGITS, 0)
    return -(-n // unit) * unit


class Labels(NamedTuple):
    """The table as fits under the inducing points alone leave it.

    They are fits without rows that are held out, whose labels are as open as those of new rows.

    Attributes
    ----------
    log_kernel : Kernel
        As logarithms.
    rows : common_covariance.Rows
        Whitened by the inducing points.
    X : ndarray of shape (N, D)
    g, h : ndarray of shape (K, at least N)
        The derivatives of the expected log-likelihood in the latent means, and its curvatures.
    """

    log_kernel: object
    rows: Rows
    X: np.ndarray
    g: np.ndarray
    h: np.ndarray

    @classmethod
    def of(cls, log_kernel, system, X, fit, mean):
        """Of a `common_covariance.Fit` and latent means (K, at least N).

        The likelihood's parameters, the constants and the rows are the ``system``.
        """
        rows = system[-1]
        var = np.broadcast_to(rows.residual + fit.covariance.own, mean.shape)
        _, g = value_and_slope(*system, mean, var)
        return cls(log_kernel, rows, X, np.asarray(g), np.asarray(curvatures(*system, mean, var)))

    def gains(self):
        """What the bound gains by a point at each row from the labels seen there, in nats (N,).

        That of equal rows is the first one's; of what is no number it is none.
        """
        order, start = grouped(self.X)
        first, found = order[start], np.zeros(len(self.X))
        k = np.maximum(np.asarray(self.rows.residual)[first], 0.0)
        for g, h in zip(self.g, self.h, strict=True):
            g, h = (np.add.reduceat(each[order], start) for each in (g, h))
            found[first] += 0.5 * g**2 * k / (1.0 + h * k)
        return np.nan_to_num(found)


def chosen(labels, candidates, n_points, at_most, random_state):
    """Some of the candidates, positions of rows, sorted.

    Parameters
    ----------
    labels : Labels
    candidates : ndarray of shape (C,)
    n_points : int
    at_most : bool
        Whether fewer will do where others gain next to nothing.
    random_state : numpy.random.RandomState

    Returns
    -------
    chosen : ndarray of shape (at most n_points,)
    """
    gained = labels.gains()[candidates]
    n_needed = _n_needed(gained)
    if n_points >= n_needed or n_points >= len(candidates):
        n_points = min(n_points, _shared(n_needed)) if at_most else n_points
        # Among those that gain nothing chance decides, not their place in the table.
        order = np.lexsort((random_state.permutation(len(gained)), -gained))
        return np.sort(candidates[order[:n_points]])
    # By the root, so that others than the largest have their part: these lie side by side.
    drawn = candidates[_in_random_order(np.sqrt(gained), random_state)]
    if n_points > _FEW:
        return np.sort(drawn[:n_points])
    some = drawn[: min(_CANDIDATES + _FOR_EACH * n_points, _MOST)]
    return np.sort(some[_best(*_quadratic(labels, some), n_points)])


def _in_random_order(weight, random_state):
    """Positions in a random order, the first in proportion to their weight (Efraimidis and Spirakis 2006)."""
    exponential = random_state.exponential(size=len(weight))
    with np.errstate(divide="ignore"):
        return np.argsort(np.log(exponential) - np.log(weight), kind="stable")


def _quadratic(labels, candidates):
    """The slopes (C, K) of the bound in the candidates' weights, and its curvature (C, C): the mean one of all classes.

    With K the unexplained covariances of candidates and rows they are K g^T and Kcc + K diag(h) K^T.
    """
    unexplained = Unexplained.of(labels.log_kernel, labels.rows, labels.X, candidates)
    g, h = labels.g, labels.h.mean(0)
    slope, curvature = np.zeros((len(candidates), len(g))), np.zeros((len(candidates),) * 2)
    for start in range(0, len(candidates), BLOCK_ROWS):
        curvature[:, start : start + BLOCK_ROWS], _ = unexplained(candidates[start : start + BLOCK_ROWS])
    # Rows without weight have neither slope nor curvature.
    seen = np.flatnonzero((h > 0.0) | np.any(g != 0.0, axis=0))
    for start in range(0, len(seen), BLOCK_ROWS):
        rows = seen[start : start + BLOCK_ROWS]
        across, _ = unexplained(rows)
        slope += across @ g[:, rows].T
        curvature = in_place.add_gram(curvature, across, h[rows])
    return slope, in_place.mirrored(curvature)


def _best(slope, curvature, n_points):
    """Positions of candidates, chosen one by one: each with the largest gain under the weights of those before.

    A pivoted Cholesky factorisation of the curvature, by which the slopes are reduced.
    """
    slope, left = slope.copy(), np.diag(curvature).copy()
    least, factor, found = _NOTHING * left, np.zeros((n_points, len(left))), []
    for i in range(n_points):
        gain = np.where(left > least, (slope**2).sum(1) / np.where(left > least, left, 1.0), -1.0)
        gain[found] = -np.inf
        best = int(np.argmax(gain))
        if gain[best] < 0.0:
            # What is left is explained, and one as good as the other.
            found += np.setdiff1d(np.arange(len(left)), found)[: n_points - i].tolist()
            break
        column = (curvature[best] - factor[:i, best] @ factor[:i]) / np.sqrt(left[best])
        slope -= np.outer(column, slope[best] / np.sqrt(left[best]))
        left -= column**2
        factor[i] = column
        found.append(best)
    return np.array(found, dtype=int)
