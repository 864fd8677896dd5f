"""Rows of which some numbers are missing: left out of a fit, and predicted as a mixture over what the values may be.

What is missing in a row is taken from its donors: rows of the fit for which the columns that are there let expect about
the same values (predictive mean matching, Little 1988). Which rows these are depends on the row alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.base import is_classifier
from sklearn.linear_model import RidgeCV

from ..._backend.notices import Notice
from ..._backend.rows import Rows
from . import inputs

# Rows of which a mixture is made, and rows among which they are chosen.
N_DONORS, KEPT_ROWS = 32, 2000
# The least share of complete rows that are enough for a fit, so that the others are left out of it.
FEWEST_COMPLETE = 0.25
# The share of rows that lack numbers from which on a warning says so.
_MANY = 0.5
# Donors differ by so many deviations of what is missing, or are the nearest ones.
_ALIKE = 0.5
# Penalties of the regression of what is missing, among which rows that are left out of it choose; the last leaves
# the mean.
_PENALTIES = (1.0, 10.0, 100.0, 1000.0, 1e12)
# Rows whose distances to all donors are held at a time.
_BLOCK = 256


class Expansion(NamedTuple):
    """Complete rows, of which each row of a table has one or, where it is not complete, one for each donor.

    Attributes
    ----------
    rows : ndarray of shape (L, E)
    of : ndarray of shape (L,)
        The row of the table to which each belongs.
    first, count : ndarray of shape (N,)
        Where those of each row begin, and their number.
    """

    rows: np.ndarray
    of: np.ndarray
    first: np.ndarray
    count: np.ndarray

    def mean(self, values):
        """The mean (N, ...) of values (L, ...) over the donors of each row."""
        return np.add.reduceat(values, self.first, axis=0) / _like(self.count, values)

    def log_mean(self, values):
        """The logarithm of the mean of the exponentials."""
        top = np.maximum.reduceat(values, self.first, axis=0)
        top = np.where(np.isfinite(top), top, 0.0)
        with np.errstate(divide="ignore"):
            return top + np.log(self.mean(np.exp(values - top[self.of])))

    def moments(self, mean, std):
        """Mean and standard deviation (N, ...) of the mixture of distributions with these moments (L, ...)."""
        middle = self.mean(mean)
        return middle, np.sqrt(self.mean(std**2 + (mean - middle[self.of]) ** 2))

    def chosen(self, position):
        """The rows, and which of these each draw takes: draws (N, S) take the donor of this position, below one."""
        index = self.first[:, None] + np.floor(position * self.count[:, None]).astype(int)
        used, place = np.unique(index, return_inverse=True)
        return used, place.reshape(index.shape)


def _like(numbers, values):
    return numbers.reshape(-1, *(1,) * (values.ndim - 1))


# -- in a fit -----------------------------------------------------------------------------


def of_fit(estimator, rows, sample_weight, streams, y):
    """Complete rows of numbers and the weights of a fit: rows with missing numbers count zero if enough are complete.

    The rows of a first fit, as they are, become donors. Of a label that no complete row has one row stays.
    ``_n_lacking`` has the `Lacking` rows, in a stream those of all its parts.
    """
    first = estimator._previous(streams) is None
    before = Lacking() if first or not streams else estimator._n_lacking
    if first:
        estimator._donors = None
    estimator._n_lacking, found = Lacking(), estimator.encoding_
    if found is None:
        return rows, sample_weight
    weight = inputs.weights(sample_weight, rows)
    used = weight > 0.0
    if first:
        estimator._donors = rows[some(np.flatnonzero(used), KEPT_ROWS)]
    # Later rows may all lack a column that the fit has.
    lacks = (lacking(rows) if first else np.isnan(rows) & ~np.isnan(estimator._donors).all(0)).any(1)
    complete = ~lacks
    if is_classifier(estimator) and np.shape(y) == complete.shape and lacks.any():
        labels = (y.whole() if isinstance(y, Rows) else np.asarray(y)).tolist()
        seen = {labels[i] for i in np.flatnonzero(complete & (weight > 0.0))}
        others = {labels[i]: i for i in np.flatnonzero(~complete & (weight > 0.0)) if labels[i] not in seen}
        complete[list(others.values())] = True
    out = ~complete if found.leaves_out and np.any(complete & used) else np.zeros_like(lacks)
    counts = (np.count_nonzero(used & each) for each in (out, lacks & ~out, np.ones_like(lacks)))
    now = estimator._n_lacking = Lacking(*map(sum, zip(before, counts, strict=True)))
    if now.are_many and not before.are_many:
        _tell_many(estimator, now)
    if not np.isnan(rows).any():
        return rows, sample_weight
    return found.filled(rows), np.where(out, 0.0, weight) if out.any() else sample_weight


class Lacking(NamedTuple):
    """Numbers of rows that lack numbers: left out of a fit, or filled in; and of all rows."""

    left_out: int = 0
    filled: int = 0
    rows: int = 0

    @property
    def are_many(self):
        """Whether most rows lack numbers."""
        return self.left_out + self.filled > _MANY * self.rows

    def said(self, encoding):
        """A text for each kind of rows that there are, with what is done with them."""
        has_columns = encoding is not None and not encoding.leaves_out
        means = f"filled in by means{', with columns that say where' if has_columns else ''}"
        counts = {"left out of the fit": self.left_out, means: self.filled}
        return [f"{n} of {self.rows} rows lack numbers in X, {done}" for done, n in counts.items() if n]


def said(estimator):
    """Lines for `summary`: how many rows lack numbers, and what is done with them; how a mean function predicts."""
    return (*estimator._n_lacking.said(estimator.encoding_), *getattr(estimator, "_of_mean", ()))


def _tell_many(estimator, counts):
    model = f"{type(estimator).__name__}()"
    details = f"{'; '.join(counts.said(estimator.encoding_))}. Predictions average over what may be missing."
    if counts.left_out:
        details += (
            " If that leaves too few rows, leave columns with many gaps out of X, or put an imputer of numbers before "
            f"the model: make_pipeline(IterativeImputer(), {model}), after 'from sklearn.experimental import "
            "enable_iterative_imputer'. It learns from all rows, but takes what was filled in for certain: compare "
            "held-out log densities."
        )
    Notice("More than half of the rows lack numbers.", details).give()


def some(rows, n):
    """At most ``n`` of some rows, evenly spaced."""
    return rows if len(rows) <= n else rows[np.linspace(0, len(rows) - 1, n).astype(int)]


def lacking(rows):
    """Where numbers of rows (N, E) are missing: a column that is so in all rows tells nothing."""
    found = np.isnan(rows)
    return found & ~found.all(0)


def are_enough(values):
    """Whether so many rows of numbers (N, D) are complete that the others may be left out."""
    return not len(values) or float(np.mean(~lacking(values).any(1))) >= FEWEST_COMPLETE


# -- in predictions -------------------------------------------------------------------------


def expanded(estimator, table):
    """The `Expansion` of rows of numbers (N, E), NaN where missing."""
    pool, of_encoding = estimator._donors, estimator.encoding_
    lacks = np.isnan(table)
    # That a number is missing is said of no complete row.
    table = np.where(lacks.any(1)[:, None] & of_encoding.says_where, 0.0, table)
    unseen = lacks & np.isnan(pool).all(0)
    table, lacks = np.where(unseen, of_encoding.filled(table), table), lacks & ~unseen
    patterns, which = np.unique(lacks, axis=0, return_inverse=True)
    which = which.ravel()
    donated, count = {}, np.ones(len(table), int)
    for k in np.flatnonzero(patterns.any(1)):
        of_pattern = np.flatnonzero(which == k)
        donated[k] = of_pattern, _donated(pool, table[of_pattern], patterns[k], of_encoding)
        count[of_pattern] = donated[k][1].shape[1]
    first, of = np.cumsum(count) - count, np.repeat(np.arange(len(table)), count)
    rows = table[of]
    for k, (of_pattern, values) in donated.items():
        places = first[of_pattern][:, None] + np.arange(values.shape[1])
        rows[places.ravel()[:, None], np.flatnonzero(patterns[k])] = values.reshape(-1, values.shape[2])
    return Expansion(rows, of, first, count)


def _donated(pool, rows, lacks, of_encoding):
    """The values (N, m, q) that donors have in the ``q`` columns in which rows (N, E) of one pattern lack theirs."""
    givers = pool[~np.isnan(pool[:, lacks]).any(1)]
    if not len(givers):
        # No row has all of these columns: each is taken from rows of its own.
        each = [_donated(pool, rows, np.arange(len(lacks)) == j, of_encoding) for j in np.flatnonzero(lacks)]
        n = max(one.shape[1] for one in each)
        return np.concatenate([one[:, np.arange(n) % one.shape[1]] for one in each], axis=2)
    others = ~(lacks | of_encoding.says_where)
    values = givers[:, lacks]
    spread = values.std(0)
    scale = np.where(spread > 0.0, spread, 1.0)
    known = [of_encoding.filled(each)[:, others] for each in (givers, rows)]
    centre, width = known[0].mean(0), known[0].std(0)
    known = [_features((each - centre) / np.where(width > 0.0, width, 1.0)) for each in known]
    expected, of_rows, error = _expected(*known, (values - values.mean(0)) / scale)
    order = np.argsort(_along(values / scale), kind="stable")
    expected, values, n = expected[order] / error, values[order], min(N_DONORS, len(order))
    found = np.empty((len(rows), n), int)
    for start in range(0, len(rows), _BLOCK):
        part = of_rows[start : start + _BLOCK] / error
        distance = np.square(part[:, None] - expected).mean(2)
        found[start : start + _BLOCK] = [_nearest(each, n) for each in distance]
    return values[found]


def _features(Z):
    """Columns and their squares."""
    return np.hstack([Z, np.square(Z) - 1.0])


def _expected(Z, Z_rows, targets):
    """What a ridge regression expects of targets (n, q) at rows Z (n, p) and at others; and its error (q,).

    Constants are left out: what is expected is only compared. From no column, or a single row, all is alike.
    """
    if not Z.shape[1] or len(Z) == 1:
        return np.zeros_like(targets), np.zeros((len(Z_rows), targets.shape[1])), np.ones(targets.shape[1])
    found = RidgeCV(_PENALTIES, store_cv_results=True).fit(Z, targets)
    errors = found.cv_results_[..., list(_PENALTIES).index(found.alpha_)]
    error = np.sqrt(np.maximum(errors.reshape(len(Z), -1).mean(0), 1e-12))
    # Row by row: a product of matrices would round by the number of rows.
    at = [np.column_stack([(rows * slope).sum(1) for slope in np.atleast_2d(found.coef_)]) for rows in (Z, Z_rows)]
    return *at, error


def _along(values):
    """Values (n, q) along the direction in which they vary most (n,)."""
    if 1 in values.shape:
        return values[:, 0]
    return values @ np.linalg.eigh(np.atleast_2d(np.cov(values.T)))[1][:, -1]


def _nearest(distance, n):
    """The ``n`` nearest donors; of more that are alike, some that are evenly spaced in what they give."""
    alike = np.flatnonzero(distance <= _ALIKE**2)
    if len(alike) > n:
        return alike[((np.arange(n) + 0.5) * len(alike) / n).astype(int)]
    return np.sort(np.argsort(distance, kind="stable")[:n])
