"""scikit-learn's searches, with fits in threads and early stopping of candidates with low scores."""

from __future__ import annotations

import contextlib
import functools
import inspect
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias

import joblib
import numpy as np
from sklearn import get_config
from sklearn.base import is_classifier
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, check_cv
from sklearn.utils._param_validation import Interval

from .._backend import threads
from .._backend.notices import Notice
from .._backend.types import ArrayLike, Seed
from . import _halving

Grid: TypeAlias = Mapping[str, Any]
Scoring: TypeAlias = str | Callable[..., Any] | Sequence[str] | Mapping[str, Any] | None

# Arguments of fits that predictions need as well.
_OF_PREDICTIONS = ("offset", "alpha", "trials")
_EARLY_STOPPING = ["boolean", Interval(numbers.Integral, 2, None, closed="left")]
_ARGUMENTS = """scoring : str, callable, list, tuple or dict, default=None
        As in scikit-learn.
    n_jobs : int or None, default=-1
        How many fits run at the same time, in threads of this process; -1 is one for each core. In a
        ``joblib.parallel_config`` that names a backend, they run there.
    refit : bool, str or callable, default=True
        As in scikit-learn.
    cv : int, cross-validation generator or iterable, default=None
        As in scikit-learn.
    verbose : int, default=0
        As in scikit-learn.
    pre_dispatch : int or str, default="2*n_jobs"
        As in scikit-learn.
    error_score : "raise" or numeric, default=np.nan
        As in scikit-learn.
    return_train_score : bool, default=False
        As in scikit-learn.
    early_stopping : bool or int, default=False
        Stop candidates with low scores: all are trained for a small share of ``max_iter``, the best third continues to
        three times as many iterations, and so on, at most three times; True stands for a factor of three. Candidates
        are compared by their mean score on held-out rows. Those that continue take the same steps as without early
        stopping. It needs fits of many steps, and at least as many candidates as the factor. The search uses the
        argument ``checkpoint`` of the estimator for this.

    Attributes
    ----------
    cv_results_ : dict
        As in scikit-learn. With ``early_stopping`` the scores of a candidate are those at its last rung, ``"rung"``
        counts these from zero, and candidates that went further have the better ranks.
    best_estimator_, best_score_, best_params_, best_index_, scorer_, n_splits_, refit_time_, multimetric_, classes_, \
n_features_in_, feature_names_in_ : object
        As in scikit-learn."""


class _Searches:
    """What both searches add to scikit-learn's."""

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, **params: Any) -> Self:
        """Fit all candidates, and the best one on all rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            Targets.
        **params : dict
            Passed to the estimator's ``fit``; with ``sklearn.set_config(enable_metadata_routing=True)`` also to the
            scorer and the splitter, where they request it, as in scikit-learn.

        Returns
        -------
        self : object
        """
        unseen = [name for name in _OF_PREDICTIONS if params.get(name) is not None]
        if unseen and not get_config()["enable_metadata_routing"]:
            Notice(
                "Held-out rows are scored without what is known of the rows of the fit.",
                f"{unseen[0]} is passed to fit alone: held-out rows are scored without it. Call "
                "sklearn.set_config(enable_metadata_routing=True), and request it by set_fit_request and "
                "set_score_request of the estimator, or set_score_request of the scorer.",
            ).give()
        self._y, cv = y, self.cv
        if isinstance(cv, Iterator):
            # Before version 1.9 of scikit-learn it would be used up before `_splitter` sees it.
            self.cv = list(cv)
        try:
            # A hint: a backend named in a joblib.parallel_config has precedence.
            with joblib.parallel_config(prefer="threads"):
                return super().fit(X, y, **params)
        finally:
            self.cv = cv
            del self._y

    @property
    def _stops_early(self):
        return not isinstance(self.early_stopping, (bool, np.bool_)) or bool(self.early_stopping)

    def _splitter(self):
        """The splitter of the present search, which scikit-learn keeps since version 1.9."""
        found = getattr(self, "_checked_cv_orig", None)
        return check_cv(self.cv, self._y, classifier=is_classifier(self.estimator)) if found is None else found

    def _run_search(self, evaluate_candidates, callback_ctx=None):
        if self._stops_early:
            evaluate_candidates = functools.partial(_halving.evaluate, self, evaluate_candidates)
        context = {} if callback_ctx is None else {"callback_ctx": callback_ctx}
        # Fits at the same time have a core each: threads of BLAS would only wait for one another.
        several = joblib.effective_n_jobs(self.n_jobs) > 1
        with threads.single_threaded(0) if several else contextlib.nullcontext():
            super()._run_search(evaluate_candidates, **context)

    def _format_results(self, candidate_params, n_splits, out, more_results=None):
        if not self._stops_early:
            return super()._format_results(candidate_params, n_splits, out, more_results)
        params, records, rungs, failed = _halving.latest(candidate_params, n_splits, out)
        results = super()._format_results(params, n_splits, records, more_results) | {"rung": rungs}
        for name in [each for each in results if each.startswith("rank_test_")]:
            score = results[name.replace("rank_", "mean_", 1)]
            results[name] = _halving.ranked(results[name], score, rungs, failed)
        return results


