"""
Variational optimization of a rippled bowl
==========================================

The natural gradient is of use beyond Gaussian processes. Here it minimises a
bowl with ripples, on which gradient descent stops in the first ripple it meets.

Variational optimization (Staines and Barber 2013) replaces the minimum of
:math:`g(u)` over points by one over Gaussians,

.. math::

    \\min_u g(u) \\le \\min_q \\; \\mathrm{E}_{q(u)}[g(u)] + \\mathrm{KL}[q(u) \\,\\|\\, N(0, I)],

where the divergence keeps q from collapsing too soon. A wide q averages the
ripples away and sees the bowl; as it narrows, it settles in the deepest ripple.
That is the objective of a variational Gaussian process with :math:`-g` in the
place of the log-likelihood, so that the package's own step on q applies.
"""

# %%
# The function
# ------------
#
# A quadratic with its lowest point at c, and a cosine along each coordinate:
#
# .. math::
#
#     g(u) = \tfrac{1}{2} (u - c)^T A (u - c) + b \sum_i \bigl(1 - \cos(k (u_i - c_i))\bigr)
#
# Its minimum is g(c) = 0. In one dimension, with the numbers below, the ripples
# make 7 local minima of it.
# The lecture that this example follows (Giraldo Gutierrez, Gaussian Process
# Summer School 2025) draws such a bowl without printing its formula.

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from skgp_natgrad.variational import gaussian, natural_gradient

RIPPLE, FREQUENCY = 3.0, 8.0
BOWLS = {
    1: (np.array([[10.0]]), np.array([1.5])),
    2: (np.array([[10.0, 4.0], [4.0, 10.0]]), np.array([1.5, -1.0])),
}
STARTS = {1: [-2.5], 2: [-2.0, 2.0]}


def g(u):
    """The rippled bowl, in as many dimensions as ``u`` has."""
    A, c = BOWLS[len(u)]
    return 0.5 * (u - c) @ A @ (u - c) + RIPPLE * (1.0 - jnp.cos(FREQUENCY * (u - c))).sum()


# %%
# The step
# --------
#
# ``natural_gradient.velocity`` asks for the gradients of E[-g] in the mean and the
# covariance of q. By the theorems of Bonnet and Price they are the expectations
# of -g's gradient and of half its Hessian, and the expectations are taken by
# Gauss-Hermite quadrature. Where ``natural_gradient.step`` would leave
# the precision without a Cholesky factor, it takes half the step.

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)


def expectation(function, q):
    """E[function(u)] under the first Gaussian of ``q``, by a product rule."""
    size = q.mean.shape[-1]
    nodes = np.stack([axis.ravel() for axis in np.meshgrid(*[NODES] * size)], axis=1)
    weights = np.prod(np.meshgrid(*[WEIGHTS / WEIGHTS.sum()] * size), axis=0).ravel()
    points = q.mean[0] + nodes @ jnp.linalg.cholesky(q.cov[0]).T
    return jnp.tensordot(weights, jax.vmap(function)(points), axes=1)


@jax.jit
def step(q, gamma):
    """One natural gradient step on E[g] + KL(q || N(0, I)); returns q and the objective before it."""
    dm = -expectation(jax.grad(g), q)[None]
    dS = -0.5 * expectation(jax.hessian(g), q)[None]
    velocity = natural_gradient.velocity(q, dm, dS)
    return natural_gradient.step(q, velocity, gamma).q, expectation(g, q) + gaussian.kl_to_standard(q)


def natural_path(start, gamma=0.05, n_steps=200):
    """Means (n_steps, D), covariances (n_steps, D, D) and objectives from N(start, I)."""
    size = len(start)
    q = gaussian.from_natural(jnp.asarray(start)[None], jnp.eye(size)[None])
    path = []
    for _ in range(n_steps):
        previous, (q, objective) = q, step(q, gamma)
        path.append((previous.mean[0], previous.cov[0], objective))
    return tuple(np.array(values) for values in zip(*path, strict=True))


@jax.jit
def descend(u):
    return u - 0.002 * jax.grad(g)(u)


