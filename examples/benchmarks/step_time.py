"""Milliseconds of a training step: ours, its arithmetic floor, GPflow, GPyTorch and GPJax, in one run.

    python examples/benchmarks/step_time.py --peer-python /path/to/peers/bin/python --rounds 20 --rst

Each contender runs in a process of its own and trains on the same rows, with the kernel, the points
and the batch size of the orthogonal paper's experiments. They take turns: a block of iterations each,
in an order that is turned by one place every round; one works, the others wait for a line on their
pipe. So a machine whose speed drifts is the same machine for all.

What is timed is the training of each library as a user would run it: of ours all that ``fit`` does
between two chunks of iterations, batches included. The floor is the products and factorisations of
our own step, alone (``contenders/floor.py``). The first block, which compiles, is not among the
blocks: the seconds from the start of the fit to the first iteration are what it took beyond so many
median iterations. Memory is the largest resident set of the process, the data included.

With ``--before`` an earlier checkout of this package takes its turns, too: the cost of a change.

A contender whose library is not installed, or that refuses its settings, is left out, and said so.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from _common import Contender, Results, Worker, chosen, contest_parser, machine, number, prepared, say, show, where

# What each is to be compared with: ours, the others, and which ratio is meant.
COMPARISONS = {
    "coupled": ("ours coupled", ("gpflow", "gpytorch", "gpjax", "gpjax scan")),
    "orthogonal": ("ours orthogonal", ("gpytorch orthogonal",)),
}
FOREVER = 10**6
# Of the mean-only points' covariance in each minibatch: the orthogonal paper's own code takes so many, by chance.
FEW_COLUMNS = 64


def parse_arguments(argv=None):
    p = contest_parser(__doc__, "step_time.jsonl")
    p.add_argument("--dataset", default="kin40k")
    p.add_argument("--n-inducing", type=int, default=300)
    p.add_argument("--n-mean-inducing", type=int, default=700)
    p.add_argument("--batch-size", type=int, default=1024)
    p.add_argument(
        "--dtypes", nargs="+", choices=["float64", "float32"], default=["float64"], help="ours and the floor"
    )
    p.add_argument(
        "--before", type=Path, metavar="CHECKOUT", help="another checkout of this package, to be compared with"
    )
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--blocks", type=int, default=1, help="of 20 iterations, for each contender and round")
    return p.parse_args(argv)


def contenders(args):
    """All of them by name, in the order of the table."""
    sizes = {"n_inducing": args.n_inducing, "batch_size": args.batch_size}
    found = {}
    for dtype in args.dtypes:
        suffix = "" if dtype == "float64" else f" {dtype}"
        for name, n_mean, mean_columns in (
            ("coupled", 0, None),
            ("orthogonal", args.n_mean_inducing, None),
            (f"orthogonal {FEW_COLUMNS} columns", args.n_mean_inducing, FEW_COLUMNS),
        ):
            own = sizes | {"n_mean_inducing": n_mean}
            arguments = own | {"max_iter": FOREVER, "likelihood": "gaussian", "random_state": args.seed}
            arguments |= {} if mean_columns is None else {"mean_columns": mean_columns}
            arguments |= {} if dtype == "float64" else {"dtype": dtype}
            settings = {"task": "regression", "arguments": arguments}
            found[f"ours {name}{suffix}"] = Contender("skgp_natgrad", "ours:train", settings)
            if args.before is not None:
                found[f"before {name}{suffix}"] = found[f"ours {name}{suffix}"]._replace(home=args.before.resolve())
            settings = {**own, "mean_columns": mean_columns, "dtype": dtype, "block": 20}
            found[f"floor {name}{suffix}"] = Contender("skgp_natgrad", "floor:train", settings)
    peer = {"task": "regression", "ard": False, "gamma": 0.1, "learning_rate": 0.01, "decay": False}
    peer |= {"noise_variance": 1.0, "max_iter": FOREVER, "block": 20, "seed": args.seed, "n_mean_inducing": 0}
    peer |= sizes | {"scan": False}
    for library in ("gpflow", "gpytorch", "gpjax"):
        found[library] = Contender(library, f"{library}_svgp:train", peer)
    found["gpjax scan"] = found["gpjax"]._replace(settings=peer | {"scan": True})
    orthogonal = peer | {"n_mean_inducing": args.n_mean_inducing}
    found["gpytorch orthogonal"] = Contender("gpytorch", "gpytorch_svgp:train", orthogonal)
    return found


def start(name, contender, data, args):
    """Start a worker and let it do its first block; returns it and that block, or None."""
    say(f"{name}: starts")
    worker = Worker(contender, "blocks", data, args)
    imported = worker.next("imported", "failed")
    first = worker.next("block") if imported else None
    if first is None:
        worker.finish()
        say(f"{name}: LEFT OUT: {worker.failure}")
        return None
    return worker, {"import_seconds": imported["seconds"], "version": imported["version"], "first": first}


def one_turn(worker, n_blocks):
    """Milliseconds of each of some blocks in a row, an iteration."""
    times = []
    for _ in range(n_blocks):
        worker.tell()
        block = worker.next("block")
        if block is None:
            return times
        times.append(1e3 * block["seconds"] / block["iterations"])
    return times


def measure(args):
    """All contenders in turn; returns a record for each, with the date of the run that they share."""
    settings = ("dataset", "n_inducing", "n_mean_inducing", "batch_size", "seed", "max_rows")
    common = {name: getattr(args, name) for name in settings} | machine()
    with prepared(args.dataset, args, args.n_inducing, args.n_mean_inducing) as data:
        return [one | common for one in alternating(chosen(contenders(args), args), data, args)]


def alternating(wanted, data, args):
    """Let the contenders take turns; returns a record for each that ran."""
    running, times = {}, {}
    for name, contender in wanted.items():
        found = start(name, contender, data, args)
        if found is not None:
            running[name], times[name] = found, []
    names = list(running)
    for i in range(args.rounds):
        turn = i % len(names) if names else 0
        for name in names[turn:] + names[:turn]:
            times[name] += one_turn(running[name][0], args.blocks)
        for name in [name for name in names if len(times[name]) < (i + 1) * args.blocks]:
            say(f"{name}: LEFT OUT, it ended in round {i + 1}: {running[name][0].failure}")
            names.remove(name)
        say(f"round {i + 1}: " + ", ".join(f"{name} {times[name][-1]:.1f} ms" for name in names))
    return [record(name, *running[name], times[name]) for name in names]


def record(name, worker, facts, times):
    """What is written to the file of one contender."""
    first, median = facts.pop("first"), float(np.median(times))
    return {
        "contender": name,
        **facts,
        "start_seconds": max(0.0, first["seconds"] - 1e-3 * (first["iterations"] - 1) * median),
        "median_ms": median,
        "best_ms": min(times),
        "all_ms": [round(value, 3) for value in times],
        "peak_memory": worker.finish(),
    }


def table(records, rst):
    """The times, and ours against the others."""
    header = [
        "contender",
        "ms an iteration, median",
        "best",
        "s to the first iteration",
        "s of import",
        "peak memory, MB",
    ]
    rows = [
        [
            f"{one['contender']} {one['version'] or ''}".strip(),
            number(one["median_ms"]),
            number(one["best_ms"]),
            number(one["start_seconds"]),
            number(one["import_seconds"]),
            number(one["peak_memory"], ".0f"),
        ]
        for one in records
    ]
    show(header, rows, rst, [*ratios({one["contender"]: one for one in records}), where(records)])


def ratios(records):
    """Ours against the fastest of the others, and against the floor."""
    for kind, (ours, others) in COMPARISONS.items():
        peers = [records[name] for name in others if name in records]
        for name in (name for name in records if name.startswith(ours)):
            if peers:
                fastest = min(peers, key=lambda one: one["median_ms"])
                yield f"{name} / {fastest['contender']}, the fastest {kind} peer: {quotients(records[name], fastest)}."
            floor, before = (records.get(name.replace("ours", other)) for other in ("floor", "before"))
            if floor:
                yield f"{name} / its floor: {quotients(records[name], floor)}."
            if before:
                yield f"{name} / before: {quotients(records[name], before)}."


def quotients(one, other):
    """The ratios of the medians and of the best."""
    median, best = (one[key] / other[key] for key in ("median_ms", "best_ms"))
    return f"{median:.2f} (medians), {best:.2f} (best)"


def main(argv=None):
    args = parse_arguments(argv)
    results = Results(args.output)
    if not args.only_print:
        for one in measure(args):
            results.add(one)
    # Ratios are those of one run.
    last = [one for one in results.records if one["date"] == results.records[-1]["date"]]
    if last:
        table(last, args.rst)


if __name__ == "__main__":
    main()
