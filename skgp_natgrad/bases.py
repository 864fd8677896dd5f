"""The orthogonally decoupled basis: inputs -> latent moments and KL.

Salimbeni, Cheng, Boots and Deisenroth (2018), eq. 11-13, with the coupled part
whitened: u = L v at the inducing points Z, q(v) = N(m, S), and a mean-only part
with weights a at the points Z_mean (the paper's gamma), made orthogonal to the
first:

    mean(x) = k_xz Kzz^-1 (L m - Kzg a) + k_xg a
    var(x)  = k_xx - k_xz Kzz^-1 k_zx + k_xz L^-T S L^-1 k_zx
    KL      = KL(N(m, S) || N(0, I)) + 1/2 a^T (Kgg - Kgz Kzz^-1 Kzg) a

Without mean-only points this is the coupled basis: one code path for both.

Points come with masks. A masked point is not there: it has no covariance with
anything. So the number of points can be padded to a size that other data sets
share, and with it the compiled program.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ._linalg import jittered_cholesky, symmetrize, triangular_inverse, tril_halved

_MIN_RESIDUAL = 1e-3


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


class Moments(NamedTuple):
    """Latent moments (K, B) and the mean-only part of the KL divergence, a scalar."""

    mean: jax.Array
    var: jax.Array
    kl_mean: jax.Array


def inducing_covariance(kernel, Z, mask):
    """Kzz with an identity block for masked points: (M, M)."""
    K = kernel(Z, Z) * (mask[:, None] * mask[None, :])
    return symmetrize(K) + jnp.diag(1.0 - mask)


def absolute_jitter(Kzz, mask, jitter):
    """The jitter in the units of ``Kzz``: relative to the mean prior variance of its points."""
    return jitter * (jnp.diag(Kzz) * mask).sum() / mask.sum()


def factorise(kernel, Z, mask, jitter):
    """Return L^-1 of the jittered Kzz, and the jitter that was needed."""
    Kzz = inducing_covariance(kernel, Z, mask)
    L, used = jittered_cholesky(Kzz, absolute_jitter(Kzz, mask, jitter))
    return triangular_inverse(L), used


def moments(kernel, points, masks, a, m, S, X, jitter):
    """Latent moments at the rows of ``X`` under the orthogonal basis.

    Parameters
    ----------
    kernel : Kernel
    points : Points
    masks : Masks
    a : array of shape (K, G)
        Weights of the mean-only points.
    m, S : arrays of shape (K, M) and (K, M, M)
        Moments of the whitened q(v).
    X : array of shape (B, D)
    jitter : scalar
        Relative to the mean of the diagonal of Kzz.

    Returns
    -------
    moments : Moments
    """
    Kzz = inducing_covariance(kernel, points.Z, masks.Z)
    jitter = jax.lax.stop_gradient(absolute_jitter(Kzz, masks.Z, jitter))
    Kzx = kernel(points.Z, X) * masks.Z[:, None]
    a = a * masks.Z_mean
    at_Z = (a @ kernel(points.Z_mean, points.Z)) * masks.Z
    mean, var, w = project(Kzz, Kzx, kernel.diag(X), m, S, at_Z, jitter)
    mean = mean + a @ kernel(points.Z_mean, X)
    quadratic = ((a @ kernel(points.Z_mean, points.Z_mean)) * a).sum()
    return Moments(mean, var, 0.5 * (quadratic - (w * w).sum()))


@jax.custom_vjp
def project(Kzz, Kzx, kxx, m, S, at_Z, jitter):
    """The part of the latent moments that runs through Kzz^-1.

    Parameters
    ----------
    Kzz : array of shape (M, M)
    Kzx : array of shape (M, B)
    kxx : array of shape (B,)
    m, S : arrays of shape (K, M) and (K, M, M)
    at_Z : array of shape (K, M)
        The mean-only part's values at Z, which the projection removes.
    jitter : scalar
        Added to the diagonal of Kzz, raised as far as needed; a constant.

    Returns
    -------
    mean, var : arrays of shape (K, B)
        k_xz Kzz^-1 (L m - at_Z), and the latent variance.
    w : array of shape (K, M)
        L^-1 at_Z.

    Notes
    -----
    With L^-1 formed once, both directions need two products with a batch
    dimension for each latent function, and no triangular solve of that size
    (the derivation is in the developer's notes of the documentation).
    """
    return _project_forward(Kzz, Kzx, kxx, m, S, at_Z, jitter)[0]


def _project_forward(Kzz, Kzx, kxx, m, S, at_Z, jitter):
    L, _ = jittered_cholesky(Kzz, jitter)
    L_inv = triangular_inverse(L)
    w = at_Z @ L_inv.T
    residual = S - jnp.eye(len(Kzz), dtype=Kzz.dtype)
    alpha = (m - w) @ L_inv
    W = (L_inv.T @ residual @ L_inv) @ Kzx
    mean = alpha @ Kzx
    var = kxx + (Kzx * W).sum(1)
    return (mean, var, w), (L_inv, Kzx, m, residual, w, alpha, W)


def _project_backward(saved, cotangents):
    L_inv, Kzx, m, residual, w, alpha, W = saved
    g, v, w_bar = cotangents
    d_m = (g @ Kzx.T) @ L_inv.T
    weighted = Kzx * v[:, None, :]
    d_S = L_inv @ (weighted @ Kzx.T) @ L_inv.T
    d_Kzx = 2.0 * (W * v[:, None, :]).sum(0) + alpha.T @ g
    w_total = w_bar - d_m
    # What L sees: through A = L^-1 Kzx, and through w = L^-1 at_Z.
    inner = (m - w).T @ d_m + w_total.T @ w + 2.0 * (residual @ d_S).sum(0)
    d_Kzz = -symmetrize(L_inv.T @ tril_halved(inner) @ L_inv)
    return d_Kzz, d_Kzx, v.sum(0), d_m, symmetrize(d_S), w_total @ L_inv, jnp.zeros(())


project.defvjp(_project_forward, _project_backward)


def residual_variance(kernel, points, masks, jitter):
    """D = diag(Kgg - Kgz Kzz^-1 Kzg), eq. 16: the metric of the mean-only weights, (G,).

    Clamped to a thousandth of the prior variance: a mean-only point that nearly
    coincides with an inducing point has nothing of its own to add.
    """
    L_inv, _ = factorise(kernel, points.Z, masks.Z, jitter)
    A = L_inv @ (kernel(points.Z, points.Z_mean) * masks.Z[:, None])
    diag = kernel.diag(points.Z_mean)
    return jnp.maximum(diag - (A * A).sum(0), _MIN_RESIDUAL * diag)
