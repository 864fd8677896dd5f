"""Functions that the displays share: matplotlib, colours, and the range of chance."""

from __future__ import annotations

import numpy as np
from scipy import stats

# Okabe and Ito's colours, which the colour-blind can tell apart.
BLUE, ORANGE, GREY, BLACK = "#0072B2", "#D55E00", "#8C8C8C", "#222222"
SIZE = (6.0, 4.0)


def axes(display, ax, n_rows=1, **options):
    """The figure and the axes to draw into; new ones if ``ax`` is None."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            f"{type(display).__name__}.plot needs matplotlib; install it by pip install matplotlib."
        ) from error
    if ax is None:
        figure, ax = plt.subplots(n_rows, figsize=SIZE, layout="constrained", **options)
        return figure, ax
    if np.size(ax) != n_rows:
        raise ValueError(f"ax must be {n_rows} axes for {type(display).__name__}, but there are {np.size(ax)}.")
    return np.ravel(ax)[0].figure, ax


def chance(share, n_rows):
    """The central 95 % of an observed share in ``n_rows`` independent rows."""
    return stats.binom(n_rows, share).ppf(0.025) / n_rows, stats.binom(n_rows, share).ppf(0.975) / n_rows


def tidy(ax):
    """Remove the frame's upper and right sides."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
