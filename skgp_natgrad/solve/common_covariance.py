"""q of all rows for class labels: the best means, and one covariance for all latent functions.

The best q has no closed form here, but for given hyperparameters it is found in a few turns. Rows are
whitened by the inducing points once, A = L^-1 Kzx. Then two parts alternate until the bound converges:

- the covariance takes the natural gradient step of size one (Salimbeni, Eleftheriadis and Hensman
  2018, eq. 10), S^-1 = I + A diag(h) A^T with h = -2 dE/dvar. All latent functions use the largest h
  of each row, so that one factorisation is enough, however many classes there are;
- L-BFGS finds the means under these variances, in coordinates in which S is the identity. For a
  log-concave likelihood there is one maximum.

With one latent function both parts raise the bound, and it converges to its maximum over all q.

The hyperparameters are kept: see `class_labels`.
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

# Rows in a block of the likelihood: arrays of this size stay in a processor's cache. A GPU gets larger ones.
_BLOCK_ROWS, _BLOCK_ROWS_OF_GPU = 512, 1024
# Tables with up to `_SHARED` rows are padded to shared sizes; larger ones by at most one of `_PARTS` of each block.
_SHARED, _PARTS = 640, 16
# The change of the bound, in nats per row, that ends the turns of covariance and means; and the most turns.
TOLERANCE, TURNS = 3e-3, 6
# L-BFGS: most iterations; and the relative change of the bound that ends it, as a share of the tolerance, while the
# covariance will still change, and at the end.
_ITERATIONS, ROUGH, FINE = 200, 0.1, 1e-2
_CORRECTIONS = 10
# Bounds of the latent variances at which the first curvature is computed.
_FIRST_VARIANCES = 1e-6, 1.0
# In regression, the latent value of a row's label less those of other labels; and the noise variance as a share of the
# prior variance.
_MARGIN, _NOISE = 10.0, 0.01


class Rows(NamedTuple):
    """All rows, filled up to whole blocks.

    Attributes
    ----------
    A : array of shape (M, N)
        Whitened.
    explained, residual : array of shape (N,)
        The squared lengths of A's columns, and the prior variances that the points do not explain.
    y : array of shape (T, N)
    weight : array of shape (N,)
    A_single : array of shape (M, N), optional
        A in single precision, for the search for the means: see `with_single`.
    """

    A: jax.Array
    explained: jax.Array
    residual: jax.Array
    y: jax.Array
    weight: jax.Array
    A_single: jax.Array | None = None


class Fit(NamedTuple):
    """q under one scale of the kernel, as NumPy arrays.

    Attributes
    ----------
    log_scale : float
    w : ndarray of shape (K, M)
        The whitened means.
    covariance : Covariance
    mean : ndarray of shape (K, N)
        Latent means at all rows.
    h : ndarray of shape (N,)
        The curvatures in S.
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
        return np.broadcast_to(
            np.exp(self.log_scale) * np.asarray(rows.residual) + self.covariance.own, self.mean.shape
        )

    @property
    def q(self):
        """A `Gaussian`; all latent functions share its covariance, which is stored once."""
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
    """h = -2 dE/dvar (K, N), on the host."""
    return np.asarray(_curvatures(parameters, constants, mean, var, rows.y, rows.weight))


@jax.jit
def _curvatures(parameters, constants, mean, var, y, weight):
    v = jax.grad(_data_term, argnums=3)(parameters, constants, mean, jnp.broadcast_to(var, mean.shape), y, weight)
    return jnp.maximum(-2.0 * v, 0.0)


@jax.jit
def _loss(t, parameters, constants, rows, covariance, scale):
    """Minus the bound without the covariance's divergence, its gradient in t = w R (K, M), and the latent means."""
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
    """The rows for means that are only a start, or whose quadrature errs by far more than single precision.

    Covariances are computed from the rows in double precision.
    """
    return rows._replace(A_single=jnp.asarray(rows.A, np.float32))


