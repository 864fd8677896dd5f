"""The orthogonal basis (eq. 11), whose mean-only part vanishes at the inducing points.

mean(x) = k_xz Kzz^-1 (L m - Kzg a) + k_xg a
var(x)  = k_xx - k_xz Kzz^-1 k_zx + k_xz L^-T S L^-1 k_zx
KL      = KL(N(m, S) || N(0, I)) + 1/2 a^T (Kgg - Kgz Kzz^-1 Kzg) a
"""

from __future__ import annotations

import jax.numpy as jnp

from ..._backend.linalg import symmetrize
from ..points import covariance
from . import _whitened
from ._record import Basis, Dependence

# The least share of the prior variance of a mean-only point that the inducing points leave open, in its metric.
_MIN_RESIDUAL = 1e-3


def _moments(*arguments):
    mean, var, kl, w, rows, residual = _whitened.moments(*arguments, 1.0)
    return mean, var, kl, Dependence(rows, 0.0 * w), residual


def _prediction_factors(kernel, points, masks, weights, q, jitter):
    at_Z = ((weights.a * masks.Z_mean) @ covariance(kernel, points.Z_mean, points.Z)) * masks.Z
    return _whitened.prediction_factors(kernel, points, masks, q, jitter, at_Z)


def _change_of_mean(kernel, factor, points, masks, a, m, Z_new):
    """The change of the whole mean, since the mean-only part vanishes at the inducing points wherever they are."""
    a, at_Z = a * masks.Z_mean, covariance(kernel, points.Z_mean, points.Z)
    m = m - (a @ at_Z * masks.Z) @ factor.inverse.T
    change = a @ (covariance(kernel, points.Z_mean, Z_new) - at_Z)
    return change * masks.Z + _whitened.change_along_mean(kernel, factor, points, masks, m, Z_new)


def residual_variance(kernel, factor, points, masks):
    """D = diag(Kgg - Kgz Kzz^-1 Kzg), eq. 16: the metric of the mean-only weights, (G,).

    Clamped to a thousandth of the prior variance: a mean-only point that nearly
    coincides with an inducing point adds nothing.
    """
    A = factor.inverse @ (covariance(kernel, points.Z, points.Z_mean) * masks.Z[:, None])
    diag = kernel.diag(points.Z_mean)
    return jnp.maximum(diag - (A * A).sum(0), _MIN_RESIDUAL * diag)


def residual_covariance(kernel, factor, points, masks):
    """Kgg - Kgz Kzz^-1 Kzg with an identity block for masked points: (G, G)."""
    A = factor.inverse @ (covariance(kernel, points.Z, points.Z_mean) * masks.Z[:, None])
    mask = masks.Z_mean
    K = (covariance(kernel, points.Z_mean, points.Z_mean) - A.T @ A) * (mask[:, None] * mask[None, :])
    return symmetrize(K) + jnp.diag(1.0 - mask)


ORTHOGONAL = Basis(
    natural=True,
    first_weights=_whitened.first_weights,
    moments=_moments,
    prediction_factors=_prediction_factors,
    change_of_mean=_change_of_mean,
    metric=residual_variance,
    metric_matrix=residual_covariance,
)
