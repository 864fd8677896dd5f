"""The distribution of y around its mean: a mixture of normals, or, where few rows left the noise open, Student-t.

With m and V the mean and the squared scale of y, noise included, both have the form y = m + sqrt(V) e, and the
distribution of e is the same at all rows.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm, t
from scipy import optimize, special

from ..likelihoods import LocationLikelihood

_LEAST = np.finfo(float).tiny
# Beyond so many deviations from its centre a normal has no probability that a double can hold.
_FARTHEST = 40.0


class StudentErrors(LocationLikelihood):
    """y = mean + sqrt(var) e, where e is Student-t, and ``var`` the squared scale of y.

    Parameters
    ----------
    df : array of shape (T, 1)
        Degrees of freedom, above 2.
    """

    parameters = ("df",)

    def __init__(self, df):
        self.df = df

    @property
    def inflation(self):
        """The variance of e: (T, 1)."""
        return 1.0 / (1.0 - 2.0 / self.df)

    def log_density_each(self, mean, var, y):
        return t.logpdf(y, self.df, mean, jnp.sqrt(var))

    def predictive_moments(self, mean, var):
        return mean, self.inflation * var

    def predictive_cdf(self, mean, var, y):
        return special.stdtr(self.df, (y - mean) / np.sqrt(np.maximum(var, _LEAST)))

    def predictive_quantile(self, mean, var, level):
        return mean + special.stdtrit(self.df, level) * np.sqrt(var)

    @property
    def inflation_of_latent(self):
        """The factor of the variance of the latent functions: (T, 1)."""
        return self.inflation

    @property
    def second_moments(self):
        """As of `MixtureErrors`."""
        return self.inflation, 0.0 * self.inflation

    def of_targets(self, deviations, latent, var, random_state):
        """Draws of y less its mean (T, B, S): see `Dispersion.of_targets`."""
        noise = np.sqrt(np.maximum(var - latent, 0.0))[..., None] * random_state.standard_normal(deviations.shape)
        return (deviations + noise) * self.scales_of_latent(deviations.shape[1:], random_state)

    def scales_of_latent(self, shape, random_state):
        """Draws of the scale of latent functions: an array of the shape for each target."""
        half = np.broadcast_to(0.5 * self.df.reshape((-1,) + (1,) * len(shape)), (len(self.df), *shape))
        return np.sqrt(half / random_state.gamma(half))

    def mean_kept(self, latent, var):
        """The mean factor (T, 1) of the latent part of y."""
        half = 0.5 * self.df
        return np.sqrt(half) * np.exp(special.gammaln(half - 0.5) - special.gammaln(half))


class MixtureErrors(LocationLikelihood):
    """y = mean + sqrt(V) e, where e is one of some normals, and V the squared scale of y.

    V is ``var``. Where the deviation varies with X, that of gross errors need not: for some of the normals V is what
    the Gaussian process alone predicts, which the distribution is then `given`.

    Parameters
    ----------
    weights, centres, scales : array of shape (T, K)
        The probabilities, means and standard deviations of the normals; the mean of e is zero.
    undispersed : array of shape (T, K), or None
        One for each normal whose V is given, with a centre of zero, else zero. None if there are none.
    """

    parameters = ("weights", "centres", "scales", "undispersed")
    known = ("undispersed_var",)

    def __init__(self, weights, centres, scales, undispersed=None):
        self.weights, self.centres, self.scales, self.undispersed = weights, centres, scales, undispersed

    @property
    def is_normal(self):
        """Whether each target has one normal: (T,)."""
        return np.max(self.weights, axis=1) == 1.0

    @property
    def second_moments(self):
        """The factors of ``var`` and of the variance that is given in the variance of y: (T, 1) each."""
        given = 0.0 * self.weights if self.undispersed is None else self.undispersed
        each = self.weights * (self.scales**2 + self.centres**2)
        return tuple((each * part).sum(-1)[:, None] for part in (1.0 - given, given))

    @property
    def inflation(self):
        """The variance of e: (T, 1)."""
        return sum(self.second_moments)

    @property
    def inflation_of_latent(self):
        """The factor of the variance of the latent functions, which take no part in gross errors: (T, 1)."""
        given = 0.0 if self.undispersed is None else (self.weights * self.undispersed).sum(-1)[:, None]
        return self.second_moments[0] / (1.0 - given)

    def log_density_each(self, mean, var, y):
        V = var[..., None]
        if self.undispersed is not None:
            V = jnp.where(self.undispersed[:, None] > 0.0, self.rows[0][..., None], V)
        root = jnp.sqrt(V)
        z = ((y - mean)[..., None] / root - self.centres[:, None]) / self.scales[:, None]
        weights = self.weights[:, None] / (self.scales[:, None] * root)
        return jax.scipy.special.logsumexp(norm.logpdf(z), b=weights, axis=-1)

    def predictive_moments(self, mean, var):
        of_var, of_given = self.second_moments
        return mean, of_var * var if self.undispersed is None else of_var * var + of_given * self.rows[0]

    def predictive_cdf(self, mean, var, y):
        found = np.zeros(np.broadcast_shapes(np.shape(y), np.shape(var)))
        for w, c, s, V in self._normals(var):
            found += w * special.ndtr(((y - mean) / np.sqrt(np.maximum(V, _LEAST)) - c) / s)
        return found

    def predictive_quantile(self, mean, var, level):
        if self.undispersed is not None:
            return None
        found = [_quantile(*each, level) for each in zip(self.weights, self.centres, self.scales, strict=True)]
        return mean + np.array(found)[:, None] * np.sqrt(var)

    def _normals(self, var):
        """Of one normal after the other: its weights, centres and scales (T, 1) each, and V (T, B)."""
        for k in range(self.weights.shape[1]):
            parts = [part[:, k, None] for part in (self.weights, self.centres, self.scales)]
            is_given = None if self.undispersed is None else self.undispersed[:, k, None] > 0.0
            yield *parts, var if is_given is None else np.where(is_given, self.rows[0], var)

    # -- draws -----------------------------------------------------------------------------

    def of_targets(self, deviations, latent, var, random_state):
        """Draws of y less its mean (T, B, S): see `Dispersion.of_targets`."""
        latent, (which, centres, scales) = latent[..., None], self._drawn(deviations.shape[1:], random_state)
        V = np.broadcast_to(var[..., None], deviations.shape)
        if self.undispersed is not None:
            V = np.where(_of_each(self.undispersed, which) > 0.0, self.rows[0][..., None], V)
        kept = self._kept(scales, latent / V)
        rest = np.sqrt(np.maximum(scales**2 * V - kept**2 * latent, 0.0))
        return centres * np.sqrt(V) + kept * deviations + rest * random_state.standard_normal(deviations.shape)

    def scales_of_latent(self, shape, random_state):
        """Draws of the scale of latent functions: an array of the shape for each target."""
        scales = self._drawn(shape, random_state)[2]
        return scales * np.sqrt(self.inflation_of_latent / (self.weights * self.scales**2).sum(-1)[:, None])[..., None]

    def mean_kept(self, latent, var):
        """The mean factor (T, B) of the latent part of y, of squared scale ``latent``."""
        return sum(w * self._kept(s, latent / V) for w, _, s, V in self._normals(var))

    def _drawn(self, shape, random_state):
        """The positions, centres and scales of normals that are drawn: an array of the shape for each target each."""
        which = np.stack([random_state.choice(len(each), shape, p=each / each.sum()) for each in self.weights])
        return which, _of_each(self.centres, which), _of_each(self.scales, which)

    @staticmethod
    def _kept(scales, share):
        """The factor of the latent part, which is this share of V, in normals of these scales.

        Narrow normals are those of noise that is no normal: the latent part stays, unless the normal is narrower.
        """
        return np.where(scales < 1.0, np.minimum(1.0, scales / np.sqrt(np.maximum(share, _LEAST))), scales)


def _of_each(values, which):
    """The values (T, K) at positions (T, ...)."""
    return np.stack([each[k] for each, k in zip(values, which, strict=True)])


def _quantile(weights, centres, scales, level):
    """The quantile of a mixture of normals (K,)."""
    used = weights > 0.0
    weights, centres, scales = weights[used], centres[used], scales[used]
    if len(weights) == 1:
        return centres[0] + scales[0] * special.ndtri(level)
    # The lower tail has more digits.
    sign, level = (1.0, level) if level <= 0.5 else (-1.0, 1.0 - level)
    ends = np.min(sign * centres - _FARTHEST * scales), np.max(sign * centres + _FARTHEST * scales)
    return sign * optimize.brentq(
        lambda z: weights @ special.ndtr((z - sign * centres) / scales) - level, *ends, xtol=1e-14
    )
