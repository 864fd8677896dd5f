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

In gaps between the rows, and beyond them, v(x) is larger than it was for any row that was left out. Of what
exceeds that no error has spoken: it is added without the factor.

Joint draws of the latent functions are multivariate Student-t (Shah, Wilson and Ghahramani 2014), as smooth as
those of the process. Targets have a mixing factor of their own in every row, so that a draw has outliers as the
data have them.
"""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import t
from scipy import special
from sklearn.gaussian_process.kernels import Kernel

from .._backend.types import Floats
from ..likelihoods import LocationLikelihood
from .posterior import Posterior

# Degrees of freedom of a Student-t variable that stands for a normal one: with more, rounding of the density grows.
NORMAL_DF = 1e7


class Dispersion(NamedTuple):
    """A factor of the predictive variance, as a function of X.

    Attributes
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
    posterior : Posterior
        Its latent mean is d(x) of each target. There is no variance.
    df : ndarray of shape (T, 1)
        Degrees of freedom, above 2; `NORMAL_DF` for normal errors.
    largest : ndarray of shape (T, 1)
        The latent variance up to which the factor holds.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import svgp
    >>> Z, nothing = np.zeros((1, 1)), np.zeros((1, 0))
    >>> posterior = svgp.Posterior(Z, Z[:0], np.ones((1, 1)), nothing, None, None, np.zeros((1, 1)))
    >>> svgp.Dispersion(RBF(), posterior, df=np.array([[4.0]]), largest=np.array([[1.0]])).inflation
    array([[2.]])
    """

    kernel: Kernel
    posterior: Posterior
    df: np.ndarray
    largest: np.ndarray

    @property
    def inflation(self) -> Floats:
        """The variance of a Student-t variable of scale one: (T, 1)."""
        return 1.0 / _share(self.df)

    @property
    def overlap(self) -> Floats:
        """The covariance of two normal variables times that, if each is mixed to a Student-t by itself: (T, 1)."""
        half = 0.5 * self.df
        return half * np.exp(2.0 * (special.gammaln(half - 0.5) - special.gammaln(half)))

    def latent(self, log_factor: Floats, var: Floats, xp: ModuleType = np) -> Floats:
        """The squared scale of the latent functions (T, B), from their variances and the logarithm of the factor."""
        seen = xp.minimum(var, self.largest)
        return xp.exp(log_factor) * seen + (var - seen)

    def total(
        self, log_factor: Floats, noise: Floats, var: Floats, known: Floats | None = None, xp: ModuleType = np
    ) -> Floats:
        """The squared scale of y (T, B). Known variances of the noise are added to its variance as they are."""
        found = self.latent(log_factor, var, xp) + xp.exp(log_factor) * noise
        return found if known is None else found + known * _share(self.df)

    def mixing(self, shape: tuple[int, ...], random_state: np.random.RandomState) -> Floats:
        """Draws of what Gaussian draws are multiplied by, so that they are Student-t; an array for each target."""
        half = 0.5 * self.df.reshape((-1,) + (1,) * len(shape))
        half = np.broadcast_to(half, (len(self.df), *shape))
        return np.sqrt(half / random_state.gamma(half))


def _share(df):
    """(df - 2) / df."""
    return 1.0 - 2.0 / df


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
        return t.logpdf(y, self.df, mean, jnp.sqrt(var))

    def predictive_moments(self, mean, var):
        return mean, var / _share(self.df)

    def predictive_cdf(self, mean, var, y):
        return special.stdtr(self.df, (y - mean) / np.sqrt(np.maximum(var, np.finfo(float).tiny)))

    def predictive_quantile(self, mean, var, level):
        return mean + special.stdtrit(self.df, level) * np.sqrt(var)
