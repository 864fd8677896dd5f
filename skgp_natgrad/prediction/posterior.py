"""The `Posterior`: the NumPy arrays that predictions use, computed once after training, and reduced to few products."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy import linalg as _linalg

from .._backend import in_place
from .._backend.device import once_jit, wide_jit
from .._backend.linalg import squared_lengths
from .._backend.rows import filled_up
from ..kernels import few_rows
from ..variational import bases
from ..variational.model import exponential, kernels_of
from ..variational.points import by_kernel, factorise_in_place
from ..variational.projection import SMALLEST_VARIANCE, WhitenedRows

# Points whose covariances with the inducing points are made at once.
_BLOCK_ROWS = 2048


class Posterior(NamedTuple):
    """q(f) in the form that is cheapest to evaluate.

    Attributes
    ----------
    Z : ndarray of shape (M, D)
        All inducing points of q(v).
    Z_mean : ndarray of shape (G, D)
    alpha : ndarray of shape (K, M)
        mean(x) = prior_mean + k_xz alpha + k_xg a.
    a : ndarray of shape (K, G)
    whiten : ndarray of shape (1 or K, M, M)
        In a basis with a whitened q(v), L^-1 of Kzz with jitter.
    root_S : ndarray of shape (1 or K, M, M), or None
        A square root of S: ``var(x) = k_xx - |whiten k_zx|^2 + |root_S^T whiten k_zx|^2``. None if there is a
        ``reduction``.
    prior_mean : ndarray of shape (K, 1)
        The prior mean of the latent functions.
    reduction : ndarray of shape (1 or K, M, M), optional
        Lower triangular: ``var(x) = k_xx - |reduction k_zx|^2``, one product in place of two. None where q is wider
        than the prior in some direction.

    Columns of masked points are zero.
    """

    Z: np.ndarray
    Z_mean: np.ndarray
    alpha: np.ndarray
    a: np.ndarray
    whiten: np.ndarray
    root_S: np.ndarray | None
    prior_mean: np.ndarray
    reduction: np.ndarray | None = None

    def read_by(self, with_variance: bool) -> Posterior:
        """The posterior without what a prediction does not read, which need not be sent to a device."""
        if not with_variance:
            return self._replace(whiten=None, root_S=None, reduction=None)
        return self if self.reduction is None else self._replace(whiten=None)


def condition(basis, parameters, q, constants, factors=None):
    """Return the `Posterior` of trained parameters, and the absolute jitter it needed."""
    if basis == "orthogonal":
        return _condition_in_place(parameters, q, constants, factors)
    return _condition(basis, parameters, q, constants)


def _condition_in_place(parameters, q, constants, factors):
    """The `Posterior` of the orthogonal basis."""
    Z, Z_mean, mask = map(np.asarray, (parameters.points.Z, parameters.points.Z_mean, constants.masks.Z))
    a = np.asarray(parameters.weights.a) * np.asarray(constants.masks.Z_mean)
    alpha = []
    factors = factors or [factorise_in_place(each, Z, mask, constants.jitter) for each in parameters.log_kernels]
    for (log_kernel, latents), factor in zip(by_kernel(parameters.log_kernels, len(q.mean)), factors, strict=True):
        # Less what the inducing points explain of the further points' part (eq. 11).
        explained = weighted_covariances(log_kernel, Z, Z_mean, a[latents]) * mask @ factor.inverse.T
        alpha.append((np.asarray(q.mean[latents]) - explained) @ factor.inverse * mask)
    roots = [in_place.definite_cholesky(np.asarray(each)) for each in q.precision]
    whiten, root_S = (np.stack(each) for each in ([factor.inverse * mask for factor in factors], roots))
    for root in root_S:
        root[:] = in_place.triangular_inverse(root).T
    used = np.max([factor.jitter for factor in factors])
    return Posterior(Z, Z_mean, np.concatenate(alpha), a, whiten, root_S, constants.prior_mean), used


def weighted_covariances(log_kernel, Z, X, a):
    """What weights ``a`` (K, N) of the kernel functions at X (N, D) add up to at Z (M, D): (K, M), block by block."""
    total = np.zeros((len(a), len(Z)))
    for start in range(0, len(X), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        some, weights = (filled_up(each[block], _BLOCK_ROWS, value=0.0) for each in (X, a.T))
        total += weights.T @ np.asarray(_covariance(log_kernel, some, Z))
    return total


@wide_jit
def _covariance(log_kernel, X1, X2):
    return exponential(log_kernel)(X1, X2)


@functools.partial(once_jit, static_argnames="basis")
def _condition(basis, parameters, q, constants):
    kernels = kernels_of(parameters)
    points, masks, weights = parameters.points, constants.masks, parameters.weights
    alpha, whiten, root_S, used = bases.prediction_factors(basis, kernels, points, masks, weights, q, constants.jitter)
    a = weights.a * masks.Z_mean
    return Posterior(points.of_q, points.Z_mean, alpha, a, whiten, root_S, constants.prior_mean), used


def covariances(kernels, X1, X2, xp=jnp):
    """Prior covariance (1 or K, B1, B2)."""
    if xp is np:
        return np.stack([few_rows.covariances(kernel, X1, X2) for kernel in kernels])
    return xp.stack([kernel(X1, X2) for kernel in kernels])


def _product(weights, covariances):
    """Weights (K, M) times covariances (1 or K, M, B): (K, B)."""
    if len(covariances) == 1:
        return weights @ covariances[0]
    return (weights[:, None] @ covariances)[:, 0]


def prior_variances(kernels, X, xp=jnp):
    """Those of the kernels at rows (1 or K, B)."""
    return xp.stack([kernel.diag(X) for kernel in kernels])


def mean_and_covariances(kernels, posterior, X, xp=jnp):
    """The latent mean (K, B), and the covariances with the inducing points that it is made from (1 or K, M, B)."""
    Kzx = covariances(kernels, posterior.Z, X, xp)
    mean = posterior.prior_mean + _product(posterior.alpha, Kzx)
    # A user's kernel need not accept a table without rows.
    if len(posterior.Z_mean):
        mean = mean + _product(posterior.a, covariances(kernels, posterior.Z_mean, X, xp))
    return mean, Kzx


def latent_moments(kernels, posterior, X, with_variance=True, xp=jnp):
    """Latent mean and variance (K, B); the variance is None if it is not requested.

    Computed by ``xp``: JAX, where ``kernels`` are JAX kernels, or NumPy, where they are
    scikit-learn's.
    """
    mean, Kzx = mean_and_covariances(kernels, posterior, X, xp)
    if not with_variance:
        return mean, None
    prior = prior_variances(kernels, X, xp)
    if posterior.reduction is None:
        var = WhitenedRows.of(posterior.whiten @ Kzx, prior).var_of_root(posterior.root_S)
    else:
        var = xp.maximum(prior - squared_lengths(posterior.reduction, Kzx), SMALLEST_VARIANCE)
    return mean, xp.broadcast_to(var, mean.shape)


def unexplained(kernels, posterior, X):
    """The prior variance of rows that the points do not explain, (1 or K, B); ``kernels`` are scikit-learn's."""
    prior = prior_variances(kernels, X, np)
    return WhitenedRows.of(posterior.whiten @ covariances(kernels, posterior.Z, X, np), prior).residual


