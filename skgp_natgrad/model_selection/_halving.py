"""Successive halving: after each rung of iterations, the best candidates go on from where they paused.

Jamieson and Talwalkar (2016), "Non-stochastic best arm identification and hyperparameter
optimization", AISTATS.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import tempfile
from pathlib import Path

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning

from .._backend.notices import Notice
from ..estimators.base import BaseNGDSVGP
from ..svgp import SOLVERS, is_transformation
from ._rungs import Rung

# The default factor, and the largest number of rungs: before a 27th of the iterations little can be told.
FACTOR, _MOST_RUNGS = 3, 4


class Candidate(dict):
    """The parameters of a candidate at a rung, with the folder in which its fits pause.

    Attributes
    ----------
    given : dict
        The parameters of the search.
    index : int
        Its place in the search.
    rung : int
    place : Rung
    failed : bool
        Whether its fits at the next rung did.
    """

    def __init__(self, given, index, rung, place, names):
        super().__init__(given, **dict.fromkeys(names, place))
        self.given, self.index, self.rung, self.place = given, index, rung, place
        self.failed = False

    def __sklearn_clone__(self):
        """As of a dict in scikit-learn: estimators among the values are cloned, without fitted attributes."""
        return {name: clone(value, safe=False) for name, value in self.items()}


def evaluate(search, evaluate_candidates, candidate_params, callback_ctx=None):
    """Evaluate candidates rung by rung, fewer and fewer of them for more and more iterations.

    Parameters
    ----------
    search : NGDGridSearchCV or NGDRandomizedSearchCV
    evaluate_candidates : callable
        scikit-learn's; see ``BaseSearchCV._run_search``.
    candidate_params : iterable of dict
    callback_ctx : object, optional
        scikit-learn's since version 1.9.
    """
    all_params = list(candidate_params)
    names = [_pausing(search.estimator, params) for params in all_params]
    if not any(names):
        raise ValueError(
            f"early_stopping={search.early_stopping!r} needs an estimator of skgp_natgrad with iterations (not "
            "solver='lbfgs' or 'evidence', nor an optimizer of optax); set early_stopping=False."
        )
    factor, cv = _factor(search), _SameSplits(search._splitter())
    if isinstance(search.scoring, (list, tuple, set, dict)) and not isinstance(search.refit, str):
        raise _refused(search)
    # After an error fits may still be running, and write.
    with tempfile.TemporaryDirectory(prefix="skgp_natgrad_search_", ignore_cleanup_errors=True) as folder:
        # Those that may go on, the best first, and how many of them do.
        standing, n_remaining, before = np.arange(len(all_params)), len(all_params), {}
        number = itertools.count()
        for rung, share in enumerate(shares(len(all_params), factor)):
            results = None
            while results is None:
                remaining = np.sort(standing[:n_remaining])
                candidates = []
                for index in remaining:
                    place = Path(folder, str(index))
                    place.mkdir(exist_ok=True)
                    candidates.append(Candidate(all_params[index], index, rung, Rung(str(place), share), names[index]))
                with _told(callback_ctx, search, next(number), len(candidates)) as context:
                    run = functools.partial(evaluate_candidates, candidates, cv, **context)
                    has_others = rung > 0 and len(standing) > n_remaining
                    results = _evaluated(run, has_others and search.error_score != "raise")
                if results is None:
                    # The next best take the place of those that failed.
                    for index in remaining:
                        before[index].failed = True
                    standing = standing[n_remaining:]
            before = {each.index: each for each in candidates}
            # Stopped candidates are not evaluated again; and no candidate is, once all remaining fits have ended.
            standing, n_remaining = _by_rank(results, remaining, search), math.ceil(len(remaining) / factor)
            unfinished = [each.index for each in candidates if each.place.left_unfinished]
            if rung == 0 and not unfinished and share < 1.0:
                _warn_of_one_rung(search)
            if not np.isin(standing[:n_remaining], unfinished).any():
                break


def _evaluated(run, goes_on):
    """The results of ``run``; with ``goes_on`` None where all its fits failed."""
    try:
        return run()
    except ValueError as error:
        if not goes_on or "fits failed" not in str(error):
            raise
        Notice("All fits of some candidates failed.", str(error).strip(), FitFailedWarning).give()
        return None


def _warn_of_one_rung(search):
    details = (
        f"early_stopping={search.early_stopping!r}: all fits ended before the first comparison. With solver='auto' "
        "they may have taken one step; solver='ngd' takes many."
    )
    Notice("early_stopping has no effect.", details).give()


def shares(n_candidates, factor):
    """The shares of the iterations after which candidates are compared; the last one is one."""
    n_rungs = 1
    while n_rungs < _MOST_RUNGS and factor**n_rungs <= n_candidates:
        n_rungs += 1
    return [float(factor) ** -k for k in reversed(range(n_rungs))]


def latest(candidate_params, n_splits, out):
    """The last evaluation of each candidate, in the order of the search: parameters, scikit-learn's records, rungs."""
    last = {candidate.index: row for row, candidate in enumerate(candidate_params)}
    rows = [last[index] for index in sorted(last)]
    records = [out[row * n_splits : (row + 1) * n_splits] for row in rows]
    params, rungs = ([getattr(candidate_params[row], name) for row in rows] for name in ("given", "rung"))
    failed = [
        candidate_params[row].failed or any(record.get("fit_error") is not None for record in of_row)
        for row, of_row in zip(rows, records, strict=True)
    ]
    return params, [record for of_row in records for record in of_row], np.array(rungs), np.array(failed)


