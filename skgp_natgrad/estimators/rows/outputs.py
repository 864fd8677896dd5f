"""Correlated outputs as rows of one: rows and targets in this form, and predictions in that of y.

A fit of correlated outputs stores the model of a single target, whose rows are (x, p) for each output p, and the affine
map ``_output_scale`` of each output to this target. So every method of predictions is that of one target at rows for
all outputs: `over_outputs` gives it these rows, and arranges what it returns by row and output.
"""

from __future__ import annotations

import copy
import functools
from inspect import signature

import numpy as np
from sklearn.utils import check_consistent_length

from . import encoding, inputs


def of(estimator):
    """The `Scale` of the correlated outputs of a fitted estimator; None of independent ones."""
    return getattr(estimator, "_output_scale", None)


def stacked(X, n_outputs):
    """The rows (N, D) with the number of the output as the last column, for each output in turn: (P N, D + 1)."""
    return np.column_stack([np.tile(X, (n_outputs, 1)), np.repeat(np.arange(n_outputs), len(X))])


def stacked_targets(targets, X, scale):
    """The rows (x, p) and the `Targets` of one output, of all that are not missing; and which these are (P, N)."""
    seen = ~np.isnan(targets.columns.T)

    def of_seen(values):
        return values.T[seen][:, None]

    offset = None if targets.offset is None else of_seen(targets.offset / scale.scale)
    known = None if targets.known is None else of_seen(targets.known / scale.scale**2)
    targets = targets._replace(
        columns=of_seen(scale.forward(targets.columns)),
        weight=np.broadcast_to(targets.weight, seen.shape)[seen],
        types=[np.dtype(float)],
        offset=offset,
        known=known,
        attributes=targets.attributes | {"_single_output": True},
        scale=False,
    )
    return stacked(X, len(seen))[seen.ravel()], targets, seen


def of_one(estimator):
    """The fitted estimator as that of one target at rows (x, p)."""
    found = copy.copy(estimator)
    vars(found).pop("feature_names_in_", None)
    n_columns = len(estimator._x_scale.scale)
    vars(found).update(_output_scale=None, mean_function_=None, encoding_=None, n_features_in_=n_columns)
    return found


def as_one(estimator, X, options):
    """The estimator as that of one target, its rows (x, p), and in ``options`` what is known of these rows."""
    rows, scale = encoding.further_rows(estimator, X), of(estimator)
    options |= _of_rows(estimator, options, rows, scale)
    return of_one(estimator), stacked(rows, len(scale.scale))


def over_outputs(*back):
    """Decorate a method of predictions, which for correlated outputs is called for one at rows (x, p).

    Parameters
    ----------
    *back : callable
        For each array that is returned: from values of rows (x, p), as an array (P, N, ...), the `Scale` of the
        outputs, and which y are given (P, N), to the units of y.
    """

    def decorate(method):
        @functools.wraps(method)
        def called(self, X, *arguments, **options):
            scale = of(self)
            if scale is None:
                return method(self, X, *arguments, **options)
            given = signature(method).bind(self, X, *arguments, **options)
            given.apply_defaults()
            options = dict(list(given.arguments.items())[2:])
            one, rows = as_one(self, X, options)
            found = method(one, rows, **options)
            found, kind = (found, type(found)) if isinstance(found, tuple) else ((found,), tuple)
            shape = len(scale.scale), len(rows) // len(scale.scale)
            shaped = (each.reshape(*shape, *each.shape[1:]) for each in found)
            seen = ~np.isnan(options["y"]).reshape(shape) if "y" in options else None
            values = [convert(each, scale, seen) for convert, each in zip(back, shaped, strict=False)]
            return kind(values) if len(values) > 1 else values[0]

        return called

    return decorate


def _of_rows(estimator, options, rows, scale):
    """The arguments that have a value for each row and output, for rows (x, p)."""
    found, shape = {}, (len(rows), len(scale.scale))
    for name, divided_by in (("offset", scale.scale), ("alpha", scale.scale**2)):
        value = inputs.known(name, options.get(name), *shape)
        if value is not None:
            found[name] = (np.broadcast_to(value, shape) / divided_by).T.ravel()
    if "y" in options:
        found["y"] = scale.forward(_columns(estimator, options["y"], rows, scale)).T.ravel()
    return found


def _columns(estimator, y, rows, scale):
    y = inputs.targets(y, estimator.missing_targets == "ignore")
    check_consistent_length(rows, y)
    y = y.reshape(len(rows), -1)
    if y.shape[1] != len(scale.scale):
        raise ValueError(
            f"y has {y.shape[1]} columns, but the regressor was fitted with {len(scale.scale)}; give the same number."
        )
    return y


def left_out(values, scale):
    """Residuals, deviations and log densities of rows (x, p), each (1, P N), in the units of y: (N, P) each."""
    residual, std, density = (each.reshape(len(scale.scale), -1) for each in values)
    return linear(residual, scale), linear(std, scale), by_row(density - np.log(scale.scale)[:, None], scale)


# From values (P, N, ...) of standardised outputs to those of y.


def by_row(values, scale, seen=None):
    """Values without a unit, (N, P, ...)."""
    return np.moveaxis(values, 0, 1)


def affine(values, scale, seen=None):
    """Values of y, (N, P, ...)."""
    return by_row(values * _like(scale.scale, values) + _like(scale.offset, values), scale)


def linear(values, scale, seen=None):
    """Deviations (N, P); or the covariances (N, N, P) of each output, of (P, N, P N)."""
    if values.ndim == 2:
        return by_row(values * scale.scale[:, None], scale)
    n_outputs, n_rows, _ = values.shape
    each = np.arange(n_outputs)
    own = values.reshape(n_outputs, n_rows, n_outputs, n_rows)[each, :, each]
    return np.moveaxis(own * _like(scale.scale**2, own), 0, -1)


def slopes(values, scale, seen=None):
    """Derivatives (N, P, D), without that in the output's number."""
    return by_row((values * _like(scale.scale, values))[..., :-1], scale)


def log_density(values, scale, seen):
    """The log density (N,) of the outputs that are given."""
    return (values - np.where(seen, np.log(scale.scale)[:, None], 0.0)).sum(0)


def _like(numbers, values):
    return np.reshape(numbers, (-1, *(1,) * (values.ndim - 1)))
