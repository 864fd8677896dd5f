"""The solver of a fit, where its user leaves it open."""

from __future__ import annotations

from ..._backend import processes, rows
from ...svgp import route_of
from . import constructor, inert


def solver_of(estimator, likelihood, by_parts, n_rows):
    """The name of the solver; "auto" goes to the best q in one step where nothing speaks of more steps.

    Parameters
    ----------
    estimator : NGDSVGPRegressor or NGDSVGPClassifier
    likelihood : Likelihood
    by_parts : bool
        Whether further rows may follow.
    n_rows : int
    """
    if estimator.solver != "auto":
        return estimator.solver
    route = route_of("evidence", likelihood)
    several = isinstance(estimator.kernel, (list, tuple)) or processes.sharing(estimator.n_devices) > 1
    has_prior, is_long = estimator.hyperparameter_prior is not None, n_rows > rows.WINDOW_ROWS
    asked = (has_prior, route.takes_prior), (several, route.takes_several), (is_long, route.takes_long)
    if any(is_asked and not taken for is_asked, taken in asked):
        return "ngd"
    # With these at their defaults nothing says how to take many steps.
    of_steps = {name for name, row in estimator._arguments.items() if row.asks_for_steps or inert.steps in row.needs}
    # One step takes as many inducing points as are asked for, and no further ones are none with every solver. For those
    # of labels it solves, where steps of an optimizer end far from the best means; those of a regression are trained.
    has_sizes = route.takes_further or estimator.n_mean_inducing in (0, "auto")
    names = of_steps - {"n_inducing", "n_mean_inducing"} if has_sizes else of_steps
    as_default = all(constructor.is_default(estimator, name) for name in names)
    return "evidence" if route.suits(likelihood) and not by_parts and as_default else "ngd"
