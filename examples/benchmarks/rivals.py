"""``fit(X, y)`` with nothing set, beside eight other libraries with nothing set, on regressions and class labels.

    python -m venv peers && peers/bin/python -m pip install scikit-learn catboost ngboost lightgbm xgboost gpboost
    python -m venv torch && torch/bin/python -m pip install torch==2.13.0 pytabkit xrfm scikit-learn
    python examples/benchmarks/rivals.py --datasets energy pima --splits 1 --peer-python peers/bin/python \\
        --peer-python pytabkit=torch/bin/python --rst

Tables are shuffled by numpy's default_rng(split), the first tenth is held out, and the target of a regression is
standardised by the rest. Contenders, each in a process of its own, with its own early stopping where that is its
default:

- ours; for class labels also with trees: with HistGradientBoosting as ``mean_function``;
- trees (scikit-learn's HistGradientBoosting), lightgbm, xgboost, xrfm and realmlp (the last two by pytabkit): in
  regression with Gaussian noise, whose variance is the mean squared error on a tenth of the training rows that is held
  out from another fit;
- catboost (``RMSEWithUncertainty`` in regression) and ngboost;
- gpboost: a Gaussian process by its Vecchia approximation, Matern 5/2 with a lengthscale for each column; of several
  classes, each against the rest.

Log density is in nats per held-out row, the calibration error the expected one in fifteen bins of the largest
probability, and coverage that of 95 % intervals. Seconds are those of the fit, with the other fit that sets the
noise; processor seconds are those of all its threads. Shown are means over the splits; a contender that lacks one
has a dash. One whose library is missing is left out, with a message, and so is one that takes longer than
``--most-seconds``.
"""

from __future__ import annotations

import numpy as np
from _common import Contender, Results, chosen, machine, peer_parser, run_alone, show, where, written
from accuracy import load
from defaults import halves, provenance

# The module that is imported first, by the name of the contender; elsewhere it has that name.
_LIBRARIES = {"ours": "skgp_natgrad", "with trees": "skgp_natgrad", "trees": "sklearn"}
_LIBRARIES |= {"xrfm": "pytabkit", "realmlp": "pytabkit"}
_NAMES = ("ours", "with trees", "trees", "catboost", "ngboost", "lightgbm", "xgboost", "gpboost", "xrfm", "realmlp")
# What is shown of a record: a title, a key, and the form of the numbers.
_REGRESSION = (("log density", "density", ".3f"), ("RMSE", "rmse", ".4f"), ("CRPS", "crps", ".4f"))
_REGRESSION += (("coverage", "coverage", ".3f"), ("seconds", "seconds", ".1f"))
_PROCESSOR = (("processor seconds", "processor_seconds", ".1f"),)
_REGRESSION += _PROCESSOR
_CLASSES = (("log density", "density", ".4f"), ("error rate", "error_rate", ".4f"))
_CLASSES += (("calibration error", "calibration", ".4f"), ("seconds", "seconds", ".1f"), *_PROCESSOR)


def parse_arguments(argv=None):
    p = peer_parser(__doc__, "rivals.jsonl")
    p.add_argument("--datasets", nargs="+", required=True, help="names of files in regression/ or classification/")
    p.add_argument("--splits", type=int, default=3, help="held-out tenths, from that of --seed")
    p.add_argument("--most-seconds", type=int, default=3600, help="end a contender after so long")
    return p.parse_args(argv)


def contenders(task, args):
    """Those that are asked for and have this task, by name."""
    target = "rivals:regression" if task == "regression" else "rivals:classification"
    every = {}
    for name in _NAMES:
        settings = {"contender": name, "most_seconds": args.most_seconds}
        every[name] = Contender(_LIBRARIES.get(name, name), target, settings)
    found = chosen(every, args)
    return {name: one for name, one in found.items() if not (task == "regression" and name == "with trees")}


def measure(dataset, split, args, results):
    """Run what has no result yet."""
    X, y, task = load(args.data_dir, dataset)
    key = {"dataset": dataset, "task": task, "split": split}
    every = contenders(task, args).items()
    missing = {name: one for name, one in every if not results.find(key | {"contender": name})}
    if not missing:
        return
    arrays = dict(zip(("X", "y", "X_test", "y_test"), halves(X, y, task, split), strict=True))
    common = {"rows": len(arrays["X"]), "columns": X.shape[1], **provenance(), **machine()}
    with written(**arrays) as path:
        for name, contender in missing.items():
            contender.settings["seed"] = split
            events = run_alone(f"{dataset}, split {split}: {name}", contender, "profile", path, args)
            if events is not None:
                found = {"contender": name, "version": events["imported"][0]["version"], **events["profiled"][0]}
                results.add(key | common | found)


def main(argv=None):
    args = parse_arguments(argv)
    results = Results(args.output)
    for dataset in [] if args.only_print else args.datasets:
        for split in range(args.seed, args.seed + args.splits):
            measure(dataset, split, args, results)
    wanted = range(args.seed, args.seed + args.splits)
    last = {(record["dataset"], record["contender"], record["split"]): record for record in results.records}
    last = [each for each in last.values() if each["dataset"] in args.datasets and each["split"] in wanted]
    for title, is_regression, shown in (("Regressions", True, _REGRESSION), ("Class labels", False, _CLASSES)):
        records = [record for record in last if (record["task"] == "regression") == is_regression]
        records = [record for record in records if record["contender"] in (args.contenders or _NAMES)]
        for name, key, form in shown if records else ():
            print(f"\n{title}: {name}\n")
            show_key(records, key, form, args)


def show_key(records, key, form, args):
    """Print one number of all contenders side by side, a line for each data set."""
    names = [name for name in _NAMES if any(record["contender"] == name for record in records)]
    rows = []
    for dataset in args.datasets:
        of_set = [record for record in records if record["dataset"] == dataset]
        n_splits = len({record["split"] for record in of_set})
        # Earlier records have no processor seconds of class labels.
        each = {name: [r[key] for r in of_set if r["contender"] == name and key in r] for name in names}
        if of_set:
            cells = [format(np.mean(each[name]), form) if len(each[name]) == n_splits else "-" for name in names]
            rows.append((dataset, str(n_splits), *cells))
    commits = sorted({str(record["commit"]) for record in records if record["contender"] in ("ours", "with trees")})
    show(("data set", "splits", *names), rows, args.rst, [where(records), f"Commits of ours: {', '.join(commits)}"])


if __name__ == "__main__":
    main()
