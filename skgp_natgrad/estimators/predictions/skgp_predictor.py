"""Predictions of an exported Gaussian process by NumPy: this file and the model's file are all that a service needs.

The method ``export`` of an estimator of skgp_natgrad writes both into one folder. There,

    from skgp_predictor import load
    model = load("model.npz")
    mean, std = model.predict(X, return_std=True)

The predictor imports nothing but NumPy, and SciPy where two classes have a probit link. It predicts the estimator's
numbers up to rounding.
"""

from __future__ import annotations

import json

import numpy as np

# Raise it with every change of what a file holds.
FORMAT = 1
# Numbers in a block of differences between rows and points.
_BLOCK = 2**20
# The smallest latent variance.
_LEAST = float(np.finfo(float).tiny ** 0.5)
_LOG_2PI = float(np.log(2.0 * np.pi))


def load(path):
    """Read an exported model.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    model : Regressor or Classifier

    Raises
    ------
    ValueError
        If the file has another format than this module reads.
    """
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    about = json.loads(str(arrays.pop("about")))
    if about["format"] != FORMAT:
        raise ValueError(
            f"{path} has format {about['format']}, and this skgp_predictor.py reads format {FORMAT}; use the file that "
            "was written beside the model."
        )
    return (Classifier if "link" in about else Regressor)(about, arrays)


class _Model:
    """What both kinds of models hold: the map of X, and the latent functions."""

    def __init__(self, about, arrays):
        self.about, self._arrays = about, arrays
        self.n_features_in_ = about["n_features"]
        self._latent = _Process(about["kernels"], _part(arrays, "posterior"))

    def _scaled(self, X):
        """Rows in the units of the kernels."""
        X = np.asarray(X, dtype=float)
        if X.ndim != 2 or X.shape[1] != self.n_features_in_:
            raise ValueError(f"X has the shape {X.shape}; give a table with {self.n_features_in_} columns.")
        if not np.all(np.isfinite(X)):
            raise ValueError("X holds NaN or infinity; leave these rows out, or fill them in.")
        X = _mapped(X, _part(self._arrays, "x_scale"))
        if not np.all(np.isfinite(X)):
            raise ValueError("X holds values so far from the training data that they overflow; leave these rows out.")
        return X

    def _moments(self, X, with_variance=True):
        if with_variance and not self._latent.has_variance:
            raise ValueError("This model was exported without its variance; export it with return_std=True.")
        return self._latent.moments(self._scaled(X), with_variance)


class Regressor(_Model):
    """A regression: see `predict`."""

    def predict(self, X, return_std=False):
        """The mean of y at rows X (N, D), and on request its standard deviation, noise included.

        Parameters
        ----------
        X : array-like of shape (N, D)
        return_std : bool, default=False

        Returns
        -------
        mean : ndarray of shape (N,) or (N, n_outputs)
        std : ndarray of the same shape, with ``return_std``
        """
        offset, scale = self._arrays["y_scale.offset"], self._arrays["y_scale.scale"]
        shaped = (lambda values: values[:, 0]) if self.about["single_output"] else (lambda values: values)
        mean, var = self._moments(X, return_std)
        shown = shaped(mean.T * scale + offset)
        return (shown, shaped(np.sqrt(self._of_targets(var, X)).T * scale)) if return_std else shown

    def _of_targets(self, var, X):
        """The variance of y (T, N), from that of the latent functions."""
        noise, of = self._arrays["noise"], _part(self._arrays, "dispersion")
        if not of:
            return var + noise
        # The factor holds up to the largest variance of rows that were left out.
        process = _Process([self.about["dispersion"]], _part(of, "posterior"))
        factor, seen = np.exp(process.moments(self._scaled(X), False)[0]), np.minimum(var, of["largest"])
        of_scale = 1.0 - 2.0 / of["df"]
        total = np.maximum(factor * (seen + noise) + (var - seen), of["least"] * of_scale) / of_scale
        if "second_moment" in of:
            total = total + factor * noise * (of["second_moment"] - 1.0)
        if "share" not in of:
            return total
        return (1.0 - of["share"]) * total + of["share"] * of["spread"] * (var + noise)


class Classifier(_Model):
    """A classification: see `predict_proba` and `predict`.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
    """

    def __init__(self, about, arrays):
        super().__init__(about, arrays)
        self.classes_ = arrays["classes"]

    def predict_proba(self, X):
        """The probability of each class at rows X (N, D): (N, C), in the order of ``classes_``."""
        mean, var = self._moments(X)
        by_mean, by_deviation = self._arrays["calibration"]
        mean, var = by_mean * mean, by_deviation**2 * var
        if self.about["link"] == "softmax":
            found = _softmax(mean, var, self._arrays["points"])
        else:
            log_link = _log_ndtr if self.about["link"] == "probit" else _log_sigmoid
            found = np.exp(np.concatenate([log_link(-mean, var), log_link(mean, var)]))
        return found[self._arrays["ranks"]].T

    def predict(self, X):
        """The most probable class at rows X (N, D): (N,)."""
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]


