"""The solver of a fit, where its user leaves it open."""

from __future__ import annotations

import numpy as np

from ... import objectives
from ..._backend import processes, rows
from ..._backend.device import DTYPES
from ...svgp import SOLVERS, route_of
from . import checks, constructor
from .documentation import GROUPS

# With all of these at their defaults, solver="auto" may take one step: none of them says how to take many.
_OF_STEPS = {"objective", "dtype", *GROUPS["points"], *GROUPS["training"]}
_OF_STEPS -= {"solver", "random_state", "train_inducing_points"}


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
    if not isinstance(estimator.solver, str) or estimator.solver != "auto":
        return checks.choice("solver", estimator.solver, ("auto", *SOLVERS))
    route = route_of("evidence", likelihood)
    several = isinstance(estimator.kernel, (list, tuple)) or processes.sharing(estimator.n_devices) > 1
    has_prior, is_long = estimator.hyperparameter_prior is not None, n_rows > rows.WINDOW_ROWS
    asked = (has_prior, route.takes_prior), (several, route.takes_several), (is_long, route.takes_long)
    if any(is_asked and not taken for is_asked, taken in asked):
        return "ngd"
    defaults = constructor.defaults(type(estimator))
    # One step takes as many inducing points as are asked for, and no further ones are none with every solver. For those
    # of labels it solves, where steps of an optimizer end far from the best means; those of a regression are trained.
    has_sizes = route.takes_further or any(_is_default(estimator.n_mean_inducing, value) for value in (0, "auto"))
    names = _OF_STEPS - {"n_inducing", "n_mean_inducing"} if has_sizes else _OF_STEPS
    values = {name: getattr(estimator, name) for name in names}
    values["dtype"] = checks.dtype("dtype", estimator.dtype, DTYPES)
    as_default = all(_is_default(value, defaults[name]) for name, value in values.items())
    return "evidence" if route.suits(likelihood) and not by_parts and as_default else "ngd"


def _is_default(value, default):
    """Whether an argument has its default, under whatever name."""
    if isinstance(value, objectives.ELBO):
        return True
    return value is default or (isinstance(value, (str, int, float, np.number, np.bool_)) and value == default)