def fit_at_scale(parameters, constants, rows, log_scale, before=None, turns=TURNS, tolerance=TOLERANCE):
    """Update covariance and means in turn until the bound converges.

    Parameters
    ----------
    parameters : Parameters
        Of the likelihood; the kernel enters through ``rows``.
    constants : Constants
    rows : Rows
    log_scale : float
        Logarithm of the kernel's factor.
    before : Fit, optional
        The start, a fit under another scale.
    turns : int
        Most turns.
    tolerance : float
        The change of the bound, in nats per unit of weight, that ends the turns.

    Returns
    -------
    fit : Fit
    """
    scale = float(np.exp(log_scale))
    n_latent, n_rows = len(constants.prior_mean), len(rows.weight)
    if before is None:
        w = np.zeros((n_latent, len(rows.A)))
        mean = np.broadcast_to(constants.prior_mean, (n_latent, n_rows))
        # Variances are clipped: under a wide prior the curvatures would be too small, and the first covariance too
        # wide; and at a row far from all points the variance would be zero, where there is no derivative.
        var = np.clip(scale * np.asarray(rows.explained), *_FIRST_VARIANCES)
        h = curvatures(parameters, constants, rows, mean, var).max(0)
    else:
        # The latent means stay the same.
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
        # The mean of both from the second turn on: under a wide prior h would oscillate.
        h = 0.5 * (h + after) if turn else after
    return Fit(log_scale, w, covariance, *map(np.asarray, (mean, h)), bounds)


def refined(parameters, constants, rows, fit, tolerance=TOLERANCE):
    """The fit with more precise means under its covariance; for the arguments see `fit_at_scale`."""
    scale, precision = float(np.exp(fit.log_scale)), FINE * tolerance
    w, mean, value = _best_means(parameters, constants, rows, fit.w, fit.covariance, scale, precision)
    bound = value - len(w) * float(fit.covariance.divergence)
    return fit._replace(w=w, mean=np.asarray(mean), bounds=[*fit.bounds[:-1], bound])


def _best_means(parameters, constants, rows, w, covariance, scale, precision):
    """The whitened means of largest bound, the latent means, and the bound without the covariance's divergence."""
    shape, root, inverse_root = np.shape(w), np.asarray(covariance.root), np.asarray(covariance.inverse_root)
    if rows.A_single is not None:
        # Converted once, and not in each evaluation.
        covariance = covariance._replace(inverse_root=jnp.asarray(covariance.inverse_root, np.float32))
    system = parameters, constants, rows, covariance, scale

    def loss(t):
        value, gradient, _ = _loss(t.reshape(shape), *system)
        return float(value), np.asarray(gradient).ravel()

    t = minimised(loss, (w @ root).ravel(), precision).reshape(shape)
    value, _, mean = _loss(t, *system)
    return t @ inverse_root, mean, -float(value)


def minimised(loss, start, precision, change=0.0):
    """The minimum of ``loss``, which returns value and gradient; a relative ``precision`` or ``change`` ends L-BFGS."""
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
    """The `Fit` of a regression of the labels, with natural parameters A diag(h) A^T and A diag(h) z for targets z.

    It treats their noise as Gaussian (Rasmussen and Williams 2006, section 6.5). Under the likelihood a label that is
    almost certain has hardly any influence. If classes hardly overlap, only rows at their margins have one, and the
    means of a regression, where all rows count, are better. The scale of these means is arbitrary until class
    probabilities are calibrated.

    Parameters
    ----------
    rows : Rows
    prior_mean : ndarray of shape (K, 1)
    """
    weight = np.asarray(rows.weight)
    target = targets_of(np.asarray(rows.y)[0], weight, prior_mean)
    h = weight / (_NOISE * float(np.average(rows.explained + rows.residual, weights=weight)))
    covariance = covariance_of(rows.A, h)
    A, inverse_root = np.asarray(rows.A), np.asarray(covariance.inverse_root)
    w = (A @ (target * h).T).T @ inverse_root.T @ inverse_root
    return Fit(0.0, w, covariance, prior_mean + w @ A, h, [])


def targets_of(y, weight, prior_mean):
    """The targets of the regression: ideal latent values (K, N) for the labels ``y`` (N,), less the prior mean."""
    if len(prior_mean) == 1:
        # The difference of two latent functions.
        return _MARGIN * (y - 0.5) - prior_mean
    found = _MARGIN * np.equal(y, np.arange(len(prior_mean))[:, None]) - prior_mean
    # A constant that all latent functions share does not change class probabilities.
    return found - np.average(found.mean(0), weights=weight)
