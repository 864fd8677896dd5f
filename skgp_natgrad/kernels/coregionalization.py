"""The covariance between outputs, low-rank plus diagonal: the scikit-learn class and the JAX kernel."""

from __future__ import annotations

import numbers
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.gaussian_process import kernels as sklearn_kernels

from .._backend.types import ArrayLike, Bounds, Floats
from .base import Kernel


class Coregionalization(sklearn_kernels.Kernel):
    r"""Covariance between outputs, whose numbers are a column of X: a low-rank plus diagonal matrix.

    .. math::

        k(p, q) = B_{pq}, \qquad B = W W^T + \mathrm{diag}(\kappa)

    Times a kernel on the other columns it is the intrinsic model of
    coregionalization, and sums of such products are the linear model [1]_. The
    positive parameters of B are the standard deviation of each output, and ``rank``
    angles :math:`\theta_{pr}` between 0 and pi, by which its correlations are

    .. math::

        R_{pq} = \sum_r u_{pr} u_{qr} \quad (p \ne q), \qquad
        u_{pr} = \cos \theta_{pr} \prod_{s < r} \sin \theta_{ps}

    Every W and positive kappa is one such B; an angle of pi / 2 shares nothing.

    Parameters
    ----------
    deviation : float or ndarray of shape (n_outputs,), default=1.0
        The standard deviation of each output. With a single number the kernel is
        a template, for ``output_kernel`` of
        :class:`~skgp_natgrad.NGDSVGPRegressor`, which finds the numbers of all outputs.
    angle : float or ndarray of shape (n_outputs * rank,), default=1.0
        In radians, those of the first output first.
    rank : int, default=1
        Columns of W.
    deviation_bounds : pair of floats or "fixed", default=(1e-3, 1e3)
    angle_bounds : pair of floats or "fixed", default=(1e-3, 3.14)

    References
    ----------
    .. [1] M. Alvarez, L. Rosasco, N. Lawrence (2012). "Kernels for Vector-Valued Functions: a Review." Foundations and
       Trends in Machine Learning.

    Examples
    --------
    Two outputs with a correlation of cos(0.5) cos(0.7); the last column of X is the output of each row:

    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad.kernels import Columns, Coregionalization
    >>> between = Coregionalization(deviation=[1.0, 2.0], angle=[0.5, 0.7])
    >>> between.covariance.round(3)
    array([[1.   , 1.342],
           [1.342, 4.   ]])
    >>> X = np.array([[0.3, 0], [0.3, 1]])
    >>> bool(np.allclose((Columns(RBF(), 0) * Columns(between, 1))(X), between.covariance))
    True
    """

    def __init__(
        self,
        deviation: float | ArrayLike = 1.0,
        angle: float | ArrayLike = 1.0,
        rank: int = 1,
        deviation_bounds: Bounds = (1e-3, 1e3),
        angle_bounds: Bounds = (1e-3, 3.14),
    ) -> None:
        self.deviation = deviation
        self.angle = angle
        self.rank = rank
        self.deviation_bounds = deviation_bounds
        self.angle_bounds = angle_bounds

    @classmethod
    def from_factors(cls, W: ArrayLike, kappa: ArrayLike, **bounds: Any) -> Self:
        """Return the kernel of a given W (n_outputs, rank) and kappa (n_outputs,), positive."""
        W, kappa = np.asarray(W, float), np.asarray(kappa, float)
        if W.ndim != 2 or kappa.shape != W.shape[:1] or not np.all(kappa > 0.0):
            raise ValueError(
                f"W has the shape {W.shape}, and kappa={kappa!r}: give W as (n_outputs, rank), and for each output one "
                "positive kappa."
            )
        # The length of each row of (W, sqrt(kappa)) from each column on.
        squares = np.column_stack([W * W, kappa])
        rest = np.sqrt(np.cumsum(squares[:, ::-1], axis=1)[:, ::-1])
        return cls(rest[:, 0], np.arctan2(rest[:, 1:], W).ravel(), W.shape[1], **bounds)

    @property
    def n_outputs(self) -> int:
        """Number of outputs; zero for a template."""
        return np.size(self.deviation) if np.ndim(self.deviation) else 0

    @property
    def factors(self) -> tuple[Floats, Floats]:
        """W (n_outputs, rank) and kappa (n_outputs,)."""
        deviation, (u, rest) = np.asarray(self.deviation, float), _loadings(self._angles(), np)
        return deviation[:, None] * u, (deviation * rest) ** 2

    @property
    def covariance(self) -> Floats:
        """B: ndarray of shape (n_outputs, n_outputs)."""
        return _covariance(np.asarray(self.deviation, float), self._angles(), np)

    @property
    def hyperparameter_deviation(self) -> sklearn_kernels.Hyperparameter:
        """The standard deviations."""
        return sklearn_kernels.Hyperparameter("deviation", "numeric", self.deviation_bounds, np.size(self.deviation))

    @property
    def hyperparameter_angle(self) -> sklearn_kernels.Hyperparameter:
        """The angles."""
        return sklearn_kernels.Hyperparameter("angle", "numeric", self.angle_bounds, np.size(self.angle))

    def __call__(
        self, X: ArrayLike, Y: ArrayLike | None = None, eval_gradient: bool = False
    ) -> Floats | tuple[Floats, Floats]:
        """Return the covariances of the outputs in ``X`` and ``Y``.

        Parameters
        ----------
        X : array-like of shape (N, 1)
            Numbers of outputs from zero on; of another number it is the nearest output.
        Y : array-like of shape (M, 1), default=None
            If None, it is ``X``.
        eval_gradient : bool, default=False
            Whether to return the gradient as well; only without ``Y``.

        Returns
        -------
        K : ndarray of shape (N, M)
        gradient : ndarray of shape (N, N, n_dims)
            Derivatives of K in ``theta``. Only with ``eval_gradient``.
        """
        if Y is not None and eval_gradient:
            raise ValueError("eval_gradient=True takes the covariances of X alone; leave Y out.")
        B, rows = self.covariance, self._outputs(X)
        columns = rows if Y is None else self._outputs(Y)
        K = B[rows[:, None], columns]
        return (K, self._gradient(B)[rows[:, None], columns]) if eval_gradient else K

    def diag(self, X: ArrayLike) -> Floats:
        """Return the variances (N,) of the outputs in ``X`` (N, 1)."""
        self._angles()
        return np.square(np.asarray(self.deviation, float))[self._outputs(X)]

    def is_stationary(self) -> bool:
        """Return whether the kernel is stationary: it is not."""
        return False

    def __repr__(self):
        deviation, angle = (np.array2string(np.asarray(x, float), precision=3) for x in (self.deviation, self.angle))
        rank = f", rank={self.rank}" if self.rank != 1 else ""
        return f"{type(self).__name__}(deviation={deviation}, angle={angle}{rank})"

    def check(self, n_columns: int) -> None:
        """Raise ValueError if the numbers of values do not fit, or if there is more than one column."""
        if n_columns != 1:
            raise ValueError(
                f"kernel contains {self!r} on {n_columns} columns, but the number of the output is one column: put it "
                "in Columns, as in Columns(Coregionalization(...), -1)."
            )
        self._angles()

    def _angles(self):
        """The angles (n_outputs, rank)."""
        n_outputs, angle = self.n_outputs, np.asarray(self.angle, float)
        check_rank(self)
        if not np.all(np.asarray(self.deviation, float) > 0.0):
            raise ValueError(f"deviation={self.deviation!r} must be positive, as standard deviations are.")
        if not (n_outputs and angle.shape == (n_outputs * self.rank,)):
            raise ValueError(
                f"{self!r} has {np.size(self.deviation)} deviations and {angle.size} angles: give one deviation for "
                f"each output and rank={self.rank!r} angles for each, in one array; single numbers are a template for "
                "output_kernel."
            )
        return angle.reshape(n_outputs, self.rank)

    def _outputs(self, X):
        X = np.atleast_2d(X)
        self.check(X.shape[1])
        found = np.rint(X[:, 0].astype(float))
        if not np.all(np.isfinite(found)):
            raise ValueError("X holds numbers of outputs that are not finite; leave out such rows.")
        return np.clip(found, 0, self.n_outputs - 1).astype(int)

    def _gradient(self, B):
        """Derivatives (P, P, n_dims) of B in the logarithms of the angles, and then of the deviations."""
        angle, n_outputs = self._angles(), self.n_outputs
        each = np.arange(n_outputs)
        u, _ = _loadings(angle, np)
        of_angle = np.zeros((n_outputs, n_outputs, n_outputs, self.rank))
        for r in range(self.rank):
            slope = u / np.tan(angle[:, r : r + 1])
            slope[:, :r], slope[:, r] = 0.0, -np.prod(np.sin(angle[:, : r + 1]), axis=1)
            change = np.outer(self.deviation, self.deviation) * (angle[:, r : r + 1] * slope @ u.T)
            of_angle[each, :, each, r] += change
            of_angle[:, each, each, r] += change.T
        # The variances do not depend on the angles.
        of_angle[each, each] = 0.0
        of_deviation = np.zeros((n_outputs,) * 3)
        of_deviation[each, :, each] += B
        of_deviation[:, each, each] += B
        parts = (of_angle.reshape(n_outputs, n_outputs, -1), self.hyperparameter_angle.fixed)
        parts = (parts, (of_deviation, self.hyperparameter_deviation.fixed))
        return np.concatenate([np.empty((n_outputs, n_outputs, 0)), *(part for part, fixed in parts if not fixed)], 2)


