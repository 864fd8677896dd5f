"""Test log density and RMSE against seconds of training: ours, GPflow, GPyTorch, GPJax, an exact GP.

    python examples/benchmarks/time_to_accuracy.py --peer-python /path/to/peers/bin/python --rst

The contenders run one after the other, each in a process of its own. The clock starts with the fit,
compilation and the placing of our points included (the peers' are centres of k-means that cost them
nothing), and stands while the model is scored on the held-out tenth of the rows. ``gpflow paper``
has the settings of the orthogonal paper's appendix E: natural gradient steps of 0.005, Adam's of
0.001, one lengthscale for all columns. The other peers have settings that do better: steps of 0.1,
Adam's of 0.02 with a cosine decay to zero, a lengthscale for each column. The exact Gaussian process
is scikit-learn's, on 4000 random rows; it has one score, at the end.

Every finished run is a line of JSON in ``--output``; what is there with the same settings is not run
again. ``--max-iter``, ``--n-inducing``, ``--max-rows`` and ``--exact-rows`` make a small version.
"""

from __future__ import annotations

from _common import (
    Contender,
    Results,
    chosen,
    contest_parser,
    machine,
    number,
    prepared,
    pyplot,
    run_alone,
    save,
    show,
    where,
)

OURS = ("ours", "ours short", "ours short paper kernel", "ours short exact mean", "ours exact mean")
GPFLOW_PAPER = "gpflow paper"
LIBRARIES = ("gpflow", "gpytorch", "gpjax")
PEERS = (*(f"{library} short" for library in LIBRARIES), "gpflow", "gpytorch", "gpytorch orthogonal", "gpjax")
EXACT = ("sklearn exact", "sklearn exact ard")
# The settings of the orthogonal paper's appendix E.
PAPER = {"ard": False, "gamma": 0.005, "learning_rate": 0.001, "decay": False, "noise_variance": 1.0}
# Nats a row below its best log density at which a run counts as having reached it.
_NEARLY = 0.005
# Run only where ``--contenders`` names it: a lengthscale for each column costs the exact GP several GB and much time.
OPTIONAL = ("sklearn exact ard",)


def parse_arguments(argv=None):
    p = contest_parser(__doc__, "time_to_accuracy.jsonl")
    p.add_argument("--dataset", default="kin40k")
    p.add_argument("--n-inducing", type=int, default=300)
    p.add_argument("--n-mean-inducing", type=int, default=700, help="of the peers; our mean is solved on 3000")
    p.add_argument("--batch-size", type=int, default=1024)
    p.add_argument("--exact-rows", type=int, default=4000)
    p.add_argument("--exact-points", type=int, default=3000)
    p.add_argument("--max-iter", type=int, help="at most, for all contenders")
    p.add_argument("--n-scores", type=int, default=25, help="scores along the way")
    p.add_argument("--picture", default="time_to_accuracy.png")
    return p.parse_args(argv)


