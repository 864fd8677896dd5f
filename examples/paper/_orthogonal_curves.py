"""Cells and panels of figures 2 and 3 of the orthogonal paper."""

from __future__ import annotations

import _common as common
import _orthogonal as orthogonal
import _pictures as pictures
import numpy as np
from scipy.linalg import solve_triangular

STEM = "orthogonal2"
METHODS = ("coupled", "couplednat", "orth", "orthnat", "hybrid", "decoupled")
# The estimator as it is, in one point of the held-out curves: not of the paper.
OURS = "nothing set"
# Panels a and b: the same numbers of points, hyperparameters and points fixed, full batches.
CONVERGENCE = orthogonal.FULL | {"n_covariance": 500, "n_mean": 500, "n_coupled": 500, "batch_size": None}
CONVERGENCE = CONVERGENCE | {"fixed": True}
WALL_CLOCK = orthogonal.FULL | {"n_covariance": 1500, "n_mean": 3500, "n_coupled": 2000}
QUICK_POINTS = {"n_covariance": 60, "n_mean": 60, "n_coupled": 60, "max_rows": 1500, "learning_rate": 0.01}
QUICK_LARGE = {"n_covariance": 75, "n_mean": 175, "n_coupled": 100, "max_rows": 4000, "learning_rate": 0.01}
# About two hours of one core. With twenty times the steps 3500 points of the mean come apart; a quarter of them, with
# four times, does not.
SHORT = {
    "a": {"max_iter": 300, "max_rows": 8000},
    "b": {"max_iter": 500},
    "c": {"max_iter": 5000, "n_covariance": 375, "n_mean": 875, "n_coupled": 500},
}
TITLES = {"a": "Gaussian, fixed hyperparameters", "b": "Bernoulli, fixed hyperparameters", "c": "wall-clock"}


def parse(doc, panels, argv=None):
    p = common.parser(doc, ("protein", "nycflights"), (*METHODS, OURS))
    p.add_argument("--panels", nargs="+", choices=list(TITLES), default=list(panels))
    p.add_argument("--max-seconds", type=float, help="stop each fit of panel c after so many seconds of training")
    p.add_argument("--short", action="store_true", help="hours in place of days; not with --quick or --max-iter")
    args = p.parse_args(argv)
    if args.short and (args.quick or args.max_iter):
        p.error("--short has iterations of its own; leave out --quick and --max-iter.")
    args.datasets = args.datasets or ["protein"]
    return args


def budget(panel, args):
    """Iterations, rows and points as far as they are limited."""
    asked = {name: getattr(args, name) for name in ("max_iter", "max_rows")}
    asked = {name: limit for name, limit in asked.items() if limit is not None}
    return SHORT[panel] | asked if args.short else asked


def dataset(panel, args):
    return "ringnorm" if panel == "b" else args.datasets[0]


def settings(panel, args):
    """The settings of a panel; shorter training has larger steps, as in the tables."""
    made = dict(WALL_CLOCK if panel == "c" else CONVERGENCE)
    if args.quick:
        made |= (QUICK_LARGE if panel == "c" else QUICK_POINTS) | {"gamma": 0.1, "max_iter": 300}
    made |= budget(panel, args)
    return made if args.quick else made | orthogonal.steps(made["max_iter"])


def cells(panel, args):
    task = "classification" if panel == "b" else "regression"
    made = settings(panel, args)
    decoupled = [m for m in args.methods if m != OURS and not m.startswith("coupled")]
    methods = [m for m in args.methods if m != OURS] if panel == "c" else decoupled
    extra = {"max_seconds": args.max_seconds} if panel == "c" else {}
    for method in methods:
        chosen = orthogonal.method_settings(method, task, made) | extra
        for seed in args.seeds:
            yield common.cell(f"{STEM}{panel}", dataset(panel, args), method, seed, **chosen)
    if panel == "c" and OURS in args.methods:
        for seed in args.seeds:
            yield common.cell(f"{STEM}{panel}", dataset(panel, args), OURS, seed, max_rows=made["max_rows"])


def run(args):
    """Run what is missing of each panel; returns records by panel, and the failures."""
    results = common.Results(args.output / f"{STEM}.jsonl")
    records, failures = {}, 0
    for panel in args.panels:
        wanted = list(cells(panel, args))
        failures += common.run_missing(wanted, results, lambda one, text: fit(one, text, args), args)
        records[panel] = [record for record in map(results.get, wanted) if record is not None]
    return records, failures


def fit(one, text, args):
    """Run one cell; with fixed hyperparameters and Gaussian noise add the optimum of its bases."""
    large = one["experiment"].endswith("c")
    seconds = one["settings"].get("max_seconds")
    model, data, record = orthogonal.fit_cell(one, text, args, n_scores=60 if large else 0, max_seconds=seconds)
    if one["experiment"].endswith("a"):
        record["optimum_per_row"] = optimum(model, data, one["settings"]["noise"]) / len(data.X)
    return record


def optimum(model, data, noise):
    """The largest bound that mean points and inducing points allow: the paper's appendix D.

    Only scikit-learn's kernel and the places of the points are used: the fit
    itself has no part in it.
    """
    kernel, Z = model.kernel_, model.inducing_points_
    alpha = np.concatenate([Z, model.mean_inducing_points_])
    mean_features, features = whitened(kernel, alpha, data.X), whitened(kernel, Z, data.X)
    weights = np.linalg.solve(np.eye(len(alpha)) + mean_features @ mean_features.T / noise, mean_features @ data.y)
    weights /= noise
    precision = np.eye(len(Z)) + features @ features.T / noise
    S = np.linalg.inv(precision)
    variance = kernel.diag(data.X) - (features**2).sum(0) + (features * (S @ features)).sum(0)
    error = data.y - weights @ mean_features
    fit = -0.5 * (np.log(2.0 * np.pi * noise) + (error**2 + variance) / noise).sum()
    kl = 0.5 * (np.trace(S) - len(Z) + np.linalg.slogdet(precision)[1] + weights @ weights)
    return float(fit - kl)


