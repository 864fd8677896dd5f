"""How the deviation of y varies with X, from errors of predictions that leave a row out: see `prediction.dispersion`.

The logarithms of squared errors are regressed on X by a Gaussian process, in closed form. Its predictions of
each row from all others then give the scale of the errors and their degrees of freedom, by the largest density,
so that a process which explains nothing of new rows is found out. For each target the dispersion is used if it raises
the density of rows that were left out by more than two standard errors: where nothing varies it then seldom is.
"""

from __future__ import annotations

import jax
import numpy as np
from scipy import optimize, stats
from sklearn.utils import check_random_state

from .. import kernels as _kernels
from .._backend import blas, placement
from .._backend import device as _device
from .._backend.types import Seed
from ..likelihoods import Gaussian
from ..mean_solve import closed_form
from ..prediction import posterior as _posterior
from ..prediction.calibration import Average
from ..prediction.dispersion import NORMAL_DF, Dispersion
from ..prediction.model import Model, predict
from ..step.algorithm import Algorithm
from ..training.batches import Table
from ..training.long_table import AnyTable
from ..training.settings import Settings
from ..variational.points import Masks, Points
from .candidates import matern12
from .plan import Plan
from .refinement import fitted_kernel
from .result import Result
from .scale import fit_targets
from .state import init

# Most rows that are left out, operations for them, the fewest rows, rows of the evidence, and points of the process.
_MOST_ROWS, _OPERATIONS, _FEWEST, _EVIDENCE_ROWS, _POINTS = 8192, 2e11, 100, 400, 500
# Of a normal error the logarithm of the square has mean -1.27 and variance 4.9, most of what there is to explain.
_NOISE = 0.7
# A square is at least this share of its variance: an error of zero is not known to be smaller.
_LEAST = 1e-6
# Standard errors of the gain in density, at least.
_ERRORS = 2.0
# Bounds of the logarithm of the scale, of what the process is multiplied by, and of the degrees of freedom less the
# fewest: with three the deviation is that of a normal error times 1.7, and still of use.
_FEWEST_DF = 3.0
_BOUNDS = optimize.Bounds([-10.0, 0.0, -10.0], [10.0, 2.0, 7.0])
_STARTS = (0.9, 1.0, 1.0), (0.0, 0.0, 2.0)
# Of a target whose errors are as predicted.
_NORMAL = 0.0, 0.0, NORMAL_DF


def n_rows(n_points):
    """The number of rows to be left out, of a model with so many points: each row is whitened twice."""
    return int(min(_MOST_ROWS, max(_OPERATIONS / (2.0 * n_points**2), _POINTS)))


