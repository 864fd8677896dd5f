"""The past of a stream in other units of y, and whether new rows contradict it or surprise its hyperparameters.

The latent functions scale with the units of y, so that their posterior from earlier rows can be converted to other
units exactly. The hyperparameters keep their numbers, now in the new units, and so does the share of the noise.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.utils import check_random_state

from .._backend.types import Device, NDArray, Seed
from ..prediction.joint import covariance
from ..prediction.model import Model, predict
from ..training.batches import Table
from ..variational import gaussian, streaming
from .state import prior_mean_of

# Rows at most that test for a contradiction, and the least variance of their noise.
_ROWS, _LEAST_NOISE = 500, 1e-8
# New rows contradict the earlier ones, or surprise the hyperparameters, if something else makes them more likely by so
# many nats a row, and in all.
_EACH, _ALL = 0.25, 10.0
# A residual in deviations is no larger; and the share of the largest that are left out, as gross errors.
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
    found = []
    for k, (rows, residual, _, cov, noise) in enumerate(_of_targets(model, table, device)):
        prior = model.posterior.prior_mean[k] + (0.0 if table.offset is None else table.offset[k, rows])
        kernel = model.kernels[k % len(model.kernels)]
        alone = _at_best_scale(table.y[k, rows] - prior, kernel(table.X[rows]) + noise)
        found.append(alone - _at_best_scale(residual, cov + noise) > max(_ALL, _EACH * len(rows)))
    return np.array(found)


def _some(table, seed):
    """At most so many rows of a table."""
    if table.n_rows <= _ROWS:
        return table
    return table.rows(np.sort(check_random_state(seed).choice(table.n_rows, _ROWS, replace=False)))


def _of_targets(model, table, device):
    """For each target, rows with one: their indices, residuals, deviations of y, and covariances of mean and noise.

    The rows are in the order of their distance from the mean, without the furthest: one row may be a gross error.
    """
    moments = {"device": device, "offset": table.offset, "known": table.known}
    mean, deviation = predict(model, table.X, "target_moments", **moments)
    deviation = np.sqrt(deviation)
    # A factor that varies with X multiplies both parts of the variance: beside its covariance no noise might be left.
    cov = covariance(model.undispersed, table.X, device)
    var = predict(model.undispersed, table.X, "target_moments", **moments)[1]
    # Of the latent functions the first ones are the means.
    noise = np.maximum(var - np.diagonal(cov, axis1=1, axis2=2)[: len(mean)], _LEAST_NOISE)
    for k, residual in enumerate(table.y - mean):
        far = np.abs(residual) / np.sqrt(var[k])
        # Heavy tails may have no variance.
        rows = np.flatnonzero(np.isfinite(far) & np.isfinite(var[k]) & (table.weight > 0.0))
        rows = rows[np.argsort(far[rows], kind="stable")[: len(rows) - max(1, int(_OUTLIERS * len(rows)))]]
        of_noise = np.diag(noise[k, rows] / table.weight[rows])
        yield rows, residual[rows], deviation[k, rows], cov[k][np.ix_(rows, rows)], of_noise


def _whitened(residual, cov):
    """Residuals, each beside what those before it let expect, and the logarithm of the root of the determinant."""
    L = np.linalg.cholesky(cov)
    return solve_triangular(L, residual, lower=True), np.log(np.diag(L)).sum()


def _at_best_scale(residual, cov):
    """The largest log density of residuals under a multiple of their covariance, up to a constant."""
    if not len(residual):
        return 0.0
    z, half_log_det = _whitened(residual, cov)
    return -0.5 * len(z) * np.log(max(np.square(z).mean(), np.finfo(float).tiny)) - half_log_det


def is_surprised(model: Model, table: Table, device: Device = "auto") -> bool:
    """Whether another deviation would raise the density of the targets by as much as a contradiction costs.

    With z the residuals of n targets in predicted deviations, a factor of the deviation of z gains at most
    n (s^2 - 1 - log s^2) / 2 nats, where s^2 is the mean of z^2. Rows that share what is not known yet, those of a new
    level of a category or of a part of X without rows, say it once, not each for itself: so the residuals must gain as
    much without their correlation.

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
    gains, n_seen = np.zeros(2), 0
    for rows, residual, deviation, cov, noise in _of_targets(model, _some(table, 0), device):
        if len(rows):
            gains += [_gain(each) for each in (residual / deviation, _whitened(residual, cov + noise)[0])]
            n_seen += len(rows)
    return bool(np.all(gains > max(_ALL, _EACH * n_seen)))


def _gain(score):
    """What another deviation of some normal scores gains."""
    ratio = max(np.square(np.clip(score, -_FURTHEST, _FURTHEST)).mean(), np.finfo(float).tiny)
    return 0.5 * len(score) * (ratio - 1.0 - np.log(ratio))
