"""How a fit continues an earlier one: arguments that have changed in between, and the units of a stream's targets.

One rule holds for warm starts and streams: a changed argument either takes effect, or raises an
error that names it. A hyperparameter that is fixed, or whose initial value has changed since the
previous fit, starts at the argument's value; the others start at their trained values. Arguments that
define the structure of the model cannot change; all others apply from now on.

The units of a stream's targets follow y if it grows. The model is then converted to larger units, which changes no
prediction: only the hyperparameters keep their numbers, and training continues from these. If the new rows contradict
what the model predicts at their places, y has become another function. Then the model forgets the
earlier rows, and training starts anew in the units of the new ones.

X has no such remedy. A column that leaves the range of the earlier rows may have changed its unit, or may reach places
where nothing is known, as time does. The rows do not show which, so the user is warned.
"""

from __future__ import annotations

import copy
import inspect
from typing import NamedTuple

import jax
import joblib
import numpy as np
from sklearn.base import BaseEstimator, clone

from ... import svgp
from ..._backend.notices import Notice, shown
from ...choose.scale import Moments, Scale
from ...svgp import Parameters, specification
from ..arguments.reading import one_or_each
from ..fitted.attributes import model_of
from ..rows import encoding, training_table

# Arguments that may change in a stream, but not at a warm start.
_FOLLOWS_A_STREAM = ("n_inducing",)
# Arguments that may change at a warm start, which sees all rows, but not in a stream.
_STAYS_IN_A_STREAM = ("mean_function",)
_LONGEST_SHOWN = 200
# What "auto" is for the solvers whose fits can be continued.
_OF_AUTO = {"n_mean_inducing": 0, "mean_solver": "adam"}


def reason(streams):
    """The reason why a fit continues the last one, for messages."""
    return "partial_fit continues the previous fit" if streams else "warm_start=True"


def anew(streams):
    """The remedy for a fit that cannot continue the last one, for messages."""
    return "call fit" if streams else "set warm_start=False"


def check(before, now, streams):
    """Refuse a changed argument that cannot take effect while continuing.

    Parameters
    ----------
    before, now : dict
        From `recorded`: the arguments of the previous fit, and of this one. The likelihoods are
        prepared for the targets.
    streams : bool
        Whether the rows of the previous fit count as well.

    Raises
    ------
    ValueError
        Names the argument, both values and the remedy.
    """
    is_exact = [arguments["mean_solver"] == "exact" for arguments in (before, now)]
    # The exact solver places them after training, anew in each fit.
    trained_mean_points = [
        0 if exact else arguments["n_mean_inducing"] for exact, arguments in zip(is_exact, (before, now), strict=True)
    ]
    same = {
        # Its hyperparameters are compared one by one; None stands for a default kernel that would be made anew.
        "kernel": now["kernel"] is not None or before["kernel"] is None,
        "likelihood": _formula(now["likelihood"]) == _formula(before["likelihood"]),
        "mean_function": _is_same(now["mean_function"], before.get("mean_function")),
        "mean_solver": trained_mean_points[0] == trained_mean_points[1] or is_exact[0] == is_exact[1],
        "n_mean_inducing": trained_mean_points[0] == trained_mean_points[1],
        # New parameters of the objective apply from now on.
        "objective": type(now["objective"]) is type(before["objective"]),
    }
    for name in now:
        if name in (_FOLLOWS_A_STREAM if streams else _STAYS_IN_A_STREAM):
            continue
        unchanged = same[name] if name in same else np.array_equal(now[name], before[name])
        if not unchanged:
            raise _changed(name, before, now, streams)


def _is_same(mean_function, other):
    """Whether two functions of X are one, or two regressors have equal parameters."""
    if isinstance(mean_function, BaseEstimator) and type(mean_function) is type(other):
        # A repr would shorten long arrays.
        return joblib.hash(mean_function.get_params()) == joblib.hash(other.get_params())
    if inspect.ismethod(mean_function) and inspect.ismethod(other):
        # Two fitted models with the same parameters have the same repr.
        states = (joblib.hash(vars(each.__self__)) for each in (mean_function, other))
        return mean_function.__func__ == other.__func__ and len(set(states)) == 1
    return repr(mean_function) == repr(other)


