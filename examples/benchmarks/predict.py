"""Prediction: milliseconds for one row and for a thousand, rows a second of long tables, peak memory.

    python examples/benchmarks/predict.py --peer-python /path/to/peers/bin/python --n-rows 1 1000 1000000 --rst

Regression predicts the mean, and the mean with the variance of the target; classification the
probabilities of two classes. The models are trained for a few iterations only, since the cost of a
prediction does not depend on more. The floor is the products of our own prediction, alone, in chunks
of the same size. Each contender runs in a process of its own, one after the other, and predicts as
its documentation says is fastest: GPflow from its precomputed posterior in a compiled function,
GPyTorch in evaluation mode with its caches. The peers are given long tables in parts of
``--rows-a-call``, which bounds their memory; ours is given the whole table. The figures are medians of
the calls after one that warms up; a table longer than ``--rows-in-all`` is predicted once.
"""

from __future__ import annotations

from _common import (
    Contender,
    Results,
    chosen,
    contest_parser,
    machine,
    number,
    placed,
    prepared,
    run_alone,
    show,
    where,
)

DATASETS = {"regression": "kin40k", "classification": "magic"}
LIKELIHOODS = {"regression": "gaussian", "classification": "bernoulli"}


def parse_arguments(argv=None):
    p = contest_parser(__doc__, "predict.jsonl")
    p.add_argument("--tasks", nargs="+", choices=list(DATASETS), default=list(DATASETS))
    p.add_argument("--n-rows", nargs="+", type=int, default=[1, 1000, 100_000], help="lengths of the tables")
    p.add_argument("--n-inducing", type=int, default=300)
    p.add_argument("--n-mean-inducing", type=int, default=700, help="of ``ours orthogonal``")
    p.add_argument("--exact-rows", type=int, default=2000, help="that scikit-learn's exact models are trained on")
    p.add_argument("--max-iter", type=int, default=40)
    p.add_argument("--rows-a-call", type=int, default=10_000, help="of the peers")
    p.add_argument("--rows-in-all", type=int, default=20_000, help="of the calls that a median is taken of")
    p.add_argument("--device", choices=["cpu", "gpu"], help="of ours, its floor and GPyTorch, alone")
    return p.parse_args(argv)


def contenders(task, args):
    """All of them by name."""
    common = {"task": task, "n_rows": args.n_rows, "rows_in_all": args.rows_in_all, "seed": args.seed}
    whole, parts = common | {"rows_a_call": None}, common | {"rows_a_call": args.rows_a_call}
    peer = parts | {
        "n_inducing": args.n_inducing,
        "n_mean_inducing": 0,
        "batch_size": 1024,
        "ard": False,
        "gamma": 0.1,
        "learning_rate": 0.01,
        "decay": False,
        "noise_variance": 0.1,
        "max_iter": args.max_iter,
        "block": args.max_iter,
        "scan": False,
    }
    found = {
        "ours": ours(whole, args, 0),
        "ours orthogonal": ours(whole, args, args.n_mean_inducing),
        "floor": Contender("skgp_natgrad", "floor:predict", whole | {"n_inducing": args.n_inducing}),
        "gpflow": Contender("gpflow", "gpflow_svgp:train", peer),
        "gpytorch": Contender("gpytorch", "gpytorch_svgp:train", peer),
    }
    if task == "regression":
        found["gpjax"] = Contender("gpjax", "gpjax_svgp:train", peer)
    exact = parts | {"n_rows_trained": args.exact_rows, "ard": False, "noise_variance": 0.1}
    found["sklearn exact"] = Contender("sklearn", "sklearn_gp:train", exact)
    return found if args.device is None else placed(found, args.device)


def ours(common, args, n_mean_inducing):
    """A fit of this package."""
    arguments = {
        "likelihood": LIKELIHOODS[common["task"]],
        "n_inducing": args.n_inducing,
        "n_mean_inducing": n_mean_inducing,
        "max_iter": args.max_iter,
        "random_state": args.seed,
    }
    return Contender("skgp_natgrad", "ours:fit", common | {"arguments": arguments})


def key(task, name, contender, args):
    """What decides the outcome of a run."""
    return {"task": task, "contender": name, "settings": contender.settings, "max_rows": args.max_rows}


def results(args):
    """Run what is missing; returns the records."""
    file, found = Results(args.output), []
    for task in args.tasks:
        wanted = chosen(contenders(task, args), args)
        missing = [name for name, contender in wanted.items() if file.find(key(task, name, contender, args)) is None]
        if missing and not args.only_print:
            with prepared(DATASETS[task], args, args.n_inducing) as data:
                for name in missing:
                    events = run_alone(f"{task} {name}", wanted[name], "predictions", data, args)
                    if events is not None:
                        (imported,), (trained,) = events["imported"], events["trained"]
                        facts = {"version": imported["version"], "memory_trained": trained["peak_memory"]}
                        facts["predicted"] = events["predicted"]
                        file.add(key(task, name, wanted[name], args) | facts | machine())
        found += [file.find(key(task, name, contender, args)) for name, contender in wanted.items()]
    return [record for record in found if record is not None]


def table(records, args):
    """A row for each contender and function; short tables in milliseconds, long ones in rows a second."""
    header = ["contender", "predicts", *map(heading, args.n_rows), "memory before, MB", "at most"]
    rows = []
    for record in records:
        for function in dict.fromkeys(one["function"] for one in record["predicted"]):
            own = {one["rows"]: one for one in record["predicted"] if one["function"] == function}
            cells = [cell(n_rows, own[n_rows]["seconds"]) for n_rows in args.n_rows]
            name = f"{record['contender']} {record['version'] or ''}".strip()
            most = max(one["peak_memory"] for one in own.values())
            rows.append([name, function, *cells, number(record["memory_trained"], ".0f"), number(most, ".0f")])
    show(header, rows, args.rst, [where(records)])


def heading(n_rows):
    """The heading of a column."""
    if n_rows <= 1000:
        return f"{n_rows} row{'s' if n_rows > 1 else ''}, ms"
    return f"{n_rows} rows, rows/s"


def cell(n_rows, seconds):
    """A figure, in the unit of its column."""
    return number(1e3 * seconds, ".3f") if n_rows <= 1000 else number(n_rows / seconds, ".0f")


def main(argv=None):
    args = parse_arguments(argv)
    records = results(args)
    if records:
        table(records, args)


if __name__ == "__main__":
    main()
