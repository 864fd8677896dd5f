"""The classes of a classifier, their weights, and their order if they are levels: stated, or else sorted."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ... import likelihoods, svgp
from ..._backend import processes
from ..._backend import rows as _rows
from ..._backend.notices import Notice
from ..._backend.rows import Rows
from ..arguments import checks
from . import cells, inputs

# So many different numbers, with fewer rows of each than this on average, look like a quantity.
_MANY, _FEW_OF_EACH = 20, 4


def of_fit(estimator, y, previous, levels=None):
    """The labels of ``y``, of all processes, sorted; or all ``levels``. A warm start needs those of the previous fit.

    ``levels`` are those that are stated: see `stated_levels`.
    """
    labels = np.unique(y)
    if processes.sharing(estimator.n_devices) > 1:
        labels, levels = zip(*processes.exchanged((labels, levels)), strict=True)
        labels, levels = np.unique(np.concatenate(labels)), levels_of_all(levels)
    if levels is None and previous is not None and _same(labels, estimator.classes_):
        # No other order is stated than that of the previous fit.
        return estimator.classes_
    classes = in_order(labels, levels)
    if previous is not None and not np.array_equal(classes, estimator.classes_):
        raise ValueError(
            f"warm_start=True, but y has the classes {classes!r}, and the previous fit had {estimator.classes_!r}; "
            "set warm_start=False to start anew."
        )
    warn_of_taken(estimator, classes, levels)
    return classes


def of_stream(estimator, y, classes, previous, levels=None):
    """The labels of a stream, sorted or in the order of ``levels``, which its first call determines."""
    if isinstance(estimator.class_weight, str):
        raise ValueError(
            f"class_weight={estimator.class_weight!r} depends on all rows, but partial_fit sees only a part of them; "
            "give a dict of label to weight."
        )
    named = None if classes is None else labels_named("classes", classes)
    levels = levels_of_named(estimator, levels, classes)
    known = in_order(y if named is None else named, levels) if previous is None else estimator.classes_
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
        warn_of_taken(estimator, known, levels)
    else:
        check_as_before(levels, known)
    return known


def _same(labels, classes):
    return np.array_equal(np.unique(labels), np.sort(classes))


def by_label(y, weight):
    """The sorted labels of a table, and the sum of the weights of each."""
    totals, blocks = {}, _rows.slices(len(y)) if isinstance(y, Rows) else [(0, len(y))]
    y, weight = _rows.rows_of("y", y), _rows.rows_of("sample_weight", weight)

    def of_block(ends):
        labels, weights = y.read(*ends), weight.read(*ends)
        with cells.counted_from(ends[0]), cells.locate(labels):
            inputs.check_labels(labels)
        values, position = np.unique(labels, return_inverse=True)
        return values.tolist(), np.bincount(position, weights)

    for values, sums in _rows.ahead(of_block, blocks):
        for value, total in zip(values, sums.tolist(), strict=True):
            totals[value] = totals.get(value, 0.0) + total
    labels = np.unique(np.array(list(totals), dtype=y.dtype))
    return labels, np.array([totals[label] for label in labels.tolist()])


def encoded(y, weight, classes, factor):
    """Positions of labels (N, 1), and weights multiplied by the factor of each class (N,)."""

    def position(labels):
        return positions(classes, labels).reshape(-1, 1).astype(float)

    def weighted(labels, weight):
        return weight * factor[positions(classes, labels)]

    return _rows.mapped(position, y, shape=(len(y), 1)), _rows.mapped(weighted, y, weight, shape=(len(y),))


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
    each = ((f"class_weight[{label!r}]", given.get(label, 1.0)) for label in classes.tolist())
    factors = np.array([checks.of_type(name, value, float, least=0.0) for name, value in each])
    # As in scikit-learn: class_weight may name classes that a fold lacks, if it names all classes of the fold.
    unknown, missing = set(given) - set(classes.tolist()), set(classes.tolist()) - set(given)
    if unknown and missing:
        raise ValueError(
            f"class_weight={given!r} names {sorted(unknown, key=str)}, which do not occur in y, but not "
            f"{sorted(missing, key=str)}; use the labels of y, which are {classes.tolist()}."
        )
    if np.any(weight) and not np.any(weight * factors[position]):
        raise ValueError(
            f"class_weight={given!r} gives all rows of y the weight zero; give at least one of "
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
    values = table.mean_function
    values = values if values is None else values[np.argsort(of_classes)]
    return table._replace(y=of_classes[table.y.astype(int)].astype(float), mean_function=values)


def by_class(estimator, values):
    """Values of the latent functions or the classes of the model, their first axis in the order of ``classes_``."""
    found = getattr(estimator, "_class_ranks", None)
    return values if found is None else values[found]


def ordered_by_type(y):
    """The levels of an ordered categorical column from the lowest to the highest, as a list; None of any other.

    They are those of the type: pandas' ordered Categorical and Polars' Enum, also of a frame with one column. A level
    that occurs in no row is among them.
    """
    kinds = list(y.dtypes) if hasattr(y, "columns") and hasattr(y, "dtypes") else [getattr(y, "dtype", None)]
    levels = getattr(kinds[0], "categories", None) if len(kinds) == 1 else None
    # Polars' Enum is ordered by definition, and neither package is imported here.
    is_ordered = getattr(kinds[0], "ordered", False) or type(kinds[0]).__name__ == "Enum"
    return list(levels) if is_ordered and levels is not None else None


def positions(classes, labels):
    """The positions of labels among distinct ``classes``, in any order; of a label that is none of them, any."""
    order = np.argsort(classes)
    found = np.searchsorted(classes, labels, sorter=order)
    return order[np.minimum(found, len(order) - 1)]


def stated_levels(estimator, y):
    """The levels that the likelihood or the type of ``y`` states, from the lowest, as a list.

    None if neither does, or if the labels of this likelihood have no order.
    """
    likelihood = _ordered_likelihood(estimator)
    levels = getattr(likelihood, "levels", None)
    if levels is None:
        return ordered_by_type(y) if likelihood is not None else None
    name = f"likelihood {type(likelihood).__name__}: levels"
    levels = labels_named(name, levels).tolist()
    if len(set(levels)) < max(len(levels), 2):
        raise ValueError(f"{name}={levels!r} must name two or more levels, each once, the lowest first.")
    return levels


def _ordered_likelihood(estimator):
    """The likelihood, if its classes are levels in an order; one that is not valid is refused elsewhere."""
    given = estimator.likelihood
    if isinstance(given, str) and given in likelihoods.names("classification"):
        given = likelihoods.by_name(given)
    return given if getattr(given, "ordered", False) else None


def levels_of_named(estimator, levels, classes):
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


def levels_of_all(stated):
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


def warn_of_taken(estimator, classes, levels):
    """Give a UserWarning that strings are taken in alphabetical order, if no order is given."""
    if levels is not None or _ordered_likelihood(estimator) is None or not _are_strings(classes.tolist()):
        return
    details = (
        f"They are {' < '.join(map(repr, classes.tolist()))}. Give the order by likelihood=Ordinal(levels=[...]), the "
        "lowest level first, or give y as an ordered Categorical of pandas or an Enum of Polars."
    )
    Notice("The order of the labels is not given, and they are taken in alphabetical order.", details).give()


def warn_of_numbers(estimator, classes, n_rows):
    """Give a UserWarning that labels look like a quantity: many numbers, few rows of each."""
    are_many = classes.dtype.kind in "iuf" and len(classes) >= _MANY and n_rows < _FEW_OF_EACH * len(classes)
    if not are_many or _ordered_likelihood(estimator) is not None:
        return
    details = (
        f"y has {len(classes)} different numbers in {n_rows} rows. If they measure something, use NGDSVGPRegressor, or "
        "put them in a few ordered groups for likelihood='ordinal'; if they are names, give them as strings. The fit "
        "takes time with each class."
    )
    Notice("The labels look like a quantity, not like classes.", details).give()


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


def labels_named(name, labels):
    """The labels that an argument names, as an array: of one kind, and none of them missing."""
    found = np.asarray(labels)
    each = list(labels) if found.ndim == 1 else [labels]
    of_one_kind = found.ndim == 1 and len({isinstance(label, str) for label in each}) <= 1
    is_whole = found.dtype.kind != "f" or np.array_equal(found, np.floor(found))
    if not (of_one_kind and is_whole and all(map(cells.is_label, each))):
        raise ValueError(f"{name}={each!r} must be labels, all of them strings or all whole numbers, and none missing.")
    return found


def _are_strings(labels):
    return all(isinstance(label, str) for label in labels)