def _formula(likelihood):
    """What must be equal for one likelihood to take over the values of another."""
    return type(likelihood), [getattr(likelihood, name) for name in likelihood.options]


def _changed(name, before, now, streams):
    value, former = (shown(each[name], _LONGEST_SHOWN) for each in (now, before))
    return ValueError(
        f"{reason(streams)}, but {name}={value}, and the previous fit had {name}={former}, "
        f"and {name} cannot change when a fit is continued; set it back, or {anew(streams)} to start anew."
    )


def recorded(arguments, likelihood, objective, normalize_y):
    """Copies of the arguments that define a model; later changes in place do not reach them.

    Parameters
    ----------
    arguments : dict
        The constructor's arguments.
    likelihood : Likelihood
        Prepared for the targets.
    objective : Objective
    normalize_y : bool
        The value that the fit used.
    """
    names = ("kernel", "basis", "n_inducing", "mean_solver", "n_mean_inducing", "inducing_init", "normalize_X")
    names += ("categorical_features", "max_categories", "missing_inputs")
    record = {name: arguments[name] for name in names}
    # "all" means the same as None.
    record["n_inducing"] = None if isinstance(record["n_inducing"], str) else record["n_inducing"]
    record |= {name: same for name, same in _OF_AUTO.items() if record[name] == "auto"}
    record |= {"likelihood": likelihood, "objective": objective, "normalize_y": normalize_y}
    # Classifiers have none of both. A frozen model is not copied: one is enough.
    mean_function = arguments.get("mean_function")
    if isinstance(mean_function, BaseEstimator):
        mean_function = clone(mean_function)
    outputs = copy.deepcopy(arguments.get("output_kernel"))
    return {**copy.deepcopy(record), "mean_function": mean_function, "output_kernel": outputs}


def continued(previous, plan, before, now, n_features, n_targets, streams):
    """The earlier fit to continue, with the hyperparameters at which this one starts.

    Parameters
    ----------
    previous : Previous
    plan : Plan
        Complete.
    before, now : dict
        From `recorded`, after `check`.
    n_features, n_targets : int
        Numbers of columns of X and y.
    streams : bool
        As in `check`.

    Returns
    -------
    previous : Previous

    Raises
    ------
    ValueError
        If the kernel's form differs from that of the previous fit.
    """
    trained = tuple(previous.parameters[:2])
    start, lower, upper = specification(plan.kernels, plan.likelihood, n_features, n_targets)
    if _form(start[0]) != _form(trained[0]):
        raise _changed("kernel", before, now, streams)
    started = _started(start[0], before, now, n_features, n_targets)
    hyperparameters = jax.tree.map(_going_on, trained, start, lower, upper, started)
    return previous._replace(parameters=Parameters(*hyperparameters, *previous.parameters[2:]))


def _form(kernels):
    """What must be equal for one kernel to take over the values of another."""
    return jax.tree.structure(kernels), [np.shape(leaf) for leaf in jax.tree.leaves(kernels)]


def _started(start, before, now, n_features, n_targets):
    """The initial values of the previous fit: a present value that equals its old one has not been changed."""
    kernel = before["kernel"]
    given = () if kernel is None or now["kernel"] is None else one_or_each(kernel)
    of_kernels, of_likelihood = specification(given, before["likelihood"], n_features, n_targets)[0]
    if now["kernel"] is None:
        # Neither fit was given a value.
        of_kernels = start
    elif kernel is None:
        # Every value is new: no number equals NaN.
        of_kernels = jax.tree.map(lambda value: np.full_like(value, np.nan), start)
    return of_kernels, of_likelihood


def _going_on(trained, start, lower, upper, started):
    stated = (start != started) | (lower == upper)
    return np.where(stated, start, np.clip(trained, lower, upper))


# Rows of a stream that weigh less than this share of all earlier ones need not train hyperparameters again.
_FEW = 0.1
# y has grown, or shrunk, beyond these factors. Rows of a narrow part of X vary less than all rows.
_GROWN, _SHRUNK = 2.0, 1.0 / 3.0
# Fewer rows do not show that y has shrunk or become another function, or how far X reaches; and the share of rows that
# may be outliers, at least one row.
FEWEST, _OUTLIERS = 20, 0.01
# A warning is given if a column of X reaches this many times as far as in the earlier rows.
_FAR = 10.0


