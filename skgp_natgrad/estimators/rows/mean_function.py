"""The mean function of a regressor: known, or fitted to y before the Gaussian process, which learns the residuals.

It is added to the offset of the latent functions, so no other module needs to know of it. A fitted one leaves its
errors at rows that it has not seen, which are like those of new rows.
"""

from __future__ import annotations

import functools
from inspect import signature

import numpy as np
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

from ..._backend.notices import Notice
from ..._backend.rows import Mapped
from ..arguments.task import likelihood_of
from . import encoding, inputs, linear_mean, out_of_fold

# Of the central difference: the step at which rounding and curvature are alike, relative to the values.
_STEP = np.finfo(float).eps ** (1.0 / 3.0)


def of_fit(estimator, X, y, weight, offset, goes_on):
    """The function, or the regressors fitted to what the offset leaves of y; a stream keeps those that it has.

    And the offset with the mean function at the rows, each predicted from others where it is fitted. ``_of_mean`` says
    how well.
    """
    given = estimator.mean_function
    out_of_fold.check(estimator, ("linear",), "predict", "regressor")
    if not goes_on:
        estimator._of_mean = ()
    if goes_on or not out_of_fold.is_model(given, "predict"):
        found = estimator.mean_function_ if goes_on else given
        return found, plus_mean(found, X, offset, y.shape[1])
    likelihood = likelihood_of(estimator._task, estimator.likelihood, "gaussian")
    if not likelihood.standardises:
        raise ValueError(
            f"mean_function={given!r} would be fitted to y, but with likelihood {type(likelihood).__name__} a mean "
            "function is added to the latent function, which has another scale (that of predict_latent); give a "
            "function of X on that scale, or add DotProduct() to the kernel for a trained linear trend."
        )
    remedy = "fit it beforehand to some of the rows, and give a function of X that predicts with it"
    out_of_fold.check_rows(estimator, X, remedy)
    y = y if offset is None else y - offset
    fitted, at_rows = zip(*(_of_target(given, X, each, weight, estimator.random_state) for each in y.T), strict=True)
    at_rows = np.column_stack(at_rows)
    estimator._of_mean = _score_of(given, fitted, y, at_rows, weight)
    return list(fitted), at_rows if offset is None else offset + at_rows


def _score_of(given, fitted, y, at_rows, weight):
    """A line for `summary`, of the targets that vary and to which a regressor was fitted."""
    scores = []
    for regressor, of_target, at in zip(fitted, y.T, at_rows.T, strict=True):
        used = np.isfinite(of_target) & (weight > 0.0)
        if np.ptp(of_target[used]) > 0.0 and (isinstance(given, DummyRegressor) or not _is_zero(regressor)):
            scores.append(r2_score(of_target[used], at[used], sample_weight=weight[used]))
    name = type(LinearRegression() if isinstance(given, str) else given).__name__
    said = f"the mean function {name} has an R2 of {', '.join(f'{each:.2f}' for each in scores)}"
    return (f"{said} at rows that it has not seen",) * bool(scores)


def _is_zero(regressor):
    """Whether there were too few rows to fit one."""
    return isinstance(regressor, DummyRegressor)


def _of_target(given, X, y, weight, random_state):
    """A regressor fitted to one target where it was observed, and the mean function (N,) at the rows.

    With so few rows that none can be left out it is zero: no error at new rows is known.
    """
    used = np.isfinite(y) & (weight > 0.0)
    inputs.refuse_unseen(np.array([used.any()]))
    rows = X[used], y[used], weight[used]
    if not out_of_fold.are_enough(rows[0]):
        return DummyRegressor(strategy="constant", constant=0.0).fit(*rows[:2]), np.zeros(len(X))
    fit = functools.partial(out_of_fold.fitted_copy, LinearRegression() if isinstance(given, str) else given)
    fitted = fit(*rows)
    found = _predicted(fitted, X)
    found[used] = (
        linear_mean.left_out(*rows)
        if isinstance(given, str)
        else out_of_fold.predictions(fit, _predicted, (), *rows, np.zeros(len(rows[0])), random_state)
    )
    return fitted, found


def told(estimator):
    """A warning, if any, that there were too few rows for a regressor or classifier which was to be fitted."""
    given, found = estimator.mean_function, getattr(estimator, "mean_function_", None)
    fitted = found if isinstance(found, list) else [found]
    lacks = any(each is None or _is_zero(each) for each in fitted)
    if not (out_of_fold.is_model(given, "predict") and lacks) or isinstance(given, DummyRegressor):
        return []
    details = (
        f"mean_function={given!r} was not fitted, and is zero: that needs {out_of_fold.FOLDS} rows of "
        "different X (with several outputs of each, with labels of one label), so that errors at rows which it has not "
        "seen are known. Give more rows, a function of X, or mean_function=None."
    )
    return [Notice("There are too few rows to fit the mean function.", details)]


def _predicted(regressor, X):
    return np.ravel(regressor.predict(X))


def values(mean_function, X, n_targets):
    """The mean function (N, T) at rows in the units of X."""
    if isinstance(mean_function, list):
        return np.column_stack([regressor.predict(X) for regressor in mean_function])
    return inputs.known("mean_function(X)", mean_function(X), len(X), n_targets)


def plus_mean(mean_function, X, offset, n_targets):
    """An offset (N, T) or None, plus the mean function at the rows; both may be `Rows`."""
    if mean_function is None:
        return offset

    def together(X, *offset):
        return sum(offset, values(mean_function, X, n_targets))

    parts = (X,) if offset is None else (X, offset)
    return together(*parts) if isinstance(X, np.ndarray) else Mapped(together, *parts, shape=(len(X), n_targets))


def with_mean_function(method):
    """Decorate a method of predictions with an argument ``offset``: the mean function is added to it."""

    @functools.wraps(method)
    def called(self, X, *arguments, **options):
        if getattr(self, "mean_function_", None) is None:
            return method(self, X, *arguments, **options)
        given = signature(method).bind(self, X, *arguments, **options)
        given.apply_defaults()
        rows, n_targets = encoding.further_rows(self, X), len(self._y_scale.scale)
        offset = inputs.known("offset", given.arguments["offset"], len(rows), n_targets)
        given.arguments["offset"] = plus_mean(self.mean_function_, rows, offset, n_targets)
        return method(*given.args, **given.kwargs)

    return called


def slopes(estimator, X):
    """Derivatives (N, T, D) of the mean function in the columns of X, by central differences; zero without one."""
    mean_function, n_targets = getattr(estimator, "mean_function_", None), len(estimator._y_scale.scale)
    if mean_function is None:
        return 0.0
    if not estimator.likelihood_.standardises or estimator.likelihood_.mean_needs_variance:
        raise ValueError(
            "predict_gradient is not available with mean_function and likelihood "
            f"{type(estimator.likelihood_).__name__}, whose mean is not the latent function."
        )
    X = encoding.further_rows(estimator, X)
    found = []
    steps = _STEP * np.maximum(np.abs(X), 1.0 / estimator._x_scale.slope(X))
    for step in np.eye(X.shape[1])[:, None, :] * steps:
        after, before = X + step, X - step
        # What was added to the column, after rounding.
        width = (after - before).max(1, keepdims=True)
        rise = values(mean_function, after, n_targets) - values(mean_function, before, n_targets)
        found.append(rise / np.where(width > 0.0, width, 1.0))
    return np.stack(found, axis=-1)
