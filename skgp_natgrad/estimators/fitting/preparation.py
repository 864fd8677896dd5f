"""Prepares arguments and data for the engine."""

from __future__ import annotations

import copy
from typing import NamedTuple

import jax
import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from ... import svgp
from ..._backend import processes
from ..._backend.notices import Notice
from ..._backend.rows import BLOCK_ROWS
from ...choose.scale import Scale
from ...kernels import to_sklearn
from ...likelihoods import in_units, in_units_of
from ...training import checkpoint_file
from ...training.checkpoint import Checkpoint
from ...training.schedules import FromFunction, blocks
from ...training.shares import agreed, gathered
from ..arguments import constructor, reading
from ..arguments.reading import one_or_each
from ..arguments.table import Monitoring
from ..fitted.hyperparameters import checked_lengths, common_where_needed, in_units_of_model
from ..rows import class_labels, encoding, far_rows, long_tables, numbers, training_table
from ..rows.training_table import with_points
from . import continuing

# Arguments that do not change the result; those that a warm start may change are compared separately.
_WITHOUT_EFFECT = (*Monitoring._arguments, "warm_start")
# What may differ between the processes of a common fit: where nothing depends on it, and what the first one decides.
_OF_A_PROCESS = (*Monitoring._arguments, "random_state")
# Of a stream that goes on from a fit, where the user leaves their number open.
_FEWEST_POINTS, _MOST_POINTS = 100, 1000


class Fit(NamedTuple):
    """All that one fit needs: the arguments of `svgp.init` and `svgp.train`, and data for the fitted attributes.

    Attributes
    ----------
    plan : Plan
    table : Table
        In the units of the model.
    some : Table
        Rows of all processes from which the fit starts; in one process ``table``.
    weight : float
        Sum of the weights of all rows, of all processes.
    scales : training_table.Scales
    random_state : numpy.random.RandomState
    checkpoint : Checkpoint or None
    previous : Previous or None
        The fit that this one continues.
    posterior : Posterior or None
        The posterior of a stream's earlier rows.
    trained_with : dict
        See `continuing.recorded`.
    attributes : dict
        Fitted attributes that the subclass adds.
    warnings : list of Notice
        That the rows are unlike those of the previous fit.
    neighbours : Neighbours or None
        Those of a stream's earlier rows, in the present units; the rows of the table join them.
    """

    plan: svgp.Plan
    table: svgp.Table
    some: svgp.Table
    weight: float
    scales: training_table.Scales
    random_state: np.random.RandomState
    checkpoint: Checkpoint | None
    previous: svgp.Previous | None
    posterior: svgp.Posterior | None
    trained_with: dict
    attributes: dict
    warnings: list
    neighbours: svgp.Neighbours | None = None


def prepare(estimator, X, types, targets, previous, streams, by_parts):
    """Check arguments and data, and return the `Fit`.

    Parameters
    ----------
    estimator : NGDSVGPRegressor or NGDSVGPClassifier
    X : ndarray of shape (N, D), or Rows
    types : list of numpy.dtype
        Types of the columns of X as given.
    targets : Targets
    previous : Previous or None
    streams : bool
        Whether the rows of earlier calls count as well.
    by_parts : bool
        Whether further rows may follow.
    """
    plan = reading.read(estimator, targets, by_parts)._replace(blocks=encoding.blocks(estimator))
    if streams:
        plan = plan._replace(likelihood=_as_before(estimator, plan.likelihood))
    random_state, n_processes = check_random_state(estimator.random_state), processes.sharing(plan.n_devices)
    table, spans, places = training_table.weighted(X, types, targets, plan.settings.batch_size)
    if n_processes > 1:
        _refuse_other_arguments(estimator)
        table = long_tables.in_memory(table) if isinstance(table, svgp.LongTable) else table
    weight, some = table.total_weight, gathered(table, n_processes)
    table, some, of_classes = _ranked(estimator, plan, table, some, previous)
    checkpoint = _checkpoint_of(estimator, plan, table, previous, streams)
    if checkpoint is not None:
        random_state = checkpoint.rewind(random_state)
    if n_processes > 1:
        random_state, weight = processes.agree(random_state), sum(processes.exchanged(weight))
        plan = plan._replace(n_bytes=min(processes.exchanged(plan.n_bytes)))
    of_solution = random_state if plan.route.trains else _of_solution(random_state)
    plan = plan._replace(likelihood=_prepared(plan, targets, table, some), device=plan.route.device(plan, table.n_rows))
    _check(estimator, plan, targets, table)
    normalize_y = plan.likelihood.standardises and targets.scale
    arguments = constructor.values(estimator) | {"kernel": reading.kernel_on_numbers(estimator)}
    trained_with = continuing.recorded(arguments, plan.likelihood, plan.objective, normalize_y)
    previous = _where_it_leads(estimator, plan, some, previous)
    plan = _in_units(estimator, plan, some, normalize_y, False, None if previous is None else estimator.likelihood_)
    if previous is None:
        scales, plan = _first_scales(estimator, plan, some, spans, normalize_y, by_parts, random_state)
    else:
        continuing.check(estimator._trained_with, trained_with, streams)
        plan = _going_on(estimator, plan, some, previous)
        scales, previous, told = _continued(estimator, plan, some, trained_with, previous, streams, random_state)
        if not plan.route.trains:
            y = training_table.scales_of(some, spans, False, plan.likelihood, normalize_y, False)[0].y
            scales, plan, previous = scales._replace(y=y), _from_previous(estimator, plan, previous), None
    leaves_out = plan.likelihood.conjugate and plan.likelihood.additive_noise
    reach = far_rows.range_of(some, estimator._range_of_X if streams else None)
    of_rows = {"_places": places if leaves_out else None, "_range_of_X": reach}
    units = scales, plan.settings.dtype, plan.likelihood, plan.n_latent(table)
    of_one, table = some is table, training_table.scaled(table, *units)
    some = table if of_one else training_table.scaled(some, *units)
    if previous is None:
        told, plan = [], _complete(estimator, plan, some, scales.x, random_state)
    plan, posterior = plan if n_processes == 1 else agreed(plan), estimator._posterior if streams else None
    plan, neighbours, lost = _of_stream(estimator, plan, table, previous, scales.y) if streams else (plan, None, [])
    found = plan, table, some, weight, scales, of_solution, checkpoint, previous, posterior
    return Fit(*found, trained_with, targets.attributes | of_classes | of_rows, told + lost, neighbours)