def _part(arrays, prefix):
    """The arrays whose names begin with a prefix and a dot, without these."""
    return {name[len(prefix) + 1 :]: each for name, each in arrays.items() if name.startswith(f"{prefix}.")}


# -- the scale of X -----------------------------------------------------------------------


def _mapped(table, scale):
    if "spans" in scale:
        # Columns that are constant up to rounding.
        lower, upper = scale["spans"]
        table = np.where((table >= lower) & (table <= upper), lower, table)
    if "offset" in scale:
        return (table - scale["offset"]) / scale["scale"]
    knots, scores, slopes = (scale[name] for name in ("knots", "scores", "slopes"))
    inside = np.column_stack([np.interp(*each) for each in zip(table.T, knots.T, scores.T, strict=True)])
    return inside + slopes[0] * np.minimum(table - knots[0], 0.0) + slopes[1] * np.maximum(table - knots[-1], 0.0)


# -- latent functions ---------------------------------------------------------------------


class _Process:
    """Latent functions: mean(x) = prior_mean + k_xz alpha + k_xg a, and var(x) = k_xx - |reduction k_zx|^2."""

    def __init__(self, kernels, arrays):
        self._kernels, self._arrays = [_of_numbers(each) for each in kernels], arrays
        if "triangle" in arrays:
            (n, size), mask = arrays["shape"], np.tri(arrays["shape"][1], dtype=bool)
            arrays["reduction"] = np.zeros((n, size, size))
            arrays["reduction"][:, mask] = arrays.pop("triangle")

    @property
    def has_variance(self):
        return "reduction" in self._arrays or "whiten" in self._arrays

    def moments(self, X, with_variance):
        """Mean and variance (K, N); the variance is None if it is not requested."""
        n_points = len(self._arrays["Z"]) + len(self._arrays["Z_mean"])
        size = max(_BLOCK // (n_points * X.shape[1]), 1)
        parts = [self._of_block(X[start : start + size], with_variance) for start in range(0, max(len(X), 1), size)]
        mean, var = zip(*parts, strict=True)
        return np.concatenate(mean, axis=1), np.concatenate(var, axis=1) if with_variance else None

    def _of_block(self, X, with_variance):
        of = self._arrays
        K = [_covariance(kernel, X, of["Z"]) for kernel in self._kernels]
        mean = of["prior_mean"] + _product(of["alpha"], K)
        if len(of["Z_mean"]):
            mean = mean + _product(of["a"], [_covariance(kernel, X, of["Z_mean"]) for kernel in self._kernels])
        if not with_variance:
            return mean, None
        prior, K = np.stack([_variance(kernel, X) for kernel in self._kernels]), np.stack(K).swapaxes(1, 2)
        if "reduction" in of:
            var = np.maximum(prior - np.square(of["reduction"] @ K).sum(1), _LEAST)
        else:
            A = of["whiten"] @ K
            own = np.square(of["root_S"].swapaxes(1, 2) @ A).sum(1)
            var = np.maximum(prior - np.square(A).sum(1), 0.0) + np.maximum(own, _LEAST)
        return mean, np.broadcast_to(var, mean.shape)


def _product(weights, K):
    """Weights (K, M) times covariances (B, M) of one kernel or of each function: (K, B)."""
    if len(K) == 1:
        return weights @ K[0].T
    return np.stack([each @ weight for each, weight in zip(K, weights, strict=True)])


# -- kernels: dicts with the name and the hyperparameters of scikit-learn's class -----------------------


def _of_numbers(kernel):
    """The kernel with arrays in place of lists."""
    kinds = {dict: _of_numbers, list: np.array}
    return {name: kinds.get(type(value), lambda value: value)(value) for name, value in kernel.items()}


def _covariance(kernel, X, Z):
    """Covariances (B, M) of rows X (B, D) and Z (M, D)."""
    name = kernel["name"]
    if name == "ConstantKernel":
        return np.full((len(X), len(Z)), kernel["constant_value"])
    if name == "DotProduct":
        return kernel["sigma_0"] ** 2 + X @ Z.T
    if name in _COMPOSED:
        return _COMPOSED[name](_covariance, kernel, X, Z)
    return _STATIONARY[name](kernel, X, Z)


def _variance(kernel, X):
    """Variances (B,) at rows X (B, D)."""
    name = kernel["name"]
    if name == "ConstantKernel":
        return np.full(len(X), kernel["constant_value"])
    if name == "DotProduct":
        return kernel["sigma_0"] ** 2 + np.square(X).sum(1)
    return _COMPOSED[name](_variance, kernel, X) if name in _COMPOSED else np.ones(len(X))


_COMPOSED = {
    "Sum": lambda of, kernel, *rows: of(kernel["k1"], *rows) + of(kernel["k2"], *rows),
    "Product": lambda of, kernel, *rows: of(kernel["k1"], *rows) * of(kernel["k2"], *rows),
    "Exponentiation": lambda of, kernel, *rows: of(kernel["kernel"], *rows) ** kernel["exponent"],
    "Columns": lambda of, kernel, *rows: of(kernel["kernel"], *(each[:, kernel["columns"]] for each in rows)),
    "LinearTransform": lambda of, kernel, *rows: of(kernel["kernel"], *(each @ kernel["matrix"] for each in rows)),
}


def _square(X, Z, length_scale=1.0):
    """Squared distances in lengthscales."""
    difference = (X / length_scale)[:, None] - Z / length_scale
    return np.einsum("bmd,bmd->bm", difference, difference)


def _matern(kernel, X, Z):
    square, nu = _square(X, Z, kernel["length_scale"]), kernel["nu"]
    if nu == np.inf:
        return np.exp(-0.5 * square)
    r = np.sqrt(2.0 * nu * square)
    return {0.5: 1.0, 1.5: 1.0 + r, 2.5: 1.0 + r + r * r / 3.0}[nu] * np.exp(-r)


def _rational_quadratic(kernel, X, Z):
    square = _square(X, Z, kernel["length_scale"])
    return np.exp(-kernel["alpha"] * np.log1p(square / (2.0 * kernel["alpha"])))


def _exp_sine_squared(kernel, X, Z):
    sine = np.sin(np.pi * np.sqrt(_square(X, Z)) / kernel["periodicity"])
    return np.exp(-2.0 * (sine / kernel["length_scale"]) ** 2)


def _laplacian(kernel, X, Z):
    return np.exp(-np.abs((X / kernel["length_scale"])[:, None] - Z / kernel["length_scale"]).sum(2))


_STATIONARY = {
    "RBF": lambda kernel, X, Z: np.exp(-0.5 * _square(X, Z, kernel["length_scale"])),
    "Matern": _matern,
    "RationalQuadratic": _rational_quadratic,
    "ExpSineSquared": _exp_sine_squared,
    "Laplacian": _laplacian,
}


# -- probabilities of classes -------------------------------------------------------------


def _softmax(mean, var, points):
    """Averages (C, N) over normal points (S, C), a few rows at a time."""
    found, size = np.empty_like(mean), max(_BLOCK // points.size, 1)
    for start in range(0, mean.shape[1], size):
        rows = slice(start, start + size)
        f = mean[:, rows] + np.sqrt(var[:, rows]) * points[:, :, None]
        p = np.exp(f - f.max(1, keepdims=True))
        found[:, rows] = (p / p.sum(1, keepdims=True)).mean(0)
    return found


def _log_ndtr(mean, var):
    """log E[link(f)] of the normal distribution function."""
    from scipy.special import log_ndtr

    return log_ndtr(mean / np.sqrt(1.0 + var))


def _log_sigmoid(mean, var, n_nodes=128, reach=1e4, drop=40.0, zooms=4):
    """log E[link(f)] of the logistic function: by a grid that is shrunk to where the integrand is not negligible."""
    mean, deviation = mean[..., None], np.sqrt(var)[..., None]

    def log_integrand(z):
        return -np.logaddexp(0.0, -(mean + deviation * z)) - 0.5 * z**2

    grid = np.sinh(np.linspace(-1.0, 1.0, n_nodes) * np.arcsinh(reach)) + 0.0 * mean
    for _ in range(zooms):
        values = log_integrand(grid)
        kept = values >= values.max(-1, keepdims=True) - drop
        first, last = np.argmax(kept, -1), n_nodes - 1 - np.argmax(kept[..., ::-1], -1)
        ends = np.maximum(first - 1, 0), np.minimum(last + 1, n_nodes - 1)
        low, high = (np.take_along_axis(grid, each[..., None], -1) for each in ends)
        grid = low + (high - low) * np.linspace(0.0, 1.0, n_nodes)
    values, spacing = log_integrand(grid), grid[..., 1] - grid[..., 0]
    top = values.max(-1)
    return top + np.log(np.exp(values - top[..., None]).sum(-1)) + np.log(spacing) - 0.5 * _LOG_2PI
