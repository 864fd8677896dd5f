"""The predicted distribution of an estimator, also inside pipelines, searches and transformed targets."""

from __future__ import annotations

import inspect

import numpy as np
from scipy.special import ndtr, ndtri
from sklearn.base import is_classifier
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .proper_scores import normal_log_density

# A target transformer is affine if its values deviate from an affine map by no more, relative to their range.
_ROUNDING = 1e-8
_N_CHECKED = 101
# The step down from a value that has a probability, as a share of the values.
_NEXT = 1e-10


class NormalPredictions:
    """A regressor with ``predict(X, return_std=True)``, such as BayesianRidge, with the methods of this package."""

    def __init__(self, estimator):
        self.estimator = estimator

    def _moments(self, X):
        mean, std = self.estimator.predict(X, return_std=True)
        if not np.all(std > 0.0):
            raise ValueError(
                f"{type(self.estimator).__name__} predicts a standard deviation of zero, which has no density."
            )
        return np.asarray(mean), np.asarray(std)

    def predict(self, X, return_std=True):
        """Mean and standard deviation."""
        return self._moments(X)

    def predict_log_density(self, X, y):
        """Log density (N,), summed over the outputs."""
        mean, std = self._moments(X)
        _check_shape(y, mean)
        density = normal_log_density(y, mean, std)
        return density.reshape(len(density), -1).sum(1)

    def predict_cdf(self, X, y):
        """P(Y <= y)."""
        mean, std = self._moments(X)
        _check_shape(y, mean)
        return ndtr((y - mean) / std)

    def sample_y(self, X, n_samples, random_state, joint):
        """Draws of each row by itself."""
        mean, std = (each[..., None] for each in self._moments(X))
        return mean + std * random_state.standard_normal((*mean.shape[:-1], n_samples))

    def predict_interval(self, X, coverage):
        """Ends of the central interval."""
        mean, std = self._moments(X)
        reach = ndtri(0.5 + 0.5 * coverage) * std
        return mean - reach, mean + reach


def _check_shape(y, mean):
    if np.shape(y) != np.shape(mean):
        raise ValueError(
            f"y has the shape {np.shape(y)}, but the predicted mean has {np.shape(mean)}; make them equal."
        )


