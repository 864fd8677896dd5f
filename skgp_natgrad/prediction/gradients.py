"""Derivatives of predictions in the columns of X."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .._backend import placement
from .._backend.device import quick_jit
from .evaluate import over_chunks
from .posterior import latent_moments


def latent_mean(likelihood, mean, var):
    """Latent mean (1, K, B)."""
    return mean[None]


def target_moments(likelihood, mean, var):
    """Mean and standard deviation of y (2, T, B)."""
    y_mean, y_var = likelihood.predictive_moments(mean, var)
    return jnp.stack([y_mean, jnp.sqrt(y_var)])


def latent_deviation(likelihood, mean, var):
    """Mean and standard deviation of the latent functions (2, K, B)."""
    return jnp.stack([mean, jnp.sqrt(var)])


QUANTITIES = {function.__name__: function for function in (latent_mean, latent_deviation, target_moments)}


def _of_rows(function, kernels, likelihood, posterior, dispersion, X, offset, known):
    """Derivatives (..., D, B) of values (..., B) at the rows of ``X`` (B, D)."""

    def at_rows(X):
        mean, var = latent_moments(kernels, posterior, X)
        if dispersion is None:
            return likelihood.given(known), mean, var
        log_factor, _ = latent_moments((dispersion.kernel,), dispersion.posterior, X, with_variance=False)
        if function is latent_deviation:
            return None, mean, dispersion.latent(log_factor, var, jnp) * dispersion.errors.inflation_of_latent
        variances = likelihood.noise_variance(), var, known
        errors = dispersion.errors.given(dispersion.of_rows(*variances))
        return errors, mean, dispersion.total(log_factor, *variances, jnp)

    def totals(X):
        # A row's prediction does not depend on other rows: the derivatives of the sums are those of the rows.
        of_y, mean, var = at_rows(X)
        return function(of_y, mean if offset is None else mean + offset, var).sum(-1)

    return jnp.moveaxis(jax.jacrev(totals)(X), -2, -1)


_compiled = quick_jit(_of_rows, static_argnames="function")


def gradients(function, kernels, likelihood, posterior, dispersion, X, **rows):
    """Derivatives of one of the functions above in each column: (..., D, N).

    Parameters
    ----------
    function : callable
    kernels : tuple of Kernel
    likelihood : Likelihood
    posterior : Posterior
    dispersion : Dispersion or None
        With a JAX kernel.
    X : ndarray of shape (N, D)
    **rows : ndarray
        "offset" (K, N), added to the latent functions; "known" (P T, N), what else is known of the rows.
    """
    model = placement.current().replicated(
        (kernels, likelihood, posterior.read_by(with_variance=True), dispersion), now=True
    )

    def program(X, *values):
        given = dict(zip(rows, values, strict=True))
        return _compiled(function, *model, X, given.get("offset"), given.get("known"))

    return over_chunks(program, X, *rows.values())
