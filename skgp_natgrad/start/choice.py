"""Chooses from the data what a plan leaves open: the kernel, the noise, the scaling of X and the sizes."""

from __future__ import annotations

import copy
import functools

import jax
import jax.numpy as jnp
import numpy as np

from .. import kernels as _kernels
from .. import priors
from .._backend import threads
from .._backend.device import quick_jit
from .._backend.flat import flat, rebuilt
from ..choose import dense, evidence, search, targets, view
from ..choose.candidates import OF_LABELS, OF_MEASUREMENTS, OF_STEPS
from ..choose.evidence import Hyperparameters
from ..choose.refinement import leading
from ..choose.restarts import Starts, is_periodic
from ..choose.splits import Shuffled, in_random_order, merged
from ..kernels import algebra, nugget
from ..solve import closed_form
from . import by_bound, few_labels, few_rows, kernel_of_labels, places, sizes
from .plan import sized
from .state import init, specification

# The best kernels are compared by the solution on many rows (those of large tables by neighbours): at most so many
# rows, and so many inducing points.
_ROWS, _POINTS = 45_000, 2000
# Noise variance at which the regression of labels starts, as a share of their variance.
_NOISE = 0.1


def complete(plan, table, random_state):
    """See `svgp.complete`; of several processes each has the same rows."""
    plan = plan._replace(likelihood=plan.likelihood.prepare(table.filled_y, plan.n_classes))
    is_given, is_pinned = plan.kernels is not None, plan.is_pinned
    if not is_given:
        plan = choose_kernel(plan, [some_rows(table, random_state)], random_state)[1]
    plan = with_priors(plan, table)
    if is_pinned:
        return sized(few_rows.kept(plan, table) if plan.route.averages else plan, table)
    effect = places.effect(plan, _with_weight(table.sample)) if is_given else None
    if effect is not None:
        rows = places.of_places(_with_weight(table.sample), effect.variance)
        found = _SEARCHES[plan.route.search](places.searched(plan), rows, random_state)
        plan = places.joined(effect, found, plan.likelihood)
    elif is_given or (plan.hyperparameter_prior and plan.route.search == "bound"):
        plan = _SEARCHES[plan.route.search](plan, table, random_state)
    elif plan.hyperparameter_prior and plan.likelihood.conjugate:
        # The default kernel was found without the prior. Training by steps keeps the default noise.
        found = maximise_evidence(plan, table, random_state)
        plan = plan._replace(kernels=found.kernels) if plan.route.trains else found
    return sized(plan, table)


def with_priors(plan, table):
    """The plan with one prior per hyperparameter, by its full name; by default around its present value."""
    if plan.hyperparameter_prior is None:
        return plan
    values = specification(plan.kernels, plan.likelihood, table.n_columns, table.n_targets)
    return plan._replace(hyperparameter_prior=priors.settled(plan.hyperparameter_prior, *values))


def some_rows(table, random_state):
    """The rows from which the kernel and the scaling of X are chosen: all of positive weight, or a random part."""
    table = _with_weight(table.sample)
    n_rows = table.n_rows
    if n_rows <= _ROWS:
        return table
    index = np.sort(random_state.choice(n_rows, _ROWS, replace=False))
    return table.rows(index)


def _with_weight(table):
    """The table without rows of weight zero: their noise would be infinite."""
    seen = table.weight > 0.0
    return table if np.all(seen) else table.rows(np.flatnonzero(seen))


