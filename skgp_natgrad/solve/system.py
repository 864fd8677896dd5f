"""Rows whitened by the points, and the system S^-1 = I + A diag(h) A^T with curvatures h.

With Kzz = L L^T and A = L^-1 Kzx, latent means are A^T w, their divergence from the prior is |w|^2 / 2, and a row's
variance is a^T S a plus the prior variance that the points do not explain, k_xx - |a|^2. (In the kernel's own
coordinates the matrix is Kzz + Kzx diag(h) Kxz, whose condition number is that of Kzz squared.) S is positive definite
at any signal-to-noise ratio, as its inverse is at least the identity. For measurements h is 1 / noise times a weight,
so that the sums over the rows, from one pass, serve any noise.

Sums over measurements on one CPU, and large or very small ones of labels, are formed in place (`_backend/in_place`),
others by XLA.
"""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._backend import in_place, placement, threads
from .._backend.device import FEW_ROWS_OF_ONCE, once_jit, quick_jit, sized_jit
from .._backend.linalg import definite_cholesky, lower_product, triangular_inverse, weighted_gram
from .._backend.rows import filled_up
from ..variational import gaussian
from ..variational.model import exponential, kernels_of
from ..variational.points import factorise_in_place, factorise_two
from ..variational.projection import whitened as whitened_by_xla

# Rows in a block of a pass over a table; most blocks whose sums are formed by several threads, and most bytes of them.
BLOCK_ROWS, _AT_ONCE, _BYTES = 2048, 16, 1 << 27


class Prior(NamedTuple):
    """Quantities that are constant while the mean is computed, for each of the J kernels.

    Attributes
    ----------
    points : array of shape (P, D)
        Inducing points first.
    mask : array of shape (P,)
    root : array of shape (J, P, P)
        L_a.
    whiten : array of shape (J, P, P)
        Its inverse.
    jitter : array of shape (J,), optional
        The values added to the diagonals; None with further points.
    """

    points: jax.Array
    mask: jax.Array
    root: jax.Array
    whiten: jax.Array
    jitter: jax.Array | None = None

    @classmethod
    def of(cls, points, mask, factors):
        """The prior of points with a `Factor` for each kernel."""
        return cls(
            points, mask, *(np.stack([getattr(each, name) for each in factors]) for name in ("L", "inverse", "jitter"))
        )

    def multiplied(self, factor):
        """The prior under kernels multiplied by ``factor``."""
        scaled = {} if self.jitter is None else {"jitter": self.jitter * factor}
        return self._replace(root=self.root * factor**0.5, whiten=self.whiten / factor**0.5, **scaled)

    def first(self, n_points):
        """The prior of only the first points."""
        root, whiten = (np.ascontiguousarray(each[:, :n_points, :n_points]) for each in (self.root, self.whiten))
        return Prior(self.points[:n_points], self.mask[:n_points], root, whiten)


class Covariance(NamedTuple):
    """S^-1 = R R^T.

    Attributes
    ----------
    precision, root, inverse_root : array of shape (M, M)
        S^-1, R and R^-1.
    own : array of shape (N,)
        a^T S a for all rows.
    divergence : scalar
        KL(N(0, S) || N(0, I)).
    """

    precision: jax.Array
    root: jax.Array
    inverse_root: jax.Array
    own: jax.Array
    divergence: jax.Array


class Means(NamedTuple):
    """The mean of q(v), and the weights of further points.

    Attributes
    ----------
    Z_mean : ndarray of shape (G, D)
        The further points.
    m : ndarray of shape (K, M)
    a : ndarray of shape (K, G)
    """

    Z_mean: np.ndarray
    m: np.ndarray
    a: np.ndarray


def prior_of(parameters, masks, jitter):
    """The `Prior` for the present hyperparameters and points."""
    (points, _), (mask, further) = ((sets.Z, sets.Z_mean) for sets in (parameters.points, masks))
    if len(further):
        return _prior_of(parameters, masks, jitter)
    factors = [factorise_in_place(log_kernel, points, mask, jitter) for log_kernel in parameters.log_kernels]
    return Prior.of(points, mask, factors)


@once_jit
def _prior_of(parameters, masks, jitter):
    points, masks = ((sets.Z, sets.Z_mean) for sets in (parameters.points, masks))
    # The inducing points' part is the factor that training used.
    factors = [factorise_two(kernel, points, masks, jitter) for kernel in kernels_of(parameters)]
    root, whiten = (jnp.stack([getattr(factor, name) for factor in factors]) for name in ("L", "inverse"))
    return Prior(jnp.concatenate(points), jnp.concatenate(masks), root, whiten)


def points_of(prior):
    """The points of both sets (P, D), without padding."""
    return np.asarray(prior.points)[np.asarray(prior.mask) > 0.0]


def points_in(parameters, masks):
    """The inducing points (M, D), without padding."""
    return np.asarray(parameters.points.Z)[np.asarray(masks.Z) > 0.0]


