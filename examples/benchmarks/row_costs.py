"""What predictions of default models cost, and what a user trades: means alone, fewer rows, fewer neighbours.

    python examples/benchmarks/row_costs.py --rst
    python examples/benchmarks/row_costs.py --tables protein protein::n_neighbors=200 kin8nm:3000:n_inducing=1000

A table is the name of a data set, the number of training rows (all by default) and an argument with its value.
A tenth of the rows is held out, in the order of numpy's default_rng(seed). Rows a second are those of one core, from
the CPU time of the process, of the mean (of a classifier: the class) and of the mean with its deviation (the
probabilities) of ``--n-rows`` rows, the best of three calls after a first; milliseconds are those of one row, the mean
of a hundred calls. The file is a pickle; its size is divided by that of X and y in double precision. Log density and
RMSE (of a classifier: the log-likelihood and the share of errors) are those of the first ``--scored`` held-out rows.
"""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path

import numpy as np
from _common import DEFAULT_DATA, Results, machine, number, parser, say, show, where
from accuracy import load

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor

TABLES = [
    "kin8nm:3000",
    "kin8nm:3000:n_inducing=1000",
    "power:3000",
    "protein:3000",
    "pendigits:3000",
    "bike",
    "kin40k",
    "protein",
    "protein::n_neighbors=200",
]


def parse_arguments(argv=None):
    p = parser(__doc__, "row_costs.jsonl")
    p.add_argument("--data-dir", type=Path, default=Path(os.environ.get("SKGP_DATA", DEFAULT_DATA)))
    p.add_argument("--tables", nargs="+", default=TABLES)
    p.add_argument("--n-rows", type=int, default=4096)
    p.add_argument("--scored", type=int, default=3000)
    return p.parse_args(argv)


def measured(table, args):
    """The record of one table."""
    name, n_rows, argument = [*table.split(":"), "", ""][:3]
    X, y, task = load(args.data_dir, name)
    order = np.random.default_rng(args.seed).permutation(len(X))
    test, train = np.split(order, [len(X) // 10])
    train = train[: int(n_rows) if n_rows else None]
    options = {key: int(value) for key, value in ([argument.split("=")] if argument else [])}
    kind = NGDSVGPRegressor if task == "regression" else NGDSVGPClassifier
    model = kind(random_state=args.seed, **options).fit(X[train], y[train])
    rows, one = np.resize(X[test], (args.n_rows, X.shape[1])), X[test[:1]]
    alone, whole = functions(model)
    saved = pickle.dumps(model)
    return {
        "trained on": len(train),
        "from": model.plan_.split("each row predicted from ")[-1].split(";")[0]
        if "each row predicted" in model.plan_
        else f"{len(model.inducing_points_)} points",
        "mean": args.n_rows / seconds(lambda: alone(rows)),
        "whole": args.n_rows / seconds(lambda: whole(rows)),
        "mean of one": seconds(lambda: [alone(one) for _ in range(100)]) / 100,
        "whole of one": seconds(lambda: [whole(one) for _ in range(100)]) / 100,
        "size": len(saved),
        "of the table": 8 * (X[train].size + len(train)),
        "load": seconds(lambda: pickle.loads(saved)),
    } | scores(model, X[test[: args.scored]], y[test[: args.scored]])


def functions(model):
    """The cheapest prediction, and the whole one."""
    if hasattr(model, "predict_proba"):
        return model.predict, model.predict_proba
    return model.predict, lambda X: model.predict(X, return_std=True)


def scores(model, X, y):
    """The mean log density, and what is wrong with the mean."""
    if hasattr(model, "predict_proba"):
        p = model.predict_proba(X)[np.arange(len(X)), np.searchsorted(model.classes_, y)]
        return {"density": float(np.log(p).mean()), "error": float(np.mean(model.predict(X) != y))}
    error = model.predict(X) - y
    return {"density": float(model.predict_log_density(X, y).mean()), "error": float(np.sqrt(np.mean(error**2)))}


def seconds(function):
    """Seconds of all cores together, the best of three calls after a first."""
    function()
    found = []
    for _ in range(3):
        begin = time.process_time()
        function()
        found.append(time.process_time() - begin)
    return min(found)


def main(argv=None):
    args = parse_arguments(argv)
    file, records = Results(args.output), []
    for table in args.tables:
        key = {"table": table, "n_rows": args.n_rows, "scored": args.scored, "seed": args.seed}
        if file.find(key) is None and not args.only_print:
            say(table)
            file.add(key | measured(table, args) | machine())
        records += [each for each in [file.find(key)] if each is not None]
    header = ["data set", "rows", "from", "means/s", "deviations/s", "one mean, ms", "one deviation, ms"]
    rows = [
        [
            each["table"].split(":")[0],
            each["trained on"],
            each["from"],
            *(number(each[name], ",.0f") for name in ("mean", "whole")),
            *(number(1e3 * each[name], ".2f") for name in ("mean of one", "whole of one")),
            number(each["size"] / 1e6),
            number(each["size"] / each["of the table"]),
            number(each["load"], ".2f"),
            number(each["density"], ".3f"),
            number(each["error"], ".4g"),
        ]
        for each in records
    ]
    show([*header, "file, MB", "of the table", "load, s", "log density", "error"], rows, args.rst, [where(records)])


if __name__ == "__main__":
    main()
