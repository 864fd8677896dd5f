"""Checks of a regressor's data: X, y and the known values of the rows."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import validate_data

from ..arguments.task import likelihood_of
from . import inputs, known_parts, long_tables, mean_function
from .targets import Targets

_DEFAULT = "gaussian"


def checked(estimator, X, y, sample_weight, known, streams):
    """X, the types of its columns, and the `Targets`.

    Parameters
    ----------
    estimator : NGDSVGPRegressor
    X, y, sample_weight
        Arguments of ``fit``.
    known : dict
        The other ones: "offset", and those of `known_parts`.
    streams : bool
        Whether this is a call of ``partial_fit``.
    """
    inputs.refuse_sparse(estimator, X)
    y = inputs.with_missing(y, estimator.missing_targets == "ignore")
    is_long, X, y, sample_weight, *values = long_tables.opened(X, y=y, sample_weight=sample_weight, **known)
    known, of_rows = dict(zip(known, values, strict=True)), _of_files if is_long else _in_memory
    return of_rows(estimator, X, y, sample_weight, known, streams)


def _in_memory(estimator, X, y, weight, known, streams):
    first, given = estimator._previous(streams) is None, (X, y)
    ignores_missing = estimator.missing_targets == "ignore" and y is not None
    with inputs.locate(X=X, y=y, may_lack=ignores_missing):
        if ignores_missing:
            X, y = validate_data(estimator, X, dtype=np.float64, reset=first), inputs.targets(y, True)
            check_consistent_length(X, y)
        else:
            X, y = validate_data(estimator, X, y, dtype=np.float64, multi_output=True, y_numeric=True, reset=first)
            y = inputs.targets(y, False)
    columns, types = y.reshape(len(y), -1), inputs.column_types(given[1])
    offset = inputs.known("offset", known.pop("offset"), *columns.shape)
    targets = _targets(estimator, X, columns, weight, types, y.ndim == 1, offset, known, streams)
    return X, inputs.column_types(given[0]), targets


def _of_files(estimator, X, y, weight, known, streams):
    """The same for many rows, which are checked as they are read."""
    X, types = long_tables.columns_of(estimator, X, y, reset=estimator._previous(streams) is None)
    y, types_of_y, single = long_tables.numbers_of_y(y, len(X), estimator.missing_targets == "ignore")
    offset = long_tables.known("offset", known.pop("offset"), *y.shape)
    weight = long_tables.weights(weight, len(X))
    return X, types, _targets(estimator, X, y, weight, types_of_y, single, offset, known, streams)


def _targets(estimator, X, columns, weight, types, single, offset, known, streams):
    likelihood = likelihood_of(estimator._task, estimator.likelihood, _DEFAULT)
    # A stream keeps the shape of its first targets.
    goes_on = streams and estimator._previous(streams) is not None
    known_mean = mean_function.of_fit(estimator, X, columns, weight, offset, goes_on)
    single = estimator._single_output if goes_on else single
    return Targets(
        columns=columns,
        weight=weight,
        types=types,
        default_likelihood=_DEFAULT,
        n_classes=0,
        scale=estimator.normalize_y,
        attributes={"_single_output": single, "mean_function_": known_mean},
        offset=mean_function.plus_mean(known_mean, X, offset, columns.shape[1]),
        known=known_parts.of_fit(likelihood, known, columns),
        may_lack=goes_on,
    )
