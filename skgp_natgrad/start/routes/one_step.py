"""The best q for all rows in one natural gradient step, or a few, after a search for the hyperparameters.

To solve for another likelihood in this way, add a class here and an instance of it to `IN_ONE_STEP`.
"""

from __future__ import annotations

import functools

import numpy as np

from ..._backend import placement, processes
from ..._backend.device import HOST
from ...choose.targets import with_noise
from ...objectives import ELBO
from ...solve import class_labels, closed_form, newton, row_means
from ...training.batches import bucket
from .. import points_or_neighbours, sizes
from .steps import Steps

# With more points than this, one step takes longer than compilation: then points are padded to a multiple of the unit.
_WORTH_A_PROGRAM, _UNIT = 640, 64
# Up to so many rows the solution is assumed to take a CPU less time than to compile its programs for another device;
# not measured on a GPU yet.
_ROWS_OF_HOST = 2000


class OneStep(Steps):
    """The common part of all routes in one step; points do not move."""

    trains = False
    n_finalists = 2
    # Greedy selection takes longer than the solution.
    placed_by = "random"
    n_mean_inducing = "auto"
    # There are no batches; tables up to this size have their equal rows merged.
    batch_size = 100_000
    remedy = "give another kernel, or train it with solver='ngd'"

    def check(self, plan, table):
        algorithm, objective = plan.settings.algorithm, plan.objective
        here = f"solver={algorithm.solver!r} takes one step to the best q"
        if not self.suits(plan.likelihood):
            raise ValueError(
                f"{here}, or a few, for Gaussian noise, Poisson counts or class labels without parameters, not for "
                f"likelihood {type(plan.likelihood).__name__}; use solver='ngd'."
            )
        if type(objective) is not ELBO:
            raise ValueError(f"{here} of the ELBO, not of objective={objective.name!r}; use solver='ngd'.")
        for name, value in (("basis", "orthogonal"), ("mean_solver", "adam")):
            if getattr(algorithm, name) != value:
                raise ValueError(
                    f"{here} on one set of points; leave {name}={getattr(algorithm, name)!r} at its default, or use "
                    "solver='ngd'."
                )

    def device(self, plan, n_rows):
        is_open = plan.device == "auto" and plan.n_devices is None and not placement.is_forced()
        return HOST if is_open and n_rows <= _ROWS_OF_HOST else plan.device

    def sized(self, plan, table):
        # A method that the user names is used.
        method = self.placed_by if plan.inducing_init == "auto" else plan.inducing_init
        plan = self._with_points(plan._replace(inducing_init=method), table)
        return plan._replace(n_inducing=None) if table.n_rows <= plan.n_inducing else plan

    def stages(self, plan, table):
        # "auto" will be chosen so that it fits into memory.
        is_open = plan.n_inducing == "auto" and isinstance(plan.inducing_init, str)
        n_inducing = min(sizes.FEWEST, table.n_rows) if is_open else sizes.known_n_inducing(plan, table)
        yield from self._stages_of_points(plan, table, n_inducing, is_open)
        if plan.n_mean_inducing not in ("auto", 0):
            yield self._stage_of_mean(plan, table, n_inducing)

    def n_points(self, plan):
        return None

    def likelihood(self, plan, found, table, variance):
        return with_noise(plan.likelihood, found.noise * variance)

    def padded(self, n_points):
        return -(-n_points // _UNIT) * _UNIT if n_points > _WORTH_A_PROGRAM else bucket(n_points)

    def calibration(self, plan):
        """The value "solution" if left-out rows of the solution calibrate predictions, else None."""
        return "solution" if plan.calibrate else None

    def disperses(self, plan, table):
        """Whether errors of left-out rows calibrate the standard deviation of y."""
        # Known variances of single rows already say how it varies.
        return self.finds_noise and plan.calibrate and not table.has_known and not table.y_is_constant

    def described(self, plan, n_iter):
        steps = "one natural gradient step" if n_iter == 1 else f"{n_iter} natural gradient steps"
        return f"hyperparameters {'as given' if plan.is_pinned else 'from some rows'}, then {steps} on all rows"


class Measurements(OneStep):
    """One step under Gaussian noise; the mean may use all rows as well."""

    search = "evidence"
    averages = finds_noise = True
    takes_further = False
    # A small jitter is enough, since the solution divides by no small numbers.
    jitter = 1e-10

    def suits(self, likelihood):
        """Whether q has a closed form."""
        return likelihood.conjugate

    def check(self, plan, table):
        super().check(plan, table)
        n_mean, here = plan.n_mean_inducing, f"n_mean_inducing={plan.n_mean_inducing}"
        if n_mean in ("auto", 0):
            return
        if n_mean != table.n_rows:
            raise ValueError(
                f"{here}, but with Gaussian noise solver='evidence' has no mean-only points, or one at every row: give "
                f"0, or the number of rows, {table.n_rows}, or use solver='ngd'."
            )
        shares = processes.sharing(plan.n_devices) > 1
        if shares or len(plan.kernels or ()) > 1:
            here += " with solver='evidence' finds the mean on all rows under one kernel in one process"
            but = f"n_devices={plan.n_devices!r} shares them" if shares else f"kernel is a list of {len(plan.kernels)}"
            raise ValueError(f"{here}, but {but}: give n_mean_inducing=0, or one kernel and n_devices=None.")

    def _with_points(self, plan, table):
        """Fewer inducing points do where they explain the kernel, or where the user has a mean on all rows."""
        most = sizes.n_inducing(table.n_rows, plan.n_latent(table), plan.n_bytes)
        n_inducing = most
        if most < table.n_rows:
            n_inducing = sizes.fewer_that_do(most, plan.kernels, np.min(plan.likelihood.variance), table.sample.X)
        if plan.n_mean_inducing not in ("auto", 0):
            return plan._replace(n_inducing=min(n_inducing, sizes.OF_VARIANCE))
        plan = plan._replace(n_inducing=n_inducing, n_mean_inducing=0)
        return points_or_neighbours.first(plan, table, points_do=n_inducing < most or most >= table.n_rows)

    def _stages_of_points(self, plan, table, n_inducing, is_open):
        if not is_open:
            sizes_of_q = plan.n_latent(table), n_inducing, 0
            yield sizes.of_points("the one step on all rows", plan, sizes.ONE_STEP, *sizes_of_q)
        if plan.n_neighbours not in ("auto", 0):
            yield sizes.of_neighbours(plan, table)

    def _stage_of_mean(self, plan, table, n_inducing):
        n_bytes = row_means.n_bytes(table.n_rows, table.n_targets)
        return sizes.of_mean(plan, plan.n_mean_inducing, n_bytes, lambda n_bytes: "n_mean_inducing to 0")

    def compares_by_neighbours(self, plan, table):
        # The number of points is open, and the targets are complete and share their noise.
        is_open = plan.n_inducing == "auto" and isinstance(plan.inducing_init, str) and plan.n_mean_inducing != 0
        # Repeated X cannot be merged if their noise is known: neighbours would be copies of one row.
        in_common = table.known is None or (table.n_targets == 1 and table.n_distinct == table.n_rows)
        return is_open and in_common and bool(np.all(np.isfinite(table.y)))

    def solve(self, parameters, constants, table, plan, random_state, before=None):
        """The `Optimum`, and the same plan; or one on other points, for which to solve again.

        These are more points if neighbours are not clearly better than few; or fewer points if neighbours are better:
        then ``before`` has them.
        """
        if before is not None and before.neighbours is not None:
            return points_or_neighbours.on_points(before, parameters, constants, table, random_state), plan
        on_all_rows = plan.n_mean_inducing > 0 and np.sum(constants.masks.Z) < table.n_distinct
        compares = points_or_neighbours.may(plan, table)
        n_left_out = 0
        if on_all_rows or compares or self.disperses(plan, table):
            n_left_out = sizes.n_left_out(len(constants.masks.Z))
        how = n_left_out, on_all_rows, plan.averages is None and not plan.is_pinned, not plan.has_categories
        optimum = closed_form.solve(parameters, constants, table, random_state, *how)
        found = points_or_neighbours.found(optimum, parameters, constants, table, plan) if compares else None
        if found is None:
            return optimum, plan.otherwise or plan
        few = points_or_neighbours.POINTS
        if plan.n_neighbours == "auto" and plan.n_inducing > few:
            return found, plan._replace(n_inducing=few)
        return self.solve(parameters, constants, table, plan, random_state, found)


def _of_all_rows(stage, n_numbers, n_inducing):
    """The stage that holds ``n_numbers`` for each inducing point: its covariances with all rows."""
    each = sizes.BYTES * n_numbers
    fewer = {"would_fit": lambda n_bytes: f"n_inducing to at most {max(int(n_bytes / each), 1)}"}
    return stage._replace(name="the covariance of all rows with the points", n_bytes=each * n_inducing, **fewer)


class Counts(OneStep):
    """A few steps of Newton's method, in one process, under any likelihood of numbers that has `by_newton`."""

    search, placed_by = "bound", "k-means"
    # Their covariances with the points are held for all rows.
    takes_several = takes_long = takes_further = False

    def suits(self, likelihood):
        """Whether Newton's method finds q."""
        return likelihood.by_newton

    def check(self, plan, table):
        super().check(plan, table)
        if plan.n_mean_inducing not in ("auto", 0):
            raise ValueError(
                f"n_mean_inducing={plan.n_mean_inducing}, but solver='evidence' has no mean-only points for counts: "
                "give 0, or use solver='ngd'."
            )
        if len(plan.kernels or ()) > 1:
            raise ValueError("solver='evidence' needs one kernel for all columns of counts; use solver='ngd'.")

    def _with_points(self, plan, table):
        """As many inducing points as in the search for the hyperparameters."""
        return plan._replace(n_inducing=sizes.OF_STEPS)

    def _stages_of_points(self, plan, table, n_inducing, is_open):
        sizes_of_q = plan.n_latent(table), n_inducing, 0
        stage = sizes.of_points("the solution for counts", plan, sizes.ONE_STEP, *sizes_of_q)
        return stage, _of_all_rows(stage, sizes.ARRAYS_OF_COUNTS * bucket(table.n_rows), n_inducing)

    def solve(self, parameters, constants, table, plan, random_state, before=None):
        """The `Optimum`, and the same plan."""
        return newton.solve(parameters, constants, table.in_memory(), random_state), plan

    def described(self, plan, n_iter):
        steps = f"{n_iter} Newton step" + "s" * (n_iter != 1)
        found = "as given" if plan.is_pinned else "at the largest bound of some rows"
        return f"hyperparameters {found}, then {steps} on all rows"


class Labels(OneStep):
    """A few steps for class labels, whose latent functions share a covariance, in the memory of one process."""

    search = "labels"
    compares_labels = True
    # Their covariances with the points are held for all rows.
    takes_prior = takes_several = takes_long = False
    variance = 9.0

    def suits(self, likelihood):
        """Whether this is a likelihood of class labels without parameters."""
        return "classification" in likelihood.tasks and not likelihood.parameters

    def check(self, plan, table):
        super().check(plan, table)
        if plan.hyperparameter_prior is not None:
            raise ValueError(
                "hyperparameter_prior: for class labels solver='evidence' chooses hyperparameters by held-out labels, "
                "and not by a bound to which a log prior could be added; use solver='ngd'."
            )
        if len(plan.kernels or ()) > 1 or table.has_offset:
            raise ValueError("solver='evidence' needs one kernel for all classes and no offset; use solver='ngd'.")

    def _with_points(self, plan, table):
        """There are fewer inducing points if there are further points for the means."""
        n_rows, n_mean, n_bytes = table.n_rows, plan.n_mean_inducing, plan.n_bytes
        share = functools.cache(functools.partial(sizes.share, plan.kernels[0], table.sample.X))
        n_inducing = sizes.n_inducing_of_labels(n_rows, n_bytes, share)
        few = sizes.n_inducing_of_labels(n_rows, n_bytes)
        if n_mean == "auto":
            pays = max(few, n_inducing) < n_rows and share(few) > sizes.WORTH_FURTHER_POINTS
            n_mean = sizes.n_further_of_labels(n_rows, few, n_bytes) if pays else 0
            # Even if memory allows no further points, the inducing points stay few.
            plan = plan._replace(n_mean_inducing=n_mean, n_mean_inducing_at_most=pays)
            return plan._replace(n_inducing=few if pays else n_inducing)
        return plan._replace(n_inducing=few if n_mean else n_inducing)

    def _stages_of_points(self, plan, table, n_inducing, is_open):
        stage = sizes.of_points("the solution for class labels", plan, sizes.ONE_STEP, 1, n_inducing, 0)
        return stage, _of_all_rows(stage, sizes.ARRAYS_OF_LABELS * table.n_rows, n_inducing)

    def _stage_of_mean(self, plan, table, n_inducing):
        n_rows, n_further = table.n_rows, min(plan.n_mean_inducing, table.n_rows)

        def would_fit(n_bytes):
            # The positive root of the quadratic in `sizes.n_bytes_of_further`, if there is one.
            rest = n_bytes / 8 - n_rows * n_inducing / 2
            most = np.sqrt(max(rest + (n_rows / 4) ** 2, 0.0)) - n_rows / 4
            return f"n_mean_inducing to at most {max(int(most), 0)}"

        n_bytes = sizes.n_bytes_of_further(n_rows, n_inducing, n_further)
        return sizes.of_mean(plan, n_further, n_bytes, would_fit)

    def prior_mean(self, plan, y, weight):
        found = plan.likelihood.latent_of_base_rates(y, weight, plan.n_classes)
        return found if plan.averages is None else plan.averages.of_frequencies * found

    def calibration(self, plan):
        # So few labels do not tell more numbers than their averages.
        return None if plan.averages is not None else super().calibration(plan)

    def solve(self, parameters, constants, table, plan, random_state, before=None):
        """The `Optimum`, and the same plan."""
        further = plan.n_mean_inducing, plan.n_mean_inducing_at_most
        how = *further, plan.averages is None
        return class_labels.solve(parameters, constants, table.in_memory(), random_state, *how), plan


IN_ONE_STEP = Measurements(), Counts(), Labels()
