"""The compiled choices of the training algorithm, and the checks that they can be combined.

Each solver, basis and parameterization declares its requirements; `check` compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import optax

from ..variational.bases import BASES
from ..variational.parameterizations import PARAMETERIZATIONS


class Algorithm(NamedTuple):
    """Names of the algorithm's parts; hashable, and a static argument of every compiled program.

    Attributes
    ----------
    solver, parameterization, basis, mean_solver : str
        As the estimators' arguments.
    optimizer : str, optax.GradientTransformation or None
    adaptive : bool
        Whether the natural gradient's step size is adapted while training.

    Examples
    --------
    >>> from skgp_natgrad import svgp
    >>> svgp.Algorithm(solver="adam", optimizer="yogi").mean_solver
    'adam'
    """

    solver: str = "ngd"
    parameterization: str = "natural"
    basis: str = "orthogonal"
    mean_solver: str = "adam"
    optimizer: str | optax.GradientTransformation | None = "adam"
    adaptive: bool = False

    @property
    def solves_mean(self) -> bool:
        """Whether the mean is solved for after the steps, with further points that they do not have."""
        return self.mean_solver == "exact"

    @property
    def of_steps(self) -> Algorithm:
        """The algorithm of the steps, for which the exact mean, that comes after them, makes no other program."""
        return self._replace(mean_solver="adam") if self.solves_mean else self


class Solver(NamedTuple):
    """The requirements of a solver.

    Attributes
    ----------
    natural : bool
        Whether q(v) must have natural parameters.
    minimises : bool
        Whether L-BFGS minimises a function of all parameters, which it searches along lines: the whole table must be
        one batch, and the coordinates of q(v) must have no boundary, unless the best q has a closed form.
    one_step : bool
        Whether it goes to the best q in one natural gradient step on all rows, or a few, and moves no point.
    optimizes : bool
        Whether an optimizer takes steps.
    step_sizes : tuple of str
        The arguments that set its step sizes; the optimizer's comes last.
    """

    natural: bool = False
    minimises: bool = False
    one_step: bool = False
    optimizes: bool = True
    step_sizes: tuple = ("learning_rate",)

    @property
    def pauses(self) -> bool:
        """Whether its iterations can stop, and go on from a file."""
        return not (self.minimises or self.one_step)


SOLVERS = {
    "ngd": Solver(natural=True, step_sizes=("gamma_schedule", "learning_rate")),
    "adam": Solver(),
    "gd": Solver(optimizes=False),
    "lbfgs": Solver(minimises=True, optimizes=False, step_sizes=()),
    "evidence": Solver(one_step=True, optimizes=False, step_sizes=()),
}


class MeanSolver(NamedTuple):
    """A solver that steps along a natural gradient of the mean-only weights, apart from the optimizer.

    Attributes
    ----------
    metric : callable
        ``(basis, kernel, factor, points, masks, jitter) -> array (G,) or (G, G)``.
    step : callable
        ``(bound_of_a, value, gradient, state, gamma, dtype) -> array (K, G)``, the weights after a step; ``bound_of_a``
        returns the batch's bound of weights, ``value`` and ``gradient`` are those at the state's parameters.
    """

    metric: Callable
    step: Callable


# The folder `paper` adds its own.
NATURAL_MEAN_SOLVERS = {}
MEAN_SOLVERS = ("adam", "natural", "diagonal", "exact")


def is_collapsed(algorithm, closed_form):
    """Whether q is always at its optimum: under L-BFGS, if the best q has a closed form."""
    return SOLVERS[algorithm.solver].minimises and closed_form and BASES[algorithm.basis].natural


def check(algorithm, likelihood, objective, full_batch, searches=False):
    """Refuse combinations that do not fit together.

    Parameters
    ----------
    algorithm : Algorithm
    likelihood : Likelihood
    objective : Objective
    full_batch : bool
        Whether the table fits one batch.
    searches : bool
        Whether a line search determines a step size.

    Raises
    ------
    ValueError
        Names the arguments and the remedy.
    """
    solver, basis = SOLVERS[algorithm.solver], BASES[algorithm.basis]
    here = f"solver={algorithm.solver!r}"
    if solver.natural and not basis.natural:
        raise ValueError(
            f"basis={algorithm.basis!r} has no natural parameters, which {here} needs; use solver='adam', or "
            "basis='orthogonal'."
        )
    if (solver.minimises or searches) and not full_batch:
        what, instead = (here, "solver='ngd'") if solver.minimises else ("A line search", "another step size")
        raise ValueError(
            f"{what} needs the whole table in one batch; raise batch_size to the number of rows, or use {instead}."
        )
    closed_form = likelihood.conjugate and objective.closed_form
    if solver.minimises and basis.natural and not is_collapsed(algorithm, closed_form):
        _check_unconstrained(algorithm, likelihood, objective)
    _check_mean_solver(algorithm, solver, basis)
    _check_objective(algorithm, objective, basis)


def refused_in_stream(n_mean_inducing, basis, mean_solver, solver="ngd"):
    """The arguments under which q does not contain all information from the data, so that no stream can continue it.

    Mean-only weights change the mean but do not describe its uncertainty, so they give no factor for later rows. A
    second part of q with its own covariance would give one, but with other points it would be correlated with the first
    part.

    Parameters
    ----------
    n_mean_inducing : int or "auto"
    basis : str
        A name that is not in `BASES` is not refused here.
    mean_solver, solver : str

    Returns
    -------
    names : list of str
    """
    refused = {
        "n_mean_inducing": n_mean_inducing not in (0, "auto"),
        "basis": basis in BASES and not BASES[basis].natural,
        "mean_solver": mean_solver == "exact",
        "solver": solver == "evidence",
    }
    return [name for name, is_refused in refused.items() if is_refused]


def _check_unconstrained(algorithm, likelihood, objective):
    if not PARAMETERIZATIONS[algorithm.parameterization].unconstrained:
        cause = f"likelihood {type(likelihood).__name__}" if objective.closed_form else f"objective {objective.name!r}"
        raise ValueError(
            f"solver={algorithm.solver!r} with {cause} updates q itself, but with "
            f"parameterization={algorithm.parameterization!r} a step may end at a matrix that is not positive "
            "definite; use parameterization='mean_var_sqrt'."
        )


def _check_objective(algorithm, objective, basis):
    if objective.needs_residual and not basis.natural:
        raise ValueError(
            f"objective={objective.name!r} needs the prior variance that the inducing points do not explain "
            f"(k_xx - q_xx), and basis={algorithm.basis!r} does not compute it; use "
            "basis='orthogonal', or objective='elbo'."
        )
    if algorithm.solves_mean and not objective.closed_form:
        raise ValueError(
            f"mean_solver='exact' finds the mean with the largest expected log-likelihood, which "
            f"objective={objective.name!r} does not maximise; use mean_solver='adam', or objective='elbo'."
        )


def _check_mean_solver(algorithm, solver, basis):
    here = f"mean_solver={algorithm.mean_solver!r}"
    if algorithm.mean_solver != "adam" and basis.second_part:
        raise ValueError(
            f"{here} is for mean-only points, but basis={algorithm.basis!r} has none: its second set of points has a "
            "covariance too, and takes natural gradient steps with the inducing points. Use mean_solver='adam'."
        )
    if algorithm.mean_solver in NATURAL_MEAN_SOLVERS and not solver.natural:
        raise ValueError(
            f"{here} takes natural gradient steps, but solver={algorithm.solver!r} does not; use solver='ngd'."
        )
    if algorithm.mean_solver != "adam" and not basis.orthogonal:
        raise ValueError(
            f"{here} needs mean-only points whose part of the mean is orthogonal to that of the inducing points, which "
            f"basis={algorithm.basis!r} does not have. Use basis='orthogonal', which represents the same functions."
        )