def followed(plan, table, scales, previous, estimator, random_state):
    """The scales and the record from which a fit to the next rows of a stream starts, and a list of warnings.

    Parameters
    ----------
    plan : Plan
    table : Table
        In the units of the user.
    scales : training_table.Scales
        Of the previous fit.
    previous : Previous
    estimator : NGDSVGPRegressor or NGDSVGPClassifier
        As the previous fit has left it.
    random_state : numpy.random.RandomState
        It is not changed.

    Returns
    -------
    scales : training_table.Scales
    previous : Previous
        In these units.
    warnings : list of Notice
    """
    rows = table.sample
    names = encoding.of(estimator).names if hasattr(estimator, "feature_names_in_") else None
    of_levels = encoding.columns_of_levels(estimator)
    told = [] if previous.weight < FEWEST else _of_far_columns(rows.X, estimator._range_of_X, names, of_levels)
    normalize_y = estimator._trained_with["normalize_y"]
    if normalize_y and not isinstance(normalize_y, str):
        scales, previous, others = _with_units(plan, rows, scales, previous, estimator, random_state)
        told += others
    return scales, previous, told


def _with_units(plan, rows, scales, previous, estimator, random_state):
    """The same as `followed`, for the targets alone."""
    sizes = _sizes(rows, plan.likelihood, scales.y)
    units = plan.settings.dtype, plan.likelihood, plan.n_latent(rows)
    forgets = sizes.tells
    if forgets.any():
        trial = training_table.scaled(rows, scales, *units)
        forgets = forgets & svgp.contradicted(model_of(estimator), trial, copy.deepcopy(random_state), plan.device)
    if not (sizes.changed | forgets).any():
        return scales, previous, []
    # If y has grown, larger units make the prior wide enough for the new rows, wherever they lie.
    larger = scales._replace(y=scales.y._replace(scale=scales.y.scale * sizes.ratio))
    rescaled = _in_units(plan.likelihood, previous, scales.y, larger.y) if sizes.grown.any() else previous
    if not forgets.any():
        return larger, rescaled, []
    y = Scale(np.where(forgets, sizes.mean, larger.y.offset), np.where(forgets, sizes.deviation, larger.y.scale))
    before, scales = scales.y, scales._replace(y=y)
    latents = np.resize(forgets, plan.n_latent(rows))
    previous = svgp.forgotten(plan, training_table.scaled(rows, scales, *units), rescaled, latents)
    return scales, previous, [_of_forgetting(sizes, before, forgets)]


def untrained(plan, table, previous, estimator):
    """The weight of a stream's rows since the last training, if so few more need none: `svgp.Plan`; else zero.

    A part that is small beside the earlier rows trains if these rows together weigh more than those of the last
    training, or if it shows that the hyperparameters have become wrong. A handful of rows shows nothing, of the noise
    above all, and does not train.

    Parameters
    ----------
    plan : Plan
    table : Table
        The new rows.
    previous : Previous
        As the stream goes on from it.
    estimator : NGDSVGPRegressor or NGDSVGPClassifier
        As the previous fit has left it, in the units of the table.
    """
    algorithm, weight = plan.settings.algorithm, previous.untrained + table.total_weight
    in_closed_form = plan.likelihood.conjugate and plan.objective.closed_form and algorithm.basis == "orthogonal"
    is_default = algorithm.solver == "ngd" and plan.hyperparameter_prior is None and plan.n_devices is None
    now, before = (jax.tree.leaves(each[:2]) for each in (previous.parameters, previous.whitened_by))
    same = all(map(np.array_equal, now, before))
    few = isinstance(table, svgp.Table) and table.total_weight <= _FEW * previous.weight
    if not (few and same and in_closed_form and is_default):
        return 0.0
    is_old = weight > previous.weight - previous.untrained
    trains = table.n_rows >= FEWEST and (is_old or svgp.is_surprised(model_of(estimator), table, plan.device))
    return 0.0 if trains else weight


