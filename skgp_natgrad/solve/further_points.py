"""Class labels: chooses further points for the means, and solves for the means on them.

The covariance uses the inducing points only. With a point at every row the best means are the covariances with the rows
times the slopes g of the log-likelihood there (Kimeldorf and Wahba 1971). A well predicted label has hardly any slope,
and its row no part in the means: as in import vector machines (Zhu and Hastie 2005), points are only needed at rows
whose labels the inducing points do not predict well. The gain of a point is the rise of the bound to second order. From
the label of its own row it is, for each class, g^2 k / (2 (1 + h k)), with the curvature h and the prior variance k
that the inducing points do not explain. If few points are wanted, they are chosen one by one, each by its gain in all
labels given those before; the inducing points' means are then held fixed.

The means are those of the orthogonal basis (Salimbeni, Cheng, Boots and Deisenroth 2018, eq. 11) in whitened
coordinates: the covariance of inducing points and further points together has the factor

    L = [[L_1, 0], [C^T, L_2]],    C = L_1^-1 Kzg,    L_2 L_2^T = Kgg - C^T C

so that the first coordinates of the means are those of q(v), and the others belong to the part of the prior that the
inducing points do not explain. The variances are kept, and L-BFGS maximises the bound over the means. Each evaluation
costs products of the means with the whitened rows, 4 K N P operations. A row that is a point needs no solve: its column
is a row of L. Rows are stored in single precision, which rounds latent means to 1e-6 of their standard deviation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._backend import in_place
from .._backend.repeated import grouped
from .._backend.rows import filled_up
from .common_covariance import Rows, curvatures, minimised, value_and_slope
from .system import Means, covariances_of

# Rows whose covariances with all points are computed at once, in double precision.
_BLOCK_ROWS = 1024
# If no number of points is given, the share of all gains that may be lost.
_REST = 1e-2
# The number of points is rounded up to so many significant binary digits.
_DIGITS = 4
# Up to `_FEW` points are chosen by their gains in all labels, among at most `_MOST` candidates: `_CANDIDATES` and some
# for each point, since their number sets the cost.
_FEW, _MOST, _CANDIDATES, _FOR_EACH = 1000, 2000, 100, 4
# If less than this share of a candidate's curvature remains, the chosen points explain it.
_NOTHING = 1e-9


class Wide(NamedTuple):
    """Rows whitened by all points.

    Attributes
    ----------
    Z_mean : ndarray of shape (G, D)
        The further points.
    root : ndarray of shape (G, G)
        L_2.
    order : ndarray of shape (N,)
        Positions of the rows: those that are further points come first.
    first : ndarray of shape (M, N)
        The rows in this order, whitened by the inducing points, in single precision.
    rest : list of pairs of a slice of the further points and an ndarray
        The further points' coordinates in blocks, for the rows from the block's first point on.
    """

    Z_mean: np.ndarray
    root: np.ndarray
    order: np.ndarray
    first: np.ndarray
    rest: list

    @property
    def n_points(self):
        """Number of points of both kinds."""
        return len(self.first) + len(self.Z_mean)

    def product(self, w):
        """w A (K, N) for ``w`` (K, P), in double precision; rows in the order of the table."""
        w, n_points = w.astype(np.float32), len(self.first)
        found = w[:, :n_points] @ self.first
        for part, A in self.rest:
            found[:, part.start :] += w[:, n_points + part.start : n_points + part.stop] @ A
        product = np.empty(found.shape)
        product[:, self.order] = found
        return product

    def adjoint(self, g):
        """g A^T (K, P) for ``g`` (K, N)."""
        # In this form BLAS reads the rows as they lie in memory, which it does not for g A^T.
        g = np.asarray(g, np.float32).T[self.order]
        return np.concatenate([self.first @ g, *(A @ g[part.start :] for part, A in self.rest)]).T

    def curvatures(self, h, inverse_root):
        """The diagonals (K, P) of I + A diag(h_k) A^T for ``h`` (K, N); for the first points in coordinates w R.

        Parameters
        ----------
        h : array of shape (K, N)
        inverse_root : ndarray of shape (M, M)
            R^-1.
        """
        h = np.asarray(h, np.float32)[:, self.order]
        first = inverse_root.astype(np.float32) @ self.first
        own = (inverse_root**2).sum(1) + _squared_sums(first, h)
        return np.concatenate([own, *(1.0 + _squared_sums(A, h[:, part.start :]) for part, A in self.rest)], axis=1)


def _squared_sums(A, h):
    return np.concatenate([h @ (A[points] ** 2).T for points in _few_points(A)], axis=1).astype(float)


class Unexplained(NamedTuple):
    """The part of the covariances of some points with rows that the inducing points do not explain.

    Attributes
    ----------
    log_kernel : Kernel
        As logarithms.
    X : ndarray of shape (N, D)
    A : ndarray of shape (M, at least N)
        The rows whitened by the inducing points.
    Z : ndarray of shape (G, D)
        The points.
    across : ndarray of shape (M, G)
        The points whitened by the inducing points.
    """

    log_kernel: object
    X: np.ndarray
    A: np.ndarray
    Z: np.ndarray
    across: np.ndarray

    @classmethod
    def of(cls, log_kernel, rows, X, chosen):
        """From `common_covariance.Rows` (padded beyond ``X``) and the positions of the points among them."""
        A = np.asarray(rows.A)
        return cls(log_kernel, X, A, X[chosen], np.ascontiguousarray(A[:, chosen]))

    def __call__(self, of, start=0):
        """The points from ``start`` on, with at most `_BLOCK_ROWS` rows ``of``: (., B); and the rows' mean variance."""
        some = self.X[filled_up(of, _BLOCK_ROWS)]
        covariance, variance = covariances_of(self.log_kernel, self.Z, np.ones(len(self.Z)), some)
        rest = np.asarray(covariance)[start:, : len(of)] - self.across[:, start:].T @ self.A[:, of]
        return rest, float(np.mean(variance))


