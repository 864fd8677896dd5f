"""The histogram of the probability integral transform of the targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from .._backend.types import ArrayLike
from ..metrics.calibration import share_below
from ..metrics.predictions import predictions_of
from . import _drawing

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
            A regressor that predicts a distribution; also inside a Pipeline, a search or a TransformedTargetRegressor.
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
        return cls.from_predictions(*found.cdf(np.asarray(y, dtype=float)), n_bins=n_bins, ax=ax)

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
