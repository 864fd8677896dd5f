"""The arithmetic floor: the products and factorisations of a training step or of a prediction, alone.

Nothing here is a model. The operands have the right shapes, and each product
takes part of its input from the one before, through a factor that is zero when
the program runs and unknown when it is compiled: so XLA can leave none out, and
move none out of the loop.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from contenders import Predictor, train_in_blocks
from skgp_natgrad._backend.linalg import (
    lower_product,
    squared_lengths,
    triangular_inverse,
    upper_product,
    weighted_gram,
)
from skgp_natgrad._backend.threads import single_threaded
from skgp_natgrad.prediction.evaluate import chunk_rows
from skgp_natgrad.step.chunk import STEPS_PER_CALL


def _inverse_factor(K):
    return triangular_inverse(jnp.linalg.cholesky(K, symmetrize_input=False))


def _distances(U, V, both):
    """The product behind the distances of two point sets, and those of its gradient in one or both of them."""
    product = U @ V.T
    used = (product @ V).sum() + ((product.T @ U).sum() if both else 0.0)
    return product, used


def _coupled(K, P, Z, X):
    """The products of ``projection.project`` and its reverse pass, and those of the natural gradient step."""
    _, at_Z = _distances(Z, Z, both=True)
    Kzx, at_X = _distances(Z, X, both=False)
    L_inv = _inverse_factor(K)
    A = lower_product(L_inv, Kzx)
    SA = P @ A
    d_S = weighted_gram(A[None], SA[:1])[0]
    d_K = L_inv.T @ (P @ d_S) @ L_inv + upper_product(L_inv.T, SA).sum()
    P_inv = _inverse_factor(P)
    return d_K + at_Z + at_X, P_inv.T @ P_inv


def _mean_only(a, Z, Z_mean, X, n_columns):
    """What the mean-only points add: their kernel matrices with the rows, Z and each other, times the weights."""
    at_X, used_X = _distances(Z_mean, X, both=False)
    at_Z, used_Z = _distances(Z_mean, Z, both=True)
    own, used = _distances(Z_mean, Z_mean[:n_columns], both=True)
    return a + (used_X + used_Z + used) + (a @ at_X).sum() + (a @ at_Z).sum() + (a @ own).sum()


@functools.partial(jax.jit, static_argnames=("n_steps", "n_columns"))
def _steps(zero, K, P, a, Z, Z_mean, X, n_steps, n_columns):
    if len(a):
        # The metric of the mean-only weights, once for each chunk of steps.
        a = a + zero * (_inverse_factor(K) @ (Z @ Z_mean.T)).sum()

    def body(_, carry):
        K, P, a = carry
        if len(a):
            a = a + zero * _mean_only(a, Z + zero * K.sum(), Z_mean + zero * a.sum(), X, n_columns)
        d_K, cov = _coupled(K, P, Z + zero * K.sum(), X)
        return K + zero * d_K, P + zero * cov, a

    return jax.lax.fori_loop(0, n_steps, body, (K, P, a))


def train(data, settings, report):
    """Blocks of the products of so many steps."""
    jax.config.update("jax_enable_x64", settings["dtype"] == "float64")
    operands = _operands(data, settings)

    def run(n_steps):
        for _ in range(n_steps // STEPS_PER_CALL):
            jax.block_until_ready(_steps(*operands, n_steps=STEPS_PER_CALL, n_columns=settings["mean_columns"]))

    with single_threaded(settings["n_inducing"]):
        train_in_blocks(run, None, settings, report)


def _operands(data, settings):
    rng, dtype = np.random.default_rng(0), settings["dtype"]
    n_inducing, n_mean = settings["n_inducing"], settings["n_mean_inducing"]
    root = rng.normal(size=(n_inducing, n_inducing)) / np.sqrt(n_inducing)
    K = root @ root.T + np.eye(n_inducing)
    X = data["X"][: settings["batch_size"]]
    arrays = (K, K, rng.normal(size=n_mean), data["Z"][:n_inducing], data["Z_mean"][:n_mean], X)
    return jax.device_put([np.zeros((), dtype), *(array.astype(dtype) for array in arrays)])


@jax.jit
def _mean_products(alpha, Z, X):
    return alpha @ (Z @ X.T)


@jax.jit
def _moment_products(alpha, reduction, Z, X):
    Kzx = Z @ X.T
    return alpha @ Kzx, squared_lengths(reduction, Kzx)


def predict(data, settings, report):
    """The products of a prediction in chunks; from a report like that of a model that was trained."""
    jax.config.update("jax_enable_x64", True)
    n_inducing, n_features = settings["n_inducing"], data["X"].shape[1]
    rng = np.random.default_rng(0)
    alpha, Z = rng.normal(size=n_inducing), rng.normal(size=(n_inducing, n_features))
    reduction = np.tril(rng.normal(size=(n_inducing, n_inducing)))
    alpha, Z, reduction = jax.device_put((alpha, Z, reduction))

    size = chunk_rows(n_inducing)

    def in_chunks(function, X):
        if len(X) > size:
            X = np.pad(X, ((0, -len(X) % size), (0, 0)))
        parts = [function(X[start : start + size]) for start in range(0, len(X), size)]
        return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)

    def mean(X):
        return in_chunks(lambda rows: _mean_products(alpha, Z, rows), X)

    def moments(X):
        return in_chunks(lambda rows: _moment_products(alpha, reduction, Z, rows), X)

    def proba(X):
        return moments(X)[0]

    classifies = settings["task"] == "classification"
    report(0, lambda: Predictor(mean, moments, proba if classifies else None), final=True)
