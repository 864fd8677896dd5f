"""Hyperparameters and standard deviations for few rows, averaged over the posterior of the hyperparameters.

With few rows the largest evidence often belongs to a model that interpolates them all without noise, though others have
almost as much. So the ratio of noise and kernel variance and a common factor of the lengthscales are averaged over a
grid whose points are weighted by evidence and a weak prior. The mean of y and the common scale of all variances are
integrated out in closed form, under their reference prior (O'Hagan 1978; Berger, De Oliveira and Sanso 2001),

    log p(y | K, r) = -1/2 log|C| - 1/2 log(1^T C^-1 1) - (n - 1) / 2 log(y^T P y) + const,   C = K + r I,
    P = C^-1 - C^-1 1 1^T C^-1 / (1^T C^-1 1)

A given kernel has the same average around the hyperparameters of its largest evidence, within their bounds. Where its
amplitude or the noise is fixed, the scale is known instead of integrated out.

The process keeps the average logarithms. Averaged leave-one-out predictions have a larger variance than those of this
process; the ratio becomes a factor of its variances. Errors are Student-t with n - 1 degrees of freedom.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from scipy import special, stats

from .. import kernels as _kernels
from .._backend.flat import flat, rebuilt
from .._backend.repeated import at_most_one, contradicted, grouped, n_observations
from ..choose import covariances, targets
from ..choose.candidates import matern52
from ..choose.restarts import is_periodic, places
from ..choose.wide import viewed
from ..kernels.algebra import multiplied, room
from ..kernels.base import Kernel
from ..likelihoods import Gaussian
from ..prediction.dispersion import Dispersion
from ..prediction.errors import StudentErrors
from ..prediction.posterior import Posterior
from ..solve.held_out_labels import Densities
from .plan import Plan

# Fewer rows than the first number are averaged over; with at least the second, kernels are compared as well.
MOST, FEWEST_OF_KERNELS = 100, 20
# The grid: log factors of the lengthscales, and log ratios of noise and kernel variance. Their prior: mean and standard
# deviation of the log ratio, standard deviation of the log factor.
_FACTORS = np.log(2.0) * np.arange(-3, 4)
_RATIOS = np.log(10.0) * np.linspace(-9.0, 2.0, 23)
_RATIO, _DEVIATION, _DEVIATION_OF_FACTOR = np.log(3.0), 3.0, 1.0
# Fewest degrees of freedom of the errors; with fewer rows the quantile of this level is kept right by a factor.
_FEWEST_DF, _KEPT_LEVEL = 3.0, 0.95
_TINY = np.finfo(float).tiny


class Plain(NamedTuple):
    """A plan with the plain kernel, and the `Densities` of rows, each predicted from all others."""

    plan: Plan
    densities: Densities


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
    noise : ndarray of shape (T,)
        The variances of the noise.
    inflation : ndarray of shape (T,)
        The variance of predictions averaged over the grid, as a multiple of their variance under the average kernel.
    df : float
        Degrees of freedom of the errors.
    densities : Densities
        Of rows, each predicted from all others.
    """

    log_kernel: Kernel
    noise: float
    inflation: np.ndarray
    df: float
    densities: Densities


def suits(plan, table):
    """Whether the default kernel is averaged: few rows with complete targets, and Gaussian noise that is open."""
    return not targets.is_set(plan.likelihood) and _are_few(plan, table)


def suits_given(plan, table):
    """Whether given kernels are averaged: few rows with complete targets, whose errors calibrate the predictions."""
    return plan.route.disperses(plan, table) and _are_few(plan, table)


def _are_few(plan, table):
    if table.n_rows >= MOST or not plan.likelihood.conjugate or plan.hyperparameter_prior is not None:
        return False
    if table.n_rows < 2 or table.per_target or table.y_is_constant:
        return False
    # A row may stand for many observations.
    return n_observations(table.weight, contradicted(table.X, table.y)[0]).sum() < MOST


def kept(plan, table):
    """The plan with the averages that its likelihood holds, from a fit to few rows; as it is without, or if unsuited.

    Parameters
    ----------
    plan : Plan
        With hyperparameters that are kept.
    table : Table
    """
    likelihood = plan.likelihood
    if type(likelihood) is not Gaussian or np.isinf(likelihood.df) or not _are_few(plan, table):
        return plan
    inflation = np.broadcast_to(np.asarray(likelihood.inflation, float), table.n_targets)
    return plan._replace(averages=Open(inflation, float(likelihood.df)))


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
    view = viewed(table, blocks=plan.blocks)
    start = view.start(matern52, view.longest, 0.0, np.inf)[0]
    kernel = targets.multiplied(view.to_sklearn(matern52, start.kernel), float(np.mean(targets.variances(plan, table))))
    return _with_averages(plan, kernel, table)


