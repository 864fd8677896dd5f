"""How the standard deviation of y varies with X, from leave-one-out errors: see `prediction.dispersion`.

A Gaussian process regresses the logarithms of squared leave-one-out errors on X, in closed form. The distribution of
the errors (`errors`) rests on its own leave-one-out predictions, which show whether it predicts new rows at all: their
density decides, for each target, about the process, its noise, and the form of the errors. The squared error of a
rounded target is at least the variance of rounding (`solve.left_out`).
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from scipy import linalg
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils import check_random_state

from .._backend import device as _device
from .._backend import in_place, threads
from .._backend.rows import filled_up
from .._backend.types import Seed
from ..choose.candidates import of_log_errors
from ..choose.refinement import fitted_kernel
from ..choose.scale import fit_targets
from ..prediction.dispersion import Dispersion
from ..prediction.errors import MixtureErrors
from ..prediction.model import Model, predict
from ..prediction.posterior import Posterior
from ..solve.left_out import left_out_of_model
from ..training.batches import Table
from ..training.long_table import AnyTable
from ..variational.points import Masks, Points
from . import errors as _errors
from . import sizes
from .plan import Plan
from .state import Result

# The fewest rows for a dispersion, the rows of the evidence, and the points of the process, at most.
_FEWEST, _EVIDENCE_ROWS, _POINTS = 100, 400, 500
# The log square of a standard normal error has mean -1.27 and variance 4.9: most of the variance is noise.
_NOISE = 0.7
# Noise variances of the process that are tried, as multiples of that of largest evidence.
_NOISES = (0.25, 0.5, 1.0, 2.0, 4.0)
# Added to the covariance of the points, as a share of their variance.
_JITTER = 1e-8
# A squared error counts as at least this share of its variance, so that an error of zero has a logarithm.
_LEAST = 1e-6
# Rounding is the least error unless most are below this share of its deviation: the model then knows y exactly. And the
# least standard deviation of a rounded target is this share of that of rounding.
_OF_ROUNDING = 0.5


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
        logarithms = np.log((left_out.error**2 + floors[:, None]) / left_out.variance + _LEAST)
    # A target whose errors are all close to zero, such as a constant, is left out.
    told = [k for k, rows in enumerate(seen) if rows.sum() >= _FEWEST and np.ptp(logarithms[k, rows]) > _LEAST]
    if not told:
        return None
    some = seen[told].any(0)
    weight = np.where(seen[told], left_out.weight[told], 0.0).max(0)[some]
    # In a fit by several processes all have the same rows here, and each computes the same.
    with _device.computation(_device.HOST), threads.single_threaded(0):
        rows = Table(left_out.X[some], logarithms[told][:, some], weight)
        process = _Process.of(rows, of_log_errors(kernels), random_state)
        found, functions = [_errors.NORMAL] * len(seen), [None] * len(seen)
        for k in told:
            found[k], functions[k] = _of_target(left_out, k, process, logarithms[k])
    least = _OF_ROUNDING**2 * floors[:, None]
    # Where copies of rows agree, these may say of a rounded target that it has no noise.
    if all(each is _errors.NORMAL for each in found) and not np.any(least > left_out.noise):
        return None
    # The factor of a target without errors is one.
    largest = np.where(seen, left_out.latent, 0.0).max(1)[:, None]
    return Dispersion(process.kernel, process.posterior(found, functions), _mixture(found), largest, least)


def _floor(left_out, k, rows):
    """The least squared error that counts for the k-th target."""
    if not rows.any():
        return 0.0
    return floor(np.ravel(left_out.width)[k], left_out.error[k, rows], left_out.weight[k, rows])


def floor(width, error, weight):
    """The least squared error that counts: the variance of rounding to this width, or zero.

    It is zero if errors are far below the width: the model then knows y exactly, and its steps are no rounding.
    """
    least = width**2 / 12.0
    return least if np.average(error**2, weights=weight) > _OF_ROUNDING**2 * least else 0.0


def _of_target(left_out, k, process, logarithms):
    """The `Errors` of the k-th target, and the `_Function` that multiplies its variances, or None."""
    rows = np.flatnonzero(np.isfinite(left_out.error[k]) & (left_out.weight[k] > 0.0))
    of_target = [getattr(left_out, name)[k, rows] for name in ("error", "variance", "weight")]
    # The logarithm of one error that stands for many rows may say as much of the deviation as theirs, or as one.
    weights = [of_target[-1], *([np.minimum(of_target[-1], 1.0)] if np.any(of_target[-1] > 1.0) else [])]
    A = process.whitened(left_out.X[rows])
    pairs = [process.functions(A, logarithms[rows], each) for each in weights]
    functions, predicted = (list(itertools.chain(*each)) for each in zip(*pairs, strict=True))
    found = _errors.best(*of_target, predicted)
    return found, None if found.process is None else functions[found.process]


def _mixture(found):
    """The `MixtureErrors` of targets with these `Errors`."""
    # A power of two, so that fits share the programs of their predictions.
    size = 1 << (max(len(each.weights) for each in found) - 1).bit_length()
    fillings = {"weights": 0.0, "centres": 0.0, "scales": 1.0, "undispersed": 0.0}
    parts = {
        name: np.stack([filled_up(getattr(each, name), size, value=filling) for each in found])
        for name, filling in fillings.items()
    }
    return MixtureErrors(**parts | ({} if np.any(parts["undispersed"]) else {"undispersed": None}))


class _Function(NamedTuple):
    """A sum of kernel functions at the points of the process, with these coefficients, plus a constant."""

    alpha: np.ndarray
    constant: float


class _Process(NamedTuple):
    """The Gaussian process of the logarithms, on some points.

    Attributes
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
    noise : float
        Of the largest evidence, where the logarithms have a variance of one.
    Z : ndarray of shape (M, D)
    root : ndarray of shape (M, M)
        The lower Cholesky factor of the covariance of the points.
    """

    kernel: Kernel
    noise: float
    Z: np.ndarray
    root: np.ndarray

    @classmethod
    def of(cls, table, make, random_state):
        """The process of a table of logarithms, with a kernel of `candidates`."""
        y = fit_targets(table.y.T, table.weight, active=True).forward(table.y.T).T
        found = fitted_kernel(make, table._replace(y=y), random_state, _EVIDENCE_ROWS, _NOISE)
        Z = table.X[np.sort(random_state.permutation(table.n_rows)[:_POINTS])]
        K = found.kernel(Z)
        return cls(found.kernel, found.noise, Z, in_place.jittered_cholesky(K, _JITTER * np.mean(np.diag(K)))[0])

    def whitened(self, X):
        """The whitened covariances of the points with the rows X (B, D): (M, B)."""
        return linalg.solve_triangular(self.root, self.kernel(self.Z, X), lower=True)

    def functions(self, A, logarithms, weight):
        """For each noise the `_Function` of the logarithms (B,), and its prediction (B,) of each from all others.

        ``A`` (M, B) has the whitened covariances of the rows.
        """
        scale = fit_targets(logarithms[:, None], weight, active=True)
        y = scale.forward(logarithms[:, None])[:, 0]
        values, vectors = linalg.eigh((A * weight) @ A.T)
        A = vectors.T @ A
        product, squares = A @ (weight * y), A**2
        back = linalg.solve_triangular(self.root, vectors, lower=True, trans=1)
        functions, predicted = [], []
        for noise in self.noise * np.array(_NOISES):
            inverse = 1.0 / (values + noise)
            # The error of a row's mean, divided by what its leverage leaves, is that without the row.
            error = (y - (inverse * product) @ A) / (1.0 - weight * (inverse @ squares))
            predicted.append(scale.backward((y - error)[:, None])[:, 0])
            functions.append(_Function(scale.scale[0] * back @ (inverse * product), float(scale.offset[0])))
        return functions, np.array(predicted)

    def posterior(self, found, functions):
        """The posterior of all targets, whose mean is the logarithm of their factors."""
        nothing = _Function(np.zeros(len(self.Z)), 0.0)
        functions = [nothing if each is None else each for each in functions]
        alpha = np.stack([each.alpha for each in functions])
        of_mean = np.array([[each.constant + of.log_scale] for each, of in zip(functions, found, strict=True)])
        used = np.any(alpha != 0.0, axis=0)
        return Posterior(self.Z[used], self.Z[:0], alpha[:, used], np.zeros((len(alpha), 0)), None, None, of_mean)
