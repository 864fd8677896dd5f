"""
Right on average, wrong everywhere
==================================

Intervals that hold nine targets in ten may be wrong for every single row: too wide where there is little noise, too
narrow where there is much. One noise for all rows gives such intervals where the noise varies. With
``likelihood="heteroscedastic_gaussian"`` a second latent function is the logarithm of the noise variance.
"""

# %%
# Noise that varies tenfold
# -------------------------
#
# Held-out rows are counted apart where the noise is low and where it is high.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process.kernels import RBF

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.inspection import PredictiveDisplay

rng = np.random.default_rng(0)


def noise(x):
    """Standard deviation of the noise at x."""
    return 0.1 + 0.9 * np.exp(-0.5 * ((x - 6.5) / 1.2) ** 2)


X = rng.uniform(0, 10, size=(3000, 1))
y = np.sin(X[:, 0]) + 0.3 * X[:, 0] + noise(X[:, 0]) * rng.normal(size=3000)
train, test = slice(0, 600), slice(600, None)
quiet = noise(X[test, 0]) < 0.3

kernel = 1.0 * RBF()
models = {
    "One noise": NGDSVGPRegressor(kernel, random_state=0),
    "Noise that varies": NGDSVGPRegressor(kernel, likelihood="heteroscedastic_gaussian", n_inducing=20, random_state=0),
}
print(f"{'':18s}{'within the 90 % interval':^33s}{'log density':>14s}")
print(f"{'':18s}{'all rows':>11s}{'quiet':>11s}{'loud':>11s}{'a row':>14s}")
for name, model in models.items():
    model.fit(X[train], y[train])
    lower, upper = model.predict_interval(X[test], coverage=0.9)
    inside = (lower <= y[test]) & (y[test] <= upper)
    shares = "".join(f"{100 * part.mean():9.1f} %" for part in (inside, inside[quiet], inside[~quiet]))
    print(f"{name:18s}{shares}{model.predict_log_density(X[test], y[test]).mean():14.3f}")

# %%
# Bands, and the noise that was found
# -----------------------------------
#
# ``predict_latent`` has both latent functions; half of the second is the logarithm of the noise deviation.

grid = np.linspace(0, 10, 200)[:, None]
latent, deviation = models["Noise that varies"].predict_latent(grid, return_std=True)
log_noise, its_deviation = latent[:, 1] / 2, deviation[:, 1] / 2

figure, axes = plt.subplot_mosaic(
    [list(models), ["noise", "noise"]], figsize=(8, 6.4), height_ratios=[3, 2], layout="constrained"
)
for name, model in models.items():
    PredictiveDisplay.from_estimator(model, X[train], y[train], coverages=(0.9,), ax=axes[name])
    axes[name].get_legend().remove()
    axes[name].set(title=f"{name}, 90 % interval", xlabel="", ylim=(-2.5, 6))
ax = axes["noise"]
low, high = (np.exp(log_noise + sign * 1.96 * its_deviation) for sign in (-1, 1))
ax.fill_between(grid[:, 0], low, high, color="#0072B2", alpha=0.2, linewidth=0, label="its 95 % interval")
ax.plot(grid, np.exp(log_noise), color="#0072B2", linewidth=2, label="found")
ax.plot(grid, noise(grid[:, 0]), color="black", linestyle="--", label="true")
ax.axhline(models["One noise"].summary().noise, color="#D55E00", label="one noise")
ax.set(xlabel="x", ylabel="deviation of the noise", xlim=axes["One noise"].get_xlim(), ylim=(0, None))
ax.legend(loc="upper left", frameon=False)
plt.show()
