"""Predictions of several rows together: the covariance of the latent functions, and draws of them and of targets."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from .._backend import device as _device
from .._backend.device import quick_jit
from .._backend.placement import ONE_DEVICE
from .._backend.rows import filled_up
from .._backend.types import Device, Floats, NDArray, Seed
from .evaluate import CHUNK_ROWS
from .model import Model, computing, predict
from .posterior import covariances


def covariance(model: Model, X: Floats, device: Device = "auto", of_targets: bool = False) -> Floats:
    """Return the joint posterior covariance of the latent functions at the rows of ``X``.

    Parameters
    ----------
    model : Model
    X : ndarray of shape (N, D)
        In the units of the table that was trained on.
    device : str
    of_targets : bool, default=False
        Whether it is that of targets with additive noise at different rows, which lacks the variances of the noise on
        the diagonal. It differs with a dispersion alone.

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
    found = _covariance(model, X, device)
    if model.dispersion is not None and of_targets:
        errors, *scales = _squared_scales(model, X, device)
        found = _multiplied(found, errors.mean_kept(*scales))
    elif model.dispersion is not None:
        found *= model.dispersion.errors.inflation_of_latent[:, None]
    return found


def _squared_scales(model, X, device, known=None):
    """The distribution of y under a dispersion, and the squared scales of the latent functions and of y (T, N)."""
    var = predict(model.undispersed, X, device=device)[1]
    log_factor = predict(model.of_dispersion, X, "latent_mean", device=device)
    noise, latent = model.likelihood.noise_variance(), model.dispersion.latent(log_factor, var)
    errors = model.dispersion.errors.given(model.dispersion.of_rows(noise, var, known))
    return errors, latent, model.dispersion.total(log_factor, noise, var, known)


def _multiplied(covariance, factor):
    """The covariance (K, N, N) of variables times ``factor`` (K, N or 1), in place: the array may be large."""
    covariance *= factor[:, :, None]
    covariance *= factor[:, None, :]
    return covariance


def _covariance(model, X, device):
    """The joint covariance (K, N, N) of Gaussian draws, which a dispersion mixes."""
    with _device.computation(device, required=False):
        found = covariance_of_latents(computing(model.kernels, X), model.posterior, X)
    if model.dispersion is not None or model.neighbours is not None:
        var = np.einsum("kii->ki", found)
        # Of neighbours each row's variance is known, and no covariance: the correlations are those of the posterior.
        undispersed = model.dispersion is None
        scaled = predict(model, X, device=device)[1] if undispersed else _squared_scales(model, X, device)[1]
        found = _multiplied(found, np.sqrt(np.divide(scaled, var, out=np.ones_like(var), where=var > 0.0)))
    return found


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
    mean, deviations = _deviations(model, X, n_samples, random_state, device, joint)
    if model.dispersion is not None:
        deviations *= model.dispersion.errors.scales_of_latent((1 if joint else len(X), n_samples), random_state)
    return mean + deviations


def _deviations(model, X, n_samples, random_state, device, joint):
    """The latent mean (K, N, 1), and Gaussian draws of what is added to it (K, N, n_samples)."""
    if joint:
        mean = predict(model, X, "latent_mean", device=device)
        return mean[..., None], draws(_covariance(model, X, device), n_samples, random_state)
    mean, var = predict(model.undispersed, X, device=device)
    if model.dispersion is not None:
        var = _squared_scales(model, X, device)[1]
    return mean[..., None], np.sqrt(var)[..., None] * random_state.standard_normal((*var.shape, n_samples))


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
        Added to the latent functions, and what else is known of the rows: see `predict`.

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
    mean, deviations = _deviations(model, X, n_samples, random_state, device, joint)
    if model.dispersion is not None:
        errors, *scales = _squared_scales(model, X, device, known)
        deviations = errors.of_targets(deviations, *scales, random_state)
        return mean + deviations if offset is None else mean + offset[..., None] + deviations
    if model.calibration is not None:
        values, known = None if known is None else known[..., None], None
        mean, deviations = model.calibration.moments(mean, 1.0, values)[0], model.calibration.deviation * deviations
    f = mean + deviations if offset is None else mean + offset[..., None] + deviations
    with _device.computation(device, required=False):
        likelihood = model.likelihood.given(None if known is None else np.repeat(known, n_samples, axis=1))
        y = likelihood.sample(f.reshape(len(f), -1), random_state)
    return np.reshape(y, (-1, *f.shape[1:]))


@quick_jit
def _covariance_block(kernels, posterior, X1, X2):
    V1, B1 = _projections(posterior, covariances(kernels, posterior.Z, X1))
    V2, B2 = _projections(posterior, covariances(kernels, posterior.Z, X2))
    found = covariances(kernels, X1, X2) - V1.swapaxes(-1, -2) @ V2
    return found if B1 is None else found + B1.swapaxes(-1, -2) @ B2


def covariance_of_latents(kernels, posterior, X):
    """Latent posterior covariance at the rows of ``X`` (N, D): (K, N, N), computed block by block."""
    kernels, posterior = ONE_DEVICE.replicated((kernels, posterior.read_by(with_variance=True)), now=True)
    n_blocks = -(-len(X) // CHUNK_ROWS)
    padded = filled_up(X, n_blocks * CHUNK_ROWS).reshape(n_blocks, CHUNK_ROWS, -1)
    # Written in place: no second array of this size is made.
    out = np.empty((posterior.alpha.shape[0], len(X), len(X)))
    for i in range(n_blocks):
        for j in range(i + 1):
            block = np.asarray(_covariance_block(kernels, posterior, padded[i], padded[j]))
            if i == j:
                block = 0.5 * (block + np.swapaxes(block, -1, -2))
            rows, columns = (slice(k * CHUNK_ROWS, min((k + 1) * CHUNK_ROWS, len(X))) for k in (i, j))
            block = block[:, : rows.stop - rows.start, : columns.stop - columns.start]
            out[:, rows, columns] = block
            out[:, columns, rows] = np.swapaxes(block, -1, -2)
    return out


def _projections(posterior, Kzx):
    """What the prior covariance is reduced by (1 or K, M, B), and root_S^T of it (K, M, B) if it is whiten k_zx."""
    if posterior.reduction is not None:
        return posterior.reduction @ Kzx, None
    A = posterior.whiten @ Kzx
    return A, posterior.root_S.swapaxes(-1, -2) @ A


def draws(covariance, n_samples, random_state):
    """Draws from Gaussians of mean zero and covariance (K, N, N): (K, N, n_samples)."""
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    return root @ random_state.standard_normal((*values.shape, n_samples))


def memory_of_draws(n_rows, n_latent, n_samples, joint=True):
    """Bytes needed by `draws` and by the covariance before it, or by draws of each row alone."""
    if not joint:
        return 8 * n_rows * 4 * n_latent * n_samples
    # Covariances, eigenvectors and LAPACK's workspace; the noise, its products and the targets.
    return 8 * n_rows * ((2 * n_latent + 3) * n_rows + 4 * n_latent * n_samples)
