"""Displays of calibration: the coverage of predictive intervals, and the integral transform of the targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from .._backend.types import ArrayLike
from ..metrics import interval_coverage
from ..metrics.calibration import share_below
from ..metrics.predictions import predictions_of
from . import _drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The coverages that are drawn by default.
COVERAGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


class IntervalCalibrationDisplay:
    """The observed coverage of predictive intervals against the nominal one.

    Parameters
    ----------
    coverages : ndarray of shape (n_coverages,)
        Nominal coverages.
    observed : ndarray of shape (n_coverages,)
        Shares of the targets inside the intervals.
    n_samples : int
        Number of targets.

    Attributes
    ----------
    figure_ : matplotlib Figure
    ax_ : matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from skgp_natgrad.inspection import IntervalCalibrationDisplay
    >>> display = IntervalCalibrationDisplay(np.array([0.5, 0.9]), np.array([0.4, 0.8]), 100)
    >>> display.n_samples
    100
    """

    figure_: Figure
    ax_: Axes

    def __init__(self, coverages: ArrayLike, observed: ArrayLike, n_samples: int) -> None:
        self.coverages = np.asarray(coverages, dtype=float)
        self.observed = np.asarray(observed, dtype=float)
        self.n_samples = n_samples

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        *,
        coverages: Sequence[float] = COVERAGES,
        ax: Axes | None = None,
        offset: ArrayLike | None = None,
        alpha: ArrayLike | None = None,
        trials: ArrayLike | None = None,
    ) -> Self:
        """Plot the calibration of a fitted regressor on held-out rows.

        Each count is spread over its step of the predicted distribution function. Otherwise intervals between integers
        would hold more than their nominal coverage even if the distribution is right.

        Parameters
        ----------
        estimator : object
            A regressor that `predictive_distribution` takes.
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        coverages : sequence of float
            Nominal coverages.
        ax : matplotlib Axes, default=None
        offset, alpha, trials : array-like, default=None
            What is known of the rows, as in predictions.

        Returns
        -------
        display : IntervalCalibrationDisplay
        """
        found = predictions_of(estimator, X, offset=offset, alpha=alpha, trials=trials)
        if isinstance(found, tuple):
            raise TypeError(
                f"{type(found[0]).__name__} is a classifier; use sklearn.calibration.CalibrationDisplay for its "
                "probabilities."
            )
        pit, below = found._pit(found._targets(y))
        low, high = (
            share_below(
                np.ravel(pit), None if below is None else np.ravel(below), 0.5 + side * np.asarray(coverages)
            ).mean(0)
            for side in (-0.5, 0.5)
        )
        return cls(coverages, high - low, np.size(y)).plot(ax=ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        lower: Sequence[ArrayLike],
        upper: Sequence[ArrayLike],
        coverages: Sequence[float],
        *,
        ax: Axes | None = None,
    ) -> Self:
        """Plot the calibration of given intervals.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        lower, upper : sequence of array-like, of the same shape
            Ends of the intervals of each coverage.
        coverages : sequence of float
            Their nominal coverages.
        ax : matplotlib Axes, default=None

        Returns
        -------
        display : IntervalCalibrationDisplay
        """
        observed = [interval_coverage(y_true, *ends) for ends in zip(lower, upper, strict=True)]
        return cls(coverages, observed, np.size(y_true)).plot(ax=ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw the coverages.

        Parameters
        ----------
        ax : matplotlib Axes, default=None

        Returns
        -------
        display : IntervalCalibrationDisplay
        """
        self.figure_, self.ax_ = _drawing.axes(self, ax)
        ax, nominal = self.ax_, np.linspace(0.0, 1.0, 201)
        band = _drawing.chance(nominal, self.n_samples)
        ax.fill_between(nominal, *band, color=_drawing.GREY, alpha=0.3, linewidth=0, label="chance, 95 %")
        ax.plot([0, 1], [0, 1], color=_drawing.GREY, linewidth=1)
        label = f"{self.n_samples} targets"
        ax.plot(self.coverages, self.observed, "o-", color=_drawing.BLUE, markersize=5, label=label)
        ax.text(0.97, 0.5, "too narrow", transform=ax.transAxes, ha="right", color=_drawing.BLACK, alpha=0.7)
        ax.text(0.03, 0.5, "too wide", transform=ax.transAxes, ha="left", color=_drawing.BLACK, alpha=0.7)
        ax.set(xlabel="nominal coverage", ylabel="observed coverage", xlim=(0, 1), ylim=(0, 1.02))
        ax.legend(loc="upper left", frameon=False)
        _drawing.tidy(ax)
        return self


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class ResidualDisplay:
    """The histogram of the probability integral transform.

    The transform of a target is the predicted probability of a smaller one. It is uniform if the predicted
    distributions are right. A hump in the middle means that they are too wide, high ends mean that they are too narrow,
    and a slope means that the predictions are biased.

    Parameters
    ----------
    pit : ndarray of shape (n_samples,)
        P(Y <= y) of the targets, as from ``predict_cdf``.
    pit_below : ndarray of shape (n_samples,), default=None
        P(Y < y) of counts: each target is then spread over its step.
    n_bins : int, default=20

    Attributes
    ----------
    figure_ : matplotlib Figure
    ax_ : matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from skgp_natgrad.inspection import ResidualDisplay
    >>> ResidualDisplay(np.linspace(0, 1, 100)).n_bins
    20
    """

    figure_: Figure
    ax_: Axes

    def __init__(self, pit: ArrayLike, pit_below: ArrayLike | None = None, n_bins: int = 20) -> None:
        self.pit = np.ravel(np.asarray(pit, dtype=float))
        self.pit_below = None if pit_below is None else np.ravel(np.asarray(pit_below, dtype=float))
        self.n_bins = n_bins

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        *,
        n_bins: int = 20,
        ax: Axes | None = None,
        offset: ArrayLike | None = None,
        alpha: ArrayLike | None = None,
        trials: ArrayLike | None = None,
    ) -> Self:
        """Plot the residuals of a fitted regressor on held-out rows.

        Parameters
        ----------
        estimator : object
            A regressor that `predictive_distribution` takes.
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        n_bins : int, default=20
        ax : matplotlib Axes, default=None
        offset, alpha, trials : array-like, default=None
            What is known of the rows, as in predictions.

        Returns
        -------
        display : ResidualDisplay
        """
        found = predictions_of(estimator, X, offset=offset, alpha=alpha, trials=trials)
        if isinstance(found, tuple):
            raise TypeError(f"{type(found[0]).__name__} is a classifier; ResidualDisplay is for regressors.")
        return cls.from_predictions(*found._pit(found._targets(y)), n_bins=n_bins, ax=ax)

    @classmethod
    def from_predictions(
        cls, pit: ArrayLike, pit_below: ArrayLike | None = None, *, n_bins: int = 20, ax: Axes | None = None
    ) -> Self:
        """Plot given transforms.

        Parameters
        ----------
        pit : array-like of shape (n_samples,) or (n_samples, n_outputs)
            P(Y <= y) of the targets.
        pit_below : array-like of the same shape, default=None
            P(Y < y) of counts.
        n_bins : int, default=20
        ax : matplotlib Axes, default=None

        Returns
        -------
        display : ResidualDisplay
        """
        return cls(pit, pit_below, n_bins).plot(ax=ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw the histogram.

        Parameters
        ----------
        ax : matplotlib Axes, default=None

        Returns
        -------
        display : ResidualDisplay
        """
        self.figure_, self.ax_ = _drawing.axes(self, ax)
        ax, edges = self.ax_, np.linspace(0.0, 1.0, self.n_bins + 1)
        below = share_below(self.pit, self.pit_below, edges[1:-1]).mean(0)
        self.density_ = np.diff(np.r_[0.0, below, 1.0]) * self.n_bins
        low, high = (share * self.n_bins for share in _drawing.chance(1.0 / self.n_bins, len(self.pit)))
        label = f"{len(self.pit)} targets"
        ax.stairs(self.density_, edges, fill=True, color=_drawing.BLUE, alpha=0.55, label=label)
        ax.stairs(self.density_, edges, color=_drawing.BLUE, linewidth=1.5)
        ax.axhspan(low, high, color=_drawing.GREY, alpha=0.3, linewidth=0, label="chance, 95 %")
        ax.axhline(1.0, color=_drawing.BLACK, linewidth=1)
        top = 1.3 * max(self.density_.max(), high)
        ax.set(xlabel="probability integral transform of y", ylabel="density", xlim=(0, 1), ylim=(0, top))
        ax.legend(loc="upper right", ncols=2, frameon=False)
        _drawing.tidy(ax)
        return self
