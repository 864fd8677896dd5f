"""Linear algebra and quadrature shared by all other folders.

Everything here is pure, and traced by JAX except the quadrature nodes, which
are NumPy constants.
"""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from . import placement
from .rows import filled_up

# Where a matrix has no Cholesky factor, the jitter is multiplied by the first number, so many times at most.
JITTER_GROWTH = 10.0
JITTER_ATTEMPTS = 10
# How often a triangular matrix is halved for its inverse, and the size below which blocks are not halved.
_HALVINGS = 2
_FEW_ROWS = 128
# Of a triangular matrix whose product's squares are summed.
_STRIPS = 4


def symmetrize(A):
    """Return the symmetric part of the matrices ``A`` (..., M, M)."""
    return 0.5 * (A + jnp.swapaxes(A, -1, -2))


def tril_halved(A):
    """Return the lower triangle of ``A`` (M, M) with its diagonal halved.

    The operator Phi of the reverse mode of the Cholesky factorisation
    (Murray 2016, "Differentiation of the Cholesky decomposition", eq. 10).
    """
    return jnp.tril(A) - 0.5 * jnp.diag(jnp.diag(A))


def one_by_one(function):
    """Apply a ``function`` of matrices (and vectors) to stacks of these, one after the other.

    JAX's CPU kernels of LAPACK distribute a stack over XLA's threads and wait for it on
    one of these threads: two stacks at the same time can wait for each other forever.
    """

    @functools.wraps(function)
    def stacked(first, *others):
        if first.ndim == 2:
            return function(first, *others)
        if len(first) == 1:
            return jax.tree.map(lambda x: x[None], stacked(first[0], *(other[0] for other in others)))
        return jax.lax.map(lambda arguments: stacked(*arguments), (first, *others))

    return stacked


@one_by_one
def cholesky(A):
    """Return the lower Cholesky factors of ``A`` (..., M, M); not finite for a matrix that has none.

    LAPACK reads a matrix by columns, and all else writes it by rows: the transpose, the same matrix, needs no copy.
    """
    return jnp.linalg.cholesky(A.T, symmetrize_input=False)


def triangular_inverse(L):
    """Return the inverse of the lower triangular matrices ``L`` (..., M, M).

    On a CPU it is computed by halves: a solve for all columns of the identity would spend as much
    time again on its zeros. The lower left block is found by a solve: a product with the
    inverse of the block below loses digits if L is ill-conditioned (Du Croz and Higham
    1992, "Stability of methods for matrix inversion", section 3). Elsewhere: see `inverse_by_products`.
    """
    return _by_halves(L) if placement.on_cpu() else inverse_by_products(L)


@one_by_one
def _by_halves(L):
    return _triangular_inverse(L, _HALVINGS)


