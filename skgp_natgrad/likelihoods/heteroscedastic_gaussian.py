"""The Gaussian likelihood whose noise depends on X."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from .._backend.linalg import normal_nodes
from . import _distribution
from ._base import PREDICTION_NODES, bounded_exp
from ._families import TwoLatentLikelihood, halves
from ._quadrature import log_expectation

_LOG_2PI = float(np.log(2.0 * np.pi))
# Initial noise variance, as a fraction of the variance of y.
_NOISE_SHARE = 0.1


class HeteroscedasticGaussian(TwoLatentLikelihood):
    """y = f + noise with Gaussian noise of variance exp(g): two latent functions per target.

    E[log p] has a closed form (Lazaro-Gredilla and Titsias 2011, "Variational
    heteroscedastic Gaussian process regression").

    Examples
    --------
    >>> from skgp_natgrad.likelihoods import HeteroscedasticGaussian
    >>> HeteroscedasticGaussian()
    HeteroscedasticGaussian()
    """

    name = "heteroscedastic_gaussian"
    standardises = True
    mean_needs_variance = False

    def initial_latent(self, y, weight, n_classes):
        centred = y - np.average(y, axis=1, weights=weight)[:, None]
        var = np.average(centred**2, axis=1, weights=weight)
        return np.concatenate([np.zeros(len(y)), np.log(_NOISE_SHARE * np.where(var > 0.0, var, 1.0))])

    def without_offset(self, y, weight, offset):
        return y - offset[: len(y)], weight

    def log_prob(self, f, g, y):
        return -0.5 * (_LOG_2PI + g + (y - f) ** 2 * bounded_exp(-g))

    def conditional_moments(self, f, g):
        return f, bounded_exp(g)

    def expectation_each(self, mean, var, y):
        (f_mean, g_mean), (f_var, g_var) = halves(mean), halves(var)
        squared = (y - f_mean) ** 2 + f_var
        return -0.5 * (_LOG_2PI + g_mean + squared * bounded_exp(-g_mean + 0.5 * g_var))

    def log_density_each(self, mean, var, y):
        # Given g, y is Gaussian: one integral is left.
        (f_mean, g_mean), (f_var, g_var) = halves(mean), halves(var)
        squared, f_var = ((y - f_mean) ** 2)[..., None], f_var[..., None]

        def given_g(g):
            total = f_var + bounded_exp(g)
            return -0.5 * (_LOG_2PI + jnp.log(total) + squared / total)

        return log_expectation(given_g, g_mean, g_var)

    def training_log_density(self, mean, var, y):
        return self.log_predictive_density(mean, var, y)

    def predictive_mean(self, mean, var):
        return mean[: len(mean) // 2]

    def predictive_moments(self, mean, var):
        (f_mean, g_mean), (f_var, g_var) = halves(mean), halves(var)
        return f_mean, f_var + bounded_exp(g_mean + 0.5 * g_var)

    def predictive_cdf(self, mean, var, y):
        # Given g, y is normal.
        (f_mean, g_mean), (f_var, g_var) = np.split(mean, 2), np.split(var, 2)
        nodes, weights = normal_nodes(PREDICTION_NODES)
        noise = _distribution.bounded_exp(g_mean[..., None] + np.sqrt(g_var)[..., None] * nodes)
        return _distribution.normal_cdf(f_mean[..., None], f_var[..., None] + noise, y[..., None]) @ weights

    def latent_units(self, offset, scale):
        # exp(g) is a variance of y.
        offsets, scales = super().latent_units(offset, scale)
        return offsets + np.concatenate([0.0 * offset, 2.0 * np.log(scale)]), scales

    def sample(self, f, rng):
        f, g = (np.asarray(x) for x in halves(f))
        return f + np.sqrt(np.asarray(bounded_exp(g))) * rng.standard_normal(f.shape)