def choose_kernel(plan, tables, random_state, in_common_unit=None):
    """Choose the default kernel, its initial hyperparameters, and the scaling of X.

    Parameters
    ----------
    plan : Plan
        With a prepared likelihood, and without kernels.
    tables : sequence of Table
        The same rows under each scaling.
    random_state : numpy.random.RandomState
    in_common_unit : sequence of bool, optional
        Whether the columns of each table have one unit, so that they begin with one lengthscale.

    Returns
    -------
    index : int
        Position of the best scaling.
    plan : Plan
        With a kernel and, if the likelihood is Gaussian, the noise found with it.
    """
    # Refuse a wrong value before any work.
    plan.likelihood.value_and_bounds(len(tables[0].y))
    if plan.route.search == "bound":
        return 0, by_bound.plain(plan, tables[0], random_state)
    effect = places.effect(plan, tables[0])
    if effect is not None:
        tables = [places.of_places(each, effect.variance) for each in tables]
        index, found = choose_kernel(places.searched(plan), tables, random_state, in_common_unit)
        return index, places.joined(effect, found, plan.likelihood)
    route = plan.route
    plain = few_rows.plain(plan, tables[0]) if route.averages and few_rows.suits(plan, tables[0]) else None
    if plain is not None and tables[0].n_rows < few_rows.FEWEST_OF_KERNELS:
        return 0, plain.plan
    if few_labels.suits(plan, tables[0]):
        return 0, few_labels.plain(plan, tables[0], random_state)
    if route.compares_labels and tables[0].n_distinct <= dense.MOST_BY_EVIDENCE:
        return kernel_of_labels.summed(plan, tables, random_state, in_common_unit)
    regressed = [targets.compared(each, plan) for each in tables]
    with threads.single_threaded(0):
        found = search.best_kernels(
            regressed,
            random_state,
            route.n_finalists,
            coarse=route.trains,
            noises=view.NOISE_BOUNDS_OF_LABELS if plan.n_classes else view.NOISE_BOUNDS,
            of_labels=route.compares_labels,
            in_common_unit=in_common_unit,
            by_neighbours=route.compares_by_neighbours(plan, tables[0]),
            blocks=plan.blocks,
            makes=OF_STEPS if route.trains else OF_LABELS if plan.n_classes else OF_MEASUREMENTS,
            compares=not route.trains,
        )
    index = found[0].index
    if plain is not None:
        better = few_rows.better(plan, plain, found[0], tables[index])
        return (0, plain.plan) if better is None else (index, better)
    if route.compares_labels:
        return index, kernel_of_labels.judged_by_neighbours(plan, found, tables[index], random_state)
    return _leading_of(plan, found, tables, random_state)


def searches(plan, table):
    """Whether the hyperparameters of the default kernel are searched for, and not those of the plain one."""
    if plan.route.search == "bound" or few_labels.suits(plan, table):
        return False
    return not (plan.route.averages and few_rows.suits(plan, table) and table.n_rows < few_rows.FEWEST_OF_KERNELS)


def _leading_of(plan, found, tables, random_state):
    """The kernel among ``found`` of largest density, by the solution on many rows of several: its scaling, the plan."""
    plans = [targets.started(plan, each, tables[each.index]) for each in found]
    if len(plans) == 1:
        return found[0].index, plans[0]
    # The same rows and points for all of them.
    seed = random_state.randint(np.iinfo(np.int32).max)
    densities = [_density(each, tables[at.index], seed) for each, at in zip(plans, found, strict=True)]
    return found[int(np.argmax(densities))].index, leading(densities, plans)


def _density(plan, table, seed):
    """The leave-one-out density: of the exact process on few rows, else of the solution on some inducing points."""
    if len(table.weight) <= _POINTS:
        kernel = jax.tree.map(np.log, _kernels.from_sklearn(plan.kernels[0], table.X.shape[1]).value)
        noise = np.log(np.mean(plan.likelihood.variance))
        return evidence.leave_one_out_density(
            Hyperparameters(kernel, noise), targets.without_offset(table, plan.likelihood)
        )
    random_state = np.random.RandomState(seed)
    n_points = sizes.fewer_that_do(_POINTS, plan.kernels, np.min(plan.likelihood.variance), table.X)
    plan = plan._replace(n_inducing=n_points, n_mean_inducing=0, inducing_init="random")
    state, constants = init(plan, table, random_state)
    density = closed_form.solve(state.parameters, constants, table, random_state).held_out.mean
    return density if np.isfinite(density) else -np.inf


