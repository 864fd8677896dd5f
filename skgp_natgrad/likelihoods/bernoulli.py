"""The Bernoulli likelihood of two classes."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logit, ndtri

from ._base import ScalarLikelihood
from ._families import ClassLikelihood
from ._quadrature import expectation, log_expectation, log_ndtr

LINKS = ("probit", "logit")


class Bernoulli(ClassLikelihood, ScalarLikelihood):
    """Two classes: p(y = 1 | f) = link(f), one latent function.

    Parameters
    ----------
    link : {"probit", "logit"}, default="probit"
        The normal or the logistic distribution function.

    Examples
    --------
    >>> from skgp_natgrad.likelihoods import Bernoulli
    >>> Bernoulli(link="logit")
    Bernoulli(link='logit')
    """

    name = "bernoulli"
    options = ("link",)

    def __init__(self, link: Literal["probit", "logit"] = "probit") -> None:
        self.link = link

    def n_latent(self, n_targets, n_classes):
        if n_classes != 2:
            raise ValueError(
                f'likelihood="bernoulli" is for two classes, but y has {n_classes}; use "softmax" or "robust_max".'
            )
        return 1

    def best_constant(self, y, weight, lower, upper):
        return self._entropy(y, weight)

    def value_and_bounds(self, n_targets):
        if self.link not in LINKS:
            raise ValueError(f"likelihood Bernoulli(link={self.link!r}): link must be one of {', '.join(LINKS)}.")
        return super().value_and_bounds(n_targets)

    def _log_link(self, f):
        return log_ndtr(f) if self.link == "probit" else jax.nn.log_sigmoid(f)

    def log_prob(self, f, y):
        return self._log_link((2.0 * y - 1.0) * f)

    def expectation_each(self, mean, var, y):
        return expectation(self._log_link, (2.0 * y - 1.0) * mean, jnp.sqrt(var))

    def _log_proba(self, mean, var):
        """log E[link(f)], elementwise."""
        if self.link == "probit":
            return log_ndtr(mean / jnp.sqrt(1.0 + var))
        # Far out the integrand's peak is beyond fixed nodes.
        return log_expectation(self._log_link, mean, var)

    def latent_of(self, p):
        # Of a function of unit variance; the logistic function's average is about that of MacKay (1992).
        if self.link == "probit":
            return np.array([ndtri(p[1]) * np.sqrt(2.0)])
        return np.array([logit(p[1]) * np.sqrt(1.0 + 0.125 * np.pi)])

    def log_class_probabilities(self, mean, var):
        return jnp.concatenate([self._log_proba(-mean, var), self._log_proba(mean, var)])

    def conditional_probabilities(self, f):
        return jnp.exp(jnp.stack([self._log_link(-f[0]), self._log_link(f[0])]))
