"""The course of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._backend.types import ArrayLike, NDArray
from ..metrics.predictions import unwrapped
from . import _drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Iterations that the smoothed curve averages, as a share of all.
_SMOOTHED = 0.05
# The first iterations rise from far below: the axis shows what comes after this share of them.
_FIRST = 0.1


class TrainingDisplay:
    """The bound and the natural gradient's step size in every iteration.

    Parameters
    ----------
    elbo : ndarray of shape (n_iter,)
        The bound; of minibatches, if training used them.
    step_sizes : ndarray of shape (n_iter,)
        Natural gradient step sizes; NaN or zero where there were none.
    n_rejected : int, default=0
        Number of steps that were replaced by safe ones.
    n_clipped : int, default=0
        Number of steps that were shortened.

    Attributes
    ----------
    figure_ : matplotlib Figure
    axes_ : ndarray of two matplotlib Axes
        That of the bound, and that of the step sizes.

    Examples
    --------
    >>> import numpy as np
    >>> from skgp_natgrad.inspection import TrainingDisplay
    >>> display = TrainingDisplay(elbo=-np.exp(-np.arange(100) / 20), step_sizes=np.full(100, 0.1))
    >>> len(display.elbo)
    100
    """

    figure_: Figure
    axes_: NDArray[Any]

    def __init__(self, elbo: ArrayLike, step_sizes: ArrayLike, n_rejected: int = 0, n_clipped: int = 0) -> None:
        self.elbo = np.asarray(elbo, dtype=float)
        self.step_sizes = np.asarray(step_sizes, dtype=float)
        self.n_rejected = n_rejected
        self.n_clipped = n_clipped

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Sequence[Axes] | NDArray[Any] | None = None) -> Self:
        """Plot the training of a fitted estimator.

        Parameters
        ----------
        estimator : NGDSVGPRegressor or NGDSVGPClassifier
            Fitted; also inside a Pipeline or a search.
        ax : pair of matplotlib Axes, default=None

        Returns
        -------
        display : TrainingDisplay
        """
        found = unwrapped(estimator)[0]
        check_is_fitted(found, "elbo_curve_")
        return cls(found.elbo_curve_, found.step_sizes_, found.n_rejected_steps_, found.n_clipped_steps_).plot(ax=ax)

    def plot(self, ax: Sequence[Axes] | NDArray[Any] | None = None) -> Self:
        """Draw the curves.

        Parameters
        ----------
        ax : pair of matplotlib Axes, default=None

        Returns
        -------
        display : TrainingDisplay
        """
        self.figure_, self.axes_ = _drawing.axes(self, ax, 2, sharex=True, height_ratios=[3, 2])
        bound, steps = self.axes_
        iteration = np.arange(1, len(self.elbo) + 1)
        marker = "o" if len(self.elbo) == 1 else None
        bound.plot(iteration, self.elbo, color=_drawing.BLUE, alpha=0.35, linewidth=1, marker=marker, label="iteration")
        width = max(1, round(_SMOOTHED * len(self.elbo)))
        if width > 1:
            smooth = np.convolve(self.elbo, np.ones(width) / width, mode="valid")
            bound.plot(iteration[width // 2 :][: len(smooth)], smooth, color=_drawing.BLUE, label=f"mean of {width}")
            bound.legend(loc="lower right", frameon=False)
        self._set_range(bound)
        bound.set(ylabel="ELBO", title=f"ELBO at the end {self.elbo[-1]:.6g}")
        shown = np.where(self.step_sizes > 0, self.step_sizes, np.nan)
        steps.plot(iteration, shown, color=_drawing.ORANGE, linewidth=1, marker=marker)
        if np.any(shown > 0):
            steps.set_yscale("log")
        steps.set_title(f"{self.n_rejected} steps rejected, {self.n_clipped} shortened", fontsize="small", loc="right")
        steps.set(xlabel="iteration", ylabel="step size")
        steps.xaxis.get_major_locator().set_params(integer=True)
        if len(self.elbo) == 1:
            # Two dots alone look like a mistake.
            bound.set(xlim=(0.0, 2.0), title=f"A single step, to ELBO {self.elbo[-1]:.6g}: there is no course to show")
        for each in self.axes_:
            _drawing.tidy(each)
        return self

    def _set_range(self, bound):
        """Let the first iterations leave the axis if they are far below the others."""
        rest = self.elbo[int(_FIRST * len(self.elbo)) :]
        height = rest.max() - rest.min()
        if height > 0 and self.elbo.min() < rest.min() - height:
            bound.set_ylim(rest.min() - 0.2 * height, rest.max() + 0.1 * height)
