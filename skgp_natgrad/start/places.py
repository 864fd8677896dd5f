"""Several rows at one X, as of persons or sites: the noise within them, and the variance between them.

Rows of one X may have an effect in common, of variance tau^2, beside the noise s^2 of each row. To a function of X this
effect is noise, that of k rows and their mean,

    mean - f(x) ~ N(0, tau^2 + s^2 / k)

So the noise within is the pooled scatter of rows at equal X, and tau^2 is the noise of the merged rows, of which the
part s^2 / k is known: a search for kernel and noise finds it as it would for measurements with known variances. What it
leaves out at a time is a whole place. The model then has s^2 as its noise, and a `Nugget` of variance tau^2 in its
kernel.

Places have an effect if the maximum of the evidence is clearly larger with tau^2 than without. Without it, s^2 is also
determined by the merged rows: the scatter within, of nu degrees of freedom, is a prior of density s^-nu exp(-scatter /
(2 s^2)).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import ConstantKernel

from .. import kernels as _kernels
from .._backend.repeated import grouped, in_rows
from ..choose import evidence, targets
from ..choose.candidates import matern52
from ..choose.minimum import TO_THE_END
from ..choose.splits import Shuffled, in_random_order, merged
from ..choose.wide import viewed
from ..kernels import nugget
from . import sizes

# Different X whose evidence is compared.
_PLACES = 400
# Nats by which the evidence must be larger with an effect of the place.
_CLEARLY = 2.0
# Noise variance at which the search starts, as a share of the targets' variance.
_NOISE = 0.1
# Bounds of the variance of the effect, in units of the targets' variance.
_BOUNDS = (1e-8, 1e3)


class Within(NamedTuple):
    """The scatter of rows at equal X around their means, for each target, and its degrees of freedom: (T,)."""

    scatter: np.ndarray
    df: np.ndarray

    @property
    def variance(self):
        """The variance of a single row."""
        return self.scatter / self.df

    def log_density(self, log_noise):
        """The log density of the scatter, up to a constant, under one noise for all targets; and its slope."""
        ratio = self.scatter * np.exp(-log_noise)
        return -0.5 * float((self.df * log_noise + ratio).sum()), -0.5 * float((self.df - ratio).sum())

    def with_prior(self, log_prior):
        """A log prior of hyperparameters, for `evidence.maximise`, times the density of the scatter."""

        def of_both(x):
            (value, slope), (more, of_noise) = log_prior(x), self.log_density(x[-1])
            slope = np.array(slope)
            slope[-1] += of_noise
            return value + more, slope

        return of_both


def within(table):
    """The `Within` of a table; None if no rows of equal X differ in each target, or if they are not merged."""
    order, start = grouped(table.X)
    if len(start) == len(order) or table.per_target:
        return None
    weight, sizes_of = in_rows(table.weight)[order], np.diff(start, append=len(order))
    total, y = np.add.reduceat(weight, start), table.y[:, order]
    # Relative to the first row, so that equal targets have no scatter.
    y = y - np.repeat(y[:, start], sizes_of, axis=1)
    mean = np.repeat(np.add.reduceat(weight * y, start, axis=1) / total, sizes_of, axis=1)
    scatter = np.add.reduceat(weight * (y - mean) ** 2, start, axis=1)
    # Copies say nothing about the noise.
    df = np.where(scatter > 0.0, np.maximum(total - 1.0, 0.0), 0.0).sum(1)
    return Within(scatter.sum(1), df) if np.all((df > 0.0) & (scatter.sum(1) > 0.0)) else None


def of_places(table, variance):
    """The table with one row for each X, whose noise is known but for the effect of the place.

    Parameters
    ----------
    table : Table
    variance : ndarray of shape (T,)
        That of the noise of a row of weight one.
    """
    found = merged(table)
    return found._replace(weight=np.ones(found.n_rows), known=variance[:, None] / found.weight)


def effect(plan, table):
    """The `Within` of the rows if their places have an effect; otherwise None.

    Parameters
    ----------
    plan : Plan
        Its noise and its kernel are free; the kernel, if one is given, need not be.
    table : Table
        In the units of the model.
    """
    if not _may_have(plan, table):
        return None
    table = targets.without_offset(table, plan.likelihood)
    found = within(table)
    if found is None:
        return None
    scale = targets.scale_of(table)
    table = table._replace(y=table.y / scale[:, None])
    order = Shuffled(*in_random_order(table, np.random.RandomState(0)))
    table = table.rows(np.sort(order.first(min(_PLACES, order.n_groups))))
    each = [
        (table.target(k), Within(found.scatter[k : k + 1] / scale[k] ** 2, found.df[k : k + 1]))
        for k in range(table.n_targets)
    ]
    gains = [_gain(*pair, plan.blocks) for pair in each]
    return found if max(gains) > _CLEARLY else None


def _may_have(plan, table):
    """Whether the model can have an effect of the place, with a point at each, and the rows can show it."""
    route, likelihood = plan.route, plan.likelihood
    if not (route.finds_noise and likelihood.conjugate and not likelihood.fixed):
        return False
    if plan.hyperparameter_prior is not None or table.per_target or table.y_is_constant or plan.n_devices is not None:
        return False
    if plan.n_neighbours not in ("auto", 0) or not isinstance(plan.inducing_init, str):
        return False
    given = plan.kernels or ()
    if any(map(nugget.in_sklearn, given)) or (given and not any(len(each.theta) for each in given)):
        return False
    most = sizes.n_inducing(table.n_rows, plan.n_latent(table), plan.n_bytes)
    most = most if plan.n_inducing == "auto" else table.n_rows if plan.n_inducing is None else plan.n_inducing
    # Of a few copies the variance between places would be that of any function which one plain kernel does not explain.
    return table.n_distinct <= min(most, table.n_rows // 2)


def _gain(table, found, blocks):
    """The evidence at its maximum with an effect of the place, minus that without one."""
    view, variance = viewed(table, blocks=blocks), found.variance
    start, bounds, prior = view.start(matern52, view.longest, np.log(_NOISE), np.inf)

    without = start._replace(noise=np.log(variance[0]))
    without = evidence.maximise(without, bounds, merged(view.table), found.with_prior(prior), **TO_THE_END)
    # At the maximum: the prior is not part of the evidence.
    value = without.evidence + found.log_density(without.hyperparameters.noise)[0]
    other = evidence.maximise(start, bounds, of_places(view.table, variance), prior, **TO_THE_END)
    return other.evidence + found.log_density(np.log(variance[0]))[0] - value


def searched(plan):
    """The plan with a free noise, which stands for the effect of the place."""
    return plan._replace(likelihood=type(plan.likelihood)())


def joined(found, plan, given):
    """The plan of a search whose noise is the effect of the place: with that in the kernel, and the noise within.

    Parameters
    ----------
    found : Within
    plan : Plan
        The result of the search.
    given : Likelihood
        Its bounds are those of the noise.
    """
    between = np.ravel(plan.likelihood.variance)
    each = between if len(plan.kernels) > 1 else [np.mean(between)]
    kernels = tuple(
        kernel + ConstantKernel(float(tau), tuple(float(tau) * np.array(_BOUNDS))) * _kernels.Nugget()
        for kernel, tau in zip(plan.kernels, each, strict=True)
    )
    lower, upper = given.value_and_bounds(len(found.df))[1:]
    variance = np.clip(found.variance, np.ravel(lower.variance), np.ravel(upper.variance))
    return plan._replace(kernels=kernels, likelihood=given.fitted([variance]))
