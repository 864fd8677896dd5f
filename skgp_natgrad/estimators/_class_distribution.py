"""Predictions of the distribution of labels."""

from __future__ import annotations

from . import _checks
from ._by_blocks import by_blocks
from ._distribution import LatentDistribution


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
