"""Checks of a regressor's data: X, y, the known values of the rows, and numbers that other likelihoods suit better."""

from __future__ import annotations

import bisect
import contextlib

import numpy as np
from sklearn.utils import check_consistent_length

from ... import svgp
from ..._backend.notices import Notice
from ..arguments.task import likelihood_of
from . import cells, encoding, inputs, mean_function
from .inputs import Targets

_DEFAULT = "gaussian"


def checked(estimator, X, y, sample_weight, known, streams):
    """X, the types of its columns, and the `Targets`.

    Parameters
    ----------
    estimator : NGDSVGPRegressor
    X, y, sample_weight
        Arguments of ``fit``.
    known : dict
        The other ones: "offset", and those of `known_of_rows`.
    streams : bool
        Whether this is a call of ``partial_fit``.
    """
    ignores_missing = estimator.missing_targets == "ignore"
    X, y = inputs.dense(estimator, X), inputs.with_missing(y, ignores_missing)
    is_long, X, y, sample_weight, *values = inputs.opened(X, y=y, sample_weight=sample_weight, **known)
    known = dict(zip(known, values, strict=True))
    # A stream keeps the shape of its first targets.
    goes_on = streams and estimator._previous(streams) is not None
    X, types, weight = encoding.of_fit(estimator, X, y, sample_weight, streams, is_long)
    given, y = y, inputs.targets(y, ignores_missing)
    check_consistent_length(X, y)
    single, columns = y.ndim == 1, inputs.like(X, "y", inputs.in_columns(y))
    offset = inputs.like(X, "offset", inputs.known("offset", known.pop("offset"), *columns.shape))
    weight = inputs.weights(weight, X)
    known_mean, offset = mean_function.of_fit(estimator, X, columns, weight, offset, goes_on)
    likelihood = likelihood_of(estimator._task, estimator.likelihood, _DEFAULT)
    attributes = {
        "_single_output": estimator._single_output if goes_on else single,
        "mean_function_": known_mean,
        "_output_scale": None,
        "_has_alpha": known.get("alpha") is not None or (goes_on and estimator._has_alpha),
    }
    known = inputs.like(X, "known", known_of_fit(likelihood, known, columns))
    of_y = columns, weight, inputs.column_types(given), _DEFAULT, 0, estimator.normalize_y
    return X, types, Targets(*of_y, attributes, offset, known, may_lack=goes_on)


@contextlib.contextmanager
def locate_impossible(likelihood, y, weight=None):
    """Context manager around a check of targets: its error names the first one that the likelihood refuses.

    Parameters
    ----------
    likelihood : Likelihood
    y : ndarray of shape (N, T), or Rows, of which no value is named
        As given; a value that is NaN was not checked.
    weight : array-like of shape (N,), optional
        Rows without weight were not checked.
    """
    try:
        yield
    except ValueError as error:
        found = _first_impossible(likelihood, y, weight) if isinstance(y, np.ndarray) else None
        if found is None:
            raise
        raise ValueError(found) from error


def _first_impossible(likelihood, y, weight):
    """Place, value and error of the first target that the likelihood refuses; None if it refuses none alone."""

    def refusal(n_values):
        try:
            likelihood.check_targets(values[:n_values][None])
        except ValueError as error:
            return str(error)
        return ""

    seen = ~np.isnan(y) & (True if weight is None else np.reshape(weight, (-1, 1)) != 0.0)
    places, values = np.argwhere(seen), y[seen]
    k = bisect.bisect_left(range(1, len(values) + 1), True, key=lambda n_values: bool(refusal(n_values)))
    if k == len(values):
        return None
    return f"{cells.at('y', places[k] if y.shape[1] > 1 else places[k][:1])}={values[k]:g}: {refusal(k + 1)}"


# Of an argument: what it holds, the likelihood that takes it, the least value, and whether it must be an integer.
_ARGUMENTS = {
    "alpha": ("known variances of Gaussian noise", "gaussian", 0.0, False),
    "trials": ("the numbers of trials of binomial counts", "binomial", 1.0, True),
}


