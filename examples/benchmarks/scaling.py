"""What a training step costs against the rows of a batch, the points and the latent functions, on log axes.

    python examples/benchmarks/scaling.py --rst
    python examples/benchmarks/scaling.py --sweeps B M --rounds 3

One size is varied at a time: B rows in a batch, M inducing points, G mean-only points, K latent
functions (targets of a regression), and N rows of the table, for which the seconds of a whole fit of
so many iterations are taken. The data are random. Two costs are measured, and a slope fitted to the
logarithms of each: milliseconds of a step, which other work on the machine disturbs, and operations
of the compiled step as XLA counts them (``cost_analysis``), which nothing disturbs. XLA counts none
for the factorisations, a minor part.

Expected are slopes of one in B, G and K, and between two and three in M: 4 B M^2 operations of the
products with a batch dimension and some 16 M^3 of the others. In N a step costs the same, so that
a fit's slope is below one. ``within 15 %`` says whether a slope of the operations (of N, of the
seconds) is as expected; what does not grow with the size that is varied makes the slope of a small
range smaller.
"""

from __future__ import annotations

import time
import warnings
from typing import NamedTuple

import numpy as np
from _common import Results, machine, number, parser, pyplot, save, say, show, where
from _worker import Clock
from contenders import ours
from sklearn.exceptions import ConvergenceWarning


class Sweep(NamedTuple):
    """A size that is varied: its values, the other sizes, and the slopes that are expected of it."""

    title: str
    values: list
    others: dict
    slopes: tuple


SIZES = {"B": 1024, "M": 100, "G": 0, "K": 1, "N": 20_000}
SWEEPS = {
    "B": Sweep("rows of a batch", [1024, 2048, 4096, 8192, 16384], {"N": 40_000}, (1.0, 1.0)),
    "M": Sweep("inducing points", [100, 200, 400, 800], {}, (2.0, 3.0)),
    "G": Sweep("mean-only points", [2000, 4000, 8000, 16000], {}, (1.0, 1.0)),
    "K": Sweep("latent functions", [2, 4, 8, 16], {"M": 200}, (1.0, 1.0)),
    "N": Sweep("rows of the table", [5000, 20_000, 80_000, 320_000], {}, (0.0, 1.0)),
}
# How far a slope may lie from what is expected, as a part of it.
TOLERANCE = 0.15
N_FEATURES = 8
# Columns of the mean-only points' covariance in a step.
N_COLUMNS = 64


def parse_arguments(argv=None):
    p = parser(__doc__, "scaling.jsonl")
    p.add_argument("--sweeps", nargs="+", choices=list(SWEEPS), default=list(SWEEPS))
    p.add_argument("--rounds", type=int, default=5, help="chunks of 20 steps that are timed, after the first")
    p.add_argument("--fit-iterations", type=int, default=100, help="of the fits on N rows")
    p.add_argument("--divide", type=int, default=1, help="all sizes that are varied, for a small version")
    p.add_argument("--picture", default="scaling.png")
    return p.parse_args(argv)


class Blocks:
    """Called after each chunk of a fit: collects the milliseconds of a step, and ends the fit."""

    def __init__(self, n_blocks):
        self.clock, self.n_blocks, self.marks = Clock(), n_blocks, []
        self.clock.resume()

    def __call__(self, n_iter, make_predictor, final=False):
        self.marks.append((n_iter, self.clock.pause()))
        self.clock.resume()
        return len(self.marks) > self.n_blocks

    def milliseconds(self):
        """Of a step, in each block but the first, which compiles."""
        n_iter, seconds = np.asarray(self.marks[: self.n_blocks + 1]).T
        return 1e3 * np.diff(seconds) / np.diff(n_iter)


def table(sizes, seed):
    """Random rows with smooth targets, one for each latent function."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(sizes["N"], N_FEATURES))
    directions = rng.normal(size=(N_FEATURES, sizes["K"]))
    y = np.sin(X @ directions) + 0.1 * rng.normal(size=(sizes["N"], sizes["K"]))
    return X, y[:, 0] if sizes["K"] == 1 else y


def settings(sizes, max_iter, seed):
    """The estimator's, for `contenders.ours`."""
    arguments = {
        "n_inducing": sizes["M"],
        "n_mean_inducing": sizes["G"],
        "inducing_init": "random",
        "mean_columns": N_COLUMNS,
        "batch_size": sizes["B"],
        "max_iter": max_iter,
        "random_state": seed,
    }
    return {"task": "regression", "arguments": arguments}


