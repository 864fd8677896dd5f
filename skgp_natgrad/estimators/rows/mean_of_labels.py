"""The mean function of a classifier: the log probabilities of another, or a function of X, with a learned weight.

The other classifier is fitted to all rows. What it says of the rows of the fit is said out of fold, so that labels that
neither model has seen decide how much each of them counts: see `prediction.calibration`.
"""

from __future__ import annotations

import functools

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from ... import likelihoods
from ..arguments.task import likelihood_of
from . import encoding, inputs, out_of_fold
from .class_labels import positions

# Most iterations of scikit-learn's logistic regression, which stops long before where it converges.
_ITERATIONS = 1000
# What a classifier must have beside fit.
_METHOD = "predict_proba"


def of_fit(estimator, X, y, classes, weight, goes_on):
    """The fitted attributes of the mean function, and its latent values (N, K) at the rows, or None.

    There is none if all labels are rare, either.

    Parameters
    ----------
    estimator : NGDSVGPClassifier
    X : ndarray of shape (N, D), or Rows
    y : ndarray of shape (N,)
        Labels.
    classes : ndarray of shape (C,)
    weight : ndarray of shape (N,)
    goes_on : bool
        Whether this is a later part of a stream, which keeps the mean function of the first.
    """
    out_of_fold.check(estimator, ("auto", "linear"), _METHOD, "classifier")
    given = _named(estimator.mean_function)
    if (estimator.mean_function_ if goes_on else given) is None:
        return {"mean_function_": None}, None
    out_of_fold.check_rows(estimator, X, "fit to fewer rows, or set mean_function=None")
    likelihood = likelihood_of(estimator._task, estimator.likelihood, "bernoulli" if len(classes) == 2 else "softmax")
    if goes_on or not out_of_fold.is_model(given, _METHOD):
        found = estimator.mean_function_ if goes_on else given
        n_rows = estimator._rows_of_mean if goes_on else 0
        at_rows = _latents(found, X, classes, n_rows, likelihood)
    else:
        _check_likelihood(given, likelihood)
        used = weight > 0.0
        fit = _line if isinstance(given, str) else functools.partial(out_of_fold.fitted_copy, given)
        found, n_rows = fit(X[used], y[used], weight[used]), int(used.sum())
        p = np.zeros((len(X), len(classes)))
        p[used] = _out_of_fold(fit, X[used], y[used], classes, weight[used], estimator.random_state)
        if not p.any():
            return {"mean_function_": None}, None
        at_rows = _latents_of(p, n_rows, likelihood)
    return {"mean_function_": found, "_rows_of_mean": n_rows}, at_rows


def at_rows(estimator, X):
    """The keyword ``known`` of `svgp.predict` at rows in the units of X, if there is a mean function."""
    found = getattr(estimator, "mean_function_", None)
    if found is None:
        return {}
    rows, ranks = encoding.further_rows(estimator, X), getattr(estimator, "_class_ranks", None)
    values = _latents(found, rows, estimator.classes_, estimator._rows_of_mean, estimator.likelihood_).T
    return {"known": values if ranks is None else values[np.argsort(ranks)]}


def _named(given):
    """The argument ``mean_function``, with trees in place of "auto"."""
    if not (isinstance(given, str) and given == "auto"):
        return given
    # Early stopping would hold out a part of each class, which classes of one row do not have.
    return HistGradientBoostingClassifier(early_stopping=False, random_state=0)


def _check_likelihood(given, likelihood):
    if not isinstance(likelihood, (likelihoods.Bernoulli, likelihoods.Softmax)):
        raise ValueError(
            f"mean_function={given!r} gives probabilities, which likelihood {type(likelihood).__name__} does not turn "
            "into latent values; use likelihood 'bernoulli' or 'softmax', or a function of X that returns values on "
            "the scale of predict_latent."
        )


def _line(X, y, weight=None):
    """A logistic regression whose penalty does not depend on the units of X."""
    scale = StandardScaler().fit(X)
    found = LogisticRegression(max_iter=_ITERATIONS).fit(scale.transform(X), y, sample_weight=weight)
    found.coef_ = found.coef_ / scale.scale_
    found.intercept_ = found.intercept_ - found.coef_ @ scale.mean_
    return found


def _out_of_fold(fit, X, y, classes, weight, random_state):
    """Probabilities (N, C) of copies; the frequencies of the classes for rows of labels that are too rare for that.

    Zero if all labels are.
    """
    predict = functools.partial(_probabilities, classes=classes)
    p = out_of_fold.predictions(fit, predict, (len(classes),), X, y, weight, y, random_state)
    if np.isnan(p).all():
        return 0.0
    frequencies = np.bincount(positions(classes, y), weights=weight, minlength=len(classes))
    return np.where(np.isnan(p), frequencies / frequencies.sum(), p)


def _probabilities(classifier, X, classes):
    """The probabilities (N, C) of a fitted classifier: zero of a class that it does not know."""
    found = np.zeros((len(X), len(classes)))
    name = f"predict_proba of {type(classifier).__name__}, the mean_function,"
    given = classifier.predict_proba(X)
    found[:, positions(classes, classifier.classes_)] = inputs.known(name, given, len(X), len(classifier.classes_), 0.0)
    return found


def _latents(mean_function, X, classes, n_rows, likelihood):
    """The latent values (N, K) of a fitted classifier, or of a function."""
    if out_of_fold.is_model(mean_function, _METHOD):
        return _latents_of(_probabilities(mean_function, X, classes), n_rows, likelihood)
    n_latent = likelihood.n_latent(1, len(classes))
    return inputs.known("mean_function(X)", mean_function(X), len(X), n_latent)


def _latents_of(p, n_rows, likelihood):
    """Latent values (N, K) that have the probabilities (N, C).

    As if one more row had been seen of all classes together: no probability is zero.
    """
    return likelihood.latent_of((n_rows * p.T + 1.0 / p.shape[1]) / (n_rows + 1.0)).T
