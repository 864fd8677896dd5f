"""The mean-only points' part of the latent means, and of the KL divergence."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..._backend import placement
from ..points import covariance

# Covariances that are made and summed at once on a CPU, enough for two cores to share; fewest points of whom they are.
_BLOCK, _FEWEST = 2**20, 8


def in_precision_of(X, tree):
    """The leaves of ``tree`` as numbers of the type of ``X``."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, X.dtype), tree)


def values(kernel, Z_mean, a, X):
    """The values (K, B) of k_xg a, for ``a`` (K, G), at the rows of ``X`` (B, D).

    Their covariances are needed for nothing else. On a CPU, of more than `_BLOCK` those of some points at a time are
    made, summed and forgotten, and made once more for the derivatives: to write all of them, and to read them again,
    takes longer, and memory.
    """
    n_points = len(Z_mean)
    n_blocks = min(-(-n_points * len(X) // _BLOCK), n_points // _FEWEST)
    if n_blocks < 2 or not placement.on_cpu() or placement.current().mesh is not None:
        return a @ covariance(kernel, Z_mean, X)
    missing = -n_points % n_blocks
    # What fills up has no weight, and so no part in derivatives.
    Z_blocks = jnp.pad(Z_mean, ((0, missing), (0, 0)), mode="edge").reshape(n_blocks, -1, Z_mean.shape[1])
    a_blocks = jnp.pad(a, ((0, 0), (0, missing))).reshape(len(a), n_blocks, -1).swapaxes(0, 1)

    def add(total, block):
        Z, own = block
        # A user's kernel may be of double precision.
        return total + (own @ kernel(Z, X)).astype(total.dtype), None

    zeros = jnp.zeros((len(a), len(X)), X.dtype)
    return jax.lax.scan(jax.checkpoint(add, prevent_cse=False), zeros, (Z_blocks, a_blocks))[0]


def quadratic(kernel, points, a, beta, Kgz, columns=None):
    """a^T f(Z_mean) with f = k_xg a - k_xz beta, summed over the latent functions.

    With ``columns`` it is estimated without bias from f at some of the points. With
    beta = Kzz^-1 Kzg a, f at a point consists mostly of the point's own part, and the
    estimate has little variance.
    """
    some = slice(None) if columns is None else columns
    Z_mean, own = points.Z_mean[some], a[:, some]
    f = values(kernel, points.Z_mean, a, Z_mean) - beta @ Kgz[some].T
    return (f * own).sum() * (a.shape[1] / max(own.shape[1], 1))
