"""The targets of the search, which a Gaussian process of mean zero and unit variance can regress; and the way back.

The way back puts a kernel and a noise that the search has found into a plan, in the units of its table.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import norm, rankdata
from sklearn.gaussian_process.kernels import ConstantKernel, Sum

from .._backend.repeated import at_most_one
from .scale import fit_targets

# The least mean square, with which kernels and noise are still positive numbers.
_SMALLEST = 1e-290


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


def compared(table, plan):
    """The targets of `regressed` by which kernels are compared: under Gaussian noise without constant ones."""
    table = that_vary(table) if plan.likelihood.conjugate else table
    return regressed(table, plan.n_classes, plan.likelihood)


def that_vary(table):
    """The table without targets that are constant: they tell no kernel from another. As it is, if all or none are."""
    if len(table.y) == 1 or table.known is not None or table.offset is not None:
        return table
    varies = np.nanmax(table.y, axis=1) > np.nanmin(table.y, axis=1)
    return table if varies.all() or not varies.any() else table._replace(y=table.y[varies])


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


def started(plan, found, table):
    """The plan with the kernel and the noise of ``found``, in the units of the table."""
    plan = plan._replace(ahead=found.ahead)
    if not plan.likelihood.conjugate:
        return with_kernel(plan, found.kernel, table)
    variance = variances(plan, table)
    plan = plan._replace(kernels=(multiplied(found.kernel, float(np.mean(variance))),))
    return plan._replace(likelihood=plan.route.likelihood(plan, found, table, variance))


def with_kernel(plan, kernel, table, variance=None):
    """The plan with a kernel of this variance; default: the route's."""
    total = float(np.mean(kernel.diag(table.X[:1000])))
    variance = plan.route.variance if variance is None else variance
    return plan._replace(kernels=(multiplied(kernel, variance / total),))


def variances(plan, table):
    """Mean squares of the targets (T,), without their offsets."""
    # The square may underflow.
    return np.maximum(scale_of(without_offset(table, plan.likelihood)) ** 2, _SMALLEST)


def multiplied(kernel, factor):
    """A kernel of `candidates`, a sum of constants times kernels, times a number; so are its bounds."""
    if isinstance(kernel, Sum):
        return multiplied(kernel.k1, factor) + multiplied(kernel.k2, factor)
    bounds = tuple(factor * np.asarray(kernel.k1.constant_value_bounds))
    return ConstantKernel(factor * kernel.k1.constant_value, bounds) * kernel.k2


def is_set(likelihood):
    """Whether the user has set the noise."""
    return not np.array_equal(likelihood.variance, type(likelihood)().variance) or bool(likelihood.fixed)


def with_noise(likelihood, variance):
    """The Gaussian likelihood with these noise variances, unless the user has set them."""
    if is_set(likelihood):
        return likelihood
    _, lower, upper = likelihood.value_and_bounds(len(variance))
    variance = np.clip(variance, np.ravel(lower.variance), np.ravel(upper.variance))
    return likelihood.fitted([variance])
