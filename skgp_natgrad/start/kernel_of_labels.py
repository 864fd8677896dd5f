"""The default kernel of class labels: a sum of several, each with the share that held-out labels give it.

No kernel suits the labels of all tables, and some hundred labels hardly tell which one suits those of this table. So
none is chosen. Each kernel has the hyperparameters that maximise the evidence of a regression of the labels, and its
solution under the likelihood predicts labels that were held out; in a dense table neighbours train it, and predict
(`dense`). Its share of the variance is its weight in the mixture of these predictions that is the most probable one
(stacking, Breiman 1996; here of one Gaussian process, whose solution and predictions cost little more than those of one
kernel).
"""

from __future__ import annotations

import functools
import itertools
import operator
from typing import NamedTuple

import jax
import numpy as np
from sklearn.gaussian_process.kernels import ConstantKernel, Sum

from .. import kernels as _kernels
from .._backend import threads
from ..choose import dense, evidence, search, targets
from ..choose.candidates import OF_LABELS
from ..choose.effects import is_effect
from ..choose.refinement import raced, refined
from ..choose.splits import Shuffled, in_random_order
from ..choose.targets import standardised
from ..choose.view import NOISE_BOUNDS_OF_LABELS
from ..choose.wide import viewed
from ..kernels.formula import formula
from ..solve import class_labels
from ..solve.held_out_labels import Densities
from .plan import Plan
from .state import init

# Rows whose labels are predicted and held out, the share of the latter, and the inducing points.
_ROWS, HELD_OUT, _POINTS = 4000, 0.45, 800
# Prior deviation of a kernel's log lengthscales from their mean: some hundred labels do not tell many of them apart.
_TIE = 0.3
# Labels that tell equal shares beforehand: few labels give kernels about equal shares.
_EQUAL = 5.0
# The least share of a kernel in a dense table: there it costs time, and spoils labels that others nearly all predict.
_LEAST_SHARE = 0.1
# The hyperparameter of a constant, and its bounds.
_CONSTANT = "constant_value", "constant_value_bounds"
# The share of kernels without one; and iterations, by far enough, that find the shares.
_NONE, _ITERATIONS = 1e-9, 200


class Tried(NamedTuple):
    """A plan with its kernel at the best scale, and the log densities of held-out labels."""

    plan: Plan
    of_labels: Densities


class Shares(NamedTuple):
    """The kernels of a sum, and their shares of its variance."""

    kernels: tuple
    values: tuple

    def said(self, _):
        """One line for `summary`: the terms of each kernel, in their order there, and then its share."""
        said, effects = [], False
        for kernel, share in zip(self.kernels, self.values, strict=True):
            terms = [term.k2 for term in _terms(kernel)]
            said.append(f"{' + '.join(formula(each) for each in terms if not is_effect(each))} {share:.2f}")
            effects = effects or any(map(is_effect, terms))
        of_all = "; the other terms, of categories, belong to all" if effects else ""
        return f"shares of the variance, in the order of the terms: {', '.join(said)}{of_all}"


class _Candidates:
    """Kernels for class labels: the first one under each scaling, and all of them under one.

    Parameters
    ----------
    tables, random_state, in_common_unit, blocks
        See `search.best_kernels`.

    Attributes
    ----------
    views : list of View
    firsts : list of Candidate
        A Matern 5/2 under each scaling.
    """

    def __init__(self, tables, random_state, in_common_unit=None, blocks=()):
        self._rows = Shuffled(*in_random_order(tables[0], random_state))

        def views_of(shortest=None):
            pairs = search.with_units(tables, in_common_unit)
            return [viewed(*pair, False, NOISE_BOUNDS_OF_LABELS, shortest, blocks) for pair in pairs]

        found = search.begun(views_of, self._rows, may_be_noise=False, tie=_TIE)
        self.views, self.firsts, _, self._effort = found

    def rows(self, index):
        """Rows that set the final hyperparameters under a scaling; of rare classes they have a larger share."""
        return standardised(self._rows.evenly_merged(self.views[index].table, evidence.ROWS))

    def each_form(self, index):
        """A candidate of each form under a scaling: only the first one is fitted."""
        view = self.views[index]
        return search.starts_in(view, self.firsts[index], search.makes_of(view, OF_LABELS), self._effort)


def summed(plan, tables, random_state, in_common_unit=None):
    """The position of the best scaling of X, and the plan with the sum of kernels; see `choice.choose_kernel`.

    Under the best scaling a Matern 5/2 predicts held-out labels best.
    """
    with threads.single_threaded(0):
        regressed = [targets.compared(each, plan) for each in tables]
        kernels = _Candidates(regressed, random_state, in_common_unit, plan.blocks)
    # The same rows and points for all of them.
    seed = random_state.randint(np.iinfo(np.int32).max)

    def tried(index, kernel, searches=False):
        return at_best_scale(targets.with_kernel(plan, kernel, tables[index]), tables[index], seed, searches)

    def at_first(index):
        view, (make, _, (best, *_), *_) = kernels.views[index], kernels.firsts[index]
        return tried(index, view.to_sklearn(make, best.hyperparameters.kernel)).of_labels

    index = _best_scaling(threads.for_each(at_first, range(len(tables)))) if len(tables) > 1 else 0
    view, rows = kernels.views[index], kernels.rows(index)

    def at_more_rows(candidate):
        return refined(view, raced(view, candidate, rows)[0], rows).kernel

    with threads.single_threaded(0):
        found = threads.for_each(at_more_rows, kernels.each_form(index))
    X = tables[index].X[:_POINTS]
    alone = [_sum_of(found, each, X) for each in np.eye(len(found))]
    densities = [each.of_labels for each in threads.for_each(lambda kernel: tried(index, kernel), alone)]
    share = shares(densities)
    plan = tried(index, _sum_of(found, share, X), searches=True).plan
    return index, plan if len(found) == 1 else plan._replace(ahead=Shares(tuple(found), tuple(map(float, share))))


