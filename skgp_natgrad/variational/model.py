"""The parts of a model, as trees of arrays: what is trained, what is constant, and what a step sees."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ..likelihoods import Likelihood
from ..objectives import ELBO, Objective
from . import streaming
from .bases import Weights
from .points import Masks, Points


class Parameters(NamedTuple):
    """Everything that is trained, besides q(v).

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
    """What one step sees.

    Attributes
    ----------
    X, y : arrays of shape (B, D) and (T, B)
    weight : array of shape (B,)
        Of padding, zero.
    columns : array of int of shape (C,)
        Columns of Kgg that stand for all; of all G, none is left to chance.
    correlation : scalar
        Of the noise of the batch before with this one's (`batches.noise_correlation`).
    """

    X: jax.Array
    y: jax.Array
    weight: jax.Array
    columns: jax.Array
    correlation: jax.Array | float = 0.0


class Constants(NamedTuple):
    """What stays fixed during a fit.

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
        Relative to the kernel's scale.
    train_points : scalar
        One, or zero where the points stay in place.
    objective : objectives.Objective
    past : streaming.PastPosterior, optional
        What earlier data said; None where there are none.
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


def has_closed_form(parameters, constants):
    """Whether the best q is one natural gradient step of size one away, from anywhere."""
    return parameters.raw_likelihood.conjugate and constants.objective.closed_form


def kernels_of(parameters):
    """The kernels in the form in which they compute."""
    return exponential(parameters.log_kernels)


def likelihood_of(parameters):
    """The likelihood in the form in which it computes."""
    return parameters.raw_likelihood.from_raw()


def exponential(tree):
    """Return the parameters whose logarithms are the leaves of ``tree``."""
    return jax.tree.map(jnp.exp, tree)
