"""How the pictures of both papers are drawn: one colour a method, which the colour-blind tell apart too."""

from __future__ import annotations

import _common as common
import numpy as np

# Okabe and Ito's colours. Natural gradients are blue in both papers; Adam on everything is orange.
BLUE, SKY, ORANGE, VERMILLION, GREEN, PURPLE, BLACK, GREY = (
    *("#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#000000", "#999999"),
)
COLOURS = {
    "ngd": BLUE,
    "ngd+adam": BLUE,
    "adam": ORANGE,
    "gd": GREEN,
    "lbfgs": PURPLE,
    "orthnat": BLUE,
    "orth": SKY,
    "coupled": ORANGE,
    "couplednat": VERMILLION,
    "hybrid": GREEN,
    "decoupled": PURPLE,
    "nothing set": BLACK,
}
# Several runs of one method in a panel, such as Adam at several rates, differ in their line.
DASHES = ("--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))


def pyplot():
    """matplotlib.pyplot without a display, or an explanation."""
    try:
        import matplotlib
    except ImportError:
        raise SystemExit("The picture needs matplotlib: pip install matplotlib") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 10,
            "axes.labelsize": 9,
            "xtick.labelsize": 8,
            "ytick.labelsize": 8,
            "legend.fontsize": 8,
            "legend.frameon": False,
            "lines.linewidth": 1.3,
            "axes.grid": True,
            "grid.color": "0.92",
            "axes.axisbelow": True,
            "figure.constrained_layout.use": True,
        }
    )
    return plt


def zoom(axis, curves, part=0.1):
    """Leave the far start of the curves out of the picture."""
    found = np.concatenate([np.asarray(curve, dtype=float) for curve in curves]) if curves else np.empty(0)
    found = found[np.isfinite(found)]
    if len(found):
        low, high = np.quantile(found, part), found.max()
        axis.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))


def save(figure, args, name):
    """Write a picture into the folder of pictures."""
    args.pictures.mkdir(parents=True, exist_ok=True)
    path = args.pictures / f"{name}{'_quick' if args.quick else ''}.png"
    if args.quick:
        figure.text(0.005, 0.005, "quick version", color=VERMILLION, fontsize=8)
    figure.savefig(path, dpi=110)
    common.progress(f"saved {path}", final=True)


def average_ranks(panels, path):
    """Average ranks of the methods, here (filled) and in the paper on the same data sets (open).

    Parameters
    ----------
    panels : dict of str to (list of str, array, array)
        By title: the methods, their ranks here, and those in the paper.
    path : Path
    """
    figure, axes = pyplot().subplots(1, len(panels), figsize=(3.4 * len(panels), 2.6), squeeze=False)
    for axis, (title, (methods, here, theirs)) in zip(axes[0], panels.items(), strict=True):
        for row, (method, own, other) in enumerate(zip(methods, here, theirs, strict=True)):
            colour = COLOURS[method.removesuffix("300")]
            marker = "s" if method.endswith("300") else "o"
            axis.plot([own, other], [row, row], color=colour, lw=1)
            axis.plot(other, row, marker, mec=colour, mfc="white", ms=7)
            axis.plot(own, row, marker, color=colour, ms=5)
        axis.set(title=title, xlabel="average rank (1 is best)", yticks=range(len(methods)))
        axis.set_yticklabels([method.replace("300", "†") for method in methods])
        axis.invert_yaxis()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    common.progress(f"saved {path}", final=True)
