"""The likelihood's parameters from leave-one-out predictions of the solved mean.

The noise that was trained with a few inducing points is too large for all the
points: the likelihood's parameters are estimated anew from leave-one-out
predictions, which come with the solution. For a Gaussian likelihood a search finds
the noise of largest leave-one-out density, at one factorisation per trial; for
other likelihoods parameters and solution are computed in turn.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from scipy import optimize

from .._backend.flat import flat, rebuilt
from .._backend.linalg import one_by_one
from ..likelihoods import positive
from ..training.batches import bucket, padded
from .mean_system import latent, slopes, target
from .system import rows_of

# Number of rows whose leave-one-out predictions are formed.
_HELD_OUT_ROWS = 4000
# Change of the likelihood's raw parameters, and precision of the search, at which the estimation stops.
SETTLED = 0.05
# Range of the search for the noise around its trained value, in logarithms.
_NOISE_RANGE = np.array([-10.0, 1.0])
_MIN_REST = 1e-3


@jax.jit
def predictions(parameters, prior, factor, position, constants, batch):
    """Latent means of each row's prediction from all other rows, and two variances: (K, B) each.

    The row's own term is removed from the parabola at the optimum: with
    s = a^T (I + A Lam A^T)^-1 a, where a is its column of A, the mean is mean - g s / (1 - lam s).

    Returns
    -------
    mean : array of shape (K, B)
    var : array of shape (K, B)
        The predicted variance, from all rows: one row hardly changes what the
        inducing points leave unexplained.
    own : array of shape (K, B)
        s / (1 - lam s), the variance of the mean's weights.
    """
    moments, A = latent(parameters, prior, position, constants, batch)
    _, g, lam = slopes(parameters, constants, moments, batch)
    s = _quadratic_forms(factor, A)
    own = s / jnp.maximum(1.0 - jnp.maximum(lam, 0.0) * s, _MIN_REST)
    return moments[0] - g * own, moments[1], own


@jax.jit
def unexplained(parameters, prior, batch):
    """k_xx - k_xa K_aa^-1 k_ax: (J, B)."""
    return jnp.stack([rows.residual for rows in rows_of(parameters, prior, batch.X, None)])


def _quadratic_forms(factor, A):
    """a^T (L L^T)^-1 a for the columns a of ``A`` (J, P, B) and each Cholesky factor (K, P, P): (K, B)."""
    half = one_by_one(lambda L, a: solve_triangular(L, a, lower=True))(
        factor, jnp.broadcast_to(A, (len(factor), *A.shape[1:]))
    )
    return (half * half).sum(1)


@jax.jit
def _held_out_density(raw_likelihood, mean, var, batch):
    each = raw_likelihood.from_raw().given(batch.known).log_predictive_density(mean, var, batch.y)
    return jnp.where(batch.weight > 0.0, batch.weight * each, 0.0).sum() / batch.weight.sum()


def estimate_likelihood(parameters, mean, var, constants, batch):
    """The likelihood's parameters with the largest leave-one-out density, within their bounds."""
    like = parameters.raw_likelihood

    def loss(x):
        return -float(_held_out_density(rebuilt(x, like), mean, var, batch))

    # By finite differences: a predictive density need not have a reverse-mode derivative.
    found = optimize.minimize(loss, flat(like), method="L-BFGS-B", bounds=optimize.Bounds(*limits(constants)))
    return parameters._replace(raw_likelihood=rebuilt(found.x, like)) if np.isfinite(found.fun) else parameters


def limits(constants):
    """Lower and upper bounds of the likelihood's parameters, flat."""
    return [flat(likelihood) for _, likelihood in constants.log_bounds]


def search_noise(parameters, prior, statistics_of, constants, held_out):
    """Search for the noise with the largest leave-one-out density; the system is solved anew for each trial.

    ``statistics_of`` gives the statistics of all rows under other parameters. The noise
    that is found compensates for a predicted variance that is too large, and can be
    smaller than the noise of the data. Parameters that are not positive are not noise, and keep their values.
    """
    (lower, upper), best = limits(constants), flat(parameters.raw_likelihood)

    def solved(x):
        tried = parameters._replace(raw_likelihood=rebuilt(x, parameters.raw_likelihood))
        return tried, *target(statistics_of(tried))

    def loss(value, i):
        x = best.copy()
        x[i] = value
        tried, position, factor = solved(x)
        mean, var, _ = predictions(tried, prior, factor, position, constants, held_out)
        return -float(_held_out_density(tried.raw_likelihood, mean, var, held_out))

    for i in np.flatnonzero((lower < upper) & _is_positive(parameters.raw_likelihood)):
        bounds = np.clip(best[i] + _NOISE_RANGE, lower[i], upper[i])
        options = {"xatol": SETTLED}
        best[i] = optimize.minimize_scalar(loss, args=(i,), bounds=bounds, method="bounded", options=options).x
        # The search stops just before a bound.
        near = [end for end in (lower[i], upper[i]) if abs(best[i] - end) < 2.0 * SETTLED]
        best[i] = near[0] if near else best[i]
    return solved(best)[:2]


def _is_positive(likelihood):
    """Whether each of the flat parameters is a positive one."""
    each = [
        np.full(np.shape(getattr(likelihood, name)), likelihood.transform(name) is positive)
        for name in likelihood.parameters
    ]
    return np.concatenate([leaf.ravel() for leaf in each])


def some_rows(rows, random_state):
    """A random part of the rows, as one batch."""
    rows = rows.sample
    n_rows = min(rows.n_rows, _HELD_OUT_ROWS)
    part = np.sort(random_state.choice(rows.n_rows, n_rows, replace=False))
    return padded(rows.rows(part), bucket(n_rows))
