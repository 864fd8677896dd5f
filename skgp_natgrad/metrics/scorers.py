"""Scorers for ``scoring=`` of scikit-learn's model selection."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import column_or_1d
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from .._backend.types import ArrayLike
from ..estimators.arguments import checks
from ..estimators.rows.class_labels import positions
from ._arrays import columns, probability, row_average
from .calibration import (
    expected_calibration_error,
    interval_coverage,
    interval_score,
    interval_width,
    pit_calibration_error,
)
from .predictions import predictions_of
from .proper_scores import baseline_log_density

Metric: TypeAlias = Literal[
    "nlpd", "msll", "crps", "interval_score", "interval_width", "coverage_error", "calibration_error"
]

_SMALLEST = np.finfo(float).tiny


def _nlpd(found, y, weight, scorer):
    # A row without any target, where these may be missing, is none.
    seen = np.any(~np.isnan(np.reshape(y, (len(y), -1))), axis=1)
    if not np.all(seen):
        weight = np.where(seen, 1.0 if weight is None else weight, 0.0)
    return -row_average(found.log_density(y), weight)


def _msll(found, y, weight, scorer):
    if found._mixed is not None:
        raise ValueError(
            f"metric='msll' compares densities, but with likelihood={found._mixed.name!r} some targets have a "
            "probability and no density; use 'nlpd' or 'crps'."
        )
    return _nlpd(found, y, weight, scorer) + row_average(baseline_log_density(*columns(y=y), None, weight), weight)


def _crps(found, y, weight, scorer):
    return row_average(found.crps(y, scorer.n_draws).reshape(len(y), -1).mean(1), weight)


def _of_seen(metric, found, y, weight, scorer):
    """The mean over the outputs of a metric, each in the rows where its y is not missing."""
    each = []
    for k, target in enumerate(np.reshape(y, (len(y), -1)).T):
        rows = np.flatnonzero(~np.isnan(target))
        if len(rows):
            of_rows = None if weight is None else np.asarray(weight)[rows]
            each.append(metric(_Output(found, k, rows), target[rows], of_rows, scorer))
    if not each:
        raise ValueError("y is missing in every row: there is nothing to score.")
    return float(np.mean(each))


class _Output:
    """The part of a `PredictiveDistribution` that metrics of one output at some rows ask for."""

    def __init__(self, found, k, rows):
        self._found, self._k, self._rows = found, k, rows

    def _part(self, values):
        values = np.asarray(values)
        return np.reshape(values, (len(values), -1))[self._rows, self._k]

    def _whole(self, y):
        """``y`` among the means of all others, for which nothing is asked."""
        whole = self._found.mean().reshape(self._found.shape[0], -1).copy()
        whole[self._rows, self._k] = y
        return whole.reshape(self._found.shape)

    def interval(self, coverage):
        return tuple(map(self._part, self._found.interval(coverage)))

    def crps(self, y, n_draws):
        return self._part(self._found.crps(self._whole(y), n_draws))

    def _pit(self, y):
        return tuple(None if each is None else self._part(each) for each in self._found._pit(self._whole(y)))


_OF_REGRESSORS = {
    "nlpd": _nlpd,
    "msll": _msll,
    "crps": _crps,
    "interval_score": lambda found, y, weight, scorer: interval_score(
        y, *found.interval(scorer.coverage), scorer.coverage, sample_weight=weight
    ),
    "interval_width": lambda found, y, weight, scorer: interval_width(
        *found.interval(scorer.coverage), sample_weight=weight
    ),
    "coverage_error": lambda found, y, weight, scorer: abs(
        interval_coverage(y, *found.interval(scorer.coverage), sample_weight=weight) - scorer.coverage
    ),
    "calibration_error": lambda found, y, weight, scorer: pit_calibration_error(*found._pit(y), sample_weight=weight),
}


# Those of all outputs of a row at once.
_OF_ROWS = ("nlpd", "msll")


def _log_loss(classifier, X, y, weight):
    position = positions(classifier.classes_, y)
    known = classifier.classes_[position] == y
    if not np.all(known):
        raise ValueError(
            f"y holds the label {y[~known][:1].tolist()[0]!r}, which {type(classifier).__name__} was not trained on."
        )
    if hasattr(classifier, "predict_log_proba"):
        log_proba = classifier.predict_log_proba(X)
    else:
        log_proba = np.log(np.maximum(classifier.predict_proba(X), _SMALLEST))
    return -row_average(np.maximum(log_proba[np.arange(len(y)), position], np.log(_SMALLEST)), weight)


def _class_calibration_error(classifier, X, y, weight):
    proba = classifier.predict_proba(X)
    return expected_calibration_error(y, proba, labels=classifier.classes_, sample_weight=weight)


_OF_CLASSIFIERS = {"nlpd": _log_loss, "calibration_error": _class_calibration_error}


class DistributionScorer(BaseEstimator):
    """Minus a metric of the predicted distribution, for ``scoring=``: greater is better.

    It scores what `predictive_distribution` finds: inside a :class:`~sklearn.pipeline.Pipeline`, a search, a
    :class:`~sklearn.compose.TransformedTargetRegressor` (in the units of y before its transformation), and ensembles.

    Parameters
    ----------
    metric : str, default="nlpd"
        "nlpd", negative log predictive density in nats for each row, in the units of y; for a classifier the log loss.
        "msll", the same minus the NLPD of a normal distribution with the moments of the scored y; not for likelihoods
        where some values have a probability instead of a density ("censored", "tweedie").
        "crps", continuous ranked probability score; from draws if the likelihood's quantiles have no closed form.
        "interval_score", the score of the central interval.
        "interval_width", the mean width of this interval; to be read beside its coverage.
        "coverage_error", the absolute difference between the share of y in this interval and ``coverage``.
        "calibration_error", `pit_calibration_error`, or for a classifier `expected_calibration_error`.
    coverage : float, default=0.9
        Probability of the interval.
    n_draws : int, default=1000
        Draws for each row, always the same.

    Notes
    -----
    ``sample_weight``, ``offset``, ``alpha`` and ``trials`` are passed by metadata routing: with
    ``sklearn.set_config(enable_metadata_routing=True)`` after ``scorer.set_score_request(sample_weight=True)`` (on a
    `sklearn.base.clone`: the ready-made scorers are shared).

    Where targets may be missing (``missing_targets="ignore"``), every metric but "msll" is computed for each output on
    the rows that have it, and averaged over the outputs.

    Other regressors with ``predict(X, return_std=True)`` are scored as normal predictions, so baselines can be compared
    by all metrics.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import BayesianRidge
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skgp_natgrad.metrics import DistributionScorer, nlpd_scorer
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> y = X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=100)
    >>> model = make_pipeline(StandardScaler(), BayesianRidge())
    >>> bool(cross_val_score(model, X, y, scoring=nlpd_scorer).mean() > 0.5)
    True
    >>> width_and_coverage = DistributionScorer("interval_score", coverage=0.5)
    >>> bool(width_and_coverage(model.fit(X, y), X, y) > -0.5)
    True
    """

    # Only weights and what is known of rows are metadata.
    __metadata_request__score: ClassVar[dict] = {"estimator": UNUSED}

    def __init__(self, metric: Metric = "nlpd", coverage: float = 0.9, n_draws: int = 1000) -> None:
        self.metric = metric
        self.coverage = coverage
        self.n_draws = n_draws

    def _accept_sample_weight(self) -> bool:
        """scikit-learn asks its scorers for this method, to pass weights in a search with several metrics."""
        return True

    def score(
        self,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        alpha: ArrayLike | None = None,
        trials: ArrayLike | None = None,
    ) -> float:
        """Return the score of a fitted estimator.

        Parameters
        ----------
        estimator : object
        X : array-like of shape (n_samples, n_features)
            Rows as ``estimator`` takes them.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : array-like of shape (n_samples,), default=None
        offset : float or array-like of shape (n_samples[, n_outputs]), default=None
            Added to the latent function, as in `NGDSVGPRegressor.predict`.
        alpha : float or array-like of shape (n_samples[, n_outputs]), default=None
            Known variances of the noise.
        trials : int or array-like of shape (n_samples[, n_outputs]), default=None
            Numbers of trials.

        Returns
        -------
        score : float
            Minus the metric.
        """
        checks.choice("metric", self.metric, tuple(_OF_REGRESSORS))
        probability("coverage", self.coverage)
        if hasattr(estimator, "__sklearn_is_fitted__"):
            # A regressor with a kernel predicts from its prior before it is fitted.
            check_is_fitted(estimator)
        found = predictions_of(estimator, X, offset=offset, alpha=alpha, trials=trials)
        if not isinstance(found, tuple):
            y = found._targets(y, may_lack=found._may_lack)
            found._check_possible(y)
            metric, y = _OF_REGRESSORS[self.metric], found._observed(y)
            if self.metric not in _OF_ROWS and np.isnan(y).any():
                return -_of_seen(metric, found, y, sample_weight, self)
            return -metric(found, y, sample_weight, self)
        if self.metric not in _OF_CLASSIFIERS:
            raise ValueError(
                f"metric={self.metric!r} is for regressors; for {type(found[0]).__name__} use "
                f"{' or '.join(map(repr, _OF_CLASSIFIERS))}."
            )
        return -_OF_CLASSIFIERS[self.metric](*found, column_or_1d(y), sample_weight)

    # scikit-learn calls its scorers.
    __call__ = score


nlpd_scorer = DistributionScorer("nlpd")
msll_scorer = DistributionScorer("msll")
crps_scorer = DistributionScorer("crps")
interval_scorer = DistributionScorer("interval_score")
width_scorer = DistributionScorer("interval_width")
coverage_scorer = DistributionScorer("coverage_error")
calibration_scorer = DistributionScorer("calibration_error")
