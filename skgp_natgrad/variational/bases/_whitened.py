"""What the bases with a whitened q(v) share: the covariance rests on inducing points Z, u = L v, Kzz = L L^T."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from ..._backend.linalg import definite_cholesky, triangular_inverse
from ..points import factorise, inducing_covariance
from ..projection import project
from ._mean_points import in_precision_of, quadratic
from ._record import Weights


def first_weights(n_latent, n_inducing, n_mean_inducing):
    """No mean on the mean-only points: the prior."""
    return Weights(np.zeros((n_latent, n_mean_inducing)), np.zeros((n_latent, 0, 0)))


def moments(kernel, factor, points, masks, weights, m, S, X, columns, removed):
    """Latent mean and variance (K, B), the mean-only part's KL divergence, L^-1 Kzg a (K, M), and the rows.

    The rows are seen in their own precision, the points in double. ``removed`` is the share of the
    mean-only part's values at Z that the projection takes away: one, or zero.
    """
    Kzz = inducing_covariance(kernel, points.Z, masks.Z)
    a = weights.a * masks.Z_mean
    Kgz = kernel(points.Z_mean, points.Z) * masks.Z
    row_kernel, (Z, Z_mean) = in_precision_of(X, (kernel, points))
    Kzx = row_kernel(Z, X) * masks.Z.astype(X.dtype)[:, None]
    mean, var, w, beta, rows = project(Kzz, Kzx, row_kernel.diag(X), m, S, a @ Kgz, removed, factor.inverse)
    mean = mean + a.astype(X.dtype) @ row_kernel(Z_mean, X)
    beta = beta * masks.Z if removed else jnp.zeros_like(beta)
    return mean, var, 0.5 * quadratic(kernel, points, a, beta, Kgz, columns), w, rows


def change_along_mean(kernel, factor, points, masks, m, Z_new):
    """What k_xz L^-T m changes by between the inducing points and their new places: (K, M).

    Differences of covariances are taken: of points that stay nothing changes, jitter or not.
    """
    alpha = (m @ factor.inverse) * masks.Z
    return (alpha @ (kernel(points.Z, Z_new) - kernel(points.Z, points.Z))) * masks.Z


def prediction_factors(kernel, points, masks, q, jitter, at_Z=None):
    """See `bases.prediction_factors`; ``at_Z`` (K, M) are values at the points that the mean is less of."""
    _, whiten, used = factorise(kernel, points.Z, masks.Z, jitter)
    m = q.mean if at_Z is None else q.mean - at_Z @ whiten.T
    # From the precision, which every step has kept positive definite: but for rounding, where it is
    # the exponential of a logarithm and its eigenvalues differ by more than numbers have digits.
    root = definite_cholesky(q.precision)
    spread = jnp.swapaxes(triangular_inverse(root), -1, -2)
    return m @ whiten * masks.Z, (whiten * masks.Z)[None], spread, used
