"""How a fit goes on from another one when arguments were changed in between.

One rule for warm starts and streams: what is fixed or changed since is honoured, or the fit refuses
and names it. A hyperparameter that is fixed, or whose initial value is another one than that of the
fit before, starts at the argument's value; the others go on from where training left them. An
argument that says what the model is made of cannot change; all others apply to what follows.
"""

from __future__ import annotations

import copy

import jax
import numpy as np

from ..svgp import Parameters, specification
from ._arguments import one_or_each

# Of arguments that a fit cannot go on with when they have changed: those that a stream can.
_FOLLOWS_A_STREAM = ("n_inducing",)
_LONGEST_SHOWN = 200


def reason(streams):
    """Why a fit goes on from the last one."""
    return "partial_fit goes on from the rows before" if streams else "warm_start=True"


def check(before, now, streams):
    """Refuse to go on with an argument that has changed and cannot be honoured.

    Parameters
    ----------
    before, now : dict
        From `recorded`: of the fit that this one goes on from, and of this one. The likelihoods are
        prepared for the targets.
    streams : bool
        Whether the rows of the fit before count as well.

    Raises
    ------
    ValueError
        That names the argument, both its values and what to do.
    """
    trained_mean_points = [_n_trained_mean_points(arguments) for arguments in (before, now)]
    same = {
        # Its hyperparameters are looked at one by one; None means one that would be made anew.
        "kernel": now["kernel"] is not None or before["kernel"] is None,
        "likelihood": _formula(now["likelihood"]) == _formula(before["likelihood"]),
        "mean_solver": trained_mean_points[0] == trained_mean_points[1] or not _one_is_exact(before, now),
        "n_mean_inducing": trained_mean_points[0] == trained_mean_points[1],
        # Its parameters apply to what follows.
        "objective": type(now["objective"]) is type(before["objective"]),
    }
    for name in now:
        if streams and name in _FOLLOWS_A_STREAM:
            continue
        unchanged = same[name] if name in same else np.array_equal(now[name], before[name])
        if not unchanged:
            raise _changed(name, before, now, streams)


def _formula(likelihood):
    """What two likelihoods must share so that one can take over the values of the other."""
    return type(likelihood), [getattr(likelihood, name) for name in likelihood.options]


def _n_trained_mean_points(arguments):
    # The solver "exact" places them after training, in each fit anew.
    return 0 if arguments["mean_solver"] == "exact" else arguments["n_mean_inducing"]


def _one_is_exact(before, now):
    return (before["mean_solver"] == "exact") != (now["mean_solver"] == "exact")


def _changed(name, before, now, streams):
    anew = "call fit" if streams else "set warm_start=False"
    return ValueError(
        f"{reason(streams)}, but {name}={_shown(now[name])}, and the fit before had {name}={_shown(before[name])}, "
        f"which cannot be changed while going on; set it back, or {anew} to start anew."
    )


def _shown(value):
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def recorded(arguments, likelihood, objective, normalize_y):
    """Copies of the arguments that say what a model is made of: nobody can change these in place.

    Parameters
    ----------
    arguments : dict
        Of the constructor.
    likelihood : Likelihood
        Prepared for the targets.
    objective : Objective
    normalize_y : bool
        As used.
    """
    names = ("kernel", "basis", "n_inducing", "mean_solver", "n_mean_inducing", "inducing_init", "normalize_X")
    record = {name: arguments[name] for name in names}
    # Of its names there is "all", which is None.
    record["n_inducing"] = None if isinstance(record["n_inducing"], str) else record["n_inducing"]
    record |= {"likelihood": likelihood, "objective": objective, "normalize_y": normalize_y}
    return copy.deepcopy(record)


def continued(previous, plan, before, now, n_features, n_targets, streams):
    """What a fit goes on from, with the hyperparameters that it starts at.

    Parameters
    ----------
    previous : Previous
    plan : Plan
        Complete.
    before, now : dict
        From `recorded`, and checked.
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
        If the kernel has another form than that of the fit before.
    """
    trained = tuple(previous.parameters[:2])
    start, lower, upper = specification(plan.kernels, plan.likelihood, n_features, n_targets)
    if _form(start[0]) != _form(trained[0]):
        raise _changed("kernel", before, now, streams)
    started = _started(start[0], before, now, n_features, n_targets)
    hyperparameters = jax.tree.map(_going_on, trained, start, lower, upper, started)
    return previous._replace(parameters=Parameters(*hyperparameters, *previous.parameters[2:]))


def _form(kernels):
    """What two kernels must share so that one can take over the values of the other."""
    return jax.tree.structure(kernels), [np.shape(leaf) for leaf in jax.tree.leaves(kernels)]


def _started(start, before, now, n_features, n_targets):
    """The initial values of the fit before: where the present ones equal these, nothing was changed."""
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
