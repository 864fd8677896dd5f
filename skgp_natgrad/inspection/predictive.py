"""The prediction along the only column of X."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from .._backend.types import ArrayLike, Floats
from ..metrics.predictions import predictions_of, unwrapped
from . import _drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# With more inducing points they are drawn as ticks, since triangles would cover each other.
_MANY_POINTS = 60
# How far the grid reaches beyond the data, as a share of their range.
_MARGIN = 0.05


def _inducing_points(estimator, table, grid):
    """The inducing points in the units of the only column of X; None where they are not known.

    Inside a pipeline they are the points of the grid that its earlier steps map to these values, and these steps must
    be monotonic.
    """
    inner, rows = unwrapped(estimator, table)
    points = getattr(inner, "inducing_points_", None)
    if points is None or inner is estimator:
        return None if points is None else points[:, 0]
    values = np.asarray(rows, dtype=float)
    if values.shape != (len(grid), 1):
        return None
    values, points = values[:, 0], points[:, 0]
    if values[0] > values[-1]:
        values, points = -values, -points
    if np.any(np.diff(values) < 0.0) or values[0] == values[-1]:
        return None
    return np.interp(points[(points >= values[0]) & (points <= values[-1])], values, grid)


class PredictiveDisplay:
    """The predictive mean and intervals along one column, with data and inducing points.

    Parameters
    ----------
    grid : ndarray of shape (n_grid,)
        Values of the column.
    y_mean : ndarray of shape (n_grid,)
        Predicted mean.
    intervals : dict of float to pair of ndarrays of shape (n_grid,)
        Lower and upper ends by coverage.
    x, y : ndarray of shape (n_samples,), default=None
        Data.
    inducing_points : ndarray of shape (n_inducing,), default=None
    name : str, default="x"
        Of the column.

    Attributes
    ----------
    figure_ : matplotlib Figure
    ax_ : matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from skgp_natgrad.inspection import PredictiveDisplay
    >>> grid = np.linspace(0, 1, 5)
    >>> display = PredictiveDisplay(grid, grid, {0.9: (grid - 1, grid + 1)})
    >>> list(display.intervals)
    [0.9]
    """

    figure_: Figure
    ax_: Axes

    def __init__(
        self,
        grid: Floats,
        y_mean: Floats,
        intervals: Mapping[float, tuple[Floats, Floats]],
        x: Floats | None = None,
        y: Floats | None = None,
        inducing_points: Floats | None = None,
        name: str = "x",
    ) -> None:
        self.grid = grid
        self.y_mean = y_mean
        self.intervals = intervals
        self.x = x
        self.y = y
        self.inducing_points = inducing_points
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        coverages: Sequence[float] = (0.5, 0.95),
        grid_resolution: int = 300,
        ax: Axes | None = None,
        offset: float | None = None,
        alpha: float | None = None,
        trials: int | None = None,
    ) -> Self:
        """Plot the prediction of a fitted regressor.

        Parameters
        ----------
        estimator : object
            A regressor of one output that `predictive_distribution` takes.
        X : array-like of shape (n_samples, 1)
            Rows of one column.
        y : array-like of shape (n_samples,), default=None
            Targets to draw.
        coverages : sequence of float, default=(0.5, 0.95)
            Of the intervals.
        grid_resolution : int, default=300
            Number of values at which predictions are made.
        ax : matplotlib Axes, default=None
        offset, alpha : float, default=None
            As in predictions, one value for the whole grid.
        trials : int, default=None
            Number of trials, for a plot of the number of successes; one for the whole grid.

        Returns
        -------
        display : PredictiveDisplay
        """
        rows = np.asarray(X, dtype=float)
        if rows.ndim != 2 or rows.shape[1] != 1:
            raise ValueError(
                f"X has the shape {rows.shape}, but PredictiveDisplay draws predictions along a single column. If X "
                "has several columns, use sklearn.inspection.PartialDependenceDisplay."
            )
        margin = _MARGIN * np.ptp(rows)
        grid = np.linspace(rows.min() - margin, rows.max() + margin, grid_resolution)[:, None]
        grid = np.unique(np.vstack([grid, [[rows.min()], [rows.max()]]]), axis=0)
        name = X.columns[0] if hasattr(X, "columns") else "x"
        table = type(X)({name: grid[:, 0]}) if hasattr(X, "columns") else grid
        known = {"offset": offset, "alpha": alpha, "trials": trials}
        for argument, value in known.items():
            if np.ndim(value):
                raise ValueError(f"{argument} must be one number for the whole grid; its shape is {np.shape(value)}.")
        found = predictions_of(estimator, table, **known)
        if isinstance(found, tuple):
            raise TypeError(f"{type(found[0]).__name__} is a classifier; PredictiveDisplay is for regressors.")
        if np.prod(found.shape) > len(grid):
            raise ValueError(f"The estimator predicts {found.shape[1]} outputs; PredictiveDisplay draws one.")
        is_known = any(value is not None for value in known.values())
        mean = np.ravel(found.mean() if is_known else estimator.predict(table))
        intervals = {coverage: tuple(map(np.ravel, found.interval(coverage))) for coverage in coverages}
        points = _inducing_points(estimator, table, grid[:, 0])
        y = None if y is None else np.asarray(y, dtype=float)
        return cls(grid[:, 0], mean, intervals, rows[:, 0], y, points, name).plot(ax=ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw the prediction.

        Parameters
        ----------
        ax : matplotlib Axes, default=None

        Returns
        -------
        display : PredictiveDisplay
        """
        self.figure_, self.ax_ = _drawing.axes(self, ax)
        ax = self.ax_
        if self.y is not None:
            size = np.clip(400.0 / np.sqrt(len(self.y)), 2.0, 25.0) / 2.0
            ax.scatter(self.x, self.y, s=size, color=_drawing.GREY, linewidth=0, label="data", zorder=1)
        for coverage, (lower, upper) in sorted(self.intervals.items(), reverse=True):
            label = f"{100 * coverage:g} % interval"
            alpha = 0.42 - 0.27 * coverage
            ax.fill_between(
                self.grid, lower, upper, color=_drawing.BLUE, alpha=alpha, linewidth=0, label=label, zorder=2
            )
        ax.plot(self.grid, self.y_mean, color=_drawing.BLUE, linewidth=2, label="mean", zorder=3)
        if self.inducing_points is not None:
            at = np.full(len(self.inducing_points), 0.015)
            transform = ax.get_xaxis_transform()
            label, marker = f"{len(at)} inducing point" + "s" * (len(at) != 1), "^" if len(at) <= _MANY_POINTS else "|"
            ax.plot(
                self.inducing_points, at, marker, color=_drawing.ORANGE, transform=transform, label=label, markersize=5
            )
        ax.set(xlabel=self.name, ylabel="y", xlim=(self.grid[0], self.grid[-1]))
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, 1.18), ncols=3, frameon=False, fontsize="small")
        _drawing.tidy(ax)
        return self
