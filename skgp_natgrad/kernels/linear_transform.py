"""A kernel on linear combinations of the columns of X: the scikit-learn class and the JAX kernel."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.gaussian_process import kernels as sklearn_kernels

from .._backend.types import ArrayLike, Bounds, Floats
from .base import Inputs, Kernel

# Largest entry of a matrix. Its exponential must be a number of single precision.
LARGEST = 80.0
# Step of the differences that give scikit-learn the derivatives in the matrix; and their points and weights, of fourth
# order.
_STEP, _STENCIL = 1e-3, ((1.0, 2.0 / 3.0), (-1.0, -2.0 / 3.0), (2.0, -1.0 / 12.0), (-2.0, 1.0 / 12.0))


class LinearTransform(sklearn_kernels.Kernel):
    r"""A kernel on linear combinations of the columns of X.

    .. math::

        k(x, z) = k_{\mathrm{kernel}}(A^T x, A^T z), \qquad A = \mathrm{matrix}

    With an RBF kernel, :math:`A A^T` is a full matrix in place of the inverse squared lengthscales (Vivarelli and
    Williams 1998 [1]_), so a function may change in a few directions that are not columns. Where the mean square of
    its slopes gives the matrix, these are its active subspace (Constantine 2015 [2]_).

    It is a kernel of scikit-learn: it can be used in sums, products, powers and :class:`Columns`, and in scikit-learn's
    own :class:`~sklearn.gaussian_process.GaussianProcessRegressor`.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
        The kernel of the combinations; "one lengthscale per column" then means one for each of them. Positions in
        :class:`Columns` count them, too.
    matrix : array-like of shape (D, R)
        A column of weights for each of R combinations, with a row for each column of X. Its entries may have any sign,
        and are at most 80 in size. Like lengthscales, a trained matrix is for columns that the estimator has scaled
        (``normalize_X``), and a fixed one for the columns of X in their own units.
    matrix_bounds : pair of floats or "fixed", default=(-10, 10)
        Bounds of the entries. In ``theta``, which holds the logarithms of other hyperparameters, these have their own
        values.

    References
    ----------
    .. [1] Vivarelli, F., Williams, C. K. I. (1998). Discovering hidden features with Gaussian processes regression.
       NIPS.
    .. [2] Constantine, P. G. (2015). Active Subspaces. SIAM.

    Examples
    --------
    A function of one direction among three columns:

    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad.kernels import LinearTransform
    >>> X = np.random.default_rng(0).normal(size=(5, 3))
    >>> kernel = LinearTransform(RBF(2.0), [[1.0], [-1.0], [0.5]])
    >>> bool(np.allclose(kernel(X), RBF(2.0)(X[:, :1] - X[:, 1:2] + 0.5 * X[:, 2:])))
    True
    """

    def __init__(
        self, kernel: sklearn_kernels.Kernel, matrix: ArrayLike, matrix_bounds: Bounds = (-10.0, 10.0)
    ) -> None:
        self.kernel = kernel
        self.matrix = matrix
        self.matrix_bounds = matrix_bounds

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, with ``deep`` those of ``kernel`` as well, as ``kernel__<name>``."""
        params = {"kernel": self.kernel, "matrix": self.matrix, "matrix_bounds": self.matrix_bounds}
        if deep and isinstance(self.kernel, sklearn_kernels.Kernel):
            params |= {f"kernel__{name}": value for name, value in self.kernel.get_params().items()}
        return params

    @property
    def hyperparameter_matrix(self) -> sklearn_kernels.Hyperparameter:
        """The matrix; its bounds are those of the entries, and not of exponentials."""
        return sklearn_kernels.Hyperparameter("matrix", "numeric", self.matrix_bounds, np.size(self.matrix))

    @property
    def hyperparameters(self) -> list[sklearn_kernels.Hyperparameter]:
        """The hyperparameters of ``kernel``, as ``kernel__<name>``, and the matrix."""
        inner = [each._replace(name=f"kernel__{each.name}") for each in self.kernel.hyperparameters]
        return [*inner, self.hyperparameter_matrix]

    @property
    def theta(self) -> Floats:
        """Logarithms of the hyperparameters of ``kernel`` that are not fixed, then the entries of a trained matrix."""
        own = [] if self.hyperparameter_matrix.fixed else [np.ravel(np.asarray(self.matrix, dtype=float))]
        return np.concatenate([self.kernel.theta, *own])

    @theta.setter
    def theta(self, theta: Floats) -> None:
        n_inner = self.kernel.n_dims
        self.kernel.theta = theta[:n_inner]
        if not self.hyperparameter_matrix.fixed:
            # A copy: the caller may change theta.
            self.matrix = np.array(theta[n_inner:], float).reshape(np.shape(self.matrix))

    @property
    def bounds(self) -> Floats:
        """Bounds of ``theta``."""
        own = self.hyperparameter_matrix
        found = [np.reshape(self.kernel.bounds, (-1, 2))]
        return np.concatenate(found if own.fixed else [*found, np.broadcast_to(own.bounds, (own.n_elements, 2))])

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        pairs = [(each.matrix, each.matrix_bounds) for each in (self, other)]
        return self.kernel == other.kernel and all(map(np.array_equal, *pairs))

    def __call__(
        self, X: ArrayLike, Y: ArrayLike | None = None, eval_gradient: bool = False
    ) -> Floats | tuple[Floats, Floats]:
        """Return the covariances of the rows of ``X`` and ``Y``.

        Parameters
        ----------
        X : array-like of shape (N, D)
        Y : array-like of shape (M, D), default=None
            If None, it is ``X``.
        eval_gradient : bool, default=False
            Whether to return the gradient as well; only without ``Y``.

        Returns
        -------
        K : ndarray of shape (N, M)
        gradient : ndarray of shape (N, N, n_dims)
            Derivatives of K in ``theta``; those in the matrix are differences of fourth order. Only with
            ``eval_gradient``.
        """
        A, X = self._checked("X", X)
        if Y is not None or not eval_gradient:
            return self.kernel(X @ A, None if Y is None else self._checked("Y", Y)[1] @ A, eval_gradient)
        K, gradient = self.kernel(X @ A, eval_gradient=True)
        return K, gradient if self.hyperparameter_matrix.fixed else np.dstack([gradient, *self._slopes(X, A)])

    def _slopes(self, X, A):
        """Derivatives of the covariances of X with itself in each entry of the matrix."""
        for entry in np.ndindex(A.shape):
            unit = np.zeros_like(A)
            unit[entry] = _STEP
            yield sum(weight * self.kernel(X @ (A + at * unit)) for at, weight in _STENCIL) / _STEP

    def diag(self, X: ArrayLike) -> Floats:
        """Return the variances (N,) at the rows of ``X`` (N, D)."""
        A, X = self._checked("X", X)
        return self.kernel.diag(X @ A)

    def _checked(self, name, X):
        """The matrix, and rows that it fits."""
        A, X = np.asarray(self.matrix, dtype=float), np.atleast_2d(X).astype(float)
        check_matrix(self, Inputs(X.shape[1], None, f"{name} with {X.shape[1]} columns"))
        return A, X

    def is_stationary(self) -> bool:
        """Return whether ``kernel`` is stationary."""
        return self.kernel.is_stationary()

    def __repr__(self):
        shape = " x ".join(map(str, np.shape(self.matrix)))
        return f"{type(self).__name__}({self.kernel!r}, {shape} matrix)"


