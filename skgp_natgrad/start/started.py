"""A plan with a kernel and a noise that were found, in the units of its table."""

from __future__ import annotations

import numpy as np
from sklearn.gaussian_process.kernels import ConstantKernel, Sum

from ..step.algorithm import SOLVERS
from . import sizes, targets, unexplained

# Prior variance of the latent functions of labels, where the search for their scale starts.
VARIANCE_OF_LABELS = 3.0
# Rows of which the share that points leave unexplained is found.
_POINTS = 2000
_SMALLEST = 1e-290
# Noise from which steps start, at least: with less, what single precision rounds is many nats a row.
_LEAST_NOISE = {"float64": 0.0, "float32": 1e-3}


def started(plan, found, table):
    """The plan with the kernel and the noise that were found, in the units of the table."""
    if not plan.likelihood.conjugate:
        # A latent function of another likelihood starts with about unit variance.
        total = float(np.mean(found.kernel.diag(table.X[:1000])))
        variance = VARIANCE_OF_LABELS if SOLVERS[plan.settings.algorithm.solver].one_step else 1.0
        return plan._replace(kernels=(multiplied(found.kernel, variance / total),))
    variance = variances(plan, table)
    plan = plan._replace(kernels=(multiplied(found.kernel, float(np.mean(variance))),))
    noise = found.noise
    if not SOLVERS[plan.settings.algorithm.solver].one_step:
        if plan.hyperparameter_prior is not None or is_set(plan.likelihood):
            # A prior is around the start that later parts of a stream have, too.
            return plan
        noise = _noise_of_steps(plan, found, table)
    return plan._replace(likelihood=with_noise(plan.likelihood, noise * variance))


def variances(plan, table):
    """Mean squares of the targets (T,), without their offsets."""
    # A square may underflow.
    return np.maximum(targets.scale_of(targets.without_offset(table, plan.likelihood)) ** 2, _SMALLEST)


def _noise_of_steps(plan, found, table):
    """The noise from which steps start, as a share of the targets' variance: no more than the default.

    For a few inducing points what they leave unexplained is noise as well, and that of the exact process too small.
    Training goes down from more noise than there is sooner than up.
    """
    n_inducing, default = n_points_of_steps(plan), float(np.mean(plan.likelihood.variance))
    least = max(found.noise, _LEAST_NOISE[plan.settings.dtype])
    if n_inducing is None:
        return min(least, default)
    if not 0 < n_inducing < len(table.X):
        # The first part of a stream may be no more rows than that, of which later ones have many.
        return default
    share = unexplained.share(found.kernel, table.X, min(n_inducing, _POINTS))
    rest = float(np.nan_to_num(share * np.mean(found.kernel.diag(table.X[:1000]))))
    return min(least + rest, default)


def n_points_of_steps(plan):
    """The number of inducing points of a model that is trained by steps; None stands for all rows."""
    given = np.shape(plan.inducing_init)
    if plan.n_inducing != "auto":
        return plan.n_inducing
    return given[0] if given else sizes.OF_STEPS


def multiplied(kernel, factor):
    """One of the candidates times a number, its bounds too: a sum of constants times kernels."""
    if isinstance(kernel, Sum):
        return multiplied(kernel.k1, factor) + multiplied(kernel.k2, factor)
    bounds = tuple(factor * np.asarray(kernel.k1.constant_value_bounds))
    return ConstantKernel(factor * kernel.k1.constant_value, bounds) * kernel.k2


def is_fixed(likelihood):
    """Whether the user has fixed the noise."""
    return isinstance(likelihood.variance_bounds, str) and likelihood.variance_bounds == "fixed"


def is_set(likelihood):
    """Whether the user has set the noise."""
    return not np.array_equal(likelihood.variance, type(likelihood)().variance) or is_fixed(likelihood)


def with_noise(likelihood, variance):
    """The Gaussian likelihood with these noise variances, unless the user has set them."""
    if is_set(likelihood):
        return likelihood
    _, lower, upper = likelihood.value_and_bounds(len(variance))
    variance = np.clip(variance, np.ravel(lower.variance), np.ravel(upper.variance))
    return likelihood.fitted([variance])
