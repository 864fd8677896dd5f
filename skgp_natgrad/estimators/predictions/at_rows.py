"""The distributions of y at the rows of a table, by their distribution functions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ... import svgp
from ...choose.scale import Scale
from ...likelihoods import Likelihood
from ..arguments import checks
from ..rows import encoding, outputs
from ..rows.mean_function import with_mean_function
from . import incomplete

# Of a standardised target. Beyond it squares overflow, and every distribution function is zero or one.
LARGEST = 1e150


class AtRows(NamedTuple):
    """What `svgp.distribution` returns, and the scale of the targets."""

    scale: Scale
    likelihood: Likelihood
    mean: np.ndarray
    var: np.ndarray
    known: np.ndarray | None

    def cdf(self, y, rows, k):
        """P(Y <= y) (n,) of the output ``k`` at the rows of these indices (n,)."""
        with np.errstate(over="ignore"):
            z = np.clip((y - self.scale.offset[k]) / self.scale.scale[k], -LARGEST, LARGEST)
        known = None if self.known is None else self.known[:, rows]
        z = np.broadcast_to(z, (len(self.scale.scale), len(z)))
        return svgp.cumulative(self.likelihood, self.mean[:, rows], self.var[:, rows], z, known)[k]

    @property
    def has_closed_form(self):
        """Whether quantiles take no search."""
        return self.likelihood.given(self.known).predictive_quantile(self.mean, self.var, 0.5) is not None


class OverDonors(NamedTuple):
    """The distributions at the rows of an `Incomplete`, from those `AtRows` of its donors."""

    donors: AtRows
    at: incomplete.Incomplete

    def cdf(self, y, rows, k):
        """As `AtRows.cdf`."""
        first, count = self.at.expansion.first[rows], self.at.expansion.count[rows]
        start = np.cumsum(count) - count
        of = np.repeat(np.arange(len(rows)), count)
        members = first[of] + np.arange(len(of)) - start[of]
        y = self.at.moved_back_at(y, rows, k)
        return np.add.reduceat(self.donors.cdf(y[of], members, k), start) / count

    @property
    def has_closed_form(self):
        """Whether the distribution functions of the donors have one."""
        return self.donors.has_closed_form


def at_rows(regressor, X, offset=None, *, alpha=None, trials=None):
    """The distribution that a fitted regressor predicts at the rows of ``X``; see its methods for the arguments."""
    known = {"offset": offset, "alpha": alpha, "trials": trials}
    if not incomplete.are_there(regressor, X):
        return _at_rows(regressor, X, **known)
    at = incomplete.Incomplete(regressor, encoding.further_rows(regressor, X), known)
    return OverDonors(_at_rows(regressor, at.rows, **at.options()), at)


@with_mean_function
def _at_rows(regressor, X, offset=None, *, alpha=None, trials=None):
    scale = outputs.of(regressor)
    if scale is not None:
        given = {name: each for name, each in (("offset", offset), ("alpha", alpha)) if each is not None}
        found = _at_rows(*outputs.as_one(regressor, X, given), **given)
        parts = (each if each is None else each.reshape(len(scale.scale), -1) for each in found[2:])
        return AtRows(scale, found.likelihood, *parts)
    X = regressor._check_rows(X)
    known = regressor._known(X, offset, alpha=alpha, trials=trials)
    return AtRows(regressor._y_scale, *regressor._distribution_at(X, **known))


def quantiles(call, at, options):
    """The fold of quantiles: where the mean of the donors' distribution functions reaches a level."""
    levels = np.ravel(checks.levels("q", options["q"]))
    each = call(at.rows, **at.options(q=levels))
    ends = [at.moved(extreme.reduceat(each, at.expansion.first, axis=0)) for extreme in (np.minimum, np.maximum)]
    known = {name: options[name] for name in ("offset", "alpha", "trials")}
    mixture = at_rows(at.estimator, at.table.view(encoding.Encoded), **known)
    low, high = (end.reshape(len(end), -1, len(levels)) for end in ends)
    found, lacks = low.copy(), np.flatnonzero(np.isnan(at.table).any(1))
    for k, q in np.ndindex(low.shape[1:]):

        def excess(y, rows, k=k, level=levels[q]):
            return mixture.cdf(y, lacks[rows.astype(int)], k) - level

        between = low[lacks, k, q], high[lacks, k, q]
        found[lacks, k, q] = svgp.quantile_between(excess, *between, at.estimator.likelihood_.discrete)
    found = found.reshape(ends[0].shape)
    return found if np.ndim(options["q"]) else found[..., 0]
