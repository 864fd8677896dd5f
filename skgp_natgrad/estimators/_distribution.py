"""Predictions of a whole distribution: the methods besides `predict`."""

from __future__ import annotations

import numpy as np

from .. import svgp
from .._backend import memory
from . import _checks, _fitted
from ._by_blocks import by_blocks
from ._target_rows import TargetRows


class LatentDistribution:
    """Predictions of the latent functions, of every estimator."""

    @by_blocks()
    def predict_latent(self, X, return_std=False, return_cov=False):
        """Predict the latent functions, without noise.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        return_std : bool, default=False
            Also return the posterior standard deviation.
        return_cov : bool, default=False
            Also return the joint posterior covariance.

        Returns
        -------
        f_mean : ndarray of shape (n_samples,) or (n_samples, n_latent)
            The second shape with several latent functions: one for each output or class, or two for each output
            (f_1, ..., f_T, g_1, ..., g_T). In the units of y where y is a latent function plus noise (and g is the
            logarithm of the noise variance); otherwise on the scale of the likelihood's link, as the logarithm of
            the mean of counts.
        f_std : ndarray of the same shape, with ``return_std``
        f_cov : ndarray of shape (n_samples, n_samples[, n_latent]), with ``return_cov``

        Raises
        ------
        RuntimeError
            If both are requested.
        MemoryError
            If the covariance does not fit into the available memory.
        """
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std and return_cov can be requested.")
        X = self._check_rows(X)
        offset, scale = self.likelihood_.latent_units(self._y_scale.offset, self._y_scale.scale)
        single = len(self._posterior.alpha) == 1 and getattr(self, "_single_output", True)

        def shaped(values):
            return values[..., 0] if single else values

        if not (return_std or return_cov):
            return shaped(self._predict("latent_mean", X).T * scale + offset)
        mean, var = self._predict("latent_moments", X)
        mean = shaped(mean.T * scale + offset)
        if return_std:
            return mean, shaped(np.sqrt(var).T * scale)
        return mean, shaped(self._latent_covariance(X) * np.square(scale))

    def _latent_covariance(self, X):
        """The joint posterior covariance at standardised rows: (N, N, K)."""
        n_bytes = 8 * len(self._posterior.alpha) * len(X) ** 2
        remedy = "predict fewer rows at a time, or take return_std=True"
        memory.require(n_bytes, f"return_cov=True at {len(X)} rows", remedy)
        return np.moveaxis(svgp.covariance(_fitted.model_of(self), X, self.device), 0, -1)


class ClassDistribution(LatentDistribution):
    """Predictions of the distribution of labels: of classifiers."""

    @by_blocks()
    def predict_proba(self, X, out=None):
        """Predict the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        out : array of shape (n_samples, n_classes), default=None
            Where to write the probabilities, such as a `numpy.memmap`; by default a new array. Rows of an X in a file
            are read, predicted and written by blocks.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``; rows sum to one.
        """
        return self._predict("class_probabilities", self._check_rows(X)).T

    @by_blocks()
    def predict_log_proba(self, X):
        """Predict the logarithm of the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        log_proba : ndarray of shape (n_samples, n_classes)
        """
        return self._predict("log_class_probabilities", self._check_rows(X)).T

    def decision_function(self, X):
        """Log odds of two classes, or the logarithm of the probability of each of several.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        decision : ndarray of shape (n_samples,) or (n_samples, n_classes)
            With two classes log p(classes_[1]) - log p(classes_[0]), positive where `predict` returns the second. With
            more, its largest column is that of the class that `predict` returns. See `predict_latent` for the latent
            functions.
        """
        log_proba = self.predict_log_proba(X)
        return log_proba[:, 1] - log_proba[:, 0] if len(self.classes_) == 2 else log_proba

    def sample_y(self, X, n_samples=1, random_state=0, joint=True):
        """Draw labels from the prediction.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
        n_samples : int, default=1
            Number of draws.
        random_state : int, RandomState instance or None, default=0
        joint : bool, default=True
            Whether all rows of a draw belong to one set of functions, which needs the covariance between all rows.
            Otherwise every row is drawn by itself.

        Returns
        -------
        y_samples : ndarray of shape (n_samples_X, n_samples)
        """
        n_samples = _checks.integer("n_samples", n_samples, 1)
        X = self._check_rows(X)
        positions = self._sample_targets(X, n_samples, random_state, _checks.boolean("joint", joint))[0]
        return self.classes_[positions]


