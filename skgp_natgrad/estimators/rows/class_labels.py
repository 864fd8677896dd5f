"""The classes of a classifier, and their weights."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ... import svgp
from ..._backend import processes
from ..arguments import checks
from . import order_of_levels

# Of a warning, from `of_fit` and `of_stream` to the line that calls the estimator.
_TO_CALLER = 8


def of_fit(estimator, y, previous, levels=None):
    """The labels of ``y``, of all processes, sorted; or all ``levels``. A warm start requires those of the fit before.

    ``levels`` are those that are stated: see `order_of_levels.stated`.
    """
    labels = np.unique(y)
    if processes.sharing(estimator.n_devices) > 1:
        labels, levels = zip(*processes.exchanged((labels, levels)), strict=True)
        labels, levels = np.unique(np.concatenate(labels)), order_of_levels.of_all(levels)
    if levels is None and previous is not None and _same(labels, estimator.classes_):
        # No other order is stated than that of the fit before.
        return estimator.classes_
    classes = order_of_levels.in_order(labels, levels)
    if previous is not None and not np.array_equal(classes, estimator.classes_):
        raise ValueError(
            f"warm_start=True, but y has the classes {classes!r}, and the previous fit had {estimator.classes_!r}; "
            "set warm_start=False to start anew."
        )
    order_of_levels.warn_of_taken(estimator, classes, levels, _TO_CALLER)
    return classes


def of_stream(estimator, y, classes, previous, levels=None):
    """The labels of a stream, sorted or in the order of ``levels``, which its first call determines."""
    if isinstance(estimator.class_weight, str):
        raise ValueError(
            f"class_weight={estimator.class_weight!r} depends on all rows, but partial_fit sees only a part of them; "
            "give a dict of label to weight."
        )
    named = None if classes is None else order_of_levels.named("classes", classes)
    levels = order_of_levels.of_named(estimator, levels, classes)
    known = order_of_levels.in_order(y if named is None else named, levels) if previous is None else estimator.classes_
    if len(known) < 2:
        raise ValueError(
            f"{type(estimator).__name__} needs at least two classes; the first call of partial_fit has one, "
            f"{known.tolist()}. Give all labels that will occur as classes=..."
        )
    if named is not None and not _same(named, known):
        raise ValueError(
            f"classes={np.unique(named).tolist()} differs from the first call's, {known.tolist()}; "
            "give the same labels, or leave classes out."
        )
    unseen = sorted(set(y.tolist()) - set(known.tolist()), key=str)
    if unseen:
        raise ValueError(
            f"y holds the labels {unseen}, which are not among classes={known.tolist()}. Name all labels at the "
            "first call of partial_fit, or call fit to start anew."
        )
    if previous is None:
        order_of_levels.warn_of_taken(estimator, known, levels, _TO_CALLER)
    else:
        order_of_levels.check_as_before(levels, known)
    return known


def _same(labels, classes):
    return np.array_equal(np.unique(labels), np.sort(classes))


def present(estimator, classes, position):
    """The labels at these positions among the classes, of all processes."""
    found = np.unique(position)
    if processes.sharing(estimator.n_devices) > 1:
        found = np.unique(np.concatenate(processes.exchanged(found)))
        if estimator.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' is not available with several processes, because each process knows only its "
                "own rows; give a dict of label to weight."
            )
    return classes[found]


def weights(given, classes, position, weight):
    """The factor that the argument ``class_weight``, as ``given``, puts on each class: (C,)."""
    if given is None:
        return np.ones(len(classes))
    if isinstance(given, str) and given == "balanced":
        # Balanced by weight, not by rows: a row of weight two counts as two rows.
        total = np.bincount(position, weights=weight, minlength=len(classes))
        # A level may be declared that does not occur.
        n_present = len(np.unique(position))
        return np.divide(weight.sum(), n_present * total, out=np.zeros(len(classes)), where=total > 0)
    if not isinstance(given, Mapping):
        raise ValueError(f'class_weight={given!r} must be a dict of label to weight, "balanced" or None.')
    factors = np.array([checks.number(f"class_weight[{c!r}]", given.get(c, 1.0), least=0.0) for c in classes.tolist()])
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


def ranks(estimator, plan, table, previous):
    """The place of each class in the model (C,), which does not depend on its name; None where it is in ``classes_``.

    The quadrature points of a likelihood of several classes differ between classes. The most frequent class comes
    first; of equally frequent classes, the class of the earliest row.
    """
    if previous is not None:
        return getattr(estimator, "_class_ranks", None)
    is_open = plan.n_classes > 2 and plan.likelihood.averages_points and len(plan.kernels or ()) <= 1
    # A table of more rows is not put in an order of its own, and in a file only a part of it is seen.
    if not is_open or table.n_rows > plan.settings.batch_size:
        return None
    y = table.y[0].astype(int)
    seen, at = np.unique(y, return_index=True)
    first = np.full(plan.n_classes, len(y))
    first[seen] = at
    return np.argsort(np.lexsort((first, -np.bincount(y, minlength=plan.n_classes))))


def ranked(table, of_classes):
    """The table with the ranks of its labels."""
    if of_classes is None:
        return table
    if isinstance(table, svgp.LongTable):
        return table.mapped(lambda part: ranked(part, of_classes))
    return table._replace(y=of_classes[table.y.astype(int)].astype(float))


def by_class(estimator, values):
    """Values of the latent functions or the classes of the model, their first axis in the order of ``classes_``."""
    found = getattr(estimator, "_class_ranks", None)
    return values if found is None else values[found]
