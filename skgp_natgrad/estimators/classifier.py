"""The classifier."""

from __future__ import annotations

from typing import Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from .. import svgp
from .._backend.types import ArrayLike, PerRow
from .arguments.constructor import documented
from .arguments.task import CLASSIFICATION, ClassifierArguments, streaming
from .base import BaseNGDSVGP
from .fitted.attributes import calibration_of
from .predictions.class_distribution import ClassDistribution
from .rows import class_labels, encoding, inputs, mean_of_labels
from .rows.class_labels import positions
from .rows.inputs import Targets


@documented
class NGDSVGPClassifier(ClassifierMixin, ClassDistribution, ClassifierArguments, BaseNGDSVGP):
    r"""Gaussian process classification on many rows, by natural gradients.

    A sparse variational Gaussian process [1]_ whose mean may use more points than its covariance [2]_. X is
    standardised internally.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted; with ``likelihood="ordinal"`` the levels from the lowest to the highest.
    calibration_ : tuple of float
        Factors of the latent mean and standard deviation; ones without ``calibrate``.
    mean_function_ : classifier, callable or None
        The ``mean_function``, fitted to all rows if it is a classifier.
    mean_weight_ : float
        Factor of its latent values; zero if held-out labels are not more probable with it.

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

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None) -> Self:
        """Fit the Gaussian process.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,)
            Class labels of any type.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row in the log-likelihood; a weight of two counts the row twice.

        Returns
        -------
        self : NGDSVGPClassifier

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.gaussian_process.kernels import RBF
        >>> from skgp_natgrad import NGDSVGPClassifier
        >>> X = np.linspace(0, 10, 100)[:, None]
        >>> y = np.where(np.sin(X[:, 0]) > 0, "up", "down")
        >>> clf = NGDSVGPClassifier(1.0 * RBF(), n_inducing=12, tol=0.05, random_state=0)
        >>> bool(clf.fit(X, y, sample_weight=np.where(y == "up", 2.0, 1.0)).score(X, y) > 0.9)
        True
        """
        return self._learn(X, y, sample_weight)

    @streaming
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: PerRow = None,
    ) -> Self:
        """Learn from further rows; the rows of earlier calls are not needed again.

        On an unfitted estimator it is the same as `fit` with ``solver="ngd"``. In
        later calls the earlier rows enter through their posterior at its inducing
        points [1]_. The inducing points are chosen anew from the old points and the new rows (if
        ``inducing_init`` is an array, they stay where they are), and
        hyperparameters continue to be trained. The scale of X stays that of the
        first call, whose rows should therefore be typical.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,)
            Class labels.
        classes : array-like of shape (n_classes,), default=None
            All labels that will ever occur; needed in the first call if its y
            does not contain them all. With ``likelihood="ordinal"``, unsorted strings give the order of the levels,
            unless the likelihood or the type of y gives it.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row in the log-likelihood; a weight of two counts the row twice.

        Returns
        -------
        self : NGDSVGPClassifier

        Notes
        -----
        Not available with mean-only points: with ``n_mean_inducing`` above zero,
        ``basis="decoupled"`` or ``mean_solver="exact"``; nor with
        ``objective="predictive"``. Mean-only points that ``n_inducing="auto"`` added are dropped: only the posterior at
        the inducing points is carried on.

        Each call trains for up to ``max_iter`` iterations, so that a few large
        batches are better than many small ones. ``elbo_`` is then a bound on the
        log evidence of the new labels given the earlier rows.

        References
        ----------
        .. [1] T. Bui, C. Nguyen, R. Turner (2017). "Streaming Sparse Gaussian
           Process Approximations." NeurIPS.

        Examples
        --------
        The first batch contains two of the three classes.

        >>> from sklearn.datasets import load_iris
        >>> from skgp_natgrad import NGDSVGPClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = NGDSVGPClassifier(n_inducing=20, max_iter=300, tol=0.05, random_state=0)
        >>> clf = clf.partial_fit(X[:90], y[:90], classes=[0, 1, 2])
        >>> bool(clf.partial_fit(X[90:], y[90:]).score(X, y) > 0.9)
        True
        """
        return self._learn(X, y, sample_weight, streams=True, classes=classes)

    def _rows_of(self, X, y, sample_weight, streams, classes=None):
        """X, the types of its columns, and the `Targets`."""
        levels = class_labels.stated_levels(self, y)
        is_long, X, y, weight = inputs.opened(inputs.dense(self, X), y=y, sample_weight=sample_weight)
        previous = self._previous(streams)
        X, types, weight = encoding.of_fit(self, X, y, weight, streams, is_long)
        y, weight = inputs.labels(y, X), inputs.weights(weight, X)
        labels, totals = class_labels.by_label(y, weight)
        of_all = (self, labels, classes, previous, levels) if streams else (self, labels, previous, levels)
        classes = (class_labels.of_stream if streams else class_labels.of_fit)(*of_all)
        if not streams:
            class_labels.warn_of_numbers(self, classes, len(y))
        position = positions(classes, labels)
        factor = class_labels.weights(self.class_weight, classes, position, totals)
        self._check_present(class_labels.present(self, classes, position[totals * factor[position] > 0.0]), streams)
        columns, weight = class_labels.encoded(y, weight, classes, factor)
        goes_on = streams and previous is not None
        attributes, values = mean_of_labels.of_fit(self, X, y, classes, weight, goes_on)
        likelihood, attributes = "bernoulli" if len(classes) == 2 else "softmax", {"classes_": classes} | attributes
        of_y = columns, weight, [np.dtype(int)], likelihood, len(classes), False, attributes
        return X, types, Targets(*of_y, mean_function=values)

    def _check_present(self, labels, streams):
        if len(labels) < 2 and not streams:
            raise ValueError(
                f"{type(self).__name__} needs at least two classes; y has one class with weight, {labels.tolist()}."
            )

    @property
    def calibration_(self) -> tuple[float, float]:
        """Factors of the latent mean and standard deviation; ones without ``calibrate``."""
        check_is_fitted(self, "_posterior")
        return tuple(calibration_of(vars(self)) or svgp.Calibration())[:2]

    @property
    def mean_weight_(self) -> float:
        """Factor of the latent values of ``mean_function_`` in class probabilities."""
        check_is_fitted(self, "_posterior")
        return (calibration_of(vars(self)) or svgp.Calibration()).mean_function
