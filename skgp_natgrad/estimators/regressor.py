"""The regressor."""

from __future__ import annotations

from typing import Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from .._backend.types import ArrayLike, Floats, PerRow
from .arguments.constructor import documented
from .arguments.task import REGRESSION, RegressorArguments, streaming
from .base import BaseNGDSVGP
from .fitted.from_rows import KeptRows, LeftOutRows
from .fitted.interpretation import BetweenOutputs
from .predictions.moments import TargetMoments
from .rows import numbers


@documented
class NGDSVGPRegressor(
    TargetMoments, LeftOutRows, KeptRows, BetweenOutputs, RegressorMixin, RegressorArguments, BaseNGDSVGP
):
    r"""Gaussian process regression on many rows, by natural gradients.

    A sparse variational Gaussian process [1]_ whose mean may use more points than its covariance [2]_. X is
    standardised internally, and so is y where the likelihood allows it.

    Attributes
    ----------
    error_df_ : float or ndarray of shape (n_outputs,)
        Degrees of freedom of the errors, which are Student-t below 100 rows; infinite if the errors are normal, NaN if
        they are a mixture of normals.
    leave_one_out_ : LeaveOneOut
        Residuals, standard deviations and log densities of the training rows, each predicted from all others.
    X_train_ : ndarray of shape (n_rows, n_features)
        The rows of the last ``fit`` to at most 5000 rows, equal ones once.
    y_train_ : ndarray of shape (n_rows,) or (n_rows, n_outputs)
        Their targets, in the units of y.
    output_covariance_ : ndarray of shape (n_outputs, n_outputs)
        Prior covariance of the outputs at one place, without noise, in the units of y; with ``output_kernel``.
    output_correlation_ : ndarray of shape (n_outputs, n_outputs)
        The same as correlations.
    mean_function_ : callable, list of regressors or None
        The function, or the regressor fitted to each output.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skgp_natgrad import NGDSVGPRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = NGDSVGPRegressor(n_inducing=20, max_iter=300, tol=0.05, random_state=0).fit(X, y)
    >>> mean, std = reg.predict(X[:2], return_std=True)
    >>> mean.shape, std.shape
    ((2,), (2,))
    >>> bool(reg.score(X, y) > 0.4)
    True

    Counts have likelihoods of their own; ``predict`` returns their mean.

    >>> import numpy as np
    >>> X = np.linspace(0, 10, 200)[:, None]
    >>> counts = np.random.default_rng(0).poisson(np.exp(1 + np.sin(X[:, 0])))
    >>> reg = NGDSVGPRegressor(likelihood="poisson", n_inducing=15, tol=0.02, random_state=0)
    >>> mean, std = reg.fit(X, counts).predict(X, return_std=True)
    >>> bool((mean > 0).all()), bool((std > np.sqrt(mean)).all())
    (True, True)
    """

    _task = REGRESSION

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: PerRow = None,
        *,
        alpha: PerRow = None,
        offset: PerRow = None,
        trials: PerRow = None,
    ) -> Self:
        """Fit the Gaussian process.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets. Several outputs share the kernel and the inducing points;
            each has its own latent function and likelihood parameters.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row in the log-likelihood; a weight of two counts the row twice.
        alpha : float or array-like of shape (n_samples[, n_outputs]), default=None
            Known variances of the noise in the squared units of y, added to the variance of ``likelihood="gaussian"``;
            as in scikit-learn's GaussianProcessRegressor. Give those of new rows to the methods that predict y.
        offset : float or array-like of shape (n_samples[, n_outputs]), default=None
            Known values that are added to the latent function: for counts the logarithm of the exposure, for Gaussian
            noise a mean function. Give it to predictions as well.
        trials : int or array-like of shape (n_samples[, n_outputs]), default=None
            Numbers of trials whose successes y counts, with ``likelihood="binomial"``; by default one trial for each
            row. Give it to predictions as well: by default they are for one trial, and the mean is a probability.

        Returns
        -------
        self : NGDSVGPRegressor

        Examples
        --------
        Errors of a known size, and one row that counts twice:

        >>> import numpy as np
        >>> from sklearn.gaussian_process.kernels import RBF
        >>> from skgp_natgrad import NGDSVGPRegressor
        >>> X, y = np.linspace(0, 10, 100)[:, None], np.sin(np.linspace(0, 10, 100))
        >>> reg = NGDSVGPRegressor(1.0 * RBF(), n_inducing=12, tol=0.05, random_state=0)
        >>> bool(reg.fit(X, y, sample_weight=np.r_[2.0, np.ones(99)], alpha=np.full(100, 0.01)).score(X, y) > 0.99)
        True
        """
        return self._learn(X, y, sample_weight, offset=offset, alpha=alpha, trials=trials)

    @streaming
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: PerRow = None,
        *,
        alpha: PerRow = None,
        offset: PerRow = None,
        trials: PerRow = None,
    ) -> Self:
        """Learn from further rows; the rows of earlier calls are not needed again.

        On an unfitted estimator it is the same as `fit` with ``solver="ngd"``. In later calls the earlier rows enter
        through their posterior at its inducing points [1]_. The inducing points are chosen anew from the old points and
        the new rows (if ``inducing_init`` is an array, they stay where they are), and hyperparameters continue to be
        trained. With Gaussian noise, a part that weighs at most a tenth of all before is added in closed form instead,
        unless it has 20 rows or more, and either errors of another size than predicted or, with the parts since the
        last training, a larger weight than all before these. Smaller parts add up: 20 rows are learned again as one
        part. The scale of X stays that of the first call, whose rows should therefore be typical. That of y changes if
        rows are more than twice as large. If 20 rows or more contradict the earlier ones, as after a change of the unit
        or the sign of y, the earlier posterior is discarded, with a warning.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row in the log-likelihood; a weight of two counts the row twice.
        alpha, offset, trials : float or array-like of shape (n_samples[, n_outputs]), default=None
            What is known of the rows, as in `fit`.

        Returns
        -------
        self : NGDSVGPRegressor

        Notes
        -----
        Not available with mean-only points: with ``n_mean_inducing`` above zero,
        ``basis="decoupled"`` or ``mean_solver="exact"``; nor with
        ``objective="predictive"``. Mean-only points that ``n_inducing="auto"`` added are dropped: only the posterior at
        the inducing points is carried on.

        A call that trains does so for up to ``max_iter`` iterations, so that a few large
        batches are better than many of half the size. The likelihood's parameters,
        including the noise, are trained only on the rows of that call.
        ``elbo_`` is then a bound on the log evidence of the new rows given the
        earlier ones. If the first call calibrated the standard deviation (``calibrate``), later calls keep its factor.
        After a `fit` that predicts from neighbors (``n_neighbors``) the new rows become neighbors, and kernel and noise
        are not trained further.

        References
        ----------
        .. [1] T. Bui, C. Nguyen, R. Turner (2017). "Streaming Sparse Gaussian
           Process Approximations." NeurIPS.

        Examples
        --------
        >>> import numpy as np
        >>> from skgp_natgrad import NGDSVGPRegressor
        >>> X = np.linspace(0, 10, 400)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=400)
        >>> reg = NGDSVGPRegressor(n_inducing=20, tol=0.02, random_state=0, normalize_X=False)
        >>> for rows in (slice(0, 200), slice(200, 400)):
        ...     reg = reg.partial_fit(X[rows], y[rows])
        >>> bool(reg.score(X[:200], y[:200]) > 0.95), bool(reg.score(X[200:], y[200:]) > 0.95)
        (True, True)
        """
        return self._learn(X, y, sample_weight, streams=True, offset=offset, alpha=alpha, trials=trials)

    def _rows_of(self, X, y, sample_weight, streams, **known):
        return numbers.checked(self, X, y, sample_weight, known, streams)

    @property
    def error_df_(self) -> float | Floats:
        """Degrees of freedom of Student-t errors; infinite if they are normal, NaN if they are a mixture of normals."""
        check_is_fitted(self, "_posterior")
        found = np.full(len(self._y_scale.scale), np.inf)
        if self._dispersion is not None:
            found = self._dispersion.error_df
        return float(found[0]) if self._single_output else found

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
