"""Predicts targets from their nearest rows, to compare kernels at the density of the whole table.

Some hundreds of random rows are far from one another. The kernel that predicts best from them need not be the best for
a model on all rows, where each row has close neighbours. So kernels are compared by the density of some targets given
the rows that explain most of their variance, among all rows of the table or a large part of them (Vecchia 1988). Each
prediction is a small Gaussian process in closed form; labels are regressed.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize, special, stats
from sklearn.neighbors import NearestNeighbors

from .._backend import threads
from .._backend.device import wide_jit
from .._backend.repeated import groups
from .._backend.rows import filled_up
from ..neighbours.conditional import moments
from ..neighbours.nearest import smallest
from .evidence import noise_variance

# Most measurements that are predicted, and most targets at a time.
_VALUES = 1500
_BLOCK_ROWS = 50
# Rows of a table come in multiples of this number, so that similar tables share programs.
_UNIT = 1024
# Limits of the factor of the predicted indicators under a softmax; for a good prediction of labels it is near ten.
_FACTORS = 1e-3, 1e3
# Limits of the log scale and of the degrees of freedom of a Student-t, which is fitted to standardised errors, and of
# the factor of what the nearest of them say of a logarithm; their number, and what keeps logarithms finite.
_SCALES, _DF, _FACTOR = (-10.0, 10.0), (3.0, 1e3), (0.0, 2.0)
_NEAR, _LEAST = 20, 1e-6


class Judges(NamedTuple):
    """The rows whose targets are predicted, each from others: the same for all kernels.

    Attributes
    ----------
    index : ndarray of shape (B,)
        Their positions.
    group : ndarray of shape (N,)
        A number for each row of the table, the same for rows of equal X, which are left out together: otherwise a
        lengthscale near zero would predict copies best.
    of_labels : bool
        Whether the targets are indicators of classes, and not measurements.
    """

    index: np.ndarray
    group: np.ndarray
    of_labels: bool

    @classmethod
    def of(cls, X, index, of_labels=True):
        """The rows of X (N, D) at these positions; for measurements at most some of them, evenly spaced."""
        if not of_labels:
            index = index[np.linspace(0, len(index) - 1, min(len(index), _VALUES)).round().astype(int)]
        return cls(index, groups(X), of_labels)


class Verdict(NamedTuple):
    """What judges say of a kernel.

    Attributes
    ----------
    densities : ndarray of shape (B,)
        Log densities of their targets, in nats; minus infinity if a prediction is no number.
    error : ndarray of shape (T,)
        The root of the weighted mean squared error of each target; zero for labels.
    """

    densities: np.ndarray
    error: np.ndarray


def verdict(hyperparameters, table, judges, n_neighbours):
    """The `Verdict` of judges on labels or on measurements.

    Parameters
    ----------
    hyperparameters : evidence.Hyperparameters
    table : Table
    judges : Judges
    n_neighbours : int
        Rows from which a target is predicted, at most.
    """
    return (_on_labels if judges.of_labels else _on_values)(hyperparameters, table, judges, n_neighbours)


def _on_labels(hyperparameters, table, judges, n_neighbours):
    """The `Verdict` on labels, each predicted by regression on the rows that explain most of its variance.

    The targets are standardised indicators of the classes, or one for two classes: see `targets.regressed`.
    """
    means, _ = predictions(hyperparameters, table, judges, n_neighbours)
    no_error = np.zeros(len(table.y))
    if not np.all(np.isfinite(means)):
        return Verdict(np.full(len(judges.index), -np.inf), no_error)
    low, high = (limit(table.y, axis=1) for limit in (np.min, np.max))
    if np.any(low == high):
        # All rows have one label.
        return Verdict(np.zeros(len(judges.index)), no_error)
    of_classes, labels = (_of_classes((each - low) / (high - low)) for each in (means, table.y[:, judges.index].T))
    return Verdict(_calibrated(of_classes, labels.argmax(1)), no_error)


def _on_values(hyperparameters, table, judges, n_neighbours):
    """The `Verdict` on measurements, each predicted from the rows that explain most of its variance.

    Densities are means over the targets. The predictions of each target are calibrated, as those of the model will be:
    a Student-t distribution is fitted to its errors, whose deviation may vary with X.
    """
    means, variances = predictions(hyperparameters, table, judges, n_neighbours)
    # The noise variance of a single observation, whatever the row's weight, as in `evidence.held_out_density`.
    noise = noise_variance(hyperparameters.noise, table.rows(judges.index))
    # Rounding may make a latent variance negative.
    deviations = np.sqrt(np.maximum(variances, 0.0) + noise)[:, None]
    errors = table.y[:, judges.index].T - means
    if not np.all(np.isfinite(errors / deviations)):
        return Verdict(np.full(len(judges.index), -np.inf), np.full(len(table.y), np.inf))
    near, weight = nearest_others(table.X[judges.index]), table.weight[judges.index]
    found = np.mean([of_errors(each, near, weight) for each in (errors / deviations).T], axis=0)
    return Verdict(found - np.log(deviations[:, 0]), np.sqrt(np.average(errors**2, axis=0, weights=weight)))


def predictions(hyperparameters, table, judges, n_neighbours):
    """The judges' latent means and variances, each given the other rows that explain most of its prior variance.

    Parameters
    ----------
    hyperparameters, table, judges, n_neighbours
        As in `verdict`.

    Returns
    -------
    means : ndarray of shape (B, T)
    variances : ndarray of shape (B,)
        Without the noise.
    """
    index = judges.index
    near = nearest(hyperparameters, table, judges, n_neighbours)
    kernel = jax.tree.map(np.exp, hyperparameters.kernel)
    means, (variances,) = moments(kernel, table.X[index], table.X, near, table.y, _noise(hyperparameters, table)[None])
    return means.T, variances


def nearest(hyperparameters, table, judges, n_neighbours):
    """Positions of the rows that, each on its own, explain most of the judges' prior variances: (B, n_neighbours).

    Rows of equal X are left out together. If the table has too few rows, there are fewer columns; if only one judge has
    too few, because other rows equal it, its last ones are -1.
    """
    index, group, _ = judges
    n_neighbours = min(n_neighbours, np.count_nonzero(table.weight > 0.0) - 1)
    # In double precision: under lengthscales of thousands of deviations nearly all rows explain the same.
    X = filled_up(table.X, -(-len(table.X) // _UNIT) * _UNIT)

    without_weight = np.flatnonzero(table.weight <= 0.0)

    def of_block(start):
        block = index[start : start + _BLOCK_ROWS]
        some = filled_up(block, _BLOCK_ROWS)
        explained = np.asarray(_explained(hyperparameters.kernel, table.X[some], X))[: len(block), : len(table.X)]
        return np.stack([of_one(*each) for each in zip(group[block], explained, strict=True)])

    def of_one(own, explained):
        # What is no number comes last.
        left = -explained
        left[without_weight] = left[group == own] = np.inf
        near = smallest(left, n_neighbours)
        return np.where(np.isposinf(left[near]), -1, near)

    return np.concatenate(threads.for_each(of_block, range(0, len(index), _BLOCK_ROWS)))


def _noise(hyperparameters, table):
    """The noise variances (N,) of a table; arbitrary for rows without weight."""
    return noise_variance(hyperparameters.noise, table) / np.where(table.weight > 0.0, table.weight, 1.0)


@wide_jit
def _explained(kernel, x, X):
    """The prior variance at x (B, D) that each single value at X (N, D) explains: (B, N)."""
    kernel = jax.tree.map(jnp.exp, kernel)
    return kernel(x, X) ** 2 / kernel.diag(X)


def of_neighbours(kernel, x, X):
    """Covariances within X (B, m, D): (B, m, m), and with x (B, D): (B, m); and the variances at x (B,)."""
    kernel = jax.tree.map(jnp.exp, kernel)
    places = jnp.eye(X.shape[1], dtype=bool)

    def of_row(x, X):
        # Together, so that half as much is compiled.
        both = kernel(jnp.concatenate([x[None], X]), X)
        return jnp.where(places, kernel.diag(X)[:, None], both[1:]), both[0]

    among, across = jax.vmap(of_row)(x, X)
    return among, across, kernel.diag(x)


covariances = wide_jit(of_neighbours)


def of_errors(errors, near, weight):
    """Calibrated log densities (B,) of standardised errors (B,) of rows with some weights (B,).

    They are those of a Student-t distribution whose deviation varies with X: the logarithm of a squared error is
    predicted by its mean at the nearest other rows (B, k), in place of the process of the model (`dispersion`).
    """
    logs, share = np.log(errors**2 + _LEAST), weight / weight.sum()
    predicted = logs[near].mean(1) - logs.mean() if near.size else np.zeros(len(logs))

    def log_densities(at):
        log_scale = at[0] + 0.5 * at[2] * predicted
        return stats.t.logpdf(errors * np.exp(-log_scale), np.exp(at[1])) - log_scale

    start = np.clip(np.log(np.median(np.abs(errors)) + np.exp(_SCALES[0])), *_SCALES), np.log(2.0 * _DF[0]), 0.5
    bounds = _SCALES, tuple(np.log(_DF)), _FACTOR
    return log_densities(optimize.minimize(lambda at: -(share @ log_densities(at)), start, bounds=bounds).x)


def nearest_others(X):
    """The nearest other rows of each row of X (B, D), in deviations of the columns: (B, k); no columns for one row."""
    if len(X) == 1:
        return np.zeros((1, 0), int)
    deviation = X.std(0)
    X = X / np.where(deviation > 0.0, deviation, 1.0)
    return NearestNeighbors(n_neighbors=min(_NEAR, len(X) - 1)).fit(X).kneighbors(return_distance=False)


def _of_classes(indicators):
    """One column for each class; for two classes ``indicators`` has the second only."""
    return indicators if indicators.shape[1] > 1 else np.concatenate([1.0 - indicators, indicators], axis=1)


def _calibrated(indicators, labels):
    """Log densities (B,) under the softmax of the indicators (B, C) times the best factor."""

    def densities(log_factor):
        return special.log_softmax(np.exp(log_factor) * indicators, axis=1)[np.arange(len(labels)), labels]

    bounds = tuple(np.log(_FACTORS))
    found = optimize.minimize_scalar(lambda at: -densities(at).mean(), bounds=bounds, method="bounded")
    return densities(found.x)
