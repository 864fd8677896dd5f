"""The model that predicts: made from a state of training, and evaluated at rows."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import numpy as np
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils import check_random_state

from .. import kernels as _kernels
from .._backend import device as _device
from .._backend import threads
from .._backend.types import Device, Devices, Floats, Seed
from ..likelihoods import Gaussian, Likelihood
from ..neighbours import Neighbours
from ..variational.model import Constants
from . import calibration as calibration_of
from . import evaluate
from . import gradients as _gradients
from . import posterior as _posterior
from .calibration import Calibrated, Calibration
from .dispersion import Dispersion
from .posterior import Posterior, reduced

Quantity: TypeAlias = Literal[
    "latent_mean",
    "latent_moments",
    "target_mean",
    "target_moments",
    "class_probabilities",
    "log_class_probabilities",
    "log_density",
]

_QUANTITIES = {
    function.__name__: function
    for function in (
        evaluate.latent_mean,
        evaluate.latent_moments,
        evaluate.target_mean,
        evaluate.target_moments,
        evaluate.class_probabilities,
        evaluate.log_class_probabilities,
        evaluate.log_density,
    )
}


_CALIBRATED = (evaluate.class_probabilities, evaluate.log_class_probabilities)
_DISPERSED = (evaluate.latent_moments, evaluate.target_moments, evaluate.log_density)


class Model(NamedTuple):
    """A trained model, ready for prediction.

    Attributes
    ----------
    kernels : tuple of sklearn.gaussian_process.kernels.Kernel
        With the trained hyperparameters: one for all latent functions, or one for each.
    likelihood : Likelihood
        With the trained parameters, not their raw values.
    posterior : Posterior
    calibration : Calibration, optional
        Scales of the latent functions in class probabilities: see `calibrated`.
    dispersion : Dispersion, optional
        A factor of the variance of y as a function of X, with a Gaussian likelihood.
    neighbours : Neighbours, optional
        Rows from which others are predicted, in place of the posterior, of which are the correlations of several rows
        and the gradients.
    """

    kernels: tuple[Kernel, ...]
    likelihood: Likelihood
    posterior: Posterior
    calibration: Calibration | None = None
    dispersion: Dispersion | None = None
    neighbours: Neighbours | None = None

    @property
    def undispersed(self) -> Model:
        """The Gaussian process alone."""
        return self._replace(dispersion=None)

    @property
    def of_dispersion(self) -> Model:
        """The model whose latent mean is the logarithm of the factor."""
        return Model((self.dispersion.kernel,), Gaussian(), self.dispersion.posterior)


def condition(
    state: Any, constants: Constants, plan: Any, factors: Any = None, exact: Posterior | None = None
) -> tuple[Model, float]:
    """Return the model that predicts, from a state of training.

    Parameters
    ----------
    state : State
    constants : Constants
    plan : Plan
    factors : tuple of Factor, optional
        Those of the inducing points, if they are at hand.
    exact : Posterior, optional
        Of the exact process, whose state has no q: the ``posterior`` of a `Result`.

    Returns
    -------
    model : Model
    jitter : float
        The value added to the diagonal of the inducing points' covariance.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import svgp
    >>> X = np.linspace(-2, 2, 100)[:, None]
    >>> table = svgp.Table(X, np.sin(X.T), np.ones(100))
    >>> plan = svgp.Plan(kernels=(RBF(),), n_inducing=10, settings=svgp.Settings(max_iter=200))
    >>> result = svgp.train(*svgp.init(plan, table, random_state=0), table, plan, random_state=0)
    >>> model, _ = svgp.condition(result.state, result.constants, plan)
    >>> bool(model.likelihood.variance < 0.1)
    True
    """
    parameters = state.parameters
    if state.q is None and exact is None:
        raise ValueError("state.q is None: an exact process has a posterior; give exact=result.posterior.")
    with _device.computation(plan.device), threads.single_threaded(len(constants.masks.Z)):
        found = (exact, 0.0) if exact else _posterior.condition(plan.basis, parameters, state.q, constants, factors)
        (posterior, jitter), parameters = jax.tree.map(np.asarray, (found, parameters))
        posterior = posterior if exact else reduced(posterior)
    values = jax.tree.map(np.exp, parameters.log_kernels)
    kernels = tuple(map(_kernels.to_sklearn, plan.kernels, values))
    return Model(kernels, parameters.raw_likelihood.from_raw(np), posterior), float(jitter)


def predict(
    model: Model,
    X: Floats,
    quantity: Quantity = "latent_moments",
    *targets: Floats,
    device: Device = "auto",
    n_devices: Devices = None,
    offset: Floats | None = None,
    known: Floats | None = None,
) -> Any:
    """Evaluate the model at every row of a table.

    Parameters
    ----------
    model : Model
    X : ndarray of shape (N, D)
        In the units of the table that was trained on.
    quantity : str
        "latent_mean" (K, N); "latent_moments", means and variances (K, N) each; "target_mean" (T, N); "target_moments",
        the same of y; "class_probabilities" and "log_class_probabilities" (C, N); "log_density" (N,), of targets.
    *targets : ndarray of shape (T, N)
        For "log_density".
    device : str
    n_devices : int, "all" or None, default=None
        Devices that share the rows.
    offset, known : ndarrays of shapes (K, N) and (P T, N), optional
        Added to the latent functions, and what else is known of the rows: see `given` of `Likelihood` and `Calibrated`.

    Returns
    -------
    values : ndarray, or tuple of ndarrays, of shape (..., N)

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import svgp
    >>> X = np.linspace(-2, 2, 100)[:, None]
    >>> table = svgp.Table(X, np.sin(X.T), np.ones(100))
    >>> plan = svgp.Plan(kernels=(RBF(),), n_inducing=10, settings=svgp.Settings(max_iter=200))
    >>> result = svgp.train(*svgp.init(plan, table, random_state=0), table, plan, random_state=0)
    >>> model, _ = svgp.condition(result.state, result.constants, plan)
    >>> mean, var = svgp.predict(model, X, "target_moments")
    >>> bool(np.abs(mean - np.sin(X.T)).max() < 0.1)
    True
    """
    if quantity not in _QUANTITIES:
        raise ValueError(f"quantity={quantity!r} must be one of {', '.join(map(repr, _QUANTITIES))}.")
    function, (_, likelihood, _, calibration, dispersion, neighbours) = _QUANTITIES[quantity], model
    if dispersion is not None and function in _DISPERSED:
        if function is evaluate.latent_moments:
            return _latent_moments(model, X, device, n_devices, offset)
        errors, *moments, of_rows = distribution(model, X, device, n_devices, offset, known)
        if function is evaluate.target_moments:
            return function(errors.given(of_rows), *moments)
        with _device.computation(device, n_devices, required=False):
            return evaluate.at_moments(function, errors, *moments, *targets, known=of_rows)
    if calibration is not None and function in _CALIBRATED:
        likelihood = Calibrated(likelihood, calibration)
    if offset is not None or known is not None or neighbours is not None:
        mean, var = _moments(model, X, device, n_devices)
        mean = mean if offset is None else mean + offset
        with _device.computation(device, n_devices, required=False):
            return evaluate.at_moments(function, likelihood, mean, var, *targets, known=known)
    return _by_points(function, likelihood, model, X, targets, (device, n_devices))


def _by_points(function, likelihood, model, X, targets, devices):
    """A quantity at every row, from the posterior at the points."""
    given, few = (likelihood, model.posterior, X, *targets), len(X) <= evaluate.FEW_ROWS
    without_jax = few and not evaluate.needs_variance(function, likelihood)
    if without_jax and (function is evaluate.latent_mean or likelihood.conjugate):
        # Sums of NumPy's arrays: to enter the scope of a computation takes as long.
        return evaluate.at_few_rows(function, model.kernels, *given)
    with _device.computation(*devices, required=False, in_fork=without_jax):
        if few:
            return evaluate.at_few_rows(function, model.kernels, *given)
        return evaluate.in_chunks(function, computing(model.kernels, X), *given)


def _moments(model, X, device, n_devices):
    """The moments of the latent functions: (K, N) each."""
    if model.neighbours is None:
        return predict(model, X, device=device, n_devices=n_devices)
    # Few rows take a CPU less time than a call of another device.
    where = (_device.HOST,) if len(X) <= evaluate.FEW_ROWS else (device, n_devices)
    with _device.computation(*where, required=False):
        mean, var = model.neighbours.moments(computing(model.kernels, X), X)
    return model.posterior.prior_mean + mean, var


def distribution(
    model: Model,
    X: Floats,
    device: Device = "auto",
    n_devices: Devices = None,
    offset: Floats | None = None,
    known: Floats | None = None,
) -> tuple[Likelihood, Floats, Floats, Floats | None]:
    """What `cumulative` and `quantiles` take: the likelihood, latent moments (K, N), and what is known of the rows.

    Parameters
    ----------
    model : Model
    X : ndarray of shape (N, D)
        In the units of the table that was trained on.
    device : str
    n_devices : int, "all" or None, default=None
    offset, known : ndarrays of shapes (K, N) and (P T, N), optional
        As in `predict`.

    Returns
    -------
    likelihood : Likelihood
        With a dispersion that of y given its mean and squared scale, which are returned for the latent moments.
    mean, var : ndarray of shape (K, N)
    known : ndarray of shape (P T, N) or None
        With a dispersion what `Dispersion.of_rows` returns.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import svgp
    >>> X = np.linspace(-2, 2, 100)[:, None]
    >>> table = svgp.Table(X, np.sin(X.T), np.ones(100))
    >>> plan = svgp.Plan(kernels=(RBF(),), n_inducing=10, settings=svgp.Settings(max_iter=200))
    >>> result = svgp.train(*svgp.init(plan, table, random_state=0), table, plan, random_state=0)
    >>> model, _ = svgp.condition(result.state, result.constants, plan)
    >>> likelihood, mean, var, known = svgp.distribution(model, X)
    >>> bool(np.all(svgp.cumulative(likelihood, mean, var, mean, known).round(6) == 0.5))
    True
    """
    mean, var = predict(model.undispersed, X, device=device, n_devices=n_devices)
    mean = mean if offset is None else mean + offset
    if model.dispersion is None:
        return model.likelihood, mean, var, known
    log_factor = predict(model.of_dispersion, X, "latent_mean", device=device, n_devices=n_devices)
    variances = model.likelihood.noise_variance(), var, known
    total = model.dispersion.total(log_factor, *variances)
    return model.dispersion.errors, mean, total, model.dispersion.of_rows(*variances)


def _latent_moments(model, X, device, n_devices, offset=None):
    """The moments of the latent functions under a dispersion: (K, N) each."""
    mean, var = predict(model.undispersed, X, device=device, n_devices=n_devices)
    log_factor = predict(model.of_dispersion, X, "latent_mean", device=device, n_devices=n_devices)
    var = model.dispersion.latent(log_factor, var) * model.dispersion.errors.inflation_of_latent
    return mean if offset is None else mean + offset, var


def calibrated(model: Model, table: Any, random_state: Seed = None, device: Device = "auto") -> tuple[Model, Any]:
    """The model with the scales of the latent functions that calibrate its class probabilities.

    Parameters
    ----------
    model : Model
        With a likelihood of classes.
    table : Table
        The rows that it was trained on.
    random_state : int, RandomState instance or None
        Draws the rows whose labels are predicted, each without itself.
    device : str

    Returns
    -------
    model : Model
    density : named tuple of float
        The ``mean`` log density of these labels, in nats per unit of weight, and its standard ``error``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import likelihoods, svgp
    >>> X = np.random.default_rng(0).normal(size=(200, 1))
    >>> table = svgp.Table(X, (X.T > 0).astype(float), np.ones(200))
    >>> plan = svgp.Plan((10.0 * RBF(),), likelihoods.Bernoulli(), 2, n_inducing=10)
    >>> plan = svgp.complete(plan, table)
    >>> result = svgp.train(*svgp.init(plan, table, random_state=0), table, plan, random_state=0)
    >>> model, _ = svgp.condition(result.state, result.constants, plan)
    >>> bool(svgp.calibrated(model, table, random_state=0)[1].mean > np.log(0.5))
    True
    """
    table = table.sample
    rows, counts = calibration_of.some_rows(table, check_random_state(random_state))
    X = table.X[rows]
    mean, var = predict(model, X, device=device)
    unexplained = np.broadcast_to(_posterior.unexplained(model.kernels, model.posterior, X), var.shape)
    with _device.computation(device, required=False):
        found, density = calibration_of.left_out(model.likelihood, mean, var, unexplained, table.rows(rows), counts)
    return model._replace(calibration=found), density


def gradients(
    model: Model,
    X: Floats,
    quantity: Literal["target_moments", "latent_mean", "latent_deviation"] = "target_moments",
    device: Device = "auto",
    offset: Floats | None = None,
    known: Floats | None = None,
) -> Floats:
    """Return derivatives of predictions in each column of ``X``.

    Parameters
    ----------
    model : Model
    X : ndarray of shape (N, D)
        In the units of the table that was trained on.
    quantity : {"target_moments", "latent_mean", "latent_deviation"}
        Of the mean and of the standard deviation of the targets or of the latent functions, or of these' mean alone.
    device : str
    offset, known : ndarrays of shapes (K, N) and (P T, N), optional
        Added to the latent functions, and what else is known of the rows: see `likelihoods.Likelihood.given`.

    Returns
    -------
    gradients : ndarray of shape (2, T, D, N), (2, K, D, N) or (1, K, D, N)

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import svgp
    >>> X = np.linspace(-2, 2, 100)[:, None]
    >>> table = svgp.Table(X, np.sin(X.T), np.ones(100))
    >>> plan = svgp.Plan(kernels=(RBF(),), n_inducing=10, settings=svgp.Settings(max_iter=200))
    >>> result = svgp.train(*svgp.init(plan, table, random_state=0), table, plan, random_state=0)
    >>> model, _ = svgp.condition(result.state, result.constants, plan)
    >>> slope = svgp.gradients(model, X, "latent_mean")
    >>> bool(np.abs(slope[0, 0, 0] - np.cos(X[:, 0])).max() < 0.3)
    True
    """
    function = _gradients.QUANTITIES[quantity]
    given = {name: value for name, value in {"offset": offset, "known": known}.items() if value is not None}
    with _device.computation(device, required=False):
        parts = computing(model.kernels, X), model.likelihood, model.posterior
        dispersion = None if model.dispersion is None else _computing_dispersion(model.dispersion, X)
        return _gradients.gradients(function, *parts, dispersion, X, **given)


def computing(kernels, X):
    """The kernels as JAX kernels."""
    return tuple(_kernels.from_sklearn(kernel, X.shape[1]).value for kernel in kernels)


def _computing_dispersion(dispersion, X):
    """The dispersion with a JAX kernel."""
    return dispersion._replace(kernel=computing((dispersion.kernel,), X)[0])
