"""
Bayesian optimization: where to measure next
============================================

The minimum of a function that is costly to evaluate. A Gaussian process is fitted to what was measured, and the next
measurement is where the *expected improvement* is largest: the mean may be low there, or the deviation large. Random
search with as many measurements is the comparison.
"""

# %%
# The function
# ------------
#
# Branin's function has three minima of the same depth, .398, and rises to 308. It has no noise: the likelihood's
# variance is fixed at a millionth of that of the measurements. Lengthscales are at least a tenth of a column's
# deviation: the evidence of few, clustered measurements may be largest where none says anything of another.

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm
from sklearn.gaussian_process.kernels import Matern

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.likelihoods import Gaussian

LOW, HIGH = np.array([-5.0, 0.0]), np.array([10.0, 15.0])
MINIMA = np.array([[-np.pi, 12.275], [np.pi, 2.275], [9.42478, 2.475]])


def branin(X):
    x, y = X.T
    return (y - 5.1 / (4 * np.pi**2) * x**2 + 5 / np.pi * x - 6) ** 2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x) + 10


def expected_improvement(model, X, best):
    """E[max(best - f, 0)] of the latent function f, without noise."""
    mean, std = model.predict_latent(X, return_std=True)
    z = (best - mean) / std
    return std * (z * norm.cdf(z) + norm.pdf(z))


def optimize(rng, n_evaluations):
    """Measured points: eight at random, and then one at a time by expected improvement."""
    kernel = 1.0 * Matern([1.0, 1.0], (0.1, 1e4), nu=2.5)
    X = rng.uniform(LOW, HIGH, size=(8, 2))
    while True:
        y = branin(X)
        model = NGDSVGPRegressor(kernel, likelihood=Gaussian(1e-6, "fixed"), random_state=0).fit(X, y)
        if len(X) == n_evaluations:
            return X, model
        candidates = rng.uniform(LOW, HIGH, size=(2000, 2))
        X = np.vstack([X, candidates[np.argmax(expected_improvement(model, candidates, y.min()))]])


# %%
# Five runs of each
# -----------------

N_RUNS, N_EVALUATIONS = 5, 32
rngs = [np.random.default_rng(seed) for seed in range(N_RUNS)]
runs = [optimize(rng, N_EVALUATIONS) for rng in rngs]
found = {
    "expected improvement": np.array([branin(X) for X, _ in runs]),
    "random search": np.array([branin(rng.uniform(LOW, HIGH, size=(N_EVALUATIONS, 2))) for rng in rngs]),
}
minimum = branin(MINIMA).min()
regret = {name: np.minimum.accumulate(values, axis=1) - minimum for name, values in found.items()}
for name, each in regret.items():
    print(
        f"{name:22s} best value above the minimum, after 16: {np.median(each[:, 15]):.3f}, after 32: "
        f"{np.median(each[:, -1]):.3f} (medians of {N_RUNS} runs)"
    )

# %%
# The first run
# -------------

figure, axes = plt.subplot_mosaic(
    [["mean", "std"], ["regret", "regret"]], figsize=(8, 7.5), height_ratios=[5, 4], layout="constrained"
)
X, model = runs[0]
sides = [np.linspace(*ends, 80) for ends in zip(LOW, HIGH, strict=True)]
grid = np.stack(np.meshgrid(*sides), axis=-1)
mean, std = (each.reshape(80, 80) for each in model.predict_latent(grid.reshape(-1, 2), return_std=True))
for name, values, title in (("mean", mean, "Predicted f"), ("std", std, "Its standard deviation")):
    ax = axes[name]
    drawn = ax.contourf(*sides, values, levels=14, cmap="cividis")
    figure.colorbar(drawn, ax=ax, location="bottom")
    ax.plot(*X[:8].T, "o", color="white", markeredgecolor="black", label="8 at random")
    ax.plot(*X[8:].T, "^", color="tab:orange", markeredgecolor="black", label="by expected improvement")
    ax.plot(*MINIMA.T, "*", color="tab:red", markeredgecolor="white", markersize=14, label="true minima")
    ax.set(title=title, xlabel="$x_1$", ylabel="$x_2$" if name == "mean" else "")
axes["mean"].legend(loc="upper right", fontsize=8, framealpha=0.9)
ax, n = axes["regret"], np.arange(1, N_EVALUATIONS + 1)
for (name, each), color, style in zip(regret.items(), ("tab:blue", "tab:orange"), ("-", "--"), strict=True):
    ax.fill_between(n, each.min(0), each.max(0), color=color, alpha=0.15, step="post")
    ax.step(n, np.median(each, axis=0), style, color=color, linewidth=2, where="post", label=name)
ax.axvline(8, color="black", linewidth=0.8)
ax.set(yscale="log", title="Median and range of five runs", xlabel="evaluations", ylabel="best value above minimum")
ax.legend(loc="lower left", fontsize=9)
plt.show()