def maximise_evidence(plan, table, random_state):
    """The plan with the hyperparameters of its own kernels at the maximum of the evidence of some rows.

    The search starts at the given values and stays within their bounds, as in scikit-learn's
    GaussianProcessRegressor. With one kernel per target, each kernel is fitted to its own target. For a model that uses
    all rows of a larger table, neighbours train the kernels further (`dense`).
    """
    table, n_targets = _with_weight(table.sample), table.n_targets
    # With a prior the noise found here is kept, and the targets at equal X inform it: rows are not merged.
    merges = plan.hyperparameter_prior is None
    order = Shuffled(*in_random_order(table, random_state, merges))
    rows = targets.without_offset(_rows_of_evidence(table, order), plan.likelihood)
    every, rows = rows, merged(rows) if merges else rows
    whole, order = _whole(plan, table, order)
    whole = None if whole is None else targets.without_offset(whole, plan.likelihood)
    noise = [np.log(np.ravel(each.variance)) for each in plan.likelihood.value_and_bounds(n_targets)]
    shared = len(plan.kernels) == 1
    averages, few = few_rows.suits_given(plan, table), targets.without_offset(table, plan.likelihood)
    kernels, variance, inflation = [], [], []
    for k, kernel in enumerate(plan.kernels):
        own = slice(None) if shared else slice(k, k + 1)
        logs = [jax.tree.map(np.log, each) for each in _kernels.from_sklearn(kernel, table.X.shape[1])]
        noises = [each[own].mean() for each in noise]
        start, *bounds = (Hyperparameters(*each) for each in zip(logs, noises, strict=True))
        of_own = rows._replace(y=rows.y[own], known=None if rows.known is None else rows.known[own])
        log_prior = _log_prior(plan, table, k)
        scatter = places.within(every._replace(y=every.y[own])) if merges and nugget.in_kernel(start.kernel) else None
        log_prior = log_prior if scatter is None else scatter.with_prior(log_prior)
        starts = Starts(start, bounds, of_own, log_prior, plan.n_restarts, random_state)
        best, _ = starts.search()
        if np.isfinite(best.evidence):
            start = best.hyperparameters
        if whole is not None:
            of_own = whole._replace(y=whole.y[own])
            start = _trained(starts, start, bounds, of_own, order, of_labels=False)
        if averages:
            average = few_rows.around(start, bounds, few._replace(y=few.y[own]))
            start = start._replace(kernel=average.log_kernel)
            inflation.append(average.inflation)
        kernels.append(_kernels.to_sklearn(kernel, jax.tree.map(np.exp, start.kernel)))
        found = average.noise if averages else np.exp(start.noise)
        variance.append(np.broadcast_to(found, n_targets if shared else 1))
    likelihood = plan.likelihood
    if not likelihood.fixed:
        likelihood = likelihood.fitted([np.clip(np.concatenate(variance), *np.exp(noise[1:]))])
    left_open = few_rows.Open(np.concatenate(inflation), average.df) if averages else None
    return plan._replace(kernels=tuple(kernels), likelihood=likelihood, averages=left_open)


def _started_elsewhere(plan, table, random_state):
    """The plan with its kernels, periodic ones above all, at starts of larger evidence: steps hardly move a period."""
    chosen = [k for k, each in enumerate(plan.kernels) if plan.n_restarts != "auto" or is_periodic(each)]
    if plan.n_restarts == 0 or not chosen:
        return plan
    if len(plan.kernels) > 1 and (plan.n_classes or len(plan.kernels) != table.n_targets):
        # The kernels and the targets do not correspond one to one.
        return plan
    rows = _with_weight(table.sample)
    rows = _rows_of_evidence(rows, Shuffled(*in_random_order(rows, copy.deepcopy(random_state))))
    if plan.n_classes and np.all(rows.y == rows.y[:, :1]):
        return plan
    # Under Gaussian noise the amplitude of a kernel is in the units of its targets.
    keeps = plan.likelihood.conjugate
    of_kernel = targets.without_offset if keeps else functools.partial(targets.regressed, n_classes=plan.n_classes)
    rows = merged(of_kernel(rows, likelihood=plan.likelihood))
    bounds = np.array(view.NOISE_BOUNDS_OF_LABELS if plan.n_classes else view.NOISE_BOUNDS)
    noises = np.array([_NOISE, *bounds]) * (np.mean(targets.scale_of(rows) ** 2) if keeps else 1.0)
    kernels = list(plan.kernels)
    for k in chosen:
        # A hyperparameter may be fixed at zero.
        with np.errstate(divide="ignore"):
            logs = [jax.tree.map(np.log, each) for each in _kernels.from_sklearn(kernels[k], table.n_columns)]
        start, *limits = map(Hyperparameters, logs, np.log(noises))
        own = rows if len(plan.kernels) != len(rows.y) else rows.target(k)
        starts = Starts(start, limits, own, evidence.no_prior, plan.n_restarts, random_state)
        best, is_other = starts.search()
        if is_other:
            kernels[k] = _kernels.to_sklearn(kernels[k], jax.tree.map(np.exp, best.hyperparameters.kernel))
    return plan._replace(kernels=tuple(kernels))


def _log_prior(plan, table, k):
    """The log prior of the k-th kernel, and of the noise that its targets share, for `evidence.maximise`."""
    if not plan.hyperparameter_prior and not plan.follows:
        return evidence.no_prior
    values = specification(plan.kernels, plan.likelihood, table.n_columns, table.n_targets)[0]
    if not plan.hyperparameter_prior:
        return view.near(flat(Hyperparameters(values[0][k], np.log(np.mean(plan.likelihood.variance)))))
    of_kernel = np.ones((table.n_targets, 1), bool)
    if len(plan.kernels) > 1:
        of_kernel = np.arange(table.n_targets)[:, None] == k
    like = Hyperparameters(values[0][k], np.zeros(()))

    def log_prior(x):
        value, slope = _prior_and_slope(rebuilt(x, like), plan.hyperparameter_prior, values, of_kernel, k)
        return float(value), flat(slope)

    return log_prior


