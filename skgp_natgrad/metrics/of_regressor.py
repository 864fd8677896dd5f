"""The distributions that single regressors predict: those of this package, and normal ones of others."""

from __future__ import annotations

import functools

import numpy as np
from scipy import special, stats
from scipy.special import ndtr, ndtri
from sklearn.utils.validation import _num_samples

from .._backend import rows as _rows
from ..estimators.predictions import incomplete
from ..estimators.predictions.at_rows import at_rows
from ..likelihoods import Gaussian
from .distribution import PredictiveDistribution
from .proper_scores import normal_log_density

# Degrees of freedom of a Student-t variable that stands for a normal one.
_NORMAL_DF = 1e7
# The step down from a value that has a probability, as a share of the values.
_NEXT = 1e-10


class Normal(PredictiveDistribution):
    """Normal distributions with these moments, such as those that BayesianRidge predicts."""

    _normal = _closed = True
    _reach = 12.0

    def __init__(self, mean, std):
        self._moments = np.asarray(mean), np.asarray(std)
        self.shape = self._moments[0].shape

    def _quantile(self, levels):
        return self._at_scores(ndtri(levels))

    def _at_scores(self, scores):
        mean, std = self._moments
        return mean[..., None] + std[..., None] * scores

    def _cdf_at(self, y, rows, k):
        mean, std = (each.reshape(len(each), -1)[rows, k] for each in self._moments)
        return ndtr((y - mean) / std)

    def _log_density(self, y):
        return normal_log_density(y, *self._moments).reshape(len(y), -1).sum(1)

    def _draws(self, n_draws, random_state):
        return self._at_scores(random_state.standard_normal((*self.shape, n_draws)))


class StudentT(Normal):
    """Student-t distributions with these moments.

    Parameters
    ----------
    mean, std : ndarray of shape (n_samples,) or (n_samples, n_outputs)
    df : ndarray of shape () or (n_outputs,)
        Degrees of freedom, more than two; infinite for normal distributions.
    """

    def __init__(self, mean, std, df):
        super().__init__(mean, std)
        self._df = np.broadcast_to(df, self.shape)
        self._scale = self._moments[1] * np.sqrt(1.0 - 2.0 / self._df)
        self._normal = bool(np.all(np.isinf(self._df)))

    def _quantile(self, levels):
        return self._moments[0][..., None] + self._scale[..., None] * special.stdtrit(self._df[..., None], levels)

    def _at_scores(self, scores):
        # The lower tail has more digits.
        lower = self._quantile(ndtr(-np.abs(scores)))
        return np.where(scores > 0.0, 2.0 * self._moments[0][..., None] - lower, lower)

    def _cdf_at(self, y, rows, k):
        mean, scale, df = (x.reshape(len(x), -1)[rows, k] for x in (self._moments[0], self._scale, self._df))
        return special.stdtr(df, (y - mean) / scale)

    def _log_density(self, y):
        found = stats.t.logpdf(y, self._df, self._moments[0], self._scale)
        return found.reshape(len(y), -1).sum(1)

    def _draws(self, n_draws, random_state):
        draws = random_state.standard_t(np.minimum(self._df, _NORMAL_DF)[..., None], (*self.shape, n_draws))
        return self._moments[0][..., None] + self._scale[..., None] * draws


class OfRegressor(PredictiveDistribution):
    """What a fitted regressor predicts at the rows of ``X``.

    Parameters
    ----------
    regressor : object
        NGDSVGPRegressor, or another one of one output with its methods of predictions.
    X : array-like
        Rows as the regressor takes them.
    known : dict
        What is known of the rows, by the argument of the regressor's methods.
    """

    def __init__(self, regressor, X, known):
        self._regressor, self._X, self._known = regressor, X, known
        likelihood = getattr(regressor, "likelihood_", Gaussian)
        self._normal = likelihood.name == "gaussian" and bool(np.all(np.isinf(getattr(regressor, "error_df_", np.inf))))
        self._normal = self._normal and not incomplete.are_there(regressor, X)
        self._reach = 12.0 if self._normal else 8.0
        self._discrete = likelihood.discrete
        self._mixed = likelihood if likelihood.mixed else None
        self._may_lack = getattr(regressor, "missing_targets", "error") == "ignore"
        n_rows = len(_rows.rows_of("X", X)) if _rows.is_file_like(X) else _num_samples(X)
        scale = getattr(regressor, "_output_scale", None)
        if scale is None and not getattr(regressor, "_single_output", True):
            scale = regressor._y_scale
        self.shape = (n_rows,) if scale is None else (n_rows, len(scale.scale))

    def _ask(self, method, *arguments):
        return getattr(self._regressor, method)(self._X, *arguments, **self._known)

    @functools.cached_property
    def _moments(self):
        return self._ask("predict", True)

    @functools.cached_property
    def _at_rows(self):
        return at_rows(self._regressor, self._X, **self._known)

    @property
    def _closed(self):
        known = hasattr(self._regressor, "_distribution_at")
        return known and not (self._discrete or self._mixed) and self._at_rows.has_closed_form

    def _quantile(self, levels):
        return self._ask("predict_quantiles", levels)

    def _at_scores(self, scores):
        if not self._normal:
            return super()._at_scores(scores)
        mean, std = self._moments
        return mean[..., None] + std[..., None] * scores

    def _cdf_at(self, y, rows, k):
        return self._at_rows.cdf(y, rows, k)

    def _pit(self, y):
        self._check_possible(y)
        at = self._ask("predict_cdf", y)
        if self._mixed is not None:
            # So small a step does not change the integral of a density. Scored targets may all be equal.
            below = self._observed(y)
            below = below - _NEXT * (np.abs(below) + self._moments[1])
        elif self._discrete:
            below = y - 1.0
        else:
            return at, None
        return at, self._ask("predict_cdf", below)

    def _log_density(self, y):
        return self._ask("predict_log_density", y)

    def _draws(self, n_draws, random_state):
        return self._ask("sample_y", n_draws, random_state, False)

    def _check_possible(self, y):
        if hasattr(self._regressor, "_possible_targets"):
            self._regressor._possible_targets(y, trials=self._known.get("trials"))

    def _observed(self, y):
        return y if self._mixed is None else self._mixed.observed(np.asarray(y).T).T
