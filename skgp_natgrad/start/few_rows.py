"""Hyperparameters and standard deviations for few rows, averaged over the posterior of the hyperparameters.

With few rows the largest evidence often belongs to a model that interpolates them all without noise, though others have
almost as much. So the ratio of noise and kernel variance and a common factor of the lengthscales are averaged over a
grid whose points are weighted by evidence and a weak prior. The mean of y and the common scale of all variances are
integrated out in closed form, under their reference prior (O'Hagan 1978; Berger, De Oliveira and Sanso 2001),

    log p(y | K, r) = -1/2 log|C| - 1/2 log(1^T C^-1 1) - (n - 1) / 2 log(y^T P y) + const,   C = K + r I,
    P = C^-1 - C^-1 1 1^T C^-1 / (1^T C^-1 1)

The process keeps the average logarithms. Averaged leave-one-out predictions have a larger variance than those of this
process; the ratio becomes a factor of its variances. Errors are Student-t with n - 1 degrees of freedom.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from scipy import linalg, special, stats

from .. import kernels as _kernels
from .._backend.repeated import at_most_one, contradicted, n_observations
from ..kernels.algebra import multiplied
from ..kernels.base import Kernel
from ..prediction.dispersion import Dispersion
from ..prediction.posterior import Posterior
from . import covariances, targets
from .candidates import matern52
from .plan import Plan
from .view import View

# Fewer rows than the first number are averaged over; with at least the second, kernels are compared as well.
MOST, FEWEST_OF_KERNELS = 100, 20
# The grid: log factors of the lengthscales, and log ratios of noise and kernel variance. Their prior: mean and standard
# deviation of the log ratio, standard deviation of the log factor.
_FACTORS = np.log(2.0) * np.arange(-3, 4)
_RATIOS = np.log(10.0) * np.linspace(-9.0, 2.0, 23)
_RATIO, _DEVIATION, _DEVIATION_OF_FACTOR = np.log(3.0), 3.0, 1.0
# Nats a row by which a kernel that was searched for must predict better than the plain one.
_WORTH_A_SEARCH = 0.05
# Fewest degrees of freedom of the errors; with fewer rows the quantile of this level is kept right by a factor.
_FEWEST_DF, _LEVEL = 3.0, 0.95


class Plain(NamedTuple):
    """A plan with the plain kernel, and the mean log density of rows, each predicted from all others."""

    plan: Plan
    density: float


class Open(NamedTuple):
    """What the average hyperparameters do not express of the average over the grid: see `Averaged`."""

    inflation: np.ndarray
    df: float


class Averaged(NamedTuple):
    """The averages of a target, or of several with a common kernel.

    Attributes
    ----------
    log_kernel : Kernel
        The kernel of the average logarithms.
    noise : float
        The variance of the noise.
    inflation : ndarray of shape (T,)
        The variance of predictions averaged over the grid, as a multiple of their variance under the average kernel.
    df : float
        Degrees of freedom of the errors.
    density : float
        Mean log density of rows, each predicted from all others.
    """

    log_kernel: Kernel
    noise: float
    inflation: np.ndarray
    df: float
    density: float


def suits(plan, table):
    """Whether a table has few enough rows, complete targets, and a Gaussian likelihood with free noise and no prior."""
    if table.n_rows >= MOST or not plan.likelihood.conjugate or plan.hyperparameter_prior is not None:
        return False
    if table.n_rows < 2 or table.per_target or table.y_is_constant or targets.is_set(plan.likelihood):
        return False
    # A row may stand for many observations.
    return n_observations(table.weight, contradicted(table.X, table.y)[0]).sum() < MOST


def plain(plan, table):
    """The plan with the plain kernel, a Matern 5/2 with lengthscales of sqrt(D) standard deviations, and averages.

    Parameters
    ----------
    plan : Plan
    table : Table

    Returns
    -------
    plain : Plain
    """
    view = View(table)
    start = view.start(matern52, view.longest, 0.0, np.inf)[0]
    kernel = targets.multiplied(view.to_sklearn(matern52, start.kernel), float(np.mean(targets.variances(plan, table))))
    return _with_averages(plan, kernel, table)


def better(plan, plain, found, table):
    """The plan with averages around the kernel that a search found, if that predicts better than the plain one.

    Parameters
    ----------
    plan : Plan
    plain : Plain
    found : refinement.Found
        Its density is that of left-out rows, on the scale of `targets.regressed`.
    table : Table

    Returns
    -------
    plan : Plan or None
    """
    density = found.density - float(np.log(targets.scale_of(targets.without_offset(table, plan.likelihood))).mean())
    if not density > plain.density + _WORTH_A_SEARCH:
        return None
    return _with_averages(plan, targets.started(plan, found, table).kernels[0], table).plan


def _with_averages(plan, kernel, table):
    rows = targets.without_offset(table, plan.likelihood)
    found = averaged(jax.tree.map(np.log, _kernels.from_sklearn(kernel, rows.X.shape[1]).value), rows)
    kernel = _kernels.to_sklearn(kernel, jax.tree.map(np.exp, found.log_kernel))
    likelihood = targets.with_noise(plan.likelihood, np.full(table.n_targets, found.noise))
    plan = plan._replace(kernels=(kernel,), likelihood=likelihood, averages=Open(found.inflation, found.df))
    return Plain(plan, found.density)


def averaged(log_kernel, table):
    """The `Averaged` of a table.

    Parameters
    ----------
    log_kernel : Kernel
        Of logarithms; its variance does not matter.
    table : Table
        Without offsets; see `suits`.

    Returns
    -------
    averaged : Averaged
    """
    y, weight = table.y, at_most_one(table.weight)
    points = [(factor, ratio) for factor in _FACTORS for ratio in _RATIOS]
    covariances = {factor: _unit_covariance(log_kernel, factor, table.X)[0] for factor in _FACTORS}
    models = [_Model.of(covariances[factor], ratio, y, weight) for factor, ratio in points]
    share = _shares(np.array(points), np.array([each.evidence for each in models]))
    factor, ratio = share @ np.array(points)
    covariance, variance = _unit_covariance(log_kernel, factor, table.X)
    best = _Model.of(covariance, ratio, y, weight)
    scale = float(best.scale.mean())
    means, variances = np.array([each.mean for each in models]), np.array([each.variance for each in models])
    mean = np.tensordot(share, means, 1)
    total = np.tensordot(share, variances + (means - mean) ** 2, 1)
    df = len(weight) - 1.0
    used = max(df, _FEWEST_DF)
    wider = stats.t.ppf(_LEVEL, df) / stats.t.ppf(_LEVEL, used)
    inflation = wider**2 * (total / (scale * best.unit_variance)).mean(-1)
    moved = multiplied(_moved(log_kernel, factor), np.log(scale / variance))
    each = -0.5 * (np.log(2.0 * np.pi * variances) + (y - means) ** 2 / variances)
    density = float(np.average(special.logsumexp(each, 0, share[:, None, None]).mean(0), weights=weight))
    return Averaged(moved, scale * float(np.exp(ratio)), inflation, used, density)


def dispersion(plan, X):
    """The `Dispersion` with constant factors for a plan with averages, whose table has these rows.

    Parameters
    ----------
    plan : Plan
    X : ndarray of shape (N, D)

    Returns
    -------
    dispersion : Dispersion
    """
    inflation, df = plan.averages
    nothing, ones = np.zeros((len(inflation), 0)), np.ones((len(inflation), 1))
    posterior = Posterior(X[:1], X[:0], 0.0 * ones, nothing, None, None, np.log(inflation)[:, None])
    return Dispersion(plan.kernels[0], posterior, df * ones, np.inf * ones)


def _shares(points, evidence):
    """The weights of the points of the grid, which sum to one."""
    away = (points - [0.0, _RATIO]) / [_DEVIATION_OF_FACTOR, _DEVIATION]
    found = evidence - 0.5 * (away**2).sum(1)
    found = np.exp(found - found.max())
    return found / found.sum()


def _moved(log_kernel, factor):
    """The kernel with its lengthscales, the leaves that have an axis, times the exponential of ``factor``."""
    return jax.tree.map(lambda each: each + factor if np.ndim(each) else each, log_kernel)


def _unit_covariance(log_kernel, factor, X):
    """The covariance of the rows under the moved kernel, divided by the mean variance; and that variance."""
    found = covariances.covariance_of_rows(_moved(log_kernel, factor), X)
    variance = float(np.mean(np.diag(found)))
    return found / variance, variance


class _Model(NamedTuple):
    """One point of the grid: its evidence, the scale of all variances (T,), and leave-one-out predictions.

    ``mean`` and ``variance`` are (T, n). ``unit_variance`` (n,) is for a scale of one and a known mean of y.
    """

    evidence: float
    scale: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    unit_variance: np.ndarray

    @classmethod
    def of(cls, covariance, ratio, y, weight):
        """The model of a covariance, a logarithm of the ratio of noise and kernel, and targets (T, n)."""
        n = len(weight)
        C = covariance + np.diag(np.exp(ratio) / weight)
        factor = linalg.cholesky(C, lower=True)
        inverse = linalg.cho_solve((factor, True), np.eye(n))
        ones = inverse.sum(1)
        P = inverse - np.outer(ones, ones) / ones.sum()
        residual = y @ P
        square = np.maximum((residual * y).sum(1), np.finfo(float).tiny)
        scale = square / (n - 1)
        each = -np.log(np.diag(factor)).sum() - 0.5 * np.log(ones.sum()) - 0.5 * (n - 1) * np.log(square)
        own = np.maximum(np.diag(P), np.finfo(float).tiny)
        return cls(each.sum(), scale, y - residual / own, scale[:, None] / own, 1.0 / np.diag(inverse))
