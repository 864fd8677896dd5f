"""Hyperparameters that maximise the ELBO of some rows, for likelihoods whose q `solve.newton` finds.

The bound of the best q depends on the hyperparameters alone. L-BFGS maximises it, as it maximises the evidence under
Gaussian noise. Where the data are overdispersed for the likelihood, the bound is misled: the latent function follows
the noise. A prior with a large variance that the points hardly explain then predicts held-out rows better, and is used
if it does.
"""

from __future__ import annotations

import jax
import numpy as np

from .. import kernels as _kernels
from .. import priors
from .._backend import threads
from .._backend.flat import flat, rebuilt
from ..choose.candidates import matern52
from ..choose.minimum import TO_THE_END, minimised
from ..choose.targets import multiplied
from ..choose.wide import viewed
from ..solve import newton
from . import sizes
from .state import init, specification

# Rows that the search uses.
_ROWS = 2000
# Starts of the default kernel: its variance, its lengthscales as multiples of sqrt(D) standard deviations of a column,
# and the standard deviation of the log-normal prior around the first lengthscale.
_VARIANCE, _LENGTHS, _DEVIATION = 0.5, (1.0, 0.3, 0.1), 1.5
# Variances of the wide priors as multiples of the start's; by how many standard errors one must be better; and the
# fewest held-out rows for this comparison.
_WIDER, _SURE, _FEWEST = (1.0, 3.0, 9.0), 2.0, 15


class _Problem:
    """Some rows, and the bound of their best q as a function of a plan's hyperparameters.

    Parameters
    ----------
    plan : Plan
        With one kernel and a likelihood that has `by_newton`.
    table : Table
    random_state : numpy.random.RandomState
        Chooses rows and inducing points.
    """

    def __init__(self, plan, table, random_state):
        rows = table.sample
        rows = rows.rows(np.sort(random_state.permutation(np.flatnonzero(rows.weight > 0.0))[:_ROWS]))
        n_inducing = sizes.OF_STEPS if rows.n_distinct > sizes.OF_STEPS else None
        some = plan._replace(n_inducing=n_inducing, n_mean_inducing=0, inducing_init="k-means")
        state, self._constants = init(some, rows, random_state)
        self._parameters, self._batch = state.parameters, newton.filled_up(rows)
        self._held = newton.held_out_rows(self._batch, random_state)

    def parameters_of(self, plan):
        """The parameters of the same points under the hyperparameters of another plan."""
        n_columns, n_targets = self._batch.X.shape[1], len(self._batch.y)
        log_kernels, raw_likelihood = specification(plan.kernels, plan.likelihood, n_columns, n_targets)[0]
        return self._parameters._replace(log_kernels=log_kernels, raw_likelihood=raw_likelihood)

    def bound(self, parameters, q=None):
        """The best `newton.Fit`, and its bound plus the log prior."""
        fit = newton.best_q(parameters, self._constants, self._batch, q)
        return fit, fit.bounds[-1] + float(self._constants.log_prior(parameters))

    def maximised(self, plan):
        """The plan at the maximum of the bound; the search starts at its hyperparameters, within their bounds."""
        start, q = self.parameters_of(plan), None

        def parameters_at(x):
            log_kernels, raw_likelihood = rebuilt(x, tuple(start[:2]))
            return start._replace(log_kernels=log_kernels, raw_likelihood=raw_likelihood)

        def loss(x):
            nonlocal q
            parameters = parameters_at(x)
            fit, bound = self.bound(parameters, q)
            if not np.isfinite(bound):
                return np.inf, np.zeros_like(x)
            q = fit.q
            slope = flat(newton.slope(parameters, self._constants, self._batch, q))
            return -bound, np.where(low < high, -slope, 0.0)

        low, high = map(flat, self._constants.log_bounds)
        x, *_ = minimised(loss, np.clip(flat(tuple(start[:2])), low, high), low, high, **TO_THE_END)
        found = parameters_at(x)
        kernel = _kernels.to_sklearn(plan.kernels[0], jax.tree.map(np.exp, found.log_kernels[0]))
        likelihood = found.raw_likelihood.from_raw(np)
        fitted = plan.likelihood.fitted([getattr(likelihood, name) for name in likelihood.parameters])
        return plan._replace(kernels=(kernel,), likelihood=fitted)

    def densities(self, plan):
        """The `Densities` of held-out rows under the hyperparameters of a plan."""
        return newton.densities(self.parameters_of(plan), self._constants, self._batch, self._held)


def maximised(plan, table, random_state):
    """The plan with the hyperparameters of its own kernel that maximise the bound of some rows."""
    problem = _Problem(plan, table, random_state)
    with threads.single_threaded(sizes.OF_STEPS):
        return problem.maximised(plan)


def plain(plan, table, random_state):
    """The plan with a Matern 5/2 that maximises the bound, or a wide one that predicts held-out rows better."""
    view = viewed(table, blocks=plan.blocks)

    def of_length(factor):
        kernel = view.to_sklearn(matern52, view.start(matern52, factor * view.longest, 0.0, np.inf)[0].kernel)
        return plan._replace(kernels=(multiplied(kernel, _VARIANCE),), hyperparameter_prior=None)

    starts = [of_length(factor) for factor in _LENGTHS]
    # With few events the largest bound sometimes belongs to a function that follows each event.
    weak = {"length_scale": priors.LogNormal(sigma=_DEVIATION)}
    problem = _Problem(starts[0]._replace(hyperparameter_prior=weak), table, random_state)
    with threads.single_threaded(sizes.OF_STEPS):
        best = problem.maximised(max(starts, key=lambda each: problem.bound(problem.parameters_of(each))[1]))
        wider = [starts[0]._replace(kernels=(multiplied(starts[0].kernels[0], factor),)) for factor in _WIDER]
        held_out, *others = [problem.densities(each) for each in (best, *wider)]
    other, found = max(zip(others, wider, strict=True), key=lambda each: each[0].mean)
    if len(held_out.each) >= _FEWEST and other.are_larger_than(held_out, _SURE):
        best = found
    return best._replace(hyperparameter_prior=plan.hyperparameter_prior)
