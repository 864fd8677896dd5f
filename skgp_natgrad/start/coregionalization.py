"""Correlated outputs as rows of one target: the stacked table, its kernel, and a noise for each output.

Under the linear model of coregionalization outputs are one function of x and of the output's number p, with kernel
sum_q k_q(x, x') B_q[p, p'] (Alvarez, Rosasco and Lawrence 2012, section 4.2). So each observed value is a row, and all
other code sees a single target. Outputs have noises of their own: each is divided by its noise, up to a common factor,
and then all have the same one.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import numpy as np
from scipy import linalg
from sklearn.base import clone
from sklearn.gaussian_process.kernels import ConstantKernel, Kernel, Product, Sum
from sklearn.utils import check_random_state

from .. import kernels as _kernels
from .._backend.device import computation
from .._backend.flat import flat
from .._backend.types import Floats, Seed
from ..choose import evidence, targets
from ..choose.evidence import Hyperparameters
from ..choose.minimum import TO_THE_END
from ..choose.splits import merged
from ..kernels import Columns, Coregionalization
from ..kernels.base import Inputs
from ..kernels.columns import positions
from ..kernels.coregionalization import JaxCoregionalization
from ..training.batches import Table
from .plan import Plan

# The prior deviation of an output's log noise from that of all, and the prior's exponent of the sine of an angle. With
# next to no values of an output the evidence alone finds no noise and a perfect correlation.
_SPREAD, _EXPONENT = 1.5, 1.0
# The first loadings: at most so long, so that each output keeps something of its own, and none of them zero, where the
# evidence has a saddle.
_LONGEST, _LEAST = 0.9, 0.1


class Correlated(NamedTuple):
    """What `correlated` finds.

    Attributes
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
        On rows (x, p), for targets that are divided by ``ratio``.
    noise : float
        The variance of the noise of these.
    ratio : ndarray of shape (P,)
        The deviations of the outputs' noises, divided by their geometric mean.
    """

    kernel: Kernel
    noise: float
    ratio: Floats


def stacked(table: Table) -> Table:
    """The table with a row for each observed target (P, N), whose number is the last column of X."""
    output, row = np.nonzero(~np.isnan(table.y))
    of_rows = (None if each is None else each[output, row][None] for each in (table.offset, table.known))
    return Table(np.column_stack([table.X[row], output]), table.y[output, row][None], table.weight[row], *of_rows)


def on_outputs(kernel: Kernel, n_columns: int, between: Coregionalization) -> Kernel:
    """The kernel on rows (x, p): each term of a sum, on the first ``n_columns``, times one ``between`` outputs.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad.kernels import Coregionalization
    >>> on_outputs(2.0 * RBF(), 1, Coregionalization([1.0, 1.0], [1.0, 1.0]))
    1.41**2 * Columns(RBF(length_scale=1), [0]) * Columns(Coregionalization(deviation=[1. 1.], angle=[1. 1.]), 1)
    """
    if isinstance(kernel, Sum):
        return Sum(*(on_outputs(each, n_columns, between) for each in (kernel.k1, kernel.k2)))
    return _on_inputs(kernel, n_columns) * Columns(clone(between), n_columns)


def _on_inputs(kernel, n_columns):
    """The kernel on the first columns of a wider table; constants stay outermost, where they are amplitudes."""
    if isinstance(kernel, (Sum, Product)):
        return type(kernel)(*(_on_inputs(each, n_columns) for each in (kernel.k1, kernel.k2)))
    if isinstance(kernel, Columns):
        return Columns(clone(kernel.kernel), list(positions(kernel.columns, Inputs.of_table(n_columns))))
    return clone(kernel) if isinstance(kernel, ConstantKernel) else Columns(clone(kernel), list(range(n_columns)))


def _between(kernel):
    """The `Coregionalization` kernels in a kernel."""
    if isinstance(kernel, Coregionalization):
        return [kernel]
    parts = kernel.get_params(deep=False).values() if isinstance(kernel, Kernel) else ()
    return [found for part in parts for found in _between(part)]


def correlated(plan: Plan, table: Table, between: Coregionalization, random_state: Seed = None) -> Correlated:
    """The kernel and the noises of correlated outputs, at the largest evidence of some stacked rows.

    Parameters
    ----------
    plan : Plan
        Complete for independent outputs, with one kernel: where the search starts.
    table : Table
        Targets (P, N) of which some may be missing.
    between : Coregionalization
        A template, or the values at which the search starts.
    random_state : int, RandomState instance or None
        Draws the rows.

    Returns
    -------
    found : Correlated

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import kernels, svgp
    >>> X = np.linspace(-2, 2, 30)[:, None]
    >>> noise = 0.1 * np.random.default_rng(0).normal(size=(2, 30))
    >>> table = svgp.Table(X, np.sin(X.T) * [[1.0], [-1.0]] + noise, np.ones(30))
    >>> found = svgp.correlated(svgp.Plan(kernels=(1.0 * RBF(),)), table, kernels.Coregionalization(), 0)
    >>> bool(found.kernel.k2.kernel.covariance[0, 1] < 0)
    True
    """
    random_state = check_random_state(random_state)
    table = targets.without_offset(_some_rows(table, random_state), plan.likelihood)
    noises = [np.log(np.ravel(each.variance)) for each in plan.likelihood.value_and_bounds(table.n_targets)]
    with computation(plan.device):
        between = _first(plan.kernels[0], np.exp(noises[0]), table, between)
        kernel = on_outputs(plan.kernels[0], table.n_columns, between)
        # A hyperparameter may be fixed at zero.
        with np.errstate(divide="ignore"):
            logs = [jax.tree.map(np.log, each) for each in _kernels.from_sklearn(kernel, table.n_columns + 1)]
        start, *bounds = map(Hyperparameters, logs, noises)
        found = start
        if plan.settings.algorithm.optimizer is not None:
            best = evidence.maximise(start, bounds, merged(stacked(table)), _log_prior(start), **TO_THE_END)
            found = best.hyperparameters if np.isfinite(best.evidence) else start
    kernel, noise = _kernels.to_sklearn(kernel, jax.tree.map(np.exp, found.kernel)), np.exp(found.noise)
    common = np.exp(np.mean(np.log(noise)))
    ratio = np.sqrt(noise / common)
    for each in _between(kernel):
        # What follows has no such prior, and keeps them.
        each.set_params(deviation=each.deviation / ratio, deviation_bounds="fixed", angle_bounds="fixed")
    # Within its bounds: logarithms and means round.
    common = plan.likelihood.fitted([common]).variance
    return Correlated(kernel, float(common), ratio)


def _log_prior(start):
    """The log density of a weak prior and its slope: noises are alike, and each output has something of its own."""
    is_angle, n_outputs = flat(jax.tree.map(_marks, start.kernel, is_leaf=_is_between)) > 0.0, len(start.noise)

    def log_prior(x):
        slope, apart, angle = np.zeros_like(x), x[-n_outputs:] - x[-n_outputs:].mean(), np.exp(x[:-n_outputs][is_angle])
        slope[-n_outputs:] = -apart / _SPREAD**2
        slope[:-n_outputs][is_angle] = _EXPONENT * angle / np.tan(angle)
        return _EXPONENT * float(np.log(np.sin(angle)).sum()) - 0.5 * float((apart**2).sum()) / _SPREAD**2, slope

    return log_prior


def _is_between(part):
    return isinstance(part, JaxCoregionalization)


def _marks(part):
    """Ones at the angles of a part of a kernel, zeros elsewhere."""
    zeros = jax.tree.map(lambda leaf: np.zeros(np.shape(leaf)), part)
    return dataclasses.replace(zeros, angle=zeros.angle + 1.0) if _is_between(part) else zeros


def _some_rows(table, random_state):
    """Random rows of positive weight, with as many observed targets as the evidence may have rows.

    Each output has its share of them, from the one with the fewest targets on, which the others are to help.
    """
    order = random_state.permutation(np.flatnonzero(table.weight > 0.0))
    seen = ~np.isnan(table.y[:, order])
    first = [np.flatnonzero(seen[k])[: evidence.ROWS // len(seen)] for k in np.argsort(seen.sum(1), kind="stable")]
    order = order[list(dict.fromkeys(np.concatenate([*first, np.arange(len(order))]).tolist()))]
    n_seen = np.cumsum((~np.isnan(table.y[:, order])).sum(0))
    return table.rows(np.sort(order[: max(np.searchsorted(n_seen, evidence.ROWS, side="right"), 1)]))


def _first(kernel, noise, table, between):
    """The kernel between outputs at which the search starts: where nothing is given, from the independent means."""
    n_outputs, between = table.n_targets, clone(between)
    if np.ndim(between.deviation) == 0:
        between.deviation = np.full(n_outputs, float(between.deviation))
    if np.ndim(between.angle) == 0:
        angle = np.full(n_outputs * between.rank, float(between.angle))
        if not isinstance(between.angle_bounds, str):
            angle = _angles(_means(kernel, noise, table), between.rank)
            angle = np.clip(angle, *np.reshape(between.angle_bounds, (-1, 2)).T)
        between.angle = angle
    return between


def _means(kernel, noise, table):
    """The posterior means of independent outputs at all rows: (P, N)."""
    K, means = kernel(table.X), np.zeros_like(table.y)
    for k, own in enumerate(noise):
        seen = np.flatnonzero(~np.isnan(table.y[k]))
        of_rows = own / table.weight[seen] + (0.0 if table.known is None else table.known[k, seen])
        # With next to no noise there may be no factor, and these means are only a start.
        rounding = np.finfo(float).eps * np.trace(K)
        covariance = K[np.ix_(seen, seen)] + np.diag(of_rows + rounding)
        means[k] = K[:, seen] @ linalg.solve(covariance, table.y[k, seen], assume_a="pos")
    return means


def _angles(means, rank):
    """Those of the first principal components of the outputs' correlations."""
    means = means - means.mean(1, keepdims=True)
    size = np.sqrt((means * means).sum(1, keepdims=True))
    means = np.divide(means, size, out=np.zeros_like(means), where=size > 0.0)
    values, vectors = np.linalg.eigh(means @ means.T)
    u = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, ::-1][:, :rank]
    u = np.where(np.abs(u) < _LEAST, np.where(u < 0.0, -_LEAST, _LEAST), u)
    u *= np.minimum(1.0, _LONGEST / np.sqrt((u * u).sum(1, keepdims=True)))
    return Coregionalization.from_factors(u, 1.0 - (u * u).sum(1)).angle
