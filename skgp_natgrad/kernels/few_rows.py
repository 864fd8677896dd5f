"""Covariances of points with few rows by NumPy.

scikit-learn's kernels take distances from SciPy, which takes .25 ms for one row and 3000 points of 8 columns, whatever
the kernel does with them; sums of squared differences take a fifth of it.
"""

from __future__ import annotations

import numpy as np
from sklearn.gaussian_process import kernels as _of

from .linear_transform import LinearTransform

# Most rows.
MOST_ROWS = 8


def covariances(kernel, Z, X):
    """The values (M, B) of a kernel of scikit-learn at points ``Z`` (M, D) and rows ``X`` (B, D).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF, DotProduct
    >>> kernel, Z = 2.0 * RBF([1.0, 3.0]) + DotProduct(), np.arange(20.0).reshape(10, 2)
    >>> bool(np.allclose(covariances(kernel, Z, Z[:1]), kernel(Z, Z[:1])))
    True
    """
    # Of a kernel's own class alone: one that is derived from it may compute anything.
    if len(X) > MOST_ROWS or type(kernel) not in _VALUES:
        return kernel(Z, X)
    return np.broadcast_to(_values(kernel, np.ascontiguousarray(Z.T), X.T), (len(Z), len(X)))


def _values(kernel, Z, X):
    """The values, or one number for all, of points (D, M) and rows (D, B): long vectors take NumPy less time."""
    of_kind = _VALUES.get(type(kernel))
    return kernel(Z.T, X.T) if of_kind is None else of_kind(kernel, Z, X)


def _squares(kernel, Z, X):
    """Squared distances (M, B) in lengthscales."""
    found, rate = np.empty((Z.shape[1], X.shape[1])), 1.0 / np.asarray(kernel.length_scale, float).reshape(-1, 1)
    for i, x in enumerate(X.T):
        difference = (Z - x[:, None]) * rate
        found[:, i] = np.einsum("dm,dm->m", difference, difference)
    return found


def _matern(kernel, Z, X):
    if kernel.nu not in (0.5, 1.5, 2.5):
        return np.exp(-0.5 * _squares(kernel, Z, X)) if kernel.nu == np.inf else kernel(Z.T, X.T)
    r = np.sqrt(2.0 * kernel.nu * _squares(kernel, Z, X))
    decay = np.exp(-r)
    return decay if kernel.nu == 0.5 else decay * (1.0 + r + (r * r / 3.0 if kernel.nu == 2.5 else 0.0))


def _transformed(kernel, Z, X):
    matrix = np.asarray(kernel.matrix, float).T
    return _values(kernel.kernel, matrix @ Z, matrix @ X)


_VALUES = {
    _of.Sum: lambda kernel, Z, X: _values(kernel.k1, Z, X) + _values(kernel.k2, Z, X),
    _of.Product: lambda kernel, Z, X: _values(kernel.k1, Z, X) * _values(kernel.k2, Z, X),
    _of.ConstantKernel: lambda kernel, Z, X: kernel.constant_value,
    _of.RBF: lambda kernel, Z, X: np.exp(-0.5 * _squares(kernel, Z, X)),
    _of.Matern: _matern,
    LinearTransform: _transformed,
}
