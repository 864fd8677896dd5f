"""Figure 3 of the orthogonal paper: panel (c) of figure 2 on held-out rows.

    python examples/paper/orthogonal_figure3.py [--quick]

The test log-likelihood (a) and RMSE (b, which the paper calls accuracy) against
seconds of training, from the same fits. The 3droad data is not available; see
orthogonal_figure2.py.
"""

import sys

import _common as common
import _orthogonal_curves as curves

COLUMNS = {"log_density": 4, "rmse": 4, "elbo_per_row": 4, "seconds": 1, "seconds_first_chunk": 1}


def plot(some, args):
    plt = common.pyplot()
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.8))
    for axis, metric in zip(axes, ("log_density", "rmse"), strict=True):
        for record in some:
            x = common.training_seconds(record, record["curve"]["scored_iteration"])
            axis.plot(x, record["curve"][metric], color=curves.COLOURS[record["method"]], label=record["method"])
        axis.set(xlabel="seconds of training", xscale="log")
        axis.legend(fontsize=7)
    axes[0].set_title(f"(a) {args.datasets[0]}: test log-likelihood")
    axes[1].set_title(f"(b) {args.datasets[0]}: test RMSE")
    figure.tight_layout()
    common.save(figure, args, "orthogonal_figure3")


if __name__ == "__main__":
    args = curves.parse(__doc__, "c")
    args.panels = ["c"]
    records, failures = curves.run(args)
    curves.show(records, args, COLUMNS)
    if records["c"]:
        plot(records["c"], args)
    sys.exit(1 if failures else 0)