class TargetDistribution(TargetRows, LatentDistribution):
    """Predictions of the distribution of numbers y: of regressors."""

    @by_blocks("y", "offset", "alpha", "trials")
    def predict_log_density(self, X, y, offset=None, *, alpha=None, trials=None):
        """Log density of each row's target under the prediction.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        offset : float or array-like of shape (n_samples[, n_outputs]), default=None
            Added to the latent function, as in `fit`.
        alpha : float or array-like of shape (n_samples[, n_outputs]), default=None
            Known variances of the noise, as in `fit`.
        trials : int or array-like of shape (n_samples[, n_outputs]), default=None
            Numbers of trials, as in `fit`; one without it.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            log p(y | X) in nats, in the units of y, summed over the outputs.
            Of counts, levels and censored y log p(y | X) is that of a probability. Minus its mean is the negative
            log predictive density (NLPD).
        """
        X = self._check_rows(X)
        y = self._check_targets(X, y)
        known = self._known(X, offset, alpha=alpha, trials=trials)
        self.likelihood_.check_targets(y.T)
        standardised = self._y_scale.forward(y).T
        likelihood = _fitted.model_of(self).likelihood.given(known["known"])
        likelihood.check_rows(standardised)
        # A probability has no unit.
        log_scale = np.where(likelihood.has_mass(standardised), 0.0, np.log(self._y_scale.scale)[:, None])
        return self._predict("log_density", X, standardised, **known) - log_scale.sum(0)

    @by_blocks("y", "offset", "alpha", "trials")
    def predict_cdf(self, X, y, offset=None, *, alpha=None, trials=None):
        """Probability that each row's target is at most y: the probability integral transform.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        offset : float or array-like of shape (n_samples[, n_outputs]), default=None
            Added to the latent function, as in `fit`.
        alpha : float or array-like of shape (n_samples[, n_outputs]), default=None
            Known variances of the noise, as in `fit`.
        trials : int or array-like of shape (n_samples[, n_outputs]), default=None
            Numbers of trials, as in `fit`; one without it.

        Returns
        -------
        probability : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            P(Y <= y | X). Uniform on [0, 1] for continuous targets if the predicted distributions are right.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.gaussian_process.kernels import RBF
        >>> from skgp_natgrad import NGDSVGPRegressor
        >>> X = np.linspace(0, 10, 100)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=100)
        >>> reg = NGDSVGPRegressor(1.0 * RBF(), n_inducing=12, tol=0.05, random_state=0).fit(X, y)
        >>> reg.predict_cdf(X[:2], reg.predict(X[:2])).round(6)
        array([0.5, 0.5])
        """
        X = self._check_rows(X)
        y = self._y_scale.forward(self._check_targets(X, y)).T
        known = self._known(X, offset, alpha=alpha, trials=trials)
        return self._by_row(svgp.cumulative(*self._distribution_at(X, **known), y, known["known"]))

    @by_blocks("offset", "alpha", "trials")
    def predict_quantiles(self, X, q, offset=None, *, alpha=None, trials=None):
        """Quantiles of y under the prediction, noise included.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        q : float or array-like of shape (n_quantiles,)
            Probabilities of the quantiles, strictly between 0 and 1.
        offset : float or array-like of shape (n_samples[, n_outputs]), default=None
            Added to the latent function, as in `fit`.
        alpha : float or array-like of shape (n_samples[, n_outputs]), default=None
            Known variances of the noise, as in `fit`.
        trials : int or array-like of shape (n_samples[, n_outputs]), default=None
            Numbers of trials, as in `fit`; one without it.

        Returns
        -------
        quantiles : ndarray of shape (n_samples[, n_outputs][, n_quantiles])
            In the units of y; without the last axis for a single ``q``. Of counts and levels the smallest integer
            with P(Y <= quantile) >= q.

        Raises
        ------
        FloatingPointError
            Where a predicted distribution is too wide for double precision.

        Notes
        -----
        The distribution is that of the likelihood, averaged over the latent posterior. With Gaussian noise the
        quantiles have a closed form; other distribution functions are integrated and inverted, about a millisecond for
        each row and quantile (ten with ``likelihood="chained_beta"``).

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.gaussian_process.kernels import RBF
        >>> from skgp_natgrad import NGDSVGPRegressor
        >>> X = np.linspace(0, 10, 100)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=100)
        >>> reg = NGDSVGPRegressor(1.0 * RBF(), n_inducing=12, tol=0.05, random_state=0).fit(X, y)
        >>> reg.predict_quantiles(X, [0.1, 0.5, 0.9]).shape
        (100, 3)
        >>> bool(np.allclose(reg.predict_quantiles(X, 0.5), reg.predict(X)))
        True
        """
        levels = _checks.levels("q", q)
        X = self._check_rows(X)
        known = self._known(X, offset, alpha=alpha, trials=trials)
        found = svgp.quantiles(*self._distribution_at(X, **known), np.ravel(levels), known["known"])
        found = self._in_units(found)
        return found if np.ndim(levels) else found[..., 0]

    def predict_interval(self, X, coverage=0.9, offset=None, *, alpha=None, trials=None):
        """Predictive interval of y, with equal probability on both sides of it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        coverage : float, default=0.9
            Probability that y lies in the interval, strictly between 0 and 1. Of counts and levels it is at least
            that, as the ends are integers.
        offset : float or array-like of shape (n_samples[, n_outputs]), default=None
            Added to the latent function, as in `fit`.
        alpha : float or array-like of shape (n_samples[, n_outputs]), default=None
            Known variances of the noise, as in `fit`.
        trials : int or array-like of shape (n_samples[, n_outputs]), default=None
            Numbers of trials, as in `fit`; one without it.

        Returns
        -------
        lower, upper : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            The quantiles at (1 - coverage) / 2 and (1 + coverage) / 2, in the units of y; they belong to the interval.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.gaussian_process.kernels import RBF
        >>> from skgp_natgrad import NGDSVGPRegressor
        >>> X = np.linspace(0, 10, 100)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=100)
        >>> reg = NGDSVGPRegressor(1.0 * RBF(), n_inducing=12, tol=0.05, random_state=0).fit(X, y)
        >>> lower, upper = reg.predict_interval(X, coverage=0.95)
        >>> bool(np.mean((lower <= y) & (y <= upper)) > 0.85)
        True
        """
        coverage = _checks.levels("coverage", coverage, several=False)
        levels = [0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage]
        both = self.predict_quantiles(X, levels, offset, alpha=alpha, trials=trials)
        return both[..., 0], both[..., 1]

    def predict_gradient(self, X, return_std=False):
        """Derivatives of the predictive mean of y in the columns of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        return_std : bool, default=False
            Also return the derivatives of the predictive standard deviation, noise included.

        Returns
        -------
        mean_gradient : ndarray of shape (n_samples[, n_outputs], n_features)
            In units of y for each unit of the column. With ``normalize_X="quantile"`` X is mapped piecewise
            linearly, and the derivative at a knot is that of one side.
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
        found = self._defined(svgp.gradients(_fitted.model_of(self), rows, device=self.device))
        found = np.moveaxis(found * slope * self._y_scale.scale[:, None, None], -1, -2)
        mean, std = (self._by_row(each) for each in found)
        return (mean, std) if return_std else mean

    def sample_y(self, X, n_samples=1, random_state=0, joint=True, offset=None, *, alpha=None, trials=None):
        """Draw targets from the prediction, noise included.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
        n_samples : int, default=1
            Number of draws.
        random_state : int, RandomState instance or None, default=0
        joint : bool, default=True
            Whether all rows of a draw belong to one function, which needs the covariance between all rows. Otherwise
            every row is drawn by itself, in memory that is proportional to their number.
        offset : float or array-like of shape (n_samples[, n_outputs]), default=None
            Added to the latent function, as in `fit`.
        alpha : float or array-like of shape (n_samples[, n_outputs]), default=None
            Known variances of the noise, as in `fit`.
        trials : int or array-like of shape (n_samples[, n_outputs]), default=None
            Numbers of trials, as in `fit`; one without it.

        Returns
        -------
        y_samples : ndarray of shape (n_samples_X, n_samples) or (n_samples_X, n_outputs, n_samples)
        """
        n_samples = _checks.integer("n_samples", n_samples, 1)
        X = self._check_rows(X)
        joint, known = _checks.boolean("joint", joint), self._known(X, offset, alpha=alpha, trials=trials)
        return self._in_units(self._sample_targets(X, n_samples, random_state, joint, **known))
