"""The final hyperparameters of a chosen kernel, at the maximum of the evidence of more rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._backend import threads
from .._backend.flat import flat
from ..solve.held_out_labels import Densities
from . import evidence, neighbours
from .splits import Shuffled, in_random_order
from .wide import viewed

# The noise at which the search begins anew, as a share of the targets' variance.
_NOISE = 0.05
# Iterations, and the deviation that ties the lengthscales, of `fitted_kernel`.
_ITERATIONS, _TIE = 20, 1.0


class Candidate(NamedTuple):
    """A kernel, the deviation that ties its lengthscales, its `Best` for each split, and the density of other rows."""

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
        Mean log predictive density of rows to which it was not fitted; with ``evenly``, of some to which it was.
    evenly : bool
        Whether rows of rare labels had a larger share in the fit of the hyperparameters than in the table.
    by_neighbours : Densities, optional
        Of some targets, predicted from their neighbours.
    """

    kernel: object
    noise: float
    density: float
    evenly: bool = False
    by_neighbours: Densities | None = None


def refined(view, candidate, rows, n_iterations, anew=True):
    """The `Found` of a candidate at the maximum of the evidence of more rows.

    The search goes on from where few rows have led it, and begins ``anew`` from common lengthscales: few rows may have
    led it to a lower maximum. The better of the two goes on.
    """
    make, tie, (best, *_), density = candidate
    start, bounds, prior = view.start(make, view.longest, np.log(_NOISE), tie)
    # In a small table some rows are held out while kernels are compared; here all rows may be used.
    rows = view.turn(rows)

    def maximised(start, n_iterations):
        return evidence.maximise(start.hyperparameters, bounds, rows, n_iterations, prior, start.spread)

    if anew:
        starts = (best, n_iterations // 2), (evidence.Best(start, -np.inf), n_iterations)
        raced = threads.for_each(lambda each: maximised(*each), starts)
        best = max(raced, key=lambda each: each.evidence + prior(flat(each.hyperparameters))[0])
    found = maximised(best, n_iterations)
    kernel, noise = (found if np.isfinite(found.evidence) else best).hyperparameters
    return Found(view.to_sklearn(make, kernel), float(np.exp(noise)), density)


def verdict_by_neighbours(table, hyperparameters, judges, n_neighbours):
    """The `Densities` of the targets of the rows ``judges``, predicted from so many neighbours, and their error."""
    found = neighbours.verdict(hyperparameters, table, judges, n_neighbours)
    weight = table.weight[judges.index]
    return Densities(found.densities, weight, np.ones(len(weight))), found.error


def fitted_kernel(make, table, random_state, n_rows, noise):
    """One of the candidates at the maximum of the evidence of some rows, for targets that are mostly noise.

    Parameters
    ----------
    make : callable
        One of `candidates`.
    table : Table
        With targets of mean zero and unit variance.
    random_state : numpy.random.RandomState
    n_rows : int
    noise : float
        The noise variance at which the search starts, as a share of the targets' variance.

    Returns
    -------
    found : Found
    """
    rows, view = Shuffled(*in_random_order(table, random_state)), viewed(table)
    start, _, _ = view.start(make, view.longest, np.log(noise), _TIE)
    candidate = Candidate(make, _TIE, (evidence.Best(start, -np.inf),), np.nan)
    return refined(view, candidate, rows.merged(view.table, n_rows), _ITERATIONS, anew=False)
