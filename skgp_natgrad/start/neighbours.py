"""Class labels as their nearest rows predict them: how well a kernel suits a table as dense as the whole one.

Some hundreds of rows, drawn at random, are far from one another. The kernel that predicts others best from them may be
one that tells least of a row's neighbours in the whole table, where the model will rest on all rows. So kernels are
compared by labels which the rows that tell most of them predict, of all rows of the table or a large part of them
(Vecchia 1988): a process of some rows for each of them, whose regression of the labels has a closed form.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize, special

from .._backend import threads
from .._backend.device import quick_jit
from .._backend.repeated import groups

# Rows from which a label is predicted, and labels that are predicted at a time.
_NEIGHBOURS, _BLOCK_ROWS = 100, 50
# Rows of a table come in multiples of this number, so that similar tables share programs.
_UNIT = 1024
# The noise variance of a row that is left out.
_LEFT_OUT = 1e100
# Limits of the factor of the predicted indicators under a softmax; of one that tells labels well it is near ten.
_FACTORS = 1e-3, 1e3


class Judges(NamedTuple):
    """The rows whose labels are predicted, each from others: the same for all kernels.

    Attributes
    ----------
    index : ndarray of shape (B,)
        Their positions.
    group : ndarray of shape (N,)
        A number for each row of the table, the same for rows of equal X: these are left out together. Otherwise the
        shortest lengthscale would predict copies best.
    """

    index: np.ndarray
    group: np.ndarray

    @classmethod
    def of(cls, X, index):
        """The rows of X (N, D) at these positions."""
        return cls(index, groups(X))


def label_densities(hyperparameters, table, judges):
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
    means = predictions(hyperparameters, table, judges)
    if not np.all(np.isfinite(means)):
        return np.full(len(judges.index), -np.inf)
    low, high = (limit(table.y, axis=1) for limit in (np.min, np.max))
    if np.any(low == high):
        # All rows have one label.
        return np.zeros(len(judges.index))
    of_classes, labels = (_of_classes((each - low) / (high - low)) for each in (means, table.y[:, judges.index].T))
    return _calibrated(of_classes, labels.argmax(1))


def predictions(hyperparameters, table, judges, n_neighbours=_NEIGHBOURS):
    """Means (B, T) of the targets of some rows, each from the others that explain most of its prior variance.

    Parameters
    ----------
    hyperparameters, table, judges
        As in `label_densities`.
    n_neighbours : int
        Rows from which a target is predicted, at most.
    """
    n_neighbours = min(n_neighbours, np.count_nonzero(table.weight > 0.0) - 1)
    index, group = judges
    blocks = [index[start : start + _BLOCK_ROWS] for start in range(0, len(index), _BLOCK_ROWS)]
    noise = np.exp(hyperparameters.noise) / np.where(table.weight > 0.0, table.weight, 1.0)
    X = np.pad(table.X, ((0, -len(table.X) % _UNIT), (0, 0)), mode="edge")

    def of_block(block):
        rows = np.pad(block, (0, _BLOCK_ROWS - len(block)), mode="edge")
        explained = np.asarray(_explained(hyperparameters.kernel, table.X[rows], X))[:, : len(table.X)]
        is_other = (table.weight > 0.0) & (group[rows][:, None] != group)
        near = np.argpartition(-np.where(is_other, explained, -np.inf), n_neighbours - 1, axis=1)[:, :n_neighbours]
        of_near = np.where(np.take_along_axis(is_other, near, axis=1), noise[near], _LEFT_OUT)
        y = np.moveaxis(table.y[:, near], 0, -1)
        return _means(hyperparameters.kernel, table.X[rows], table.X[near], y, of_near)[: len(block)]

    return np.concatenate(threads.for_each(of_block, blocks))


@quick_jit
def _explained(kernel, x, X):
    """The share of the prior variances at x (B, D) that values at X (N, D) explain, each alone, up to a factor."""
    kernel = jax.tree.map(jnp.exp, kernel)
    return kernel(x, X) ** 2 / kernel.diag(X)


@quick_jit
def _covariances(kernel, x, X):
    """Of values at X (B, K, D) with one another (B, K, K), and with those at x (B, D) (B, K)."""
    kernel = jax.tree.map(jnp.exp, kernel)
    return jax.vmap(
        lambda x, X: (jnp.fill_diagonal(kernel(X, X), kernel.diag(X), inplace=False), kernel(x[None], X)[0])
    )(x, X)


def _means(kernel, x, X, y, noise):
    """Predictions (B, T) at x (B, D) from targets (B, K, T) at X (B, K, D) of noise variances (B, K)."""
    # Many factorisations by XLA, of programs that run at the same time, wait for one another without an end.
    # Solved in double precision, whatever that of the rows.
    among, across = (np.array(each, float) for each in _covariances(kernel, x, X))
    diagonal = np.arange(among.shape[1])
    among[:, diagonal, diagonal] += noise
    try:
        return np.einsum("bk,bkt->bt", across, np.linalg.solve(among, y))
    except np.linalg.LinAlgError:
        # Equal rows of huge weights, whose noise is lost in rounding: no prediction, and so no density.
        return np.full((len(x), y.shape[-1]), np.nan)


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
