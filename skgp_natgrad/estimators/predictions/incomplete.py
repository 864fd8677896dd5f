"""Predictions of rows of which some numbers are missing: mixtures over what the values may be.

Every method of predictions is called for complete rows, of which an incomplete row has one for each of its donors, and
a `fold` makes one value of theirs. What the fit's own incomplete rows tell beyond that moves the mixture: `selection`.
"""

from __future__ import annotations

import functools
from inspect import signature

import numpy as np
from sklearn.utils import check_consistent_length

from ..._backend import rows as _rows
from ..arguments import checks
from ..rows import cells, donors, encoding, inputs
from . import selection

# Arguments that may have a value for each row.
_ALIGNED = "y", "offset", "alpha", "trials"


class Incomplete:
    """Rows of numbers (N, E) of which some are not complete, and the options of a method of predictions.

    Attributes
    ----------
    estimator : object
        The fitted one.
    table : ndarray of shape (N, E)
    expansion : donors.Expansion
    rows : Encoded
        Those of the expansion.
    """

    def __init__(self, estimator, table, options):
        self.estimator, self.table, self._options = estimator, table, options
        check_consistent_length(table, *(options[name] for name in _ALIGNED if np.ndim(options.get(name))))
        self.expansion = donors.expanded(estimator, table)
        self.rows = self.expansion.rows.view(encoding.Encoded)

    def options(self, **other):
        """The options for the rows of the expansion."""
        found = self._options | other
        of_rows = {name: found[name] for name in _ALIGNED if np.ndim(found.get(name))}
        return found | {name: np.asanyarray(each)[self.expansion.of] for name, each in of_rows.items()}

    @functools.cached_property
    def _moves(self):
        """What is added to the mixture, times a factor (N, T); None if it stays."""
        if not selection.moves(self.estimator, np.isnan(self.table)):
            return None
        # The process is one of what is predicted without the offset, which y has beside it.
        known = {name: each for name, each in self.options().items() if name in ("alpha", "trials")}
        found = self.estimator.predict(self.rows, return_std=True, **known)
        mean, std = self.expansion.moments(*(each.reshape(len(each), -1) for each in found))
        added, factor = selection.shift(self.estimator, self.table, mean, std)
        offset = inputs.known("offset", self._options.get("offset"), *mean.shape)
        return added if offset is None else added + (1.0 - factor) * offset, factor

    def moved(self, values):
        """Values of y (N, ...) of the mixture as those of the rows."""
        if self._moves is None:
            return values
        shift, factor = (self._shaped(each, values) for each in self._moves)
        return factor * values + shift

    def stretched(self, deviation):
        """Deviations (N, ...) of the mixture as those of the rows."""
        return deviation if self._moves is None else deviation * self._shaped(self._moves[1], deviation)

    def moved_back(self, y):
        """Values of y as the mixture has them."""
        if self._moves is None:
            return y
        y = inputs.targets(y, self.estimator.missing_targets == "ignore")
        shift, factor = (self._shaped(each, y) for each in self._moves)
        return (y - shift) / factor

    def moved_back_at(self, y, rows, k):
        """Values (n,) of the output ``k`` at some rows as the mixture has them."""
        return y if self._moves is None else (y - self._moves[0][rows, k]) / self._moves[1][rows, k]

    def log_factors(self, y):
        """The logarithms of the factors of the outputs that are given, summed (N,)."""
        if self._moves is None:
            return 0.0
        return np.where(np.isnan(np.reshape(y, self._moves[1].shape)), 0.0, np.log(self._moves[1])).sum(1)

    def _shaped(self, each, values):
        """A number of each row and output (N, T) beside values (N, ...) or (N, T, ...)."""
        found = each[:, 0] if self.estimator._single_output else each
        return found.reshape(*found.shape, *(1,) * (np.ndim(values) - found.ndim))

    def refuse(self, what):
        """Refuse rows that are not complete."""
        row, column = np.argwhere(np.isnan(self.table))[0]
        owner = int(self.estimator.encoding_.owner[column])
        name = encoding.column_names(self.estimator)[owner]
        raise ValueError(
            f"X[{row + cells.first_row()}, {owner}] (column {name!r}) is missing, and {what}; fill the value in, or "
            "leave the row out."
        )