def contenders(args):
    """All of them by name."""
    return {
        "ours exact mean": ours(args, 500, 0.05, mean_solver="exact", n_mean_inducing=args.exact_points),
        "ours short exact mean": ours(args, 300, 0.05, mean_solver="exact", n_mean_inducing=args.exact_points // 2),
        "ours short": ours(args, 300, 0.05),
        "ours": ours(args, 2000, 0.02),
        "ours short paper kernel": ours(args, 300, 0.05, kernel="paper"),
        "sklearn exact": exact(args, ard=False),
        "sklearn exact ard": exact(args, ard=True),
        GPFLOW_PAPER: peer("gpflow", args, 5000, **PAPER),
        **{f"{library} short": peer(library, args, 300, learning_rate=0.05) for library in LIBRARIES},
        "gpflow": peer("gpflow", args),
        "gpytorch": peer("gpytorch", args),
        "gpytorch orthogonal": peer("gpytorch", args, n_mean_inducing=args.n_mean_inducing),
        "gpjax": peer("gpjax", args),
    }


def at_most(max_iter, args):
    """The number of iterations, unless fewer are asked for."""
    return min(max_iter, args.max_iter or max_iter)


def ours(args, max_iter, learning_rate, kernel="default", **arguments):
    """A fit of this package."""
    max_iter = at_most(max_iter, args)
    arguments |= {
        "likelihood": "gaussian",
        "n_inducing": args.n_inducing,
        "batch_size": args.batch_size,
        "max_iter": max_iter,
        "learning_rate": learning_rate,
        "random_state": args.seed,
    }
    settings = {"task": "regression", "kernel": kernel, "arguments": arguments}
    return Contender("skgp_natgrad", "ours:train", settings | {"max_iter": max_iter, "n_scores": args.n_scores})


def peer(library, args, max_iter=2000, **changes):
    """A peer at its better settings, but for the changes."""
    settings = {
        "task": "regression",
        "n_inducing": args.n_inducing,
        "n_mean_inducing": 0,
        "batch_size": args.batch_size,
        "ard": True,
        "gamma": 0.1,
        "learning_rate": 0.02,
        "decay": True,
        "noise_variance": 0.1,
        "max_iter": at_most(max_iter, args),
        "n_scores": args.n_scores,
        "block": 20,
        "seed": args.seed,
        "scan": False,
    }
    return Contender(library, f"{library}_svgp:train", settings | changes)


def exact(args, ard):
    """scikit-learn's exact Gaussian process on some rows."""
    settings = {
        "task": "regression",
        "n_rows_trained": args.exact_rows,
        "ard": ard,
        "noise_variance": 0.1,
        "seed": args.seed,
    }
    return Contender("sklearn", "sklearn_gp:train", settings | {"n_scores": 1})


def key(name, contender, args):
    """What decides the outcome of a run."""
    names = ("dataset", "seed", "max_rows")
    return {"contender": name, "settings": contender.settings, **{each: getattr(args, each) for each in names}}


def results(args):
    """Run what is missing; returns the records by name."""
    file = Results(args.output)
    wanted = chosen(contenders(args), args, OPTIONAL)
    missing = [name for name, contender in wanted.items() if file.find(key(name, contender, args)) is None]
    if missing and not args.only_print:
        with prepared(args.dataset, args, args.n_inducing, args.n_mean_inducing) as data:
            for name in missing:
                events = run_alone(name, wanted[name], "curve", data, args)
                if events is not None:
                    file.add(key(name, wanted[name], args) | summary(events) | machine())
    found = {name: file.find(key(name, contender, args)) for name, contender in wanted.items()}
    return {name: record for name, record in found.items() if record is not None}


def summary(events):
    """The curves of a run, and what its process needed."""
    curves = {each: [one[each] for one in events["score"]] for each in ("iterations", "seconds", "rmse", "log_density")}
    (imported,), (done,) = events["imported"], events["done"]
    facts = {"version": imported["version"], "import_seconds": imported["seconds"]}
    return curves | facts | {"peak_memory": done["peak_memory"]}


# -- what came out ------------------------------------------------------------------------


def seconds_to(record, log_density, rmse=float("inf")):
    """Seconds until a log density and an RMSE are reached together, or None."""
    scores = zip(record["seconds"], record["log_density"], record["rmse"], strict=True)
    return next((seconds for seconds, density, error in scores if density >= log_density and error <= rmse), None)


def nearly_best(record):
    """The first seconds of a run within so little of its best log density, and that log density."""
    enough = max(record["log_density"]) - _NEARLY
    return seconds_to(record, enough), enough


def targets(found):
    """What is to be reached: a description, the seconds it took, log density and RMSE."""
    if GPFLOW_PAPER in found:
        last = found[GPFLOW_PAPER]
        what = f"{GPFLOW_PAPER}, {last['iterations'][-1]} iterations"
        yield what, last["seconds"][-1], last["log_density"][-1], None
    for name in PEERS:
        if name in found:
            yield f"{name}, nearly its best", *nearly_best(found[name]), None
    for name in EXACT:
        if name in found:
            last = found[name]
            yield f"{name}, both scores", last["seconds"][-1], last["log_density"][-1], last["rmse"][-1]


def comparisons(found):
    """Rows: a target, and the seconds in which each of ours reaches it, with the ratio to the other's."""
    for what, seconds, log_density, rmse in targets(found):
        reached = [
            seconds_to(found[name], log_density, float("inf") if rmse is None else rmse) if name in found else None
            for name in OURS
        ]
        cells = ["-" if own is None else f"{own:.1f} ({own / seconds:.3f})" for own in reached]
        yield [what, number(log_density, ".3f"), number(rmse, ".3f"), number(seconds), *cells]


def table(found, rst):
    """The end of each run, and the comparisons."""
    header = ["contender", "iterations", "seconds", "RMSE", "log density", "peak memory, MB"]
    rows = [
        [
            f"{name} {record['version'] or ''}".strip(),
            record["iterations"][-1] or "",
            number(record["seconds"][-1]),
            number(record["rmse"][-1], ".3f"),
            number(record["log_density"][-1], ".3f"),
            number(record["peak_memory"], ".0f"),
        ]
        for name, record in found.items()
    ]
    show(header, rows, rst)
    print("\nSeconds in which ours reach what the others reached, and in brackets the ratio to the others' seconds:\n")
    header = ["to be reached", "log density", "RMSE", "s", *(f"{name}, s" for name in OURS)]
    show(header, list(comparisons(found)), rst, [where(found.values())])


def draw(found, path):
    """Both scores against seconds."""
    plt = pyplot()
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), constrained_layout=True)
    for axis, score, label in zip(axes, ("log_density", "rmse"), ("test NLPD", "test RMSE"), strict=True):
        for i, (name, record) in enumerate(found.items()):
            values = [-value if score == "log_density" else value for value in record[score]]
            width = 2.0 if name in OURS else 1.0
            axis.plot(record["seconds"], values, marker=".", label=name, linewidth=width, color=plt.cm.tab20(i))
        axis.set(xscale="log", xlabel="seconds of training", ylabel=label)
        axis.grid(alpha=0.3)
    axes[1].legend(fontsize=7)
    save(figure, path)


def main(argv=None):
    args = parse_arguments(argv)
    found = results(args)
    if found:
        table(found, args.rst)
        draw(found, args.output.parent / args.picture)


if __name__ == "__main__":
    main()
