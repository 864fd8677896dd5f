"""Tables with more columns than rows.

Their rows cannot tell which columns matter: with a lengthscale for each column anything could be fitted. So all columns
have one lengthscale. Such a kernel depends on distances and inner products alone, which stay the same if the rows are
turned, and N rows span at most N directions: the search sees N columns, however many there are.
"""

from __future__ import annotations

import jax
import numpy as np
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct

from .. import kernels
from .._backend.repeated import groups
from .candidates import matern52
from .scale import is_wide
from .view import NOISE_BOUNDS, View, with_columns_of_zeros

# Variance of the linear term at a distance of one lengthscale, and its bounds, in units of the targets' variance.
_LINEAR, _BOUNDS = 0.3, (1e-5, 1e5)


def matern52_and_linear(length_scale, bounds):
    """Matern 5/2 plus a linear function, which has a lengthscale, too: inner products grow with the columns."""
    rate = float(length_scale) ** -2
    linear = ConstantKernel(_LINEAR * rate, tuple(rate * each for each in _BOUNDS)) * DotProduct(1.0, (1e-3, 1e3))
    return matern52(length_scale, bounds) + linear


class WideView(View):
    """The view of a wide table: kernels have one lengthscale for all columns, and rows are turned to what they span.

    Attributes
    ----------
    longest : float
        The root of the sum of all columns' variances.
    """

    # The kernels of a search.
    makes = matern52, matern52_and_linear

    def __init__(self, table, coarse=False, noises=NOISE_BOUNDS, shortest=None):
        super().__init__(table, True, coarse, noises, shortest)
        self.longest = float(self.longest[0])
        X, group = self.table.X, groups(self.table.X)
        turned = np.linalg.qr(X.T, mode="r").T
        # Equal rows stay equal to the bit.
        turned = turned[np.unique(group, return_index=True)[1][group]]
        turned = with_columns_of_zeros(turned)
        self.table, self.varies = self.table._replace(X=turned), np.ptp(turned, axis=0) > 0.0

    def length_scale(self, log_kernel):
        return np.exp(log_kernel.k2.length_scale)

    def _logarithms(self, make, length_scale):
        found = kernels.from_sklearn(make(float(length_scale), self.limits), self.table.X.shape[1])
        return [jax.tree.map(np.log, each) for each in found]


def viewed(table, in_common_unit=False, coarse=False, noises=NOISE_BOUNDS, shortest=None, blocks=()):
    """The `View` of a table with these arguments, or its `WideView`."""
    if is_wide(table.n_rows, table.n_columns, blocks):
        return WideView(table, coarse, noises, shortest)
    return View(table, in_common_unit, coarse, noises, shortest, blocks)
