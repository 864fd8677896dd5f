"""The final hyperparameters of a chosen kernel, at the maximum of the evidence of more rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._backend import threads
from .._backend.flat import flat
from ..kernels.formula import formula
from ..solve.held_out_labels import Densities
from . import evidence, neighbours
from .candidates import WithSeason, form
from .minimum import TO_THE_END
from .splits import Shuffled, in_random_order
from .wide import viewed

# Rows on which a search that begins anew races one that goes on, and the noise at which it begins, as a share of the
# targets' variance.
_RACED, _NOISE_ANEW = 400, 0.05
# The deviation that ties the lengthscales of `fitted_kernel`.
_TIE_OF_FITTED = 1.0


class Candidate(NamedTuple):
    """A kernel, the deviation that ties its lengthscales, its `Best` for each split, and the density of other rows.

    ``held_out`` are the `Densities` of the rows that splits have held out, in the order of the table, if each has one.
    """

    make: object
    tie: float
    best: tuple
    density: float
    held_out: Densities | None = None


class Ahead(NamedTuple):
    """By how much what was chosen predicts better than the next best, in nats a row.

    Attributes
    ----------
    gain : float
    kernel : sklearn.gaussian_process.kernels.Kernel
        The next best.
    """

    gain: float
    kernel: object

    def said(self, kernel):
        """One line for `summary`."""
        return f"kernel {formula(kernel)} ahead by {self.gain:.2g} nats a row of {formula(self.kernel)}"


def leading(densities, plans):
    """The plan of the largest density among several, and how far it is ahead of the next one."""
    best, second, *_ = np.argsort(-np.asarray(densities), kind="stable")
    return plans[best]._replace(ahead=Ahead(densities[best] - densities[second], plans[second].kernels[0]))


class Found(NamedTuple):
    """A kernel with its hyperparameters.

    Attributes
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
    noise : float
        The noise variance, as a share of the targets' variance.
    density : float
        Mean log predictive density of rows that have not trained it.
    index : int
        Position of the scaling of X.
    by_neighbours : Densities, optional
        Of some targets, predicted from their neighbours.
    held_out : Densities, optional
        See `Candidate`.
    ahead : Ahead, optional
        Of the other kernels, where these have been left behind.
    """

    kernel: object
    noise: float
    density: float
    index: int = 0
    by_neighbours: Densities | None = None
    held_out: Densities | None = None
    ahead: Ahead | None = None


def on_other_splits(view, make, tie, first, parts):
    """The maximum of the first split of the rows, and those of the other splits, to which searches go on from there.

    The first maximum has seen rows that the others hold out; these searches forget most of them.
    """
    _, bounds, prior = view.start(make, view.longest, first.hyperparameters.noise, tie)
    at, spread = first.hyperparameters, first.spread
    others = [evidence.maximise(at, bounds, part.rows, prior, spread) for part in parts[1:]]
    return [first, *others]


def raced(view, candidate, rows):
    """The candidate at the better of two maxima of the evidence of some of the rows, and `Densities` of the others.

    One search goes on from where fewer rows have led it, the other begins anew from common lengthscales: few rows may
    have led it to a lower maximum.
    """
    start, bounds, prior = view.start(candidate.make, view.longest, np.log(_NOISE_ANEW), candidate.tie)
    # In a small table some rows are held out while kernels are compared; here all of them may be used.
    chosen = np.zeros(len(rows.X), bool)
    chosen[np.linspace(0, len(rows.X) - 1, min(len(rows.X), _RACED)).round().astype(int)] = True
    some, others = (view.turn(rows.rows(np.flatnonzero(each))) for each in (chosen, ~chosen))

    starts = candidate.best[0], evidence.Best(start, -np.inf)
    found = threads.for_each(lambda each: evidence.maximise(each[0], bounds, some, prior, each.spread), starts)
    best = max(found, key=lambda each: each.evidence + prior(flat(each.hyperparameters))[0])
    return candidate._replace(best=(best,)), evidence.held_out_densities(best.hyperparameters, some, others)


def refined(view, candidate, rows, index=0):
    """The `Found` of a candidate at the maximum of the evidence of more rows."""
    make, tie, (best, *_), density, held_out = candidate
    _, bounds, prior = view.start(make, view.longest, np.log(_NOISE_ANEW), tie)
    end = TO_THE_END if form(make) is WithSeason else {}
    found = evidence.maximise(best.hyperparameters, bounds, view.turn(rows), prior, best.spread, **end)
    kernel, noise = (found if np.isfinite(found.evidence) else best).hyperparameters
    return Found(view.to_sklearn(make, kernel), float(np.exp(noise)), density, index, held_out=held_out)


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
    start, _, _ = view.start(make, view.longest, np.log(noise), _TIE_OF_FITTED)
    candidate = Candidate(make, _TIE_OF_FITTED, (evidence.Best(start, -np.inf),), np.nan)
    return refined(view, candidate, rows.merged(view.table, n_rows))