def candidates(X, is_point):
    """Positions of the rows of X (N, D) that are no inducing points, the first of equal rows."""
    order, start = grouped(X)
    first = order[start]
    return np.sort(first[~is_point[first]])


def whitened(log_kernel, rows, X, chosen, is_point, jitter):
    """The `Wide` rows; None if the covariance of the further points has no Cholesky factor.

    ``rows`` are the `common_covariance.Rows` of X (N, D), padded beyond these. ``chosen`` (G,) are the positions of the
    further points. ``is_point`` (N,) marks inducing points: their rows have no coordinates on further points.
    """
    unexplained = Unexplained.of(log_kernel, rows, X, chosen)
    n_further, n_rows = len(chosen), len(rows.weight)
    if (root := _root(chosen, unexplained, jitter)) is None:
        return None
    # Padding has no weight: it comes last, and its columns stay zero.
    others = np.setdiff1d(np.flatnonzero(~is_point), chosen)
    order = np.concatenate([chosen, others, np.setdiff1d(np.arange(n_rows), np.concatenate([chosen, others]))])
    rest = [(part, np.zeros((part.stop - part.start, n_rows - part.start), np.float32)) for part in _blocks(n_further)]
    for part, A in rest:
        A[:, : n_further - part.start] = root[part.start :, part].T
    for columns in _blocks(len(others)):
        added = in_place.lower_solve(root, unexplained(others[columns])[0])
        for part, A in rest:
            at = n_further - part.start + columns.start
            A[:, at : at + added.shape[1]] = added[part]
    first = np.empty(unexplained.A.shape, np.float32)
    for points in _few_points(first):
        first[points] = unexplained.A[points][:, order]
    return Wide(unexplained.Z, root, order, first, rest)


