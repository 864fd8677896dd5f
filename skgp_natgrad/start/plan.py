"""The model and its training as one immutable record."""

from __future__ import annotations

from typing import Literal, NamedTuple

from sklearn.gaussian_process.kernels import Kernel

from .._backend import processes
from .._backend.types import Device, Devices, Floats
from ..likelihoods import Gaussian, Likelihood
from ..objectives import ELBO, Objective
from ..step.algorithm import SOLVERS, check
from ..training.batches import is_full
from ..training.long_table import AnyTable
from ..training.schedules import Auto
from ..training.settings import Settings
from . import requirements


class Plan(NamedTuple):
    """The model to be trained, and the settings of its training.

    Attributes
    ----------
    kernels : tuple of sklearn.gaussian_process.kernels.Kernel or None
        One for all latent functions, or one for each; None for the default kernel.
    likelihood : Likelihood
    n_classes : int
        Zero in regression.
    objective : Objective
    hyperparameter_prior : "weak", Prior, mapping of str to Prior, or None
        See `priors.settled`.
    n_inducing : int, "auto" or None
        None puts an inducing point at every row, and "auto" as many as time allows.
    n_mean_inducing : int or "auto"
        `sized.sized` makes of "auto" as many as time allows, where it pays with one step and ``n_inducing="auto"``,
        and else none.
    n_mean_inducing_at_most : bool
        Whether `n_mean_inducing` is the largest number, and there are fewer where class labels ask for no more.
    n_inducing_alone : int or None
        Inducing points where a mean on all rows predicts no better; None for ``n_inducing``.
    inducing_init : str or ndarray of shape (n_points, D)
        A name in `inducing_points.METHODS`, "auto" (`placement.place` chooses), or points in the units of the table.
    train_points : bool
        Whether points move while training.
    jitter : float
        Jitter relative to the kernel's scale.
    calibrate : bool
        Whether predictions are calibrated: class probabilities, and with a Gaussian likelihood the deviation of y, by
        a `prediction.dispersion.Dispersion`.
    averages : few_rows.Open, optional
        Of hyperparameters that are averages over what few rows leave open, what deviations are multiplied by.
    device : str
    n_devices : int, "all" or None
        Devices that share the rows; None for one.
    settings : Settings
    n_restarts : int or "auto"
        Of the search for the hyperparameters of given kernels: see `restarts.Starts`.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import likelihoods, svgp
    >>> svgp.Plan(kernels=(RBF(),), likelihood=likelihoods.Poisson(), n_inducing=10).basis
    'orthogonal'
    """

    kernels: tuple[Kernel, ...] | None = None
    likelihood: Likelihood = Gaussian()
    n_classes: int = 0
    objective: Objective = ELBO()
    hyperparameter_prior: object = None
    n_inducing: int | Literal["auto"] | None = 100
    n_mean_inducing: int | Literal["auto"] = 0
    n_mean_inducing_at_most: bool = False
    n_inducing_alone: int | None = None
    inducing_init: str | Floats = "auto"
    train_points: bool = True
    jitter: float = 1e-8
    calibrate: bool = False
    averages: NamedTuple | None = None
    device: Device = "auto"
    n_devices: Devices = None
    settings: Settings = Settings()
    n_restarts: int | Literal["auto"] = "auto"

    @property
    def basis(self) -> str:
        """Name of the basis."""
        return self.settings.algorithm.basis

    @property
    def n_trained_mean_inducing(self) -> int:
        """Mean-only points that are trained; those of the exact mean, and of one step, are placed after training."""
        algorithm = self.settings.algorithm
        after = algorithm.mean_solver == "exact" or SOLVERS[algorithm.solver].one_step
        return 0 if after else self.n_mean_inducing

    def n_latent(self, table: AnyTable) -> int:
        """Number of latent functions."""
        return self.likelihood.n_latent(table.n_targets, self.n_classes)


def check_plan(plan: Plan, table: AnyTable) -> None:
    """Raise ValueError if parts of a plan do not fit together, and MemoryError if it needs more memory than there is.

    Parameters
    ----------
    plan : Plan
    table : Table
    """
    settings, solver = plan.settings, SOLVERS[plan.settings.algorithm.solver]
    found_while_training = isinstance(settings.gamma_schedule, Auto) and solver.natural
    if settings.algorithm.adaptive != found_while_training:
        raise ValueError(
            f"Algorithm(adaptive={settings.algorithm.adaptive}) does not fit "
            f"gamma_schedule={settings.gamma_schedule!r}: Auto() needs adaptive=True, others adaptive=False."
        )
    if solver.one_step and plan.likelihood.conjugate and plan.n_mean_inducing not in ("auto", 0, table.n_rows):
        raise ValueError(
            f"n_mean_inducing={plan.n_mean_inducing}, but with Gaussian noise solver='evidence' has no further points, "
            f"or every row that is no inducing point: give 0, or {table.n_rows} as there are rows, or use solver='ngd'."
        )
    if solver.one_step and plan.likelihood.conjugate and plan.n_mean_inducing not in ("auto", 0):
        _check_all_rows(plan)
    if solver.one_step and not plan.likelihood.conjugate and plan.hyperparameter_prior is not None:
        raise ValueError(
            "hyperparameter_prior: for class labels solver='evidence' chooses hyperparameters by held-out labels, and "
            "not by a bound to which a log prior could be added; use solver='ngd'."
        )
    if solver.one_step and not plan.likelihood.conjugate and (len(plan.kernels or ()) > 1 or table.has_offset):
        raise ValueError("solver='evidence' needs one kernel for all classes and no offset; use solver='ngd'.")
    full_batch = is_full(table.n_rows, settings.batch_size)
    plan.objective.check(plan.likelihood)
    check(settings.algorithm, plan.likelihood, plan.objective, full_batch, settings.searched is not None)
    requirements.require(plan, table)


def _check_all_rows(plan: Plan) -> None:
    """Refuse a mean on all rows where it cannot be found."""
    here = f"n_mean_inducing={plan.n_mean_inducing} with solver='evidence' finds the mean on all rows"
    if len(plan.kernels or ()) > 1:
        raise ValueError(
            f"{here} under one kernel, but kernel is a list of {len(plan.kernels)}: give one for all targets, or "
            "n_mean_inducing=0."
        )
    if processes.sharing(plan.n_devices) > 1:
        raise ValueError(
            f"{here} in one process, but n_devices={plan.n_devices!r} shares them among several: give n_devices=None, "
            "or n_mean_inducing=0."
        )