def dispersed(model: Model, result: Result, table: AnyTable, plan: Plan, random_state: Seed = None) -> Model:
    """The model with the factor of its deviations, as a function of X, that errors of rows left out show.

    Parameters
    ----------
    model : Model
        With a Gaussian likelihood.
    result : Result
        That it was made from, of any solver.
    table : Table
        The rows that it was trained on. If known variances of single rows are among them, there is no factor.
    plan : Plan
    random_state : int, RandomState instance or None
        Draws the rows that are predicted, each without itself.

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
    with _device.computation(plan.device, plan.n_devices), blas.single_threaded(n_points):
        rows = closed_form.left_out_of_model(
            lambda X: predict(undispersed, X, device=plan.device),
            *(parameters, constants, table, random_state, n_rows(n_points)),
        )
        return model._replace(dispersion=fit(rows, random_state))


def fit(left_out, random_state):
    """The `Dispersion` that the errors show; None if they show none.

    Parameters
    ----------
    left_out : LeftOut
    random_state : numpy.random.RandomState

    Returns
    -------
    dispersion : Dispersion or None
    """
    seen = np.isfinite(left_out.error)
    with np.errstate(invalid="ignore"):
        logarithms = np.log(left_out.error**2 / left_out.variance + _LEAST)
    # Of a target whose errors are all next to nothing, such as a constant, there is nothing to find.
    told = [k for k, rows in enumerate(seen) if rows.sum() >= _FEWEST and np.ptp(logarithms[k, rows]) > _LEAST]
    if not told:
        return None
    some = seen[told].any(0)
    weight = np.where(seen[told], left_out.weight[told], 0.0).max(0)[some]
    # All processes of a common fit have the same rows, and each of them does the same.
    with placement.using(placement.ONE_DEVICE):
        process = _Process.of(Table(left_out.X[some], logarithms[told][:, some], weight), random_state)
    predicted = np.full((len(told), len(some)), np.nan)
    predicted[:, some] = process.predicted
    found = np.tile(_NORMAL, (len(seen), 1))
    for each, k in zip(predicted, told, strict=True):
        found[k] = _calibrated(left_out, each, k)
    if np.all(found == _NORMAL):
        return None
    # Of a target without errors nothing is known, and its factor is one.
    return process.dispersion(found, told, np.where(seen, left_out.latent, 0.0).max(1))


class _Process:
    """The Gaussian process of the logarithms.

    ``predicted`` (T, B) are its predictions of rows from all others, NaN where there are none.
    """

    def __init__(self, kernel, posterior, predicted):
        self.kernel, self.posterior, self.predicted = kernel, posterior, predicted

    @classmethod
    def of(cls, table, random_state):
        """The process of a table of logarithms."""
        scale = fit_targets(table.y.T, table.weight, active=True)
        table = table._replace(y=scale.forward(table.y.T).T)
        with blas.single_threaded(0):
            found = fitted_kernel(matern12, table, random_state, _EVIDENCE_ROWS, _NOISE)
        plan = Plan(
            kernels=(found.kernel,),
            # Within its bounds: the root of a power of ten may round to less.
            likelihood=Gaussian().fitted([np.full(table.n_targets, found.noise)]),
            n_inducing=_POINTS if table.n_rows > _POINTS else None,
            inducing_init="random",
            settings=Settings(algorithm=Algorithm(solver="evidence")),
        )
        state, constants = init(plan, table, random_state)
        with blas.single_threaded(len(constants.masks.Z)):
            best = closed_form.solve(state.parameters, constants, table, random_state, table.n_rows)
            posterior, _ = _posterior.condition(plan.basis, best.parameters, best.q, constants)
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
        """The `Dispersion` of all targets, with these scales, factors and degrees of freedom (T, 3).

        ``told`` are the targets of the process, and ``largest`` (T,) latent variances up to which the factors hold.
        """
        scale, factor, df = found.T[:, :, None]
        of_told = self._in_units(factor[told], scale[told]).posterior
        alpha, prior_mean = np.zeros((len(found), of_told.alpha.shape[1])), scale.copy()
        alpha[told], prior_mean[told] = of_told.alpha, of_told.prior_mean
        used = np.any(alpha != 0.0, axis=0)
        posterior = of_told._replace(
            Z=of_told.Z[used], alpha=alpha[:, used], a=np.zeros((len(found), 0)), prior_mean=prior_mean
        )
        return Dispersion(self.kernel, posterior, df, largest[:, None])


def _calibrated(left_out, predicted, k):
    """Scale, factor and degrees of freedom of one target, whose logarithms are predicted to be these (B,)."""
    rows = np.flatnonzero(np.isfinite(left_out.error[k]) & np.isfinite(predicted))
    error, deviation = left_out.error[k, rows], np.sqrt(left_out.variance[k, rows])
    weight, n_each = left_out.weight[k, rows], left_out.n_each[k, rows]

    def densities(x):
        scale = deviation * np.exp(0.5 * (x[0] + x[1] * predicted[rows]))
        return stats.t.logpdf(error, _FEWEST_DF + np.exp(x[2]), scale=scale)

    def loss(x):
        return -np.average(densities(x), weights=weight)

    found = [optimize.minimize(loss, x, method="Nelder-Mead", bounds=_BOUNDS, options={"xatol": 1e-3}) for x in _STARTS]
    x = min(found, key=lambda each: each.fun).x
    gain = Average.of(densities(x) - stats.norm.logpdf(error, scale=deviation), weight, n_each)
    return (x[0], x[1], _FEWEST_DF + np.exp(x[2])) if gain.mean > _ERRORS * gain.error else _NORMAL
