"""Training by steps. The other routes are subclasses, which state only what they do differently."""

from __future__ import annotations

import sys
from typing import Literal

import numpy as np

from ..._backend.types import Device
from ...choose.targets import is_set, with_noise
from ...step.algorithm import SOLVERS
from ...step.chunk import STEPS_PER_CALL
from ...training.batches import bucket
from ...variational.bases import BASES
from .. import sizes

# Least noise at which steps start: with less, the rounding of single precision costs many nats a row.
_LEAST_NOISE = {"float64": 0.0, "float32": 1e-3}
# Most points for which the unexplained share of the prior variance is computed.
_POINTS = 2000


class Steps:
    """Steps train the hyperparameters, the points and q together, each from its start.

    Attributes
    ----------
    trains : bool
        Whether steps train everything. Otherwise a search finds the hyperparameters, and `solve` finds q.
    search : {"restarts", "evidence", "bound", "labels"}
        How the hyperparameters of given kernels are found: see `choice.complete`.
    n_finalists : int
        The number of default kernels that are compared by their solutions on many rows.
    compares_labels : bool
        Whether they are compared by held-out labels, and not by the density of measurements.
    averages : bool
        Whether the hyperparameters of a small table are averages: see `few_rows`.
    takes_prior, takes_several, takes_long : bool
        Whether hyperparameters may have a prior; whether there may be several kernels or processes; whether the table
        may be too long for memory.
    takes_further : bool
        Whether any number of mean-only points is possible; otherwise there are none, or the mean uses all rows.
    n_mean_inducing : int or "auto"
        Replaces "auto", if the number of inducing points is "auto" as well.
    jitter, batch_size
        Replace "auto".
    variance : float
        The prior variance at the start of latent functions that have no Gaussian noise.
    finds_noise : bool
        Whether held-out rows determine the noise, so that a noise near zero can be right.
    remedy : str or None
        What the user can change if the model predicts worse than a constant; None if that depends on the fit.
    """

    trains = True
    search = "restarts"
    n_finalists = 1
    compares_labels = averages = False
    takes_prior = takes_several = takes_long = takes_further = True
    n_mean_inducing: int | Literal["auto"] = 0
    jitter, batch_size = 1e-8, 1024
    finds_noise = False
    variance = 1.0
    remedy: str | None = None

    def check(self, plan, table):
        """Raise ValueError if the route does not suit a plan."""

    def device(self, plan, n_rows) -> Device:
        """Where a table of so many rows is fitted."""
        return plan.device

    def sized(self, plan, table):
        """The plan with a number of inducing points in place of "auto"; a method places them."""
        return plan._replace(n_inducing=sizes.OF_STEPS)

    def stages(self, plan, table):
        """A `sizes.Stage` for each part that is known to be large."""
        algorithm, n_inducing = plan.settings.algorithm, sizes.known_n_inducing(plan, table)
        n_mean = 0 if plan.n_mean_inducing == "auto" else min(plan.n_mean_inducing, table.n_rows)
        n_latent, of_points = plan.n_latent(table), sizes.of_points
        shape = n_latent, n_inducing, n_mean if BASES[plan.basis].second_part else 0
        yield sizes.batches(plan, table, n_inducing + (0 if algorithm.solves_mean else n_mean))
        yield of_points("a training step", plan, sizes.STEP, *shape)
        yield of_points("the state of predictions", plan, sizes.PREDICTION, *shape)
        if algorithm.mean_solver == "natural":
            yield of_points("the metric of the mean", plan, sizes.STEP, 1, 0, n_mean)
        if algorithm.solves_mean and n_mean:
            yield of_points("the solution for the mean", plan, sizes.MEAN_SOLVE, n_latent, n_inducing, n_mean)

    def compares_by_neighbours(self, plan, table):
        """Whether kernels for many rows are trained and compared by neighbours (`dense`)."""
        return self.compares_labels

    def n_points(self, plan):
        """The number of inducing points for which the search chooses a kernel; None stands for all rows."""
        given = np.shape(plan.inducing_init) or (sizes.OF_STEPS,)
        return given[0] if plan.n_inducing == "auto" else plan.n_inducing

    def likelihood(self, plan, found, table, variance):
        """The Gaussian likelihood at the start; noise was found as a share of the targets' variances (T,).

        The variance that few inducing points do not explain acts as noise, so that the noise of the exact process is
        too small for them. Training lowers a noise that is too large sooner than it raises one that is too small.
        """
        if plan.hyperparameter_prior is not None or is_set(plan.likelihood):
            # The prior is centred at the start, which must be the same for later parts of a stream.
            return plan.likelihood
        n_points, default = self.n_points(plan), float(np.mean(plan.likelihood.variance))
        noise = max(found.noise, _LEAST_NOISE[plan.settings.dtype])
        if n_points is not None and not 0 < n_points < len(table.X):
            # The first part of a stream may have no more rows than points, though later ones bring many.
            noise = default
        elif n_points is not None:
            share = sizes.share(found.kernel, table.X, min(n_points, _POINTS))
            noise += float(np.nan_to_num(share * np.mean(found.kernel.diag(table.X[:1000]))))
        return with_noise(plan.likelihood, min(noise, default) * variance)

    def prior_mean(self, plan, y, weight):
        """The constants around which the latent functions vary: (K,)."""
        return plan.likelihood.initial_latent(y, weight, plan.n_classes)

    def init_method(self, plan):
        """How inducing points are chosen: a name in `inducing_points.METHODS`.

        If training moves them, they start at cluster centres, which are as dense as the rows. Greedy selection begins
        at the border of the table, and if it does not explain most of the variance, training does not bring points back
        from there.
        """
        if plan.inducing_init != "auto":
            return plan.inducing_init
        moves = self.trains and plan.train_points and plan.settings.algorithm.optimizer is not None
        return "k-means" if moves else "greedy_variance"

    def padded(self, n_points):
        """The padded number of points if every row has one; small tables share programs."""
        return bucket(n_points)

    def n_trained_mean(self, plan):
        """The number of mean-only points that are placed before training and are trained."""
        return plan.n_mean_inducing if self.trains and not plan.settings.algorithm.solves_mean else 0

    def calibrates(self, likelihood):
        """Whether predictions are calibrated by default: not if the user fixes the noise, which is then known."""
        return not self.trains and not likelihood.fixed

    def calibration(self, plan):
        """How predictions are calibrated: by "cavities" for labels, by "errors" for measurements, or None."""
        if not (plan.calibrate and plan.objective.closed_form):
            return None
        return "cavities" if plan.n_classes else "errors" if plan.likelihood.conjugate else None

    def n_chunks(self, settings):
        """The largest number of chunks of iterations."""
        if not self.trains:
            return 1
        each = SOLVERS[settings.algorithm.solver].minimises or settings.searched is not None
        return settings.max_iter if each else -(-settings.max_iter // STEPS_PER_CALL)

    def of_further(self, algorithm):
        """How the mean on further points was found, as text."""
        return f"basis {algorithm.basis!r}" + (f", mean solver {algorithm.mean_solver!r}" if self.trains else "")

    def described(self, plan, n_iter):
        """What the fit did, as text."""
        settings = plan.settings
        solver, iterations = settings.algorithm.solver, f"{n_iter} iteration" + "s" * (n_iter != 1)
        if SOLVERS[solver].minimises:
            return f"{iterations} of L-BFGS"
        batches = "all rows at once" if settings.batch_size == sys.maxsize else f"batches of {settings.batch_size}"
        return f"{iterations} of solver {solver!r}, {batches}"
