"""The model and its training as one immutable record."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from sklearn.gaussian_process.kernels import Kernel

from .._backend.types import Device, Devices, Floats
from ..likelihoods import Gaussian, Likelihood
from ..objectives import ELBO, Objective
from ..step.algorithm import SOLVERS, check
from ..training.batches import is_full
from ..training.long_table import AnyTable
from ..training.loop import Settings
from ..training.schedules import Auto
from . import routes, sizes


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
        None puts an inducing point at every row; "auto" stands for as many as the time budget allows (see `sizes`).
    n_mean_inducing : int or "auto"
        `sized` replaces "auto" by as many as the time budget allows, if they pay in one step with
        ``n_inducing="auto"``, and else by none.
    n_mean_inducing_at_most : bool
        Whether `n_mean_inducing` is an upper limit: for class labels fewer may do.
    otherwise : Plan or None
        Where neighbours may be better than the inducing points, a plan begins with few of these; this is the plan to go
        on with if neighbours are not clearly better.
    n_neighbours : int or "auto"
        Rows of the table from which each row is predicted, in place of the inducing points; zero for none. "auto" uses
        some hundred if left-out rows are clearly predicted better so. Only with Gaussian noise in one step.
    inducing_init : str or ndarray of shape (n_points, D)
        A name in `inducing_points.METHODS`, "auto" (the route chooses), or points in the units of the table.
    train_points : bool
        Whether points move while training.
    jitter : float
        Jitter relative to the kernel's scale.
    calibrate : bool
        Whether predictions are calibrated: class probabilities, or with a Gaussian likelihood the standard deviation of
        y, by a `prediction.dispersion.Dispersion`.
    n_bytes : float
        The memory for which "auto" chooses sizes.
    untrained : float
        The weight of a stream's rows since the last training, these included, if they are so few that the
        hyperparameters stay and q follows in closed form; zero if they are trained.
    ahead : refinement.Ahead or kernel_of_labels.Shares, optional
        Of the next best kernel, where the default kernel was chosen by its predictions; or the shares of those that
        were summed.
    averages : few_rows.Open or few_labels.Share, optional
        If the hyperparameters are averages for few rows: the factor of the variances, or the share of the prior mean.
    device : str
    n_devices : int, "all" or None
        Devices that share the rows; None for one.
    settings : Settings
    blocks : tuple of tuple of int
        Columns of X that are no numbers: all those of a category, or one that tells where a number is missing. The
        default kernel has one lengthscale for a category, and a random effect.
    follows : bool
        Whether the kernels are default ones that an earlier fit has chosen, and their hyperparameters those it found.
    n_restarts : int or "auto"
        Further starts of the search for the hyperparameters of given kernels: see `restarts.Starts`.

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
    otherwise: Plan | None = None
    n_neighbours: int | Literal["auto"] = 0
    inducing_init: str | Floats = "auto"
    train_points: bool = True
    jitter: float = 1e-8
    calibrate: bool = False
    n_bytes: float = math.inf
    untrained: float = 0.0
    ahead: NamedTuple | None = None
    averages: NamedTuple | None = None
    device: Device = "auto"
    n_devices: Devices = None
    settings: Settings = Settings()
    blocks: tuple[tuple[int, ...], ...] = ()
    follows: bool = False
    n_restarts: int | Literal["auto"] = "auto"

    @property
    def basis(self) -> str:
        """Name of the basis."""
        return self.settings.algorithm.basis

    @property
    def route(self) -> routes.Steps:
        """How q is found, and everything that depends on it."""
        return routes.route_of(self.settings.algorithm.solver, self.likelihood)

    @property
    def has_categories(self) -> bool:
        """Whether some columns are the levels of a category."""
        return any(len(block) > 1 for block in self.blocks)

    @property
    def is_pinned(self) -> bool:
        """Whether the hyperparameters of given kernels, and the noise, stay as they are."""
        return self.kernels is not None and self.settings.algorithm.optimizer is None

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
    settings = plan.settings
    found_while_training = isinstance(settings.gamma_schedule, Auto) and SOLVERS[settings.algorithm.solver].natural
    if settings.algorithm.adaptive != found_while_training:
        raise ValueError(
            f"Algorithm(adaptive={settings.algorithm.adaptive}) does not fit "
            f"gamma_schedule={settings.gamma_schedule!r}: Auto() needs adaptive=True, others adaptive=False."
        )
    plan.route.check(plan, table)
    full_batch = is_full(table.n_rows, settings.batch_size)
    plan.objective.check(plan.likelihood)
    check(settings.algorithm, plan.likelihood, plan.objective, full_batch, settings.searched is not None)
    sizes.require(plan, table)


def sized(plan: Plan, table: AnyTable) -> Plan:
    """The plan with numbers of inducing points and of mean-only points."""
    if plan.n_inducing == "auto" and isinstance(plan.inducing_init, str):
        plan = plan.route.sized(plan, table)
    elif plan.n_inducing == "auto":
        plan = plan._replace(n_inducing=len(plan.inducing_init))
    return plan._replace(n_mean_inducing=0) if plan.n_mean_inducing == "auto" else plan
