"""The bases of the variational process: inputs -> latent moments and KL.

Salimbeni, Cheng, Boots and Deisenroth (2018). The covariance rests on inducing
points Z (the paper's beta), the mean on these and on further points Z_mean (the
paper's gamma) with weights a. The part on Z is whitened: u = L v, Kzz = L L^T,
q(v) = N(m, S).

orthogonal (eq. 11)
    mean(x) = k_xz Kzz^-1 (L m - Kzg a) + k_xg a
    KL      = KL(N(m, S) || N(0, I)) + 1/2 a^T (Kgg - Kgz Kzz^-1 Kzg) a
hybrid (eq. 10)
    mean(x) = k_xz L^-T m + k_xg a
    KL      = KL(N(m, S) || N(0, I)) + 1/2 a^T Kgg a + m^T L^-1 Kzg a
    both with var(x) = k_xx - k_xz Kzz^-1 k_zx + k_xz L^-T S L^-1 k_zx
decoupled (eq. 8), with B = R R^T
    mean(x) = k_xg a
    var(x)  = k_xx - k_xz R (I + R^T Kzz R)^-1 R^T k_zx

Without mean-only points the first two are the coupled basis.

Points come with masks. A masked point is not there: it has no covariance with
anything. So the number of points can be padded to a size that other data sets
share, and with it the compiled program.

There is one kernel for all latent functions, or one for each: a tuple.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._backend.linalg import cholesky, definite_cholesky, jittered_cholesky, symmetrize, triangular_inverse
from .projection import SMALLEST_VARIANCE, WhitenedRows, project

_MIN_RESIDUAL = 1e-3
# The start of R: "near zero" (appendix E), and not zero, where the gradient vanishes.
_FIRST_ROOT = 1e-2


class Basis(NamedTuple):
    """What a basis is able to do.

    Attributes
    ----------
    natural : bool
        Whether q(v) has natural parameters, and so natural gradients.
    orthogonal : bool
        Whether the mean-only part is orthogonal to the rest, so that it has a
        natural gradient of its own (eq. 15a).
    """

    natural: bool
    orthogonal: bool


BASES = {
    "orthogonal": Basis(natural=True, orthogonal=True),
    "hybrid": Basis(natural=True, orthogonal=False),
    "decoupled": Basis(natural=False, orthogonal=False),
}


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


class Weights(NamedTuple):
    """The variational parameters beside q(v).

    Attributes
    ----------
    a : array of shape (K, G)
        Weights of the mean-only points.
    root : array of shape (K, M, M)
        R of the decoupled basis; (K, 0, 0) in the others.
    """

    a: jax.Array
    root: jax.Array


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


class Dependence(NamedTuple):
    """How latent moments depend on q(v), for latent functions with one kernel.

    Attributes
    ----------
    rows : projection.WhitenedRows
    slope : array of shape (K, M)
        Of the KL divergence in the mean of q(v).
    """

    rows: WhitenedRows
    slope: jax.Array


class Moments(NamedTuple):
    """Latent moments (K, B), and the KL divergence less that of q(v), a scalar.

    ``dependence`` holds a `Dependence` for each kernel; None where q(v) has no part.
    """

    mean: jax.Array
    var: jax.Array
    kl: jax.Array
    dependence: tuple


def first_weights(basis, n_latent, n_inducing, n_mean_inducing):
    """The weights at which training starts: those of the prior, or close to it."""
    size = n_inducing if basis == "decoupled" else 0
    root = np.broadcast_to(_FIRST_ROOT * np.eye(size), (n_latent, size, size)).copy()
    return Weights(np.zeros((n_latent, n_mean_inducing)), root)


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


def moments(basis, kernels, points, masks, weights, m, S, X, jitter, columns=None, known_factors=None):
    """Latent moments at the rows of ``X``.

    Parameters
    ----------
    basis : str
        Name in BASES.
    kernels : tuple of Kernel
    points : Points
    masks : Masks
    weights : Weights
    m, S : arrays of shape (K, M) and (K, M, M)
        Moments of the whitened q(v).
    X : array of shape (B, D)
    jitter : scalar
        Relative to the mean of the diagonal of Kzz.
    columns : array of int of shape (C,), optional
        Random columns of Kgg from which its quadratic form in the KL divergence
        is estimated without bias (appendix A.3); all of them if None.
    known_factors : tuple of Factor, optional
        What `factors` returns, where it is known already.

    Returns
    -------
    moments : Moments
    """
    if basis == "decoupled":
        known_factors = (None,) * len(kernels)
    elif known_factors is None:
        known_factors = factors(kernels, points, masks, jitter)
    parts = []
    for (kernel, latents), factor in zip(by_kernel(kernels, len(m)), known_factors, strict=True):
        own = jax.tree.map(lambda x, latents=latents: x[latents], (weights, m, S))
        if basis == "decoupled":
            parts.append(_decoupled(kernel, points, masks, own[0], X, columns))
        else:
            parts.append(_whitened(basis, kernel, factor, points, masks, *own, X, columns))
    mean, var, kl, dependence = zip(*parts, strict=True)
    return Moments(jnp.concatenate(mean), jnp.concatenate(var), sum(kl), dependence)


def moved(moments, dm, S):
    """The moments after q's mean has changed by ``dm`` (K, M), and its covariance to ``S`` (K, M, M)."""
    mean, var, kl = [], [], moments.kl
    for (rows, slope), latents in by_kernel(moments.dependence, len(dm)):
        mean.append(rows.mean(dm[latents]))
        var.append(rows.var(rows.spread(S[latents])))
        kl = kl + (slope * dm[latents]).sum()
    return moments._replace(mean=moments.mean + jnp.concatenate(mean), var=jnp.concatenate(var), kl=kl)