class _Size(NamedTuple):
    """How the size of one target compares to its unit.

    Attributes
    ----------
    ratio : float
        The rows' distance from the offset, in units; one where y has not grown.
    grown, changed, tells : bool
        ``tells``: whether the rows are enough, and differ enough, to show that y has become another function.
    mean, deviation : float
        Of the rows.
    """

    ratio: float = 1.0
    grown: bool = False
    changed: bool = False
    tells: bool = False
    mean: float = 0.0
    deviation: float = 1.0

    @classmethod
    def of(cls, y, weight, offset, scale):
        """The size of the targets (N,); NaN stands for a missing one."""
        seen = np.isfinite(y)
        y, weight = y[seen], weight[seen]
        if not len(y):
            return cls()
        moments = Moments(y.min(keepdims=True), y.max(keepdims=True))
        moments.add(y[:, None], weight)
        mean, deviation = (float(each[0]) for each in moments.result)
        away = np.abs(y - offset)
        most = np.argsort(away, kind="stable")[: len(y) - max(1, int(_OUTLIERS * len(y)))]
        unit = away.max()
        distance = (
            unit * np.sqrt(np.average((away[most] / unit) ** 2, weights=weight[most])) if len(most) and unit else 0.0
        )
        grown, tells = distance > _GROWN * scale, len(y) >= FEWEST and deviation > 0.0
        shrunk = not grown and tells and deviation < _SHRUNK * scale
        return cls(distance / scale if grown else 1.0, grown, grown or shrunk, tells, mean, deviation)


def _sizes(rows, likelihood, scale):
    """The `_Size` of each target, as one of arrays (T,)."""
    y = rows.y
    if rows.offset is not None:
        y, _ = likelihood.without_offset(y, np.broadcast_to(rows.weight, y.shape), rows.offset)
    each = [_Size.of(*one) for one in zip(y, [rows.weight] * len(y), scale.offset, scale.scale, strict=True)]
    return _Size(*map(np.array, zip(*each, strict=True)))


def _in_units(likelihood, previous, before, now):
    """The record of a fit in other units of y; the latent functions and their means stay the same."""
    (offset, scale), (offset_now, scale_now) = (likelihood.latent_units(*each[:2]) for each in (before, now))
    prior_mean = (offset + scale * previous.prior_mean[:, 0] - offset_now) / scale_now
    return svgp.rescaled(previous, scale / scale_now, prior_mean[:, None])


def _of_forgetting(sizes, before, forgets):
    """The warning for targets whose earlier rows are forgotten."""
    each = [
        f"{f'output {k}: ' if len(forgets) > 1 else ''}{sizes.deviation[k] / before.scale[k]:.3g} and "
        f"{(sizes.mean[k] - before.offset[k]) / before.scale[k]:.3g}"
        for k in np.flatnonzero(forgets)
    ]
    changed = np.any(sizes.changed & forgets)
    return Notice(
        "The scale of y has changed." if changed else "y has become another function of X.",
        "In standard deviations of the earlier rows, the standard deviation of the new rows and the shift of their "
        f"mean are {'; '.join(each)}. The new rows contradict the earlier ones, which the model forgets; it takes the "
        "scale of the new rows. If the unit of y has changed, give all rows in one unit.",
    )


def _of_far_columns(X, ends, names, of_levels):
    """A list: the warning of columns of X, but those of levels, that reach far beyond the ``ends`` of earlier rows."""
    # A wide table has no range.
    with np.errstate(over="ignore", invalid="ignore"):
        middle, half = 0.5 * ends[0] + 0.5 * ends[1], 0.5 * ends[1] - 0.5 * ends[0]
        away = np.sort(np.abs(X - middle) / np.where(half > 0.0, half, 1.0), axis=0)
    ratio = away[: len(X) - max(1, int(_OUTLIERS * len(X)))].max(0, initial=0.0)
    far = np.setdiff1d(np.flatnonzero(ratio > _FAR), of_levels)
    if not len(far):
        return []
    shown = ", ".join(f"{j if names is None else repr(str(names[j]))} ({ratio[j]:.3g} times as far)" for j in far)
    details = (
        f"Column {shown}. The model knows nothing there, and its lengthscales start at those of the earlier rows. If "
        "the unit of a column has changed, give all rows in one unit; otherwise call fit with rows of all kinds."
    )
    return [Notice("Columns of X reach far beyond the earlier rows.", details)]
