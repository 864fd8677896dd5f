"""The experiments of Salimbeni, Eleftheriadis and Hensman (2018).

Kernel, points, starting values and scaling are those of the paper's supplement
7.2: Matern 5/2 of variance 2 (mnist 10) and one lengthscale sqrt(D), 100 inducing
points by k-means, q(u) from mean zero and identity covariance. What the paper
does not print is an argument of the scripts, and listed in the README.
"""

from __future__ import annotations

import _common as common
import _pictures as pictures
import numpy as np
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from skgp_natgrad import Constant, LineSearch, LogLinear, NGDSVGPClassifier, NGDSVGPRegressor, likelihoods

# The paper's running example: a likelihood a data set.
THREE = {"energy": "gaussian", "boston": "student_t", "pima": "bernoulli"}
NAMES = {"ngd": "NGD", "ngd+adam": "NGD+Adam", "adam": "Adam", "gd": "GD", "lbfgs": "L-BFGS"}
# The estimator as it is, in one point of a picture: not of the paper.
OURS = "nothing set"
NAMES[OURS] = OURS
JOINT = ("ngd+adam", "adam", "gd", OURS)
# How a regression target is scaled.
TARGETS = {"beta": "unit", "ordinal": "levels"}
SCHEDULE = {"initial": 1e-4, "final": 0.1, "n_steps": 5}

BASE = {
    "kernel_variance": 2.0,
    "n_inducing": 100,
    "batch_size": 256,
    "jitter": 1e-10,
    "max_rows": None,
    # Where the likelihoods' parameters start; not printed, these are GPflow's defaults.
    "variance": 1.0,
    "df": 3.0,
    "scale": 1.0,
    "concentration": 1.0,
}
# A line search ends at these step sizes; gradients are taken a row.
LARGEST_STEP = {"adam": 10.0, "gd": 1e6}


# -- one model ----------------------------------------------------------------------------


def method_settings(method, joint, rate, schedule=SCHEDULE, parameterization=None):
    """The settings in which the methods differ.

    Parameters
    ----------
    method : {"ngd", "ngd+adam", "adam", "gd", "lbfgs"}
    joint : bool
        Whether hyperparameters and points are trained too.
    rate : float, "line_search" or None
        Step size of Adam and gradient descent.
    schedule : dict or "line_search"
        Step sizes of the natural gradient: the parameters of `LogLinear`.
    parameterization : str, optional
        Of q(u); the paper's choice is natural for NGD, mean/var-sqrt for the others.
    """
    natural = method.startswith("ngd")
    return {
        "solver": "ngd" if natural else method,
        "parameterization": parameterization or ("natural" if natural else "mean_var_sqrt"),
        "optimizer": "adam" if joint else None,
        "gamma": schedule if natural else None,
        "learning_rate": None if method == "lbfgs" or (natural and not joint) else rate,
    }


def arguments(settings, data, seed, device="auto"):
    """The estimator's arguments for a cell's settings."""
    chosen = {
        "kernel": ConstantKernel(settings["kernel_variance"]) * Matern(np.sqrt(data.X.shape[1]), nu=2.5),
        "likelihood": likelihood(settings),
        "n_inducing": settings["n_inducing"],
        "inducing_init": "k-means",
        "solver": settings["solver"],
        "parameterization": settings["parameterization"],
        "optimizer": settings["optimizer"],
        "batch_size": settings["batch_size"] or len(data.X),
        "max_iter": settings["max_iter"],
        "tol": 0.0,
        "jitter": settings["jitter"],
        "calibrate": False,  # what q says, as in the paper
        "normalize_X": False,
        "normalize_y": False,
        "random_state": seed,
        "device": device,
    }
    if settings["gamma"] is not None:
        chosen["gamma_schedule"] = (
            LineSearch() if settings["gamma"] == "line_search" else LogLinear(**settings["gamma"])
        )
    if settings["learning_rate"] is not None:
        searched = settings["learning_rate"] == "line_search"
        limit = LARGEST_STEP.get(settings["solver"], 1.0)
        chosen["learning_rate"] = LineSearch(maximum=limit) if searched else Constant(settings["learning_rate"])
    return chosen


def likelihood(settings):
    """The likelihood, with its parameters fixed where hyperparameters are."""
    name, fixed = settings["likelihood"], settings["optimizer"] is None
    made = likelihoods.by_name(name)
    values = {key: settings[key] for key in made.parameters if key in settings}
    bounds = {f"{key}_bounds": "fixed" for key in made.parameters if fixed}
    return made.set_params(**values, **bounds)


def fit_cell(one, text, args, n_scores=40):
    """Run one cell; returns its record."""
    settings = one["settings"]
    name = settings["likelihood"]
    table = common.load(args.data_dir, one["dataset"])
    data = common.split(table, one["seed"], settings["max_rows"], TARGETS.get(name, "standardised"))
    regression = table.task == "regression"
    estimator = NGDSVGPRegressor if regression else NGDSVGPClassifier
    if not regression:
        score = common.score_classification(data)
    elif name in TARGETS:
        score = common.score_log_density(data)
    else:
        score = common.score_regression(data)
    if one["method"] == OURS:
        return common.fit_ours(estimator(random_state=one["seed"], device=args.device), data, score)
    model, record = common.timed_fit(
        estimator,
        arguments(settings, data, one["seed"], args.device),
        data,
        text,
        score,
        n_scores,
    )
    if hasattr(model, "step_sizes_"):
        record["curve"]["step_sizes"] = np.asarray(model.step_sizes_).tolist()
    return record


