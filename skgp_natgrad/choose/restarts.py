"""Several starts for the hyperparameters of a given kernel, compared by the evidence of few rows.

The evidence has many maxima: one for each period that the rows hardly tell from the true one, and, if the function
varies much faster than the first lengthscales, one that explains everything as noise. The search from the given values
comes first. Another start is followed if a search from it on few rows reaches a clearly larger evidence; the
evidence of all rows then decides.
"""

from __future__ import annotations

import copy
import dataclasses

import numpy as np

from .._backend.flat import flat, rebuilt
from ..kernels import algebra
from ..kernels.base import Kernel
from ..kernels.linear_transform import JaxLinearTransform
from . import evidence
from .minimum import TO_THE_END
from .periods import likely_periods
from .scale import fit_scale
from .view import starts_of

# Rows whose evidence compares starts; the number of best starts, without and with periods.
_ROWS_OF_RESTARTS, _BEST, _BEST_OF_PERIODS = 192, 2, 3
# Another start must be better than the given values, or than a constant, by more than so many nats.
_CLEARLY = 2.0
# The largest distance of a random start from the given value, in logarithms.
_FAR = np.log(1e10)


def is_periodic(kernel):
    """Whether a kernel of scikit-learn has a period that is not fixed."""
    return any(each.name.endswith("periodicity") and not each.fixed for each in kernel.hyperparameters)


class Starts:
    """The starts for a kernel, from which the evidence of some rows is maximised.

    Parameters
    ----------
    start : evidence.Hyperparameters
        The given values.
    bounds : pair of Hyperparameters
    rows : Table
        Targets around zero.
    log_prior : callable
        See `evidence.maximise`.
    n_restarts : int or "auto"
        Zero: only the given values. A number: also so many random starts between the bounds.
    random_state : numpy.random.RandomState
        Copied, so that later draws do not depend on the number of restarts.
    """

    def __init__(self, start, bounds, rows, log_prior, n_restarts, random_state):
        self._start, self._rows, self._log_prior, self._n_restarts = start, rows, log_prior, n_restarts
        self._bounds, self._random_state = bounds, copy.deepcopy(random_state)
        self._low, self._high = map(flat, bounds)
        self._given = np.clip(flat(start), self._low, self._high)
        self._places = list(places(start.kernel, np.arange(rows.X.shape[1])))
        n_rows = len(rows.X)
        few = self._random_state.permutation(n_rows)[:_ROWS_OF_RESTARTS]
        self._few = rows if n_rows <= _ROWS_OF_RESTARTS else rows.rows(np.sort(few))
        self._variance = max(float(np.nanmean(rows.y**2)), np.finfo(float).tiny)

    def search(self):
        """The maximum from the given values, or one of clearly larger evidence from another start.

        Returns
        -------
        best : evidence.Best
        is_other : bool
            Whether another start than the given values led to it.
        """
        found = self._maximised(flat(self._start), self._rows, **TO_THE_END)
        if self._n_restarts == 0 or not np.any(self._low < self._high):
            return found, False
        rows, starts = self._few, self._others()
        if not found.evidence > evidence.of_noise(self._rows) + _CLEARLY:
            # Few rows may look like noise even if all rows do not.
            rows, starts = self._rows, starts[:1]
        tried = [self._maximised(x, rows) for x in [*starts, *self._random()]]
        if not tried:
            return found, False
        best = max(tried, key=self._posterior)
        if self._posterior(best) > self._value(flat(found.hyperparameters), rows) + _CLEARLY:
            other = self._maximised(flat(best.hyperparameters), self._rows, **TO_THE_END)
            if self._posterior(other) > self._posterior(found) + _CLEARLY:
                return other, True
        return found, False

    def _others(self):
        """The best starts at other lengthscales and periods, compared without any iteration."""
        starts = self._structured()
        if any(map(self._is_free, self._of("periodicity"))):
            return self._with_periods([self._given, *starts])[:_BEST_OF_PERIODS]
        return sorted(starts, key=lambda x: -self._value(x, self._few))[:_BEST]

    def _posterior(self, best):
        return best.evidence + self._log_prior(flat(best.hyperparameters))[0]

    def _maximised(self, x, rows, **ends):
        return evidence.maximise(rebuilt(x, self._start), self._bounds, rows, self._log_prior, **ends)

    def _value(self, x, rows):
        return evidence.value(rebuilt(x, self._start), rows) + self._log_prior(x)[0]

    def _of(self, name):
        return [place for owner, field, place in self._places if field == name]

    def _is_free(self, place):
        return bool(np.any(self._low[place.at] < self._high[place.at]))

    def structured(self):
        """Hyperparameters with long and with short lengthscales; None if no further starts are wanted."""
        return None if self._n_restarts == 0 else [rebuilt(x, self._start) for x in self._structured()]

    def _structured(self):
        """Starts at long and short lengthscales, with little noise and the variance of the targets."""
        found = [self._with_lengths(factor, noise) for factor, noise in starts_of(self._rows.X.shape[1])]
        return distinct([x for x in found if not np.allclose(x, self._given)])

    def _with_lengths(self, factor, noise):
        x = self._given.copy()
        deviation = fit_scale("X", self._rows.X, np.ones(len(self._rows.X)), active=True).scale
        for place in self._of("length_scale"):
            longest = np.log(np.sqrt(len(place.columns)) * deviation[place.columns])
            size = place.at.stop - place.at.start
            x[place.at] = np.log(factor) + (longest if size > 1 else longest.mean())
        x[-1] = np.log(noise * self._variance)
        x = np.clip(x, self._low, self._high)
        kernel, _ = rebuilt(x, self._start)
        total = float(np.mean(evidence.variances_of_rows(kernel, self._few.X)))
        room = algebra.room(kernel, *(each.kernel for each in self._bounds))
        if not (np.isfinite(total) and total > 0.0):
            return x
        kernel = algebra.multiplied(kernel, np.clip(np.log(self._variance / total), *room))
        return np.clip(np.append(flat(kernel), x[-1]), self._low, self._high)

    def _with_periods(self, starts):
        """The best starts after trying, for each period in turn, those that the targets show."""
        kept = starts
        for place in filter(self._is_free, self._of("periodicity")):
            rows = self._rows
            periods = [likely_periods(rows.X[:, i], rows.y, rows.weight) for i in place.columns]
            logs = np.log(np.concatenate(periods))
            logs = logs[(logs >= self._low[place.at]) & (logs <= self._high[place.at])]
            more = [_with(x, place.at, value) for x in kept for value in logs]
            kept = sorted(distinct([*kept, *more]), key=lambda x: -self._value(x, self._few))[: 2 * _BEST_OF_PERIODS]
        return kept

    def _random(self):
        """The number of starts that the user asks for, drawn between the bounds as in scikit-learn."""
        if isinstance(self._n_restarts, str):
            return []
        free = self._low < self._high
        low, high = (
            np.clip(each[free], self._given[free] - _FAR, self._given[free] + _FAR) for each in (self._low, self._high)
        )
        starts = np.tile(self._given, (self._n_restarts, 1))
        starts[:, free] = self._random_state.uniform(low, high, (self._n_restarts, np.count_nonzero(free)))
        return list(starts)


