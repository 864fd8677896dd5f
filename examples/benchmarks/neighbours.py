"""Regressions of tables that are too long for a mean on all rows, by ours and other libraries, each with nothing set.

    python examples/benchmarks/neighbours.py --peer-python peers/bin/python --rst
    python examples/benchmarks/neighbours.py --datasets arm --rows 190000 --contenders ours trees
    python examples/benchmarks/neighbours.py --datasets arm --rows 10000000 --contenders "ours from files"

Tables:

- nycflights: delays of flights, from ``--data-dir``;
- arm, simulated: the distance of the hand of a planar robot arm with eight links of length 1 from its base, given the
  angles of its joints, uniform in (-pi/2, pi/2); the noise is .05 standard deviations of the distance;
- field, simulated: a smooth function of a place and a time with lengthscales of a tenth of their range, with a jump at
  a time, and noise whose deviation grows with the first coordinate from .1 to .5.

A tenth of the rows is held out, in the order of numpy's default_rng(seed), of which the first 3000 are scored.
``--rows`` are those of training. Targets are standardised by the training rows. Contenders, each in a process of its
own:

- ours, and ours with ``n_neighbors=0``, which predicts from inducing points alone; where it is asked for, ours from
  files, whose X and y are memory maps;
- trees (scikit-learn's HistGradientBoosting) and lightgbm: with Gaussian noise, whose variance is the mean squared
  error on a tenth of the training rows that is held out from another fit; catboost with its ``RMSEWithUncertainty``;
- gpboost vecchia and gpboost full-scale: Matern 5/2 with a lengthscale for each column, and the library's own numbers
  of neighbours and inducing points;
- gpytorch svgp (500 points, 10 epochs of 1024 rows) and gpytorch vnngp (32 neighbours, 5 epochs of 256 rows), the same
  kernel, with Adam.

Seconds are those of the fit, on the clock and of all cores together;
rows a second those of means and deviations of the scored rows, after a first prediction; the memory is the largest of
the process, which holds the libraries and the table. A contender whose library is missing is left out, with a message,
and so is one that takes longer than ``--most-seconds``.
"""

from __future__ import annotations

import contextlib

import numpy as np
from _common import (
    Contender,
    Results,
    chosen,
    machine,
    number,
    peer_parser,
    run_alone,
    show,
    where,
    written,
    written_apart,
)
from accuracy import load
from defaults import halves, provenance

# Training rows of the simulated tables, where nothing is said of them; rows that are scored.
_ROWS = {"arm": (190_000, 1_000_000), "field": (300_000,)}
_SCORED = 3000
_WAVES, _LENGTHSCALE, _JUMP = 400, 0.1, 1.0
# The libraries of contenders by the first word of their names.
_LIBRARIES = {"ours": "skgp_natgrad", "trees": "sklearn"}
_NAMES = ("ours", "ours n_neighbors=0", "trees", "lightgbm", "catboost", "gpboost vecchia", "gpboost full-scale")
_NAMES += ("gpytorch svgp", "gpytorch vnngp")
_FROM_FILES = "ours from files"


def parse_arguments(argv=None):
    p = peer_parser(__doc__, "neighbours.jsonl")
    p.add_argument("--datasets", nargs="+", default=["nycflights", *_ROWS], help="also files in regression/")
    p.add_argument("--rows", nargs="+", type=int, help="training rows of each table; default: its own")
    p.add_argument("--most-seconds", type=int, default=3600, help="end a contender after so long")
    return p.parse_args(argv)


# -- tables ------------------------------------------------------------------------------------------


def arm(n_rows, rng):
    """Angles of the joints, and the standardised distance with its noise."""
    X = rng.uniform(-np.pi / 2.0, np.pi / 2.0, (n_rows, 8))
    direction = np.cumsum(X, axis=1)
    distance = np.hypot(np.cos(direction).sum(1), np.sin(direction).sum(1))
    noise = 0.05 * rng.normal(size=n_rows)
    return X, (distance - distance.mean()) / distance.std() + noise, noise


def field(n_rows, rng):
    """A place (two coordinates) and a time, what is seen there with its noise."""
    X = rng.uniform(size=(n_rows, 3))
    truth = np.where(X[:, 2] > 0.5, _JUMP, 0.0)
    for _ in range(_WAVES):
        wave, phase = rng.normal(size=3) / _LENGTHSCALE, rng.uniform(0.0, 2.0 * np.pi)
        truth += np.sqrt(2.0 / _WAVES) * np.cos(X @ wave + phase)
    noise = (0.1 + 0.4 * X[:, 0]) * rng.normal(size=n_rows)
    scale = truth.std()
    return X, (truth - truth.mean() + noise) / scale, noise / scale


