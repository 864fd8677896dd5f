"""GPJax: natural gradients and Adam; a compiled step, or a compiled scan over a block of them."""

from __future__ import annotations

import equinox as eqx
import gpjax as gpx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from gpjax.fit import get_batch
from gpjax.natural_gradients import natural_gradient_step, partition_variational

from contenders import Predictor, train_in_blocks


def _family(data, settings):
    """A whitened variational Gaussian under the kernel of the orthogonal paper's appendix E."""
    n_features = data["X"].shape[1]
    root = np.sqrt(n_features) * (jnp.ones(n_features) if settings["ard"] else jnp.ones(()))
    kernel = gpx.kernels.Matern52(lengthscale=0.1 * root) + gpx.kernels.RBF(lengthscale=root)
    prior = gpx.gps.Prior(mean_function=gpx.mean_functions.Zero(), kernel=kernel)
    likelihood = gpx.likelihoods.Gaussian(obs_stddev=jnp.sqrt(settings["noise_variance"]))
    Z = jnp.asarray(data["Z"][: settings["n_inducing"]])
    family = gpx.variational_families.WhitenedVariationalGaussian(model=prior * likelihood, inducing_inputs=Z)
    # Of strong types, as the steps return them: weak ones would be compiled for on their own.
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype) if eqx.is_array(leaf) else leaf, family)


def train(data, settings, report):
    """The steps of its own ``fit_natgrads``, compiled once; with ``settings["scan"]`` scanned over, as there."""
    rows = gpx.Dataset(X=jnp.asarray(data["X"]), y=jnp.asarray(data["y"], dtype=float)[:, None])
    variational, hyper = partition_variational(_family(data, settings))
    rate = settings["learning_rate"]
    adam = optax.adam(optax.cosine_decay_schedule(rate, settings["max_iter"]) if settings["decay"] else rate)

    def objective(family, batch):
        return -gpx.objectives.elbo(family, batch)

    def step(carry, key):
        variational, hyper, optimizer = carry
        batch = get_batch(rows, settings["batch_size"], key)
        variational, _ = natural_gradient_step(variational, hyper, batch, objective, jnp.asarray(settings["gamma"]))
        gradient = eqx.filter_grad(lambda hyper: objective(eqx.combine(variational, hyper), batch))(hyper)
        update, optimizer = adam.update(gradient, optimizer, eqx.filter(hyper, eqx.is_array))
        return (variational, eqx.apply_updates(hyper, update), optimizer), None

    def scanned(carry, keys):
        return jax.lax.scan(step, carry, keys)

    scans = settings["scan"]
    compiled = eqx.filter_jit(scanned if scans else step)
    state = [(variational, hyper, adam.init(eqx.filter(hyper, eqx.is_array))), jax.random.key(settings["seed"])]

    def run(n_iter):
        key, now = jax.random.split(state[1])
        keys = jax.random.split(now, n_iter)
        carry = state[0]
        for one_call in [keys] if scans else keys:
            carry, _ = compiled(carry, one_call)
        state[:] = jax.block_until_ready(carry), key

    train_in_blocks(run, lambda: _predictor(eqx.combine(*state[0][:2])), settings, report)


def _predictor(family):
    """Compiled prediction of the marginals, from factors that are made once."""
    posterior = family.condition(None)
    noise = gpx.parameters.val(family.model.likelihood.obs_stddev) ** 2

    @eqx.filter_jit
    def latent_mean(posterior, X):
        return posterior(X, covariance="diagonal").mean

    @eqx.filter_jit
    def target_moments(posterior, X):
        latent = posterior(X, covariance="diagonal")
        return latent.mean, latent.variance + noise

    def mean(X):
        return np.asarray(latent_mean(posterior, jnp.asarray(X))).ravel()

    def moments(X):
        return tuple(np.asarray(values).ravel() for values in target_moments(posterior, jnp.asarray(X)))

    return Predictor(mean, moments)
