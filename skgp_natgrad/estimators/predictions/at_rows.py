"""The predicted distribution at some rows, computed once and asked many times."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ... import svgp
from ...likelihoods import Likelihood
from ...start.scale import Scale
from ..rows import outputs
from ..rows.mean_function import with_mean_function

# Beyond it squares overflow, and every distribution function is zero or one.
_LARGEST = 1e150


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
            z = np.clip((y - self.scale.offset[k]) / self.scale.scale[k], -_LARGEST, _LARGEST)
        known = None if self.known is None else self.known[:, rows]
        z = np.broadcast_to(z, (len(self.scale.scale), len(z)))
        return svgp.cumulative(self.likelihood, self.mean[:, rows], self.var[:, rows], z, known)[k]

    @property
    def has_closed_form(self):
        """Whether quantiles take no search."""
        return self.likelihood.given(self.known).predictive_quantile(self.mean, self.var, 0.5) is not None


@with_mean_function
def at_rows(regressor, X, offset=None, *, alpha=None, trials=None):
    """The distribution that a fitted regressor predicts at the rows of ``X``; see its methods for the arguments."""
    scale = outputs.of(regressor)
    if scale is not None:
        given = {name: each for name, each in (("offset", offset), ("alpha", alpha)) if each is not None}
        found = at_rows(*outputs.as_one(regressor, X, given), **given)
        parts = (each if each is None else each.reshape(len(scale.scale), -1) for each in found[2:])
        return AtRows(scale, found.likelihood, *parts)
    X = regressor._check_rows(X)
    known = regressor._known(X, offset, alpha=alpha, trials=trials)
    return AtRows(regressor._y_scale, *regressor._distribution_at(X, **known))
