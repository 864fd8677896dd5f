"""The model that a fit must beat: latent functions that do not depend on X.

Its bound is a log-likelihood, since nothing is uncertain and no divergence is paid.
A fit whose bound is not above it has learned nothing from X that is worth its price.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize

from .._backend.device import quick_jit
from ..variational.bound import data_term
from ..variational.model import Parameters
from .batches import Table, padded

# Rows that stand for a larger table.
_ROWS = 2048
_NARROW = 1e-10
_MAX_ITERATIONS = 100


def best_log_likelihood(raw_likelihood, constants, rows):
    """The largest log-likelihood of constant latent functions, for each unit of weight.

    Parameters
    ----------
    raw_likelihood : Likelihood
        Where the search starts; it keeps to the bounds.
    constants : Constants
        Its prior means are the first constants.
    rows : Table

    Returns
    -------
    value : float
        In nats; minus infinity where the likelihood has none that is finite.
    """
    limits = [raw.from_raw(np) for _, raw in constants.log_bounds]
    known = raw_likelihood.best_constant(rows.y, rows.weight, *limits)
    if known is not None:
        return known
    batch = _some(rows)
    # Of a few arrays alone, so that one program serves whatever else a fit has.
    seen = constants._replace(log_bounds=None, masks=None, prior_mean=None, past=None)
    at = np.asarray(constants.prior_mean), raw_likelihood

    def loss(x):
        value, gradient = _loss(*_rebuilt(x, at), seen, batch)
        value, gradient = float(value), _flat(gradient)
        # A wall, for the line search to turn back at.
        return (value, gradient) if np.isfinite(value + gradient.sum()) else (np.finfo(float).max, 0.0 * gradient)

    lower, upper = (
        _flat((np.full_like(at[0], infinity), bounds[1]))
        for infinity, bounds in zip((-np.inf, np.inf), constants.log_bounds, strict=True)
    )
    options = {"maxiter": _MAX_ITERATIONS}
    bounds = optimize.Bounds(lower, upper)
    found = optimize.minimize(loss, _flat(at), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return -found.fun if found.fun < np.finfo(float).max else -np.inf


def _flat(tree):
    """The leaves of ``tree`` in one vector; by NumPy, for which nothing is compiled."""
    return np.concatenate([np.ravel(np.asarray(leaf)) for leaf in jax.tree.leaves(tree)])


def _rebuilt(x, like):
    """The vector of `_flat` as a tree like another one."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([np.size(leaf) for leaf in leaves])
    parts = np.split(x, ends[:-1])
    return jax.tree.unflatten(
        structure, [part.reshape(np.shape(leaf)) for part, leaf in zip(parts, leaves, strict=True)]
    )


@quick_jit
def _loss(levels, raw_likelihood, constants, batch):
    """Minus the mean log-likelihood, and its gradient in the levels (K, 1) and the likelihood's parameters."""

    def loss(at):
        mean = jnp.broadcast_to(at[0], (len(at[0]), len(batch.weight)))
        narrow = jnp.full_like(mean, _NARROW)
        total = data_term(Parameters((), at[1], None, None), constants, mean, narrow, batch, narrow)
        return -constants.objective.reported(total) / batch.weight.sum()

    return jax.value_and_grad(loss)((levels, raw_likelihood))


def _some(rows):
    """A batch of all rows, or of a random part: one program serves all tables."""
    n_rows = len(rows.weight)
    # Random numbers of its own: what a fit draws must not depend on whether it is looked at.
    part = np.random.default_rng(0).permutation(n_rows)[:_ROWS]
    # The rows' inputs have no part in it.
    return padded(Table(np.empty((len(part), 0)), rows.y[:, part], rows.weight[part]), _ROWS)
