"""The decoupled basis (eq. 8): mean and covariance use different points, with B = R R^T.

    mean(x) = k_xg a
    var(x)  = k_xx - k_xz R (I + R^T Kzz R)^-1 R^T k_zx

q(v) is not used: this basis has no natural parameters.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from .._backend.linalg import cholesky, triangular_inverse
from ..variational.bases import Basis, Weights
from ..variational.bases._mean_points import in_precision_of, quadratic, values
from ..variational.points import inducing_covariance
from ..variational.projection import SMALLEST_VARIANCE
from .hybrid import prior_variance

# The start of R: "near zero" (appendix E), and not zero, where the gradient vanishes.
_FIRST_ROOT = 1e-2


@jax.custom_jvp
def clipped(var):
    """Variances clipped just above zero; the derivative is that of the exact variance."""
    return jnp.maximum(var, SMALLEST_VARIANCE)


@clipped.defjvp
def _(primals, tangents):
    return clipped(*primals), *tangents


def _first_weights(n_latent, n_inducing, n_mean_inducing):
    root = np.broadcast_to(_FIRST_ROOT * np.eye(n_inducing), (n_latent, n_inducing, n_inducing)).copy()
    return Weights(np.zeros((n_latent, n_mean_inducing)), root)


def _moments(kernel, factor, points, masks, weights, m, S, X, columns, needs_residual):
    Kzz = inducing_covariance(kernel, points.Z, masks.Z)
    a = weights.a * masks.Z_mean
    root = weights.root * masks.Z[:, None]
    inverse = _inverse(Kzz, root)
    row_kernel, Z, Z_mean, whiten, weight = in_precision_of(
        X, (kernel, points.Z, points.Z_mean, inverse @ jnp.swapaxes(root, -1, -2), a)
    )
    T = whiten @ row_kernel(Z, X)
    mean = values(row_kernel, Z_mean, weight, X).astype(float)
    var = clipped((row_kernel.diag(X) - (T * T).sum(1)).astype(float))
    # S = (I + L^T B L)^-1 has the eigenvalues of (I + R^T Kzz R)^-1.
    trace = (inverse * inverse).sum((-1, -2)) - len(Kzz)
    log_det = 2.0 * jnp.log(jnp.diagonal(inverse, axis1=-2, axis2=-1)).sum(-1)
    Kgz = jnp.zeros((a.shape[1], len(Kzz)))
    mean_part = quadratic(kernel, points, a, jnp.zeros(root.shape[:2]), Kgz, columns)
    return mean, var, 0.5 * (mean_part + (trace - log_det).sum()), None, None


def _inverse(Kzz, root):
    """Inverse Cholesky factors of I + R^T Kzz R: (K, M, M)."""
    inner = jnp.eye(len(Kzz), dtype=Kzz.dtype) + jnp.swapaxes(root, -1, -2) @ Kzz @ root
    return triangular_inverse(cholesky(inner))


def _prediction_factors(kernel, points, masks, weights, q, jitter):
    root = weights.root * masks.Z[:, None]
    inverse = _inverse(inducing_covariance(kernel, points.Z, masks.Z), root)
    whiten = inverse @ jnp.swapaxes(root, -1, -2)
    return jnp.zeros_like(q.mean), whiten, jnp.zeros_like(q.cov), jnp.zeros(())


DECOUPLED = Basis(
    natural=False,
    first_weights=_first_weights,
    moments=_moments,
    prediction_factors=_prediction_factors,
    change_of_mean=None,
    metric=prior_variance,
    metric_matrix=None,
    mean_on_inducing=True,
)
