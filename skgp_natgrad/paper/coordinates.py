"""Five more parameterizations of a Gaussian: roots and logarithms, of natural parameters and of moments.

Salimbeni, Eleftheriadis and Hensman (2018), section 4.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .._backend.linalg import cholesky, one_by_one, symmetrize
from ..variational import gaussian
from ..variational.parameterizations import Parameterization


@jax.custom_jvp
def symmetric_exp(A):
    """Matrix exponential of the symmetric matrices ``A`` (..., M, M)."""
    return _of_eigenvalues(A, jnp.exp)[0]


@symmetric_exp.defjvp
def _(primals, tangents):
    def divided_difference(a, b):
        half = 0.5 * (a - b)
        sinhc = jnp.where(half == 0.0, 1.0, jnp.sinh(half) / jnp.where(half == 0.0, 1.0, half))
        return jnp.exp(0.5 * (a + b)) * sinhc

    return _daleckii_krein(jnp.exp, divided_difference, *primals, *tangents)


@jax.custom_jvp
def symmetric_log(A):
    """Matrix logarithm of the symmetric positive definite matrices ``A`` (..., M, M)."""
    return _of_eigenvalues(A, jnp.log)[0]


@symmetric_log.defjvp
def _(primals, tangents):
    def divided_difference(a, b):
        # log(a / b) = 2 artanh((a - b) / (a + b)) has no cancellation where a is close to b.
        t = (a - b) / (a + b)
        small = jnp.abs(t) < 0.5
        near = jnp.where(small, t, 0.0)
        artanhc = jnp.where(near == 0.0, 1.0, jnp.arctanh(near) / jnp.where(near == 0.0, 1.0, near))
        far = (jnp.log(a) - jnp.log(b)) / jnp.where(small, 1.0, a - b)
        return jnp.where(small, 2.0 * artanhc / (a + b), far)

    return _daleckii_krein(jnp.log, divided_difference, *primals, *tangents)


def _of_eigenvalues(A, function):
    values, vectors = one_by_one(jnp.linalg.eigh)(A)
    return (vectors * function(values)[..., None, :]) @ jnp.swapaxes(vectors, -1, -2), values, vectors


def _daleckii_krein(function, divided_difference, A, dA):
    """The derivative of a function of eigenvalues, defined at repeated ones as well.

    Daleckii and Krein (1965): in the eigenvectors' basis the tangent is
    multiplied by the function's divided differences. Differentiating ``eigh``
    itself divides by zero where eigenvalues coincide.
    """
    result, values, vectors = _of_eigenvalues(A, function)
    transposed = jnp.swapaxes(vectors, -1, -2)
    inner = transposed @ dA @ vectors * divided_difference(values[..., :, None], values[..., None, :])
    return result, vectors @ inner @ transposed


def _from_logarithm(first, log_precision, of_gaussian):
    """The Gaussian whose precision has this matrix logarithm."""
    log_precision = symmetrize(log_precision)
    precision, cov = symmetric_exp(log_precision), symmetric_exp(-log_precision)
    nat1, mean = of_gaussian(first, precision, cov)
    log_det_cov = -jnp.trace(log_precision, axis1=-2, axis2=-1)
    # Of a wider range a matrix has no logarithm in double precision: the next step could not start there.
    condition = jnp.abs(precision).max((-2, -1)) * jnp.abs(cov).max((-2, -1))
    log_det_cov = jnp.where(condition < 1.0 / jnp.finfo(float).eps, log_det_cov, jnp.nan)
    return gaussian.Gaussian(nat1, precision, mean, cov, log_det_cov)


def _apply(A, x):
    return jnp.einsum("kij,kj->ki", A, x)


def _natural_sqrt_to_gaussian(xi):
    # The Gaussian with natural parameters and moments exchanged.
    nat1, root = xi[0], jnp.tril(xi[1])
    mirrored = gaussian.from_root(nat1, root)
    return gaussian.Gaussian(nat1, mirrored.cov, mirrored.nat1, mirrored.precision, -mirrored.log_det_cov)


COORDINATES = {
    "natural_sqrt": Parameterization(
        lambda q: (q.nat1, cholesky(symmetrize(q.precision))),
        _natural_sqrt_to_gaussian,
        unconstrained=True,
    ),
    "natural_log": Parameterization(
        lambda q: (q.nat1, symmetric_log(q.precision)),
        lambda xi: _from_logarithm(*xi, lambda nat1, precision, cov: (nat1, _apply(cov, nat1))),
        unconstrained=True,
    ),
    "mean_var": Parameterization(
        lambda q: (q.mean, q.cov),
        lambda xi: gaussian.from_root(xi[0], cholesky(symmetrize(xi[1]))),
        unconstrained=False,
    ),
    "mean_var_sqrt": Parameterization(
        lambda q: (q.mean, cholesky(symmetrize(q.cov))),
        lambda xi: gaussian.from_root(xi[0], jnp.tril(xi[1])),
        unconstrained=True,
    ),
    "mean_var_log": Parameterization(
        lambda q: (q.mean, symmetric_log(q.cov)),
        lambda xi: _from_logarithm(xi[0], -xi[1], lambda mean, precision, cov: (_apply(precision, mean), mean)),
        unconstrained=True,
    ),
}
