"""The covariance between correlated outputs that a fit has found."""

from __future__ import annotations

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..._backend.types import Floats
from ..rows import outputs
from . import attributes

# Inducing points at which a kernel that is not stationary is averaged.
_POINTS = 50


class BetweenOutputs:
    """``output_covariance_`` and ``output_correlation_``, of regressors."""

    @property
    def output_covariance_(self) -> Floats:
        """Prior covariance of the outputs at one place, without noise, in the units of y: (n_outputs, n_outputs).

        Of the sum of all terms of the kernel, the mean at some of the inducing points. An AttributeError without
        ``output_kernel``.
        """
        check_is_fitted(self, "_posterior")
        scale = outputs.of(self)
        if scale is None:
            raise AttributeError(
                "output_covariance_ needs correlated outputs: fit several columns of y with "
                "output_kernel='coregionalization'."
            )
        n_outputs, points = len(scale.scale), self._points()[:_POINTS, :-1]
        K = attributes.model_of(self).kernels[0](outputs.stacked(points, n_outputs))
        K = K.reshape(n_outputs, len(points), n_outputs, len(points))
        return np.einsum("pnqn->pq", K) / len(points) * np.outer(scale.scale, scale.scale)

    @property
    def output_correlation_(self) -> Floats:
        """The correlations of ``output_covariance_``: (n_outputs, n_outputs)."""
        covariance = self.output_covariance_
        deviation = np.sqrt(np.diag(covariance))
        return covariance / np.outer(deviation, deviation)
