"""The experiments of Salimbeni, Cheng, Boots and Deisenroth (2018).

Settings are those of the paper's appendix E. The tables share their cells: one
fit of the regression experiment gives a figure of tables 1, 3 and 4, one of the
classification experiment a figure of tables 2, 5 and 6.
"""

from __future__ import annotations

import sys

import _common as common
import _paper_numbers as paper
import numpy as np
from scipy.stats import rankdata
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skgp_natgrad import Constant, Linear, NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.likelihoods import Gaussian

METHODS = ("coupled300", "couplednat300", "coupled", "couplednat", "orth", "orthnat", "hybrid", "decoupled")
LABELS = {"coupled300": "coupled†", "couplednat300": "couplednat†"}
REGRESSION = ("elevators", "bike", "keggdirected", "pol", "keggundirected", "protein", "kin40k")
CLASSIFICATION = tuple(name for name in paper.TABLE5 if name != "miniboone")
QUICK_SETS = {"regression": ("pol", "kin40k"), "classification": ("ringnorm", "waveform")}

# Appendix E.
FULL = {
    "max_iter": 20000,
    "max_rows": None,
    "n_coupled_small": 300,
    "n_coupled": 400,
    "n_covariance": 300,
    "n_mean": 700,
    "batch_size": 1024,
    "mean_columns": 64,
    "learning_rate": 0.001,
    "gamma": 0.005,
    "gamma_initial": 1e-5,
    "gamma_steps": 100,
    "noise": 0.1,
    "jitter": 1e-10,
    "fixed": False,
}
QUICK = FULL | {
    "max_iter": 300,
    "max_rows": 4000,
    "n_coupled_small": 75,
    "n_coupled": 100,
    "n_covariance": 75,
    "n_mean": 175,
    "learning_rate": 0.01,
    "gamma": 0.1,
}


def label(method):
    return LABELS.get(method, method)


# -- one model ----------------------------------------------------------------------------


def kernel(n_features, task):
    """Matern 5/2 with lengthscale 0.1 sqrt(D), plus RBF with lengthscale sqrt(D)."""
    amplitude, root = (1.0 if task == "regression" else 5.0), np.sqrt(n_features)
    return ConstantKernel(amplitude) * Matern(0.1 * root, nu=2.5) + ConstantKernel(amplitude) * RBF(root)


def points(method, settings):
    """Numbers of points of covariance and mean, and of the mean alone."""
    if method.startswith("coupled"):
        return (settings["n_coupled_small"] if method.endswith("300") else settings["n_coupled"]), 0
    return settings["n_covariance"], settings["n_mean"]


def arguments(method, task, data, seed, settings, device="auto"):
    """The estimator's arguments for a method of the paper."""
    n_inducing, n_mean = points(method, settings)
    natural = "nat" in method
    chosen = {
        "kernel": kernel(data.X.shape[1], task),
        "likelihood": likelihood(task, data.n_classes, settings),
        "n_inducing": n_inducing,
        "n_mean_inducing": n_mean,
        "basis": method if method in ("hybrid", "decoupled") else "orthogonal",
        "inducing_init": "k-means",
        "solver": "ngd" if natural else "adam",
        "parameterization": "natural" if natural else "mean_var_sqrt",
        "optimizer": None if settings["fixed"] else "adam",
        "learning_rate": Constant(settings["learning_rate"]),
        "batch_size": settings["batch_size"],
        "max_iter": settings["max_iter"],
        "mean_columns": settings.get("mean_columns", "auto"),
        "tol": 0.0,
        "normalize_X": False,
        "normalize_y": False,
        "jitter": settings["jitter"],
        "random_state": seed,
        "device": device,
    }
    if natural:
        chosen["gamma_schedule"] = step_sizes(task, settings)
    return chosen


def likelihood(task, n_classes, settings):
    if task == "regression":
        return Gaussian(variance=settings["noise"], **({"variance_bounds": "fixed"} if settings["fixed"] else {}))
    return "bernoulli" if n_classes == 2 else "robust_max"


def step_sizes(task, settings):
    """Constant for the conjugate likelihood, for the others a ramp."""
    if task == "regression":
        return Constant(settings["gamma"])
    return Linear(settings["gamma_initial"], settings["gamma"], n_steps=settings["gamma_steps"])


def fit_cell(one, text, args, n_scores=0, max_seconds=None):
    """Run one cell; returns the model, its data and its record."""
    settings = one["settings"]
    table = common.load(args.data_dir, one["dataset"])
    data = common.split(table, one["seed"], settings["max_rows"])
    if settings["batch_size"] is None:
        settings = settings | {"batch_size": len(data.X)}
    regression = table.task == "regression"
    score = (common.score_regression if regression else common.score_classification)(data)
    model, record = common.timed_fit(
        NGDSVGPRegressor if regression else NGDSVGPClassifier,
        arguments(one["method"], table.task, data, one["seed"], settings, args.device),
        data,
        text,
        score,
        n_scores,
        max_seconds,
    )
    return model, data, record


# -- the tables ---------------------------------------------------------------------------


def table_arguments(task, doc, argv=None):
    """Parse the arguments of a table's script."""
    sets = REGRESSION if task == "regression" else CLASSIFICATION
    p = common.parser(doc, sets, METHODS)
    if task == "classification":
        # The paper's classification tables lack the small coupled bases.
        p.set_defaults(methods=[method for method in METHODS if not method.endswith("300")])
    args = p.parse_args(argv)
    args.datasets = args.datasets or list(QUICK_SETS[task] if args.quick else sets)
    return args


def table_settings(args):
    settings = dict(QUICK if args.quick else FULL)
    settings["max_iter"] = args.max_iter or settings["max_iter"]
    settings["max_rows"] = args.max_rows or settings["max_rows"]
    return settings


