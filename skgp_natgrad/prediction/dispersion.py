"""A predictive standard deviation of y that varies with X more than the Gaussian process's own.

A Gaussian process with one noise and one amplitude has a predictive variance that depends on the places of the rows,
but not on their targets: it is too large where y is smooth or exact, and too small where y is rough or noisy.
Leave-one-out errors show this. A second Gaussian process is fitted to the logarithms of their squares. It gives a
factor of the variance at every x, for latent variance and noise alike, and the standardised errors have a Student-t
distribution,

    y | x  =  m(x) + sqrt(exp(d(x)) (v(x) + s^2)) t,    t ~ Student-t with df degrees of freedom

(the mean and the dispersion of y as two models: Smyth 1989, "Generalized linear models with varying
dispersion"; the errors' process: Goldberg, Williams and Bishop 1998). The mean of y does not change. The standard
deviation of the latent functions is that of the same distribution without the noise.

Errors whose tails are light, or that are skew, have noise of another distribution: a mixture of normals on an even grid
(`errors`), and df is then infinite. They have a wide part: with probability ``share`` the error of y is normal instead,
and its variance is ``spread`` times v(x) + s^2, without the factor.

In gaps between the rows, and beyond them, v(x) is larger than at any left-out row. No error tells about this excess, so
it is added without the factor.

Joint draws of the latent functions are multivariate Student-t (Shah, Wilson and Ghahramani 2014), as smooth as
those of the process. Drawn targets have an independent mixing factor in every row, so a draw has outliers as the data
have.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from scipy import special
from sklearn.gaussian_process.kernels import Kernel

from .._backend.types import Floats
from .errors import MixtureTotal, StudentTotal, variance_share
from .posterior import Posterior

# Degrees of freedom of a Student-t variable that stands for a normal one: with more, rounding of the density grows.
NORMAL_DF = 1e7
# Largest logarithm of the factor, and minus the least: a process with a linear function goes on beyond its rows, where
# deviations stay positive and finite.
_LARGEST = 18.0


def factor(log_factor: Floats, xp: ModuleType = np) -> Floats:
    """The factor of the variance from its logarithm."""
    return xp.exp(xp.clip(log_factor, -_LARGEST, _LARGEST))


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
    share, spread : ndarray of shape (T, 1), or None
        Probability of the wide part of the errors, and its variance as a multiple of that of the process, noise
        included; None where no target has one.
    least : ndarray of shape (T, 1)
        The least variance of y, where it is rounded.
    weights, centres, bandwidth : ndarrays of shapes (T, K), (T, K) and (T, 1), or None
        The distribution of the noise: see `MixtureTotal`; None where no target has one.

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
    share: np.ndarray | None = None
    spread: np.ndarray | None = None
    least: np.ndarray = np.zeros((1, 1))
    weights: np.ndarray | None = None
    centres: np.ndarray | None = None
    bandwidth: np.ndarray | None = None

    @property
    def errors(self) -> StudentTotal:
        """The distribution of y given its mean and squared scale, and `of_rows`."""
        of_all = self.df, 0.0 * self.df if self.share is None else self.share
        if self.weights is None:
            return StudentTotal(*of_all)
        return MixtureTotal(*of_all, self.weights, self.centres, self.bandwidth)

    @property
    def error_df(self) -> Floats:
        """Degrees of freedom (T, 1): infinite if the errors are normal, NaN if they are a mixture of normals."""
        is_mixture = np.zeros(self.df.shape, bool) if self.share is None else self.share > 0.0
        return np.where(self.df < NORMAL_DF, self.df, np.where(is_mixture, np.nan, np.inf))

    @property
    def inflation(self) -> Floats:
        """The variance of a Student-t variable of scale one: (T, 1)."""
        return 1.0 / variance_share(self.df)

    @property
    def overlap(self) -> Floats:
        """The factor of the covariance of two normal variables that are mixed to errors independently: (T, 1)."""
        half = 0.5 * self.df
        of_most = half * np.exp(2.0 * (special.gammaln(half - 0.5) - special.gammaln(half)))
        return of_most if self.share is None else (1.0 - self.share) ** 2 * of_most

    def of_rows(
        self, log_factor: Floats, noise: Floats, var: Floats, known: Floats | None = None, xp: ModuleType = np
    ) -> Floats | None:
        """What the errors are `given`: variances of the wide part (T, B) and, of mixtures, of the noise; or None."""
        if self.share is None:
            return None
        wide = self.spread * (var + noise)
        wide = wide if known is None else wide + known
        return wide if self.weights is None else xp.concatenate([wide, factor(log_factor, xp) * noise])

    def latent(self, log_factor: Floats, var: Floats, xp: ModuleType = np) -> Floats:
        """The squared scale of the latent functions (T, B), from their variances and the logarithm of the factor."""
        seen = xp.minimum(var, self.largest)
        return factor(log_factor, xp) * seen + (var - seen)

    def total(
        self, log_factor: Floats, noise: Floats, var: Floats, known: Floats | None = None, xp: ModuleType = np
    ) -> Floats:
        """The squared scale of y (T, B). Known variances of the noise are added to its variance as they are."""
        found = self.latent(log_factor, var, xp) + factor(log_factor, xp) * noise
        found = xp.maximum(found, self.least * variance_share(self.df))
        return found if known is None else found + known * variance_share(self.df)

    def noise(
        self, log_factor: Floats, noise: Floats, known: Floats | None, shape: tuple[int, ...], random_state: Any
    ) -> Floats:
        """Draws of the noise (T, B, S), before they are multiplied by those of `mixing`."""
        total = self.total(log_factor, noise, np.zeros(shape[:2]), known)
        if self.weights is None:
            return np.sqrt(total)[..., None] * random_state.standard_normal(shape)
        own = factor(log_factor) * noise
        ends, at = np.cumsum(self.weights, axis=1)[:, :-1], random_state.uniform(size=shape)
        which = [np.searchsorted(*each, side="right") for each in zip(ends, at, strict=True)]
        centres = np.stack([each[index] for each, index in zip(self.centres, which, strict=True)])
        rest = np.sqrt(total - own * (1.0 - self.bandwidth**2))
        return centres * np.sqrt(own)[..., None] + rest[..., None] * random_state.standard_normal(shape)

    def mixing(self, shape: tuple[int, ...], random_state: np.random.RandomState) -> Floats:
        """Draws of the factors that make Student-t draws of Gaussian ones; an array for each target."""
        half = 0.5 * self.df.reshape((-1,) + (1,) * len(shape))
        half = np.broadcast_to(half, (len(self.df), *shape))
        return np.sqrt(half / random_state.gamma(half))

    def mixed(self, deviations: Floats, wide: Floats, random_state: np.random.RandomState) -> Floats:
        """The Student-t draws (T, B, S) with some replaced by draws of the wide part, of variances (T, B)."""
        is_wide = random_state.uniform(size=deviations.shape) < self.share[..., None]
        return np.where(is_wide, np.sqrt(wide)[..., None] * random_state.standard_normal(deviations.shape), deviations)
