"""Maximises the evidence, the log marginal likelihood of the exact Gaussian process, on a part of a table.

The evidence of some hundreds of rows sets the hyperparameters with which training starts: it
finds the columns that matter among many, where stochastic steps from one common lengthscale may
not. An evaluation costs one Cholesky factorisation and one inverse. The gradient needs no
derivative of a factorisation: with alpha = C^-1 y for the covariance C of the rows,

    d evidence / d C = (alpha alpha^T - C^-1) / 2

(Rasmussen and Williams 2006, eq. 5.9) is pulled back through the kernel only. A row of weight w
counts as one observation with noise s^2 / w, not as w observations: equal targets at repeated rows are often
copies, and as separate observations they would drive the noise to zero. With w below one the row is part of
an observation: its likelihood N(y | f, s^2)^w is N(y | f, s^2 / w) times s^(1 - w), up to a constant. Without this
factor a small noise would cost nothing at rows that hardly count.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import linalg

from .._backend import in_place, threads
from .._backend.device import sized_jit
from .._backend.flat import flat, rebuilt
from .._backend.rows import filled_up
from ..kernels.base import Kernel
from ..solve.held_out_labels import Densities
from .covariances import Space, above_diagonal, between, covariance_of, padded
from .minimum import GAIN, MOST, minimised

# Rows whose evidence sets the final hyperparameters.
ROWS = 1000
# Added to the log noise at the start of a search, if the covariance has no Cholesky factor there.
_MORE_NOISE = np.log(10.0) * np.arange(1, 13)
# The least noise variance.
_SMALLEST = 1e-300
# No rows.
_OF_NOTHING = Densities(*np.zeros((3, 0)))
LOG_2PI = float(np.log(2.0 * np.pi))


class Hyperparameters(NamedTuple):
    """The logarithms of a kernel's hyperparameters, and of the noise variance of all targets.

    If rows of several outputs are one table, whose last column of X is the output, the noise is one for each (P,).
    """

    kernel: Kernel
    noise: np.ndarray


class Best(NamedTuple):
    """The hyperparameters of largest evidence, and the evidence without the log prior, in nats.

    ``spread`` has the posterior deviations of the logarithms (`flat`) that L-BFGS has seen on its way, as if there were
    one row: the curvature grows with the number of rows, and a search on more rows begins with these.
    """

    hyperparameters: Hyperparameters
    evidence: float
    spread: np.ndarray | None = None


@sized_jit
def _slopes(kernel, X, alpha):
    """Derivatives (T, n, D) of the functions k(x, X) alpha, with alpha (T, n), at the rows of ``X``."""
    kernel = jax.tree.map(jnp.exp, kernel)
    # The covariance of a row with itself is stationary there.
    return jax.lax.map(lambda each: jax.grad(lambda x: (kernel(x, X) @ each).sum())(X), alpha)


class _Factored(NamedTuple):
    """The Cholesky factor of the rows' covariance, and the inverse times their targets."""

    factor: np.ndarray
    alpha: np.ndarray


def _groups(*tables):
    """The tables, in groups of targets with the same covariance: all together, or each alone if their rows differ."""
    if not any(table.per_target for table in tables):
        return [tables]
    groups = [tuple(table.target(k) for table in tables) for k in range(len(tables[0].y))]
    # A target may be missing in all of some rows.
    return [group for group in groups if all(len(table.X) for table in group)]


def noise_variance(log_noise, rows):
    """The noise variance of one observation of each row."""
    found = np.exp(log_noise) if np.ndim(log_noise) == 0 else np.exp(log_noise)[_outputs(rows)]
    return found if rows.known is None else found + rows.known[0]


def _outputs(rows):
    found = rows.X[:, -1].astype(int)
    if np.any((found < 0) | (found != rows.X[:, -1])):
        raise ValueError("Several noise variances need the number of each row's output in the last column of X.")
    return found


def variances_of_rows(kernel, X):
    """The variances of rows under a kernel of logarithms: (n,)."""
    return between(kernel, X[:1], X)[1]


def value_and_gradient(hyperparameters, rows):
    """The log marginal likelihood, summed over the targets, and its gradient.

    Parameters
    ----------
    hyperparameters : Hyperparameters
    rows : Table
        Targets around zero. The noise variance of a row is divided by its weight.

    Returns
    -------
    value : float
        Minus infinity if the covariance has no Cholesky factor in double precision; zero without any target.
    gradient : Hyperparameters
    """
    found, gradient = Objective(hyperparameters, rows)(flat(hyperparameters))
    return found, rebuilt(gradient, hyperparameters)


def value(hyperparameters, rows):
    """The value of `value_and_gradient` alone."""
    if not np.any(np.isfinite(rows.y)):
        return 0.0
    factored = [(_factored(hyperparameters, group), group) for (group,) in _groups(rows)]
    return sum(-np.inf if each is None else _value(hyperparameters.noise, each, group) for each, group in factored)


def of_noise(rows):
    """The evidence of noise alone, with the variance of each target."""
    y = [each[np.isfinite(each)] for each in rows.y]
    y = [each for each in y if len(each)]
    return sum(-0.5 * len(each) * (1.0 + LOG_2PI + np.log(max(np.mean(each**2), _SMALLEST))) for each in y)


