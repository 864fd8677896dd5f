"""Searches for the default kernel, its hyperparameters by the evidence, and the scaling of X that goes with it.

Training moves hyperparameters by gradients, and ends near its start: a wiggly function looks like noise under a
lengthscale that is far too long, and the columns that matter are not found among many. So training starts at the best
of some kernels, each at the maximum of the evidence of a part of the table. Kernels are compared by the density of
held-out rows, since repeated rows deceive the evidence: it explains them by too little noise. For a model that uses all
rows of a larger table, kernels are trained and compared by neighbours in the whole table (`dense`). A small table is
cross-validated: with few rows a kernel with many hyperparameters overfits, and the rows that it was fitted to do not
show how badly it predicts. Training by steps has one sum, whatever the table.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from .._backend import threads
from ..solve.held_out_labels import Densities
from . import dense, evidence, turned
from .candidates import COLUMNS, OF_DENSE, OF_MEASUREMENTS, matern52, seasonal
from .refinement import Candidate, on_other_splits, raced, refined
from .scale import MANY_COLUMNS
from .splits import FEWEST_OUTSIDE, Shuffled, in_order, in_random_order, splits
from .view import FEW_COLUMNS, NEARLY_NOISE, NOISE_BOUNDS, starts_of
from .wide import WideView, viewed

# Rows whose evidence selects the kernel: for small tables, and for tables with many times as many rows.
_SEARCHED, _SEARCHED_OF_LONG = 250, 400
# Starts from which the evidence is maximised.
_TRIED = 2
# Maxima of the evidence within so many nats are level.
_LEVEL_EVIDENCE = 2.0
# The least gain of held-out density over that of noise, in nats a row, with which a kernel predicts anything.
_LEAST_GAIN = 0.02
# If none does, the shortest lengthscale, as a multiple of sqrt(D) standard deviations: under shorter ones every row
# explains itself.
_SMOOTH_LENGTH = 1.0
# Functions that take a `View` and return further kernels that its targets suggest.
_FURTHER = (seasonal,)


class _Effort(NamedTuple):
    """How the kernels of a table are fitted.

    Attributes
    ----------
    ties : tuple of float
        Prior standard deviations of a kernel's log lengthscales around their mean; each one is tried.
    predicts : bool
        Whether held-out rows are predicted at all. Otherwise the maximum of the evidence with most noise counts.
    """

    ties: tuple
    predicts: bool = True


_USUAL = _Effort((np.inf,))
# Few rows cannot determine a lengthscale for each of many columns: with the smaller deviation a kernel is nearly
# isotropic.
_OF_SMALL = _Effort((1.0, 0.3))
# With many columns a nearly isotropic kernel chooses the scaling of X, for the same reason.
_OF_MANY_COLUMNS = _Effort((0.3, np.inf))


def best_kernels(
    tables,
    random_state,
    n_best=1,
    coarse=False,
    noises=NOISE_BOUNDS,
    of_labels=False,
    in_common_unit=None,
    by_neighbours=False,
    blocks=(),
    makes=OF_MEASUREMENTS,
    compares=True,
):
    """The best kernels for some rows, each under a scaling of X.

    Parameters
    ----------
    tables : sequence of Table
        The same targets and weights under each scaling. From `targets.regressed`.
    random_state : numpy.random.RandomState
        Draws the rows.
    n_best : int, default=1
        For a small table it is one: the rows that kernels were fitted to do not show which of two overfits.
    coarse : bool, default=False
        Whether the model cannot resolve a small part of a column's deviation; lengthscales are then bounded there.
    noises : pair of floats, default=NOISE_BOUNDS
        Bounds of the noise variance, as shares of the targets' variance.
    of_labels : bool, default=False
        Whether targets are labels of a dense table.
    in_common_unit : sequence of bool, optional
        Whether the columns of each table have one unit, so that they begin with one lengthscale.
    by_neighbours : bool, default=False
        Whether kernels are trained and compared by neighbours if there are many rows (`dense`).
    blocks : sequence of sequence of int, default=()
        Columns of X that are no numbers: see `Plan`.
    makes : sequence of callable
        See `candidates`; the first one is a Matern 5/2.
    compares : bool, default=True
        Whether the first kernel is compared with the others, and directions with columns. Otherwise it only shows the
        others where to begin.

    Returns
    -------
    found : list of Found
        The kernels with the largest densities, best first. For labels of a dense table: see `dense.best_kernels`.
    """
    rows = Shuffled(*in_random_order(tables[0], random_state))
    is_dense = by_neighbours and rows.n_groups > dense.MOST_BY_EVIDENCE

    def views_of(shortest=None):
        return [viewed(*pair, coarse, noises, shortest, blocks) for pair in with_units(tables, in_common_unit)]

    views, firsts, n_rows, effort = begun(views_of, rows, may_be_noise=not is_dense)
    makes = OF_DENSE if is_dense and makes is OF_MEASUREMENTS else makes
    turns = compares and effort.predicts and not (of_labels or tables[0].per_target or rows.is_small(n_rows))
    found = _candidates(views, firsts, rows, n_rows, effort, makes_of(views[0], makes), turns)
    if is_dense:
        return dense.best_kernels(views, found, rows, evidence.ROWS, of_labels)
    if not compares:
        found = [each for each in found if each[-1].make is not matern52] or found
    ranked = sorted(found, key=lambda each: -each[-1].density)
    ranked = ranked[: n_best if effort.predicts and not rows.is_small(n_rows) else 1]
    return _at_more_rows(ranked, views, rows)


def begun(views_of, rows, may_be_noise, tie=None):
    """The views, the first kernel in each, the number of rows that it is fitted to, and the `_Effort`.

    Parameters
    ----------
    views_of : callable
        Returns the views, with all lengthscales or with none shorter than a multiple of sqrt(D) standard deviations.
    rows : splits.Shuffled
    may_be_noise : bool
        Whether held-out rows that are not predicted show that there is nothing but a smooth function and noise.
    tie : float, optional
        The deviation of a kernel's log lengthscales, in place of those that are tried by the size of the table.
    """
    n_rows = _SEARCHED if rows.n_groups <= 2 * evidence.ROWS else _SEARCHED_OF_LONG
    views, is_small = views_of(), rows.is_small(n_rows)
    effort = _OF_SMALL if is_small else _OF_MANY_COLUMNS if views[0].n_features >= MANY_COLUMNS else _USUAL
    if tie is not None or isinstance(views[0], WideView):
        # A wide table has nothing to tie.
        effort = effort._replace(ties=_USUAL.ties if tie is None else (tie,))
    firsts = _smooth_ones(views, rows, n_rows, effort)
    if is_small or not _predict_nothing(firsts, splits(views[0].table, rows, n_rows)):
        return views, firsts, n_rows, effort
    # More rows may show a function that few do not.
    n_rows = max(n_rows, min(evidence.ROWS, rows.n_groups - FEWEST_OUTSIDE))
    firsts = _smooth_ones(views, rows, n_rows, effort)
    # Along few columns a weak function may go up and down many times, and few rows are close to one another.
    may_be_noise &= views[0].n_numbers > FEW_COLUMNS
    if may_be_noise and _predict_nothing(firsts, splits(views[0].table, rows, n_rows)):
        views, effort = views_of(_SMOOTH_LENGTH), effort._replace(ties=_OF_SMALL.ties[:1], predicts=False)
        firsts = _smooth_ones(views, rows, n_rows, effort)
    return views, firsts, n_rows, effort


def _at_more_rows(ranked, views, rows):
    """The `Found` of the best kernels at the evidence of more rows, without those that predict clearly worse there."""
    more = [rows.merged(view.table, evidence.ROWS) for view in views]
    raced_ones = threads.for_each(lambda each: dense.Tried(*each[:2], *raced(*each[1:], more[each[0]])), ranked)
    best, *others = sorted(raced_ones, key=lambda each: -each.densities.mean)
    close = [best, *(each for each in others if not best.densities.are_larger_than(each.densities, dense.SURE))]
    found = threads.for_each(lambda each: refined(each.view, each.candidate, more[each.index], each.index), close)
    return [found[0]._replace(ahead=best.ahead_of(others[0]))] if len(found) == 1 < len(ranked) else found


def _smooth_ones(views, rows, n_rows, effort):
    """The candidate of the first kernel in each view."""

    def of_view(view):
        return smooth_one(view, splits(view.table, rows, n_rows), effort.ties[0], effort)

    return threads.for_each(of_view, views)


def _predict_nothing(candidates, parts):
    """Whether held-out rows are hardly more probable than under noise."""
    of_noise = np.mean([evidence.density_of_noise(part.others) for part in parts])
    return max(each.density for each in candidates) < of_noise + _LEAST_GAIN


def _candidates(views, firsts, rows, n_rows, effort, makes, turns):
    """Each kernel under each scaling, or under the best one if columns are many: (index, view, `Candidate`).

    If ``turns``, also on directions where these suit the first kernel better than columns.
    """

    def of_scaling(index):
        view, parts = views[index], splits(views[index].table, rows, n_rows)
        of_ties = [firsts[index], *(smooth_one(view, parts, tie, effort) for tie in effort.ties[1:])]
        # What targets suggest is a matter of distances in X, which the first scaling keeps.
        further = _further(view, parts, firsts[index]) if index == 0 else []
        found = [(index, view, each) for each in [*kernels_in(view, parts, of_ties, makes, effort), *further]]
        best = max(of_ties, key=lambda each: each.density)
        other, parts, first = turned.first(view, parts, best) if turns else (None, parts, best)
        on_directions = [] if other is None else kernels_in(other, parts, [first], makes, effort)
        return found + [(index, other, each) for each in on_directions]

    few_columns = min(views[0].n_columns, views[0].n_features) < MANY_COLUMNS
    best = int(np.argmax([first.density for first in firsts]))
    return list(itertools.chain(*threads.for_each(of_scaling, range(len(views)) if few_columns else [best])))


def kernels_in(view, parts, firsts, makes, effort):
    """The candidates of all kernels in a view; only those of the first kernel, ``firsts``, if it predicts nothing."""
    pairs = itertools.product(firsts, _others(view, makes, effort))
    return [*firsts, *threads.for_each(lambda pair: _like(view, parts, *pair), list(pairs))]


def starts_in(view, first, makes, effort):
    """As `kernels_in`, but the others are where they start: none of them is fitted."""
    starts = [(make, _start_like(view, first, make)[0]) for make in _others(view, makes, effort)]
    others = [Candidate(make, first.tie, (evidence.Best(start, -np.inf),), np.nan) for make, start in starts]
    return [first, *others]


def _others(view, makes, effort):
    """The kernels after the first one that suit a view, if any function can be predicted."""
    return [make for make in makes[1:] if _suits(make, view.n_columns)] if effort.predicts else []


def _further(view, parts, first):
    """The candidates of kernels that the targets of a view suggest, started at the longest lengthscales."""

    def fitted(make):
        pairs = zip(parts, first.best, strict=True)
        starts = [view.start(make, view.longest, best.hyperparameters.noise, first.tie) for _, best in pairs]
        pairs = zip(starts, parts, strict=True)
        found = [evidence.maximise(at, to, part.rows, prior) for (at, to, prior), part in pairs]
        return _judged(make, first.tie, found, parts)

    return threads.for_each(fitted, [make for each in _FURTHER for make in each(view)])


def makes_of(view, makes):
    """The kernels that are compared in a view: those given, or those of a wide table."""
    return view.makes if isinstance(view, WideView) else makes


def _suits(make, n_columns):
    fewest, most = COLUMNS.get(make, (0, np.inf))
    return fewest <= n_columns <= most


def with_units(tables, in_common_unit):
    """Each table, and whether its columns have one unit."""
    return zip(tables, in_common_unit or [False] * len(tables), strict=True)


def smooth_one(view, parts, tie, effort):
    """The best Matern 5/2 for each split of the rows, as a candidate."""
    first = _smooth_of(view, parts[0].rows, tie, effort)
    return _judged(matern52, tie, on_other_splits(view, matern52, tie, first, parts), parts)


def _smooth_of(view, rows, tie, effort):
    """The maximum of largest evidence, or another that is level with it and has more noise.

    For pure noise, and for a weak function, the evidence has a second maximum, at lengthscales so short that every row
    explains only itself. By chance it is the higher one in many tables, by less than a nat; with many lengthscales by
    more, so that where nothing is predicted the maximum with most noise is taken.
    """

    def start(factor, noise):
        return view.start(matern52, factor * view.longest, np.log(noise), tie)

    starts = [start(*each) for each in starts_of(len(view.of_numbers))]
    starts.sort(key=lambda each: -evidence.value(each[0], rows))
    starts = [start(*NEARLY_NOISE), *starts[:_TRIED]]
    found = [evidence.maximise(at, to, rows, prior) for at, to, prior in starts]
    largest = max(each.evidence for each in found)
    level = [each for each in found if each.evidence >= largest - _LEVEL_EVIDENCE or not effort.predicts]
    return max(level, key=lambda each: each.hyperparameters.noise)


def _like(view, parts, first, make):
    """The candidate of another kernel, started at the lengthscales of a Matern 5/2."""
    start, bounds, prior = _start_like(view, first, make)
    found = evidence.maximise(start, bounds, parts[0].rows, prior)
    return _judged(make, first.tie, on_other_splits(view, make, first.tie, found, parts), parts)


def _start_like(view, first, make):
    """Start, bounds and prior of another kernel at the lengthscales of a Matern 5/2, a candidate."""
    best = first.best[0].hyperparameters
    return view.start(make, view.length_scale(best.kernel), best.noise, first.tie)


def _judged(make, tie, best, parts):
    """The candidate, with the log densities of the held-out rows of all splits."""
    pairs = zip(best, parts, strict=True)
    found = [evidence.held_out_densities(each.hyperparameters, part.rows, part.others) for each, part in pairs]
    weights = np.array([part.weight for part in parts])
    density = float(np.average([each.mean for each in found], weights=weights)) if weights.sum() > 0.0 else -np.inf
    # With missing targets a row has a density for each.
    has_one = not any(each.per_target for part in parts for each in (part.rows, part.others))
    held_out = Densities(*(in_order(each, parts) for each in zip(*found, strict=True))) if has_one else None
    return Candidate(make, tie, tuple(best), density, held_out)
