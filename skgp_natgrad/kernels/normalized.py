"""A kernel that says on which scaling of X it was found, so that it can be given to another fit."""

from __future__ import annotations

from typing import Any

from sklearn.gaussian_process import kernels as sklearn_kernels

from .._backend.types import ArrayLike, Floats
from .of_kernel import OfKernel


class Normalized(OfKernel):
    """A kernel of X as ``normalize_X`` scales it.

    ``kernel_`` is one if the fit has chosen another scaling than standardised columns. As the ``kernel`` of an
    estimator it stands for ``normalize_X=how``, so that its hyperparameters keep their meaning. As a function it is
    ``kernel``, of rows that are scaled already.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
        The whole kernel: `Normalized` is no part of sums and products.
    how : {"quantile", "common"}
        The value of ``normalize_X``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import NGDSVGPRegressor
    >>> from skgp_natgrad.kernels import Normalized
    >>> X = np.random.default_rng(0).lognormal(size=(50, 1))
    >>> kernel = Normalized(1.0 * RBF(0.5), "quantile")
    >>> reg = NGDSVGPRegressor(kernel, optimizer=None).fit(X, np.log(X[:, 0]))
    >>> "normal scores" in reg.plan_
    True
    """

    def __init__(self, kernel: sklearn_kernels.Kernel, how: str) -> None:
        self.kernel = kernel
        self.how = how

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and (self.how, self.kernel) == (other.how, other.kernel)

    def __call__(
        self, X: ArrayLike, Y: ArrayLike | None = None, eval_gradient: bool = False
    ) -> Floats | tuple[Floats, Floats]:
        """Return the covariances of the scaled rows ``X`` and ``Y``, as ``kernel`` does."""
        return self.kernel(X, Y, eval_gradient)

    def diag(self, X: ArrayLike) -> Floats:
        """Return the variances (N,) at the scaled rows of ``X`` (N, D)."""
        return self.kernel.diag(X)

    def is_stationary(self) -> bool:
        """Return whether ``kernel`` is stationary."""
        return self.kernel.is_stationary()

    def __repr__(self):
        return f"{type(self).__name__}({self.kernel!r}, {self.how!r})"


def parted(kernel: Any) -> tuple[Any, str | None]:
    """Return the kernel without `Normalized`, and its ``how``; None without one."""
    return (kernel.kernel, kernel.how) if isinstance(kernel, Normalized) else (kernel, None)


def joined(kernel: sklearn_kernels.Kernel, how: str | None) -> sklearn_kernels.Kernel:
    """Undo `parted`."""
    return kernel if how is None else Normalized(kernel, how)
