"""The choices of the training algorithm that are compiled in, and which of them fit together.

Each solver, basis and parameterization declares its requirements; `check` compares them.
"""

from __future__ import annotations

from typing import NamedTuple

import optax

from ..objectives import ELBO
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
    def of_steps(self) -> Algorithm:
        """The algorithm of the steps, for which the exact mean, that comes after them, makes no other program."""
        return self._replace(mean_solver="adam") if self.mean_solver == "exact" else self


class Solver(NamedTuple):
    """The requirements of a solver.

    Attributes
    ----------
    natural : bool
        Whether q(v) must have natural parameters.
    full_batch : bool
        Whether the whole table must be one batch.
    unconstrained : bool
        Whether the coordinates of q(v) must have no boundary, unless the best q has a
        closed form.
    one_step : bool
        Whether it goes to the best q, which must have a closed form, in one natural gradient step on all
        rows, and moves no point.
    step_sizes : tuple of str
        The arguments that set its step sizes; the optimizer's comes last.
    """

    natural: bool = False
    full_batch: bool = False
    unconstrained: bool = False
    one_step: bool = False
    step_sizes: tuple = ("learning_rate",)


SOLVERS = {
    "ngd": Solver(natural=True, step_sizes=("gamma_schedule", "learning_rate")),
    "adam": Solver(),
    "gd": Solver(),
    "lbfgs": Solver(full_batch=True, unconstrained=True, step_sizes=()),
    "evidence": Solver(one_step=True, step_sizes=()),
}

# Mean solvers that step along the natural gradient of the mean-only weights.
NATURAL_MEAN_SOLVERS = ("natural", "diagonal")
MEAN_SOLVERS = ("adam", *NATURAL_MEAN_SOLVERS, "exact")


def is_collapsed(algorithm, closed_form):
    """Whether q is always at its optimum: under L-BFGS, if the best q has a closed form."""
    return algorithm.solver == "lbfgs" and closed_form and BASES[algorithm.basis].natural


def is_solved_at_once(likelihood):
    """Whether a solver of one step can find q: in closed form, or for classes without parameters in a few steps."""
    return likelihood.conjugate or ("classification" in likelihood.tasks and not likelihood.parameters)


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
    if (solver.full_batch or searches) and not full_batch:
        what, instead = (here, "solver='ngd'") if solver.full_batch else ("A line search", "another step size")
        raise ValueError(
            f"{what} needs the whole table in one batch; raise batch_size to the number of rows, or use {instead}."
        )
    if (
        solver.unconstrained
        and not is_collapsed(algorithm, likelihood.conjugate and objective.closed_form)
        and basis.natural
    ):
        _check_unconstrained(algorithm, likelihood, objective)
    if solver.one_step:
        _check_one_step(algorithm, likelihood, objective)
    _check_mean_solver(algorithm, solver, basis)
    _check_objective(algorithm, objective, basis)


def refused_in_stream(n_mean_inducing, basis, mean_solver):
    """The arguments under which q does not contain all information from the data, so that no stream can continue it.

    Mean-only weights move the mean but do not describe its uncertainty, so that they
    leave no factor for later rows. A second part of q with its own covariance would
    leave one, but under other points it would be correlated with the first part.

    Parameters
    ----------
    n_mean_inducing : int or "auto"
    basis : str
        A name that is not in `BASES` is not refused here.
    mean_solver : str

    Returns
    -------
    names : list of str
    """
    refused = {
        "n_mean_inducing": n_mean_inducing not in (0, "auto"),
        "basis": basis in BASES and not BASES[basis].natural,
        "mean_solver": mean_solver == "exact",
    }
    return [name for name, is_refused in refused.items() if is_refused]


def _check_unconstrained(algorithm, likelihood, objective):
    if not PARAMETERIZATIONS[algorithm.parameterization].unconstrained:
        cause = f"likelihood {type(likelihood).__name__}" if objective.closed_form else f"objective {objective.name!r}"
        raise ValueError(
            f"solver={algorithm.solver!r} with {cause} updates q itself, but some values of "
            f"parameterization={algorithm.parameterization!r} represent no Gaussian; use "
            "parameterization='mean_var_sqrt'."
        )


def _check_one_step(algorithm, likelihood, objective):
    here = f"solver={algorithm.solver!r} takes one step to the best q"
    if not is_solved_at_once(likelihood):
        raise ValueError(
            f"{here}, or a few, which takes Gaussian noise or class labels without parameters, not likelihood "
            f"{type(likelihood).__name__}; use solver='ngd'."
        )
    if type(objective) is not ELBO:
        raise ValueError(f"{here} of the ELBO, not of objective={objective.name!r}; use solver='ngd'.")
    for name, value in (("basis", "orthogonal"), ("mean_solver", "adam")):
        if getattr(algorithm, name) != value:
            raise ValueError(
                f"{here} on one set of points; leave {name}={getattr(algorithm, name)!r} at its default, or use "
                "solver='ngd'."
            )


def _check_objective(algorithm, objective, basis):
    if objective.needs_residual and not basis.natural:
        raise ValueError(
            f"objective={objective.name!r} needs the part of the prior variance that the inducing points leave "
            f"unexplained, which basis={algorithm.basis!r} does not compute; use "
            "basis='orthogonal', or objective='elbo'."
        )
    if algorithm.mean_solver == "exact" and not objective.closed_form:
        raise ValueError(
            f"mean_solver='exact' finds the mean with the largest expected log-likelihood, which "
            f"objective={objective.name!r} does not maximise; use mean_solver='adam', or objective='elbo'."
        )


def _check_mean_solver(algorithm, solver, basis):
    here = f"mean_solver={algorithm.mean_solver!r}"
    if algorithm.mean_solver != "adam" and basis.second_part:
        raise ValueError(
            f"{here} is for mean-only points, but basis={algorithm.basis!r} has none: its further points also have a "
            "covariance, and take natural gradient steps with the inducing points. Use mean_solver='adam'."
        )
    if algorithm.mean_solver in NATURAL_MEAN_SOLVERS and not solver.natural:
        raise ValueError(
            f"{here} takes natural gradient steps, but solver={algorithm.solver!r} does not; use solver='ngd'."
        )
    if algorithm.mean_solver != "adam" and not basis.orthogonal:
        raise ValueError(
            f"{here} needs a mean-only part that is orthogonal to the rest, but basis={algorithm.basis!r} has none. "
            "Use basis='orthogonal', which represents the same functions."
        )
