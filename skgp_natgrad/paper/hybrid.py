"""The hybrid basis (eq. 10): the mean-only part is added to the part of the inducing points.

mean(x) = k_xz L^-T m + k_xg a
var(x)  = k_xx - k_xz Kzz^-1 k_zx + k_xz L^-T S L^-1 k_zx
KL      = KL(N(m, S) || N(0, I)) + 1/2 a^T Kgg a + m^T L^-1 Kzg a
"""

from __future__ import annotations

import jax.numpy as jnp

from ..variational.bases import Basis, Dependence, _whitened


def _moments(kernel, factor, points, masks, weights, m, *arguments):
    mean, var, kl, w, rows, residual = _whitened.moments(kernel, factor, points, masks, weights, m, *arguments, 0.0)
    return mean, var, kl + (m * w).sum(), Dependence(rows, w), residual


def _prediction_factors(kernel, points, masks, weights, q, jitter):
    return _whitened.prediction_factors(kernel, points, masks, q, jitter)


def _change_of_mean(kernel, factor, points, masks, a, m, Z_new):
    """The change of the inducing points' part; the mean-only points' part stays as it is."""
    return _whitened.change_along_mean(kernel, factor, points, masks, m, Z_new)


def prior_variance(kernel, factor, points, masks):
    """The metric of mean-only weights that are not orthogonal to the rest: (G,)."""
    diag = kernel.diag(points.Z_mean)
    return jnp.where(diag > 0.0, diag, 1.0)


HYBRID = Basis(
    natural=True,
    first_weights=_whitened.first_weights,
    moments=_moments,
    prediction_factors=_prediction_factors,
    change_of_mean=_change_of_mean,
    metric=prior_variance,
    metric_matrix=None,
)