@dataclasses.dataclass(frozen=True)
class Place:
    """The position of a hyperparameter in the vector of all, and the columns of X that its kernel sees."""

    at: slice
    columns: np.ndarray


def places(kernel, columns, first=0, of_combinations=False):
    """Kernel, name and `Place` of each hyperparameter of a JAX kernel, in the order of its leaves.

    The lengthscale of a periodic kernel has no unit: it is left out. So are those of linear combinations of columns,
    which do not have the unit of a column, unless they are asked for.
    """
    columns = columns[list(kernel.columns)] if hasattr(kernel, "columns") else columns
    for field in dataclasses.fields(kernel):
        value = getattr(kernel, field.name)
        if field.name in kernel.static:
            continue
        size = len(flat(value))
        if isinstance(value, Kernel):
            if of_combinations or not isinstance(kernel, JaxLinearTransform):
                yield from places(value, columns, first, of_combinations)
        elif not (field.name == "length_scale" and hasattr(kernel, "periodicity")):
            yield kernel, field.name, Place(slice(first, first + size), columns)
        first += size


def _with(x, at, value):
    x = x.copy()
    x[at] = value
    return x


def distinct(starts):
    """The vectors without those that nearly equal an earlier one."""
    found = []
    for x in starts:
        if not any(np.allclose(x, other, rtol=0.0, atol=1e-3) for other in found):
            found.append(x)
    return found