# -- cells --------------------------------------------------------------------------------


def add_arguments(p, rates=False):
    """Arguments that several scripts share."""
    p.add_argument("--n-inducing", type=int, default=BASE["n_inducing"])
    p.add_argument("--batch-size", type=int)
    if rates:
        p.add_argument("--adam-rate", type=float, help="default: the largest stable power of ten")
        p.add_argument("--gd-rate", type=float, help="default: the largest stable power of ten")
    return p


def settings(args, **changes):
    """The settings of every method of an experiment."""
    made = BASE | {"n_inducing": args.n_inducing, "max_rows": args.max_rows, "max_iter": args.max_iter} | changes
    if args.batch_size is not None:
        made["batch_size"] = args.batch_size
    return made


def ours(stem, dataset, args):
    """The cells of the estimator with nothing set."""
    made = {"max_rows": args.max_rows, "likelihood": "its own", "learning_rate": None}
    return [common.cell(stem, dataset, OURS, seed, **made) for seed in args.seeds if OURS in args.methods]


def run(cells, args, stem, n_scores=40):
    """Run what is missing; returns the finished records in order, and the failures."""
    results = common.Results(args.output / f"{stem}.jsonl")
    failures = common.run_missing(cells, results, lambda one, text: fit_cell(one, text, args, n_scores), args)
    return [record for record in map(results.get, cells) if record is not None], failures


def stable_rate(method, dataset, made, joint, args, stem):
    """The largest rate of 10, 1, 0.1, ..., 1e-6 at which a short run of a method remains stable.

    Stable is a bound that stays finite, and whose mean over the last tenth of the
    run is within 0.1 nats a row of that of the best rate.
    """
    rates = [10.0**power for power in range(1, -7, -1)]
    short = made | {"max_iter": min(made["max_iter"], 500)}
    cells = [
        common.cell(f"{stem}_rates", dataset, method, args.seeds[0], **short, **method_settings(method, joint, rate))
        for rate in rates
    ]
    records, _ = run(cells, args, stem, n_scores=0)
    ends = {record["settings"]["learning_rate"]: final_bound(record) for record in records}
    stable = [rate for rate, end in ends.items() if end > max(ends.values()) - 0.1]
    if not stable:
        common.progress(f"{dataset} {method}: no rate was tried with success; 0.01 is taken", final=True)
        return 0.01
    return max(stable)


def final_bound(record):
    """The mean bound a row over the last tenth of a run; -inf if it was ever not finite."""
    at, bound = np.asarray(record["curve"]["bound_iteration"]), np.asarray(record["curve"]["bound_per_row"], float)
    if not np.all(np.isfinite(bound)):
        return -np.inf
    n_iter = record["iterations"]
    return float(np.interp(np.arange(int(0.9 * n_iter), n_iter), at, bound).mean())


# -- what is shown ------------------------------------------------------------------------


def show_table(title, records, columns, args, notes=()):
    """A row a data set, likelihood, method and rate: means over the seeds at the end of training."""
    groups = {}
    for record in records:
        made = record["settings"]
        key = record["dataset"], made["likelihood"], record["method"], made["learning_rate"]
        groups.setdefault(key, []).append(record)
    body = []
    for (dataset, name, method, rate), some in groups.items():
        values = [common.mean_text([one.get(column) for one in some], digits) for column, digits in columns.items()]
        body.append([dataset, name, method, "-" if rate is None else f"{rate}", len(some), *values])
    header = ["data set", "likelihood", "method", "rate", "seeds", *columns]
    lines = [common.QUICK] if args.quick else []
    if records:
        lines.append(f"{records[0]['jax_device']}, {records[0]['cpus']} cores, {records[0]['date'][:10]}")
    common.print_table(title, header, body, args.format, [*lines, *notes])


def stochastic_figure(stem, title, doc, joint, methods, argv=None):
    """Figures 3 and 4: the bound against training time, three data sets, five splits; returns the exit status."""
    p = add_arguments(common.parser(doc, THREE, methods, seeds=range(5)), rates=True)
    args = p.parse_args(argv)
    args.datasets = args.datasets or list(THREE)
    if args.quick:
        args.seeds = args.seeds[:2]
    args.max_iter = args.max_iter or (500 if args.quick else 5000)
    cells = []
    for dataset in args.datasets:
        made = settings(args, likelihood=THREE[dataset])
        rates = {"adam": args.adam_rate, "gd": args.gd_rate}
        for method in ("adam", "gd"):
            needed = method in args.methods or (method == "adam" and "ngd+adam" in args.methods)
            if needed and rates[method] is None:
                rates[method] = stable_rate(method, dataset, made, joint, args, stem)
        for method in [each for each in args.methods if each != OURS]:
            chosen = method_settings(method, joint, rates["adam" if "adam" in method else "gd"])
            cells += [common.cell(stem, dataset, method, seed, **made, **chosen) for seed in args.seeds]
        cells += ours(stem, dataset, args)
    records, failures = run(cells, args, stem, n_scores=10)
    show_table(title, records, {"elbo_per_row": 4, "log_density": 4, "seconds": 1, "seconds_first_chunk": 1}, args)
    if any("curve" in record for record in records):
        plot_bounds(records, args, stem, title)
    return 1 if failures else 0


