"""
scikit-learn's examples: classification
=======================================

Three of scikit-learn's examples of GaussianProcessClassifier: XOR, isoprobability lines, and irises. Given the same
kernel, the two libraries differ in their approximation to the posterior alone, which is Laplace's there and a
variational Gaussian here. For the polynomial kernels a Markov chain tells which one is nearer to the posterior.
"""

# %%
# XOR, and a referee
# ------------------
#
# One label in ten is flipped, so that probabilities are not just zero and one. ``fixed`` keeps the hyperparameters that
# scikit-learn finds; ``calibrate=False`` leaves the probabilities as they come from the posterior.

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from skgp_natgrad import NGDSVGPClassifier
from skgp_natgrad.likelihoods import Bernoulli


def fixed(kernel):
    """The kernel with bounds that keep its values."""
    bounds = {name: "fixed" for name in kernel.get_params() if name.endswith("_bounds")}
    return clone(kernel).set_params(**bounds)


def ours(kernel):
    """The counterpart of a GaussianProcessClassifier of two classes."""
    logit = Bernoulli(link="logit")
    return NGDSVGPClassifier(fixed(kernel), likelihood=logit, calibrate=False, normalize_X=False, random_state=0)


def markov_chain(kernel, X, y, grid, n_steps=8000, thin=8):
    """Probability of class 1 on the grid, averaged over draws of the posterior by elliptical slice sampling."""
    rng = np.random.default_rng(0)
    sign = np.where(y, 1.0, -1.0)
    covariance = kernel(X) + 1e-8 * np.eye(len(X))
    root = np.linalg.cholesky(covariance)
    weights = np.linalg.solve(covariance, kernel(X, grid)).T
    std = np.sqrt(np.maximum(kernel.diag(grid) - np.einsum("ij,ji->i", weights, kernel(X, grid)), 0.0))
    # The expectation over the grid's function values, given those at X, is by quadrature.
    nodes, node_weights = np.polynomial.hermite_e.hermegauss(7)
    f, total, n_draws = np.zeros(len(X)), np.zeros(len(grid)), 0

    def log_likelihood(f):
        return -np.logaddexp(0.0, -sign * f).sum()

    for step in range(n_steps):
        other, height = root @ rng.normal(size=len(X)), log_likelihood(f) + np.log(rng.uniform())
        angle = rng.uniform(0, 2 * np.pi)
        low, high = angle - 2 * np.pi, angle
        while log_likelihood(new := f * np.cos(angle) + other * np.sin(angle)) < height:
            low, high = (angle, high) if angle < 0 else (low, angle)
            angle = rng.uniform(low, high)
        f = new
        if step % thin == 0 and step > n_steps // 10:
            total += expit((weights @ f)[:, None] + std[:, None] * nodes) @ node_weights / node_weights.sum()
            n_draws += 1
    return total / n_draws


rng = np.random.default_rng(0)
X = rng.normal(size=(200, 2))
y = np.logical_xor(X[:, 0] > 0, X[:, 1] > 0) ^ (rng.uniform(size=200) < 0.1)
ticks = np.linspace(-3, 3, 40)
grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
figure, axes = plt.subplots(1, 2, figsize=(8, 4.2), sharey=True, layout="constrained")
kernels = {"RBF": 1.0 * RBF(1.0), "DotProduct, squared": 1.0 * DotProduct(1.0) ** 2}
for (title, kernel), ax in zip(kernels.items(), axes, strict=True):
    theirs = GaussianProcessClassifier(kernel).fit(X, y)
    found = {"this package": ours(theirs.kernel_).fit(X, y), "scikit-learn": theirs}
    found = {name: each.predict_proba(grid)[:, 1] for name, each in found.items()}
    print(theirs.kernel_)
    print(f"  largest difference between the two {np.abs(found['this package'] - found['scikit-learn']).max():.3f}")
    image = ax.contourf(ticks, ticks, found["this package"].reshape(40, 40), np.linspace(0, 1, 11), cmap="cividis")
    lines = ax.contour(
        ticks, ticks, found["scikit-learn"].reshape(40, 40), [0.1, 0.5, 0.9], colors="white", linestyles="--"
    )
    ax.clabel(lines)
    for label, marker in ((0, "o"), (1, "^")):
        ax.scatter(
            *X[y == label].T, s=12, marker=marker, color="white" if label else "black", edgecolor="0.3", linewidth=0.5
        )
    ax.set(title=title, xlabel="$x_1$", xlim=(-3, 3), ylim=(-3, 3))
axes[0].set_ylabel("$x_2$")
truth = markov_chain(theirs.kernel_, X, y, grid)
for name, proba in found.items():
    error = np.abs(proba - truth)
    print(f"  {name} and the Markov chain: mean difference {error.mean():.4f}, largest {error.max():.3f}")
