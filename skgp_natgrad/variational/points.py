"""The sets of points of a basis, and the factorised covariance of the points of q(v).

Points come with masks. A masked point has no covariance with anything, as if it did
not exist. So the number of points can be padded to a common size, and tables share a compiled program.

There is one kernel for all latent functions, or one for each: a tuple.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from .._backend import in_place
from .._backend.device import FEW_ROWS_OF_ONCE, sized_jit
from .._backend.linalg import jittered_cholesky, symmetrize, triangular_inverse


class Points(NamedTuple):
    """The point sets.

    Attributes
    ----------
    Z : array of shape (M, D)
        Inducing points, of mean and covariance (the paper's beta).
    Z_mean : array of shape (G, D)
        Points of the mean alone (the paper's gamma).
    Z_second : array of shape (O, D), optional
        Points with a mean and a covariance of their own, apart from those of the
        inducing points: see `paper.solve`. None in the other bases.
    """

    Z: jax.Array
    Z_mean: jax.Array
    Z_second: jax.Array | None = None

    @property
    def of_q(self):
        """The sets on which q(v) rests, concatenated."""
        return self.Z if self.Z_second is None else jnp.concatenate([self.Z, self.Z_second])

    @property
    def sizes(self):
        """Sizes of the sets on which q(v) rests: these are its blocks, between which it has no covariance."""
        return (len(self.Z),) if self.Z_second is None else (len(self.Z), len(self.Z_second))

    @property
    def further(self):
        """The set of further points: those with a covariance if there are any, else the mean-only points."""
        return self.Z_mean if self.Z_second is None else self.Z_second


class Masks(NamedTuple):
    """One for a point, zero for padding: (M,), (G,) and (O,)."""

    Z: jax.Array
    Z_mean: jax.Array
    Z_second: jax.Array | None = None

    of_q, sizes, further = Points.of_q, Points.sizes, Points.further


class Factor(NamedTuple):
    """The Cholesky factor of Kzz = L L^T, for one kernel.

    Attributes
    ----------
    L : array of shape (M, M)
    inverse : array of shape (M, M)
        L^-1, which whitens.
    jitter : scalar
        The value added to the diagonal of Kzz.
    """

    L: jax.Array
    inverse: jax.Array
    jitter: jax.Array


def covariance(kernel, X, Z):
    """The matrix of a kernel; without rows or columns nothing of the kernel enters the program."""
    return kernel(X, Z) if len(X) and len(Z) else jnp.zeros((len(X), len(Z)), X.dtype)


def inducing_covariance(kernel, Z, mask):
    """Kzz with an identity block for masked points: (M, M)."""
    K = kernel(Z, Z) * (mask[:, None] * mask[None, :])
    return _symmetric(K) + jnp.diag(1.0 - mask)


@jax.custom_vjp
def _symmetric(K):
    """The symmetric part of a kernel's matrix, which differs from it by rounding; its gradient is passed on."""
    return symmetrize(K)


_symmetric.defvjp(lambda K: (symmetrize(K), None), lambda _, cotangent: (cotangent,))


def absolute_jitter(Kzz, mask, jitter):
    """The jitter in the units of ``Kzz``: relative to the mean prior variance of its points."""
    return jitter * (jnp.diag(Kzz) * mask).sum() / mask.sum()


def factorise(kernel, Z, mask, jitter):
    """Return the `Factor` of Kzz, with as much jitter as it needs."""
    Kzz = inducing_covariance(kernel, Z, mask)
    L, used = jittered_cholesky(Kzz, absolute_jitter(Kzz, mask, jitter))
    return Factor(L, triangular_inverse(L), used)


def factorise_in_place(log_kernel, Z, mask, jitter):
    """The same `Factor` in NumPy, for the logarithms of a kernel."""
    Kzz, jitter = map(np.asarray, _covariance_and_jitter(log_kernel, Z, mask, jitter))
    L, used = in_place.jittered_cholesky(Kzz, float(jitter))
    return Factor(L, in_place.triangular_inverse(L), used)


@functools.partial(sized_jit, few_rows=FEW_ROWS_OF_ONCE)
def _covariance_and_jitter(log_kernel, Z, mask, jitter):
    kernel = jax.tree.map(jnp.exp, log_kernel)
    Kzz = inducing_covariance(kernel, Z, mask)
    return Kzz, absolute_jitter(Kzz, mask, jitter)


def factorise_two(kernel, points, masks, jitter):
    """Return the `Factor` of the covariance of two sets of points together, each with its own jitter.

    For the second set, the part that the first leaves unexplained is factorised,

        L = [[L_1, 0], [A_12^T, L_2]],   A_12 = L_1^-1 K_12,   L_2 L_2^T = K_22 - A_12^T A_12

    so that the first set's part is the same as without the second set.

    Parameters
    ----------
    kernel : Kernel
    points, masks : pairs of arrays of shape (P, D) and (P,)
    jitter : scalar
    """
    (first, second), (mask_first, mask_second) = points, masks
    L, whiten, used = factorise(kernel, first, mask_first, jitter)
    across = whiten @ (kernel(first, second) * (mask_first[:, None] * mask_second))
    K = inducing_covariance(kernel, second, mask_second)
    L_2, used_2 = jittered_cholesky(symmetrize(K - across.T @ across), absolute_jitter(K, mask_second, jitter))
    root = jnp.block([[L, jnp.zeros_like(across)], [across.T, L_2]])
    between = solve_triangular(L_2, across.T @ whiten, lower=True)
    inverse = jnp.block([[whiten, jnp.zeros_like(across)], [-between, triangular_inverse(L_2)]])
    return Factor(root, inverse, jnp.maximum(used, used_2))


def factor_of_q(kernel, points, masks, jitter):
    """The `Factor` of the covariance of all points on which q(v) rests."""
    if points.Z_second is None:
        return factorise(kernel, points.Z, masks.Z, jitter)
    return factorise_two(kernel, (points.Z, points.Z_second), (masks.Z, masks.Z_second), jitter)


def factors(kernels, points, masks, jitter):
    """The `Factor` of each kernel: constants, through which no gradient flows."""
    kernels, points = jax.lax.stop_gradient((kernels, points._replace(Z_mean=None)))
    return tuple(factor_of_q(kernel, points, masks, jitter) for kernel in kernels)


def by_kernel(kernels, n_latent):
    """Pairs of a kernel and the slice of latent functions that it serves."""
    share = n_latent // len(kernels)
    return [(kernel, slice(i * share, (i + 1) * share)) for i, kernel in enumerate(kernels)]