def pulled_back(moments, v):
    """The gradient in q's covariance (K, M, M) of what has the gradients ``v`` (K, B) in the latent variances."""
    return jnp.concatenate(
        [rows.pulled_back_var(v[latents]) for (rows, _), latents in by_kernel(moments.dependence, len(v))]
    )


def _whitened(basis, kernel, factor, points, masks, weights, m, S, X, columns):
    """The orthogonal and the hybrid basis, for latent functions with one kernel.

    The rows are seen in their own precision, the points in double.
    """
    Kzz = inducing_covariance(kernel, points.Z, masks.Z)
    a = weights.a * masks.Z_mean
    Kgz = kernel(points.Z_mean, points.Z) * masks.Z
    removed = float(basis == "orthogonal")
    row_kernel, (Z, Z_mean) = in_precision_of(X, (kernel, points))
    Kzx = row_kernel(Z, X) * masks.Z.astype(X.dtype)[:, None]
    mean, var, w, beta, rows = project(Kzz, Kzx, row_kernel.diag(X), m, S, a @ Kgz, removed, factor.inverse)
    mean = mean + a.astype(X.dtype) @ row_kernel(Z_mean, X)
    beta = beta * masks.Z if removed else jnp.zeros_like(beta)
    kl = 0.5 * quadratic(kernel, points, a, beta, Kgz, columns)
    if removed:
        return mean, var, kl, Dependence(rows, 0.0 * w)
    return mean, var, kl + (m * w).sum(), Dependence(rows, w)


@jax.custom_jvp
def clipped(var):
    """Variances with what rounds below zero raised to almost zero; the derivative is that of the exact variance."""
    return jnp.maximum(var, SMALLEST_VARIANCE)


@clipped.defjvp
def _(primals, tangents):
    return clipped(*primals), *tangents


