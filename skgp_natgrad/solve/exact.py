"""The exact Gaussian process, where an inducing point at every row leaves nothing to approximate.

Nothing is whitened: with K the covariance of the rows and L L^T = I + K / s^2,

    V = L^-1 / s,    alpha = (K + s^2 I)^-1 y,    mean(x) = k_x^T alpha,    var(x) = k_xx - |V k_x|^2

and without row i its target is predicted with an error of alpha_i / c_i and a variance of 1 / c_i, where c is the
diagonal of (K + s^2 I)^-1, the sums of squares of V's columns (Rasmussen and Williams 2006, eq. 5.10 to 5.12). A noise
costs a factorisation and a triangular inverse; the whitened system of `system` costs three times as much, and its
jitter takes digits. On one CPU LAPACK factorises in place; elsewhere XLA does, on one device.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import linalg

from .._backend import in_place, placement
from .._backend.device import quick_jit
from .._backend.linalg import definite_cholesky, triangular_inverse
from .._backend.repeated import grouped
from .._backend.rows import filled_up
from ..kernels import nugget
from ..prediction.left_out import LeftOut
from ..prediction.posterior import Posterior
from ..training.batches import Table, bucket
from .left_out import HeldOutRows, widths
from .noise_search import LOG_2PI
from .system import covariances_of

# Rows whose K is factorised to see whether it is a covariance, and the jitter relative to its mean variance.
_ROWS_OF_TEST, _JITTER = 500, 1e-8


class Rows(NamedTuple):
    """The rows of a table in the order of their inducing points; each of them is left out once.

    Attributes
    ----------
    X : ndarray of shape (N, D)
    K : array of shape (N, N)
        Where XLA computes, on its device, with as many rows as the points have with their padding: zero beyond N.
    y : ndarray of shape (T, N)
        Less the prior mean.
    order : ndarray of shape (N,)
        The position of each row in the table.
    """

    X: np.ndarray
    K: np.ndarray
    y: np.ndarray
    order: np.ndarray

    @classmethod
    def of(cls, parameters, constants, table):
        """The rows of a table under the only kernel of ``parameters``."""
        (log_kernel,), n, order = parameters.log_kernels, table.n_rows, _order(_points(parameters, constants), table.X)
        X = filled_up(table.X[order], bucket(n), value=0.0)
        K, variance = map(np.asarray, covariances_of(log_kernel, X, np.ones(len(X)), X))
        K = K[:n, :n].copy()
        # Rounding spoils distances of zero.
        K[np.diag_indices(n)] = variance[:n]
        y = np.broadcast_to(table.y - table.prior_mean(constants), table.y.shape)
        return cls(X[:n], K, y[:, order], order)

    @property
    def held(self):
        """The rows as those that are left out."""
        one, none = np.ones_like(self.y), np.zeros_like(self.y)
        return HeldOutRows(self.order, self.X, None, None, self.y, one, one, one, one, none > 0.0, none)

    @property
    def have_a_covariance(self):
        """Whether K is one, of some of the rows: of noise enough the sum has a factor, too."""
        some = np.linspace(0, len(self.K) - 1, min(len(self.K), _ROWS_OF_TEST)).round().astype(int)
        K = self.K[np.ix_(some, some)]
        K[np.diag_indices(len(K))] += _JITTER * np.trace(K) / len(K)
        return not linalg.lapack.dpotrf(K, lower=1)[1]

    def multiplied(self, factor):
        """The rows under a kernel multiplied by ``factor`` (1,)."""
        return self._replace(K=self.K * factor[0])

    def sent(self):
        """The rows with K on the device, where XLA computes."""
        if placement.on_one_cpu():
            return self
        size = bucket(len(self.X))
        return self._replace(K=jax.device_put(filled_up(filled_up(self.K, size, 0, 0.0), size, 1, 0.0)))

    def left_out(self, k, log_noise):
        """Positions, errors and variances of the targets, and one minus the leverage of each: see `left_out_of`."""
        _, alpha, precision, _ = self._solved(k, log_noise)
        return np.arange(len(alpha)), *_left_out(alpha, precision, np.exp(log_noise))

    def _solved(self, k, log_noise):
        """V, alpha, the diagonal of (K + s^2 I)^-1, and half the log determinant of I + K / s^2."""
        noise, n = np.exp(log_noise), len(self.X)
        if isinstance(self.K, np.ndarray):
            L = in_place.cholesky_of_sum(self.K, 1.0 / noise)
            V = in_place.triangular_inverse(L)
            V /= np.sqrt(noise)
            alpha = in_place.cholesky_solve(L, self.y[k]) / noise
            return V, alpha, np.einsum("ij,ij->j", V, V), np.log(np.diag(L)).sum()
        V, *of_rows, half_log_det = _solved_by_xla(self.K, noise, filled_up(self.y[k], len(self.K), value=0.0))
        return V, *(np.asarray(each)[:n] for each in of_rows), float(half_log_det)

    def solution(self, log_noise, table, Z, prior_mean):
        """The `Posterior` and the `LeftOut` under these noises (T,), and the log evidence."""
        (n_targets, n), n_points = self.y.shape, len(Z)
        size, evidence = bucket(n), 0.0
        alphas, reduction = np.zeros((n_targets, n_points)), np.zeros((n_targets, n_points, n_points))
        error, latent = np.full((2, n_targets, size), np.nan)
        for k, log_variance in enumerate(log_noise):
            noise, (V, alpha, precision, half_log_det) = np.exp(log_variance), self._solved(k, log_variance)
            alphas[k, :n], reduction[k, :n, :n] = alpha, np.asarray(V)[:n, :n]
            evidence -= 0.5 * (self.y[k] @ alpha + n * (LOG_2PI + log_variance)) + half_log_det
            error[k, self.order], variance, _ = _left_out(alpha, precision, noise)
            # The latent variance of a row that is predicted exactly rounds to zero, or below.
            latent[k, self.order] = np.maximum(variance - noise, 0.0)
        noises = np.exp(log_noise)[:, None] * np.ones_like(error)
        weight = np.broadcast_to(np.arange(size) < n, error.shape).astype(float)
        y = np.zeros_like(error)
        y[:, self.order] = self.y
        X = filled_up(table.X, size, value=0.0)
        left_out = LeftOut(X, error, latent, noises, weight, weight, widths(table), y, weight)
        posterior = Posterior(Z, Z[:0], alphas, np.zeros((n_targets, 0)), None, None, prior_mean, reduction)
        return posterior, left_out, float(evidence)


@quick_jit
def _solved_by_xla(K, noise, y):
    """`Rows._solved`."""
    L = definite_cholesky(jnp.eye(len(K)) + K / noise)
    V = triangular_inverse(L) / jnp.sqrt(noise)
    return V, V.T @ (V @ y), (V * V).sum(0), jnp.log(jnp.diag(L)).sum()


def _left_out(alpha, precision, noise):
    """Errors, variances, and one minus the leverages."""
    rest = noise * precision
    return noise * alpha / rest, noise / rest, rest


def rows_of(parameters, constants, table):
    """The `Rows` of a table, or None where it does not suit."""
    found = Rows.of(parameters, constants, table) if suits(parameters, constants, table) else None
    return found.sent() if found is not None and found.have_a_covariance else None


def suits(parameters, constants, table):
    """Whether the model is the exact process of a table: a point at each of its rows, which differ and weigh one."""
    if len(parameters.log_kernels) > 1 or constants.past is not None or not isinstance(table, Table):
        return False
    if placement.current().n_processes > 1:
        # Each process has a part of the rows.
        return False
    (log_kernel,), points = parameters.log_kernels, _points(parameters, constants)
    plain = not (table.per_target or len(constants.masks.further) or nugget.in_kernel(log_kernel))
    if not (plain and len(points) == table.n_rows and np.all(table.weight == 1.0)):
        return False
    return np.array_equal(points, table.X[_order(points, table.X)])


def _points(parameters, constants):
    """The inducing points, without padding."""
    return np.asarray(parameters.points.Z)[np.asarray(constants.masks.Z) > 0.0]


def _order(points, X):
    """Where each of the points is among as many rows, if these are the same."""
    found = np.empty(len(X), int)
    found[grouped(points)[0]] = grouped(X)[0]
    return found
