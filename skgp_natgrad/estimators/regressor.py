"""The regressor."""

from __future__ import annotations

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_consistent_length
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data

from . import _inputs, _long, _mean_function
from ._base import BaseNGDSVGP
from ._documentation import documented
from ._moments import TargetMoments
from ._streams import can_stream
from ._targets import REGRESSION, Targets

# Names in the constructor's scope that are not arguments shared with the classifier.
_NOT_SHARED = ("self", "__class__", "mean_function", "missing_targets")


@documented
class NGDSVGPRegressor(TargetMoments, RegressorMixin, BaseNGDSVGP):
    r"""Gaussian process regression on many rows, by natural gradients.

    A sparse variational Gaussian process [1]_ whose mean may rest on more
    points than its covariance [2]_. X is standardised internally, and so is y
    where the likelihood allows it.

    Parameters
    ----------
    likelihood : str or object, default="gaussian"
        Distribution of y given the latent functions: "gaussian", "student_t",
        "heteroscedastic_gaussian", "poisson", "negative_binomial",
        "zero_inflated_poisson", "gamma", "lognormal", "exponential", "beta",
        "chained_beta" or "ordinal"; "auto" is "gaussian". An object of
        :mod:`skgp_natgrad.likelihoods` holds initial values, tunable as
        ``likelihood__...``; those of "gaussian" and "student_t" are on the scale
        of the standardised y.
    normalize_y : bool or "center", default=True
        Standardise each column of y. "center" subtracts its mean alone: then
        noise and amplitudes are given in the (squared) units of y, and with
        ``normalize_X=False`` lengthscales in those of X. Used only by the
        likelihoods "gaussian", "student_t" and "heteroscedastic_gaussian"; the
        others see y on its original scale, and their prior mean is chosen from
        the data.
    mean_function : callable, regressor, "linear" or None, default=None
        What the latent function varies around. A function of X (n_samples, n_features), in the units of X, returns
        values in the units of y (of a likelihood with a link on the scale of :meth:`predict_latent`), one for each row
        or for each row and output. A regressor of scikit-learn is fitted to each output first, and the process to
        what is left; "linear" is a linear regression. :meth:`predict_latent` is without it.
    missing_targets : {"error", "ignore"}, default="error"
        What a NaN in y means: a mistake, or with "ignore" that this target of the row was not observed. The row's
        other targets count; a row without any is left out.

    Attributes
    ----------
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

    def __init__(
        self,
        kernel=None,
        *,
        likelihood="gaussian",
        objective="elbo",
        hyperparameter_prior=None,
        mean_function=None,
        normalize_X="auto",
        normalize_y=True,
        missing_targets="error",
        n_inducing="auto",
        n_mean_inducing=0,
        basis="orthogonal",
        inducing_init="greedy_variance",
        train_inducing_points=True,
        solver="auto",
        parameterization="natural",
        gamma_schedule="auto",
        optimizer="adam",
        learning_rate=0.02,
        mean_solver="adam",
        mean_columns="auto",
        batch_size="auto",
        max_iter="auto",
        tol=1e-3,
        n_iter_no_change=50,
        warm_start=False,
        random_state=None,
        jitter=1e-8,
        device="auto",
        n_devices=None,
        dtype="float64",
        verbose=0,
        callback=None,
        checkpoint=None,
        checkpoint_every=5.0,
    ):
        shared = {name: value for name, value in locals().items() if name not in _NOT_SHARED}
        super().__init__(**shared)
        self.mean_function = mean_function
        self.missing_targets = missing_targets

    def fit(self, X, y, sample_weight=None, *, alpha=None, offset=None):
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
            as in scikit-learn's GaussianProcessRegressor.
        offset : float or array-like of shape (n_samples[, n_outputs]), default=None
            Known values that are added to the latent function: with counts the logarithm of the exposure, with
            Gaussian noise a mean function. Give it in predictions, too.

        Returns
        -------
        self : NGDSVGPRegressor
        """
        return self._all_or_nothing(X, y, sample_weight, alpha=alpha, offset=offset)

    @available_if(can_stream)
    def partial_fit(self, X, y, sample_weight=None, *, alpha=None, offset=None):
        """Learn from further rows; the rows of earlier calls are not needed again.

        On an unfitted estimator it is the same as `fit` with ``solver="ngd"``. In later calls the earlier
        rows enter through their posterior at its inducing points [1]_. The
        inducing points are chosen anew from the old points and the new rows (if
        ``inducing_init`` is an array, they stay where they are), and
        hyperparameters continue to be trained. The scales of X and y, and the
        prior mean, stay those of the first call, whose rows should therefore be
        typical.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row in the log-likelihood; a weight of two counts the row twice.
        alpha : float or array-like of shape (n_samples[, n_outputs]), default=None
            Known variances of the noise in the squared units of y, added to the variance of ``likelihood="gaussian"``;
            as in scikit-learn's GaussianProcessRegressor.
        offset : float or array-like of shape (n_samples[, n_outputs]), default=None
            Known values that are added to the latent function: with counts the logarithm of the exposure, with
            Gaussian noise a mean function. Give it in predictions, too.

        Returns
        -------
        self : NGDSVGPRegressor

        Notes
        -----
        Not available with mean-only points: with ``n_mean_inducing`` above zero,
        ``basis="decoupled"`` or ``mean_solver="exact"``; nor with
        ``objective="predictive"``.

        Each call trains for up to ``max_iter`` iterations, so that a few large
        batches are better than many small ones. The likelihood's parameters,
        including the noise, are trained on the rows of that call alone.
        ``elbo_`` is then a bound on the log evidence of the new rows given the
        earlier ones.

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
        return self._all_or_nothing(X, y, sample_weight, alpha=alpha, offset=offset, streams=True)

    def _learn(self, X, y, sample_weight, hooks, alpha=None, offset=None, streams=False):
        _inputs.refuse_sparse(self, X)
        if self.missing_targets == "ignore" and np.ma.isMaskedArray(y):
            y = y.astype(float).filled(np.nan)
        arguments = {"y": y, "sample_weight": sample_weight, "alpha": alpha, "offset": offset}
        is_long, *given = _long.opened(X, **arguments)
        X, types, targets = (self._checked_long if is_long else self._checked)(*given, streams)
        return self._fit(X, types, targets, streams, hooks)

    def _checked(self, X, y, sample_weight, alpha, offset, streams):
        """X, the types of its columns, and the `Targets`."""
        first, given = self._previous(streams) is None, (X, y)
        ignores_missing = self.missing_targets == "ignore" and y is not None
        with _inputs.locate(X=X, y=None if ignores_missing else y):
            if ignores_missing:
                X, y = validate_data(self, X, dtype=np.float64, reset=first), _inputs.targets(y, True)
                check_consistent_length(X, y)
            else:
                X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, reset=first)
                y = _inputs.targets(y, False)
        columns, types = y.reshape(len(y), -1), _inputs.column_types(given[1])
        known = (
            _inputs.known("offset", offset, *columns.shape),
            _inputs.known("alpha", alpha, *columns.shape, minimum=0.0),
        )
        targets = self._targets(X, columns, sample_weight, types, y.ndim == 1, known, streams)
        return X, _inputs.column_types(given[0]), targets

    def _checked_long(self, X, y, sample_weight, alpha, offset, streams):
        """The same for many rows, which are checked as they are read."""
        X, types = _long.inputs(self, X, y, reset=self._previous(streams) is None)
        y, types_of_y, single = _long.numbers_of_y(y, len(X), self.missing_targets == "ignore")
        known = _long.known("offset", offset, *y.shape), _long.known("alpha", alpha, *y.shape, minimum=0.0)
        weight = _long.weights(sample_weight, len(X))
        return X, types, self._targets(X, y, weight, types_of_y, single, known, streams)

    def _targets(self, X, columns, weight, types, single, known, streams):
        # A stream keeps the shape of its first targets.
        goes_on = streams and self._previous(streams) is not None
        mean_function = _mean_function.of_fit(self, X, columns, weight, known[0], goes_on)
        return Targets(
            columns=columns,
            weight=weight,
            types=types,
            default_likelihood="gaussian",
            n_classes=0,
            scale=self.normalize_y,
            attributes={"_single_output": self._single_output if goes_on else single, "mean_function_": mean_function},
            offset=_mean_function.plus_mean(mean_function, X, known[0], columns.shape[1]),
            noise=known[1],
            may_lack=goes_on,
        )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
