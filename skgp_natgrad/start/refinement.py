"""The final hyperparameters of a kernel that has been chosen: at the maximum of the evidence of more rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..solve.held_out_labels import Densities
from . import evidence, neighbours
from .splits import Shuffled, in_random_order
from .targets import standardised
from .view import NOISE_BOUNDS_OF_LABELS, View

# Iterations and deviation that ties the lengthscales for a kernel that nothing was compared with.
_ITERATIONS, _TIE = 20, 1.0
# Rows for the kernel of class labels, and fewest rows outside them, which judge it; iterations.
_ROWS_OF_LABELS, _FEWEST_JUDGES, _ITERATIONS_OF_LABELS = 2560, 1000, 10


class Candidate(NamedTuple):
    """A kernel, the deviation that ties its lengthscales, its best for each split of the rows, and their density."""

    make: object
    tie: float
    best: tuple
    density: float


class Found(NamedTuple):
    """A kernel with its hyperparameters.

    Attributes
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
    noise : float
        The noise variance, as a share of the targets' variance.
    density : float
        Mean log predictive density of rows that it was not fitted to; with ``evenly`` of some that it was fitted to.
    evenly : bool
        Whether rows of rare labels had a larger part in the hyperparameters than they have in the table.
    by_neighbours : Densities, optional
        Of some targets as their neighbours predict them.
    candidate : Candidate, optional
        What it is, as the search has it.
    rows : splits.Shuffled, optional
        The order in which a search took the rows; None where there was none.
    """

    kernel: object
    noise: float
    density: float
    evenly: bool = False
    by_neighbours: Densities | None = None
    candidate: Candidate | None = None
    rows: Shuffled | None = None


def refined(view, candidate, rows, n_iterations, judges=None):
    """The `Found` of a candidate at the maximum of the evidence of more rows."""
    make, tie, (best, *_), density = candidate
    _, bounds, prior = view.start(make, view.longest, best.hyperparameters.noise, tie)
    # Of small tables some rows must stay outside while kernels are compared, and none afterwards.
    found = evidence.maximise(best.hyperparameters, bounds, rows, n_iterations, prior)
    if np.isfinite(found.evidence):
        best = found
    kernel, noise = best.hyperparameters
    return Found(
        view.to_sklearn(make, kernel),
        float(np.exp(noise)),
        density,
        by_neighbours=densities_by_neighbours(view, best.hyperparameters, judges),
        candidate=candidate._replace(best=(best,)),
    )


def densities_by_neighbours(view, hyperparameters, judges):
    """The `Densities` of targets of the rows ``judges`` as neighbours predict them, if any."""
    if judges is None:
        return None
    each = neighbours.densities(hyperparameters, view.table, judges)
    return Densities(each, view.table.weight[judges.index], np.ones(len(each)))


def fitted_kernel(make, table, random_state, n_rows, noise):
    """One of the candidates at the maximum of the evidence of some rows, for targets that are mostly noise.

    Parameters
    ----------
    make : callable
        Of `candidates.CANDIDATES`.
    table : Table
        With targets of mean zero and unit variance.
    random_state : numpy.random.RandomState
    n_rows : int
    noise : float
        Where its search starts, as a share of the targets' variance.

    Returns
    -------
    found : Found
    """
    rows, view = Shuffled(*in_random_order(table, random_state)), View(table)
    start, _, _ = view.start(make, view.longest, np.log(noise), _TIE)
    candidate = Candidate(make, _TIE, (evidence.Best(start, -np.inf),), np.nan)
    return refined(view, candidate, rows.merged(view.table, n_rows), _ITERATIONS)


def on_more_labels(found, table, in_common_unit=False):
    """The kernel that was chosen for class labels with hyperparameters that more rows tell, if it predicts better so.

    Labels tell less than measurements, and the rows that choose among many kernels are few. Of one kernel the evidence
    of more can be afforded. Whether it is better for the whole table, labels say as their neighbours predict them: of
    rows in neither evidence.

    Parameters
    ----------
    found : Found
    table : Table
        From `targets.regressed`.
    in_common_unit : bool, default=False

    Returns
    -------
    found : Found
        The same if there are not many more rows.
    """
    rows = found.rows
    if rows is None or rows.n_groups < _ROWS_OF_LABELS + _FEWEST_JUDGES:
        return found
    view = View(table, in_common_unit, noises=NOISE_BOUNDS_OF_LABELS)
    # The rows of the evidence so far are the first of either.
    if found.evenly:
        some = standardised(rows.evenly_merged(view.table, _ROWS_OF_LABELS))
        others = rows.outside_evenly(view.table, _ROWS_OF_LABELS)
    else:
        some, others = rows.merged(view.table, _ROWS_OF_LABELS), rows.outside(_ROWS_OF_LABELS)
    judges = neighbours.Judges.of(table.X, others)
    now = densities_by_neighbours(view, found.candidate.best[0].hyperparameters, judges)
    more = refined(view, found.candidate, some, _ITERATIONS_OF_LABELS, judges)
    return more._replace(evenly=found.evenly, rows=rows) if more.by_neighbours.mean > now.mean else found
