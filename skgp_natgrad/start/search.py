"""The default kernel, with hyperparameters of large evidence, and the scaling of X that goes with it.

Training moves hyperparameters by gradients, and ends near where it starts: at a lengthscale that is
far too long a wiggly function looks like noise, and of many columns those that matter are not found.
So training starts at the best of some kernels, each at the maximum of the evidence of a part of the
table. They are compared by the density of rows outside that part, since repeated rows deceive the
evidence: it explains them by a noise that is too small. Class labels of larger tables are predicted by their neighbours
in the whole table, not by that part (`neighbours`). Of a small table each part is outside once: a kernel of many
hyperparameters fits every row of few so well that its own rows do not tell how little it predicts.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from scipy.stats import norm, rankdata

from .. import kernels
from .._backend import threads
from ..mean_solve.class_labels import Densities
from . import evidence, neighbours
from .candidates import CANDIDATES, COLUMNS, matern52
from .evidence import Hyperparameters
from .merged import in_random_order
from .scale import MANY_COLUMNS, fit_common_scale, fit_scale, fit_targets
from .splits import FEWEST_OUTSIDE, Shuffled, splits
from .weak_prior import weak_prior

# Rows whose evidence selects the kernel: of small tables, and of tables with many times as many rows.
_FEW, _MORE = 250, 400
# Rows whose evidence sets the final hyperparameters.
_REFINED = 1000
# Starts from which the evidence is maximised.
_TRIED = 2
# Of the lengthscales sqrt(D) times the deviation of a column, and of the noise: the starts, more of them for few
# columns, in which a function may go up and down many times, and the prior's mean.
_STARTS = ((1.0, 0.1), (0.3, 0.05), (0.1, 0.05))
_SHORT, _FEW_COLUMNS = ((0.03, 0.05), (0.01, 0.05)), 3
_CENTRE = 0.03
# Bounds of lengthscales, as multiples of sqrt(D) deviations: those of the kernel, and of a coarse search.
_SHORTEST, _LONGEST = 1e-5, 1e5
# At this one a column has no effect; training may go on from there without an end in sight.
_TRIED_LONGEST = 1e3
_COARSE, _COARSE_OF_FEW = 0.05, 0.005
# A density that is hardly larger than that of unit variance around zero, -1.42: nothing has been found.
_NOTHING = -1.4
# Noise variances, as shares of the targets' variance: of measurements, and of class labels. A kernel that interpolates
# every label gets lengthscales so short that each row says something of its nearest neighbours alone.
NOISE_BOUNDS, NOISE_BOUNDS_OF_LABELS = (1e-8, 1e2), (0.05, 1e2)
# The rarest label has a larger part among rows that are drawn evenly by more than this factor, or they are not tried.
_MUCH_MORE = 2.0
# Of fewer rows those on which the solutions under some kernels are compared are about as dense as the table.
_DENSE = 6000
# Tables whose widths share a multiple of this share programs.
_COLUMNS = 8


class _Effort(NamedTuple):
    """How the kernels of a table are fitted.

    Attributes
    ----------
    ties : tuple of float
        Deviations of the logarithms of a kernel's lengthscales from their mean, each of which is tried.
    iterations, final_iterations : int
        Of L-BFGS for each kernel and split of the rows, and for the best kernel.
    """

    ties: tuple
    iterations: int
    final_iterations: int


_USUAL = _Effort((np.inf,), 30, 20)
# That many columns matter each in its own way, few rows do not tell: with the smaller deviation a kernel is nearly
# isotropic. What is chosen hardly changes with more iterations.
_OF_SMALL = _Effort((1.0, 0.3), 15, 40)
# Few rows do not tell many columns apart: by a kernel that is nearly isotropic the scaling of X is chosen.
_OF_MANY_COLUMNS = _Effort((0.3, np.inf), 30, 20)


class Found(NamedTuple):
    """A kernel with its hyperparameters.

    Attributes
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
    noise : float
        The noise variance, as a share of the targets' variance.
    density : float
        Mean log predictive density of rows that it was not fitted to; with ``evenly`` of some that it was fitted to.
    evenly : bool
        Whether rows of rare labels had a larger part in the hyperparameters than they have in the table.
    of_labels : Densities, optional
        Of some labels as their neighbours predict them.
    """

    kernel: object
    noise: float
    density: float
    evenly: bool = False
    of_labels: Densities | None = None


class _Candidate(NamedTuple):
    """A kernel, the deviation that ties its lengthscales, its best for each split of the rows, and their density."""

    make: object
    tie: float
    best: tuple
    density: float


class _View:
    """A table under one scaling of X.

    ``longest`` are sqrt(D) times the columns' deviations, the lengthscales of the first start; ``limits``
    are the least and the largest in the search, and ``noises`` those of the noise.
    """

    def __init__(self, table, longest, limits, noises, effort):
        self.table, self.effort = table, effort
        self.longest, self.limits, self.noises = longest, limits, noises
        # Columns that are constant, among them those that fill up, have no part in the distances.
        self.varies = np.ptp(table.X, axis=0) > 0.0

    @property
    def n_columns(self):
        """Number of columns that are not filled up."""
        return np.count_nonzero(self.varies)


def best_kernels(
    tables, random_state, n_best=1, coarse=False, noises=NOISE_BOUNDS, of_labels=False, in_common_unit=None
):
    """The best kernels for each of the same rows under different scalings of X.

    Parameters
    ----------
    tables : sequence of Table
        The same targets and weights under each scaling. From `regressed`.
    random_state : numpy.random.RandomState
        Draws the rows.
    n_best : int, default=1
        Of a small table there is one: rows whose evidence was maximised do not tell which of two fits them too well.
    coarse : bool, default=False
        Whether the model cannot resolve what varies within a small part of a column's deviation. Short lengthscales
        then would explain nothing; they are found where a column has few values.
    noises : pair of floats, default=NOISE_BOUNDS
        Bounds of the noise variance, as shares of the targets' variance.
    of_labels : bool, default=False
        Whether targets are labels, of a model that rests on all rows. Then kernels are compared by `neighbours` where
        there are many rows; and the best one is returned a second time, with the hyperparameters that rows of rare
        labels say more of, if some are rare.
    in_common_unit : sequence of bool, optional
        Whether the columns of each table have one unit: then they begin with one lengthscale.

    Returns
    -------
    index : int
        Position of the best scaling.
    found : list of Found
        The kernels with the largest densities under this scaling, best first; ``evenly``, the first once more.
    """
    rows = Shuffled(*in_random_order(tables[0], random_state))
    n_columns = tables[0].X.shape[1]
    n_rows = _FEW if rows.n_groups <= 2 * _REFINED else _MORE
    is_small = rows.is_small(n_rows)
    effort = _OF_SMALL if is_small else _USUAL if n_columns < MANY_COLUMNS else _OF_MANY_COLUMNS
    views = [_view(*pair, coarse, noises, effort) for pair in _with_units(tables, in_common_unit)]

    def smooth_one(view):
        return _smooth_one(view, splits(view.table, rows, n_rows), effort.ties[0])

    firsts = threads.for_each(smooth_one, views)
    if max(first.density for first in firsts) < _NOTHING and not is_small:
        # More rows may show what few do not.
        n_rows = max(n_rows, min(_REFINED, rows.n_groups - FEWEST_OUTSIDE))
        firsts = threads.for_each(smooth_one, views)
    judges = None
    if of_labels and rows.n_groups > _DENSE:
        judges = neighbours.Judges.of(tables[0].X, rows.outside(max(n_rows, _REFINED)))
    firsts = [_near(*pair, judges) for pair in zip(views, firsts, strict=True)]
    index = int(np.argmax([first.density for first in firsts]))
    view, parts = views[index], splits(views[index].table, rows, n_rows)
    more = threads.for_each(lambda tie: _smooth_one(view, parts, tie), effort.ties[1:])
    firsts = [firsts[index], *(_near(view, each, judges) for each in more)]
    ranked = _ranked(view, parts, firsts, judges)[: 1 if is_small else n_best]
    samples = _samples(view, rows, of_labels)
    pairs = [(each, samples[0]) for each in ranked] + [(ranked[0], sample) for sample in samples[1:]]
    found = threads.for_each(lambda pair: _refined(view, *pair, n_columns, judges), pairs)
    return index, [each._replace(evenly=i >= len(ranked)) for i, each in enumerate(found)]


def _ranked(view, parts, firsts, judges):
    """The candidates of all kernels, best first; ``firsts`` are those of the first kernel."""
    pairs = [(make, first) for first in firsts for make in CANDIDATES[1:] if _suits(make, view.n_columns)]
    others = threads.for_each(lambda pair: _like(view, parts, *pair), pairs)
    return sorted([*firsts, *(_near(view, each, judges) for each in others)], key=lambda each: -each.density)


def _samples(view, rows, of_labels):
    """Rows that set the final hyperparameters; of labels some of which are rare a second choice of them."""
    samples = [rows.merged(view.table, _REFINED)]
    if of_labels and rows.n_groups > _REFINED and rows.gain_of_rarest(view.table) > _MUCH_MORE:
        samples.append(standardised(rows.evenly_merged(view.table, _REFINED)))
    return samples


def fitted_kernel(make, table, random_state, n_rows, noise):
    """One of the candidates at the maximum of the evidence of some rows, for targets that are mostly noise.

    Parameters
    ----------
    make : callable
        Of `candidates.CANDIDATES`.
    table : Table
        With targets of mean zero and unit variance.
    random_state : numpy.random.RandomState
    n_rows : int
    noise : float
        Where its search starts, as a share of the targets' variance.

    Returns
    -------
    found : Found
    """
    rows = Shuffled(*in_random_order(table, random_state))
    view, tie = _view(table, False, False, NOISE_BOUNDS, _USUAL), _OF_SMALL.ties[0]
    start, _, _ = _start(make, view.longest, np.log(noise), view, tie)
    candidate = _Candidate(make, tie, (evidence.Best(start, -np.inf),), np.nan)
    return _refined(view, candidate, rows.merged(view.table, n_rows), table.n_columns)


def _suits(make, n_columns):
    fewest, most = COLUMNS.get(make, (0, np.inf))
    return fewest <= n_columns <= most


def _with_units(tables, in_common_unit):
    return zip(tables, in_common_unit or [False] * len(tables), strict=True)


def _view(table, in_common_unit, coarse, noises, effort):
    """The view of a table; columns of zeros fill it up."""
    scale = fit_scale("X", table.X, table.weight, active=True)
    deviation = (fit_common_scale(scale) if in_common_unit else scale).scale
    missing = -len(deviation) % _COLUMNS
    X = np.pad(table.X, ((0, 0), (0, missing)))
    longest = np.sqrt(len(deviation)) * deviation
    shortest = _SHORTEST if not coarse else _COARSE if len(deviation) > _FEW_COLUMNS else _COARSE_OF_FEW
    limits = shortest * longest.min(), _TRIED_LONGEST * longest.max()
    # What fills up has next to no part in sums over columns.
    longest = np.pad(longest, (0, missing), constant_values=limits[1])
    return _View(table._replace(X=X), longest, limits, noises, effort)


def _smooth_one(view, parts, tie):
    """The best Matern 5/2 of those starts that have the largest evidence."""
    return _judged(matern52, tie, [_smooth_of(view, rows, tie) for rows, _ in parts], parts)


def _smooth_of(view, rows, tie):
    pairs = _STARTS + (_SHORT if view.n_columns <= _FEW_COLUMNS else ())
    starts = [_start(matern52, factor * view.longest, np.log(noise), view, tie) for factor, noise in pairs]
    starts.sort(key=lambda each: -evidence.value_and_gradient(each[0], rows)[0])
    found = [evidence.maximise(at, to, rows, view.effort.iterations, prior) for at, to, prior in starts[:_TRIED]]
    return max(found, key=lambda each: each.evidence)


def _like(view, parts, make, first):
    """Another kernel, started from the lengthscales of a Matern 5/2."""
    found = [_fitted(view, make, *pair, first.tie) for pair in zip(parts, first.best, strict=True)]
    return _judged(make, first.tie, found, parts)


def _fitted(view, make, split, best, tie):
    length_scale, noise = np.exp(best.hyperparameters.kernel.k2.length_scale), best.hyperparameters.noise
    start, bounds, prior = _start(make, length_scale, noise, view, tie)
    return evidence.maximise(start, bounds, split.rows, view.effort.iterations, prior)


def _judged(make, tie, best, parts):
    """The candidate with the mean log density of the other rows of each split."""
    pairs = zip(best, parts, strict=True)
    densities = [evidence.held_out_density(each.hyperparameters, part.rows, part.others) for each, part in pairs]
    weights = np.array([part.weight for part in parts])
    density = float(np.average(densities, weights=weights)) if weights.sum() > 0.0 else -np.inf
    return _Candidate(make, tie, tuple(best), density)


def _start(make, length_scale, noise, view, tie):
    """Start, bounds and weak prior of the hyperparameters of a candidate."""
    longest, limits = view.longest, view.limits
    kernel, *bounds = _logarithms(make(np.clip(length_scale, *limits), limits), len(longest))
    bounds = tuple(Hyperparameters(*each) for each in zip(bounds, np.log(view.noises), strict=True))
    centre = Hyperparameters(_logarithms(make(longest, limits), len(longest))[0], np.log(_CENTRE))
    return Hyperparameters(kernel, noise), bounds, weak_prior(centre, view.varies, tie)


def _logarithms(kernel, n_columns):
    """Logarithms of the values and the bounds of a kernel, as JAX kernels."""
    return [jax.tree.map(np.log, each) for each in kernels.from_sklearn(kernel, n_columns)]


def _near(view, candidate, judges):
    """The candidate with the log density of labels as neighbours predict them, if any."""
    of_labels = _of_labels(view, candidate.best[0].hyperparameters, judges)
    return candidate if of_labels is None else candidate._replace(density=of_labels.mean)


def _of_labels(view, hyperparameters, judges):
    """The `Densities` of labels of the rows ``judges`` as neighbours predict them, if any."""
    if judges is None:
        return None
    each = neighbours.label_densities(hyperparameters, view.table, judges)
    return Densities(each, view.table.weight[judges.index], np.ones(len(each)))


def _refined(view, candidate, rows, n_columns, judges=None):
    """The candidate at the maximum of the evidence of more rows, without the columns of zeros."""
    make, tie, (best, *_), density = candidate
    _, bounds, prior = _start(make, view.longest, best.hyperparameters.noise, view, tie)
    # Of small tables some rows must stay outside while kernels are compared, and none afterwards.
    refined = evidence.maximise(best.hyperparameters, bounds, rows, view.effort.final_iterations, prior)
    if np.isfinite(refined.evidence):
        best = refined
    values = jax.tree.map(lambda logs: _first_columns(np.exp(logs), n_columns), best.hyperparameters.kernel)
    longest = view.longest[:n_columns]
    limits = _SHORTEST * longest.min(), _LONGEST * longest.max()
    kernel = kernels.to_sklearn(make(longest, limits), values)
    of_labels = _of_labels(view, best.hyperparameters, judges)
    return Found(kernel, float(np.exp(best.hyperparameters.noise)), density, of_labels=of_labels)


def _first_columns(values, n_columns):
    return values[:n_columns] if np.ndim(values) else values


def regressed(table, n_classes, likelihood):
    """The table with targets that a Gaussian process of mean zero and unit variance can regress.

    Parameters
    ----------
    table : Table
    n_classes : int
        Zero in regression.
    likelihood : Likelihood
        Of Gaussian noise y is only divided by `scale_of`.

    Returns
    -------
    table : Table
    """
    table = without_offset(table, likelihood)
    if likelihood.conjugate:
        scale = scale_of(table)[:, None]
        return table._replace(y=table.y / scale, known=None if table.known is None else table.known / scale**2)
    if n_classes:
        labels = np.unique(table.y)
        # Of two indicators one says all.
        labels = labels[1:] if len(labels) == 2 else labels
        y = np.equal(table.y, labels[:, None]).astype(float)
    else:
        # Normal scores: whatever the support and the tails of y, they are monotone in it.
        ranks = rankdata(table.y, axis=1, nan_policy="omit")
        y = norm.ppf((ranks - 0.5) / np.isfinite(ranks).sum(1, keepdims=True))
    return standardised(table._replace(y=y, known=None))


def standardised(table):
    """The table with targets of mean zero and unit variance."""
    return table._replace(y=fit_targets(table.y.T, table.weight, active=True).forward(table.y.T).T)


def without_offset(table, likelihood):
    """The table with targets from which what is known of the rows is removed, as far as it can be."""
    if table.offset is None and table.known is None:
        return table
    y, _ = likelihood.given(table.known).without_offset(
        table.y, np.broadcast_to(table.weight, table.y.shape), table.added
    )
    return table._replace(y=y, offset=None)


def scale_of(table):
    """The root mean square of each target (T,), as the prior mean is zero; one for a target of zeros."""
    return np.array([_root_mean_square(table.target(k)) for k in range(len(table.y))])


def _root_mean_square(table):
    largest = np.abs(table.y).max(initial=0.0)
    if largest == 0.0:
        return 1.0
    root = largest * np.sqrt(np.average((table.y[0] / largest) ** 2, weights=table.weight))
    return root if root > 0.0 else 1.0
