"""Predictions of the latent functions."""

from __future__ import annotations

from typing import Literal, overload

import numpy as np

from ... import svgp
from ..._backend import memory
from ..._backend.types import ArrayLike, Floats
from ..fitted import attributes
from ..rows import class_labels, outputs
from ..rows.outputs import over_outputs
from . import incomplete
from .by_blocks import by_blocks
from .export import Exportable
from .incomplete import over_donors


class LatentDistribution(Exportable):
    """Predictions of the latent functions, of every estimator."""

    @overload
    def predict_latent(
        self, X: ArrayLike, return_std: Literal[False] = False, return_cov: Literal[False] = False
    ) -> Floats: ...

    @overload
    def predict_latent(
        self, X: ArrayLike, return_std: Literal[True], return_cov: Literal[False] = False
    ) -> tuple[Floats, Floats]: ...

    @overload
    def predict_latent(
        self, X: ArrayLike, return_std: bool = False, return_cov: bool = False
    ) -> Floats | tuple[Floats, Floats]: ...

    @by_blocks()
    @over_donors(incomplete.mean_and_deviation)
    @over_outputs(outputs.affine, outputs.linear)
    def predict_latent(
        self, X: ArrayLike, return_std: bool = False, return_cov: bool = False
    ) -> Floats | tuple[Floats, Floats]:
        """Predict the latent functions, without noise.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        return_std : bool, default=False
            Also return the posterior standard deviation; after calibration (``calibrate`` of the regressor), that of
            the calibrated distribution.
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

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.gaussian_process.kernels import RBF
        >>> from skgp_natgrad import NGDSVGPRegressor
        >>> X = np.linspace(0, 10, 100)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=100)
        >>> reg = NGDSVGPRegressor(1.0 * RBF(), n_inducing=12, tol=0.05, random_state=0).fit(X, y)
        >>> f_mean, f_std = reg.predict_latent(X, return_std=True)
        >>> bool(np.all(f_std < reg.predict(X, return_std=True)[1]))
        True
        """
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std or return_cov can be requested.")
        X = self._check_rows(X)
        offset, scale = self.likelihood_.latent_units(self._y_scale.offset, self._y_scale.scale)
        single = len(self._posterior.alpha) == 1 and getattr(self, "_single_output", True)

        def shaped(values):
            return values[..., 0] if single else values

        if not (return_std or return_cov):
            return shaped(class_labels.by_class(self, self._predict("latent_mean", X)).T * scale + offset)
        mean, var = (class_labels.by_class(self, each) for each in self._predict("latent_moments", X))
        mean = shaped(mean.T * scale + offset)
        if return_std:
            return mean, shaped(np.sqrt(var).T * scale)
        return mean, shaped(self._latent_covariance(X) * np.square(scale))

    def _latent_covariance(self, X, of_targets=False):
        """The joint posterior covariance at standardised rows: (N, N, K)."""
        n_bytes = 8 * len(self._posterior.alpha) * len(X) ** 2
        remedy = "predict fewer rows at a time, or take return_std=True"
        memory.require(n_bytes, f"return_cov=True at {len(X)} rows", remedy)
        return np.moveaxis(
            class_labels.by_class(self, svgp.covariance(attributes.model_of(self), X, self.device, of_targets)), 0, -1
        )
