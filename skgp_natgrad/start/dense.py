"""The default kernel of a model that sees all rows of a larger table: chosen by neighbours.

Every kernel starts, under every scaling of X, at the evidence of some hundred rows. It is trained by rows given their
nearest among all rows, and judged by other rows, as their neighbours predict them. The best kernels go on: trained by
more rows, or by the evidence of a thousand. So does the plain kernel that a user would give. The judges choose kernel,
scaling and hyperparameters together; no solution on many rows is needed to compare them.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np

from .._backend import threads
from .._backend.repeated import at_most_one, in_rows
from . import by_neighbours, evidence, neighbours
from .candidates import matern52
from .refinement import Candidate, Found, densities_by_neighbours
from .view import View

# Fewest different rows: of 2000 rows the evidence sees the half, in a third of the time.
FEWEST = 2500
# Rows that train a kernel given so many neighbours, and iterations: of every kernel, and of the best.
_ROWS, _MORE_ROWS, _MORE_LABELS, _NEIGHBOURS = 400, 1000, 2000, 40
# Fewest rows that train a kernel, and numbers in those of many columns; fewest judges of labels.
_FEWEST_ROWS, _NUMBERS, _FEWEST_JUDGES = 200, 64_000, 1000
_ITERATIONS, _MORE_ITERATIONS, _ITERATIONS_OF_EVIDENCE = 12, 14, 30
# Noise variance from which the plain kernel starts, as a share of the targets' variance.
_NOISE = 0.1
# Kernels of measurements and of labels that go on to more rows, and neighbours by which judges are predicted.
_BEST, _BEST_OF_LABELS, _NEIGHBOURS_OF_JUDGES = 2, 3, 100
# The best of measurements are compared by more: of smooth functions without much noise a hundred rows tell too little.
_FEWER_JUDGES, _MORE_NEIGHBOURS_OF_JUDGES = 500, 400


class Tried(NamedTuple):
    """A candidate under a scaling of X, by its position, and the `Densities` of the judges."""

    index: int
    view: View
    candidate: Candidate
    densities: object


def best_kernels(views, candidates, rows, n_evidence, of_labels, evenly):
    """The best of some kernels, each under a scaling of X, as neighbours tell.

    Parameters
    ----------
    views : sequence of View
        The same rows under each scaling.
    candidates : sequence of (int, Candidate)
        Positions of the scalings, and kernels at the evidence of some hundred rows.
    rows : splits.Shuffled
    n_evidence : int
        Rows of the final evidence, none of which is a judge.
    of_labels : bool
    evenly : callable
        Called with a view, the further samples of rows to whose evidence the best kernel is fitted as well.

    Returns
    -------
    index : int
        Position of the best scaling.
    found : list of Found
        The best kernel; and that with the hyperparameters of each further sample. All with densities of the judges.
    """
    views = [_weighted(view, of_labels) for view in views]
    n_more = min(_MORE_LABELS, rows.n_groups - _FEWEST_JUDGES) if of_labels else _MORE_ROWS
    judges = neighbours.Judges.of(views[0].table.X, rows.outside(max(n_evidence, n_more)), of_labels)
    # One row of each X, and fewer of many columns, whose covariances take longer.
    first = rows.order[np.concatenate([[0], rows.ends[:-1]])][: max(_FEWEST_ROWS, _NUMBERS // views[0].width)]
    few, more = (judges._replace(index=first[:n]) for n in (_ROWS, n_more))
    last = (judges, _NEIGHBOURS_OF_JUDGES) if of_labels else (_some(judges), _MORE_NEIGHBOURS_OF_JUDGES)

    def tried(pair):
        index, candidate = pair
        found = _trained(views[index], candidate, few, _ITERATIONS)
        return _tried(index, views[index], candidate, found, judges, _NEIGHBOURS_OF_JUDGES)

    def finished(pair):
        way, (index, view, candidate, _) = pair
        return _tried(index, view, candidate, way(view, candidate), *last)

    def as_it_is(view, candidate):
        return candidate.best[0].hyperparameters

    def on_more_rows(view, candidate):
        return _trained(view, candidate, more, _MORE_ITERATIONS)

    def of_evidence(view, candidate):
        return _of_evidence(view, candidate, rows.merged(view.table, n_evidence))

    ranked = _best_first(threads.for_each(tried, candidates))
    kept = _with_smooth(ranked, _BEST_OF_LABELS if of_labels else _BEST)
    ways = [(on_more_rows, each) for each in kept]
    if not of_labels:
        # Of labels the evidence knows less: it is that of a regression. Their judges are those of before.
        ways += [(as_it_is, each) for each in kept]
        ways += [(of_evidence, ranked[0]), (of_evidence, _plain(views[0]))]
    best = _best_first([*threads.for_each(finished, ways), *(kept if of_labels else [])])[0]
    others = [_of_evidence(best.view, best.candidate, sample) for sample in evenly(best.view)]
    others = [_found(_tried(best.index, best.view, best.candidate, each, *last)) for each in others]
    return best.index, [_found(best), *(each._replace(evenly=True) for each in others)]


def _weighted(view, of_labels):
    """The view with weights as `splits.merged` has them: of sums near one, or of copies, noise would be any."""
    found = copy.copy(view)
    found.table = view.table._replace(weight=(in_rows if of_labels else at_most_one)(view.table.weight))
    return found


def _with_smooth(ranked, n_best):
    """The best kernels, and a smooth one: of functions without much noise a hundred neighbours prefer rough ones."""
    best = ranked[:n_best]
    if any(each.candidate.make is matern52 for each in best):
        return best
    return [*best, *(each for each in ranked if each.candidate.make is matern52)][: n_best + 1]


def _plain(view):
    """The kernel that a user would give: from common lengthscales, so that no few rows have misled it."""
    start = view.start(matern52, view.longest, np.log(_NOISE), np.inf)[0]
    return Tried(0, view, Candidate(matern52, np.inf, (evidence.Best(start, np.nan),), np.nan), None)


def _some(judges):
    """Fewer judges, from all over."""
    return judges._replace(index=judges.index[:: -(-len(judges.index) // _FEWER_JUDGES)])


def _best_first(tried):
    return sorted(tried, key=lambda each: -each.densities.mean)


def _trained(view, candidate, judges, n_iterations):
    """Hyperparameters under which some rows are predicted best by their neighbours."""
    start, bounds, prior = _start(view, candidate)
    return by_neighbours.maximise(start, bounds, view.table, judges, _NEIGHBOURS, n_iterations, prior).hyperparameters


def _of_evidence(view, candidate, rows):
    """Hyperparameters of largest evidence of some rows."""
    start, bounds, prior = _start(view, candidate)
    return evidence.maximise(start, bounds, rows, _ITERATIONS_OF_EVIDENCE, prior).hyperparameters


def _start(view, candidate):
    """The candidate's hyperparameters, their bounds and their prior."""
    start = candidate.best[0].hyperparameters
    return start, *view.start(candidate.make, view.longest, start.noise, candidate.tie)[1:]


def _tried(index, view, candidate, hyperparameters, judges, n_neighbours):
    densities = densities_by_neighbours(view, hyperparameters, judges, n_neighbours)
    best = evidence.Best(hyperparameters, np.nan)
    return Tried(index, view, candidate._replace(best=(best,), density=densities.mean), densities)


def _found(tried):
    kernel, noise = tried.candidate.best[0].hyperparameters
    at = tried.view.to_sklearn(tried.candidate.make, kernel), float(np.exp(noise)), tried.densities.mean
    return Found(*at, by_neighbours=tried.densities)
