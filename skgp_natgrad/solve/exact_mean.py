"""The exact mean on all points, from a linear system in place of gradient steps: see `mean_system`.

Noise that was trained with few inducing points is too large for all the points. So the likelihood's parameters are
estimated anew from leave-one-out predictions, which come with the solution. For a Gaussian likelihood a search finds
the noise of largest leave-one-out density, at one factorisation per trial. For other likelihoods parameters and
solution are computed in turn.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from scipy import optimize

from .._backend import placement, threads
from .._backend.flat import flat, rebuilt
from .._backend.linalg import one_by_one
from ..likelihoods import positive
from ..step.algorithm import NATURAL_MEAN_SOLVERS
from ..training.batches import bucket, padded
from ..training.shares import evened_out, gathered
from ..variational import gaussian, model
from .mean_system import Iterate, Statistics, between, bounds, divergence, latent, pass_over, rescaled, slopes, target
from .newton import ascended
from .system import prior_of, rows_of

# Most turns of Newton's method.
_MAX_PASSES = 30
_NEWTON_HALVINGS = 10
_ROUNDS = 6
# Fall of the bound, relative to its terms, that counts as rounding.
_ROUNDING = 1e-9
# Number of rows with leave-one-out predictions.
_HELD_OUT_ROWS = 4000
# Change of the likelihood's raw parameters, and precision of the search, at which the estimation stops.
_SETTLED = 0.05
# Range of the search for the noise around its trained value, in logarithms.
_NOISE_RANGE = np.array([-10.0, 1.0])
_MIN_REST = 1e-3


class Solution(NamedTuple):
    """The trained state with the solved mean, and its bound.

    ``lost`` names the part that rounding spoiled and that was discarded, "solution" or "likelihood"; or it is "passes"
    if Newton's method has not converged before the last pass; else None.
    """

    q: gaussian.Gaussian
    parameters: model.Parameters
    elbo: float
    lost: str | None


class _At(NamedTuple):
    """A position, its statistics, and the bound there."""

    position: Iterate
    statistics: Statistics
    bound: float


def solve(q, parameters, constants, rows, tol, random_state, trains_likelihood=True):
    """Solve for the mean on inducing and mean-only points together.

    Parameters
    ----------
    q : Gaussian
    parameters : Parameters
        With the mean-only points in place; the solver starts at their weights.
    constants : Constants
    rows : Table
    tol : float
        Newton's method stops when the bound rises by less than this many nats per unit of weight.
    random_state : numpy.random.RandomState
        Chooses the held-out rows.
    trains_likelihood : bool
        Whether the likelihood's parameters are estimated anew.

    Returns
    -------
    solution : Solution
    """
    n_processes = placement.current().n_processes
    some, rows = gathered(rows, n_processes), evened_out(rows, n_processes)
    prior = prior_of(parameters, constants.masks, constants.jitter)
    trained, start = parameters, _first_position(q, parameters, prior)
    solved, statistics, status = optimum(parameters, prior, start, constants, rows, tol)
    position = solved
    if trains_likelihood and np.any(np.less(*limits(constants))):
        held_out = some_rows(some, random_state)
        if model.has_closed_form(parameters, constants):
            of = functools.partial(_statistics_of, parameters, prior, solved, statistics, constants, rows)
            parameters, position = search_noise(parameters, prior, of, constants, held_out)
        else:
            found = _alternate(parameters, prior, position, statistics, constants, rows, tol, held_out)
            parameters, position, status = found
    candidates = [(trained.raw_likelihood, at) for at in (start, solved)] + [(parameters.raw_likelihood, position)]
    before, after, elbo = bounds(candidates, parameters, prior, constants, rows)
    lost = status and "passes"
    if not after >= before - _ROUNDING * (abs(before) + float(constants.weight)):
        # The system is too ill-conditioned for double precision: the trained mean is better.
        parameters, position, elbo, lost = trained, start, before, "solution"
    elif not np.isfinite(elbo):
        parameters, position, elbo, lost = trained, solved, after, "likelihood"
    return Solution(*_as_basis(position, parameters, prior), elbo, lost)


def with_rise(result, table, plan):
    """The result of steps with the `rise` of the best mean."""
    return result._replace(rise=rise(result, table, plan))


def rise(result, table, plan):
    """Nats per unit of weight by which the best mean has a larger bound than that of natural gradient steps.

    It is zero for other steps, and unless the likelihood has a closed form: then one system gives the best mean. The
    system reads each row twice, so it must not take longer than the steps: they have read as many rows.

    Parameters
    ----------
    result : Result
        Of steps.
    table : Table or LongTable
    plan : Plan
    """
    (parameters, constants), settings = (result.state.parameters, result.constants), plan.settings
    is_stepped = settings.algorithm.mean_solver in NATURAL_MEAN_SOLVERS and len(parameters.points.Z_mean) > 0
    closed_form = plan.objective.closed_form and model.has_closed_form(parameters, constants)
    read = len(result.trained.report.elbo) * settings.batch_size
    if not (is_stepped and closed_form) or plan.n_devices is not None or table.n_rows > read:
        return 0.0
    with threads.single_threaded(len(constants.masks.Z)):
        prior = prior_of(parameters, constants.masks, constants.jitter)
        start = _first_position(result.state.q, parameters, prior)
        best = start._replace(w=optimum(parameters, prior, start, constants, table, 0.0)[0].w)
        pairs = [(parameters.raw_likelihood, at) for at in (start, best)]
        before, after = bounds(pairs, parameters, prior, constants, table)
    return (after - before) / table.total_weight


def optimum(parameters, prior, position, constants, rows, tol):
    """The best mean and covariance for fixed hyperparameters.

    Newton's method, with steps that are halved until the bound does not fall. With a
    conjugate likelihood one full step is enough.

    Returns
    -------
    position : Iterate
    statistics : Statistics
        At ``position``; for a conjugate likelihood at any position.
    status : str or None
        See `newton.ascended`.
    """

    def at(position):
        statistics = pass_over(parameters, prior, position, constants, rows)
        return _At(position, statistics, float(statistics.expectation) - float(divergence(position)))

    def toward(here):
        end = target(here.statistics)[0]
        return lambda share: at(between(here.position, end, share))

    here = at(position)
    if model.has_closed_form(parameters, constants):
        return target(here.statistics)[0], here.statistics, None
    here, _, status = ascended(here, toward, lambda _: tol * float(constants.weight), _MAX_PASSES, _NEWTON_HALVINGS)
    return here.position, here.statistics, status


def _statistics_of(parameters, prior, position, statistics, constants, rows, tried):
    """The statistics of a conjugate likelihood under the parameters ``tried``, from those under ``parameters``."""
    if rows.has_known:
        # With known variances the rows' curvatures do not change by a common factor.
        return pass_over(tried, prior, position, constants, rows)
    return rescaled(statistics, parameters, tried, constants)


def _alternate(parameters, prior, position, statistics, constants, rows, tol, held_out):
    """Estimate the likelihood's parameters and the position in turn.

    The parameters are estimated with the predictive variances of a process whose covariance,
    too, uses all the points. With the inducing points only, the variance would contain a part
    that the mean already explains; the noise would be reduced by it again and again.
    """
    residual = unexplained(parameters, prior, held_out)
    for _ in range(_ROUNDS):
        before, factor = parameters, target(statistics)[1]
        mean, _, own = predictions(parameters, prior, factor, position, constants, held_out)
        parameters = estimate_likelihood(parameters, mean, residual + own, constants, held_out)
        position, statistics, status = optimum(parameters, prior, position, constants, rows, tol)
        first, last = (flat(each.raw_likelihood) for each in (before, parameters))
        if np.max(np.abs(first - last)) < _SETTLED:
            break
    return parameters, position, status


@jax.jit
def _first_position(q, parameters, prior):
    """The mean of the orthogonal basis as whitened weights on all points."""
    a, size = parameters.weights.a, q.mean.shape[-1]
    root = jnp.broadcast_to(prior.root, (len(a), *prior.root.shape[1:]))
    return Iterate(jnp.concatenate([q.mean, jnp.einsum("kh,khg->kg", a, root[:, size:, size:])], axis=1), q)


@jax.jit
def _as_basis(position, parameters, prior):
    """Whitened weights on all points as q(v) and mean-only weights of the orthogonal basis."""
    size = position.q.cov.shape[-1]
    m, own = position.w[:, :size], position.w[:, size:]
    whiten = jnp.broadcast_to(prior.whiten, (len(own), *prior.whiten.shape[1:]))
    a = jnp.einsum("kg,kgh->kh", own, whiten[:, size:, size:]) * prior.mask[size:]
    q = gaussian.with_mean(position.q, m)
    return q, parameters._replace(weights=parameters.weights._replace(a=a))


@jax.jit
def predictions(parameters, prior, factor, position, constants, batch):
    """Latent means of each row's prediction from all other rows, and two variances: (K, B) each.

    The row's own term is removed from the parabola at the optimum: with
    s = a^T (I + A Lam A^T)^-1 a, where a is its column of A, the mean is mean - g s / (1 - lam s).

    Returns
    -------
    mean : array of shape (K, B)
    var : array of shape (K, B)
        The predicted variance, from all rows: a single row hardly changes the
        variance that the inducing points do not explain.
    own : array of shape (K, B)
        s / (1 - lam s), the variance due to the mean's weights.
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

    # Finite differences are used, since a predictive density need not have a reverse-mode derivative.
    found = optimize.minimize(loss, flat(like), method="L-BFGS-B", bounds=optimize.Bounds(*limits(constants)))
    return parameters._replace(raw_likelihood=rebuilt(found.x, like)) if np.isfinite(found.fun) else parameters


def limits(constants):
    """Lower and upper bounds of the likelihood's parameters, flat."""
    return [flat(likelihood) for _, likelihood in constants.log_bounds]


def search_noise(parameters, prior, statistics_of, constants, held_out):
    """Search for the noise with the largest leave-one-out density; the system is solved anew for each trial.

    ``statistics_of`` returns the statistics of all rows under other parameters. If the predicted
    variance is too large, the noise found compensates for it, and is smaller than the noise of the
    data. Parameters that need not be positive are no noise, and keep their values.
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
        options = {"xatol": _SETTLED}
        best[i] = optimize.minimize_scalar(loss, args=(i,), bounds=bounds, method="bounded", options=options).x
        # The search stops just before a bound.
        near = [end for end in (lower[i], upper[i]) if abs(best[i] - end) < 2.0 * _SETTLED]
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
