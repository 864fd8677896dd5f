"""Successive halving: after each rung of iterations, the best candidates go on from where they paused.

Jamieson and Talwalkar (2016), "Non-stochastic best arm identification and hyperparameter
optimization", AISTATS.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
from pathlib import Path

import numpy as np
from sklearn.base import clone

from ..estimators._base import BaseNGDSVGP
from ..svgp import SOLVERS, is_transformation
from ..training.rungs import Rung

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
    """

    def __init__(self, given, index, rung, place, names):
        super().__init__(given, **dict.fromkeys(names, place))
        self.given, self.index, self.rung, self.place = given, index, rung, place


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
        remaining = np.arange(len(all_params))
        for rung, share in enumerate(shares(len(all_params), factor)):
            candidates = []
            for index in remaining:
                place = Path(folder, str(index))
                place.mkdir(exist_ok=True)
                candidates.append(Candidate(all_params[index], index, rung, Rung(str(place), share), names[index]))
            with _told(callback_ctx, search, rung, len(candidates)) as context:
                results = evaluate_candidates(candidates, cv, **context)
            # Those that are behind are not looked at again; nor is anybody once all that are left have ended.
            remaining = _best(results, remaining, search, factor)
            if not any(each.place.left_unfinished for each in candidates if each.index in remaining):
                break


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
    records = [record for row in rows for record in out[row * n_splits : (row + 1) * n_splits]]
    return [candidate_params[row].given for row in rows], records, [candidate_params[row].rung for row in rows]


def ranked(rank, rung):
    """Ranks in which a candidate that was stopped comes after all that went further."""
    rank, rung = np.asarray(rank), np.asarray(rung)
    ahead = (rung[None] > rung[:, None]) | ((rung[None] == rung[:, None]) & (rank[None] < rank[:, None]))
    return (1 + ahead.sum(1)).astype(rank.dtype)


def _factor(search):
    return FACTOR if isinstance(search.early_stopping, (bool, np.bool_)) else search.early_stopping


def _refused(search):
    return ValueError(
        f"early_stopping={search.early_stopping!r} compares candidates by one of several scores: set refit, "
        f"{search.refit!r} now, to the name of one."
    )


def _best(results, remaining, search, factor):
    """The indices of those candidates that go on."""
    # A single metric is the score, whatever refit calls it; a callable may have returned several.
    names = [f"rank_test_{search.refit}", "rank_test_score"]
    found = next((name for name in names if name in results), None)
    if found is None:
        raise _refused(search)
    rank = results[found][remaining]
    return np.sort(remaining[np.argsort(rank, kind="stable")[: math.ceil(len(remaining) / factor)]])


def _pausing(estimator, params):
    """The names of the argument ``checkpoint`` of those estimators, in a candidate, whose fits can pause."""
    found = clone(estimator).set_params(**clone(params, safe=False))
    parts = {"": found} | {f"{name}__": value for name, value in found.get_params(deep=True).items()}
    return [f"{name}checkpoint" for name, part in parts.items() if isinstance(part, BaseNGDSVGP) and _can_pause(part)]


def _can_pause(estimator):
    if "checkpoint" not in estimator.get_params(deep=False):
        # A user's subclass with fewer arguments.
        return False
    # Anything else that is wrong with its arguments is for its fit to say.
    solver = SOLVERS.get(estimator.solver) if isinstance(estimator.solver, str) else None
    one_step = solver is not None and solver.one_step
    return not one_step and estimator.solver != "lbfgs" and not is_transformation(estimator.optimizer)


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
def _told(callback_ctx, search, rung, n_candidates):
    """The argument that tells scikit-learn's callbacks of a rung; nothing before version 1.9."""
    if callback_ctx is None:
        yield {}
        return
    of_rung = callback_ctx.subcontext(
        task_name="rung", task_id=rung, max_subtasks=n_candidates * search.n_splits_, sequential_subtasks=False
    ).call_on_fit_task_begin(estimator=search)
    yield {"callback_ctx": of_rung}
    of_rung.call_on_fit_task_end(estimator=search)
