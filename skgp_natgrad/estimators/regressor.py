"""The regressor."""

from __future__ import annotations

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data

from .. import svgp
from .._backend import memory
from ..svgp import can_stream
from . import _checks, _fitted, _inputs
from ._base import BaseNGDSVGP
from ._targets import REGRESSION, Targets


class NGDSVGPRegressor(RegressorMixin, BaseNGDSVGP):
    r"""Gaussian process regression on many rows, by natural gradients.

    A sparse variational Gaussian process [1]_ whose mean may rest on more
    points than its covariance [2]_. X is standardised inside, and so is y where
    the likelihood allows.

    Parameters
    ----------
    kernel : sklearn.gaussian_process kernel, list of kernels or None, default=None
        Prior covariance of the latent functions: ConstantKernel, RBF, Matern,
        RationalQuadratic, ExpSineSquared, DotProduct, their sums, products and
        powers, or a class added by :func:`skgp_natgrad.kernels.register`. Its
        hyperparameters are initial values in the units of the standardised X;
        their bounds, ``"fixed"`` too, hold while training. No WhiteKernel: the
        likelihood owns the noise. One kernel serves all latent functions; a
        list holds one for each: one a column of y, or, of a likelihood with two
        latent functions f and g, those of f and then those of g.
        None is ``ConstantKernel() * Matern(nu=2.5)`` with one lengthscale a
        column, started from the data.
    likelihood : str or object, default="gaussian"
        Distribution of y given the latent functions: "gaussian", "student_t",
        "heteroscedastic_gaussian", "poisson", "negative_binomial",
        "zero_inflated_poisson", "gamma", "exponential", "beta",
        "chained_beta" or "ordinal"; "auto" is "gaussian". An object of :mod:`skgp_natgrad.likelihoods` holds initial
        values, tunable as ``likelihood__...``; those of "gaussian" and
        "student_t" are on the scale of the standardised y.
    objective : {"elbo", "tightened", "predictive"} or object, default="elbo"
        What training raises. "elbo": the evidence lower bound. "tightened": a
        bound that is never looser, at the same cost, for Gaussian noise [4]_.
        "predictive": the log density of each row's own prediction, less the
        KL divergence, for calibrated predictions where the model is
        wrong [5]_; an object :class:`~skgp_natgrad.objectives.Predictive` has
        the weight of the divergence, tunable as ``objective__kl_weight``.
    n_inducing : int, None or "all", default=100
        Number of inducing points (the papers' \|beta\|), M: they carry mean and
        covariance, at a cost of order M^2 a row. Fewer are used if X has fewer
        distinct rows, and a UserWarning says so unless the default, an upper
        limit, was left in place. None and "all" put a point at every distinct row, where
        it stays: the whole variational Gaussian process, of order N^3 an
        iteration.
    n_mean_inducing : int, default=0
        Number of further points of the mean alone (the papers' \|gamma\|), at a
        linear cost; with ``basis="solve"`` of mean and covariance. Zero is the
        coupled basis.
    basis : {"orthogonal", "hybrid", "decoupled", "solve"}, default="orthogonal"
        How the mean-only points enter [2]_; without them all but "decoupled" are the
        coupled basis. "orthogonal" removes from their part what the inducing
        points explain; "hybrid" does not; in "decoupled" the mean rests on
        the mean-only points and a copy of the inducing points, the covariance
        on the inducing points. "decoupled" has no natural parameters and
        needs another solver than "ngd". "solve" [6]_ gives the further points a
        covariance of their own as well, apart from that of the inducing points,
        both by natural gradients: between the coupled basis on the inducing
        points and that on all points together, in its bound and its cost.
    inducing_init : {"greedy_variance", "k-means", "random"} or array, default="greedy_variance"
        Where the points start: by greedy conditional variance [3]_, at the
        centres of clusters (mean-only points then at random rows), at random
        rows, or at the given points of shape (n_points, n_features) in the units
        of X: the inducing points, or, if there are ``n_inducing +
        n_mean_inducing``, both sets. With ``mean_solver="exact"`` this concerns
        the inducing points alone.
    solver : {"ngd", "adam", "gd", "lbfgs"}, default="ngd"
        "ngd": natural gradient steps on the variational distribution q, steps
        of ``optimizer`` on everything else. "adam": ``optimizer`` moves q too.
        "gd": gradient ascent on everything. "lbfgs": L-BFGS on everything, for
        a table of at most ``batch_size`` rows; with a Gaussian likelihood q is
        kept at its optimum (the collapsed bound), with others the
        parameterization must be one of those that end in sqrt or log.
    parameterization : str, default="natural"
        The coordinates of q in which a step is straight [1]_: "natural",
        "natural_sqrt", "natural_log", "mean_var", "mean_var_sqrt" or
        "mean_var_log".
    gamma_schedule : float, schedule or name, default="auto"
        Step size of the natural gradient, in (0, 1], for ``solver="ngd"``.
        "auto" finds it while training (:class:`~skgp_natgrad.Auto`). Else a
        number for every iteration, an object such as
        :class:`~skgp_natgrad.LogLinear`, tunable as
        ``gamma_schedule__final``, or "constant", "linear", "log_linear",
        "cosine", "line_search" for one with its defaults;
        :class:`~skgp_natgrad.LineSearch` needs the full batch.
    optimizer : {"adam", "amsgrad", "nadam", "adabelief", "yogi", "rmsprop"} or None, default="adam"
        Optimizer of the hyperparameters, the places of all points and the
        mean-only weights, and with ``solver="adam"`` of q. None keeps
        hyperparameters and places as they start, and trains q and the
        mean-only weights alone.
    learning_rate : float, schedule or name, default=0.02
        Step size of ``optimizer`` and of ``solver="gd"``; not used by "lbfgs".
        A number decays to zero along a cosine over ``max_iter`` iterations;
        ``Constant(0.02)`` does not decay. :class:`~skgp_natgrad.LineSearch` is
        for ``solver`` "adam" and "gd" on the full batch.
    batch_size : int, default=1024
        Rows in a minibatch. A table of at most so many rows is used whole.
    max_iter : int, default=1000
        Largest number of iterations.
    tol : float, default=1e-3
        Training stops when the ELBO, averaged over ``n_iter_no_change``
        iterations, has risen by less than ``tol`` nats for each row since the
        average before. On minibatches the rise must be below ``tol`` by two
        standard errors, so that noise does not stop a fit.
    n_iter_no_change : int, default=50
        Number of iterations in each of the two averages.
    mean_solver : {"adam", "natural", "diagonal", "exact"}, default="adam"
        How the mean-only weights are found. "adam": by ``optimizer``, in
        coordinates scaled by their conditional prior variance. "natural": by
        natural gradient steps (eq. 15a of [2]_) of size ``gamma_schedule`` at
        most. "diagonal": by these with the diagonal of the metric (eq. 16).
        "exact": training uses the inducing points alone; then the mean-only
        points are put at random rows, and the mean on all points is solved
        for. The likelihood's parameters are estimated anew from leave-one-out
        predictions. All but "adam" need ``basis="orthogonal"``; "natural" and
        "diagonal" need ``solver="ngd"``.
    mean_columns : int or "auto", default="auto"
        Columns of the mean-only points' covariance that are drawn for each
        minibatch, to estimate the mean's part of the divergence without bias.
        "auto" is all of them, but at most ``batch_size``. The full batch, and
        the mean solvers "natural" and "diagonal", use all.
    normalize_X : bool, default=True
        Standardise the columns of X; a constant column is left alone. A column
        whose values span four units of rounding of its type, or fewer, is
        constant, standardised or not.
    normalize_y : bool, default=True
        Standardise each column of y. Not used by likelihoods other than
        "gaussian", "student_t" and "heteroscedastic_gaussian": they see y on
        its own scale, and the prior mean is chosen from the data.
    jitter : float, default=1e-8
        Added to the diagonal of the inducing points' covariance, relative to
        its mean; raised as far as the factorisation needs.
    warm_start : bool, default=False
        Go on from the previous fit's solution, in its scaling of X and y.
        Hyperparameters that are fixed, or whose initial values are other ones
        than at the previous fit, start at these; the rest go on within their
        bounds. What the model is made of cannot change: the points and their
        numbers, the basis, the form of kernel and likelihood, the
        normalisation. A ValueError names what has.
    checkpoint : str, os.PathLike or None, default=None
        A file that holds what a fit has reached, written every few seconds
        while it trains. If the fit is interrupted, ``fit`` with the same data and
        arguments goes on from there, to the same bits; with other ones it is
        refused. A fit that is complete deletes its file. Not for
        ``solver="lbfgs"``.
    random_state : int, RandomState instance or None, default=None
        Draws minibatches and their columns; random points; from large tables,
        candidates for the points, and rows for leave-one-out predictions.
    verbose : int, default=0
        1 shows a progress bar (extra "progress") or a line now and then, 2 a
        line every 20 iterations.
    device : {"auto", "cpu", "gpu"}, default="auto"
        Where to compute; "auto" is JAX's default, a GPU where there is one.
    dtype : {"float64", "float32"}, default="float64"
        Precision of what has the size of a batch while training: with
        "float32" the covariances of rows and points, and products with them.
        What concerns the points alone, the mean solver "exact" and predictions
        are computed in double precision, the jitter is at least 1e-6, and X
        should be standardised. Faster where single precision is; the
        documentation's page of benchmarks says what it costs in accuracy.
    callback : callable or None, default=None
        Called as ``callback(n_iter, model)`` after every 20 iterations (after
        each one of L-BFGS or a line search), ``model`` a fitted copy of the
        estimator at that iteration. If it returns True, training ends there.

    Attributes
    ----------
    kernel_ : sklearn.gaussian_process kernel or list of kernels
        The kernel with the trained hyperparameters, in the units of the
        standardised X; a list where ``kernel`` is one.
    likelihood_ : likelihood
        The likelihood with the trained parameters; those of "gaussian" and
        "student_t" are on the scale of the standardised y.
    inducing_points_ : ndarray of shape (M, n_features)
        In the units of X.
    mean_inducing_points_ : ndarray of shape (G, n_features)
        In the units of X; for ``basis="decoupled"`` the mean's copy of the
        inducing points stands last. With ``basis="solve"`` they carry a
        covariance too.
    elbo_ : float
        The bound, or another ``objective``, at the solution, in nats, for y on the scale of
        ``likelihood_``: evaluated on the full batch, the average of the last
        estimates with minibatches. With ``mean_solver="exact"`` it is
        evaluated on all rows. After a later ``partial_fit``, given the rows
        before.
    elbo_curve_ : ndarray of shape (n_iter,)
        The bound before each iteration (with "lbfgs" after it); an unbiased
        estimate with minibatches.
    n_iter_ : int
        Number of iterations.
    step_sizes_ : ndarray of shape (n_iter,)
        The step size of q in each iteration, in the end: after a line search,
        or after halving. Zero where q stayed, and throughout with "lbfgs".
    n_rejected_steps_ : int
        Number of iterations that did not go as asked: the step of q was
        shortened, to keep the covariance positive definite or because it lowered
        the bound of its own batch; the optimizer's step was skipped because a
        gradient was not finite; the iteration was taken back, because the bound
        of the full batch had fallen, or because that of some minibatch of the
        same twenty iterations was not finite; or the line search found no larger
        bound.
    n_clipped_steps_ : int
        Number of those in which the shortened step left out the negative
        curvature of a likelihood that is not log-concave.
    jitter_ : float
        The value that was added to the covariance's diagonal.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if X had them.

    References
    ----------
    .. [1] H. Salimbeni, S. Eleftheriadis, J. Hensman (2018). "Natural Gradients
       in Practice: Non-Conjugate Variational Inference in Gaussian Process
       Models." AISTATS.
    .. [2] H. Salimbeni, C.-A. Cheng, B. Boots, M. Deisenroth (2018).
       "Orthogonally Decoupled Variational Gaussian Processes." NeurIPS.
    .. [3] D. Burt, C. Rasmussen, M. van der Wilk (2020). "Convergence of Sparse
       Variational Inference in Gaussian Process Regression." JMLR.
    .. [4] M. Titsias (2025). "New Bounds for Sparse Variational Gaussian
       Processes." ICML.
    .. [5] M. Jankowiak, G. Pleiss, J. Gardner (2020). "Parametric Gaussian
       Process Regressors." ICML.
    .. [6] J. Shi, M. Titsias, A. Mnih (2020). "Sparse Orthogonal Variational
       Inference for Gaussian Processes." AISTATS.

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

    Counts have a likelihood of their own; ``predict`` returns their mean.

    >>> import numpy as np
    >>> X = np.linspace(0, 10, 200)[:, None]
    >>> counts = np.random.default_rng(0).poisson(np.exp(1 + np.sin(X[:, 0])))
    >>> reg = NGDSVGPRegressor(likelihood="poisson", n_inducing=15, tol=0.02, random_state=0)
    >>> mean, std = reg.fit(X, counts).predict(X, return_std=True)
    >>> bool((mean > 0).all()), bool((std > np.sqrt(mean)).all())
    (True, True)
    """

    _task = REGRESSION

    def fit(self, X, y, sample_weight=None):
        """Fit the Gaussian process.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets. Several outputs share the kernel and the inducing points;
            each has a latent function and likelihood parameters of its own.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row in the log-likelihood; two is the row twice.

        Returns
        -------
        self : NGDSVGPRegressor
        """
        self._forget()
        return self._learn(X, y, sample_weight)

    @available_if(can_stream)
    def partial_fit(self, X, y, sample_weight=None):
        """Learn from further rows; the rows of earlier calls are not needed again.

        On an estimator that is not fitted it is `fit`. After that what the earlier rows said enters
        through the posterior that they left, at its inducing points [1]_; the
        inducing points start anew at the best of the old ones and the new rows
        (if ``inducing_init`` is an array, where they are), and hyperparameters go
        on being trained. The scales of X and y, and the prior mean, stay those
        of the first call, whose rows should therefore be typical.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row in the log-likelihood; two is the row twice.

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
        the noise too, are trained on the rows of the call alone. ``elbo_`` is
        then a bound of the new rows' log evidence, given the rows before.

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
        return self._learn(X, y, sample_weight, streams=True)

    def _learn(self, X, y, sample_weight, streams=False):
        first, given = self._previous(streams) is None, (X, y)
        with _inputs.located(X=X, y=y):
            X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, reset=first)
            y = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
        targets = Targets(
            columns=y.reshape(len(y), -1),
            weight=sample_weight,
            types=_inputs.column_types(given[1]),
            default_likelihood="gaussian",
            n_classes=0,
            scale=self.normalize_y,
            # A stream keeps the form of its first targets.
            attributes={"_single_output": y.ndim == 1 if first or not streams else self._single_output},
        )
        return self._fit(X, _inputs.column_types(given[0]), targets, streams)

    def _shaped(self, columns):
        """Drop the axis of outputs, which stands last, if y had none."""
        return columns[..., 0] if self._single_output else columns

    def predict(self, X, return_std=False, return_cov=False):
        """Predict the mean of y, and on request its standard deviation or covariance.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        return_std : bool, default=False
            Also return the predictive standard deviation of y, noise included.
        return_cov : bool, default=False
            Also return the joint predictive covariance of y, noise included.

        Returns
        -------
        y_mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        y_std : ndarray of the same shape, with ``return_std``
            In the units of y; infinite where the noise has no variance.
        y_cov : ndarray of shape (n_samples, n_samples[, n_outputs]), with ``return_cov``

        Raises
        ------
        RuntimeError
            If both are asked for.
        MemoryError
            If the covariance does not fit into the memory that is available.
        """
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std and return_cov can be requested.")
        X = self._check_rows(X)
        if return_cov and not self.likelihood_.additive_noise:
            raise ValueError(
                f"return_cov=True: under {self.likelihood_} y is not a latent function plus noise, and has no joint "
                "covariance in closed form; draw from the joint prediction with sample_y instead."
            )
        if return_cov:
            n_bytes = 8 * len(self._y_scale.scale) * len(X) ** 2
            remedy = "predict fewer rows at a time, or take return_std=True"
            memory.require(n_bytes, f"return_cov=True at {len(X)} rows", remedy)
        if not (return_std or return_cov):
            return self._shaped(self._y_scale.backward(self._predict("target_mean", X).T))
        mean, var = (moment.T for moment in self._predict("target_moments", X))
        y_mean = self._shaped(self._y_scale.backward(mean))
        if return_std:
            return y_mean, self._shaped(np.sqrt(var) * self._y_scale.scale)
        covariance = np.moveaxis(svgp.covariance(_fitted.model_of(self), X, self.device), 0, -1)
        diagonal = np.arange(len(X))
        covariance[diagonal, diagonal] = var
        covariance *= self._y_scale.scale**2
        return y_mean, self._shaped(covariance)

    def predict_log_density(self, X, y):
        """Log density of each row's target under the prediction.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            log p(y | X) in nats, in the units of y, summed over the outputs.
            Its mean with the sign changed is the negative log predictive
            density (NLPD).
        """
        X = self._check_rows(X)
        with _inputs.located(y=y):
            y = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
        check_consistent_length(X, y)
        y = y.reshape(len(X), -1)
        if y.shape[1] != len(self._y_scale.scale):
            raise ValueError(
                f"y has {y.shape[1]} columns, but the regressor was fitted with {len(self._y_scale.scale)}."
            )
        self.likelihood_.check_targets(y.T)
        standardised = self._y_scale.forward(y).T
        return self._predict("log_density", X, standardised) - np.log(self._y_scale.scale).sum()

    def sample_y(self, X, n_samples=1, random_state=0):
        """Draw targets from the joint prediction, noise included.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
        n_samples : int, default=1
            Number of draws.
        random_state : int, RandomState instance or None, default=0

        Returns
        -------
        y_samples : ndarray of shape (n_samples_X, n_samples) or (n_samples_X, n_outputs, n_samples)
        """
        n_samples = _checks.integer("n_samples", n_samples, 1)
        X = self._check_rows(X)
        y = self._sample_targets(X, n_samples, random_state)
        y = self._y_scale.backward(np.moveaxis(y, 0, -1))
        return y[..., 0] if self._single_output else np.moveaxis(y, -1, 1)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
