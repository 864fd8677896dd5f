"""Puts a kernel and a noise that a search has found into a plan, in the units of its table."""

from __future__ import annotations

import numpy as np
from sklearn.gaussian_process.kernels import ConstantKernel, Sum

from . import targets

# The least mean square, with which kernels and noise are still positive numbers.
_SMALLEST = 1e-290


def started(plan, found, table):
    """The plan with the kernel and the noise of ``found``, in the units of the table."""
    if not plan.likelihood.conjugate:
        total = float(np.mean(found.kernel.diag(table.X[:1000])))
        return plan._replace(kernels=(multiplied(found.kernel, plan.route.variance / total),))
    variance = variances(plan, table)
    plan = plan._replace(kernels=(multiplied(found.kernel, float(np.mean(variance))),))
    return plan._replace(likelihood=plan.route.likelihood(plan, found, table, variance))


def variances(plan, table):
    """Mean squares of the targets (T,), without their offsets."""
    # The square may underflow.
    return np.maximum(targets.scale_of(targets.without_offset(table, plan.likelihood)) ** 2, _SMALLEST)


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