def whitened(kernel, points, X):
    """L^-1 K(points, X), with L the Cholesky factor of K(points)."""
    K = kernel(points)
    K[np.diag_indices_from(K)] += 1e-8 * K.diagonal().mean()
    return solve_triangular(np.linalg.cholesky(K), kernel(points, X), lower=True)


def show(records, args, columns):
    """The state at the end of training."""
    for panel, some in records.items():
        body = []
        for record in some:
            values = [common.mean_text([record.get(name)], digits) for name, digits in columns.items()]
            body.append([record["method"], record["seed"], record.get("iterations", "-"), *values])
        name = f"Panel {panel}: {dataset(panel, args)}, {TITLES[panel]}"
        where = [f"{some[0]['jax_device']}, {some[0]['cpus']} cores, {some[0]['date'][:10]}"] if some else []
        lines = [common.QUICK] if args.quick else []
        if panel != "b":
            lines.append("The paper uses 3droad, which is not among the data.")
        common.print_table(name, ["method", "seed", "iterations", *columns], body, args.format, [*lines, *where])


def plot_bound(axis, panel, some, args):
    """The bound against iterations, or for panel c seconds."""
    some = [record for record in some if "curve" in record]
    for record in some:
        iteration = np.asarray(record["curve"]["bound_iteration"]) + 1
        x = common.training_seconds(record, iteration) if panel == "c" else iteration
        axis.plot(
            x,
            record["curve"]["bound_per_row"],
            color=pictures.COLOURS[record["method"]],
            lw=1.1,
            label=record["method"],
        )
    best = [record["optimum_per_row"] for record in some if "optimum_per_row" in record]
    if best:
        axis.axhline(max(best), color="k", ls=":", label="optimum (appendix D)")
    axis.set(title=f"({panel}) {dataset(panel, args)}: {TITLES[panel]}", ylabel="bound, nats a row", xscale="log")
    axis.set_xlabel("seconds of training" if panel == "c" else "iteration")
    pictures.zoom(axis, [record["curve"]["bound_per_row"] for record in some] + ([best] if best else []))
    if some:
        axis.legend(loc="lower right")


# -- the two figures ----------------------------------------------------------------------


def figure2(argv=None):
    """Figure 2 of the orthogonal paper: training curves in three settings.

    (a) Gaussian and (b) Bernoulli likelihood with 500 points of covariance and 500 of
    the mean, fixed hyperparameters and full batches; (c) the bound against seconds
    with 1500 and 3500 points, the coupled bases with 2000. The 3droad data of panels
    (a) and (c) is not available: protein stands for it, or ``--datasets nycflights``;
    (b) is ringnorm. The optimum of (a) is that of the paper's appendix D. With fewer
    iterations (``--max-iter``, ``--short``) the steps are larger as many times, up to twenty times;
    ``--short`` has a quarter of the points in (c).
    """
    args = parse(figure2.__doc__, "abc", argv)
    records, failures = run(args)
    show(records, args, {"elbo_per_row": 4, "optimum_per_row": 4, "seconds": 1, "seconds_first_chunk": 1})
    if any(records.values()):
        plt = pictures.pyplot()
        figure, axes = plt.subplots(1, len(records), figsize=(4.8 * len(records), 3.8), squeeze=False)
        for axis, (panel, some) in zip(axes[0], records.items(), strict=True):
            plot_bound(axis, panel, some, args)
        pictures.save(figure, args, STEM)
    return 1 if failures else 0


def figure3(argv=None):
    """Figure 3 of the orthogonal paper: panel (c) of figure 2 on held-out rows.

    The test log-likelihood (a) and RMSE (b, which the paper calls accuracy) against
    seconds of training, from the same fits, and as a point the estimator with nothing
    set. The 3droad data is not available; see orthogonal2.
    """
    args = parse(figure3.__doc__, "c", argv)
    args.panels = ["c"]
    records, failures = run(args)
    show(records, args, {"log_density": 4, "rmse": 4, "elbo_per_row": 4, "seconds": 1, "seconds_first_chunk": 1})
    if records["c"]:
        plot_held_out(records["c"], args)
    return 1 if failures else 0


def plot_held_out(some, args):
    """The scores along the fits of panel (c)."""
    figure, axes = pictures.pyplot().subplots(1, 2, figsize=(9.6, 3.8))
    for axis, metric in zip(axes, ("log_density", "rmse"), strict=True):
        for record in some:
            colour, curve = pictures.COLOURS[record["method"]], record.get("curve")
            if curve is None:
                axis.plot(record["seconds"], record[metric], "D", color=colour, label=record["method"], ms=5)
                continue
            x = common.training_seconds(record, curve["scored_iteration"])
            axis.plot(x, curve[metric], color=colour, label=record["method"])
        axis.set(xlabel="seconds of training", xscale="log")
    axes[0].legend()
    axes[0].set_title(f"(a) {args.datasets[0]}: test log-likelihood")
    axes[1].set_title(f"(b) {args.datasets[0]}: test RMSE")
    pictures.save(figure, args, "orthogonal3")