def plot_bounds(records, args, name, title):
    """A panel a data set: the bound against seconds of training."""
    plt, records = pictures.pyplot(), [record for record in records if "curve" in record]
    figure, axes = plt.subplots(1, len(args.datasets), figsize=(4.2 * len(args.datasets), 3.6), squeeze=False)
    for axis, dataset in zip(axes[0], args.datasets, strict=True):
        chosen = [record for record in records if record["dataset"] == dataset]
        for record in chosen:
            iteration = np.asarray(record["curve"]["bound_iteration"])
            seconds = common.training_seconds(record, iteration + 1)
            axis.plot(
                seconds, record["curve"]["bound_per_row"], color=pictures.COLOURS[record["method"]], lw=0.8, alpha=0.7
            )
        for method in dict.fromkeys(record["method"] for record in chosen):
            axis.plot([], [], color=pictures.COLOURS[method], label=NAMES[method])
        axis.set(title=f"{dataset}, {THREE[dataset]}", xlabel="seconds of training", xscale="log")
        pictures.zoom(axis, [record["curve"]["bound_per_row"] for record in chosen])
        axis.legend(loc="lower right")
    axes[0, 0].set_ylabel("bound, nats a row")
    figure.suptitle(title)
    pictures.save(figure, args, name)


def plot_scores(panels, args, name, title, against="iteration"):
    """A panel a group of records: the test log-likelihood along training; against seconds a fit of its own is a point.

    ``panels`` is a dict of lists of (label, colour, style, record).
    """
    plt = pictures.pyplot()
    figure, axes = plt.subplots(1, len(panels), figsize=(4.4 * len(panels), 3.6), squeeze=False)
    for axis, (heading, lines) in zip(axes[0], panels.items(), strict=True):
        trained = [line for line in lines if "curve" in line[-1]]
        for label, colour, style, record in trained:
            iteration = record["curve"].get("scored_iteration", [])
            x = iteration if against == "iteration" else common.training_seconds(record, iteration)
            axis.plot(x, record["curve"].get("log_density", []), style, color=colour, label=label, lw=1.2)
        axis.set(title=heading, xlabel=against if against == "iteration" else "seconds of training", xscale="log")
        curves = [record["curve"].get("log_density", []) for *_, record in trained]
        if against == "seconds":
            for label, colour, _, record in [line for line in lines if line not in trained]:
                axis.plot(record["seconds"], record["log_density"], "D", color=colour, label=label, ms=5)
                curves.append([record["log_density"]])
        pictures.zoom(axis, curves)
        axis.legend(loc="lower right", fontsize=8)
    axes[0, 0].set_ylabel("mean test log-likelihood")
    figure.suptitle(title)
    pictures.save(figure, args, name)


def held_out_figure(stem, title, doc, likelihood_of, schedule, argv=None, **changes):
    """Figures 6 and 7: the test log-likelihood of NGD+Adam and of Adam; returns the exit status."""
    p = add_arguments(common.parser(doc, likelihood_of, ("ngd+adam", "adam", OURS)))
    p.add_argument("--adam-rate", type=float, default=0.01, help="of Adam, alone and beside the natural gradient")
    args = p.parse_args(argv)
    args.datasets = args.datasets or list(likelihood_of)
    args.max_iter = args.max_iter or (200 if args.quick else 5000)
    if args.quick:
        args.max_rows = args.max_rows or 3000
        schedule = schedule | {"n_steps": min(schedule["n_steps"], args.max_iter // 4)}
    cells = [
        common.cell(
            stem,
            dataset,
            method,
            seed,
            **settings(args, likelihood=likelihood_of[dataset], **changes),
            **method_settings(method, True, args.adam_rate, schedule),
        )
        for dataset in args.datasets
        for method in [each for each in args.methods if each != OURS]
        for seed in args.seeds
    ]
    cells += [one for dataset in args.datasets for one in ours(stem, dataset, args)]
    records, failures = run(cells, args, stem)
    columns = {"log_density": 4, "rmse": 4, "accuracy": 4, "elbo_per_row": 4, "seconds": 1}
    present = {name: digits for name, digits in columns.items() if any(name in record for record in records)}
    show_table(title, records, present, args)
    if records:
        panels = {}
        for record in records:
            line = (NAMES[record["method"]], pictures.COLOURS[record["method"]], "-", record)
            panels.setdefault(record["dataset"], []).append(line)
        plot_scores(panels, args, stem, title, against="seconds")
    return 1 if failures else 0