def table_results(task, args):
    """Run what is missing; returns records[dataset][method], a list over the seeds, and the failures."""
    results = common.Results(args.output / f"orthogonal_{task}.jsonl")
    settings = table_settings(args)
    cells = [
        common.cell(task, dataset, method, seed, **method_settings(method, task, settings))
        for dataset in args.datasets
        for seed in args.seeds
        for method in args.methods
    ]
    failures = common.run_missing(cells, results, lambda one, text: fit_cell(one, text, args)[2], args)
    records = {dataset: {method: [] for method in args.methods} for dataset in args.datasets}
    for one in cells:
        if results.get(one) is not None:
            records[one["dataset"]][one["method"]].append(results.get(one))
    return records, failures


def method_settings(method, task, settings):
    """The settings that matter to a method: others may change without a new fit."""
    unused = {"n_coupled_small", "n_coupled", "n_covariance", "n_mean"}
    if method.startswith("coupled"):
        unused -= {"n_coupled_small" if method.endswith("300") else "n_coupled"}
        unused |= {"mean_columns"}
    else:
        unused -= {"n_covariance", "n_mean"}
    if "nat" not in method:
        unused |= {"gamma", "gamma_initial", "gamma_steps"}
    if task == "regression":
        unused |= {"gamma_initial", "gamma_steps"}
    else:
        unused |= {"noise"}
    return {name: value for name, value in settings.items() if name not in unused}


def measured(records, metric, scale=1.0):
    """The mean of a metric over the seeds: values[dataset][method]."""
    return {
        dataset: {method: scale * np.mean([one[metric] for one in some]) for method, some in row.items() if some}
        for dataset, row in records.items()
    }


def show_cells(title, records, metric, printed, args, digits=3, scale=1.0):
    """A row a data set: what was measured, a stroke, and what the paper prints."""
    header = ["data set", "N", "D", *map(label, args.methods)]
    body = []
    for dataset, row in records.items():
        known = [one for some in row.values() for one in some]
        size = [known[0]["n"] + known[0]["n_test"], known[0]["d"]] if known else ["-", "-"]
        cells = []
        for method, some in row.items():
            text = common.mean_text([scale * one[metric] for one in some], digits)
            theirs = printed.get(dataset, {}).get(method)
            cells.append(f"{text} / {'-' if theirs is None else format(theirs, f'.{digits}f')}")
        body.append([dataset, *size, *cells])
    common.print_table(title, header, body, args.format, notes(records, args))


def show_summary(title, records, metric, printed, summary, args, digits=3, scale=1.0, high=False):
    """Mean, median and average rank over the data sets on which every method was measured."""
    ours = {name: row for name, row in measured(records, metric, scale).items() if set(row) == set(args.methods)}
    header = ["", *map(label, args.methods)]
    theirs = {name: {m: printed[name][m] for m in args.methods if m in printed[name]} for name in ours}
    body = []
    for name, source in ((f"measured, {len(ours)} sets", ours), ("paper, the same sets", theirs)):
        body += [[f"{kind} ({name})", *row] for kind, row in statistics(source, args.methods, digits, high)]
    for i, kind in enumerate(("mean", "median", "average rank")):
        values = [summary[m][i] if m in summary else None for m in args.methods]
        body.append([f"{kind} (paper, all sets)", *("-" if v is None else str(v) for v in values)])
    common.print_table(title, header, body, args.format, notes(records, args))


def statistics(values, methods, digits, high):
    """Rows of text: the mean, the median, and the average rank with its standard error (1 is best)."""
    if not values:
        return [(kind, ["-"] * len(methods)) for kind in ("mean", "median", "average rank")]
    shared = [method for method in methods if all(method in row for row in values.values())]
    table = np.array([[row[method] for method in shared] for row in values.values()])
    ranks = rankdata(-table if high else table, axis=1)
    error = ranks.std(0, ddof=1) / np.sqrt(len(ranks)) if len(ranks) > 1 else np.zeros(len(shared))
    columns = {
        "mean": [f"{v:.{digits}f}" for v in table.mean(0)],
        "median": [f"{v:.{digits}f}" for v in np.median(table, axis=0)],
        "average rank": [f"{r:.2f} ({e:.2f})" for r, e in zip(ranks.mean(0), error, strict=True)],
    }
    return [(kind, [dict(zip(shared, row, strict=True)).get(m, "-") for m in methods]) for kind, row in columns.items()]


def notes(records, args):
    """What a reader of a table has to know."""
    known = [one for row in records.values() for some in row.values() for one in some]
    lines = ["Each cell: measured / paper. Ranks: 1 is best."]
    if args.quick:
        lines.append(common.QUICK)
    if args.max_iter or args.max_rows:
        lines.append(f"Not the paper's settings: max_iter={args.max_iter}, max_rows={args.max_rows}.")
    if known:
        machines = sorted({f"{one['jax_device']}, {one['cpus']} cores" for one in known})
        hours = sum(one["seconds"] for one in known) / 3600.0
        seeds = sorted({one["seed"] for one in known})
        lines.append(
            f"{len(known)} fits, seeds {seeds}, {hours:.2f} hours of training on {'; '.join(machines)}; "
            f"version {', '.join(sorted({one['version'] for one in known}))}, "
            f"{min(one['date'] for one in known)[:10]} to {max(one['date'] for one in known)[:10]}."
        )
    missing = sum(not some for row in records.values() for some in row.values())
    return [*lines, f"{missing} cells were not run or failed."] if missing else lines


def table_script(task, doc, show, argv=None):
    """The whole of a table's script."""
    args = table_arguments(task, doc, argv)
    records, failures = table_results(task, args)
    show(records, args)
    sys.exit(1 if failures else 0)
