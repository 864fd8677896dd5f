"""q in closed form, on all rows, for a Gaussian likelihood.

With the likelihood conjugate, one natural gradient step of size one from anywhere ends at the best
q (Salimbeni, Eleftheriadis and Hensman 2018, section 2.3; Hensman, Fusi and Lawrence 2013). With
rows whitened by the inducing points, A = L^-1 Kzx, and weights W,

    S^-1 = I + A W A^T / s^2,    S^-1 m = A W y / s^2

and the bound is the collapsed one of Titsias 2009. The sums over the rows do not contain the noise
variance s^2, so that any other noise costs one factorisation. Where rows have known variances a on
top, W holds weight / (1 + a / s^2), and s^2 stays; where a target is missing, W holds zero. Of the
kernel's hyperparameters the lengthscales stay; the noise and the scale of kernel and noise together
are chosen by the density of each row given all others.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from scipy import optimize

from .._backend import placement
from .._backend.device import once_jit
from .._backend.linalg import definite_cholesky, weighted_gram
from .._backend.repeated import among, contradicted, n_observations
from ..prediction.calibration import Average, Calibration
from ..training.batches import bucket
from ..training.shares import filled_up, gathered
from ..variational import gaussian, model
from .amplitude import multiplied, room
from .drawn import drawn
from .mean_system import points_of, prior_of, rows_of

_BLOCK_ROWS = 2048
# Rows whose predictions from all others are compared, and fewest of them that are no inducing points.
_HELD_OUT_ROWS, _FEWEST = 1500, 100
# Range and precision of the search for the noise, in logarithms around its start. The noise of a few inducing points
# is larger than that of the exact process, from which it starts.
_RANGE, _PRECISION = (-4.0, 10.0), 0.2
_MIN_REST = 1e-9
# With fewer rows noise and scale stay; with more the scale has a prior as of so many rows at a scale of one.
_FEWEST_FOR_NOISE, _ROWS_OF_PRIOR = 10, 3.0
_LOG_2PI = float(np.log(2.0 * np.pi))
# Of the log density of a Gaussian variable under its own distribution.
_VARIANCE = 0.5


class Sums(NamedTuple):
    """Sums over the rows, with their weights; one of a kind for all targets (H = 1) where that is right for all.

    Attributes
    ----------
    gram : array of shape (H, M, M)
        A W A^T.
    cross : array of shape (K, M)
        A W (y - prior_mean).
    square : array of shape (K,)
        (y - prior_mean)^T W (y - prior_mean).
    residual : array of shape (H,)
        The variance that the inducing points leave unexplained, times W.
    weight : array of shape (G,)
        The weights of the rows in which a target is not missing; one for all targets where none is.
    log_widening : array of shape (G,)
        These, times log(1 + a / s^2) for known variances a.
    """

    gram: jax.Array
    cross: jax.Array
    square: jax.Array
    residual: jax.Array
    weight: jax.Array
    log_widening: jax.Array


class Optimum(NamedTuple):
    """The best q and the parameters it belongs to.

    Attributes
    ----------
    q : Gaussian
    parameters : Parameters
    elbo : ndarray of shape (n_turns,)
        The bound, last at this q.
    held_out : Average
        The log density of held-out rows, of all targets together, in nats per unit of weight.
    calibration : Calibration, optional
        Of class probabilities.
    """

    q: gaussian.Gaussian
    parameters: model.Parameters
    elbo: np.ndarray
    held_out: Average
    calibration: Calibration | None = None


class HeldOut(NamedTuple):
    """Rows for leave-one-out predictions.

    Whitened (J, M, B), residual (J, B), y - prior_mean (K, B), the weight with which each counts, what is left out of
    the diagonal of W, by how much the noise of one observation is wider than s^2, and how many observations each row is
    (K, B each).
    """

    A: jax.Array
    residual: jax.Array
    y: jax.Array
    weight: jax.Array
    left_out: jax.Array
    widening: jax.Array
    n_each: jax.Array

    def n_rows(self, k):
        """Number of observations that count for a target."""
        return int(self.n_each[k][np.asarray(self.weight[k]) > 0.0].sum())


@functools.partial(once_jit, donate_argnames="sums")
def _add_block(sums, parameters, prior, X, y, weight, relative):
    rows = rows_of(parameters, prior, X, None)
    A, residual = jnp.stack([each.A for each in rows]), jnp.stack([each.residual for each in rows])
    of_kernels = jnp.broadcast_to(relative, (max(len(rows), len(relative)), relative.shape[-1]))
    gram = jnp.concatenate([weighted_gram(A[latents], of_kernels[of]) for latents, of in _pairs(rows)])
    # A row times the transpose takes XLA twenty times as long.
    cross = A @ (relative * y)[..., None]
    widening = weight * jnp.log(weight / jnp.where(relative > 0.0, relative, weight))
    added = Sums(
        gram,
        cross[..., 0],
        (relative * y * y).sum(1),
        (relative * residual).sum(1),
        weight.sum(1),
        jnp.where(weight > 0.0, widening, 0.0).sum(1),
    )
    return jax.tree.map(jnp.add, sums, added)


def _pairs(rows):
    """Slices of the kernels, and of the weights that go with each: all of them with a single kernel."""
    if len(rows) == 1:
        return [(slice(0, 1), slice(None))]
    return [(slice(j, j + 1),) * 2 for j in range(len(rows))]


def _weights(table, parameters, per_target):
    """The targets, zero where missing (T, N), the weights of each (G, N), and the diagonal of W (G, N)."""
    seen = ~np.isnan(table.y)
    y = np.where(seen, table.y, 0.0)
    if not per_target:
        return y, table.weight[None], table.weight[None]
    weight = np.where(seen, table.weight, 0.0)
    if table.known is None:
        return y, weight, weight
    variance = np.exp(np.asarray(parameters.raw_likelihood.variance)).reshape(-1, 1)
    return y, weight, weight / (1.0 + table.known / variance)


def sums_of(parameters, prior, constants, table):
    """The `Sums` over all rows of a table, in one pass."""
    n_targets, n_points = table.n_targets, len(prior.points)
    n_each = n_targets if table.per_target else 1
    n_grams = max(len(prior.root), n_each)
    shapes = (n_grams, n_points, n_points), (n_targets, n_points), (n_targets,), (n_grams,), (n_each,), (n_each,)
    where = placement.current()
    sums, shared = where.replicated(Sums(*map(np.zeros, shapes)), now=True), where.replicated((parameters, prior))
    size = where.block_size(table.n_rows, _BLOCK_ROWS)
    for rows in table.blocks(size):
        y, *weights = _weights(rows, parameters, table.per_target)
        missing = size - rows.n_rows
        block = [np.pad(each, ((0, 0), (0, missing))) for each in (y - rows.prior_mean(constants), *weights)]
        block = np.pad(rows.X, ((0, missing), (0, 0))), *block
        # Calls that wait for the device would hold their rows.
        sums = _add_block(jax.block_until_ready(sums), *shared, *where.rows(block, (-2, -1, -1, -1)))
    return placement.fetched(sums)


@once_jit
def _whitened(parameters, prior, X):
    rows = rows_of(parameters, prior, X, None)
    return jnp.stack([each.A for each in rows]), jnp.stack([each.residual for each in rows])


def held_out_rows(parameters, prior, constants, table, random_state):
    """Random rows that are no inducing points; all kinds if these are few.

    What a row at an inducing point is predicted with says little about new rows. All others are like these, however
    near they are to a point: without those that the points explain, the rest would be the odd ones. And where X is
    repeated, so is it among new rows; it may be only there that the noise is seen.
    """
    part = table.sample
    chosen, counts = drawn(part.weight, _HELD_OUT_ROWS, random_state)
    rows, repeated = part.rows(chosen), contradicted(part.X, part.y - part.added)[:, chosen]
    missing = bucket(len(chosen)) - len(chosen)
    X = np.pad(rows.X, ((0, missing), (0, 0)))
    A, residual = _whitened(parameters, prior, X)
    is_point = among(X, points_of(prior))
    y, weight, relative = _weights(rows, parameters, rows.per_target)
    widening = np.divide(weight, relative, out=np.ones_like(weight), where=relative > 0.0)
    share = np.divide(counts, rows.weight, out=np.zeros(len(chosen)), where=rows.weight > 0.0)
    weight, n_each = weight * share, n_observations(rows.weight, repeated)
    y, weight, left_out, widening, n_each, repeated = (
        np.broadcast_to(np.pad(each, ((0, 0), (0, missing)), constant_values=last), (len(y), len(X)))
        for each, last in (
            (y - rows.prior_mean(constants), 0.0),
            (weight, 0.0),
            (relative / n_each, 0.0),
            (widening, 1.0),
            (n_each, 0.0),
            (repeated, False),
        )
    )
    counted = weight > 0.0
    apart = ~is_point & counted
    some = apart | (repeated & counted)
    enough = apart.sum(1, keepdims=True) >= _FEWEST
    return HeldOut(A, residual, y, np.where(some | ~enough, weight, 0.0), left_out, widening, n_each)


@once_jit
def _leave_one_out(gram, cross, log_noise, A, residual, y, weight, left_out, widening):
    """Means over held-out rows of the log variance and of squared error by variance, each given all others.

    With s = a^T (I + gram / noise)^-1 a and the leverage h of what is left out, that part of W times s / noise, the
    error without it is (y - mean) / (1 - h), and its variance residual + s / (1 - h) + noise * widening.
    """
    noise = jnp.exp(log_noise)
    factor = definite_cholesky(jnp.eye(len(gram))[None] + gram[None] / noise)[0]
    w = cho_solve((factor, True), cross / noise)
    half = solve_triangular(factor, A, lower=True)
    s = (half * half).sum(0)
    rest = jnp.maximum(1.0 - left_out * s / noise, _MIN_REST)
    error = (y - w @ A) / rest
    variance = residual + s / rest + noise * widening
    # Of a target that is missing in all of these rows nothing is said.
    total = jnp.where(weight.sum() > 0.0, weight.sum(), 1.0)
    return weight @ jnp.log(variance) / total, weight @ (error**2 / variance) / total


def leave_one_out(sums, held, k, log_noise, free_scale=False):
    """The density of the k-th target, and the scale of all its variances that goes with it.

    Parameters
    ----------
    sums : Sums
    held : HeldOut
    k : int
    log_noise : float
    free_scale : bool, default=False
        Whether kernel and noise may be scaled together, then by the factor of largest density, drawn a little to one.

    Returns
    -------
    density : float
    scale : float
    """
    (j, h), n_rows = (k if len(each) > 1 else 0 for each in (held.A, sums.gram)), held.n_rows(k)
    arguments = held.A[j], held.residual[j], held.y[k], held.weight[k], held.left_out[k], held.widening[k]
    log_variance, ratio = map(float, _leave_one_out(sums.gram[h], sums.cross[k], log_noise, *arguments))
    scale = (ratio * n_rows + _ROWS_OF_PRIOR) / (n_rows + _ROWS_OF_PRIOR) if free_scale else 1.0
    return -0.5 * (_LOG_2PI + log_variance + np.log(scale) + ratio / scale), scale


@once_jit
def _optimum(sums, log_noise):
    """The best q for these noise variances (K,), and the bound."""
    noise = jnp.exp(log_noise)
    n_latent, size = sums.cross.shape
    gram = jnp.broadcast_to(sums.gram, (n_latent, size, size))
    q = gaussian.from_natural(sums.cross / noise[:, None], jnp.eye(size) + gram / noise[:, None, None])
    # Least at the best mean: an error of the mean counts as its square, and not times 1 / s^2.
    explained = 2.0 * sums.cross - (gram @ q.mean[..., None])[..., 0]
    fit = (sums.square - (explained * q.mean).sum(1)) / noise + (q.mean**2).sum(1)
    normaliser = sums.weight * (_LOG_2PI + log_noise) + sums.log_widening
    each = normaliser - q.log_det_cov + fit + sums.residual / noise
    return q, -0.5 * each.sum()


def search_noise(sums, held, k, start, bounds, free_scale):
    """The noise of the k-th target with the largest leave-one-out density.

    Parameters
    ----------
    sums : Sums
    held : HeldOut
    k : int
    start : float
        Its range is around this value.
    bounds : pair of float
        The noise stays if they are equal.
    free_scale : bool
        As in `leave_one_out`.

    Returns
    -------
    log_noise, density, scale : float
    """
    tried = {}

    def loss(log_noise):
        tried[log_noise] = leave_one_out(sums, held, k, log_noise, free_scale)
        return -tried[log_noise][0]

    best = float(start)
    if bounds[0] < bounds[1] and held.n_rows(k) >= _FEWEST_FOR_NOISE:
        within = np.clip(start + np.array(_RANGE), *bounds)
        best = optimize.minimize_scalar(loss, bounds=within, method="bounded", options={"xatol": _PRECISION}).x
    if best not in tried:
        loss(best)
    return float(best), *tried[best]


def solve(parameters, constants, table, random_state):
    """The best q of all rows; noise and scale are chosen by leave-one-out densities as far as their bounds allow.

    Parameters
    ----------
    parameters : Parameters
        Without mean-only points, and with a Gaussian likelihood.
    constants : Constants
    table : Table
    random_state : numpy.random.RandomState
        Chooses the held-out rows.

    Returns
    -------
    optimum : Optimum
    """
    prior, n_processes = prior_of(parameters, constants.masks, constants.jitter), placement.current().n_processes
    sums = sums_of(parameters, prior, constants, filled_up(table, n_processes))
    held = held_out_rows(parameters, prior, constants, gathered(table, n_processes), random_state)
    variance = parameters.raw_likelihood.variance
    start = np.ravel(variance)
    bounds = list(zip(*(np.ravel(likelihood.variance) for _, likelihood in constants.log_bounds), strict=True))
    if table.has_known:
        # Known variances give the scale; the rest of the noise is that of the evidence.
        bounds = [(each, each) for each in start]
    log_scales, log_noise, density = _scales(parameters, constants, sums, held, start, bounds)
    sums, held = _in_units(sums, held, log_scales)
    for k in np.flatnonzero(np.isnan(log_noise)):
        # For the scale that is used, which bounds or other targets have moved.
        log_noise[k], density[k], _ = search_noise(sums, held, k, start[k], bounds[k], False)
    parameters = parameters._replace(
        log_kernels=tuple(map(multiplied, parameters.log_kernels, log_scales)),
        raw_likelihood=parameters.raw_likelihood.with_leaves([np.reshape(log_noise, variance.shape)]),
    )
    q, elbo = _optimum(sums, log_noise)
    share = np.broadcast_to(sums.weight / constants.weight, len(density))
    n_rows = np.maximum(list(map(held.n_rows, range(len(density)))), 1)
    error = float(np.sqrt((share**2 * _VARIANCE / n_rows).sum()))
    return Optimum(q, parameters, np.array([float(elbo)]), Average(float((share * density).sum()), error))


def _scales(parameters, constants, sums, held, start, bounds):
    """Logarithms of what each kernel is multiplied by (J,), and of the noise that goes with it, and densities (K,).

    The scale has the largest density of the kernel's targets, within its bounds. The noise is NaN where
    it must be searched for under this scale.
    """
    n_kernels = len(parameters.log_kernels)
    found, noise, density = np.zeros(n_kernels), *np.full((2, len(start)), np.nan)
    for j, kernel in enumerate(parameters.log_kernels):
        targets = range(len(start)) if n_kernels == 1 else [j]
        limits = room(kernel, *(each[j] for each, _ in constants.log_bounds))
        free = all(bounds[k][0] < bounds[k][1] for k in targets)
        if not (limits[0] < limits[1] and free) or min(map(held.n_rows, targets)) < _FEWEST_FOR_NOISE:
            continue
        each = []
        for k in targets:
            log_noise, density[k], scale = search_noise(sums, held, k, start[k], bounds[k], True)
            each.append(np.log(scale))
        found[j] = np.clip(np.mean(each), *limits)
        together = log_noise + found[j]
        if len(targets) == 1 and found[j] == each[0] and bounds[k][0] <= together <= bounds[k][1]:
            noise[k] = together
    return found, noise, density


def _in_units(sums, held, log_scales):
    """The sums and the held-out rows for kernels that are multiplied: A grows by the root."""
    factor = np.exp(log_scales)
    of_targets = np.broadcast_to(factor, len(sums.cross))
    sums = sums._replace(
        gram=sums.gram * factor[:, None, None],
        cross=sums.cross * of_targets[:, None] ** 0.5,
        residual=sums.residual * factor,
    )
    return sums, held._replace(A=held.A * factor[:, None, None] ** 0.5, residual=held.residual * factor[:, None])
