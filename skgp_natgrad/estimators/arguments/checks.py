"""Checks of constructor arguments: an error names the argument, its value and the remedy."""

from __future__ import annotations

import collections.abc
import contextlib
import difflib
import numbers
import os
import types
import typing
from pathlib import Path

import numpy as np

from ... import objectives
from ..._backend.device import DTYPES
from ...priors import Prior
from ...svgp import BASES, PARAMETERIZATIONS
from ...training import schedules
from ...training.checkpoint import is_folder

# Beyond the square root of the largest number a kernel that grows with X overflows; and rows that an error names.
_OVERFLOWS, _MOST_SHOWN = 1e150, 5
# Other words for names; of a word with several meanings the first that is allowed is suggested.
_MEANT = {
    "gaussian": "normal norm gauss mse squared_error least_squares",
    "student_t": "t robust huber laplace",
    "robust_max": "robust",
    "heteroscedastic_gaussian": "heteroscedastic",
    "censored": "censored_gaussian censored_normal tobit truncated",
    "gamma": "inverse_gaussian",
    "binomial": "successes proportions",
    "bernoulli": "successes binomial binary logistic logit probit",
    "beta": "proportions",
    "softmax": "categorical multinomial multiclass",
    "negative_binomial": "nb negbin nb2",
    "zero_inflated_poisson": "zip",
    "poisson": "count counts",
    "lognormal": "log_normal",
    "tweedie": "compound_poisson",
    "ordinal": "ordered cumulative",
    "gd": "sgd gradient_descent",
    "ngd": "natural natural_gradient",
    "evidence": "exact",
    "lbfgs": "l_bfgs l_bfgs_b fmin_l_bfgs_b",
    "adam": "sgd adamw",
    "k-means": "kmeans k_means++",
    "gpu": "cuda cuda:0",
    "float32": "single float16",
    "elbo": "vfe",
    "predictive": "ppgpr",
    "constant": "fixed",
    "coregionalization": "icm lmc correlated",
    "nlpd": "log_loss neg_log_loss nll log_likelihood",
}


def of_type(name, value, kind, **limits):
    """Return ``value`` if the type ``kind`` allows it, and a number if it is within the limits of `number`.

    The type is a union of names (``Literal``), None, bool, int, float, other classes, and functions.
    """
    kinds = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    words = [True, False] if bool in kinds else []
    words += [word for each in kinds if typing.get_origin(each) is typing.Literal for word in typing.get_args(each)]
    words += [None] if type(None) in kinds else []
    classes = tuple(each for each in kinds if isinstance(each, type) and each not in (bool, int, float))
    if is_one_of(value, words) or isinstance(value, classes):
        return value
    if int in kinds or float in kinds:
        return (integer if int in kinds else number)(name, value, words=words, **limits)
    if collections.abc.Callable in map(typing.get_origin, kinds):
        return function(name, value)
    return boolean(name, value) if kind is bool else choice(name, value, words)


def choice(name, value, allowed):
    """Return ``value`` if it is one of ``allowed``; otherwise raise, and suggest the nearest one."""
    if not is_one_of(value, allowed):
        raise ValueError(unknown(name, value, allowed))
    return value


def is_one_of(value, allowed):
    """Whether ``value`` is one of names, booleans and None; no number is a boolean here."""
    return any(value is option or (isinstance(value, str) and value == option) for option in allowed)


def unknown(name, value, allowed):
    """Return the message that ``value`` is not one of ``allowed``; it suggests the nearest one."""
    hint = question(meant(value, allowed) or closest(value, allowed))
    return f"{name}={value!r} is not available; use one of {', '.join(map(repr, allowed))}.{hint}"


def question(found, whose=""):
    """Return the question whether ``found`` was meant, to follow a sentence; nothing for None."""
    return "" if found is None else f" Did you mean {found!r}{whose}?"


def meant(value, allowed):
    """Return the one of ``allowed`` that ``value`` is another word for, or None."""
    word = str(value).lower().replace("-", "_").replace(" ", "_")
    return next((name for name, words in _MEANT.items() if word in words.split() and name in allowed), None)


