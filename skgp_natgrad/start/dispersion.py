"""How the standard deviation of y varies with X, from leave-one-out errors: see `prediction.dispersion`.

A Gaussian process regresses the logarithms of squared leave-one-out errors on X, in closed form. The distribution of
the errors (`errors`) is fitted to its own leave-one-out predictions, which show whether it predicts new rows at all.
For each target the dispersion is used if it raises the density of left-out rows by more than two standard errors; with
constant noise that seldom happens. Noise of another distribution (`mixture`) is chosen last. The squared error of a
rounded target is at least the variance of rounding (`solve.left_out`).
"""

from __future__ import annotations

import jax
import numpy as np
from sklearn.utils import check_random_state

from .. import kernels as _kernels
from .._backend import device as _device
from .._backend import threads
from .._backend.rows import filled_up
from .._backend.types import Seed
from ..likelihoods import Gaussian
from ..prediction import posterior as _posterior
from ..prediction.dispersion import Dispersion
from ..prediction.model import Model, predict
from ..solve import closed_form
from ..solve.left_out import left_out_of_model
from ..step.algorithm import Algorithm
from ..training.batches import Table
from ..training.long_table import AnyTable
from ..training.loop import Settings
from ..variational.points import Masks, Points
from . import errors as _errors
from . import noise_mixture, sizes
from .candidates import of_log_errors
from .plan import Plan
from .refinement import fitted_kernel
from .scale import fit_targets
from .state import Result, init

# The fewest rows for a dispersion, the rows of the evidence, and the inducing points of the process.
_FEWEST, _EVIDENCE_ROWS, _POINTS = 100, 400, 500
# The log square of a standard normal error has mean -1.27 and variance 4.9: most of the variance is noise.
_NOISE = 0.7
# A squared error counts as at least this share of its variance, so that an error of zero has a logarithm.
_LEAST = 1e-6
# The least standard deviation of a rounded target, as a share of that of rounding.
_LEAST_OF_ROUNDED = 0.5


def dispersed(model: Model, result: Result, table: AnyTable, plan: Plan, random_state: Seed = None) -> Model:
    """The model whose standard deviations have a factor that depends on X, as leave-one-out errors show.

    Parameters
    ----------
    model : Model
        With a Gaussian likelihood.
    result : Result
        The result from which the model was made, by any solver.
    table : Table
        The training rows. If variances of single rows are known, or y is constant, there is no factor.
    plan : Plan
    random_state : int, RandomState instance or None
        Draws the rows that are left out.

    Returns
    -------
    model : Model

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import svgp
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, size=(400, 1))
    >>> table = svgp.Table(X, (np.sin(X) + np.exp(2 * X - 4) * rng.normal(size=X.shape)).T, np.ones(400))
    >>> plan = svgp.Plan(kernels=(RBF(),), n_inducing=10, settings=svgp.Settings(max_iter=200))
    >>> result = svgp.train(*svgp.init(plan, table, random_state=0), table, plan, random_state=0)
    >>> model, _ = svgp.condition(result.state, result.constants, plan)
    >>> ends = np.array([[-1.5], [1.5]])
    >>> deviations = [np.sqrt(svgp.predict(model, ends, "target_moments")[1])]
    >>> model = svgp.dispersed(model, result, table, plan, random_state=0)
    >>> deviations += [np.sqrt(svgp.predict(model, ends, "target_moments")[1])]
    >>> [bool(each[0, 1] > 10 * each[0, 0]) for each in deviations]
    [False, True]
    """
    if table.has_known or table.y_is_constant:
        return model
    random_state, parameters, constants = check_random_state(random_state), result.state.parameters, result.constants
    sets, masks = ((each.of_q, each.Z_mean) for each in (parameters.points, constants.masks))
    sets, masks = (tuple(map(np.asarray, each)) for each in (sets, masks))
    parameters = parameters._replace(points=Points(np.concatenate(sets), sets[1][:0]))
    constants = constants._replace(masks=Masks(np.concatenate(masks), masks[1][:0]))
    n_points, undispersed = len(parameters.points.Z), model.undispersed
    with _device.computation(plan.device, plan.n_devices), threads.single_threaded(n_points):
        rows = left_out_of_model(
            lambda X: predict(undispersed, X, device=plan.device),
            *(parameters, constants, table, random_state, sizes.n_left_out(n_points)),
        )
        return model._replace(dispersion=fit(rows, plan.kernels, random_state))


def fit(left_out, kernels, random_state):
    """The `Dispersion` of these errors; None if they show none.

    Parameters
    ----------
    left_out : LeftOut
    kernels : sequence of sklearn.gaussian_process.kernels.Kernel
        Those of the model.
    random_state : numpy.random.RandomState

    Returns
    -------
    dispersion : Dispersion or None
    """
    seen = np.isfinite(left_out.error)
    floors = np.array([_floor(left_out, k, rows) for k, rows in enumerate(seen)])
    with np.errstate(invalid="ignore"):
        logarithms = _logarithms(left_out.error, floors[:, None], left_out.variance)
    # A target whose errors are all close to zero, such as a constant, is left out.
    told = [k for k, rows in enumerate(seen) if rows.sum() >= _FEWEST and np.ptp(logarithms[k, rows]) > _LEAST]
    if not told:
        return None
    some = seen[told].any(0)
    weight = np.where(seen[told], left_out.weight[told], 0.0).max(0)[some]
    # In a fit by several processes all have the same rows here, and each computes the same.
    with _device.computation(_device.HOST):
        rows = Table(left_out.X[some], logarithms[told][:, some], weight)
        process = _Process.of(rows, of_log_errors(kernels), random_state)
    predicted = np.full((len(told), len(some)), np.nan)
    predicted[:, some] = process.predicted
    found, mixtures = np.tile(_errors.Errors(), (len(seen), 1)), [noise_mixture.NONE] * len(seen)
    for each, k in zip(predicted, told, strict=True):
        rows = np.flatnonzero(np.isfinite(left_out.error[k]) & np.isfinite(each))
        of_target = _seen(left_out, each, k, rows, floors[k])
        mixtures[k], found[k] = noise_mixture.better(of_target, left_out.noise[k, rows], _errors.best(of_target))
    least = _LEAST_OF_ROUNDED**2 * floors[:, None]
    # Where copies of rows agree, these may say of a rounded target that it has no noise.
    if np.all(found == _errors.Errors()) and not np.any(least > left_out.noise):
        return None
    # The factor of a target without errors is one.
    dispersion = process.dispersion(found, told, np.where(seen, left_out.latent, 0.0).max(1))
    return dispersion._replace(least=least, **_of_noise(mixtures))