def whitened(log_kernels, prior, X):
    """Rows whitened by all points (J, P, B), and the prior variances that these do not explain (J, B)."""
    A, residual = [], []
    for log_kernel, root in zip(log_kernels, prior.root, strict=True):
        covariances, variance = covariances_of(log_kernel, prior.points, prior.mask, X)
        # In place: nothing else uses the covariances, and new memory takes time.
        A.append(in_place.lower_solve(np.asarray(root), np.asarray(covariances)))
        residual.append(np.maximum(np.asarray(variance) - np.einsum("mb,mb->b", *2 * (A[-1],)), 0.0))
    return np.stack(A) if len(A) > 1 else A[0][None], np.stack(residual)


@functools.partial(sized_jit, few_rows=FEW_ROWS_OF_ONCE)
def covariances_of(log_kernel, points, mask, X):
    """Covariances of all points with the rows (P, B), and the rows' prior variances (B,)."""
    kernel = exponential(log_kernel)
    return kernel(points, X) * mask[:, None], kernel.diag(X)


def rows_of(parameters, prior, X, n_explaining):
    """The `WhitenedRows` of each kernel; the first ``n_explaining`` points do not explain their residual."""
    return [
        whitened_by_xla(whiten, kernel(prior.points, X) * prior.mask[:, None], kernel.diag(X), n_explaining)
        for kernel, whiten in zip(kernels_of(parameters), prior.whiten, strict=True)
    ]


def covariance_of(A, h, scale=1.0):
    """The `Covariance` of whitened rows ``A`` (M, N) and curvatures h (N,), of a kernel times a scale."""
    if not in_place.pays(*A.shape):
        return _covariance_by_xla(A, h, scale)
    A = np.asarray(A)
    return jax.device_put(of_precision(precision_of(A, scale * np.asarray(h)), A, scale))


@quick_jit
def _covariance_by_xla(A, h, scale):
    precision = jnp.eye(len(A)) + scale * weighted_gram(A[None], h[None])[0]
    root = definite_cholesky(precision)
    inverse_root = triangular_inverse(root)
    half = lower_product(inverse_root, A)
    return _with_divergence(jnp, precision, root, inverse_root, scale * (half * half).sum(0))


def precision_of(A, h):
    """I + A diag(h) A^T."""
    found = in_place.mirrored(in_place.add_gram(np.zeros((len(A), len(A))), A, h))
    found[np.diag_indices(len(A))] += 1.0
    return found


def of_precision(precision, A, scale=1.0):
    """The `Covariance` of a precision, with variances at whitened rows."""
    root = in_place.definite_cholesky(precision)
    inverse_root = in_place.triangular_inverse(root)
    own = scale * in_place.squared_lengths(inverse_root, A)
    return _with_divergence(np, precision, root, inverse_root, own)


def _with_divergence(xp, precision, root, inverse_root, own):
    trace, log_det = (inverse_root**2).sum(), -2.0 * xp.log(xp.diag(root)).sum()
    return Covariance(precision, root, inverse_root, own, 0.5 * (trace - len(root) - log_det))


def gaussian_of(nat1, precision, roots):
    """The `Gaussian` with natural parameters (K, M) and (K, M, M); ``roots`` are Cholesky factors of the latter."""
    mean = np.stack(list(map(in_place.cholesky_solve, roots, nat1)))
    cov = np.stack(list(map(in_place.cholesky_inverse, roots)))
    log_det_cov = np.array([-2.0 * np.log(np.diag(root)).sum() for root in roots])
    return gaussian.Gaussian(nat1, precision, mean, cov, log_det_cov)


def of_likelihood(parameters, constants):
    """Parameters and constants with only the likelihood's part, so that one program serves all kernels."""
    parameters = parameters._replace(log_kernels=None, points=None, weights=None)
    return parameters, constants._replace(log_bounds=None, masks=None, past=None, scale=1.0, priors=None)


class Sums(NamedTuple):
    """Weighted sums over the rows; one for all targets (H = 1) if these share kernel and weights.

    Attributes
    ----------
    gram : array of shape (H, M, M)
        A W A^T.
    cross : array of shape (K, M)
        A W (y - prior_mean).
    square : array of shape (K,)
        (y - prior_mean)^T W (y - prior_mean).
    residual : array of shape (H,)
        The prior variance that the inducing points do not explain, times W.
    weight : array of shape (G,)
        The weights of the rows in which a target is not missing; G = 1 if none is missing.
    log_widening : array of shape (G,)
        The same weights, times log(1 + a / s^2) for known variances a.
    """

    gram: jax.Array
    cross: jax.Array
    square: jax.Array
    residual: jax.Array
    weight: jax.Array
    log_widening: jax.Array

    def multiplied(self, factor):
        """The sums under kernels multiplied by ``factor`` (J,): A is multiplied by its root."""
        of_targets = np.broadcast_to(factor, len(self.cross))
        gram, cross = self.gram * factor[:, None, None], self.cross * of_targets[:, None] ** 0.5
        return self._replace(gram=gram, cross=cross, residual=self.residual * factor)


