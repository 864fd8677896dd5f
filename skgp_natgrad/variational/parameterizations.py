"""The six parameterizations of a Gaussian.

Salimbeni, Eleftheriadis and Hensman (2018), section 4. Each is a pair of functions,
from and to a `Gaussian`, which holds both the natural parameters and the moments. A
step of finite size depends on the parameterization; the direction of an infinitesimal
natural gradient step does not.

The second natural parameter is the precision here, where the paper has -1/2
times it: the straight lines, and so the steps, are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from .._backend.linalg import block_slices, cholesky, joined_blocks, symmetric_exp, symmetric_log, symmetrize
from . import gaussian


class Parameterization(NamedTuple):
    """Coordinates of K Gaussians: a pair of arrays (K, M) and (K, M, M).

    Attributes
    ----------
    from_gaussian : callable
        `Gaussian` to coordinates.
    to_gaussian : callable
        Coordinates to `Gaussian`; not finite for invalid coordinates.
    unconstrained : bool
        Whether (almost) all coordinates stand for a Gaussian.
    from_natural : callable
        Natural parameters, two arrays, to `Gaussian`.
    """

    from_gaussian: Callable
    to_gaussian: Callable
    unconstrained: bool
    from_natural: Callable = gaussian.from_natural


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


PARAMETERIZATIONS = {
    "natural": Parameterization(
        lambda q: (q.nat1, q.precision),
        lambda xi: gaussian.from_natural(xi[0], symmetrize(xi[1])),
        unconstrained=False,
    ),
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


def within_blocks(name, sizes):
    """The parameterization of this name for Gaussians without covariance between blocks of these sizes.

    Each block has its own coordinates. Coordinates of the whole Gaussian would also keep the blocks
    separate, up to rounding: roots, logarithms and exponentials of block diagonal matrices are block
    diagonal. With own coordinates the cost of a step is only the sum of the blocks' cubes.

    Parameters
    ----------
    name : str
    sizes : tuple of int

    Returns
    -------
    parameterization : Parameterization
        For a single block, the entry of the dictionary.
    """
    whole = PARAMETERIZATIONS[name]
    if len(sizes) == 1:
        return whole

    def from_gaussian(q):
        return _joined([whole.from_gaussian(block) for block in gaussian.blocks(q, sizes)])

    def to_gaussian(xi):
        return gaussian.of_blocks([whole.to_gaussian(block) for block in _split(*xi, sizes)])

    def from_natural(nat1, precision):
        return gaussian.of_blocks([whole.from_natural(*block) for block in _split(nat1, precision, sizes)])

    return Parameterization(from_gaussian, to_gaussian, whole.unconstrained, from_natural)


def _split(first, second, sizes):
    return [(first[:, part], second[:, part, part]) for part in block_slices(sizes)]


def _joined(blocks):
    first, second = zip(*blocks, strict=True)
    return jnp.concatenate(first, axis=-1), joined_blocks(second)
