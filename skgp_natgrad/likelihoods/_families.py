"""The base classes of families of likelihoods: of class labels, of a mean exp(f), of two latent functions."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaincc, xlogy

from .._backend.linalg import normal_nodes
from .._backend.repeated import common_weight
from .._backend.types import Array, Floats, NDArray
from . import _distribution
from ._base import Likelihood, RegressionLikelihood, bounded_exp, over_observed, with_axes
from ._distribution import expected
from ._quadrature import log_expectation
from ._transforms import positive


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
        return self.latent_of(self.base_rates(y, weight, n_classes))

    def base_rates(self, y: Floats, weight: Floats, n_classes: int) -> Floats:
        """The class frequencies (C,) with one extra row per class; the arguments are as above."""
        total = np.bincount(y[0].astype(int), weights=weight, minlength=n_classes) + common_weight(weight)
        return total / total.sum()

    def latent_of(self, p: Floats) -> Floats:
        """Latent values (K, ...) of small variance under which the classes have these probabilities (C, ...)."""
        return np.log(p) - np.log(p).mean(0)

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


# NumPy draws no Poisson numbers of a larger mean.
_LARGEST_RATE = 1e18


class LogLinkLikelihood(RegressionLikelihood):
    """E[y | f] = mu = exp(f), and Var[y | f] = a mu + b mu^2.

    The moments of a log-normal mu give those of y in closed form.
    """

    def variance_coefficients(self) -> tuple[Array | float, Array | float]:
        """a and b of the conditional variance a mu + b mu^2."""
        raise NotImplementedError

    def initial_latent(self, y, weight, n_classes):
        mean = np.average(y, axis=1, weights=weight)
        # A column of zeros counts as half an event.
        return np.log(np.where(mean > 0.0, mean, 0.5 / weight.sum(-1)))

    def without_offset(self, y, weight, offset):
        # Rates: their average, weighted by the exposure, is the total number of events over the total exposure.
        exposure = _distribution.bounded_exp(offset)
        return y / exposure, weight * exposure

    def conditional_moments(self, f):
        linear, quadratic = self.variance_coefficients()
        mean = bounded_exp(f)
        return mean, linear * mean + quadratic * mean**2

    def predictive_mean(self, mean, var):
        return bounded_exp(mean + 0.5 * var)

    def predictive_moments(self, mean, var):
        linear, quadratic = self.variance_coefficients()
        y_mean = self.predictive_mean(mean, var)
        var = jnp.minimum(var, _distribution.LARGEST_VARIANCE)
        return y_mean, linear * y_mean + y_mean**2 * (jnp.expm1(var) + quadratic * jnp.exp(var))


class CountLikelihood(LogLinkLikelihood):
    """A likelihood of counts with E[y | f] = exp(f)."""

    discrete = True

    def check_targets(self, y):
        self._refuse(
            y,
            (y >= 0) & (y == np.floor(y)),
            "counts, the integers 0, 1, 2, ...",
            'leave negative ones out and round fractions, or take "gamma" for positive and "gaussian" for any numbers',
        )


class PositiveLikelihood(LogLinkLikelihood):
    """A likelihood of positive numbers with E[y | f] = exp(f)."""

    support = positive

    def check_targets(self, y):
        self._refuse(
            y,
            y > 0,
            "positive numbers",
            'leave these rows out, or take "poisson" for counts and "gaussian" for any numbers',
        )


def poisson_cdf(f, y):
    """P(Y <= y) of Poisson numbers of mean exp(f)."""
    return np.where(y < 0, 0.0, gammaincc(np.floor(np.maximum(y, 0.0)) + 1.0, _distribution.bounded_exp(f)))


def draw_counts(rate, rng):
    """Draw Poisson numbers of mean ``rate``."""
    return rng.poisson(np.minimum(rate, _LARGEST_RATE)).astype(float)


def above_zero(draws):
    """Raise draws that have underflowed to the smallest positive number."""
    return np.maximum(draws, np.finfo(float).tiny)


# Nodes along each of the two axes.
TRAINING_NODES = 20
PREDICTION_NODES = 64
DENSITY_NODES = 40
_CDF_NODES = 40
# Of f given g in training: exact to 1e-9, where the nodes of g leave 1e-3 at a latent variance of one, 1e-9 at 0.1.
_TRAINING_DENSITY_NODES = 24


@functools.cache
def hermite_nodes(n_nodes):
    """Gauss-Hermite nodes and weights for the standard normal density.

    A training step can afford only few nodes along each of two axes. With so few they are more accurate than the evenly
    spaced ones of `normal_nodes`: for a Beta density of two latent functions, twenty have a relative error of 1e-10 at
    a latent variance of one, and of 1e-7 at four.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    return nodes, weights / weights.sum()


