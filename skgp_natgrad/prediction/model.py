"""The model that predicts: made from a state of training, and evaluated at rows."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import numpy as np
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils import check_random_state

from .. import kernels as _kernels
from .._backend import blas
from .._backend import device as _device
from .._backend.types import Device, Devices, Floats, NDArray, Seed
from ..likelihoods import Likelihood
from ..variational.model import Constants
from . import calibration as calibration_of
from . import evaluate, samples
from . import gradients as _gradients
from . import posterior as _posterior
from .calibration import Calibrated, Calibration
from .posterior import Posterior
from .reduction import reduced

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
    """

    kernels: tuple[Kernel, ...]
    likelihood: Likelihood
    posterior: Posterior
    calibration: Calibration | None = None


def condition(state: Any, constants: Constants, plan: Any) -> tuple[Model, float]:
    """Return the model that predicts, from a state of training.

    Parameters
    ----------
    state : State
    constants : Constants
    plan : Plan

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
    with _device.computation(plan.device), blas.single_threaded(state.q.mean.shape[-1]):
        posterior, jitter = _posterior.condition(plan.basis, parameters, state.q, constants)
        posterior, jitter, parameters = jax.tree.map(np.asarray, (posterior, jitter, parameters))
        posterior = reduced(posterior)
    computing = jax.tree.map(np.exp, parameters.log_kernels)
    kernels = tuple(map(_kernels.to_sklearn, plan.kernels, computing))
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
        Added to the latent functions, and what else is known of the rows: see `likelihoods.Likelihood.given`.

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
    function, (kernels, likelihood, posterior, calibration) = _QUANTITIES[quantity], model
    if calibration is not None and function in _CALIBRATED:
        likelihood = Calibrated(likelihood, calibration)
    if offset is not None or known is not None:
        mean, var = predict(model, X, device=device, n_devices=n_devices)
        mean = mean if offset is None else mean + offset
        with _device.computation(device, n_devices, required=False):
            return evaluate.at_moments(function, likelihood, mean, var, *targets, known=known)
    few = len(X) <= evaluate.FEW_ROWS
    without_jax = few and not evaluate.needs_variance(function, likelihood)
    with _device.computation(device, n_devices, required=False, in_fork=without_jax):
        if few:
            return evaluate.at_few_rows(function, kernels, likelihood, posterior, X, *targets)
        return evaluate.in_chunks(function, _computing(kernels, X), likelihood, posterior, X, *targets)


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
    mean, var = predict(model, table.X[rows], device=device)
    with _device.computation(device, required=False):
        found, density = calibration_of.left_out(model.likelihood, mean, var, table.rows(rows), counts)
    return model._replace(calibration=found), density


def covariance(model: Model, X: Floats, device: Device = "auto") -> Floats:
    """Return the joint posterior covariance of the latent functions at the rows of ``X``.

    Parameters
    ----------
    model : Model
    X : ndarray of shape (N, D)
        In the units of the table that was trained on.
    device : str

    Returns
    -------
    covariance : ndarray of shape (K, N, N)

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
    >>> joint = svgp.covariance(model, X[:5])
    >>> joint.shape
    (1, 5, 5)
    >>> var = svgp.predict(model, X[:5])[1]
    >>> bool(np.allclose(np.diag(joint[0]), var[0]))
    True
    """
    with _device.computation(device, required=False):
        return samples.covariance(_computing(model.kernels, X), model.posterior, X)


def gradients(
    model: Model,
    X: Floats,
    quantity: Literal["target_moments", "latent_mean"] = "target_moments",
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
    quantity : {"target_moments", "latent_mean"}
        Of the mean and of the standard deviation of the targets, or of the latent functions' mean.
    device : str
    offset, known : ndarrays of shapes (K, N) and (P T, N), optional
        Added to the latent functions, and what else is known of the rows: see `likelihoods.Likelihood.given`.

    Returns
    -------
    gradients : ndarray of shape (2, T, D, N) or (1, K, D, N)

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
        parts = _computing(model.kernels, X), model.likelihood, model.posterior
        return _gradients.gradients(function, *parts, X, **given)


def sample_latent(
    model: Model, X: Floats, n_samples: int, random_state: Seed, device: Device = "auto", joint: bool = True
) -> Floats:
    """Return draws of the latent functions at the rows of ``X``.

    Parameters
    ----------
    model : Model
    X : ndarray of shape (N, D)
        In the units of the table that was trained on.
    n_samples : int
    random_state : int, RandomState instance or None
    device : str
    joint : bool, default=True
        Whether the rows of a draw belong to one function. Independent rows need no (N, N) covariance.

    Returns
    -------
    draws : ndarray of shape (K, N, n_samples)

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
    >>> draws = svgp.sample_latent(model, X[:5], n_samples=1000, random_state=0)
    >>> draws.shape
    (1, 5, 1000)
    >>> bool(np.abs(draws.mean(axis=-1) - svgp.predict(model, X[:5], "latent_mean")).max() < 0.05)
    True
    """
    random_state = check_random_state(random_state)
    if not joint:
        return samples.draws_by_rows(*predict(model, X, device=device), n_samples, random_state)
    mean = predict(model, X, "latent_mean", device=device)
    return samples.draws(mean, covariance(model, X, device), n_samples, random_state)


def sample_targets(
    model: Model,
    X: Floats,
    n_samples: int,
    random_state: Seed,
    device: Device = "auto",
    joint: bool = True,
    offset: Floats | None = None,
    known: Floats | None = None,
) -> NDArray[Any]:
    """Return draws of the targets at the rows of ``X``, noise included.

    Parameters
    ----------
    model : Model
    X : ndarray of shape (N, D)
        In the units of the table that was trained on.
    n_samples : int
    random_state : int, RandomState instance or None
    device : str
    joint : bool, default=True
        As for `sample_latent`.
    offset, known : ndarrays of shapes (K, N) and (P T, N), optional
        Added to the latent functions, and what else is known of the rows: see `likelihoods.Likelihood.given`.

    Returns
    -------
    draws : ndarray of shape (T, N, n_samples)

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
    >>> draws = svgp.sample_targets(model, X[:5], n_samples=1000, random_state=0)
    >>> draws.shape
    (1, 5, 1000)
    >>> latent = svgp.sample_latent(model, X[:5], n_samples=1000, random_state=0)
    >>> bool(np.all(draws.var(axis=-1) > latent.var(axis=-1)))
    True
    """
    random_state = check_random_state(random_state)
    f = sample_latent(model, X, n_samples, random_state, device, joint)
    f = f if offset is None else f + offset[..., None]
    if model.calibration is not None:
        mean, (of_mean, of_deviation) = predict(model, X, "latent_mean", device=device)[..., None], model.calibration
        f = of_mean * mean + of_deviation * (f - mean)
    with _device.computation(device, required=False):
        likelihood = model.likelihood.given(None if known is None else np.repeat(known, n_samples, axis=1))
        y = likelihood.sample(f.reshape(len(f), -1), random_state)
    return np.reshape(y, (-1, *f.shape[1:]))


def _computing(kernels, X):
    """The kernels as JAX kernels."""
    return tuple(_kernels.from_sklearn(kernel, X.shape[1]).value for kernel in kernels)