def _of_solution(random_state):
    """A generator for the points of a solution: the same with or without a search, which draws from the one given."""
    return np.random.RandomState(copy.deepcopy(random_state).randint(np.iinfo(np.int32).max))


def _check(estimator, plan, targets, table):
    """Refuse a plan that does not suit the table, and a mean function of labels whose weight nothing would find."""
    svgp.check_plan(plan, table)
    if targets.mean_function is not None and plan.route.calibration(plan) is None:
        raise ValueError(
            f"mean_function={estimator.mean_function!r} has a weight that is found with the calibration of class "
            f"probabilities, which calibrate={estimator.calibrate!r} with objective={plan.objective.name!r} does not "
            "have; set calibrate=True and objective='elbo'."
        )


def _of_stream(estimator, plan, table, previous, y_scale):
    """The plan of a stream, the neighbours that its rows join, and warnings.

    Neighbours and points share the hyperparameters, which steps would fit to the points: so they stay.
    """
    same_units = np.array_equal(y_scale.scale, estimator._y_scale.scale)
    weight = continuing.untrained(plan, table, previous, estimator) if same_units else 0.0
    plan = plan._replace(untrained=weight)
    before, algorithm = getattr(estimator, "_neighbours", None), plan.settings.algorithm
    if before is None or estimator.n_neighbors == 0:
        return plan, None, []
    reason = None
    if not svgp.SOLVERS[algorithm.solver].natural:
        reason = f"solver={algorithm.solver!r} moves the hyperparameters with q; use solver='ngd'"
    elif processes.sharing(plan.n_devices) > 1:
        reason = f"n_devices={plan.n_devices!r} shares the rows between processes; give n_devices=None"
    elif not np.array_equal(y_scale.offset, estimator._y_scale.offset):
        reason = "the earlier rows were forgotten"
    if reason is not None:
        kind = "Rows are no longer predicted from the nearest ones, but from the inducing points."
        details = f"There were {before.n_neighbours}: {reason}. To predict from neighbors, fit all rows at once."
        return plan, None, [Notice(kind, details)]
    n = before.n_neighbours if estimator.n_neighbors == "auto" else estimator.n_neighbors
    before = before.in_units((y_scale.scale / estimator._y_scale.scale)[:, None])
    settings = plan.settings._replace(algorithm=algorithm._replace(optimizer=None))
    return plan._replace(settings=settings), svgp.Neighbours(before.X, before.y, before.noise, n), []


def _in_units_of_model(before, x_scale):
    """The arguments of the previous fit with its kernel as the model has it."""
    if before["kernel"] is None:
        return before
    return before | {"kernel": in_units_of_model(one_or_each(before["kernel"]), x_scale)}