def closest(value, allowed, alike=0.6):
    """Return the one of ``allowed`` that is spelt most like ``value``, in whatever case; None if none is ``alike``."""
    names = {str(option).lower(): option for option in reversed(allowed)}
    found = difflib.get_close_matches(str(value).lower(), list(names), n=1, cutoff=alike)
    return names[found[0]] if found else None


def integer(name, value, least, words=()):
    """Return ``value`` as an int of at least ``least``; the message names the ``words`` that are allowed as well."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}={value!r} must be an integer of at least {least}{_or(words, value)}")
    return int(value)


def number(name, value, least=None, above=None, words=()):
    """Return ``value`` as a finite float of at least ``least``, or ``above`` a number; ``words`` as in `integer`."""
    valid = isinstance(value, numbers.Real) and not isinstance(value, bool) and np.isfinite(value)
    if not valid or (value < least if above is None else value <= above):
        relation = f"of at least {least:g}" if above is None else f"above {above:g}"
        raise ValueError(f"{name}={value!r} must be a finite number {relation}{_or(words, value)}")
    return float(value)


def _or(words, value):
    """The end of a sentence, which names further words that are allowed, and suggests the one that is meant."""
    more = ", ".join(["", *map(repr, words[:-1]), *(f"or {word!r}" for word in words[-1:])])
    return f"{more}.{question(closest(value, words)) if isinstance(value, str) else ''}"


def levels(name, value, several=True):
    """Return ``value`` as an array of probabilities strictly between 0 and 1: a number, or with ``several`` a list."""
    try:
        found = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        found = np.array(np.nan)
    if found.ndim > several or found.size == 0 or not np.all((found > 0.0) & (found < 1.0)):
        what = "a number or a list of numbers" if several else "a number"
        raise ValueError(f"{name}={value!r} must be {what} strictly between 0 and 1.")
    return found


def path(name, value):
    """Return ``value`` as the path of a folder, or of a file in an existing folder."""
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise ValueError(f"{name}={value!r} must be the path of a file or a folder, or None.")
    text = os.fsdecode(value)
    if "\0" in text:
        raise ValueError(f"{name}={text!r} contains a null byte, which no path may; remove it.")
    folder, exists = str(Path(text).parent), os.path.exists(Path(text))
    if not os.path.isdir(folder):
        raise ValueError(
            f"{name}={text!r} lies in {folder!r}, which is not a folder; name a file in an existing folder."
        )
    if is_folder(text) and exists and not os.path.isdir(text):
        raise ValueError(f"{name}={text!r} ends like a folder, but is a file; name another one.")
    if exists and not (os.path.isdir(text) or os.path.isfile(text)):
        raise ValueError(f"{name}={text!r} is neither a file nor a folder; name one.")
    return Path(text)


def dtype(name, value, kind):
    """Return the name of the floating type ``value``."""
    with contextlib.suppress(TypeError):
        # NumPy would read None as a type.
        value = value if value is None else np.dtype(value).name
    return choice(name, value, DTYPES)


def basis(name, value, kind):
    """Return ``value`` if it is the name of a basis; the coupled one is no other."""
    if isinstance(value, str) and value == "coupled":
        raise ValueError(
            "basis='coupled' is not available; use basis='orthogonal' with n_mean_inducing=0, which is the same."
        )
    return choice(name, value, tuple(BASES))


def parameterization(name, value, kind):
    """Return ``value`` if it is the name of a parameterization; a user's own may be among them."""
    return choice(name, value, tuple(PARAMETERIZATIONS))


def objective(name, value, kind):
    """Return the objective that ``value`` is, or that has this name; a user's own may have one."""
    if isinstance(value, objectives.Objective):
        return value
    return objectives.by_name(choice(name, value, tuple(objectives.names())))