def check_rank(between):
    """Raise ValueError if the rank is not a whole number of at least one."""
    if isinstance(between.rank, bool) or not isinstance(between.rank, numbers.Integral) or between.rank < 1:
        raise ValueError(f"rank={between.rank!r} of Coregionalization must be a whole number of at least 1.")


def _loadings(angle, xp):
    """u (P, rank), a part of a unit vector in spherical coordinates ``angle`` (P, rank), and its last entry (P,)."""
    rest = xp.cumprod(xp.sin(angle), axis=1)
    before = xp.concatenate([xp.ones_like(rest[:, :1]), rest[:, :-1]], axis=1)
    return xp.cos(angle) * before, rest[:, -1]


def _covariance(deviation, angle, xp):
    u, rest = _loadings(angle, xp)
    return deviation[:, None] * deviation * (u @ u.T + xp.diag(rest**2))


class JaxCoregionalization(Kernel):
    """k(p, q) = B_pq, of a low-rank plus diagonal B."""

    deviation: jax.Array
    angle: jax.Array
    rank: int
    static: ClassVar[tuple] = ("rank",)
    sized: ClassVar[tuple] = ("deviation", "angle")

    def __call__(self, X, Z):
        # Products with zeros and ones: their derivatives are products, too, and no scattered sums.
        B = _covariance(self.deviation, self.angle.reshape(-1, int(self.rank)), jnp)
        return self._chosen(X) @ B.astype(X.dtype) @ self._chosen(Z).T

    def diag(self, X):
        return self._chosen(X) @ jnp.square(self.deviation).astype(X.dtype)

    def _chosen(self, X):
        """Zeros, and ones at the output of each row (N, P)."""
        outputs = jnp.arange(len(self.deviation))
        return (jnp.clip(jnp.rint(X[:, :1]), 0, len(outputs) - 1) == outputs).astype(X.dtype)

    @classmethod
    def structure(cls, kernel, inputs):
        """Return the rank, after a check of the numbers of values."""
        kernel.check(inputs.n_columns)
        return super().structure(kernel, inputs)