def ranked(rank, score, rung, failed):
    """Ranks: stopped candidates come after all that went further, and failed ones come last."""
    rank, rung = np.asarray(rank), np.where(failed | np.isnan(score), -1, rung)
    ahead = (rung[None] > rung[:, None]) | ((rung[None] == rung[:, None]) & (rank[None] < rank[:, None]))
    return (1 + ahead.sum(1)).astype(rank.dtype)


def _factor(search):
    return FACTOR if isinstance(search.early_stopping, (bool, np.bool_)) else search.early_stopping


def _refused(search):
    return ValueError(
        f"early_stopping={search.early_stopping!r} compares candidates by one score, but scoring gives several: refit="
        f"{search.refit!r} must be the name of one of them."
    )


def _by_rank(results, remaining, search):
    """The indices of candidates, the best first."""
    # A single metric is the score, whatever refit calls it; a callable may have returned several.
    names = [f"rank_test_{search.refit}", "rank_test_score"]
    found = next((name for name in names if name in results), None)
    if found is None:
        raise _refused(search)
    return remaining[np.argsort(results[found][remaining], kind="stable")]


def _pausing(estimator, params):
    """The names of the argument ``checkpoint`` of those estimators, in a candidate, whose fits can pause."""
    found = clone(estimator).set_params(**clone(params, safe=False))
    parts = {"": found} | {f"{name}__": value for name, value in found.get_params(deep=True).items()}
    return [f"{name}checkpoint" for name, part in parts.items() if isinstance(part, BaseNGDSVGP) and _can_pause(part)]


def _can_pause(estimator):
    if "checkpoint" not in estimator.get_params(deep=False):
        # A user's subclass with fewer arguments.
        return False
    # Its fit reports any other fault in its arguments.
    solver = SOLVERS.get(estimator.solver) if isinstance(estimator.solver, str) else None
    return (solver is None or solver.pauses) and not is_transformation(estimator.optimizer)


class _SameSplits:
    """A splitter whose folds are the same at all rungs, also if they are drawn."""

    def __init__(self, cv):
        self._cv, self._splits = cv, None

    def split(self, X, y=None, **params):
        """The folds of the first call."""
        if self._splits is None:
            self._splits = list(self._cv.split(X, y, **params))
        return self._splits


@contextlib.contextmanager
def _told(callback_ctx, search, number, n_candidates):
    """The argument that tells scikit-learn's callbacks of a rung, or of a further try; nothing before version 1.9."""
    if callback_ctx is None:
        yield {}
        return
    of_rung = callback_ctx.subcontext(
        task_name="rung", task_id=number, max_subtasks=n_candidates * search.n_splits_, sequential_subtasks=False
    ).call_on_fit_task_begin(estimator=search)
    yield {"callback_ctx": of_rung}
    of_rung.call_on_fit_task_end(estimator=search)