# The reduction of a row's prior variance by inducing points and data, as one product with a triangular matrix.
#
# With A = L^-1 k_zx and S the covariance of the whitened q(v),
#
#     var(x) = k_xx - A^T (I - S) A = k_xx - |V k_zx|^2,    V = T^T L^-1,    I - S = T T^T
#
# where q is nowhere wider than the prior. Any root of I - S would do, and its eigenvectors give one easily. But
# eigenvectors mix all rows of L^-1, and some of these rows are as large as one over the root of the jitter. The large
# rows give small elements of A, with small rounding errors as long as the rows are not mixed. An upper triangular T
# does not mix them: V is lower triangular like L^-1. With little noise its variances have ten times the digits of those
# from eigenvectors, and as many as those from two products, |A|^2 and |root_S^T A|^2; and it takes half of the work of
# one such product.

_EPS = np.finfo(float).eps
# No direction in which q is wider than the prior by more than this share of the prior's variance is taken for rounding.
# With little noise S is not known to that, but variances are small as well, and what is dropped must be smaller.
_LARGEST_ROUNDING = 1e-12


def reduced(posterior):
    """The `Posterior` with V in the place of ``root_S``; as it is where some q is wider than the prior somewhere."""
    given = posterior.whiten, posterior.root_S
    # The caller decides about values that are not finite.
    found = reduction_of(*given) if all(np.all(np.isfinite(each)) for each in given) else None
    return posterior if found is None else posterior._replace(root_S=None, reduction=found)


