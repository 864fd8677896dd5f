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
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, Options, StrOptions, make_constraint

from ... import objectives
from ..._backend.device import DTYPES
from ..._backend.types import Seed
from ...priors import Prior
from ...training import schedules
from ...training.checkpoint import is_folder

# Least similarity of a name that is suggested.
_ALIKE = 0.75
# Names that other packages use, and what there is here.
_OF_OTHERS = {
    "fmin_l_bfgs_b": "Leave it out: solver='evidence' searches in this way, and solver='lbfgs' maximises the bound.",
    "normal": "Did you mean 'gaussian'?",
}


def of_type(name, value, kind, least=None, above=None):
    """Return ``value`` if the type ``kind`` allows it; otherwise raise, with scikit-learn's words for what is allowed.

    The type is a union of names (``Literal``), None, bool, int, float, other classes, and functions. A number must be
    finite, and of at least ``least`` or ``above`` a number.
    """
    value = value.item() if isinstance(value, np.generic) else value
    kinds = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    allowed = [make_constraint(_constraint(each, least, above)) for each in kinds]
    # For scikit-learn True is the number one.
    is_no_number = isinstance(value, bool) and bool not in kinds
    if is_no_number or not any(each.is_satisfied_by(value) for each in allowed):
        hint = alike(value, _names(kinds)) if isinstance(value, str) else ""
        hint = f" {_OF_OTHERS[value]}" if isinstance(value, str) and value in _OF_OTHERS else hint
        raise ValueError(f"{name}={value!r} must be {' or '.join(map(str, allowed))}.{hint}")
    return float(value) if float in kinds and isinstance(value, numbers.Real) else value


def alike(name, names):
    """Return the question whether the one of ``names`` was meant that is most like ``name``; "" if none is."""
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=_ALIKE)
    longer = [each for each in names if name and each.startswith(name)]
    nearest += longer if len(longer) == 1 else []
    return f" Did you mean {nearest[0]!r}?" if nearest else ""


def _names(kinds):
    """The names that some types allow."""
    of_literals = [typing.get_args(kind) for kind in kinds if typing.get_origin(kind) is typing.Literal]
    return [name for names in of_literals for name in names if isinstance(name, str)]


def _constraint(kind, least, above):
    """A type as scikit-learn's constraint."""
    if kind is int:
        return Interval(numbers.Integral, least, None, closed="left")
    if kind is float:
        is_open = above is not None
        return Interval(numbers.Real, above if is_open else least, None, closed="neither" if is_open else "left")
    if typing.get_origin(kind) is typing.Literal:
        # The keys are a set that keeps the order.
        return StrOptions(dict.fromkeys(typing.get_args(kind)).keys())
    if typing.get_origin(kind) is collections.abc.Callable:
        return callable
    return {bool: Options(bool, {True, False}), type(None): None}.get(kind, kind)


def choice(name, value, allowed):
    """Return ``value`` if it is one of the names that are ``allowed``."""
    return of_type(name, value, typing.Literal[tuple(allowed)])


def seed(name, value, kind=Seed):
    """Return ``value`` if random numbers can begin with it."""
    allowed = make_constraint("random_state")
    if isinstance(value, bool) or not allowed.is_satisfied_by(value):
        raise ValueError(f"{name}={value!r} must be {allowed}.")
    return value


def random_numbers(value):
    """Return the random numbers of an argument ``random_state``."""
    return check_random_state(seed("random_state", value))


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
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value) or "\0" in os.fsdecode(value):
        raise ValueError(f"{name}={value!r} must be the path of a file or a folder, or None.")
    text = os.fsdecode(value)
    folder = str(Path(text).parent)
    if not os.path.isdir(folder):
        raise ValueError(
            f"{name}={text!r} lies in {folder!r}, which is not a folder; name a file in an existing folder."
        )
    if is_folder(text) and os.path.isfile(Path(text)):
        raise ValueError(f"{name}={text!r} ends like a folder, but is a file; name another one.")
    if os.path.exists(text) and not (os.path.isdir(text) or os.path.isfile(text)):
        raise ValueError(f"{name}={text!r} is neither a file nor a folder; name one.")
    return Path(text)


def dtype(name, value, kind):
    """Return the name of the floating type ``value``."""
    with contextlib.suppress(TypeError):
        # NumPy would read None as a type.
        value = value if value is None else np.dtype(value).name
    return choice(name, value, DTYPES)


def among(names):
    """Return the check that a value is one of ``names``, to which users may add their own."""
    return lambda name, value, kind: choice(name, value, names)


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


def _is_function(value):
    return callable(value) and not isinstance(value, type)


def schedule(name, value, max_iter, upper, without=()):
    """Return ``value`` as a schedule whose first ``max_iter`` values lie in [0, upper], not all zero.

    ``without`` holds the names of schedules that this argument does not accept.
    """
    options = [option for option in schedules.names() if option not in without]
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (value in options if isinstance(value, str) else is_number or _is_function(value)):
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
    first, largest = first_row + rows[0], np.abs(X[rows]).max()
    raise FloatingPointError(
        f"The prediction is NaN at {len(rows)} of {len(X)} rows of X, the first of which is X[{first}]: they hold "
        f"values up to {largest:.3g} deviations from those of the fit, where the kernel {kernel} overflows or is not "
        "defined; leave these rows out, check their units, or fit with another kernel."
    )