class RegressionPredictions:
    """Predicted distributions at the rows ``X``, in the units of the y that scorers see.

    Parameters
    ----------
    regressor : object
        With ``predict_log_density`` and so on.
    X : array-like
        Rows as the regressor sees them.
    transformers : list
        Fitted transformers of the targets, the outermost first.
    **known : array-like
        What is known of the rows, by the argument of the regressor's methods; None is left out.
    """

    def __init__(self, regressor, X, transformers, **known):
        self.regressor, self.X, self.transformers = regressor, X, transformers
        self.known = {name: value for name, value in known.items() if value is not None}
        if self.known and isinstance(regressor, NormalPredictions):
            name = type(regressor.estimator).__name__
            raise TypeError(f"{name} takes no {next(iter(self.known))}; leave it out of the scorer's arguments.")
        self.may_lack = getattr(regressor, "missing_targets", "error") == "ignore"
        likelihood = getattr(regressor, "likelihood_", None)
        is_gaussian = likelihood is None or likelihood.name == "gaussian"
        self.is_normal = is_gaussian and bool(np.all(np.isinf(getattr(regressor, "error_df_", np.inf))))
        self.is_discrete = likelihood is not None and likelihood.discrete
        # With values that have a probability beside others that have a density.
        self.mixed = likelihood if likelihood is not None and likelihood.mixed else None

    def _forward(self, y):
        """Targets as the regressor sees them."""
        for transformer in self.transformers:
            y = np.asarray(transformer.transform(y.reshape(len(y), -1)))
            y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        return y

    def _backward(self, z):
        """Targets of the regressor, as the scorer sees them."""
        for transformer in reversed(self.transformers):
            z = np.asarray(transformer.inverse_transform(z.reshape(len(z), -1)))
        return z.reshape(len(z), -1)

    def check_possible(self, y):
        """ValueError where what is known of a row excludes its target, such as more successes than trials."""
        if hasattr(self.regressor, "_possible_targets"):
            self.regressor._possible_targets(self._forward(y), trials=self.known.get("trials"))

    def observed(self, y):
        """Targets as they would be without rounding: a limit of censored ones may have no single precision number."""
        if self.mixed is None:
            return y
        found = self.mixed.observed(np.asarray(self._forward(y), float).T).T
        return self._backward(found).reshape(np.shape(y)) if self.transformers else found

    def log_density(self, y):
        """log p(y) (N,), summed over the outputs."""
        found = self.regressor.predict_log_density(self.X, self._forward(y), **self.known)
        if not self.transformers:
            return found
        slopes = _slopes(self._forward, y)
        if slopes is None:
            raise ValueError(
                f"The density of transformed targets needs an affine transformer, and {self.transformers[0]!r} is "
                "none; score by crps_scorer or interval_scorer, use StandardScaler, or give the estimator a "
                "likelihood for such targets in place of TransformedTargetRegressor."
            )
        return found + np.linalg.slogdet(slopes)[1]

    def moments(self):
        """Mean and standard deviation (N, T)."""
        mean, std = (np.asarray(each) for each in self.regressor.predict(self.X, return_std=True, **self.known))
        mean, std = mean.reshape(len(mean), -1), std.reshape(len(std), -1)
        if not self.transformers:
            return mean, std
        # Affine maps of one column have the same slope everywhere.
        return self._backward(mean), np.abs(self._backward(mean + std) - self._backward(mean - std)) / 2.0

    def interval(self, coverage):
        """Lower and upper ends (N, T)."""
        ends = self.regressor.predict_interval(self.X, coverage, **self.known)
        self._check_single("Intervals", ends[0])
        ends = [self._backward(np.asarray(end)) for end in ends]
        # A decreasing transformer swaps them.
        return np.minimum(*ends), np.maximum(*ends)

    def of_output(self, k, rows):
        """The predictions of one output at some rows."""
        return _Output(self, k, rows)

    def cdf(self, y):
        """P(Y <= y), and P(Y < y) if some y have a probability or None."""
        at, below = self._cdf(y)
        if not self._decreases(y):
            return at, below
        # What is smaller is larger to the regressor.
        return (1.0 - at, None) if below is None else (1.0 - below, 1.0 - at)

    def _decreases(self, y):
        """Whether the transformer of a single output turns the order of the targets around."""
        if not self.transformers:
            return False
        low, high = np.min(y), np.max(y)
        ends = self._forward(np.array([low, high if high > low else low + max(abs(low), 1.0)]))
        return bool(ends[0] > ends[1])

    def _cdf(self, y):
        """As `cdf`, of the targets as the regressor sees them."""
        z = self._forward(y)
        self._check_single("Distribution functions", z)
        self.check_possible(y)
        at = self.regressor.predict_cdf(self.X, z, **self.known)
        if self.mixed is not None:
            z = self.mixed.observed(np.asarray(z, float).T).T
            # So small a step does not change the integral of a density. Scored targets may all be equal.
            std = np.reshape(self.regressor.predict(self.X, return_std=True, **self.known)[1], z.shape)
            step = _NEXT * (np.abs(z) + std)
        elif self.is_discrete:
            step = 1.0
        else:
            return at, None
        return at, self.regressor.predict_cdf(self.X, z - step, **self.known)

    def draws(self, n_draws):
        """Draws of each row by itself (N, T, n_draws)."""
        draws = self.regressor.sample_y(self.X, n_draws, check_random_state(0), joint=False, **self.known)
        draws = np.moveaxis(draws.reshape(len(draws), -1, n_draws), -1, 0)
        if self.transformers:
            draws = np.stack([self._backward(draw) for draw in draws])
        return np.moveaxis(draws, 0, -1)

    def moments_are_exact(self):
        """Whether the prediction is normal: that of y as it is, or of one column under an affine transformer."""
        if not (self.is_normal and self.transformers):
            return self.is_normal
        y = self._backward(np.asarray(self.regressor.predict(self.X, return_std=True, **self.known)[0]))
        return y.shape[1] == 1 and _slopes(self._forward, y) is not None

    def _check_single(self, what, z):
        """Refuse to transform several outputs, which a transformer may mix."""
        n_outputs = np.size(z) // max(len(z), 1)
        if self.transformers and n_outputs > 1:
            raise ValueError(
                f"{what} of {n_outputs} outputs are not defined through the transformer {self.transformers[0]!r}, "
                "which may mix them; score each output by itself, or all by nlpd_scorer."
            )


