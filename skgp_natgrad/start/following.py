"""The past of a stream in other units of y, and whether new rows contradict it or surprise its hyperparameters.

The latent functions scale with the units of y, so that their posterior from earlier rows can be converted to other
units exactly. The hyperparameters keep their numbers, now in the new units, and so does the share of the noise.
"""

from __future__ import annotations

import numpy as np
from scipy import special
from scipy.linalg import solve_triangular
from sklearn.utils import check_random_state

from .._backend.types import Device, NDArray, Seed
from ..prediction.joint import covariance
from ..prediction.model import Model, distribution, predict
from ..prediction.quantiles import cumulative
from ..training.batches import Table
from ..variational import gaussian, streaming
from .state import prior_mean_of

# Rows at most that test for a contradiction, and the least variance of their noise.
_ROWS, _LEAST_NOISE = 500, 1e-8
# New rows contradict the earlier ones, or surprise the hyperparameters, if something else makes them more likely by so
# many nats a row, and in all.
_EACH, _ALL = 0.25, 10.0
# A normal score of a target is no larger; and the share of the largest that are left out, as gross errors.
_FURTHEST, _OUTLIERS = 10.0, 0.01


def rescaled(previous, ratio, prior_mean):
    """The record of a fit whose latent functions are multiplied by ``ratio`` (K,), with this prior mean (K, 1)."""
    q = streaming.in_units(gaussian.separate(previous.q), ratio)
    return previous._replace(q=q, prior_mean=prior_mean)


def forgotten(plan, table, previous, latents):
    """The record of a fit that has forgotten some latent functions (K,); their prior mean is that of the table."""
    q = gaussian.separate(previous.q)

    def other(own, new):
        return np.where(np.reshape(latents, (-1,) + (1,) * (np.ndim(own) - 1)), new, own)

    q = gaussian.Gaussian(*map(other, q, gaussian.standard(*q.mean.shape)))
    prior_mean = other(previous.prior_mean, prior_mean_of(plan, table).reshape(-1, 1))
    # Gradients are divided by the weight of all rows that count: those of a past that is forgotten do not.
    weight = 0.0 if np.all(latents) else previous.weight
    return previous._replace(q=q, prior_mean=prior_mean, weight=weight)


def contradicted(model: Model, table: Table, seed: Seed = None, device: Device = "auto") -> NDArray[np.bool_]:
    """Which targets are clearly more likely as another function under the same kernel than after the earlier rows.

    Both are normal, and each has the scale that suits it best: rows with another noise, or elsewhere in X, where
    the earlier ones tell nothing, are no contradiction.

    Parameters
    ----------
    model : Model
    table : Table
        Rows that it has not seen, in its units.
    seed : int, RandomState instance or None
        Draws some of many rows.
    device : str

    Returns
    -------
    found : ndarray of bool of shape (T,)
    """
    table = _some(table, seed)
    mean, var, cov, noise = _joint_moments(model, table, device)
    found = np.zeros(len(mean), bool)
    for k, kernel in enumerate(np.resize(np.array(model.kernels, dtype=object), len(mean))):
        far = np.abs(table.y[k] - mean[k]) / np.sqrt(var[k])
        # Heavy tails may have no variance.
        rows = np.flatnonzero(np.isfinite(far) & np.isfinite(var[k]))
        # One row may be a gross error.
        rows = rows[np.argsort(far[rows], kind="stable")[: len(rows) - max(1, int(_OUTLIERS * len(rows)))]]
        prior = model.posterior.prior_mean[k] + (0.0 if table.offset is None else table.offset[k, rows])
        alone = _at_best_scale(table.y[k, rows] - prior, kernel(table.X[rows]), noise[k, rows])
        after = _at_best_scale((table.y - mean)[k, rows], cov[k][np.ix_(rows, rows)], noise[k, rows])
        found[k] = alone - after > max(_ALL, _EACH * len(rows))
    return found


