"""The default kernel of a larger table: chosen by neighbours.

Every kernel starts, under every scaling of X, at the maximum of the evidence of some hundred rows. It is judged by
other rows predicted from their neighbours, before and after training by the density of rows given their nearest among
all rows. The judges choose kernel, scaling and hyperparameters together, without a solution on many rows: of
measurements the best of each form are trained by few rows, and go on by more, or by the evidence of a thousand; of
labels each kernel goes on in both ways, under the best scaling, the evidence with more rows of rare labels.

A given kernel is trained in the same way from the maximum of the evidence, at which it stays if judges prefer it there.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np

from .._backend import threads
from .._backend.flat import flat
from .._backend.repeated import at_most_one, in_rows
from . import by_neighbours, evidence, neighbours
from .candidates import form
from .refinement import Ahead, Candidate, Found, verdict_by_neighbours
from .targets import standardised
from .view import View

# This search is for more different rows than these: among 6000 the rows of the evidence are about as dense as in the
# table.
MOST_BY_EVIDENCE = 6000
# Rows that train kernels of measurements first, then the best of them; those of labels; and neighbours of each row.
_TRAINING_ROWS, _MORE_ROWS, _MORE_LABELS, _NEIGHBOURS_OF_TRAINING = 400, 1000, 2000, 40
# Fewest rows that train a kernel; most numbers in them, if columns are many; fewest judges of labels.
_FEWEST_ROWS, _NUMBERS, _FEWEST_JUDGES = 200, 64_000, 1000
# Kernels of a form that few rows train, of measurements; and neighbours from which judges are predicted.
_TRAINED, _NEIGHBOURS_OF_JUDGES = 2, 100
# Standard errors by which a given kernel must be better trained than untrained; and by which a kernel must be worse at
# the evidence of more rows to be left (`search`).
SURE = 2.0
# Kernels of measurements are ranked by few judges. All compare the best, with more neighbours, since a hundred are too
# few for smooth functions: by few judges, protein's best two kernels differ by hardly more than a standard error.
_FEW_JUDGES, _OF_FINALISTS = 500, 200
# The largest error of a kernel, as a multiple of the smallest one of each target. The density of heavy-tailed errors
# forgives a few gross ones where the others become tiny: on bike 10.7 in place of 7.7, with an RMSE of .06 in place of
# .0004. On naval judges prefer neighbours' training of a given kernel with 1.35 times the error, and the model loses.
_GROSS = 1.25


class Tried(NamedTuple):
    """A candidate at some hyperparameters, the position and the view of its scaling of X, and what judges say of it.

    Attributes
    ----------
    index : int
    view : View
    candidate : Candidate
    densities : Densities or None
    error : ndarray of shape (T,) or None
        See `neighbours.Verdict`.
    """

    index: int
    view: View
    candidate: Candidate
    densities: object = None
    error: np.ndarray | None = None

    def ahead_of(self, other):
        """The `Ahead` of another one."""
        kernel = other.view.to_sklearn(other.candidate.make, other.candidate.best[0].hyperparameters.kernel)
        return Ahead(self.densities.mean - other.densities.mean, kernel)


def best_kernels(views, candidates, rows, n_evidence, of_labels):
    """The best of some kernels, or of each form, under a scaling of X, judged by predictions from neighbours.

    Parameters
    ----------
    views : sequence of View
        The same rows under each scaling.
    candidates : sequence of (int, View, Candidate)
        The position of the scaling, the view under it, and a kernel at the maximum of the evidence of some rows.
    rows : splits.Shuffled
    n_evidence : int
        Rows of the final evidence; none of them is a judge.
    of_labels : bool

    Returns
    -------
    found : list of Found
        The best kernel; for labels the best of each form under one scaling, with the judges' densities.
    """
    of_view = {id(view): view for view in [views[0], *(view for _, view, _ in candidates)]}
    of_view = {key: weighted(view, of_labels) for key, view in of_view.items()}
    candidates = [(index, of_view[id(view)], each) for index, view, each in candidates]
    contest = _Contest(views[0].table.X, rows, n_evidence, views[0].width, of_labels)
    if of_labels:
        return list(map(_found, contest.best_for_labels(candidates)))
    best, *rest = contest.best_for_measurements(candidates)
    return [_found(best, *rest[:1])]


class _Training(NamedTuple):
    """The rows that judge kernels, and those that train them: a few and more."""

    judges: neighbours.Judges
    few: neighbours.Judges
    more: neighbours.Judges

    @classmethod
    def of(cls, X, rows, n_evidence, width, of_labels):
        """Rows in a random order; with many columns fewer of them train, since covariances then take longer."""
        n_more = min(_MORE_LABELS, rows.n_groups - _FEWEST_JUDGES) if of_labels else _MORE_ROWS
        judges = neighbours.Judges.of(X, rows.outside(max(n_evidence, n_more)), of_labels)
        # One row of each X.
        first = rows.order[np.concatenate([[0], rows.ends[:-1]])][: max(_FEWEST_ROWS, _NUMBERS // width)]
        return cls(judges, *(judges._replace(index=first[:n]) for n in (_TRAINING_ROWS, n_more)))


class _Contest:
    """Trains and judges kernels.

    Parameters
    ----------
    X : ndarray of shape (N, D)
    rows : splits.Shuffled
    n_evidence : int
        Rows of the final evidence.
    width : int
        Number of columns.
    of_labels : bool
    """

    def __init__(self, X, rows, n_evidence, width, of_labels):
        self._rows, self._n_evidence = rows, n_evidence
        self.judges, self._few, self._more = _Training.of(X, rows, n_evidence, width, of_labels)
        self._ranking = self.judges if of_labels else _some(self.judges)

    def best_for_labels(self, candidates):
        """The best of each form, of (int, View, Candidate), under the scaling of the best one; see `dense`."""
        before = _best_first(threads.for_each(self._before_training, candidates))
        of_form = {}
        for each in before:
            if each.index == before[0].index:
                of_form.setdefault(form(each.candidate.make), each)
        even = self._even_rows(before[0].view)

        def on_the_best_way(each):
            ways = self._on_more_rows(each), _of_evidence(*each[1:3], even)
            return _best_first([each, *(self.judged(*each[:3], way) for way in ways)])[0]

        return _best_first(threads.for_each(on_the_best_way, list(of_form.values())))

    def _even_rows(self, view):
        """Rows of the evidence of labels, none of them a judge."""
        return standardised(self._rows.evenly_merged(view.table, self._n_evidence, self.judges.index))

    def best_for_measurements(self, candidates):
        """The best of all (int, View, Candidate) first, after two rounds.

        There are two ways on: rows given their neighbours, and the evidence of a thousand. The first suits rough
        functions, the second functions that are known almost exactly. Of each form, the best at the evidence of few
        rows are trained by neighbours. The best one, trained or not, goes on in both ways.
        """
        of_form = {}
        for each in _best_first(threads.for_each(self._before_training, candidates)):
            of_form.setdefault(form(each.candidate.make), []).append(each)
        some = [each for untrained in of_form.values() for each in untrained[:_TRAINED]]
        pairs = zip(threads.for_each(lambda each: self._after_training(each[:3]), some), some, strict=True)
        best = {}
        for pair in sorted(pairs, key=lambda pair: -max(each.densities.mean for each in pair)):
            best.setdefault(form(pair[0].candidate.make), pair)
        both = self._on_more_rows, self._on_evidence
        ways = [way for pair in best.values() for way in zip(both, pair, strict=True)]
        found = threads.for_each(lambda way: _settled(*way[1][:3], way[0](way[1])), ways)
        return _best_of_all(found, self.judges)

    def judged(self, index, view, candidate, hyperparameters):
        """The `Tried` of a candidate with these hyperparameters."""
        return _tried(index, view, candidate, hyperparameters, self._ranking, _NEIGHBOURS_OF_JUDGES)

    def _before_training(self, candidate):
        return self.judged(*candidate, candidate[-1].best[0].hyperparameters)

    def _after_training(self, candidate):
        return self.judged(*candidate, _trained(*candidate[1:], self._few))

    def _on_more_rows(self, tried):
        return _trained(*tried[1:3], self._more)

    def _on_evidence(self, tried):
        return _of_evidence(*tried[1:3], self._rows.merged(tried.view.table, self._n_evidence))


def trained(start, bounds, table, rows, n_evidence, of_labels, others=None):
    """Hyperparameters of a given kernel, trained by neighbours if judges clearly prefer these; else as before.

    Parameters
    ----------
    start : evidence.Hyperparameters
        At the maximum of the evidence of some rows.
    bounds : tuple of Hyperparameters
    table : Table
    rows : splits.Shuffled
    n_evidence : int
        Rows of the evidence, the first ones of the order; none of them is a judge.
    of_labels : bool
    others : sequence of Hyperparameters, optional
        Where training may begin as well, if it may begin elsewhere at all: the evidence of a sparse sample may find
        only noise.
    """
    # The noise of the regression of labels is not used.
    if not np.any(np.less(*(flat(each.kernel if of_labels else each) for each in bounds))):
        return start
    table = _with_weights(table, of_labels)
    judges, few, more = _Training.of(table.X, rows, n_evidence, table.X.shape[1], of_labels)
    found, near = start, by_neighbours.starts_near(start, table.X.shape[1])
    starts = [start] if others is None else [*near, *others]
    for some in (few, more):
        prior = evidence.no_prior
        best = by_neighbours.maximise(found, bounds, table, some, _NEIGHBOURS_OF_TRAINING, prior, starts)
        found = best.hyperparameters
        starts = [found]
    if np.array_equal(flat(found), flat(start)):
        return start
    n_neighbours = _NEIGHBOURS_OF_JUDGES if of_labels else _OF_FINALISTS
    before, after = (verdict_by_neighbours(table, each, judges, n_neighbours) for each in (start, found))
    is_better = after[0].are_larger_than(before[0], SURE) and np.all(after[1] <= _GROSS * before[1])
    return found if is_better else start


def weighted(view, of_labels):
    """The view with weights as in `splits.merged`."""
    found = copy.copy(view)
    found.table = _with_weights(view.table, of_labels)
    return found


def _with_weights(table, of_labels):
    """The table with weights as in `splits.merged`; otherwise tiny ones or copies would make the noise arbitrary."""
    return table._replace(weight=(in_rows if of_labels else at_most_one)(table.weight))


def _some(judges):
    """Fewer judges, evenly spaced among all."""
    return judges._replace(index=judges.index[:: -(-len(judges.index) // _FEW_JUDGES)])


def _best_of_all(finalists, judges):
    """Some `Tried` without gross errors, best first, by all judges."""

    def again(each):
        return _tried(*each[:3], each.candidate.best[0].hyperparameters, judges, _OF_FINALISTS)

    return _best_first(_without_gross_errors(threads.for_each(again, finalists)))


def _without_gross_errors(tried):
    """Those whose errors are not much larger than the smallest ones of each target; all, if there are none."""
    most = _GROSS * np.min([each.error for each in tried], axis=0)
    return [each for each in tried if np.all(each.error <= most)] or tried


def _best_first(tried):
    return sorted(tried, key=lambda each: -each.densities.mean)


def _trained(view, candidate, judges):
    """Hyperparameters under which some rows are predicted best from their neighbours."""
    start, bounds, prior = _start(view, candidate)
    return by_neighbours.maximise(start, bounds, view.table, judges, _NEIGHBOURS_OF_TRAINING, prior).hyperparameters


def _of_evidence(view, candidate, rows):
    """Hyperparameters that maximise the evidence of some rows."""
    start, bounds, prior = _start(view, candidate)
    return evidence.maximise(start, bounds, rows, prior, candidate.best[0].spread).hyperparameters


def _start(view, candidate):
    """The candidate's hyperparameters, their bounds and their prior."""
    start = candidate.best[0].hyperparameters
    return start, *view.start(candidate.make, view.longest, start.noise, candidate.tie)[1:]


def _tried(index, view, candidate, hyperparameters, judges, n_neighbours):
    verdict = verdict_by_neighbours(view.table, hyperparameters, judges, n_neighbours)
    return _settled(index, view, candidate._replace(density=verdict[0].mean), hyperparameters, *verdict)


def _settled(index, view, candidate, hyperparameters, densities=None, error=None):
    best = (evidence.Best(hyperparameters, np.nan),)
    return Tried(index, view, candidate._replace(best=best), densities, error)


def _found(tried, other=None):
    """The `Found` of what was tried, and how far it is ahead of another one."""
    kernel, noise = tried.candidate.best[0].hyperparameters
    ahead = None if other is None else tried.ahead_of(other)
    at = tried.view.to_sklearn(tried.candidate.make, kernel), float(np.exp(noise)), tried.densities.mean
    return Found(*at, index=tried.index, by_neighbours=tried.densities, ahead=ahead)