def reduction_of(whiten, root_S):
    """Return V with |V k|^2 = |whiten k|^2 - |root_S^T whiten k|^2 for every k.

    Parameters
    ----------
    whiten : ndarray of shape (1 or K, M, M)
        Columns of masked points are zero.
    root_S : ndarray of shape (1 or K, M, M)

    Returns
    -------
    reduction : ndarray of shape (1 or K, M, M), or None
        Lower triangular; None if there is none, as S exceeds the identity in some direction.
    """
    n = max(len(whiten), len(root_S))
    found = np.zeros((n, *whiten.shape[1:]))
    for k, one in enumerate(found):
        own, root = whiten[k % len(whiten)], root_S[k % len(root_S)]
        # Without masked points, of which the data say nothing.
        rows, columns = (np.flatnonzero(own.any(axis)) for axis in (1, 0))
        half = _root_of_complement(root[rows])
        if half is None:
            return None
        one[np.ix_(columns, columns)] = _lower_triangular(_triangular_product(half, own[np.ix_(rows, columns)]))
    return found


def _triangular_product(lower, own):
    """The product of a lower triangular matrix and a matrix, which may be in its place."""
    if own.shape[0] != own.shape[1]:
        return lower @ own
    # BLAS reads by columns: of the transposes.
    return _linalg.blas.dtrmm(1.0, lower.T, own.T, side=1, lower=0, overwrite_b=1).T


def _root_of_complement(root):
    """T^T, lower triangular, of I - S = T T^T for S = root root^T (M, any); None if that is not semidefinite."""
    size = len(root)
    # The lower triangle alone, as the factorisation below reads the upper one of the reversed order.
    complement = np.zeros((size, size))
    complement[np.diag_indices(size)] = 1.0
    _linalg.blas.dsyrk(-1.0, root.T, beta=1.0, c=complement.T, trans=1, lower=0, overwrite_c=1)
    # The factor of the matrix with its order reversed: T is upper triangular, where Cholesky's is lower.
    reverse = np.ascontiguousarray(complement[::-1, ::-1])
    lower, failed = _linalg.lapack.dpotrf(reverse.T, lower=1, overwrite_a=1)
    upper = lower.T
    if failed:
        upper = _semidefinite_root(in_place.mirrored(complement)[::-1, ::-1], _rounding(root))
        if upper is None:
            return None
    return _reversed(upper)


def _reversed(upper):
    """An upper trapezoidal matrix (rank, M) with the order of both axes reversed, below rows of zeros: (M, M)."""
    found = np.zeros((upper.shape[1], upper.shape[1]))
    found[len(found) - len(upper) :] = upper[::-1, ::-1]
    return found


def _rounding(root):
    """By how much the eigenvalues of S near one may exceed it, as q's precision is known to rounding of its size."""
    # The smallest variance of a direction is that of a column or less.
    largest_precision = 1.0 / max(np.square(root).sum(0).min(), _EPS)
    return min(len(root) * _EPS * largest_precision, _LARGEST_ROUNDING)


def _semidefinite_root(A, tolerance):
    """R (rank, M), upper trapezoidal, with R^T R = A; None if A is not semidefinite to this tolerance.

    Directions in which A is zero up to rounding are dropped: those of which the data say nothing.
    """
    factor, order, rank, _ = _linalg.lapack.dpstrf(A, lower=1)
    pivoted = np.zeros((len(A), rank))
    pivoted[order - 1] = np.tril(factor)[:, :rank]
    if not np.abs(A - pivoted @ pivoted.T).max() <= max(tolerance, len(A) * _EPS):
        return None
    return _linalg.qr(pivoted.T, mode="r")[0][:rank]


def _lower_triangular(V):
    """A lower triangular matrix with the same |V k| for all k: V itself, except for the decoupled basis."""
    if V.shape[0] == V.shape[1] and not np.triu(V, 1).any():
        return V
    return _reversed(_linalg.qr(V[:, ::-1], mode="r")[0][: V.shape[1]])
