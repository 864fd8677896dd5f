"""The mean of the exact process on all rows, with a covariance on some inducing points.

For a Gaussian likelihood the exact process' mean is K (K + S)^-1 y with S = s^2 W^-1: with alpha = (K + S)^-1 y, found
by conjugate gradients, the orthogonal basis (Salimbeni, Cheng, Boots and Deisenroth 2018, eq. 11) with a mean-only
point at each row that is no inducing point has

    m = L^-1 Kzx alpha,    a = alpha

Left-out rows are predicted by further columns of the same system, in which they have no weight. They decide whether
this mean is better than that of the inducing points, which treats the rest of the prior as noise.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._backend import in_place, placement
from .._backend.device import wide_jit
from .._backend.in_place import Tiles
from .._backend.repeated import among
from .._backend.rows import filled_up
from .._backend.threads import scipy_single_threaded
from ..prediction.posterior import weighted_covariances
from ..variational import gaussian
from ..variational.model import exponential
from .system import Means, points_of, whitened

# Inducing points of the preconditioner, and rows whose covariances with them are computed at once.
_POINTS, _BLOCK_ROWS = 2000, 2048
# Rows whose covariances with all rows XLA computes at once, for a product.
_ROWS_OF_PRODUCT = 256
# Largest share of all rows in one fold of the left-out rows, and most folds.
_SHARE, _MOST_FOLDS = 0.1, 5
# The tolerance and most steps of conjugate gradients. Pol takes 54 steps, kin40k 40. Under a smooth kernel with hardly
# any noise single precision never converges, and more steps were worse.
_TOLERANCE, _STEPS = 3e-3, 60


class RowMeans(NamedTuple):
    """The mean on all rows.

    Attributes
    ----------
    means : Means
    error : ndarray of shape (K, B)
        Errors of the left-out rows: y minus its prediction from the others.
    quadratic : ndarray of shape (K,)
        (y - f)^T S^-1 (y - f) + alpha^T K alpha for the mean f = K alpha: y^T alpha if conjugate gradients have
        converged.
    """

    means: Means
    error: np.ndarray
    quadratic: np.ndarray


class Problem(NamedTuple):
    """The data from which the mean is computed.

    Attributes
    ----------
    log_kernel : Kernel
        As logarithms; one for all targets.
    prior : system.Prior
        Of the inducing points.
    noise : ndarray of shape (K,)
    X : ndarray of shape (N, D)
    y : ndarray of shape (K, N)
        Targets minus the prior mean; zero where missing.
    weight : ndarray of shape (K, N)
        The diagonal of W.
    index : ndarray of shape (B,)
        Positions of the rows to leave out.
    left_out : ndarray of shape (K, B)
        The parts of their weights that are left out.
    """

    log_kernel: object
    prior: object
    noise: np.ndarray
    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    index: np.ndarray
    left_out: np.ndarray


@wide_jit
def _tile(log_kernel, first, second):
    return exponential(log_kernel)(first, second).astype(jnp.float32)


class _Products:
    """The products of `Tiles` by XLA, which computes the tiles of some rows anew each time."""

    def __init__(self, log_kernel, X):
        self._n_rows, self._where = len(X), placement.current()
        self._size = self._where.rounded_up(-(-len(X) // _ROWS_OF_PRODUCT)) * _ROWS_OF_PRODUCT
        self._of_all = self._where.replicated((log_kernel, filled_up(X, self._size)), now=True)
        self._own = self._where.rows(filled_up(X, self._size), -2, now=True)

    def __matmul__(self, V):
        V = filled_up(V, self._size, value=0.0)
        return np.asarray(_product(self._where.mesh, *self._of_all, V, self._own))[: self._n_rows]


@functools.partial(wide_jit, static_argnums=0)
def _product(mesh, log_kernel, X, V, own):
    return placement.on_each(mesh, _product_of_rows, (None, None, None, 0), (0,))(log_kernel, X, V, own)[0]


def _product_of_rows(log_kernel, X, V, own):
    kernel = exponential(log_kernel)
    # Single precision within a tile, as of `Tiles`.
    V = V.astype(jnp.float32)
    of_all, V, of_own = (each.reshape(-1, _ROWS_OF_PRODUCT, each.shape[1]) for each in (X, V, own))

    def of_block(some):
        tiles = jax.vmap(lambda X: kernel(some, X).astype(jnp.float32))(of_all)
        return (tiles @ V).astype(float).sum(0)

    return (jax.lax.map(of_block, of_own).reshape(len(own), -1),)


def n_bytes(n_rows, n_targets):
    """The memory for the mean on so many rows: tiles, whitened rows, and the preconditioner of each column."""
    return Tiles.n_bytes(n_rows) + 8 * _POINTS * n_rows + 16 * _POINTS**2 * n_targets * (1 + _MOST_FOLDS)


def solve(problem, random_state):
    """The `RowMeans` of a `Problem`; None if single precision is not enough for its covariances.

    ``random_state`` divides the left-out rows into folds.
    """
    X, n_targets, n_rows = problem.X, len(problem.y), len(problem.X)
    fold, n_folds = _folds(len(problem.index), n_rows, random_state)
    # All rows first, then without each of the folds: a column for each target.
    weight = np.tile(problem.weight.T, (1, 1 + n_folds))
    for i in range(n_folds):
        rows, columns = problem.index[fold == i], slice((1 + i) * n_targets, (2 + i) * n_targets)
        weight[rows, columns] = np.maximum(weight[rows, columns] - problem.left_out[:, fold == i].T, 0.0)
    noise, Y = np.tile(problem.noise, 1 + n_folds), np.tile(problem.y.T, (1, 1 + n_folds))
    if placement.on_one_cpu():
        K = Tiles(lambda i, j: _tile(problem.log_kernel, X[i], X[j]), n_rows)
    else:
        K = _Products(problem.log_kernel, X)
    preconditioner = Preconditioner.of(*_explained(problem), noise, weight)
    alpha = conjugate_gradients(K, noise, weight, Y, preconditioner, _TOLERANCE, _STEPS)
    if alpha is None:
        return None
    mean = K @ alpha
    error = np.full((n_targets, len(fold)), np.nan)
    for i in range(n_folds):
        of_fold = mean[problem.index[fold == i], (1 + i) * n_targets : (2 + i) * n_targets].T
        error[:, fold == i] = problem.y[:, problem.index[fold == i]] - of_fold
    alpha, mean = alpha[:, :n_targets].T, mean[:, :n_targets].T
    quadratic = (problem.weight * (problem.y - mean) ** 2).sum(1) / problem.noise + (alpha * mean).sum(1)
    return RowMeans(_of_basis(problem, alpha), error, quadratic)


def improved(optimum, problem, quadratic, share, random_state):
    """The optimum with the mean on all rows, if that predicts the left-out rows better.

    Parameters
    ----------
    optimum : Optimum
        With predictions of left-out rows; those of the problem come first.
    problem : Problem
    quadratic : ndarray of shape (K,)
        The value for the optimum's own mean: see `RowMeans`.
    share : ndarray of shape (K,)
        The targets' shares in the total density: their weights over that of the rows.
    random_state : numpy.random.RandomState

    Returns
    -------
    optimum : Optimum
    """
    found, left_out = solve(problem, random_state), optimum.left_out
    if found is None:
        return optimum
    error = np.full_like(left_out.error, np.nan)
    error[:, : found.error.shape[1]] = found.error
    counts = np.isfinite(left_out.error) & np.isfinite(error)
    weight = np.where(counts, left_out.weight, 0.0)
    with np.errstate(invalid="ignore"):
        fall = np.where(counts, left_out.error**2 - error**2, 0.0) / left_out.variance
    # The gain is in nats per unit of weight, with the same variances.
    total = np.maximum(weight.sum(1), np.finfo(float).tiny)
    gain = 0.5 * float((share * np.where(weight > 0.0, weight * fall, 0.0).sum(1) / total).sum())
    if not gain > 0.0:
        return optimum
    return optimum._replace(
        q=gaussian.with_mean(optimum.q, found.means.m),
        elbo=optimum.elbo + 0.5 * float((quadratic - found.quadratic).sum()),
        held_out=optimum.held_out._replace(mean=optimum.held_out.mean + gain),
        left_out=left_out._replace(error=np.where(counts, error, np.nan)),
        means=found.means,
    )


def _folds(n_left_out, n_rows, random_state):
    """The fold of each left-out row, and the number of folds."""
    n_folds = int(np.clip(np.ceil(n_left_out / (_SHARE * n_rows)), 1, _MOST_FOLDS))
    return random_state.permutation(np.arange(n_left_out) % n_folds), n_folds


def _explained(problem):
    """The rows whitened by some of the points (P, N), and the mean prior variance that these do not explain."""
    some = problem.prior.first(min(_POINTS, len(points_of(problem.prior))))
    A, residual = np.empty((len(some.points), len(problem.X))), np.empty(len(problem.X))
    for rows, X in _blocks(problem.X):
        found = whitened((problem.log_kernel,), some, X)
        A[:, rows], residual[rows] = (each[0, ..., : rows.stop - rows.start] for each in found)
    return A, float(residual.mean())


def _blocks(X):
    """Slices of the rows, and these rows, filled up to one size."""
    for start in range(0, len(X), _BLOCK_ROWS):
        some = X[start : start + _BLOCK_ROWS]
        yield slice(start, start + len(some)), filled_up(some, _BLOCK_ROWS)


def _of_basis(problem, alpha):
    """The `Means` of weights alpha (K, N) of all rows."""
    prior = problem.prior
    total = weighted_covariances(problem.log_kernel, np.asarray(prior.points), problem.X, alpha) * np.asarray(
        prior.mask
    )
    m = in_place.lower_solve(np.asarray(prior.root)[0], total.T.copy()).T
    # Inducing points explain their own rows, which therefore need no mean-only points.
    further = ~among(problem.X, points_of(prior)) & np.any(problem.weight > 0.0, axis=0)
    return Means(problem.X[further], m, alpha[:, further])


class Preconditioner(NamedTuple):
    """The inverse of A^T A + rest I + S for each system.

    Attributes
    ----------
    A : ndarray of shape (P, N)
    inverse : ndarray of shape (N, C)
        1 / (rest + S), zero where a weight is zero.
    factors : list of ndarray of shape (P, P)
        Cholesky factors of I + A diag(inverse) A^T.
    """

    A: np.ndarray
    inverse: np.ndarray
    factors: list

    @classmethod
    def of(cls, A, rest, noise, weight):
        """See `conjugate_gradients`; ``rest`` is the mean of the diagonal of K - A^T A."""
        inverse, grams = weight / (noise + rest * weight), []
        for c, column in enumerate(inverse.T):
            # Systems that differ only in some rows share the sum over the others.
            n_changed = np.count_nonzero(inverse[:, :c] != column[:, None], axis=0)
            like = int(np.argmin(n_changed)) if c else 0
            if c and 2 * n_changed[like] < len(column):
                rows = np.flatnonzero(inverse[:, like] != column)
                grams.append(_changed(grams[like], A[:, rows], column[rows] - inverse[rows, like]))
            else:
                grams.append(in_place.add_gram(np.zeros((len(A), len(A))), A, column))
        return cls(A, inverse, [in_place.cholesky_of_sum(gram, 1.0) for gram in grams])

    def __matmul__(self, R):
        scaled = self.inverse * R
        explained = (self.A @ scaled).T
        solved = [in_place.cholesky_solve(*each) for each in zip(self.factors, explained, strict=True)]
        return scaled - self.inverse * (self.A.T @ np.stack(solved, axis=1))


def _changed(gram, A, change):
    """The lower triangle of gram + A diag(change) A^T."""
    for sign in (1.0, -1.0):
        some = sign * change > 0.0
        if some.any():
            added = np.ascontiguousarray(A[:, some]), sign * change[some]
            gram = gram + sign * in_place.add_gram(np.zeros_like(gram), *added)
    return gram


# SciPy's small solves alternate with NumPy's products.
@scipy_single_threaded()
def conjugate_gradients(K, noise, weight, Y, preconditioner, tol, n_steps):
    """The solutions of (K + S) x = y, S = diag(noise / weight), on the rows with weight, of many systems at once.

    One product with K serves all of them. The preconditioner is the part of K that some points explain, A^T A, plus a
    multiple of I for the rest (Woodbury's identity; Gardner, Pleiss, Bindel, Weinberger and Wilson 2018).

    Parameters
    ----------
    K : object with a product
        ``K @ V`` (N, C) of a symmetric matrix.
    noise : ndarray of shape (C,)
    weight : ndarray of shape (N, C)
    Y : ndarray of shape (N, C)
    preconditioner : Preconditioner
        Or another symmetric positive matrix for each column.
    tol : float
        A system is solved when the residual's norm, in the preconditioner's metric, is this share of the first.
    n_steps : int
        Most steps.

    Returns
    -------
    X : ndarray of shape (N, C) or None
        Zero in rows without weight. None if a matrix was not positive in the precision of its products.
    """
    is_seen = weight > 0.0
    diagonal = np.divide(noise, weight, out=np.zeros_like(weight), where=is_seen)
    X, R = np.zeros_like(Y), np.where(is_seen, Y, 0.0)
    Z = preconditioner @ R
    P, square = Z, (R * Z).sum(0)
    end = tol**2 * square
    for _ in range(n_steps):
        moves = square > end
        if not moves.any():
            break
        Q = np.where(is_seen, K @ P + diagonal * P, 0.0)
        curvature = (P * Q).sum(0)
        if not np.all(curvature[moves] > 0.0):
            return None
        length = np.where(moves, square / np.where(moves, curvature, 1.0), 0.0)
        X, R = X + length * P, R - length * Q
        Z = preconditioner @ R
        before, square = square, np.where(moves, (R * Z).sum(0), square)
        P = Z + np.where(moves, square / np.where(moves, before, 1.0), 0.0) * P
    return X if np.all(np.isfinite(X)) else None
