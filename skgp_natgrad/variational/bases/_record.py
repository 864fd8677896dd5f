"""The record of functions that defines a basis, and the types that they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax

from ..projection import WhitenedRows


class Basis(NamedTuple):
    """A basis: its properties, and functions of one kernel and the latent functions that it serves.

    Attributes
    ----------
    natural : bool
        Whether q(v) has natural parameters, and so natural gradients.
    first_weights : callable
        ``(n_latent, n_inducing, n_mean_only) -> Weights``, the initial weights: those of the prior, or
        close to it.
    moments : callable
        ``(kernel, factor, points, masks, weights, m, S, X, columns, needs_residual) -> (mean, var, kl,
        dependence, residual)``, the parts of `Moments`; ``factor`` is None without natural parameters, and
        so is ``residual``, of shape (B,), which is also None where it is not needed.
    prediction_factors : callable
        ``(kernel, points, masks, weights, q, jitter) -> (alpha, whiten, root_S, used)``; see
        `bases.prediction_factors`.
    change_of_mean : callable or None
        ``(kernel, factor, points, masks, a, m, Z_new) -> array (K, M)``: the change of the mean at the
        points of q(v) as they move to ``Z_new``; None without natural parameters.
    metric : callable
        ``(kernel, factor, points, masks) -> array (G,)``: the diagonal metric of the mean-only weights.
    metric_matrix : callable or None
        The full metric, (G, G), if the mean-only part is orthogonal to the rest, so that it has
        its own natural gradient (eq. 15a).
    mean_on_inducing : bool
        Whether the mean-only points begin with a copy of the inducing points.
    second_part : bool
        Whether the further points are `Points.Z_second`, with a covariance too, not `Points.Z_mean`.
    """

    natural: bool
    first_weights: Callable
    moments: Callable
    prediction_factors: Callable
    change_of_mean: Callable | None
    metric: Callable
    metric_matrix: Callable | None
    mean_on_inducing: bool = False
    second_part: bool = False

    @property
    def orthogonal(self):
        """Whether the mean-only part is orthogonal to the rest."""
        return self.metric_matrix is not None


class Weights(NamedTuple):
    """The variational parameters beside q(v).

    Attributes
    ----------
    a : array of shape (K, G)
        Weights of the mean-only points.
    root : array of shape (K, M, M)
        R of the decoupled basis; (K, 0, 0) in the others.
    """

    a: jax.Array
    root: jax.Array


class Dependence(NamedTuple):
    """How latent moments depend on q(v), for latent functions with one kernel.

    Attributes
    ----------
    rows : projection.WhitenedRows
    slope : array of shape (K, M)
        Gradient of the KL divergence in the mean of q(v).
    """

    rows: WhitenedRows
    slope: jax.Array


class Moments(NamedTuple):
    """Latent moments (K, B), and the KL divergence minus that of q(v), a scalar.

    ``dependence`` holds a `Dependence` for each kernel; None if q(v) is not used. ``residual`` (K, B), if
    requested, is the part of the variance that does not depend on q: k_xx - q_xx.
    """

    mean: jax.Array
    var: jax.Array
    kl: jax.Array
    dependence: tuple
    residual: jax.Array | None = None
