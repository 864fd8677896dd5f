"""The predicted distribution of an estimator, also inside scikit-learn's meta-estimators."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import BaggingRegressor, StackingRegressor, VotingRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted, validate_data

from .._backend.types import ArrayLike
from .distribution import PredictiveDistribution
from .mixture import Mixture
from .of_regressor import Normal, OfRegressor
from .transformed import Transformed


def predictive_distribution(
    estimator: Any,
    X: ArrayLike,
    *,
    offset: ArrayLike | None = None,
    alpha: ArrayLike | None = None,
    trials: ArrayLike | None = None,
) -> PredictiveDistribution:
    """Find the predicted distribution of a fitted regressor, also inside scikit-learn's meta-estimators.

    Parameters
    ----------
    estimator : object
        Fitted: an NGDSVGPRegressor, another regressor with ``predict(X, return_std=True)``, which counts as normal, or
        these in any nesting of the following.

        - Pipeline: its earlier steps transform X.
        - GridSearchCV and other searches: ``best_estimator_``.
        - TransformedTargetRegressor: y is the inverse transform of what its regressor predicts. The inverse must be
          monotone on the predictions; the density has its derivative, by central differences.
        - VotingRegressor and BaggingRegressor: the mixture of the members' distributions, with their weights.
        - StackingRegressor: that of its ``final_estimator``, whose X are the predictions of the members.
        - CalibratedRegressorCV: that of its ``estimator``, widened by the errors of left-out rows.
    X : array-like of shape (n_samples, n_features)
        Rows as ``estimator`` takes them.
    offset : float or array-like of shape (n_samples[, n_outputs]), default=None
        Added to the latent function, as in `NGDSVGPRegressor.predict`.
    alpha : float or array-like of shape (n_samples[, n_outputs]), default=None
        Known variances of the noise.
    trials : int or array-like of shape (n_samples[, n_outputs]), default=None
        Numbers of trials.

    Returns
    -------
    distribution : PredictiveDistribution
        With ``mean``, ``std``, ``quantile``, ``interval``, ``cdf``, ``log_density``, ``crps`` and ``sample``.

    Raises
    ------
    TypeError
        If a regressor predicts no distribution, or the estimator is a classifier.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import VotingRegressor
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from sklearn.linear_model import BayesianRidge
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skgp_natgrad import NGDSVGPRegressor, predictive_distribution
    >>> X = np.linspace(0, 10, 100)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=100)
    >>> gp = make_pipeline(StandardScaler(), NGDSVGPRegressor(1.0 * RBF(), n_inducing=12, tol=0.05, random_state=0))
    >>> lower, upper = predictive_distribution(gp.fit(X, y), X).interval(0.9)
    >>> bool(np.mean((lower <= y) & (y <= upper)) > 0.8)
    True
    >>> vote = VotingRegressor([("gp", gp), ("line", BayesianRidge())], weights=[0.9, 0.1]).fit(X, y)
    >>> predictive_distribution(vote, X).quantile([0.1, 0.5, 0.9]).shape
    (100, 3)
    """
    found = predictions_of(estimator, X, offset=offset, alpha=alpha, trials=trials)
    if isinstance(found, tuple):
        raise TypeError(f"{type(found[0]).__name__} is a classifier; its predict_proba is the predicted distribution.")
    return found


def predictions_of(estimator, X, **known):
    """As `predictive_distribution`; of a classifier a tuple of itself and its rows."""
    if is_classifier(unwrapped(estimator)[0]):
        return unwrapped(estimator, X)
    return _found(estimator, X, {name: value for name, value in known.items() if value is not None}, estimator)


def unwrapped(estimator, X=None):
    """The estimator inside pipelines, searches and TransformedTargetRegressor, and the rows as it takes them."""
    while (within := _within(estimator, X)) is not None:
        estimator, X = within
    return estimator, X


def _within(estimator, X):
    """The estimator in a wrapper, and its rows; None if it wraps none, or several."""
    if isinstance(estimator, Pipeline):
        check_is_fitted(estimator)
        X = estimator[:-1].transform(X) if X is not None and len(estimator) > 1 else X
        return estimator.steps[-1][1], X
    if isinstance(estimator, TransformedTargetRegressor):
        check_is_fitted(estimator)
        return estimator.regressor_, X
    return (estimator.best_estimator_, X) if hasattr(estimator, "best_estimator_") else None


def _found(estimator, X, known, outermost):
    """The distribution that a fitted estimator predicts at the rows of ``X``."""
    if isinstance(estimator, VotingRegressor):
        check_is_fitted(estimator)
        given = [1.0] * len(estimator.estimators) if estimator.weights is None else estimator.weights
        weights = [weight for (_, each), weight in zip(estimator.estimators, given, strict=True) if each != "drop"]
        return Mixture([_found(each, X, known, outermost) for each in estimator.estimators_], weights)
    if isinstance(estimator, BaggingRegressor):
        check_is_fitted(estimator)
        X = validate_data(estimator, X, accept_sparse=["csr", "csc"], dtype=None, ensure_all_finite=False, reset=False)
        members = zip(estimator.estimators_, estimator.estimators_features_, strict=True)
        parts = [_found(each, X[:, columns], known, outermost) for each, columns in members]
        return Mixture(parts, np.ones(len(parts)))
    if isinstance(estimator, StackingRegressor):
        check_is_fitted(estimator)
        return _found(estimator.final_estimator_, estimator.transform(X), known, outermost)
    within = _within(estimator, X)
    if within is None:
        return _of_regressor(estimator, X, known, outermost)
    inner = _found(*within, known, outermost)
    if not isinstance(estimator, TransformedTargetRegressor):
        return inner
    if isinstance(inner, Mixture):
        # The transformed mixture is the mixture of its transformed parts, which have closed forms.
        return Mixture([Transformed(part, estimator.transformer_) for part in inner.parts], inner.weights)
    return Transformed(inner, estimator.transformer_)


def _of_regressor(estimator, X, known, outermost):
    """The distribution of an estimator that wraps no other."""
    name = type(estimator).__name__
    if hasattr(estimator, "_predictive_distribution"):
        # CalibratedRegressorCV, which is above.
        return estimator._predictive_distribution(X, **known)
    if hasattr(estimator, "predict_log_density"):
        check_is_fitted(estimator)
        return OfRegressor(estimator, X, known)
    predict = getattr(estimator, "predict", None)
    if predict is None or "return_std" not in inspect.signature(predict).parameters:
        within = "" if estimator is outermost else f" in {type(outermost).__name__}"
        raise TypeError(
            f"{name}{within} predicts no distribution: it has neither predict_log_density nor "
            "predict(X, return_std=True). Score it by a metric of point predictions; a search needs refit=True; of "
            "StackingRegressor the final_estimator must predict one, and of other ensembles every member, as "
            "NGDSVGPRegressor and BayesianRidge do."
        )
    if known:
        raise TypeError(f"{name} takes no {next(iter(known))}; leave it out.")
    mean, std = predict(X, return_std=True)
    if not np.all(std > 0.0):
        raise ValueError(f"{name} predicts a standard deviation of zero, which has no density.")
    return Normal(mean, std)
