"""Targets as their nearest rows predict them: how well a kernel suits a table as dense as the whole one.

Some hundreds of rows, drawn at random, are far from one another. The kernel that predicts others best from them may be
one that tells least of a row's neighbours in the whole table, where the model will rest on all rows. So kernels are
compared by targets which the rows that tell most of them predict, of all rows of the table or a large part of them
(Vecchia 1988): a process of some rows for each of them, in closed form, of labels by regression.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize, special, stats

from .._backend import threads
from .._backend.device import quick_jit, wide_jit
from .._backend.repeated import groups
from .._backend.rows import filled_up

# Rows from which a label and a measurement is predicted, how many of the latter are, and how many targets are predicted
# at a time, of how many covariances at most. Of smooth functions without much noise a hundred rows tell too little.
_NEIGHBOURS_OF_LABELS, _NEIGHBOURS_OF_VALUES, _VALUES = 100, 400, 1500
_BLOCK_ROWS, _COVARIANCES = 50, 500_000
# Rows of a table come in multiples of this number, so that similar tables share programs.
_UNIT = 1024
# The noise variance of a row that is left out.
LEFT_OUT = 1e100
# Limits of the factor of the predicted indicators under a softmax; of one that tells labels well it is near ten.
_FACTORS = 1e-3, 1e3
# Of errors of measurements, as multiples of their deviation: limits of the logarithm of the scale that suits them best,
# and of their degrees of freedom.
_SCALES, _DF = (-10.0, 10.0), (3.0, 1e3)


class Judges(NamedTuple):
    """The rows whose targets are predicted, each from others: the same for all kernels.

    Attributes
    ----------
    index : ndarray of shape (B,)
        Their positions.
    group : ndarray of shape (N,)
        A number for each row of the table, the same for rows of equal X: these are left out together. Otherwise the
        shortest lengthscale would predict copies best.
    of_labels : bool
        Whether the targets are indicators of classes, and not measurements.
    """

    index: np.ndarray
    group: np.ndarray
    of_labels: bool

    @classmethod
    def of(cls, X, index, of_labels=True):
        """The rows of X (N, D) at these positions; of measurements some of them, from all over."""
        if not of_labels:
            index = index[np.linspace(0, len(index) - 1, min(len(index), _VALUES)).round().astype(int)]
        return cls(index, groups(X), of_labels)


def densities(hyperparameters, table, judges, n_neighbours=None):
    """Log densities of the judges' targets: `label_densities` or `value_densities`."""
    return (label_densities if judges.of_labels else value_densities)(hyperparameters, table, judges, n_neighbours)


def label_densities(hyperparameters, table, judges, n_neighbours=None):
    """Log densities of labels, each predicted by regression on the rows that tell most of it.

    Parameters
    ----------
    hyperparameters : evidence.Hyperparameters
    table : Table
        Whose targets are a standardised indicator of each class, of two classes one: see `targets.regressed`.
    judges : Judges

    Returns
    -------
    densities : ndarray of shape (B,)
        In nats; minus infinity if a prediction is no number.
    """
    means, _ = predictions(hyperparameters, table, judges, n_neighbours)
    if not np.all(np.isfinite(means)):
        return np.full(len(judges.index), -np.inf)
    low, high = (limit(table.y, axis=1) for limit in (np.min, np.max))
    if np.any(low == high):
        # All rows have one label.
        return np.zeros(len(judges.index))
    of_classes, labels = (_of_classes((each - low) / (high - low)) for each in (means, table.y[:, judges.index].T))
    return _calibrated(of_classes, labels.argmax(1))


def value_densities(hyperparameters, table, judges, n_neighbours=None):
    """Log densities of measurements, each predicted from the rows that tell most of it; means over the targets.

    As the model's own predictions will be, those of each target are calibrated: errors are Student-t, of the scale and
    the degrees of freedom that suit them best.

    Parameters
    ----------
    hyperparameters : evidence.Hyperparameters
    table : Table
    judges : Judges

    Returns
    -------
    densities : ndarray of shape (B,)
        In nats; minus infinity if a prediction is no number.
    """
    means, variances = predictions(hyperparameters, table, judges, n_neighbours)
    # That of one target, whatever the row's weight, as in `evidence.held_out_density`.
    noise = np.exp(hyperparameters.noise)
    # Rounding may leave less than nothing of a latent variance.
    deviations = np.sqrt(np.maximum(variances, 0.0) + noise)[:, None]
    errors = (table.y[:, judges.index].T - means) / deviations
    if not np.all(np.isfinite(errors)):
        return np.full(len(judges.index), -np.inf)
    return np.mean([_of_errors(each) for each in errors.T], axis=0) - np.log(deviations[:, 0])


