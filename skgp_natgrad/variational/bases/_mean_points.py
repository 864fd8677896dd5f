"""The mean-only points' part of the KL divergence."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..points import covariance


def in_precision_of(X, tree):
    """The leaves of ``tree`` as numbers of the type of ``X``."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, X.dtype), tree)


def quadratic(kernel, points, a, beta, Kgz, columns=None):
    """a^T f(Z_mean) with f = k_xg a - k_xz beta, summed over the latent functions.

    With ``columns`` it is estimated without bias from f at some of the points. With
    beta = Kzz^-1 Kzg a, f at a point consists mostly of the point's own part, and the
    estimate has little variance.
    """
    some = slice(None) if columns is None else columns
    Z_mean, own = points.Z_mean[some], a[:, some]
    f = a @ covariance(kernel, points.Z_mean, Z_mean) - beta @ Kgz[some].T
    return (f * own).sum() * (a.shape[1] / max(own.shape[1], 1))


def prior_variance(kernel, factor, points, masks):
    """The metric of mean-only weights that are not orthogonal to the rest: (G,)."""
    diag = kernel.diag(points.Z_mean)
    return jnp.where(diag > 0.0, diag, 1.0)
