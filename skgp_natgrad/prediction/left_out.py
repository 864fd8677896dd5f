"""Rows of training, each predicted from all others.

With a Gaussian likelihood a row's own part can be taken out of q in closed form. In whitened coordinates the
row's covariances with the points are a, and q(v) = N(m, S); with s = a^T S a, its leverage h = w s / noise for
the weight w of what is left out, and r the variance that the points leave unexplained, the error without the row
is (y - mean) / (1 - h), and its variance r + s / (1 - h) + noise. That is exact where q is the best one for its
hyperparameters and has no mean-only points; the few weights of these are no part of h.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from .._backend import device as _device
from .._backend import placement
from .._backend.device import quick_jit
from .._backend.repeated import contradicted, n_observations
from .._backend.types import Floats
from .evaluate import over_chunks
from .model import computing, predict
from .posterior import covariances

# A row that only its own part explains is not told from rounding.
_LEAST_REST = 1e-6


class LeftOut(NamedTuple):
    """Rows, each predicted from all others.

    Attributes
    ----------
    X : ndarray of shape (B, D)
    error : ndarray of shape (K, B)
        y less its prediction; NaN where the row says nothing of new rows.
    variance : ndarray of shape (K, B)
        Of the prediction, with noise.
    weight, n_each : ndarray of shape (K, B)
        The weights of the rows, and numbers of observations in them.
    """

    X: Floats
    error: Floats
    variance: Floats
    weight: Floats
    n_each: Floats


def of_model(model, table, random_state, n_rows, device="auto"):
    """The `LeftOut` of some rows that a model with a Gaussian likelihood was trained on.

    Parameters
    ----------
    model : Model
    table : Table
        Without known variances.
    random_state : numpy.random.RandomState
    n_rows : int
        At most so many rows.
    device : str

    Returns
    -------
    left_out : LeftOut
    """
    table = table.sample
    chosen = np.sort(random_state.choice(table.n_rows, min(table.n_rows, n_rows), replace=False))
    rows, repeated = table.rows(chosen), contradicted(table.X, table.y - table.added)[:, chosen]
    mean, var = predict(model, rows.X, device=device)
    with _device.computation(device, required=False):
        unexplained = np.minimum(_unexplained(model, rows.X), var)
    n_each = n_observations(rows.weight, repeated)
    noise, own = model.likelihood.noise_variance(), var - unexplained
    rest = np.maximum(1.0 - rows.weight / n_each * own / noise, _LEAST_REST)
    weight = np.where(np.isnan(rows.y), 0.0, rows.weight)
    error = np.where(weight > 0.0, (rows.y - rows.added - mean) / rest, np.nan)
    return LeftOut(rows.X, error, unexplained + own / rest + noise, weight, n_each)


def _unexplained(model, X):
    """k_xx - |L^-1 k_zx|^2 at the rows of ``X`` (N, D): (1 or K, N)."""
    parts = computing(model.kernels, X), model.posterior.Z, model.posterior.whiten
    parts = placement.current().replicated(parts, now=True)
    return over_chunks(lambda X: _unexplained_in_chunk(*parts, X), X)


@quick_jit
def _unexplained_in_chunk(kernels, Z, whiten, X):
    A = whiten @ covariances(kernels, Z, X)
    return jnp.maximum(jnp.stack([kernel.diag(X) for kernel in kernels]) - (A * A).sum(-2), 0.0)
