"""Functions that the bases with a whitened q(v) share: inducing points Z, u = L v, Kzz = L L^T.

If there is a second set of points with its own covariance, Z stands for both sets here.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from ..._backend.linalg import definite_cholesky, triangular_inverse
from ..points import covariance, factor_of_q, inducing_covariance
from ..projection import project, project_with_residual
from ._mean_points import in_precision_of, quadratic, values
from ._record import Weights


def first_weights(n_latent, n_inducing, n_mean_inducing):
    """No mean on the mean-only points: the prior."""
    return Weights(np.zeros((n_latent, n_mean_inducing)), np.zeros((n_latent, 0, 0)))


def moments(kernel, factor, points, masks, weights, m, S, X, columns, needs_residual, removed):
    """Latent mean and variance (K, B), the mean-only part's KL divergence, L^-1 Kzg a (K, M), the rows, the residual.

    Rows are computed in their own precision, points in double. ``removed`` is the share of the
    mean-only part's values at Z that the projection removes: one, or zero.
    """
    Z, mask = points.of_q, masks.of_q
    Kzz = inducing_covariance(kernel, Z, mask)
    a = weights.a * masks.Z_mean
    Kgz = covariance(kernel, points.Z_mean, Z) * mask
    row_kernel, (row_Z, row_Z_mean) = in_precision_of(X, (kernel, (Z, points.Z_mean)))
    Kzx = row_kernel(row_Z, X) * mask.astype(X.dtype)[:, None]
    seen = Kzz, Kzx, row_kernel.diag(X), m, S, a @ Kgz, removed, factor.inverse, points.sizes
    mean, var, w, beta, rows, residual = project_with_residual(*seen) if needs_residual else (*project(*seen), None)
    mean = mean + values(row_kernel, row_Z_mean, a.astype(X.dtype), X)
    beta = beta * mask if removed else jnp.zeros_like(beta)
    return mean, var, 0.5 * quadratic(kernel, points, a, beta, Kgz, columns), w, rows, residual


def change_along_mean(kernel, factor, points, masks, m, Z_new):
    """The change of k_xz L^-T m between the inducing points and their new positions: (K, M).

    It uses differences of covariances: for points that stay the change is zero, with or without jitter.
    """
    Z, mask = points.of_q, masks.of_q
    alpha = (m @ factor.inverse) * mask
    return (alpha @ (kernel(Z, Z_new) - kernel(Z, Z))) * mask


def prediction_factors(kernel, points, masks, q, jitter, at_Z=None):
    """See `bases.prediction_factors`; ``at_Z`` (K, M) are values at the points that the mean is less of."""
    _, whiten, used = factor_of_q(kernel, points, masks, jitter)
    m = q.mean if at_Z is None else q.mean - at_Z @ whiten.T
    # From the precision, which every step has kept positive definite; except for rounding, if it is the
    # exponential of a logarithm and its eigenvalues differ by more than double precision can hold.
    root = definite_cholesky(q.precision)
    root_S = jnp.swapaxes(triangular_inverse(root), -1, -2)
    mask = masks.of_q
    return m @ whiten * mask, (whiten * mask)[None], root_S, used
