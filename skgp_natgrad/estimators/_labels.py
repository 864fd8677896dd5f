"""The classes of a classifier, and their weights."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .._backend import processes
from . import _checks, _inputs


def of_fit(estimator, y, previous):
    """The sorted labels of ``y``, of all processes; a warm start requires the labels of the fit before."""
    classes = np.unique(y)
    if processes.sharing(estimator.n_devices) > 1:
        classes = np.unique(np.concatenate(processes.exchanged(classes)))
    if previous is not None and not np.array_equal(classes, estimator.classes_):
        raise ValueError(
            f"warm_start=True, but y has the classes {classes!r}, and had {estimator.classes_!r} in the fit before; "
            "set warm_start=False to start anew."
        )
    return classes


def of_stream(estimator, y, classes, previous):
    """The sorted labels of a stream, which its first call determines."""
    if isinstance(estimator.class_weight, str):
        raise ValueError(
            f"class_weight={estimator.class_weight!r} depends on all rows, but partial_fit sees only a part of them; "
            "give a dict of label to weight."
        )
    classes = None if classes is None else _named(classes)
    known = np.unique(y if classes is None else classes) if previous is None else estimator.classes_
    if len(known) < 2:
        raise ValueError(
            f"{type(estimator).__name__} needs at least two classes; the first call of partial_fit names one, "
            f"{known.tolist()}. Give all labels that will occur as classes=..."
        )
    if classes is not None and not np.array_equal(np.unique(classes), known):
        raise ValueError(
            f"classes={np.unique(classes).tolist()} differs from the first call's, {known.tolist()}; "
            "give the same labels, or leave classes out."
        )
    unseen = sorted(set(y.tolist()) - set(known.tolist()), key=str)
    if unseen:
        raise ValueError(
            f"y holds the labels {unseen}, which are not among classes={known.tolist()}. Name all labels at the "
            "first call of partial_fit, or call fit to start anew."
        )
    return known


def _named(classes):
    """The labels that the argument ``classes`` names: of one kind, and none of them missing."""
    found, each = np.asarray(classes), list(classes)
    of_one_kind = found.ndim == 1 and len({isinstance(label, str) for label in each}) <= 1
    is_whole = found.dtype.kind != "f" or np.array_equal(found, np.floor(found))
    if not (of_one_kind and is_whole and all(map(_inputs.is_label, each))):
        raise ValueError(
            f"classes={each!r} must be labels, all of them strings or all whole numbers, and none missing."
        )
    return found


def present(estimator, classes, position):
    """The labels at these positions among the classes, of all processes."""
    found = np.unique(position)
    if processes.sharing(estimator.n_devices) > 1:
        found = np.unique(np.concatenate(processes.exchanged(found)))
        if estimator.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' is not available with several processes, each of which knows its own rows "
                "alone; give a dict of label to weight."
            )
    return classes[found]


def weights(given, classes, position, weight):
    """The factor that the argument ``class_weight``, as ``given``, puts on each class: (C,)."""
    if given is None:
        return np.ones(len(classes))
    if isinstance(given, str) and given == "balanced":
        # Balanced by weight, not by rows: a row of weight two counts as two rows.
        total = np.bincount(position, weights=weight, minlength=len(classes))
        return np.divide(weight.sum(), len(classes) * total, out=np.zeros(len(classes)), where=total > 0)
    if not isinstance(given, Mapping):
        raise ValueError(f'class_weight={given!r} must be a dict of label to weight, "balanced" or None.')
    factors = np.array(
        [_checks.number(f"class_weight[{c!r}]", given.get(c, 1.0), strict=False) for c in classes.tolist()]
    )
    # As in scikit-learn: class_weight may name classes that a fold lacks, if it names all classes of the fold.
    unknown, missing = set(given) - set(classes.tolist()), set(classes.tolist()) - set(given)
    if unknown and missing:
        raise ValueError(
            f"class_weight={given!r} names {sorted(unknown, key=str)}, which do not occur in y, but not "
            f"{sorted(missing, key=str)}; use the labels of y, which are {classes.tolist()}."
        )
    if np.any(weight) and not np.any(weight * factors[position]):
        raise ValueError(
            f"class_weight={given!r} leaves no row of y with a weight above zero; give at least one of "
            f"the labels {classes.tolist()} a positive weight."
        )
    return factors
