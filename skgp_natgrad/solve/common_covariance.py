"""q of all rows for class labels: the best means, and one covariance for all latent functions.

The bound has no closed form in q here, but given the hyperparameters it is soon found. Rows are
whitened by the inducing points, A = L^-1 Kzx, once. Then two parts take turns until the bound stays:

- the covariance takes the natural gradient step of size one (Salimbeni, Eleftheriadis and Hensman
  2018, eq. 10), S^-1 = I + A diag(h) A^T with h = -2 dE/dvar. Of several latent functions the largest
  h of each row serves all, so that one factorisation does, however many classes there are;
- the means, under these variances, are found by L-BFGS, in coordinates in which S is the identity. For
  a log-concave likelihood there is one maximum.

With one latent function both parts raise the bound, and the end is its maximum over all q.

The hyperparameters stay: see `class_labels`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize

from .._backend import in_place, placement
from .._backend.flat import turning_back
from .._backend.placement import ONE_DEVICE
from .._backend.threads import scipy_single_threaded
from ..training.batches import bucket, padded
from ..variational import gaussian
from ..variational.bound import data_term
from ..variational.model import Batch
from .system import Covariance, covariance_of, rows_of, whitened

# Rows of one evaluation of the likelihood: arrays of this size stay in a processor's cache. A GPU has more work so.
_BLOCK_ROWS, _BLOCK_ROWS_OF_GPU = 512, 1024
# Up to so many rows similar tables share programs; of more rows each block is filled up to a multiple of this part.
_SHARED, _PARTS = 640, 16
# Nats per row by which the bound still changes at the end, and most turns of covariance and means.
TOLERANCE, TURNS = 3e-3, 6
# Of L-BFGS: most iterations, and the relative change of the bound at its end as a share of the tolerance, where the
# covariance will still change and in the end.
_ITERATIONS, ROUGH, FINE = 200, 0.1, 1e-2
_CORRECTIONS = 10
# Latent variances of the first curvature.
_FIRST_VARIANCES = 1e-6, 1.0
# By how much the latent value of a row's label exceeds the others' in regression; and its noise variance as a share of
# the prior one.
_MARGIN, _NOISE = 10.0, 0.01


class Rows(NamedTuple):
    """All rows, filled up to whole blocks.

    Attributes
    ----------
    A : array of shape (M, N)
        Whitened.
    explained, residual : array of shape (N,)
        Their squared lengths, and what the points leave unexplained of the prior variances.
    y : array of shape (T, N)
    weight : array of shape (N,)
    A_single : array of shape (M, N), optional
        A in single precision, in which the means are looked for: see `with_single`.
    """

    A: jax.Array
    explained: jax.Array
    residual: jax.Array
    y: jax.Array
    weight: jax.Array
    A_single: jax.Array | None = None


class Fit(NamedTuple):
    """q under one scale of the kernel, in NumPy.

    Attributes
    ----------
    log_scale : float
    w : ndarray of shape (K, M)
        The whitened means.
    covariance : Covariance
    mean : ndarray of shape (K, N)
        Latent means at all rows.
    h : ndarray of shape (N,)
        The curvature that S is made of.
    bounds : list of float
        The bound after each turn.
    """

    log_scale: float
    w: np.ndarray
    covariance: Covariance
    mean: np.ndarray
    h: np.ndarray
    bounds: list

    def var(self, rows):
        """Latent variances (K, N) at all rows."""
        return np.broadcast_to(np.exp(self.log_scale) * rows.residual + self.covariance.own, self.mean.shape)

    @property
    def q(self):
        """A `Gaussian` whose covariance all latent functions share: it is stored once."""
        precision, inverse_root = map(np.asarray, (self.covariance.precision, self.covariance.inverse_root))
        cov, log_det_cov = inverse_root.T @ inverse_root, 2.0 * np.log(np.diag(inverse_root)).sum()
        return gaussian.Gaussian(self.w @ precision, precision[None], self.w, cov[None], np.array([log_det_cov]))


# -- compiled parts ----------------------------------------------------------------------------


@jax.jit
def _whitened_by_xla(parameters, prior, X):
    (rows,) = rows_of(parameters, prior, X, None)
    return rows.A, (rows.A**2).sum(0), rows.residual


def _data_term(parameters, constants, mean, var, y, weight):
    """The expected log-likelihood of all rows, block by block."""

    def of_block(block):
        mean, var, y, weight = block
        return data_term(parameters, constants, mean, var, Batch(None, y, weight, None), var)

    size = len(weight) // _n_blocks(len(weight))
    blocks = [
        jnp.moveaxis(each.reshape(*each.shape[:-1], -1, size), -2, 0)
        for each in (mean, jnp.broadcast_to(var, mean.shape), y, weight)
    ]
    return jax.lax.map(of_block, blocks).sum()


def curvatures(parameters, constants, rows, mean, var):
    """h = -2 dE/dvar (K, N)."""
    return _curvatures(parameters, constants, mean, var, rows.y, rows.weight)


@jax.jit
def _curvatures(parameters, constants, mean, var, y, weight):
    v = jax.grad(_data_term, argnums=3)(parameters, constants, mean, jnp.broadcast_to(var, mean.shape), y, weight)
    return jnp.maximum(-2.0 * v, 0.0)


@jax.jit
def _loss(t, parameters, constants, rows, covariance, scale):
    """Minus the bound, without the covariance's part, and its gradient in t = w R (K, M); the latent means, too."""
    A = rows.A if rows.A_single is None else rows.A_single
    var, root = scale * rows.residual + covariance.own, jnp.sqrt(scale)
    known = t, covariance.inverse_root, constants.prior_mean, var, root, rows.weight
    t, inverse_root, prior_mean, var, root, weight = (jnp.asarray(each, A.dtype) for each in known)
    w = t @ inverse_root
    mean = prior_mean + root * (w @ A)
    value, g = jax.value_and_grad(_data_term, argnums=2)(parameters, constants, mean, var, rows.y, weight)
    # With one latent function XLA takes twenty times as long for g A^T.
    gradient = (w - root * (A @ g.T).T) @ inverse_root.T
    return tuple(each.astype(float) for each in (0.5 * (w * w).sum() - value, gradient, mean))


