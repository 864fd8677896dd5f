"""Recovery from a failed step: back to the last good state, with smaller steps."""

from __future__ import annotations

import jax.numpy as jnp

from .optimizer import choose, restarted_optimizer
from .state import State, best_of, first_gain

# On the full batch the bound is exact: if a state is this far below the best one, in nats per unit
# of weight, the step was too large.
_MAX_FALL = 0.1
_RECOVERY = 1.05


def keep_or_take_back(state, moved, report, constants, algorithm):
    """Remember the best state; if the bound falls far below it, return to it with smaller steps.

    For the full batch, whose bound is exact. ``report`` holds the bound of
    ``state``; ``moved`` is the state after the step.
    """
    bound, best = report.elbo, state.best

    best = choose(bound > best.bound, best_of(state, bound), best)
    fell = ~(bound >= best.bound - _MAX_FALL * constants.weight)
    back = _back_to(best, 0.5 * state.shrink, algorithm, moved.optimizer)
    on = moved._replace(best=best, shrink=jnp.minimum(1.0, _RECOVERY * state.shrink))
    elbo = jnp.where(jnp.isfinite(bound), bound, best.bound)
    return choose(fell, back, on), report._replace(elbo=elbo, rejected=report.rejected | fell)


def keep_or_redo(start, state, report, algorithm):
    """Remember the last sound state; if a bound is not finite, return to it with smaller steps.

    For minibatches, whose bounds are too noisy for a closer check. A chunk's first bound shows whether ``start`` was
    sound; the others show whether the steps of the chunk were.
    """
    sound = jnp.isfinite(report.elbo)
    best = choose(sound[0], best_of(start, report.elbo[0]), start.best)
    failed = ~jnp.all(sound)
    on = state._replace(best=best, shrink=jnp.minimum(1.0, _RECOVERY ** len(sound) * state.shrink))
    state = choose(failed, _back_to(best, 0.5 * start.shrink, algorithm, state.optimizer), on)
    elbo = jnp.where(sound, report.elbo, best.bound)
    gamma = jnp.where(failed, 0.0, report.gamma)
    return state, report._replace(elbo=elbo, gamma=gamma, rejected=report.rejected | failed)


def _back_to(best, shrink, algorithm, optimizer):
    fresh = restarted_optimizer(best.q, best.parameters, algorithm, optimizer)
    gain = first_gain(best.q, algorithm)
    # All of u is held: it belongs to the restored q.
    return State(best.q, best.u, jnp.ones_like(shrink), best.parameters, best.metric, fresh, best, shrink, gain)
