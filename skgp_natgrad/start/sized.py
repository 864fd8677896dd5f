"""How many inducing points, and further points of the mean, a plan has."""

from __future__ import annotations

import functools

import numpy as np

from .._backend import in_place, memory
from ..step.algorithm import SOLVERS
from . import sizes, unexplained


def sized(plan, table):
    """The plan with numbers of inducing and further points."""
    if plan.n_inducing == "auto" and isinstance(plan.inducing_init, str):
        one_step = SOLVERS[plan.settings.algorithm.solver].one_step
        plan = _of_one_step(plan, table) if one_step else plan._replace(n_inducing=sizes.OF_STEPS)
    elif plan.n_inducing == "auto":
        plan = plan._replace(n_inducing=len(plan.inducing_init))
    return plan._replace(n_mean_inducing=0) if plan.n_mean_inducing == "auto" else plan


def _of_one_step(plan, table):
    plan = _for_numbers(plan, table) if plan.likelihood.conjugate else _for_labels(plan, table)
    # Greedy selection takes longer than the solution. A method that was asked for is used.
    method = "random" if plan.inducing_init == "auto" else plan.inducing_init
    n_inducing = None if table.n_rows <= plan.n_inducing else plan.n_inducing
    return plan._replace(n_inducing=n_inducing, inducing_init=method)


def _for_numbers(plan, table):
    """The plan of a regression: with further points, each row, there are fewer inducing points."""
    n_inducing = sizes.n_inducing(table.n_rows, plan.n_latent(table), memory.available())
    n_mean, few = plan.n_mean_inducing, min(n_inducing, sizes.OF_VARIANCE)
    if n_mean == "auto":
        pays = sizes.OF_VARIANCE <= n_inducing < table.n_rows and _may_rest_on_all_rows(plan, table)
        n_mean = table.n_rows if pays else 0
    n_alone = n_inducing if n_mean else None
    return plan._replace(n_inducing=few if n_mean else n_inducing, n_mean_inducing=n_mean, n_inducing_alone=n_alone)


def _for_labels(plan, table):
    """The plan of class labels: with further points, if there are any, there are fewer inducing points."""
    n_rows, n_mean, n_bytes = table.n_rows, plan.n_mean_inducing, memory.available()
    share = functools.cache(functools.partial(unexplained.share, plan.kernels[0], table.sample.X))
    n_inducing, few = sizes.n_inducing_of_labels(n_rows, n_bytes, share), sizes.n_inducing_of_labels(n_rows, n_bytes)
    if n_mean == "auto":
        may = few < n_rows and in_place.pays(few) and n_inducing < n_rows
        pays = may and share(few) > sizes.WORTH_FURTHER_POINTS
        n_mean = sizes.n_further_of_labels(n_rows, few, n_bytes) if pays else 0
        # Where memory allows none, there are still few.
        plan = plan._replace(n_mean_inducing=n_mean, n_mean_inducing_at_most=pays)
        return plan._replace(n_inducing=few if pays else n_inducing)
    return plan._replace(n_inducing=few if n_mean else n_inducing)


def _may_rest_on_all_rows(plan, table):
    """Whether the mean of a regression is to be found on all rows as well."""
    if table.sample is not table or len(plan.kernels) > 1:
        return False
    return pays_on_all_rows(plan, table, plan.kernels[0], np.mean(plan.likelihood.variance))


def pays_on_all_rows(plan, table, kernel, noise, n_rows=None):
    """Whether the mean of a regression is to rest on all rows, of which there are ``n_rows`` if not all are here."""
    if plan.n_devices is not None or not in_place.pays(sizes.OF_VARIANCE):
        return False
    share = functools.partial(unexplained.share, kernel, table.X)
    variance, n_rows = np.mean(kernel.diag(table.X[:1000])), n_rows or table.n_rows
    return sizes.worth_all_rows(n_rows, table.n_targets, memory.available(), share, variance, noise)


def on_points_alone(plan):
    """The plan of a regression whose mean on all rows is no better; a number of points that was asked for stays."""
    return plan._replace(n_inducing=plan.n_inducing_alone or plan.n_inducing, n_mean_inducing=0)