@jax.jit
def value_and_slope(parameters, constants, rows, mean, var):
    """The expected log-likelihood of all rows, and its derivatives in the latent means (K, N)."""
    return jax.value_and_grad(_data_term, argnums=2)(parameters, constants, mean, var, rows.y, rows.weight)


# -- the fit -----------------------------------------------------------------------------------


def _block_rows():
    return _BLOCK_ROWS if placement.on_cpu() else _BLOCK_ROWS_OF_GPU


def _n_blocks(n_rows):
    return -(-n_rows // _block_rows())


def rows_of_table(parameters, prior, table):
    """The `Rows` of a table."""
    n_rows = len(table.weight)
    unit = _block_rows() // _PARTS * _n_blocks(n_rows)
    batch = padded(table, bucket(n_rows) if n_rows <= _SHARED else -(-n_rows // unit) * unit)
    if in_place.pays(len(prior.points), len(batch.X)):
        (A,), (residual,) = whitened(parameters.log_kernels, prior, batch.X)
        explained = np.einsum("mb,mb->b", A, A)
    else:
        A, explained, residual = _whitened_by_xla(parameters, prior, batch.X)
    return Rows(*ONE_DEVICE.replicated((A, explained, residual, batch.y, batch.weight), now=True))


def with_single(rows):
    """The rows for means that are a start, or that few points of a likelihood leave uncertain by far more.

    Covariances are made of the rows in double precision.
    """
    return rows._replace(A_single=jnp.asarray(rows.A, np.float32))


def fit_at_scale(parameters, constants, rows, log_scale, before=None, turns=TURNS, tolerance=TOLERANCE):
    """Covariance and means in turn, until the bound stays.

    Parameters
    ----------
    parameters : Parameters
        Of the likelihood; the kernel is in ``rows``.
    constants : Constants
    rows : Rows
    log_scale : float
        Logarithm of what the kernel is multiplied by.
    before : Fit, optional
        Under another scale; the start.
    turns : int
        At most so many.
    tolerance : float
        The change of the bound, in nats per unit of weight, that ends them.

    Returns
    -------
    fit : Fit
    """
    scale = float(np.exp(log_scale))
    n_latent, n_rows = len(constants.prior_mean), len(rows.weight)
    if before is None:
        w = np.zeros((n_latent, len(rows.A)))
        mean = np.broadcast_to(constants.prior_mean, (n_latent, n_rows))
        # Under a wide prior the labels seem to say little, and the first covariance would be too wide. At a row
        # far from all points nothing is explained, and at variance zero there is no derivative.
        var = np.clip(scale * np.asarray(rows.explained), *_FIRST_VARIANCES)
        h = curvatures(parameters, constants, rows, mean, var).max(0)
    else:
        # The same means.
        w = before.w * np.exp(0.5 * (before.log_scale - log_scale))
        h = before.h
    bounds = []
    for turn in range(turns):
        covariance = covariance_of(rows.A, h, scale)
        w, mean, value = _best_means(parameters, constants, rows, w, covariance, scale, ROUGH * tolerance)
        bounds.append(value - n_latent * float(covariance.divergence))
        if turn + 1 == turns or (turn and abs(bounds[-1] - bounds[-2]) <= tolerance * constants.weight):
            break
        var = scale * np.asarray(rows.residual) + np.asarray(covariance.own)
        after = curvatures(parameters, constants, rows, mean, var).max(0)
        # The mean of both from the second turn on: under a wide prior h would swing.
        h = 0.5 * (h + after) if turn else after
    return Fit(log_scale, w, covariance, *map(np.asarray, (mean, h)), bounds)


def refined(parameters, constants, rows, fit, tolerance=TOLERANCE):
    """The fit with means to more digits under its covariance; the arguments are those of `fit_at_scale`."""
    scale, precision = float(np.exp(fit.log_scale)), FINE * tolerance
    w, mean, value = _best_means(parameters, constants, rows, fit.w, fit.covariance, scale, precision)
    bound = value - len(w) * float(fit.covariance.divergence)
    return fit._replace(w=w, mean=np.asarray(mean), bounds=[*fit.bounds[:-1], bound])


def _best_means(parameters, constants, rows, w, covariance, scale, precision):
    """The whitened means with the largest bound, the latent means, and the bound without the covariance's part."""
    shape, root, inverse_root = np.shape(w), np.asarray(covariance.root), np.asarray(covariance.inverse_root)
    if rows.A_single is not None:
        # Once, and not in each evaluation.
        covariance = covariance._replace(inverse_root=jnp.asarray(covariance.inverse_root, np.float32))
    system = parameters, constants, rows, covariance, scale

    def loss(t):
        value, gradient, _ = _loss(t.reshape(shape), *system)
        return float(value), np.asarray(gradient).ravel()

    t = minimised(loss, (w @ root).ravel(), precision).reshape(shape)
    value, _, mean = _loss(t, *system)
    return t @ inverse_root, mean, -float(value)


def minimised(loss, start, precision, change=0.0):
    """Where ``loss``, of a vector, with its gradient, is least; its relative change ends the search, or ``change``."""
    options = {"maxiter": _ITERATIONS, "ftol": precision, "gtol": 0.0, "maxcor": _CORRECTIONS}
    last = np.inf

    def stays(intermediate_result):
        nonlocal last
        if last - intermediate_result.fun <= change:
            raise StopIteration
        last = intermediate_result.fun

    with scipy_single_threaded():
        return optimize.minimize(
            turning_back(loss), start, jac=True, method="L-BFGS-B", options=options, callback=stays
        ).x


def regressed(rows, prior_mean):
    """The `Fit` that regresses the labels: natural parameters A diag(h) A^T and A diag(h) z, of targets z.

    As if their noise were Gaussian (Rasmussen and Williams 2006, section 6.5). Under the likelihood a label that is
    almost certain says next to nothing more. Where classes hardly overlap it is rows at their margins alone that speak,
    and the means of a regression, to which all rows have something to say, are better. The scale of these has no
    meaning before class probabilities are calibrated.

    Parameters
    ----------
    rows : Rows
    prior_mean : ndarray of shape (K, 1)
    """
    weight = np.asarray(rows.weight)
    target = targets_of(np.asarray(rows.y[0]), weight, prior_mean)
    h = weight / (_NOISE * float(np.average(rows.explained + rows.residual, weights=weight)))
    covariance = covariance_of(rows.A, h)
    A, inverse_root = np.asarray(rows.A), np.asarray(covariance.inverse_root)
    w = (A @ (target * h).T).T @ inverse_root.T @ inverse_root
    return Fit(0.0, w, covariance, prior_mean + w @ A, h, [])


def targets_of(y, weight, prior_mean):
    """By how much latent values (K, N) that are right of the labels ``y`` (N,) exceed the prior mean."""
    if len(prior_mean) == 1:
        # The difference of two latent functions.
        return _MARGIN * (y - 0.5) - prior_mean
    found = _MARGIN * np.equal(y, np.arange(len(prior_mean))[:, None]) - prior_mean
    # What all of them have in common has no part in class probabilities.
    return found - np.average(found.mean(0), weights=weight)
