"""The parts of a model as trees of arrays: trained parameters, constants, and the batch of a step."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from .. import priors
from ..likelihoods import Likelihood
from ..objectives import ELBO, Objective
from . import streaming
from .bases import Weights
from .points import Masks, Points


class Parameters(NamedTuple):
    """All trained parameters except q(v).

    Attributes
    ----------
    log_kernels : tuple of Kernel
        One kernel for all latent functions or one for each, their
        hyperparameters in logarithms.
    raw_likelihood : Likelihood
        The likelihood, its parameters as raw values: see `likelihoods.Transform`.
    points : points.Points
    weights : bases.Weights
    """

    log_kernels: tuple
    raw_likelihood: Likelihood
    points: Points
    weights: Weights


class Batch(NamedTuple):
    """The rows of one step.

    Attributes
    ----------
    X, y : arrays of shape (B, D) and (T, B)
        A target that is NaN is missing.
    weight : array of shape (B,)
        Zero for padding.
    columns : array of int of shape (C,) or None
        Random columns of Kgg that represent all; with None all are used.
    correlation : scalar
        Correlation of the noise of the preceding batch with this one's (`batches.noise_correlation`).
    offset : array of shape (K, B), optional
        Added to the latent functions.
    known : array of shape (P T, B), optional
        What else is known of the rows: see `likelihoods.Likelihood.given`.
    """

    X: jax.Array
    y: jax.Array
    weight: jax.Array
    columns: jax.Array
    correlation: jax.Array | float = 0.0
    offset: jax.Array | None = None
    known: jax.Array | None = None

    def prior_mean(self, constants):
        """The prior mean at the rows: (K, 1) or (K, B)."""
        return constants.prior_mean if self.offset is None else constants.prior_mean + self.offset


class Constants(NamedTuple):
    """Quantities that stay fixed during a fit.

    Attributes
    ----------
    log_bounds : pair of (tuple of Kernel, Likelihood)
        Lower and upper bounds of the kernels' logarithms and of the likelihood's raw values.
    masks : points.Masks
    prior_mean : array of shape (K, 1)
        The prior mean of the latent functions.
    scale : scalar
        N / B, which makes the batch's sum an unbiased estimate of the table's.
    weight : scalar
        Sum of all sample weights: gradients are taken per unit of weight.
    jitter : scalar
        Jitter relative to the kernel's scale.
    train_points : scalar
        One, or zero if the points stay in place.
    objective : objectives.Objective
    past : streaming.PastPosterior, optional
        The posterior of earlier data; None if there are none.
    n_rows : scalar, optional
        Number of rows of the table.
    priors : dict of str to Prior, optional
        Of hyperparameters by their names, from `priors.settled`.
    """

    log_bounds: tuple
    masks: Masks
    prior_mean: jax.Array
    scale: jax.Array
    weight: jax.Array
    jitter: jax.Array
    train_points: jax.Array
    objective: Objective = ELBO()
    past: streaming.PastPosterior | None = None
    n_rows: float | None = None
    priors: dict | None = None

    def log_prior(self, parameters: Parameters) -> jax.Array | float:
        """The log density of the hyperparameters, which training adds to the bound."""
        return 0.0 if self.priors is None else priors.log_density(self.priors, tuple(parameters[:2]))

    def pinned(self, parameters: Parameters) -> Constants:
        """The constants under which hyperparameters with priors stay at their present values."""
        if self.priors is None:
            return self
        return self._replace(log_bounds=priors.pinned(self.priors, tuple(parameters[:2]), self.log_bounds))


def has_closed_form(parameters, constants):
    """Whether one natural gradient step of size one, from any q, leads to the best q."""
    return parameters.raw_likelihood.conjugate and constants.objective.closed_form


def kernels_of(parameters):
    """The JAX kernels with their hyperparameters, not logarithms."""
    return exponential(parameters.log_kernels)


def likelihood_of(parameters):
    """The likelihood with its parameters, not their raw values."""
    return parameters.raw_likelihood.from_raw()


def exponential(tree):
    """Return the parameters whose logarithms are the leaves of ``tree``."""
    return jax.tree.map(jnp.exp, tree)
