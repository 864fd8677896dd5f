"""
A cheap measurement for an expensive one
========================================

An expensive quantity is measured at few places, and a cheap one, which goes with it, at many. Independent outputs
predict the first from its own few values. With ``output_kernel="coregionalization"`` the fit finds the covariance
between outputs, and the many values help where the few are far away.
"""

# %%
# Nine values and sixty
# ---------------------
#
# A missing target is NaN. The outputs have units and noises of their own, and go in opposite directions.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process.kernels import RBF

from skgp_natgrad import NGDSVGPRegressor

rng = np.random.default_rng(3)
X = np.sort(rng.uniform(0, 10, size=(60, 1)), axis=0)
common = np.sin(X[:, 0]) + 0.5 * np.sin(2.3 * X[:, 0])
cheap = -20 * common + 3 * rng.normal(size=60) + 100
expensive = common + 0.2 * np.cos(0.7 * X[:, 0]) + 0.05 * rng.normal(size=60)
measured = np.sort(rng.choice(60, size=9, replace=False))
Y = np.full((60, 2), np.nan)
Y[measured, 0], Y[:, 1] = expensive[measured], cheap

models = {
    name: NGDSVGPRegressor(1.0 * RBF(), output_kernel=name, missing_targets="ignore", random_state=0).fit(X, Y)
    for name in ("independent", "coregionalization")
}
held_out = np.setdiff1d(np.arange(60), measured)
truth = np.full((len(held_out), 2), np.nan)
truth[:, 0] = expensive[held_out]
print("Log density of the expensive values that were not measured, each")
for name, model in models.items():
    print(f"{name:20s}{model.predict_log_density(X[held_out], truth).mean():8.2f}")

# %%
# What was found
# --------------
#
# The correlation of the outputs at one place, and a noise for each.

model = models["coregionalization"]
print(model.output_correlation_.round(2))
print(model.summary())

# %%
# The expensive quantity
# ----------------------

grid = np.linspace(0, 10, 200)[:, None]
figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    mean, (lower, upper) = model.predict(grid)[:, 0], (each[:, 0] for each in model.predict_interval(grid))
    ax.fill_between(grid[:, 0], lower, upper, color="#0072B2", alpha=0.2, linewidth=0, label="90 % interval")
    ax.plot(grid, mean, color="#0072B2", linewidth=2, label="mean")
    ax.plot(X[held_out, 0], expensive[held_out], ".", color="0.6", label="not measured")
    ax.plot(X[measured, 0], expensive[measured], "o", color="black", label="measured")
    ax.set(title=name, xlabel="x")
axes[0].set_ylabel("expensive quantity")
axes[0].legend(loc="lower left", frameon=False, fontsize="small")
plt.show()

# %%
# ``sample_y`` draws all outputs together, so that a draw of their difference, or of any function of both, is right.

draws = model.sample_y(np.array([[5.0]]), n_samples=2000, random_state=0)[0]
print(f"correlation of the draws at x = 5, noise included: {np.corrcoef(draws)[0, 1]:.2f}")
