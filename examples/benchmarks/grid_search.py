"""A grid search of 20 candidates and 5 folds: seconds, compilations and memory, for ours and the peers.

    python examples/benchmarks/grid_search.py --peer-python /path/to/peers/bin/python --rst
    python examples/benchmarks/grid_search.py --datasets pima --n-rows 300 --max-iter 50

Each is scikit-learn's ``GridSearchCV`` over the same starting values of one RBF kernel, four
amplitudes and five lengthscales, in one process of its own: ours, scikit-learn's exact Gaussian
processes, and GPyTorch's within skorch (an exact one for regression; sparse ones, with Adam, for
both tasks). Ours also stands with the package's own search, whose fits run in threads ("ours
threads"), with its ``early_stopping`` ("ours halving"), and with scikit-learn's in two processes.
Ours and the sparse peers have the same numbers of inducing points, rows of a minibatch and
iterations; ours does not stop before (``tol=0``).

Seconds are those of the search alone, and the first fit is that until the first score. The exact
ones may be given a part of the grid (``--n-exact-length-scales``), since theirs takes hours at some
thousand rows: compared are seconds a fit, and their score is the best of that part. Compilations are
counted from JAX's log; memory is the resident set after the first fifth of the fits, at the end, and
at its largest. The score is the best mean of the folds: accuracy or R2, which says that the
candidates were trained, and no more.
"""

from __future__ import annotations

from _common import Contender, Results, chosen, contest_parser, machine, number, prepared, run_alone, show, where

TASKS = {"pima": "classification", "magic": "classification", "kin8nm": "regression", "energy": "regression"}
AMPLITUDES = [0.25, 1.0, 4.0, 16.0]
LENGTH_SCALES = [0.5, 1.0, 2.0, 4.0, 8.0]


def parse_arguments(argv=None):
    p = contest_parser(__doc__, "grid_search.jsonl")
    p.add_argument("--datasets", nargs="+", choices=list(TASKS), default=["magic", "kin8nm"])
    p.add_argument("--n-rows", type=int, default=2560, help="of each table, at most: by default two batches a fold")
    p.add_argument("--n-inducing", type=int, default=100)
    p.add_argument("--max-iter", type=int, default=200, help="of each fit, where it is the library's to say")
    p.add_argument("--n-length-scales", type=int, default=len(LENGTH_SCALES), help="of the grid, from the first")
    p.add_argument("--n-exact-length-scales", type=int, help="the same, for the exact contenders")
    p.add_argument("--folds", type=int, default=5)
    args = p.parse_args(argv)
    if args.n_exact_length_scales is None:
        args.n_exact_length_scales = args.n_length_scales
    if args.max_rows is not None:
        p.error("--max-rows: say --n-rows here")
    # A tenth of the rows is held out by the split that all benchmarks share.
    args.max_rows = round(args.n_rows / 0.9)
    return args


def contenders(task, args):
    """All of them by name."""
    settings = {
        "task": task,
        "amplitudes": AMPLITUDES,
        "length_scales": LENGTH_SCALES[: args.n_length_scales],
        "folds": args.folds,
        "n_inducing": args.n_inducing,
        "max_iter": args.max_iter,
        "batch_size": 1024,
        "learning_rate": 0.05,
        "exact": False,
    }
    exact = settings | {"exact": True, "length_scales": LENGTH_SCALES[: args.n_exact_length_scales]}
    own = settings | {"own_search": True}
    found = {
        "ours": Contender("skgp_natgrad", "ours:search", settings),
        "ours threads": Contender("skgp_natgrad", "ours:search", own),
        "ours halving": Contender("skgp_natgrad", "ours:search", own | {"search_options": {"early_stopping": True}}),
        "ours processes": Contender("skgp_natgrad", "ours:search", settings | {"search_options": {"n_jobs": 2}}),
        "sklearn": Contender("sklearn", "sklearn_gp:search", exact),
        "skorch sparse": Contender("gpytorch", "gpytorch_svgp:search", settings),
    }
    if task == "regression":
        found["skorch exact"] = Contender("gpytorch", "gpytorch_svgp:search", exact)
    return found


def key(dataset, name, contender, args):
    """What decides the outcome of a search."""
    facts = {"dataset": dataset, "contender": name, "settings": contender.settings}
    return facts | {"seed": args.seed, "n_rows": args.n_rows}


def results(args):
    """Run what is missing; returns the records."""
    file, found = Results(args.output), []
    for dataset in args.datasets:
        wanted = chosen(contenders(TASKS[dataset], args), args)
        missing = [name for name, contender in wanted.items() if file.find(key(dataset, name, contender, args)) is None]
        if missing and not args.only_print:
            with prepared(dataset, args, args.n_inducing) as data:
                for name in missing:
                    events = run_alone(f"{dataset} {name}", wanted[name], "search", data, args)
                    if events is not None:
                        file.add(key(dataset, name, wanted[name], args) | summary(events) | machine())
        found += [file.find(key(dataset, name, contender, args)) for name, contender in wanted.items()]
    return [record for record in found if record is not None]


def summary(events):
    """What was measured."""
    (imported,), (searched,), (done,) = events["imported"], events["searched"], events["done"]
    return searched | {"version": imported["version"], "peak_memory": done["peak_memory"]}


def table(records, rst):
    """Seconds, compilations and memory, and ours against the fastest of the others."""
    header = ["data set", "contender", "fits", "seconds", "first fit, s", "compilations (of the step)", "best score"]
    header += ["memory after a fifth, MB", "at the end", "at most"]
    rows = [
        [
            one["dataset"],
            f"{one['contender']} {one['version'] or ''}".strip(),
            one["fits"],
            number(one["seconds"]),
            number(one["first_fit"]),
            compilations(one["compilations"]),
            number(one["best_score"], ".3f"),
            number(one["memory_after_fifth"], ".0f"),
            number(one["memory_at_end"], ".0f"),
            number(one["peak_memory"], ".0f"),
        ]
        for one in records
    ]
    show(header, rows, rst, [*ratios(records), where(records)])


def compilations(counts):
    """All programs, and those among them that train."""
    return "-" if counts is None else f"{sum(counts.values())} ({counts.get('_chunk', 0)})"


def ratios(records):
    """How many times faster ours are than the fastest peer and than each other, by the seconds of a fit."""
    for dataset in dict.fromkeys(one["dataset"] for one in records):
        seconds = {one["contender"]: one["seconds"] / one["fits"] for one in records if one["dataset"] == dataset}
        peers = {name: value for name, value in seconds.items() if not name.startswith("ours")}
        fastest = min(peers, key=peers.get) if peers else None
        for name in (name for name in seconds if name not in peers):
            if fastest:
                times = seconds[fastest] / seconds[name]
                yield f"{dataset}: the fastest peer, {fastest}, takes {times:.1f} times as long a fit as {name}."
            if name != "ours" and "ours" in seconds:
                yield f"{dataset}: ours takes {seconds['ours'] / seconds[name]:.2f} times as long as {name}."


def main(argv=None):
    args = parse_arguments(argv)
    records = results(args)
    if records:
        table(records, args.rst)


if __name__ == "__main__":
    main()
