"""Shared fixtures: 64-bit JAX around each test that asks for it, and random problems."""

import os

# Before scipy is imported: scikit-learn's array API check is skipped without it.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import jax
import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skgp_natgrad import bases, gaussians, kernels, likelihoods, objectives


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def rng():
    return np.random.default_rng(42)


def random_gaussian(rng, n_latent, size):
    """A random q(v) with a well conditioned covariance."""
    root = rng.normal(size=(n_latent, size, size)) / np.sqrt(size)
    precision = np.eye(size) + root @ root.transpose(0, 2, 1)
    return gaussians.from_natural(rng.normal(size=(n_latent, size)), precision)


def targets_for(likelihood, rng, n_latent, n_rows):
    """Random targets (T, B) that the likelihood can observe."""
    if likelihood.task == "classification":
        return rng.integers(0, max(n_latent, 2), size=(1, n_rows)).astype(float)
    return rng.normal(size=(n_latent, n_rows))


def make_problem(likelihood, rng, n_inducing=6, n_mean_inducing=0, n_rows=25, n_latent=None):
    """Random parameters, q, batch and masks for a likelihood; call it inside ``x64``."""
    if n_latent is None:
        n_latent = likelihood.n_latent(2, 2) if likelihood.name == "bernoulli" else likelihood.n_latent(2, 3)
    n_targets = n_latent if likelihood.task == "regression" else 1
    kernel = ConstantKernel(1.3) * Matern(length_scale=[1.1, 0.7, 1.6], nu=2.5) + RBF(0.9)
    spec = kernels.from_sklearn(kernel, 3).value, likelihood.spec(n_targets)[0]
    parameters = objectives.Parameters(
        *jax.tree.map(np.log, spec),
        bases.Points(rng.normal(size=(n_inducing, 3)), rng.normal(size=(n_mean_inducing, 3))),
        rng.normal(size=(n_latent, n_mean_inducing)),
    )
    masks = bases.Masks(np.ones(n_inducing), np.ones(n_mean_inducing))
    batch = objectives.Batch(
        rng.normal(size=(n_rows, 3)),
        targets_for(likelihood, rng, n_latent, n_rows),
        rng.uniform(0.5, 2.0, size=n_rows),
    )
    return parameters, random_gaussian(rng, n_latent, n_inducing), batch, masks


def all_likelihoods():
    """One object of every likelihood and link."""
    others = [
        likelihoods.by_name(name) for task in ("regression", "classification") for name in likelihoods.names(task)
    ]
    return [*others, likelihoods.Bernoulli(link="logit")]
