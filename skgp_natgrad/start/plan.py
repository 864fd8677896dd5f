"""The model and its training as one immutable record."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..likelihoods import Gaussian, Likelihood
from ..objectives import ELBO, Objective
from ..training.settings import Settings
from .default_kernel import default_kernel
from .scale import fit_scale


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
    n_inducing : int or None
        None puts an inducing point at every row.
    n_mean_inducing : int
    inducing_init : str or ndarray of shape (n_points, D)
        A name in `inducing_points.METHODS`, or points in the units of the table.
    jitter : float
        Jitter relative to the kernel's scale.
    device : str
    settings : Settings
    """

    kernels: tuple | None = None
    likelihood: Likelihood = Gaussian()
    n_classes: int = 0
    objective: Objective = ELBO()
    n_inducing: int | None = 100
    n_mean_inducing: int = 0
    inducing_init: object = "greedy_variance"
    jitter: float = 1e-8
    device: str = "auto"
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
        return self.likelihood.n_latent(len(table.y), self.n_classes)


def complete(plan, table):
    """The plan with the parts that depend on the data: a likelihood prepared for its targets, and kernels.

    Parameters
    ----------
    plan : Plan
    table : Table

    Returns
    -------
    plan : Plan

    Examples
    --------
    >>> import numpy as np
    >>> from skgp_natgrad import svgp
    >>> X = np.linspace(-2, 2, 100)[:, None]
    >>> table = svgp.Table(X, np.sin(X.T), np.ones(100))
    >>> plan = svgp.complete(svgp.Plan(n_inducing=10), table)
    >>> len(plan.kernels)
    1
    """
    kernels = plan.kernels
    if kernels is None:
        deviation = fit_scale("X", table.X, table.weight, active=True).scale
        targets = table.y.T
        if plan.n_classes:
            targets = np.equal(targets, np.unique(targets)).astype(float)
        kernels = (default_kernel(table.X, targets, deviation),)
    likelihood = plan.likelihood.prepare(table.y, plan.n_classes)
    return plan._replace(kernels=kernels, likelihood=likelihood)