def parts(name, n_rows, args):
    """The arrays of training and of the rows that are scored; and the RMSE of the noise alone, where it is known."""
    if name in _ROWS:
        # Of so many rows nine tenths are at least those that are asked for.
        X, y, noise = {"arm": arm, "field": field}[name](-(-n_rows * 10 // 9), np.random.default_rng(args.seed))
        X = np.column_stack([X, noise])
    else:
        X, y, task = load(args.data_dir, name)
        if task != "regression":
            raise SystemExit(f"--datasets {name}: it has classes; regressions are compared here.")
    scale = np.std(y)
    X, y, X_test, y_test = halves(X, y, "regression", args.seed)
    X, y, X_test, y_test = X[:n_rows], y[:n_rows], X_test[:_SCORED], y_test[:_SCORED]
    floor = None
    if name in _ROWS:
        floor = float(np.sqrt(np.mean(X_test[:, -1] ** 2)) / scale)
        X, X_test = np.ascontiguousarray(X[:, :-1]), np.ascontiguousarray(X_test[:, :-1])
    return {"X": X, "y": y, "X_test": X_test, "y_test": y_test}, floor


# -- runs --------------------------------------------------------------------------------------------


def contenders(args):
    """Those that are asked for, by name."""
    common = {"seed": args.seed, "most_seconds": args.most_seconds}
    every = {}
    for name in (*_NAMES, _FROM_FILES):
        first = name.split()[0]
        every[name] = Contender(_LIBRARIES.get(first, first), "long_tables:contest", common | {"contender": name})
    return chosen(every, args, optional=(_FROM_FILES,))


def measure(dataset, n_rows, args, results):
    """Run what has no result yet."""
    key = {"dataset": dataset, "asked": n_rows, "seed": args.seed}
    missing = {name: one for name, one in contenders(args).items() if not results.find(key | {"contender": name})}
    if not missing:
        return
    arrays, floor = parts(dataset, n_rows, args)
    common = {"rows": len(arrays["X"]), "columns": arrays["X"].shape[1], "noise": floor, **provenance(), **machine()}
    with contextlib.ExitStack() as files:
        together = files.enter_context(written(**arrays)) if missing.keys() - {_FROM_FILES} else None
        apart = files.enter_context(written_apart(**arrays)) if _FROM_FILES in missing else None
        del arrays
        for name, contender in missing.items():
            path = apart if name == _FROM_FILES else together
            events = run_alone(f"{dataset}, {common['rows']} rows: {name}", contender, "profile", path, args)
            if events is not None:
                found = {"contender": name, "version": events["imported"][0]["version"], **events["profiled"][0]}
                results.add(key | common | found | {"peak_memory": events["done"][0]["peak_memory"]})


def main(argv=None):
    args = parse_arguments(argv)
    results = Results(args.output)
    tables = [(name, n_rows) for name in args.datasets for n_rows in args.rows or _ROWS.get(name, (None,))]
    for name, n_rows in [] if args.only_print else tables:
        measure(name, n_rows, args, results)
    keys = [{"dataset": name, "asked": n_rows, "seed": args.seed} for name, n_rows in tables]
    show_results([results.find(key | {"contender": name}) for key in keys for name in contenders(args)], args.rst)


def show_results(records, rst):
    """Print a line for each record."""
    records = [record for record in records if record]
    header = ("data set", "contender", "rows, cols", "RMSE", "noise", "log density", "CRPS", "coverage")
    header += ("fit, s", "of CPU", "rows/s", "peak MB")
    rows = [
        (
            record["dataset"],
            record["contender"],
            f"{record['rows']}, {record['columns']}",
            f"{record['rmse']:.4f}",
            number(record["noise"], ".4f"),
            f"{record['density']:.3f}",
            f"{record['crps']:.4f}",
            f"{record['coverage']:.3f}",
            f"{record['seconds']:.1f}",
            f"{record['processor_seconds']:.1f}",
            f"{record['rate']:.0f}",
            f"{record['peak_memory']:.0f}",
        )
        for record in records
    ]
    commits = sorted({str(record["commit"]) for record in records if record["contender"].startswith("ours")})
    notes = [where(records), f"Commits of ours: {', '.join(commits)}"] if records else ()
    show(header, rows, rst, notes)


if __name__ == "__main__":
    main()