def predictions(hyperparameters, table, judges, n_neighbours=None):
    """The targets of some rows, each from the others that explain most of its prior variance.

    Parameters
    ----------
    hyperparameters, table, judges
        As in `label_densities`.
    n_neighbours : int, optional
        Rows from which a target is predicted, at most.

    Returns
    -------
    means : ndarray of shape (B, T)
    variances : ndarray of shape (B,)
        Without the noise.
    """
    index, _, of_labels = judges
    n_neighbours = n_neighbours or (_NEIGHBOURS_OF_LABELS if of_labels else _NEIGHBOURS_OF_VALUES)
    near, noise = nearest(hyperparameters, table, judges, n_neighbours), _noise(hyperparameters, table)
    n_rows = min(_BLOCK_ROWS, max(_COVARIANCES // near.shape[1] ** 2, 1))

    def of_block(start):
        rows, of_near = index[start : start + n_rows], near[start : start + n_rows]
        # Programs are those of whole blocks.
        few = n_rows - len(rows)
        rows, of_near = filled_up(rows, n_rows), filled_up(of_near, n_rows)
        y, of_noise = np.moveaxis(table.y[:, of_near], 0, -1), np.where(of_near >= 0, noise[of_near], LEFT_OUT)
        found = _moments(hyperparameters.kernel, table.X[rows], table.X[of_near], y, of_noise)
        return [each[: n_rows - few] for each in found]

    return tuple(map(np.concatenate, zip(*threads.for_each(of_block, range(0, len(index), n_rows)), strict=True)))


def nearest(hyperparameters, table, judges, n_neighbours):
    """Positions of the rows that explain most of the prior variance at some rows, each alone: (B, n_neighbours).

    Rows of equal X are left out together. Where there are fewer rows, there are fewer columns; where others equal a
    row, so that there are fewer for it alone, -1.
    """
    index, group, _ = judges
    n_neighbours = min(n_neighbours, np.count_nonzero(table.weight > 0.0) - 1)
    X = filled_up(table.X, -(-len(table.X) // _UNIT) * _UNIT)

    def of_block(start):
        block = index[start : start + _BLOCK_ROWS]
        some = filled_up(block, _BLOCK_ROWS)
        explained = np.asarray(_explained(hyperparameters.kernel, table.X[some], X))[: len(block), : len(table.X)]
        is_other = (table.weight > 0.0) & (group[block][:, None] != group)
        near = np.argpartition(-np.where(is_other, explained, -np.inf), n_neighbours - 1, axis=1)[:, :n_neighbours]
        return np.where(np.take_along_axis(is_other, near, axis=1), near, -1)

    return np.concatenate(threads.for_each(of_block, range(0, len(index), _BLOCK_ROWS)))


def _noise(hyperparameters, table):
    """The noise variances (N,) of a table; of rows without weight any."""
    return np.exp(hyperparameters.noise) / np.where(table.weight > 0.0, table.weight, 1.0)


@quick_jit
def _explained(kernel, x, X):
    """The share of the prior variances at x (B, D) that values at X (N, D) explain, each alone, up to a factor."""
    kernel = jax.tree.map(jnp.exp, kernel)
    return kernel(x, X) ** 2 / kernel.diag(X)


def of_neighbours(kernel, x, X):
    """Of values at X (B, m, D) with one another (B, m, m), and with those at x (B, D) (B, m); variances there (B,)."""
    kernel = jax.tree.map(jnp.exp, kernel)
    among, across = jax.vmap(
        lambda x, X: (jnp.fill_diagonal(kernel(X, X), kernel.diag(X), inplace=False), kernel(x[None], X)[0])
    )(x, X)
    return among, across, kernel.diag(x)


covariances = wide_jit(of_neighbours)


def _moments(kernel, x, X, y, noise):
    """Means (B, T) and variances (B,) at x (B, D) from targets (B, K, T) at X (B, K, D) of noise variances (B, K)."""
    # Many factorisations by XLA, of programs that run at the same time, wait for one another without an end.
    # Solved in double precision, whatever that of the rows.
    among, across, prior = (np.array(each, float) for each in covariances(kernel, x, X))
    diagonal = np.arange(among.shape[1])
    among[:, diagonal, diagonal] += noise
    try:
        weights = np.linalg.solve(among, across[..., None])[..., 0]
    except np.linalg.LinAlgError:
        # Equal rows of huge weights, whose noise is lost in rounding: no prediction, and so no density.
        weights = np.full_like(across, np.nan)
    return np.einsum("bk,bkt->bt", weights, y), prior - (weights * across).sum(1)


def _of_errors(errors):
    """Log densities (B,) of errors (B,) as multiples of their deviation, calibrated."""

    def log_densities(at):
        return stats.t.logpdf(errors, np.exp(at[1]), scale=np.exp(at[0]))

    start = np.clip(np.log(np.median(np.abs(errors)) + np.exp(_SCALES[0])), *_SCALES), np.log(2.0 * _DF[0])
    found = optimize.minimize(lambda at: -log_densities(at).mean(), start, bounds=(_SCALES, tuple(np.log(_DF))))
    return log_densities(found.x)


def _of_classes(indicators):
    """One column for each class; of two classes the second alone is given."""
    return indicators if indicators.shape[1] > 1 else np.concatenate([1.0 - indicators, indicators], axis=1)


def _calibrated(indicators, labels):
    """Log densities (B,) under the softmax of the indicators (B, C) times the factor that suits them best."""

    def densities(log_factor):
        return special.log_softmax(np.exp(log_factor) * indicators, axis=1)[np.arange(len(labels)), labels]

    bounds = tuple(np.log(_FACTORS))
    found = optimize.minimize_scalar(lambda at: -densities(at).mean(), bounds=bounds, method="bounded")
    return densities(found.x)