def in_precision_of(X, tree):
    """The leaves of ``tree`` as numbers of the type of ``X``."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, X.dtype), tree)


def _decoupled(kernel, points, masks, weights, X, columns):
    """Eq. 8, for latent functions with one kernel; q(v) has no part in it."""
    Kzz = inducing_covariance(kernel, points.Z, masks.Z)
    a = weights.a * masks.Z_mean
    root = weights.root * masks.Z[:, None]
    inverse = _decoupled_inverse(Kzz, root)
    row_kernel, (Z, Z_mean), whiten, weight = in_precision_of(
        X, (kernel, points, inverse @ jnp.swapaxes(root, -1, -2), a)
    )
    T = whiten @ row_kernel(Z, X)
    mean = (weight @ row_kernel(Z_mean, X)).astype(float)
    var = clipped((row_kernel.diag(X) - (T * T).sum(1)).astype(float))
    # S = (I + L^T B L)^-1 has the eigenvalues of (I + R^T Kzz R)^-1.
    trace = (inverse * inverse).sum((-1, -2)) - len(Kzz)
    log_det = 2.0 * jnp.log(jnp.diagonal(inverse, axis1=-2, axis2=-1)).sum(-1)
    Kgz = jnp.zeros((a.shape[1], len(Kzz)))
    mean_part = quadratic(kernel, points, a, jnp.zeros(root.shape[:2]), Kgz, columns)
    return mean, var, 0.5 * (mean_part + (trace - log_det).sum()), None


def _decoupled_inverse(Kzz, root):
    """Inverse Cholesky factors of I + R^T Kzz R: (K, M, M)."""
    inner = jnp.eye(len(Kzz), dtype=Kzz.dtype) + jnp.swapaxes(root, -1, -2) @ Kzz @ root
    return triangular_inverse(cholesky(inner))


def quadratic(kernel, points, a, beta, Kgz, columns=None):
    """a^T f(Z_mean) with f = k_xg a - k_xz beta, summed over the latent functions.

    With ``columns`` its unbiased estimate from f at some of the points. With
    beta = Kzz^-1 Kzg a there is little of f that is not a point's own, and the
    estimate has little variance.
    """
    some = slice(None) if columns is None else columns
    Z_mean, own = points.Z_mean[some], a[:, some]
    f = a @ kernel(points.Z_mean, Z_mean) - beta @ Kgz[some].T
    return (f * own).sum() * (a.shape[1] / max(own.shape[1], 1))


def change_of_mean(basis, kernel, factor, points, masks, a, m, Z_new):
    """What the mean of the part of q(v) changes by between the inducing points and their new places: (K, M).

    In the orthogonal basis that is the whole mean, since the other part vanishes at the
    inducing points wherever they are; for latent functions with one kernel. Differences
    of covariances are taken: of points that stay nothing changes, jitter or not.
    """
    (Z, Z_mean), a = points, a * masks.Z_mean
    change = jnp.zeros_like(m)
    if basis == "orthogonal":
        at_Z = kernel(Z_mean, Z)
        m = m - (a @ at_Z * masks.Z) @ factor.inverse.T
        change = a @ (kernel(Z_mean, Z_new) - at_Z)
    alpha = (m @ factor.inverse) * masks.Z
    return (change + alpha @ (kernel(Z, Z_new) - kernel(Z, Z))) * masks.Z


def prediction_factors(basis, kernels, points, masks, weights, q, jitter):
    """What the latent moments at new inputs need.

    Returns
    -------
    alpha : array of shape (K, M)
        mean(x) = k_xz alpha + k_xg a.
    whiten : array of shape (1 or K, M, M)
    spread : array of shape (K, M, M)
        var(x) = k_xx - |whiten k_zx|^2 + |spread^T whiten k_zx|^2.
    jitter : scalar
        The largest that was needed.
    """
    parts = []
    for kernel, latents in by_kernel(kernels, len(q.mean)):
        own = jax.tree.map(lambda x, latents=latents: x[latents], (weights, q))
        parts.append(_own_prediction_factors(basis, kernel, points, masks, *own, jitter))
    alpha, whiten, spread, used = zip(*parts, strict=True)
    return *map(jnp.concatenate, (alpha, whiten, spread)), jnp.max(jnp.stack(used))


def _own_prediction_factors(basis, kernel, points, masks, weights, q, jitter):
    if basis == "decoupled":
        root = weights.root * masks.Z[:, None]
        inverse = _decoupled_inverse(inducing_covariance(kernel, points.Z, masks.Z), root)
        whiten = inverse @ jnp.swapaxes(root, -1, -2)
        return jnp.zeros_like(q.mean), whiten, jnp.zeros_like(q.cov), jnp.zeros(())
    _, whiten, used = factorise(kernel, points.Z, masks.Z, jitter)
    m = q.mean
    if basis == "orthogonal":
        a = weights.a * masks.Z_mean
        m = m - ((a @ kernel(points.Z_mean, points.Z)) * masks.Z) @ whiten.T
    # From the precision, which every step has kept positive definite: but for rounding, where it is
    # the exponential of a logarithm and its eigenvalues differ by more than numbers have digits.
    root = definite_cholesky(q.precision)
    spread = jnp.swapaxes(triangular_inverse(root), -1, -2)
    return m @ whiten * masks.Z, (whiten * masks.Z)[None], spread, used


def residual_variance(kernel, factor, points, masks):
    """D = diag(Kgg - Kgz Kzz^-1 Kzg), eq. 16: the metric of the mean-only weights, (G,).

    Clamped to a thousandth of the prior variance: a mean-only point that nearly
    coincides with an inducing point has nothing of its own to add.
    """
    A = factor.inverse @ (kernel(points.Z, points.Z_mean) * masks.Z[:, None])
    diag = kernel.diag(points.Z_mean)
    return jnp.maximum(diag - (A * A).sum(0), _MIN_RESIDUAL * diag)


def residual_covariance(kernel, factor, points, masks):
    """Kgg - Kgz Kzz^-1 Kzg with an identity block for masked points: (G, G)."""
    A = factor.inverse @ (kernel(points.Z, points.Z_mean) * masks.Z[:, None])
    mask = masks.Z_mean
    K = (kernel(points.Z_mean, points.Z_mean) - A.T @ A) * (mask[:, None] * mask[None, :])
    return symmetrize(K) + jnp.diag(1.0 - mask)