class TwoLatentLikelihood(RegressionLikelihood):
    """Two latent functions for each target column: f, and g (Saul et al. 2016, "chained" GPs).

    ``log_prob(f, g, y)`` and ``conditional_moments(f, g)`` are elementwise; everything
    else follows by product rules. The latent functions are ordered
    f_1, ..., f_T, g_1, ..., g_T.
    """

    def n_latent(self, n_targets, n_classes):
        return 2 * n_targets

    def log_prob(self, f: Array, g: Array, y: Array) -> Array:
        """Log density of ``y`` given its two latent values."""
        raise NotImplementedError

    def conditional_moments(self, f: Array, g: Array) -> tuple[Array, Array]:
        """Mean and variance of y given its two latent values, elementwise."""
        raise NotImplementedError

    def expectation_each(self, mean, var, y):
        f, g, weights = product_rule(mean, var, *hermite_nodes(TRAINING_NODES))
        return (with_axes(self, 2).log_prob(f, g, y[..., None, None]) * weights).sum((-2, -1))

    def log_density_each(self, mean, var, y):
        (f_mean, g_mean), (f_var, g_var) = halves(mean), halves(var)
        likelihood, y = with_axes(self, 2), y[..., None, None]

        def given_g(g):
            f_moments = (jnp.broadcast_to(x[..., None], g.shape) for x in (f_mean, f_var))
            return log_expectation(lambda f: likelihood.log_prob(f, g[..., None], y), *f_moments, DENSITY_NODES)

        return log_expectation(given_g, g_mean, g_var, DENSITY_NODES)

    def training_log_density(self, mean, var, y):
        return over_observed(self._training_density_each, mean, var, y)

    def _training_density_each(self, mean, var, y):
        # As the density, with fixed nodes for g: given g, only f has a narrow peak.
        (f_mean, g_mean), (f_var, g_var) = halves(mean), halves(var)
        nodes, weights = hermite_nodes(TRAINING_NODES)
        likelihood, g = with_axes(self, 2), g_mean[..., None] + jnp.sqrt(g_var)[..., None] * nodes
        f_moments = (jnp.broadcast_to(x[..., None], g.shape) for x in (f_mean, f_var))
        given_g = log_expectation(
            lambda f: likelihood.log_prob(f, g[..., None], y[..., None, None]), *f_moments, _TRAINING_DENSITY_NODES
        )
        return jax.scipy.special.logsumexp(given_g, b=weights, axis=-1)

    def predictive_moments(self, mean, var):
        f, g, weights = product_rule(mean, var, *normal_nodes(PREDICTION_NODES))
        each_mean, each_var = with_axes(self, 2).conditional_moments(f, g)
        y_mean = (each_mean * weights).sum((-2, -1))
        each_var = each_var + (each_mean - y_mean[..., None, None]) ** 2
        return y_mean, (each_var * weights).sum((-2, -1))

    def conditional_cdf(self, f: Floats, g: Floats, y: Floats) -> Floats:
        """P(Y <= y | f, g), elementwise, of NumPy arrays; it must be monotone in f."""
        return super().conditional_cdf(f, y)

    def predictive_cdf(self, mean, var, y):
        (f_mean, g_mean), (f_var, g_var) = np.split(mean, 2), np.split(var, 2)
        nodes, weights = hermite_nodes(_CDF_NODES)
        likelihood, y = with_axes(self, 2, np), y[..., None, None]
        g = g_mean[..., None] + np.sqrt(g_var)[..., None] * nodes
        f_moments = (np.broadcast_to(x[..., None], g.shape) for x in (f_mean, np.sqrt(f_var)))
        return expected(lambda f: likelihood.conditional_cdf(f, g[..., None], y), *f_moments) @ weights

    def latent_units(self, offset, scale):
        """The units of f; g is not a location, and keeps its own units."""
        f_offset, f_scale = (np.broadcast_to(x, np.shape(scale)) for x in super().latent_units(offset, scale))
        return np.concatenate([f_offset, 0.0 * f_offset]), np.concatenate([f_scale, np.ones_like(f_scale)])


def halves(x):
    """Split the rows of ``x`` (2 T, ...) into those of f and those of g."""
    return jnp.split(jnp.asarray(x), 2)


def product_rule(mean, var, nodes, weights):
    """Values of f (T, B, n, 1) and g (T, B, 1, n), and weights (n, n)."""
    f, g = halves(mean[..., None] + jnp.sqrt(var)[..., None] * nodes)
    return f[..., :, None], g[..., None, :], weights[:, None] * weights
