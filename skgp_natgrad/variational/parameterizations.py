"""The parameterizations of a Gaussian: the coordinates in which a step of q is straight.

Salimbeni, Eleftheriadis and Hensman (2018), section 4, have six. Each is a pair of functions,
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

from .._backend.linalg import block_slices, joined_blocks, symmetrize
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


# The folder `paper` adds the other five, as others may add their own.
PARAMETERIZATIONS = {
    "natural": Parameterization(
        lambda q: (q.nat1, q.precision),
        lambda xi: gaussian.from_natural(xi[0], symmetrize(xi[1])),
        unconstrained=False,
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
