"""The bases of the variational process: inputs -> latent moments and KL.

Salimbeni, Cheng, Boots and Deisenroth (2018). The covariance uses the inducing points Z (the paper's beta). The mean
uses these and the mean-only points Z_mean (the paper's gamma) with weights a. The part at Z is whitened: u = L v, Kzz =
L L^T, q(v) = N(m, S). Without mean-only points "orthogonal" and "hybrid" are the coupled basis. "solve" (Shi, Titsias
and Mnih 2020) gives a second set of points a covariance as well.

Each basis is a `Basis` in its own file, those but the first in the folder `paper`; the functions here apply it for each
kernel.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..points import by_kernel, factors
from ._record import Basis, Dependence, Moments, Weights
from .orthogonal import ORTHOGONAL

__all__ = [
    "BASES",
    "Basis",
    "Dependence",
    "Moments",
    "Weights",
    "moments",
    "moved",
    "prediction_factors",
    "pulled_back",
    "whole_gram",
]

# The folder `paper` adds its own, as others may.
BASES = {"orthogonal": ORTHOGONAL}


def moments(
    basis, kernels, points, masks, weights, m, S, X, jitter, columns=None, known_factors=None, needs_residual=False
):
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
        The result of `factors`, if it is already known.
    needs_residual : bool
        Whether the residual is requested; bases without natural parameters have none.

    Returns
    -------
    moments : Moments
    """
    if not BASES[basis].natural:
        known_factors = (None,) * len(kernels)
    elif known_factors is None:
        known_factors = factors(kernels, points, masks, jitter)
    parts = []
    for (kernel, latents), factor in zip(by_kernel(kernels, len(m)), known_factors, strict=True):
        own = jax.tree.map(lambda x, latents=latents: x[latents], (weights, m, S))
        parts.append(BASES[basis].moments(kernel, factor, points, masks, *own, X, columns, needs_residual))
    mean, var, kl, dependence, residual = zip(*parts, strict=True)
    moments = Moments(jnp.concatenate(mean), jnp.concatenate(var), sum(kl), dependence)
    if not needs_residual:
        return moments
    of_each = [jnp.broadcast_to(one, own.shape) for one, own in zip(residual, mean, strict=True)]
    return moments._replace(residual=jnp.concatenate(of_each))


def moved(moments, dm, S):
    """The moments after q's mean has changed by ``dm`` (K, M), and its covariance to ``S`` (K, M, M)."""
    mean, var, kl = [], [], moments.kl
    for (rows, slope), latents in by_kernel(moments.dependence, len(dm)):
        mean.append(rows.mean(dm[latents]))
        var.append(rows.var(rows.spread(S[latents])))
        kl = kl + (slope * dm[latents]).sum()
    return moments._replace(mean=moments.mean + jnp.concatenate(mean), var=jnp.concatenate(var), kl=kl)


def pulled_back(moments, v):
    """The gradient in q's covariance (K, M, M), given gradients ``v`` (K, B) in the latent variances."""
    return jnp.concatenate(
        [rows.pulled_back_var(v[latents]) for (rows, _), latents in by_kernel(moments.dependence, len(v))]
    )


def whole_gram(moments, v):
    """A diag(v) A^T (K, M, M) of the rows, for ``v`` (K, B): between all variables of q, also where S is zero."""
    return jnp.concatenate([rows.gram(v[latents]) for (rows, _), latents in by_kernel(moments.dependence, len(v))])


def prediction_factors(basis, kernels, points, masks, weights, q, jitter):
    """The factors from which latent moments at new inputs are computed.

    Returns
    -------
    alpha : array of shape (K, M)
        mean(x) = k_xz alpha + k_xg a.
    whiten : array of shape (1 or K, M, M)
    root_S : array of shape (K, M, M)
        var(x) = k_xx - |whiten k_zx|^2 + |root_S^T whiten k_zx|^2.
    jitter : scalar
        The largest jitter that was needed.
    """
    parts = []
    for kernel, latents in by_kernel(kernels, len(q.mean)):
        own = jax.tree.map(lambda x, latents=latents: x[latents], (weights, q))
        parts.append(BASES[basis].prediction_factors(kernel, points, masks, *own, jitter))
    alpha, whiten, root_S, used = zip(*parts, strict=True)
    return *map(jnp.concatenate, (alpha, whiten, root_S)), jnp.max(jnp.stack(used))