def _triangular_inverse(L, halvings):
    n = len(L)
    if halvings == 0 or n <= _FEW_ROWS:
        return solve_triangular(L, jnp.eye(n, dtype=L.dtype), lower=True)
    upper, lower = slice(None, n // 2), slice(n // 2, None)
    first, last = (_triangular_inverse(L[part, part], halvings - 1) for part in (upper, lower))
    between = solve_triangular(L[lower, lower], L[lower, upper] @ first, lower=True)
    return jnp.block([[first, jnp.zeros((n // 2, n - n // 2), L.dtype)], [-between, last]])


def lower_product(L, B):
    """Return L B for a lower triangular ``L`` (M, M), in quarters, without the quarter of zeros."""
    half = len(L) // 2
    if len(L) <= _FEW_ROWS:
        return L @ B
    return jnp.concatenate([L[:half, :half] @ B[:half], L[half:] @ B], axis=0)


def upper_product(U, B):
    """Return U B for an upper triangular ``U`` (M, M), in quarters, without the quarter of zeros."""
    half = len(U) // 2
    if len(U) <= _FEW_ROWS:
        return U @ B
    return jnp.concatenate([U[:half] @ B, U[half:, half:] @ B[half:]], axis=0)


def squared_lengths(L, B):
    """Return the sums of squares (..., C) of the columns of L B, for lower triangular ``L`` (..., M, M).

    Computed in strips of rows, without most of the zeros: of JAX or of NumPy arrays, like ``L`` and ``B``.
    """
    size = L.shape[-1]
    n_strips = 1 if size <= _FEW_ROWS else _STRIPS
    total = 0.0
    for start, stop in itertools.pairwise(size * i // n_strips for i in range(n_strips + 1)):
        strip = L[..., start:stop, :stop] @ B[..., :stop, :]
        total = total + (strip * strip).sum(-2)
    return total


def weighted_gram(A, weight):
    """Return A diag(weight) A^T (K, P, P), for ``A`` (1 or K, P, B) and ``weight`` (K, B).

    It is computed in quarters, one of which is the transpose of another.
    """
    half = A.shape[1] // 2
    weighted = A * weight[:, None, :]
    if A.shape[1] <= _FEW_ROWS:
        return symmetrize(weighted @ jnp.swapaxes(A, -1, -2))
    # Each half of A is transposed once, and quarters on the diagonal are made symmetric by themselves: XLA would copy
    # the halves again, and read the whole by columns, for all that uses the result.
    first, last = (jnp.swapaxes(part, -1, -2) for part in (A[:, :half], A[:, half:]))
    below = weighted[:, half:] @ first
    upper = [symmetrize(weighted[:, :half] @ first), jnp.swapaxes(below, -1, -2)]
    lower = [below, symmetrize(weighted[:, half:] @ last)]
    return jnp.concatenate([jnp.concatenate(row, axis=-1) for row in (upper, lower)], axis=-2)


def block_slices(sizes):
    """The slices of consecutive blocks of these sizes."""
    ends = np.cumsum(sizes)
    return [slice(int(end) - size, int(end)) for size, end in zip(sizes, ends, strict=True)]


def block_product(S, B, sizes):
    """Return S B (..., P, C) for a block diagonal ``S`` (..., P, P) with blocks of these sizes, without its zeros."""
    if len(sizes) == 1:
        return S @ B
    return jnp.concatenate([S[..., part, part] @ B[..., part, :] for part in block_slices(sizes)], axis=-2)


def joined_blocks(blocks):
    """Return the matrices (..., P, P) with these diagonal blocks (..., M, M) and zeros elsewhere."""
    sizes = [block.shape[-1] for block in blocks]
    rows = []
    for block, part in zip(blocks, block_slices(sizes), strict=True):
        around = (part.start, sum(sizes) - part.stop)
        rows.append(jnp.pad(block, [(0, 0)] * (block.ndim - 1) + [around]))
    return jnp.concatenate(rows, axis=-2)


def block_diagonal(A, sizes):
    """Return the matrices ``A`` (..., P, P) with zeros outside their diagonal blocks of these sizes."""
    if len(sizes) == 1:
        return A
    block = np.repeat(np.arange(len(sizes)), sizes)
    return jnp.where(block[:, None] == block, A, 0.0)


def factor_solve(A, B):
    """Return L^-1 B (N, M, C) for the Cholesky factors L of many small matrices ``A`` (N, M, M); NaN without a factor.

    All at once where the device has a program for stacks; on a CPU `one_by_one`.
    """

    def of_one(A, B):
        return solve_triangular(jnp.linalg.cholesky(A, symmetrize_input=False), B, lower=True)

    return one_by_one(of_one)(A, B) if placement.on_cpu() else jax.vmap(of_one)(A, B)


@one_by_one
def jittered_cholesky(K, jitter, first=None):
    """Cholesky factor of ``K + jitter * I`` with only as much jitter as needed.

    Parameters
    ----------
    K : array of shape (..., M, M)
        Symmetric positive semidefinite matrices.
    jitter : array of shape (...)
        In the units of ``K``. It is multiplied by ten until the factorisation
        exists, at most ten times.
    first : array of shape (...), optional
        A value to try before ``jitter``: zero for matrices that are definite up to
        rounding.

    Returns
    -------
    L : array of shape (M, M)
        Lower triangular factor; not finite if every attempt failed.
    jitter : scalar
        The value used.
    """
    identity = jnp.eye(K.shape[0], dtype=K.dtype)

    def factorise(value):
        return cholesky(K + value * identity)

    def failed(carry):
        L, _, attempt = carry
        return ~jnp.all(jnp.isfinite(L)) & (attempt < JITTER_ATTEMPTS)

    def retry(carry):
        _, value, attempt = carry
        value = jnp.where(value > 0.0, value * JITTER_GROWTH, jitter)
        return factorise(value), value, attempt + 1

    jitter = jnp.asarray(jitter, dtype=K.dtype)
    first = jitter if first is None else jnp.asarray(first, dtype=K.dtype)
    L, used, _ = jax.lax.while_loop(failed, retry, (factorise(first), first, 0))
    return L, used


def definite_cholesky(A):
    """Return the lower Cholesky factors of matrices (..., M, M) that are definite up to rounding.

    Jitter is added to the diagonal only if the factorisation fails without it.
    """
    rounding = jnp.finfo(A.dtype).eps * jnp.trace(A, axis1=-2, axis2=-1)
    return jittered_cholesky(A, rounding, jnp.zeros_like(rounding))[0]


@functools.cache
def normal_nodes(n_nodes):
    """Nodes and weights for expectations under the standard normal density.

    The trapezoidal rule on the real line converges geometrically for analytic
    integrands (Trefethen and Weideman 2014), exactly as Gauss-Hermite does,
    but at a rate set by the distance to the integrand's nearest singularity
    rather than by the square root of the number of nodes. For the
    log-densities of this package it is more accurate at equal cost,
    and it is exact to rounding for polynomials of moderate degree.

    Parameters
    ----------
    n_nodes : int
        Number of nodes, spread evenly over [-8.3, 8.3].

    Returns
    -------
    nodes, weights : ndarray of shape (n_nodes,)
        The weights sum to one.
    """
    nodes = np.linspace(-8.3, 8.3, n_nodes)
    weights = np.exp(-0.5 * nodes**2)
    return nodes, weights / weights.sum()


# Rows of the blocks that are inverted by solves, at most.
_BLOCK = 64


def inverse_by_products(L):
    """Return the inverses of the lower triangular matrices ``L`` (..., M, M), by products of many blocks at once.

    A GPU's triangular solve goes row by row, and most processors wait. Here all diagonal blocks are inverted together,
    and then joined in pairs, all pairs of one size together.

    The block below the diagonal, -L_22^-1 L_21 L_11^-1, loses digits as a product if L_22 is ill-conditioned (Du Croz
    and Higham 1992, "Stability of methods for matrix inversion", section 3): one step of iterative refinement, of
    products alone, brings them back (Higham 2002, "Accuracy and stability of numerical algorithms", section 12.2).
    """
    n_rows = L.shape[-1]
    if n_rows <= _BLOCK:
        return _of_blocks(L)
    n_blocks = 2 ** int.bit_length((n_rows - 1) // _BLOCK)
    size = -(-n_rows // (8 * n_blocks)) * 8
    padded = _padded(jnp.tril(L), size * n_blocks)
    inverse = _of_blocks(_on_diagonal(padded, size))
    while n_blocks > 1:
        size, n_blocks = 2 * size, n_blocks // 2
        inverse = _joined(_on_diagonal(padded, size), inverse[..., 0::2, :, :], inverse[..., 1::2, :, :])
    return inverse[..., 0, :n_rows, :n_rows]


def _of_blocks(L):
    return solve_triangular(L, jnp.broadcast_to(jnp.eye(L.shape[-1], dtype=L.dtype), L.shape), lower=True)


def _padded(L, n_rows):
    """``L`` with the identity below, up to ``n_rows``."""
    square = filled_up(filled_up(L, n_rows, -1, value=0.0), n_rows, -2, value=0.0)
    return square + jnp.diag((jnp.arange(n_rows) >= L.shape[-1]).astype(L.dtype))


def _on_diagonal(L, size):
    """The square blocks of ``size`` rows on the diagonal of L (..., M, M): (..., M / size, size, size)."""
    n_blocks = L.shape[-1] // size
    blocks = L.reshape(*L.shape[:-2], n_blocks, size, n_blocks, size)
    return jnp.moveaxis(jnp.diagonal(blocks, axis1=-4, axis2=-2), -1, -3)


def _joined(L, first, last):
    """The inverses of blocks L (..., 2 S, 2 S), from those of their two halves."""
    half = L.shape[-1] // 2
    of_first = L[..., half:, :half] @ first
    between = last @ of_first
    between = between + last @ (of_first - L[..., half:, half:] @ between)
    above = jnp.concatenate([first, jnp.zeros_like(first)], axis=-1)
    return jnp.concatenate([above, jnp.concatenate([-between, last], axis=-1)], axis=-2)
