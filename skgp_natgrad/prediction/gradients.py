"""Derivatives of the predicted mean and standard deviation in the columns of X."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .._backend.device import quick_jit
from .evaluate import over_chunks
from .posterior import latent_moments


@quick_jit
def _gradients(kernels, likelihood, posterior, X):
    """Derivatives (2, T, D, B) at the rows of ``X`` (B, D)."""

    def moments(X):
        mean, var = likelihood.predictive_moments(*latent_moments(kernels, posterior, X))
        # A row's prediction does not depend on other rows: the derivatives of the sums are those of the rows.
        return jnp.stack([mean.sum(-1), jnp.sqrt(var).sum(-1)])

    return jnp.moveaxis(jax.jacrev(moments)(X), -2, -1)


def gradients(kernels, likelihood, posterior, X):
    """Derivatives of the mean and of the standard deviation of y in each column: (2, T, D, N).

    Parameters
    ----------
    kernels : tuple of Kernel
    likelihood : RegressionLikelihood
    posterior : Posterior
    X : ndarray of shape (N, D)
    """
    model = jax.device_put((kernels, likelihood, posterior))
    return over_chunks(lambda rows: _gradients(*model, rows), X)
