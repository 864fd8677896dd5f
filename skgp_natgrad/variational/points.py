"""The two sets of points of a basis, and the covariance of one of them factorised.

Points come with masks. A masked point is not there: it has no covariance with
anything. So the number of points can be padded to a size that other data sets
share, and with it the compiled program.

There is one kernel for all latent functions, or one for each: a tuple.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from .._backend.linalg import jittered_cholesky, symmetrize, triangular_inverse


class Points(NamedTuple):
    """The two point sets.

    Attributes
    ----------
    Z : array of shape (M, D)
        Inducing points, of mean and covariance (the paper's beta).
    Z_mean : array of shape (G, D)
        Points of the mean alone (the paper's gamma).
    """

    Z: jax.Array
    Z_mean: jax.Array


class Masks(NamedTuple):
    """One for a point that is there, zero for padding: (M,) and (G,)."""

    Z: jax.Array
    Z_mean: jax.Array


class Factor(NamedTuple):
    """Of Kzz = L L^T, for one kernel.

    Attributes
    ----------
    L : array of shape (M, M)
    inverse : array of shape (M, M)
        L^-1, which whitens.
    jitter : scalar
        What the diagonal of Kzz was raised by.
    """

    L: jax.Array
    inverse: jax.Array
    jitter: jax.Array


def inducing_covariance(kernel, Z, mask):
    """Kzz with an identity block for masked points: (M, M)."""
    K = kernel(Z, Z) * (mask[:, None] * mask[None, :])
    return symmetrize(K) + jnp.diag(1.0 - mask)


def absolute_jitter(Kzz, mask, jitter):
    """The jitter in the units of ``Kzz``: relative to the mean prior variance of its points."""
    return jitter * (jnp.diag(Kzz) * mask).sum() / mask.sum()


def factorise(kernel, Z, mask, jitter):
    """Return the `Factor` of Kzz, with as much jitter as it needs."""
    Kzz = inducing_covariance(kernel, Z, mask)
    L, used = jittered_cholesky(Kzz, absolute_jitter(Kzz, mask, jitter))
    return Factor(L, triangular_inverse(L), used)


def factors(kernels, points, masks, jitter):
    """The `Factor` of each kernel: constants, through which no gradient flows."""
    kernels, Z = jax.lax.stop_gradient((kernels, points.Z))
    return tuple(factorise(kernel, Z, masks.Z, jitter) for kernel in kernels)


def by_kernel(kernels, n_latent):
    """Pairs of a kernel and the slice of latent functions that it serves."""
    share = n_latent // len(kernels)
    return [(kernel, slice(i * share, (i + 1) * share)) for i, kernel in enumerate(kernels)]
