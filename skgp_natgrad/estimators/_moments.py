"""Predictions of the mean of numbers y, of their standard deviation and covariance, and the score of the mean."""

from __future__ import annotations

import numpy as np
from sklearn.metrics import r2_score

from ._by_blocks import by_blocks
from ._distribution import TargetDistribution
from ._mean_function import with_mean_function


class TargetMoments(TargetDistribution):
    """The moments of the predicted distribution: of regressors."""

    def _shaped(self, columns):
        """Drop the last axis, that of the outputs, if y had none."""
        return columns[..., 0] if self._single_output else columns

    @by_blocks("offset")
    @with_mean_function
    def predict(self, X, return_std=False, return_cov=False, offset=None, out=None):
        """Predict the mean of y, and on request its standard deviation or covariance.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        return_std : bool, default=False
            Also return the predictive standard deviation of y, noise included.
        return_cov : bool, default=False
            Also return the joint predictive covariance of y, noise included.
        offset : float or array-like of shape (n_samples[, n_outputs]), default=None
            Added to the latent function, as in `fit`.
        out : array of the shape of ``y_mean``, or tuple of two, default=None
            Where to write what is returned, such as a `numpy.memmap`; by default new arrays. Rows of an X in a file
            are read, predicted and written by blocks.

        Returns
        -------
        y_mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        y_std : ndarray of the same shape, with ``return_std``
            In the units of y; infinite where the noise has no variance.
        y_cov : ndarray of shape (n_samples, n_samples[, n_outputs]), with ``return_cov``

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
        offset = self._latent_offset(X, offset)
        if return_cov and not self.likelihood_.additive_noise:
            raise ValueError(
                f"return_cov=True: with likelihood {self.likelihood_} y is not a latent function plus noise, so that "
                "its joint covariance has no closed form; draw from the joint prediction with sample_y instead."
            )
        if not (return_std or return_cov):
            return self._shaped(self._y_scale.backward(self._predict("target_mean", X, offset=offset).T))
        mean, var = (moment.T for moment in self._predict("target_moments", X, offset=offset))
        y_mean = self._shaped(self._y_scale.backward(mean))
        if return_std:
            return y_mean, self._shaped(np.sqrt(var) * self._y_scale.scale)
        covariance = self._latent_covariance(X)
        diagonal = np.arange(len(X))
        covariance[diagonal, diagonal] = var
        covariance *= self._y_scale.scale**2
        return y_mean, self._shaped(covariance)

    def score(self, X, y, sample_weight=None, offset=None):
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

        Returns
        -------
        score : float
            R^2, averaged over the outputs.
        """
        return r2_score(y, self.predict(X, offset=offset), sample_weight=sample_weight)