@functools.partial(quick_jit, static_argnames="k")
def _prior_and_slope(at, found, values, of_kernel, k):
    """The log density of all hyperparameters, and its slope in those of one kernel and its noise."""

    def log_density(at):
        of_kernels, likelihood = values
        noise = jnp.where(of_kernel, at.noise, likelihood.variance)
        of_kernels = *of_kernels[:k], at.kernel, *of_kernels[k + 1 :]
        return priors.log_density(found, (of_kernels, likelihood.with_leaves([noise])))

    return jax.value_and_grad(log_density)(at)


def _rows_of_evidence(table, order):
    """Some rows of a table; rows that will be merged are included all together or not at all."""
    return table.rows(np.sort(order.first(evidence.ROWS)[:_ROWS]))


def _whole(plan, table, order):
    """The rows of which some train a given kernel by neighbours, and the order of them; or None, and None."""
    positions, part = order.part(_ROWS)
    # With a prior the result is the most probable value given the rows of the evidence.
    may = plan.hyperparameter_prior is None and part.n_groups > dense.MOST_BY_EVIDENCE
    if not may or not plan.route.compares_by_neighbours(plan, table):
        return None, None
    return table.rows(positions), part


def _trained(starts, start, bounds, table, order, of_labels):
    """The hyperparameters that neighbours train, if they are clearly better."""
    with threads.single_threaded(0):
        return dense.trained(start, bounds, table, order, evidence.ROWS, of_labels, starts.structured())


def _of_labels(plan, table, random_state):
    """The plan with the given kernel fitted by regression of the labels, at the scale that predicts them best."""
    order = Shuffled(*in_random_order(table, random_state))
    rows, seed = _rows_of_evidence(table, order), random_state.randint(np.iinfo(np.int32).max)
    # A scale that an earlier search has found is no start for another, which would go on from it.
    plan = targets.with_kernel(plan, plan.kernels[0], table) if plan.follows else plan
    one_class = np.all(rows.y == rows.y[:, :1])
    kept = kernel_of_labels.at_best_scale(plan, table, seed) if plan.follows or one_class else None
    if one_class:
        # There is nothing to regress.
        return kept.plan
    trained = kernel_of_labels.at_best_scale(_regressed(plan, table, order, rows, random_state), table, seed)
    # The terms of an earlier sum have hyperparameters that each has found alone: others must predict labels better.
    return trained.plan if kept is None or trained.of_labels.are_larger_than(kept.of_labels) else kept.plan


def _regressed(plan, table, order, rows, random_state):
    """The plan with the given kernel fitted by regression of the labels of some rows."""
    rows = merged(targets.regressed(rows, plan.n_classes, plan.likelihood))
    # The indicators of classes have unit variance.
    plan = targets.with_kernel(plan, plan.kernels[0], table, 1.0) if plan.follows else plan
    logs = [jax.tree.map(np.log, each) for each in _kernels.from_sklearn(plan.kernels[0], table.X.shape[1])]
    start, *bounds = map(Hyperparameters, logs, np.log((_NOISE, *view.NOISE_BOUNDS_OF_LABELS)))
    prior = view.near(flat(start)) if plan.follows else evidence.no_prior
    starts = Starts(start, bounds, rows, prior, plan.n_restarts, random_state)
    best, _ = starts.search()
    found = best.hyperparameters if np.isfinite(best.evidence) else start
    whole, order = _whole(plan, table, order)
    if whole is not None:
        whole = targets.regressed(whole, plan.n_classes, plan.likelihood)
        found = _trained(starts, found, bounds, whole, order, of_labels=True)
    found = found.kernel
    # The regression finds the variance of the labels, possibly near zero, and not that of the latent functions.
    total = float(np.mean(jax.tree.map(np.exp, found).diag(rows.X)))
    log_scale = np.clip(np.log(plan.route.variance / total), *algebra.room(found, *(each.kernel for each in bounds)))
    kernel = _kernels.to_sklearn(plan.kernels[0], jax.tree.map(np.exp, algebra.multiplied(found, log_scale)))
    return plan._replace(kernels=(kernel,))


# The functions that find the hyperparameters of given kernels, by the name in `route.search`.
_SEARCHES = {"restarts": _started_elsewhere, "evidence": maximise_evidence, "labels": _of_labels}
_SEARCHES["bound"] = by_bound.maximised
