"""Figure 2 of the orthogonal paper: training curves in three settings.

    python examples/paper/orthogonal_figure2.py [--quick] [--panels a b c]

(a) Gaussian and (b) Bernoulli likelihood with 500 points of covariance and 500 of
the mean, fixed hyperparameters and full batches; (c) the bound against seconds
with 1500 and 3500 points, the coupled bases with 2000. The 3droad data of panels
(a) and (c) is not available: protein stands for it, or ``--datasets nycflights``;
(b) is ringnorm. The optimum of (a) is that of the paper's appendix D.
"""

import sys

import _common as common
import _orthogonal_curves as curves

COLUMNS = {"elbo_per_row": 4, "optimum_per_row": 4, "seconds": 1, "seconds_first_chunk": 1}


def plot(records, args):
    plt = common.pyplot()
    figure, axes = plt.subplots(1, len(records), figsize=(4.8 * len(records), 3.8), squeeze=False)
    for axis, (panel, some) in zip(axes[0], records.items(), strict=True):
        curves.plot_bound(axis, panel, some, args)
    figure.tight_layout()
    common.save(figure, args, curves.STEM)


if __name__ == "__main__":
    args = curves.parse(__doc__, "abc")
    records, failures = curves.run(args)
    curves.show(records, args, COLUMNS)
    if any(records.values()):
        plot(records, args)
    sys.exit(1 if failures else 0)
