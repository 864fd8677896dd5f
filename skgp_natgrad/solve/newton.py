"""Newton's method for the best q of all rows under any likelihood of numbers, and the bound's gradient.

Rows are whitened by the inducing points, A = L^-1 Kzx. A turn is the natural gradient step of size one (Salimbeni,
Eleftheriadis and Hensman 2018, eq. 10): with g = dE/dmean and h = -2 dE/dvar of each row's expected log-likelihood,

    S^-1 = I + A diag(h) A^T,    S^-1 m = A (h (A^T m) + g)

h is the curvature in the mean, averaged over q: the mean takes Newton's step for sum_n E_n(a_n^T m) - |m|^2 / 2.
For a Gaussian likelihood E is quadratic, and one turn is enough. Otherwise the step is halved until the bound does not
fall; a concave log-likelihood has one maximum. A likelihood is solved in this way if `Likelihood.by_newton` is true; it
needs only its ``expected_log_prob``.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import numpy as np

from .._backend import in_place
from .._backend.device import once_jit
from ..prediction.calibration import Average
from ..training.batches import bucket, padded
from ..variational import gaussian
from ..variational.bound import bound_given_q
from .closed_form import Optimum
from .held_out_labels import Densities
from .mean_system import slopes
from .system import gaussian_of, of_likelihood, of_precision, precision_of, prior_of, whitened

# Most turns and halvings; and the change of the bound that ends the turns: in nats, plus a share of the bound.
_TURNS, _HALVINGS, _CHANGE, _RELATIVE = 50, 20, 1e-7, 1e-11
# Largest latent variance of the start; and one of so many rows is held out.
_WIDEST, _HELD_OUT = 4.0, 5


class Fit(NamedTuple):
    """The best q, the bound after each turn, latent moments (K, B) of all rows, and "turns" if they did not suffice."""

    q: gaussian.Gaussian
    bounds: list
    mean: np.ndarray
    var: np.ndarray
    status: str | None


class _At(NamedTuple):
    """q by its natural parameters (K, M) and (K, M, M), factors of the latter, and latent moments, g and h: (K, B)."""

    nat1: np.ndarray
    precision: np.ndarray
    roots: list
    mean: np.ndarray
    var: np.ndarray
    bound: float
    g: np.ndarray
    h: np.ndarray


def filled_up(table):
    """The table as one batch of a size that similar tables share."""
    return padded(table, bucket(table.n_rows))


@once_jit
def _slopes(parameters, constants, mean, var, batch):
    return slopes(parameters, constants, (mean, var, var), batch)


@once_jit
def _slope_of_bound(parameters, q, batch, constants):
    def bound(hyperparameters):
        there = parameters._replace(log_kernels=hyperparameters[0], raw_likelihood=hyperparameters[1])
        return bound_given_q("orthogonal", there, q.mean, q.cov, batch, constants) + constants.log_prior(there)

    return jax.grad(bound)(tuple(parameters[:2]))


def slope(parameters, constants, batch, q):
    """The gradient of the bound plus the log prior in (kernels, likelihood), with the whitened q held fixed.

    At the best q, where the bound's gradient in q is zero, it is the gradient of the largest bound.
    """
    return jax.tree.map(np.asarray, _slope_of_bound(parameters, q, batch, constants._replace(scale=1.0)))


@once_jit
def _log_densities(likelihood, mean, var, y):
    return likelihood.log_predictive_density(mean, var, y)


def held_out_rows(batch, random_state):
    """A random part of the rows with positive weight, as a mask (B,)."""
    rows = random_state.permutation(np.flatnonzero(batch.weight > 0.0))
    return np.isin(np.arange(len(batch.weight)), rows[: -(-len(rows) // _HELD_OUT)])


def densities(parameters, constants, batch, held):
    """The `Densities` of held-out rows under the best q of the others."""
    fit = best_q(parameters, constants, batch._replace(weight=np.where(held, 0.0, batch.weight)))
    likelihood = parameters.raw_likelihood.from_raw(np).given(batch.known)
    each = np.asarray(_log_densities(likelihood, fit.mean, fit.var, batch.y))[held]
    return Densities(each, batch.weight[held], np.ones(len(each)))


def best_q(parameters, constants, batch, start=None):
    """The q with the largest bound under given hyperparameters.

    Parameters
    ----------
    parameters : Parameters
        With one kernel, and without mean-only points.
    constants : Constants
    batch : Batch
        All rows: see `filled_up`.
    start : Gaussian, optional
        A whitened q, as of other hyperparameters: the turns start there if its bound beats the default start's.

    Returns
    -------
    fit : Fit
    """
    prior = prior_of(parameters, constants.masks, constants.jitter)
    (A,), (residual,) = whitened(parameters.log_kernels, prior, batch.X)
    rows = A, residual, batch._replace(X=None, columns=None)
    at = functools.partial(_at, rows, *of_likelihood(parameters, constants))
    n_latent = len(constants.prior_mean)
    # The default start is narrower than a wide prior, under which expectations would be too large.
    widest = (residual + np.einsum("mb,mb->b", *2 * (A,))).max()
    starts = [gaussian.isotropic(np.full(n_latent, min(1.0, _WIDEST / widest)), len(A))]
    # Under a larger kernel its rates may overflow; Newton's method would lower their logarithms by only one in a turn.
    starts += [] if start is None else [start]
    here = max((at(*map(np.asarray, (q.nat1, q.precision))) for q in starts), key=lambda each: each.bound)

    def toward(here):
        nat1 = (here.g + here.h * (here.mean - batch.prior_mean(constants))) @ A.T
        precision = np.stack([precision_of(A, h) for h in here.h])
        return lambda t: at(here.nat1 + t * (nat1 - here.nat1), here.precision + t * (precision - here.precision))

    def least_rise(bound):
        return np.inf if parameters.raw_likelihood.conjugate else _CHANGE + _RELATIVE * abs(bound)

    here, bounds, status = ascended(here, toward, least_rise, _TURNS, _HALVINGS, _CHANGE)
    q = gaussian_of(here.nat1, here.precision, here.roots)
    return Fit(q, bounds, here.mean, here.var, status)


def ascended(here, toward, least_rise, n_turns, n_halvings, slack=0.0):
    """The maximum of a bound by Newton's method, with steps that are halved until the bound does not fall.

    Parameters
    ----------
    here : object with a ``bound``
        The start.
    toward : callable
        Takes such an object; returns a function from a share of Newton's step to the object there.
    least_rise : callable
        Takes a bound; returns the rise below which the turns end: infinite if the bound is quadratic and one is enough.
    n_turns, n_halvings : int
        The most of each.
    slack : float
        A fall of the bound that counts as rounding.

    Returns
    -------
    here : object
        With the largest bound.
    bounds : list of float
        After each turn.
    status : str or None
        "turns" if there were not enough of them.
    """
    bounds, status = [], "turns"
    while status and len(bounds) < n_turns:
        step = toward(here)
        for halving in range(n_halvings):
            there = step(0.5**halving)
            if there.bound >= here.bound - slack:
                break
        status = "turns" if there.bound - here.bound > least_rise(there.bound) else None
        here = there if there.bound >= here.bound else here
        bounds.append(here.bound)
    return here, bounds, status


def _at(rows, parameters, constants, nat1, precision):
    A, residual, batch = rows
    covariances = [of_precision(each, A) for each in precision]
    roots = [each.root for each in covariances]
    m = list(map(in_place.cholesky_solve, roots, nat1))
    latent = batch.prior_mean(constants) + np.stack([each @ A for each in m])
    var = residual + np.stack([each.own for each in covariances])
    value, g, h = map(np.asarray, _slopes(parameters, constants, latent, var, batch))
    divergence = sum(each.divergence + 0.5 * (w @ w) for each, w in zip(covariances, m, strict=True))
    return _At(nat1, precision, roots, latent, var, float(value - divergence), g, np.maximum(h, 0.0))


def solve(parameters, constants, table, random_state):
    """The `Optimum` of all rows for fixed hyperparameters; a part of the rows is also predicted from the rest."""
    batch = filled_up(table)
    fit = best_q(parameters, constants, batch)
    held_out = Average.of(*densities(parameters, constants, batch, held_out_rows(batch, random_state)))
    return Optimum(fit.q, parameters, np.array(fit.bounds), held_out, status=fit.status)
