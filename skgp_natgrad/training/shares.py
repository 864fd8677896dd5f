"""The rows of a fit on several processes, each of which holds a share."""

from __future__ import annotations

import numpy as np

from .._backend import placement, processes
from .batches import Table
from .distinct_rows import distinct

# Most rows, of all processes together, from which a fit starts: so many decide on a kernel.
MOST = 200_000


def gathered(table, n_processes, most=None):
    """Some rows of all processes, the same in each of them: all rows if they are few; ``table`` itself in one process.

    Equal rows are one, in the order that they have in one process, so that the same rows are drawn.

    Parameters
    ----------
    table : Table
        The rows of this process.
    n_processes : int
    most : float, optional
        So many are few.

    Returns
    -------
    table : Table
    """
    if n_processes == 1:
        return table
    n_rows, most = sum(processes.exchanged(len(table.weight))), MOST if most is None else most
    if n_rows > most:
        # As many of each share as belongs to it, drawn in the same way by every call.
        n_own = max(1, most * len(table.weight) // n_rows)
        table = table.rows(np.sort(np.random.RandomState(0).choice(len(table.weight), n_own, replace=False)))
    parts = zip(*processes.exchanged(tuple(map(_plain, table))), strict=True)
    rows, *others = (None if part[0] is None else part for part in parts)
    joined = (None if each is None else np.concatenate(each, axis=-1) for each in others)
    return distinct(Table(np.concatenate(rows), *joined), of_labels=False)[0]


def evened_out(table, n_processes):
    """This process's rows, with rows of weight zero, so that all processes have as many; as it is in one process.

    Raises
    ------
    ValueError
        If the processes' tables do not fit together.
    """
    if n_processes == 1:
        return table
    kind = len(table.X.T), len(table.y), table.offset is not None, table.known is not None, table.per_target
    found = processes.exchanged((len(table.weight), kind))
    if len({each for _, each in found}) > 1:
        raise ValueError(
            "The rows of all processes must have the same numbers of columns of X and y and the same known parts "
            "(offsets, alpha, trials, limits), and targets may be missing in all of them or in none; "
            f"they have {[k for _, k in found]}."
        )
    missing = max(n_rows for n_rows, _ in found) - len(table.weight)
    if not missing:
        return table
    longer = table.rows(np.append(np.arange(len(table.weight)), np.full(missing, -1)))
    return longer._replace(weight=np.append(table.weight, np.zeros(missing)))


def by_parts(function, n_rows, n_processes):
    """Arrays (..., B) of a function of a slice of rows that all processes have, of which each computes its own part."""
    if n_processes == 1:
        return function(slice(0, n_rows))
    ends = np.linspace(0, n_rows, n_processes + 1).astype(int)
    own = slice(*ends[processes.index() :][:2])
    # The devices of this process alone.
    with placement.using(placement.ONE_DEVICE):
        part = function(own)
    return [np.concatenate(each, axis=-1) for each in zip(*processes.exchanged(part), strict=True)]


def total(value, n_processes):
    """The sum of a number over the processes."""
    return value if n_processes == 1 else float(sum(processes.exchanged(float(value))))


def agreed(plan):
    """The plan with what the first process has chosen."""
    chosen = (
        "kernels",
        "likelihood",
        "n_inducing",
        "inducing_init",
        "hyperparameter_prior",
        "n_neighbours",
        "otherwise",
    )
    return plan._replace(**processes.of_first({name: getattr(plan, name) for name in chosen}))


def _plain(array):
    return None if array is None else np.asarray(array)
