"""The variational Gaussian q(v) over whitened inducing variables.

`Gaussian` holds both the natural parameters of q and its moments: the natural gradient step updates the natural
parameters (Salimbeni, Eleftheriadis and Hensman 2018, section 4), and the objective uses the moments. One Cholesky
factorisation converts them, and also shows whether the precision is positive definite.
"""

from __future__ import annotations

import functools
import operator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._backend.linalg import block_slices, cholesky, joined_blocks, triangular_inverse


class Gaussian(NamedTuple):
    """K Gaussians N(mean, cov) of dimension M.

    A covariance that is common to all may be stored once: K is then one in its shape. Steps of
    training need it `separate`.

    Attributes
    ----------
    nat1 : array of shape (K, M)
        First natural parameter, precision times mean.
    precision : array of shape (K, M, M)
        Inverse covariance; minus twice the second natural parameter.
    mean : array of shape (K, M)
    cov : array of shape (K, M, M)
    log_det_cov : array of shape (K,)
    """

    nat1: jax.Array
    precision: jax.Array
    mean: jax.Array
    cov: jax.Array
    log_det_cov: jax.Array


def standard(n_latent, size):
    """Return K standard normals, the prior of the whitened inducing variables."""
    return isotropic(np.ones(n_latent), size)


def isotropic(variance, size):
    """Return the normals N(0, variance I) of dimension ``size``, one for each variance (K,)."""
    zeros, identity = np.zeros((len(variance), size)), np.eye(size)
    cov = variance[:, None, None] * identity
    return Gaussian(zeros, identity / variance[:, None, None], zeros.copy(), cov, size * np.log(variance))


def separate(q):
    """The same Gaussians, each with a covariance of its own."""
    n = len(q.mean)
    precision, cov, log_det_cov = (np.repeat(each, n // len(each), 0) for each in (q.precision, q.cov, q.log_det_cov))
    return q._replace(precision=precision, cov=cov, log_det_cov=log_det_cov)


def from_natural(nat1, precision):
    """Return the Gaussian with these natural parameters.

    If a precision is not positive definite, its moments are not finite.
    """
    L = cholesky(precision)
    L_inv = triangular_inverse(L)
    cov = jnp.swapaxes(L_inv, -1, -2) @ L_inv
    mean = jnp.einsum("kij,kj->ki", cov, nat1)
    log_det_cov = -2.0 * jnp.log(jnp.diagonal(L, axis1=-2, axis2=-1)).sum(-1)
    return Gaussian(nat1, precision, mean, cov, log_det_cov)


def blocks(q, sizes):
    """The Gaussians of consecutive blocks of ``q``, between which it has no covariance; a list of `Gaussian`."""
    parts = block_slices(sizes)
    log_dets = [_log_det(q.cov[:, part, part]) for part in parts]
    return [
        Gaussian(q.nat1[:, part], q.precision[:, part, part], q.mean[:, part], q.cov[:, part, part], log_det)
        for part, log_det in zip(parts, log_dets, strict=True)
    ]


def of_blocks(blocks):
    """The Gaussian of these blocks, without covariance between them."""
    nat1, precision, mean, cov, log_det_cov = zip(*blocks, strict=True)
    nat1, mean = (jnp.concatenate(vectors, axis=-1) for vectors in (nat1, mean))
    return Gaussian(nat1, joined_blocks(precision), mean, joined_blocks(cov), sum(log_det_cov))


def _log_det(A):
    return 2.0 * jnp.log(jnp.diagonal(cholesky(A), axis1=-2, axis2=-1)).sum(-1)


def with_mean(q, mean):
    """Return ``q`` with another mean (K, M)."""
    return q._replace(nat1=jnp.einsum("kij,kj->ki", q.precision, mean), mean=mean)


def from_root(mean, root):
    """Return the Gaussian N(mean, root root^T) of lower triangular roots (K, M, M)."""
    inverse = triangular_inverse(root)
    precision = jnp.swapaxes(inverse, -1, -2) @ inverse
    log_det_cov = 2.0 * jnp.log(jnp.abs(jnp.diagonal(root, axis1=-2, axis2=-1))).sum(-1)
    nat1 = jnp.einsum("kij,kj->ki", precision, mean)
    return Gaussian(nat1, precision, mean, root @ jnp.swapaxes(root, -1, -2), log_det_cov)


def is_finite(q):
    """Whether ``q`` is a Gaussian: its precision was positive definite, and none of its coordinates overflows."""
    return functools.reduce(operator.and_, (jnp.all(jnp.isfinite(each)) for each in q))


def kl_to_standard(q):
    """KL(q || N(0, I)), summed over the K Gaussians."""
    size = q.mean.shape[-1]
    trace = jnp.trace(q.cov, axis1=-2, axis2=-1)
    return 0.5 * (trace + (q.mean**2).sum(-1) - size - q.log_det_cov).sum()
