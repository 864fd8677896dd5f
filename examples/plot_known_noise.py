"""
Noise that is known, and noise that varies
==========================================

Two instruments measure one quantity, one of them twenty times as precise. Their errors are known from calibration, and
``alpha`` in ``fit`` passes on their variances, as in scikit-learn's GaussianProcessRegressor. Where nobody knows the
noise, ``likelihood="heteroscedastic_gaussian"`` finds how it varies with X.
"""

# %%
# Two instruments
# ---------------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process.kernels import RBF

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.inspection import PredictiveDisplay
from skgp_natgrad.likelihoods import Gaussian

rng = np.random.default_rng(1)
X = np.sort(rng.uniform(0, 10, size=(120, 1)), axis=0)
precise = rng.uniform(size=120) < 0.2
deviation = np.where(precise, 0.05, 1.0)
truth = np.sin(1.5 * X[:, 0]) * np.exp(-0.1 * X[:, 0])
y = truth + deviation * rng.normal(size=120)

kernel = 1.0 * RBF()
known = NGDSVGPRegressor(kernel, likelihood=Gaussian(1e-4, "fixed"), random_state=0).fit(X, y, alpha=deviation**2)
alike = NGDSVGPRegressor(kernel, random_state=0).fit(X, y)

figure, axes = plt.subplots(1, 3, figsize=(14, 4.2), layout="constrained")
for ax, model, title in zip(axes, (alike, known), ("One noise for all rows", "alpha = variances"), strict=False):
    mean, std = model.predict_latent(X, return_std=True)
    error = np.sqrt(np.mean((mean - truth) ** 2))
    print(f"{title:24s} error of the function {error:.3f}; predicted on average {np.mean(std):.3f}")
    ax.fill_between(X[:, 0], mean - 2 * std, mean + 2 * std, color="tab:blue", alpha=0.25, label="function, 95 %")
    ax.plot(X, mean, color="tab:blue")
    ax.plot(X, truth, color="black", linestyle="--", linewidth=1, label="truth")
    ax.plot(X[~precise], y[~precise], ".", color="0.7", label="coarse instrument")
    ax.plot(X[precise], y[precise], "o", color="tab:orange", markersize=5, label="precise instrument")
    ax.set(title=f"{title}: error {error:.2f}", xlabel="x", ylim=(-3, 3))
axes[0].legend(loc="lower left", fontsize=8)

# %%
# Noise that grows
# ----------------

X_wide = np.sort(rng.uniform(0, 10, size=(500, 1)), axis=0)
y_wide = np.sin(X_wide[:, 0]) + (0.05 + 0.1 * X_wide[:, 0]) * rng.normal(size=500)
varying = NGDSVGPRegressor(likelihood="heteroscedastic_gaussian", n_inducing=20, random_state=0).fit(X_wide, y_wide)
steady = NGDSVGPRegressor(random_state=0).fit(X_wide, y_wide)
for name, model in (("noise varies", varying), ("one noise", steady)):
    print(f"{name:24s} log density a row {model.predict_log_density(X_wide, y_wide).mean():.3f}")
PredictiveDisplay.from_estimator(varying, X_wide, y_wide, ax=axes[2])
axes[2].set_title("Noise that varies with x is found")
axes[2].legend(loc="lower left", fontsize=8)
plt.show()
