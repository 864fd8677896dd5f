"""GPflow: natural gradients and Adam, the whole block of iterations in one compiled function."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.utilities import set_trainable

from contenders import Predictor, train_in_blocks


def _kernel(settings, n_features):
    """The sum of a Matern 5/2 and an RBF kernel of the orthogonal paper's appendix E."""
    root = np.sqrt(n_features) * (np.ones(n_features) if settings["ard"] else 1.0)
    return gpflow.kernels.Matern52(lengthscales=0.1 * root) + gpflow.kernels.SquaredExponential(lengthscales=root)


def train(data, settings, report):
    """A whitened SVGP; minibatches are gathered inside the compiled function."""
    tf.random.set_seed(settings["seed"])
    X, y = tf.constant(data["X"]), tf.constant(data["y"].astype(float)[:, None])
    classifies = settings["task"] == "classification"
    noise = settings["noise_variance"]
    model = gpflow.models.SVGP(
        _kernel(settings, X.shape[1]),
        gpflow.likelihoods.Bernoulli() if classifies else gpflow.likelihoods.Gaussian(noise),
        data["Z"][: settings["n_inducing"]],
        num_data=len(X),
    )
    set_trainable(model.q_mu, False)
    set_trainable(model.q_sqrt, False)
    natural = gpflow.optimizers.NaturalGradient(gamma=settings["gamma"])
    rate = settings["learning_rate"]
    if settings["decay"]:
        rate = tf.keras.optimizers.schedules.CosineDecay(rate, settings["max_iter"])
    adam = tf.keras.optimizers.Adam(rate)
    adam.build(model.trainable_variables)

    @tf.function
    def block(n_iter):
        for _ in tf.range(n_iter):
            rows = tf.random.uniform((settings["batch_size"],), maxval=len(X), dtype=tf.int64)
            loss = model.training_loss_closure((tf.gather(X, rows), tf.gather(y, rows)), compile=False)
            natural.minimize(loss, [(model.q_mu, model.q_sqrt)])
            adam.minimize(loss, model.trainable_variables)
        # Read once all steps are done: a call that has returned has then been carried out.
        return tf.reduce_sum(model.q_mu)

    train_in_blocks(lambda n: block(tf.constant(n)).numpy(), lambda: _predictor(model, X), settings, report)


def _predictor(model, X):
    """Prediction from the precomputed posterior, compiled for tables of any length."""
    posterior = model.posterior()
    rows = tf.TensorSpec((None, X.shape[1]), X.dtype)

    @tf.function(input_signature=[rows])
    def latent_mean(X):
        return posterior.predict_f(X)[0]

    @tf.function(input_signature=[rows])
    def target_moments(X):
        return model.likelihood.predict_mean_and_var(X, *posterior.predict_f(X))

    def moments(X):
        mean, var = target_moments(X)
        return mean.numpy()[:, 0], var.numpy()[:, 0]

    def proba(X):
        mean, _ = moments(X)
        return np.stack([1.0 - mean, mean], axis=1)

    classifies = isinstance(model.likelihood, gpflow.likelihoods.Bernoulli)
    return Predictor(lambda X: latent_mean(X).numpy()[:, 0], moments, proba if classifies else None)
