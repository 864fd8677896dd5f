"""The base class of the likelihoods of class labels."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from scipy.special import xlogy

from .._backend.repeated import common_weight
from .._backend.types import Array, Floats, NDArray
from ._base import Likelihood


class ClassLikelihood(Likelihood):
    """A likelihood of a class label; y holds the label's position, 0 to C - 1.

    Attributes
    ----------
    ordered : bool
        Whether the classes are ordered levels; the argument ``levels``, if given, or the type of y sets the order.
    """

    tasks = ("classification",)
    ordered: ClassVar[bool] = False

    def coarser(self) -> ClassLikelihood:
        """A faster approximation of the likelihood, for values that need not be exact."""
        return self

    def _entropy(self, y, weight):
        """The mean log-likelihood of the classes' own frequencies."""
        p = np.bincount(y[0].astype(int), weights=weight) / weight.sum()
        return float(xlogy(p, p).sum())

    def latent_of_base_rates(self, y: Floats, weight: Floats, n_classes: int) -> Floats:
        """Prior means (K,) under which the class probabilities are the class frequencies, with one extra row per class.

        Without them a rare class would need a kernel of large amplitude. They assume latent functions of small
        variance. Under a wide prior they have little effect, so classes that hardly overlap are not pulled towards the
        frequent one, as with means that grow with the prior standard deviation.

        Parameters
        ----------
        y : ndarray of shape (1, N)
        weight : ndarray of shape (N,)
        n_classes : int
        """
        total = np.bincount(y[0].astype(int), weights=weight, minlength=n_classes) + common_weight(weight)
        return self._latent_of(total / total.sum())

    def _latent_of(self, p):
        """As `latent_of_base_rates`, from probabilities (C,)."""
        return np.log(p) - np.log(p).mean()

    def log_class_probabilities(self, mean: Array, var: Array) -> Array:
        """log p(y = c) for every class: (C, B)."""
        raise NotImplementedError

    def class_probabilities(self, mean: Array, var: Array) -> Array:
        """p(y = c) for every class: (C, B), summing to one over the classes."""
        return jnp.exp(self.log_class_probabilities(mean, var))

    def log_predictive_density(self, mean: Array, var: Array, y: Array) -> Array:
        """log p(y) of class positions ``y`` (1, B): (B,)."""
        return jnp.take_along_axis(self.log_class_probabilities(mean, var), y.astype(int), axis=0)[0]

    def sample(self, f: Array, rng: np.random.RandomState) -> NDArray[Any]:
        """Draw class positions given ``f`` (K, ...), with a NumPy random state."""
        proba = np.asarray(self.conditional_probabilities(f))
        cumulative = np.cumsum(proba, axis=0)
        u = rng.uniform(size=proba.shape[1:]) * cumulative[-1]
        return (u > cumulative[:-1]).sum(0)

    def conditional_probabilities(self, f: Array) -> Array:
        """p(y = c | f) for ``f`` (K, ...): (C, ...)."""
        raise NotImplementedError