class _Output:
    """As `RegressionPredictions`, of one output at some rows."""

    def __init__(self, found, k, rows):
        self.found, self.k, self.rows = found, k, rows
        self.moments_are_exact = found.moments_are_exact

    def _part(self, values):
        values = np.asarray(values)
        return np.reshape(values, (len(values), -1))[self.rows, self.k]

    def moments(self):
        """Mean and standard deviation (B,)."""
        return tuple(map(self._part, self.found.moments()))

    def interval(self, coverage):
        """Lower and upper ends (B,)."""
        return tuple(map(self._part, self.found.interval(coverage)))

    def draws(self, n_draws):
        """Draws of each row by itself (B, n_draws)."""
        return self.found.draws(n_draws)[self.rows, self.k]

    def cdf(self, y):
        """P(Y <= y), and P(Y < y) or None."""
        whole = self.found.moments()[0].copy()
        whole[self.rows, self.k] = y
        found = self.found.cdf(whole[:, 0] if whole.shape[1] == 1 else whole)
        return tuple(None if each is None else self._part(each) for each in found)


def _slopes(forward, y):
    """The matrix (T, T) of derivatives of a map of targets; None if it is not affine on their range."""
    y = y.reshape(len(y), -1)
    low, high = y.min(0), y.max(0)
    reach = np.where(high > low, high - low, np.maximum(np.abs(low), 1.0))
    corners = low + np.vstack([np.zeros_like(low), np.diag(reach)])
    origin, *others = forward(corners).reshape(len(corners), -1)
    slopes = (np.array(others) - origin) / reach[:, None]
    checked = np.vstack([y, low + np.linspace(0.0, 1.0, _N_CHECKED)[:, None] * reach])
    found = forward(checked).reshape(len(checked), -1)
    error = np.abs(found - origin - (checked - low) @ slopes).max()
    return slopes if error <= _ROUNDING * np.abs(found - origin).max() else None


def predictions_of(estimator, X, **known):
    """The predicted distributions of an estimator at the rows of ``X``.

    Parameters
    ----------
    estimator : object
        Fitted; it may be a Pipeline, a search (its ``best_estimator_``) or a TransformedTargetRegressor around
        others, nested in any way.
    X : array-like
        Rows as ``estimator`` takes them.
    **known : array-like
        What is known of the rows: see `RegressionPredictions`.

    Returns
    -------
    predictions : RegressionPredictions, or tuple of a classifier and its rows
    """
    found, X, transformers = unwrapped(estimator, X)
    if is_classifier(found):
        return found, X
    return RegressionPredictions(_with_density(found, estimator), X, transformers, **known)


def unwrapped(estimator, X=None):
    """The estimator inside pipelines, searches and TransformedTargetRegressor.

    Returns
    -------
    estimator : object
    X : array-like or None
        The rows as it takes them.
    transformers : list
        Of the targets, the outermost first.
    """
    transformers = []
    while True:
        if isinstance(estimator, Pipeline):
            check_is_fitted(estimator)
            X = estimator[:-1].transform(X) if X is not None and len(estimator) > 1 else X
            estimator = estimator.steps[-1][1]
        elif isinstance(estimator, TransformedTargetRegressor):
            check_is_fitted(estimator)
            transformers.append(estimator.transformer_)
            estimator = estimator.regressor_
        elif hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        else:
            return estimator, X, transformers


def _with_density(estimator, outermost):
    """The estimator under the methods of this package's regressors."""
    if hasattr(estimator, "predict_log_density"):
        return estimator
    predict = getattr(estimator, "predict", None)
    if predict is not None and "return_std" in inspect.signature(predict).parameters:
        return NormalPredictions(estimator)
    within = "" if estimator is outermost else f" in {type(outermost).__name__}"
    raise TypeError(
        f"{type(estimator).__name__}{within} predicts no distribution: it has neither predict_log_density nor "
        "predict(X, return_std=True). Score it by a metric of point predictions; a search needs refit=True."
    )
