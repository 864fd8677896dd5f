"""The relevance and the lengthscales of the columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._backend.types import ArrayLike
from ..estimators.rows.encoding import column_names
from ..metrics.predictions import unwrapped
from . import _drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Bars for which the axis has room at least.
_FEWEST_BARS = 5


class RelevanceDisplay:
    """The relevance of the columns, with their lengthscales in their own units.

    A lengthscale is the distance along a column over which the function changes. Lengthscales of columns in different
    units cannot share an axis. So the bars are ``feature_importances_``, and the numbers beside them are the shortest
    lengthscale of each column.

    Parameters
    ----------
    importances : ndarray of shape (n_features,)
        Relevance of each column.
    names : sequence of str
        Of the columns.
    length_scales : dict of str to float, default=None
        Lengthscales by the names of the columns.

    Attributes
    ----------
    figure_ : matplotlib Figure
    ax_ : matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from skgp_natgrad.inspection import RelevanceDisplay
    >>> display = RelevanceDisplay(np.array([0.9, 0.1]), ["age", "size"], {"age": 12.0})
    >>> display.names
    ['age', 'size']
    """

    figure_: Figure
    ax_: Axes

    def __init__(
        self, importances: ArrayLike, names: Sequence[str], length_scales: Mapping[str, float] | None = None
    ) -> None:
        self.importances = np.asarray(importances, dtype=float)
        self.names = list(names)
        self.length_scales = length_scales or {}

    @classmethod
    def from_estimator(cls, estimator: Any, *, max_features: int = 15, ax: Axes | None = None) -> Self:
        """Plot the relevance of the columns to a fitted estimator.

        Parameters
        ----------
        estimator : NGDSVGPRegressor or NGDSVGPClassifier
            Fitted; also inside a Pipeline or a search, where columns are those that the last step sees.
        max_features : int, default=15
            The most relevant columns are shown.
        ax : matplotlib Axes, default=None

        Returns
        -------
        display : RelevanceDisplay
        """
        found = unwrapped(estimator)[0]
        check_is_fitted(found, "kernel_")
        names = column_names(found)
        scales = {}
        for term in found.summary().terms:
            for factor in term.factors:
                if factor.quantity == "length_scale":
                    for name, value in factor.by_column.items():
                        scales[name] = min(value, scales.get(name, np.inf))
        order = np.argsort(found.feature_importances_)[::-1][:max_features]
        return cls(found.feature_importances_[order], [names[i] for i in order], scales).plot(ax=ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw the bars.

        Parameters
        ----------
        ax : matplotlib Axes, default=None

        Returns
        -------
        display : RelevanceDisplay
        """
        self.figure_, self.ax_ = _drawing.axes(self, ax)
        ax, place = self.ax_, np.arange(len(self.names))
        ax.barh(place, self.importances, color=_drawing.BLUE, height=0.7)
        for y, (name, value) in enumerate(zip(self.names, self.importances, strict=True)):
            if name in self.length_scales:
                text = f" lengthscale {self.length_scales[name]:.3g}"
                ax.text(value, y, text, va="center", color=_drawing.BLACK, fontsize="small")
        ax.set_yticks(place, self.names)
        # The first column on top; the bars of few columns are not the higher for it.
        missing = max(0, _FEWEST_BARS - len(self.names)) / 2.0
        ax.set_ylim(len(self.names) - 0.5 + missing, -0.5 - missing)
        # Room for the numbers.
        ax.set(xlabel="relevance", xlim=(0.0, 1.45 * max(self.importances.max(), 1e-12)))
        _drawing.tidy(ax)
        return self
