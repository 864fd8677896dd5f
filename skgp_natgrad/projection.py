"""The part of the latent moments that runs through Kzz^-1, with a derivative of its own.

With L^-1 formed once, both directions need two products with a batch dimension
for each latent function, and no triangular solve of that size (the derivation
is in the developer's notes of the documentation).

Rows in single precision are whitened first, A = L^-1 Kzx: entries of Kzz^-1 can
be so large that in products with Kzx nothing but rounding would be left. All
that has the size of q alone stays in double precision.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ._linalg import jittered_cholesky, symmetrize, triangular_inverse, tril_halved


class Rows(NamedTuple):
    """A batch's rows as latent moments see them: whiten @ values is L^-1 Kzx.

    Attributes
    ----------
    whiten : array of shape (M, M), optional
        L^-1; None where ``values`` are whitened already.
    values : array of shape (M, B)
    """

    whiten: jax.Array | None
    values: jax.Array

    def mean(self, m):
        """Latent means (K, B) that belong to m (K, M)."""
        alpha = m if self.whiten is None else m @ self.whiten
        return _double(self._cast(alpha) @ self.values)

    def spread(self, S):
        """S, or as of rows not whitened L^-T S L^-1, times the values: (K, M, B)."""
        inner = S if self.whiten is None else self.whiten.T @ S @ self.whiten
        return self._cast(inner) @ self.values

    def var(self, spread):
        """What `spread` adds to the latent variances: (K, B)."""
        return _double((self.values * spread).sum(1))

    def pulled_back_mean(self, g):
        """The gradient in m (K, M) of what has gradients ``g`` (K, B) in the means."""
        gradient = _double(self._cast(g) @ self.values.T)
        return gradient if self.whiten is None else gradient @ self.whiten.T

    def pulled_back_var(self, v):
        """The gradient in S (K, M, M) of what has gradients ``v`` (K, B) in the variances."""
        gradient = _double((self.values * self._cast(v)[:, None, :]) @ self.values.T)
        return symmetrize(gradient if self.whiten is None else self.whiten @ gradient @ self.whiten.T)

    def pulled_back_values(self, m, spread, g, v):
        """The gradient in the values (M, B) of what has gradients ``g`` and ``v`` in the moments."""
        alpha = m if self.whiten is None else m @ self.whiten
        return 2.0 * (spread * self._cast(v)[:, None, :]).sum(0) + self._cast(alpha).T @ self._cast(g)

    def _cast(self, array):
        return array.astype(self.values.dtype)


def _double(array):
    return array.astype(float)


def _rows(L_inv, Kzx):
    if Kzx.dtype == L_inv.dtype:
        return Rows(L_inv, Kzx)
    return Rows(None, L_inv.astype(Kzx.dtype) @ Kzx)


@jax.custom_vjp
def project(Kzz, Kzx, kxx, m, S, at_Z, removed, jitter):
    """The part of the latent moments that runs through Kzz^-1.

    Parameters
    ----------
    Kzz : array of shape (M, M)
    Kzx : array of shape (M, B)
        In single or in double precision; what is returned is double.
    kxx : array of shape (B,)
    m, S : arrays of shape (K, M) and (K, M, M)
    at_Z : array of shape (K, M)
        The mean-only part's values at Z.
    removed : scalar
        The share of these that the projection removes: one in the orthogonal
        basis, zero in the hybrid; a constant.
    jitter : scalar
        Added to the diagonal of Kzz, raised as far as needed; a constant.

    Returns
    -------
    mean, var : arrays of shape (K, B)
        k_xz Kzz^-1 (L m - removed at_Z), and the latent variance.
    w, beta : arrays of shape (K, M)
        L^-1 at_Z, and Kzz^-1 at_Z.
    rows : Rows
        A constant: no gradient flows through it.
    """
    return _project_forward(Kzz, Kzx, kxx, m, S, at_Z, removed, jitter)[0]


def _project_forward(Kzz, Kzx, kxx, m, S, at_Z, removed, jitter):
    L, _ = jittered_cholesky(Kzz, jitter)
    L_inv = triangular_inverse(L)
    w = at_Z @ L_inv.T
    rows = _rows(L_inv, Kzx)
    own, residual = m - removed * w, S - jnp.eye(len(Kzz), dtype=Kzz.dtype)
    spread = rows.spread(residual)
    moments = rows.mean(own), kxx + rows.var(spread), w, w @ L_inv, rows
    return moments, (L_inv, rows, kxx, own, residual, w, removed, spread)


def _project_backward(saved, cotangents):
    L_inv, rows, kxx, own, residual, w, removed, spread = saved
    g, v, w_bar, beta_bar, _ = cotangents
    d_m, d_S = rows.pulled_back_mean(g), rows.pulled_back_var(v)
    d_Kzx = rows.pulled_back_values(own, spread, g, v)
    if rows.whiten is None:
        d_Kzx = L_inv.T.astype(d_Kzx.dtype) @ d_Kzx
    from_beta = beta_bar @ L_inv.T
    w_total = w_bar - removed * d_m + from_beta
    # What L sees: through A = L^-1 Kzx, through w = L^-1 at_Z, and through beta = L^-T w.
    inner = own.T @ d_m + w_total.T @ w + w.T @ from_beta + 2.0 * (residual @ d_S).sum(0)
    d_Kzz = -symmetrize(L_inv.T @ tril_halved(inner) @ L_inv)
    constant = jnp.zeros(())
    return d_Kzz, d_Kzx, v.sum(0).astype(kxx.dtype), d_m, d_S, w_total @ L_inv, constant, constant


project.defvjp(_project_forward, _project_backward)