def cost_of_step(sizes, args):
    """Milliseconds and operations of a step."""
    X, y = table(sizes, args.seed)
    blocks = Blocks(args.rounds)
    options = settings(sizes, 20 * (args.rounds + 1), args.seed)
    ours.train({"X": X, "y": y}, options, blocks)
    times = blocks.milliseconds()
    flops = ours.step_flops({"X": X, "y": y}, options)
    return {"median": float(np.median(times)), "best": float(times.min()), "flops": float(flops)}


def cost_of_fit(sizes, args):
    """Seconds of fits after one that compiles."""
    X, y = table(sizes, args.seed)
    model, seconds = ours.make(settings(sizes, args.fit_iterations, args.seed), N_FEATURES), []
    for _ in range(1 + max(1, args.rounds // 2)):
        start = time.perf_counter()
        model.fit(X, y)
        seconds.append(time.perf_counter() - start)
    return {"median": float(np.median(seconds[1:])), "best": min(seconds[1:]), "flops": None}


def results(args):
    """Run what is missing; returns the records by sweep."""
    file, found = Results(args.output), {}
    for name in args.sweeps:
        found[name] = []
        for value in SWEEPS[name].values:
            sizes = SIZES | SWEEPS[name].others | {name: max(1, value // args.divide)}
            key = {"sweep": name, "sizes": sizes, "rounds": args.rounds, "seed": args.seed}
            key |= {"fit_iterations": args.fit_iterations if name == "N" else None}
            if file.find(key) is None and not args.only_print:
                cost = (cost_of_fit if name == "N" else cost_of_step)(sizes, args)
                say(f"{name} = {sizes[name]}: {cost}")
                file.add(key | cost | machine())
            found[name].append(file.find(key))
    return {name: [one for one in records if one] for name, records in found.items()}


def slope(records, name, cost):
    """The slope of the logarithms, or None where there is no cost of this kind."""
    values = [record[cost] for record in records]
    if len(values) < 2 or None in values:
        return None
    return float(np.polyfit(np.log([record["sizes"][name] for record in records]), np.log(values), 1)[0])


def show_slopes(found, rst):
    """A row a sweep."""
    header = ["size", "from", "to", "operations, slope", "best time, slope", "median time, slope", "expected"]
    header.append(f"within {TOLERANCE:.0%}".replace("%", " %"))
    rows = []
    for name, records in found.items():
        if not records:
            continue
        sweep, ends = SWEEPS[name], (records[0]["sizes"][name], records[-1]["sizes"][name])
        flops, best, median = (slope(records, name, cost) for cost in ("flops", "best", "median"))
        low, high = sweep.slopes
        judged = median if flops is None else flops
        within = judged is not None and (1 - TOLERANCE) * low <= judged <= (1 + TOLERANCE) * high
        expected = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        slopes = [number(value, ".2f") for value in (flops, best, median)]
        rows.append([f"{name}, {sweep.title}", *ends, *slopes, expected, "yes" if within else "no"])
    show(header, rows, rst, [where([record for records in found.values() for record in records])])


def draw(found, path):
    """Time and operations against each size, with lines of the expected slopes through the last point."""
    plt = pyplot()
    found = {name: records for name, records in found.items() if records}
    figure, axes = plt.subplots(2, len(found), figsize=(3.1 * len(found), 6), squeeze=False, constrained_layout=True)
    for column, (name, records) in enumerate(found.items()):
        unit = "seconds of a fit" if name == "N" else "ms of a step"
        for axis, cost, label in zip(axes[:, column], ("best", "flops"), (unit, "operations of a step"), strict=True):
            axis.set(xscale="log", yscale="log", xlabel=f"{name}, {SWEEPS[name].title}", ylabel=label)
            axis.set_visible(records[0][cost] is not None)
            if records[0][cost] is not None:
                draw_cost(axis, [one["sizes"][name] for one in records], [one[cost] for one in records], name)
    save(figure, path)


def draw_cost(axis, sizes, costs, name):
    """One cost, and the expected slopes."""
    axis.plot(sizes, costs, "o-", label="measured")
    for power in dict.fromkeys(SWEEPS[name].slopes):
        axis.plot(sizes, costs[-1] * (np.asarray(sizes) / sizes[-1]) ** power, ":", label=f"slope {power:g}")
    axis.set_xticks(sizes, [f"{size:g}" for size in sizes])
    axis.minorticks_off()
    axis.grid(alpha=0.2)
    axis.legend(fontsize=7)


def main(argv=None):
    args = parse_arguments(argv)
    warnings.simplefilter("ignore", ConvergenceWarning)
    found = results(args)
    if any(found.values()):
        show_slopes(found, args.rst)
        draw(found, args.output.parent / args.picture)


if __name__ == "__main__":
    main()
