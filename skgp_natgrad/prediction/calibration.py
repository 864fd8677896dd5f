"""Scales of the latent mean and deviation under which class probabilities are calibrated.

A mean-field q of several latent functions, or a q that training has not yet made narrow, has more variance than the
exact posterior, and the class probabilities are too even: the classifier is under-confident. Two factors correct this,
one of the latent mean and one of the latent standard deviation, only in class probabilities. They maximise the log
density of training labels, each predicted from all other rows. The variance of a row is r + s: r is the variance that
the inducing points do not explain, which the labels do not change, and s is the variance of q at the row. Without the
row's own factor q becomes its cavity,

    s_c = s / (1 - w h s),    m_c = m - w g s_c,    v_c = r + s_c

with g = dE/dm and h = -2 dE/dv of its expected log-likelihood E and its weight w (the form of
expectation propagation's cavity under a Gaussian approximation of the factor).

If another classifier gave latent values, a third factor is theirs: the log probabilities of both models are pooled.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize

from .._backend.device import quick_jit
from .._backend.repeated import contradicted, n_observations
from .._backend.rows import filled_up
from .._backend.types import Array

# Rows of training whose labels are predicted.
_ROWS = 1000
# Compiled programs are for so many rows, or this number times a power of two.
_FEWEST = 64
# The cavity of q is at most this many times as wide: no factor can narrow it by more without rounding.
_WIDEST = 100.0
# Largest logarithms of the scales. Their prior is standard normal, because only the ratio of two large scales matters.
# And nats per row by which the scales must raise the density to be used.
_RANGE, _WORTH = 1.6, 1e-3
# Logarithms of class probabilities are cut off here where labels are doubted.
_LEAST = -1e3
# With a mean function: the smallest logarithms, as a process that tells nothing must leave it alone; the largest factor
# of it; and by how many nats all labels together must be more probable with it.
_LEAST_BESIDE, _MOST_OF_MEAN_FUNCTION, _WORTH_OF_MEAN_FUNCTION = -4.0, 3.0, 2.0
# Where that search starts, beside the best logarithms without it: with less and less of the process.
_LESS = np.array([[0.0, 0.0, 0.0], [-0.7, -0.7, 0.5], [-1.5, -1.5, 1.0], [0.0, -0.7, 0.5]])
# Where the search starts, in logarithms: with half the deviation.
_START = np.array([[0.0, 0.0], [0.0, -0.7], [0.5, -0.7]])


class Calibration(NamedTuple):
    """Factors of the latent functions in class probabilities.

    Attributes
    ----------
    mean, deviation : float
        Factors of the latent mean and of the latent deviation.
    mean_function : float
        Factor of the latent values of another classifier, which are added.

    Examples
    --------
    >>> from skgp_natgrad import svgp
    >>> svgp.Calibration()
    Calibration(mean=1.0, deviation=1.0, mean_function=0.0)
    """

    mean: float = 1.0
    deviation: float = 1.0
    mean_function: float = 0.0

    def moments(self, mean: Array, var: Array, mean_function: Array | None = None) -> tuple[Array, Array]:
        """The moments (K, B) that class probabilities are made of; of latent values (K, B) of another classifier."""
        mean = self.mean * mean if mean_function is None else self.mean * mean + self.mean_function * mean_function
        return mean, self.deviation**2 * var


class Average(NamedTuple):
    """The mean of weighted values, such as log densities of labels in nats, and its standard error.

    Attributes
    ----------
    mean, error : float
    """

    mean: float
    error: float

    @classmethod
    def of(cls, values, weight, counts=1):
        """The average of values (B,) of weights (B,), each that of so many observations."""
        mean = np.average(values, weights=weight)
        return cls(float(mean), float(np.sqrt((weight**2 * (values - mean) ** 2 / counts).sum()) / weight.sum()))


@jax.tree_util.register_pytree_node_class
class Calibrated:
    """A likelihood whose class probabilities are those of scaled latent functions, and of a mean function, if any."""

    def __init__(self, likelihood, calibration, mean_function=None):
        self.likelihood, self.calibration, self.mean_function = likelihood, calibration, mean_function

    def tree_flatten(self):
        """Parts for JAX."""
        return (self.likelihood, self.calibration, self.mean_function), None

    @classmethod
    def tree_unflatten(cls, _, parts):
        """The likelihood from its parts."""
        return cls(*parts)

    def given(self, mean_function):
        """The likelihood at rows with latent values (K, B) of another classifier."""
        return Calibrated(self.likelihood, self.calibration, mean_function)

    def class_probabilities(self, mean, var):
        """p(y = c) (C, B)."""
        return self.likelihood.class_probabilities(*self.calibration.moments(mean, var, self.mean_function))

    def log_class_probabilities(self, mean, var):
        """log p(y = c) (C, B)."""
        return self.likelihood.log_class_probabilities(*self.calibration.moments(mean, var, self.mean_function))


def cavities(likelihood, mean, var, unexplained, y, weight):
    """Latent moments (K, B) of each row's prediction without its own label ``y`` (T, B) of weight (B,).

    ``unexplained`` is the part of the variance ``var`` that the inducing points do not explain, (K, B).
    """
    found = _cavities(likelihood, *map(_of_common_length, (mean, var, unexplained, y, weight)))
    return tuple(np.asarray(each)[:, : len(weight)] for each in found)


def log_densities(likelihood, mean, var, y, doubt=0.0):
    """Log densities (B,) of labels ``y`` (1, B) whose latent functions have these moments (K, B).

    With some ``doubt`` they are expectations: a label is right with probability 1 - doubt; otherwise every other label
    is equally likely.
    """
    arguments = tuple(map(_of_common_length, (mean, var, y)))
    found = np.asarray(_log_densities(likelihood, *arguments))
    if doubt:
        found = (1.0 - doubt) * found + doubt * np.asarray(_log_densities_of_others(likelihood, *arguments))
    return found[: y.shape[-1]]


def _of_common_length(array):
    """The array with its last row repeated, so that tables of many sizes share a few programs; rows are independent."""
    n_rows = array.shape[-1]
    return filled_up(array, max(_FEWEST, 1 << (n_rows - 1).bit_length()), -1)


@quick_jit
def _cavities(likelihood, mean, var, unexplained, y, weight):
    def total(mean, var):
        return (weight * likelihood.expected_log_prob(mean, var, y)).sum()

    g, v = jax.grad(total, argnums=(0, 1))(mean, var)
    h = -2.0 * v
    of_q = jnp.maximum(var - unexplained, 0.0)
    cavity = of_q / jnp.maximum(1.0 - h * of_q, 1.0 / _WIDEST)
    return mean - g * cavity, unexplained + cavity


@quick_jit
def _log_densities(likelihood, mean, var, y):
    return likelihood.training_log_density(*rounded(likelihood, mean, var), y).astype(float)


@quick_jit
def _log_densities_of_others(likelihood, mean, var, y):
    # Their share is only the doubt, so a coarser likelihood is accurate enough.
    each = likelihood.coarser().log_class_probabilities(*rounded(likelihood, mean, var))
    each = jnp.maximum(each.astype(float), _LEAST)
    is_other = jnp.arange(len(each))[:, None] != y
    return jnp.where(is_other, each, 0.0).sum(0) / (len(each) - 1)


def rounded(likelihood, *moments):
    """Latent moments, in single precision if the likelihood averages over points, whose error is far larger."""
    return [each.astype(np.float32) for each in moments] if likelihood.averages_points else moments


def calibrate(likelihood, mean, var, y, weight, doubt=0.0, mean_function=None):
    """The `Calibration` with the largest leave-one-out density of the labels.

    Parameters
    ----------
    likelihood : Likelihood
        Of classes.
    mean, var : ndarray of shape (K, B)
        Latent moments of training rows, each predicted without its own label: see `cavities`.
    y : ndarray of shape (1, B)
        Positions of their labels.
    weight : ndarray of shape (B,)
    doubt : float, default=0.0
        Of the labels: see `log_densities`.
    mean_function : ndarray of shape (K, B), optional
        Latent values of another classifier, which has not seen the labels either.

    Returns
    -------
    calibration : Calibration
    """

    def loss(x):
        logs, rest = x[:2], x[2:]
        moments = Calibration(*np.exp(logs), *rest).moments(mean, var, mean_function if len(rest) else None)
        value = (weight @ log_densities(likelihood, *moments, y, doubt) - 0.5 * logs @ logs) / weight.sum()
        # Not infinity, because the simplex search subtracts these values from each other.
        return -value if np.isfinite(value) else np.finfo(float).max

    start = loss(np.zeros(2))
    best, least = _least(loss, _START, [(-_RANGE, _RANGE)] * 2)
    if not least < start - _WORTH:
        best, least = np.zeros(2), start
    if mean_function is not None:
        bounds = [*[(_LEAST_BESIDE, _RANGE)] * 2, (0.0, _MOST_OF_MEAN_FUNCTION)]
        beside, least_beside = _least(loss, _LESS + np.append(best, 0.0), bounds)
        if (least - least_beside) * np.count_nonzero(weight) > _WORTH_OF_MEAN_FUNCTION:
            best = beside
    return Calibration(*map(float, (*np.exp(best[:2]), *best[2:])))


def _least(loss, simplex, bounds):
    """Where a simplex search finds the least loss, and this loss."""
    simplex = np.clip(simplex, *np.transpose(bounds))
    options = {"initial_simplex": simplex, "xatol": 0.02, "fatol": 1e-4, "maxfev": 40 * len(bounds)}
    found = optimize.minimize(loss, simplex[0], method="Nelder-Mead", bounds=bounds, options=options)
    return found.x, found.fun


def density(likelihood, calibration, mean, var, y, weight, counts=1, mean_function=None):
    """The `Average` log density of labels under a calibration; the arguments are those of `calibrate`.

    ``counts`` are the numbers of observations in the rows.
    """
    each = log_densities(likelihood, *calibration.moments(mean, var, mean_function), y)
    return Average.of(each, weight, counts)


def left_out(likelihood, mean, var, unexplained, rows, counts):
    """The `Calibration` by training labels, each predicted without itself, and their `density` under it.

    ``rows`` is a table with these latent moments, and ``counts`` are the numbers of observations in its rows. One
    observation of each row is left out: see `cavities`.
    """
    y, weight = rows.y, rows.weight
    moments = cavities(likelihood, mean, var, unexplained, y, weight / counts)
    found = calibrate(likelihood, *moments, y, weight, mean_function=rows.mean_function)
    return found, density(likelihood, found, *moments, y, weight, counts, rows.mean_function)


def some_rows(table, random_state):
    """Positions of the training rows whose labels are predicted, and the numbers of observations in them."""
    n_rows = len(table.weight)
    rows = np.sort(random_state.choice(n_rows, min(n_rows, _ROWS), replace=False))
    return rows, n_observations(table.weight, contradicted(table.X, table.y)[0])[rows]
