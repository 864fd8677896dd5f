"""Targets that a Gaussian process of mean zero and unit variance can regress, whatever the likelihood."""

from __future__ import annotations

import numpy as np
from scipy.stats import norm, rankdata

from .._backend.repeated import at_most_one
from .scale import fit_targets


def regressed(table, n_classes, likelihood):
    """The table with targets that a Gaussian process of mean zero and unit variance can regress.

    Parameters
    ----------
    table : Table
    n_classes : int
        Zero in regression.
    likelihood : Likelihood
        With Gaussian noise y is only divided by `scale_of`.

    Returns
    -------
    table : Table
    """
    table = without_offset(table, likelihood)
    if likelihood.conjugate:
        scale = scale_of(table)[:, None]
        return table._replace(y=table.y / scale, known=None if table.known is None else table.known / scale**2)
    if n_classes:
        # The order does not depend on the classes' names: frequent ones first, ties in the order of the rows.
        labels, first, counts = np.unique(table.y, return_index=True, return_counts=True)
        labels = labels[np.lexsort((first, -counts))]
        # With two classes one indicator is enough.
        labels = labels[1:] if len(labels) == 2 else labels
        y = np.equal(table.y, labels[:, None]).astype(float)
    else:
        # Normal scores are monotone in y, whatever its support and its tails.
        ranks = rankdata(table.y, axis=1, nan_policy="omit")
        y = norm.ppf((ranks - 0.5) / np.isfinite(ranks).sum(1, keepdims=True))
    return standardised(table._replace(y=y, known=None))


def standardised(table):
    """The table with targets of mean zero and unit variance."""
    return table._replace(y=fit_targets(table.y.T, table.weight, active=True).forward(table.y.T).T)


def without_offset(table, likelihood):
    """The table with the rows' known offsets removed from the targets, as far as the likelihood allows."""
    if table.offset is None and table.known is None:
        return table
    y, _ = likelihood.given(table.known).without_offset(
        table.y, np.broadcast_to(table.weight, table.y.shape), table.added
    )
    return table._replace(y=y, offset=None)


def scale_of(table):
    """The root mean square of each target (T,), since the prior mean is zero; one for a target of zeros."""
    table = table._replace(weight=at_most_one(table.weight))
    return np.array([_root_mean_square(table.target(k)) for k in range(len(table.y))])


def _root_mean_square(table):
    largest = np.abs(table.y).max(initial=0.0)
    if largest == 0.0:
        return 1.0
    root = largest * np.sqrt(np.average((table.y[0] / largest) ** 2, weights=table.weight))
    return root if root > 0.0 else 1.0
