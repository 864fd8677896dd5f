"""The robust-max likelihood of several classes."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .._backend.linalg import normal_nodes
from .._backend.types import ArrayLike, Bounds
from ._base import PREDICTION_NODES, TRAINING_NODES
from ._families import ClassLikelihood
from ._quadrature import log_ndtr


class RobustMax(ClassLikelihood):
    """Several classes: the largest latent function wins, except for errors of rate epsilon.

    p(y = c | f) = 1 - epsilon if c = argmax f, else epsilon / (C - 1)
    (Hernandez-Lobato et al. 2011). Label noise costs at most log(epsilon).

    Parameters
    ----------
    epsilon : float, default=1e-3
        Error rate, in (0, 1).
    epsilon_bounds : pair of floats or "fixed", default="fixed"
        Bounds of ``epsilon`` while training.

    Examples
    --------
    >>> from skgp_natgrad.likelihoods import RobustMax
    >>> RobustMax(epsilon=0.01)
    RobustMax(epsilon=0.01)
    """

    name = "robust_max"
    # Its raw value is the logarithm, since useful values are small.
    parameters = ("epsilon",)

    def __init__(self, epsilon: ArrayLike = 1e-3, epsilon_bounds: Bounds = "fixed") -> None:
        self.epsilon = epsilon
        self.epsilon_bounds = epsilon_bounds

    def n_latent(self, n_targets, n_classes):
        return n_classes

    def value_and_bounds(self, n_targets):
        value, lower, upper = super().value_and_bounds(n_targets)
        if not upper.epsilon < 1.0:
            raise ValueError(
                f"likelihood RobustMax(epsilon={self.epsilon!r}, epsilon_bounds={self.epsilon_bounds!r}): "
                "epsilon and its upper bound must be below 1."
            )
        return value, lower, upper

    def log_prob(self, f, y):
        wins = jnp.argmax(f, axis=0) == y.astype(int)
        return jnp.where(wins, jnp.log1p(-self.epsilon), jnp.log(self.epsilon / (f.shape[0] - 1)))

    def expected_log_prob(self, mean, var, y):
        wins = _win_probability(mean, var, y[0].astype(int), TRAINING_NODES)
        loses = jnp.log(self.epsilon / (mean.shape[0] - 1))
        return loses + wins * (jnp.log1p(-self.epsilon) - loses)

    def training_log_density(self, mean, var, y):
        wins = _win_probability(mean, var, y[0].astype(int), TRAINING_NODES)
        return jnp.log(self._with_errors(wins, len(mean)))

    def log_class_probabilities(self, mean, var):
        n_classes, n_rows = mean.shape
        wins = jnp.stack([_win_probability(mean, var, jnp.full(n_rows, c), PREDICTION_NODES) for c in range(n_classes)])
        wins = wins / wins.sum(0)
        return jnp.log(self._with_errors(wins, n_classes))

    def _with_errors(self, wins, n_classes):
        return (1.0 - self.epsilon) * wins + self.epsilon / (n_classes - 1) * (1.0 - wins)

    def conditional_probabilities(self, f):
        wins = jnp.argmax(f, axis=0)[None] == jnp.arange(f.shape[0]).reshape((-1,) + (1,) * (f.ndim - 1))
        return self._with_errors(wins, f.shape[0])


def _win_probability(mean, var, label, n_nodes):
    """P(f_label is the largest): a one-dimensional integral over f_label, (B,)."""
    own = label[None, :] == jnp.arange(mean.shape[0])[:, None]
    own_mean, own_var = (jnp.where(own, x, 0.0).sum(0) for x in (mean, var))
    own_deviation, deviation = jnp.sqrt(own_var), jnp.sqrt(var)

    @jax.checkpoint
    def add(total, node):
        f = own_mean + own_deviation * node[0]
        below = log_ndtr((f - mean) / deviation)
        return total + node[1] * jnp.exp(jnp.where(own, 0.0, below).sum(0)), None

    # One node after the other, and once more for derivatives: arrays of this size stay in the cache of a processor.
    nodes = jnp.stack([jnp.asarray(each, mean.dtype) for each in normal_nodes(n_nodes)], axis=1)
    return jax.lax.scan(add, jnp.zeros_like(own_mean), nodes)[0]