def density_of_noise(rows):
    """The mean log density of targets under noise of unit variance."""
    weight = np.where(np.isfinite(rows.y), rows.weight, 0.0)
    squares = np.average(np.where(weight > 0.0, rows.y, 0.0) ** 2, weights=weight)
    return -0.5 * float(LOG_2PI + squares)


def _value(log_noise, factored, rows):
    """The log marginal likelihood of targets that share a covariance of the rows."""
    factor, alpha = factored
    n, n_targets = alpha.shape
    found = -0.5 * float((alpha.T * rows.y).sum()) - n_targets * float(np.log(np.diag(factor)).sum())
    found += float((_missing(n_targets, rows) * np.log(noise_variance(log_noise, rows))).sum())
    return found - 0.5 * n * n_targets * LOG_2PI


def _missing(n_targets, rows):
    """Half of 1 - weight for rows of weight below one, times the number of targets: see the module's docstring."""
    return 0.5 * n_targets * np.maximum(1.0 - rows.weight, 0.0)


def _factored(hyperparameters, rows):
    """Factorise the covariance of ``rows``; None if double precision finds no factor."""
    return _Group(hyperparameters, rows).factored(flat(hyperparameters))


class Objective:
    """The function of `value_and_gradient` of the vector of all logarithms (`flat`), with the gradient as a vector.

    Parameters
    ----------
    like : Hyperparameters
    rows : Table
    """

    def __init__(self, like, rows):
        self._groups = [_Group(like, group) for (group,) in _groups(rows)] if np.any(np.isfinite(rows.y)) else []
        self._space = Space()

    def __call__(self, x):
        found = [group.value_and_gradient(x, self._space) for group in self._groups]
        return sum(value for value, _ in found), sum((slope for _, slope in found), np.zeros_like(x))


class _Group:
    """Rows whose targets share their covariance."""

    def __init__(self, like, rows):
        self._rows, self._X, self._n = rows, padded(rows.X), flat(like.kernel).size
        self._covariance = covariance_of(like.kernel, self._X)
        self._noises = self._n if np.ndim(like.noise) == 0 else slice(self._n, None)
        self._diagonal = np.diag_indices(len(rows.X))

    def factored(self, x):
        """The `_Factored` at these logarithms, or None."""
        n = len(self._rows.X)
        covariance = np.asarray(self._covariance.of_rows(x[: self._n]))
        covariance = np.array(covariance[:n, :n], float, order="C")
        covariance[self._diagonal] += noise_variance(x[self._noises], self._rows) / self._rows.weight
        if not np.all(np.isfinite(covariance)):
            return None
        if not in_place.factorise(covariance):
            return None
        factor = covariance.T
        return _Factored(factor, linalg.lapack.dpotrs(factor, self._rows.y.T, lower=1)[0])

    def value_and_gradient(self, x, space):
        """The log marginal likelihood and its gradient; ``space`` is a `covariances.Space`."""
        factored, rows, log_noise = self.factored(x), self._rows, x[self._noises]
        if factored is None:
            return -np.inf, np.zeros_like(x)
        # This comes first: the inverse overwrites the factor.
        found = _value(log_noise, factored, rows)
        factor, alpha = factored
        n, n_targets = alpha.shape
        noise, missing = noise_variance(log_noise, rows), _missing(n_targets, rows)
        # LAPACK fills the upper triangle of the inverse. The covariance is symmetric: one triangle stands for both,
        # with twice the slope.
        inverse, own, rest = factor.T, np.zeros(len(self._X)), space.of(len(self._X), n)
        in_place.invert(inverse)
        own[:n] = 0.5 * ((alpha * alpha).sum(1) - n_targets * inverse[self._diagonal])
        in_place.add_squares(inverse, alpha, -n_targets, lower=False)
        np.copyto(rest[:n, :n], inverse, where=above_diagonal(n))
        of_noise = own[:n] / rows.weight + missing / noise
        of_each = of_noise.sum() if np.ndim(log_noise) == 0 else np.bincount(_outputs(rows), of_noise, len(log_noise))
        of_kernel = self._covariance.pulled_back(own, rest)
        return found, np.append(of_kernel, np.exp(log_noise) * of_each)


def no_prior(x):
    """The log density of no prior, and its gradient."""
    return 0.0, np.zeros_like(x)


