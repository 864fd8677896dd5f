"""The past posterior: earlier data as a Gaussian factor of the latent functions at the old inducing points.

Bui, Nguyen and Turner (2017), "Streaming sparse Gaussian process approximations",
section 3: in the bound of the next rows, the earlier rows are represented by

    E_q[log q_old(u_old) / p_old(u_old)],    u_old = f(Z_old) under the new q

Both densities are Gaussian, so their ratio is Gaussian too, for every likelihood. In the old whitened coordinates v =
L_old^-1 f(Z_old), where p_old is N(0, I),

    log q_old(v) / p_old(v) = constant + t^T v - 1/2 v^T T v
    t = S_old^-1 m_old,   T = S_old^-1 - I

The new q, with other points and another kernel, gives v the moments

    E[v] = B^T m,   Cov[v] = W - B^T B + B^T S B
    B = L^-1 K(Z, Z_old) L_old^-T,   W = L_old^-1 K(Z_old, Z_old) L_old^-T

so that in the present whitened coordinates the past is Gaussian again: B t and
B T B^T, minus 1/2 tr(T (W - B^T B)) for the variance that the present points do not explain.

The jitter of an inducing variable belongs to it: K(Z_old, Z_old) contains it, and so
does K(Z, Z_old) where a present point continues an old one. With unchanged kernel and
points B is then the identity, and no information is lost.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from .._backend.linalg import cholesky, jittered_cholesky
from . import gaussian, points


class PastPosterior(NamedTuple):
    """The factor of earlier data on v = whiten f(Z), for K latent functions.

    Attributes
    ----------
    Z : array of shape (M_old, D)
    factors : tuple of Factor
        Of each kernel, with L_old^-1; its columns of masked points are zero.
    nat1 : array of shape (K, M_old)
        t, the first natural parameter.
    precision : array of shape (K, M_old, M_old)
        T, positive semidefinite.
    constant : array of shape ()
    goes_on : array of shape (M, M_old)
        One where a present point continues an old one, else zero.
    """

    Z: jax.Array
    factors: tuple[points.Factor, ...]
    nat1: jax.Array
    precision: jax.Array
    constant: jax.Array
    goes_on: jax.Array


class ProjectedPast(NamedTuple):
    """A past posterior in the present whitened coordinates: (K, M), (K, M, M) and a scalar."""

    nat1: jax.Array
    precision: jax.Array
    constant: jax.Array


def of_posterior(Z_old, factors, q, Z, is_concave=False):
    """Return the `PastPosterior` of the data that led from the prior to ``q``, for points starting at ``Z``; in NumPy.

    If a likelihood is not log-concave T may have negative eigenvalues, and under
    another kernel the result might not be a Gaussian. They are set to zero, with the
    mean of q held. If it ``is_concave`` this would remove only rounding, in the time of an eigendecomposition.
    """
    if is_concave:
        T, nat1, log_det = q.precision - np.eye(q.mean.shape[-1]), q.nat1, -q.log_det_cov.sum()
    else:
        values, vectors = _spectrum(q)
        T = (vectors * values[:, None, :]) @ np.swapaxes(vectors, -1, -2)
        nat1, log_det = q.mean + np.einsum("kij,kj->ki", T, q.mean), np.log1p(values).sum()
    constant = 0.5 * (log_det - (nat1 * q.mean).sum())
    goes_on = np.ones((len(Z), len(Z_old)), bool)
    for column, old in zip(Z.T, Z_old.T, strict=True):
        goes_on &= column[:, None] == old
    # If several points coincide, or are padding, each continues one old point: the first the first, and so on.
    goes_on &= np.cumsum(goes_on, axis=0) == np.cumsum(goes_on, axis=1)
    return PastPosterior(Z_old, tuple(factors), nat1, T, constant, goes_on.astype(float))


def in_units(q, ratio):
    """What the earlier rows say, where the latent functions are ``ratio`` (K,) times what they were; in NumPy.

    Under the same prior of v = L_old^-1 f(Z_old), whose factor is exp(t^T v / ratio - v^T T v / (2 ratio^2)).
    """
    values, vectors = _spectrum(q)
    ratio = np.reshape(ratio, (-1, 1))
    along = np.einsum("kji,kj->ki", vectors, q.mean) * (1.0 + values) / ratio
    values = 1.0 + values / ratio**2
    turned = np.swapaxes(vectors, -1, -2)
    precision, cov = ((vectors * each[:, None, :]) @ turned for each in (values, 1.0 / values))
    nat1, mean = (np.einsum("kij,kj->ki", vectors, each) for each in (along, along / values))
    return gaussian.Gaussian(nat1, precision, mean, cov, -np.log(values).sum(-1))


def _spectrum(q):
    """Eigenvalues of T, those below zero set to zero, and eigenvectors."""
    values, vectors = np.linalg.eigh(q.precision)
    return np.maximum(values - 1.0, 0.0), vectors


def project(past, kernels, Z, mask, jitter):
    """The past posterior as a function of the inducing variables at ``Z``; differentiable in kernels and ``Z``.

    Parameters
    ----------
    past : PastPosterior
    kernels : tuple of Kernel
    Z, mask : arrays of shape (M, D) and (M,)
    jitter : scalar
        Relative, as in `points.factorise`.

    Returns
    -------
    projected : ProjectedPast
    """
    shifts, precisions, constant = [], [], past.constant
    for (kernel, latents), factor in zip(points.by_kernel(kernels, len(past.nat1)), past.factors, strict=True):
        t, T = past.nat1[latents], past.precision[latents]
        B, unexplained = _projection(kernel, Z, mask, past.Z, past.goes_on, factor.inverse, jitter)
        shifts.append(t @ B.T)
        precisions.append(B @ T @ B.T)
        constant = constant - 0.5 * (T * unexplained).sum()
    return ProjectedPast(jnp.concatenate(shifts), jnp.concatenate(precisions), constant)


def _projection(kernel, Z, mask, Z_old, goes_on, whiten, jitter):
    """B (M, M_old), and W - B^T B (M_old, M_old)."""
    Kzz = points.inducing_covariance(kernel, Z, mask)
    # The loop that finds the jitter has no reverse-mode derivative; the factorisation with that jitter has one.
    fixed = jax.lax.stop_gradient(Kzz)
    used = jittered_cholesky(fixed, points.absolute_jitter(fixed, mask, jitter))[1]
    L = cholesky(Kzz + used * jnp.eye(len(Kzz), dtype=Kzz.dtype))
    across = (kernel(Z, Z_old) + used * goes_on) * mask[:, None]
    B = solve_triangular(L, across @ whiten.T, lower=True)
    among = kernel(Z_old, Z_old) + used * jnp.eye(len(Z_old))
    return B, whiten @ among @ whiten.T - B.T @ B


def expectation(projected, m, S):
    """E[log q_old / p_old] under q = N(m, S), summed over the K latent functions."""
    nat1, precision, constant = projected
    second = S + m[:, :, None] * m[:, None, :]
    return constant + (nat1 * m).sum() - 0.5 * (precision * second).sum()


@jax.jit
def best_q(past, kernels, Z, mask, jitter):
    """The best q at ``Z`` before any new row: the prior times the past posterior's factor."""
    here = project(past, kernels, Z, mask, jitter)
    return gaussian.from_natural(here.nat1, jnp.eye(len(Z)) + here.precision)
