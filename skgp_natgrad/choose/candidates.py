"""The kernels among which the default kernel is chosen.

Each is built from the lengthscales of the best Matern 5/2, one per column. Rougher kernels start
at longer lengthscales, so that their samples vary about as much.
"""

from __future__ import annotations

import functools
import operator
from typing import NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, ExpSineSquared, Matern

from ..kernels import Columns, Laplacian
from .periods import seasons
from .view import FEW_COLUMNS

# Bounds of the constant factors, in units of the targets' variance.
_BOUNDS = (1e-5, 1e5)
# Share of the variance with which the second term of a sum starts, and a linear one beside three others; then factors
# of lengthscales of other kernels.
_SECOND, _LINEAR = 0.3, 0.1
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
    return matern52(length_scale, bounds) + _linear(_SECOND)


def laplacian(length_scale, bounds):
    """Constant * Laplacian, for functions that change at thresholds of single columns."""
    # Laplacian sums absolute differences, which is more than the root of the sum of squares: hence the ratio.
    rate = 1.0 / length_scale
    ratio = rate.sum() / np.sqrt((rate**2).sum())
    return ConstantKernel(1.0, _BOUNDS) * Laplacian(_within(_ROUGH * ratio * length_scale, bounds), bounds)


def rough_to_linear(length_scale, bounds):
    """Matern 1/2 plus Matern 3/2 plus RBF plus a linear function: one sum in place of a menu of kernels."""
    rough = Matern(_within(_ROUGH * length_scale, bounds), bounds, nu=0.5)
    smooth = RBF(_within(_SMOOTH * length_scale, bounds), bounds)
    terms = (_SECOND, rough), (_SECOND, Matern(length_scale, bounds, nu=1.5)), (_SECOND, smooth)
    terms = [ConstantKernel(share, _BOUNDS) * term for share, term in terms]
    return functools.reduce(operator.add, [*terms, _linear(_LINEAR)])


# Of each tuple the first kernel is fitted first: the others start from its lengthscales. A sum can be as rough and as
# smooth as measurements ask for. Labels, which are regressed here, prefer one term or another, and jump at thresholds.
# Training by steps has one sum, so that fits share their programs; with few inducing points a rough term would act as
# noise: it would take the residuals of the smooth terms and learn nothing.
OF_MEASUREMENTS = matern52, rough_to_linear
# Where neighbours predict measurements, a rough kernel alone may know best how far they tell.
OF_DENSE = *OF_MEASUREMENTS, matern12
OF_LABELS = matern52, rough_and_smooth, laplacian
OF_STEPS = matern52, smooth_sum
# Fewest and most columns. With one column Laplacian equals Matern 1/2. Its sums of absolute differences are no matrix
# product, and with many columns they would take longer than everything else.
COLUMNS = {laplacian: (2, 64)}


def _within(length_scale, bounds):
    return np.clip(length_scale, *bounds)


def _linear(share):
    return ConstantKernel(share, _BOUNDS) * DotProduct(1.0, (1e-3, 1e3))


def _quadratic():
    return DotProduct(1.0, (1e-3, 1e3)) ** 2


def random_walk(length_scale, bounds):
    """Matern 1/2 with lengthscales of at least a standard deviation of their columns, plus a linear function.

    By chance a tenth of that is often more likely for a random walk: forecasts with `rough_trend` return to the line,
    and say so too surely.
    """
    return matern12(length_scale, (np.maximum(bounds[0], 1.0), bounds[1])) + _linear(_SECOND)


def matern52_and_quadratic(length_scale, bounds):
    """Matern 5/2 plus a quadratic function of the columns."""
    return matern52(length_scale, bounds) + ConstantKernel(_SECOND, _BOUNDS) * _quadratic()


def rough_trend(length_scale, bounds):
    """Matern 1/2 plus a linear function of the columns."""
    return matern12(length_scale, bounds) + _linear(_SECOND)


# Kernels for tables of few columns whose targets have a season; they are compared with the others.
#
# Held-out rows lie between the others: they test a season, but not how the function goes on after the last row. So the
# kernel adds a linear trend and a smooth function that starts at the longest lengthscale. These extrapolate, and say
# with what uncertainty.

# Bounds of the lengthscale of a season; and bounds of its period as factors of the period found.
_LENGTHS, _WITHIN = (0.1, 1e3), (0.8, 1.25)


class WithSeason(NamedTuple):
    """A trend, and periodic functions of one column, by its position.

    Attributes
    ----------
    periods : tuple of float
    column, n_columns : int
    trend : callable
        Makes the kernel of the rest.
    grows : bool
        Whether the seasons change in proportion to a quadratic function of the column, which may be nearly linear or
        nearly exponential.
    """

    periods: tuple
    column: int
    n_columns: int
    trend: object = matern52_and_linear
    grows: bool = False

    def __call__(self, length_scale, bounds):
        return functools.reduce(operator.add, map(self._season, self.periods), self.trend(length_scale, bounds))

    def _season(self, period):
        kernel = ExpSineSquared(1.0, period, _LENGTHS, tuple(period * np.asarray(_WITHIN)))
        kernel = kernel * _quadratic() if self.grows else kernel
        return ConstantKernel(1.0, _BOUNDS) * (kernel if self.n_columns == 1 else Columns(kernel, self.column))

    def given(self, order):
        """The same kernel for the user's order of columns; a `View` reorders them."""
        return self._replace(column=int(order[self.column]))


def of_log_errors(kernels):
    """The kernel of the logarithms of squared errors, for a function with these kernels of scikit-learn.

    Functions with seasons are continued beyond their rows, and there errors that grow go on growing.
    """
    parts = [part for kernel in kernels for part in (kernel, *kernel.get_params().values())]
    return random_walk if any(isinstance(part, ExpSineSquared) for part in parts) else matern12


def form(make):
    """What the variants of a kernel have in common: all kernels with seasons are of one form."""
    return WithSeason if isinstance(make, WithSeason) else make


def seasonal(view):
    """Kernels with seasons for each column of a `View` along which the targets show one: with one, and with all.

    The trend may be a random walk or another rough function as well, and seasons may grow with it.
    """
    if view.n_numbers > FEW_COLUMNS:
        return []
    table, found = view.table, []
    for column in view.of_numbers:
        periods = seasons(table.X[:, column], table.y, table.weight)
        made = [WithSeason(tuple(periods[: k + 1]), int(column), view.width) for k in range(len(periods))]
        for one in made[-1:]:
            made = [
                *made,
                *(one._replace(trend=trend) for trend in (random_walk, rough_trend)),
                one._replace(trend=matern52_and_quadratic, grows=True),
            ]
        found += made
    return found