figure.colorbar(image, ax=axes, label="probability of XOR, this package", ticks=[0, 0.5, 1])
plt.show()

# %%
# Colours are this package's probabilities, dashed lines scikit-learn's.
#
# Isoprobability lines
# --------------------
#
# Eight evaluations of a function have said where it is positive: below the dotted line. Each other line joins points of
# one probability that it is, solid here and dashed in scikit-learn. So few labels hardly determine hyperparameters, and
# these are fixed. Laplace's approximation is a Gaussian around the most probable function, and is farther off here.

corners = np.array(
    [[-4.6, -6.0], [4.1, 5.3], [0.0, -0.5], [-6.2, -4.7], [1.3, -6.9], [-5.0, 3.1], [-2.9, 6.7], [5.2, 4.3]]
)
positive = 5.0 - corners[:, 1] - 0.5 * corners[:, 0] ** 2 > 0
kernel = ConstantKernel(0.02, "fixed") * DotProduct(1.5, "fixed") ** 2
theirs = GaussianProcessClassifier(kernel).fit(corners, positive)
mine = ours(kernel).fit(corners, positive)
ticks = np.linspace(-8, 8, 60)
grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
pair = [each.predict_proba(grid)[:, 1] for each in (mine, theirs)]
error = [np.abs(each - markov_chain(kernel, corners, positive, grid)).max() for each in pair]
print(f"largest difference between the two {np.abs(pair[0] - pair[1]).max():.3f}")
print(f"largest difference from the Markov chain: this package {error[0]:.3f}, scikit-learn {error[1]:.3f}")

figure, axes = plt.subplots(1, 2, figsize=(8, 4.2), layout="constrained")
ax = axes[0]
ax.contourf(ticks, ticks, pair[0].reshape(60, 60), np.linspace(0, 1, 11), cmap="cividis")
lines = [
    ax.contour(ticks, ticks, each.reshape(60, 60), [0.334, 0.5, 0.666], colors="white", linestyles=style)
    for each, style in zip(pair, ("-", "--"), strict=True)
]
ax.clabel(lines[0], fmt="%.2f")
ax.plot(ticks, 5.0 - 0.5 * ticks**2, color="black", linestyle=":")
for label, marker in ((0, "o"), (1, "^")):
    ax.plot(*corners[positive == label].T, marker, color="white" if label else "black", markeredgecolor="0.3")
ax.set(title="Isoprobability lines", xlabel="$x_1$", ylabel="$x_2$", ylim=(-8, 8))

# %%
# Irises
# ------
#
# Three classes: scikit-learn fits one model for each, against the others; here ``likelihood="softmax"`` is one model of
# all. So they are not compared with each other but with labels that are held out: half of the flowers, by the first
# two measurements.

iris = load_iris()
X, X_test, y, y_test = train_test_split(
    iris.data[:, :2], iris.target, test_size=0.5, random_state=0, stratify=iris.target
)
kernel = 1.0 * RBF([1.0, 1.0])
theirs = GaussianProcessClassifier(kernel).fit(X, y)
mine = NGDSVGPClassifier(kernel, normalize_X=False, random_state=0).fit(X, y)
for name, each in (("this package", mine), ("scikit-learn", theirs)):
    loss = log_loss(y_test, each.predict_proba(X_test))
    print(f"{name:14s} log loss {loss:.3f}, accuracy {each.score(X_test, y_test):.3f}")
print(
    f"the same label for {100 * np.mean(mine.predict(X_test) == theirs.predict(X_test)):.0f} % of the held-out flowers"
)

ax = axes[1]
x1, x2 = np.linspace(4, 8.2, 90), np.linspace(1.8, 4.6, 90)
grid = np.stack(np.meshgrid(x1, x2), axis=-1).reshape(-1, 2)
colours = np.array([[0.0, 0.45, 0.70], [0.90, 0.62, 0.0], [0.80, 0.47, 0.65]])
ax.imshow(
    (mine.predict_proba(grid) @ colours).reshape(90, 90, 3),
    extent=(4, 8.2, 1.8, 4.6),
    origin="lower",
    aspect="auto",
    alpha=0.75,
)
ax.contour(x1, x2, theirs.predict(grid).reshape(90, 90), [0.5, 1.5], colors="black", linestyles="--")
for label, marker in enumerate("os^"):
    ax.scatter(
        *X_test[y_test == label].T,
        s=18,
        marker=marker,
        color=colours[label],
        edgecolor="black",
        linewidth=0.6,
        label=iris.target_names[label],
    )
ax.set(title="Irises, held out", xlabel=iris.feature_names[0], ylabel=iris.feature_names[1])
ax.legend(fontsize="small")
plt.show()