def descent_path(start, n_steps=500):
    """Ordinary gradient descent on g itself."""
    path = [jnp.asarray(start)]
    for _ in range(n_steps):
        path.append(descend(path[-1]))
    return np.array(path)


# The package computes in 64 bits, within this scope.
with jax.enable_x64(True):
    natural = {size: natural_path(start) for size, start in STARTS.items()}
    descent = {size: descent_path(start) for size, start in STARTS.items()}
    for size in STARTS:
        means, covariances, objectives = natural[size]
        print(f"{size} dimension(s), minimum at {np.asarray(BOWLS[size][1])}")
        print(f"  gradient descent  ends at {descent[size][-1].round(3)}, g = {g(descent[size][-1]):.3f}")
        deviation = np.sqrt(np.diagonal(covariances[-1])).round(3)
        print(f"  mean of q         ends at {means[-1].round(3)}, g = {g(means[-1]):.3f}, std {deviation}")
        print(f"  objective         {objectives[0]:.1f} at first, {objectives[-1]:.2f} at last")

# %%
# The picture
# -----------
#
# Left, in one dimension: the bowl; below it, the mean of q and two standard
# deviations on either side, step by step downwards. Right, in two: the mean's
# path, with q's two-standard-deviation ellipse every few steps.

figure, axes = plt.subplot_mosaic(
    [["bowl", "plane"], ["path", "plane"]], figsize=(11, 5.4), width_ratios=[1, 1.1], layout="constrained"
)
u = np.linspace(-4.5, 6.0, 800)
with jax.enable_x64(True):
    axes["bowl"].plot(u, jax.vmap(g)(u[:, None]), color="grey", linewidth=1)
    axes["bowl"].plot(descent[1][:, 0], jax.vmap(g)(descent[1]), ".-", color="tab:orange", label="gradient descent")
    means, covariances, _ = natural[1]
    axes["bowl"].plot(means[:, 0], jax.vmap(g)(means), ".-", color="tab:blue", label="mean of q")
axes["bowl"].plot(1.5, 0.0, "k*", markersize=11, label="minimum")
axes["bowl"].set(ylabel="g(u)", title="one dimension")
axes["bowl"].legend(fontsize=8)
steps, deviation = np.arange(len(means)), np.sqrt(covariances[:, 0, 0])
axes["path"].fill_betweenx(
    steps, means[:, 0] - 2 * deviation, means[:, 0] + 2 * deviation, color="tab:blue", alpha=0.2, label="2 std"
)
axes["path"].plot(means[:, 0], steps, color="tab:blue", label="mean of q")
axes["path"].axvline(1.5, color="black", linewidth=0.8)
axes["path"].set(xlabel="u", ylabel="step", ylim=(len(steps), 0))
axes["path"].sharex(axes["bowl"])
axes["path"].legend(fontsize=8)

grid = np.stack(np.meshgrid(np.linspace(-4, 4, 201), np.linspace(-4, 4, 201)), axis=-1)
with jax.enable_x64(True):
    height = np.asarray(jax.vmap(g)(grid.reshape(-1, 2))).reshape(201, 201)
plane = axes["plane"]
plane.contourf(grid[..., 0], grid[..., 1], height, levels=30, cmap="Greys", alpha=0.7)
means, covariances, _ = natural[2]
circle = np.stack([np.cos(np.linspace(0, 2 * np.pi, 80)), np.sin(np.linspace(0, 2 * np.pi, 80))])
for i in [0, 2, 5, 10, 20, 40, 199]:
    plane.plot(*(means[i][:, None] + 2 * np.linalg.cholesky(covariances[i]) @ circle), color="tab:blue", alpha=0.5)
plane.plot(*means.T, ".-", color="tab:blue", label="mean of q")
plane.plot(*descent[2].T, ".-", color="tab:orange", label="gradient descent")
plane.plot(*np.asarray(BOWLS[2][1]), "k*", markersize=11, label="minimum")
plane.set(xlabel="$u_1$", ylabel="$u_2$", title="two dimensions", xlim=(-4, 4), ylim=(-4, 4), aspect="equal")
plane.legend(fontsize=8)
figure.savefig("variational_optimization.png", dpi=120)
print("saved variational_optimization.png")
