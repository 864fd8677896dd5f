"""The routes from a plan to q: by steps, or in one step, for measurements, counts or class labels.

The solver and the likelihood choose the route of a `Plan`. The class of a route holds its needs, limits and defaults;
no other file asks which solver is used.
"""

from __future__ import annotations

from ...likelihoods import Likelihood
from ...step.algorithm import SOLVERS
from ..routes.one_step import IN_ONE_STEP
from .steps import Steps


def route_of(solver: str, likelihood: Likelihood) -> Steps:
    """The route for a solver's name and a likelihood; `check` refuses a likelihood that suits no route."""
    if not SOLVERS[solver].one_step:
        return Steps()
    return next((each for each in IN_ONE_STEP if each.suits(likelihood)), IN_ONE_STEP[-1])


def is_solved_at_once(likelihood: Likelihood) -> bool:
    """Whether q is found in closed form or, for counts and class labels without parameters, in a few steps."""
    return any(each.suits(likelihood) for each in IN_ONE_STEP)
