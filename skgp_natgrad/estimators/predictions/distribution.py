"""Predictions of the whole distribution of numbers y."""

from __future__ import annotations

import numpy as np

from ... import svgp
from ..._backend.types import ArrayLike, Floats, PerRow, Seed
from ..arguments import checks
from ..fitted import attributes
from ..rows.mean_function import with_mean_function
from .by_blocks import by_blocks
from .target_rows import TargetRows

# Of a standardised target.
_LARGEST = 1e150
_ALL_NUMBERS = np.finfo(float).min, np.finfo(float).max


class TargetDistribution(TargetRows):
    """Predictions of the distribution of numbers y: of regressors."""

    @by_blocks("y", "offset", "alpha", "trials")
    @with_mean_function
    def predict_log_density(
        self, X: ArrayLike, y: ArrayLike, offset: PerRow = None, *, alpha: PerRow = None, trials: PerRow = None
    ) -> Floats:
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
            log p(y | X) in nats, in the units of y, summed over the outputs; with ``missing_targets="ignore"`` over
            those that are not NaN. For counts, levels and censored targets it is the log of a probability. Minus its
            mean is the negative log predictive density (NLPD).

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.gaussian_process.kernels import RBF
        >>> from skgp_natgrad import NGDSVGPRegressor
        >>> X = np.linspace(0, 10, 100)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=100)
        >>> reg = NGDSVGPRegressor(1.0 * RBF(), n_inducing=12, tol=0.05, random_state=0).fit(X, y)
        >>> bool(-reg.predict_log_density(X, y).mean() < -0.5)
        True
        """
        X = self._check_rows(X)
        y = self._check_targets(X, y, self.missing_targets == "ignore")
        known = self._known(X, offset, alpha=alpha, trials=trials)
        seen = ~np.isnan(y.T)
        self.likelihood_.check_targets(y.T if np.all(seen) else y.T[seen][None])
        with np.errstate(over="ignore"):
            # Beyond the largest number a density that falls like a power would be NaN.
            standardised = np.clip(self._y_scale.forward(y).T, *_ALL_NUMBERS)
        likelihood = attributes.model_of(self).likelihood.given(known["known"])
        likelihood.check_rows(standardised)
        # A probability has no unit.
        has_no_unit = likelihood.has_mass(standardised) | ~seen
        log_scale = np.where(has_no_unit, 0.0, np.log(self._y_scale.scale)[:, None])
        return self._predict("log_density", X, standardised, **known) - log_scale.sum(0)

    @by_blocks("y", "offset", "alpha", "trials")
    @with_mean_function
    def predict_cdf(
        self, X: ArrayLike, y: ArrayLike, offset: PerRow = None, *, alpha: PerRow = None, trials: PerRow = None
    ) -> Floats:
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
        with np.errstate(over="ignore"):
            y = self._y_scale.forward(self._check_targets(X, y)).T
        # Beyond it squares overflow, and every distribution function is zero or one.
        y = np.clip(y, -_LARGEST, _LARGEST)
        known = self._known(X, offset, alpha=alpha, trials=trials)
        likelihood, mean, var, of_rows = self._distribution_at(X, **known)
        return self._by_row(svgp.cumulative(likelihood, mean, var, y, of_rows))

    @by_blocks("offset", "alpha", "trials")
    @with_mean_function
    def predict_quantiles(
        self, X: ArrayLike, q: ArrayLike, offset: PerRow = None, *, alpha: PerRow = None, trials: PerRow = None
    ) -> Floats:
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
            In the units of y; without the last axis for a single ``q``. For counts and levels it is the smallest
            integer with P(Y <= quantile) >= q.

        Raises
        ------
        FloatingPointError
            Where a predicted distribution is too wide for double precision.

        Notes
        -----
        The distribution is that of the likelihood, averaged over the latent posterior, or a Student-t if the standard
        deviation is calibrated (``calibrate``). With Gaussian noise the quantiles have a closed form; other
        distribution functions are integrated and inverted, about a millisecond for each row and quantile (ten with
        ``likelihood="chained_beta"``).

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
        levels = checks.levels("q", q)
        X = self._check_rows(X)
        known = self._known(X, offset, alpha=alpha, trials=trials)
        likelihood, mean, var, of_rows = self._distribution_at(X, **known)
        found = svgp.quantiles(likelihood, mean, var, np.ravel(levels), of_rows)
        found = self._in_units(found)
        return found if np.ndim(levels) else found[..., 0]

    def predict_interval(
        self, X: ArrayLike, coverage: float = 0.9, offset: PerRow = None, *, alpha: PerRow = None, trials: PerRow = None
    ) -> tuple[Floats, Floats]:
        """Central predictive interval of y: both tails have the same probability.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        coverage : float, default=0.9
            Probability that y lies in the interval, strictly between 0 and 1. For counts and levels the ends are
            integers, and the probability is at least this.
        offset : float or array-like of shape (n_samples[, n_outputs]), default=None
            Added to the latent function, as in `fit`.
        alpha : float or array-like of shape (n_samples[, n_outputs]), default=None
            Known variances of the noise, as in `fit`; not the probability outside the interval, which is 1 - coverage.
        trials : int or array-like of shape (n_samples[, n_outputs]), default=None
            Numbers of trials, as in `fit`; one without it.

        Returns
        -------
        lower, upper : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            The quantiles at (1 - coverage) / 2 and (1 + coverage) / 2, in the units of y; both ends belong to the
            interval.

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
        coverage = checks.levels("coverage", coverage, several=False)
        levels = [0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage]
        both = self.predict_quantiles(X, levels, offset, alpha=alpha, trials=trials)
        return both[..., 0], both[..., 1]

    @with_mean_function
    def sample_y(
        self,
        X: ArrayLike,
        n_samples: int = 1,
        random_state: Seed = 0,
        joint: bool = True,
        offset: PerRow = None,
        *,
        alpha: PerRow = None,
        trials: PerRow = None,
    ) -> Floats:
        """Draw targets from the prediction, noise included.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
        n_samples : int, default=1
            Number of draws.
        random_state : int, RandomState instance or None, default=0
        joint : bool, default=True
            Whether each draw is one function at all rows plus independent noise, which needs the covariance between all
            rows. Otherwise rows are drawn independently, with memory proportional to the number of rows.
        offset : float or array-like of shape (n_samples[, n_outputs]), default=None
            Added to the latent function, as in `fit`.
        alpha : float or array-like of shape (n_samples[, n_outputs]), default=None
            Known variances of the noise, as in `fit`.
        trials : int or array-like of shape (n_samples[, n_outputs]), default=None
            Numbers of trials, as in `fit`; one without it.

        Returns
        -------
        y_samples : ndarray of shape (n_samples_X, n_samples) or (n_samples_X, n_outputs, n_samples)

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.gaussian_process.kernels import RBF
        >>> from skgp_natgrad import NGDSVGPRegressor
        >>> X = np.linspace(0, 10, 100)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=100)
        >>> reg = NGDSVGPRegressor(1.0 * RBF(), n_inducing=12, tol=0.05, random_state=0).fit(X, y)
        >>> reg.sample_y(X, n_samples=3).shape
        (100, 3)
        """
        n_samples = checks.integer("n_samples", n_samples, 1)
        X = self._check_rows(X)
        joint, known = checks.boolean("joint", joint), self._known(X, offset, alpha=alpha, trials=trials)
        return self._in_units(self._sample_targets(X, n_samples, random_state, joint, **known))
