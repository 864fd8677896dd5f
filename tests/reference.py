"""Dense, slow and plain versions of what the package computes, for the tests to compare with."""

import jax
import jax.numpy as jnp
import numpy as np

from skgp_natgrad import objectives


def reference_moments(kernel, points, a, m, S, X, jitter):
    """Eq. 11 of the orthogonal paper with plain Cholesky factors and solves, differentiable."""
    Z, Z_mean = points
    Kzz = kernel(Z, Z)
    Kzz = Kzz + jax.lax.stop_gradient(jitter * jnp.diag(Kzz).mean()) * jnp.eye(len(Z))
    L = jnp.linalg.cholesky(Kzz)
    A = jax.scipy.linalg.solve_triangular(L, kernel(Z, X), lower=True)
    W = jax.scipy.linalg.solve_triangular(L, kernel(Z, Z_mean), lower=True)
    mean = m @ A + a @ (kernel(Z_mean, X) - W.T @ A)
    var = kernel.diag(X) - (A * A).sum(0) + jnp.einsum("mb,kmn,nb->kb", A, S, A)
    residual = kernel(Z_mean, Z_mean) - W.T @ W
    return mean, var, 0.5 * jnp.einsum("kg,gh,kh->", a, residual, a)


def reference_elbo(parameters, m, S, batch, jitter, scale=1.0):
    """The bound from the definition of the KL divergence of two Gaussians."""
    (kernel,) = objectives.exponential(parameters.log_kernels)
    likelihood = objectives.exponential(parameters.log_likelihood)
    mean, var, kl_mean = reference_moments(kernel, parameters.points, parameters.weights.a, m, S, batch.X, jitter)
    expectation = (batch.weight * likelihood.expected_log_prob(mean, var, batch.y)).sum()
    kl = 0.5 * sum(jnp.trace(Sk) + mk @ mk - len(mk) - jnp.linalg.slogdet(Sk)[1] for mk, Sk in zip(m, S, strict=True))
    return scale * expectation - kl - kl_mean


def titsias(kernel, Z, X, y, noise, jitter, X_new):
    """Titsias' (2009) collapsed bound and its optimal prediction, from the formulas of the paper."""
    Kzz = kernel(Z)
    Kzz = Kzz + jitter * np.diag(Kzz).mean() * np.eye(len(Z))
    Kzx, Kzs = kernel(Z, X), kernel(Z, X_new)
    Q = Kzx.T @ np.linalg.solve(Kzz, Kzx)
    covariance = Q + noise * np.eye(len(X))
    bound = -0.5 * (
        len(X) * np.log(2.0 * np.pi) + np.linalg.slogdet(covariance)[1] + y @ np.linalg.solve(covariance, y)
    )
    bound -= 0.5 / noise * (kernel.diag(X).sum() - np.trace(Q))
    Sigma = np.linalg.inv(Kzz + Kzx @ Kzx.T / noise)
    mean = Kzs.T @ Sigma @ Kzx @ y / noise
    var = kernel.diag(X_new) - np.einsum("ij,ij->j", Kzs, np.linalg.solve(Kzz, Kzs))
    return bound, mean, var + np.einsum("ij,ik,kj->j", Kzs, Sigma, Kzs)
