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
        Whether the classes are levels in an order: that of the argument ``levels`` if there is one, or of y's type.
    """

    tasks = ("classification",)
    ordered: ClassVar[bool] = False

    def coarser(self) -> ClassLikelihood:
        """A likelihood that takes less time and is nearly the same, for values that need not be exact."""
        return self

    def _entropy(self, y, weight):
        """The mean log-likelihood of the classes' own frequencies."""
        p = np.bincount(y[0].astype(int), weights=weight) / weight.sum()
        return float(xlogy(p, p).sum())

    def latent_of_base_rates(self, y: Floats, weight: Floats, n_classes: int) -> Floats:
        """Prior means (K,) under which the classes are as probable as they are frequent; each counts one further row.

        They spare the kernel the large amplitude by which it would know that a rare class is rare everywhere. They are
        those of functions that vary little: under a wide prior they say little, and classes that hardly overlap are not
        drawn to the frequent one, as they would be by means that grew with the deviation.

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
