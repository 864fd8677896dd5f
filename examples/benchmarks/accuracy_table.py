"""The figures that a change of the search, the solve or the calibration must keep: run it before and after.

    python examples/benchmarks/accuracy_table.py
    PYTHONPATH=../before python examples/benchmarks/accuracy_table.py --cases energy pima

A run appends one line to ``doc/accuracy_table.jsonl``, the figures of its cases with the commit of the package that was
imported, the date and the machine, and writes the last runs below each other into ``doc/accuracy_table.inc``.
``tests/test_landed_accuracy.py`` fits the same cases, and holds them to the last figures of the file.

Cases are ``fit(X, y)`` with nothing set, beside the plainest baseline, and training by steps: the contenders of
``defaults.py``, which also has the split and the scores.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from _common import HERE, Results, machine, parser, say, show, where
from accuracy import DEFAULT_DATA, load
from defaults import halves, provenance, run

DOC = HERE.parents[1] / "doc"
DATA = Path(os.environ.get("SKGP_DATA", DEFAULT_DATA))
# Digits that are kept of a figure, and those shown.
_KEPT, _SCORES = 5, {"density": ".3f", "error": ".4f", "z": ".2f", "calibration": ".3f", "seconds": ".0f"}


class Case(NamedTuple):
    """A data set, of which ``rows`` are drawn from a longer one, and its fits; the tests repeat the first."""

    dataset: str
    contenders: tuple[str, ...] = ("ours", "one kernel")
    rows: int | None = None


CASES = {
    "energy": Case("energy"),
    "kin8nm": Case("kin8nm"),
    "power": Case("power"),
    "elevators": Case("elevators", ("ours",)),
    "protein": Case("protein", ("ours",), rows=12_000),
    "pima": Case("pima"),
    "wine-quality-white": Case("wine-quality-white", rows=3000),
    "statlog-landsat": Case("statlog-landsat", rows=3000),
    "pendigits": Case("pendigits", ("ours",)),
    "kin40k by steps": Case("kin40k", ("one kernel by steps",)),
    "magic by steps": Case("magic", ("300 points by steps",)),
}


def parse_arguments(argv=None):
    p = parser(__doc__, DOC / "accuracy_table.jsonl")
    p.add_argument("--data-dir", type=Path, default=DATA)
    p.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    p.add_argument("--last", type=int, default=4, help="runs that the table shows of a case")
    return p.parse_args(argv)


def parts_of(case, data_dir):
    """Training and held-out rows of a case, and its task."""
    X, y, task = load(data_dir, case.dataset)
    chosen = np.random.default_rng(0).permutation(len(X))[: case.rows] if case.rows else slice(None)
    return halves(X[chosen], y[chosen], task, 0), task


def figures_of(case, contender, data_dir):
    """The scores and the seconds of a fit."""
    parts, task = parts_of(case, data_dir)
    record = run(case.dataset, task, contender, 0, parts)
    return {name: round(record[name], _KEPT) for name in _SCORES if name in record}


def landed(path=DOC / "accuracy_table.jsonl"):
    """The last figures of each case, by contender."""
    found = {}
    for record in Results(path).records:
        found |= record["figures"]
    return found


def rows_of(records, last):
    """The rows of the table: of every fit the last runs."""
    for name, case in CASES.items():
        for contender in case.contenders:
            runs = [(r["commit"], r["date"][:10], r["figures"][name]) for r in records if name in r["figures"]]
            for commit, date, figures in runs[-last:]:
                scores = figures[contender]
                shown = [format(scores[key], form) if key in scores else "" for key, form in _SCORES.items()]
                yield [name, contender, commit, date, *shown]


def written(records, path, last):
    """Write the table beside the records."""
    header = ["case", "fit", "commit", "date", "log density", "error", "rms z", "coverage / ECE", "seconds"]
    with path.open("w") as file, contextlib.redirect_stdout(file):
        print(".. rst-class:: numbers\n")
        show(header, list(rows_of(records, last)), rst=True, notes=[where(records)])


def main(argv=None):
    args = parse_arguments(argv)
    results = Results(args.output)
    if not args.only_print:
        figures = {}
        for name in args.cases:
            each = CASES[name].contenders
            figures[name] = {contender: figures_of(CASES[name], contender, args.data_dir) for contender in each}
            say(f"{name}: {figures[name]}")
        results.add(provenance() | machine() | {"figures": figures})
    written(results.records, args.output.with_suffix(".inc"), args.last)


if __name__ == "__main__":
    main()
