"""Dense, slow and plain versions of what the package computes, for the tests to compare with."""

import jax
import jax.numpy as jnp
import numpy as np

from skgp_natgrad.variational.model import kernels_of, likelihood_of


def expected_log_likelihood(parameters, mean, var, batch):
    """The weighted sum of E[log p(y | f)] over a batch, for latent moments (K, B)."""
    each = likelihood_of(parameters).expected_log_prob(mean, var, batch.y)
    return (batch.weight * each).sum()


def reference_moments(kernel, points, a, m, S, X, jitter):
    """Eq. 11 of the orthogonal paper with plain Cholesky factors and solves, differentiable."""
    Z, Z_mean = points[:2]
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
    (kernel,) = kernels_of(parameters)
    likelihood = likelihood_of(parameters)
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


def dense_process(basis, parameters, m, S, X, jitter):
    """Latent moments and KL divergence from eq. 8, 10 and 11 and proposition A.1, unwhitened, by plain inverses."""
    (kernel,) = kernels_of(parameters)
    Z, Z_mean = parameters.points[:2]
    Kzz = kernel(Z, Z)
    Kzz = Kzz + (basis != "decoupled") * jax.lax.stop_gradient(jitter * jnp.diag(Kzz).mean()) * jnp.eye(len(Z))
    L, Kzg, Kzx = jnp.linalg.cholesky(Kzz), kernel(Z, Z_mean), kernel(Z, X)
    K = jnp.block([[Kzz, Kzg], [Kzg.T, kernel(Z_mean, Z_mean)]])
    Kax = jnp.concatenate([Kzx, kernel(Z_mean, X)])
    inverse = jnp.linalg.inv(Kzz)
    means, variances, kl = [], [], 0.0
    for k in range(len(m)):
        a, covariance = parameters.weights.a[k], L @ S[k] @ L.T
        on_Z = jnp.linalg.solve(L.T, m[k])
        if basis == "orthogonal":
            on_Z = on_Z - inverse @ Kzg @ a
        if basis == "decoupled":
            root = parameters.weights.root[k]
            on_Z, covariance = jnp.zeros(len(Z)), jnp.linalg.inv(inverse + root @ root.T)
        c = jnp.concatenate([on_Z, a])
        means.append(Kax.T @ c)
        variances.append(kernel.diag(X) + jnp.einsum("mb,mn,nb->b", Kzx, inverse @ (covariance - Kzz) @ inverse, Kzx))
        log_dets = jnp.linalg.slogdet(Kzz)[1] - jnp.linalg.slogdet(covariance)[1]
        kl = kl + 0.5 * (c @ K @ c + jnp.trace(covariance @ inverse) + log_dets - len(Z))
    return jnp.stack(means), jnp.stack(variances), kl


def dense_elbo(basis, parameters, m, S, batch, jitter):
    """The bound of `dense_process`."""
    mean, var, kl = dense_process(basis, parameters, m, S, batch.X, jitter)
    return expected_log_likelihood(parameters, mean, var, batch) - kl
