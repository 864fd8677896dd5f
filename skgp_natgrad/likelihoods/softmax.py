"""The softmax likelihood of several classes."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from .._backend.types import Floats
from ._families import ClassLikelihood

# Points in prediction, as a multiple of those in training: predictions are made only once.
_PREDICTION_BLOCKS = 16
# The same for the log of an average in training, which varies more than the average of a log.
_DENSITY_BLOCKS = 4
# Points of `Softmax.coarser`.
_FEW_POINTS = 16


@functools.cache
def quasi_normal_points(n_points, n_latent):
    """Quasi-random points of the standard normal density: (n_points, n_latent).

    Sobol points (a fixed scrambling) and their mirror images, so that odd
    moments vanish. The points are the same in every step and in prediction.
    """
    sobol = qmc.Sobol(n_latent, scramble=True, rng=np.random.default_rng(20180301))
    points = ndtri(np.clip(sobol.random(n_points // 2), 1e-12, 1.0 - 1e-12))
    return np.concatenate([points, -points])


class Softmax(ClassLikelihood):
    """Several classes: p(y = c | f) = exp(f_c) / sum_k exp(f_k), one latent function per class.

    The expectation has no closed form and no useful product rule; it is computed by quasi-Monte Carlo with fixed
    points.

    Parameters
    ----------
    n_points : int, default=64
        Number of points in training; a power of two. Prediction takes 16 times
        as many.

    Examples
    --------
    >>> from skgp_natgrad.likelihoods import Softmax
    >>> Softmax()
    Softmax()
    """

    name = "softmax"
    options = ("n_points",)
    averages_points = True

    def __init__(self, n_points: int = 64) -> None:
        self.n_points = n_points

    def n_latent(self, n_targets, n_classes):
        return n_classes

    def coarser(self):
        return Softmax(min(self.n_points, _FEW_POINTS))

    def value_and_bounds(self, n_targets):
        n = self.n_points
        if not (isinstance(n, (int, np.integer)) and n >= 2 and n & (n - 1) == 0):
            raise ValueError(f"likelihood Softmax(n_points={n!r}): n_points must be a power of two, 2 or more.")
        return super().value_and_bounds(n_targets)

    def log_prob(self, f, y):
        chosen = jnp.take_along_axis(f, y[None].astype(int), axis=0)[0]
        return chosen - jax.scipy.special.logsumexp(f, axis=0)

    def best_constant(self, y, weight, lower, upper):
        return self._entropy(y, weight)

    def expected_log_prob(self, mean, var, y):
        chosen = jnp.take_along_axis(mean, y.astype(int), axis=0)[0]
        points = quasi_normal_points(self.n_points, mean.shape[0])
        return chosen - _expected_logsumexp(mean, var, points)

    def training_log_density(self, mean, var, y):
        def log_sum(block):
            f = _spread(mean, var, block)
            chosen = jnp.take_along_axis(f, y[None].astype(int), axis=1)[:, 0]
            return jax.scipy.special.logsumexp(chosen - jax.scipy.special.logsumexp(f, axis=1), axis=0)

        return _log_average(log_sum, self._blocks(_DENSITY_BLOCKS, mean))

    def log_class_probabilities(self, mean, var):
        def log_sum(block):
            return jax.scipy.special.logsumexp(jax.nn.log_softmax(_spread(mean, var, block), axis=1), axis=0)

        return _log_average(log_sum, self._blocks(_PREDICTION_BLOCKS, mean))

    def class_probabilities(self, mean, var):
        # One exponential per point is enough here: only logarithms of probabilities must not underflow.
        def average(block):
            return _logsumexp_and_softmax(_spread(mean, var, block))[1].mean(0)

        return jax.lax.map(average, self._blocks(_PREDICTION_BLOCKS, mean)).mean(0)

    def prediction_points(self, n_latent: int) -> Floats:
        """The points (S, K) over which class probabilities are averages."""
        return quasi_normal_points(_PREDICTION_BLOCKS * self.n_points, n_latent)

    def _blocks(self, n_blocks, mean):
        """Points for ``mean`` (K, B), in its precision; one block at a time keeps memory at that of a training step."""
        points = quasi_normal_points(n_blocks * self.n_points, len(mean))
        return jnp.asarray(points, mean.dtype).reshape(n_blocks, self.n_points, -1)

    def conditional_probabilities(self, f):
        return jax.nn.softmax(f, axis=0)


def _spread(mean, var, points):
    """Latent values (S, K, B) at the points (S, K)."""
    return mean + jnp.sqrt(var) * points[:, :, None]


def _log_average(log_sum, blocks):
    """The logarithm of an average over points, given that of the sum over those of a block (S, K)."""
    n_points = blocks.shape[0] * blocks.shape[1]
    return jax.scipy.special.logsumexp(jax.lax.map(log_sum, blocks), axis=0) - float(np.log(n_points))


@jax.custom_jvp
def _expected_logsumexp(mean, var, points):
    return _averages(mean, var, points, lambda logsumexp, p: (logsumexp,))[0]


@_expected_logsumexp.defjvp
def _(primals, tangents):
    # Bonnet's and Price's theorems: E'[mean] = E[p], E'[var] = E[p (1 - p)] / 2, under the
    # same points. The second is positive for every p, so that the natural gradient step
    # keeps its precision positive definite; the pathwise derivative is not.
    value, first, second = _averages(*primals, lambda logsumexp, p: (logsumexp, p, p * (1.0 - p)))
    return value, (first * tangents[0]).sum(0) + 0.5 * (second * tangents[1]).sum(0)


def _averages(mean, var, points, functions):
    """Averages over the points of functions of logsumexp(f) (B,) and softmax(f) (K, B).

    One point after the other: arrays of this size stay in the cache of a processor.
    """
    deviation = jnp.sqrt(var)

    def add(sums, point):
        logsumexp, p = _logsumexp_and_softmax((mean + deviation * point[:, None])[None])
        return [total + each for total, each in zip(sums, functions(logsumexp[0], p[0]), strict=True)], None

    zeros = [jnp.zeros_like(each) for each in functions(mean[0], mean)]
    sums, _ = jax.lax.scan(add, zeros, jnp.asarray(points, mean.dtype))
    return [total / len(points) for total in sums]


def _logsumexp_and_softmax(f):
    """Both over the latent functions of ``f`` (S, K, B), from one exponential."""
    top = f.max(1, keepdims=True)
    exponential = jnp.exp(f - top)
    total = exponential.sum(1, keepdims=True)
    return (top + jnp.log(total))[:, 0], exponential / total
