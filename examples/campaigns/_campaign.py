"""What the campaigns share: numbered cases, a file of results that is gone on with, and the table made from it.

A case is a number, and all that is random in it follows from the seed and the number, so that any of
them can be run again alone (``--only``). Each result is one JSON line; cases that the file has are skipped.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import importlib.metadata
import json
import os
import platform
import sys
import time
import traceback
from pathlib import Path

import jax
import numpy as np

FAILED = "FAILED"
DTYPES = ("float64", "float32")
# Cases after which compiled programs are dropped: each takes some of the memory maps that a process may have.
_CASES_PER_CACHE = 200
_SAID_EVERY = 30.0
# Fits of a process after which its memory should grow no more, and how many must follow to say so.
WARM, ENOUGH = 100, 100


def parser(description, n_cases):
    """The arguments of all campaigns."""
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--n-cases", type=int, default=n_cases)
    p.add_argument(
        "--results", type=Path, default=Path("campaigns.jsonl"), help="file of JSON lines, which is added to"
    )
    p.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many")
    p.add_argument("--only", type=int, metavar="CASE", help="run this case alone, with its traceback")
    p.add_argument("--report", action="store_true", help="run nothing: print the table of all that the file holds")
    return p


def run(args, name, perform, keep_programs=False):
    """Run the cases that the file of results lacks; return the exit status.

    Parameters
    ----------
    args : argparse.Namespace
        Of `parser`.
    name : str
    perform : callable
        Called with the number of a case; returns a record with an ``outcome``, and maybe a ``dtype`` and
        ``counts``, which the report adds up. What it raises makes the case a failure.
    keep_programs : bool, default=False
        Whether compiled programs are part of what is measured.
    """
    if args.report:
        return report(args.results)
    if args.only is not None:
        print(json.dumps(perform(args.only)))
        return 0
    results, key = Results(args.results), {"campaign": name, "seed": args.seed}
    done = {record["case"] for record in results.of(key) if "case" in record}
    todo = [number for number in range(args.n_cases) if number not in done]
    print(
        f"{name}: seed {args.seed}, {len(todo)} of {args.n_cases} cases to run, results in {args.results}", flush=True
    )
    results.add({**key, "environment": environment()})
    began = said = time.monotonic()
    for n_run, number in enumerate(todo, 1):
        results.add({**key, "case": number, **_recorded(perform, number)})
        now = time.monotonic()
        if now - said > _SAID_EVERY or number == todo[-1]:
            said = now
            print(f"{n_run} cases, {now - began:.0f} s", file=sys.stderr, flush=True)
        if now - began > 60.0 * args.minutes:
            break
        if n_run % _CASES_PER_CACHE == 0 and not keep_programs:
            jax.clear_caches()
    records = [record for record in results.of(key) if "case" in record]
    failed = [record["case"] for record in records if record["outcome"].startswith(FAILED)]
    print(f"{name}: seed {args.seed}, {len(records)} cases in all, {len(failed)} failed {failed or ''}")
    return 1 if failed else 0


def _recorded(perform, number):
    """The record of a case; an exception is a failure, and its traceback is printed."""
    began = time.monotonic()
    try:
        record = perform(number)
    # Whatever it is, it is what a campaign looks for; it is printed, and makes the exit status.
    except Exception as error:
        print(f"case {number}:", flush=True)
        traceback.print_exc(file=sys.stdout)
        message = str(error)
        where = getattr(error, "case", {})
        record = {**where, "outcome": f"{FAILED}: {type(error).__name__}", "message": message[:500]}
    return {**record, "seconds": round(time.monotonic() - began, 3)}


def rng_of(args, number):
    """The random numbers of a case."""
    return np.random.default_rng([args.seed, number])


class Results:
    """A file of JSON lines; a last line that a killed process left unfinished does not count."""

    def __init__(self, path):
        self.path, self.records = path, []
        text = path.read_text() if path.exists() else ""
        if text and not text.endswith("\n"):
            with path.open("a") as file:
                file.write("\n")
        for line in text.splitlines():
            try:
                self.records.append(json.loads(line))
            except ValueError:
                continue

    def of(self, key):
        """The records with these entries."""
        return [record for record in self.records if key.items() <= record.items()]

    def add(self, record):
        """Append a record."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        self.records.append(record)


def environment():
    """Where and when a campaign ran."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found = {"Python": platform.python_version(), "cores": cores, "date": datetime.date.today().isoformat()}
    return found | {name: importlib.metadata.version(name) for name in ("jax", "numpy", "scikit-learn")}


# -- the report ---------------------------------------------------------------------------


def report(path):
    """Print what a file of results holds, as a table of rst and what there is to say of it."""
    records = Results(path).records
    names = list(dict.fromkeys(record["campaign"] for record in records))
    cases = {name: [each for each in records if each["campaign"] == name and "case" in each] for name in names}
    header = ("campaign", "seeds", "cases", "in float32", "failed", "minutes")
    rows = [header, *(_row(name, found) for name, found in cases.items() if found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    rule = "  ".join("=" * width for width in widths)
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    print("\n".join([rule, lines[0], rule, *lines[1:], rule, ""]))
    for name, found in cases.items():
        print(f"- *{name}*: {'; '.join(_outcomes(found) + _counts(found) + _growth(found))}.")
    places = {json.dumps(record["environment"]): record["environment"] for record in records if "environment" in record}
    print("\n" + "; ".join(", ".join(f"{key} {value}" for key, value in each.items()) for each in places.values()))
    return 0


def _row(name, records):
    seeds = ", ".join(map(str, sorted({record["seed"] for record in records})))
    single = sum(record.get("dtype") == "float32" for record in records)
    failed = sum(record["outcome"].startswith(FAILED) for record in records)
    minutes = sum(record["seconds"] for record in records) / 60.0
    return name, seeds, str(len(records)), str(single), str(failed), f"{minutes:.0f}"


def _outcomes(records):
    return [f"{n} {what}" for what, n in collections.Counter(record["outcome"] for record in records).most_common()]


def _counts(records):
    total = collections.Counter()
    for record in records:
        total.update(record.get("counts", {}))
    return [", ".join(f"{n} {what}" for what, n in total.items())] if total else []


def _growth(records):
    """What is said of the memory of each process that fitted often enough."""
    processes = collections.defaultdict(list)
    for record in records:
        if "resident_mib" in record:
            processes[record["process"]].append(record["resident_mib"])
    slopes = [(len(found), *growth(found)) for found in processes.values() if len(found) >= WARM + ENOUGH]
    return [
        f"a process of {n} fits: {first:.0f} MiB after {WARM}, {last:.0f} in the end, slope {1000.0 * slope:.1f} MiB "
        "for a thousand fits"
        for n, first, last, slope in slopes
    ]


def growth(resident):
    """Memory after the first fits, at the end, and its slope by least squares between, a fit."""
    after = np.array(resident[WARM:])
    return after[0], after[-1], np.polyfit(np.arange(len(after)), after, 1)[0]
