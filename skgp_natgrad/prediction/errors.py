"""The distribution of y around its mean: Student-t, or noise that is a mixture of normals; each with a wide part.

A mixture is the distribution of the noise alone, and the latent functions stay normal: of noise of variance s^2,

    y  =  m + sqrt(v) z + s u,    u ~ sum_k w_k N(c_k, h^2)

so that y, too, is a mixture of normals, with centres m + s c_k and variances v + s^2 h^2. Flat, skew and bimodal noise
has such a form: a density on evenly spaced centres c_k, smoothed by the bandwidth h.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm, t
from scipy import special

from ..likelihoods import LocationLikelihood

_LEAST = np.finfo(float).tiny


def variance_share(df):
    """(df - 2) / df: the squared scale of a Student-t variable as a share of its variance."""
    return 1.0 - 2.0 / df


class StudentTotal(LocationLikelihood):
    """y = mean + sqrt(var) t, where t is Student-t, and ``var`` the squared scale of y, noise included.

    `given` the variances of a wide part, y is instead normal around the mean with the probability ``share``.

    Parameters
    ----------
    df, share : array of shape (T, 1)
        Degrees of freedom, and the probability of the wide part.
    """

    parameters = ("df", "share")
    known = ("wide",)

    def __init__(self, df, share):
        self.df, self.share = df, share

    def log_density_each(self, mean, var, y):
        found = self._log_density_of_most(mean, var, y)
        if self.rows is None:
            return found
        of_wide = norm.logpdf(y, mean, jnp.sqrt(self.rows[0])) + jnp.log(self.share)
        return jnp.logaddexp(found + jnp.log1p(-self.share), of_wide)

    def predictive_moments(self, mean, var):
        found = self._variance_of_most(var)
        return mean, found if self.rows is None else (1.0 - self.share) * found + self.share * self.rows[0]

    def predictive_cdf(self, mean, var, y):
        found = self._cdf_of_most(mean, var, y)
        if self.rows is None:
            return found
        of_wide = special.ndtr((y - mean) / np.sqrt(np.maximum(self.rows[0], _LEAST)))
        return found + self.share * (of_wide - found)

    def predictive_quantile(self, mean, var, level):
        return None if self.rows is not None else mean + special.stdtrit(self.df, level) * np.sqrt(var)

    # -- without the wide part -------------------------------------------------------------

    def _log_density_of_most(self, mean, var, y):
        return t.logpdf(y, self.df, mean, jnp.sqrt(var))

    def _variance_of_most(self, var):
        return var / variance_share(self.df)

    def _cdf_of_most(self, mean, var, y):
        return special.stdtr(self.df, (y - mean) / np.sqrt(np.maximum(var, _LEAST)))


class MixtureTotal(StudentTotal):
    """As `StudentTotal`, but the noise is a mixture where the bandwidth is below one.

    It has to be `given` the variances of the wide part, and those of the noise, which are part of ``var``.

    Parameters
    ----------
    df, share : array of shape (T, 1)
    weights, centres : array of shape (T, K)
        Those of the normal components; the centres are in standard deviations of the noise.
    bandwidth : array of shape (T, 1)
        Their standard deviation; one for a target whose errors are Student-t.
    """

    parameters = ("df", "share", "weights", "centres", "bandwidth")
    known = ("wide", "noise")

    def __init__(self, df, share, weights, centres, bandwidth):
        super().__init__(df, share)
        self.weights, self.centres, self.bandwidth = weights, centres, bandwidth

    @property
    def second_moment(self):
        """The variance of u (T, 1); one where the errors are Student-t."""
        return self.bandwidth**2 + (self.weights * self.centres**2).sum(-1)[:, None]

    def _log_density_of_most(self, mean, var, y):
        z, deviation = self._standardised(mean, var, y, jnp)
        found = jax.scipy.special.logsumexp(norm.logpdf(z), b=self.weights[:, None, :], axis=-1)
        found = found - jnp.log(deviation[..., 0])
        return jnp.where(self.bandwidth < 1.0, found, super()._log_density_of_most(mean, var, y))

    def _variance_of_most(self, var):
        return super()._variance_of_most(var) + self.rows[1] * (self.second_moment - 1.0)

    def _cdf_of_most(self, mean, var, y):
        z, _ = self._standardised(mean, var, y, np)
        found = (self.weights[:, None, :] * special.ndtr(z)).sum(-1)
        return np.where(self.bandwidth < 1.0, found, super()._cdf_of_most(mean, var, y))

    def _standardised(self, mean, var, y, xp):
        """y in each component's deviations from its centre (T, B, K), and these deviations (T, B, 1)."""
        noise = self.rows[1]
        deviation = xp.sqrt(xp.maximum(var - noise * (1.0 - self.bandwidth**2), _LEAST))[..., None]
        away = (y - mean)[..., None] - self.centres[:, None, :] * xp.sqrt(noise)[..., None]
        return away / deviation, deviation