def _continued(estimator, plan, table, trained_with, previous, streams, random_state):
    """The scales and the record from which a fit continues the previous one, and warnings."""
    scales, shape = _scales_before(estimator, table, streams), (table.n_columns, table.n_targets)
    if previous.q is None and plan.route.trains:
        previous = svgp.with_best_q(plan, estimator._rows, previous)
    before = _in_units_of_model(estimator._trained_with, scales.x)
    previous = continuing.continued(previous, plan, before, trained_with, *shape, streams)
    if not streams:
        return scales, previous, []
    return continuing.followed(plan, table, scales, previous, estimator, random_state)


def _ranked(estimator, plan, table, some, previous):
    """The tables with the ranks of their labels, and the fitted attribute that tells these (`class_labels.ranks`)."""
    if not plan.n_classes:
        return table, some, {}
    ranks = class_labels.ranks(estimator, plan, some, previous)
    found = class_labels.ranked(table, ranks)
    return found, found if some is table else class_labels.ranked(some, ranks), {"_class_ranks": ranks}


def _prepared(plan, targets, table, some):
    """The likelihood, prepared for the targets; impossible ones are refused, also for what is known of their rows."""
    with numbers.locate_impossible(plan.likelihood, targets.columns, targets.weight):
        likelihood = plan.likelihood.prepare(some.filled_y, plan.n_classes)
    if isinstance(table, svgp.LongTable):
        long_tables.check_targets(likelihood, table)
    if table.has_known:
        for part in table.blocks(BLOCK_ROWS):
            likelihood.given(part.known).check_rows(part.y)
    return likelihood


def _in_units(estimator, plan, table, normalize_y, with_values=True, before=None):
    """The plan with the likelihood's defaults in the units of y, if y is only centred; those of a previous fit stay.

    A WhiteKernel has the units of y.
    """
    if not isinstance(normalize_y, str) or reading.noise_of(estimator) is not None:
        return plan
    if before is not None:
        return plan._replace(likelihood=in_units_of(plan.likelihood, before))
    deviation = training_table.deviation(table, plan.likelihood)
    return plan._replace(likelihood=in_units(plan.likelihood, deviation, with_values))


def _refuse_other_arguments(estimator):
    """Refuse a fit of several processes whose arguments differ: the processes would wait for each other for ever."""
    arguments = constructor.values(estimator).items()
    found = processes.exchanged({k: checkpoint_file.described(v) for k, v in arguments if k not in _OF_A_PROCESS})
    differ = [name for name in found[0] if any(each[name] != found[0][name] for each in found)]
    if differ:
        shown = "; ".join(f"{name}: {', '.join(str(each[name]) for each in found)}" for name in differ)
        raise ValueError(f"The arguments of a common fit must be the same in all processes, but differ in {shown}.")


def _where_it_leads(estimator, plan, table, previous):
    """The earlier fit; None if this one finds its default kernel without a search, which needs no start."""
    if previous is None or plan.route.trains or estimator.kernel is not None:
        return previous
    return previous if svgp.searches(plan, svgp.some_rows(table, np.random.RandomState(0))) else None


def _first_scales(estimator, plan, table, spans, normalize_y, by_parts, random_state):
    """The scales of a fit that continues no other, and the plan with the default kernel that was chosen with them."""
    given = reading.normalize_X(estimator), plan.likelihood, normalize_y
    choice = training_table.scales_of(table, spans, *given, plan.kernels is None, by_parts, plan.blocks)
    scales, plan = _chosen(plan, table, choice, random_state)
    # Where no noise was found with the kernel; a fit that continues has a trained one.
    plan = _in_units(estimator, plan, table, normalize_y)
    return scales if processes.sharing(plan.n_devices) == 1 else processes.of_first(scales), plan


def _chosen(plan, table, choice, random_state):
    """The scales of X and y, chosen together with the default kernel, and the plan with this kernel."""
    if plan.kernels is not None:
        x, y = choice[0]
        x = common_where_needed(x, plan.kernels)
        return training_table.Scales(x, y), plan._replace(kernels=in_units_of_model(plan.kernels, x))
    rows = svgp.some_rows(table, random_state)
    units = plan.settings.dtype, plan.likelihood, plan.n_latent(rows)
    tables = [training_table.scaled(rows, scales, *units) for scales in choice]
    in_common_unit = [isinstance(scales.x, Scale) and scales.x.in_common_unit for scales in choice]
    index, plan = svgp.choose_kernel(plan, tables, random_state, in_common_unit)
    return choice[index], plan


