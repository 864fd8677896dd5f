"""Checks of the arrays that metrics take, and the averages that they return."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_array, column_or_1d


def columns(**arrays):
    """Arrays of shape (N,) or (N, T) as finite numbers of shape (N, T); all must have the same shape."""
    found = {}
    for name, array in arrays.items():
        array = check_array(array, dtype=np.float64, ensure_2d=False, input_name=name)
        found[name] = array.reshape(len(array), -1)
    (first, expected), *others = found.items()
    for name, array in others:
        if array.shape != expected.shape:
            raise ValueError(
                f"{name} has {array.shape[0]} rows and {array.shape[1]} columns, but {first} has {expected.shape[0]} "
                f"and {expected.shape[1]}; give one value of {name} for each of {first}."
            )
    return list(found.values())


def positive(name, array):
    """Return ``array`` if all its elements are above zero."""
    bad = array[~(array > 0.0)]
    if bad.size:
        raise ValueError(
            f"{name} must be positive, but has the value {bad[0]:g}; a prediction without uncertainty has no density."
        )
    return array


def probability(name, value):
    """Return ``value`` if it lies strictly between 0 and 1."""
    if not (np.isscalar(value) and not isinstance(value, str) and 0.0 < value < 1.0):
        raise ValueError(f"{name}={value!r} must be a number strictly between 0 and 1.")
    return float(value)


def weights(sample_weight, n_rows):
    """Weights (N,) that are at least zero; None stays None."""
    if sample_weight is None:
        return None
    weight = column_or_1d(check_array(sample_weight, dtype=float, ensure_2d=False, input_name="sample_weight"))
    if len(weight) != n_rows or np.any(weight < 0.0) or not np.any(weight):
        raise ValueError(
            f"sample_weight must hold {n_rows} numbers of at least zero, not all of them zero; it has {len(weight)}, "
            f"from {weight.min():g} to {weight.max():g}."
        )
    return weight


def row_average(values, sample_weight):
    """The weighted average of values (N,), as a float."""
    return float(np.average(values, weights=weights(sample_weight, len(values))))


def output_average(values, sample_weight, multioutput):
    """The weighted average of values (N, T) over the rows: a float, or with "raw_values" one for each output."""
    if multioutput not in ("raw_values", "uniform_average"):
        raise ValueError(f"multioutput={multioutput!r} must be 'raw_values' or 'uniform_average'.")
    each = np.average(values, axis=0, weights=weights(sample_weight, len(values)))
    return each if multioutput == "raw_values" else float(each.mean())
