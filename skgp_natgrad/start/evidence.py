"""The largest log marginal likelihood of the exact Gaussian process on a part of a table.

The evidence of some hundreds of rows sets the hyperparameters with which training starts: it
finds the columns that matter among many, where stochastic steps from one common lengthscale may
not. An evaluation costs one Cholesky factorisation and one inverse. The gradient needs no
derivative of a factorisation: with alpha = C^-1 y for the covariance C of the rows,

    d evidence / d C = (alpha alpha^T - C^-1) / 2

(Rasmussen and Williams 2006, eq. 5.9) is pulled back through the kernel alone. A row of weight w
counts as one observation with noise s^2 / w, not as w of them: equal targets at repeated rows are often
copies, and as observations of their own would be explained by a noise of nothing. With w below one it is a part of
an observation: its likelihood N(y | f, s^2)^w is N(y | f, s^2 / w) times s^(1 - w), but for a constant. Without this
factor a small noise would cost nothing at rows that hardly count.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import linalg, optimize

from .._backend import threads
from .._backend.device import once_jit, sized_jit
from .._backend.flat import flat, rebuilt, turning_back
from .._backend.rows import filled_up
from ..kernels.base import Kernel
from ..training.batches import bucket

# Sizes of tables that share programs, nearer to one another than those of training: an evaluation costs their square.
_SIZES = 64, 128, 192, 256, 320, 400, 480, 640, 768, 896, 1024, 1536, 2048, 2560
# Of more rows than the first number, as many as the second are pulled back at a time, whose matrices stay in the cache:
# the larger sizes are multiples of it.
_ONE_BLOCK, _BLOCK_ROWS = 480, 128
# What is added to the logarithm of the noise with which a search begins, where there is no factor.
_MORE_NOISE = np.log(10.0) * np.arange(1, 13)
# Of L-BFGS: it ends where no slope is larger than this, or the loss changes by less.
_GRADIENT, _CHANGE = 1e-5, 2e-9
# The largest slope by which a loss is divided.
_STEEPEST = 1e100
# The least variance of noise.
_SMALLEST = 1e-300
_LOG_2PI = float(np.log(2.0 * np.pi))


class Hyperparameters(NamedTuple):
    """The logarithms of a kernel's hyperparameters, and of the noise variance of all targets."""

    kernel: Kernel
    noise: np.ndarray


class Best(NamedTuple):
    """The hyperparameters of largest evidence, and the evidence, without the prior's part, in nats."""

    hyperparameters: Hyperparameters
    evidence: float


@once_jit
def _covariance(kernel, X, Z):
    return jax.tree.map(jnp.exp, kernel)(X, Z)


@once_jit
def _variance(kernel, X):
    return jax.tree.map(jnp.exp, kernel).diag(X)


def _of_rows(kernel, X):
    """The covariance of ``X`` with itself; a distance of zero is not zero after rounding, and its root less so."""
    kernel = jax.tree.map(jnp.exp, kernel)
    return jnp.fill_diagonal(kernel(X, X), kernel.diag(X), inplace=False)


_covariance_of_rows = sized_jit(_of_rows)


@sized_jit
def _pull_back(kernel, X, diagonal, rest):
    """The gradient in the kernel's logarithms, from the one in the covariance of ``X`` with itself: in its parts."""

    def add(total, block):
        x, cotangent = block
        (found,) = jax.vjp(lambda logs: jax.tree.map(jnp.exp, logs)(x, X), kernel)[1](cotangent)
        return jax.tree.map(jnp.add, total, found), None

    (total,) = jax.vjp(lambda logs: jax.tree.map(jnp.exp, logs).diag(X), kernel)[1](diagonal)
    if len(X) <= _ONE_BLOCK:
        return add(total, (X, rest))[0]
    return jax.lax.scan(add, total, [each.reshape(-1, _BLOCK_ROWS, each.shape[1]) for each in (X, rest)])[0]


