"""The model and its training as one immutable record."""

from __future__ import annotations

from typing import NamedTuple

from ..likelihoods import Gaussian, Likelihood
from ..objectives import ELBO, Objective
from ..training.settings import Settings


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
    n_mean_inducing : int
    inducing_init : str or ndarray of shape (n_points, D)
        A name in `inducing_points.METHODS`, or points in the units of the table.
    train_points : bool
        Whether points move while training.
    jitter : float
        Jitter relative to the kernel's scale.
    device : str
    n_devices : int, "all" or None
        Devices that share the rows; None for one.
    settings : Settings
    """

    kernels: tuple | None = None
    likelihood: Likelihood = Gaussian()
    n_classes: int = 0
    objective: Objective = ELBO()
    hyperparameter_prior: object = None
    n_inducing: int | str | None = 100
    n_mean_inducing: int = 0
    inducing_init: object = "greedy_variance"
    train_points: bool = True
    jitter: float = 1e-8
    device: str = "auto"
    n_devices: int | str | None = None
    settings: Settings = Settings()

    @property
    def basis(self):
        """Name of the basis."""
        return self.settings.algorithm.basis

    @property
    def n_trained_mean_inducing(self):
        """Mean-only points that are trained; those of the exact mean are placed after training."""
        return 0 if self.settings.algorithm.mean_solver == "exact" else self.n_mean_inducing

    def n_latent(self, table):
        """Number of latent functions."""
        return self.likelihood.n_latent(table.n_targets, self.n_classes)
