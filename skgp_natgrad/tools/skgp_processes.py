"""Latent functions of an exported model by NumPy: the part of `skgp_predictor` that knows kernels and points.

`export` writes both as one file.
"""

from __future__ import annotations

import numpy as np

# Numbers in a block of differences between rows and points.
BLOCK = 2**20
# Rows of a triangular matrix, about, that are multiplied at once, without most of its zeros.
_STRIP = 400
# The smallest latent variance.
_LEAST = float(np.finfo(float).tiny ** 0.5)


class Process:
    """Latent functions: mean(x) = prior_mean + k_xz alpha + k_xg a, and var(x) = k_xx - |reduction k_zx|^2."""

    def __init__(self, kernels, arrays):
        self._arrays, self._n_points = arrays, len(arrays["Z"]) + len(arrays["Z_mean"])
        self._with_Z, self._with_further = ([_covariance(k, arrays[of]) for k in kernels] for of in ("Z", "Z_mean"))
        self._variances = [_variance(kernel) for kernel in kernels]
        if "triangle" in arrays:
            (n, size), mask = arrays["shape"], np.tri(arrays["shape"][1], dtype=bool)
            arrays["reduction"] = np.zeros((n, size, size))
            arrays["reduction"][:, mask] = arrays.pop("triangle")

    @property
    def has_variance(self):
        return "reduction" in self._arrays or "whiten" in self._arrays

    def moments(self, X, with_variance):
        """Mean and variance (K, N); the variance is None if it is not requested."""
        size = max(BLOCK // max(self._n_points, 1), 1)
        parts = [self._of_block(X[start : start + size], with_variance) for start in range(0, max(len(X), 1), size)]
        if len(parts) == 1:
            return parts[0]
        mean, var = zip(*parts, strict=True)
        return np.concatenate(mean, axis=1), np.concatenate(var, axis=1) if with_variance else None

    def _of_block(self, X, with_variance):
        of = self._arrays
        K = [_table(covariance(X), len(X), len(of["Z"])) for covariance in self._with_Z]
        mean = of["prior_mean"] + _product(of["alpha"], K)
        if len(of["Z_mean"]):
            further = [_table(covariance(X), len(X), len(of["Z_mean"])) for covariance in self._with_further]
            mean = mean + _product(of["a"], further)
        if not with_variance:
            return mean, None
        prior = np.stack([np.broadcast_to(variance(X), len(X)) for variance in self._variances])
        K = np.stack(K).swapaxes(1, 2)
        if "reduction" in of:
            var = np.maximum(prior - _squared_lengths(of["reduction"], K), _LEAST)
        else:
            A = of["whiten"] @ K
            own = np.square(of["root_S"].swapaxes(1, 2) @ A).sum(1)
            var = np.maximum(prior - np.square(A).sum(1), 0.0) + np.maximum(own, _LEAST)
        return mean, np.broadcast_to(var, mean.shape)


class Neighbours:
    """Latent functions of each row given those of the file's rows that are nearest to it."""

    has_variance = True

    def __init__(self, kernels, arrays):
        self._kernels, self._of = kernels, arrays
        self._points = [np.ascontiguousarray((arrays["X"] * rates).T) for rates in arrays["rates"]]

    def moments(self, X, with_variance):
        """As of `Process`."""
        of, found = self._of, np.empty((2, len(self._of["y"]), len(X)))
        n = min(int(of["n"]), len(of["X"]))
        for j, (kernel, rates, points) in enumerate(zip(self._kernels, of["rates"], self._points, strict=True)):
            targets = slice(None) if len(self._kernels) == 1 else slice(j, j + 1)
            noises = of["noise"] if len(of["noise"]) == 1 else of["noise"][targets]
            for i, x in enumerate(X):
                square = sum(np.square(z - each) for z, each in zip(points, x * rates, strict=True))
                near = np.argpartition(square, n - 1)[:n]
                rows = np.vstack([x, of["X"][near]])
                K = np.array(_table(_covariance(kernel, rows)(rows), n + 1, n + 1))
                np.fill_diagonal(K, _variance(kernel)(rows))
                found[:, targets, i] = _given(K, of["y"][targets, near], noises[:, near])
        return of["prior_mean"] + found[0], found[1] if with_variance else None


def _given(K, y, noises):
    """Mean and variance (2, T) of the first row given the others, whose targets (T, m) have noise (T or 1, m)."""
    k, found = K[0, 1:], np.empty((2, len(y)))
    for t, noise in enumerate(noises):
        targets = slice(None) if len(noises) == 1 else slice(t, t + 1)
        solved = np.linalg.solve(K[1:, 1:] + np.diag(noise), np.vstack([k, y[targets]]).T)
        found[0, targets], found[1, targets] = k @ solved[:, 1:], max(K[0, 0] - k @ solved[:, 0], _LEAST)
    return found


def _table(K, n_rows, n_points):
    """Covariances as a table: those of a constant kernel are one number."""
    return K if np.ndim(K) else np.full((n_rows, n_points), K)


def _product(weights, K):
    """Weights (K, M) times covariances (B, M) of one kernel or of each function: (K, B)."""
    if len(K) == 1:
        return weights @ K[0].T
    return np.stack([each @ weight for each, weight in zip(K, weights, strict=True)])


def _squared_lengths(L, B):
    """The sums of squares (J, B) of the columns of L B, for lower triangular ``L`` (J, M, M): by strips of rows."""
    size, total = L.shape[1], 0.0
    n_strips = 1 + size // _STRIP
    for start, stop in ((size * i // n_strips, size * (i + 1) // n_strips) for i in range(n_strips)):
        total = total + np.square(L[:, start:stop, :stop] @ B[:, :stop]).sum(1)
    return total


# -- kernels: dicts with the name and the hyperparameters of scikit-learn's class -----------------------


def _covariance(kernel, Z):
    """The function of rows X (B, D) that gives their covariances (B, M), or one number, with the points Z (M, D)."""
    name = kernel["name"]
    if name == "ConstantKernel":
        return lambda X: kernel["constant_value"]
    if name == "DotProduct":
        return lambda X: kernel["sigma_0"] ** 2 + X @ Z.T
    if name == "Nugget":
        return lambda X: np.all([x[:, None] == z for x, z in zip(X.T, Z.T, strict=True)], axis=0).astype(float)
    if name not in _STATIONARY:
        return _composed(_covariance, kernel, Z)
    scale = np.ones(Z.shape[1]) * kernel["length_scale" if name != "ExpSineSquared" else "periodicity"]
    points, of_distance = np.ascontiguousarray((Z / scale).T), _STATIONARY[name](kernel)
    size = np.abs if name == "Laplacian" else np.square
    return lambda X: of_distance(sum(size(x[:, None] - z) for x, z in zip((X / scale).T, points, strict=True)))


def _variance(kernel):
    """The function of rows X (B, D) that gives their variances (B,), or one number."""
    name = kernel["name"]
    if name == "ConstantKernel":
        return lambda X: kernel["constant_value"]
    if name == "DotProduct":
        return lambda X: kernel["sigma_0"] ** 2 + np.square(X).sum(1)
    is_composed = name not in _STATIONARY and name != "Nugget"
    return _composed(_variance, kernel) if is_composed else lambda X: 1.0


def _composed(of, kernel, *points):
    """The function of rows for a kernel that is made of others, each the result of ``of``."""
    if kernel["name"] == "Columns":
        columns = kernel["columns"]
        inside = of(kernel["kernel"], *(Z[:, columns] for Z in points))
        return lambda X: inside(X[:, columns])
    if kernel["name"] == "LinearTransform":
        matrix = kernel["matrix"]
        inside = of(kernel["kernel"], *(Z @ matrix for Z in points))
        return lambda X: inside(X @ matrix)
    combine = _COMPOSED[kernel["name"]]
    parts = [of(kernel[name], *points) for name in ("k1", "k2", "kernel") if name in kernel]
    return lambda X: combine(*(part(X) for part in parts), *([kernel["exponent"]] if "exponent" in kernel else []))


_COMPOSED = {"Sum": np.add, "Product": np.multiply, "Exponentiation": np.power}


def _matern(kernel):
    nu = kernel["nu"]
    if nu == np.inf:
        return lambda square: np.exp(-0.5 * square)

    def of_square(square):
        r = np.sqrt(2.0 * nu * square)
        return {0.5: lambda: 1.0, 1.5: lambda: 1.0 + r, 2.5: lambda: 1.0 + r + r * r / 3.0}[nu]() * np.exp(-r)

    return of_square


def _exp_sine_squared(kernel):
    # Of the distance in periods.
    return lambda square: np.exp(-2.0 * (np.sin(np.pi * np.sqrt(square)) / kernel["length_scale"]) ** 2)


def _rational_quadratic(kernel):
    alpha = kernel["alpha"]
    return lambda square: np.exp(-alpha * np.log1p(square / (2.0 * alpha)))


# Functions of squared distances in lengthscales, or of sums of absolute differences.
_STATIONARY = {
    "RBF": lambda kernel: lambda square: np.exp(-0.5 * square),
    "Matern": _matern,
    "RationalQuadratic": _rational_quadratic,
    "ExpSineSquared": _exp_sine_squared,
    "Laplacian": lambda kernel: lambda distance: np.exp(-distance),
}