def sums_of(parameters, prior, constants, table, block_rows=BLOCK_ROWS):
    """The `Sums` over all rows of a table, so many at a time."""
    n_targets, n_points = table.n_targets, len(prior.points)
    n_each = n_targets if table.per_target else 1
    n_grams = max(len(prior.root), n_each)
    shapes = (n_grams, n_points, n_points), (n_targets, n_points), (n_targets,), (n_grams,), (n_each,), (n_each,)
    sums = Sums(*map(np.zeros, shapes))
    if in_place.pays(n_points, table.n_rows, True):
        return _sums_in_place(sums, parameters, prior, _blocks(parameters, constants, table, block_rows))
    where = placement.current()
    sums, shared = where.replicated(sums, now=True), where.replicated((parameters, prior))
    for block in _blocks(parameters, constants, table, block_rows):
        # Wait for the device, since queued calls would keep their rows in memory.
        sums = _add_block(jax.block_until_ready(sums), *shared, *where.rows(block, (-2, -1, -1, -1)))
    return jax.tree.map(np.asarray, sums)


def _blocks(parameters, constants, table, block_rows):
    """X, y - prior_mean, weights and diagonals of W, filled up to blocks of one size."""
    size = placement.current().block_size(table.n_rows, block_rows)
    for rows in table.blocks(size):
        y, *weights = weights_of(rows, parameters, table.per_target)
        block = (filled_up(each, size, 1, value=0.0) for each in (y - rows.prior_mean(constants), *weights))
        yield filled_up(rows.X, size, value=0.0), *block


def weights_of(table, parameters, per_target):
    """The targets, zero where missing (T, N), the weights of each (G, N), and the diagonal of W (G, N)."""
    seen = ~np.isnan(table.y)
    y = np.where(seen, table.y, 0.0)
    if not per_target:
        return y, table.weight[None], table.weight[None]
    weight = np.where(seen, table.weight, 0.0)
    if table.known is None:
        return y, weight, weight
    variance = np.exp(np.asarray(parameters.raw_likelihood.variance)).reshape(-1, 1)
    return y, weight, weight / (1.0 + table.known / variance)


@functools.partial(once_jit, donate_argnames="sums")
def _add_block(sums, parameters, prior, X, y, weight, relative):
    rows = rows_of(parameters, prior, X, None)
    A, residual = jnp.stack([each.A for each in rows]), jnp.stack([each.residual for each in rows])
    of_kernels = jnp.broadcast_to(relative, (max(len(rows), len(relative)), relative.shape[-1]))
    gram = jnp.concatenate([weighted_gram(A[latents], of_kernels[of]) for latents, of in _pairs(rows)])
    # As a matrix times a column: a row times the transpose takes XLA twenty times as long.
    cross = A @ (relative * y)[..., None]
    added = Sums(gram, cross[..., 0], *sums_over(jnp, residual, y, weight, relative))
    return jax.tree.map(jnp.add, sums, added)


def _pairs(rows):
    """Slices of the kernels, and of the weights for each: all weights for a single kernel."""
    if len(rows) == 1:
        return [(slice(0, 1), slice(None))]
    return [(slice(j, j + 1),) * 2 for j in range(len(rows))]


def sums_over(xp, residual, y, weight, relative):
    """The last four of the `Sums`, by JAX or NumPy."""
    widening = weight * xp.log(weight / xp.where(relative > 0.0, relative, weight))
    return (
        (relative * y * y).sum(1),
        (relative * residual).sum(1),
        weight.sum(1),
        xp.where(weight > 0.0, widening, 0.0).sum(1),
    )


def _sums_in_place(sums, parameters, prior, blocks):
    """The `Sums`, added up by NumPy in the arrays of ``sums``; XLA computes the covariances."""

    def of_block(block):
        return _add_in_place(Sums(*map(np.zeros_like, sums)), parameters, prior, *block)

    n_points = len(prior.points)
    if n_points > threads.LARGEST_OF_ONE_THREAD:
        for block in blocks:
            _add_in_place(sums, parameters, prior, *block)
    else:
        # BLAS has one thread here. The number of blocks does not depend on the cores, and so no bit of the sums.
        n_numbers = len(sums.gram) * n_points**2 + BLOCK_ROWS * (len(prior.root) * n_points + prior.points.shape[-1])
        most = _BYTES // (8 * n_numbers)
        while some := list(itertools.islice(blocks, int(np.clip(most, 1, _AT_ONCE)))):
            for part in threads.for_each(of_block, some):
                for total, value in zip(sums, part, strict=True):
                    total += value
    for gram in sums.gram:
        in_place.mirrored(gram)
    return sums


def _add_in_place(sums, parameters, prior, X, y, weight, relative):
    """Add the rows of a block to ``sums``, of whose matrices only the lower triangles are written."""
    A, residual = whitened(parameters.log_kernels, prior, X)
    for h, gram in enumerate(sums.gram):
        in_place.add_gram(gram, A[h % len(A)], relative[h % len(relative)])
    sums.cross[:] += (A @ (relative * y)[..., None])[..., 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = sums_over(np, residual, y, weight, relative)
    for total, value in zip(sums[2:], rest, strict=True):
        total += value
    return sums
