"""The order of ordinal labels: given by the likelihood, by the type of y or by ``classes``; otherwise sorted."""

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
        raise ValueError(f"{name}={levels!r} must name two or more levels, each once, the lowest first.")
    return levels


def _ordered_likelihood(estimator):
    """The likelihood, if its classes are levels in an order; one that is not valid is refused elsewhere."""
    given = estimator.likelihood
    if isinstance(given, str) and given in likelihoods.names("classification"):
        given = likelihoods.by_name(given)
    return given if getattr(given, "ordered", False) else None


def of_named(estimator, levels, classes):
    """The levels of a stream, with the labels ``classes``. Unsorted strings in ``classes`` give an order.

    A sorted array gives none, because ``numpy.unique`` returns a sorted array.
    """
    if classes is None or _ordered_likelihood(estimator) is None:
        return levels
    labels = np.asarray(classes).tolist()
    levels = levels or ordered_by_type(classes)
    if levels is None:
        return list(dict.fromkeys(labels)) if _are_strings(labels) and labels != sorted(labels) else None
    # A label outside the levels is refused together with the labels of all calls.
    return [level for level in levels if level in labels] if set(labels) <= set(levels) else levels


def of_all(stated):
    """The levels that all processes state, which must be the same."""
    if any(levels != stated[0] for levels in stated):
        raise ValueError(f"The processes of one fit give different levels: {stated}; give the same in each process.")
    return stated[0]


def in_order(labels, levels):
    """All classes: the sorted labels, or the ``levels``, of which each label must be one."""
    labels = np.unique(labels)
    if levels is None:
        return labels
    unknown = [label for label in labels.tolist() if label not in levels]
    if unknown:
        raise ValueError(
            f"y holds the labels {unknown}, which are not among the levels {levels}; name all levels, the lowest "
            "first, in likelihood=Ordinal(levels=[...]), or in the categories of y."
        )
    # Strings in an array of objects stay so.
    return np.array(levels, dtype=object if labels.dtype == object else None)


def warn_of_taken(estimator, classes, levels, stacklevel):
    """Give a UserWarning that strings are taken in alphabetical order, if no order is given."""
    if levels is not None or _ordered_likelihood(estimator) is None or not _are_strings(classes.tolist()):
        return
    warnings.warn(
        f"The order of the labels is not given, and they are taken in alphabetical order: "
        f"{' < '.join(map(repr, classes.tolist()))}. Give the order by likelihood=Ordinal(levels=[...]), the lowest "
        "level first, or give y as an ordered Categorical of pandas or an Enum of Polars.",
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
            f"partial_fit continues a fit whose levels have the order {before}, but here they have the order {now}; "
            "give the same order, or call fit to start anew."
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
