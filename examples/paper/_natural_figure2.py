"""Figure 2 of the natural gradient paper, and 8 to 13 of its supplement: line search.

    python examples/paper/figures.py natural2 [--quick]
    python examples/paper/figures.py natural2 --parameterization natural_log --seeds 0 1 2 3 4

Hyperparameters are fixed and the batch is full; every iteration searches its step
size by Brent's method. Upper row: the bound. Lower row: the step sizes. The
second form draws a figure of the supplement: 8 natural, 9 natural_sqrt,
10 natural_log, 11 mean_var, 12 mean_var_sqrt, 13 mean_var_log. L-BFGS is left out
of natural and mean_var, which hold values that stand for no Gaussian.
"""

import _common as common
import _natural as natural
import _pictures as pictures
import numpy as np

METHODS = ("ngd", "adam", "gd", "lbfgs")
PARAMETERIZATIONS = ("natural", "natural_sqrt", "natural_log", "mean_var", "mean_var_sqrt", "mean_var_log")
STEM = "natural2"


def parse(argv=None):
    p = natural.add_arguments(common.parser(__doc__, natural.THREE, METHODS))
    p.add_argument("--parameterization", nargs="+", choices=PARAMETERIZATIONS, default=["mean_var_sqrt", "natural"])
    args = p.parse_args(argv)
    args.datasets = args.datasets or list(natural.THREE)
    args.max_iter = args.max_iter or (15 if args.quick else 100)
    if args.quick:
        args.n_inducing = min(args.n_inducing, 30)
        args.max_rows = args.max_rows or 300
    return args


def cell(dataset, method, parameterization, seed, args):
    made = natural.settings(args, likelihood=natural.THREE[dataset], batch_size=None)
    chosen = natural.method_settings(method, False, "line_search", "line_search", parameterization)
    # Without other parameters to train, the rate of Adam and gradient descent is q's own.
    chosen["learning_rate"] = "line_search" if method in ("adam", "gd") else None
    return common.cell(STEM, dataset, method, seed, **made, **chosen)


def plot(records, args):
    plt = pictures.pyplot()
    panels = [(name, dataset) for name in args.parameterization for dataset in args.datasets]
    figure, axes = plt.subplots(2, len(panels), figsize=(3.1 * len(panels), 5.2), squeeze=False, sharex=True)
    for (upper, lower), (name, dataset) in zip(axes.T, panels, strict=True):
        chosen = [r for r in records if r["dataset"] == dataset and r["settings"]["parameterization"] == name]
        for record in chosen:
            colour = pictures.COLOURS[record["method"]]
            # The curve of L-BFGS starts after its first iteration, the others before it.
            iteration = np.asarray(record["curve"]["bound_iteration"]) + (2 if record["method"] == "lbfgs" else 1)
            upper.plot(iteration, record["curve"]["bound_per_row"], color=colour, lw=1)
            steps = record["curve"].get("step_sizes", [])
            lower.plot(np.arange(1, len(steps) + 1), steps, ".-", color=colour, lw=0.7, ms=3)
        pictures.zoom(upper, [record["curve"]["bound_per_row"] for record in chosen], part=0.02)
        upper.set_title(f"{dataset}, {natural.THREE[dataset]}\n{name}", fontsize=9)
        lower.set(xlabel="iteration", xscale="log")
        if any(record["curve"].get("step_sizes") for record in chosen):
            lower.set_yscale("log")
        else:
            lower.text(0.5, 0.5, "not recorded", ha="center", transform=lower.transAxes)
    axes[0, 0].set_ylabel("bound, nats a row")
    axes[1, 0].set_ylabel("step size")
    for method in args.methods:
        axes[0, 0].plot([], [], color=pictures.COLOURS[method], label=natural.NAMES[method])
    axes[0, 0].legend(fontsize=8)
    default = args.parameterization == ["mean_var_sqrt", "natural"]
    pictures.save(figure, args, STEM if default else "_".join([STEM, *args.parameterization]))


def main(argv=None):
    args = parse(argv)
    cells = [
        cell(dataset, method, name, seed, args)
        for name in args.parameterization
        for dataset in args.datasets
        for method in args.methods
        if method != "lbfgs" or name.endswith(("_sqrt", "_log"))
        for seed in args.seeds
    ]
    records, failures = natural.run(cells, args, STEM, n_scores=0)
    for name in args.parameterization:
        chosen = [record for record in records if record["settings"]["parameterization"] == name]
        title = f"Figure 2: line search, {name}: bound a row after {args.max_iter} iterations"
        natural.show_table(title, chosen, {"elbo_per_row": 5, "iterations": 0, "seconds": 1}, args)
    if records:
        plot(records, args)
    return 1 if failures else 0
