"""Kernels for tables of few columns whose targets have a season, to be compared with the kernels of `candidates`.

Rows outside lie between the others: they show a season, but not what follows after the last row. So the season comes
with a linear trend and a smooth function that starts at the longest lengthscale: what goes on, and how surely, is part
of the model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import ConstantKernel, ExpSineSquared

from ..kernels import Columns
from .candidates import matern52_and_linear
from .periods import season
from .view import FEW_COLUMNS

# Of the constant and the lengthscale of the season; and factors of its period within which it is trained.
_BOUNDS, _LENGTHS, _WITHIN = (1e-5, 1e5), (0.1, 1e3), (0.8, 1.25)


class WithSeason(NamedTuple):
    """Matern 5/2, a linear function, and a periodic function of one column, by its position."""

    period: float
    column: int
    n_columns: int

    def __call__(self, length_scale, bounds):
        periods = tuple(self.period * np.asarray(_WITHIN))
        periodic = ExpSineSquared(1.0, self.period, _LENGTHS, periods)
        periodic = periodic if self.n_columns == 1 else Columns(periodic, self.column)
        return matern52_and_linear(length_scale, bounds) + ConstantKernel(1.0, _BOUNDS) * periodic

    def given(self, order):
        """The same where columns have the order given, of which a `View` has another one."""
        return self._replace(column=int(order[self.column]))


def seasonal(view):
    """The kernels with a season that the targets of a `View` show, one for each column that has one."""
    if view.width > FEW_COLUMNS:
        return []
    table, found = view.table, []
    for column in np.flatnonzero(view.varies):
        period = season(table.X[:, column], table.y, table.weight)
        if period is not None:
            found.append(WithSeason(period, int(column), view.width))
    return found
