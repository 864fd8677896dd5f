"""The kernels among which the default kernel is chosen.

Each is built from the lengthscales of the best Matern 5/2, one per column. Rougher kernels start
at longer lengthscales, at which their samples vary as much.
"""

from __future__ import annotations

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern

from ..kernels import Laplacian

# Of constants, in the variance of the targets.
_BOUNDS = (1e-5, 1e5)
# Share of the variance with which the second term of a sum starts.
_SECOND = 0.3
_ROUGH, _SMOOTH = 2.0, 0.7


def matern52(length_scale, bounds):
    """Constant * Matern 5/2."""
    return ConstantKernel(1.0, _BOUNDS) * Matern(length_scale, bounds, nu=2.5)


def matern12(length_scale, bounds):
    """Constant * Matern 1/2, for rough functions."""
    return ConstantKernel(1.0, _BOUNDS) * Matern(_within(_ROUGH * length_scale, bounds), bounds, nu=0.5)


def rough_and_smooth(length_scale, bounds):
    """Matern 1/2 plus RBF, each with lengthscales of its own: some columns may act roughly, others smoothly."""
    rough = Matern(_within(_ROUGH * length_scale, bounds), bounds, nu=0.5)
    smooth = RBF(_within(_SMOOTH * length_scale, bounds), bounds)
    return ConstantKernel(_SECOND, _BOUNDS) * rough + ConstantKernel(1.0, _BOUNDS) * smooth


def smooth_sum(length_scale, bounds):
    """Matern 5/2 plus RBF, each with lengthscales of its own, which few inducing points can resolve."""
    first = Matern(length_scale, bounds, nu=2.5)
    second = RBF(_within(_SMOOTH * length_scale, bounds), bounds)
    return ConstantKernel(_SECOND, _BOUNDS) * first + ConstantKernel(1.0, _BOUNDS) * second


def matern52_and_linear(length_scale, bounds):
    """Matern 5/2 plus a linear function of the columns."""
    linear = ConstantKernel(_SECOND, _BOUNDS) * DotProduct(1.0, (1e-3, 1e3))
    return matern52(length_scale, bounds) + linear


def laplacian(length_scale, bounds):
    """Constant * Laplacian, for functions that change at thresholds of single columns."""
    # Of a sum of absolute values and the root of a sum of squares, the former is larger.
    rate = 1.0 / length_scale
    ratio = rate.sum() / np.sqrt((rate**2).sum())
    return ConstantKernel(1.0, _BOUNDS) * Laplacian(_within(_ROUGH * ratio * length_scale, bounds), bounds)


# The first one is fitted first: the others start from its lengthscales.
CANDIDATES = (matern52, matern12, rough_and_smooth, matern52_and_linear, laplacian)
# Of a model on few inducing points the rough term of a sum is noise: it holds what the other one leaves, and learns
# nothing more.
OF_FEW_POINTS = {rough_and_smooth: smooth_sum}
# Fewest and most columns. Of one column Laplacian is Matern 1/2; and sums of absolute differences are no matrix
# product, so that of many they would take longer than all else.
COLUMNS = {laplacian: (2, 64)}


def _within(length_scale, bounds):
    return np.clip(length_scale, *bounds)
