"""L-BFGS on the full batch, by scipy.

With a conjugate likelihood the bound is collapsed: for every value of the other
parameters q is set to its optimum by one natural gradient step of size one, and by the envelope theorem the gradient is
the one for this q held fixed (Titsias 2009). Otherwise q is optimized with the rest, in the coordinates of its
parameterization.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from scipy import optimize

from .._backend import threads
from .._backend.device import quick_jit
from .._backend.flat import flat, rebuilt, turning_back
from .._backend.linalg import definite_cholesky, one_by_one
from ..step.algorithm import is_collapsed
from ..step.state import best_of
from ..step.step import bound as bound_of
from ..variational import gaussian, natural_gradient
from ..variational.bases import BASES
from ..variational.bound import bound_and_moments, bound_given_q, whole_curvature
from ..variational.model import has_closed_form
from ..variational.parameterizations import within_blocks
from .batches import first

# Pairs that L-BFGS remembers; and evaluations of the bound for each iteration, at most.
_MEMORY = 20
_EVALUATIONS_PER_ITERATION = 20


def minimise(state, constants, batches, settings, monitor):
    """Ascend from ``state``; see `loop.run` for the arguments."""
    batch = first(next(batches))
    algorithm, weight = settings.algorithm, float(constants.weight)
    position = _coordinates(state, constants, algorithm), state.parameters
    start, (lower, upper) = flat(position), _bounds(position, constants, algorithm)
    free = lower < upper

    def whole(x):
        everything = start.copy()
        everything[free] = x
        return rebuilt(everything, position)

    def evaluate(x):
        with threads.single_threaded(state.q.mean.shape[-1]):
            found = value_and_gradient(whole(x), state.q, constants, batch, algorithm)
            value, gradient = jax.block_until_ready(found)
        return -float(value) / weight, -flat(gradient)[free] / weight

    at_start = evaluate(start[free])[0]
    if not np.isfinite(at_start):
        raise FloatingPointError(
            f"The ELBO is not finite ({-at_start * weight}) at the start of L-BFGS; rescale X and y."
        )

    def state_at(x, bound):
        q, parameters = solution(whole(x), state.q, constants, batch, algorithm)
        there = state._replace(q=q, parameters=parameters)
        return there._replace(best=best_of(there, bound))

    def after_iteration(intermediate_result):
        bound = -float(intermediate_result.fun) * weight
        report = ([bound], [0.0], [False], [False])
        if monitor(state_at(intermediate_result.x, bound), [np.asarray(values) for values in report]):
            raise StopIteration

    if not free.any():
        # Only q is trained, and its optimum is known.
        monitor.converged = True
        return state_at(start[free], -at_start * weight)
    found = _minimised(
        turning_back(evaluate, at_start), start[free], (lower[free], upper[free]), after_iteration, settings.max_iter
    )
    # Status 2: the line search found no improvement beyond rounding.
    monitor.converged |= found.status in (0, 2)
    return state_at(found.x, -float(found.fun) * weight)


def _minimised(loss, start, bounds, after_iteration, max_iter):
    return optimize.minimize(
        loss,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=optimize.Bounds(*bounds),
        callback=after_iteration,
        options={
            "maxiter": max_iter,
            "maxfun": _EVALUATIONS_PER_ITERATION * max_iter,
            "maxcor": _MEMORY,
            "ftol": 1e-14,
            "gtol": 1e-8,
        },
    )


def _coordinates(state, constants, algorithm):
    """Coordinates of q that L-BFGS updates; None if q has a closed form, or is not used."""
    if is_collapsed(algorithm, has_closed_form(state.parameters, constants)) or not BASES[algorithm.basis].natural:
        return None
    return _from_gaussian(state.q, algorithm.parameterization, state.parameters.points.sizes)


@functools.partial(quick_jit, static_argnames=("parameterization", "sizes"))
def _from_gaussian(q, parameterization, sizes):
    return within_blocks(parameterization, sizes).from_gaussian(q)


def _solution(position, q, constants, batch, algorithm):
    """q and the parameters at a position."""
    xi, parameters = position
    if xi is not None:
        q = within_blocks(algorithm.parameterization, parameters.points.sizes).to_gaussian(xi)
    elif is_collapsed(algorithm, has_closed_form(parameters, constants)):
        q = optimal_q(q, parameters, constants, batch, algorithm)
    return q, parameters


solution = quick_jit(_solution, static_argnames="algorithm")


def optimal_q(q, parameters, constants, batch, algorithm):
    """The best q for a conjugate likelihood: one natural gradient step from any q.

    If the covariance between blocks of q is zero, this holds for its precision. The best mean is then the mean of a q
    with full covariance, because the bound is the same parabola in the mean.
    """
    prior = jax.tree.map(jnp.asarray, gaussian.standard(*q.mean.shape))
    at_prior = algorithm.basis, parameters, prior.mean, prior.cov, batch, constants
    if len(parameters.points.sizes) == 1:
        dm, dS = jax.grad(bound_given_q, argnums=(2, 3))(*at_prior)
        return natural_gradient.candidate(prior, dm, dS, 1.0)
    (dm, dS), latent = jax.grad(bound_and_moments, argnums=(2, 3), has_aux=True)(*at_prior)
    whole = jnp.eye(dm.shape[-1]) + whole_curvature(parameters, latent, batch, constants)
    mean = one_by_one(lambda P, b: cho_solve((definite_cholesky(P), True), b))(whole, dm)
    coordinates = within_blocks("natural", parameters.points.sizes)
    return gaussian.with_mean(natural_gradient.candidate(prior, dm, dS, 1.0, coordinates), mean)


@functools.partial(quick_jit, static_argnames="algorithm")
def value_and_gradient(position, q, constants, batch, algorithm):
    """The bound (collapsed where possible) and its gradient in the position."""
    if position[0] is None:
        fixed = _solution(position, q, constants, batch, algorithm)[0]
        return jax.value_and_grad(lambda at: bound_of(fixed, at[1], constants, batch, algorithm))(position)

    def bound(position):
        return bound_of(*_solution(position, q, constants, batch, algorithm), constants, batch, algorithm)

    return jax.value_and_grad(bound)(position)


def _bounds(position, constants, algorithm):
    """Lower and upper bounds of the flat position; equal for values that stay fixed."""
    free = [jax.tree.map(lambda x, sign=sign: np.full(np.shape(x), sign * np.inf), position) for sign in (-1.0, 1.0)]
    bounds = []
    for (xi, parameters), (kernels, likelihood) in zip(free, constants.log_bounds, strict=True):
        parameters = parameters._replace(log_kernels=kernels, raw_likelihood=likelihood)
        if not constants.train_points:
            parameters = parameters._replace(points=position[1].points)
        if algorithm.optimizer is None:
            parameters = position[1]._replace(weights=parameters.weights)
        bounds.append(flat((xi, parameters)))
    return bounds