class NGDGridSearchCV(_Searches, GridSearchCV):
    """A grid search whose fits run at the same time in one process, and may end early.

    It is scikit-learn's ``GridSearchCV``, with the same scores. The fits run in threads, which share data and compiled
    programs.

    Parameters
    ----------
    estimator : estimator object
        Any; ``early_stopping`` needs one of this package, alone or within pipelines and the like.
    param_grid : dict or list of dict
        As in scikit-learn.
    {arguments}

    See Also
    --------
    NGDRandomizedSearchCV : The same over parameters that are drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import NGDSVGPRegressor
    >>> from skgp_natgrad.model_selection import NGDGridSearchCV
    >>> X = np.linspace(0, 10, 200)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=200)
    >>> model = NGDSVGPRegressor(RBF(), solver="ngd", n_inducing=15, max_iter=60, tol=0.1, random_state=0)
    >>> search = NGDGridSearchCV(model, {{"kernel__length_scale": [0.1, 1.0, 10.0]}}, cv=2, early_stopping=True)
    >>> [int(rung) for rung in search.fit(X, y).cv_results_["rung"]]
    [0, 1, 0]
    >>> bool(search.score(X, y) > 0.9)
    True
    """

    __doc__ = inspect.cleandoc(__doc__).format(arguments=inspect.cleandoc(_ARGUMENTS))
    _parameter_constraints = GridSearchCV._parameter_constraints | {"early_stopping": _EARLY_STOPPING}

    def __init__(
        self,
        estimator: Any,
        param_grid: Grid | Sequence[Grid],
        *,
        scoring: Scoring = None,
        n_jobs: int | None = -1,
        refit: bool | str | Callable[[dict[str, Any]], int] = True,
        cv: Any = None,
        verbose: int = 0,
        pre_dispatch: int | str = "2*n_jobs",
        error_score: float | Literal["raise"] = np.nan,
        return_train_score: bool = False,
        early_stopping: bool | int = False,
    ) -> None:
        super().__init__(
            estimator,
            param_grid,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self.early_stopping = early_stopping


class NGDRandomizedSearchCV(_Searches, RandomizedSearchCV):
    """A randomized search whose fits run at the same time in one process, and may end early.

    It is scikit-learn's ``RandomizedSearchCV`` in everything else; see `NGDGridSearchCV`.

    Parameters
    ----------
    estimator : estimator object
        Any; ``early_stopping`` needs one of this package, alone or within pipelines and the like.
    param_distributions : dict or list of dict
        As in scikit-learn.
    n_iter : int, default=10
        Number of candidates.
    random_state : int, RandomState instance or None, default=None
        Draws the candidates.
    {arguments}

    See Also
    --------
    NGDGridSearchCV : The same over all combinations of a grid.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.stats import loguniform
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import NGDSVGPRegressor
    >>> from skgp_natgrad.model_selection import NGDRandomizedSearchCV
    >>> X = np.linspace(0, 10, 200)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=200)
    >>> model = NGDSVGPRegressor(RBF(), solver="ngd", n_inducing=15, max_iter=60, tol=0.1, random_state=0)
    >>> grid = {{"kernel__length_scale": loguniform(0.1, 10.0)}}
    >>> search = NGDRandomizedSearchCV(model, grid, n_iter=3, cv=2, random_state=0).fit(X, y)
    >>> bool(search.score(X, y) > 0.9)
    True
    """

    __doc__ = inspect.cleandoc(__doc__).format(arguments=inspect.cleandoc(_ARGUMENTS))
    _parameter_constraints = RandomizedSearchCV._parameter_constraints | {"early_stopping": _EARLY_STOPPING}

    def __init__(
        self,
        estimator: Any,
        param_distributions: Grid | Sequence[Grid],
        *,
        n_iter: int = 10,
        scoring: Scoring = None,
        n_jobs: int | None = -1,
        refit: bool | str | Callable[[dict[str, Any]], int] = True,
        cv: Any = None,
        verbose: int = 0,
        pre_dispatch: int | str = "2*n_jobs",
        random_state: Seed = None,
        error_score: float | Literal["raise"] = np.nan,
        return_train_score: bool = False,
        early_stopping: bool | int = False,
    ) -> None:
        super().__init__(
            estimator,
            param_distributions,
            n_iter=n_iter,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            random_state=random_state,
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self.early_stopping = early_stopping
