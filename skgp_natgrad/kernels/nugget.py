"""The nugget, a variance that only rows of equal X share: the scikit-learn class and the JAX kernel."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from sklearn.gaussian_process import kernels as sklearn_kernels

from .._backend.types import ArrayLike, Floats
from .base import Kernel
from .stationary import UnitVariance


class Nugget(sklearn_kernels.StationaryKernelMixin, sklearn_kernels.NormalizedKernelMixin, sklearn_kernels.Kernel):
    r"""Nugget effect: what rows of equal X have in common, and no others.

    .. math::

        k(x, z) = 1 \text{ if } x = z, \text{ else } 0

    A constant times it, added to another kernel, is the variance of an effect
    of each place, person or batch that is observed several times. A WhiteKernel
    is the noise of each row. So a row at a new X varies by both; at an X of the
    training rows the effect is known as far as these tell it.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad.kernels import Nugget
    >>> X = np.array([[0.0], [0.0], [1.0]])
    >>> Nugget()(X)
    array([[1., 1., 0.],
           [1., 1., 0.],
           [0., 0., 1.]])
    >>> 2.0 * RBF() + 0.5 * Nugget()
    1.41**2 * RBF(length_scale=1) + 0.707**2 * Nugget()
    """

    def __init__(self) -> None:
        """There are no hyperparameters: a constant that multiplies it is its variance."""

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
        gradient : ndarray of shape (N, N, 0)
            There are no hyperparameters. Only with ``eval_gradient``.
        """
        if Y is not None and eval_gradient:
            raise ValueError("eval_gradient=True takes the covariances of X alone; leave Y out.")
        X = np.atleast_2d(X)
        Y = X if Y is None else np.atleast_2d(Y)
        K = np.all(X[:, None] == Y[None], axis=-1).astype(float)
        return (K, np.empty((*K.shape, 0))) if eval_gradient else K

    def __repr__(self):
        return f"{type(self).__name__}()"


class JaxNugget(UnitVariance):
    """k(x, z) = 1 if x equals z, else 0."""

    def __call__(self, X, Z):
        # Column by column: all comparisons at once would be an array of three axes.
        equal = jnp.ones((len(X), len(Z)), bool)
        for x, z in zip(X.T, Z.T, strict=True):
            equal &= x[:, None] == z[None]
        return equal.astype(jnp.result_type(X, Z))


def in_kernel(kernel: Kernel) -> bool:
    """Return whether a nugget is part of a JAX kernel."""
    return isinstance(kernel, JaxNugget) or any(map(in_kernel, filter(_is_kernel, vars(kernel).values())))


def in_sklearn(kernel: sklearn_kernels.Kernel) -> bool:
    """Return whether a `Nugget` is part of a kernel of scikit-learn."""
    parts = kernel.get_params(deep=False).values()
    return isinstance(kernel, Nugget) or any(map(in_sklearn, filter(_is_of_sklearn, parts)))


def parted(kernel: sklearn_kernels.Kernel) -> tuple[sklearn_kernels.Kernel, sklearn_kernels.Kernel | None]:
    """Return a sum without its last term, and this, if that is a multiple of a `Nugget`; else the kernel, and None."""
    last = getattr(kernel, "k2", None)
    is_term = isinstance(kernel, sklearn_kernels.Sum) and isinstance(getattr(last, "k2", None), Nugget)
    return (kernel.k1, last) if is_term else (kernel, None)


def _is_kernel(value):
    return isinstance(value, Kernel)


def _is_of_sklearn(value):
    return isinstance(value, sklearn_kernels.Kernel)