def _padded(X):
    """Fill up with rows of zeros, to a size that similar tables share."""
    size = next((size for size in _SIZES if len(X) <= size), bucket(len(X)))
    return filled_up(X, size, value=0.0)


class _Factored(NamedTuple):
    """The Cholesky factor of the rows' covariance, the inverse times their targets, and the padded rows."""

    factor: np.ndarray
    alpha: np.ndarray
    X: np.ndarray


def _groups(*tables):
    """The tables of the targets that share a covariance of the rows: all, or each alone if their rows differ."""
    if not any(table.per_target for table in tables):
        return [tables]
    groups = [tuple(table.target(k) for table in tables) for k in range(len(tables[0].y))]
    # Of some rows a target may be missing in all.
    return [group for group in groups if all(len(table.X) for table in group)]


def _noise(log_noise, rows):
    """The noise variance of one observation of each row."""
    return np.exp(log_noise) if rows.known is None else np.exp(log_noise) + rows.known[0]


def covariance_of_rows(kernel, X):
    """The covariance of rows with themselves under a kernel of logarithms: (n, n)."""
    # Cut by NumPy: JAX would compile a program for each number of rows.
    return np.asarray(_covariance_of_rows(kernel, _padded(X)))[: len(X), : len(X)].copy()


def variances_of_rows(kernel, X):
    """The variances of rows under a kernel of logarithms: (n,)."""
    return np.asarray(_variance(kernel, _padded(X)))[: len(X)]


def _factored(hyperparameters, rows):
    """Factorise the covariance of ``rows``; None if double precision finds no factor."""
    kernel, noise = hyperparameters
    n, X = len(rows.X), _padded(rows.X)
    covariance = covariance_of_rows(kernel, rows.X)
    covariance[np.diag_indices(n)] += _noise(noise, rows) / rows.weight
    if not np.all(np.isfinite(covariance)):
        return None
    factor, failed = linalg.lapack.dpotrf(covariance.T, lower=1, overwrite_a=1)
    if failed:
        return None
    return _Factored(factor, linalg.lapack.dpotrs(factor, rows.y.T, lower=1)[0], X)


def value_and_gradient(hyperparameters, rows):
    """Log marginal likelihood of all targets together, and its gradient.

    Parameters
    ----------
    hyperparameters : Hyperparameters
    rows : Table
        Targets around zero. The noise variance of a row is divided by its weight.

    Returns
    -------
    value : float
        Minus infinity if the covariance has no Cholesky factor in double precision; zero of no target at all.
    gradient : Hyperparameters
    """
    if not np.any(np.isfinite(rows.y)):
        return 0.0, jax.tree.map(np.zeros_like, hyperparameters)
    values, gradients = zip(*(_of_group(hyperparameters, group) for (group,) in _groups(rows)), strict=True)
    return sum(values), jax.tree.map(lambda *each: sum(each), *gradients)


def value(hyperparameters, rows):
    """The value of `value_and_gradient` alone."""
    if not np.any(np.isfinite(rows.y)):
        return 0.0
    factored = [(_factored(hyperparameters, group), group) for (group,) in _groups(rows)]
    return sum(-np.inf if each is None else _value(hyperparameters, each, group) for each, group in factored)


def of_noise(rows):
    """The evidence of noise alone, of the variance of each target."""
    y = [each[np.isfinite(each)] for each in rows.y]
    y = [each for each in y if len(each)]
    return sum(-0.5 * len(each) * (1.0 + _LOG_2PI + np.log(max(np.mean(each**2), _SMALLEST))) for each in y)


def _value(hyperparameters, factored, rows):
    """The log marginal likelihood of targets that share a covariance of the rows."""
    factor, alpha, _ = factored
    n, n_targets = alpha.shape
    found = -0.5 * float((alpha.T * rows.y).sum()) - n_targets * float(np.log(np.diag(factor)).sum())
    found += float((_missing(n_targets, rows) * np.log(_noise(hyperparameters.noise, rows))).sum())
    return found - 0.5 * n * n_targets * _LOG_2PI