def judged_by_neighbours(plan, found, table, random_state):
    """The plan with the sum of some kernels, each a `Found` whose judges are labels, at its best scale."""
    seed = random_state.randint(np.iinfo(np.int32).max)
    share = shares([each.by_neighbours for each in found])
    kept = np.flatnonzero(share >= _LEAST_SHARE)
    kernels, share = tuple(found[i].kernel for i in kept), share[kept] / share[kept].sum()
    plan = targets.with_kernel(plan, _sum_of(kernels, share, table.X[:_POINTS]), table)
    plan = at_best_scale(plan, table, seed).plan
    return plan if len(found) == 1 else plan._replace(ahead=Shares(kernels, tuple(map(float, share))))


def _best_scaling(densities):
    """Position of the scaling of largest density; the second, normal scores if there are any, unless it is clearly so.

    A few columns with long tails may decide all distances between rows.
    """
    best = 1
    for i in (0, *range(2, len(densities))):
        best = i if densities[i].are_larger_than(densities[best]) else best
    return best


def _sum_of(kernels, share, X):
    """The sum of kernels with these shares of its variance at rows X.

    None of them is zero, so that all such sums share their programs. The effects of a category are one term,
    whose variance is the sum of theirs: within its bounds the lengthscale makes no difference (`effects`).
    """
    factors = [max(part, _NONE) / float(np.mean(each.diag(X))) for part, each in zip(share, kernels, strict=True)]
    terms, effects = [], {}
    for each in itertools.chain(*map(_terms, map(targets.multiplied, kernels, factors))):
        if is_effect(each.k2):
            effects.setdefault(tuple(each.k2.columns), []).append(each)
        else:
            terms.append(each)
    return functools.reduce(operator.add, [*terms, *map(_added, effects.values())])


def _terms(kernel):
    return [*_terms(kernel.k1), *_terms(kernel.k2)] if isinstance(kernel, Sum) else [kernel]


def _added(effects):
    """The sum of constants times one kernel."""
    value, bounds = (sum(np.asarray(getattr(each.k1, name)) for each in effects) for name in _CONSTANT)
    return ConstantKernel(float(value), tuple(bounds)) * effects[0].k2


def shares(densities):
    """The weights (J,) of the most probable mixture of J predictions, from their `Densities` of the same labels.

    Expectation maximisation under a Dirichlet prior; the problem is concave. Predictions that are not finite have a
    share of zero. Weights of rows tell what is more, and not how much there is.
    """
    log_densities, (_, weight, counts) = np.array([each.each for each in densities]), densities[0]
    weight = weight * counts.sum() / max(weight.sum(), np.finfo(float).tiny)
    finite = np.isfinite(log_densities).all(axis=1)
    if not finite.any():
        return np.full(len(finite), 1.0 / len(finite))
    density = np.zeros_like(log_densities)
    density[finite] = np.exp(log_densities[finite] - log_densities[finite].max(axis=0))
    first = found = finite / finite.sum()
    for _ in range(_ITERATIONS):
        part = found[:, None] * density
        found = (part / part.sum(axis=0)) @ weight + _EQUAL * first
        found /= found.sum()
    return found


def at_best_scale(plan, table, seed, searches=True):
    """The plan with its kernel at the scale that predicts held-out labels best, if others are tried: `Tried`.

    If class probabilities will be calibrated, these predictions are, too. Some rows of a dense table do not say which
    scale then is best for all.
    """
    calibrates = plan.calibrate and table.n_distinct <= dense.MOST_BY_EVIDENCE
    random_state = np.random.RandomState(seed)
    chosen = np.sort(random_state.permutation(len(table.weight))[:_ROWS])
    n_inducing = _POINTS if len(chosen) > _POINTS else None
    plan_of_few = plan._replace(n_inducing=n_inducing, n_mean_inducing=0, inducing_init="random")
    rows = table.rows(chosen)
    state, constants = init(plan_of_few, rows, random_state)
    with threads.single_threaded(len(constants.masks.Z)):
        given = state.parameters, constants, rows, random_state, HELD_OUT, calibrates, searches
        log_kernel, densities = class_labels.best_scale(*given)
    kernel = _kernels.to_sklearn(plan.kernels[0], jax.tree.map(np.exp, log_kernel))
    plan = plan._replace(kernels=(kernel,)) if np.isfinite(densities.mean) else plan
    return Tried(plan, densities)
