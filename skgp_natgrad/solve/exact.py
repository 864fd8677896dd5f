"""The exact Gaussian process, where an inducing point at each X leaves nothing to approximate.

Nothing is whitened. The rows at a point are one observation there, of their weighted mean and with their summed
precision. With P the diagonal matrix of these precisions, zero where nothing is seen, K the covariance of the points,
and L L^T = I + P^1/2 K P^1/2 (Rasmussen and Williams 2006, algorithm 3.1),

    V = L^-1 P^1/2,    alpha = (K + P^-1)^-1 y = V^T V y,    mean(x) = k_x^T alpha,    var(x) = k_xx - |V k_x|^2

and with c the diagonal of (K + P^-1)^-1, the sums of squares of V's columns, what is seen at a point differs from the
mean there by alpha / P, whose variance is (1 - c / P) / P. Without a share p / P of it the leverage is p times that
variance: one minus it is 1 - p / P + (p / P) (c / P), without cancellation (for all of it, eq. 5.10 to 5.12).

A noise costs a factorisation and a triangular inverse; the whitened system of `system` costs three times as much, and
its jitter takes digits. On one CPU LAPACK factorises in place; elsewhere XLA does, on one device.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import linalg

from .._backend import in_place, placement
from .._backend.device import FEW_ROWS_OF_ONCE, quick_jit, sized_jit
from .._backend.linalg import definite_cholesky, triangular_inverse
from .._backend.repeated import grouped
from .._backend.rows import filled_up
from ..prediction.posterior import Posterior
from ..training.batches import Table
from ..variational.model import exponential
from .left_out import HeldOutRows, Scaled, left_out_rows
from .noise_search import LOG_2PI
from .system import points_in, sums_over, weights_of

# Points whose K is factorised to see whether it is a covariance, and the jitter relative to its mean variance.
_POINTS_OF_TEST, _JITTER = 500, 1e-8
# Logarithms of noises differ by rounding up to this.
_SAME = 1e-9


class Solution(NamedTuple):
    """For a noise: V, alpha, the diagonal c of (K + P^-1)^-1, and half the log determinant of I + P^1/2 K P^1/2."""

    log_noise: float
    V: np.ndarray | jax.Array | None
    alpha: np.ndarray
    c: np.ndarray
    half_log_det: float


class Process(NamedTuple):
    """The process at the points, and the rows of a table.

    Attributes
    ----------
    K : tuple of array of shape (M, M)
        Of each kernel. Where XLA computes, on its device, with as many points as there are with their padding.
    y, precision : ndarray of shape (T, M), (G, M)
        At each point the mean of y - prior_mean, and the sum of the diagonal of W: G = 1 if targets have it in common.
    place : ndarray of shape (N,)
        The point of each row.
    sums : tuple of ndarray
        (y - mean)^T W (y - mean) of the rows and their means, and as of `Sums` residual, weight and log_widening.
    last, best : dict of int to Solution
        The last one, and that of each target that was kept.
    held : HeldOutRows, optional
        The rows that are left out.
    """

    K: tuple
    y: np.ndarray
    precision: np.ndarray
    place: np.ndarray
    sums: tuple
    last: dict
    best: dict
    held: HeldOutRows | None = None

    @classmethod
    def of(cls, parameters, constants, table, place):
        """The process of a table under the kernels of ``parameters``."""
        Z = np.asarray(parameters.points.Z)
        y, weight, relative = weights_of(table, parameters, table.per_target)
        y = y - table.prior_mean(constants)
        precision, product = (_added(place, each) for each in (relative, relative * y))
        mean = np.divide(product, precision, out=np.zeros_like(product), where=precision > 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            sums = sums_over(np, 0.0 * relative, y - mean[:, place], weight, relative)
        K = tuple(_covariance(each, Z) for each in parameters.log_kernels)
        if placement.on_one_cpu():
            # Of the points: the others are padding, so that tables of other sizes share the program.
            n = mean.shape[1]
            K = tuple(np.asarray(each)[:n, :n] for each in K)
        return cls(K, mean, precision, place, sums, {}, {})

    @property
    def has_covariances(self):
        """Whether K is one, of some of the points: of noise enough the sum has a factor, too."""
        return all(_is_covariance(K, self.y.shape[1]) for K in self.K)

    def at(self, k, log_noise, counted):
        """See `left_out_of`."""
        found = self._solved(k, log_noise)
        at, noise, held = self.place[self.held.index[counted]], np.exp(log_noise), self.held
        precision = (self.precision[k % len(self.precision)] / noise)[at]
        alpha, free = (each[at] / precision for each in (found.alpha, found.c))
        part = held.left_out[k, counted] / noise / precision
        difference = held.y[k, counted] - self.y[k, at] + alpha
        rest = np.maximum(1.0 - part, 0.0) + part * free
        # The latent variance of a point that is predicted exactly rounds to zero, or below.
        return difference, np.maximum(1.0 - free, 0.0) / precision, rest, 0.0

    def keep(self, k):
        """Keep the last solution: that of the best noise so far, under which the k-th target is likely predicted."""
        self.best[k] = self.last[k]

    def _solved(self, k, log_noise):
        """The `Solution` under this noise, which may be known."""
        known = (each[k] for each in (self.best, self.last) if k in each)
        found = next((each for each in known if abs(each.log_noise - log_noise) < _SAME), None)
        found = self._factored(k, log_noise) if found is None else found
        self.last.clear()
        self.last[k] = found
        return found

    def _factored(self, k, log_noise):
        K, y = self.K[k % len(self.K)], self.y[k]
        precision = self.precision[k % len(self.precision)] / np.exp(log_noise)
        if isinstance(K, np.ndarray):
            L, root = in_place.cholesky_of_sum(K, precision), np.sqrt(precision)
            alpha, half_log_det = root * in_place.cholesky_solve(L, root * y), np.log(np.diag(L)).sum()
            V = in_place.triangular_inverse(L, over=True)
            V *= root
            return Solution(log_noise, V, alpha, np.einsum("ij,ij->j", V, V), half_log_det)
        filled = (filled_up(each, len(K), value=0.0) for each in (precision, y))
        V, *of_points, half_log_det = _solved_by_xla(K, *filled)
        return Solution(log_noise, V, *(np.asarray(each)[: len(y)] for each in of_points), float(half_log_det))

    def solution(self, log_noise, factor, Z, prior_mean, width):
        """The `Posterior` and the `LeftOut` for noises (T,) and kernels times ``factor`` (J,), and the log evidence."""
        (n_targets, n), n_points = self.y.shape, len(Z)
        alphas, reduction = np.zeros((n_targets, n_points)), np.zeros((n_targets, n_points, n_points))
        scatter, _, weight, log_widening = self.sums
        evidence = -0.5 * (weight * (LOG_2PI + log_noise) + log_widening + scatter / np.exp(log_noise)).sum()
        for k, (log_variance, scale) in enumerate(np.broadcast(log_noise, factor)):
            found = self._solved(k, log_variance - np.log(scale))
            alphas[k, :n] = found.alpha / scale
            np.divide(np.asarray(found.V)[:n, :n], scale**0.5, out=reduction[k, :n, :n])
            evidence -= 0.5 * (self.y[k] @ alphas[k, :n]) + found.half_log_det
            self.best[k] = found._replace(V=None)
        posterior = Posterior(Z, Z[:0], alphas, np.zeros((n_targets, 0)), None, None, prior_mean, reduction)
        return posterior, left_out_rows(Scaled(self, factor), log_noise, width), float(evidence)


@quick_jit
def _solved_by_xla(K, precision, y):
    """`Process._factored`."""
    root = jnp.sqrt(precision)
    L = definite_cholesky(jnp.eye(len(K)) + root[:, None] * K * root)
    V = triangular_inverse(L) * root
    # By two solves: the inverse takes digits where the amplitude is large.
    alpha = root * jax.scipy.linalg.cho_solve((L, True), root * y)
    return V, alpha, (V * V).sum(0), jnp.log(jnp.diag(L)).sum()


def _added(place, values):
    """Sums of values (T, N) of rows over those of each place: (T, M)."""
    return np.stack([np.bincount(place, each) for each in values])


@functools.partial(sized_jit, few_rows=FEW_ROWS_OF_ONCE)
def _covariance(log_kernel, Z):
    """That of the points with their padding, whose precision is zero."""
    kernel = exponential(log_kernel)
    # Rounding spoils distances of zero.
    return jnp.where(jnp.eye(len(Z), dtype=bool), kernel.diag(Z), kernel(Z, Z))


def _is_covariance(K, n):
    some = np.linspace(0, n - 1, min(n, _POINTS_OF_TEST)).round().astype(int)
    K = np.asarray(K)[np.ix_(some, some)]
    K[np.diag_indices(len(K))] += _JITTER * np.trace(K) / len(K)
    return not linalg.lapack.dpotrf(K, lower=1)[1]


def process_of(parameters, constants, table):
    """The `Process` of a table, or None where the model is another one or the kernel no covariance."""
    place = places(parameters, constants, table)
    found = None if place is None else Process.of(parameters, constants, table, place)
    return found if found is not None and found.has_covariances else None


def places(parameters, constants, table):
    """The point at the X of each row (N,) if the model is the exact process of the table, else None.

    There is one point at each X. Of several processes each has a part of the rows.
    """
    several = placement.current().n_processes > 1 or len(constants.masks.further) > 0
    if several or constants.past is not None or not isinstance(table, Table):
        return None
    points = points_in(parameters, constants.masks)
    (of_points, ends), (order, start) = grouped(points), grouped(table.X)
    if not len(points) == len(ends) == len(start):
        return None
    found = np.empty(len(order), int)
    found[order] = np.repeat(of_points, np.diff(start, append=len(order)))
    return found if np.array_equal(points[found], table.X) else None
