"""How the predictive deviation of y varies with X, beyond what the Gaussian process says of it.

A Gaussian process with one noise, and one amplitude, for all X has a predictive variance that depends on
where other rows are, and not on their targets: where y is smooth or exact it is too wide, and where y is
rough or noisy too narrow. Leave-one-out errors tell the two apart. A second Gaussian process, of the
logarithms of their squares, gives a factor of the variance for every x, latent variance and noise alike,
and the standardised errors have a Student-t distribution,

    y | x  =  m(x) + sqrt(exp(d(x)) (v(x) + s^2)) t,    t ~ Student-t with df degrees of freedom

(the mean and the dispersion of y as two models: Smyth 1989, "Generalized linear models with varying
dispersion"; the errors' process: Goldberg, Williams and Bishop 1998). The mean of y is not touched. The
latent functions have the deviation of the same distribution, without the noise.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from scipy.special import stdtr, stdtrit
from sklearn.gaussian_process.kernels import Kernel

from .._backend.types import Floats
from ..likelihoods import LocationLikelihood
from .posterior import Posterior


class Dispersion(NamedTuple):
    """A factor of the predictive variance, as a function of X.

    Attributes
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
    posterior : Posterior
        Its latent mean is d(x) of each target. There is no variance.
    df : ndarray of shape (T, 1)
        Degrees of freedom, above 2.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import svgp
    >>> Z, nothing = np.zeros((1, 1)), np.zeros((1, 0))
    >>> posterior = svgp.Posterior(Z, Z[:0], np.ones((1, 1)), nothing, None, None, np.zeros((1, 1)))
    >>> svgp.Dispersion(RBF(), posterior, df=np.array([[4.0]])).inflation
    array([[2.]])
    """

    kernel: Kernel
    posterior: Posterior
    df: np.ndarray

    @property
    def inflation(self) -> Floats:
        """The variance of a Student-t variable of scale one: (T, 1)."""
        return self.df / (self.df - 2.0)


class StudentTotal(LocationLikelihood):
    """y = mean + sqrt(var) t, where t is Student-t, and ``var`` the squared scale of y, noise included.

    Parameters
    ----------
    df : array of shape (T, 1)
    """

    parameters = ("df",)

    def __init__(self, df):
        self.df = df

    def log_density_each(self, mean, var, y):
        half = 0.5 * (self.df + 1.0)
        normaliser = gammaln(half) - gammaln(0.5 * self.df) - 0.5 * jnp.log(self.df * jnp.pi * var)
        return normaliser - half * jnp.log1p((y - mean) ** 2 / (self.df * var))

    def predictive_moments(self, mean, var):
        return mean, var * self.df / (self.df - 2.0)

    def predictive_cdf(self, mean, var, y):
        return stdtr(self.df, (y - mean) / np.sqrt(np.maximum(var, np.finfo(float).tiny)))

    def predictive_quantile(self, mean, var, level):
        return mean + stdtrit(self.df, level) * np.sqrt(var)


def total(log_factor, noise, var, known=None, xp=np):
    """The squared scale of y (T, B): latent variance and noise times the factor; known noise is what it is."""
    each = xp.exp(log_factor) * (var + noise)
    return each if known is None else each + known


def mixing(df, shape, random_state):
    """Draws of what Gaussian draws are multiplied by, so that they are Student-t: (T, *shape)."""
    size = (len(df), *shape)
    half = np.broadcast_to(0.5 * np.reshape(df, (-1,) + (1,) * len(shape)), size)
    return np.sqrt(half / random_state.gamma(half))