def hyperparameter_prior(name, value, kind):
    """Return ``value`` if it is a prior or has some; names of hyperparameters are compared with the kernel's later."""
    if isinstance(value, str):
        return choice(name, value, ("weak",))
    each = value.values() if isinstance(value, collections.abc.Mapping) else [value]
    if value is not None and not all(isinstance(prior, Prior) for prior in each):
        raise ValueError(
            f"{name}={value!r} must be None, 'weak', a prior of skgp_natgrad.priors such as "
            "LogNormal(2.0, 0.5), or a dict of these by the names of hyperparameters."
        )
    return value


def function(name, value):
    """Return ``value`` if it is a function or None."""
    if value is not None and not callable(value):
        raise ValueError(f"{name}={value!r} must be callable, or None.")
    return value


def boolean(name, value):
    """Return ``value`` as a bool."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name}={value!r} must be True or False.")
    return bool(value)


def _is_function(value):
    return callable(value) and not isinstance(value, type)


def schedule(name, value, max_iter, upper, without=()):
    """Return ``value`` as a schedule whose first ``max_iter`` values lie in [0, upper], not all zero.

    ``without`` holds the names of schedules that this argument does not accept.
    """
    options = [option for option in schedules.names() if option not in without]
    if isinstance(value, str):
        choice(name, value, options)
    elif isinstance(value, bool) or not (isinstance(value, numbers.Real) or _is_function(value)):
        raise ValueError(
            f"{name}={value!r} must be a number, a schedule object such as LogLinear(), a function of the iteration, "
            f"or one of {', '.join(map(repr, options))}."
        )
    result = schedules.as_schedule(value)
    try:
        ranges = [_range(name, value, result, some) for some in schedules.blocks(max_iter)]
    except TypeError as error:
        raise ValueError(f"{name}={value!r} cannot be evaluated: {error}. Are its parameters numbers?") from error
    # Unlike Python's own, these are NaN if one of the values is.
    lowest, highest = np.min(ranges), np.max(ranges)
    if not (lowest >= 0 and 0 < highest <= upper):
        raise ValueError(
            f"{name}={value!r} must stay within [0, {upper:g}] and not be zero throughout; it runs from {lowest:g} to "
            f"{highest:g}."
        )
    return result


def _range(name, value, schedule, iteration):
    """The least and the largest value of a schedule at some iterations."""
    values = np.asarray(schedule(iteration), dtype=float)
    if values.shape != iteration.shape:
        raise ValueError(
            f"{name}={value!r} returned an array of shape {values.shape} for {len(iteration)} iterations; it must "
            "return one value for each iteration."
        )
    return np.min(values), np.max(values)


def refuse_overflow(X, first_row):
    """Raise ValueError if standardised rows X (N, D) are not finite; ``first_row`` is the number of the first."""
    far = np.flatnonzero(~np.isfinite(X).all(1))
    if len(far):
        raise ValueError(
            f"X[{first_row + far[0]}] ({len(far)} rows in all) is so far from the training data that it overflows when "
            "standardised; leave it out, or check the units of X."
        )


def refuse_undefined(values, X, kernel, first_row):
    """Raise FloatingPointError if values (..., N) that are predicted at standardised rows X (N, D) are NaN.

    ``first_row`` is the number of the first of them, in a longer table.
    """
    undefined = np.zeros(len(X), bool)
    for value in values:
        undefined |= np.isnan(value).reshape(-1, len(X)).any(0)
    rows = np.flatnonzero(undefined)
    if not len(rows):
        return
    largest = np.abs(X[rows]).max()
    cause = (
        f"they hold values up to {largest:.3g} deviations from those of the fit, where the kernel {kernel} overflows; "
        "leave these rows out, or check their units"
        if largest > _OVERFLOWS
        else f"the kernel {kernel} is not defined there; leave these rows out, or fit with another kernel"
    )
    shown = ", ".join(map(str, first_row + rows[:_MOST_SHOWN])) + (", ..." if len(rows) > _MOST_SHOWN else "")
    block = f", from row {first_row} on," if first_row else ""
    raise FloatingPointError(
        f"The prediction is NaN at {len(rows)} of {len(X)} rows of X{block} (row {shown}): {cause}."
    )