def better(plan, plain, found, table):
    """The plan with averages around the kernel that a search found, if that predicts better by a standard error.

    A kernel with a season must not be worse by as much.

    Parameters
    ----------
    plan : Plan
    plain : Plain
    found : refinement.Found
        Its densities are those of held-out rows, on the scale of `targets.regressed`.
    table : Table

    Returns
    -------
    plan : Plan or None
    """
    varying = targets.that_vary(targets.without_offset(table, plan.likelihood))
    held_out = plain.densities._replace(each=found.held_out.each - np.log(targets.scale_of(varying)).mean())
    # Between other rows all kernels can predict; what a season is worth shows beyond them.
    is_worse = plain.densities.are_larger_than(held_out)
    if is_worse or not (is_periodic(found.kernel) or held_out.are_larger_than(plain.densities)):
        return None
    return _with_averages(plan, targets.started(plan, found, table).kernels[0], table).plan


def _with_averages(plan, kernel, table):
    rows = targets.without_offset(table, plan.likelihood)
    found = averaged(jax.tree.map(np.log, _kernels.from_sklearn(kernel, rows.X.shape[1]).value), rows)
    kernel = _kernels.to_sklearn(kernel, jax.tree.map(np.exp, found.log_kernel))
    likelihood = targets.with_noise(plan.likelihood, found.noise)
    plan = plan._replace(kernels=(kernel,), likelihood=likelihood, averages=Open(found.inflation, found.df))
    return Plain(plan, found.densities)


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
    lengths = jax.tree.map(lambda each: np.full(np.shape(each), np.ndim(each) > 0), log_kernel)
    if not any(np.any(each) for each in jax.tree.leaves(lengths)):
        # All columns have one.
        bounds = (
            jax.tree.map(lambda each, sign=sign: np.full_like(each, sign * np.inf), log_kernel) for sign in (-1, 1)
        )
        lengths = _free_lengthscales(log_kernel, *bounds, table.n_columns)
    return _over(_FACTORS, lambda factor: _moved(log_kernel, lengths, factor), _RATIOS, lambda *_: None, table)


def around(found, bounds, table):
    """The `Averaged` of a table around the hyperparameters of largest evidence, within their bounds.

    All free lengthscales have a common factor. The scale of all variances is integrated out if both the noise and the
    kernel's are free; if one of them is given, it follows from their ratio.

    Parameters
    ----------
    found : Hyperparameters
    bounds : pair of Hyperparameters
    table : Table
        Without offsets; see `suits`.

    Returns
    -------
    averaged : Averaged
    """
    (kernel, noise), (low, high) = found, bounds
    lengths = _free_lengthscales(kernel, low.kernel, high.kernel, table.X.shape[1])
    of_scale, of_noise = room(kernel, low.kernel, high.kernel), (float(low.noise), float(high.noise))
    variance = float(np.log(np.mean(np.diag(covariances.covariance_of_rows(kernel, table.X)))))
    least, most = of_noise[0] - variance - of_scale[1], of_noise[1] - variance - of_scale[0]

    def moved(factor):
        return jax.tree.map(np.clip, _moved(kernel, lengths, factor), low.kernel, high.kernel)

    def scale(variance, ratios):
        if of_scale[0] == of_scale[1]:
            return np.full(len(ratios), variance)
        return np.exp(noise - ratios) if of_noise[0] == of_noise[1] else None

    factors = _FACTORS if any(np.any(each) for each in jax.tree.leaves(lengths)) else np.zeros(1)
    average = _over(factors, moved, np.unique(np.clip(_RATIOS, least, most)), scale, table)
    inside = jax.tree.map(np.clip, average.log_kernel, low.kernel, high.kernel)
    return average._replace(log_kernel=inside, noise=np.clip(average.noise, *np.exp(of_noise)))


def _over(factors, moved, ratios, scale_of, table):
    """The `Averaged` over a grid of log factors of the lengthscales, and of log ratios of noise and kernel.

    ``moved`` maps a factor to a kernel, and ``scale_of`` its variance and a ratio to the scale, or to None if that is
    integrated out.
    """
    y, weight, ratios = table.y, at_most_one(table.weight), np.asarray(ratios)
    order, starts = grouped(table.X)
    alike = [each for each in np.split(order, starts[1:]) if 1 < len(each) < len(order)]

    def models(factor, ratios):
        covariance, variance = _unit_covariance(moved(factor), table.X)
        return _Models.of(covariance, ratios, y, weight, scale_of(variance, ratios), alike), variance

    of_factors = [models(factor, ratios)[0] for factor in factors]
    evidence, _, means, variances, _, *apart = map(np.stack, zip(*of_factors, strict=True))
    # A constant target has no scale, and would decide about the lengthscales of the others.
    varies = np.ptp(y, axis=1) > 0.0
    share = _shares(np.asarray(factors), ratios, evidence, varies)
    factor, ratio = share[..., 0].sum(1) @ factors, ratios @ share.sum(0)
    # Each target has a ratio of its own.
    best, variance = models(factor, ratio)
    scale = float(np.mean(np.diag(best.scale)[varies]))
    mean = (share[..., None] * means).sum((0, 1))
    total = (share[..., None] * (variances + (means - mean) ** 2)).sum((0, 1))
    df = len(weight) - 1.0
    used = max(df, _FEWEST_DF)
    wider = stats.t.ppf(_KEPT_LEVEL, df) / stats.t.ppf(_KEPT_LEVEL, used)
    inflation = np.where(varies, wider**2 * (total / (scale * best.unit_variance)).mean(-1), 1.0)
    kernel = multiplied(moved(factor), np.log(scale / variance))
    # A copy would tell what a row is.
    means, variances = apart
    each = -0.5 * (np.log(2.0 * np.pi * variances) + (y - means) ** 2 / variances)
    of_rows = special.logsumexp(each, (0, 1), share[..., None])[varies].mean(0)
    densities = Densities(of_rows, weight, np.ones(len(weight)))
    return Averaged(kernel, scale * np.exp(ratio), inflation, used, densities)


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
    return Dispersion(plan.kernels[0], posterior, StudentErrors(df * ones), np.inf * ones)


