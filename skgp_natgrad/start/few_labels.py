"""Hyperparameters for few class labels, averaged over the posterior of the hyperparameters.

Few labels hardly tell the scale of a kernel or the frequencies of the classes: a wide prior and short lengthscales
explain labels by chance, and probabilities become too certain. So three numbers are averaged over a grid: the scale, a
common factor of the lengthscales, and the share of the prior mean that follows the frequencies. Points are weighted by
the bound on the evidence of all labels and a weak prior, whose influence vanishes with more rows. Where X tells
nothing, a small scale has the largest evidence; frequencies that differ by chance have hardly more evidence than equal
ones.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import numpy as np

from .. import kernels as _kernels
from .._backend import threads
from .._backend.repeated import contradicted, n_observations
from ..solve import class_labels
from . import targets
from .candidates import matern52
from .state import init
from .view import View

# Fewer labels than this are averaged over.
MOST = 50
# The grid: log factors of the lengthscales and of the route's variance, and shares of the prior mean. Then the standard
# deviations of the prior of all three around zero.
_FACTORS = np.log(2.0) * np.arange(-2, 3, 2)
_SCALES = np.log(3.0) * np.arange(-5, 4, 2)
_SHARES = 0.0, 0.5, 1.0
_DEVIATIONS = np.array([1.0, 2.0, 0.5])


class Share(NamedTuple):
    """The average share of the prior mean that follows the frequencies of the classes."""

    of_frequencies: float


def suits(plan, table):
    """Whether labels are few, of several classes, and have nothing beside X."""
    is_open = plan.route.compares_labels and table.mean_function is None
    if not is_open or table.n_rows >= MOST or len(np.unique(table.y)) < 2:
        return False
    # A row may stand for many observations.
    return n_observations(table.weight, contradicted(table.X, table.y)[0]).sum() < MOST


def plain(plan, table, random_state):
    """The plan with the plain kernel, a Matern 5/2 with lengthscales of sqrt(D) standard deviations, and averages."""
    view = View(table)
    kernel = view.to_sklearn(matern52, view.start(matern52, view.longest, 0.0, np.inf)[0].kernel)
    kernel = targets.multiplied(kernel, plan.route.variance)
    log_kernel = jax.tree.map(np.log, _kernels.from_sklearn(kernel, table.X.shape[1]).value)

    def moved(factor):
        longer = jax.tree.map(lambda each: np.exp(each + factor if np.ndim(each) else each), log_kernel)
        return plan._replace(kernels=(_kernels.to_sklearn(kernel, longer),), n_inducing=None, n_mean_inducing=0)

    evidence = []
    for factor in _FACTORS:
        state, constants = init(moved(factor), table, random_state)
        with threads.single_threaded(len(table.X)):
            evidence += class_labels.evidences(state.parameters, constants, table, _SHARES, _SCALES)
    points = np.array(list(itertools.product(_FACTORS, _SHARES, _SCALES)))[:, [0, 2, 1]]
    share = np.array(evidence) - 0.5 * ((points / _DEVIATIONS) ** 2).sum(1)
    share = np.exp(share - share.max())
    factor, log_scale, of_frequencies = share @ points / share.sum()
    (kernel,) = moved(factor).kernels
    return plan._replace(
        kernels=(targets.multiplied(kernel, float(np.exp(log_scale))),), averages=Share(float(of_frequencies))
    )