def _going_on(estimator, plan, table, previous):
    """The plan of a fit that continues the previous one, with what that one found."""
    reading.check_kernels(estimator.kernel, plan.n_latent(table))
    # A stream keeps the default kernel of its first rows.
    kernels = plan.kernels or one_or_each(reading.latent(estimator.kernel_, estimator))
    checked_lengths(kernels, estimator._x_scale)
    plan = plan._replace(kernels=in_units_of_model(kernels, estimator._x_scale))
    if not plan.route.trains:
        return plan
    if plan.n_inducing == "auto":
        # A fit of one step may have had thousands, too many for repeated steps.
        n_before = len(previous.parameters.points.Z)
        plan = plan._replace(n_inducing=int(np.clip(n_before, _FEWEST_POINTS, _MOST_POINTS)))
    return plan._replace(n_mean_inducing=0) if plan.n_mean_inducing == "auto" else plan


def _from_previous(estimator, plan, previous):
    """The plan of a new fit whose search starts at the hyperparameters of the previous one."""
    log_kernels, raw = previous.parameters[:2]
    kernels = (to_sklearn(*each) for each in zip(plan.kernels, jax.tree.map(np.exp, log_kernels), strict=True))
    likelihood = plan.likelihood.fitted(jax.tree.leaves(raw.from_raw(np)))
    return plan._replace(kernels=tuple(kernels), likelihood=likelihood, follows=estimator.kernel is None)


def _complete(estimator, plan, table, x_scale, random_state):
    """The plan of a new fit with the parts that depend on the data."""
    reading.check_kernels(estimator.kernel, plan.n_latent(table))
    plan = with_points(plan, estimator, table.n_columns, x_scale)
    # The default kernel is complete, but for priors.
    is_complete = estimator.kernel is None and plan.hyperparameter_prior is None and not plan.follows
    return svgp.sized(plan, table) if is_complete else svgp.complete(plan, table, random_state)


def _as_before(estimator, likelihood):
    """The likelihood for the next rows of a stream, with everything that the first rows determined."""
    if estimator._trained_with.get("n_mean_inducing"):
        raise ValueError(
            f"partial_fit cannot continue a fit with {len(estimator.mean_inducing_points_)} mean-only points: what "
            "they have learned cannot be passed on to later rows. Call fit to start anew; with "
            "n_mean_inducing=0 there are none."
        )
    fitted = estimator.likelihood_
    if type(likelihood) is not type(fitted):
        return likelihood
    settled = {name: getattr(fitted, name) for name in fitted.options if getattr(likelihood, name) is None}
    return clone(likelihood).set_params(**settled)


def _scales_before(estimator, table, streams):
    """The scales of the fit that this one continues."""
    x, y = estimator._x_scale, estimator._y_scale
    if len(y.scale) != table.n_targets:
        reason = continuing.reason(streams)
        raise ValueError(
            f"{reason}, but y has {table.n_targets} columns, and had {len(y.scale)} in the previous fit; give it the "
            f"same columns, or {continuing.anew(streams)} to start anew."
        )
    return training_table.Scales(x, y)


def _checkpoint_of(estimator, plan, table, previous, streams):
    """The checkpoint of this fit, or None; its identity is everything that the result depends on."""
    n_processes = processes.sharing(plan.n_devices)
    given = estimator.checkpoint if n_processes == 1 else processes.of_first(estimator.checkpoint)
    if given is None:
        return None
    arguments = {k: v for k, v in constructor.values(estimator).items() if k not in _WITHOUT_EFFECT}
    arguments |= {"kernel": reading.kernel_on_numbers(estimator), "noise": reading.noise_of(estimator)}
    # One dtype has many names, and so have some other values.
    arguments |= {"dtype": plan.settings.dtype, "mean_solver": plan.settings.algorithm.mean_solver}
    arguments |= {"n_mean_inducing": plan.n_mean_inducing, "estimator": type(estimator).__name__}
    arguments |= {"number of classes": plan.n_classes, "partial_fit": streams}
    identity = {name: checkpoint_file.described(value) for name, value in arguments.items()}
    identity |= _of_functions(plan.settings) | checkpoint_file.of_rows(table)
    if previous is not None:
        leaves = jax.tree.leaves((previous, estimator._x_scale, estimator._y_scale))
        found = [checkpoint_file.digest(leaves), checkpoint_file.described(estimator._trained_with)]
        identity["the previous fit, which the warm start continues"] = found
    if hasattr(given, "of_fit"):
        return given.of_fit(identity, plan.settings.max_iter)
    return Checkpoint(given, identity, float(estimator.checkpoint_every), n_processes > 1)


def _of_functions(settings):
    """Digests of the values of schedules that are functions, which cannot be compared otherwise."""
    schedules = {"gamma_schedule": settings.gamma_schedule, "learning_rate": settings.rate_schedule}
    return {
        name: checkpoint_file.digest(map(schedule, blocks(settings.max_iter)))
        for name, schedule in schedules.items()
        if isinstance(schedule, FromFunction)
    }
