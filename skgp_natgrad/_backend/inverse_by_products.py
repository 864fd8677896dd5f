"""Inverses of triangular matrices by products of many blocks at once, which is fastest on GPUs.

A GPU's triangular solve goes row by row, and most processors wait. Here all diagonal blocks are inverted together, and
then joined in pairs, all pairs of one size together.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

# Rows of the blocks that are inverted by solves, at most.
_BLOCK = 64


def triangular_inverse(L):
    """Return the inverses of the lower triangular matrices ``L`` (..., M, M).

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
    n_more = n_rows - L.shape[-1]
    square = [(0, 0)] * (L.ndim - 2) + [(0, n_more)] * 2
    return jnp.pad(L, square) + jnp.diag((jnp.arange(n_rows) >= n_rows - n_more).astype(L.dtype))


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
