"""A predictive standard deviation of y that varies with X more than the Gaussian process's own.

A Gaussian process with one noise and one amplitude has a predictive variance that depends on the places of the rows,
but not on their targets: it is too large where y is smooth or exact, and too small where y is rough or noisy.
Leave-one-out errors show this. A second Gaussian process is fitted to the logarithms of their squares. It gives a
factor of the variance at every x, for latent variance and noise alike, and the standardised errors are a mixture of
normals (`errors`),

    y | x  =  m(x) + sqrt(exp(d(x)) (v(x) + s^2)) e,    e ~ sum_k w_k N(c_k, b_k^2)

(the mean and the dispersion of y as two models: Smyth 1989, "Generalized linear models with varying
dispersion"; the errors' process: Goldberg, Williams and Bishop 1998). Wide normals, those of gross errors, may lack the
factor exp(d(x)). The mean of y does not change. The standard deviation of the latent functions is that of the same
distribution without the noise and gross errors. Few rows leave the noise open: there e is Student-t.

In gaps between the rows, and beyond them, v(x) is larger than at any left-out row. No error tells about this excess, so
it is added without the factor.

Joint draws of the latent functions have one scale b_k in all rows, as those of a multivariate Student-t (Shah, Wilson
and Ghahramani 2014), so they are as smooth as those of the process. Drawn targets have a component of their own in
every row, so a draw has outliers as the data have.
"""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from .._backend.types import Floats
from .errors import MixtureErrors, StudentErrors
from .posterior import Posterior

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
    errors : MixtureErrors or StudentErrors
        The distribution of y given its mean and squared scale.
    largest : ndarray of shape (T, 1)
        The latent variance up to which the factor holds.
    least : ndarray of shape (T, 1)
        The least variance of y, where it is rounded.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import svgp
    >>> from skgp_natgrad.prediction.errors import MixtureErrors
    >>> Z, nothing = np.zeros((1, 1)), np.zeros((1, 0))
    >>> posterior = svgp.Posterior(Z, Z[:0], np.ones((1, 1)), nothing, None, None, np.zeros((1, 1)))
    >>> errors = MixtureErrors(np.array([[0.9, 0.1]]), np.zeros((1, 2)), np.array([[1.0, 4.0]]))
    >>> svgp.Dispersion(RBF(), posterior, errors, largest=np.array([[1.0]])).errors.inflation
    array([[2.5]])
    """

    kernel: Kernel
    posterior: Posterior
    errors: MixtureErrors | StudentErrors
    largest: np.ndarray
    least: np.ndarray = np.zeros((1, 1))

    @property
    def error_df(self) -> Floats:
        """Degrees of freedom (T,): infinite if the errors are normal, NaN if they are a mixture of normals."""
        if isinstance(self.errors, StudentErrors):
            return self.errors.df[:, 0]
        return np.where(self.errors.is_normal, np.inf, np.nan)

    def latent(self, log_factor: Floats, var: Floats, xp: ModuleType = np) -> Floats:
        """The squared scale of the latent functions (T, B), from their variances and the logarithm of the factor."""
        seen = xp.minimum(var, self.largest)
        return factor(log_factor, xp) * seen + (var - seen)

    def total(
        self, log_factor: Floats, noise: Floats, var: Floats, known: Floats | None = None, xp: ModuleType = np
    ) -> Floats:
        """The squared scale of y (T, B). Known variances of the noise are added to its variance as they are."""
        found = self.latent(log_factor, var, xp) + factor(log_factor, xp) * noise
        found = xp.maximum(found, self.least / self.errors.inflation)
        return found if known is None else found + known / self.errors.inflation

    def of_rows(self, noise: Floats, var: Floats, known: Floats | None = None) -> Floats | None:
        """What the errors are `given`: the squared scale of y (T, B) without the factor, or None."""
        if getattr(self.errors, "undispersed", None) is None:
            return None
        return var + noise if known is None else var + noise + known / self.errors.inflation