def _missing(n_targets, rows):
    """Half the part that rows of a weight below one lack of an observation, of all targets together."""
    return 0.5 * n_targets * np.maximum(1.0 - rows.weight, 0.0)


def _of_group(hyperparameters, rows):
    """Value and gradient for targets that share a covariance of the rows."""
    factored = _factored(hyperparameters, rows)
    if factored is None:
        return -np.inf, jax.tree.map(np.zeros_like, hyperparameters)
    # Before its factor is overwritten.
    found = _value(hyperparameters, factored, rows)
    factor, alpha, X = factored
    n, n_targets = alpha.shape
    diagonal = np.diag_indices(n)
    noise, missing = _noise(hyperparameters.noise, rows), _missing(n_targets, rows)
    # Of the inverse there is one triangle. A symmetric covariance lets it stand for both, with twice the slope.
    inverse = linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)[0]
    own = np.zeros(len(X))
    own[:n] = 0.5 * ((alpha * alpha).sum(1) - n_targets * inverse[diagonal])
    rest = linalg.blas.dsyrk(1.0, alpha, beta=-n_targets, c=inverse, lower=1, overwrite_c=1)
    rest[diagonal] = 0.0
    rest = np.pad(rest.T, (0, len(X) - n)) if n < len(X) else rest.T
    of_noise = np.exp(hyperparameters.noise) * (own[:n] / rows.weight + missing / noise).sum()
    gradient = jax.tree.map(np.asarray, _pull_back(hyperparameters.kernel, X, own, rest))
    return found, Hyperparameters(gradient, np.asarray(of_noise))


def no_prior(x):
    """The log density of no prior, and its gradient."""
    return 0.0, np.zeros_like(x)


def maximise(start, bounds, rows, max_iter, log_prior=no_prior):
    """The hyperparameters of largest evidence, times their prior density, by L-BFGS.

    Parameters
    ----------
    start : Hyperparameters
        With so little noise that the covariance has no factor, the search begins with more.
    bounds : tuple of Hyperparameters
        Lower and upper.
    rows : Table
    max_iter : int
    log_prior : callable, optional
        Of all logarithms as a vector (`flat`): the log density of their prior, and its gradient.

    Returns
    -------
    best : Best
    """
    low, high = map(flat, bounds)
    x0 = np.clip(flat(start), low, high)

    def loss(x):
        value, gradient = value_and_gradient(rebuilt(x, start), rows)
        if not np.isfinite(value):
            return np.inf, np.zeros_like(x)
        prior, slope = log_prior(x)
        return -prior - value, np.where(low < high, -slope - flat(gradient), 0.0)

    with threads.single_threaded(len(rows.X)):
        x0, at_start = _possible(loss, x0, high[-1])
        if not np.isfinite(at_start[0]):
            return Best(rebuilt(x0, start), -np.inf)
        x, value = minimised(loss, x0, low, high, max_iter, at_start)
    return Best(rebuilt(x, start), -log_prior(x)[0] - value)


def _possible(loss, x0, most_noise):
    """A start with a factor, and the loss and its gradient there: the noise of few rows may be too little for more.

    Of several noises it has the one with the largest evidence: at hardly enough for a factor each row seems to be a
    function of its nearest ones, which is a maximum, too.
    """
    at_start = loss(x0)
    # The noise is the last of all logarithms.
    if np.isfinite(at_start[0]) or x0[-1] >= most_noise:
        return x0, at_start
    starts = [np.append(x0[:-1], min(x0[-1] + more, most_noise)) for more in _MORE_NOISE]
    tried = [(x0, at_start), *((start, loss(start)) for start in starts)]
    return min(tried, key=lambda each: each[1][0])