def known_of_rows(likelihood, arguments, n_rows, n_targets):
    """What is known of each row, (n_rows, P n_targets), for the P quantities of ``likelihood.known``; or None.

    Parameters
    ----------
    likelihood : Likelihood
    arguments : dict
        By name; a value that is None is not given.
    n_rows, n_targets : int

    Returns
    -------
    known : ndarray, or Rows if a value is; None if nothing is given
        In the units of y.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    for name in given:
        if name not in likelihood.known:
            holds, takes = _ARGUMENTS[name][:2]
            raise ValueError(
                f"{name} holds {holds}, but likelihood {type(likelihood).__name__} has none; use "
                f"likelihood={takes!r}, or leave {name} out."
            )
    if not given:
        return None
    # Each likelihood takes one of the arguments.
    ((name, value),) = given.items()
    return inputs.known(name, value, n_rows, n_targets, *_ARGUMENTS[name][2:])


def known_of_fit(likelihood, arguments, columns):
    """The same for the rows of a fit with targets ``columns`` (N, T); without arguments what is known of all rows."""
    found = known_of_rows(likelihood, arguments, *columns.shape)
    everywhere = likelihood.known_everywhere(columns.shape[1])
    if found is None and everywhere is not None:
        found = np.broadcast_to(everywhere.T, (len(columns), len(everywhere)))
    if isinstance(found, np.ndarray) and isinstance(columns, np.ndarray):
        likelihood.given(found.T).check_rows(columns.T)
    return found


# The largest median of small counts, whose variance is at least about their mean; and the share of zeros among amounts.
_SMALL_COUNT, _VARIES, _ZEROS = 10.0, 0.85, 0.5
# Numbers this much smaller than the largest are zeros that were scaled and scaled back.
_NO_DIGIT = 1e-12


def of_table(estimator, fit):
    """Warnings of a single row, and of targets that are constant, or suit another likelihood than the default one.

    Parameters
    ----------
    estimator : NGDSVGPRegressor or NGDSVGPClassifier
    fit : preparation.Fit
    """
    if fit.previous is None and fit.some.n_rows == 1:
        details = "One row does not tell how y varies with X, or how large the noise is: the predicted deviations mean "
        details += "nothing. Give more rows."
        return [Notice("The fit has a single row (equal rows count as one).", details)]
    if fit.previous is not None:
        return []
    found = mean_function.told(estimator) + _of_constants(estimator, fit)
    if not (isinstance(estimator.likelihood, str) and fit.plan.likelihood.conjugate):
        return found
    y = fit.scales.y.backward(fit.some.sample.y.T)
    y = np.where(np.abs(y) < _NO_DIGIT * np.nanmax(np.abs(y), axis=0), 0.0, y)
    told = _each(y, better_likelihood)
    if not told:
        return found
    details = f"{told}. Gaussian noise also gives density to values that y cannot take."
    return [*found, Notice("Another likelihood suits y better than Gaussian noise.", details)]


def _each(y, say):
    """What is said of some of the outputs (the columns of ``y``), of others None; empty if of none."""
    which = " (output {})" if y.shape[1] > 1 else ""
    pairs = ((k, say(each[np.isfinite(each)])) for k, each in enumerate(y.T))
    return "; ".join(f"y{which.format(k)} {said}" for k, said in pairs if said is not None)


def _of_constants(estimator, fit):
    """A list: the warning of measurements that are all alike, if nothing else than y is known of the rows."""
    rows = fit.some.extremes if isinstance(fit.some, svgp.LongTable) else fit.some
    if fit.plan.n_classes or rows.has_offset or rows.has_known or estimator.mean_function is not None:
        return []
    y = fit.scales.y.backward(rows.y.T)
    told = _each(y, lambda each: f"is {each[0]:.6g} in all rows" if len(each) and np.ptp(each) == 0.0 else None)
    details = f"{told}: the model predicts this value everywhere. If that is not meant, see which column is given as y."
    return [Notice("y is constant.", details)] if told else []


def better_likelihood(y):
    """What a target (N,) looks like and the remedy, for a warning; None where Gaussian noise may suit it.

    Parameters
    ----------
    y : ndarray of shape (N,)
        In its own units, where it is not missing.
    """
    if not len(y) or np.any(y < 0.0) or np.all(y == y[0]):
        return None
    y = np.where(np.abs(y - np.rint(y)) <= 1e3 * _NO_DIGIT * y.max(), np.rint(y), y)
    if np.all((y == 0.0) | (y == 1.0)):
        return (
            "holds only zeros and ones. Use NGDSVGPClassifier, which predicts probabilities, or likelihood='binomial'"
        )
    if np.all(y == np.rint(y)):
        is_small = y.min() == 0.0 and np.median(y) <= _SMALL_COUNT and np.var(y) > _VARIES * np.mean(y)
        return "looks like small counts. Use likelihood='poisson' or 'negative_binomial'" if is_small else None
    if np.mean(y == 0.0) >= _ZEROS:
        return "is zero in most rows and positive in the others. Use likelihood='tweedie'"
    return None
