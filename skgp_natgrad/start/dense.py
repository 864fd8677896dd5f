"""The default kernel of a model that sees all rows of a larger table: chosen by neighbours.

Every kernel starts, under every scaling of X, at the maximum of the evidence of some hundred rows. It is trained by the
density of rows given their nearest among all rows, and judged by other rows predicted from their neighbours. The best
kernels are trained further: by more rows, or by the evidence of a thousand; so is the plain kernel that a user would
give. The judges choose kernel, scaling and hyperparameters together, without a solution on many rows.
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

# This search is for more different rows than these: of 2000 the evidence sees half, in a third of the time.
MOST_BY_EVIDENCE = 2000
# Rows that train every kernel, the best for measurements, and the best for labels; and neighbours of each row.
_ROWS, _MORE_ROWS, _MORE_LABELS, _NEIGHBOURS = 400, 1000, 2000, 40
# Fewest rows that train a kernel; most numbers in them, if columns are many; fewest judges of labels.
_FEWEST_ROWS, _NUMBERS, _FEWEST_JUDGES = 200, 64_000, 1000
_ITERATIONS, _MORE_ITERATIONS, _ITERATIONS_OF_EVIDENCE = 12, 14, 30
# Noise variance of the plain kernel's start, as a share of the targets' variance.
_NOISE = 0.1
# Kernels that are trained further, for measurements and for labels; and neighbours from which judges are predicted.
_BEST, _BEST_OF_LABELS, _NEIGHBOURS_OF_JUDGES = 2, 3, 100
# Standard errors by which a kernel of labels must be better untrained than the best that is trained.
_CLEARLY = 2.0
# The best for measurements are compared with more neighbours: a hundred are too few for smooth functions.
_FEWER_JUDGES, _MORE_NEIGHBOURS_OF_JUDGES = 500, 400


class Tried(NamedTuple):
    """A candidate, the position and the view of its scaling of X, and the `Densities` of the judges."""

    index: int
    view: View
    candidate: Candidate
    densities: object


def best_kernels(views, candidates, rows, n_evidence, of_labels, evenly):
    """The best of some kernels, each under a scaling of X, judged by predictions from neighbours.

    Parameters
    ----------
    views : sequence of View
        The same rows under each scaling.
    candidates : sequence of (int, Candidate)
        The position of the scaling, and a kernel at the maximum of the evidence of some hundred rows.
    rows : splits.Shuffled
    n_evidence : int
        Rows of the final evidence; none of them is a judge.
    of_labels : bool
    evenly : callable
        Called with a view; returns further samples of rows, and the best kernel is also fitted to their evidence.

    Returns
    -------
    index : int
        Position of the best scaling.
    found : list of Found
        The best kernel, then the same with hyperparameters from each further sample; all with the judges' densities.
    """
    views = [_weighted(view, of_labels) for view in views]
    n_more = min(_MORE_LABELS, rows.n_groups - _FEWEST_JUDGES) if of_labels else _MORE_ROWS
    judges = neighbours.Judges.of(views[0].table.X, rows.outside(max(n_evidence, n_more)), of_labels)
    # One row of each X; fewer rows if there are many columns, since covariances then take longer.
    first = rows.order[np.concatenate([[0], rows.ends[:-1]])][: max(_FEWEST_ROWS, _NUMBERS // views[0].width)]
    few, more = (judges._replace(index=first[:n]) for n in (_ROWS, n_more))
    last = (judges, _NEIGHBOURS_OF_JUDGES) if of_labels else (_some(judges), _MORE_NEIGHBOURS_OF_JUDGES)

    def judged(index, candidate, hyperparameters):
        return _tried(index, views[index], candidate, hyperparameters, judges, _NEIGHBOURS_OF_JUDGES)

    def tried(pair):
        return judged(*pair, _trained(views[pair[0]], pair[1], few, _ITERATIONS))

    def finished(pair):
        way, (index, view, candidate, _) = pair
        return _tried(index, view, candidate, way(view, candidate), *last)

    def on_more_rows(view, candidate):
        return _trained(view, candidate, more, _MORE_ITERATIONS)

    def of_evidence(view, candidate):
        return _of_evidence(view, candidate, rows.merged(view.table, n_evidence))

    ranked = _best_first(threads.for_each(tried, candidates))
    kept = _with_smooth(ranked, _BEST_OF_LABELS if of_labels else _BEST)
    if of_labels:
        untrained = threads.for_each(lambda pair: judged(*pair, _as_it_is(*pair)), candidates)
        kept = _with_untrained(kept, _best_first(untrained)[0])
    ways = [(on_more_rows, each) for each in kept]
    if not of_labels:
        # For labels the evidence is only that of a regression, so it is not used; their judges stay the same.
        ways += [(_as_it_is, each) for each in kept]
        ways += [(of_evidence, ranked[0]), (of_evidence, _plain(views[0]))]
    best = _best_first([*threads.for_each(finished, ways), *(kept if of_labels else [])])[0]
    others = [_of_evidence(best.view, best.candidate, sample) for sample in evenly(best.view)]
    others = [_found(_tried(best.index, best.view, best.candidate, each, *last)) for each in others]
    return best.index, [_found(best), *(each._replace(evenly=True) for each in others)]


def _weighted(view, of_labels):
    """The view with weights as in `splits.merged`; otherwise tiny weights or copies would make the noise arbitrary."""
    found = copy.copy(view)
    found.table = view.table._replace(weight=(in_rows if of_labels else at_most_one)(view.table.weight))
    return found


def _with_smooth(ranked, n_best):
    """The best kernels and a smooth one: with little noise, a hundred neighbours favour rough kernels."""
    best = ranked[:n_best]
    if any(each.candidate.make is matern52 for each in best):
        return best
    return [*best, *(each for each in ranked if each.candidate.make is matern52)][: n_best + 1]


def _plain(view):
    """The kernel that a user would give, from common lengthscales, which no small sample of rows has misled."""
    start = view.start(matern52, view.longest, np.log(_NOISE), np.inf)[0]
    return Tried(0, view, Candidate(matern52, np.inf, (evidence.Best(start, np.nan),), np.nan), None)


def _some(judges):
    """Fewer judges, evenly spaced among all."""
    return judges._replace(index=judges.index[:: -(-len(judges.index) // _FEWER_JUDGES)])


def _best_first(tried):
    return sorted(tried, key=lambda each: -each.densities.mean)


def _with_untrained(kept, untrained):
    """The best kernels; before them one as it was before it was trained, if all are clearly worse.

    Where nearly all labels are predicted, those that train say little.
    """
    return [untrained, *kept] if untrained.densities.are_larger_than(kept[0].densities, _CLEARLY) else kept


def _as_it_is(_, candidate):
    return candidate.best[0].hyperparameters


def _trained(view, candidate, judges, n_iterations):
    """Hyperparameters under which some rows are predicted best from their neighbours."""
    start, bounds, prior = _start(view, candidate)
    return by_neighbours.maximise(start, bounds, view.table, judges, _NEIGHBOURS, n_iterations, prior).hyperparameters


def _of_evidence(view, candidate, rows):
    """Hyperparameters that maximise the evidence of some rows."""
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
