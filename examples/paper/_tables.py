"""The orthogonal paper's tables 1 to 6 as reStructuredText, from the lines that `tables.py` wrote.

Every figure is computed here: a cell that was not run says so, and a note has the
command that fills it.
"""

from __future__ import annotations

from typing import NamedTuple

import _orthogonal as orthogonal
import _paper_numbers as paper
import numpy as np
from scipy.stats import rankdata, spearmanr

NOT_RUN = "not run"


class Layout(NamedTuple):
    """What a table of single data sets shows, and what the paper prints there."""

    task: str
    metric: str
    printed: dict
    title: str
    digits: int
    scale: float = 1.0
    higher: bool = True


LAYOUTS = {
    3: Layout("regression", "log_density", paper.TABLE3, "test log-likelihood, nats a row (higher is better)", 3),
    4: Layout("regression", "rmse", paper.TABLE4, "test RMSE (lower is better)", 4, higher=False),
    5: Layout("classification", "accuracy", paper.TABLE5, "test accuracy in per cent (higher is better)", 2, 100.0),
    6: Layout("classification", "log_density", paper.TABLE6, "test log-likelihood, nats a row (higher is better)", 4),
}


class Summary(NamedTuple):
    """A table that sums up another: what the paper prints there."""

    of: int
    printed: dict
    digits: int


SUMMARIES = {1: Summary(4, paper.TABLE1, 3), 2: Summary(5, paper.TABLE2, 1)}


def layout_of(number):
    """What a table shows, or the table that it sums up."""
    return LAYOUTS[SUMMARIES[number].of if number in SUMMARIES else number]


TASKS = {number: layout_of(number).task for number in range(1, 7)}

# What the paper claims of two methods: the first is ahead of the second.
CLAIMS = (
    ("orth", "coupled300"),
    ("orthnat", "couplednat300"),
    ("orth", "coupled"),
    ("orthnat", "couplednat"),
    ("couplednat", "coupled"),
    ("orthnat", "orth"),
    ("orthnat", "hybrid"),
    ("coupled300", "hybrid"),
    ("hybrid", "decoupled"),
)


def table(number, wanted, found):
    """The text of a table.

    Parameters
    ----------
    number : int
        1 to 6.
    wanted : list of dict
        The cells (`_common.cell`) that the whole table needs.
    found : list of dict
        The records of those that were run.
    """
    layout = layout_of(number)
    methods, ours = methods_asked_for(layout, wanted), values(found, layout)
    if not found:
        return f"Table {number}, {layout.task}, {layout.title.partition(' (')[0]}: " + notes(number, wanted, found)
    if number in SUMMARIES:
        parts = [summed_up(number, layout, methods, ours), seconds(wanted, found)]
    else:
        parts = [single_sets(number, layout, methods, wanted, ours), claims(layout, methods, ours)]
    return "\n".join([*parts, agreement(layout, methods, ours), notes(number, wanted, found)])


def methods_asked_for(layout, wanted):
    """The paper's methods among the cells."""
    return [m for m in orthogonal.methods_of(layout.task) if m in {one["method"] for one in wanted}]


# -- numbers ------------------------------------------------------------------------------


def values(records, layout):
    """The mean of a metric over the splits: values[dataset][method]."""
    found = {}
    for record in records:
        of_set = found.setdefault(record["dataset"], {})
        of_set.setdefault(record["method"], []).append(layout.scale * record[layout.metric])
    return {dataset: {method: float(np.mean(v)) for method, v in row.items()} for dataset, row in found.items()}


def complete(ours, methods):
    """The data sets on which every method was run."""
    return [dataset for dataset, row in ours.items() if all(method in row for method in methods)]


def average_ranks(of_sets, datasets, methods, higher):
    """The mean rank of each method over data sets (1 is best), and its standard error."""
    scores = np.array([[of_sets[dataset][method] for method in methods] for dataset in datasets])
    ranks = rankdata(-scores if higher else scores, axis=1)
    error = ranks.std(0, ddof=1) / np.sqrt(len(ranks)) if len(ranks) > 1 else np.full(len(methods), np.nan)
    return ranks.mean(0), error


# -- parts of a table ---------------------------------------------------------------------


def single_sets(number, layout, methods, wanted, ours):
    """A row for each data set, the paper's below it, and the average ranks."""
    columns = [*methods, *(m for m in orthogonal.OURS if any(one["method"] == m for one in wanted))]
    rows = []
    for dataset in dict.fromkeys(one["dataset"] for one in wanted):
        for name, source, missing in ((dataset, ours, NOT_RUN), ("*paper*", layout.printed, "")):
            row = source.get(dataset, {})
            rows.append([name, *(f"{row[m]:.{layout.digits}f}" if m in row else missing for m in columns)])
    rows += rank_rows(layout, methods, columns, ours)
    return csv_table(
        f"Table {number}: {layout.task}, {layout.title}", ["data set", *map(orthogonal.label, columns)], rows
    )


