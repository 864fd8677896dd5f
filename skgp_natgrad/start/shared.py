"""The start of a fit by several processes: found from rows of all of them; each process uses that of the first."""

from __future__ import annotations

from .._backend import processes
from ..step.algorithm import check
from ..training.shares import agreed, gathered, total
from . import choice
from . import state as of_one


def complete(plan, table, random_state):
    """See `svgp.complete`; several processes choose the plan from rows gathered from all of them."""
    n_processes = processes.sharing(plan.n_devices)
    if n_processes == 1:
        return choice.complete(plan, table, random_state)
    return agreed(choice.complete(plan, gathered(table, n_processes), processes.agree(random_state)))


def init(plan, table, random_state, previous=None, posterior=None):
    """See `svgp.init`."""
    n_processes = processes.sharing(plan.n_devices)
    if n_processes == 1:
        return of_one.init(plan, table, random_state, previous, posterior)
    some = gathered(table, n_processes)
    n_rows = max(processes.exchanged(len(table.weight))) * n_processes
    weight = total(table.weight.sum(), n_processes)
    if plan.n_inducing is None and len(some.weight) < total(len(table.weight), n_processes):
        raise ValueError(
            f"n_inducing=None puts a point at every row, which no process of {n_processes} can do for {n_rows} rows; "
            "give it a number."
        )
    settings = plan.settings
    full_batch = n_rows <= n_processes * -(-settings.batch_size // n_processes)
    check(settings.algorithm, plan.likelihood, plan.objective, full_batch, settings.searched is not None)
    found = of_one.init(plan, some, processes.agree(random_state), previous, posterior)
    state, constants = processes.tree_of_first(found)
    earlier = float(constants.weight) - float(some.weight.sum())
    batch_size = n_processes * -(-settings.batch_size // n_processes)
    return state, constants._replace(
        scale=n_rows / min(n_rows, batch_size), weight=weight + earlier, n_rows=float(n_rows)
    )
