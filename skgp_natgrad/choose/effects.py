"""The random effect of a category: a term of its own beside a kernel of all columns.

In a product of all columns, levels may share what they have in common, but a prior that holds for every level, also for
one that no row has, comes from a term that only asks whether two rows have the same level.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from ..kernels import Columns

# Share of the targets' variance with which an effect starts, and the bounds of its variance.
_SHARE, _BOUNDS = 0.1, (1e-5, 1e5)
# Lengthscale as a multiple of a column's range, and bounds as multiples of it: two levels are root two apart, and their
# correlation is at most exp(-1 / .16).
_LENGTH, _WITHIN = 0.2, (0.5, 2.0)
# Effects at most, of the categories with the most levels, as each takes about as long as the rest of the kernel.
MOST = 4


class WithEffects(NamedTuple):
    """A function that makes a kernel with the effects of some blocks of columns, by their positions.

    Attributes
    ----------
    make : callable
        One of `candidates`.
    blocks : tuple of tuple of int
    ranges : tuple of float
        The distance between zero and one in the columns of each block.
    """

    make: object
    blocks: tuple
    ranges: tuple

    def __call__(self, length_scale, bounds):
        kernel = self.make(length_scale, bounds)
        for block, size in zip(self.blocks, self.ranges, strict=True):
            length = _LENGTH * size
            same = Columns(RBF(length, (_WITHIN[0] * length, _WITHIN[1] * length)), list(block))
            kernel = kernel + ConstantKernel(_SHARE, _BOUNDS) * same
        return kernel

    def given(self, order):
        """The same kernel for the user's order of columns; a `View` reorders them."""
        make = self.make.given(order) if hasattr(self.make, "given") else self.make
        return self._replace(
            make=make, blocks=tuple(tuple(sorted(int(order[k]) for k in block)) for block in self.blocks)
        )


def is_effect(kernel):
    """Whether a kernel without its constant is the effect of a category, and not a season along a column."""
    return isinstance(kernel, Columns) and isinstance(kernel.kernel, RBF)


def with_few_levels(log_prior, n_levels):
    """``log_prior`` times (s^2)^(1 - 1 / G) for the variance s^2 of the effect of each category with G levels.

    A further level's effect has Student's t distribution with G - 1 degrees of freedom, with s^2 averaged over what G
    levels tell. The variance of largest evidence alone is that of the levels themselves, too small for one more of
    them; at the largest of this product, the normal quantiles are about those of the t. The prior also avoids a
    variance of zero (Chung, Rabe-Hesketh, Dorie, Gelman and Liu 2013).

    Parameters
    ----------
    log_prior : callable
        See `view.weak_prior`: of a vector whose last number is the noise, behind variance and lengthscale of effects.
    n_levels : sequence of int
        Those of the effects in the order of `WithEffects`.

    Returns
    -------
    log_prior : callable
    """
    powers = 1.0 - 1.0 / np.maximum(n_levels, 1)
    places = -1 - 2 * np.arange(len(powers), 0, -1)

    def both(x):
        value, slope = log_prior(x)
        slope = np.array(slope)
        slope[places] += powers
        return value + float(powers @ x[places]), slope

    return both