def rank_rows(layout, methods, columns, ours):
    """Average ranks here, in the paper on the same data sets, and in the paper on all of its own."""
    same = complete(ours, methods)
    sources = [
        (f"average rank, {plural(len(same), 'set')}", ours, same),
        ("*paper, same sets*", layout.printed, same),
        ("*paper, all sets*", layout.printed, list(layout.printed)),
    ]
    rows = []
    for name, source, datasets in sources if same else sources[2:]:
        ranks, _ = average_ranks(source, datasets, methods, layout.higher)
        of_method = dict(zip(methods, ranks, strict=True))
        rows.append([name, *(f"{of_method[m]:.2f}" if m in of_method else "" for m in columns)])
    return rows


def summed_up(number, layout, methods, ours):
    """Mean, median and average rank: here, in the paper on the same data sets, and as the paper prints them."""
    same, printed = complete(ours, methods), SUMMARIES[number].printed
    digits = SUMMARIES[number].digits
    rows = [["", *[NOT_RUN] * len(methods)]] if not same else []
    for name, source in (("here", ours), ("*paper*", layout.printed)) if same else ():
        scores = np.array([[source[dataset][method] for method in methods] for dataset in same])
        for kind, of_scores in (("mean", np.mean), ("median", np.median)):
            cells = [f"{v:.{digits}f}" for v in of_scores(scores, axis=0)]
            rows.append([f"{kind}, {plural(len(same), 'set')}, {name}", *cells])
        ranks = zip(*average_ranks(source, same, methods, layout.higher), strict=True)
        cells = [f"{r:.2f}" + (f" ({e:.2f})" if np.isfinite(e) else "") for r, e in ranks]
        rows.append([f"average rank, {plural(len(same), 'set')}, {name}", *cells])
    for i, kind in enumerate(("mean", "median", "average rank")):
        places = 2 if kind == "average rank" else digits
        rows.append([f"{kind}, all sets, *paper*", *(f"{printed[method][i]:.{places}f}" for method in methods)])
    title = f"Table {number}: {layout.task}, {layout.title.partition(' (')[0]}, summed up"
    return csv_table(title, ["", *map(orthogonal.label, methods)], rows)


def seconds(wanted, found):
    """Seconds of training, and in brackets those of all cores together."""
    methods = list(dict.fromkeys(one["method"] for one in wanted))
    by_cell = {}
    for record in found:
        by_cell.setdefault((record["dataset"], record["method"]), []).append((record["seconds"], record["cpu_seconds"]))
    rows = []
    for dataset in dict.fromkeys(one["dataset"] for one in found):
        row = [by_cell.get((dataset, method)) for method in methods]
        rows.append([dataset, *("{:.0f} ({:.0f})".format(*np.mean(cell, axis=0)) if cell else NOT_RUN for cell in row)])
    title = "Seconds of training, compilation included; in brackets seconds of processor time, scoring included"
    return csv_table(title, ["data set", *map(orthogonal.label, methods)], rows)


def claims(layout, methods, ours):
    """On how many data sets one method is ahead of another: here, and in the paper."""

    def count(source, datasets, first, second):
        pairs = [(source[d][first], source[d][second]) for d in datasets if {first, second} <= set(source.get(d, {}))]
        ahead = sum(a > b if layout.higher else a < b for a, b in pairs)
        return f"{ahead} of {len(pairs)}" if pairs else NOT_RUN

    rows = []
    for first, second in CLAIMS:
        if {first, second} <= set(methods):
            both = [d for d, row in ours.items() if {first, second} <= set(row)]
            counts = [count(ours, both, first, second), count(layout.printed, both, first, second)]
            counts.append(count(layout.printed, layout.printed, first, second))
            rows.append([f"{orthogonal.label(first)} ahead of {orthogonal.label(second)}", *counts])
    title = f"On how many data sets a method has the better {layout.title.partition(' (')[0].partition(',')[0]}"
    return csv_table(title, ["", "here", "*paper, same sets*", "*paper, all sets*"], rows)


def agreement(layout, methods, ours):
    """Spearman's correlation of the average ranks with the paper's on the same data sets."""
    same = complete(ours, methods)
    if not same or len(methods) < 3:
        return "The average ranks are not compared: no data set has a fit of every method.\n"
    here, theirs = (average_ranks(s, same, methods, layout.higher)[0] for s in (ours, layout.printed))
    correlation = spearmanr(here, theirs).statistic
    return (
        f"Spearman's correlation of the methods' average ranks here with the paper's on the same "
        f"{plural(len(same), 'data set')}: {correlation:.2f}.\n"
    )


