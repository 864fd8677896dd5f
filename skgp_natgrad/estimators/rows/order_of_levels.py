"""The order of labels that are levels: stated by the likelihood, by the type of y or by ``classes``; else taken."""

from __future__ import annotations

import warnings

import numpy as np

from ... import likelihoods
from ..._backend.labels import ordered_by_type
from . import inputs


def stated(estimator, y):
    """The levels that the likelihood or the type of ``y`` states, from the lowest, as a list.

    None if neither does, or if the labels of this likelihood have no order.
    """
    likelihood = _ordered_likelihood(estimator)
    levels = getattr(likelihood, "levels", None)
    if levels is None:
        return ordered_by_type(y) if likelihood is not None else None
    name = f"likelihood {type(likelihood).__name__}: levels"
    levels = named(name, levels).tolist()
    if len(set(levels)) < max(len(levels), 2):
        raise ValueError(f"{name}={levels!r} must be two or more, each of them once, the lowest first.")
    return levels


def _ordered_likelihood(estimator):
    """The likelihood, if its classes are levels in an order; one that is not valid is refused elsewhere."""
    given = estimator.likelihood
    if isinstance(given, str) and given in likelihoods.names("classification"):
        given = likelihoods.by_name(given)
    return given if getattr(given, "ordered", False) else None


def of_named(estimator, levels, classes):
    """The stated levels of a stream whose labels ``classes`` names; for strings it states an order, unless sorted.

    A sorted array says nothing: ``numpy.unique`` returns one.
    """
    if classes is None or _ordered_likelihood(estimator) is None:
        return levels
    labels = np.asarray(classes).tolist()
    levels = levels or ordered_by_type(classes)
    if levels is None:
        return list(dict.fromkeys(labels)) if _are_strings(labels) and labels != sorted(labels) else None
    # A label that is none of the levels is refused with all of them.
    return [level for level in levels if level in labels] if set(labels) <= set(levels) else levels


def of_all(stated):
    """The levels that all processes state, which must be the same."""
    if any(levels != stated[0] for levels in stated):
        raise ValueError(f"The processes of a common fit state different levels: {stated}; state the same in each.")
    return stated[0]


def in_order(labels, levels):
    """All classes: the sorted labels, or the ``levels``, of which each label must be one."""
    labels = np.unique(labels)
    if levels is None:
        return labels
    unknown = [label for label in labels.tolist() if label not in levels]
    if unknown:
        raise ValueError(
            f"{unknown} are labels, but none of the levels {levels}, from the lowest to the highest; name all levels "
            "in likelihood=Ordinal(levels=[...]), or in the categories of y."
        )
    # Strings in an array of objects stay so.
    return np.array(levels, dtype=object if labels.dtype == object else None)


def warn_of_taken(estimator, classes, levels, stacklevel):
    """Give a UserWarning of the order of levels that are strings, where none is stated; its level as of a caller."""
    if levels is not None or _ordered_likelihood(estimator) is None or not _are_strings(classes.tolist()):
        return
    warnings.warn(
        f"The labels are strings whose order is not stated, and are taken in the order of the alphabet: "
        f"{' < '.join(map(repr, classes.tolist()))}. State it by likelihood=Ordinal(levels=[...]), the lowest level "
        "first, or give y as an ordered Categorical of pandas or an Enum of Polars.",
        UserWarning,
        stacklevel=stacklevel + 1,
    )


def check_as_before(levels, classes):
    """Refuse stated ``levels`` whose order is not that of the classes of the calls before."""
    if levels is None:
        return
    known = classes.tolist()
    now, before = ([each for each in one if each in other] for one, other in ((levels, known), (known, levels)))
    if now != before:
        raise ValueError(
            f"partial_fit continues the fit before, whose levels have the order {before}, but here it is {now}; give "
            "the same order, or call fit to start anew."
        )


def named(name, labels):
    """The labels that an argument names, as an array: of one kind, and none of them missing."""
    found = np.asarray(labels)
    each = list(labels) if found.ndim == 1 else [labels]
    of_one_kind = found.ndim == 1 and len({isinstance(label, str) for label in each}) <= 1
    is_whole = found.dtype.kind != "f" or np.array_equal(found, np.floor(found))
    if not (of_one_kind and is_whole and all(map(inputs.is_label, each))):
        raise ValueError(f"{name}={each!r} must be labels, all of them strings or all whole numbers, and none missing.")
    return found


def _are_strings(labels):
    return all(isinstance(label, str) for label in labels)
