"""The classifier."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from ..svgp import can_stream
from . import _checks, _inputs
from ._base import BaseNGDSVGP
from ._targets import CLASSIFICATION, Targets

# What is in the constructor's scope, and no argument that it shares with the regressor.
_NOT_SHARED = ("self", "__class__", "class_weight")


class NGDSVGPClassifier(ClassifierMixin, BaseNGDSVGP):
    r"""Gaussian process classification on many rows, by natural gradients.

    A sparse variational Gaussian process [1]_ whose mean may rest on more
    points than its covariance [2]_. X is standardised inside.

    Parameters
    ----------
    kernel : sklearn.gaussian_process kernel, list of kernels or None, default=None
        Prior covariance of the latent functions: ConstantKernel, RBF, Matern,
        RationalQuadratic, ExpSineSquared, DotProduct, their sums, products and
        powers, or a class added by :func:`skgp_natgrad.kernels.register`. Its
        hyperparameters are initial values in the units of the standardised X;
        their bounds, ``"fixed"`` too, hold while training. No WhiteKernel: the
        likelihood owns the noise. One kernel serves all latent functions; a
        list holds one for each: softmax and robust-max have a latent
        function a class, the others one in all.
        None is ``ConstantKernel() * Matern(nu=2.5)`` with one lengthscale a
        column, started from the data.
    likelihood : {"auto", "bernoulli", "softmax", "robust_max", "ordinal"} or object, default="auto"
        Distribution of y given the latent functions. An object of
        :mod:`skgp_natgrad.likelihoods` holds initial values on the scale of the
        latent functions, tunable as ``likelihood__...``. "auto" is "bernoulli" for two
        classes and "softmax" for more. "ordinal" takes the sorted labels for
        levels in that order.
    objective : {"elbo", "predictive"} or object, default="elbo"
        What training raises. "elbo": the evidence lower bound. "predictive":
        the log probability of each row's own prediction, less the KL
        divergence: see :class:`~skgp_natgrad.objectives.Predictive`, an object of
        which has the weight of the divergence, tunable as
        ``objective__kl_weight``.
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
        needs another solver than "ngd". "solve" [4]_ gives the further points a
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
        Not used, present for the same arguments as the regressor: labels are
        never scaled.
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
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied with ``sample_weight``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted.
    kernel_ : sklearn.gaussian_process kernel or list of kernels
        The kernel with the trained hyperparameters, in the units of the
        standardised X; a list where ``kernel`` is one.
    likelihood_ : likelihood
        The likelihood with the trained parameters.
    inducing_points_ : ndarray of shape (M, n_features)
        In the units of X.
    mean_inducing_points_ : ndarray of shape (G, n_features)
        In the units of X; for ``basis="decoupled"`` the mean's copy of the
        inducing points stands last. With ``basis="solve"`` they carry a
        covariance too.
    elbo_ : float
        The bound, or another ``objective``, at the solution, in nats: evaluated on the full batch, the
        average of the last estimates with minibatches. With
        ``mean_solver="exact"`` it is evaluated on all rows. After a later
        ``partial_fit``, given the rows before.
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
    .. [4] J. Shi, M. Titsias, A. Mnih (2020). "Sparse Orthogonal Variational
       Inference for Gaussian Processes." AISTATS.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skgp_natgrad import NGDSVGPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = NGDSVGPClassifier(n_inducing=20, max_iter=300, tol=0.05, random_state=0).fit(X, y)
    >>> clf.predict_proba(X[:2]).shape
    (2, 3)
    >>> bool(clf.score(X, y) > 0.9)
    True
    """

    _task = CLASSIFICATION

    def __init__(
        self,
        kernel=None,
        *,
        likelihood="auto",
        objective="elbo",
        n_inducing=100,
        n_mean_inducing=0,
        basis="orthogonal",
        inducing_init="greedy_variance",
        solver="ngd",
        parameterization="natural",
        gamma_schedule="auto",
        optimizer="adam",
        learning_rate=0.02,
        batch_size=1024,
        max_iter=1000,
        tol=1e-3,
        n_iter_no_change=50,
        mean_solver="adam",
        mean_columns="auto",
        normalize_X=True,
        normalize_y=True,
        jitter=1e-8,
        warm_start=False,
        random_state=None,
        verbose=0,
        device="auto",
        dtype="float64",
        callback=None,
        class_weight=None,
        checkpoint=None,
    ):
        shared = {name: value for name, value in locals().items() if name not in _NOT_SHARED}
        super().__init__(**shared)
        self.class_weight = class_weight

    def fit(self, X, y, sample_weight=None):
        """Fit the Gaussian process.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,)
            Class labels of any type.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row in the log-likelihood; two is the row twice.

        Returns
        -------
        self : NGDSVGPClassifier
        """
        self._forget()
        return self._learn(X, y, sample_weight)

    @available_if(can_stream)
    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Learn from further rows; the rows of earlier calls are not needed again.

        On an estimator that is not fitted it is `fit`. After that what the earlier rows said enters
        through the posterior that they left, at its inducing points [1]_; the
        inducing points start anew at the best of the old ones and the new rows
        (if ``inducing_init`` is an array, where they are), and hyperparameters go
        on being trained. The scale of X stays that of the first call, whose rows
        should therefore be typical.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,)
            Class labels.
        classes : array-like of shape (n_classes,), default=None
            All labels that will ever occur; needed at the first call if its y
            does not hold them all.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row in the log-likelihood; two is the row twice.

        Returns
        -------
        self : NGDSVGPClassifier

        Notes
        -----
        Not available with mean-only points: with ``n_mean_inducing`` above zero,
        ``basis="decoupled"`` or ``mean_solver="exact"``; nor with
        ``objective="predictive"``.

        Each call trains for up to ``max_iter`` iterations, so that a few large
        batches are better than many small ones. ``elbo_`` is then a bound of the
        new labels' log evidence, given the rows before.

        References
        ----------
        .. [1] T. Bui, C. Nguyen, R. Turner (2017). "Streaming Sparse Gaussian
           Process Approximations." NeurIPS.

        Examples
        --------
        The first batch holds two of the three kinds.

        >>> from sklearn.datasets import load_iris
        >>> from skgp_natgrad import NGDSVGPClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = NGDSVGPClassifier(n_inducing=20, max_iter=300, tol=0.05, random_state=0)
        >>> clf = clf.partial_fit(X[:90], y[:90], classes=[0, 1, 2])
        >>> bool(clf.partial_fit(X[90:], y[90:]).score(X, y) > 0.9)
        True
        """
        return self._learn(X, y, sample_weight, classes, streams=True)

    def _learn(self, X, y, sample_weight, classes=None, streams=False):
        previous, given = self._previous(streams), X
        with _inputs.located(X=X, labels=y):
            X, y = validate_data(self, X, y, dtype=np.float64, reset=previous is None)
            check_classification_targets(y)
        weight = _inputs.weights(sample_weight, X)
        classes = self._stream_classes(y, classes, previous) if streams else self._fit_classes(y, previous)
        position = np.searchsorted(classes, y)
        weight = weight * self._class_weights(classes, position, weight)[position]
        present = classes[np.unique(position[weight > 0])]
        if len(present) < 2 and not streams:
            raise ValueError(
                f"{type(self).__name__} needs at least two classes; y has one class with weight, {present.tolist()}."
            )
        targets = Targets(
            columns=position.reshape(-1, 1).astype(float),
            weight=weight,
            types=[position.dtype],
            default_likelihood="bernoulli" if len(classes) == 2 else "softmax",
            n_classes=len(classes),
            scale=False,
            attributes={"classes_": classes},
        )
        return self._fit(X, _inputs.column_types(given), targets, streams)

    def _fit_classes(self, y, previous):
        """The sorted labels of ``y``; a warm start needs those that it had."""
        classes = np.unique(y)
        if previous is not None and not np.array_equal(classes, self.classes_):
            raise ValueError(f"warm_start=True, but y has the classes {classes!r} and had {self.classes_!r}.")
        return classes

    def _stream_classes(self, y, classes, previous):
        """The sorted labels of a stream: those of its first call."""
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} depends on all rows, and partial_fit sees a part of them; give "
                "a dict of label to weight."
            )
        known = np.unique(y if classes is None else classes) if previous is None else self.classes_
        if len(known) < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least two classes; the first call of partial_fit names one, "
                f"{known.tolist()}. Give all labels that will occur as classes=..."
            )
        if classes is not None and not np.array_equal(np.unique(classes), known):
            raise ValueError(f"classes={np.unique(classes).tolist()} differs from the first call's, {known.tolist()}.")
        unseen = sorted(set(y.tolist()) - set(known.tolist()), key=str)
        if unseen:
            raise ValueError(
                f"y holds the labels {unseen}, which are not among classes={known.tolist()}. Name all labels at the "
                "first call of partial_fit, or call fit to start anew."
            )
        return known

    def _class_weights(self, classes, position, weight):
        """The factor that `class_weight` puts on each class: (C,)."""
        given = self.class_weight
        if given is None:
            return np.ones(len(classes))
        if isinstance(given, str) and given == "balanced":
            # By weight, not by rows: a row of weight two is the row twice.
            total = np.bincount(position, weights=weight, minlength=len(classes))
            return np.divide(weight.sum(), len(classes) * total, out=np.zeros(len(classes)), where=total > 0)
        if not isinstance(given, Mapping):
            raise ValueError(f'class_weight={given!r} must be a dict of label to weight, "balanced" or None.')
        factors = np.array(
            [_checks.number(f"class_weight[{c!r}]", given.get(c, 1.0), strict=False) for c in classes.tolist()]
        )
        # As in scikit-learn: classes that a fold lacks may be named, if all that it has are.
        unknown, missing = set(given) - set(classes.tolist()), set(classes.tolist()) - set(given)
        if unknown and missing:
            raise ValueError(
                f"class_weight={given!r} names {sorted(unknown, key=str)}, of which y has none, and not "
                f"{sorted(missing, key=str)}; give the labels as they are in y, whose classes are {classes.tolist()}."
            )
        if np.any(weight) and not np.any(weight * factors[position]):
            raise ValueError(f"class_weight={given!r} leaves no row of y with a weight above zero.")
        return factors

    def predict_proba(self, X):
        """Predict the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``; rows sum to one.
        """
        return self._predict("class_probabilities", self._check_rows(X)).T

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

    def predict(self, X):
        """Predict the most probable class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        y : ndarray of shape (n_samples,)
        """
        proba = self.predict_proba(X)
        return self.classes_[np.argmax(proba, axis=1)]

    def sample_y(self, X, n_samples=1, random_state=0):
        """Draw labels from the joint prediction.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
        n_samples : int, default=1
            Number of draws.
        random_state : int, RandomState instance or None, default=0

        Returns
        -------
        y_samples : ndarray of shape (n_samples_X, n_samples)
        """
        n_samples = _checks.integer("n_samples", n_samples, 1)
        X = self._check_rows(X)
        positions = self._sample_targets(X, n_samples, random_state)[0]
        return self.classes_[positions]
