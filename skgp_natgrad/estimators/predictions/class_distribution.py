"""Predictions of the distribution of class labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._backend.types import ArrayLike, Floats, NDArray, Seed
from ..arguments import checks
from ..rows import class_labels, mean_of_labels
from . import incomplete
from .by_blocks import by_blocks, with_names
from .incomplete import over_donors
from .latent import LatentDistribution


class ClassDistribution(LatentDistribution):
    """Predictions of the distribution of labels: of classifiers."""

    # Set by `fit`; here for readers and type checkers.
    classes_: NDArray[Any]

    @by_blocks()
    def predict(self, X: ArrayLike, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Predict the most probable class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        out : array of shape (n_samples,), default=None
            Where to write the labels, such as a `numpy.memmap`; by default a new array. Rows of an X in a file are
            read, predicted and written by blocks.

        Returns
        -------
        y : ndarray of shape (n_samples,)

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.gaussian_process.kernels import RBF
        >>> from skgp_natgrad import NGDSVGPClassifier
        >>> X = np.linspace(0, 10, 100)[:, None]
        >>> y = np.where(np.sin(X[:, 0]) > 0, "up", "down")
        >>> clf = NGDSVGPClassifier(1.0 * RBF(), n_inducing=12, tol=0.05, random_state=0).fit(X, y)
        >>> clf.predict([[1.5], [4.5]]).tolist()
        ['up', 'down']
        """
        proba = self.predict_proba(X)
        return self.classes_[np.argmax(proba, axis=1)]

    @by_blocks()
    @over_donors(incomplete.class_probabilities)
    def predict_proba(self, X: ArrayLike, out: NDArray[Any] | None = None) -> Floats:
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

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.gaussian_process.kernels import RBF
        >>> from skgp_natgrad import NGDSVGPClassifier
        >>> X = np.linspace(0, 10, 100)[:, None]
        >>> y = np.where(np.sin(X[:, 0]) > 0, "up", "down")
        >>> clf = NGDSVGPClassifier(1.0 * RBF(), n_inducing=12, tol=0.05, random_state=0).fit(X, y)
        >>> proba = clf.predict_proba(X)
        >>> proba.shape, bool(np.allclose(proba.sum(axis=1), 1.0))
        ((100, 2), True)
        """
        return self._by_class("class_probabilities", X)

    @by_blocks()
    @over_donors(incomplete.log_class_probabilities)
    def predict_log_proba(self, X: ArrayLike) -> Floats:
        """Predict the logarithm of the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        log_proba : ndarray of shape (n_samples, n_classes)

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.gaussian_process.kernels import RBF
        >>> from skgp_natgrad import NGDSVGPClassifier
        >>> X = np.linspace(0, 10, 100)[:, None]
        >>> y = np.where(np.sin(X[:, 0]) > 0, "up", "down")
        >>> clf = NGDSVGPClassifier(1.0 * RBF(), n_inducing=12, tol=0.05, random_state=0).fit(X, y)
        >>> bool(np.allclose(np.exp(clf.predict_log_proba(X)), clf.predict_proba(X)))
        True
        """
        return self._by_class("log_class_probabilities", X)

    def _by_class(self, quantity, X):
        """Values (N, C) of all classes."""
        known = mean_of_labels.at_rows(self, X)
        return class_labels.by_class(self, self._predict(quantity, self._check_rows(X), **known)).T

    def decision_function(self, X: ArrayLike) -> Floats:
        """Log odds of two classes, or the logarithm of the probability of each of several.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        decision : ndarray of shape (n_samples,) or (n_samples, n_classes)
            With two classes log p(classes_[1]) - log p(classes_[0]), positive where `predict` returns the second. With
            more, the largest column is the class that `predict` returns. See `predict_latent` for the latent functions.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.gaussian_process.kernels import RBF
        >>> from skgp_natgrad import NGDSVGPClassifier
        >>> X = np.linspace(0, 10, 100)[:, None]
        >>> y = np.where(np.sin(X[:, 0]) > 0, "up", "down")
        >>> clf = NGDSVGPClassifier(1.0 * RBF(), n_inducing=12, tol=0.05, random_state=0).fit(X, y)
        >>> bool(np.all((clf.decision_function(X) > 0) == (clf.predict(X) == "up")))
        True
        """
        log_proba = self.predict_log_proba(X)
        return log_proba[:, 1] - log_proba[:, 0] if len(self.classes_) == 2 else log_proba

    @with_names
    @over_donors(incomplete.labels)
    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Seed = 0, joint: bool = True) -> NDArray[Any]:
        """Draw labels from the prediction.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
        n_samples : int, default=1
            Number of draws.
        random_state : int, RandomState instance or None, default=0
        joint : bool, default=True
            Whether each draw is one set of latent functions at all rows, which needs the covariance between all rows.
            Otherwise rows are drawn independently.

        Returns
        -------
        y_samples : ndarray of shape (n_samples_X, n_samples)

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.gaussian_process.kernels import RBF
        >>> from skgp_natgrad import NGDSVGPClassifier
        >>> X = np.linspace(0, 10, 100)[:, None]
        >>> y = np.where(np.sin(X[:, 0]) > 0, "up", "down")
        >>> clf = NGDSVGPClassifier(1.0 * RBF(), n_inducing=12, tol=0.05, random_state=0).fit(X, y)
        >>> np.unique(clf.sample_y(X, n_samples=3)).tolist()
        ['down', 'up']
        """
        n_samples = checks.of_type("n_samples", n_samples, int, least=1)
        known, X = mean_of_labels.at_rows(self, X), self._check_rows(X)
        positions = self._sample_targets(X, n_samples, random_state, checks.of_type("joint", joint, bool), **known)[0]
        ranks = getattr(self, "_class_ranks", None)
        return (self.classes_ if ranks is None else self.classes_[np.argsort(ranks)])[positions]
