"""The two tasks, regression and classification, and the likelihoods that are made for each."""

from __future__ import annotations

from typing import NamedTuple

from ... import likelihoods
from . import checks


class Task(NamedTuple):
    """A task and the estimator for it.

    Attributes
    ----------
    name : str
    estimator : str
    """

    name: str
    estimator: str


REGRESSION = Task("regression", "NGDSVGPRegressor")
CLASSIFICATION = Task("classification", "NGDSVGPClassifier")
_TASKS = (REGRESSION, CLASSIFICATION)


def _no_likelihood(task, argument):
    """The message that a name is no likelihood of a task; it suggests one, which may be of the other task."""
    own, (other,) = likelihoods.names(task.name), (each for each in _TASKS if each is not task)
    theirs = likelihoods.names(other.name)
    found = checks.meant(argument, own)
    if argument in theirs:
        return (
            f"likelihood={argument!r} is for {other.name}, not {task.name}; use {other.estimator}, or another "
            f"likelihood.{checks.question(found)}"
        )
    found = found or checks.meant(argument, theirs) or checks.closest(argument, ["auto", *own, *theirs])
    whose = f" of {other.estimator}" if found in set(theirs).difference(own) else ""
    options = ", ".join(map(repr, ("auto", *own)))
    return f"likelihood={argument!r} is not available; use one of {options}.{checks.question(found, whose)}"


def likelihood_of(task, argument, default):
    """Return the likelihood object for the argument ``likelihood``."""
    if isinstance(argument, str):
        if argument not in ("auto", *likelihoods.names(task.name)):
            raise ValueError(_no_likelihood(task, argument))
        return likelihoods.by_name(default if argument == "auto" else argument)
    if not isinstance(argument, likelihoods.Likelihood) or task.name not in argument.tasks:
        raise ValueError(
            f"likelihood={argument!r} must be a {task.name} likelihood: an object of "
            f"skgp_natgrad.likelihoods, or one of {', '.join(map(repr, likelihoods.names(task.name)))}."
        )
    if not type(argument).__module__.startswith(likelihoods.__name__):
        missing = likelihoods.undefined_method(argument, task.name)
        if missing is not None:
            raise ValueError(
                f"likelihood {type(argument).__name__} does not define the method {missing}, which {task.name} needs; "
                "see the documentation's page on a likelihood of your own."
            )
    return argument
