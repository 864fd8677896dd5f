"""The Student-t likelihood."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from ._base import PREDICTION_NODES, LocationLikelihood

# The trapezoidal rule in log(precision) over this range, which holds the Gamma density and
# the values that a far outlier prefers.
_LOG_PRECISION = (-60.0, 6.0)


class StudentT(LocationLikelihood):
    """y = f + noise with Student-t noise: outliers do not bend the fit.

    Parameters
    ----------
    df : float or array of shape (n_outputs,), default=3.0
        Degrees of freedom. Below or at 2 the noise has no variance, and
        ``predict(..., return_std=True)`` says so with an infinite one.
    scale : float or array of shape (n_outputs,), default=0.3
        Initial scale of the noise, in the units of the (normalised) target.
    df_bounds : pair of floats or "fixed", default="fixed"
        Bounds of ``df`` while training.
    scale_bounds : pair of floats or "fixed", default=(1e-3, 1e2)
        Bounds of ``scale`` while training.

    Examples
    --------
    >>> from skgp_natgrad.likelihoods import StudentT
    >>> StudentT(df=4.0)
    StudentT(df=4.0)
    """

    name = "student_t"
    parameters = ("df", "scale")

    def __init__(self, df=3.0, scale=0.3, df_bounds="fixed", scale_bounds=(1e-3, 1e2)):
        self.df = df
        self.scale = scale
        self.df_bounds = df_bounds
        self.scale_bounds = scale_bounds

    def log_prob(self, f, y):
        half = 0.5 * (self.df + 1.0)
        normaliser = gammaln(half) - gammaln(0.5 * self.df) - 0.5 * jnp.log(self.df * jnp.pi) - jnp.log(self.scale)
        return normaliser - half * jnp.log1p(((y - f) / self.scale) ** 2 / self.df)

    def log_density_each(self, mean, var, y):
        # A Student-t is a Gaussian whose precision has a Gamma density. Integrating the
        # precision is smooth whatever the ratio of scale to latent deviation, where the
        # integral over f has a peak that any fixed rule misses.
        t, spacing = np.linspace(*_LOG_PRECISION, 2 * PREDICTION_NODES, retstep=True)
        half_df = 0.5 * jnp.asarray(self.df)[..., None]
        log_gamma = half_df * jnp.log(half_df) - gammaln(half_df) + half_df * t - half_df * np.exp(t)
        total = var[..., None] + jnp.asarray(self.scale)[..., None] ** 2 * np.exp(-t)
        residual = (y - mean)[..., None]
        log_normal = -0.5 * (jnp.log(2.0 * jnp.pi * total) + residual**2 / total)
        return jax.scipy.special.logsumexp(log_gamma + log_normal, axis=-1) + float(np.log(spacing))

    def noise_variance(self):
        finite = self.df > 2.0
        return jnp.where(finite, self.scale**2 * self.df / jnp.where(finite, self.df - 2.0, 1.0), jnp.inf)

    def sample(self, f, rng):
        return f + self.scale * rng.standard_t(np.broadcast_to(self.df, np.shape(f)))
