"""The solver of a fit, where its user leaves it open."""

from __future__ import annotations

import numpy as np

from ... import objectives
from ..._backend import processes, rows
from ..._backend.device import DTYPES
from ...svgp import SOLVERS, is_solved_at_once
from . import checks, constructor
from .documentation import GROUPS

# With all of these at their defaults, solver="auto" may take one step: none of them says how to take many.
_NOT_OF_STEPS = {"solver", "random_state", "train_inducing_points"}
_OF_STEPS = {"objective", "dtype", *GROUPS["points"], *GROUPS["training"]} - _NOT_OF_STEPS


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
    shared = isinstance(estimator.kernel, (list, tuple)) or processes.sharing(estimator.n_devices) > 1
    if estimator.hyperparameter_prior is not None and not likelihood.conjugate:
        return "ngd"
    if shared and not likelihood.conjugate:
        # Latent functions of a common covariance have a common kernel, and their rows are in one process.
        return "ngd"
    if n_rows > rows.WINDOW_ROWS and not likelihood.conjugate:
        # The solution for labels holds the covariances of all rows with the points.
        return "ngd"
    defaults = constructor.defaults(type(estimator))
    given = _OF_STEPS - _sizes_of_one_step(estimator.n_mean_inducing, likelihood)
    values = {name: getattr(estimator, name) for name in given}
    values["dtype"] = checks.dtype("dtype", estimator.dtype, DTYPES)
    as_default = all(_is_default(value, defaults[name]) for name, value in values.items())
    return "evidence" if is_solved_at_once(likelihood) and not by_parts and as_default else "ngd"


def _sizes_of_one_step(n_mean, likelihood):
    """Numbers of points that do not ask for steps: one step takes as many inducing points as are asked for.

    No further points are none with every solver. For those of labels one step solves, where many steps of an optimizer
    end far from the best means; those of a regression are trained.
    """
    if any(_is_default(n_mean, value) for value in (0, "auto")) or not likelihood.conjugate:
        return {"n_inducing", "n_mean_inducing"}
    return set()


def _is_default(value, default):
    """Whether an argument has its default, under whatever name."""
    if isinstance(value, objectives.ELBO):
        return True
    return value is default or (isinstance(value, (str, int, float, np.number, np.bool_)) and value == default)
