"""The part of the latent moments that depends on Kzz^-1, with its own derivative rule.

Rows are whitened before anything is multiplied, A = L^-1 Kzx with Kzz = L L^T. The
length of a column of A is at most the row's prior deviation, so I + A diag(lam) A^T is accurate to rounding, and
positive definite at any signal-to-noise ratio that double precision can represent. In products of Kzx with itself, or
with matrices whitened from both sides, |Kzz^-1| would magnify the rounding.

L^-1 is formed once, so that neither the forward nor the reverse pass has a triangular
solve with a batch dimension (the derivation is in the developer's notes in the
documentation). Rows may be in single precision; arrays of the size of q are in double.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from .._backend.linalg import block_diagonal, block_product, lower_product, tril_halved, upper_product, weighted_gram

# Not zero: the square root of a variance must have a derivative.
SMALLEST_VARIANCE = float(np.finfo(float).tiny ** 0.5)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WhitenedRows:
    """A batch's rows, whitened, in the form in which they enter latent moments.

    Attributes
    ----------
    A : array of shape (..., M, B)
        L^-1 Kzx, from JAX or from NumPy.
    residual : array of shape (..., B)
        k_xx - |A|^2, the part of the prior variance that the inducing points leave
        unexplained; at least zero.
    sizes : tuple of int, optional
        Sizes of the diagonal blocks of S, which is zero elsewhere; a constant of the
        program. None for a single block.
    """

    A: jax.Array
    residual: jax.Array
    sizes: tuple | None = dataclasses.field(default=None, metadata={"static": True})

    @classmethod
    def of(cls, A, kxx, n_explaining=None, sizes=None):
        """Rows from ``A`` and prior variances (..., B); the first ``n_explaining`` points reduce the residual."""
        explained = A[..., :n_explaining, :]
        return cls(A, _numpy_of(A, kxx).maximum(kxx - (explained * explained).sum(-2), 0.0), sizes)

    def first(self, n_points):
        """The same rows, with only the first ``n_points`` points in ``A``."""
        return dataclasses.replace(self, A=self.A[:n_points])

    def mean(self, m):
        """Latent means (K, B) that belong to m (K, M)."""
        return _double(self._cast(m) @ self.A)

    def spread(self, S):
        """S A: (K, M, B)."""
        return self.product(self._cast(S), self.A)

    def product(self, S, B):
        """S B (K, M, C), using only the diagonal blocks of S."""
        return S @ B if self.sizes is None else block_product(S, B, self.sizes)

    def var(self, spread):
        """Latent variances (K, B), the residual plus A^T S A, from ``spread`` = S A.

        Both are sums of squares: values that round below zero are set to zero.
        """
        return self._with_residual((self.A * spread).sum(1))

    def var_of_root(self, root):
        """Latent variances (K, B) for S = root root^T, with roots (K, M, M)."""
        half = self._cast(root.swapaxes(-1, -2)) @ self.A
        return self._with_residual((half * half).sum(-2))

    def _with_residual(self, own):
        return _double(self.residual) + _numpy_of(own).maximum(_double(own), SMALLEST_VARIANCE)

    def pulled_back_mean(self, g):
        """The gradient in m (K, M), given gradients ``g`` (K, B) in the means."""
        return _double(self._cast(g) @ self.A.T)

    def gram(self, v):
        """A diag(v) A^T (K, M, M), for ``v`` (K, B)."""
        return _double(weighted_gram(self.A[None], self._cast(v)))

    def pulled_back_var(self, v):
        """The gradient in S (K, M, M), given gradients ``v`` (K, B) in the variances."""
        return self.restricted(self.gram(v))

    def restricted(self, A):
        """The matrices (K, M, M) with zeros where S has zeros."""
        return A if self.sizes is None else block_diagonal(A, self.sizes)

    def pulled_back_rows(self, m, spread, g, v, v_residual):
        """The gradient in A (M, B), given gradients ``g`` and ``v`` (K, B) in the moments.

        ``v_residual`` (B,) is its gradient in the residual, by way of all the variances and else.
        """
        of_var = (spread * self._cast(v)[:, None, :]).sum(0) - self.A * self._cast(v_residual)
        return 2.0 * of_var + self._cast(m).T @ self._cast(g)

    def _cast(self, array):
        return array.astype(self.A.dtype)


def _double(array):
    return array.astype(float)


def _numpy_of(*arrays):
    return np if all(isinstance(array, np.ndarray) for array in arrays) else jnp


def whitened(whiten, Kzx, kxx, n_explaining=None, sizes=None):
    """The rows whitened by a lower triangular L^-1.

    Parameters
    ----------
    whiten : array of shape (M, M)
    Kzx : array of shape (M, B)
    kxx : array of shape (B,)
    n_explaining : int, optional
        The residual is what the first ``n_explaining`` points leave unexplained; by default all points.
    sizes : tuple of int, optional
        See `WhitenedRows`.

    Returns
    -------
    rows : WhitenedRows
    """
    return WhitenedRows.of(lower_product(whiten.astype(Kzx.dtype), Kzx), kxx, n_explaining, sizes)


@functools.partial(jax.custom_vjp, nondiff_argnums=(8,))
def project(Kzz, Kzx, kxx, m, S, at_Z, removed, whiten, sizes=None):
    """The part of the latent moments that runs through Kzz^-1.

    Parameters
    ----------
    Kzz : array of shape (M, M)
        Its values are not read, since ``whiten`` has them; the gradient is taken in it.
    Kzx : array of shape (M, B)
        In single or in double precision; the moments are double.
    kxx : array of shape (B,)
    m, S : arrays of shape (K, M) and (K, M, M)
    at_Z : array of shape (K, M)
        The mean-only part's values at Z.
    removed : scalar
        The share of these that the projection removes: one in the orthogonal
        basis, zero in the hybrid; a constant.
    whiten : array of shape (M, M)
        L^-1 of Kzz with its jitter; a constant.
    sizes : tuple of int, optional
        Sizes of the diagonal blocks of S, which is zero and has no gradient elsewhere.

    Returns
    -------
    mean, var : arrays of shape (K, B)
        k_xz Kzz^-1 (L m - removed at_Z), and the latent variance. Its derivative is
        that of the exact variance, also where rounding has clipped it.
    w, beta : arrays of shape (K, M)
        L^-1 at_Z, and Kzz^-1 at_Z.
    rows : WhitenedRows
        A constant: no gradient flows through it.
    """
    return _project_forward(Kzz, Kzx, kxx, m, S, at_Z, removed, whiten, sizes)[0]


def _project_forward(Kzz, Kzx, kxx, m, S, at_Z, removed, whiten, sizes):
    rows = whitened(whiten, Kzx, kxx, sizes=sizes)
    w = at_Z @ whiten.T
    own = m - removed * w
    spread = rows.spread(S)
    moments = rows.mean(own), rows.var(spread), w, w @ whiten, rows
    return moments, (whiten, rows, own, S, w, removed, spread)


def _project_backward(sizes, saved, cotangents, of_residual=None):
    whiten, rows, own, S, w, removed, spread = saved
    g, v, w_bar, beta_bar, _ = cotangents
    d_m, gram = rows.pulled_back_mean(g), rows.gram(v)
    d_kxx, by_kxx = v.sum(0), gram.sum(0)
    if of_residual is not None:
        # The variances hold the residual, too.
        d_kxx = d_kxx + of_residual
        by_kxx = rows.gram(d_kxx[None])[0]
    d_A = rows.pulled_back_rows(own, spread, g, v, d_kxx)
    from_beta = beta_bar @ whiten.T
    w_total = w_bar - removed * d_m + from_beta
    # The gradient in L: through A = L^-1 Kzx, through w = L^-1 at_Z, and through beta = L^-T w.
    inner = own.T @ d_m + w_total.T @ w + w.T @ from_beta + 2.0 * (rows.product(S, gram).sum(0) - by_kxx)
    # Kzz is symmetric, and so is its derivative: the antisymmetric part of the gradient adds nothing.
    d_Kzz = -whiten.T @ tril_halved(inner) @ whiten
    d_Kzx = upper_product(whiten.T.astype(d_A.dtype), d_A)
    d_kxx = d_kxx.astype(rows.residual.dtype)
    return d_Kzz, d_Kzx, d_kxx, d_m, rows.restricted(gram), w_total @ whiten, jnp.zeros(()), jnp.zeros_like(whiten)


project.defvjp(_project_forward, _project_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(8,))
def project_with_residual(Kzz, Kzx, kxx, m, S, at_Z, removed, whiten, sizes=None):
    """The results of `project`, and the residual (B,) with the derivative of the exact one."""
    moments = project(Kzz, Kzx, kxx, m, S, at_Z, removed, whiten, sizes)
    return *moments, _double(moments[-1].residual)


def _forward_with_residual(*arguments):
    moments, saved = _project_forward(*arguments)
    return (*moments, _double(moments[-1].residual)), saved


def _backward_with_residual(sizes, saved, cotangents):
    return _project_backward(sizes, saved, cotangents[:-1], cotangents[-1])


project_with_residual.defvjp(_forward_with_residual, _backward_with_residual)