def maximise(start, bounds, rows, log_prior=no_prior, spread=None, gain=None, max_iter=MOST):
    """The hyperparameters of largest evidence, times their prior density, by L-BFGS.

    Parameters
    ----------
    start : Hyperparameters
        If its noise is too small for a Cholesky factor, the search begins with more noise.
    bounds : tuple of Hyperparameters
        Lower and upper.
    rows : Table
    log_prior : callable, optional
        Takes all logarithms as a vector (`flat`); returns the log density of their prior, and its gradient.
    spread : ndarray, optional
        See `Best`: of a search on fewer rows that ended at ``start``.
    gain : float, optional
        An iteration that gains less, in nats, is the last one; default: `minimum.GAIN` for each target.
    max_iter : int, default=MOST
        Iterations of L-BFGS.

    Returns
    -------
    best : Best
    """
    low, high = map(flat, bounds)
    x0, objective = np.clip(flat(start), low, high), Objective(start, rows)

    def loss(x):
        value, gradient = objective(x)
        if not np.isfinite(value):
            return np.inf, np.zeros_like(x)
        prior, slope = log_prior(x)
        return -prior - value, np.where(low < high, -slope - gradient, 0.0)

    with threads.single_threaded(len(rows.X)):
        x0, at_start = _possible(loss, x0, high[-1])
        if not np.isfinite(at_start[0]):
            return Best(rebuilt(x0, start), -np.inf)
        root = np.sqrt(len(rows.X))
        spread = None if spread is None else spread / root
        gain = GAIN * len(rows.y) if gain is None else gain
        found = minimised(loss, x0, low, high, at_start, spread, gain, max_iter)
    return Best(rebuilt(found.x, start), -log_prior(found.x)[0] - found.value, found.spread * root)


def _possible(loss, x0, most_noise):
    """A start at which the covariance has a Cholesky factor, and the loss and its gradient there.

    If the given noise is too small for a factor, several larger ones are tried, and the one of largest evidence is
    used. The smallest that works would not do: near it the evidence has another maximum, at which rows interpolate.
    """
    at_start = loss(x0)
    # The noise is the last of all logarithms.
    if np.isfinite(at_start[0]) or x0[-1] >= most_noise:
        return x0, at_start
    starts = [np.append(x0[:-1], min(x0[-1] + more, most_noise)) for more in _MORE_NOISE]
    tried = [(x0, at_start), *((start, loss(start)) for start in starts)]
    return min(tried, key=lambda each: each[1][0])


def outer_product_of_slopes(hyperparameters, rows):
    """The mean outer product of the gradients of the posterior means at the rows: (D, D); None without a factor."""
    total = 0.0
    for (group,) in _groups(rows):
        factored = _factored(hyperparameters, group)
        if factored is None:
            return None
        n, X = len(group.X), padded(group.X)
        alpha = filled_up(factored.alpha.T, len(X), 1, value=0.0)
        slopes = np.asarray(_slopes(hyperparameters.kernel, X, alpha))[:, :n]
        total = total + np.einsum("tnd,tne->de", slopes, slopes) / n
    return total


def _log_densities(error, variance, weight):
    """`Densities` of errors (T, n) under variances (n,): means over the targets."""
    return Densities((-0.5 * (LOG_2PI + np.log(variance) + error**2 / variance)).mean(0), weight, np.ones(len(weight)))


def _joined(densities):
    """Those of several targets as one; there may be none."""
    return Densities(*map(np.concatenate, zip(_OF_NOTHING, *densities, strict=True)))


def held_out_densities(hyperparameters, rows, others):
    """The `Densities` of ``others`` given ``rows``; minus infinity without a Cholesky factor."""
    return _joined([_held_out(hyperparameters, *group) for group in _groups(rows, others)])


def held_out_density(hyperparameters, rows, others):
    """The mean of `held_out_densities`, in nats a row."""
    return held_out_densities(hyperparameters, rows, others).mean


def _held_out(hyperparameters, rows, others):
    """The `Densities` of targets that share a covariance of the rows."""
    factored = _factored(hyperparameters, rows) if len(others.X) else None
    if factored is None:
        return _impossible(others)
    kernel, noise = hyperparameters
    cross, prior = between(kernel, rows.X, others.X)
    half = linalg.solve_triangular(factored.factor, cross, lower=True, check_finite=False)
    latent = np.maximum(prior - (half * half).sum(0), 0.0)
    return _log_densities(others.y - factored.alpha.T @ cross, latent + noise_variance(noise, others), others.weight)


def leave_one_out_density(hyperparameters, rows):
    """Mean log density of each row given all others (Rasmussen and Williams 2006, eq. 5.10 to 5.12)."""
    return _joined([_leave_one_out(hyperparameters, group) for (group,) in _groups(rows)]).mean


def left_out(hyperparameters, rows):
    """Errors (T, n) of rows given all others, their latent variances and noises; None without a factor."""
    factored = _factored(hyperparameters, rows)
    if factored is None:
        return None
    precision = np.diag(linalg.lapack.dpotri(factored.factor, lower=1)[0])
    # The noise variance of a single observation, whatever the row's weight.
    noise = noise_variance(hyperparameters.noise, rows)
    # For a row of little weight the latent variance is a small difference of large numbers.
    return factored.alpha.T / precision, np.maximum(1.0 / precision - noise / rows.weight, 0.0), noise


def _leave_one_out(hyperparameters, rows):
    """The `Densities` of targets that share a covariance of the rows."""
    found = left_out(hyperparameters, rows)
    if found is None:
        return _impossible(rows)
    error, latent, noise = found
    return _log_densities(error, latent + noise, rows.weight)


def _impossible(rows):
    """The `Densities` of rows that a kernel cannot predict."""
    return Densities(np.full(len(rows.X), -np.inf), rows.weight, np.ones(len(rows.X)))