def _of_noise(mixtures):
    """The fields of a `Dispersion` for the `NoiseMixture` of each target, if any is one."""
    if all(each is noise_mixture.NONE for each in mixtures):
        return {}
    n_components = max(len(each.weights) for each in mixtures)
    weights, centres = (
        np.stack([filled_up(getattr(each, name), n_components, value=0.0) for each in mixtures])
        for name in ("weights", "centres")
    )
    return {"weights": weights, "centres": centres, "bandwidth": np.array([[each.bandwidth] for each in mixtures])}


def _floor(left_out, k, rows):
    """The least squared error that counts for the k-th target."""
    if not rows.any():
        return 0.0
    return _errors.floor(np.ravel(left_out.width)[k], left_out.error[k, rows], left_out.weight[k, rows])


def _logarithms(error, floor, variance):
    """The targets of the process: log squared errors relative to their variances, with this least square."""
    return np.log((error**2 + floor) / variance + _LEAST)


def _seen(left_out, predicted, k, rows, floor):
    """The `Seen` of the k-th target at some rows, with predicted logarithms (B,) of all."""
    of_target = (getattr(left_out, name)[k, rows] for name in ("error", "variance"))
    counts = (getattr(left_out, name)[k, rows] for name in ("weight", "n_each"))
    return _errors.Seen(*of_target, predicted[rows], *counts, np.ravel(left_out.width)[k] if floor else 0.0)


class _Process:
    """The Gaussian process of the logarithms.

    ``predicted`` (T, B) are its leave-one-out predictions, NaN where there are none.
    """

    def __init__(self, kernel, posterior, predicted):
        self.kernel, self.posterior, self.predicted = kernel, posterior, predicted

    @classmethod
    def of(cls, table, make, random_state):
        """The process of a table of logarithms, with a kernel of `candidates`."""
        scale = fit_targets(table.y.T, table.weight, active=True)
        table = table._replace(y=scale.forward(table.y.T).T)
        with threads.single_threaded(0):
            found = fitted_kernel(make, table, random_state, _EVIDENCE_ROWS, _NOISE)
        plan = Plan(
            kernels=(found.kernel,),
            # `fitted` keeps it within its bounds: the root of a power of ten may round to less.
            likelihood=Gaussian().fitted([np.full(table.n_targets, found.noise)]),
            n_inducing=_POINTS if table.n_rows > _POINTS else None,
            inducing_init="random",
            settings=Settings(algorithm=Algorithm(solver="evidence")),
        )
        state, constants = init(plan, table, random_state)
        with threads.single_threaded(len(constants.masks.Z)):
            best = closed_form.solve(state.parameters, constants, table, random_state, table.n_rows)
            given = best.parameters, best.q, constants, best.factors
            posterior = best.posterior or _posterior.condition(plan.basis, *given)[0]
        posterior = jax.tree.map(np.asarray, posterior)
        kernel = _kernels.to_sklearn(found.kernel, jax.tree.map(np.exp, best.parameters.log_kernels[0]))
        process = cls(kernel, posterior, table.y - best.left_out.error[:, : table.n_rows])
        return process._in_units(scale.scale[:, None], scale.offset[:, None])

    def _in_units(self, factor, offset):
        """The process times a factor, plus an offset (T, 1)."""
        mean_only = self.posterior.read_by(with_variance=False)
        posterior = mean_only._replace(
            alpha=factor * mean_only.alpha, a=factor * mean_only.a, prior_mean=factor * mean_only.prior_mean + offset
        )
        return _Process(self.kernel, posterior, factor * self.predicted + offset)

    def dispersion(self, found, told, largest):
        """The `Dispersion` of all targets, with these `Errors` (T, 5).

        ``told`` are the targets of the process; the factors hold up to latent variances ``largest`` (T,).
        """
        scale, factor, df, share, spread = found.T[:, :, None]
        of_told = self._in_units(factor[told], scale[told]).posterior
        alpha, prior_mean = np.zeros((len(found), of_told.alpha.shape[1])), scale.copy()
        alpha[told], prior_mean[told] = of_told.alpha, of_told.prior_mean
        used = np.any(alpha != 0.0, axis=0)
        posterior = of_told._replace(
            Z=of_told.Z[used], alpha=alpha[:, used], a=np.zeros((len(found), 0)), prior_mean=prior_mean
        )
        of_wide = (share, spread) if np.any(share > 0.0) else (None, None)
        return Dispersion(self.kernel, posterior, df, largest[:, None], *of_wide)
