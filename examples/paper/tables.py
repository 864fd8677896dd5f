"""Tables 1 to 6 of the orthogonal paper: run what is missing, and write what there is.

    python examples/paper/tables.py --table 3 4                 # all sets and methods, print the tables
    python examples/paper/tables.py --table 4 --sets kin40k --methods coupled orthnat --splits 0 1
    python examples/paper/tables.py --table 4 --iterations 20000  # the paper's own training: hours
    python examples/paper/tables.py --report                    # run nothing, write doc/paper_tables
    python examples/paper/tables.py --report --picture doc/pictures/paper_ranks.png

Tables 1, 3 and 4 (regression) share their fits, and so do 2, 5 and 6 (classification).
Every finished fit is a line of ``--results``, with its scores, seconds, commit, machine
and date; what is in the file is not run again, so that a run can be stopped at any time
and goes on where it was. Data set by data set, all methods of one before the next.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import _common as common
import _orthogonal as orthogonal
import _pictures as pictures
import _tables

RESULTS = common.DEFAULT_OUTPUT / "tables.jsonl"
REPORT = common.ROOT / "doc" / "paper_tables"


def parse(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--table", nargs="+", type=int, choices=list(_tables.TASKS), default=list(_tables.TASKS))
    p.add_argument("--sets", nargs="+", choices=[s for sets in orthogonal.SETS.values() for s in sets])
    p.add_argument("--methods", nargs="+", choices=[*orthogonal.METHODS, *orthogonal.OURS])
    p.add_argument(
        "--splits",
        nargs="+",
        type=int,
        help="seeds of the permutation of the rows; default: _orthogonal.py has those of each set",
    )
    p.add_argument("--iterations", type=int, help="of every fit; default: _orthogonal.py has one for each set")
    p.add_argument("--max-rows", type=int, help="use a random part of each table, for a trial")
    p.add_argument("--results", type=Path, default=RESULTS, help="a file of JSON lines, added to")
    p.add_argument(
        "--report", type=Path, nargs="?", const=REPORT, metavar="FOLDER", help="run nothing, write the tables there"
    )
    p.add_argument("--picture", type=Path, metavar="FILE", help="draw the average ranks beside the paper's")
    p.add_argument("--data-dir", type=Path, default=Path(os.environ.get("SKGP_DATA", common.DEFAULT_DATA)))
    p.add_argument("--device", default="auto", choices=["auto", "cpu", "gpu"])
    args = p.parse_args(argv)
    args.quick, args.only_print = False, args.report is not None
    return args


def tasks(args):
    """The tasks of the tables asked for, in order."""
    return list(dict.fromkeys(_tables.TASKS[number] for number in args.table))


def cells(task, args):
    """The fits of a task: one split after the other, set by set, and in it method by method."""
    every = [*orthogonal.methods_of(task), *orthogonal.OURS]
    splits = {name: args.splits or orthogonal.SPLITS_OF_SET.get(name, (0,)) for name in orthogonal.SETS[task]}
    for seed in sorted({seed for own in splits.values() for seed in own}):
        for dataset in [name for name, own in splits.items() if seed in own]:
            for method in every:
                if method in (args.methods or every) and dataset in (args.sets or splits):
                    settings = orthogonal.table_settings(task, dataset, method, args.iterations, args.max_rows)
                    yield common.cell(task, dataset, method, seed, **settings)


def run_one(one, text, args):
    """The line of a fit: its record without the curves, and the seconds of all cores together."""
    before = time.process_time()
    record = orthogonal.fit_cell(one, text, args).record
    record.pop("curve", None)
    return record | {"cpu_seconds": round(time.process_time() - before, 2)}


def main(argv=None):
    args = parse(argv)
    results = common.Results(args.results)
    failures, panels = 0, {}
    for task in tasks(args):
        wanted = list(cells(task, args))
        failures += common.run_missing(wanted, results, lambda one, text: run_one(one, text, args), args)
        found = [record for record in map(results.get, wanted) if record is not None]
        for number in (number for number in args.table if _tables.TASKS[number] == task):
            text = _tables.table(number, wanted, found)
            if args.report is None:
                print(text)
            else:
                args.report.mkdir(parents=True, exist_ok=True)
                (args.report / f"table{number}.inc").write_text(text)
                common.progress(f"wrote {args.report / f'table{number}.inc'}", final=True)
            panels |= _tables.rank_panel(number, wanted, found)
    if args.picture and panels:
        pictures.average_ranks(panels, args.picture)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