def rank_panel(number, wanted, found):
    """A panel of `_pictures.average_ranks`, for the tables of single data sets of which some are complete."""
    layout = layout_of(number)
    methods, ours = methods_asked_for(layout, wanted), values(found, layout)
    same = complete(ours, methods)
    if number in SUMMARIES or not same:
        return {}
    here, theirs = (average_ranks(s, same, methods, layout.higher)[0] for s in (ours, layout.printed))
    score = layout.title.partition(" (")[0].partition(",")[0]
    return {f"{layout.task}, {plural(len(same), 'set')}\n{score}": (methods, here, theirs)}


# -- what a reader of a table has to know -------------------------------------------------


def notes(number, wanted, found):
    """Settings, splits, versions, dates and machines of the fits; and how to run those that are missing."""
    lines = []
    if found:
        lines += [training_note(found), provenance_note(found)]
    have = {(one["dataset"], one["method"], one["seed"]) for one in found}
    missing = [one for one in wanted if (one["dataset"], one["method"], one["seed"]) not in have]
    if missing:
        lines.append(f"{plural(len(missing), 'fit')} of {len(wanted)} not run; this runs them:")
        lines.append("::\n\n    " + command(number, missing))
    return "\n\n".join(lines) + "\n"


def training_note(found):
    """How the fits were trained, and in what they differ from the paper's."""
    iterative = [one["settings"] for one in found if one["method"] not in orthogonal.OURS]
    full, text = orthogonal.FULL, []
    if iterative:
        lengths = sorted({made["max_iter"] for made in iterative})
        rates = sorted({made["learning_rate"] for made in iterative})
        natural = sorted({made["gamma"] for made in iterative if "gamma" in made})
        text.append(f"Iterations: {listed(lengths)} (the paper: {full['max_iter']}).")
        text.append(f"Adam's steps: {listed(rates)} ({full['learning_rate']}).")
        text += [f"Natural gradient steps: {listed(natural)} ({full['gamma']})."] if natural else []
        of_set = {one["dataset"]: one["settings"].get("max_iter") for one in found if "max_iter" in one["settings"]}
        short = {dataset: n for dataset, n in of_set.items() if n < max(lengths)}
        text += [f"Fewer iterations: {', '.join(f'{d} {n}' for d, n in short.items())}."] if short else []
    rows = {one["settings"].get("max_rows") for one in found} - {None}
    text += [f"A trial: {listed(sorted(rows))} rows of each table."] if rows else []
    text.append("All else is appendix E's.")
    return " ".join(text)


def provenance_note(found):
    """Splits, commits, dates, machines and hours."""
    splits = sorted({one["seed"] for one in found})
    commits = listed(sorted({one["commit"] or "no checkout" for one in found}))
    machines = listed(sorted({f"{one['cpus']} cores of an {one['processor']} ({one['jax_device']})" for one in found}))
    days = sorted({one["date"][:10] for one in found})
    return (
        f"{plural(len(found), 'fit')}, split{'s' if len(splits) > 1 else ''} {listed(splits)}, "
        f"{sum(one['seconds'] for one in found) / 3600:.2f} hours of training "
        f"({sum(one['cpu_seconds'] for one in found) / 3600:.2f} of processor time) on {machines}, "
        f"{' to '.join(dict.fromkeys((days[0], days[-1])))}; "
        f"version {listed(sorted({one['version'] for one in found}))}, commit {commits}, "
        f"jax {listed(sorted({one['jax'] for one in found}))}."
    )


def command(number, missing):
    """The command that runs the cells that are missing."""
    parts = [f"python examples/paper/tables.py --table {number}"]
    task = TASKS[number]
    for option, key, everything in (
        ("--sets", "dataset", orthogonal.SETS[task]),
        ("--methods", "method", (*orthogonal.methods_of(task), *orthogonal.OURS)),
    ):
        needed = [name for name in everything if name in {one[key] for one in missing}]
        if needed != list(everything):
            parts.append(" ".join([option, *(f'"{name}"' if " " in name else name for name in needed)]))
    seeds = sorted({one["seed"] for one in missing})
    parts += [f"--splits {' '.join(map(str, seeds))}"] if seeds != [0] else []
    own = {
        one["settings"]["max_iter"]
        for one in missing
        if "max_iter" in one["settings"]
        and one["settings"] != orthogonal.table_settings(task, one["dataset"], one["method"])
    }
    parts += [f"--iterations {own.pop()}"] if len(own) == 1 else []
    return " ".join(parts)


# -- text ---------------------------------------------------------------------------------


def csv_table(title, header, rows):
    """A table of strings as a directive."""

    def line(cells):
        return "   " + ", ".join('"' + str(cell).replace('"', '""') + '"' for cell in cells)

    return "\n".join(
        [
            f".. csv-table:: {title}",
            "   :header-rows: 1",
            "   :widths: auto",
            "   :class: numbers",
            "",
            *map(line, [header, *rows]),
            "",
        ]
    )


def plural(count, noun):
    return f"{count} {noun}{'' if count == 1 else 's'}"


def listed(items):
    return ", ".join(map(str, items))
