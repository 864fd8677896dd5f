"""The negative binomial likelihood."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from scipy.special import betainc

from .._backend.types import ArrayLike, Bounds
from . import _distribution
from ._base import bounded_exp
from ._families import CountLikelihood, draw_counts


class NegativeBinomial(CountLikelihood):
    """Counts of mean mu = exp(f) with a larger variance than Poisson counts.

    Var[y | f] = mu + dispersion mu^2, the form "NB2" of Cameron and Trivedi (1986); it
    is a Poisson count whose rate has a Gamma density, and at zero dispersion the
    `Poisson` likelihood. 1 / dispersion is the number of failures in the textbook form.

    Parameters
    ----------
    dispersion : float or array of shape (n_outputs,), default=0.5
        Initial dispersion.
    dispersion_bounds : pair of floats or "fixed", default=(1e-4, 1e3)
        Bounds of the dispersion while training.

    Examples
    --------
    >>> from skgp_natgrad.likelihoods import NegativeBinomial
    >>> NegativeBinomial(dispersion=2.0)
    NegativeBinomial(dispersion=2.0)
    """

    name = "negative_binomial"
    parameters = ("dispersion",)

    def __init__(self, dispersion: ArrayLike = 0.5, dispersion_bounds: Bounds = (1e-4, 1e3)) -> None:
        self.dispersion = dispersion
        self.dispersion_bounds = dispersion_bounds

    def log_prob(self, f, y):
        size = 1.0 / self.dispersion
        log_odds = f + jnp.log(self.dispersion)
        normaliser = gammaln(y + size) - gammaln(size) - gammaln(y + 1.0)
        return normaliser + y * log_odds - (y + size) * jax.nn.softplus(log_odds)

    def variance_coefficients(self):
        return 1.0, self.dispersion

    def conditional_cdf(self, f, y):
        success = 1.0 / (1.0 + self.dispersion * _distribution.bounded_exp(f))
        return np.where(y < 0, 0.0, betainc(1.0 / self.dispersion, np.floor(np.maximum(y, 0.0)) + 1.0, success))

    def sample(self, f, rng):
        size = 1.0 / np.asarray(self.dispersion)
        rate = np.asarray(bounded_exp(f)) * rng.gamma(np.broadcast_to(size, np.shape(f))) / size
        return draw_counts(rate, rng)
