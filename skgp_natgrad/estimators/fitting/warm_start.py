"""How a fit continues an earlier one when arguments have changed in between.

One rule holds for warm starts and streams: a changed argument either takes effect, or raises an
error that names it. A hyperparameter that is fixed, or whose initial value has changed since the fit
before, starts at the argument's value; the others start at their trained values. Arguments that
define the structure of the model cannot change; all others apply from now on.
"""

from __future__ import annotations

import copy
import inspect

import jax
import joblib
import numpy as np
from sklearn.base import BaseEstimator, clone

from ...svgp import Parameters, specification
from ..arguments.reading import one_or_each

# Arguments that may change in a stream, but not at a warm start.
_FOLLOWS_A_STREAM = ("n_inducing",)
# Arguments that may change at a warm start, which sees all rows, but not in a stream.
_STAYS_IN_A_STREAM = ("mean_function",)
_LONGEST_SHOWN = 200
# What "auto" is for the solvers whose fits can be continued.
_OF_AUTO = {"n_mean_inducing": 0, "mean_solver": "adam"}


def reason(streams):
    """The reason why a fit continues the last one, for messages."""
    return "partial_fit continues the fit before" if streams else "warm_start=True"


def anew(streams):
    """The remedy for a fit that cannot continue the last one, for messages."""
    return "call fit" if streams else "set warm_start=False"


def check(before, now, streams):
    """Refuse a changed argument that cannot take effect while continuing.

    Parameters
    ----------
    before, now : dict
        From `recorded`: the arguments of the fit before, and of this one. The likelihoods are
        prepared for the targets.
    streams : bool
        Whether the rows of the fit before count as well.

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
        # Unlike a repr it has long arrays whole.
        return joblib.hash(mean_function.get_params()) == joblib.hash(other.get_params())
    if inspect.ismethod(mean_function) and inspect.ismethod(other):
        # Of two fitted models of the same parameters it has one repr.
        states = (joblib.hash(vars(each.__self__)) for each in (mean_function, other))
        return mean_function.__func__ == other.__func__ and len(set(states)) == 1
    return repr(mean_function) == repr(other)


def _formula(likelihood):
    """What must be equal for one likelihood to take over the values of another."""
    return type(likelihood), [getattr(likelihood, name) for name in likelihood.options]


def _changed(name, before, now, streams):
    return ValueError(
        f"{reason(streams)}, but {name}={_shown(now[name])}, and the fit before had {name}={_shown(before[name])}, "
        f"and {name} cannot change when a fit is continued; set it back, or {anew(streams)} to start anew."
    )


def _shown(value):
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


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
    record = {name: arguments[name] for name in names}
    # "all" means the same as None.
    record["n_inducing"] = None if isinstance(record["n_inducing"], str) else record["n_inducing"]
    record |= {name: same for name, same in _OF_AUTO.items() if record[name] == "auto"}
    record |= {"likelihood": likelihood, "objective": objective, "normalize_y": normalize_y}
    # Classifiers have none. A frozen model is not copied: one is enough.
    mean_function = arguments.get("mean_function")
    if isinstance(mean_function, BaseEstimator):
        mean_function = clone(mean_function)
    return {**copy.deepcopy(record), "mean_function": mean_function}


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
        If the kernel's form differs from that of the fit before.
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
    """The initial values of the fit before: a present value that equals its old one has not been changed."""
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