def _few_points(A):
    return _blocks(len(A), max(in_place.NUMBERS_AT_ONCE // A.shape[1], 1))


def _blocks(n_rows, size=None):
    size = size or _BLOCK_ROWS
    return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]


def _root(chosen, unexplained, jitter):
    """L_2, with as much jitter as it needs. It overwrites its matrix, which is computed again for more jitter."""
    for relative in in_place.growing(jitter):
        system = np.empty((len(chosen),) * 2)
        for part in _blocks(len(chosen)):
            # The lower triangle is enough.
            system[part.start :, part], variance = unexplained(chosen[part], part.start)
            system[part, part][np.diag_indices(part.stop - part.start)] += relative * variance
        root = in_place.cholesky_over(system)
        if root is not None:
            return root
    return None


def best(log_likelihood, prior_mean, wide, covariance, h, w, precision, change=0.0):
    """The means with the largest log-likelihood, less half their square.

    Parameters
    ----------
    log_likelihood : callable
        Takes latent means (K, N) at all rows; returns its value and its derivatives (K, N).
    prior_mean : array of shape (K, 1)
    wide : Wide
    covariance : system.Covariance
        On the inducing points: the search is in its coordinates w R, scaled.
    h : array of shape (K, N)
        The curvatures of the log-likelihood, by which coordinates are scaled to unit curvature. They differ between
        classes: with the largest h for all, L-BFGS takes more evaluations.
    w : ndarray of shape (K, P)
        The whitened start; zero for the points that it lacks.
    precision : float
        The relative change of the loss that ends the search.
    change : float, default=0.0
        The change in nats that ends it as well.

    Returns
    -------
    w : ndarray of shape (K, M + G)
        The whitened means.
    mean : ndarray of shape (K, N)
        Latent means at all rows.
    """
    root, inverse_root = np.asarray(covariance.root), np.asarray(covariance.inverse_root)
    n_points, shape = len(root), (len(w), wide.n_points)
    deviation = 1.0 / np.sqrt(wide.curvatures(h, inverse_root))

    def latent(w):
        return prior_mean + wide.product(w)

    def means_of(t):
        w = deviation * t
        w[:, :n_points] = w[:, :n_points] @ inverse_root
        return w

    def loss(t):
        w = means_of(t.reshape(shape))
        value, g = log_likelihood(latent(w))
        slope = w - wide.adjoint(g)
        slope[:, :n_points] = slope[:, :n_points] @ inverse_root.T
        return 0.5 * float((w * w).sum()) - float(value), (deviation * slope).ravel()

    start = np.zeros(shape)
    start[:, : w.shape[1]] = w
    start[:, :n_points] = start[:, :n_points] @ root
    w = means_of(minimised(loss, (start / deviation).ravel(), precision, change).reshape(shape))
    return w, latent(w)


def of_basis(wide, w):
    """Whitened means in the orthogonal basis: a = L_2^-T times the part on the further points."""
    n_points = w.shape[1] - len(wide.Z_mean)
    further = np.asfortranarray(w[:, n_points:]).T.copy()
    return Means(wide.Z_mean, w[:, :n_points], in_place.upper_solve(wide.root, further).T)


def _n_needed(gains):
    """The number of points that together have all but a small share of the gains."""
    gained = np.cumsum(np.sort(gains)[::-1])
    return int(np.searchsorted(gained, (1.0 - _REST) * gained[-1]) + 1) if len(gains) and gained[-1] > 0.0 else 0


def _shared(n):
    """``n`` rounded up by at most an eighth, so that similar tables, and folds of one table, share programs."""
    unit = 1 << max(n.bit_length() - _DIGITS, 0)
    return -(-n // unit) * unit


class Labels(NamedTuple):
    """The table's rows, with slopes and curvatures of the log-likelihood under fits on the inducing points only.

    These are fits without held-out rows, so that labels there are predicted as those of new rows.

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
        """From a `common_covariance.Fit` and latent means (K, at least N).

        ``system`` are the likelihood's parameters, the constants and the rows.
        """
        rows = system[-1]
        var = np.broadcast_to(rows.residual + fit.covariance.own, mean.shape)
        _, g = value_and_slope(*system, mean, var)
        return cls(log_kernel, rows, X, np.asarray(g), np.asarray(curvatures(*system, mean, var)))

    def gains(self):
        """The rise of the bound by a point at each row, from the labels at that X, in nats (N,).

        For equal rows the first one has it; a gain that is not a number counts as zero.
        """
        order, start = grouped(self.X)
        first, found = order[start], np.zeros(len(self.X))
        k = np.maximum(np.asarray(self.rows.residual)[first], 0.0)
        for g, h in zip(self.g, self.h, strict=True):
            g, h = (np.add.reduceat(each[order], start) for each in (g, h))
            found[first] += 0.5 * g**2 * k / (1.0 + h * k)
        return np.nan_to_num(found)


def chosen(labels, candidates, n_points, at_most, random_state):
    """The positions of the rows chosen among the candidates, sorted.

    Parameters
    ----------
    labels : Labels
    candidates : ndarray of shape (C,)
    n_points : int
    at_most : bool
        Whether points that gain almost nothing are left out.
    random_state : numpy.random.RandomState

    Returns
    -------
    chosen : ndarray of shape (at most n_points,)
    """
    gained = labels.gains()[candidates]
    n_needed = _n_needed(gained)
    if n_points >= n_needed or n_points >= len(candidates):
        n_points = min(n_points, _shared(n_needed)) if at_most else n_points
        # Chance decides among points without gain, and not their place in the table.
        order = np.lexsort((random_state.permutation(len(gained)), -gained))
        return np.sort(candidates[order[:n_points]])
    # Drawn by the root of the gain: the largest gains lie side by side, and others should be drawn, too.
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
    """The slopes (C, K) of the bound in the candidates' weights, and its curvature (C, C), averaged over classes.

    With the unexplained covariances K of candidates and rows, they are K g^T and Kcc + K diag(h) K^T.
    """
    unexplained = Unexplained.of(labels.log_kernel, labels.rows, labels.X, candidates)
    g, h = labels.g, labels.h.mean(0)
    slope, curvature = np.zeros((len(candidates), len(g))), np.zeros((len(candidates),) * 2)
    for columns in _blocks(len(candidates)):
        curvature[:, columns], _ = unexplained(candidates[columns])
    # Rows without weight have neither slope nor curvature.
    seen = np.flatnonzero((h > 0.0) | np.any(g != 0.0, axis=0))
    for rows in (seen[some] for some in _blocks(len(seen))):
        across, _ = unexplained(rows)
        slope += across @ g[:, rows].T
        curvature = in_place.add_gram(curvature, across, h[rows])
    return slope, in_place.mirrored(curvature)


def _best(slope, curvature, n_points):
    """Positions of candidates, chosen one by one, each with the largest gain given the best weights of those before.

    It is a pivoted Cholesky factorisation of the curvature, which also updates the slopes.
    """
    slope, left = slope.copy(), np.diag(curvature).copy()
    least, factor, found = _NOTHING * left, np.zeros((n_points, len(left))), []
    for i in range(n_points):
        gain = np.where(left > least, (slope**2).sum(1) / np.where(left > least, left, 1.0), -1.0)
        gain[found] = -np.inf
        best = int(np.argmax(gain))
        if gain[best] < 0.0:
            # The chosen points explain all others: any of these will do.
            found += np.setdiff1d(np.arange(len(left)), found)[: n_points - i].tolist()
            break
        column = (curvature[best] - factor[:i, best] @ factor[:i]) / np.sqrt(left[best])
        slope -= np.outer(column, slope[best] / np.sqrt(left[best]))
        left -= column**2
        factor[i] = column
        found.append(best)
    return np.array(found, dtype=int)
