"""The model that a fit must beat: latent functions that do not depend on X.

Its bound is a log-likelihood, since there is no uncertainty and no KL divergence. If the bound of a fit is not larger,
what it learned from X is worth less than its KL divergence.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize

from .._backend.device import quick_jit
from .._backend.flat import flat, rebuilt, turning_back
from ..variational.bound import data_term
from ..variational.model import Parameters
from .batches import padded

# Number of rows that represent a larger table.
_ROWS = 2048
_NARROW = 1e-10
_MAX_ITERATIONS = 100


def best_log_likelihood(raw_likelihood, constants, rows):
    """The largest log-likelihood, per unit of weight, of constant latent functions.

    Parameters
    ----------
    raw_likelihood : Likelihood
        Start of the search, which stays within the bounds.
    constants : Constants
        Its prior means are the initial latent constants.
    rows : Table

    Returns
    -------
    value : float
        In nats; minus infinity if no finite value was found.
    """
    limits, rows = [raw.from_raw(np) for _, raw in constants.log_bounds], rows.sample
    if rows.offset is None and not rows.per_target:
        known = raw_likelihood.best_constant(rows.y, rows.weight, *limits)
        if known is not None:
            return known
    batch = _some(rows)
    # Only a few arrays are passed, so that one program serves all fits.
    seen = constants._replace(log_bounds=None, masks=None, prior_mean=None, past=None)
    at = np.asarray(constants.prior_mean), raw_likelihood

    def loss(x):
        value, gradient = _loss(*rebuilt(x, at), seen, batch)
        return float(value), flat(gradient)

    lower, upper = (
        flat((np.full_like(at[0], infinity), bounds[1]))
        for infinity, bounds in zip((-np.inf, np.inf), constants.log_bounds, strict=True)
    )
    options = {"maxiter": _MAX_ITERATIONS}
    bounds = optimize.Bounds(lower, upper)
    found = optimize.minimize(turning_back(loss), flat(at), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return -found.fun if found.fun < np.finfo(float).max else -np.inf


@quick_jit
def _loss(levels, raw_likelihood, constants, batch):
    """Minus the mean log-likelihood, and its gradient in the levels (K, 1) and the likelihood's parameters."""

    def loss(at):
        mean = jnp.broadcast_to(at[0], (len(at[0]), len(batch.weight)))
        mean = mean if batch.offset is None else mean + batch.offset
        narrow = jnp.full_like(mean, _NARROW)
        total = data_term(Parameters((), at[1], None, None), constants, mean, narrow, batch, narrow)
        return -constants.objective.reported(total) / batch.weight.sum()

    return jax.value_and_grad(loss)((levels, raw_likelihood))


def _some(rows):
    """A batch of all rows, or of a random part of them; one program serves all tables."""
    n_rows = len(rows.weight)
    # Its own random numbers: the draws of a fit must not depend on whether this function is called.
    part = np.random.default_rng(0).permutation(n_rows)[:_ROWS]
    # The inputs of the rows are not used.
    return padded(rows._replace(X=rows.X[:, :0]).rows(part), _ROWS)
