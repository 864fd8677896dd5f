"""The Student-t likelihood."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from scipy.special import stdtr

from .._backend.types import ArrayLike, Bounds
from ._base import LocationLikelihood

# Trapezoidal rules; their integrands are smooth whatever the ratio of scale to latent deviation,
# where an integrand over f has a peak that a fixed rule misses.
_FRULLANI = np.arange(-44.0, 4.5, 0.5)
_COARSE = np.linspace(-60.0, 6.0, 265)
_FINE = np.linspace(-1.0, 1.0, 33)
_UNIT = np.linspace(-1.0, 1.0, 400)
_REACH = 70.0
# Beyond this many standard deviations (of the latent function and the noise), the density is the tail of the noise
# alone.
_FAR = 1e7


class StudentT(LocationLikelihood):
    """y = f + noise with Student-t noise: outliers do not bend the fit.

    Parameters
    ----------
    df : float or array of shape (n_outputs,), default=3.0
        Degrees of freedom. At or below 2 the variance of the noise is infinite, and so is the standard deviation of
        ``predict(..., return_std=True)``.
    scale : float or array of shape (n_outputs,), default=0.3
        Initial scale of the noise, in the units of the (normalised) target.
    df_bounds : pair of floats or "fixed", default="fixed"
        Bounds of ``df`` while training.
    scale_bounds : pair of floats or "fixed", default=(1e-3, 1e2)
        Bounds of ``scale`` while training. If y is only centred, both defaults are multiplied by its standard
        deviation.

    Examples
    --------
    >>> from skgp_natgrad.likelihoods import StudentT
    >>> StudentT(df=4.0)
    StudentT(df=4.0)
    """

    name = "student_t"
    powers = {"scale": 1}
    parameters = ("df", "scale")

    def __init__(
        self,
        df: ArrayLike = 3.0,
        scale: ArrayLike = 0.3,
        df_bounds: Bounds = "fixed",
        scale_bounds: Bounds = (1e-3, 1e2),
    ) -> None:
        self.df = df
        self.scale = scale
        self.df_bounds = df_bounds
        self.scale_bounds = scale_bounds

    def log_prob(self, f, y):
        half = 0.5 * (self.df + 1.0)
        normaliser = gammaln(half) - gammaln(0.5 * self.df) - 0.5 * jnp.log(self.df * jnp.pi) - jnp.log(self.scale)
        return normaliser - half * jnp.log1p(((y - f) / self.scale) ** 2 / self.df)

    def expectation_each(self, mean, var, y):
        # By Frullani, log(1 + z^2 / a) = int (1 - exp(-z^2 t / a)) exp(-t) dt / t, whose
        # expectation under a Gaussian z is elementary; the rule is in log(t).
        t = np.exp(_FRULLANI)
        a = self.df * self.scale**2
        ratio, shift = ((x / a)[..., None] * t for x in (var, (y - mean) ** 2))
        survival = -jnp.expm1(-0.5 * jnp.log1p(2.0 * ratio) - shift / (1.0 + 2.0 * ratio))
        log_term = survival @ (np.exp(-t) * (_FRULLANI[1] - _FRULLANI[0]))
        return self.log_prob(mean, mean) - 0.5 * (self.df + 1.0) * log_term

    def log_density_each(self, mean, var, y):
        away = jnp.abs(y - mean)
        far = away > _FAR * jnp.sqrt(var + self.scale**2)
        # The density at its mode times a power of the distance, whose square may overflow.
        power = jnp.log(jnp.where(far, away, 1.0)) - jnp.log(self.scale) - 0.5 * jnp.log(self.df)
        tail = self.log_prob(mean, mean) - (self.df + 1.0) * power
        return jnp.where(far, tail, self._log_density_near(mean, var, jnp.where(far, mean, y)))

    def _log_density_near(self, mean, var, y):
        # A Student-t is a Gaussian whose precision has a Gamma density: integrate over the
        # logarithm of the precision, by a rule that is fine around the integrand's mode.
        log_integrand = self._log_mixture(mean, var, y)
        mode = jnp.asarray(_COARSE)[jnp.argmax(log_integrand(_COARSE + 0.0 * mean[..., None]), axis=-1)]
        reach = _COARSE[1] - _COARSE[0]
        for _ in range(4):
            grid = mode[..., None] + reach * _FINE
            best = jnp.argmax(log_integrand(grid), axis=-1)
            mode = jnp.take_along_axis(grid, best[..., None], axis=-1)[..., 0]
            reach = reach * (_FINE[1] - _FINE[0])
        # The integral does not depend on where its nodes are.
        mode, width = jax.lax.stop_gradient((mode, self._mode_width(mean, var, y, mode)[..., None]))
        u = jnp.arcsinh(_REACH / width) * _UNIT
        weight = width * jnp.cosh(u) * jnp.arcsinh(_REACH / width) * (_UNIT[1] - _UNIT[0])
        return jax.scipy.special.logsumexp(log_integrand(mode[..., None] + width * jnp.sinh(u)), b=weight, axis=-1)

    def _log_mixture(self, mean, var, y):
        """The integrand's logarithm, as a function of log precisions (K, B, nodes)."""
        half_df, squared = (jnp.asarray(x)[..., None] for x in (0.5 * self.df, self.scale**2))
        normaliser = half_df * jnp.log(half_df) - gammaln(half_df)

        def log_integrand(t):
            t = jnp.minimum(t, 600.0)
            total = var[..., None] + squared * jnp.exp(-t)
            log_normal = -0.5 * (jnp.log(2.0 * jnp.pi * total) + (y - mean)[..., None] ** 2 / total)
            return normaliser + half_df * (t - jnp.exp(t)) + log_normal

        return log_integrand

    def _mode_width(self, mean, var, y, t):
        """One over the square root of the integrand's curvature at its mode, at most one."""
        noise = self.scale**2 * jnp.exp(-t)
        total = var + noise
        share = noise / total
        curvature = (
            0.5 * self.df * jnp.exp(t)
            + 0.5 * share * (1.0 - share)
            + 0.5 * (y - mean) ** 2 / total * share * (2.0 * share - 1.0)
        )
        return 1.0 / jnp.sqrt(jnp.maximum(curvature, 1.0))

    def noise_variance(self):
        # By NumPy where it can be: outside of a computation JAX has single precision.
        xp = jnp if any(isinstance(each, jax.Array) for each in (self.scale, self.df)) else np
        finite = self.df > 2.0
        return xp.where(finite, self.scale**2 * self.df / xp.where(finite, self.df - 2.0, 1.0), np.inf)

    def conditional_cdf(self, f, y):
        return stdtr(self.df, (y - f) / self.scale)

    def sample(self, f, rng):
        return f + self.scale * rng.standard_t(np.broadcast_to(self.df, np.shape(f)))