def over_donors(fold):
    """Decorate a method of predictions at the rows of X, so that it is called for complete rows.

    Parameters
    ----------
    fold : callable
        Of the method, the `Incomplete` rows and the method's options: what it returns for these rows.
    """

    def decorate(method):
        @functools.wraps(method)
        def called(self, X, *arguments, **options):
            if getattr(self, "encoding_", None) is None:
                return method(self, X, *arguments, **options)
            given = signature(method).bind(self, X, *arguments, **options)
            given.apply_defaults()
            options = dict(list(given.arguments.items())[2:])
            call, rows = functools.partial(method, self), encoding.further_rows(self, X)
            if not np.isnan(rows).any():
                return call(rows.view(encoding.Encoded), **options)
            return fold(call, Incomplete(self, rows, options), options)

        return called

    return decorate


def are_there(estimator, X):
    """Whether some rows of a prediction are not complete."""
    if getattr(estimator, "encoding_", None) is None:
        return False
    X = _rows.rows_of("X", X).whole() if _rows.is_file_like(X) else X
    return bool(np.isnan(encoding.further_rows(estimator, X)).any())


# -- what makes one value of those of the donors ---------------------------------------------


def mean_and_deviation(call, at, options):
    """The fold of means, with or without deviations."""
    if options["return_cov"]:
        at.refuse("return_cov=True takes complete rows (return_std=True and sample_y take others, too)")
    found = call(at.rows, **at.options())
    moves = selection.is_of_latent(at.estimator)
    if not isinstance(found, tuple):
        mean = at.expansion.mean(found)
        return at.moved(mean) if moves else mean
    mean, std = at.expansion.moments(*found)
    return type(found)((at.moved(mean), at.stretched(std)) if moves else (mean, std))


def log_density(call, at, options):
    """The fold of log densities of y."""
    y = at.moved_back(options["y"])
    return at.expansion.log_mean(call(at.rows, **at.options(y=y))) - at.log_factors(y)


def probability(call, at, options):
    """The fold of P(Y <= y)."""
    return at.expansion.mean(call(at.rows, **at.options(y=at.moved_back(options["y"]))))


def draws(call, at, options):
    """The fold of draws of y: each is from the prediction of one donor of every row."""
    n_samples = checks.of_type("n_samples", options["n_samples"], int, least=1)
    random_state = options["random_state"]
    random_state = checks.random_numbers(random_state)
    used, place = at.expansion.chosen(random_state.uniform(size=(len(at.table), n_samples)))
    of_rows = {name: each[used] for name, each in at.options().items() if name in _ALIGNED and np.ndim(each)}
    found = call(at.rows[used], **options | of_rows | {"random_state": random_state})
    found = np.moveaxis(found, -1, 1)[place, np.arange(n_samples)]
    return at.moved(np.moveaxis(found, 1, -1))


def refused(what):
    """The fold of what is defined for complete rows alone."""
    return lambda call, at, options: at.refuse(what)


def class_probabilities(call, at, options):
    """The fold of probabilities of classes."""
    return selection.recalibrated(at.estimator, at.table, at.expansion.mean(call(at.rows)))


def log_class_probabilities(call, at, options):
    """The fold of their logarithms."""
    found = at.expansion.log_mean(call(at.rows))
    with np.errstate(divide="ignore"):
        recalibrated = np.log(selection.recalibrated(at.estimator, at.table, np.exp(found)))
    known = selection.has_seen(at.estimator, np.isnan(at.table))
    return np.where(known[:, None], recalibrated, found)


def labels(call, at, options):
    """The fold of draws of labels: by the probabilities of an incomplete row, each independent of all others."""
    n_samples = checks.of_type("n_samples", options["n_samples"], int, least=1)
    random_state = options["random_state"]
    random_state = checks.random_numbers(random_state)
    lacks = np.isnan(at.table).any(1)
    p = at.estimator.predict_proba(at.table[lacks].view(encoding.Encoded))
    u = random_state.uniform(size=(len(p), n_samples))
    found = np.empty((len(at.table), n_samples), at.estimator.classes_.dtype)
    position = (u[:, :, None] > np.cumsum(p, axis=1)[:, None, :-1]).sum(2)
    found[lacks] = at.estimator.classes_[position]
    if not lacks.all():
        rows = at.table[~lacks].view(encoding.Encoded)
        found[~lacks] = call(rows, **options | {"random_state": random_state})
    return found
