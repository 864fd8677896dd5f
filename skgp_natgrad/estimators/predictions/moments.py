"""Predictions of the mean of numbers y, of its deviation, covariance and gradient, and the score of the mean."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, overload

import numpy as np
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from ... import svgp
from ..._backend.notices import Notice
from ..._backend.types import ArrayLike, Floats, NDArray, PerRow
from ..fitted import attributes
from ..rows import cells, mean_function, outputs
from ..rows.encoding import slopes_of_columns
from ..rows.mean_function import with_mean_function
from ..rows.outputs import over_outputs
from . import incomplete
from .by_blocks import by_blocks, with_names
from .distribution import TargetDistribution
from .incomplete import over_donors
from .prior import before_fit
from .with_gradients import with_gradients

Out: TypeAlias = NDArray[Any] | tuple[NDArray[Any], NDArray[Any]] | None


class _Pair(tuple):
    """The mean, and the standard deviation or covariance.

    TransformedTargetRegressor asks for ``ndim`` of what its regressor predicts, to transform it back.
    """

    @property
    def ndim(self):
        raise AttributeError(
            "predict returned a pair, the mean and the standard deviation or covariance, which is no array. "
            "TransformedTargetRegressor cannot transform it back; use skgp_natgrad.predictive_distribution(estimator, "
            "X), whose mean(), std() and interval() are in the units of y."
        )


class TargetMoments(TargetDistribution):
    """The moments of the predicted distribution: of regressors."""

    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: Literal[False] = False,
        return_cov: Literal[False] = False,
        offset: PerRow = None,
        out: Out = None,
        *,
        alpha: PerRow = None,
        trials: PerRow = None,
    ) -> Floats: ...

    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: Literal[True],
        return_cov: Literal[False] = False,
        offset: PerRow = None,
        out: Out = None,
        *,
        alpha: PerRow = None,
        trials: PerRow = None,
    ) -> tuple[Floats, Floats]: ...

    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: bool = False,
        return_cov: bool = False,
        offset: PerRow = None,
        out: Out = None,
        *,
        alpha: PerRow = None,
        trials: PerRow = None,
        return_mean_grad: bool = False,
        return_std_grad: bool = False,
    ) -> Floats | tuple[Floats, ...]: ...

    @with_gradients
    @before_fit
    @by_blocks("offset", "alpha", "trials")
    @over_donors(incomplete.mean_and_deviation)
    @with_mean_function
    @over_outputs(outputs.affine, outputs.linear)
    def predict(
        self,
        X: ArrayLike,
        return_std: bool = False,
        return_cov: bool = False,
        offset: PerRow = None,
        out: Out = None,
        *,
        alpha: PerRow = None,
        trials: PerRow = None,
    ) -> Floats | tuple[Floats, Floats]:
        """Predict the mean of y, and on request its standard deviation or covariance.

        Before `fit`, with a given ``kernel``: those of the prior of one output, with X and y in the model's own units.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        return_std : bool, default=False
            Also return the predictive standard deviation of y, noise included unless ``predict_noise=False``.
        return_cov : bool, default=False
            Also return the joint predictive covariance, of the same.
        offset, alpha, trials : float or array-like of shape (n_samples[, n_outputs]), default=None
            What is known of the rows, as in `fit`.
        out : array of the shape of ``y_mean``, or tuple of two, default=None
            Where to write, such as to a `numpy.memmap`; by default new arrays. Rows of files are predicted by blocks.
        return_mean_grad, return_std_grad : bool, default=False
            Also return the gradients of the mean and of the standard deviation at the one row of X, as scikit-optimize
            asks for; `predict_gradient` returns them for many rows.

        Returns
        -------
        y_mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        y_std : ndarray of the same shape, with ``return_std``
            In the units of y; infinite where the noise has no finite variance.
        y_cov : ndarray of shape (n_samples, n_samples[, n_outputs]), with ``return_cov``
        mean_gradient, std_gradient : ndarray of shape ([n_outputs,] n_features), with these requests

        Raises
        ------
        RuntimeError
            If both are requested.
        MemoryError
            If the covariance does not fit into the available memory.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.gaussian_process.kernels import RBF
        >>> from skgp_natgrad import NGDSVGPRegressor
        >>> X = np.linspace(0, 10, 100)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=100)
        >>> reg = NGDSVGPRegressor(1.0 * RBF(), n_inducing=12, tol=0.05, random_state=0).fit(X, y)
        >>> mean, std = reg.predict(X, return_std=True)
        >>> bool(np.abs(mean - np.sin(X[:, 0])).max() < 0.1), bool(0.05 < std.mean() < 0.2)
        (True, True)
        """
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std or return_cov can be requested.")
        X = self._check_rows(X)
        known = self._known(X, offset, alpha=alpha, trials=trials)
        if return_cov:
            _require_additive_noise(self)
        if not (return_std or return_cov):
            return self._shaped(self._y_scale.backward(self._predict("target_mean", X, **known).T))
        mean, var = _mean_and_variance(self, X, known)
        y_mean = self._shaped(self._y_scale.backward(mean))
        if return_std:
            return _Pair((y_mean, self._shaped(np.sqrt(var) * self._y_scale.scale)))
        return _Pair((y_mean, self._shaped(_covariance(self, X, var))))

    @overload
    def predict_gradient(
        self,
        X: ArrayLike,
        return_std: Literal[False] = False,
        offset: PerRow = None,
        *,
        alpha: PerRow = None,
        trials: PerRow = None,
    ) -> Floats: ...

    @overload
    def predict_gradient(
        self,
        X: ArrayLike,
        return_std: Literal[True],
        offset: PerRow = None,
        *,
        alpha: PerRow = None,
        trials: PerRow = None,
    ) -> tuple[Floats, Floats]: ...

    @by_blocks("offset", "alpha", "trials")
    @over_donors(incomplete.refused("derivatives are those at complete rows"))
    @with_mean_function
    @over_outputs(outputs.slopes, outputs.slopes)
    def predict_gradient(
        self,
        X: ArrayLike,
        return_std: bool = False,
        offset: PerRow = None,
        *,
        alpha: PerRow = None,
        trials: PerRow = None,
    ) -> Floats | tuple[Floats, Floats]:
        """Derivatives of the predictive mean of y in the columns of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        return_std : bool, default=False
            Also return the derivatives of the predictive standard deviation, noise included unless
            ``predict_noise=False``.
        offset : float or array-like of shape (n_samples[, n_outputs]), default=None
            As in `fit`; treated as a constant: if it depends on X, add its derivative yourself.
        alpha, trials : float or array-like of shape (n_samples[, n_outputs]), default=None
            As in `predict`; treated as constants, too.

        Returns
        -------
        mean_gradient : ndarray of shape (n_samples[, n_outputs], n_features)
            In units of y for each unit of the column; zero for a category. At a knot of ``normalize_X="quantile"``,
            which maps X piecewise linearly, it is the derivative on one of its sides.
        std_gradient : ndarray of the same shape, with ``return_std``

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.gaussian_process.kernels import RBF
        >>> from skgp_natgrad import NGDSVGPRegressor
        >>> X = np.linspace(0, 10, 100)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.01 * np.random.default_rng(0).normal(size=100)
        >>> reg = NGDSVGPRegressor(1.0 * RBF(), n_inducing=12, tol=0.05, random_state=0).fit(X, y)
        >>> bool(np.allclose(reg.predict_gradient(X), np.cos(X), atol=0.2))
        True
        """
        rows = self._check_rows(X)
        slope = self._x_scale.slope(self._x_scale.backward(rows)).T
        known = self._known(rows, offset, alpha=alpha, trials=trials)
        found = self._defined(svgp.gradients(attributes.model_of(self), rows, device=self.device, **known), rows)
        if return_std and not self.predict_noise:
            found = np.stack([found[0], _of_latent(self, svgp.gradients, rows, "latent_deviation")[1]])
        mean, std = map(self._by_row, np.moveaxis(found * slope * self._y_scale.scale[:, None, None], -1, -2))
        slopes = mean_function.slopes(self, X)
        slopes = slopes[:, 0] if self._single_output and np.ndim(slopes) else slopes
        gradients = slopes_of_columns(self, mean + slopes, std)
        return tuple(gradients) if return_std else gradients[0]

    @with_names
    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: PerRow = None,
        offset: PerRow = None,
        *,
        alpha: PerRow = None,
        trials: PerRow = None,
    ) -> float:
        """Coefficient of determination of the predicted mean.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
        offset : float or array-like of shape (n_samples[, n_outputs]), default=None
            Added to the latent function, as in `fit`.
        alpha, trials : float or array-like of shape (n_samples[, n_outputs]), default=None
            Known variances of the noise, or numbers of trials, as in `fit`.

        Returns
        -------
        score : float
            R^2, averaged over the outputs; with ``missing_targets="ignore"`` each uses the rows where it is not NaN.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.gaussian_process.kernels import RBF
        >>> from skgp_natgrad import NGDSVGPRegressor
        >>> X = np.linspace(0, 10, 100)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=100)
        >>> reg = NGDSVGPRegressor(1.0 * RBF(), n_inducing=12, tol=0.05, random_state=0).fit(X, y)
        >>> bool(reg.score(X, y) > 0.95)
        True
        """
        check_is_fitted(self, "_posterior")
        mean = self.predict(X, offset=offset, alpha=alpha, trials=trials)
        return _r2(self._possible_targets(y, trials=trials), mean, sample_weight, self.missing_targets == "ignore")


def _require_additive_noise(estimator):
    if not estimator.likelihood_.additive_noise:
        raise ValueError(
            f"return_cov=True: with likelihood {estimator.likelihood_} y is not a latent function plus noise, and "
            "its joint covariance has no closed form; draw samples with sample_y instead."
        )


def _mean_and_variance(estimator, X, known):
    """The mean of y, and its variance or that of the latent functions (N, T), at standardised rows."""
    mean, var = (moment.T for moment in estimator._predict("target_moments", X, **known))
    if not estimator.predict_noise:
        var = _of_latent(estimator, svgp.predict, X, "latent_moments")[1].T
    return mean, var


def _of_latent(estimator, function, X, *arguments):
    """A function of the model at standardised rows, without a factor of the deviations that varies with X.

    Where measurements are noisier this factor widens the latent function as well, although more rows help elsewhere.
    """
    model = attributes.model_of(estimator)
    varies = model.dispersion is not None and np.any(model.dispersion.posterior.alpha)
    found = function(model.undispersed if varies else model, X, *arguments, device=estimator.device)
    return estimator._defined(found, X)


def _covariance(estimator, X, var):
    """The joint covariance of y or of the latent functions (N, N, T) at standardised rows, with variances (N, T)."""
    if estimator.predict_noise:
        covariance = estimator._latent_covariance(X, of_targets=True)
    else:
        covariance = np.moveaxis(_of_latent(estimator, svgp.covariance, X), 0, -1)
    covariance[np.diag_indices(len(X))] = var
    covariance *= estimator._y_scale.scale**2
    return covariance


def _r2(y, mean, sample_weight, may_lack):
    """R^2 of outputs (N,) or (N, T), averaged over them; if they ``may_lack`` each in the rows where it is not NaN."""
    cells.refuse_masked("sample_weight", sample_weight)
    if not may_lack:
        return r2_score(y, mean, sample_weight=sample_weight)
    y, mean = (np.reshape(each, (len(mean), -1)).astype(float) for each in (y, mean))
    weight = np.ones(len(mean)) if sample_weight is None else np.asarray(sample_weight)
    outputs = [(target, found, ~np.isnan(target) & (weight > 0.0)) for target, found in zip(y.T, mean.T, strict=True)]
    # An output that is missing in all these rows is left out: its values are in other parts of the table.
    seen_in = [each for each in outputs if each[2].any()] or outputs
    return float(np.mean([_of_seen(*each, weight) for each in seen_in]))


def _of_seen(target, found, seen, weight):
    if not seen.any():
        Notice("The score is not defined.", "R^2: y is missing in every row.", UndefinedMetricWarning).give()
        return np.nan
    return r2_score(target[seen], found[seen], sample_weight=weight[seen])