def check_matrix(kernel, inputs):
    """Raise ValueError if the matrix of a `LinearTransform` is none, or does not fit its `Inputs`."""
    given = f"kernel contains {type(kernel).__name__} with a matrix"
    try:
        A = np.asarray(kernel.matrix, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(
            f"{given}={kernel.matrix!r}, which is no array of numbers; give one of shape (D, R)."
        ) from None
    if A.ndim != 2 or A.shape[1] == 0 or len(A) != inputs.n_columns:
        raise ValueError(
            f"{given} of shape {A.shape} for {inputs.description}; give a row for each of the {inputs.n_columns} "
            "columns, and at least one column."
        )
    if not np.all(np.abs(A) <= LARGEST):
        raise ValueError(
            f"{given} whose entries reach {np.abs(A).max():g}; they must be finite and at most {LARGEST:g}. Give a "
            "smaller matrix, and shorter lengthscales."
        )


class JaxLinearTransform(Kernel):
    """k(x, z) = kernel(A^T x, A^T z), A the logarithm of ``matrix``: its entries have any sign."""

    kernel: Kernel
    matrix: jax.Array
    signed: ClassVar[tuple] = ("matrix",)

    def __call__(self, X, Z):
        A = jnp.log(self.matrix)
        return self.kernel(X @ A, Z @ A)

    def diag(self, X):
        return self.kernel.diag(X @ jnp.log(self.matrix))

    @classmethod
    def structure(cls, kernel, inputs):
        """Return no static fields, and the combinations as the `Inputs` of the kernel inside."""
        if not isinstance(kernel.kernel, sklearn_kernels.Kernel):
            raise TypeError(
                f"kernel contains {type(kernel).__name__} with kernel={kernel.kernel!r}, which must be a kernel of "
                "sklearn.gaussian_process.kernels (an object, not a class or a name)."
            )
        check_matrix(kernel, inputs)
        return {}, combinations(kernel)


def combinations(kernel):
    """The `Inputs` of the kernel in a `LinearTransform`."""
    n_columns = np.shape(kernel.matrix)[1]
    return Inputs(n_columns, None, f"the {n_columns} combinations that a LinearTransform makes")