def _some(table, seed):
    """At most so many rows of a table."""
    if table.n_rows <= _ROWS:
        return table
    return table.rows(np.sort(check_random_state(seed).choice(table.n_rows, _ROWS, replace=False)))


def _joint_moments(model, table, device):
    """Means and variances (T, N) of the targets, covariances (T, N, N) of their means, and variances of their noise."""
    # A factor that varies with X multiplies both parts of the variance: beside its covariance no noise might be left.
    model = model.undispersed
    cov = covariance(model, table.X, device)
    # Of the latent functions the first ones are the means.
    mean, var = predict(model, table.X, "target_moments", device=device, offset=table.offset, known=table.known)
    noise = np.maximum(var - np.diagonal(cov, axis1=1, axis2=2)[: len(mean)], _LEAST_NOISE) / table.weight
    return mean, var, cov, noise


def _at_best_scale(residual, cov, noise):
    """The largest log density of residuals under a multiple of their covariance, up to a constant."""
    n_rows = len(residual)
    if n_rows == 0:
        return 0.0
    L = np.linalg.cholesky(cov + np.diag(noise))
    mean_square = np.square(solve_triangular(L, residual, lower=True)).mean()
    return -0.5 * n_rows * np.log(max(mean_square, np.finfo(float).tiny)) - np.log(np.diag(L)).sum()


def is_surprised(model: Model, table: Table, device: Device = "auto") -> bool:
    """Whether another deviation would raise the density of the targets by as much as a contradiction costs.

    With z the normal scores of n targets under their predicted distributions, a factor of the deviation of z gains at
    most n (s^2 - 1 - log s^2) / 2 nats, where s^2 is the mean of z^2. Rows that share what is not known yet, those of a
    new level of a category or of a part of X without rows, say it once, not each for itself: where z gains as much,
    the scores count that are left when their correlation is taken away.

    Parameters
    ----------
    model : Model
    table : Table
        Rows that it has not seen, in its units.
    device : str

    Returns
    -------
    found : bool
    """
    table = _some(table, 0)
    score, seen = _scores(model, table, device)
    return _gains(score, seen) and _gains(_alone(score, seen, model, table, device), seen)


def _scores(model, table, device):
    """The normal scores of the targets (T, N), and where there is one."""
    likelihood, *moments, known = distribution(model, table.X, device, None, table.offset, table.known)
    seen = ~np.isnan(table.y) & (table.weight > 0.0)
    return special.ndtri(cumulative(likelihood, *moments, np.where(seen, table.y, 0.0), known)), seen


def _alone(score, seen, model, table, device):
    """Scores (T, N) without their correlation: each beside what the smaller ones of its target let expect."""
    _, _, cov, noise = _joint_moments(model, table, device)
    score = np.clip(score, -_FURTHEST, _FURTHEST)
    for k, of_target in enumerate(seen):
        # Gross errors come last, and so change no other score.
        rows = np.flatnonzero(of_target)
        rows = rows[np.argsort(np.abs(score[k, rows]), kind="stable")]
        of_rows = cov[k][np.ix_(rows, rows)] + np.diag(noise[k, rows])
        deviation = np.sqrt(np.diag(of_rows))
        score[k, rows] = solve_triangular(np.linalg.cholesky(of_rows), deviation * score[k, rows], lower=True)
    return score


def _gains(score, seen):
    """Whether another deviation of the scores (T, N) is clearly more likely."""
    gain = sum(_gain(each[rows]) for each, rows in zip(score, seen, strict=True))
    return bool(gain > max(_ALL, _EACH * seen.sum()))


def _gain(score):
    """What another deviation of some normal scores gains, without the largest: one row may be a gross error."""
    square = np.sort(np.clip(score, -_FURTHEST, _FURTHEST) ** 2)
    square = square[: len(square) - max(1, int(_OUTLIERS * len(square)))]
    if not len(square):
        return 0.0
    ratio = max(square.mean(), np.finfo(float).tiny)
    return 0.5 * len(square) * (ratio - 1.0 - np.log(ratio))
