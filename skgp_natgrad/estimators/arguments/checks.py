"""Checks of constructor arguments: an error names the argument, its value and the remedy."""

from __future__ import annotations

import contextlib
import difflib
import numbers
import os
from pathlib import Path

import numpy as np

from ...training import schedules
from ...training.checkpoint import is_folder

# Beyond the square root of the largest number a kernel that grows with X overflows; and rows that an error names.
_OVERFLOWS, _MOST_SHOWN = 1e150, 5
# Other words for names, in the order in which they are suggested.
_MEANT = {
    "normal": ("gaussian",),
    "norm": ("gaussian",),
    "gauss": ("gaussian",),
    "mse": ("gaussian",),
    "squared_error": ("gaussian",),
    "least_squares": ("gaussian",),
    "t": ("student_t",),
    "robust": ("student_t", "robust_max"),
    "huber": ("student_t",),
    "laplace": ("student_t",),
    "heteroscedastic": ("heteroscedastic_gaussian",),
    "censored_gaussian": ("censored",),
    "censored_normal": ("censored",),
    "inverse_gaussian": ("gamma",),
    "successes": ("binomial", "bernoulli"),
    "binomial": ("bernoulli",),
    "proportions": ("binomial", "beta"),
    "binary": ("bernoulli",),
    "logistic": ("bernoulli",),
    "logit": ("bernoulli",),
    "probit": ("bernoulli",),
    "categorical": ("softmax",),
    "multinomial": ("softmax",),
    "multiclass": ("softmax",),
    "nb": ("negative_binomial",),
    "negbin": ("negative_binomial",),
    "nb2": ("negative_binomial",),
    "zip": ("zero_inflated_poisson",),
    "count": ("poisson",),
    "counts": ("poisson",),
    "log_normal": ("lognormal",),
    "compound_poisson": ("tweedie",),
    "tobit": ("censored",),
    "truncated": ("censored",),
    "ordered": ("ordinal",),
    "cumulative": ("ordinal",),
    "sgd": ("gd", "adam"),
    "gradient_descent": ("gd",),
    "natural": ("ngd",),
    "natural_gradient": ("ngd",),
    "exact": ("evidence",),
    "l_bfgs": ("lbfgs",),
    "l_bfgs_b": ("lbfgs",),
    "fmin_l_bfgs_b": ("lbfgs",),
    "adamw": ("adam",),
    "kmeans": ("k-means",),
    "k_means++": ("k-means",),
    "cuda": ("gpu",),
    "cuda:0": ("gpu",),
    "single": ("float32",),
    "float16": ("float32",),
    "vfe": ("elbo",),
    "ppgpr": ("predictive",),
    "fixed": ("constant",),
}


def choice(name, value, allowed):
    """Return ``value`` if it is one of ``allowed``; otherwise raise, and suggest the nearest one."""
    value = bool(value) if isinstance(value, np.bool_) else value
    if any(value is option or (isinstance(value, str) and value == option) for option in allowed):
        return value
    raise ValueError(unknown(name, value, allowed))


def unknown(name, value, allowed):
    """Return the message that ``value`` is not one of ``allowed``; it suggests the nearest one."""
    hint = question(meant(value, allowed) or closest(value, allowed))
    return f"{name}={value!r} is not available; use one of {', '.join(map(repr, allowed))}.{hint}"


def question(found, whose=""):
    """Return the question whether ``found`` was meant, to follow a sentence; nothing for None."""
    return "" if found is None else f" Did you mean {found!r}{whose}?"


def meant(value, allowed):
    """Return the one of ``allowed`` that ``value`` is another word for, or None."""
    names = _MEANT.get(str(value).lower().replace("-", "_").replace(" ", "_"), ())
    return next((name for name in names if name in allowed), None)


def closest(value, allowed, alike=0.6):
    """Return the one of ``allowed`` that is spelt most like ``value``, in whatever case; None if none is ``alike``."""
    names = {str(option).lower(): option for option in reversed(allowed)}
    found = difflib.get_close_matches(str(value).lower(), list(names), n=1, cutoff=alike)
    return names[found[0]] if found else None


def integer(name, value, minimum, word=None):
    """Return ``value`` as an int of at least ``minimum``; the message names the ``word`` that is allowed as well."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < minimum:
        others = "" if word is None else f", or {word!r}"
        raise ValueError(f"{name}={value!r} must be an integer of at least {minimum}{others}.")
    return int(value)


def n_devices(name, value):
    """Refuse what is no number of devices."""
    if isinstance(value, str):
        choice(name, value, ("all",))
    elif value is not None:
        integer(name, value, 1)


def number(name, value, minimum=0.0, strict=True):
    """Return ``value`` as a finite float above (``strict``) or at least ``minimum``."""
    valid = isinstance(value, numbers.Real) and not isinstance(value, bool) and np.isfinite(value)
    if not valid or value < minimum or (strict and value == minimum):
        relation = "above" if strict else "at least"
        raise ValueError(f"{name}={value!r} must be a finite number {relation} {minimum:g}.")
    return float(value)


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


def dtype(name, value, allowed):
    """Return the name of the floating type ``value`` if it is one of ``allowed``."""
    with contextlib.suppress(TypeError):
        # NumPy would read None as a type.
        value = value if value is None else np.dtype(value).name
    return choice(name, value, allowed)


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