def minimised(loss, x0, low, high, max_iter, at_start=None):
    """The minimum by L-BFGS from ``x0``, with the loss and its gradient ``at_start`` if known, and the loss there.

    Its first step is the gradient itself, which may lead to a corner of the bounds: here no logarithm moves by more
    than one. Those that are fixed, at minus infinity perhaps, are no variables.
    """
    at_start, free = at_start or loss(x0), low < high
    if not np.any(free):
        return x0, at_start[0]
    scale = 1.0 / np.clip(np.abs(at_start[1]).max(initial=0.0), 1.0, _STEEPEST)
    evaluated = {x0.tobytes(): at_start}

    def all_of(variables):
        x = x0.copy()
        x[free] = variables
        return x

    def scaled(variables):
        x = all_of(variables)
        value, slope = evaluated.pop(x.tobytes(), None) or loss(x)
        return scale * value, scale * slope[free]

    options = {"maxiter": max_iter, "maxcor": 20, "gtol": _GRADIENT * scale, "ftol": _CHANGE * scale}
    how = {"method": "L-BFGS-B", "bounds": optimize.Bounds(low[free], high[free]), "options": options}
    found = optimize.minimize(turning_back(scaled), x0[free], jac=True, **how)
    return all_of(found.x), float(found.fun) / scale


def _log_density(error, variance, weight):
    """Mean over targets and rows of the log density of errors (T, n) under variances (n,), and its weight."""
    each = -0.5 * (_LOG_2PI + np.log(variance) + error**2 / variance)
    return float(np.average(each.mean(0), weights=weight)), float(weight.sum())


def _mean(densities):
    """The mean of pairs of a density and its weight."""
    if len(densities) == 1:
        return densities[0][0]
    values, weights = np.array(densities).reshape(-1, 2).T
    return float(np.average(values, weights=weights)) if weights.sum() > 0.0 else -np.inf


def held_out_density(hyperparameters, rows, others):
    """Mean log predictive density of ``others``, given ``rows``; minus infinity without a factor."""
    return _mean([_held_out(hyperparameters, *group) for group in _groups(rows, others)])


def _held_out(hyperparameters, rows, others):
    """The pair of density and weight for targets that share a covariance of the rows."""
    if not len(others.X):
        return 0.0, 0.0
    factored = _factored(hyperparameters, rows)
    if factored is None:
        return -np.inf, 1.0
    kernel, noise = hyperparameters
    n, m = len(rows.X), len(others.X)
    X = _padded(others.X)
    cross = np.asarray(_covariance(kernel, factored.X, X))[:n, :m]
    half = linalg.solve_triangular(factored.factor, cross, lower=True, check_finite=False)
    latent = np.maximum(np.asarray(_variance(kernel, X))[:m] - (half * half).sum(0), 0.0)
    return _log_density(others.y - factored.alpha.T @ cross, latent + _noise(noise, others), others.weight)


def leave_one_out_density(hyperparameters, rows):
    """Mean log density of each row given all others (Rasmussen and Williams 2006, eq. 5.10 to 5.12)."""
    return _mean([_leave_one_out(hyperparameters, group) for (group,) in _groups(rows)])


def left_out(hyperparameters, rows):
    """Errors (T, n) of rows given all others, their latent variances and noises; None without a factor."""
    factored = _factored(hyperparameters, rows)
    if factored is None:
        return None
    precision = np.diag(linalg.lapack.dpotri(factored.factor, lower=1)[0])
    # The noise of one target, whatever the row's weight.
    noise = _noise(hyperparameters.noise, rows)
    # A row of little weight has next to no precision of its own: what is latent is a small difference.
    return factored.alpha.T / precision, np.maximum(1.0 / precision - noise / rows.weight, 0.0), noise


def _leave_one_out(hyperparameters, rows):
    """The pair of density and weight for targets that share a covariance of the rows."""
    found = left_out(hyperparameters, rows)
    if found is None:
        return -np.inf, 1.0
    error, latent, noise = found
    return _log_density(error, latent + noise, rows.weight)