def _shares(factors, ratios, evidence, varies):
    """The weights (F, R, T) of the grid, one in sum for each target; the factor is common to those that vary (T,)."""
    of_ratios = evidence - 0.5 * (((ratios - _RATIO) / _DEVIATION) ** 2)[:, None]
    of_factors = special.logsumexp(of_ratios, 1)[:, varies].sum(1) - 0.5 * (factors / _DEVIATION_OF_FACTOR) ** 2
    return special.softmax(of_ratios, 1) * special.softmax(of_factors)[:, None, None]


def _moved(log_kernel, lengths, factor):
    """The kernel with these lengthscales times the exponential of ``factor``."""
    return jax.tree.map(lambda each, moves: each + factor * moves, log_kernel, lengths)


def _free_lengthscales(log_kernel, low, high, n_columns):
    """A kernel of the same form that says which values are lengthscales between different bounds."""
    found = np.zeros(len(flat(log_kernel)), bool)
    for _, name, place in places(log_kernel, np.arange(n_columns)):
        if name == "length_scale":
            found[place.at] = (flat(low) < flat(high))[place.at]
    return rebuilt(found, log_kernel)


def _unit_covariance(log_kernel, X):
    """The covariance of the rows, divided by the mean variance; and that variance."""
    found = covariances.covariance_of_rows(log_kernel, X)
    variance = float(np.mean(np.diag(found)))
    return found / variance, variance


class _Models(NamedTuple):
    """Points of the grid: evidence and scale of all variances (R, T) of each target, and leave-one-out predictions.

    ``mean`` and ``variance`` are (R, T, n), those ``apart`` without all rows of the same X. ``unit_variance`` (R, n) is
    for a scale of one and a known mean of y.
    """

    evidence: np.ndarray
    scale: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    unit_variance: np.ndarray
    mean_apart: np.ndarray
    variance_apart: np.ndarray

    @classmethod
    def of(cls, covariance, ratios, y, weight, scale=None, alike=()):
        """The models of a covariance, logarithms of the ratio of noise and kernel (R,), and targets (T, n).

        The scale of all variances is integrated out if it is not given, for each ratio. ``alike`` are rows of equal X.
        """
        n, root = len(weight), np.sqrt(weight)
        values, vectors = np.linalg.eigh(root * covariance * root[:, None])
        vectors *= root[:, None]
        # The inverse of C for each ratio is vectors diag(inverse) vectors^T.
        inverse = 1.0 / (np.maximum(values, 0.0) + np.exp(ratios)[:, None])
        ones, of_y = vectors.sum(0), y @ vectors
        total = inverse @ ones**2
        of_ones = (inverse * ones) @ vectors.T
        centre = (inverse * ones) @ of_y.T / total[:, None]
        residual = (inverse[:, None] * (of_y - centre[..., None] * ones)) @ vectors.T
        square = np.maximum((residual * y).sum(-1), _TINY)
        log_det = -np.log(inverse).sum(1) - np.log(weight).sum()
        if scale is None:
            scale = square / (n - 1)
            away = (n - 1) * np.log(square)
        else:
            scale = np.broadcast_to(np.reshape(scale, (-1, 1)), square.shape)
            away = (n - 1) * np.log(scale) + square / scale
        each = -0.5 * (log_det[:, None] + np.log(total)[:, None] + away)
        diagonal = inverse @ (vectors**2).T
        own = np.maximum(diagonal - of_ones**2 / total[:, None], _TINY)[:, None]
        mean, variance = y - residual / own, scale[..., None] / own
        found = cls(each, scale, mean, variance, 1.0 / diagonal, mean.copy(), variance.copy())
        for rows in alike:
            # As for single rows, with the block of P in place of its diagonal.
            ones_of_rows = of_ones[:, rows]
            block = (vectors[rows] * inverse[:, None]) @ vectors[rows].T
            block -= ones_of_rows[:, :, None] * (ones_of_rows / total[:, None])[:, None]
            block = np.linalg.inv(block)
            found.mean_apart[..., rows] = y[:, rows] - residual[..., rows] @ block
            found.variance_apart[..., rows] = scale[..., None] * np.diagonal(block, axis1=1, axis2=2)[:, None]
        return found
